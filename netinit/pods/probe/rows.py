"""Send the probes, read their paths from connection tracking, and compare them with the simulator.

Each is the first packet of a connection, as a chosen user, and needs no answer. It is sent through a raw socket, which the owner
match, connection tracking and NAT treat like any. TCP: a SYN; the kernel resets an answer, so no program notices. UDP: an empty
datagram with a wrong checksum, which the kernel looks at only when it delivers it, to nobody: a program's answer might come
after the entry is deleted, and make another.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass

from netinit.backends.machine import HERE
from netinit.base.errors import BackendUnavailableError, NamespaceError, NetinitError
from netinit.base.net import IPV4, IPV6, Family, join_host
from netinit.kernel import detect, read_text
from netinit.kernel.capabilities import NUMBERS, advise
from netinit.kernel.conntrack import Event, Watch, delete_entry, list_entries
from netinit.kernel.netlink import NETLINK_NETFILTER, Netlink
from netinit.kernel.sockets import creating_as
from netinit.options import OFF, REJECT, TPROXY, Options, SettledOptions
from netinit.pods.host import read_surroundings
from netinit.pods.live import settle_beside
from netinit.pods.probe.matrix import INBOUND, Ask, plan_inbound, plan_outbound
from netinit.pods.probe.neighbour import OuterEnds, Way, checksum
from netinit.pods.probe.peer import Peer, can_make_peers, listening_ports, open_transparent
from netinit.rules.layouts import plan as plan_for
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Surroundings
from netinit.simulate.endpoints import format_endpoint, make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import Ruleset, load_plan
from netinit.simulate.stand_ins import make_inbound
from netinit.simulate.trace import CAPTURED, DELIVERED, DIRECT, DROPPED, UNKNOWN, Trace

# Seconds after which a packet counts as dropped, and seconds without an event after every probe has one. Unexpected results
# are probed again with the slower values, because a busy machine may be late.
QUICK, SLOW = (0.4, 0.05), (0.6, 0.2)
_AT_ONCE = 0.001  # seconds that what is there already takes
_MAX_LATE = 2000  # events read after that time, of those that came while others had the processor: a probe has some 6
SYN = 0x02
HOPS = 1  # packets that leave the pod stop at the first router
CHECKSUM_OFFSET = 16
_EPHEMERAL = 32768, 60999
IPV6_CHECKSUM = 7  # linux/in6.h
EVENTS = "/proc/sys/net/netfilter/nf_conntrack_events"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A probe's planned and observed outcome, and whether they agree.

    `right`: None if it could not be sent or its outcome is unknown; `observed` says why.
    """

    ask: Ask
    expected: str
    observed: str
    right: bool | None
    because: str = ""  # the purpose of the rule that decides


@dataclass(frozen=True, slots=True)
class Probes:
    """The results in order, and what was left out and why."""

    rows: tuple[ProbeResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[ProbeResult, ...]:
        """The rows that differ from the plan."""
        return tuple(row for row in self.rows if row.right is False)


def probe(options: Options) -> Probes:
    """Probe the namespace that the options name (default: this process's); leave it unchanged.

    Raises BackendUnavailableError if a privilege is missing; LockedError while rules are being programmed.
    """
    notes: list[str] = []
    keep = (detect.CAP_SETGID, detect.CAP_SETUID, detect.CAP_SYS_ADMIN)  # to be users of the pod, and a peer
    outer = OuterEnds()

    def act(resolved: Options, warning: str) -> Probes:
        return _probe_here(resolved, warning, outer)

    try:
        report = HERE.inside(options, act, joins=True, keep=keep, locks=notes.append, hold=outer.open)
    finally:
        outer.close()
    return Probes(report.rows, (*notes, *report.notes))


def _probe_here(options: Options, warning: str, outer: OuterEnds) -> Probes:
    _check_privileges()
    _, settled = settle_beside(options)
    ipv6 = settled.ipv6
    families = [IPV4] if ipv6 in (OFF, REJECT) else [IPV4, IPV6]
    notes = [*([warning] if warning else []), *settled.warnings]
    if ipv6 == REJECT:
        notes.append("nothing was probed over IPv6, which is refused: connection tracking, which shows probes, may be off there")
    if settled.istio_exact:
        notes.append("new connections were probed: those that begin on an old conntrack entry may pass the proxy (--istio-exact)")
    rows: list[ProbeResult] = []
    with ExitStack() as stack:
        if settled.inbound_mode == TPROXY:
            port = settled.outbound_port if settled.traits.has_one_port else settled.inbound_port
            for family in families:
                stack.enter_context(open_transparent(family, port))
        rows += _probe_outbound(settled, families)
        obstacle = can_make_peers()
        if obstacle:
            notes.append(f"nothing was probed from outside: {obstacle}")
        else:
            rows += _probe_inbound(settled, families, notes)
        for family in families:
            rows += _probe_from_neighbour(settled, family, outer, notes)
    return Probes(tuple(rows), tuple(notes))


def _check_privileges() -> None:
    missing = [name for name, number in NUMBERS.items() if not detect.has_capability(number)]
    if missing:
        raise BackendUnavailableError(f"probing needs {' and '.join(missing)}: {advise(*missing, reading=True)}")
    if read_text(EVENTS).strip() == "0":
        raise BackendUnavailableError(
            "probing reads connection tracking's events, which are off: set net.netfilter.nf_conntrack_events=1"
        )


def _probe_outbound(options: SettledOptions, families: Sequence[Family]) -> list[ProbeResult]:
    rows: list[ProbeResult] = []
    for family in families:
        around = read_surroundings(family)
        own = next((address for name, address in around.addresses if name != LOOPBACK_DEVICE), None)
        asks = [*plan_outbound(options, family, format_endpoint(family, own, None) if own is not None else "")]
        rows += _run(asks, options, around, None)
    return rows


def _probe_inbound(options: SettledOptions, families: Sequence[Family], notes: list[str]) -> list[ProbeResult]:
    rows: list[ProbeResult] = []
    try:
        with Peer(families) as peer:
            for family in families:
                asks = plan_inbound(options, family, peer.here[family], listening_ports(family), Peer.NAME)
                rows += _run(asks, options, read_surroundings(family), peer)
    except (NetinitError, OSError) as error:
        notes.append(f"nothing was probed from outside: {error}")
    return rows


def _probe_from_neighbour(options: SettledOptions, family: Family, outer: OuterEnds, notes: list[str]) -> list[ProbeResult]:
    around = read_surroundings(family)
    device = around.default_interface
    own = around.primary_address(device)
    if own is None:
        return []
    asks = plan_inbound(options, family, format_endpoint(family, own, None), listening_ports(family), device)
    try:
        way = outer.find_way(around) if asks else None
    except OSError as error:
        notes.append(f"{family.name}: nothing was sent through {device}: {error.strerror}")
        return []
    if asks and way is None:
        notes.append(
            f"{family.name}: nothing was sent through {device}, as a neighbour does: its other end is not in this namespace;"
            " run netinit on the node, with --pid or --netns"
        )
    return _run(asks, options, around, way) if way else []


def _run(asks: Sequence[Ask], options: SettledOptions, around: Surroundings, outside: Peer | Way | None) -> list[ProbeResult]:
    """Return the results of one family and direction; probe unexpected ones twice."""
    rows = _attempt(asks, options, around, outside, QUICK)
    wrong = [index for index, row in enumerate(rows) if row.right is False]
    again = _attempt([asks[index] for index in wrong], options, around, outside, SLOW) if wrong else []
    for index, row in zip(wrong, again, strict=True):
        rows[index] = row
    return rows


def _attempt(
    asks: Sequence[Ask], options: SettledOptions, around: Surroundings, outside: Peer | Way | None, patience: tuple[float, float]
) -> list[ProbeResult]:
    ruleset = load_plan(plan_for(options), around.family)
    sockets: list[Sent | str] = []
    with ExitStack() as stack:
        for ask in asks:
            try:
                with outside.entered() if isinstance(outside, Peer) else nullcontext():
                    opened = NeighbourProbe(ask, outside) if isinstance(outside, Way) else ProbeSocket(ask)
            except (OSError, NetinitError) as error:
                sockets.append(f"not made: {error.strerror if isinstance(error, OSError) else error}")
                continue
            stack.callback(opened.close)
            sockets.append(opened)
        _watch([opened for opened in sockets if isinstance(opened, Sent)], *patience)
    transparent = options.inbound_mode == TPROXY and outside is not None
    busy = listening_ports(around.family) if transparent else frozenset()
    return [
        ProbeResult(ask, "", one, None) if isinstance(one, str)
        else _judge(one, _predict(one, ruleset, around), transparent=transparent, busy=busy)
        for ask, one in zip(asks, sockets, strict=True)
    ]  # fmt: skip


def _watch(sockets: Sequence[Sent], patience: float, quiet: float) -> None:
    """Send all probes, and note the events of each; delete their entries."""
    sent = {one.connection: one for one in sockets}
    with Watch() as watch:
        try:
            for one in sockets:
                with suppress(PermissionError):  # OUTPUT dropped it; there will be no event
                    one.send()
            deadline, late = time.monotonic() + patience, 0
            while late < _MAX_LATE:
                late += time.monotonic() >= deadline
                found = list(watch.read(_AT_ONCE if late else quiet))
                for event in found:
                    if event.original in sent:
                        sent[event.original].events.append(event)
                if not found and (late or all(one.events for one in sockets)):
                    break
        finally:
            _forget(sent)


def _forget(sent: Mapping[tuple[int, str, int, str, int], Sent]) -> None:
    """Delete the entries of all probes, and of those without an event, which may come later, what there is."""
    known = [one.events[-1] for one in sent.values() if one.events and not one.events[-1].destroyed]
    with Netlink(NETLINK_NETFILTER) as link:
        if not all(one.events for one in sent.values()):
            known += [entry for entry in list_entries(link) if entry.original in sent and not sent[entry.original].events]
        for entry in known:
            delete_entry(link, entry)


def _predict(sent: Sent, ruleset: Ruleset, around: Surroundings) -> Trace:
    ask = sent.ask
    if ask.direction == INBOUND:
        packet = make_inbound(
            around, sent.source, ask.destination, ask.port,
            protocol=ask.protocol, interface=ask.interface, source_port=sent.source_port,
        )  # fmt: skip
    else:
        packet = make_outbound(
            around, ask.destination, ask.port, protocol=ask.protocol, uid=ask.uid, gid=ask.gid,
            source=sent.source, source_port=sent.source_port,
        )  # fmt: skip
    return simulate(packet.replace(flags=("SYN",)) if ask.protocol == "tcp" else packet, ruleset, around)


def _judge(sent: Sent, trace: Trace, *, transparent: bool, busy: Collection[int]) -> ProbeResult:
    """Compare the observation with the prediction.

    TPROXY (`transparent`) does not translate: a connection accepted without a listener was captured; where a program listens
    too (`busy` ports), it is not known which of them accepted it.
    """
    cause = trace.cause
    because = cause.rule.purpose if cause and cause.rule else ""
    expected = _describe_expected(trace)
    if trace.verdict == UNKNOWN:
        return ProbeResult(sent.ask, expected, f"cannot be predicted: {trace.reason}", None, because)
    if sent.ask.port in busy and sent.accepted and sent.untouched:
        return ProbeResult(sent.ask, expected, "accepted, by which program is unknown: another one listens there too", None, because)
    observed = _describe_observed(sent)
    if trace.transparent and not sent.events:
        observed += f", as TPROXY does when no transparent socket listens on {trace.redirect_port}"
    return ProbeResult(sent.ask, expected, observed, _holds(sent, trace, captured=transparent and sent.accepted), because)


def _holds(sent: Sent, trace: Trace, *, captured: bool) -> bool:
    arrived = sent.arrived or not sent.is_tcp  # datagrams need no answer
    if trace.verdict == DROPPED:
        return not sent.events or (sent.untouched and not sent.arrived)
    if trace.transparent:
        return sent.untouched and captured
    if trace.verdict == CAPTURED:
        wanted = format_endpoint(sent.ask.family, trace.last.destination, trace.redirect_port)
        return sent.target is not None and join_host(*sent.target) == wanted and arrived
    if trace.fate == DELIVERED:
        return sent.untouched and arrived and not captured
    return sent.untouched


def _describe_expected(trace: Trace) -> str:
    if trace.verdict == CAPTURED:
        return f"captured on {trace.redirect_port}"
    if trace.verdict == DIRECT:
        return "direct" if trace.fate == DELIVERED else "direct, out of the pod"
    return trace.verdict


def _describe_observed(sent: Sent) -> str:
    if sent.target is None:
        return "dropped (connection tracking never saw it)"
    end = "" if sent.accepted or not sent.is_tcp else ", no process listens" if sent.arrived else ", no answer"
    if not sent.untouched:
        return f"sent to {join_host(*sent.target)}{end}"
    return f"kept its destination{', accepted' if sent.accepted else end}"


class Sent:
    """The first packet of a connection, and what becomes of it; `source`, `source_port`: the sender's end."""

    source: str
    source_port: int

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.events: list[Event] = []  # of connection tracking, as `_watch` notes them
        self.is_tcp = ask.protocol == "tcp"

    @property
    def connection(self) -> tuple[int, str, int, str, int]:
        """The connection as conntrack identifies it: protocol, source, port, destination, port."""
        protocol = socket.IPPROTO_TCP if self.is_tcp else socket.IPPROTO_UDP
        return protocol, self.source, self.source_port, self.ask.destination, self.ask.port

    @property
    def target(self) -> tuple[str, int] | None:
        """The connection's destination after NAT; None if it was never tracked."""
        return (self.events[0].reply[1], self.events[0].reply[2]) if self.events else None

    @property
    def untouched(self) -> bool:
        """Whether it was tracked, and kept its destination."""
        return self.target == (self.ask.destination, self.ask.port)

    @property
    def accepted(self) -> bool:
        """Whether there was an answer other than a reset."""
        return any(event.answered for event in self.events)

    @property
    def arrived(self) -> bool:
        """Whether anything answered, even with a reset."""
        return self.accepted or any(event.destroyed for event in self.events)

    @abstractmethod
    def send(self) -> None:
        """Send the packet. Raises OSError."""

    def close(self) -> None:
        """Close the sockets."""

    def _segment(self) -> bytes:
        """A SYN; where a raw socket sends it over IPv6, the kernel computes its checksum once more."""
        return make_syn(self.ask.family, (self.source, self.source_port), (self.ask.destination, self.ask.port))

    def _datagram(self) -> bytes:
        return make_datagram(self.ask.family, (self.source, self.source_port), (self.ask.destination, self.ask.port))


class ProbeSocket(Sent):
    """A user's socket, ready to send the first packet of a connection.

    Raises OSError without a route; NamespaceError if it cannot switch to the user.
    """

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        with creating_as(ask.uid, ask.gid):
            self._sender = socket.socket(ask.family.number, socket.SOCK_RAW, socket.IPPROTO_TCP if self.is_tcp else socket.IPPROTO_UDP)
        self._reserved = socket.socket(ask.family.number, socket.SOCK_STREAM if self.is_tcp else socket.SOCK_DGRAM)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        ask, sender = self.ask, self._sender
        status = os.fstat(sender.fileno())
        if (status.st_uid, status.st_gid) != (ask.uid, ask.gid):
            raise NamespaceError(f"no connection can be made as uid {ask.uid}: run as root with SETUID and SETGID")
        if ask.family is IPV6:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, HOPS)
            if self.is_tcp:
                sender.setsockopt(socket.IPPROTO_IPV6, IPV6_CHECKSUM, CHECKSUM_OFFSET)
        else:
            sender.setsockopt(socket.SOL_IP, socket.IP_TTL, HOPS)
        if ask.source:
            sender.bind((ask.source, 0))
        sender.connect((ask.destination, 0))
        self.source = str(sender.getsockname()[0])
        self._reserved.bind((self.source, 0))  # reserves the port while this socket is open
        self.source_port = int(self._reserved.getsockname()[1])

    def send(self) -> None:
        """Send the packet. Raises OSError."""
        self._sender.send(self._segment() if self.is_tcp else self._datagram())

    def close(self) -> None:
        """Close the sockets."""
        self._reserved.close()
        self._sender.close()


class NeighbourProbe(Sent):
    """A packet that comes in through the pod's own device."""

    def __init__(self, ask: Ask, way: Way) -> None:
        super().__init__(ask)
        self._way = way
        self.source, self.source_port = way.source, random.randint(*_EPHEMERAL)  # noqa: S311 - no secret

    def send(self) -> None:
        """Send the packet. Raises OSError."""
        self._way.send(self.ask.family, self._segment(), self.ask.destination)


def make_syn(family: Family, source: tuple[str, int], destination: tuple[str, int]) -> bytes:
    """The TCP header of a first packet."""
    segment = struct.pack("!HHIIBBHI", source[1], destination[1], random.getrandbits(32), 0, 5 << 4, SYN, 64240, 0)
    return segment[:16] + struct.pack("!HH", _sum_up(family, source[0], destination[0], socket.IPPROTO_TCP, segment), 0)


def make_datagram(family: Family, source: tuple[str, int], destination: tuple[str, int]) -> bytes:
    """An empty UDP datagram that the kernel delivers to nobody: its checksum is wrong, and not 0, which says that there is none."""
    datagram = struct.pack("!4H", source[1], destination[1], 8, 0)
    wrong = _sum_up(family, source[0], destination[0], socket.IPPROTO_UDP, datagram) ^ 1
    return datagram[:6] + struct.pack("!H", wrong or 2)


def _sum_up(family: Family, source: str, destination: str, protocol: int, segment: bytes) -> int:
    """The checksum of a segment that has 0 in its place."""
    ends = b"".join([socket.inet_pton(family.number, one) for one in (source, destination)])
    pseudo = struct.pack("!HH", protocol, len(segment)) if family is IPV4 else struct.pack("!II", len(segment), protocol)
    return checksum(ends + pseudo + segment)
