"""Which socket the kernel gives a new connection to, among those that listen, and whether that one takes it.

Linux 5.0 and newer look for a socket with exactly the packet's address first, then for one with any address (inet_lookup_listener of
net/ipv4/inet_hashtables.c, udp4_lib_lookup of net/ipv4/udp.c). Several that fit share the port with SO_REUSEPORT; the order of a
list that the kernel does not show decides among them. TPROXY asks for the first address of the device where the packet came in, and
takes only a socket with IP_TRANSPARENT (nf_tproxy_laddr4, xt_TPROXY.c).

Not known here, and so not followed: TCP-MD5 and TCP-AO keys, and filters that a program attaches to its own socket.
"""

from __future__ import annotations

from collections.abc import Sequence

from netinit.base.listeners import Listener
from netinit.base.net import FAMILIES, Family, number_of
from netinit.base.records import Record
from netinit.base.snapshot import Snapshot
from netinit.live.unfollowed import CHOOSES_SOCKETS, VRF_KIND

ACCEPTED, REFUSED, UNANSWERED, PASSED, UNKNOWN = "accepted", "refused", "unanswered", "passed", "unknown"
LOOPBACK_INDEX = 1
# Why a connection is not accepted, or may not be
ABSENT, LOOPBACK_ONLY, ELSEWHERE, OPAQUE, FULL, UNREAD = "absent", "loopback-only", "elsewhere", "opaque", "full", "unread"


class Delivery(Record):
    """A new connection, or a datagram, where it reaches the sockets of this host: after all rules.

    `device`: the name of the one where it came in, `lo` for what the host sends to itself. `by_tproxy`: TPROXY looks for the
    socket, at `address`. `continues`: if there is none, the packet goes on unchanged, as nft's tproxy does without a drop rule.
    `is_silent`: the sender learns of no refusal. That of a redirected datagram is an ICMP message, which conntrack looks up in the
    usual zone: it is not translated back if the datagram has another.
    """

    family: Family
    protocol: str
    address: int
    port: int
    device: str
    by_tproxy: bool = False
    continues: bool = False
    is_silent: bool = False


class Reception(Record):
    """What the kernel does with a delivery.

    `outcome`: ACCEPTED; REFUSED, with a reset or an ICMP message; UNANSWERED, so that the sender gives up after a while; PASSED
    by TPROXY as if no rule were there; UNKNOWN, because of `reason`. `problem`: why, if it is not accepted. `listeners`: the
    sockets of which one gets it; if none does, those that have the port.
    """

    delivery: Delivery
    outcome: str
    problem: str = ""
    listeners: tuple[Listener, ...] = ()
    reason: str = ""


def receive(snapshot: Snapshot, delivery: Delivery) -> Reception:
    """Say what the kernel does with a delivery, by the sockets of the snapshot; UNKNOWN where these do not tell."""
    known = snapshot.listeners
    why = "sockets were not read" if known is None else known.why_unread(delivery.protocol)
    if why or known is None:
        return Reception(delivery=delivery, outcome=UNKNOWN, problem=UNREAD, reason=why)
    if hidden := _find_hidden(snapshot):
        return Reception(delivery=delivery, outcome=UNKNOWN, problem=UNREAD, reason=hidden)
    device = _find_device(snapshot, delivery)
    having = [one for one in known.sockets if (one.protocol, one.port) == (delivery.protocol, delivery.port)]
    certain = [one for one in having if one.takes(delivery.family)]
    possible = [one for one in having if one.takes(delivery.family) is not False]
    first, second = (_judge(delivery, having, _choose(delivery, device, these)) for these in (certain, possible))
    if (first.outcome, first.listeners) == (second.outcome, second.listeners):
        return first
    reason = "the kernel does not say which IPv6 sockets take IPv4 too"
    return Reception(delivery=delivery, outcome=UNKNOWN, problem=UNREAD, listeners=second.listeners, reason=reason)


def _find_device(snapshot: Snapshot, delivery: Delivery) -> int:
    """Return the device by which sockets are chosen: for what the host sends to itself, the one that has the address.

    So do the route's rt_iif (net/ipv4/route.c) and the index in IP6CB (net/ipv6/ip6_input.c) count.
    """
    index = next((one.index for one in snapshot.links if one.name == delivery.device), 0)
    if index != LOOPBACK_INDEX:
        return index
    own = [one for one in snapshot.addresses if one.family == delivery.family.number]
    return next((one.index for one in own if number_of(one.address) == delivery.address), LOOPBACK_INDEX)


def _find_hidden(snapshot: Snapshot) -> str:
    """What chooses sockets otherwise, if something does."""
    if any(one.where.startswith("sk_lookup") for one in snapshot.programs):
        return f"a BPF program is attached: {CHOOSES_SOCKETS}"
    return "a VRF decides which sockets get it" if any(one.kind == VRF_KIND for one in snapshot.links) else ""


def _choose(delivery: Delivery, device: int, sockets: Sequence[Listener]) -> tuple[Listener, ...]:
    """Return the sockets of which one gets it; none if no socket fits."""
    fitting = [one for one in sockets if one.device in (0, device)]
    exact = [one for one in fitting if int.from_bytes(one.address, "big") == delivery.address and not one.is_wildcard]
    return tuple(exact or [one for one in fitting if one.is_wildcard])


def _judge(delivery: Delivery, having: Sequence[Listener], chosen: tuple[Listener, ...]) -> Reception:
    """Say what becomes of a delivery that one of the chosen sockets gets; `having`: those with its port."""
    lost = (PASSED if delivery.continues else UNANSWERED) if delivery.by_tproxy else UNANSWERED if delivery.is_silent else REFUSED
    if not chosen:
        problem = ABSENT if not having else LOOPBACK_ONLY if _are_beyond(delivery, having) else ELSEWHERE
        return Reception(delivery=delivery, outcome=lost, problem=problem, listeners=tuple(having))
    ends = {_take(delivery, one, lost) for one in chosen}
    if len(ends) == 1:
        outcome, problem = ends.pop()
        reason = "the kernel does not say whether the socket is transparent" if problem == UNREAD else ""
        return Reception(delivery=delivery, outcome=outcome, problem=problem, listeners=chosen, reason=reason)
    problem = next(one for one in (OPAQUE, FULL, UNREAD) if one in {problem for _, problem in ends})
    several = "several sockets share the port, and not all of them take it"
    return Reception(delivery=delivery, outcome=UNKNOWN, problem=problem, listeners=chosen, reason=several)


def _take(delivery: Delivery, one: Listener, lost: str) -> tuple[str, str]:
    """Outcome and problem if this socket gets it."""
    if delivery.by_tproxy and not one.transparent:
        return (UNKNOWN, UNREAD) if one.transparent is None else (lost, OPAQUE)
    return (UNANSWERED, FULL) if one.is_full else (ACCEPTED, "")


def _are_beyond(delivery: Delivery, having: Sequence[Listener]) -> bool:
    """Whether all sockets take loopback addresses alone, and the delivery is for another."""
    return all(map(is_on_loopback, having)) and not _is_inside(delivery.address, delivery.family)


def is_on_loopback(one: Listener) -> bool:
    """Whether a socket takes only what the host sends to itself, by its address."""
    return any(len(one.address) * 8 == family.bits and _is_inside(int.from_bytes(one.address, "big"), family) for family in FAMILIES)


def _is_inside(address: int, family: Family) -> bool:
    network = family.loopback_network
    return network.first <= address <= network.last
