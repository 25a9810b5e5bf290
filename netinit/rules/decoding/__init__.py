"""Read matches and targets in every notation: iptables options, structs of extensions, nf_tables expressions.

A pod's start writes rules and reads none, so readers do not stand in the classes of `rules.matches` and `rules.targets` but in files
parallel to theirs. Each file ends with its tables: by option, by struct, by what a register holds.
"""

from __future__ import annotations

from netinit.base.net import FULL_MASK


def read_number(text: str) -> int | None:
    """Parse a number as C's strtoul with base 0 does; None for anything else."""
    digits, base = text, 10
    if text[:2] in ("0x", "0X"):
        digits, base = text[2:], 16
    elif len(text) > 1 and text[0] == "0":
        digits, base = text[1:], 8
    allowed = "0123456789abcdefABCDEF" if base == 16 else "0123456789"[:base]  # noqa: PLR2004
    if not digits or digits.strip(allowed):
        return None
    number = int(digits, base)
    return number if number <= FULL_MASK else None


def read_masked(text: str) -> tuple[int, int] | None:
    """Parse a number and the mask after its slash; without one, all bits."""
    value, slash, mask = text.partition("/")
    number = read_number(value)
    limit = read_number(mask) if slash else FULL_MASK
    return None if number is None or limit is None else (number, limit)
