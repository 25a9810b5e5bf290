"""The data files of the package, also of the executable."""

from __future__ import annotations

from netinit.base.system import EMBEDDED, embedded

_FOLDER = __file__.replace("\\", "/").rpartition("/base/")[0] + "/data/"  # importlib.resources costs 10 ms to import, pathlib 5


def read_data(name: str) -> str:
    """The text of a file of the package's data."""
    if EMBEDDED:
        text: str = embedded.read(_FOLDER + name).decode("utf-8")
        return text
    with open(_FOLDER + name, encoding="utf-8") as file:  # noqa: PTH123 - see above
        return file.read()


def read_folder(name: str) -> dict[str, str]:
    """The texts of the files in a folder of the executable's data, by their paths in it."""
    start = f"{_FOLDER}{name}/"
    found = sorted(path for path in embedded.names() if path.startswith(start))
    return {path[len(start) :]: embedded.read(path).decode("utf-8") for path in found}
