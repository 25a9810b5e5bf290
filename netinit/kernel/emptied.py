"""Tables and built-in chains of nf_tables that iptables-nft made for rules of ours, removed once nothing is in them.

iptables-nft makes our chains before the built-in ones that they are entered from, and the kernel numbers what a table holds
in the order in which it was made. So built-in chains with a higher number than the first of ours were made with it or
later, and a table in which ours is the first was made for it. What is older is somebody else's and stays. A table that
somebody made without any chain looks like one of ours.

The kernel itself refuses to delete what somebody has come to use meanwhile (NLM_F_NONREC of linux/netlink.h).
"""

from __future__ import annotations

import posix
from _socket import AF_NETLINK, MSG_DONTWAIT, SOCK_RAW, socket
from _struct import pack, unpack_from

from netinit.base.records import Record
from netinit.kernel import detect, netlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

IPV4_TABLES, IPV6_TABLES = 2, 10  # families of nf_tables that iptables-nft keeps its rules in
BATCH_BEGIN, BATCH_END, SUBSYSTEM = 16, 17, 10  # linux/netfilter/nfnetlink.h
DELETE_TABLE, DELETE_CHAIN = SUBSYSTEM << 8 | 2, SUBSYSTEM << 8 | 5
NLM_F_NONREC = 0x100
NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME = 1, 1, 3
IN_USE, GONE = (16, 2)  # EBUSY, ENOENT
RECEIVE_SIZE = 1 << 16


class OwnPart(Record):
    """A table of iptables-nft with chains of ours: the number of the first of these, and whether any chain is older."""

    family: int
    table: str
    first: int
    alone: bool


def find_parts(names: Collection[str], owned: Collection[str]) -> tuple[OwnPart, ...]:
    """The tables of iptables-nft with these names and `owned` chains; other tables with such chains are somebody else's."""
    tables: dict[tuple[int, str], list[netlink.NftChain]] = {}
    for chain in detect.nft_chains() or ():
        if chain.family in (IPV4_TABLES, IPV6_TABLES) and chain.table in names:
            tables.setdefault((chain.family, chain.table), []).append(chain)
    found = []
    for (family, table), chains in tables.items():
        ours = [chain.handle for chain in chains if chain.name in owned]
        if ours:
            alone = min(ours) == min([chain.handle for chain in chains])
            found.append(OwnPart(family=family, table=table, first=min(ours), alone=alone))
    return tuple(found)


def remove_empty(parts: Collection[OwnPart]) -> None:
    """Removes what was made with our chains and is empty now: no rule, no policy of somebody's. OSError."""
    chains = detect.nft_chains() or ()
    for part in parts:
        held = [chain for chain in chains if (chain.family, chain.table) == (part.family, part.table)]
        empty = [chain for chain in held if chain.hooked and chain.accepts and not chain.uses and chain.handle > part.first]
        if empty:
            _delete(part, [chain.name for chain in empty], whole=part.alone and len(empty) == len(held))


def _delete(part: OwnPart, chains: list[str], *, whole: bool) -> None:
    """One transaction: all of it or, where somebody uses any of it now, nothing."""
    table = _attribute(NFTA_CHAIN_TABLE, part.table)
    messages = [(DELETE_CHAIN, table + _attribute(NFTA_CHAIN_NAME, chain)) for chain in chains]
    messages += [(DELETE_TABLE, _attribute(NFTA_TABLE_NAME, part.table))] if whole else []
    body = _message(BATCH_BEGIN, 0, pack("=BBH", 0, 0, SUBSYSTEM << 8))
    for kind, attributes in messages:
        body += _message(kind, netlink.NLM_F_ACK | NLM_F_NONREC, pack("=BBH", part.family, 0, 0) + attributes)
    body += _message(BATCH_END, 0, pack("=BBH", 0, 0, SUBSYSTEM << 8))
    asking = socket(AF_NETLINK, SOCK_RAW, netlink.NETLINK_NETFILTER)
    try:
        asking.send(body)
        answers = _answers(asking)
    finally:
        asking.close()
    wrong = [number for number in answers if number not in (0, IN_USE, GONE)]
    if wrong:
        raise OSError(wrong[0], posix.strerror(wrong[0]))


def _answers(asking: socket) -> list[int]:
    """The error number of each message, which the kernel has answered when sending returns."""
    found: list[int] = []
    while True:
        try:
            data = asking.recv(RECEIVE_SIZE, MSG_DONTWAIT)
        except BlockingIOError:
            return found
        offset = 0
        while offset + netlink.NLMSG_HEADER <= len(data):
            length, kind = unpack_from("=IH", data, offset)
            if kind == netlink.NLMSG_ERROR:
                found.append(-unpack_from("=i", data, offset + netlink.NLMSG_HEADER)[0])
            offset += max(netlink.NLMSG_HEADER, length + 3 & ~3)


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return pack("=IHHII", netlink.NLMSG_HEADER + len(body), kind, netlink.NLM_F_REQUEST | flags, 1, 0) + body


def _attribute(kind: int, text: str) -> bytes:
    value = text.encode("utf-8", "surrogateescape") + b"\0"
    return pack("=HH", netlink.NLA_HEADER + len(value), kind) + value + bytes(-len(value) % 4)
