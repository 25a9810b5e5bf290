"""Format Go values like package fmt: Sprint, Sprintln, and the verbs of Sprintf.

A `_Buffer` limits the size of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from netinit.golang.template.floats import float_text, format_float
from netinit.golang.template.limits import check_size
from netinit.golang.template.literals import quote, quote_rune
from netinit.golang.template.values import (
    BOOL,
    FLOAT,
    FUNC,
    INT,
    MAP,
    NIL,
    NO_VALUE,
    POINTER,
    SLICE,
    STRING,
    STRUCT,
    UINT,
    FunctionError,
    Struct,
    Uint8,
    from_bytes,
    kind_of,
    to_bytes,
    type_name,
)

_VERBS: Final = {
    BOOL: "tv",
    INT: "vdxcq",
    UINT: "vdxcq",
    FLOAT: "vgf",
    STRING: "vsxq",
}


_PLAIN: Final[dict[type, Callable[[Any], str]]] = {
    str: str,
    int: str,
    bool: lambda value: "true" if value else "false",
    float: float_text,
}
"""Fast path for the most frequent types."""


def to_text(value: Any) -> str:
    """Return what an action prints for the value."""
    if type(value) in _PLAIN:
        return _PLAIN[type(value)](value)
    return sprint(printable(value))


def printable(value: Any) -> Any:
    """Return the value that Go prints: of a pointer without a String method, what it points to."""
    if isinstance(value, Struct) and value.go_type.startswith("*") and value and own_text(value) is None:
        return Struct(value.go_type[1:], value.fields)
    return "<no value>" if value is None or value is NO_VALUE else value


def sprint(*values: Any) -> str:
    """Format the values like fmt.Sprint, with a space between two that are not strings."""
    if len(values) == 1 and type(values[0]) in _PLAIN:
        return _PLAIN[type(values[0])](values[0])
    buffer = _Buffer()
    flags = Flags()
    before_text = True
    for index, value in enumerate(values):
        is_text = kind_of(value) == STRING
        if index and not is_text and not before_text:
            buffer.add(" ")
        print_value(buffer, value, "v", flags, 0)
        before_text = is_text
    return buffer.text()


def sprintln(*values: Any) -> str:
    """Format the values like fmt.Sprintln."""
    buffer = _Buffer()
    flags = Flags()
    for index, value in enumerate(values):
        if index:
            buffer.add(" ")
        print_value(buffer, value, "v", flags, 0)
    buffer.add("\n")
    return buffer.text()


class _Buffer:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        self.size += len(text)
        check_size(self.size)
        self.parts.append(text)

    def text(self) -> str:
        return "".join(self.parts)


class Flags:
    """The flags, width and precision of a verb.

    `names` is %+v. `erring`: an error text is being printed, in which no method is called.
    """

    def __init__(self) -> None:
        self.minus = self.plus = self.zero = self.names = self.erring = False
        self.width: int | None = None
        self.precision: int | None = None

    def pad(self, text: str, *, zeros: bool = True) -> str:
        """Pad the text to the width, with spaces or, if `zeros` allows it, zeros."""
        if not self.width or len(text) >= self.width:
            return text
        check_size(self.width)
        if self.minus:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if zeros and self.zero else " ")


def own_text(value: Any) -> str | None:
    """Return the result of the value's String or Error method; None without one."""
    methods = getattr(value, "go_methods", None)
    if methods:
        method = methods.get("Error") or methods.get("String")
        if method is not None:
            return str(method())
    return None


def print_value(buffer: _Buffer, value: Any, verb: str, flags: Flags, depth: int) -> None:
    """Write the value by the verb; `depth`: the number of containers it is in."""
    if value is None or value is NO_VALUE:
        buffer.add("<nil>" if depth else flags.pad("<nil>") if verb == "v" else f"%!{verb}(<nil>)")
        return
    if not flags.erring and verb in "vsxq" and (own := own_text(value)) is not None:
        buffer.add(format_value(own, verb, flags))
        return
    kind = kind_of(value)
    if kind in _VERBS or (kind == SLICE and isinstance(value, bytes) and verb in "sxq"):
        buffer.add(format_value(value, verb, flags))
    elif kind == MAP:
        _print_map(buffer, value, verb, flags, depth)
    elif kind == SLICE:
        _print_list(buffer, value, verb, flags, depth)
    elif kind in (STRUCT, POINTER) and isinstance(value, Struct):
        _print_struct(buffer, value, verb, flags, depth)
    elif kind in (FUNC, NIL):
        buffer.add("0x0")
    else:
        raise TypeError(f"a Python {type(value).__name__} stands for no Go value")


def _print_map(buffer: _Buffer, value: dict[Any, Any], verb: str, flags: Flags, depth: int) -> None:
    buffer.add("map[")
    for index, key in enumerate(sorted(value)):
        if index:
            buffer.add(" ")
        print_value(buffer, key, verb, flags, depth + 1)
        buffer.add(":")
        print_value(buffer, value[key], verb, flags, depth + 1)
    buffer.add("]")


def _print_list(buffer: _Buffer, value: Sequence[Any], verb: str, flags: Flags, depth: int) -> None:
    buffer.add("[")
    for index, item in enumerate(value):
        if index:
            buffer.add(" ")
        print_value(buffer, Uint8(item) if isinstance(value, bytes) else item, verb, flags, depth + 1)
    buffer.add("]")


def _print_struct(buffer: _Buffer, value: Struct, verb: str, flags: Flags, depth: int) -> None:
    if value.go_kind == POINTER:
        if value.nil:
            _print_nil_pointer(buffer, value.go_type, verb, flags)
            return
        if depth:
            _print_address(buffer, value, verb, flags)
            return
        buffer.add("&")
    buffer.add("{")
    for index, (field, item) in enumerate(value.fields.items()):
        if index:
            buffer.add(" ")
        if flags.names:
            buffer.add(f"{field}:")
        print_value(buffer, item, verb, flags, depth + 1)
    buffer.add("}")


def _print_nil_pointer(buffer: _Buffer, name: str, verb: str, flags: Flags) -> None:
    if verb == "v":
        buffer.add(flags.pad("<nil>"))
    else:
        buffer.add(_format_integer(0, verb, flags) if verb in "dx" else f"%!{verb}({name}={flags.pad('<nil>')})")


def _print_address(buffer: _Buffer, value: Struct, verb: str, flags: Flags) -> None:
    """Print zero for a nested pointer, of which Go prints the address."""
    if verb in "vdx":
        buffer.add("0x0" if verb == "v" else "0")
        return
    flags.erring = True
    buffer.add(f"%!{verb}({value.go_type}=")
    print_value(buffer, value, "v", flags, 0)
    buffer.add(")")
    flags.erring = False


def format_value(value: Any, verb: str, flags: Flags) -> str:
    """Format a bool, number, string or bytes by the verb."""
    kind = kind_of(value)
    if isinstance(value, bytes):
        return _format_string(from_bytes(value), verb, flags)
    if kind == FLOAT and verb == "x":
        raise FunctionError("%x of a floating-point number is not supported: use %g or %f")
    if verb not in _VERBS[kind]:
        return f"%!{verb}({type_name(value)}={_FORMATTERS[kind](value, 'v', flags)})"
    return _FORMATTERS[kind](value, verb, flags)


def _format_bool(value: bool, _verb: str, flags: Flags) -> str:
    return flags.pad("true" if value else "false")


def _format_string(text: str, verb: str, flags: Flags) -> str:
    if verb == "q":
        if flags.precision is not None:
            text = text[: flags.precision]
        return flags.pad(quote(text, ascii_only=flags.plus))
    if verb == "x":
        raw = to_bytes(text)[: flags.precision]
        check_size(2 * len(raw))
        return flags.pad(raw.hex())
    return flags.pad(text[: flags.precision])


def _format_integer(value: int, verb: str, flags: Flags) -> str:
    if verb == "c":
        valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000  # noqa: PLR2004 - Unicode's bounds
        return flags.pad(chr(value) if valid else "\ufffd")
    if verb == "q":
        return flags.pad(quote_rune(value, ascii_only=flags.plus))
    digits = format(abs(value), "x" if verb == "x" else "d")
    negative = value < 0
    if flags.precision is not None:
        if flags.precision == 0 and value == 0:
            return " " * (flags.width or 0)
        check_size(flags.precision)
        digits = digits.rjust(flags.precision, "0")
    elif flags.zero and not flags.minus and flags.width:
        check_size(flags.width)
        digits = digits.rjust(flags.width - (negative or flags.plus), "0")
    sign = "-" if negative else "+" if flags.plus else ""
    return flags.pad(sign + digits, zeros=False)


def _format_float(value: float, verb: str, flags: Flags) -> str:
    precision = flags.precision
    if precision is None:
        precision = 6 if verb == "f" else -1
    check_size(precision + 400)
    text = format_float(value, "f" if verb == "f" else "g", precision)
    if text[-1] in "fN":  # Inf, NaN
        text = text.removeprefix("+") if not flags.plus else text if text[0] in "+-" else f"+{text}"
        return flags.pad(text, zeros=False)
    sign = "-" if text[0] == "-" else "+" if flags.plus else ""
    text = text.removeprefix("-")
    if sign and flags.zero and not flags.minus and flags.width:
        check_size(flags.width)
        return sign + text.rjust(flags.width - 1, "0")
    return flags.pad(sign + text)


_FORMATTERS: Final[dict[str, Callable[[Any, str, Flags], str]]] = {
    BOOL: _format_bool,
    INT: _format_integer,
    UINT: _format_integer,
    FLOAT: _format_float,
    STRING: _format_string,
}
