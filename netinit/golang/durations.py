"""Go's time.Duration as text: 45s, 1h0m0s, 500ms."""

from __future__ import annotations

import re
from typing import Final

from netinit.golang.template.values import FunctionError

NANOSECONDS: Final = 1_000_000_000
"""Nanoseconds per second."""
_SMALL_UNITS: Final = ((1_000_000, "ms"), (1_000, "µs"))
_UNITS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": NANOSECONDS, "m": 60 * NANOSECONDS, "h": 3600 * NANOSECONDS,
}  # fmt: skip
_PART: Final = "([0-9]*)(?:\\.([0-9]*))?([^0-9.]+)"
_LIMIT: Final = 1 << 63
_MAX_LENGTH: Final = 256


def format_duration(nanoseconds: int) -> str:
    """Format nanoseconds like time.Duration.String."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    if rest < NANOSECONDS:
        for size, unit in _SMALL_UNITS:
            if rest >= size:
                return f"{sign}{_decimal(rest, size)}{unit}"
        return f"{sign}{rest}ns"
    minutes, rest = divmod(rest, 60 * NANOSECONDS)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, NANOSECONDS)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return sign + (f"{hours}h{text}" if hours else text)


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    fraction = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def parse_duration(text: str) -> int:
    """Parse a Go duration into nanoseconds. Raises FunctionError with Go's message."""
    from netinit.golang.template.literals import quote

    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total, at = 0, 0
    pattern = re.compile(_PART)
    while at < len(body) or not body:
        found = pattern.match(body, at)
        if len(text) > _MAX_LENGTH or found is None or not (found[1] or found[2]):
            missing = re.fullmatch(r"[0-9]+\.?[0-9]*", body[at:]) and len(text) <= _MAX_LENGTH
            raise FunctionError(f"time: {'missing unit in' if missing else 'invalid'} duration {quote(text)}")
        if found[3] not in _UNITS:
            raise FunctionError(f"time: unknown unit {quote(found[3])} in duration {quote(text)}")
        unit, digits = _UNITS[found[3]], found[2] or ""
        total += int(found[1] or 0) * unit + int(digits or 0) * unit // 10 ** len(digits)
        at = found.end()
    if total > _LIMIT - (text[:1] != "-"):
        raise FunctionError(f"time: invalid duration {quote(text)}")
    return -total if text[:1] == "-" else total
