"""Sweeps: `make test` takes a few of their cases, so chosen that each has its part in one; `make prove` sets NETINIT_SWEEPS and takes all."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import TypeVar

Cases = TypeVar("Cases")
One = TypeVar("One")
Other = TypeVar("Other")
WHOLE = bool(os.environ.get("NETINIT_SWEEPS"))


def choose(few: Cases, whole: Cases) -> Cases:
    """The cases, or their number, of this run."""
    return whole if WHOLE else few


def pairs(ones: Iterable[One], others: Iterable[Other]) -> list[tuple[One, Other]]:
    """All pairs; in `make test` as many as there are of the more numerous kind, in which everything of both is."""
    first, second = list(ones), list(others)
    turns = max(len(first), len(second))
    few = list(itertools.islice(zip(itertools.cycle(first), itertools.cycle(second)), turns))
    return choose(few, list(itertools.product(first, second)))
