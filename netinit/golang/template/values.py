"""The data model of templates: which Python values represent which Go values.

    | Python | Go |
    |---|---|
    | `None` | nil in an interface: a key that is present and null |
    | `NO_VALUE` | no value: a missing key, or a field of one |
    | `bool`, `int`, `float`, `str` | bool, int, float64, string |
    | `Int32`, `Int64`, `Uint8`, `Uint32`, `Uint64` | the sized integers (a byte is a `Uint8`) |
    | `NamedString`, `NamedInt` | a string or an integer of a named type, such as v1.DNSPolicy |
    | `Enum` | a named integer with a String method, as in protobuf |
    | `dict` | map[string]interface {} |
    | `OwnMap` | map[string]interface {}, created by the rendering, which may modify it |
    | `TypedMap`, `StringMap` | map[K]V, map[string]string |
    | `list`, `tuple` | []interface {} |
    | `TypedList` | []T |
    | `bytes` | []uint8 |
    | `Struct` | a struct or a pointer to one, with fields and methods |
    | `Pointer` | a pointer to anything but a struct |
    | `Function` | a func |

Text is a sequence of bytes: a byte that is not valid UTF-8 is a surrogate escape, so that `text.encode("utf-8",
"surrogateescape")` gives Go's bytes. A value is true in Python if it is in Go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any, Final, Literal, Self, TypeAlias

ANY: Final = "interface {}"
VALUE: Final = "reflect.Value"
"""The type of parameters that distinguish a missing value from null."""

Kind: TypeAlias = Literal[
    "bool", "int", "uint", "float", "string", "map", "slice", "struct", "pointer", "func", "nil", "other"
]  # fmt: skip
"""Go's kinds; `other`: a Python object that represents no Go value and can only be passed to functions."""


class Shaped(str):
    """A text with known layout. `lead`: the spaces that an indenting function put in front.

    `form`: "yaml" or "json" if the text is the whole of the value `tree`, else "".
    """

    __slots__ = ("form", "lead", "tree")

    lead: str
    form: str
    tree: Any

    def __new__(cls, text: str, *, lead: str = "", form: str = "", tree: Any = None) -> Self:
        """Create the text with its layout."""
        self = super().__new__(cls, text)
        self.lead, self.form, self.tree = lead, form, tree
        return self


class FunctionError(Exception):
    """A function called by a template failed; the message is Go's, and part of the template's error."""


class _NoValue:
    go_kind = "nil"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "<no value>"


NO_VALUE: Final = _NoValue()
"""A missing value: prints as `<no value>`, and so does every field of it."""


class Int32(int):
    """An int32."""

    go_kind, go_type = "int", "int32"


class Int64(int):
    """An int64."""

    go_kind, go_type = "int", "int64"


class Uint8(int):
    """A uint8, the type of a string's elements."""

    go_kind, go_type = "uint", "uint8"


class Uint32(int):
    """A uint32."""

    go_kind, go_type = "uint", "uint32"


class Uint64(int):
    """A uint64."""

    go_kind, go_type = "uint", "uint64"


class NamedString(str):
    """A string of a named type, which is no argument for a parameter of type string."""

    __slots__ = ("go_methods", "go_type")

    go_kind = "string"
    go_type: str
    go_methods: Mapping[str, Callable[..., Any] | Function]

    def __new__(cls, text: str, go_type: str, methods: Mapping[str, Callable[..., Any] | Function] | None = None) -> Self:
        """Create the text with its type."""
        self = super().__new__(cls, text)
        self.go_type = go_type
        self.go_methods = methods or {}
        return self


class NamedInt(int):
    """An integer of a named type. `basic`: the type that it is made of, which reflection calls its kind."""

    go_kind = "int"
    basic = "int32"
    go_type: str

    def __new__(cls, number: int, go_type: str) -> Self:
        """Create the number with its type."""
        self = super().__new__(cls, number)
        self.go_type = go_type
        return self


class Enum(int):
    """An enumeration of protobuf: a number that prints as its name."""

    go_kind = "int"
    basic = "int32"
    go_type: str
    go_methods: Mapping[str, Callable[..., Any] | Function]

    def __new__(
        cls, number: int, name: str, go_type: str = "int32", methods: Mapping[str, Callable[..., Any] | Function] | None = None
    ) -> Self:
        """Create the number with its name; `methods`: all of them, if it has more than String."""
        self = super().__new__(cls, number)
        self.go_type = go_type
        self.go_methods = methods or {"String": lambda: name}
        return self


class NamedType(str):
    """The name of a parameter's type that is made of another one; `basic`: that one, which tells what constants fit."""

    __slots__ = ("basic",)

    basic: str

    def __new__(cls, name: str, basic: str) -> Self:
        """Create the name with the type that it is made of."""
        self = super().__new__(cls, name)
        self.basic = basic
        return self


class OwnMap(dict[str, Any]):
    """A map created by the rendering, which may modify it: a template's data may be shared by threads."""

    go_kind, go_type = "map", "map[string]interface {}"


class TypedMap(dict[Any, Any]):
    """A map with values of one type; `zero`: the value of a missing key. A `nil` one is null in JSON."""

    go_kind = "map"

    def __init__(
        self, data: Mapping[Any, Any] | None = None, *, go_type: str, zero: Any, nil: bool = False, key_type: str = "",
        methods: Mapping[str, Callable[..., Any] | Function] | None = None,
    ) -> None:  # fmt: skip
        """Create the map; `key_type`: the type of its keys, needed where the map's type is a name."""
        super().__init__(data or {})
        self.nil = nil
        self.go_type = go_type
        self.zero = zero
        self.key_type = key_type or go_type[4 : go_type.index("]")]
        self.go_methods = methods or {}


class StringMap(TypedMap):
    """A map[string]string, such as labels and annotations."""

    def __init__(self, data: Mapping[str, str] | None = None, *, nil: bool = False) -> None:
        super().__init__(data, go_type="map[string]string", zero="", nil=nil)


class TypedList(list[Any]):
    """A slice with elements of one type. A `nil` one is null in JSON."""

    go_kind = "slice"

    def __init__(self, items: Iterable[Any] = (), *, go_type: str, nil: bool = False) -> None:
        super().__init__(items)
        self.nil = nil
        self.go_type = go_type


class Struct:
    """A struct, or a pointer to one if the type starts with `*`.

    `fields`: the exported fields, in Go's order. `methods`: callables, called with the template's arguments; String
    returns what is printed. `nil`: a nil pointer, whose fields are errors and whose methods can be called, like
    protobuf's getters; its fields are only names, which distinguishes an unknown field. A subclass with another JSON
    form overrides `go_json`, and one whose methods need an address overrides `copied`.
    """

    go_methods: Mapping[str, Callable[..., Any] | Function] = {}
    has_address = False
    """Whether it is a field or an element that a pointer can point to."""
    interface = ""
    """The type of the field that holds it, if that is an interface with methods."""

    def copied(self) -> Struct:
        """Return the struct as a function gets it and returns it: without an address, and so without the methods of its pointer."""
        return self

    def go_json(self) -> Any:
        """Return the value for JSON: the non-empty fields, with a lower-case first letter."""
        if self.nil:
            return None
        return {name[:1].lower() + name[1:]: item for name, item in self.fields.items() if item}

    def __init__(
        self,
        go_type: str,
        fields: Mapping[str, Any],
        methods: Mapping[str, Callable[..., Any] | Function] | None = None,
        *,
        nil: bool = False,
    ) -> None:
        if nil and not go_type.startswith("*"):
            raise ValueError(f"{go_type}: only a pointer, whose type starts with *, can be nil")
        self.go_type = go_type
        self.fields = fields
        if methods:
            self.go_methods = methods
        self.nil = nil

    @property
    def go_kind(self) -> str:
        """POINTER or STRUCT."""
        return "pointer" if self.go_type.startswith("*") else "struct"

    def __bool__(self) -> bool:
        return not self.nil

    def __repr__(self) -> str:
        return f"Struct({self.go_type!r}, {dict(self.fields)!r})"


class Pointer(Struct):
    """A pointer to a number, a bool or a text; `target`: what it points to, None for a nil one."""

    def __init__(self, go_type: str, target: Any) -> None:
        super().__init__(go_type, {}, getattr(target, "go_methods", None), nil=target is None)
        self.target = target

    def go_json(self) -> Any:
        """Return what it points to."""
        return self.target


_TAKES_MORE: Final = 0x04
"""The flag of a code object with `*args` (inspect.CO_VARARGS)."""
_ANNOTATIONS: Final = {
    "str": "string",
    "int": "int",
    "float": "float64",
    "bool": "bool",
    "StringMap": "map[string]string",
    "dict[str, Any]": "map[string]interface {}",
    "dict[str, Any] | None": "map[string]interface {}",
    "list[Any]": "[]interface {}",
}


class Function:
    """A function that templates can call, with the Go types of its parameters.

    A parameter of type `ANY` gets nil and missing values as `None`; one of type `VALUE` gets `NO_VALUE`; for any other
    type the template fails if the argument has another one. `variadic`: the type of further arguments. `cost` returns
    the steps of a call with these arguments, besides those for long texts; it is called first. `results`: the types of
    what it returns. A template cannot call a function that returns anything but a value, or a value and an error.
    """

    go_kind = "func"

    def __init__(
        self,
        call: Callable[..., Any],
        *params: str,
        variadic: str | None = None,
        cost: Callable[..., int] | None = None,
        results: tuple[str, ...] = (ANY,),
    ) -> None:
        self.call, self.params, self.variadic, self.cost, self.results = call, params, variadic, cost, results
        tail = () if variadic is None else (f"...{variadic}",)
        self.go_type = f"func({', '.join((*self.params, *tail))}) {ANY}"

    def type_of(self, number: int) -> str:
        """Return the type of an argument, counted from 0."""
        return self.params[number] if number < len(self.params) else self.variadic or ANY

    @classmethod
    def of(cls, call: Callable[..., Any] | Function, *, cost: Callable[..., int] | None = None) -> Function:
        """Return the function, with parameters typed by the annotations of a Python function or method.

        `str`, `int`, `float`, `bool`, `StringMap`, `dict[str, Any]` and `list[Any]` are Go's types; anything else is
        `ANY`. Parameters with a default are not for templates. Raises TypeError for a keyword argument without one, and
        for a callable that is not written in Python, whose types must be given.
        """
        if isinstance(call, Function):
            return call
        code: CodeType | None = getattr(call, "__code__", None)  # inspect.signature would take 5 ms to import
        if code is None:
            raise TypeError(f"{call!r}: its parameters are unknown; give their types")
        keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        for name in keyword_only:
            if name not in (call.__kwdefaults__ or ()):
                raise TypeError(f"{call!r}: a template cannot give the keyword argument {name!r}")
        defaults = len(call.__defaults__ or ())
        bound = 1 if getattr(call, "__self__", None) is not None else 0
        names = code.co_varnames[bound : code.co_argcount - defaults]
        takes_more = code.co_flags & _TAKES_MORE and not defaults
        rest = code.co_varnames[code.co_argcount + len(keyword_only) :][:1] if takes_more else ()
        annotations = [call.__annotations__.get(name, "") for name in (*names, *rest)]
        types = [_ANNOTATIONS.get(getattr(one, "__name__", one), ANY) for one in annotations]
        return cls(call, *types[: len(names)], variadic=types[-1] if rest else None, cost=cost)


_NO_TEXT: Final = "[\ud800-\udc7f\udd00-\udfff]"

_TYPES: Final[dict[type, tuple[Kind, str]]] = {
    bool: ("bool", "bool"),
    int: ("int", "int"),
    float: ("float", "float64"),
    str: ("string", "string"),
    Shaped: ("string", "string"),
    dict: ("map", "map[string]interface {}"),
    OwnMap: ("map", "map[string]interface {}"),
    list: ("slice", "[]interface {}"),
    tuple: ("slice", "[]interface {}"),
    bytes: ("slice", "[]uint8"),
    type(None): ("nil", ANY),
    _NoValue: ("nil", "<nil>"),
}
"""The Go kind and type name of Python's types."""
PYTHON_TYPES: Final = {go_type: python_type for python_type, (_, go_type) in reversed(_TYPES.items())}
"""The Python type whose values need no check for a parameter of each Go type."""


def _look_up(value: Any, column: int, own: str) -> Any:
    """Return the kind (0) or type name (1) of a value: its own, or that of its Python type; None without one."""
    return getattr(value, own, None) or next((entry[column] for base, entry in _TYPES.items() if isinstance(value, base)), None)


def kind_of(value: Any) -> Kind:
    """Return the value's Go kind."""
    entry = _TYPES.get(type(value))
    return entry[0] if entry is not None else _look_up(value, 0, "go_kind") or "other"


def type_name(value: Any) -> str:
    """Return the name of the value's Go type."""
    entry = _TYPES.get(type(value))
    return entry[1] if entry is not None else _look_up(value, 1, "go_type") or f"python.{type(value).__name__}"


def to_bytes(text: str) -> bytes:
    """Return the bytes of the text in Go; a lone surrogate becomes U+FFFD."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return re.sub(_NO_TEXT, "\ufffd", text).encode("utf-8", "surrogateescape")


def valid(text: str) -> str:
    """Return the text as Go's functions see it that read characters: U+FFFD for each byte that is not UTF-8."""
    return text if text.isascii() else re.sub(_NO_TEXT, "\ufffd", re.sub("[\udc80-\udcff]", "\ufffd", text))


def from_bytes(raw: bytes) -> str:
    """Return the text of any bytes."""
    return raw.decode("utf-8", "surrogateescape")
