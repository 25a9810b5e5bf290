"""The inputs of matches, which return None if these do not decide: a packet, and its host."""

from __future__ import annotations

from netinit.base.net import IPV6, Family, Network
from netinit.base.records import Record

LOOPBACK_DEVICE = "lo"
_MULTICAST = {4: Network.parse("224.0.0.0/4"), 6: Network.parse("ff00::/8")}
_EVERYBODY = 0xFFFFFFFF  # 255.255.255.255
LocalMarks = frozenset[tuple[int, int]]  # marks that a policy rule routes to this host, each with its mask


class Packet(Record):
    """A packet at one point of its path. Addresses and ports are numbers; None: unknown.

    `has_socket`: a local socket sends it, of owner `uid` and `gid`. `state`: conntrack state, empty before tracking.
    `socket`: a socket is connected or bound to exactly its destination. `destination_translated`: conntrack status DNAT.
    `is_answer`: in the reply direction.
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
    """The host's state that affects packets. `addresses`: interface and address of each."""

    family: Family
    addresses: tuple[tuple[str, int], ...] = ()
    routes: tuple[tuple[Network, str], ...] = ()  # without the host's own addresses; the longest prefix wins
    default_interface: str = "eth0"
    forwards: bool = False
    picks_up: bool = True  # whether packets in the middle of an unknown TCP connection are tracked (nf_conntrack_tcp_loose)
    local_marks: LocalMarks = frozenset()
    broadcasts: tuple[int, ...] = ()  # broadcast addresses of the networks of its devices
    local_networks: tuple[Network, ...] = ()  # of the type LOCAL without being addresses of devices (`ip route add local`)
    doubtful: tuple[Network, ...] = ()  # where routing to this host depends on more than the destination

    @property
    def group_addresses(self) -> tuple[Network, ...]:
        """Broadcast and multicast: inbound packets to these are delivered, except TCP. Any socket may join a group."""
        if self.family is IPV6:
            return (_MULTICAST[6],)
        return (_MULTICAST[4], *[Network((4, address, self.family.bits)) for address in (_EVERYBODY, *self.broadcasts)])

    @property
    def own_sources(self) -> tuple[int, ...]:
        """What MASQUERADE may give (nf_nat_masquerade.c); empty if it is not known. IPv4's never are addresses of lo."""
        return tuple([one for name, one in self.addresses if name != LOOPBACK_DEVICE or self.family is IPV6])

    def delivers_to_group(self, protocol: str, address: int | None) -> bool:
        """Whether an inbound packet to a broadcast or multicast address is delivered."""
        return protocol != "tcp" and address is not None and _is_in(address, self.group_addresses)

    def is_doubtful(self, address: int | None) -> bool:
        """Whether it is unknown if routing delivers packets for this address."""
        return address is not None and not self.is_local(address) and _is_in(address, self.doubtful)

    def is_local(self, address: int | None) -> bool | None:
        """Whether the host has this address; None if unknown."""
        if address is None:
            return None
        return (
            Network.parse(self.family.loopback).last == address
            or (self.family.version == 4 and address >> 24 == 127)  # noqa: PLR2004
            or any(own == address for _, own in self.addresses)
        )

    def is_of_type_local(self, address: int | None) -> bool | None:
        """Whether the kernel calls the address LOCAL: the host's own, or routed to it. None if unknown."""
        return None if address is None else self.is_local(address) or _is_in(address, self.local_networks)

    def primary_address(self, interface: str) -> int | None:
        """Return an interface's first address, where REDIRECT sends inbound packets."""
        if interface == LOOPBACK_DEVICE:
            return Network.parse(self.family.loopback).first
        return next((address for name, address in self.addresses if name == interface), None)

    def routes_here(self, mark: int) -> bool:
        """Whether a policy rule routes packets with this mark to the host."""
        return any(mark & mask == value for value, mask in self.local_marks)

    def leaving_interface(self, address: int | None, mark: int) -> str:
        """Return the interface through which the host sends packets for the address."""
        if address is None or self.is_local(address) or self.routes_here(mark):
            return LOOPBACK_DEVICE
        fitting = [(network.length, name) for network, name in self.routes if network.first <= address <= network.last]
        return max(fitting)[1] if fitting else self.default_interface


def _is_in(address: int, networks: tuple[Network, ...]) -> bool:
    return any(one.first <= address <= one.last for one in networks)
