"""Read the package's data files: the default configuration, and tables of names and types."""

from __future__ import annotations

_FOLDER = __file__.rpartition("/inject/")[0] + "/data/"  # importlib.resources costs 10 ms to import, pathlib 5


def read_data(name: str) -> str:
    """The text of a file of the package's data."""
    with open(_FOLDER + name, encoding="utf-8") as file:  # noqa: PTH123 - see above
        return file.read()


def read_lines(name: str) -> list[str]:
    """The lines of a file of the package's data, without comments."""
    return [line for line in read_data(name).splitlines() if not line.startswith("#")]
