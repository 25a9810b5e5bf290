"""Template data: the package's data files that list its types, their scalars, and mappings that are filled on access."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from netinit.base.tree import string
from netinit.golang.template.values import Int32, Int64, Uint32, Uint64

_FOLDER = __file__.rpartition("/inject/")[0] + "/data/"  # importlib.resources costs 10 ms to import, pathlib 5


def read_data(name: str) -> str:
    """The text of a file of the package's data."""
    with open(_FOLDER + name, encoding="utf-8") as file:  # noqa: PTH123 - see above
        return file.read()


def read_lines(name: str) -> list[str]:
    """The lines of a file of the package's data, without comments."""
    return [line for line in read_data(name).splitlines() if not line.startswith("#")]


class LazyMapping(Mapping[str, Any]):
    """A mapping of names to the values that `make` creates on first access: a template reads few fields of a pod.

    `hidden`: names that are in the mapping, but not iterated over.
    """

    def __init__(self, names: Collection[str], make: Callable[[str], Any], hidden: Collection[str] = ()) -> None:
        self._names, self._make, self._hidden = names, make, hidden
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            if name not in self:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._hidden

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def whole(value: Any) -> int:
    """Return a number, also in decimal digits, as an integer; 0 for anything else."""
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value[:20])
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "string": string,
    "bool": lambda value: value is True,
    "double": lambda value: float(value) if isinstance(value, (int, float)) else 0.0,
    "int32": lambda value: Int32(whole(value)),
    "int64": lambda value: Int64(whole(value)),
    "uint32": lambda value: Uint32(whole(value)),
    "uint64": lambda value: Uint64(whole(value)),
}
"""Scalar types, each with the function that reads a value; the type's zero value for one of another type."""
