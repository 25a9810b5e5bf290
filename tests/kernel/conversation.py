"""A whole connection: its first packet, the answer, and what follows, as the rules let them through."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hosts import Host
from netinit.rules.packet_inputs import Packet
from netinit.simulate.trace import DELIVERED, FORWARDED, REFUSED, SENT, UNKNOWN, Trace

ANSWERED, TIMEOUT, REFUSED_BY_PORT = "answered", "timeout", "refused"
_IPV6 = 6


@dataclass(frozen=True, slots=True)
class Listener:
    """A server's open port: on all addresses of this host, or outside on one of the `others`."""

    server: str
    protocol: str
    port: int
    uid: int = 0
    gid: int = 0
    transparent: bool = False


@dataclass(frozen=True, slots=True)
class Players:
    """Who listens: inside this host, and outside on the addresses `others`."""

    inside: tuple[Listener, ...]
    outside: tuple[Listener, ...]
    others: frozenset[int]

    def find(self, listeners: tuple[Listener, ...], protocol: str, port: int | None) -> Listener | None:
        """The listener of a port, if there is one."""
        return next((one for one in listeners if (one.protocol, one.port) == (protocol, port)), None)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a connection comes to: answered by `server`, refused, timeout, or unknown; and every packet's trace.

    `late` are packets that the kernel may still send for both ends once their sockets are closed.
    """

    outcome: str
    traces: tuple[Trace, ...]
    server: Listener | None = None
    late: tuple[Trace, ...] = ()

    @property
    def first(self) -> Trace:
        """The way of the first packet, which decides."""
        return self.traces[0]

    @property
    def hits(self) -> Counter[tuple[str, str, int]]:
        """How often each rule, as (table, chain, number), counts a packet of this conversation."""
        return _count(self.traces)

    @property
    def late_hits(self) -> Counter[tuple[str, str, int]]:
        """The same for packets that may come late, or not at all."""
        return _count(self.late)


def _count(traces: tuple[Trace, ...]) -> Counter[tuple[str, str, int]]:
    return Counter((step.table, step.chain, step.rule.number) for trace in traces for step in trace.hits if step.rule)


def converse(host: Host, packet: Packet, players: Players) -> Conversation:
    """The connection that begins with `packet`; the host remembers it."""
    first = host.process(packet.replace(flags=("SYN",)) if packet.protocol == "tcp" else packet)
    if first.fate == UNKNOWN:
        return Conversation(UNKNOWN, (first,))
    if first.fate == REFUSED:
        return Conversation(REFUSED_BY_PORT, (first,))
    if first.fate not in (DELIVERED, SENT, FORWARDED):
        return Conversation(TIMEOUT, (first,))
    inside = first.fate == DELIVERED
    if not inside and first.last.destination not in players.others:
        return Conversation(TIMEOUT, (first,))
    port = first.redirect_port if first.transparent else first.last.destination_port
    server = players.find(players.inside if inside else players.outside, packet.protocol, port)
    if first.transparent and (server is None or not server.transparent):
        return Conversation(TIMEOUT, (first,))  # TPROXY drops what it finds no transparent socket for
    answer = host.process(_answer(first, server))
    traces = [first, answer]
    if answer.fate == UNKNOWN:
        return Conversation(UNKNOWN, tuple(traces))
    # An answer that TPROXY takes goes to a listener, which asked nothing.
    came_back = answer.fate == _way_back(first) and _mirrors(answer.last, packet) and not answer.transparent
    if server is None:
        return Conversation(REFUSED_BY_PORT if came_back else TIMEOUT, tuple(traces))
    if packet.protocol == "tcp" and came_back:
        # Rules before NAT ask for a socket with the addresses that the packet has there; NAT has moved the real one. What
        # the pod sends to itself was moved on its way out already.
        moved = bool(packet.in_interface) and (first.last.destination, first.last.destination_port) != (packet.destination, packet.destination_port)
        more = (
            packet.replace(flags=("ACK",), socket=inside and not moved),
            _answer(first, server).replace(flags=("ACK",)),
        )
        traces += [host.process(one) for one in more]
        if moved and traces[2].transparent:
            # TPROXY finds no connection under these addresses and hands the packet to the listener, which resets it.
            return Conversation(REFUSED_BY_PORT, tuple(traces), server)
        late = tuple(host.process(one.replace(has_socket=False, uid=None, gid=None)) for one in more)
        return Conversation(ANSWERED, tuple(traces), server, late)
    return Conversation(ANSWERED if came_back else TIMEOUT, tuple(traces), server)


def _answer(first: Trace, server: Listener | None) -> Packet:
    """What the other end sends back: data, or the kernel's refusal where nobody listens."""
    came = first.last
    packet = Packet(
        family=came.family, protocol=came.protocol,
        source=came.destination, source_port=came.destination_port,
        destination=came.source, destination_port=came.source_port,
        flags=None if came.protocol != "tcp" else ("SYN", "ACK") if server else ("RST", "ACK"),
    )  # fmt: skip
    if first.fate == DELIVERED:
        packet = packet.replace(
            has_socket=server is not None, uid=server.uid if server else None, gid=server.gid if server else None
        )
    else:
        # An answer from outside has the addresses that NAT gave the question until it is nearly there (LOCAL_IN), so no
        # socket is found for it before; on lo it comes in with its own again.
        asked = (first.first.destination, first.first.destination_port)
        moved = (came.destination, came.destination_port) != asked
        packet = packet.replace(in_interface=came.out_interface, socket=first.fate == SENT and not moved)
    if server is None and packet.protocol == "udp":
        control = "ipv6-icmp" if packet.family.version == _IPV6 else "icmp"
        state = "INVALID" if came.state in ("INVALID", "UNTRACKED") else "RELATED"
        packet = packet.replace(protocol=control, state=state, source_port=None, destination_port=None, flags=None)
    # On lo the first end's socket is found when the answer comes in again.
    return packet.replace(socket=True) if first.fate == DELIVERED and not first.first.in_interface else packet


def _way_back(first: Trace) -> str:
    """Where an answer must end to reach whom the connection came from."""
    if first.fate == DELIVERED and first.first.in_interface:
        return SENT
    return FORWARDED if first.fate == FORWARDED else DELIVERED


def _mirrors(answer: Packet, question: Packet) -> bool:
    """Whether an answer has the addresses that the one who asked expects; an ICMP error carries them inside."""
    if answer.protocol != question.protocol:
        return True
    return (answer.source, answer.source_port, answer.destination, answer.destination_port) == (
        question.destination, question.destination_port, question.source, question.source_port,
    )  # fmt: skip
