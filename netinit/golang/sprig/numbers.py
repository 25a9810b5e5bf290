"""Sprig's arithmetic: everything is an int64 that wraps around, or a float64."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from netinit.golang.template.limits import check_size
from netinit.golang.template.literals import parse_number
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import (
    FLOAT,
    INT,
    STRING,
    UINT,
    Function,
    FunctionError,
    Int64,
    TypedList,
    kind_of,
    typed,
)

if TYPE_CHECKING:
    from fractions import Fraction  # takes 3 ms, and few templates need it

_ZERO_DECIMALS: Final = r"(?<=\d)\.0+$"
_NO_INTEGER: Final = r"[.pP]|^[+-]?\d+[eE]"
_LONGEST: Final = 4096
"""Characters of a text that is read as a number."""


def to_int64(value: Any) -> Int64:
    """The value as an int64, 0 where it is none."""
    kind = kind_of(value)
    if kind in (INT, UINT):
        return Int64(_wrapped(int(value)))
    if kind == FLOAT:
        # what does not fit becomes the smallest number, as on amd64
        return Int64(int(value) if abs(value) < 1 << 63 else -(1 << 63))
    if kind == STRING:
        return Int64(_parse_int(value))
    return Int64(1 if value is True else 0)


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _parse_int(text: str) -> int:
    """The number of a Go integer literal, also one with zeros behind a point; 0 where the text is none."""
    if len(text) > _LONGEST:
        return 0
    text = re.sub(_ZERO_DECIMALS, "", text)
    if "'" in text or re.search(_NO_INTEGER, text):
        return 0
    try:
        return parse_number(text).as_int or 0
    except ValueError:
        return 0


def to_int(value: Any) -> int:
    """The value as an int, 0 where it is none."""
    return int(to_int64(value))


def to_float64(value: Any) -> float:
    """The value as a float64, 0 where it is none."""
    if kind_of(value) in (INT, UINT, FLOAT):
        return float(value)
    if kind_of(value) != STRING:
        return 1.0 if value is True else 0.0
    if len(value) > _LONGEST or value != value.strip() or not value.isascii():
        return 0.0
    try:
        return float.fromhex(value) if re.match("[+-]?0[xX]", value) and "p" in value.lower() else float(value)
    except (ValueError, OverflowError):
        return 0.0


def add(*values: Any) -> Int64:
    """The sum."""
    return Int64(_wrapped(sum(to_int64(value) for value in values)))


def add1(value: Any) -> Int64:
    """The value and one."""
    return Int64(_wrapped(to_int64(value) + 1))


def sub(left: Any, right: Any) -> Int64:
    """The difference."""
    return Int64(_wrapped(to_int64(left) - to_int64(right)))


def mul(first: Any, *others: Any) -> Int64:
    """The product."""
    product = int(to_int64(first))
    for other in others:
        product = _wrapped(product * to_int64(other))
    return Int64(product)


def div(left: Any, right: Any) -> Int64:
    """The quotient, towards zero."""
    return Int64(_divide(to_int64(left), to_int64(right))[0])


def mod(left: Any, right: Any) -> Int64:
    """The remainder, with the sign of the dividend."""
    return Int64(_divide(to_int64(left), to_int64(right))[1])


def _divide(left: int, right: int) -> tuple[int, int]:
    if right == 0:
        raise FunctionError("runtime error: integer divide by zero")
    quotient = abs(left) // abs(right)
    quotient = quotient if (left < 0) == (right < 0) else -quotient
    return _wrapped(quotient), left - quotient * right


def largest(first: Any, *others: Any) -> Int64:
    """The largest number."""
    return max(map(to_int64, (first, *others)))


def smallest(first: Any, *others: Any) -> Int64:
    """The smallest number."""
    return min(map(to_int64, (first, *others)))


def floor(value: Any) -> float:
    """The largest whole number that is not larger."""
    number = to_float64(value)
    return math.copysign(math.floor(number), number) if math.isfinite(number) else number


def ceil(value: Any) -> float:
    """The smallest whole number that is not smaller."""
    number = to_float64(value)
    return math.copysign(math.ceil(number), number) if math.isfinite(number) else number


def round_to(value: Any, places: int, *threshold: float) -> float:
    """The number with so many decimals; rounded up from half on, or from the threshold."""
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
    """The float64 as the decimal fraction that it prints as."""
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


def add_floats(*values: Any) -> float:
    """The exact sum as a float64."""
    return _exact_sum(0, values, 1)


def add1_float(value: Any) -> float:
    """The number and one, exactly, as a float64."""
    return _exact_sum(value, (1,), 1)


def sub_floats(first: Any, *others: Any) -> float:
    """The first number less all the others, exactly, as a float64."""
    return _exact_sum(first, others, -1)


def mul_floats(first: Any, *others: Any) -> float:
    """The exact product as a float64."""
    return _rounded(math.prod(map(_exact, others), start=_exact(first)))


_DIVISION_DIGITS: Final = 10**16


def div_floats(first: Any, *others: Any) -> float:
    """The quotient, with sixteen decimals after each division, as a float64."""
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


def exact_cost(*values: Any) -> int:
    """The steps of exact arithmetic, whose numbers grow with every operation."""
    return len(values) ** 2 << 1


def largest_float(first: Any, *others: Any) -> float:
    """The largest number as a float64, NaN where one is."""
    return _extreme(max, first, others)


def smallest_float(first: Any, *others: Any) -> float:
    """The smallest number as a float64, NaN where one is."""
    return _extreme(min, first, others)


def _extreme(choose: Callable[[list[float]], float], first: Any, others: tuple[Any, ...]) -> float:
    numbers = [to_float64(value) for value in (first, *others)]
    return math.nan if any(map(math.isnan, numbers)) else choose(numbers)


def until(count: int) -> TypedList:
    """The numbers from 0 up to the count."""
    return until_step(0, count, 1 if count >= 0 else -1)


def until_step(start: int, stop: int, step: int) -> TypedList:
    """The numbers from the start up to the stop, by that step."""
    found = range(start, stop, step) if step and (step > 0) == (stop >= start) else range(0)
    check_size(len(found))
    return TypedList(found, go_type="[]int")


_MOST_BOUNDS: Final = 3


def sequence(*bounds: int) -> str:
    """The numbers from the first bound (or 1) to the last, both included, by the step between them (or 1)."""
    if not 1 <= len(bounds) <= _MOST_BOUNDS:
        return ""
    start = bounds[0] if len(bounds) > 1 else 1
    end = bounds[-1]
    direction = -1 if end < start else 1
    step = bounds[1] if len(bounds) == _MOST_BOUNDS else direction
    if direction < 0 < step:
        return ""
    return " ".join(map(str, until_step(start, end + direction, step)))


def to_decimal(value: Any) -> Int64:
    """The number that the octal digits of the value mean, 0 where they are none."""
    text = sprint(value)
    number = int(text, 8) if re.fullmatch("[+-]?[0-7]{1,22}", text) else 0
    return Int64(number if -(1 << 63) <= number < 1 << 63 else 0)


def from_decimal(text: str) -> int:
    """The decimal number, 0 where the text is none; one that is too large becomes the largest."""
    if not re.fullmatch("[+-]?[0-9]+", text) or len(text) > _LONGEST:
        return 0
    return min(max(int(text), -(1 << 63)), (1 << 63) - 1)


FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "add": add,
    "add1": add1,
    "add1f": add1_float,
    "addf": add_floats,
    "atoi": typed(from_decimal, "string"),
    "biggest": largest,
    "ceil": ceil,
    "div": div,
    "divf": typed(div_floats, "interface {}", variadic="interface {}", cost=exact_cost),
    "float64": to_float64,
    "floor": floor,
    "int": to_int,
    "int64": to_int64,
    "max": largest,
    "maxf": largest_float,
    "min": smallest,
    "minf": smallest_float,
    "mod": mod,
    "mul": mul,
    "mulf": typed(mul_floats, "interface {}", variadic="interface {}", cost=exact_cost),
    "round": typed(round_to, "interface {}", "int", variadic="float64"),
    "seq": typed(sequence, variadic="int"),
    "sub": sub,
    "subf": sub_floats,
    "toDecimal": to_decimal,
    "until": typed(until, "int"),
    "untilStep": typed(until_step, "int", "int", "int"),
}
