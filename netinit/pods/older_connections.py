"""Find connections that are older than the rules; warn about them or end them.

A connection counts if its first packet would be captured now, but the proxy has no socket for it and NAT has not translated
it. Its next packet is simulated with its state from connection tracking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from socket import AF_INET, inet_ntop
from typing import Any

from netinit.base.net import FAMILIES, IPV4, IPV6, Family
from netinit.kernel import conntrack, processes, read_text
from netinit.kernel.netlink import NETLINK_NETFILTER, Netlink
from netinit.kernel.tcp_sockets import IPPROTO_TCP, LISTEN, NETLINK_SOCK_DIAG, SYN_SENT, TcpSocket, destroy
from netinit.options import DNS_LISTENER, DNS_PORT, RunOptions
from netinit.pods.host import read_surroundings
from netinit.rules.model import Plan
from netinit.rules.packet_inputs import Packet
from netinit.simulate.endpoints import format_endpoint
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import load_plan
from netinit.simulate.trace import CAPTURED, DIRECT

IPPROTO_UDP = 17
EPHEMERAL = (32768, 60999)  # the kernel's default, see ip(7)
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


@dataclass(frozen=True, slots=True)
class Findings:
    """Messages: `warnings` about connections left alone, `notes` about ended ones, `unended` about those that should be."""

    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unended: str = ""


@dataclass(frozen=True, slots=True)
class OlderConnection:
    """A connection that the rules would capture, with its conntrack entry.

    `passes`: its packets bypass the proxy; otherwise they are dropped.
    """

    found: TcpSocket
    inbound: bool
    entry: conntrack.Event | None
    passes: bool

    def __str__(self) -> str:
        ends = [format_endpoint(_family(end), int.from_bytes(end[0], "big"), end[1]) for end in (self.found.local, self.found.remote)]
        return f"from {ends[1]} to {ends[0]}" if self.inbound else f"from {ends[0]} to {ends[1]}, of user {self.found.uid}"


def judge(suspects: Sequence[TcpSocket], sockets: Sequence[TcpSocket], options: RunOptions, plan: Plan) -> Findings:
    """Return messages about the suspects; first end those that the options say to end. `sockets`: all of this namespace."""
    with Netlink(NETLINK_NETFILTER) as tracking:
        try:
            found = [*find_older(suspects, sockets, options, plan, tracking)]
            redirected = _find_redirected(sockets, options, plan, tracking)
        except OSError as error:
            return not_known(f"connection tracking: {error.strerror}", options)
        warnings = (_warn_of_redirected(redirected),) if redirected else ()
        if options.reset_existing:
            ended = _end(found, options, tracking)
            return Findings(warnings=warnings, notes=ended.notes, unended=ended.unended)
    return Findings(warnings=(_describe(found), *warnings) if found else warnings)


def _find_redirected(sockets: Sequence[TcpSocket], options: RunOptions, plan: Plan, tracking: Netlink) -> list[OlderConnection]:
    """Return the inbound connections that nat redirected to the proxy, and that Istio's rules for TPROXY cut off. Raises OSError.

    `-m socket` in the classic layout looks for a socket at the address in the packet, which nat has not translated yet; TPROXY
    then gives the packet to the socket that listens (xt_socket.c, xt_TPROXY.c).
    """
    if not options.cuts_redirected:
        return []
    own = {one.local[0] for one in sockets}
    asked = {  # the proxy's end and the peer's, to the port that the peer asked for
        (reply[1:3], original[1:3]): original[4]
        for original, reply in [(one.original, one.reply) for one in conntrack.list_entries(tracking) if one.translated]
    }
    questions, found = _Questions(plan, {}), []
    for one in sockets:
        port = asked.get((_named(one.local), _named(one.remote))) if one.is_open and _family(one.local) is IPV4 else None
        if port is not None and one.remote[0] not in own:
            before = one.replace(local=(one.local[0], port))
            if questions.is_captured(before, inbound=True):
                found.append(OlderConnection(before, inbound=True, entry=None, passes=False))
    return found


def _named(end: tuple[bytes, int]) -> tuple[str, int]:
    return inet_ntop(AF_INET, end[0]), end[1]


def _warn_of_redirected(found: Sequence[OlderConnection]) -> str:
    are, their = ("is", "its") if len(found) == 1 else ("are", "their")
    return (
        f"{_count(found)} that nat redirected to the proxy {are} reset with {their} next packet{_example(found)}: Istio's rules for"
        " TPROXY in this layout do not know redirected connections; without --istio-exact they stay open"
    )


def not_known(why: str, options: RunOptions) -> Findings:
    """Return the message that older connections cannot be found; a failure if they should be ended."""
    message = f"whether connections are older than the rules cannot be known: {why}"
    return Findings(unended=message) if options.reset_existing else Findings(warnings=(message,))


def find_older(
    suspects: Iterable[TcpSocket], sockets: Sequence[TcpSocket], options: RunOptions, plan: Plan, tracking: Netlink
) -> Iterable[OlderConnection]:
    """Yield the suspects that are older than the rules and would be captured. Raises OSError."""
    ends = {(one.local, one.remote) for one in sockets}
    captured = {one.remote for one in sockets if one.local[1] in (options.outbound_port, options.inbound_port, DNS_LISTENER)}
    listening = {one.local[1] for one in sockets if one.state == LISTEN}
    questions = _Questions(plan, _groups(suspects, options))
    for one in suspects:
        if (one.remote, one.local) in ends or one.local in captured:
            continue  # within the pod, or the proxy has the other end
        inbound = one.local[1] in listening or not _is_ephemeral(one.local[1])
        if not questions.is_captured(one, inbound):
            continue
        source, destination = (one.remote, one.local) if inbound else (one.local, one.remote)
        entry = conntrack.find_entry(tracking, IPPROTO_TCP, source, destination)
        if (entry and entry.translated) or (entry is None and one.state == SYN_SENT):
            continue  # captured; or its next attempt is a new connection
        yield OlderConnection(one, inbound, entry, questions.passes(one, inbound, tracked=entry is not None))


class _Questions:
    def __init__(self, plan: Plan, groups: dict[int, int]) -> None:
        self._groups = groups
        self._rules = {family: load_plan(plan, family) for family in FAMILIES}
        self._surroundings = cache(read_surroundings)
        self._captured: dict[tuple[Any, ...], bool] = {}

    def is_captured(self, one: TcpSocket, inbound: bool) -> bool:
        end = one.local if inbound else one.remote
        key = (inbound, end, one.remote[0], one.local[0], one.uid, self._groups.get(one.inode), one.mark)
        if key not in self._captured:
            self._captured[key] = self._ask(self._packet(one, inbound), picks_up=True) == CAPTURED
        return self._captured[key]

    def passes(self, one: TcpSocket, inbound: bool, *, tracked: bool) -> bool:
        """Whether the next packet takes the same path as the last one."""
        packet = self._packet(one, inbound).replace(flags=("ACK",))
        if tracked:
            return self._ask(packet.replace(state="ESTABLISHED"), picks_up=True) == DIRECT
        return self._ask(packet, picks_up=self._surroundings(packet.family).picks_up) == DIRECT

    def _ask(self, packet: Packet, *, picks_up: bool) -> str:
        around = self._surroundings(packet.family).replace(picks_up=picks_up)
        return simulate(packet, self._rules[packet.family], around).verdict

    def _packet(self, one: TcpSocket, inbound: bool) -> Packet:
        family = _family(one.local)
        local, remote = (int.from_bytes(end[0], "big") for end in (one.local, one.remote))
        if inbound:
            around = self._surroundings(family)
            interface = next((name for name, address in around.addresses if address == local), around.default_interface)
            return Packet(
                family=family, protocol="tcp", source=remote, source_port=one.remote[1], destination=local,
                destination_port=one.local[1], in_interface=interface,
            )  # fmt: skip
        return Packet(
            family=family, protocol="tcp", source=local, source_port=one.local[1], destination=remote,
            destination_port=one.remote[1], has_socket=True, uid=one.uid, gid=self._groups.get(one.inode, one.uid), mark=one.mark,
        )  # fmt: skip


def _groups(suspects: Iterable[TcpSocket], options: RunOptions) -> dict[int, int]:
    """Return the groups of sockets, from their processes, if rules match groups: sockets do not show theirs.

    Proxies that run as root (Istio's TPROXY mode) are recognised by their group alone.
    """
    asked = options.exclude_owner_groups or options.owner_groups != "*" or options.exclude_outbound_for_gids
    inodes = frozenset(one.inode for one in suspects if one.inode and (asked or one.uid == 0))
    return processes.find_groups(inodes) if inodes else {}


def _family(end: tuple[bytes, int]) -> Family:
    return IPV4 if len(end[0]) * 8 == IPV4.bits else IPV6


def _is_ephemeral(port: int) -> bool:
    words = read_text(_RANGE).split()
    low, high = (int(words[0]), int(words[1])) if len(words) == len(EPHEMERAL) else EPHEMERAL
    return low <= port <= high


def _describe(found: Sequence[OlderConnection]) -> str:
    passing, cut = ([one for one in found if one.passes is passes] for passes in (True, False))
    parts = []
    if passing:
        verb, until = ("bypasses", "it ends") if len(passing) == 1 else ("bypass", "they end")
        parts.append(f"{_count(passing)} older than the rules {verb} the proxy until {until}{_example(passing)}")
    if cut:
        verb, whose = ("is", "its") if len(cut) == 1 else ("are", "their")
        parts.append(f"{_count(cut)} older than the rules {verb} cut off with {whose} next packet{_example(cut)}")
    return f"{'; '.join(parts)}; --reset-existing ends {'it' if len(found) == 1 else 'them'} at once, so that programs reconnect"


def _count(found: Sequence[object]) -> str:
    return f"{len(found)} connection{'' if len(found) == 1 else 's'}"


def _example(found: Sequence[OlderConnection]) -> str:
    return f" ({'' if len(found) == 1 else 'such as '}{found[0]})"


def _end(found: Sequence[OlderConnection], options: RunOptions, tracking: Netlink) -> Findings:
    """End the connections and delete their conntrack entries, which a reused port would match."""
    ended: list[OlderConnection] = []
    alive: list[OlderConnection] = []
    reasons: dict[str, None] = {}
    with Netlink(NETLINK_SOCK_DIAG) as link:
        for one in found:
            try:
                destroy(link, one.found)
                ended.append(one)
            except OSError as error:
                alive.append(one)
                reasons[f"SOCK_DESTROY: {error.strerror}"] = None
    notes = [f"ended {_count(ended)} older than the rules{_example(ended)}"] if ended else []
    try:
        entries = [one.entry for one in ended if one.entry]
        entries += _find_queries(tracking) if options.redirect_dns else []
        for entry in entries:
            conntrack.delete_entry(tracking, entry)
    except OSError as error:
        reasons[f"their entries in connection tracking: {error.strerror}"] = None
    if not reasons:
        return Findings(notes=tuple(notes))
    what = f"{_count(alive)} older than the rules could not be ended{_example(alive)}" if alive else "connections older than the rules"
    return Findings(notes=tuple(notes), unended=f"{what}: {'; '.join(reasons)}; restart the programs that hold them")


def _find_queries(tracking: Netlink) -> list[conntrack.Event]:
    """Return DNS queries over UDP without NAT: a resolver that keeps its port would bypass the proxy."""
    return [
        entry
        for entry in conntrack.list_entries(tracking)
        if entry.original[0] == IPPROTO_UDP and entry.original[4] == DNS_PORT and not entry.translated
    ]
