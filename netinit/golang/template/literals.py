"""Go's literals: quote and unquote strings and characters, parse and format numbers.

Source: the Go specification (sections Integer literals to String literals) and package strconv.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

from netinit.golang.template.values import from_bytes, to_bytes

_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_SHORT: Final = {character: f"\\{letter}" for letter, character in _SIMPLE.items()} | {'"': '\\"'}
_ESCAPED: Final = re.compile(r"[^ !#-\[\]-~]")
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<octal>[0-7]{3})|x(?P<byte>[0-9a-fA-F]{2})|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})"
    r"|(?P<simple>[abfnrtv\\'\"])|)"
)
"""An escape; of an invalid one only the backslash."""
_MAX_BYTE: Final = 0xFF
_MAX_RUNE: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_ESCAPED_BYTES: Final = range(0xDC80, 0xDD00)
_SHORTEST_EXPONENT: Final = 6
_PLAIN_END: Final = 10**_SHORTEST_EXPONENT
_MIN_PLAIN_EXPONENT: Final = -4
_DECIMAL: Final = "[0-9](?:_?[0-9])*"
_HEX: Final = "[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_FLOAT: Final = rf"[+-]?(?:{_DECIMAL}(?:\.(?:{_DECIMAL})?)?|\.{_DECIMAL})(?:[eE][+-]?{_DECIMAL})?"
_HEX_FLOAT: Final = rf"[+-]?0[xX](?:_?{_HEX}(?:\.(?:{_HEX})?)?|\.{_HEX})[pP][+-]?{_DECIMAL}"
_OLD_OCTAL: Final = "^([+-]?)0(?=[0-7_])"


def is_identifier_character(character: str) -> bool:
    """Whether the character may be part of a name: a letter, a decimal digit or an underscore."""
    if character.isascii():
        return character.isalnum() or character == "_"
    category = unicodedata.category(character)
    return category[0] == "L" or category == "Nd"


def quote(text: str) -> str:
    """Quote a text like strconv.Quote."""
    if text.isascii() and not _ESCAPED.search(text):
        return f'"{text}"'
    return f'"{_ESCAPED.sub(lambda found: escape(found[0]), text)}"'


def quote_rune(code: int) -> str:
    """Quote a character like strconv.QuoteRune; an invalid code is U+FFFD."""
    character = chr(code) if 0 <= code <= _MAX_RUNE and code not in _SURROGATES else "\ufffd"
    return {'"': "'\"'", "'": "'\\''"}.get(character) or f"'{quote(character)[1:-1]}'"


def escape(character: str, *, ascii_only: bool = False) -> str:
    """Return the character as it stands in a quoted text: escaped unless it is printable."""
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code in _ESCAPED_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable() and not ascii_only:
        return character
    if character.isascii():
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the end of the basic plane


def unquote(literal: str) -> str:
    """Return the text of a string literal in double or back quotes. Raises ValueError with Go's message."""
    if literal.startswith("`"):
        return literal[1:-1].replace("\r", "")
    body = literal[1:-1]
    if "\\" not in body:
        return body
    whole = _ESCAPE.sub(lambda found: from_bytes(_unescape(found, '"')), body)
    return from_bytes(to_bytes(whole))  # several escapes may be the bytes of one character


def _unescape(found: re.Match[str], mark: str) -> bytes:
    """Return the bytes of an escape. Raises ValueError for one that is invalid between such quotes."""
    kind, text = found.lastgroup, found[found.lastgroup or 0]
    if kind == "simple" and (text not in "'\"" or text == mark):
        return _SIMPLE.get(text, text).encode()
    code = int(text, 8 if kind == "octal" else 16) if kind in {"octal", "byte", "short", "long"} else -1
    if kind in {"octal", "byte"} and code <= _MAX_BYTE:
        return bytes([code])
    if kind in {"short", "long"} and code <= _MAX_RUNE and code not in _SURROGATES:
        return chr(code).encode()
    raise ValueError("invalid syntax")


def unquote_char(literal: str) -> int:
    """Return the code of a character literal such as 'x'. Raises ValueError with Go's message."""
    body = literal[1:-1]
    if body.startswith("\\"):
        found = _ESCAPE.match(body)
        assert found is not None  # noqa: S101 - a backslash is enough
        raw, end = _unescape(found, "'"), found.end()
        code = raw[0] if found["byte"] or found["octal"] else ord(raw.decode())
    else:
        if not body:
            raise ValueError("invalid syntax")
        code, end = ord(body[0]), 1
    if end != len(body):
        raise ValueError(f"malformed character constant: {literal}")
    return code


class Number:
    """A numeric constant as each type that can represent it, None for others: Go's ideal constants."""

    def __init__(self, text: str, whole: int | None, real: float) -> None:
        self.text, self.as_float = text, real
        self.as_int = whole if whole is not None and -(1 << 63) <= whole < 1 << 63 else None
        self.as_uint = whole if whole is not None and 0 <= whole < 1 << 64 else None

    @property
    def ideal(self) -> int | float | None:
        """The value without a requested type; None if it overflows int."""
        looks_hexadecimal = self.text[:2] in ("0x", "0X") and not any(c in self.text for c in "pP")
        if not looks_hexadecimal and self.text[0] != "'" and any(c in self.text for c in ".eEpP"):
            return self.as_float
        return self.as_int


def parse_number(text: str) -> Number:
    """Parse a number or character literal. Raises ValueError with Go's message."""
    if text.startswith("'"):
        code = unquote_char(text)
        return Number(text, code, float(code))
    whole = _parse_int(text)
    if whole is not None:
        is_signed = text[0] == "+" and whole != 0  # Go parses unsigned numbers without a sign
        if not -(1 << 63) <= whole < 1 << (63 if is_signed else 64):
            raise ValueError(f"integer overflow: {quote(text)}")
        found = Number(text, whole, float(whole))
        found.as_uint = None if is_signed else found.as_uint
        return found
    real = _parse_float(text)
    if real is None:
        raise ValueError(f"illegal number syntax: {quote(text)}")
    if not any(c in text for c in ".eEpP"):
        raise ValueError(f"integer overflow: {quote(text)}")
    return Number(text, int(real) if real.is_integer() else None, real)


def _parse_int(text: str) -> int | None:
    if not text.isascii() or text != text.strip():
        return None
    try:
        return int(re.sub(_OLD_OCTAL, r"\g<1>0o", text) if "0" in text[:2] else text, 0)
    except ValueError:
        return None


def _parse_float(text: str) -> float | None:
    try:
        if re.fullmatch(_FLOAT, text):
            value = float(text)
        elif re.fullmatch(_HEX_FLOAT, text):
            value = float.fromhex(text.replace("_", ""))
        else:
            return None
    except OverflowError:
        return None
    return None if value in (float("inf"), float("-inf")) else value


def float_text(value: float) -> str:
    """Format a number like fmt.Print: 15020, 1e+06, 0.25."""
    if abs(value) < _PLAIN_END and value == (whole := int(value)) and (whole or math.copysign(1, value) > 0):
        return str(whole)
    return format_float(value, "g")


def format_float(value: float, form: str, precision: int = -1) -> str:
    """Format a number like strconv.FormatFloat in form e, f or g; precision -1: the fewest digits that are exact."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if precision >= 0:
        return f"{value:.{precision}{form}}"
    from decimal import Decimal

    shortest = Decimal(repr(value)).normalize()
    if form == "e" or (form == "g" and not _MIN_PLAIN_EXPONENT <= shortest.adjusted() < _SHORTEST_EXPONENT):
        first, _, more = f"{shortest:e}".partition("e")  # rounding the value again may give other digits
        return f"{first}e{int(more):+03d}"
    return f"{shortest:f}"
