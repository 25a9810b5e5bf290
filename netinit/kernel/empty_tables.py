"""Delete the empty tables and built-in chains that iptables-nft created for our rules.

It creates our chains before the built-in chains that jump to them, and handles rise in order of creation. So built-in
chains with a higher handle than our first chain are ours, and a table whose first chain is ours; older ones stay. The
kernel refuses to delete what is in use (NLM_F_NONREC of linux/netlink.h). Limit: a foreign table created without chains
looks like ours.
"""

from __future__ import annotations

import posix

from netinit.base.errors import ApplyError
from netinit.base.records import Record
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import attribute
from netinit.kernel.nf_tables import NFT_MSG_DELCHAIN, NFT_MSG_DELTABLE, NLM_F_NONREC, NfTables, name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from netinit.base.netlink_attributes import HeldChain
    from netinit.kernel.nf_tables import Message

    Place = tuple[int, str, str]  # family, table, chain

IN_USE, GONE = (16, 2)  # EBUSY, ENOENT


class OwnPart(Record):
    """A table of iptables-nft with chains of ours: the handle of the first, and whether no chain is older."""

    family: int
    table: str
    first: int
    alone: bool


def find_parts(names: Collection[str], owned: Collection[str]) -> tuple[OwnPart, ...]:
    """Return the iptables-nft tables with these names that contain `owned` chains."""
    tables: dict[tuple[int, str], list[HeldChain]] = {}
    for chain in detect.nft_chains() or ():
        if chain.family in netlink.OF_IPTABLES and chain.table in names:
            tables.setdefault((chain.family, chain.table), []).append(chain)
    found = []
    for (family, table), chains in tables.items():
        ours = [chain.handle for chain in chains if chain.name in owned]
        if ours:
            alone = min(ours) == min([chain.handle for chain in chains])
            found.append(OwnPart(family=family, table=table, first=min(ours), alone=alone))
    return tuple(found)


def remove_empty(parts: Collection[OwnPart]) -> None:
    """Delete tables and built-in chains of ours without rules and with unchanged policies. Raises ApplyError."""
    for part in parts:  # each for itself: all of a transaction, or nothing of it if any is in use
        try:
            with NfTables() as link:
                messages = find_empty((part,))
                wrong = [one.number for one in link.commit(messages) if one.number not in (IN_USE, GONE)] if messages else []
        except OSError as error:
            wrong = [error.errno or 0]
        if wrong:
            raise ApplyError(f"empty tables of iptables-nft cannot be removed: {posix.strerror(wrong[0])}")


def find_empty(
    parts: Collection[OwnPart], freed: Mapping[Place, int] | None = None, deleted: Collection[str] = ()
) -> list[tuple[int, Message]]:
    """Return the deletion of tables and built-in chains of ours without rules and with unchanged policies.

    For a transaction that deletes `freed` rules of a chain before it, and the chains with the names in `deleted`.
    """
    chains = detect.nft_chains() or ()
    found: list[tuple[int, Message]] = []
    for part in parts:
        held = [one for one in chains if (one.family, one.table) == (part.family, part.table) and one.name not in deleted]
        empty = [
            one
            for one in held
            if one.is_base and one.policy and one.handle > part.first
            and one.uses == (freed or {}).get((part.family, part.table, one.name), 0)
        ]  # fmt: skip
        table = attribute(netlink.NFTA_CHAIN_TABLE, name(part.table))
        for one in empty:
            chain = table + attribute(netlink.NFTA_CHAIN_NAME, name(one.name))
            found += [(part.family, (NFT_MSG_DELCHAIN, NLM_F_NONREC, chain))]
        if part.alone and empty and len(empty) == len(held):
            found.append((part.family, (NFT_MSG_DELTABLE, NLM_F_NONREC, attribute(netlink.NFTA_TABLE_NAME, name(part.table)))))
    return found
