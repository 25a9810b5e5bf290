"""Template data: the data files that list its types, scalars and collections, and mappings that are filled on access.

A line of such a file is `TYPE: FIELD[=NAME IN THE SOURCE]:TYPE[/MARK] ...`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from netinit.base.data import read_data
from netinit.base.tree import mapping, sequence, string, strings
from netinit.golang.template.values import Int32, Int64, StringMap, TypedList, TypedMap, Uint32, Uint64


class Field(NamedTuple):
    """A field of a type: its name in JSON and in the source (Go or a .proto file), its type, and the data file's mark."""

    json_name: str
    source_name: str
    kind: str
    mark: str


@functools.cache
def read_types(file: str) -> Mapping[str, str]:
    """Return the types that a file of the package's data lists, each with the text of its fields."""
    lines = (line.partition(":") for line in read_data(file).splitlines() if not line.startswith("#"))
    return {name: fields for name, _, fields in lines}


def read_fields(text: str, name_in_source: Callable[[str], str]) -> Iterator[Field]:
    """Yield the fields of a type; `name_in_source` derives this name from JSON's where the text gives none."""
    for entry in text.split():
        names, _, kind = entry.partition(":")
        kind, _, mark = kind.partition("/")
        name, _, in_source = names.partition("=")
        yield Field(name, in_source or name_in_source(name), kind, mark)


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


def collection_of(
    kind: str,
    raw: Any,
    make: Callable[[str, Any], Any],
    structs: Collection[str],
    go_type: Callable[[str], str] = str,
) -> Any:
    """Return a list (`[]TYPE`) or map (`map[string]TYPE`), nil for a value of another type.

    `make` creates the items from their type and value, `go_type` names their type. Items of a list of `structs` that are
    no mappings are left out.
    """
    if kind == "map[string]string":
        return StringMap(strings(raw), nil=not isinstance(raw, dict))
    of_items = kind.partition("]")[2]
    full = kind.removesuffix(of_items) + go_type(of_items)
    if kind.startswith("[]"):
        items = (make(of_items, item) for item in sequence(raw) if isinstance(item, dict) or of_items not in structs)
        return TypedList(items, go_type=full, nil=not isinstance(raw, list))
    entries = {key: make(of_items, item) for key, item in mapping(raw).items()}
    return TypedMap(entries, go_type=full, zero=make(of_items, None), nil=not isinstance(raw, dict))
