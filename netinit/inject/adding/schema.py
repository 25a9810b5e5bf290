"""Template data: the data files that list its types, scalars, collections, methods, and mappings that are filled on access."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from netinit.base.data import read_data
from netinit.base.tree import mapping, sequence, string, strings
from netinit.golang.template.values import (
    Function,
    FunctionError,
    Int32,
    Int64,
    NamedType,
    StringMap,
    TypedList,
    TypedMap,
    Uint32,
    Uint64,
)


class Signature(NamedTuple):
    """A method: whether only a pointer has it, and the Go types of its parameters and results."""

    of_pointer: bool
    takes: tuple[str, ...]
    gives: tuple[str, ...]


@functools.cache
def read_types(file: str) -> Mapping[str, Any]:
    """Return a data file of types; its entry `about` describes it."""
    return mapping(json.loads(read_data(file)))


@functools.cache
def signatures(file: str, go_type: str) -> Mapping[str, Signature]:
    """Return the methods of a type and of pointers to it."""
    told, found = read_types(file), {}
    for number in told["have"].get(go_type, ()):
        for name, method in told["methods"][number].items():
            takes, gives = (tuple(_own(one, go_type) for one in method.get(part, ())) for part in ("takes", "gives"))
            found[name] = Signature(method.get("pointer", False), takes, gives)
    return found


def _own(written: str, go_type: str) -> str:
    return written[:-1] + go_type if written.lstrip("*[]") == "T" else written


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


Methods: TypeAlias = "Mapping[str, Callable[..., Any]]"


def methods_of(
    file: str, go_type: str, own: Methods, *, has_address: bool = True, basic: Callable[[str], str] = str
) -> Mapping[str, Function]:
    """Return the methods that a value of this type has in a template, bound to the functions that do their work.

    `own`: these functions by name; a method without one fails when it is called. `has_address`: whether pointers'
    methods are among them. `basic` returns what a parameter's type is made of.
    """
    known = signatures(file, go_type)

    def make(name: str) -> Function:
        method = known[name]
        params = [one if basic(one) == one else NamedType(one, basic(one)) for one in method.takes]
        return Function(own[name] if name in own else Missing(go_type, name), *params, results=method.gives)

    return LazyMapping(known if has_address else [name for name, method in known.items() if not method.of_pointer], make)


class Missing:
    """The function of a method that Go has and templates here have not."""

    def __init__(self, go_type: str, name: str) -> None:
        self._go_type, self._name = go_type, name

    def __call__(self, *_arguments: Any) -> Any:
        """Raise FunctionError."""
        raise FunctionError(f"{self._go_type} has the method {self._name} in Go, but not here")


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
