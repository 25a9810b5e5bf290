"""Sprig's functions on types and kinds, and Go's deep equality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.limits import measure_all
from netinit.golang.template.values import (
    MAP,
    NO_VALUE,
    SLICE,
    Function,
    Struct,
    kind_of,
    type_name,
    typed,
)

_ANY: Final = "interface {}"
_TEXT: Final = "string"


def deep_equal(left: Any, right: Any) -> bool:
    """Whether both have the same type and all that is in them is equal (reflect.DeepEqual)."""
    if type_name(left) != type_name(right):
        return False
    kind = kind_of(left)
    if kind == MAP:
        return left.keys() == right.keys() and all(deep_equal(item, right[key]) for key, item in left.items())
    if kind == SLICE:
        return len(left) == len(right) and all(map(deep_equal, left, right))
    if isinstance(left, Struct):
        return left is right or (left.nil == right.nil and deep_equal(dict(left.fields), dict(right.fields)))
    return bool(left == right)


def go_kind(value: Any) -> str:
    """The Go kind of the value."""
    if value is None or value is NO_VALUE:
        return "invalid"
    kind = kind_of(value)
    named = {MAP: "map", SLICE: "slice", "struct": "struct", "pointer": "ptr", "func": "func", "string": "string"}
    return named.get(kind, type_name(value))


def type_of(value: Any) -> str:
    """The Go type of the value."""
    return "<nil>" if value is None else type_name(value)


FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "deepEqual": typed(deep_equal, _ANY, _ANY, cost=measure_all),
    "kindIs": typed(lambda kind, value: go_kind(value) == kind, _TEXT, _ANY),
    "kindOf": go_kind,
    "typeIs": typed(lambda name, value: type_of(value) == name, _TEXT, _ANY),
    "typeIsLike": typed(lambda name, value: type_of(value) in (name, f"*{name}"), _TEXT, _ANY),
    "typeOf": type_of,
}
