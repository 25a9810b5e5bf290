"""Sprig's functions on any value: types and kinds, Go's deep equality, defaults for what may be missing, and fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.limits import measure_all
from netinit.golang.template.values import ANY, NO_VALUE, Function, FunctionError, Struct, kind_of, type_name


def deep_equal(left: Any, right: Any) -> bool:
    """Whether both values have the same type and equal content (reflect.DeepEqual)."""
    if type_name(left) != type_name(right):
        return False
    kind = kind_of(left)
    if kind == "map":
        return left.keys() == right.keys() and all(deep_equal(item, right[key]) for key, item in left.items())
    if kind == "slice":
        return len(left) == len(right) and all(map(deep_equal, left, right))
    if isinstance(left, Struct):
        return left is right or (left.nil == right.nil and deep_equal(dict(left.fields), dict(right.fields)))
    return bool(left == right)


def go_kind(value: Any) -> str:
    """Return the Go kind of the value, as reflect.Kind prints it."""
    if value is None or value is NO_VALUE:
        return "invalid"
    kind = kind_of(value)
    named = {"map": "map", "slice": "slice", "struct": "struct", "pointer": "ptr", "func": "func", "string": "string"}
    return named.get(kind, type_name(value))


def _type_of(value: Any) -> str:
    return "<nil>" if value is None else type_name(value)


def fail(message: str) -> Any:
    """Raise FunctionError with the message, which stops the template."""
    raise FunctionError(message)


# "Empty" means nil, false, 0, "", or a map or list without elements: Python's falsehood.
FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "all": lambda *values: all(values),
    "any": lambda *values: any(values),
    "coalesce": lambda *values: next(filter(None, values), None),
    "deepEqual": Function.of(deep_equal, cost=measure_all),
    "default": lambda fallback, *given: given[0] if given and given[0] else fallback,
    "empty": lambda value: not value,
    "fail": fail,
    "kindIs": Function(lambda kind, value: go_kind(value) == kind, "string", ANY),
    "kindOf": go_kind,
    "ternary": Function(lambda yes, no, test: yes if test else no, ANY, ANY, "bool"),
    "typeIs": Function(lambda name, value: _type_of(value) == name, "string", ANY),
    "typeIsLike": Function(lambda name, value: _type_of(value) in (name, f"*{name}"), "string", ANY),
    "typeOf": _type_of,
}
