"""The anonymous sets of a planned rule as a snapshot has them, to compare both."""

from __future__ import annotations

from netinit.base.netlink_attributes import HEADER
from netinit.base.snapshot import NftElement, NftSet
from netinit.rules.rule_builder import EncodedSet, element


def in_snapshot(planned: EncodedSet, family: int, table: str) -> NftSet:
    """Return a planned set as a snapshot of this table has it."""
    key = slice(3 * HEADER, 3 * HEADER + planned.key_length)
    plain = len(element(bytes(planned.key_length)))
    return NftSet(
        family=family, table=table, name=planned.name, flags=planned.flags, key_type=planned.key_type, key_length=planned.key_length,
        elements=tuple([NftElement(key=one[key], flags=len(one) > plain) for one in planned.elements]),
    )  # fmt: skip
