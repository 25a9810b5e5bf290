"""The connections that the kernel remembers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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

    def __post_init__(self) -> None:
        self.to = self.original

    def copy(self) -> Connection:
        """The same as it is now."""
        other = replace(self, decided=set(self.decided))
        other.to = self.to
        return other

    def send_to(self, address: int | None, port: int | None) -> None:
        """Translates the destination."""
        self.to = replace(self.original, destination=address, destination_port=port)


class ConnectionTable:
    """All connections of a host, by zone and direction."""

    def __init__(self) -> None:
        self._directions: dict[tuple[int, Flow], tuple[Connection, bool]] = {}

    def find(self, zone: int, packet: Packet) -> tuple[Connection, bool] | None:
        """The connection that a packet belongs to, and whether it is an answer in it."""
        return self._directions.get((zone, flow_of(packet)))

    def confirm(self, connection: Connection) -> None:
        """Remembers a connection, under what it was and under what its answers will be."""
        self._directions.setdefault((connection.zone, connection.original), (connection, False))
        self._directions.setdefault((connection.zone, connection.to.reverse), (connection, True))


def flow_of(packet: Packet) -> Flow:
    """The direction that a packet travels."""
    return Flow(packet.protocol, packet.source, packet.source_port, packet.destination, packet.destination_port)


def begins(flags: tuple[str, ...], *, picks_up: bool) -> bool:
    """Whether a TCP packet with these flags makes a connection known."""
    return flags == ("SYN",) or (picks_up and flags == ("ACK",))
