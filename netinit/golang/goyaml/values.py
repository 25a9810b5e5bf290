"""Go values as YAML, to the letter of sigs.k8s.io/yaml, which Helm's and Istio's toYaml use.

Keys are sorted naturally (a2 before a10), lists stand at the indentation of their key, text that a YAML 1.1 reader
would take for something else is quoted, text of several lines becomes a literal block.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from netinit.golang.gojson import json_float
from netinit.golang.goyaml.text import go_text
from netinit.golang.goyaml.writer import write
from netinit.golang.template.floats import format_float
from netinit.golang.template.limits import measure
from netinit.golang.template.values import NO_VALUE, FunctionError, Struct, type_name

__all__ = ["pairs_of", "to_yaml"]

_DIGITS: Final = r"[0-9]+"
_REFUSED: Final = "[\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]"
"""Characters that no YAML reader takes and JSON does not escape: Go's way through JSON ends here."""


def to_yaml(value: Any) -> str:
    """The value as YAML with a line feed at the end; raises FunctionError where Go refuses."""
    measure(value)
    return write(value, pairs_of, _scalar)


def pairs_of(value: Any) -> list[tuple[str, Any]]:
    """The keys and values that are written for a map or struct, in their order; none for anything else."""
    if isinstance(value, dict):
        found = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, Struct) and isinstance(plain := value.go_json(), dict):
        found = list(plain.items())
    else:
        return []
    return sorted(found, key=lambda pair: _order(pair[0]))


def _compare(left: str, right: str) -> int:
    """The order of two different keys: runs of digits count as numbers, letters stand behind other characters."""
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
    """How many characters both begin with; halving compares long keys at the speed of slices."""
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
    if value is None or value is NO_VALUE or getattr(value, "nil", False):
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        # the way through JSON makes whole numbers integers
        text = json_float(value)
        whole = text.lstrip("-").isdigit() and -(1 << 63) <= int(text) < 1 << 64
        return text if whole else format_float(value, "g", -1)
    if isinstance(value, str):
        if not value.isprintable() and re.search(_REFUSED, value):
            raise FunctionError("yaml: control characters are not allowed")
        return go_text(value, indent)
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    raise FunctionError(f"json: unsupported type: {type_name(value)}")
