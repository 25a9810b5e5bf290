"""Floating-point numbers in Go's text forms (strconv.FormatFloat)."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["float_text", "format_float"]

_SHORTEST_EXPONENT: Final = 6
_PLAIN_END: Final = 10**_SHORTEST_EXPONENT
_SMALLEST_EXPONENT: Final = -4
_MANTISSA_BITS: Final = 52
_MIN_EXPONENT: Final = -1074


def float_text(value: float) -> str:
    """The number as Go prints it by default: 15020, 1e+06, 0.25."""
    if abs(value) < _PLAIN_END and value == (whole := int(value)) and (whole or math.copysign(1, value) > 0):
        return str(whole)
    return format_float(value, "g", -1)


def format_float(value: float, form: str, precision: int) -> str:
    """The number in form e, E, f, g, G, b, x or X; a precision of -1 asks for the fewest digits that are exact."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1, value) < 0 else ""
    value = abs(value)
    if form in "xX":
        text = _hexadecimal(value, precision)
        return sign + (text.upper() if form == "X" else text)
    if form == "b":
        return sign + _binary(value)
    if form == "f":
        return sign + (_fixed(*_shortest(value)) if precision < 0 else f"{value:.{precision}f}")
    if form in "eE":
        digits, point = _shortest(value) if precision < 0 else _rounded(value, precision + 1)
        return sign + _exponential(digits, point, form)
    return sign + _general(value, form, precision)


def _shortest(value: float) -> tuple[str, int]:
    """The shortest digits that read back as the value, and where the decimal point stands among them."""
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


def _exponential(digits: str, point: int, form: str) -> str:
    exponent = point - 1
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}{form}{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _general(value: float, form: str, precision: int) -> str:
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
        return _exponential(digits, point, "E" if form == "G" else "e")
    return _fixed(digits, point)


def _binary(value: float) -> str:
    mantissa, exponent = math.frexp(value)
    whole = int(mantissa * (1 << (_MANTISSA_BITS + 1)))
    power = exponent - _MANTISSA_BITS - 1
    if value and power < _MIN_EXPONENT:
        whole >>= _MIN_EXPONENT - power
        power = _MIN_EXPONENT
    if not value:
        power = _MIN_EXPONENT
    return f"{whole}p{'-' if power < 0 else '+'}{abs(power)}"


def _hexadecimal(value: float, precision: int) -> str:
    mantissa, exponent = math.frexp(value)
    if value:
        mantissa, exponent = mantissa * 2, exponent - 1
    if precision >= 0:
        rounded = _shift_half_even(int(mantissa * (1 << _MANTISSA_BITS)), _MANTISSA_BITS - 4 * precision)
        if rounded >= 2 * 16**precision:
            rounded, exponent = rounded // 2, exponent + 1
        digits = f"{rounded:x}".rjust(precision + 1, "0")
    else:
        digits = f"{int(mantissa * (1 << _MANTISSA_BITS)):x}".rjust(14, "0").rstrip("0") or "0"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"0x{digits[0]}{fraction}p{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _shift_half_even(number: int, bits: int) -> int:
    """The number without its last bits, rounded to the nearest, or to the even one of two."""
    if bits <= 0:
        return number << -bits
    rounded, rest, half = number >> bits, number & ((1 << bits) - 1), 1 << (bits - 1)
    return rounded + (rest > half or (rest == half and rounded & 1))
