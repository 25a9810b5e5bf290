"""The types of scalars, plain and tagged: YAML 1.1 as sigs.k8s.io/yaml reads it."""

from __future__ import annotations

import binascii
import functools
import math
import re
import struct
from datetime import date
from typing import Any

from netinit.golang.template.literals import format_float

MERGE = object()
"""The value of the merge key `<<`, which copies keys of other mappings."""
WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    "<<": MERGE,
}
_DIGITS = frozenset("0123456789")
_FIRST_OF_NUMBER = _DIGITS | {"."}
_OF_NUMBER = frozenset("0123456789abcdefABCDEFxXoO+-._:")
_INTEGER = r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))\Z"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"
_TIMESTAMP = (
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?"
    r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?[0-9]{2})?))?)?"
)
_GO_TIMESTAMP = (  # as Go's time.Parse reads the layouts of go-yaml's resolve.go: a zone after T, none after a space
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:([Tt ])([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,][0-9]+)?(Z|[-+]([0-9]{2}):([0-9]{2}))?)?"
)
_LEAP_YEAR = 2000  # its calendar stands for year 0, which Python lacks
_INT64, _UINT64 = 1 << 63, 1 << 64
_SINGLE_DIGITS = 9  # decimal digits that identify every number of 32 bits
_BASE_60 = r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
_MAX_DIGITS = 400
_MAX_SHOWN = 120  # characters of a text in an error


@functools.lru_cache(maxsize=8192)
def resolve(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in WORDS:
        return WORDS[text]
    if len(text) > _MAX_DIGITS or not looks_like_a_number(text):
        return text
    if text.isdigit() and text.isascii() and (text[0] != "0" or text == "0"):
        return int(text)
    plain = text.replace("_", "") if text[0] != "." else re.sub("(?<=[0-9])_(?=[0-9])", "", text)
    if whole := re.match(_INTEGER, plain):
        sign, hexadecimal, binary, octal, decimal = whole.groups()
        digits, base = next((d, b) for d, b in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)) if d)
        return int(sign + digits, base)
    if re.match(_FLOAT, plain) and not math.isinf(number := float(plain)):
        return number
    return text


def resolve_as(kind: str, text: str) -> Any:
    """Return the value of a scalar with a core tag, such as `int`; other tags make a text. Raises ValueError with Go's message."""
    if kind == "binary":
        return _decode_binary(text)
    if (kind, text) == ("merge", "<<"):
        return MERGE
    if kind not in ("null", "bool", "int", "float", "timestamp"):
        return text
    if kind == "timestamp" and _is_timestamp(text):
        return text
    value = resolve(text)
    found = _kind_of(value)
    if isinstance(value, int) and found == "float":  # too large for Go's integers
        plain = text.replace("_", "")
        value = float(plain) if re.match(_FLOAT, plain) else math.inf
        found = "str" if math.isinf(value) else found
    if kind == "float" and found == "int" and -_INT64 <= value < _INT64:
        return float(value)
    if found != kind:
        raise ValueError(f"cannot decode !!{found} `{_shown(text)}` as a !!{kind}")
    return value


def _shown(text: str) -> str:
    """Return the text for an error message, escaped and cut if long."""
    plain = text[:_MAX_SHOWN]
    return (plain if plain.isprintable() else repr(plain)[1:-1]) + ("…" if len(text) > _MAX_SHOWN else "")


def _kind_of(value: Any) -> str:
    """Return the tag that go-yaml gives to the value of a plain scalar."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "int" if -_INT64 <= value < _UINT64 else "float"
    return {bool: "bool", float: "float", type(None): "null"}.get(type(value), "str")


def _decode_binary(text: str) -> str:
    """Decode base64 as Go does; JSON turns each byte that is not UTF-8 into U+FFFD."""
    try:
        raw = binascii.a2b_base64(text.replace("\r", "").replace("\n", "").encode("ascii"), strict_mode=True)
    except ValueError:
        raise ValueError("!!binary value contains invalid base64 data") from None
    return re.sub("[\udc80-\udcff]", "\ufffd", raw.decode("utf-8", "surrogateescape"))


def _is_timestamp(text: str) -> bool:
    found = re.fullmatch(_GO_TIMESTAMP, text)
    if not found or (found[4] is not None and (found[8] is None) != (found[4] == " ")):
        return False
    year, month, day, hour, minute, second, zone_hour, zone_minute = (int(found[at] or 0) for at in (1, 2, 3, 5, 6, 7, 9, 10))
    try:
        date(year or _LEAP_YEAR, month, day)
    except ValueError:
        return False
    return hour < 24 and minute < 60 and second < 60 and zone_hour <= 24 and zone_minute <= 60  # noqa: PLR2004 - a day's parts


def key_of(value: Any) -> Any:
    """Convert the value of a scalar to the text of a key; MERGE is kept. Fractions have 32 bits, as in sigs.k8s.io/yaml."""
    if value.__class__ is str or value is MERGE:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return _key_of_float(value) if isinstance(value, float) else str(value)


def _key_of_float(value: float) -> str:
    try:
        single = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        single = math.copysign(math.inf, value)
    if not math.isfinite(single):
        return ".nan" if math.isnan(single) else ".inf" if single > 0 else "-.inf"
    texts = (f"{single:.{digits}g}" for digits in range(1, _SINGLE_DIGITS + 1))
    return format_float(next(float(text) for text in texts if struct.unpack("f", struct.pack("f", float(text)))[0] == single), "g")


def is_ambiguous(text: str) -> bool:
    """Whether Go or a YAML 1.1 reader would read the text as another type than a string.

    Go reads timestamps and base-60 numbers as strings, but quotes them.
    """
    if not isinstance(resolve(text), str):
        return True
    if text[0] in _DIGITS and text[4:5] == "-" and re.fullmatch(_TIMESTAMP, text):
        return True
    return ":" in text and looks_like_a_number(text) and re.fullmatch(_BASE_60, text) is not None


def looks_like_a_number(text: str) -> bool:
    """Whether the text starts like a number and has only characters of numbers in any base."""
    first = text[1:].lstrip("_")[:1] if text[0] in {"+", "-"} else text[0]
    return first in _FIRST_OF_NUMBER and _OF_NUMBER.issuperset(text)
