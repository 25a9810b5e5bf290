"""Tables of names and types that the package carries as text."""

from __future__ import annotations

import os

__all__ = ["read_lines"]

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data")  # noqa: PTH118, PTH120 - pathlib takes 3 ms of each start


def read_lines(name: str) -> list[str]:
    """The lines of a file of the package's data, without comments."""
    with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:  # noqa: PTH118, PTH123 - see above
        return [line for line in file.read().splitlines() if not line.startswith("#")]
