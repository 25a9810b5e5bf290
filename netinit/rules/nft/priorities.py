"""Priorities of base chains, as nft writes them: a number, or a name with what is added to it (nft(8), section chains)."""

from __future__ import annotations

import re

from netinit.base.errors import ParseError
from netinit.base.sanitize import shorten
from netinit.rules.model import FILTER, MANGLE, NAT, PRIORITIES, RAW, SOURCE_NAT

_NAMED = {
    "raw": PRIORITIES[RAW], "mangle": PRIORITIES[MANGLE], "dstnat": PRIORITIES[NAT], "filter": PRIORITIES[FILTER],
    "security": PRIORITIES["security"], "srcnat": SOURCE_NAT,
}  # fmt: skip
_FORM = re.compile(r"(?P<name>[a-z]+)(?P<more> *[+-] *[0-9]{1,10})?|(?P<number>-?[0-9]{1,10})")
_LIMIT = 1 << 31


def read_priority(value: object, hook: str) -> int:
    """Return the number of `-100`, `dstnat` or `mangle + 5`. Raises ParseError."""
    found = _FORM.fullmatch(str(value))
    if found and (found["number"] or found["name"] in _NAMED):
        number = _NAMED.get(found["name"], 0) + int((found["number"] or found["more"] or "0").replace(" ", ""))
        if -_LIMIT <= number < _LIMIT:
            return number
    raise ParseError(f"hook {shorten(hook, 40)}: {shorten(str(value), 40)} is no priority of a chain")
