"""nf_tables over netlink: several changes as one transaction, and what they are made of (linux/netfilter/nf_tables.h)."""

from __future__ import annotations

import posix
from _socket import MSG_DONTWAIT
from _struct import pack, unpack_from

from netinit.kernel import netlink
from netinit.kernel.netlink import (
    NETLINK_NETFILTER,
    NFT_TABLE_F_DORMANT,
    NFTA_TABLE_FLAGS,
    NFTA_TABLE_NAME,
    NLM_F_ACK,
    NLM_F_REQUEST,
    NLMSG_ERROR,
    Netlink,
    attribute,
)

SUBSYSTEM = 10  # NFNL_SUBSYS_NFTABLES of linux/netfilter/nfnetlink.h
NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END = 16, 17
NFT_MSG_NEWTABLE, NFT_MSG_DELTABLE, NFT_MSG_NEWCHAIN, NFT_MSG_DELCHAIN, NFT_MSG_NEWRULE = [
    SUBSYSTEM << 8 | kind for kind in (0, 2, 3, 5, 6)
]
NLM_F_NONREC = 0x100  # of a deletion: only where nothing is in it; linux/netlink.h
NFTA_LIST_ELEM = 1
NFTA_META_SREG, NFTA_CMP_OP, NFTA_BITWISE_LEN, NFTA_BITWISE_MASK, NFTA_BITWISE_XOR = 3, 2, 3, 4, 5
NFTA_PAYLOAD_DREG, NFTA_PAYLOAD_BASE, NFTA_PAYLOAD_OFFSET, NFTA_PAYLOAD_LEN, NFTA_PAYLOAD_SREG = 1, 2, 3, 4, 5
NFTA_IMMEDIATE_DREG, NFTA_IMMEDIATE_DATA = 1, 2
NFT_REG_VERDICT = 0
RECEIVE_SIZE = 1 << 16


class NfTables(Netlink):
    """A socket for changes of nf_tables."""

    def __init__(self) -> None:
        super().__init__(NETLINK_NETFILTER)

    def commit(self, family: int, messages: list[tuple[int, int, bytes]]) -> list[int]:
        """Makes all of these changes (type, flags, attributes) of a family or none; the error number of each refusal."""
        edge = pack(">BBH", 0, 0, SUBSYSTEM)
        data = self._spell(NFNL_MSG_BATCH_BEGIN, 0, edge)
        for kind, flags, attributes in messages:
            data += self._spell(kind, flags | NLM_F_ACK, pack(">BBH", family, 0, 0) + attributes)
        self._socket.send(data + self._spell(NFNL_MSG_BATCH_END, 0, edge))
        return [number for number in self._answers() if number]

    def _spell(self, kind: int, flags: int, body: bytes) -> bytes:
        self._sequence += 1
        return netlink.message(kind, NLM_F_REQUEST | flags, body, self._sequence)

    def _answers(self) -> list[int]:
        """The error number of each message, which the kernel has answered when sending returns."""
        found: list[int] = []
        while True:
            try:
                data = self._socket.recv(RECEIVE_SIZE, MSG_DONTWAIT)
            except BlockingIOError:
                return found
            found += [-unpack_from("=i", body)[0] for kind, body in netlink.split(data) if kind == NLMSG_ERROR]


def set_dormant(family: int, table: str, *, dormant: bool) -> None:
    """Lets the kernel ask the chains of a table, or none of them. OSError."""
    flags = attribute(NFTA_TABLE_FLAGS, pack(">I", NFT_TABLE_F_DORMANT if dormant else 0))
    with NfTables() as link:
        for number in link.commit(family, [(NFT_MSG_NEWTABLE, 0, attribute(NFTA_TABLE_NAME, name(table)) + flags)]):
            raise OSError(number, posix.strerror(number))


def name(text: str) -> bytes:
    """A name as the kernel takes it."""
    return text.encode("utf-8", "surrogateescape") + b"\0"
