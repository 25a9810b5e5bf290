"""The files of netinit/data."""

from __future__ import annotations

import functools
import json
from typing import Any

_FOLDER = __file__.rpartition("/base/")[0] + "/data/"  # importlib.resources costs 10 ms to import, pathlib 5


def read_data(name: str) -> str:
    """Return the text of a file of the package's data."""
    with open(_FOLDER + name, encoding="utf-8") as file:  # noqa: PTH123 - see above
        return file.read()


@functools.cache
def _read_findings(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(read_data(name))
    return found


def format_finding(name: str, key: str, values: dict[str, Any]) -> list[str]:
    """Return what a file says of one of its findings, such as severity, kind and message, with these values in its texts."""
    return [text.format(**values) for text in _read_findings(name)[key]]
