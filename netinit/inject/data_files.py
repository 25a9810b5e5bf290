"""Tables of names and types that the package carries as text."""

from __future__ import annotations

__all__ = ["read_lines"]

_FOLDER = __file__.rpartition("/inject/")[0] + "/data/"  # this room imports nothing of the system


def read_lines(name: str) -> list[str]:
    """The lines of a file of the package's data, without comments."""
    with open(_FOLDER + name, encoding="utf-8") as file:  # noqa: PTH123 - see above
        return [line for line in file.read().splitlines() if not line.startswith("#")]
