"""Quantities of Kubernetes (`100m`, `1.5Gi`, `2`), and the one spelling that the API server gives each."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from netinit.golang.tree import string

__all__ = ["canonical"]

_QUANTITY = re.compile(
    r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?\Z"
)
_KIBI, _KILO = 1024, 1000
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_POWERS = {suffix: Fraction(10) ** power for power, suffix in _DECIMAL.items()}
_POWERS |= {suffix: Fraction(1024) ** power for power, suffix in enumerate(_BINARY) if suffix}
_NANO = Fraction(1, 10**9)


def canonical(value: Any) -> Any:
    """The quantity as the API server writes it: a whole number with the largest suffix of its kind.

    `3000m` is `3`, `1024Mi` is `1Gi`, `0.5` is `500m`; digits beyond the ninth are rounded up, as Go does. What is no
    quantity is given back as it is.
    """
    found = _QUANTITY.match(string(value)) if isinstance(value, (str, int, float)) else None
    if found is None:
        return value
    sign, suffix = found[1], found[3] or ""
    whole, _, part = found[2].partition(".")
    exponent = suffix[:1] in {"e", "E"} and suffix[1:] not in {"", "i"}
    factor = Fraction(10) ** int(suffix[1:]) if exponent else _POWERS[suffix]
    if not suffix.endswith("i") and _is_kept(whole + part, factor / Fraction(10) ** len(part)):
        return string(value)
    number = Fraction(int((whole + part) or "0"), 10 ** len(part)) * factor
    number = Fraction(-(-number // _NANO)) * _NANO
    sign = "-" if sign == "-" and number else ""
    return sign + (_binary(number) if suffix.endswith("i") and number >= _KIBI else _decimal(number, spelled=exponent))


def _is_kept(digits: str, unit: Fraction) -> bool:
    """Whether Go keeps the text: its digits count thousands of something, and no fewer digits would do."""
    power = len(str((unit / _NANO).numerator)) - 1  # of ten, above nano
    return unit >= _NANO and power % 3 == 0 and not digits.endswith("000") and not digits.startswith("0")


def _binary(number: Fraction) -> str:
    """With the largest power of 1024 that leaves a whole number; a fraction of a byte makes it decimal, as in Go."""
    if number.denominator != 1:
        return _decimal(number, spelled=False)
    power = 0
    while power + 1 < len(_BINARY) and number % _KIBI == 0:
        number /= _KIBI
        power += 1
    return f"{number}{_BINARY[power]}"


def _decimal(number: Fraction, *, spelled: bool) -> str:
    """With the largest power of 1000 that leaves a whole number, as a letter or spelled out (`e3`)."""
    power = -9
    number /= _NANO
    while power < max(_DECIMAL) and number and number % _KILO == 0:
        number /= _KILO
        power += 3
    if not number:
        return "0"
    if spelled:
        return f"{number}e{power}" if power else f"{number}"
    return f"{number}{_DECIMAL[power]}"
