"""The data files of the package, also those inside of an archive or an executable."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__loader__: Any  # Python's name for what has loaded this module
_FOLDER = __file__.replace("\\", "/").rpartition("/base/")[0] + "/data/"  # importlib.resources costs 10 ms to import, pathlib 5


def read_data(name: str) -> str:
    """The text of a file of the package's data."""
    text: str = __loader__.get_data(_FOLDER + name).decode("utf-8")
    return text
