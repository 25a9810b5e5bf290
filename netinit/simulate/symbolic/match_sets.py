"""Evaluates matches for packet sets: which packets of a condition each match selects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import eq

from netinit.base.net import Family, Network, is_named
from netinit.rules.matches import Match
from netinit.rules.matches.context import BARE_SYN
from netinit.rules.model import Rule
from netinit.rules.packet_inputs import Surroundings
from netinit.rules.packet_interfaces import Chosen
from netinit.simulate.condition import KEPT, OWN, Condition
from netinit.simulate.hooks import shows_interface
from netinit.simulate.ruleset import RuleHit, Ruleset
from netinit.simulate.symbolic.regions import Region, everything, having_bits, nothing, valued, within
from netinit.simulate.symbolic.space import (
    ANSWERS,
    BEGINNINGS,
    INBOUND,
    OUTBOUND,
    WITH_DNAT,
    CtState,
    Dim,
    Space,
    conntrack_state,
    intervals_of,
    make_space,
)

MAX_NAMED = 8  # rules that packets meet where neighbours do the same, before the others are one


@dataclass(frozen=True, slots=True)
class Choice:
    """Packets that certainly match, and those that may."""

    certain: Region
    possible: Region

    @property
    def is_exact(self) -> bool:
        """Whether it is known of each packet."""
        return self.certain.node == self.possible.node

    def negated_if(self, negated: bool) -> Choice:
        """The choice, negated if asked; uncertain packets stay uncertain."""
        if not negated:
            return self
        whole = everything(self.certain.space)
        certain = whole - self.possible
        return Choice(certain, certain if self.is_exact else whole - self.certain)

    def __and__(self, other: Chosen) -> Choice:
        """Packets that both select."""
        assert isinstance(other, Choice)  # noqa: S101 - made by the same Among
        certain = self.certain & other.certain
        return Choice(certain, certain if self.is_exact and other.is_exact else self.possible & other.possible)

    def __or__(self, other: Chosen) -> Choice:
        """Packets that either selects."""
        assert isinstance(other, Choice)  # noqa: S101
        return Choice(self.certain | other.certain, self.possible | other.possible)


class SymbolicPackets:
    """All packets of a space under one condition (rules.packet_interfaces.PacketSet)."""

    ADDRESSES = {True: Dim.SOURCE, False: Dim.DESTINATION}  # noqa: RUF012 - of the source, if asked, or the destination
    PORTS = {True: Dim.SOURCE_PORT, False: Dim.DESTINATION_PORT}  # noqa: RUF012

    def __init__(self, space: Space, condition: Condition) -> None:
        self._space = space
        self._now = condition

    def of_protocol(self, name: str) -> Choice:
        known = name in self._space.dimension(Dim.PROTOCOL).values
        return self._exactly(valued(self._space, Dim.PROTOCOL, *[name] * known))

    def in_networks(self, networks: tuple[Network, ...], *, source: bool) -> Choice:
        """Packets whose destination (or source) is in one of the networks."""
        address = self._now.source if source else self._now.destination
        if address is KEPT:
            return self._exactly(within(self._space, self.ADDRESSES[source], intervals_of(networks)))
        return self._settled(address, lambda own: any(one.first <= own <= one.last for one in networks))

    def with_port(self, ranges: tuple[tuple[int, int], ...], *, source: bool) -> Choice:
        port = self._now.source_port if source else self._now.destination_port
        if isinstance(port, int):
            return self._always(holds=any(low <= port <= high for low, high in ranges))
        return self._exactly(within(self._space, self.PORTS[source], ranges))

    def through_interfaces(self, names: tuple[str, ...], *, inbound: bool) -> Choice:
        """Packets received on (or sent through) one of the interfaces, at hooks where that interface is known."""
        interface = self._now.in_interface if inbound else self._now.out_interface
        if not shows_interface(self._now.hook, inbound=inbound):
            interface = ""
        if isinstance(interface, str):
            return self._always(holds=is_named(interface, names))
        return self._named(Dim.INTERFACE, lambda value: is_named(value, names))

    def owned_by(self, kind: str, low: int, high: int) -> Choice:
        if not self._now.sender:
            return self._always(holds=False)
        owners = within(self._space, Dim.UID if kind == "uid" else Dim.GID, [(low, high)] if low <= high else [])
        return self._exactly(within(self._space, Dim.SENDER, [(1, 1)]) & owners)

    def with_mark(self, value: int, mask: int, *, connection: bool) -> Choice:
        now = self._now.connection_mark if connection else self._now.mark
        return self._exactly(having_bits(self._space, now, value, mask))

    def in_state(self, states: tuple[str, ...]) -> Choice:
        """Before tracking, rules see a new packet as INVALID, which is also written ""."""
        now = self._now
        if now.state is not KEPT:
            return self._always(holds=now.state in states)
        if now.tracked:
            return self._named(Dim.STATE, lambda value: conntrack_state(value) in states)
        fresh = within(self._space, Dim.STATE, [(0, 0)])
        known = self._named(Dim.STATE, lambda value: value != CtState.NEW and conntrack_state(value) in states).certain
        return self._exactly(known | fresh if not {"", "INVALID"}.isdisjoint(states) else known)

    def with_flags(self, mask: tuple[str, ...], flags: tuple[str, ...]) -> Choice:
        """TCP packets with exactly `flags` of the flags in `mask`; only packets that open a connection are bare SYNs.

        No packet has SYN and FIN, and only answers and packets without a connection have SYN and ACK. Of packets without a
        connection FIN and RST are known; all else is uncertain.
        """
        none_of_them, all_of_them = nothing(self._space), everything(self._space)
        begins = valued(self._space, Dim.STATE, *BEGINNINGS)
        if (set(mask), set(flags)) == (set(BARE_SYN.mask), set(BARE_SYN.flags)):
            return self._exactly(begins)
        if {"SYN", "FIN"} <= set(flags):
            return self._exactly(none_of_them)
        if {"SYN", "ACK"} <= set(flags):
            others = (*BEGINNINGS, CtState.ESTABLISHED, CtState.TRANSLATED, CtState.RELATED)
            return Choice(none_of_them, all_of_them - valued(self._space, Dim.STATE, *others))
        if set(mask) == {"FIN", "RST"}:
            unset = begins | valued(self._space, Dim.STATE, CtState.INVALID)
            found = Choice(unset, all_of_them - valued(self._space, Dim.STATE, CtState.INVALID_CLOSING))
            return found if not flags else found.negated_if(negated=True)
        return Choice(begins, all_of_them) if set(mask) & {"SYN"} == set(flags) else Choice(none_of_them, all_of_them - begins)

    def with_translated_destination(self) -> Choice:
        """Packets that NAT sends elsewhere than tracking saw them go: where they began to, or what a rule wrote into them before."""
        (address, seen), port = self._now.rewritten or (KEPT, KEPT), self._now.destination_port
        changed = self._same_destination(address).negated_if(negated=True)
        if isinstance(port, int):
            changed |= self._was(Dim.DESTINATION_PORT, seen, port).negated_if(negated=True)
        if self._now.state is not KEPT:
            return changed
        known = valued(self._space, Dim.STATE, *WITH_DNAT)
        return Choice(changed.certain | known, changed.possible | known)

    def _was(self, name: str, seen: object, value: int) -> Choice:
        """Packets whose address or port was this one when they were tracked; `seen`: what tracking saw."""
        if seen is KEPT:
            return self._exactly(within(self._space, name, [(value, value)]))
        return self._always(holds=seen == value) if isinstance(seen, int) else self.unknown()

    def _same_destination(self, seen: object) -> Choice:
        """Packets that still have the destination that tracking saw."""
        address = self._now.destination
        if address is None:
            return self.unknown()
        if address is KEPT and seen is KEPT:
            return self._always(holds=True)
        if isinstance(address, int):
            return self._was(Dim.DESTINATION, seen, address)
        found = self._always(holds=False)
        for name in self._space.dimension(Dim.INTERFACE).values:
            own = self._space.around.primary_address(name)
            same = self.unknown() if own is None else self._was(Dim.DESTINATION, seen, own)
            found |= same & self._named(Dim.INTERFACE, partial(eq, name))
        return found

    def in_reply_direction(self) -> Choice:
        """Uncertain for new connections before tracking."""
        answers = valued(self._space, Dim.STATE, *ANSWERS)
        untracked = within(self._space, Dim.STATE, [(0, 0)]) if not self._now.tracked else nothing(self._space)
        return Choice(answers, answers | untracked)

    def began_with(self, networks: tuple[Network, ...], ports: tuple[tuple[int, int], ...], *, source: bool) -> Choice:
        """Known of packets that begin their connection, or that go the way of its first, which nothing translated."""
        names, ranges = (self.PORTS, [*ports]) if ports else (self.ADDRESSES, intervals_of(networks))
        if self._now.rewritten or self._now.asked:
            return self.unknown()
        known, found = valued(self._space, Dim.STATE, CtState.NEW, CtState.ESTABLISHED), within(self._space, names[source], ranges)
        return Choice(known & found, found | everything(self._space) - known)

    def to_socket(self) -> Choice:
        return self._exactly(valued(self._space, Dim.SOCKET, "yes"))

    def local(self, *, source: bool) -> Choice:
        address = self._now.source if source else self._now.destination
        if address is KEPT:
            name, around = self.ADDRESSES[source], self._space.around
            return self._exactly(local(self._space, name) | within(self._space, name, intervals_of(around.local_networks)))
        return self._settled(address, lambda own: bool(self._space.around.is_of_type_local(own)))

    def unknown(self) -> Choice:
        return Choice(nothing(self._space), everything(self._space))

    def _settled(self, address: object, fits: Callable[[int], bool]) -> Choice:
        """Packets whose rewritten address fits: constant, unknown, one of the pod's, or the incoming interface's."""
        if isinstance(address, int):
            return self._always(holds=fits(address))
        if address is OWN:
            found = {fits(one) for one in self._space.around.own_sources}
            return self._always(holds=found.pop()) if len(found) == 1 else self.unknown()
        if address is None:
            return self.unknown()
        primary = self._space.around.primary_address
        unknown = self._named(Dim.INTERFACE, lambda name: primary(name) is None).certain
        fitting = self._named(Dim.INTERFACE, lambda name: fits(own) if (own := primary(name)) is not None else False).certain
        return Choice(fitting, fitting | unknown)

    def _named(self, name: str, fits: Callable[[str], bool]) -> Choice:
        values = self._space.dimension(name).values
        return self._exactly(within(self._space, name, [(at, at) for at, value in enumerate(values) if fits(value)]))

    def _exactly(self, region: Region) -> Choice:
        return Choice(region, region)

    def _always(self, *, holds: bool) -> Choice:
        return self._exactly(everything(self._space) if holds else nothing(self._space))


def local(space: Space, name: str) -> Region:
    """Packets whose address in one dimension belongs to this host."""
    own = [(address, address) for _, address in space.around.addresses]
    return within(space, name, [*intervals_of([space.family.loopback_network]), *own])


def martians(space: Space) -> Region:
    """Inbound packets with a loopback address, which the kernel drops on all interfaces but lo."""
    if space.direction != INBOUND:
        return nothing(space)
    addresses = intervals_of([space.family.loopback_network])
    return within(space, Dim.DESTINATION, addresses) | within(space, Dim.SOURCE, addresses)


def through_devices(space: Space, devices: frozenset[str]) -> Region:
    """Packets through one of these devices; all packets if there is none, or the space does not distinguish devices."""
    values = space.dimension(Dim.INTERFACE).values
    known = [name for name in values if name in devices]
    return valued(space, Dim.INTERFACE, *known) if known else everything(space)


def view(space: Space, condition: Condition) -> SymbolicPackets:
    """The packets of a space under a condition."""
    found = condition.asked.view(space, condition) if condition.asked else SymbolicPackets(space, condition)
    assert isinstance(found, SymbolicPackets)  # noqa: S101
    return found


def choose(space: Space, condition: Condition, rule: Rule) -> Choice:
    """Packets that all matches of a rule select."""
    packets = view(space, condition)
    found = Choice(everything(space), everything(space))
    for match in rule.matches:
        found &= match.choose(packets)
    return found


def split_by_rule(hit: RuleHit, condition: Condition, region: Region) -> Iterator[tuple[RuleHit, Region]]:
    """Yield the first rules of a hit that take packets of the region, each with its packets, and what is left with the others."""
    rules = hit.rules if len(hit.rules) > 1 else ()
    left, named = region, 0
    for at, loaded in enumerate(rules):
        if named == MAX_NAMED:
            rules = rules[at:]
            break
        if taken := left & choose(region.space, condition, loaded.rule).possible:
            yield replace(hit, rules=(loaded,)), taken
            left, named = left - taken, named + 1
    if left:
        yield replace(hit, rules=rules) if named else hit, left


def doubtful(space: Space, condition: Condition, rule: Rule, region: Region) -> list[Match]:
    """A rule's matches that are uncertain for some of the packets."""
    packets = view(space, condition)
    found = []
    for match in rule.matches:
        choice = match.choose(packets)
        assert isinstance(choice, Choice)  # noqa: S101
        if region & (choice.possible - choice.certain):
            found.append(match)
    return found


class _NameCollector(SymbolicPackets):
    """Records the protocols and interfaces that matches mention."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(make_space(OUTBOUND, around, set(), set(), free=False), Condition())
        self.protocols: set[str] = set()
        self.interfaces: set[str] = set()

    def in_networks(self, networks: tuple[Network, ...], *, source: bool) -> Choice:  # noqa: ARG002
        return self.unknown()

    def of_protocol(self, name: str) -> Choice:
        self.protocols.add(name)
        return super().of_protocol(name)

    def through_interfaces(self, names: tuple[str, ...], *, inbound: bool) -> Choice:
        self.interfaces.update(names)
        return super().through_interfaces(names, inbound=inbound)


def make_spaces(
    rulesets: Sequence[Mapping[Family, Ruleset]], surroundings: Mapping[Family, Surroundings], *, free: bool,
    interfaces: frozenset[str] = frozenset(),
) -> tuple[Space, ...]:  # fmt: skip
    """The spaces of each family and direction, fine enough to compare several sets of rules.

    `free`: routes are unknown, so packets may leave through any interface. `interfaces`: others to distinguish.
    """
    spaces = []
    for family, around in surroundings.items():
        found = _NameCollector(around)
        chains = [chain for one in rulesets if family in one for chain in one[family].list_chains()]
        for rule in {loaded.rule for chain in chains for loaded in chain.rules}:
            for match in rule.matches:
                match.choose(found)
        names = (found.protocols, found.interfaces | interfaces)
        spaces += [make_space(direction, around, *names, free=free) for direction in (OUTBOUND, INBOUND)]
    return tuple(spaces)
