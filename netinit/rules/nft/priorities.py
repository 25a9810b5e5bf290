"""Priorities of base chains, as nft writes them: a number, or a name with what is added to it (nft(8), section chains)."""

from __future__ import annotations

from netinit.base.errors import ParseError
from netinit.base.sanitize import shorten
from netinit.rules.model import FILTER, MANGLE, NAT, PRIORITIES, RAW, SOURCE_NAT

_NAMED = {
    "raw": PRIORITIES[RAW], "mangle": PRIORITIES[MANGLE], "dstnat": PRIORITIES[NAT], "filter": PRIORITIES[FILTER],
    "security": PRIORITIES["security"], "srcnat": SOURCE_NAT,
}  # fmt: skip
_LIMIT = 1 << 31


def read_priority(value: object, hook: str = "") -> int:
    """Return the number of `-100`, `dstnat` or `mangle + 5`. Raises ParseError."""
    words = str(value).replace("+", " + ").split()
    base, sign, more = "", 1, 0
    for word in words:
        if word in _NAMED and not base:
            base = word
        elif word in ("+", "-") and base:
            sign = 1 if word == "+" else -1
        elif word.lstrip("-").isdecimal() and word.isascii() and len(word) <= 11:  # noqa: PLR2004 - of 32 bits
            more = sign * int(word)
        else:
            raise ParseError(f"hook {shorten(hook, 40)}: {shorten(str(value), 40)} is no priority of a chain")
    found = _NAMED.get(base, 0) + more
    if not words or not -_LIMIT <= found < _LIMIT:
        raise ParseError(f"hook {shorten(hook, 40)}: {shorten(str(value), 40)} is no priority of a chain")
    return found
