"""What a rule can see: a packet, and the host it travels through.

A match answers with a truth: True, False, or None where it cannot be known. None is never taken for either.
"""

from __future__ import annotations

from netinit.base.net import IPV6, Family, Network
from netinit.base.records import Record

LOOPBACK_DEVICE = "lo"
_MULTICAST = {4: Network.parse("224.0.0.0/4"), 6: Network.parse("ff00::/8")}
_EVERYBODY = 0xFFFFFFFF  # 255.255.255.255
LocalMarks = frozenset[tuple[int, int]]  # marks that a policy rule routes to this host, each with the mask of the bits that count


class Packet(Record):
    """A packet at one point of its path. Addresses and ports are numbers; None where nobody can know them.

    `has_socket` says whether a socket of this namespace sends it; `uid` and `gid` are that socket's. `state` is what
    connection tracking says of it; empty before it was asked. `socket` says whether a socket is connected or bound to
    the very address that the packet goes to. `destination_translated` says whether NAT has replaced its connection's
    destination (conntrack's status DNAT), `is_answer` whether it travels in the other direction than that connection's first
    packet; None where that is not known.
    """

    family: Family
    protocol: str
    source: int | None
    destination: int | None
    source_port: int | None = None
    destination_port: int | None = None
    in_interface: str = ""
    out_interface: str = ""
    has_socket: bool = False
    uid: int | None = None
    gid: int | None = None
    mark: int = 0
    state: str = ""
    connection_mark: int = 0
    socket: bool | None = False
    flags: tuple[str, ...] | None = None
    destination_translated: bool | None = None
    is_answer: bool | None = None


class Surroundings(Record):
    """The host as far as packets depend on it. `addresses` are pairs of an interface and an address as a number."""

    family: Family
    addresses: tuple[tuple[str, int], ...] = ()
    routes: tuple[tuple[Network, str], ...] = ()  # beside the host's own addresses; the longest prefix wins
    default_interface: str = "eth0"
    forwards: bool = False
    picks_up: bool = True  # packets in the middle of an unknown TCP connection are tracked (nf_conntrack_tcp_loose)
    local_marks: LocalMarks = frozenset()
    broadcasts: tuple[int, ...] = ()  # of the networks that its devices are in
    doubtful: tuple[Network, ...] = ()  # what routing may deliver to this host, or drop, by more than the destination

    @property
    def heard(self) -> tuple[Network, ...]:
        """Broadcast addresses and multicast groups: what comes in for them is delivered to this host, but no TCP.

        Whether a socket has joined a group is not asked: any may, without a right.
        """
        if self.family is IPV6:
            return (_MULTICAST[6],)
        return (_MULTICAST[4], *[Network((4, address, self.family.bits)) for address in (_EVERYBODY, *self.broadcasts)])

    def hears(self, protocol: str, address: int | None) -> bool:
        """Whether a packet that comes in for the address is delivered although no device has it."""
        return protocol != "tcp" and address is not None and any(one.first <= address <= one.last for one in self.heard)

    def is_doubtful(self, address: int | None) -> bool:
        """Whether routing may deliver packets to the address to this host, although it is not its own, or drop them."""
        return address is not None and not self.is_local(address) and any(one.first <= address <= one.last for one in self.doubtful)

    def is_local(self, address: int | None) -> bool | None:
        """Whether the host itself has the address."""
        if address is None:
            return None
        return (
            Network.parse(self.family.loopback).last == address
            or (self.family.version == 4 and address >> 24 == 127)  # noqa: PLR2004
            or any(own == address for _, own in self.addresses)
        )

    def primary_address(self, interface: str) -> int | None:
        """The first address of an interface, which REDIRECT sends incoming packets to."""
        if interface == LOOPBACK_DEVICE:
            return Network.parse(self.family.loopback).first
        return next((address for name, address in self.addresses if name == interface), None)

    def routes_here(self, mark: int) -> bool:
        """Whether a policy rule routes packets with this mark to the host itself."""
        return any(mark & mask == value for value, mask in self.local_marks)

    def leaving_interface(self, address: int | None, mark: int) -> str:
        """The interface that a packet of this host to the address leaves through."""
        if address is None or self.is_local(address) or self.routes_here(mark):
            return LOOPBACK_DEVICE
        fitting = [(network.length, name) for network, name in self.routes if network.first <= address <= network.last]
        return max(fitting)[1] if fitting else self.default_interface
