"""The result: all packets of a space in parts, each with what becomes of it and the rules on its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netinit.base.net import Family, Network
from netinit.rules.packet import Packet, Surroundings
from netinit.simulate.cause import cause_of
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.symbolic.chosen import names_in
from netinit.simulate.symbolic.condition import Treatment
from netinit.simulate.symbolic.journey import travel
from netinit.simulate.symbolic.regions import Point, Region
from netinit.simulate.symbolic.space import (
    CONNECTION_MARK,
    DESTINATION,
    DESTINATION_PORT,
    GID,
    INBOUND,
    INTERFACE,
    MARK,
    NEW,
    OUTBOUND,
    PROTOCOL,
    SENDER,
    SOCKET,
    SOURCE,
    SOURCE_PORT,
    STATE,
    UID,
    Names,
    Space,
    make_space,
)
from netinit.simulate.symbolic.walk import Passage, Path
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED, REFUSED, UNKNOWN

WITH_PORTS = frozenset(("tcp", "udp", "udplite", "sctp", "dccp"))
DIRECTIONS = (OUTBOUND, INBOUND)
NO_NAMES = Names()


@dataclass(frozen=True, slots=True)
class Part:
    """Packets that are treated alike. `source` says whose rules these are: plan, or a place of live rules."""

    region: Region
    outcome: Treatment
    path: Path
    source: str = ""

    @property
    def verdict(self) -> str:
        """captured, direct, dropped or unknown, as a Trace says it."""
        if self.outcome.fate in (DROPPED, REFUSED):
            return DROPPED
        if self.outcome.fate == UNKNOWN:
            return UNKNOWN
        return CAPTURED if self.outcome.condition.redirect_port else DIRECT

    @property
    def cause(self) -> Passage | None:
        """The rule that decided, where one did."""
        if self.verdict in (DROPPED, UNKNOWN):
            return self.path[-1] if self.outcome.by_rule else None
        ended = self.outcome.condition
        return cause_of(
            self.path, captured=self.verdict == CAPTURED, transparent=ended.transparent, translated=ended.translated
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """All packets of a space, each in one of the parts."""

    space: Space
    parts: tuple[Part, ...]


def make_spaces(
    rulesets: Sequence[Mapping[Family, Ruleset]],
    surroundings: Mapping[Family, Surroundings],
    *,
    free: bool,
    names: Names = NO_NAMES,
) -> tuple[Space, ...]:
    """The packets of each family and direction, for one or more sets of rules that are to be compared.

    `free`: the routes are not known, so that packets may leave through any interface. `names` are those of a question.
    """
    spaces = []
    for family, around in surroundings.items():
        mentioned = names
        for one in rulesets:
            if family in one:
                mentioned |= names_in(one[family], around)
        spaces += [make_space(way, around, mentioned, free=free) for way in DIRECTIONS]
    return tuple(spaces)


def divide(space: Space, ruleset: Ruleset | None, source: str = "") -> Partition:
    """The parts under the rules of one place; no rules leave everything as it is. TooManyPartsError."""
    ended = travel(space, ruleset or Ruleset(space.family))
    return Partition(space, tuple(Part(one.region, one.outcome, one.path, source) for one in ended))


def divide_beside(space: Space, places: Mapping[str, Ruleset]) -> Partition:
    """The parts where several places hold rules, of which the kernel does not show the order.

    Packets that rules of one place act on are treated as these say; those that two act on are unknown.
    """
    merged: Partition | None = None
    for source, ruleset in places.items():
        one = divide(space, ruleset, source)
        merged = one if merged is None else Partition(space, tuple(_beside(merged, one)))
    return merged or divide(space, None)


def _beside(one: Partition, other: Partition) -> Iterator[Part]:
    for first in one.parts:
        for second in other.parts:
            region = first.region & second.region
            if not region:
                continue
            if first.path and second.path:
                reason = (
                    f"{first.source} and {second.source} both have rules for this connection,"
                    " and the kernel does not show which it runs first"
                )
                yield Part(region, Treatment(UNKNOWN, first.outcome.condition, reason), first.path + second.path, first.source)
            else:
                acting = first if first.path else second
                yield Part(region, acting.outcome, acting.path, acting.source)


def packet_of(space: Space, point: Point) -> tuple[Packet, Surroundings]:
    """The packet that a point is, for the engine, and surroundings in which it leaves through the interface it has there."""
    named = {name: space.dimension(name).values[point[name]] for name in (PROTOCOL, STATE, INTERFACE)}
    ports = named[PROTOCOL] in WITH_PORTS
    sender = space.direction == OUTBOUND and point[SENDER] == 1
    packet = Packet(
        family=space.family, protocol=named[PROTOCOL], source=point[SOURCE], destination=point[DESTINATION],
        source_port=point[SOURCE_PORT] if ports else None, destination_port=point[DESTINATION_PORT] if ports else None,
        in_interface=named[INTERFACE] if space.direction == INBOUND else "",
        has_socket=sender, uid=point[UID] if sender else None, gid=point[GID] if sender else None,
        mark=point[MARK], state="" if named[STATE] == NEW else named[STATE], connection_mark=point[CONNECTION_MARK],
        socket=point[SOCKET] == 1,
    )  # fmt: skip
    if space.direction == INBOUND or not space.free:
        return packet, space.around
    host = Network((space.family.version, point[DESTINATION], space.family.bits))
    return packet, space.around.replace(routes=((host, named[INTERFACE]),))
