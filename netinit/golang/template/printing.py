"""Format Go values like package fmt: Sprint, Sprintln, and Sprintf with the verbs, flags and error texts of templates.

Not supported, and a FunctionError: the flags `#` and space, `*`, argument numbers, and the verbs b, e, o, p, U and w,
which no template of Istio's releases and known charts has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from netinit.golang.template.limits import check_size
from netinit.golang.template.literals import escape, float_text, format_float, quote, quote_rune
from netinit.golang.template.values import (
    NO_VALUE,
    Function,
    FunctionError,
    Pointer,
    Struct,
    Uint8,
    from_bytes,
    kind_of,
    to_bytes,
    type_name,
)

_PLAIN: Final[dict[type, Callable[[Any], str]]] = {
    str: str,
    int: str,
    bool: lambda value: "true" if value else "false",
    float: float_text,
}
"""Fast path for the most frequent types."""
_Put: TypeAlias = "Callable[[str], object]"
_MAX_WIDTH: Final = 1_000_000
_VERB: Final = re.compile(r"%(?:%|([-+0]*)([0-9]*)(?:\.([0-9]*))?([sdvqtxcfgT]))")


def printable(value: Any) -> Any:
    """Return the value that Go prints: of a pointer without a String method, what it points to."""
    if isinstance(value, Struct) and value.go_type.startswith("*") and value and _own_text(value) is None:
        return value.target if isinstance(value, Pointer) else Struct(value.go_type[1:], value.fields)
    return "<no value>" if value is None or value is NO_VALUE else value


def sprint(*values: Any) -> str:
    """Format the values like fmt.Sprint, with a space between two that are not strings."""
    if len(values) == 1 and type(values[0]) in _PLAIN:
        return _PLAIN[type(values[0])](values[0])
    buffer = _Buffer()
    was_text = True
    for value in values:
        is_text = kind_of(value) == "string"
        buffer.put("" if was_text or is_text else " ")
        _print(buffer.put, value, _V)
        was_text = is_text
    return buffer.text()


def sprintln(*values: Any) -> str:
    """Format the values like fmt.Sprintln."""
    buffer = _Buffer()
    _print_items(buffer.put, ("", "\n"), (("", value) for value in values), _V, 0)
    return buffer.text()


def sprintf(template: str, *values: Any) -> str:
    """Format values like fmt.Sprintf. Raises FunctionError for an unsupported verb and for too long a text."""
    if template.count("%") == template.count("%s") == len(values) and all(type(value) is str for value in values):
        pieces = template.split("%s")  # what most templates print
        check_size(sum(map(len, pieces)) + sum(map(len, values)))
        return "".join([part for pair in zip(pieces, (*values, ""), strict=True) for part in pair])
    buffer = _Buffer()
    at, used = 0, 0
    while (percent := template.find("%", at)) >= 0:
        buffer.put(template[at:percent])
        found = _VERB.match(template, percent)
        if found is None:
            raise FunctionError(
                f"{template[percent:][:12]!r} is not supported; use %s %d %v %q %t %x %c %f %g %T, with - + 0, a width, a precision"
            )
        at = found.end()
        if not found[4]:
            buffer.put("%")
        elif used == len(values):
            buffer.put(f"%!{found[4]}(MISSING)")
        else:
            _print(buffer.put, values[used], _Verb.of(found))
            used += 1
    buffer.put(template[at:])
    if used < len(values):
        rest = (None if value is NO_VALUE else value for value in values[used:])
        extra = (("<nil>", "") if value is None else (f"{type_name(value)}=", value) for value in rest)
        _print_items(buffer.put, ("%!(EXTRA ", ")"), extra, _V, 0, separator=", ")
    return buffer.text()


class _Buffer:
    """Collects a text. `put` raises FunctionError when it becomes too long."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0

    def put(self, text: str) -> None:
        self.size += len(text)
        check_size(self.size)
        self.parts.append(text)

    def text(self) -> str:
        return "".join(self.parts)


class _Verb:
    """A verb with its flags, width and precision; `names` is %+v."""

    is_in_error = False
    """Whether an error's text is being printed, in which no method is called."""

    def __init__(self, letter: str = "v", flags: str = "", width: int = 0, precision: int | None = None) -> None:
        self.letter, self.width, self.precision = letter, width, precision
        self.minus, self.zero = "-" in flags, "0" in flags
        self.plus, self.names = "+" in flags and letter != "v", "+" in flags and letter == "v"

    @classmethod
    def of(cls, found: re.Match[str]) -> _Verb:
        """Return a verb of a template. Raises FunctionError for a width or precision beyond Go's limit."""
        flags, width, precision, letter = found.groups(default="")
        numbers = [int(number[:8] or 0) for number in (width, precision)]
        if max(numbers) > _MAX_WIDTH:
            raise FunctionError(f"{found[0][:20]!r}: a width or precision is {_MAX_WIDTH} at most")
        return cls(letter, flags, numbers[0], numbers[1] if found[3] is not None else None)

    def pad(self, text: str, *, zeros: bool = True) -> str:
        """Pad the text to the width, with spaces or, if `zeros` allows it, zeros."""
        check_size(self.width)
        return text.ljust(self.width) if self.minus else text.rjust(self.width, "0" if zeros and self.zero else " ")


_V: Final = _Verb()
_IN_ERROR: Final = _Verb()
_IN_ERROR.is_in_error = True


def _own_text(value: Any) -> str | None:
    """Return the result of the value's String or Error method; None without one."""
    methods = getattr(value, "go_methods", None) or {}
    method = methods.get("Error") or methods.get("String")
    return None if method is None else str(Function.of(method).call())


def _print(put: _Put, value: Any, verb: _Verb, depth: int = 0) -> None:
    """Write the value by the verb; `depth`: the number of containers it is in."""
    letter, missing = verb.letter, value is None or value is NO_VALUE
    if letter == "T":
        put(verb.pad("<nil>") if missing else _format_string(type_name(value), "s", verb))
        return
    if missing:
        put("<nil>" if depth else verb.pad("<nil>") if letter == "v" else f"%!{letter}(<nil>)")
        return
    if depth and isinstance(value, Struct):
        value = value.copied()
    if letter in "vsxq" and not verb.is_in_error and (own := _own_text(value)) is not None:
        value = own
    kind = kind_of(value)
    if isinstance(value, bytes) and letter in "sxq":
        put(_format_string(from_bytes(value), letter, verb))
    elif kind in _FORMATS:
        put(_format(value, kind, verb))
    elif kind in ("func", "nil"):
        put("0x0")
    elif kind == "pointer" and (value.nil or depth or isinstance(value, Pointer)):
        _print_pointer(put, value, verb)
    else:
        _print_container(put, value, kind, verb, depth)


def _print_pointer(put: _Put, value: Struct, verb: _Verb) -> None:
    """Write a nil pointer, or zero for a nested pointer, of which Go prints the address."""
    letter = verb.letter
    if value.nil and letter == "v":
        put(verb.pad("<nil>"))
    elif isinstance(value, Pointer) and not value.nil:
        raise FunctionError(
            f"Go prints the address of this {value.go_type}, another one each time; print the field by itself, or convert it with int"
        )
    elif letter in "vdx":
        put(_format_integer(0, letter, verb) if value.nil else "0x0" if letter == "v" else "0")
    else:
        put(f"%!{letter}({value.go_type}=")
        if value.nil:
            put(verb.pad("<nil>"))
        else:
            _print(put, value, _IN_ERROR)
        put(")")


def _print_container(put: _Put, value: Any, kind: str, verb: _Verb, depth: int) -> None:
    if kind == "map":
        _print_items(put, ("map[", "]"), ((key, value[key]) for key in sorted(value)), verb, depth + 1)
    elif kind == "slice":
        is_bytes = isinstance(value, bytes)
        items = (("", Uint8(item) if is_bytes else item) for item in value)
        _print_items(put, ("[", "]"), items, verb, depth + 1)
    elif kind in ("struct", "pointer"):
        fields = ((f"{name}:" if verb.names else "", item) for name, item in value.fields.items())
        _print_items(put, ("&{" if kind == "pointer" else "{", "}"), fields, verb, depth + 1)
    else:
        raise TypeError(f"a Python {type(value).__name__} has no Go value")


def _print_items(
    put: _Put, around: tuple[str, str], items: Iterable[tuple[Any, Any]], verb: _Verb, depth: int, *, separator: str = " "
) -> None:
    """Write names and values, with a separator between two; a map's names are keys, which the verb formats too."""
    opened, closed = around
    put(opened)
    lead = ""
    for name, item in items:
        put(lead)
        if opened == "map[":
            _print(put, name, verb, depth)
            put(":")
        else:
            put(name)
        _print(put, item, verb, depth)
        lead = separator
    put(closed)


def _format(value: Any, kind: str, verb: _Verb) -> str:
    letter = verb.letter
    if kind == "float" and letter == "x":
        raise FunctionError("%x of a floating-point number is not supported: use %g or %f")
    letters, write = _FORMATS[kind]
    return write(value, letter, verb) if letter in letters else f"%!{letter}({type_name(value)}={write(value, 'v', verb)})"


def _format_string(text: str, letter: str, verb: _Verb) -> str:
    if letter == "x":
        raw = to_bytes(text)[: verb.precision]
        check_size(2 * len(raw))
        return verb.pad(raw.hex())
    return verb.pad(_quoted(quote(text[: verb.precision]), verb) if letter == "q" else text[: verb.precision])


def _quoted(text: str, verb: _Verb) -> str:
    return re.sub("[^ -~]", lambda found: escape(found[0], ascii_only=True), text) if verb.plus else text


def _format_integer(value: int, letter: str, verb: _Verb) -> str:
    if letter == "c":
        valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000  # noqa: PLR2004 - Unicode's bounds
        return verb.pad(chr(value) if valid else "\ufffd")
    if letter == "q":
        return verb.pad(_quoted(quote_rune(value), verb))
    if verb.precision == 0 and value == 0:
        return " " * verb.width
    sign = "-" if value < 0 else "+" if verb.plus else ""
    least = verb.precision or 0
    if verb.precision is None and verb.zero and not verb.minus:
        least = verb.width - len(sign)
    check_size(least)
    digits = format(abs(value), "x" if letter == "x" else "d").rjust(least, "0")
    return verb.pad(sign + digits, zeros=False)


def _format_float(value: float, letter: str, verb: _Verb) -> str:
    precision = verb.precision
    if precision is None:
        precision = 6 if letter == "f" else -1
    check_size(precision + 400)
    text = format_float(value, "f" if letter == "f" else "g", precision)
    sign = "-" if text[0] == "-" else "+" if verb.plus else ""
    text = text.lstrip("+-")
    is_number = text not in ("Inf", "NaN")
    if is_number and sign and verb.zero and not verb.minus:
        check_size(verb.width)
        return sign + text.rjust(verb.width - 1, "0")
    return verb.pad(sign + text, zeros=is_number)


_FORMATS: Final[dict[str, tuple[str, Callable[[Any, str, _Verb], str]]]] = {
    "bool": ("tv", lambda value, _letter, verb: verb.pad("true" if value else "false")),
    "int": ("vdxcq", _format_integer),
    "uint": ("vdxcq", _format_integer),
    "float": ("vgf", _format_float),
    "string": ("vsxq", _format_string),
}
"""For each kind, its verbs and what writes it."""
