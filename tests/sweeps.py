"""Sweeps: `make test` takes a few of their cases, so chosen that each has its part in one; `make prove` sets NETINIT_SWEEPS and takes all."""

from __future__ import annotations

import os
from typing import TypeVar

Cases = TypeVar("Cases")
WHOLE = bool(os.environ.get("NETINIT_SWEEPS"))


def choose(few: Cases, whole: Cases) -> Cases:
    """The cases, or their number, of this run."""
    return whole if WHOLE else few
