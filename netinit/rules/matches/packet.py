"""Matches of every sidecar's rules: addresses, interfaces, protocol, ports, sending user."""

from __future__ import annotations

from _struct import pack

from netinit.base.net import (
    FULL_MASK,
    IPV4,
    Network,
    bounds_of,
    format_intervals,
    join_ranges,
    merge_networks,
    names_more,
)
from netinit.rules import numbers, structs
from netinit.rules.matches import (
    DESTINATION,
    IN_INTERFACE,
    OUT_INTERFACE,
    PROTOCOL,
    SOURCE,
    Match,
    format_extension,
    format_list,
    format_not,
    format_one_of,
    format_option,
    format_ranges,
    pack_tcp,
)
from netinit.rules.structs import protocol_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.rules.packet_interfaces import Chosen, PacketSet
    from netinit.rules.rule_builder import RuleBuilder


MAX_MULTIPORTS = 15  # XT_MULTI_PORTS, linux/netfilter/xt_multiport.h


class AddressMatch(Match):
    """Base of matches on an address in one of the networks, all of one family."""

    of_connection = True
    listed = "networks"
    place, option = SOURCE, "-s"
    source = True  # False: the destination
    networks: tuple[Network, ...]
    negated: bool = False

    def xt(self) -> str:
        return format_option(self.option, self.networks[0], self.negated)

    def each(self) -> tuple[Match | None, ...]:
        # `replace` would be slow: there may be ten thousand networks. That of all addresses is no match.
        kind, negated = type(self), self.negated
        return tuple([kind(networks=(one,), negated=negated) if negated or one.length else None for one in self.networks])

    def nft(self) -> str:
        family = self.networks[0].family
        texts = format_intervals(merge_networks(self.networks, family), family)
        return format_one_of(f"{family.nft} {'saddr' if self.source else 'daddr'}", texts, self.negated)

    def express(self, writer: RuleBuilder) -> None:
        family = self.networks[0].family
        writer.limit_family(family)
        offset, size = numbers.ADDRESSES[family][0 if self.source else 1]
        networks = merge_networks(self.networks, family)
        (low, high) = networks[0]
        more = high - low
        if len(networks) == 1 and not more & more + 1 and not low & more:  # one network, or an address
            length = family.bits - more.bit_length()
            taken = size if length % 8 or not length else length // 8
            writer.load("payload", numbers.NETWORK_HEADER, offset, taken)
            if length % 8 or not length:
                writer.mask(((1 << family.bits) - 1 - more).to_bytes(size, "big"))
            writer.compare(low.to_bytes(size, "big")[:taken], self.negated)
            return
        writer.load("payload", numbers.NETWORK_HEADER, offset, size)
        ranges = [(low.to_bytes(size, "big"), high.to_bytes(size, "big")) for low, high in networks]
        writer.compare_ranges(ranges, self.negated, numbers.TYPE_IPV4 if family is IPV4 else numbers.TYPE_IPV6)

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.in_networks(self.networks, source=self.source).negated_if(self.negated)

    def describe(self) -> str:
        verb, preposition = ("comes", "from") if self.source else ("goes", "to")
        return f"it {verb} {format_not(self.negated)}{preposition} {format_list(self.networks)}"

    def phrase(self) -> str:
        names = [str(one).removesuffix(f"/{one.family.bits}") for one in self.networks]
        return f"{format_not(self.negated)}{'from' if self.source else 'to'} {' or '.join(names)}"


class Source(AddressMatch):
    """Matches a source address in one of the networks (iptables(8), `-s`)."""


class Destination(AddressMatch):
    """Matches a destination address in one of the networks (iptables(8), `-d`)."""

    place, option = DESTINATION, "-d"
    source = False


class InterfaceMatch(Match):
    """Base of matches on an interface with one of the names; `+` at the end: a prefix."""

    of_connection = True
    listed = "names"
    place, option = IN_INTERFACE, "-i"
    inbound = True  # False: the interface that the packet leaves through
    names: tuple[str, ...]
    negated: bool = False

    def xt(self) -> str:
        return format_option(self.option, self.names[0], self.negated)

    def each(self) -> tuple[Match | None, ...]:
        return tuple([self.replace(names=(name,)) for name in self.names])

    def nft(self) -> str:
        # nft lists a set in the order of the kernel, which compares names as little-endian numbers.
        names = sorted(self._distinct(), key=lambda name: int.from_bytes(name.encode("utf-8", "surrogateescape"), "little"))
        texts = [f'"{_format_interface(name)}"' for name in names]
        return format_one_of("iifname" if self.inbound else "oifname", texts, self.negated)

    def express(self, writer: RuleBuilder) -> None:
        writer.load("meta", numbers.META_IIFNAME if self.inbound else numbers.META_OIFNAME)
        ranges = [_name_range(name) for name in self._distinct()]
        (low, high) = ranges[0]
        if len(ranges) == 1 and low != high:  # a prefix of names
            writer.compare(low.rstrip(b"\0"), self.negated)
        else:
            writer.compare_ranges(ranges, self.negated, numbers.TYPE_INTERFACE)

    def _distinct(self) -> list[str]:
        """Return the names without those that a prefix among them matches too: the ranges of a set may not overlap."""
        names = list(dict.fromkeys(self.names))
        return [one for one in names if not any(other != one and names_more(other, one) for other in names)]

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.through_interfaces(self.names, inbound=self.inbound).negated_if(self.negated)

    def describe(self) -> str:
        return f"it {'came in' if self.inbound else 'leaves'} {format_not(self.negated)}through {format_list(self.names)}"

    def phrase(self) -> str:
        return f"{format_not(self.negated)}{'from' if self.inbound else 'to'} {' or '.join(self.names)}"


class InInterface(InterfaceMatch):
    """Matches packets received on one of the interfaces (iptables(8), `-i`)."""


class OutInterface(InterfaceMatch):
    """Matches packets sent through one of the interfaces (iptables(8), `-o`)."""

    place, option = OUT_INTERFACE, "-o"
    inbound = False


class Protocol(Match):
    """Matches the transport protocol (iptables(8), `-p`). `module` loads the protocol's module, without effect: not compared."""

    of_connection = True
    place = PROTOCOL
    name: str
    negated: bool = False
    module: bool = False

    def _values(self) -> tuple[object, ...]:
        return self.name, self.negated

    def xt(self) -> str:
        return format_option("-p", f"{self.name} -m {self.name}" if self.module else self.name, self.negated)

    def nft(self) -> str:
        return format_one_of("meta l4proto", (self.name,), self.negated)

    def express(self, writer: RuleBuilder) -> None:
        if self.negated:
            writer.load("meta", numbers.META_L4PROTO)
            writer.compare(bytes((protocol_number(self.name),)), negated=True)
        else:
            writer.limit_protocol(self.name)

    def struct(self, *_: Match) -> structs.Struct:
        return pack_tcp(self.name)

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.of_protocol(self.name).negated_if(self.negated)

    def describe(self) -> str:
        return f"it is {format_not(self.negated)}{self.name.upper()}"


class Port(Match):
    """Matches a destination (or source) port, and its protocol (sections tcp, udp, multiport).

    A pair in `ports` is a range. Several single ports are one alternative each, as in Istio; a negated list is one multiport
    match, a list with ranges as few as possible.
    """

    of_connection = True
    listed = "ports"
    protocol: str
    ports: tuple[int | tuple[int, int], ...]
    source: bool = False
    negated: bool = False

    def xt(self) -> str:
        option, values = "--sport" if self.source else "--dport", ",".join(format_ranges(map(bounds_of, self.ports), ":"))
        if len(self.ports) > 1:
            return format_extension("multiport", f"{option}s", values, self.negated)
        return format_extension(self.protocol, option, values, self.negated)

    def each(self) -> tuple[Match | None, ...]:
        if self.negated or len(self.ports) == 1:
            return (self,)
        groups = _fill_multiports(self.ports) if self.has_ranges else [(port,) for port in self.ports]
        return tuple([self.replace(ports=tuple(group)) for group in groups])

    @property
    def has_ranges(self) -> bool:
        """Whether any element is a range."""
        return any(isinstance(port, tuple) for port in self.ports)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The elements of nft's set, in order; joined if there is a range."""
        ranges = sorted({bounds_of(port) for port in self.ports})
        return join_ranges(ranges) if self.has_ranges else ranges

    def nft(self) -> str:
        side = "sport" if self.source else "dport"
        return format_one_of(f"{self.protocol} {side}", format_ranges(self.ranges, "-"), self.negated)

    def express(self, writer: RuleBuilder) -> None:
        writer.limit_protocol(self.protocol)
        writer.load("payload", numbers.TRANSPORT_HEADER, 0 if self.source else 2, 2)
        packed = [(pack(">H", low), pack(">H", high)) for low, high in self.ranges]
        writer.compare_ranges(packed, self.negated, numbers.TYPE_SERVICE)

    def struct(self, *more: Match) -> structs.Struct:
        if len(self.ports) > 1:
            return pack_multiport(self.ports, structs.MULTIPORT_SIDES.index(self.source), negated=self.negated)
        return pack_tcp(self.protocol, self, *more)

    @property
    def header_fields(self) -> tuple[int, tuple[int, int], int] | None:
        at, bit = (0, structs.SOURCE_INVERTED) if self.source else (2, structs.DESTINATION_INVERTED)
        return (at, bounds_of(self.ports[0]), bit if self.negated else 0) if len(self.ports) == 1 else None

    @property
    def compat(self) -> str:  # type: ignore[override] # computed here
        return "has_own_ports" if len(self.ports) == 1 else ""

    def choose(self, packets: PacketSet) -> Chosen:
        ports = packets.with_port(tuple(map(bounds_of, self.ports)), source=self.source)
        return packets.of_protocol(self.protocol) & ports.negated_if(self.negated)

    def describe(self) -> str:
        side = "source" if self.source else "destination"
        words = format_list(format_ranges(map(bounds_of, self.ports), " to "))
        return f"it is {self.protocol.upper()} and its {side} port is {format_not(self.negated)}{words}"

    def phrase(self) -> str:
        ports = " or ".join(format_ranges(map(bounds_of, self.ports), " to "))
        return f"{self.protocol.upper()}{' from' if self.source else ''}{' but not' if self.negated else ''} port {ports}"


class Owner(Match):
    """Matches packets of sockets of the users or groups from `first` to `last` (section owner; only at OUTPUT)."""

    of_connection = True
    sender_ids = "kind"
    kind: str  # uid or gid
    first: int
    last: int
    negated: bool = False

    def xt(self) -> str:
        if self._is_any:
            return f"-m owner {'! ' if self.negated else ''}--socket-exists"
        return format_extension("owner", f"--{self.kind}-owner", self._format_range("-"), self.negated)

    @property
    def _is_any(self) -> bool:
        return (self.kind, self.first, self.last) == ("uid", 0, FULL_MASK)

    def nft(self) -> str:
        return format_one_of(f"meta sk{self.kind}", (self._format_range("-"),), self.negated)

    def express(self, writer: RuleBuilder) -> None:
        writer.load("meta", numbers.META_SKUID if self.kind == "uid" else numbers.META_SKGID)
        if self.first == self.last:
            writer.compare(pack("=I", self.first), self.negated)
        else:
            writer.swap(4)
            writer.compare_ranges([(pack(">I", self.first), pack(">I", self.last))], self.negated, 0)

    def struct(self, *_: Match) -> structs.Struct:
        bit, ends = structs.OWNER_SOCKET, (0, 0, 0, 0)
        if not self._is_any:
            bit = structs.OWNER_BITS[self.kind]
            ends = (self.first, self.last, 0, 0) if self.kind == "uid" else (0, 0, self.first, self.last)
        return structs.pad("owner", 1, pack(structs.OWNER, *ends, bit, bit if self.negated else 0))

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.owned_by(self.kind, self.first, self.last).negated_if(self.negated)

    def describe(self) -> str:
        words = self._format_range(" to ")
        return f"its socket's {self.kind} is {format_not(self.negated)}{words if self.first == self.last else f'from {words}'}"

    def phrase(self) -> str:
        return f"{format_not(self.negated)}{self.kind} {self._format_range(' to ')}"

    def _format_range(self, between: str) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}{between}{self.last}"


def drop_implied_protocols(matches: Sequence[Match]) -> tuple[Match, ...]:
    """Return the matches without protocols that others imply."""
    implied = {match.protocol for match in matches if match.protocol}
    return tuple([one for one in matches if not (isinstance(one, Protocol) and one.name in implied and not one.negated)])


def _fill_multiports(ports: Sequence[int | tuple[int, int]]) -> list[list[int | tuple[int, int]]]:
    """Split ports into lists that multiport accepts: 15 ports, a range counts as two."""
    lists: list[list[int | tuple[int, int]]] = []
    left = 0
    for port in ports:
        low, high = bounds_of(port)
        size = 2 if low < high else 1
        if left < size:
            lists.append([])
            left = MAX_MULTIPORTS
        lists[-1].append(port)
        left -= size
    return lists


def pack_multiport(ports: Sequence[int | tuple[int, int]], side: int, *, negated: bool) -> structs.Struct:
    """Return struct xt_multiport_v1."""
    ends, ranges = [], []
    for low, high in map(bounds_of, ports):
        ends += [low, high] if low < high else [low]
        ranges += [1, 0] if low < high else [0]
    rest = [0] * (MAX_MULTIPORTS - len(ends))
    return structs.pad("multiport", 1, pack("=2B15H15BB", side, len(ends), *ends, *rest, *ranges, *rest, negated))


def _name_range(name: str) -> tuple[bytes, bytes]:
    """Return the first and last name that match. Raises ValueError for `+`."""
    packed, length = name.encode("utf-8", "surrogateescape"), numbers.INTERFACE_NAME
    if packed == b"+":
        raise ValueError("any interface: nft has no expression for it")
    if not packed.endswith(b"+"):
        return packed.ljust(length, b"\0"), packed.ljust(length, b"\0")
    return packed[:-1].ljust(length, b"\0"), packed[:-1].ljust(length, b"\xff")


def _format_interface(name: str) -> str:
    """Return the name in nft syntax, where `*` marks a prefix. Raises ValueError for any name."""
    if name == "+":
        raise ValueError("any interface: nft has no expression for it")
    if name.endswith("+"):
        return f"{name[:-1]}*"
    return f"{name[:-1]}\\*" if name.endswith("*") else name
