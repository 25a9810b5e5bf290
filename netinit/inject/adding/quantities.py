"""Kubernetes' quantities (`100m`, `1.5Gi`), in the canonical form of the API server."""

from __future__ import annotations

import re
from typing import Any

from netinit.base.tree import string
from netinit.golang.template.values import FunctionError

_QUANTITY = r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?\Z"
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_EXPONENTS = ("e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18")
_KIBI, _KILO, _DIGITS = 1024, 1000, 9
ONE: int = 10**_DIGITS
"""Numbers are in nano units: quantities have at most nine decimals."""
_MOST_DIGITS = 200
"""More than any quantity has in nano units."""
_LARGEST: int = (1 << 63) - 1
"""The largest quantity with a binary suffix; Go makes larger ones of it."""


def canonical(value: Any) -> Any:
    """Return the canonical form: a whole number with the largest possible suffix of its kind.

    `3000m` is `3`, `1024Mi` is `1Gi`, `0.5` is `500m`; as in Go, decimals after the ninth are rounded up. An invalid
    quantity is returned unchanged.
    """
    found = re.match(_QUANTITY, string(value)) if isinstance(value, (str, int, float)) else None
    if found is None:
        return value
    suffix, (number, power) = found[3] or "", _nano_units(found)
    if suffix.endswith("i") and number >= _KIBI * ONE and number % ONE == 0:  # as in Go, fractions of a byte are decimal
        written = _shortest(number // ONE, _KIBI, _BINARY)
    elif suffix[-1:] != "i" and power >= -_DIGITS and power % 3 == 0 and not re.match("0|[0-9]*000$", found[2].replace(".", "")):
        return string(value)  # Go keeps a text that counts thousands, as no fewer digits would do
    else:
        written = _shortest(number, _KILO, _EXPONENTS if suffix[:1] in {"e", "E"} and suffix[1:] else _DECIMAL)
    return f"-{written}" if found[1] == "-" and number else written


def round_up(value: Any) -> int | None:
    """Round a quantity up to a whole number (`500m` is 1); None if it is invalid."""
    found = re.match(_QUANTITY, string(value))
    if found is None:
        return None
    number, _ = _nano_units(found)
    return -(number // ONE) if found[1] == "-" else -(-number // ONE)


def is_quantity(value: Any) -> bool:
    """Whether a value is a quantity."""
    return re.match(_QUANTITY, string(value)) is not None


def nano_units(value: Any) -> int:
    """Return a quantity's number in nano units; 0 if it is invalid."""
    found = re.match(_QUANTITY, string(value))
    number = _nano_units(found)[0] if found else 0
    return -number if found and found[1] == "-" else number


def format_of(value: Any) -> str:
    """Return which suffixes a quantity has, as Go names them."""
    suffix = found[3] or "" if (found := re.match(_QUANTITY, string(value))) else ""
    return "BinarySI" if suffix.endswith("i") else "DecimalExponent" if suffix[:1] in {"e", "E"} and suffix[1:] else "DecimalSI"


def _nano_units(found: re.Match[str]) -> tuple[int, int]:
    """Return a quantity's absolute number in nano units, rounded up, and the power of ten of its last digit."""
    suffix, factor = found[3] or "", 1
    before, _, after = found[2].partition(".")
    power = -len(after)
    if suffix.endswith("i"):
        factor = _KIBI ** _BINARY.index(suffix)
    else:
        power += int(suffix[1:]) if suffix[1:] else 3 * _DECIMAL.index(suffix) - _DIGITS
    number, scale = int(before + after) * factor, 10 ** abs(power + _DIGITS)
    number = number * scale if power >= -_DIGITS else -(-number // scale)
    return (min(number, _LARGEST * ONE) if factor > 1 else number), power


def compare(number: int, other: int) -> int:
    """Return -1, 0 or 1: whether the number is less than, equal to or greater than the other."""
    return (number > other) - (number < other)


def scaled(number: int, power: int) -> int:
    """Return nano units as a number of 10**power, rounded away from zero. Raises FunctionError if that is no int64."""
    size = -(-abs(number) // 10 ** min(max(power + _DIGITS, 0), _MOST_DIGITS))
    zeros = max(-power - _DIGITS, 0)
    if not size:
        return 0
    if zeros > len(str(_LARGEST)) or size * 10**zeros > _LARGEST:
        raise FunctionError("the quantity does not fit into 64 bits in this unit")
    return int(size * 10**zeros) * (-1 if number < 0 else 1)


def approximate(value: Any) -> float:
    """Return a quantity as Go's AsApproximateFloat64 does: its digits by a power of ten."""
    found = re.match(_QUANTITY, string(value))
    if found is None:
        return 0.0
    (before, _, after), suffix = found[2].partition("."), found[3] or ""
    digits, power = int(before + after), -len(after)
    if suffix.endswith("i"):
        digits *= _KIBI ** _BINARY.index(suffix)
    else:
        power += int(suffix[1:]) if suffix[1:] else 3 * _DECIMAL.index(suffix) - _DIGITS
    number = min(float(digits) * float(f"1e{power}"), float(_LARGEST) if suffix.endswith("i") else float("inf"))
    return -number if found[1] == "-" else number


def _shortest(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    """Format with the suffix of the largest power of the base that divides the number."""
    place = 0
    while number and number % base == 0 and place + 1 < len(suffixes):
        number //= base
        place += 1
    return f"{number}{suffixes[place]}" if number else "0"
