"""Format floating-point numbers like Go's strconv.FormatFloat."""

from __future__ import annotations

import math
from typing import Final

_SHORTEST_EXPONENT: Final = 6
_PLAIN_END: Final = 10**_SHORTEST_EXPONENT
_SMALLEST_EXPONENT: Final = -4


def float_text(value: float) -> str:
    """Format a number like fmt.Print: 15020, 1e+06, 0.25."""
    if abs(value) < _PLAIN_END and value == (whole := int(value)) and (whole or math.copysign(1, value) > 0):
        return str(whole)
    return format_float(value, "g", -1)


def format_float(value: float, form: str, precision: int) -> str:
    """Format a number in form e, f or g; precision -1: the fewest digits that are exact."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1, value) < 0 else ""
    value = abs(value)
    if form == "f":
        return sign + (_fixed(*_shortest(value)) if precision < 0 else f"{value:.{precision}f}")
    if form == "e":
        return sign + _exponential(*(_shortest(value) if precision < 0 else _rounded(value, precision + 1)))
    return sign + _general(value, precision)


def _shortest(value: float) -> tuple[str, int]:
    """Return the shortest digits that are exact, and the position of the decimal point among them."""
    if value == 0:
        return "0", 1
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    return stripped.rstrip("0") or "0", point


def _rounded(value: float, count: int) -> tuple[str, int]:
    mantissa, _, exponent = f"{value:.{count - 1}e}".partition("e")
    return mantissa.replace(".", ""), (int(exponent) + 1 if value else 1)


def _fixed(digits: str, point: int) -> str:
    if point <= 0:
        return "0." + "0" * -point + digits if digits != "0" else "0"
    whole = digits[:point].ljust(point, "0")
    return f"{whole}.{digits[point:]}" if len(digits) > point else whole


def _exponential(digits: str, point: int) -> str:
    exponent = point - 1
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _general(value: float, precision: int) -> str:
    if precision < 0:
        digits, point = _shortest(value)
        limit = _SHORTEST_EXPONENT
    else:
        count = precision or 1
        digits, point = _rounded(value, count)
        digits = digits.rstrip("0") or "0"
        limit = len(digits) if count > len(digits) and len(digits) >= point else count
    exponent = point - 1
    if exponent < _SMALLEST_EXPONENT or exponent >= limit:
        return _exponential(digits, point)
    return _fixed(digits, point)
