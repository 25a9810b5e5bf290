"""A host whose connection tracking remembers connections from packet to packet, as the kernel's does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from netinit.rules.matches.context import BARE_SYN
from netinit.rules.model import INPUT
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.condition import Condition, MarkBits
from netinit.simulate.engine import PacketPath, follow
from netinit.simulate.hooks import POSTROUTING, TRANSLATES_DESTINATION
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.trace import Trace

CONFIRMS = frozenset((INPUT, POSTROUTING))  # entries are confirmed at the end of these hooks


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of a connection; unknown addresses and ports are None."""

    protocol: str
    source: int | None
    source_port: int | None
    destination: int | None
    destination_port: int | None

    @property
    def reverse(self) -> Flow:
        """The opposite direction."""
        return Flow(self.protocol, self.destination, self.destination_port, self.source, self.source_port)


@dataclass(slots=True)
class Connection:
    """A conntrack entry: its original direction, what NAT made of it, and what was sent."""

    original: Flow
    to: Flow  # the original direction after translation
    ended: Condition  # the state of its last packet
    translated: bool | None  # conntrack status DNAT
    answered: bool = False
    finished: set[bool] = field(default_factory=set)  # directions that have sent a FIN; True is the reply direction
    closed: bool = False  # both have, and the last FIN was acknowledged (TIME_WAIT)
    reset: bool | None = None  # direction that sent a RST

    def take(self, flags: tuple[str, ...] | None, *, is_answer: bool) -> str:
        """Process one more packet: its conntrack state, or "" if it replaces this entry.

        A SYN replaces a closed entry if its direction sent the FIN or RST. On an entry that is open, or that
        the other direction reset, it is ESTABLISHED, or INVALID in the reply direction
        (nf_conntrack_proto_tcp.c).
        """
        if flags == BARE_SYN.flags and (self.answered or self.reset is not None):
            if self.closed or (not is_answer and self.reset is not None and (self.finished or self.reset is False)):
                return ""
            if is_answer:
                return "INVALID"
        self.answered |= is_answer
        for flag in flags or ():
            if flag == "FIN":
                self.finished.add(is_answer)
            elif flag == "RST":
                self.reset = is_answer
            elif flag == "ACK" and "FIN" not in (flags or ()):
                self.closed |= len(self.finished) == len((True, False))
        return "ESTABLISHED" if self.answered else "NEW"


class ConnectionTable:
    """The conntrack table of a host, by zone and direction."""

    def __init__(self) -> None:
        self._directions: dict[tuple[int, Flow, bool], tuple[Connection, bool]] = {}

    def copy(self) -> ConnectionTable:
        """An independent copy."""
        copies = {id(one): replace(one, finished=set(one.finished)) for one, _ in self._directions.values()}
        other = ConnectionTable()
        other._directions = {place: (copies[id(one)], answers) for place, (one, answers) in self._directions.items()}
        return other

    def find(self, zone: int, reply_zone: int, flow: Flow) -> tuple[Connection, bool] | None:
        """The entry of a packet, and whether the packet is a reply. Each direction is looked up in its own zone."""
        return self._directions.get((zone, flow, False)) or self._directions.get((reply_zone, flow, True))

    def forget(self, connection: Connection) -> None:
        """Delete an entry in both directions."""
        self._directions = {place: found for place, found in self._directions.items() if found[0] is not connection}

    def confirm(self, connection: Connection) -> None:
        """Insert an entry under its original and its reply direction."""
        ended = connection.ended
        original, reply = (ended.zone, connection.original), (ended.reply_zone, connection.to.reverse)
        if (*original, True) not in self._directions or ended.zone != ended.reply_zone:
            self._directions.setdefault((*original, False), (connection, False))
        if (*reply, False) not in self._directions or ended.zone != ended.reply_zone:
            self._directions.setdefault((*reply, True), (connection, True))


class Host:
    """A host with rules, and a conntrack table that lasts from packet to packet."""

    def __init__(self, ruleset: Ruleset, surroundings: Surroundings) -> None:
        self.ruleset = ruleset
        self.surroundings = ruleset.place_on(surroundings)
        self.connections = ConnectionTable()

    def process(self, packet: Packet) -> Trace:
        """Simulate one packet, and remember its connection as the first of its possible ways leaves it."""
        ways: list[ConnectionTable] = []

        def begin(assumed: tuple[bool, ...]) -> KnownPath:
            ways.append(self.connections.copy())
            return KnownPath(self, ways[-1], packet, assumed)

        trace = follow(begin)
        self.connections = ways[0]
        return trace


class KnownPath(PacketPath):
    """The path of a packet that may belong to a connection of its host."""

    def __init__(self, host: Host, connections: ConnectionTable, packet: Packet, assumed: tuple[bool, ...]) -> None:
        super().__init__(host.ruleset, host.surroundings, packet, assumed)
        self._connections = connections
        self._connection: Connection | None = None  # it belongs to, if an earlier packet began it
        self._original = flow_of(packet)

    def _track(self) -> None:
        now = self._now
        if now.connection or now.state in ("INVALID", "UNTRACKED") or not self._ruleset.tracks:
            return
        self._original = flow_of(self._packet)
        found = self._connections.find(now.zone, now.reply_zone, self._original)
        state = found[0].take(self._packet.flags, is_answer=found[1]) if found else ""
        if not found or not state:
            if found:
                self._connections.forget(found[0])
            super()._track()
        elif state == "INVALID":
            self._become(now.replace(state=state))
        else:
            self._connection, self._is_answer = found
            self._was_translated = self._connection.translated
            self._tracked = (now.destination, now.destination_port)
            ended = self._connection.ended
            mark = MarkBits(flip=ended.connection_mark.flip)
            self._join(
                replace(
                    now, state=state, connection_mark=mark, decided=ended.decided, source_decided=ended.source_decided, redirected=ended.redirected
                )
            )

    def _translate(self, stage, hook) -> None:
        super()._translate(stage, hook)
        if self._connection is None or self._connection.to == self._connection.original:
            return
        if hook in TRANSLATES_DESTINATION:
            to, self._was_translated = self._connection.to, self._connection.translated
            if not self._is_answer:
                self._tracked = (to.destination, to.destination_port)
                self._become(self._now.replace(destination=to.destination, destination_port=to.destination_port))
        elif self._is_answer:
            back = self._connection.original
            self._become(self._now.replace(source=back.destination))
            self._packet = self._packet.replace(source_port=back.destination_port)

    def _pass(self, hook: str) -> bool:
        if not super()._pass(hook):
            return False
        if hook in CONFIRMS and self._now.connection:
            if self._connection is None:
                to = flow_of(self._packet)
                to = replace(self._original, destination=to.destination, destination_port=to.destination_port)
                self._connection = Connection(self._original, to, self._now, self._packet.destination_translated)
                self._connections.confirm(self._connection)
            self._connection.ended = self._now
        return True


def flow_of(packet: Packet) -> Flow:
    """The direction in which a packet travels."""
    return Flow(packet.protocol, packet.source, packet.source_port, packet.destination, packet.destination_port)
