"""Write Go values as YAML, byte for byte like sigs.k8s.io/yaml, the library behind toYaml.

Keys are in natural order (a2 before a10), lists are indented like their key, multi-line text is a literal block.
"""

from __future__ import annotations

import binascii
import functools
import re
from typing import Any, Final

from netinit.golang.gojson import encode
from netinit.golang.goyaml.writer import go_text, write
from netinit.golang.template.limits import measure
from netinit.golang.template.literals import format_float
from netinit.golang.template.values import FunctionError, Struct, valid

_DIGITS: Final = r"[0-9]+"
_REFUSED: Final = "[\x7f-\x84\x86-\x9f\ufffe\uffff]"
"""Characters that YAML forbids and JSON does not escape. Go converts through JSON, so it fails."""


def to_yaml(value: Any) -> str:
    """Write a value as YAML with a final line feed. Raises FunctionError if Go cannot write it."""
    measure(value)
    return write(value, pairs_of, _scalar)


def pairs_of(value: Any) -> list[tuple[str, Any]]:
    """Return the keys and values of a map or struct, sorted; empty for anything else."""
    if isinstance(value, dict):
        found = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, Struct) and isinstance(plain := value.go_json(), dict):
        found = list(plain.items())
    else:
        return []
    return sorted(found, key=lambda pair: _order(pair[0]))


def _compare(left: str, right: str) -> int:
    """Compare two keys: digits as numbers, letters after other characters."""
    shorter = min(len(left), len(right))
    at = _common(left, right, shorter)
    if at == shorter:
        return len(left) - len(right)
    a, b = left[at], right[at]
    if a.isalpha() and b.isalpha():
        return 1 if a > b else -1
    if a.isalpha() or b.isalpha():
        return 1 if a.isalpha() else -1
    return _compare_numbers(left, right, at)


def _common(left: str, right: str, limit: int) -> int:
    """Return the length of the common prefix; bisection keeps long keys cheap."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


_order = functools.cmp_to_key(_compare)


def _compare_numbers(left: str, right: str, at: int) -> int:
    one, other = (re.compile(_DIGITS).match(key, at) for key in (left, right))
    digits, other_digits = one[0] if one else "", other[0] if other else ""
    before = left[:at]
    begun = "0" in (left[at], right[at]) and before[len(before.rstrip("0123456789")) :].strip("0")
    prefix = "1" if begun else ""
    number, other_number = int(prefix + digits or "0"), int(prefix + other_digits or "0")
    if number != other_number:
        return 1 if number > other_number else -1
    return len(digits) - len(other_digits) or (1 if left[at] > right[at] else -1)


def _scalar(value: Any, indent: str) -> str:
    if isinstance(value, Struct):
        return _scalar(value.go_json(), indent)
    if isinstance(value, bytes):
        return go_text(binascii.b2a_base64(value, newline=False).decode(), indent)
    if isinstance(value, str):
        value = valid(value)
        if not value.isprintable() and re.search(_REFUSED, value):
            raise FunctionError("yaml: control characters are not allowed")
        return go_text(value, indent)
    text = encode(value)  # Go converts by way of JSON, which turns whole floats into integers
    if isinstance(value, float) and not (text.lstrip("-").isdigit() and -(1 << 63) <= int(text) < 1 << 64):
        return format_float(value, "g")
    return text
