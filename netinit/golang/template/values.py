"""How Python values stand for Go values: the data model of the templates.

| Python | Go |
|---|---|
| `None` | nil held by an interface: a key that is present and null |
| `NO_VALUE` | no value at all: a missing key, the result of a chain through one |
| `bool`, `int`, `float`, `str` | bool, int, float64, string |
| `Int32`, `Int64`, `Uint8`, `Uint32`, `Uint64` | the sized integers (a byte is a `Uint8`) |
| `Enum` | a named int32 with a String method, as protobuf makes them |
| `dict` | map[string]interface {} |
| `OwnMap` | the same, made by the rendering itself: functions such as sprig's set may change it |
| `TypedMap`, `StringMap` | map[K]V, map[string]string |
| `list`, `tuple` | []interface {} |
| `TypedList` | []T |
| `bytes` | []uint8 |
| `Struct` | a struct or a pointer to one, with fields and methods |
| `Function` | a func |

Text is Go's: a sequence of bytes. A byte that is not part of valid UTF-8 (a character cut in two) is kept as a
surrogate escape, so `text.encode("utf-8", "surrogateescape")` always gives Go's bytes.
Python's truth of every one of these values is Go's truth of its counterpart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any, Final, Self

ANY: Final = "interface {}"
VALUE: Final = "reflect.Value"
"""The parameter type of functions that distinguish a missing value from a null one."""

BOOL: Final = "bool"
INT: Final = "int"
UINT: Final = "uint"
FLOAT: Final = "float"
STRING: Final = "string"
MAP: Final = "map"
SLICE: Final = "slice"
STRUCT: Final = "struct"
POINTER: Final = "pointer"
FUNC: Final = "func"
NIL: Final = "nil"
OTHER: Final = "other"
"""A Python object that stands for no Go value; it can be passed to functions and nothing else."""


class Shaped(str):
    """Text of which is known how it was laid out: `lead` are the blanks that an indenting function put before it.

    `form` is "yaml" or "json" where the text is the whole of the value `tree`, else "".
    """

    __slots__ = ("form", "lead", "tree")

    lead: str
    form: str
    tree: Any

    def __new__(cls, text: str, *, lead: str = "", form: str = "", tree: Any = None) -> Self:
        """The text, laid out so."""
        self = super().__new__(cls, text)
        self.lead, self.form, self.tree = lead, form, tree
        return self


class FunctionError(Exception):
    """A function called by a template failed; the text is Go's and becomes part of the template's error."""


class _NoValue:
    """The type of `NO_VALUE`."""

    go_kind = NIL

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "<no value>"


NO_VALUE: Final = _NoValue()
"""What a template sees where nothing is: prints as `<no value>`, and every field of it is again no value."""


class Int32(int):
    """An int32."""

    go_kind, go_type = INT, "int32"


class Int64(int):
    """An int64."""

    go_kind, go_type = INT, "int64"


class Uint8(int):
    """A uint8, which is what indexing a string gives."""

    go_kind, go_type = UINT, "uint8"


class Uint32(int):
    """A uint32."""

    go_kind, go_type = UINT, "uint32"


class Uint64(int):
    """A uint64."""

    go_kind, go_type = UINT, "uint64"


class Enum(int):
    """A number that prints as its name, and whose String method gives the name: protobuf's enumerations."""

    go_kind = INT
    go_type: str
    go_methods: Mapping[str, Callable[..., Any]]

    def __new__(cls, number: int, name: str, go_type: str = "int32") -> Self:
        """The number under its name."""
        self = super().__new__(cls, number)
        self.go_type = go_type
        self.go_methods = {"String": lambda: name}
        return self


class OwnMap(dict[str, Any]):
    """A map that this rendering made, so that it may be changed: the data of a template may be shared by threads."""

    go_kind, go_type = MAP, "map[string]interface {}"


class TypedMap(dict[Any, Any]):
    """A map whose values have one type: `index` of a missing key gives `zero`, not nil. JSON has null for a `nil` one."""

    go_kind = MAP

    def __init__(self, data: Mapping[Any, Any] | None = None, *, go_type: str, zero: Any, nil: bool = False) -> None:
        super().__init__(data or {})
        self.nil = nil
        self.go_type = go_type
        self.zero = zero

    @property
    def key_type(self) -> str:
        """The Go type of the keys: what stands between the brackets of the map's type."""
        return self.go_type[4 : self.go_type.index("]")]


class StringMap(TypedMap):
    """A map[string]string, such as labels and annotations."""

    def __init__(self, data: Mapping[str, str] | None = None, *, nil: bool = False) -> None:
        super().__init__(data, go_type="map[string]string", zero="", nil=nil)


class TypedList(list[Any]):
    """A slice whose elements have one type, such as the containers of a pod. JSON has null for a `nil` one."""

    go_kind = SLICE

    def __init__(self, items: Iterable[Any] = (), *, go_type: str, nil: bool = False) -> None:
        super().__init__(items)
        self.nil = nil
        self.go_type = go_type


class Struct:
    """A struct, or with a type that starts with `*` a pointer to one.

    `fields` are the exported fields in Go's order; `methods` are Python callables, called with the template's
    arguments (a plain method has none). A method named String gives what is printed. `nil=True` makes a nil pointer:
    its fields are errors, its methods can be called, as protobuf's getters are; name its fields all the same, so
    that an unknown field is distinguished from a nil one. A subclass whose JSON is not simply its fields has `go_json`.
    """

    def go_json(self) -> Any:
        """What JSON has for the value: its fields that are not empty, under their names with a small first letter."""
        if self.nil:
            return None
        return {name[:1].lower() + name[1:]: item for name, item in self.fields.items() if item}

    def __init__(
        self,
        go_type: str,
        fields: Mapping[str, Any],
        methods: Mapping[str, Callable[..., Any]] | None = None,
        *,
        nil: bool = False,
    ) -> None:
        if nil and not go_type.startswith("*"):
            raise ValueError(f"{go_type}: only a pointer, whose type starts with *, can be nil")
        self.go_type = go_type
        self.fields = fields
        self.go_methods = methods or {}
        self.nil = nil

    @property
    def go_kind(self) -> str:
        """POINTER or STRUCT, by the type's name."""
        return POINTER if self.go_type.startswith("*") else STRUCT

    def __bool__(self) -> bool:
        return not self.nil

    def __repr__(self) -> str:
        return f"Struct({self.go_type!r}, {dict(self.fields)!r})"


_TAKES_MORE: Final = 0x04
"""The flag of a code object with a *parameter (inspect.CO_VARARGS)."""
_ANNOTATIONS: Final[dict[str | type | None, str]] = {
    "str": "string",
    "int": "int",
    "float": "float64",
    "bool": "bool",
    "StringMap": "map[string]string",
    "dict[str, Any]": "map[string]interface {}",
    "dict[str, Any] | None": "map[string]interface {}",
    "list[Any]": "[]interface {}",
    str: "string",
    int: "int",
    float: "float64",
    bool: "bool",
}


class Function:
    """A function that templates can call, with the Go types of its parameters.

    A parameter of type `ANY` takes everything and sees nil and missing values as `None`; one of type `VALUE` also
    sees `NO_VALUE`; every other type takes exactly the values of that type, and the template fails with Go's words
    else. `variadic` is the type of the arguments after the fixed ones. `cost` gives, for the arguments of a call, the
    steps that it takes beside those for long texts and results; it is asked before the call.
    """

    go_kind = FUNC

    def __init__(
        self,
        call: Callable[..., Any],
        params: Iterable[str] = (),
        variadic: str | None = None,
        *,
        cost: Callable[..., int] | None = None,
    ) -> None:
        self.call = call
        self.cost = cost
        self.params = tuple(params)
        self.variadic = variadic
        tail = () if variadic is None else (f"...{variadic}",)
        self.go_type = f"func({', '.join((*self.params, *tail))}) {ANY}"

    def type_of(self, number: int) -> str:
        """The type of the argument of that number, counted from 0."""
        return self.params[number] if number < len(self.params) else self.variadic or ANY

    @classmethod
    def of(cls, call: Callable[..., Any] | Function, *, cost: Callable[..., int] | None = None) -> Function:
        """Return the function, its parameters typed by the callable's annotations.

        `str`, `int`, `float` and `bool` are Go's string, int, float64 and bool; `StringMap`, `dict[str, Any]` and
        `list[Any]` the map and slice types; everything else takes any value. Parameters with a default value are not
        for templates. Raises TypeError for a keyword argument without a default.
        """
        if isinstance(call, Function):
            return call
        code = getattr(call, "__code__", None)
        if code is not None and not (call.__defaults__ or hasattr(call, "__wrapped__")):
            return cls._of_plain(call, code, cost)
        import inspect  # takes 5 ms; plain code reads the signature of most functions

        params: list[str] = []
        variadic: str | None = None
        for parameter in inspect.signature(call).parameters.values():
            go_type = _ANNOTATIONS.get(parameter.annotation, ANY)
            if parameter.kind is parameter.VAR_POSITIONAL:
                variadic = go_type
            elif parameter.default is not parameter.empty:
                break
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                params.append(go_type)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                raise TypeError(f"{call!r}: a template cannot give the keyword argument {parameter.name!r}")
        return cls(call, params, variadic, cost=cost)

    @classmethod
    def _of_plain(cls, call: Callable[..., Any], code: CodeType, cost: Callable[..., int] | None) -> Function:
        """Return the result of `of` for a function or method whose parameters have no defaults."""
        keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        for name in keyword_only:
            if name not in (call.__kwdefaults__ or ()):
                raise TypeError(f"{call!r}: a template cannot give the keyword argument {name!r}")
        bound = 1 if getattr(call, "__self__", None) is not None else 0
        names = code.co_varnames[bound : code.co_argcount]
        rest = code.co_varnames[code.co_argcount + len(keyword_only) :][:1] if code.co_flags & _TAKES_MORE else ()
        types = [_ANNOTATIONS.get(call.__annotations__.get(name), ANY) for name in (*names, *rest)]
        return cls(call, types[: len(names)], types[-1] if rest else None, cost=cost)


def typed(
    call: Callable[..., Any], *params: str, variadic: str | None = None, cost: Callable[..., int] | None = None
) -> Function:
    """The function whose parameters have these types, for tables of such."""
    return Function(call, params, variadic, cost=cost)


_NO_TEXT: Final = "[\ud800-\udc7f\udd00-\udfff]"

_KINDS: Final[dict[type, str]] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: STRING,
    Shaped: STRING,
    dict: MAP,
    OwnMap: MAP,
    list: SLICE,
    tuple: SLICE,
    bytes: SLICE,
    type(None): NIL,
    _NoValue: NIL,
}

_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "float64",
    str: "string",
    Shaped: "string",
    dict: "map[string]interface {}",
    OwnMap: "map[string]interface {}",
    list: "[]interface {}",
    tuple: "[]interface {}",
    bytes: "[]uint8",
    type(None): ANY,
    _NoValue: "<nil>",
}


def kind_of(value: Any) -> str:
    """The Go kind of the value, one of this module's kind constants."""
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    kind = getattr(value, "go_kind", None)
    if kind is not None:
        return str(kind)
    for base, kind in _KINDS.items():
        if isinstance(value, base):
            return kind
    return OTHER


def type_name(value: Any) -> str:
    """The name of the value's Go type, as Go prints it."""
    name = _TYPE_NAMES.get(type(value))
    if name is not None:
        return name
    name = getattr(value, "go_type", None)
    if name is not None:
        return str(name)
    for base, name in _TYPE_NAMES.items():
        if isinstance(value, base):
            return name
    return f"python.{type(value).__name__}"


def holds_interfaces(container: Any) -> bool:
    """Whether the elements of the map or slice are typed interface {}, which is how Go then names them."""
    return type_name(container).endswith("]interface {}")


def to_bytes(text: str) -> bytes:
    """The bytes of Go's string; what no string of Go can hold, a lone surrogate, becomes U+FFFD."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return re.sub(_NO_TEXT, "\ufffd", text).encode("utf-8", "surrogateescape")


def from_bytes(raw: bytes) -> str:
    """The text of these bytes, whatever they are."""
    return raw.decode("utf-8", "surrogateescape")
