"""The connections that the kernel remembers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from netinit.rules.matches.context import BARE_SYN
from netinit.rules.packet import Packet


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of a connection; None for an address or port that nobody can know."""

    protocol: str
    source: int | None
    source_port: int | None
    destination: int | None
    destination_port: int | None

    @property
    def reverse(self) -> Flow:
        """The other direction."""
        return Flow(self.protocol, self.destination, self.destination_port, self.source, self.source_port)


@dataclass(slots=True)
class Connection:
    """One connection: how its first packet was, where its destination went, and what NAT has decided already."""

    original: Flow
    zone: int
    to: Flow = field(init=False)  # the original direction after translation
    mark: int = 0
    answered: bool = False
    decided: set[str] = field(default_factory=set)  # destination, source
    redirected: bool = False  # to a port of this host, whether its address is known or not
    translated_before: bool | None = False  # its destination, where its beginning was not simulated; None: not known
    finished: set[bool] = field(default_factory=set)  # the directions that have sent a FIN; True is that of the answers
    closed: bool = False  # both have, and the last one was acknowledged (TIME_WAIT)
    reset: bool | None = None  # the direction that sent a RST

    def __post_init__(self) -> None:
        self.to = self.original

    def copy(self) -> Connection:
        """The same as it is now."""
        other = replace(self, decided=set(self.decided), finished=set(self.finished))
        other.to = self.to
        return other

    @property
    def translated(self) -> bool | None:
        """Whether NAT has replaced its destination (conntrack's status DNAT); None where that is not known.

        Translated into what it was already, it does not have the status (nf_nat_setup_info).
        """
        if self.to == self.original:
            return self.translated_before
        return None if self.to == replace(self.original, destination=None) else True

    def take(self, flags: tuple[str, ...] | None, *, is_answer: bool) -> str:
        """The state of one more packet; empty where it ends the connection and begins another (nf_conntrack_proto_tcp.c).

        A SYN replaces a connection that is over, if a FIN or a RST of the SYN's own direction ended it. On one that the
        other direction reset, or that is still open, a SYN is ESTABLISHED, or INVALID among the answers.
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

    def send_to(self, address: int | None, port: int | None) -> None:
        """Translates the destination."""
        self.to = replace(self.original, destination=address, destination_port=port)


class ConnectionTable:
    """All connections of a host, by zone and direction."""

    def __init__(self) -> None:
        self._directions: dict[tuple[int, Flow], tuple[Connection, bool]] = {}

    def copy(self) -> ConnectionTable:
        """The same as it is now."""
        copies = {id(one): one.copy() for one, _ in self._directions.values()}
        other = ConnectionTable()
        other._directions = {place: (copies[id(one)], answers) for place, (one, answers) in self._directions.items()}
        return other

    def find(self, zone: int, packet: Packet) -> tuple[Connection, bool] | None:
        """The connection that a packet belongs to, and whether it is an answer in it."""
        return self._directions.get((zone, flow_of(packet)))

    def forget(self, connection: Connection) -> None:
        """Removes a connection in both directions."""
        self._directions = {place: found for place, found in self._directions.items() if found[0] is not connection}

    def confirm(self, connection: Connection) -> None:
        """Remembers a connection, under what it was and under what its answers will be."""
        self._directions.setdefault((connection.zone, connection.original), (connection, False))
        self._directions.setdefault((connection.zone, connection.to.reverse), (connection, True))


def flow_of(packet: Packet) -> Flow:
    """The direction that a packet travels."""
    return Flow(packet.protocol, packet.source, packet.source_port, packet.destination, packet.destination_port)


def begins(flags: tuple[str, ...], *, picks_up: bool) -> bool:
    """Whether a TCP packet with these flags makes a connection known."""
    return flags == BARE_SYN.flags or (picks_up and flags == ("ACK",))
