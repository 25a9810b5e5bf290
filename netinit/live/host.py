"""Addresses and routes of a snapshot's host, as far as packets' paths depend on them, and the lookup of routes.

A lookup follows policy rules in order, longest prefix, lowest metric. Where a packet's field, a VRF or an attribute is
unknown, it follows both cases, so that there may be several routes (net/core/fib_rules.c, net/ipv4/fib_rules.c).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netinit.base.net import FULL_MASK, IPV4, Family, Network, covers, number_of
from netinit.base.snapshot import IFF_UP, RoutingRule, Snapshot, TableRoute
from netinit.live.unfollowed import VRF_KIND
from netinit.rules.model import Plan
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings

DEFAULT, MAIN, LOCAL = 253, 254, 255  # RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL
LOOPBACK_INDEX = 1
DROPPING = {6: "blackhole", 7: "unreachable", 8: "prohibit"}  # RTN_*, and FR_ACT_* alike
LOOK_UP, GO_TO, NOP = 1, 2, 3  # FR_ACT_*; all others drop
UNICAST, DELIVERED_HERE, BROADCAST, ANYCAST, MULTICAST, THROW = 1, 2, 3, 4, 5, 9  # RTN_*; RTN_LOCAL is delivered here
NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": 58, "sctp": 132, "udplite": 136}
LOST = ""  # leads nowhere: blackhole, unreachable, prohibit, no route
NO_DEFAULT = 0xFFFFFFFF  # as a metric
SAMPLES = {  # public addresses from every eighth of IPv4 and every IPv6 registry
    4: ("1.1.1.1", "45.1.1.1", "80.1.1.1", "110.1.1.1", "140.1.1.1", "170.1.1.1", "200.1.1.1", "220.1.1.1"),
    6: ("2001:4860::1", "2400::1", "2600::1", "2800::1", "2a00::1", "2c00::1"),
}


def surroundings_of(snapshot: Snapshot, family: Family) -> Surroundings:
    """The host with its main table's routes, lowest metric first; `is_simple` says whether that is exact."""
    names = {link.index: link.name for link in snapshot.links}
    addresses = [(names.get(one.index, ""), number_of(one.address)) for one in snapshot.addresses if one.family == family.number]
    routes: dict[Network, str] = {}
    for route in sorted(_main_routes(snapshot, family), key=lambda route: route.metric):
        if route.hops:
            routes.setdefault(Network((family.version, *route.destination)), names.get(route.hops[0], ""))
    # Networks delivered to this host that no device has (`ip route add local NETWORK dev lo`). The kernel calls them LOCAL:
    # for IPv4 if the table local has them, for IPv6 if any table does.
    staying = [(Network((family.version, *one.destination)), one) for one in routes_that_stay(snapshot, family)]
    delivered = [(network, one) for network, one in staying if one.kind == DELIVERED_HERE and one.table in (MAIN, LOCAL)]
    for network, _ in delivered:
        routes.setdefault(network, LOOPBACK_DEVICE)
    dropped = [one.destination for one in dropping_routes(snapshot, family)]
    dropped += [one.destination or (0, 0) for one in dropping_rules(snapshot, family)]
    default = next((name for network, name in routes.items() if network.length == 0), "")
    first = next((name for name, _ in addresses if name != LOOPBACK_DEVICE), "eth0")
    forwarding = "ipv4/ip_forward" if family is IPV4 else "ipv6/conf/all/forwarding"
    return Surroundings(
        family=family, addresses=tuple(addresses), routes=tuple(routes.items()), default_interface=default or first,
        forwards=snapshot.setting(forwarding) == "1",
        picks_up=snapshot.setting("netfilter/nf_conntrack_tcp_loose") != "0",
        broadcasts=tuple(sorted({
            one.destination[0] for one in snapshot.routes if (one.family, one.kind) == (family.number, BROADCAST)
        })),
        local_networks=tuple(network for network, one in delivered if one.table == LOCAL or family is not IPV4),
        doubtful=(
            *[network for network, one in staying if one.table not in (MAIN, LOCAL)],
            *[Network((family.version, *one)) for one in dropped],
        ),
        local_marks=frozenset((rule.mark, rule.mask or FULL_MASK) for rule in rules_to_lo(snapshot, family)),
    )  # fmt: skip


def find_loopback_fault(snapshot: Snapshot, families: Sequence[Family]) -> tuple[str, str]:
    """Why nothing that is redirected inside of the pod reaches its proxy, and the remedy; empty if the loopback device works.

    It must be up and have the loopback address, which the kernel gives it then, of each family that the pod has another address of.
    """
    if all(one.index != LOOPBACK_INDEX for one in snapshot.links):
        return "", ""
    if not any(one.index == LOOPBACK_INDEX and one.flags & IFF_UP for one in snapshot.links):
        return "is down", "bring it up: ip link set lo up"
    for family in families:
        own = [one for one in snapshot.addresses if one.family == family.number]
        here = [Network.parse(f"{one.address}/{one.length}") for one in own if one.index == LOOPBACK_INDEX]
        here += [
            Network((family.version, *one.destination))
            for one in snapshot.routes if (one.family, one.table, one.kind) == (family.number, LOCAL, DELIVERED_HERE)
        ]  # fmt: skip
        if own and not any(covers(one, Network.parse(family.loopback)) for one in here):
            allowed = "" if family is IPV4 else ", which net.ipv6.conf.lo.disable_ipv6=0 allows"
            return f"has no address {family.loopback}", f"add it: ip address add {family.loopback} dev lo{allowed}"
    return "", ""


def routes_that_stay(snapshot: Snapshot, family: Family) -> Iterator[TableRoute]:
    """Routes to this host or lo for addresses that are not its own, which unmarked packets can take."""
    reached = {rule.table for rule in snapshot.routing_rules if rule.family == family.number and not rule.mark}
    own = {number_of(one.address) for one in snapshot.addresses if one.family == family.number}
    for route in snapshot.routes:
        if route.family != family.number or route.table not in {*reached, MAIN, LOCAL}:
            continue
        network = Network((family.version, *route.destination))
        is_own = network.first in own and network.length == family.bits
        leads_here = route.kind == DELIVERED_HERE or (route.kind == UNICAST and LOOPBACK_INDEX in route.hops)
        if leads_here and not (is_own or covers(family.loopback_network, network)):
            yield route


def addresses_on_loopback(snapshot: Snapshot, plan: Plan, family: Family) -> frozenset[int]:
    """Addresses of lo alone that are neither of the loopback network nor the plan's: what is sent there stays here."""
    found: dict[int, set[int]] = {}
    for one in snapshot.addresses:
        if one.family == family.number:
            found.setdefault(number_of(one.address), set()).add(one.index)
    ours = [Network.parse(one.cidr).first for one in plan.addresses if one.family is family]
    inside = family.loopback_network
    return frozenset([
        address for address, devices in found.items()
        if devices == {LOOPBACK_INDEX} and address not in ours and not inside.first <= address <= inside.last
    ])  # fmt: skip


def dropping_rules(snapshot: Snapshot, family: Family) -> list[RoutingRule]:
    """Policy rules that drop packets."""
    return [one for one in snapshot.routing_rules if one.family == family.number and one.action in DROPPING]


def dropping_routes(snapshot: Snapshot, family: Family) -> list[TableRoute]:
    """Routes that drop packets, in tables that are looked up, without IPv6's own "no default route"."""
    tables = {*[one.table for one in snapshot.routing_rules if one.family == family.number], MAIN, LOCAL}
    found = [one for one in snapshot.routes if one.family == family.number and one.kind in DROPPING and one.table in tables]
    return [one for one in found if not (one.destination[1] == 0 and one.metric == NO_DEFAULT)]


def is_simple(snapshot: Snapshot, family: Family) -> bool:
    """Whether the destination alone determines the route of a family's packets.

    True if each network has one route and policy rules only deliver marked packets to this host.
    """
    rules = [rule for rule in snapshot.routing_rules if rule.family == family.number]
    routes = _main_routes(snapshot, family)
    link_local = Network.parse("fe80::/10")
    ways = [(one.destination, one.metric) for one in routes if family is IPV4 or one.destination[0] >> 118 != link_local.first >> 118]
    to_lo = rules_to_lo(snapshot, family)
    others = [rule for rule in rules if rule not in to_lo]
    usual = all(rule.table in (DEFAULT, MAIN, LOCAL) and rule == _bare(rule) for rule in others)  # a namespace's three default rules
    plain = all(len(one.hops) <= 1 and not (one.others or one.tos) for one in routes)
    return plain and usual and len(set(ways)) == len(ways)


def matches_a_mark_alone(rule: RoutingRule) -> bool:
    """Whether it looks up a table for all packets with a mark."""
    return bool(rule.mark) and rule == _bare(rule).replace(mark=rule.mark, mask=rule.mask)


def rules_to_lo(snapshot: Snapshot, family: Family) -> list[RoutingRule]:
    """Policy rules that deliver all packets with a mark to this host."""
    tables = {
        one.table for one in snapshot.routes if (one.family, one.kind, one.destination) == (family.number, DELIVERED_HERE, (0, 0))
    }
    return [
        rule
        for rule in snapshot.routing_rules
        if rule.family == family.number and rule.table in tables and matches_a_mark_alone(rule)
    ]


def _bare(rule: RoutingRule) -> RoutingRule:
    """The policy rule reduced to table and priority."""
    return RoutingRule(family=rule.family, priority=rule.priority, action=LOOK_UP, table=rule.table, protocol=rule.protocol)


def _main_routes(snapshot: Snapshot, family: Family) -> list[TableRoute]:
    return [one for one in snapshot.routes if (one.family, one.table, one.kind) == (family.number, MAIN, UNICAST)]


def find_routes(snapshot: Snapshot, packet: Packet) -> Iterator[TableRoute | None]:
    """Yield the routes that the packet may take; None where a policy rule drops it or no route leads to its destination."""
    rules = [one for one in snapshot.routing_rules if one.family == packet.family.number]
    return _follow(snapshot, packet, rules, 0)


def find_devices(snapshot: Snapshot, packet: Packet) -> frozenset[str]:
    """The devices through which the packet may leave: lo if it is delivered here, LOST if it is dropped."""
    return frozenset([device for route in find_routes(snapshot, packet) for device in _devices_of(snapshot, route)])


def describe_dropping(route: TableRoute, family: Family) -> str:
    """A route that drops packets, for messages: `the route unreachable 10.0.0.0/8 of table 254`."""
    return f"the route {DROPPING[route.kind]} {Network((family.version, *route.destination))} of table {route.table}"


def why_unroutable(snapshot: Snapshot, packet: Packet) -> str:
    """Why the kernel refuses a socket that would send the packet, before any rule sees it; empty if a way may lead out."""
    routes = [*find_routes(snapshot, packet)]
    if not routes or any(_devices_of(snapshot, one) != {LOST} for one in routes):
        return ""
    dropping = dropping_routes(snapshot, packet.family)
    if found := [one for one in dropping if one in routes]:
        return f"{describe_dropping(found[0], packet.family)} refuses it"
    by_rule = ", or a policy rule refuses it (ip rule)" if dropping_rules(snapshot, packet.family) else ""
    return f"no route leads there{by_rule}"


def find_devices_of_sockets(snapshot: Snapshot, family: Family, destination: int) -> frozenset[str]:
    """The devices for TCP from unbound sockets of any user to a destination.

    The kernel looks up the route once to choose the source address, and again with it.
    """
    packet = Packet(family=family, protocol="tcp", source=0, destination=destination, mark=0)
    found: set[str] = set()
    for device in find_devices(snapshot, packet):
        own = [one for one in snapshot.addresses if one.family == family.number and snapshot.name_of(one.index) == device]
        source = number_of(own[0].address) if own else 0
        found |= find_devices(snapshot, packet.replace(source=source)) if source else {device}
    return frozenset(found)


def _follow(snapshot: Snapshot, packet: Packet, rules: list[RoutingRule], at: int) -> Iterator[TableRoute | None]:
    for number, rule in enumerate(rules[at:], at):
        matched = _matches(snapshot, rule, packet)
        if matched is False or rule.action == NOP:
            continue
        routes: Sequence[TableRoute | None] = (None,)
        if rule.action == GO_TO:
            further = next((place for place in range(number + 1, len(rules)) if rules[place].priority >= rule.goes_to), None)
            routes = () if further is None else tuple(_follow(snapshot, packet, rules, further))
        elif rule.action == LOOK_UP:
            routes = _look_up(snapshot, rule, packet)
        yield from routes
        if matched and routes:
            return
    yield None


def _matches(snapshot: Snapshot, rule: RoutingRule, packet: Packet) -> bool | None:
    """Whether a policy rule matches the packet; None if unknown."""
    tests: list[bool | None] = [
        _is_within(packet.source, rule.source, packet.family),
        _is_within(packet.destination, rule.destination, packet.family),
        (packet.mark & (rule.mask or 0)) == rule.mark,
        not rule.tos,
        rule.in_interface in ("", packet.in_interface or LOOPBACK_DEVICE),  # locally sent packets count as coming in through lo
        not rule.out_interface,  # matches sockets bound to a device
        _is_between(packet.uid, rule.users),
        not rule.ip_protocol or NUMBERS.get(packet.protocol) == rule.ip_protocol,
        _is_between(packet.source_port, rule.source_ports),
        _is_between(packet.destination_port, rule.destination_ports),
    ]
    if rule.others or (rule.is_l3mdev and any(link.kind == VRF_KIND for link in snapshot.links)):
        tests.append(None)
    elif rule.is_l3mdev:
        tests.append(False)
    found = False if False in tests else None if None in tests else True
    return found if found is None or not rule.is_inverted else not found


def _is_within(address: int | None, prefix: tuple[int, int] | None, family: Family) -> bool | None:
    if prefix is None:
        return True
    network = Network((family.version, *prefix))
    return None if address is None else network.first <= address <= network.last


def _is_between(value: int | None, limits: tuple[int, int] | None) -> bool | None:
    if limits is None:
        return True
    return None if value is None else limits[0] <= value <= limits[1]


def _look_up(snapshot: Snapshot, rule: RoutingRule, packet: Packet) -> list[TableRoute]:
    """A table's best routes; none if the next rule applies."""
    fitting = [
        one
        for one in snapshot.routes
        if (one.family, one.table, one.tos) == (packet.family.number, rule.table, 0)
        and _is_within(packet.destination, one.destination, packet.family)
    ]
    fitting = [one for one in fitting if one.destination[1] > rule.suppresses_length]
    longest = max([one.destination[1] for one in fitting], default=0)
    best = [one for one in fitting if one.destination[1] == longest]
    lowest = min([one.metric for one in best], default=0)
    found = [one for one in best if one.metric == lowest]
    return [] if any(one.kind == THROW for one in found) else found


def _devices_of(snapshot: Snapshot, route: TableRoute | None) -> set[str]:
    if route is None:
        return {LOST}
    if route.kind in (DELIVERED_HERE, ANYCAST):
        return {LOOPBACK_DEVICE}
    hops = route.hops if route.kind in (UNICAST, BROADCAST, MULTICAST) else ()
    known = set(map(snapshot.name_of, hops))
    return known or ({one.name for one in snapshot.links} if route.others else {LOST})  # others: nexthops that are not read
