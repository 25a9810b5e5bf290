"""Delete the empty tables and built-in chains that iptables-nft created for our rules.

Handles in a table rise in order of creation, and iptables-nft creates our chains before the built-in chains that jump to
them. So built-in chains with a higher handle than our first chain are ours, as is a table whose first chain is ours; older
objects are foreign and stay. The kernel refuses to delete what is in use (NLM_F_NONREC of linux/netlink.h). Limit: a
foreign table that was created without a chain looks like ours.
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
    from collections.abc import Collection

IN_USE, GONE = (16, 2)  # EBUSY, ENOENT


class OwnPart(Record):
    """A table of iptables-nft with chains of ours: the handle of the first, and whether no chain is older."""

    family: int
    table: str
    first: int
    alone: bool


def find_parts(names: Collection[str], owned: Collection[str]) -> tuple[OwnPart, ...]:
    """Return the iptables-nft tables with these names that contain `owned` chains."""
    tables: dict[tuple[int, str], list[netlink.NftChain]] = {}
    for chain in detect.nft_chains() or ():
        if chain.family in (netlink.IPV4_TABLES, netlink.IPV6_TABLES) and chain.table in names:
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
    chains = detect.nft_chains() or ()
    for part in parts:
        held = [chain for chain in chains if (chain.family, chain.table) == (part.family, part.table)]
        empty = [chain for chain in held if chain.hooked and chain.accepts and not chain.uses and chain.handle > part.first]
        if empty:
            _delete(part, [chain.name for chain in empty], whole=part.alone and len(empty) == len(held))


def _delete(part: OwnPart, chains: list[str], *, whole: bool) -> None:
    """Delete everything in one transaction, or nothing if any of it is in use."""
    table = attribute(netlink.NFTA_CHAIN_TABLE, name(part.table))
    messages = [(NFT_MSG_DELCHAIN, NLM_F_NONREC, table + attribute(netlink.NFTA_CHAIN_NAME, name(chain))) for chain in chains]
    if whole:
        messages.append((NFT_MSG_DELTABLE, NLM_F_NONREC, attribute(netlink.NFTA_TABLE_NAME, name(part.table))))
    try:
        with NfTables() as link:
            wrong = [one.number for one in link.commit(part.family, messages) if one.number not in (IN_USE, GONE)]
    except OSError as error:
        wrong = [error.errno or 0]
    if wrong:
        raise ApplyError(f"empty tables of iptables-nft cannot be removed: {posix.strerror(wrong[0])}")
