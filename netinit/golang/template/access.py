"""Fields, methods and elements of values, and the checks of arguments: what Go does by reflection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from netinit.golang.template.values import (
    ANY,
    INT,
    MAP,
    NIL,
    NO_VALUE,
    POINTER,
    SLICE,
    STRING,
    UINT,
    VALUE,
    Function,
    FunctionError,
    Struct,
    TypedMap,
    Uint8,
    from_bytes,
    holds_interfaces,
    kind_of,
    to_bytes,
    type_name,
)

__all__ = ["check_argument", "field", "index", "key_type", "length", "method", "prepare", "slice_of"]

_NILABLE: Final = ("[]", "map[", "*", "func(")


class NoFieldError(Exception):
    """The value has no such field; `nil` says that it would have it if it were not a nil pointer.

    The one who knows what the value came from words the message.
    """

    def __init__(self, *, nil: bool = False) -> None:
        super().__init__()
        self.nil = nil


class MethodError(FunctionError):
    """A method was called and failed, which Go reports at the whole chain."""


def method(value: Any, name: str) -> Callable[..., Any] | Function | None:
    """The method of that name, if the value has it."""
    methods = getattr(value, "go_methods", None)
    return methods.get(name) if methods else None


def field(value: Any, name: str) -> Any:
    """The field, map entry or result of the method without arguments.

    Raises NoFieldError where the value cannot have the field, FunctionError for every other failure. `NO_VALUE` has
    every field: no value.
    """
    if value is NO_VALUE:
        return NO_VALUE
    if isinstance(value, Struct):
        found = value.go_methods.get(name)
        if found is not None:
            return call_method(found, name)
        if value.nil:
            if value.fields and name not in value.fields:
                raise NoFieldError
            raise NoFieldError(nil=True)
        try:
            return value.fields[name]
        except KeyError:
            raise NoFieldError from None
    if value is None:
        raise NoFieldError(nil=True)
    own = method(value, name)
    if own is not None:
        return call_method(own, name)
    if isinstance(value, dict) and key_type(value) == "string":
        return value.get(name, NO_VALUE)
    raise NoFieldError


def check_count(function: Function, name: str, given: int, piped: int) -> None:
    """Nothing when the function takes so many arguments, piped ones included; else FunctionError with Go's words."""
    wanted = len(function.params)
    if function.variadic is not None:
        if given + piped < wanted:
            raise FunctionError(f"wrong number of args for {name}: want at least {wanted} got {given}")
    elif given + piped != wanted:
        raise FunctionError(f"wrong number of args for {name}: want {wanted} got {given + piped}")


def invoke(function: Function, name: str, args: Iterable[Any]) -> Any:
    """The result of the method; raises FunctionError with Go's words when it fails."""
    try:
        return function.call(*args)
    except Exception as problem:
        # Go turns the panic of a method into an error, too
        raise MethodError(f"error calling {name}: {problem}") from problem


def call_method(found: Callable[..., Any] | Function, name: str) -> Any:
    """The result of the method called without arguments; raises FunctionError with Go's words."""
    function = Function.of(found)
    check_count(function, name, 0, 0)
    return invoke(function, name, ())


def key_type(mapping: dict[Any, Any]) -> str:
    """The Go type of the map's keys."""
    return mapping.key_type if isinstance(mapping, TypedMap) else "string"


def can_be_nil(go_type: str) -> bool:
    """Whether nil is a value of the type."""
    return go_type in (ANY, VALUE) or go_type.startswith(_NILABLE)


def check_argument(value: Any, go_type: str) -> Any:
    """The value as an argument of that type; raises FunctionError where Go cannot assign it."""
    if go_type == VALUE:
        return value
    if go_type == ANY:
        return None if value is NO_VALUE else value
    if value is NO_VALUE:
        if can_be_nil(go_type):
            return None
        raise FunctionError(f"invalid value; expected {go_type}")
    actual = type_name(value)
    if actual == go_type or (actual == f"*{go_type}" and value):
        return value
    if actual == f"*{go_type}":
        raise FunctionError(f"dereference of nil pointer of type {go_type}")
    raise FunctionError(f"wrong type for value; expected {go_type}; got {actual}")


def prepare(value: Any, go_type: str) -> Any:
    """The value as a map's key or the argument of a called function, for which Go has other rules and words."""
    if value is None or value is NO_VALUE:
        if can_be_nil(go_type):
            return None
        raise FunctionError(f"value is nil; should be of type {go_type}")
    actual = type_name(value)
    if go_type in (ANY, VALUE, actual) or (kind_of(value) in (INT, UINT) and go_type.startswith(("int", "uint"))):
        return value
    raise FunctionError(f"value has type {actual}; should be {go_type}")


def index(item: Any, *keys: Any) -> Any:
    """The element of the map, list or text; Go's builtin index."""
    if item is None or item is NO_VALUE:
        raise FunctionError("index of untyped nil")
    for key in keys:
        if item is None or (kind_of(item) == POINTER and not item):
            raise FunctionError("index of nil pointer")
        kind = kind_of(item)
        if kind == MAP:
            item = item.get(prepare(key, key_type(item)), item.zero if isinstance(item, TypedMap) else None)
        elif kind in (SLICE, STRING):
            elements = to_bytes(item) if kind == STRING else item
            position = _position(key, len(elements))
            if position == len(elements):
                kind_word = "string" if kind == STRING else "slice"
                raise FunctionError(f"reflect: {kind_word} index out of range")
            element = elements[position]
            item = Uint8(element) if isinstance(elements, bytes) else element
        else:
            raise FunctionError(f"can't index item of type {type_name(item).removeprefix('*')}")
    return item


def _position(key: Any, limit: int) -> int:
    kind = kind_of(key)
    if kind == NIL:
        raise FunctionError("cannot index slice/array with nil")
    if kind not in (INT, UINT):
        raise FunctionError(f"cannot index slice/array with type {type_name(key)}")
    if not 0 <= key <= limit:
        raise FunctionError(f"index out of range: {int(key)}")
    return int(key)


def slice_of(item: Any, *bounds: Any) -> Any:
    """Part of the list or text; Go's builtin slice. The capacity of a list is taken to be its length."""
    if item is None or item is NO_VALUE:
        raise FunctionError("slice of untyped nil")
    kind = kind_of(item)
    if kind == POINTER and not item:
        raise FunctionError("slice of nil pointer")
    if len(bounds) > 3:  # noqa: PLR2004 - from, to, capacity
        raise FunctionError(f"too many slice indexes: {len(bounds)}")
    if kind == STRING:
        if len(bounds) == 3:  # noqa: PLR2004 - from, to, capacity
            raise FunctionError("cannot 3-index slice a string")
        elements: Any = to_bytes(item)
    elif kind == SLICE:
        elements = item
    else:
        raise FunctionError(f"can't slice item of type {type_name(item)}")
    ends = [0, len(elements), len(elements)]
    for place, bound in enumerate(bounds):
        ends[place] = _position(bound, len(elements))
    if ends[0] > ends[1]:
        raise FunctionError(f"invalid slice index: {ends[0]} > {ends[1]}")
    if ends[1] > ends[2]:
        raise FunctionError(f"invalid slice index: {ends[1]} > {ends[2]}")
    part = elements[ends[0] : ends[1]]
    if kind == STRING:
        return from_bytes(part)
    return type(item)(part, go_type=item.go_type) if hasattr(item, "go_type") else part


def length(item: Any) -> int:
    """The number of elements, or of bytes of a text; Go's builtin len."""
    kind = kind_of(item)
    if kind == STRING:
        return len(item) if item.isascii() else len(to_bytes(item))
    if kind in (MAP, SLICE):
        return len(item)
    if item is NO_VALUE:
        raise FunctionError("reflect: call of reflect.Value.Type on zero Value")
    if item is None or (kind == POINTER and not item):
        raise FunctionError("len of nil pointer")
    raise FunctionError(f"len of type {type_name(item).removeprefix('*')}")


def word_missing_field(problem: NoFieldError, name: str, value: Any, holder: Any) -> str:
    """The message for a field that cannot be; the holder is the container the value came from, if any."""
    shown = ANY if value is None or (holder is not None and holds_interfaces(holder)) else type_name(value)
    if problem.nil:
        return f"nil pointer evaluating {shown}.{name}"
    return f"can't evaluate field {name} in type {shown}"
