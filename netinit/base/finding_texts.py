"""Findings whose texts are data: a file of netinit/data has severity, kind, texts and so on of each, by its key."""

from __future__ import annotations

import functools
import json

from netinit.base.data import read_data


@functools.cache
def _read(file: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(read_data(file))
    return found


def format_finding(file: str, key: str, values: dict[str, object]) -> list[str]:
    """Return what the file says of a finding, with these values in the places that its texts name."""
    return [text.format(**values) for text in _read(file)[key]]
