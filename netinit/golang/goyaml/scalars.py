"""The types of plain scalars: YAML 1.1 as sigs.k8s.io/yaml reads it."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

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
_BASE_60 = r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
_MAX_DIGITS = 400


@functools.lru_cache(maxsize=8192)
def resolve(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in WORDS:
        return WORDS[text]
    if len(text) > _MAX_DIGITS or not looks_like_a_number(text):
        return text
    if text.isdigit() and text.isascii() and (text[0] != "0" or text == "0"):
        return int(text)
    plain = text.replace("_", "") if text[0] != "." else text
    if whole := re.match(_INTEGER, plain):
        sign, hexadecimal, binary, octal, decimal = whole.groups()
        digits, base = next((d, b) for d, b in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)) if d)
        return int(sign + digits, base)
    if re.match(_FLOAT, plain) and not math.isinf(number := float(plain)):
        return number
    return text


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
