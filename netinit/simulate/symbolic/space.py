"""The space of all packets of one family and direction: incoming, or sent by this host.

A coordinate is an address, port, user, or index of a value. Names (protocols, interfaces) have a value for each that
rules mention, and one for all others. A mark has a level per bit. What the kernel computes is no dimension: the
outgoing interface follows from the destination, unless routes are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from netinit.base.net import FULL_MASK, MAX_PORT, Family, Interval, Network, is_named
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.simulate.condition import CONNECTION_MARK, MARK, UNTRACKED
from netinit.simulate.symbolic.diagram import Diagram

OUTBOUND, INBOUND = "outbound", "inbound"

class Dim:
    """Names of the dimensions."""

    PROTOCOL, STATE, INTERFACE = "protocol", "state", "interface"
    DESTINATION, DESTINATION_PORT, SOURCE, SOURCE_PORT = "destination", "destination port", "source", "source port"
    SENDER, UID, GID = "sent by a socket", "uid", "gid"
    SOCKET, MARK, CONNECTION_MARK = "socket open", MARK, CONNECTION_MARK


class CtState:
    """Values of the dimension STATE: conntrack states, some of them split further."""

    NEW, ESTABLISHED, RELATED, INVALID, UNTRACKED = "NEW", "ESTABLISHED", "RELATED", "INVALID", UNTRACKED
    # ESTABLISHED alone means the original direction, with an untranslated destination.
    ANSWER, TRANSLATED = "ESTABLISHED, an answer", "ESTABLISHED, translated"
    TRANSLATED_ANSWER = "ESTABLISHED, an answer of a translated connection"
    # A new connection's SYN on an untranslated conntrack entry of another connection; nat is skipped for it.
    REUSED_NEW, REUSED, REUSED_INVALID = "NEW, on an old entry", "ESTABLISHED, by a SYN", "INVALID, by a SYN"
    INVALID_CLOSING = "INVALID, FIN or RST"  # INVALID alone means packets without these flags


STATES = (CtState.NEW, CtState.ESTABLISHED, CtState.RELATED, CtState.INVALID, CtState.UNTRACKED)
REUSES = (CtState.REUSED_NEW, CtState.REUSED, CtState.REUSED_INVALID)
ANSWERS = (CtState.ANSWER, CtState.TRANSLATED_ANSWER)
WITH_DNAT = (CtState.TRANSLATED, CtState.TRANSLATED_ANSWER)
KNOWN = (CtState.ESTABLISHED, *ANSWERS, CtState.TRANSLATED, CtState.RELATED)  # of a connection that began before
BEGINNINGS = (CtState.NEW, *REUSES)  # states of a bare SYN, for TCP
ALL_STATES = (
    CtState.NEW, CtState.ESTABLISHED, CtState.ANSWER, CtState.TRANSLATED, CtState.RELATED, CtState.REUSED_NEW, CtState.REUSED,
    CtState.INVALID, CtState.INVALID_CLOSING, CtState.UNTRACKED, CtState.REUSED_INVALID, CtState.TRANSLATED_ANSWER,
)  # fmt: skip
BITS = 32  # in a mark
ANY_OTHER = "any other"
_PROTOCOLS = ("tcp", "udp")
_OTHERS = ("sctp", "gre", "esp", "ah", "ospf", "vrrp", "l2tp")  # represent protocols that no rule names
_NO_YES = [("no", "no"), ("yes", "yes")]
Labelled = list[tuple[str, str]]  # values with their labels
Point = dict[str, int]  # coordinate per dimension
WITH_PORTS = frozenset(("tcp", "udp", "udplite", "sctp", "dccp"))


@dataclass(frozen=True, slots=True)
class Dimension:
    """A property in which packets differ, on `levels` levels of the diagram from `level` on.

    `values` and `labels` are what coordinates mean, in packets and in texts, unless they are plain numbers.
    """

    name: str
    level: int
    last: int  # the largest coordinate
    values: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    levels: int = 1

    @property
    def everything(self) -> tuple[Interval, ...]:
        """All coordinates: one interval, or for a mark any value under mask 0."""
        return ((0, self.last if self.levels == 1 else 0),)


@dataclass(frozen=True)
class Space:
    """All packets of one family and direction. `free`: routes are unknown, so any interface may be outgoing."""

    direction: str
    around: Surroundings
    dimensions: tuple[Dimension, ...]
    free: bool
    diagram: Diagram = field(compare=False, repr=False)

    @property
    def family(self) -> Family:
        """The family of its addresses."""
        return self.around.family

    def dimension(self, name: str) -> Dimension:
        """The dimension of this name. Raises KeyError if the direction does not have it."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Dimension]:
        return {one.name: one for one in self.dimensions}


def make_space(direction: str, around: Surroundings, protocols: set[str], interfaces: set[str], *, free: bool) -> Space:
    """Build the space that distinguishes these protocols and interfaces; an interface ending in `+` is a prefix."""
    last = (1 << around.family.bits) - 1
    known = sorted(protocols | {*_PROTOCOLS})
    other = next(name for name in _OTHERS if name not in known)
    senders: dict[str, Labelled | int] = {Dim.SENDER: _NO_YES, Dim.UID: FULL_MASK, Dim.GID: FULL_MASK}
    found: dict[str, Labelled | int] = {  # values, or the largest number; in the order of levels
        Dim.PROTOCOL: [*[(name, name) for name in known], (other, ANY_OTHER)],
        Dim.STATE: [(state, state) for state in ALL_STATES],
        Dim.INTERFACE: _name_interfaces(direction, around, interfaces, free=free),
        Dim.DESTINATION: last, Dim.DESTINATION_PORT: MAX_PORT,
        **(senders if direction == OUTBOUND else {}),
        Dim.SOURCE: last, Dim.SOURCE_PORT: MAX_PORT, Dim.SOCKET: _NO_YES,
    }  # fmt: skip
    made = []
    for level, (name, some) in enumerate(found.items()):
        values, labels = ((), ()) if isinstance(some, int) else zip(*some, strict=True)
        made.append(Dimension(name, level, some if isinstance(some, int) else len(values) - 1, values, labels))
    lasts = tuple(one.last for one in made) + (1,) * (2 * BITS)
    made += [Dimension(name, len(made) + BITS * at, FULL_MASK, levels=BITS) for at, name in enumerate((Dim.MARK, Dim.CONNECTION_MARK))]
    return Space(direction, around, tuple(made), free, Diagram(lasts))


def _name_interfaces(direction: str, around: Surroundings, mentioned: set[str], *, free: bool) -> Labelled:
    """An interface per name, per prefix without a name, and one for all others; never lo.

    Packets on lo are outbound, and come in later on their path.
    """
    if direction == OUTBOUND and not free:
        return [("", ANY_OTHER)]
    patterns = {name for name in mentioned if name.endswith("+")}
    known = {name for name, _ in around.addresses} | {around.default_interface} | (mentioned - patterns)
    exact = sorted(known - {LOOPBACK_DEVICE, ""})
    found = [(name, name) for name in exact]
    for pattern in [*sorted(patterns), ""]:
        fitting = {one for one in patterns if is_named(pattern, (one,))} if pattern else set()
        for ending in product("zyxwvqjk", "0123456789"):  # improbable names with this prefix
            name = pattern.removesuffix("+") + "".join(ending)
            if name not in exact and {one for one in patterns if is_named(name, (one,))} == fitting:
                found.append((name, f"any other {pattern}" if pattern else ANY_OTHER))
                break
    return found


def conntrack_state(value: str) -> str:
    """The conntrack state that rules see, for a value of Dim.STATE."""
    return value.partition(",")[0]


def intervals_of(networks: Iterable[Network]) -> list[Interval]:
    """The first and last address of each network."""
    return [(network.first, network.last) for network in networks]


def packet_of(space: Space, point: Point) -> tuple[Packet, Surroundings]:
    """The packet for a point, and surroundings that give it the same outgoing interface in the engine."""
    protocol, state, interface = (space.dimension(name).values[point[name]] for name in (Dim.PROTOCOL, Dim.STATE, Dim.INTERFACE))
    ports = protocol in WITH_PORTS
    sender = space.direction == OUTBOUND and point[Dim.SENDER] == 1
    flag = "SYN" if state in BEGINNINGS else "RST" if state == CtState.INVALID_CLOSING else "ACK"
    packet = Packet(
        family=space.family, protocol=protocol, source=point[Dim.SOURCE], destination=point[Dim.DESTINATION],
        source_port=point[Dim.SOURCE_PORT] if ports else None, destination_port=point[Dim.DESTINATION_PORT] if ports else None,
        in_interface=interface if space.direction == INBOUND else "",
        has_socket=sender, uid=point[Dim.UID] if sender else None, gid=point[Dim.GID] if sender else None,
        mark=point[Dim.MARK], connection_mark=point[Dim.CONNECTION_MARK], socket=point[Dim.SOCKET] == 1,
        state="" if state == CtState.NEW else conntrack_state(state), flags=(flag,) if protocol == "tcp" else None,
        destination_translated=state in WITH_DNAT, is_answer=state in ANSWERS,
    )  # fmt: skip
    if space.direction == INBOUND or not space.free:
        return packet, space.around
    host = Network((space.family.version, point[Dim.DESTINATION], space.family.bits))
    return packet, space.around.replace(routes=((host, interface),))
