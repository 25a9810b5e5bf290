"""Replaces a cluster's names and addresses in a text consistently. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from netinit.base.net import Network, family_of, number_of, parse_address

_ADDRESS = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)|[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F.]*(?![\w:]))")
KEPT = tuple(  # reveals nothing about a cluster, but is essential for understanding rules
    Network.parse(text)
    for text in ("0.0.0.0/32", "127.0.0.0/8", "169.254.0.0/16", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
                 "255.255.255.255/32", "::/127", "::6/128", "2001:db8::/32", "fe80::/10", "ff00::/8")
)  # fmt: skip


def redact(text: str, names: Mapping[str, str]) -> str:
    """Replace names (name -> replacement, as whole words) and addresses, which are numbered in order of appearance."""
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w]|-\w)", names[name], text)
    numbers: dict[str, str] = {}

    def replace(found: re.Match[str]) -> str:
        try:
            address = parse_address(found[0])
        except ValueError:
            return found[0]
        family, value = family_of(address), number_of(address)
        if any(one.family is family and one.first <= value <= one.last for one in KEPT):
            return found[0]
        return numbers.setdefault(address, f"ADDRESS-{len(numbers) + 1}")

    return _ADDRESS.sub(replace, text)
