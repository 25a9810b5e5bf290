"""Access fields, methods and elements of values, check arguments, and call functions, as Go does by reflection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from netinit.golang.errors import TemplateError
from netinit.golang.template.limits import Rendering
from netinit.golang.template.values import (
    ANY,
    NO_VALUE,
    PYTHON_TYPES,
    VALUE,
    Function,
    FunctionError,
    NamedType,
    Pointer,
    Struct,
    TypedMap,
    Uint8,
    from_bytes,
    kind_of,
    to_bytes,
    type_name,
)

_NILABLE: Final = ("[]", "map[", "*", "func(")


class NoFieldError(Exception):
    """The value has no such field; the caller, which knows the container, formats the message.

    `nil`: the value is a nil pointer.
    """

    def __init__(self, *, nil: bool = False) -> None:
        super().__init__()
        self.nil = nil


class MethodError(FunctionError):
    """A method failed; Go reports this at the whole chain."""


class UnknownFieldError(FunctionError):
    """The value's type has no such field."""


def method(value: Any, name: str) -> Callable[..., Any] | Function | None:
    """Return the method with this name, or None."""
    methods = getattr(value, "go_methods", None)
    return methods.get(name) if methods else None


def field(value: Any, name: str) -> Any:
    """Return a field, a map entry, or the result of a method without arguments.

    Every field of `NO_VALUE` is `NO_VALUE`. Raises NoFieldError, and FunctionError for other failures.
    """
    if value is NO_VALUE:
        return NO_VALUE
    if isinstance(value, Struct):
        if not value.nil:
            try:
                return value.fields[name]  # no method has a field's name
            except KeyError:
                pass
        found = value.go_methods.get(name)
        if found is not None:
            return call_method(found, name)
        raise NoFieldError(nil=value.nil and (name in value.fields or not value.fields))
    if value is None:
        raise NoFieldError(nil=True)
    own = method(value, name)
    if own is not None:
        return call_method(own, name)
    if isinstance(value, dict) and key_type(value) == "string":
        return value.get(name, NO_VALUE)
    raise NoFieldError


def check_count(function: Function, name: str, given: int, piped: int) -> None:
    """Raise FunctionError if the function does not accept this number of arguments, or returns what no template can use.

    `piped`: 1 with a piped argument.
    """
    wanted = len(function.params)
    if function.variadic is not None:
        if given + piped < wanted:
            raise FunctionError(f"wrong number of args for {name}: want at least {wanted} got {given}")
    elif given + piped != wanted:
        raise FunctionError(f"wrong number of args for {name}: want {wanted} got {given + piped}")
    results = function.results
    if len(results) == 1 or results[1:] == ("error",):
        return
    if len(results) == 2:  # noqa: PLR2004 - a value and an error
        raise FunctionError(f"invalid function signature for {name}: second return value should be error; is {results[1]}")
    raise FunctionError(f"function {name} has {len(results)} return values; should be 1 or 2")


def call_method(found: Callable[..., Any] | Function, name: str) -> Any:
    """Call a method without arguments. Raises FunctionError with Go's message; Go turns a panic of a method into an error, too."""
    function = Function.of(found)
    check_count(function, name, 0, 0)
    try:
        found = function.call()
        return found.copied() if isinstance(found, Struct) else found
    except Exception as problem:
        raise MethodError(f"error calling {name}: {problem}") from problem


def key_type(mapping: dict[Any, Any]) -> str:
    """Return the Go type of the map's keys."""
    return mapping.key_type if isinstance(mapping, TypedMap) else "string"


def basic_type(go_type: str) -> str:
    """Return the predeclared type that a parameter's type is made of."""
    return go_type.basic if isinstance(go_type, NamedType) else go_type


def can_be_nil(go_type: str) -> bool:
    """Whether nil is a value of the type."""
    return go_type in (ANY, VALUE) or go_type.startswith(_NILABLE)


def check_argument(value: Any, go_type: str) -> Any:
    """Return the value as an argument of this type. Raises FunctionError if Go cannot assign it."""
    if go_type == VALUE:
        return value
    if go_type == ANY:
        return None if value is NO_VALUE else value.copied() if isinstance(value, Struct) else value
    if value is NO_VALUE:
        if can_be_nil(go_type):
            return None
        raise FunctionError(f"invalid value; expected {go_type}")
    actual = type_name(value)
    if actual == go_type or (f"*{actual}" == go_type and value.has_address):
        return value
    if actual == f"*{go_type}" and value:
        return value.target if isinstance(value, Pointer) else value
    if actual == f"*{go_type}":
        raise FunctionError(f"dereference of nil pointer of type {go_type}")
    raise FunctionError(f"wrong type for value; expected {go_type}; got {actual}")


def prepare(value: Any, go_type: str) -> Any:
    """Check a map key or an argument of `call`, for which Go has rules and messages of their own."""
    if value is None or value is NO_VALUE:
        if can_be_nil(go_type):
            return None
        raise FunctionError(f"value is nil; should be of type {go_type}")
    actual = type_name(value)
    if go_type in (ANY, VALUE, actual) or (kind_of(value) in ("int", "uint") and go_type.startswith(("int", "uint"))):
        return value
    raise FunctionError(f"value has type {actual}; should be {go_type}")


def pointed_to(value: Any) -> Any:
    """Return what a pointer points to, and anything else as it is."""
    return value.target if isinstance(value, Pointer) and value else value


def index(item: Any, *keys: Any) -> Any:
    """Return an element of a map, list or text: Go's builtin index. Raises FunctionError."""
    if item is None or item is NO_VALUE:
        raise FunctionError("index of untyped nil")
    for key in keys:
        item = pointed_to(item)
        if item is None or (kind_of(item) == "pointer" and not item):
            raise FunctionError("index of nil pointer")
        kind = kind_of(item)
        if kind == "map":
            item = item.get(prepare(key, key_type(item)), item.zero if isinstance(item, TypedMap) else None)
        elif kind in ("slice", "string"):
            elements = to_bytes(item) if kind == "string" else item
            position = _position(key, len(elements))
            if position == len(elements):
                kind_word = "string" if kind == "string" else "slice"
                raise FunctionError(f"reflect: {kind_word} index out of range")
            element = elements[position]
            item = Uint8(element) if isinstance(elements, bytes) else element
        else:
            raise FunctionError(f"can't index item of type {type_name(item).removeprefix('*')}")
    return item


def _position(key: Any, limit: int) -> int:
    kind = kind_of(key)
    if kind == "nil":
        raise FunctionError("cannot index slice/array with nil")
    if kind not in ("int", "uint"):
        raise FunctionError(f"cannot index slice/array with type {type_name(key)}")
    if not 0 <= key <= limit:
        raise FunctionError(f"index out of range: {int(key)}")
    return int(key)


def slice_of(item: Any, *bounds: Any) -> Any:
    """Return part of a list or text: Go's builtin slice. A list's length is its capacity. Raises FunctionError."""
    if item is None or item is NO_VALUE:
        raise FunctionError("slice of untyped nil")
    item = pointed_to(item)
    kind = kind_of(item)
    if kind == "pointer" and not item:
        raise FunctionError("slice of nil pointer")
    if len(bounds) > 3:  # noqa: PLR2004 - from, to, capacity
        raise FunctionError(f"too many slice indexes: {len(bounds)}")
    if kind == "string":
        if len(bounds) == 3:  # noqa: PLR2004 - from, to, capacity
            raise FunctionError("cannot 3-index slice a string")
        elements: Any = to_bytes(item)
    elif kind == "slice":
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
    if kind == "string":
        return from_bytes(part)
    return type(item)(part, go_type=item.go_type) if hasattr(item, "go_type") else part


def length(item: Any) -> int:
    """Return the number of elements, or of bytes of a text: Go's builtin len. Raises FunctionError."""
    item = pointed_to(item)
    kind = kind_of(item)
    if kind == "string":
        return len(item) if item.isascii() else len(to_bytes(item))
    if kind in ("map", "slice"):
        return len(item)
    if item is NO_VALUE:
        raise FunctionError("reflect: call of reflect.Value.Type on zero Value")
    if item is None or (kind == "pointer" and not item):
        raise FunctionError("len of nil pointer")
    raise FunctionError(f"len of type {type_name(item).removeprefix('*')}")


def word_missing_field(problem: NoFieldError, name: str, value: Any, holder: Any) -> str:
    """Return the message for a missing field; `holder`: the container of the value, or None."""
    holds_interfaces = holder is not None and type_name(holder).endswith(f"]{ANY}")
    shown = ANY if value is None or holds_interfaces else getattr(value, "interface", "") or type_name(value)
    if problem.nil:
        return f"nil pointer evaluating {shown}.{name}"
    return f"can't evaluate field {name} in type {shown}"


# --- calls ---

CONSTANT_KINDS: Final = {
    "bool": "bool",
    "string": "string",
    "float64": "float",
    **dict.fromkeys(("int", "int32", "int64"), "integer"),
    **dict.fromkeys(("uint8", "uint32", "uint64"), "unsigned integer"),
}
"""Go's name for a constant of each parameter type."""


def unchecked_type(go_type: str) -> type | None:
    """Return the Python type whose values need no check for a parameter of this type.

    None: any. `object`: any but that of a struct, which is copied. That of NO_VALUE: none.
    """
    if go_type == VALUE:
        return None
    return object if go_type == ANY else PYTHON_TYPES.get(go_type, type(NO_VALUE))


Argument: TypeAlias = "tuple[Callable[[Rendering, Any], Any], type | None, Callable[[Any], Any]]"
"""How to evaluate an argument, the Python type that needs no check (None: any), and the check for others."""


def make_call(
    call: Callable[..., Any],
    arguments: Sequence[Argument],
    piped: Argument | None,
    fail: Callable[[Exception], TemplateError],
    function: Function,
) -> Callable[[Rendering, Any], Any]:
    """Return a function that makes this call of `function`, as `call`. `piped` is evaluated first and passed last.

    `fail` converts an exception.
    """
    cost, keeps_address = function.cost, VALUE in function.params
    fixed = [getattr(argument[0], "literal", None) for argument in arguments] + ([] if piped is None else [None])
    is_fixed = [right is None and hasattr(expr, "literal") for expr, right, _ in arguments]
    computed = [(place, *argument) for place, argument in enumerate(arguments) if not is_fixed[place]]
    end = len(arguments)

    def call_function(run: Rendering, dot: Any) -> Any:
        last = None if piped is None else piped[0](run, dot)
        values = fixed.copy()
        for place, expr, right, admit in computed:
            value = expr(run, dot)
            kind = value.__class__
            fits = right is None or (
                value is not NO_VALUE and (kind is right or (right is object and (kind is str or not isinstance(value, Struct))))
            )
            values[place] = value if fits else admit(value)
        if piped is not None:
            right = piped[1]
            kind = last.__class__
            fits = right is None or (
                last is not NO_VALUE and (kind is right or (right is object and (kind is str or not isinstance(last, Struct))))
            )
            values[end] = last if fits else piped[2](last)
        try:
            if cost is not None:
                run.spend(cost(*values))
            result = call(*values)
            run.charge(values, result)
            if result.__class__ is not str and not keeps_address and isinstance(result, Struct):
                result = result.copied()
        except Exception as problem:
            raise fail(problem) from problem
        return result

    return call_function
