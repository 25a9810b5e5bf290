"""Kubernetes quantities (`100m`, `1.5Gi`, `2`) in the canonical form of the API server."""

from __future__ import annotations

import re
from typing import Any

from netinit.base.tree import string

_QUANTITY = r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?\Z"
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_POWERS = {suffix: power for power, suffix in _DECIMAL.items()}
_KIBI, _KILO, _DIGITS = 1024, 1000, 9
_ONE: int = 10**_DIGITS
"""Numbers are in nano units: quantities have at most nine decimals."""


def canonical(value: Any) -> Any:
    """Return the canonical form: a whole number with the largest possible suffix of its kind.

    `3000m` is `3`, `1024Mi` is `1Gi`, `0.5` is `500m`; as in Go, decimals after the ninth are rounded up. An invalid
    quantity is returned unchanged.
    """
    found = re.match(_QUANTITY, string(value)) if isinstance(value, (str, int, float)) else None
    if found is None:
        return value
    suffix, (number, power) = found[3] or "", _nano_units(found)
    if suffix.endswith("i"):
        written = _binary(number) if number >= _KIBI * _ONE else _decimal(number)
    else:
        if power >= -_DIGITS and power % 3 == 0 and not re.match("0|[0-9]*000$", found[2].replace(".", "")):
            return string(value)  # Go keeps a text that counts thousands, as no fewer digits would do
        written = _decimal(number, spelled=suffix[:1] in {"e", "E"} and len(suffix) > 1)
    return f"-{written}" if found[1] == "-" and number else written


def round_up(value: Any) -> int | None:
    """Round a quantity up to a whole number (`500m` is 1); None if it is invalid."""
    found = re.match(_QUANTITY, string(value))
    if found is None:
        return None
    number, _ = _nano_units(found)
    return -(number // _ONE) if found[1] == "-" else -(-number // _ONE)


def _nano_units(found: re.Match[str]) -> tuple[int, int]:
    """Return a quantity's absolute number in nano units, rounded up, and the power of ten of its last digit."""
    suffix = found[3] or ""
    whole, _, part = found[2].partition(".")
    digits, power = int(whole + part), -len(part)
    if suffix.endswith("i"):
        return _scaled(digits * _KIBI ** _BINARY.index(suffix), power + _DIGITS), power
    power += int(suffix[1:]) if suffix[1:] else _POWERS[suffix]
    return _scaled(digits, power + _DIGITS), power


def _scaled(number: int, power: int) -> int:
    factor: int = 10 ** abs(power)
    return number * factor if power >= 0 else -(-number // factor)


def _binary(number: int) -> str:
    """Format with the largest power of 1024 that divides the number; as in Go, fractions of a byte are decimal."""
    if number % _ONE:
        return _decimal(number)
    number //= _ONE
    power = 0
    while power + 1 < len(_BINARY) and number % _KIBI == 0:
        number //= _KIBI
        power += 1
    return f"{number}{_BINARY[power]}"


def _decimal(number: int, *, spelled: bool = False) -> str:
    """Format with the largest power of 1000, as a letter or as an exponent (`e3`)."""
    power = -_DIGITS
    while power < max(_DECIMAL) and number and number % _KILO == 0:
        number //= _KILO
        power += 3
    if not number:
        return "0"
    if spelled:
        return f"{number}e{power}" if power else f"{number}"
    return f"{number}{_DECIMAL[power]}"
