"""The data files of the package."""

from __future__ import annotations

_FOLDER = __file__.replace("\\", "/").rpartition("/base/")[0] + "/data/"  # importlib.resources costs 10 ms to import, pathlib 5


def read_data(name: str) -> str:
    """The text of a file of the package's data."""
    with open(_FOLDER + name, encoding="utf-8") as file:  # noqa: PTH123 - see above
        return file.read()
