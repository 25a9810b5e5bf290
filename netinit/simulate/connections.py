"""A model of connection tracking: entries, states and NAT mappings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from netinit.rules.matches.context import BARE_SYN
from netinit.rules.packet_inputs import Packet


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
    """A conntrack entry: original direction, translation, and the NAT decisions made."""

    original: Flow
    zone: int
    to: Flow = field(init=False)  # the original direction after translation
    mark: int = 0
    answered: bool = False
    decided: set[str] = field(default_factory=set)  # "destination", "source"
    redirected: bool = False  # to a port of this host, even if the address is unknown
    translated_before: bool | None = False  # destination NAT of a connection that began before the simulation; None: unknown
    finished: set[bool] = field(default_factory=set)  # directions that have sent a FIN; True is the reply direction
    closed: bool = False  # both have, and the last FIN was acknowledged (TIME_WAIT)
    reset: bool | None = None  # direction that sent a RST

    def __post_init__(self) -> None:
        self.to = self.original

    def copy(self) -> Connection:
        """An independent copy."""
        other = replace(self, decided=set(self.decided), finished=set(self.finished))
        other.to = self.to
        return other

    @property
    def translated(self) -> bool | None:
        """Whether NAT replaced the destination (IPS_DST_NAT); None if unknown.

        Translation to itself does not set the status (nf_nat_setup_info).
        """
        if self.to == self.original:
            return self.translated_before
        return None if self.to == replace(self.original, destination=None) else True

    def take(self, flags: tuple[str, ...] | None, *, is_answer: bool) -> str:
        """Process one more packet: return its conntrack state, or "" if it replaces this entry.

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

    def send_to(self, address: int | None, port: int | None) -> None:
        """Translate the destination."""
        self.to = replace(self.original, destination=address, destination_port=port)


class ConnectionTable:
    """The conntrack table of a host, by zone and direction."""

    def __init__(self) -> None:
        self._directions: dict[tuple[int, Flow], tuple[Connection, bool]] = {}

    def copy(self) -> ConnectionTable:
        """An independent copy."""
        copies = {id(one): one.copy() for one, _ in self._directions.values()}
        other = ConnectionTable()
        other._directions = {place: (copies[id(one)], answers) for place, (one, answers) in self._directions.items()}
        return other

    def find(self, zone: int, packet: Packet) -> tuple[Connection, bool] | None:
        """The entry of a packet, and whether the packet is a reply."""
        return self._directions.get((zone, flow_of(packet)))

    def forget(self, connection: Connection) -> None:
        """Delete an entry in both directions."""
        self._directions = {place: found for place, found in self._directions.items() if found[0] is not connection}

    def confirm(self, connection: Connection) -> None:
        """Insert an entry under its original and its reply direction."""
        self._directions.setdefault((connection.zone, connection.original), (connection, False))
        self._directions.setdefault((connection.zone, connection.to.reverse), (connection, True))


def flow_of(packet: Packet) -> Flow:
    """The direction in which a packet travels."""
    return Flow(packet.protocol, packet.source, packet.source_port, packet.destination, packet.destination_port)


def begins(flags: tuple[str, ...], *, picks_up: bool) -> bool:
    """Whether a TCP packet with these flags creates a conntrack entry."""
    return flags == BARE_SYN.flags or (picks_up and flags == ("ACK",))
