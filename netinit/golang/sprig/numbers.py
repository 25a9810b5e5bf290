"""Sprig's arithmetic, on int64 numbers that wrap around and on float64 numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from netinit.golang.template.limits import check_size
from netinit.golang.template.literals import parse_number
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import Function, FunctionError, Int64, Pointer, TypedList, kind_of

if TYPE_CHECKING:
    from fractions import Fraction  # takes 3 ms, and few templates need it

_DECIMALS: Final = r"([-+]?[0-9]*)\.[0-9]*"
_INTEGER: Final = r"[+-]?(?:0[xX])?[0-9a-fA-F_oObBxX]+"
_NO_INTEGER: Final = r"[.pP]|^[+-]?\d+[eE]"
_MAX_DIGITS: Final = 4096
"""Characters of a text that is read as a number: int() takes quadratic time."""
_MAX_BOUNDS: Final = 3


def to_int64(value: Any) -> Int64:
    """Convert the value to an int64; 0 if it is not a number."""
    value = value.target if isinstance(value, Pointer) else value
    kind = kind_of(value)
    if kind in ("int", "uint"):
        return _int64(value)
    if kind == "float":
        # what does not fit becomes the smallest number, as on amd64
        return Int64(int(value) if abs(value) < 1 << 63 else -(1 << 63))
    if kind == "string":
        return Int64(_parse_int(value))
    return Int64(1 if value is True else 0)


def _int64(number: int) -> Int64:
    """Return the number modulo 2**64, as an int64 wraps around."""
    return Int64((number + (1 << 63)) % (1 << 64) - (1 << 63))


def _parse_int(text: str) -> int:
    """Parse a Go integer literal, or a decimal fraction without its fraction (spf13/cast 1.10); 0 for any other text."""
    if len(text) > _MAX_DIGITS:
        return 0
    if found := re.fullmatch(_DECIMALS, text):
        text = found[1]
    if not re.fullmatch(_INTEGER, text) or re.search(_NO_INTEGER, text):
        return 0
    try:
        return parse_number(text).as_int or 0
    except ValueError:
        return 0


def to_float64(value: Any) -> float:
    """Convert the value to a float64; 0 if it is not a number."""
    value = value.target if isinstance(value, Pointer) else value
    if kind_of(value) in ("int", "uint", "float"):
        return float(value)
    if kind_of(value) != "string":
        return 1.0 if value is True else 0.0
    if len(value) > _MAX_DIGITS or value != value.strip() or not value.isascii():
        return 0.0
    try:
        return float.fromhex(value) if re.match("[+-]?0[xX]", value) and "p" in value.lower() else float(value)
    except (ValueError, OverflowError):
        return 0.0


def _divide(left: Any, right: Any) -> tuple[Int64, Int64]:
    """Return quotient and remainder; the quotient is rounded towards zero."""
    dividend, divisor = int(to_int64(left)), int(to_int64(right))
    if divisor == 0:
        raise FunctionError("runtime error: integer divide by zero")
    quotient = abs(dividend) // abs(divisor)
    quotient = quotient if (dividend < 0) == (divisor < 0) else -quotient
    return _int64(quotient), Int64(dividend - quotient * divisor)


def _largest(first: Any, *others: Any) -> Int64:
    return max(map(to_int64, (first, *others)))


def _whole(rounding: Callable[[float], int], value: Any) -> float:
    number = to_float64(value)
    return math.copysign(rounding(number), number) if math.isfinite(number) else number


def round_to(value: Any, places: int, *threshold: float) -> float:
    """Round to so many decimals, up from 0.5 or from the threshold."""
    try:
        power = 10.0**places
    except OverflowError:
        power = math.inf
    moved = power * to_float64(value)
    if not math.isfinite(moved):
        return moved / power if power else math.nan
    up = math.modf(moved)[0] >= (threshold[0] if threshold else 0.5)
    whole = float(math.ceil(moved) if up else math.floor(moved))
    return math.copysign(whole, moved) / power if power else math.nan


def _exact(value: Any) -> Fraction:
    """Return the decimal fraction that the float64 prints as."""
    from fractions import Fraction

    number = to_float64(value)
    if not math.isfinite(number):
        raise FunctionError(f"Cannot create a Decimal from {sprint(number)}")
    return Fraction(repr(number))


def _exact_sum(first: Any, others: tuple[Any, ...], sign: int) -> float:
    return _rounded(sum((sign * _exact(value) for value in others), _exact(first)))


def _rounded(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return -math.inf if number < 0 else math.inf


_DIVISION_DIGITS: Final = 10**16


def div_floats(first: Any, *others: Any) -> float:
    """Divide, with sixteen decimals after each division (the default of Go's decimal library)."""
    from fractions import Fraction

    quotient = _exact(first)
    for other in others:
        divisor = _exact(other)
        if not divisor:
            raise FunctionError("decimal division by 0")
        scaled = abs(quotient / divisor) * _DIVISION_DIGITS
        rounded = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
        quotient = Fraction(rounded if (quotient < 0) == (divisor < 0) else -rounded, _DIVISION_DIGITS)
    return _rounded(quotient)


def _exact_cost(*values: Any) -> int:
    return len(values) ** 2 << 1


def _extreme(choose: Callable[[list[float]], float], first: Any, others: tuple[Any, ...]) -> float:
    numbers = [to_float64(value) for value in (first, *others)]
    return math.nan if any(map(math.isnan, numbers)) else choose(numbers)


def until_step(start: int, stop: int, step: int) -> TypedList:
    """Count from the start up to the stop, which is excluded."""
    found = range(start, stop, step) if step and (step > 0) == (stop >= start) else range(0)
    check_size(len(found))
    return TypedList(found, go_type="[]int")


def sequence(*bounds: int) -> str:
    """Count like seq(1): to the last bound, from the first one (default 1), by the step between them (default 1)."""
    if not 1 <= len(bounds) <= _MAX_BOUNDS:
        return ""
    start = bounds[0] if len(bounds) > 1 else 1
    end = bounds[-1]
    direction = -1 if end < start else 1
    step = bounds[1] if len(bounds) == _MAX_BOUNDS else direction
    if direction < 0 < step:
        return ""
    return " ".join(map(str, until_step(start, end + direction, step)))


def to_decimal(value: Any) -> Int64:
    """Read the value's text as an octal number; 0 if it is none."""
    text = sprint(value)
    number = int(text, 8) if re.fullmatch("[+-]?[0-7]{1,22}", text) else 0
    return Int64(number if -(1 << 63) <= number < 1 << 63 else 0)


def from_decimal(text: str) -> int:
    """Parse a decimal number; 0 if the text is none, the nearest int64 if it is too large."""
    if not re.fullmatch("[+-]?[0-9]+", text) or len(text) > _MAX_DIGITS:
        return 0
    return min(max(int(text), -(1 << 63)), (1 << 63) - 1)


FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "add": lambda *values: _int64(sum(map(to_int64, values))),
    "add1": lambda value: _int64(to_int64(value) + 1),
    "add1f": lambda value: _exact_sum(value, (1,), 1),
    "addf": lambda *values: _exact_sum(0, values, 1),
    "atoi": from_decimal,
    "biggest": _largest,
    "ceil": lambda value: _whole(math.ceil, value),
    "div": lambda left, right: _divide(left, right)[0],
    "divf": Function.of(div_floats, cost=_exact_cost),
    "float64": to_float64,
    "floor": lambda value: _whole(math.floor, value),
    "int": lambda value: int(to_int64(value)),
    "int64": to_int64,
    "max": _largest,
    "maxf": lambda first, *others: _extreme(max, first, others),
    "min": lambda first, *others: min(map(to_int64, (first, *others))),
    "minf": lambda first, *others: _extreme(min, first, others),
    "mod": lambda left, right: _divide(left, right)[1],
    "mul": lambda first, *others: _int64(math.prod(map(to_int64, others), start=int(to_int64(first)))),
    "mulf": Function.of(
        lambda first, *others: _rounded(math.prod(map(_exact, others), start=_exact(first))), cost=_exact_cost
    ),
    "round": round_to,
    "seq": sequence,
    "sub": lambda left, right: _int64(to_int64(left) - to_int64(right)),
    "subf": lambda first, *others: _exact_sum(first, others, -1),
    "toDecimal": to_decimal,
    "until": Function(lambda count: until_step(0, count, 1 if count >= 0 else -1), "int"),
    "untilStep": until_step,
}
