"""Who gets a connection after the rules: the proxy or its resolver, and behind the proxy the application; and what is wrong there.

`follow` asks about one connection, `examine` about the ports that a plan redirects to and about what the application listens on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netinit.base.findings import FindingKind
from netinit.base.listeners import Listener
from netinit.base.net import FAMILIES, Family, join_host, number_of
from netinit.base.records import Record
from netinit.base.sanitize import escape
from netinit.base.snapshot import Snapshot
from netinit.live.host import surroundings_of
from netinit.live.listeners import (
    ABSENT,
    ACCEPTED,
    ELSEWHERE,
    FULL,
    LOOPBACK_ONLY,
    OPAQUE,
    PASSED,
    REFUSED,
    UNANSWERED,
    UNKNOWN,
    UNREAD,
    Delivery,
    Reception,
    receive,
)
from netinit.options import DNS_LISTENER
from netinit.rules.foreign_targets import socket_target
from netinit.rules.matches.packet import Destination, Port, Protocol
from netinit.rules.model import OUTPUT, PREROUTING, Plan
from netinit.rules.packet_inputs import LOOPBACK_DEVICE
from netinit.rules.targets import Capture, Jump
from netinit.simulate.endpoints import format_endpoint
from netinit.simulate.trace import CAPTURED, DELIVERED, DIRECT, Trace

PROXY, RESOLVER, LISTENER, APPLICATION = "proxy", "resolver", "listener", "application"

PROXY_ABSENT = FindingKind(
    "NI301", "proxy-absent",
    "Nothing listens on the port that the rules redirect to: the proxy, or the pod's listener for "
    "--redirect-outbound-udp, is not up, has crashed, or listens on another port. Connections are refused; with "
    "TPROXY they time out. See the proxy container's state and log, and compare its ports with --proxy-port and "
    "--inbound-capture-port. An init container, or a container that starts before the proxy, sees this until the "
    "proxy is ready: holdApplicationUntilProxyStarts, or a native sidecar.",
)
PROXY_ELSEWHERE = FindingKind(
    "NI302", "proxy-elsewhere",
    "The proxy, or its resolver, has a socket on the port, but not for what arrives there: it is bound to another "
    "address or device, or takes only the other address family (IPV6_V6ONLY, or an IPv4 socket for captured IPv6). "
    "Let it listen on 0.0.0.0 or [::], or turn off capture of that family (--ipv6).",
)
PROXY_NOT_TRANSPARENT = FindingKind(
    "NI303", "proxy-not-transparent",
    "TPROXY hands connections only to a socket with IP_TRANSPARENT: set interceptionMode of the proxy to TPROXY too "
    "(sidecar.istio.io/interceptionMode), and give it NET_ADMIN. Until then connections are dropped.",
)
APPLICATION_ABSENT = FindingKind(
    "NI304", "application-absent",
    "Nothing listens on the port that the connection was sent to. Compare it with the ports named, and with "
    "targetPort of the Service and containerPort.",
)
APPLICATION_ON_LOOPBACK = FindingKind(
    "NI305", "application-on-loopback",
    "The application listens on 127.0.0.1 or ::1 alone, and connections come to the pod's address: from a sidecar's "
    "proxy too, since Istio 1.10. Let it listen on 0.0.0.0 or [::], or name the loopback address in a Sidecar's "
    "ingress (defaultEndpoint).",
)
APPLICATION_ELSEWHERE = FindingKind(
    "NI306", "application-elsewhere",
    "The application has a socket on the port, but not for what arrives there: it is bound to another address or "
    "device, or takes only the other address family. Let it listen on 0.0.0.0 or [::].",
)
QUEUE_FULL = FindingKind(
    "NI307", "queue-full",
    "Connections wait to be accepted, and the kernel discards new ones: the program hangs, is too slow, or its "
    "backlog (net.core.somaxconn bounds it) is too short.",
)
RESOLVER_ABSENT = FindingKind(
    "NI308", "resolver-absent",
    "DNS queries are captured, and nothing answers on 15053: the proxy is not up, or its DNS proxy is off. Set "
    "ISTIO_META_DNS_CAPTURE=true in the proxy's environment, or leave out --redirect-dns.",
)
LISTENERS_UNKNOWN = FindingKind(
    "NI309", "listeners-unknown",
    "It is not known who listens: the kernel does not list sockets (sock_diag; gVisor has none, others need the "
    "modules tcp_diag and udp_diag), there are too many, or a BPF program or a VRF chooses among them. `ss -lntu` in "
    "the pod may tell.",
)
NOT_THE_PROXY = FindingKind(
    "NI380", "not-the-proxy",
    "A program of another user has the port that the rules redirect to. Either it is no proxy: let it listen on another "
    "port, since those from 15000 to 15090 are the proxy's. Or the proxy runs as a user that the rules do not exempt, so "
    "that its own connections come back to it, endlessly: compare runAsUser of the container istio-proxy with "
    "--proxy-uid. A proxy whose group is exempted (--proxy-gid) is right.",
)
# By who is asked for and what is wrong
OF_ONE = {
    (PROXY, ABSENT): PROXY_ABSENT, (LISTENER, ABSENT): PROXY_ABSENT, (RESOLVER, ABSENT): RESOLVER_ABSENT,
    (APPLICATION, ABSENT): APPLICATION_ABSENT, (APPLICATION, LOOPBACK_ONLY): APPLICATION_ON_LOOPBACK,
    (APPLICATION, ELSEWHERE): APPLICATION_ELSEWHERE,
}  # fmt: skip
OF_ALL = {
    LOOPBACK_ONLY: PROXY_ELSEWHERE, ELSEWHERE: PROXY_ELSEWHERE, OPAQUE: PROXY_NOT_TRANSPARENT, FULL: QUEUE_FULL,
    UNREAD: LISTENERS_UNKNOWN,
}  # fmt: skip
ENDS = {
    "tcp": {
        ACCEPTED: "the connection is accepted", REFUSED: "the connection is refused",
        UNANSWERED: "the connection is not answered, and times out",
        PASSED: "nft's tproxy lets the connection pass, not captured", UNKNOWN: "what happens to the connection is not known",
    },
    "udp": {
        ACCEPTED: "the datagram is delivered", REFUSED: "the datagram is refused (ICMP)", UNANSWERED: "the datagram is not answered",
        PASSED: "nft's tproxy lets the datagram pass, not captured", UNKNOWN: "what happens to the datagram is not known",
    },
}  # fmt: skip
NAMES = {PROXY: "the proxy", RESOLVER: "the proxy's resolver", LISTENER: "the pod's listener", APPLICATION: "the application"}
SCOPE_UNIVERSE, LOOPBACK_INDEX = 0, 1
OF_OTHER_NAMESPACES = 65536  # ids from here on are those of a pod with a user namespace of its own, as its node sees them
MAX_NAMED, MAX_LISTED = 4, 50  # sockets in a sentence, and in a list
MAX_PLACES = 8  # addresses of the pod that are asked about: one for each device, of which a pod has one or two


class Recipient(Record):
    """One end of a connection: who should get it there, and what the kernel does with it.

    `who`: PROXY, RESOLVER, LISTENER (for redirected UDP) or APPLICATION. `behind_proxy`: the proxy opens the connection.
    `others`: what the application listens on instead, if nothing has the port. `proxy_uids`: the proxy's users; empty if unknown.
    """

    who: str
    reception: Reception
    behind_proxy: bool = False
    others: tuple[Listener, ...] = ()
    proxy_uids: tuple[int, ...] = ()
    devices: tuple[tuple[int, str], ...] = ()  # names by index, for words

    @property
    def outcome(self) -> str:
        """What becomes of the connection: see Reception."""
        return self.reception.outcome

    @property
    def kind(self) -> FindingKind | None:
        """The kind of the finding; None if the connection is accepted."""
        problem = self.reception.problem
        return OF_ONE.get((self.who, problem)) or OF_ALL.get(problem) or (NOT_THE_PROXY if self._is_of_another_user else None)

    @property
    def _is_of_another_user(self) -> bool:
        """Whether somebody else than the proxy gets what is redirected to it. Root may be the proxy, by its group."""
        users = {one.uid for one in self.reception.listeners}
        known = self.who in (PROXY, RESOLVER) and self.outcome == ACCEPTED and bool(self.proxy_uids and users)
        return known and min(users) > 0 and max(users) < OF_OTHER_NAMESPACES and not users & {*self.proxy_uids}

    @property
    def address(self) -> str:
        """Where it arrives, as `address:port`."""
        one = self.reception.delivery
        return format_endpoint(one.family, one.address, one.port)

    @property
    def cause(self) -> object:
        """What is wrong, equal for all addresses and families where the same is."""
        found = self.reception
        if found.problem == UNREAD:
            return found.reason
        return found.delivery.protocol, found.delivery.port, found.problem, found.listeners

    @property
    def text(self) -> str:
        """What happens there, in one clause."""
        found = self.reception
        end = ENDS[found.delivery.protocol][found.outcome]
        port = f"{found.delivery.port}{'' if found.delivery.protocol == 'tcp' else '/udp'}"
        named = self._name(found.listeners)
        if found.problem == UNREAD:
            return f"who listens is not known: {found.reason}"
        if found.problem == ABSENT:
            others = f" (the application listens on {self._name(self.others)})" if self.others else ""
            why = others if self.who == APPLICATION else f" ({NAMES[self.who]} is not up)"
            return f"nothing listens on {port}{why}: {end}"
        if found.problem in (LOOPBACK_ONLY, ELSEWHERE):
            place = self.address if len({one.port for one in found.listeners}) == 1 else "the pod's address"
            asked = f", and the proxy connects to {place}" if self.behind_proxy else f", not on {place}"
            by_proxy = all(one.uid in self.proxy_uids for one in found.listeners)
            return f"{NAMES[PROXY if by_proxy else self.who]} listens on {named} alone{asked}: {end}"
        if found.problem == OPAQUE:
            return f"{named} is not transparent (IP_TRANSPARENT), which TPROXY needs: {end}"
        if found.problem == FULL:
            full = max((one for one in found.listeners if one.is_full), key=lambda one: one.waiting)
            return f"the accept queue of {named} is full ({full.waiting} wait, backlog {full.backlog}): {end}"
        users = {one.uid for one in found.listeners}
        wrong = self.who != APPLICATION and self.proxy_uids and not users & {*self.proxy_uids}
        not_proxy = f", and the proxy's user is {', '.join(map(str, self.proxy_uids))}" if wrong else ""
        return f"{named} gets it{not_proxy}: {end}"

    @property
    def sockets(self) -> tuple[str, ...]:
        """The sockets in question, as far as they are named; `reception` has all."""
        return tuple([self._name_one(one) for one in dict.fromkeys(self.reception.listeners[:MAX_LISTED])])

    def _name(self, listeners: Sequence[Listener]) -> str:
        names = list(dict.fromkeys([self._name_one(one) for one in listeners]))
        return ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")

    def _name_one(self, one: Listener) -> str:
        family = next(family for family in FAMILIES if len(one.address) * 8 == family.bits)
        device = f" on {dict(self.devices).get(one.device, one.device)}" if one.device else ""
        alone = "IPv6 only, " if one.v6only and one.is_wildcard else ""
        host = format_endpoint(family, int.from_bytes(one.address, "big"), None)
        return escape(f"{join_host(host, one.port)}{device} ({alone}uid {one.uid})")


def follow(trace: Trace, snapshot: Snapshot, *, continues: bool = False, proxy_uids: tuple[int, ...] = ()) -> tuple[Recipient, ...]:
    """Say who gets a connection with this path, first at its end, then behind the proxy; nothing if it does not end here.

    `continues`: the rule of TPROXY lets pass what no socket takes: nft's tproxy without a drop rule. `proxy_uids`: the proxy's users.
    """
    first, last = trace.first, trace.last
    if first.protocol not in ENDS or first.destination is None or not first.destination_port:
        return ()
    family, device = first.family, last.in_interface or LOOPBACK_DEVICE
    meet = _Asker(snapshot, proxy_uids)
    around = surroundings_of(snapshot, family)
    itself = Delivery(family=family, protocol=first.protocol, address=first.destination, port=first.destination_port, device=device)
    if step := trace.diverted:
        target = socket_target(step.matched.target)
        if target is None:
            return ()
        asked = number_of(target.socket_address) if target.socket_address else around.primary_address(device)
        place = itself.replace(port=target.port, by_tproxy=True, address=first.destination if asked is None else asked)
        return (meet(APPLICATION, place),)
    if trace.verdict == DIRECT and trace.fate == DELIVERED and last.destination is not None and last.destination_port:
        return (meet(APPLICATION, itself.replace(address=last.destination, port=last.destination_port)),)
    if trace.verdict != CAPTURED:
        return ()
    asked = around.primary_address(device) if trace.transparent else last.destination
    proxy = itself.replace(
        address=first.destination if asked is None else asked, port=trace.redirect_port, by_tproxy=trace.transparent,
        continues=trace.transparent and continues, is_silent=first.protocol == "udp" and trace.zone != 0,
    )  # fmt: skip
    one = meet(_taker(proxy), proxy)
    if one.outcome == PASSED:
        return one, meet(APPLICATION, itself)
    if one.who != PROXY or one.outcome not in (ACCEPTED, UNKNOWN) or first.protocol != "tcp" or not around.is_local(first.destination):
        return (one,)
    other = meet(APPLICATION, itself.replace(device=LOOPBACK_DEVICE), behind_proxy=True)
    return (one,) if other.text == one.text else (one, other)  # what cannot be known is said once


def examine(snapshot: Snapshot, plan: Plan, *, continues: bool = False, proxy_uids: tuple[int, ...] = ()) -> tuple[Recipient, ...]:
    """Return what is wrong with those who should get what a plan redirects, and with what the application listens on, once each."""
    found: dict[object, Recipient] = {}
    meet = _Asker(snapshot, proxy_uids)
    for delivery in _list_deliveries(snapshot, plan, continues=continues):
        one = meet(_taker(delivery), delivery)
        found.setdefault(one.cause, one)
    for one in _meet_applications(snapshot, meet):
        found.setdefault(one.cause, one)
    return tuple(sorted([one for one in found.values() if one.kind], key=lambda one: one.reception.delivery.port))


def _taker(delivery: Delivery) -> str:
    """Who should get what is redirected to a port."""
    return RESOLVER if delivery.port == DNS_LISTENER else LISTENER if delivery.protocol == "udp" else PROXY


class _Asker:
    """Asks a snapshot about deliveries."""

    def __init__(self, snapshot: Snapshot, proxy_uids: tuple[int, ...]) -> None:
        self.snapshot, self._proxy_uids = snapshot, proxy_uids
        self._devices = tuple([(one.index, one.name) for one in snapshot.links])
        self._by_port: dict[tuple[str, int], list[Listener]] = {}
        for listener in snapshot.listeners.sockets if snapshot.listeners else ():
            self._by_port.setdefault((listener.protocol, listener.port), []).append(listener)

    def __call__(self, who: str, delivery: Delivery, *, behind_proxy: bool = False) -> Recipient:
        having, known = self._by_port.get((delivery.protocol, delivery.port), ()), self.snapshot.listeners
        reception = receive(self.snapshot.replace(listeners=known and known.replace(sockets=tuple(having))), delivery)
        wanted = who == APPLICATION and reception.problem == ABSENT
        others = tuple([one for one in self.list_applications() if one.protocol == delivery.protocol]) if wanted else ()
        return Recipient(
            who=who, reception=reception, behind_proxy=behind_proxy, others=others, proxy_uids=self._proxy_uids, devices=self._devices
        )

    def list_applications(self) -> Iterator[Listener]:
        """What listens on TCP and is not of the proxy's users; without UDP: each client's socket would be there."""
        known = self.snapshot.listeners
        for one in known.sockets if known else ():
            if one.protocol == "tcp" and one.uid not in self._proxy_uids:
                yield one


def _meet_applications(snapshot: Snapshot, meet: _Asker) -> Iterator[Recipient]:
    """One recipient for each problem of ports of the application: no address of the pod reaches them, or their queues are full."""
    places = list(_list_places(snapshot))
    found: dict[str, list[Recipient]] = {}
    for port in sorted({one.port for one in meet.list_applications()}):
        recipients = [
            meet(APPLICATION, Delivery(family=family, protocol="tcp", address=address, port=port, device=device))
            for family, address, device in places
        ]
        full = [one for one in recipients if one.reception.problem == FULL]
        if full or (recipients and not any(one.outcome in (ACCEPTED, UNKNOWN) for one in recipients)):
            one = (full or recipients)[0]
            found.setdefault(one.reception.problem, []).append(one)
    for first, *others in found.values():
        sockets = [listener for one in (first, *others) for listener in one.reception.listeners]
        yield first.replace(reception=first.reception.replace(listeners=tuple(sockets)))


def _list_places(snapshot: Snapshot) -> Iterator[tuple[Family, int, str]]:
    """The first address of each device with one that is reached from outside."""
    for family in FAMILIES:
        devices: dict[int, int] = {}
        for one in snapshot.addresses:
            if one.family == family.number and one.index != LOOPBACK_INDEX and one.scope == SCOPE_UNIVERSE:
                devices.setdefault(one.index, number_of(one.address))
        yield from [(family, address, snapshot.name_of(index)) for index, address in [*devices.items()][:MAX_PLACES]]


def _list_deliveries(snapshot: Snapshot, plan: Plan, *, continues: bool) -> Iterator[Delivery]:
    """Where what the plan captures arrives, for the families in which the pod has an address."""
    places = list(_list_places(snapshot))
    zoned = any(getattr(rule.target, "zone", 0) and _is_of_everybody(rule.matches) for *_, rule in plan.walk())
    for family in {family: None for family, _, _ in places}:
        for hook, protocol, target in _list_captures(plan, family):
            ends = [(address, device) for one, address, device in places if one == family]
            if hook == OUTPUT:
                ends = [(number_of(family.loopback.partition("/")[0]), LOOPBACK_DEVICE)]
            for address, device in ends:
                yield Delivery(
                    family=family, protocol=protocol, address=address, port=target.port, device=device,
                    by_tproxy=target.transparent, continues=target.transparent and continues,
                    is_silent=protocol == "udp" and zoned,
                )  # fmt: skip


def _list_captures(plan: Plan, family: Family) -> Iterator[tuple[str, str, Capture]]:
    """Each redirecting target of the plan, with the hook that leads there and the protocol that it is for."""
    chains = {(table.name, chain.name): chain.all_rules for table in plan.tables for chain in table.chains}
    found: dict[tuple[str, str, Capture], None] = {}
    for hook in (PREROUTING, OUTPUT):
        waiting = [key for key in chains if key[1] == hook]
        seen = set(waiting)
        while waiting:
            table, name = waiting.pop()
            for rule in chains[table, name]:
                further = (table, rule.target.chain) if isinstance(rule.target, Jump) else None
                if isinstance(rule.target, Capture) and family in rule.families:
                    found[hook, _protocol_of(rule.matches), rule.target] = None
                elif further in chains and further not in seen:
                    seen.add(further)
                    waiting.append(further)
    return iter(found)


def _is_of_everybody(matches: Sequence[object]) -> bool:
    """Whether a rule applies whoever sends."""
    return all(isinstance(one, Protocol | Port | Destination) for one in matches)


def _protocol_of(matches: Sequence[object]) -> str:
    named = [one.name if isinstance(one, Protocol) else one.protocol for one in matches if isinstance(one, Protocol | Port)]
    return next(iter(named), "tcp")
