"""Sprig's functions on types and kinds, and Go's deep equality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.limits import measure_all
from netinit.golang.template.values import (
    ANY,
    MAP,
    NO_VALUE,
    SLICE,
    Function,
    Struct,
    kind_of,
    type_name,
    typed,
)


def deep_equal(left: Any, right: Any) -> bool:
    """Whether both values have the same type and equal content (reflect.DeepEqual)."""
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
    """Return the Go kind of the value, as reflect.Kind prints it."""
    if value is None or value is NO_VALUE:
        return "invalid"
    kind = kind_of(value)
    named = {MAP: "map", SLICE: "slice", "struct": "struct", "pointer": "ptr", "func": "func", "string": "string"}
    return named.get(kind, type_name(value))


def _type_of(value: Any) -> str:
    return "<nil>" if value is None else type_name(value)


FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "deepEqual": Function.of(deep_equal, cost=measure_all),
    "kindIs": typed(lambda kind, value: go_kind(value) == kind, "string", ANY),
    "kindOf": go_kind,
    "typeIs": typed(lambda name, value: _type_of(value) == name, "string", ANY),
    "typeIsLike": typed(lambda name, value: _type_of(value) in (name, f"*{name}"), "string", ANY),
    "typeOf": _type_of,
}
