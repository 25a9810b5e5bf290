"""Partitions all packets of a space into parts, with their treatment and the rules on their path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netinit.base.net import Family, Network
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.symbolic.hook_walk import simulate_all
from netinit.simulate.symbolic.match_sets import names_in
from netinit.simulate.symbolic.parts import Part
from netinit.simulate.symbolic.regions import Point, Region
from netinit.simulate.symbolic.space import (
    BEGINNINGS,
    INBOUND,
    OUTBOUND,
    CtState,
    Dim,
    Names,
    Space,
    conntrack_state,
    make_space,
)

WITH_PORTS = frozenset(("tcp", "udp", "udplite", "sctp", "dccp"))
DIRECTIONS = (OUTBOUND, INBOUND)
NO_NAMES = Names()


@dataclass(frozen=True, slots=True)
class Partition:
    """All packets of a space, each in exactly one part."""

    space: Space
    parts: tuple[Part, ...]


def make_spaces(
    rulesets: Sequence[Mapping[Family, Ruleset]],
    surroundings: Mapping[Family, Surroundings],
    *,
    free: bool,
    names: Names = NO_NAMES,
) -> tuple[Space, ...]:
    """The spaces of each family and direction, fine enough to compare several sets of rules.

    `free`: routes are unknown, so packets may leave through any interface. `names`: further names to distinguish.
    """
    spaces = []
    for family, around in surroundings.items():
        mentioned = names
        for one in rulesets:
            if family in one:
                mentioned |= names_in(one[family], around)
        spaces += [make_space(direction, around, mentioned, free=free) for direction in DIRECTIONS]
    return tuple(spaces)


def divide(space: Space, ruleset: Ruleset | None, among: Region | None = None) -> Partition:
    """Partition all packets, or those `among` them, by their treatment; no rules change nothing.

    Raises TooManyPartsError.
    """
    return Partition(space, tuple(simulate_all(space, ruleset or Ruleset(space.family), among)))


def _flags_of(protocol: str, state: str) -> tuple[str, ...] | None:
    """The TCP flags of a packet: a SYN where a connection begins, else an ACK or RST."""
    if protocol != "tcp":
        return None
    return ("SYN",) if state in BEGINNINGS else ("RST",) if state == CtState.INVALID_CLOSING else ("ACK",)


def packet_of(space: Space, point: Point) -> tuple[Packet, Surroundings]:
    """The packet for a point, and surroundings that give it the same outgoing interface in the engine."""
    protocol, state, interface = (space.dimension(name).values[point[name]] for name in (Dim.PROTOCOL, Dim.STATE, Dim.INTERFACE))
    ports = protocol in WITH_PORTS
    sender = space.direction == OUTBOUND and point[Dim.SENDER] == 1
    packet = Packet(
        family=space.family, protocol=protocol, source=point[Dim.SOURCE], destination=point[Dim.DESTINATION],
        source_port=point[Dim.SOURCE_PORT] if ports else None, destination_port=point[Dim.DESTINATION_PORT] if ports else None,
        in_interface=interface if space.direction == INBOUND else "",
        has_socket=sender, uid=point[Dim.UID] if sender else None, gid=point[Dim.GID] if sender else None,
        mark=point[Dim.MARK], connection_mark=point[Dim.CONNECTION_MARK], socket=point[Dim.SOCKET] == 1,
        state="" if state == CtState.NEW else conntrack_state(state), flags=_flags_of(protocol, state),
        destination_translated=None if state == CtState.ANSWER else state == CtState.TRANSLATED, is_answer=state == CtState.ANSWER,
    )  # fmt: skip
    if space.direction == INBOUND or not space.free:
        return packet, space.around
    host = Network((space.family.version, point[Dim.DESTINATION], space.family.bits))
    return packet, space.around.replace(routes=((host, interface),))
