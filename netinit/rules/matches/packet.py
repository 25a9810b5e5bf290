"""Matches of every sidecar's rules: addresses, interfaces, protocol, ports, and the sending user."""

from __future__ import annotations

from netinit.base.net import FULL_MASK, Network, bounds_of, format_intervals, join_ranges, merge_networks
from netinit.rules.matches import (
    DESTINATION,
    EXTENSION,
    IN_INTERFACE,
    OUT_INTERFACE,
    PROTOCOL,
    SOURCE,
    Match,
    XtMatch,
    format_each,
    format_list,
    format_not,
    format_one_of,
    truth_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.rules.packet import Packet, Surroundings
    from netinit.rules.packet_set import Chosen, PacketSet


MOST_MULTIPORTS = 15  # XT_MULTI_PORTS, linux/netfilter/xt_multiport.h


class Source(Match):
    """Matches a source address in one of the networks (iptables(8), `-s`)."""

    networks: tuple[Network, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=SOURCE, alternatives=_format_addresses("-s", self.networks, self.negated))

    def each(self) -> tuple[Match | None, ...]:
        return tuple([
            Source(networks=(one,), negated=self.negated) if self.negated or one.length else None for one in self.networks
        ])

    def nft(self) -> str:
        return _format_networks("saddr", self.networks, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        return truth_of(_lies_in(packet.source, self.networks), self.negated)

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.from_networks(self.networks).turned(self.negated)

    def describe(self) -> str:
        return f"it comes {format_not(self.negated)}from {format_list(self.networks)}"


class Destination(Match):
    """Matches a destination address in one of the networks (iptables(8), `-d`)."""

    networks: tuple[Network, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=DESTINATION, alternatives=_format_addresses("-d", self.networks, self.negated))

    def each(self) -> tuple[Match | None, ...]:
        return tuple([
            Destination(networks=(one,), negated=self.negated) if self.negated or one.length else None for one in self.networks
        ])

    def nft(self) -> str:
        return _format_networks("daddr", self.networks, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        return truth_of(_lies_in(packet.destination, self.networks), self.negated)

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.to_networks(self.networks).turned(self.negated)

    def describe(self) -> str:
        return f"it goes {format_not(self.negated)}to {format_list(self.networks)}"


class InInterface(Match):
    """Matches packets received on one of the interfaces (iptables(8), `-i`)."""

    names: tuple[str, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=IN_INTERFACE, alternatives=format_each("-i", self.names, self.negated))

    def each(self) -> tuple[Match | None, ...]:
        return tuple([InInterface(names=(name,), negated=self.negated) for name in self.names])

    def nft(self) -> str:
        return _format_interfaces("iifname", self.names, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        return is_named(packet.in_interface, self.names) is not self.negated

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.coming_through(self.names).turned(self.negated)

    def describe(self) -> str:
        return f"it came in {format_not(self.negated)}through {format_list(self.names)}"


class OutInterface(Match):
    """Matches packets sent through one of the interfaces (iptables(8), `-o`)."""

    names: tuple[str, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=OUT_INTERFACE, alternatives=format_each("-o", self.names, self.negated))

    def each(self) -> tuple[Match | None, ...]:
        return tuple([OutInterface(names=(name,), negated=self.negated) for name in self.names])

    def nft(self) -> str:
        return _format_interfaces("oifname", self.names, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        return is_named(packet.out_interface, self.names) is not self.negated

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.leaving_through(self.names).turned(self.negated)

    def describe(self) -> str:
        return f"it leaves {format_not(self.negated)}through {format_list(self.names)}"


class Protocol(Match):
    """Matches the transport protocol (iptables(8), `-p`). `module` also loads the protocol's module, which has no effect."""

    name: str
    negated: bool = False
    module: bool = False

    def xt(self) -> XtMatch:
        alternatives = format_each("-p", (self.name,), self.negated)
        if self.module:
            alternatives = tuple([f"{text} -m {self.name}" for text in alternatives])
        return XtMatch(place=PROTOCOL, alternatives=alternatives)

    def nft(self) -> str:
        return format_one_of("meta l4proto", (self.name,), self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        return (packet.protocol == self.name) is not self.negated

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.of_protocol(self.name).turned(self.negated)

    def describe(self) -> str:
        return f"it is {format_not(self.negated)}{self.name.upper()}"


class Port(Match):
    """Matches a destination (or source) port in `ports`; implies the protocol (sections tcp, udp, multiport).

    An element is a port, or a pair of the first and last port of a range. Several single ports are one alternative each,
    as in Istio; a negated list is one multiport match, a list with ranges as few as possible.
    """

    protocol: str
    ports: tuple[int | tuple[int, int], ...]
    source: bool = False
    negated: bool = False

    def xt(self) -> XtMatch:
        option = f"{'! ' if self.negated else ''}{'--sport' if self.source else '--dport'}"
        alternatives = []
        for group in self._groups():
            texts = [f"{low}:{high}" if low < high else str(low) for low, high in map(bounds_of, group)]
            module = "multiport" if len(texts) > 1 else self.protocol
            alternatives.append(f"-m {module} {option}{'s' if len(texts) > 1 else ''} {','.join(texts)}")
        return XtMatch(place=EXTENSION, alternatives=tuple(alternatives), protocol=self.protocol)

    def each(self) -> tuple[Match | None, ...]:
        return tuple([
            Port(protocol=self.protocol, ports=tuple(group), source=self.source, negated=self.negated) for group in self._groups()
        ])

    def _groups(self) -> Sequence[Sequence[int | tuple[int, int]]]:
        """The ports by iptables match."""
        if self.negated:
            return [self.ports]
        return _fill_multiports(self.ports) if self.has_ranges else [(port,) for port in self.ports]

    @property
    def has_ranges(self) -> bool:
        """Whether any element is a range."""
        return any(isinstance(port, tuple) for port in self.ports)

    def nft(self) -> str:
        ranges = sorted({bounds_of(port) for port in self.ports})
        if self.has_ranges:
            ranges = join_ranges(ranges)
        texts = [f"{low}-{high}" if low < high else str(low) for low, high in ranges]
        return format_one_of(f"{self.protocol} {'sport' if self.source else 'dport'}", texts, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        if packet.protocol != self.protocol:
            return False
        port = packet.source_port if self.source else packet.destination_port
        if port is None:
            return None
        return any(low <= port <= high for low, high in map(bounds_of, self.ports)) is not self.negated

    def choose(self, packets: PacketSet) -> Chosen:
        ranges = tuple([bounds_of(port) for port in self.ports])
        ports = packets.with_port(ranges, source=self.source)
        return packets.of_protocol(self.protocol) & ports.turned(self.negated)

    def describe(self) -> str:
        side = "source" if self.source else "destination"
        words = [f"{low} to {high}" if low < high else str(low) for low, high in map(bounds_of, self.ports)]
        return f"it is {self.protocol.upper()} and its {side} port is {format_not(self.negated)}{format_list(words)}"


class Owner(Match):
    """Matches packets of sockets of this user or group (section owner; only for packets sent from this namespace).

    With `last`, of a range of users or groups, both ends included.
    """

    kind: str  # uid or gid
    number: int
    last: int | None = None
    negated: bool = False

    def xt(self) -> XtMatch:
        anybody = self.kind == "uid" and (self.number, self.last) == (0, FULL_MASK)
        what = "--socket-exists" if anybody else f"--{self.kind}-owner {self._spell('-')}"
        text = f"-m owner {'! ' if self.negated else ''}{what}"
        return XtMatch(place=EXTENSION, alternatives=(text,))

    def nft(self) -> str:
        return format_one_of(f"meta sk{self.kind}", (self._spell("-"),), self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        if not packet.has_socket:  # without a socket, xt_owner is true for every negated match
            return self.negated
        owner = packet.uid if self.kind == "uid" else packet.gid
        last = self.number if self.last is None else self.last
        return None if owner is None else (self.number <= owner <= last) is not self.negated

    def choose(self, packets: PacketSet) -> Chosen:
        last = self.number if self.last is None else self.last
        return packets.owned_by(self.kind, self.number, last).turned(self.negated)

    def describe(self) -> str:
        words = self._spell(" to ")
        return f"its socket's {self.kind} is {format_not(self.negated)}{words if self.last is None else f'from {words}'}"

    def _spell(self, between: str) -> str:
        return str(self.number) if self.last is None else f"{self.number}{between}{self.last}"


def _fill_multiports(ports: Sequence[int | tuple[int, int]]) -> list[list[int | tuple[int, int]]]:
    """Split ports and ranges into lists that multiport accepts: 15 ports, a range counts as two."""
    lists: list[list[int | tuple[int, int]]] = []
    left = 0
    for port in ports:
        low, high = bounds_of(port)
        size = 2 if low < high else 1
        if left < size:
            lists.append([])
            left = MOST_MULTIPORTS
        lists[-1].append(port)
        left -= size
    return lists


def _format_addresses(option: str, networks: tuple[Network, ...], negated: bool) -> tuple[str, ...]:
    """Return one alternative for each network; a family's whole address space is listed without a match."""
    texts = format_each(option, networks, negated)
    if negated or all(network.length for network in networks):
        return texts
    return tuple(["" if not network.length else text for network, text in zip(networks, texts, strict=True)])


def _format_networks(field: str, networks: tuple[Network, ...], negated: bool) -> str:
    """Return the nft expression for an address in one of the networks, all of one family."""
    family = networks[0].family
    return format_one_of(f"{family.nft} {field}", format_intervals(merge_networks(networks, family), family), negated)


def _format_interfaces(field: str, names: tuple[str, ...], negated: bool) -> str:
    """Return the nft expression for one of the interfaces, in the order in which nft lists them."""
    ordered = sorted(set(names), key=_as_number)
    return format_one_of(field, [f'"{_format_interface(name)}"' for name in ordered], negated)


def _format_interface(name: str) -> str:
    """Return the name in nft syntax: `*` for any ending, with a backslash before a literal one. Raises ValueError for "any name"."""
    if name == "+":
        raise ValueError("any interface: nft has no expression for it")
    if name.endswith("+"):
        return f"{name[:-1]}*"
    return f"{name[:-1]}\\*" if name.endswith("*") else name


def _as_number(name: str) -> int:
    """Return the name as the number that the kernel compares in a set; little-endian, as on nearly all machines."""
    return int.from_bytes(name.encode("utf-8", "surrogateescape"), "little")


def _lies_in(address: int | None, networks: tuple[Network, ...]) -> bool | None:
    return None if address is None else any(network.first <= address <= network.last for network in networks)


def is_named(interface: str, names: tuple[str, ...]) -> bool:
    """Whether the interface has one of the names (`+` at the end: a prefix); False without an interface."""
    return any(interface.startswith(name[:-1]) if name.endswith("+") else interface == name for name in names)
