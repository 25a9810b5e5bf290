"""Matches on what stands in the packet or how it travels: addresses, interfaces, protocol, ports."""

from __future__ import annotations

from netinit.base.net import Network, merge_networks, spell_intervals
from netinit.rules.matches.base import (
    DESTINATION,
    EXTENSION,
    IN_INTERFACE,
    OUT_INTERFACE,
    PROTOCOL,
    SOURCE,
    Match,
    XtMatch,
    is_one_of,
    spell_each,
    spell_list,
    spell_not,
    spell_one_of,
    truth_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet import Packet, Surroundings


class Source(Match):
    """The source address lies in one of the networks (iptables(8), `-s`)."""

    networks: tuple[Network, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=SOURCE, alternatives=_spell_addresses("-s", self.networks, self.negated))

    def nft(self) -> str:
        return _spell_networks("saddr", self.networks, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        return truth_of(_lies_in(packet.source, self.networks), self.negated)

    def describe(self) -> str:
        return f"it comes {spell_not(self.negated)}from {spell_list(self.networks)}"


class Destination(Match):
    """The destination address lies in one of the networks (iptables(8), `-d`)."""

    networks: tuple[Network, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=DESTINATION, alternatives=_spell_addresses("-d", self.networks, self.negated))

    def nft(self) -> str:
        return _spell_networks("daddr", self.networks, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        return truth_of(_lies_in(packet.destination, self.networks), self.negated)

    def describe(self) -> str:
        return f"it goes {spell_not(self.negated)}to {spell_list(self.networks)}"


class InInterface(Match):
    """The packet came in through one of the interfaces (iptables(8), `-i`)."""

    names: tuple[str, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=IN_INTERFACE, alternatives=spell_each("-i", self.names, self.negated))

    def nft(self) -> str:
        return _spell_interfaces("iifname", self.names, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        return _is_named(packet.in_interface, self.names) is not self.negated

    def describe(self) -> str:
        return f"it came in {spell_not(self.negated)}through {spell_list(self.names)}"


class OutInterface(Match):
    """The packet leaves through one of the interfaces (iptables(8), `-o`)."""

    names: tuple[str, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=OUT_INTERFACE, alternatives=spell_each("-o", self.names, self.negated))

    def nft(self) -> str:
        return _spell_interfaces("oifname", self.names, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        return _is_named(packet.out_interface, self.names) is not self.negated

    def describe(self) -> str:
        return f"it leaves {spell_not(self.negated)}through {spell_list(self.names)}"


class Protocol(Match):
    """The transport protocol (iptables(8), `-p`)."""

    name: str

    def xt(self) -> XtMatch:
        return XtMatch(place=PROTOCOL, alternatives=(f"-p {self.name}",))

    def nft(self) -> str:
        return f"meta l4proto {self.name}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        return packet.protocol == self.name

    def describe(self) -> str:
        return f"it is {self.name.upper()}"


class Port(Match):
    """The destination (or source) port is one of `ports`; implies the protocol (sections tcp, udp; negated lists: multiport)."""

    protocol: str
    ports: tuple[int, ...]
    source: bool = False
    negated: bool = False

    def xt(self) -> XtMatch:
        side = "--sport" if self.source else "--dport"
        if self.negated and len(self.ports) > 1:
            ports = ",".join([str(port) for port in self.ports])
            texts: tuple[str, ...] = (f"-m multiport ! {side}s {ports}",)
        else:
            texts = tuple([f"-m {self.protocol} {text}" for text in spell_each(side, self.ports, self.negated)])
        return XtMatch(place=EXTENSION, alternatives=texts, protocol=self.protocol)

    def nft(self) -> str:
        ports = [str(port) for port in sorted(set(self.ports))]
        return spell_one_of(f"{self.protocol} {'sport' if self.source else 'dport'}", ports, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        if packet.protocol != self.protocol:
            return False
        port = packet.source_port if self.source else packet.destination_port
        return truth_of(is_one_of(port, self.ports), self.negated)

    def describe(self) -> str:
        side = "source" if self.source else "destination"
        return f"it is {self.protocol.upper()} and its {side} port is {spell_not(self.negated)}{spell_list(self.ports)}"


def _spell_addresses(option: str, networks: tuple[Network, ...], negated: bool) -> tuple[str, ...]:
    """An alternative a network; the whole of a family is listed as no match at all."""
    texts = spell_each(option, networks, negated)
    if negated or all(network.length for network in networks):
        return texts
    return tuple(["" if not network.length else text for network, text in zip(networks, texts, strict=True)])


def _spell_networks(field: str, networks: tuple[Network, ...], negated: bool) -> str:
    """The nft expression for an address in one of the networks, all of one family."""
    family = networks[0].family
    return spell_one_of(f"{family.nft} {field}", spell_intervals(merge_networks(networks, family), family), negated)


def _spell_interfaces(field: str, names: tuple[str, ...], negated: bool) -> str:
    """The nft expression for one of the interfaces, in the order in which nft lists them."""
    ordered = sorted(set(names), key=_as_number)
    return spell_one_of(field, [f'"{name}"' for name in ordered], negated)


def _as_number(name: str) -> int:
    """The name as the kernel compares it in a set: a number, here of the byte order of nearly all machines."""
    return int.from_bytes(name.encode(), "little")


def _lies_in(address: int | None, networks: tuple[Network, ...]) -> bool | None:
    return None if address is None else any(network.first <= address <= network.last for network in networks)


def _is_named(interface: str, names: tuple[str, ...]) -> bool:
    """Whether one of the names, which may end in `+` for any ending, is the interface's; no interface has no name."""
    return any(interface.startswith(name[:-1]) if name.endswith("+") else interface == name for name in names)
