"""Sprig's arithmetic: everything is an int64 that wraps around, or a float64."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from netinit.golang.template.limits import check_size
from netinit.golang.template.literals import parse_number
from netinit.golang.template.values import FLOAT, INT, STRING, UINT, FunctionError, Int64, TypedList, kind_of

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
    try:
        return float(value) if kind_of(value) == STRING and value == value.strip() else 1.0 if value is True else 0.0
    except ValueError:
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


def until(count: int) -> TypedList:
    """The numbers from 0 up to the count."""
    check_size(abs(count))
    return TypedList(range(0, count, 1 if count >= 0 else -1), go_type="[]int")
