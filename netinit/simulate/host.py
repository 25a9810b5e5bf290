"""Addresses and routes of a snapshot's host, as far as packets' paths depend on them."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.net import FULL_MASK, IPV4, Family, Network, number_of
from netinit.base.snapshot import AttachedProgram, RoutingRule, Snapshot, TableRoute
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Surroundings
from netinit.simulate.routing import BROADCAST, DELIVERED_HERE, LOOK_UP, UNICAST

DEFAULT, MAIN, LOCAL = 253, 254, 255  # RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL
LOOPBACK_INDEX = 1
LOST = {6: "blackhole", 7: "unreachable", 8: "prohibit"}  # RTN_*, and FR_ACT_* alike
NO_DEFAULT = 0xFFFFFFFF  # as a metric


def surroundings_of(snapshot: Snapshot, family: Family) -> Surroundings:
    """The host with its main table's routes, lowest metric first; `is_simple` says whether that is exact."""
    names = {link.index: link.name for link in snapshot.links}
    addresses = [(names.get(one.index, ""), number_of(one.address)) for one in snapshot.addresses if one.family == family.number]
    routes: dict[Network, str] = {}
    for route in sorted(_main_routes(snapshot, family), key=lambda route: route.metric):
        if route.hops:
            routes.setdefault(Network((family.version, *route.destination)), names.get(route.hops[0].index, ""))
    delivered = [*_delivered_here(snapshot, family)]
    for network, _ in delivered:
        routes.setdefault(network, LOOPBACK_DEVICE)
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
        local_networks=tuple(network for network, table in delivered if table == LOCAL or family is not IPV4),
        doubtful=_doubtful(snapshot, family),
        local_marks=frozenset((rule.mark, rule.mask or FULL_MASK) for rule in rules_to_lo(snapshot, family)),
    )  # fmt: skip


def describe_node_program(program: AttachedProgram) -> str:
    """The warning about a BPF program of the node, such as Cilium's for services."""
    return f"BPF {program} acts on every process of the node: it may redirect connections before any rule sees them"


def routes_that_stay(snapshot: Snapshot, family: Family) -> Iterator[TableRoute]:
    """Routes to this host or lo for addresses that are not its own, which unmarked packets can take."""
    reached = {rule.table for rule in snapshot.routing_rules if rule.family == family.number and not rule.mark}
    own = {number_of(one.address) for one in snapshot.addresses if one.family == family.number}
    loopback = Network.parse("127.0.0.0/8" if family is IPV4 else "::1/128")
    for route in snapshot.routes:
        if route.family != family.number or route.table not in {*reached, MAIN, LOCAL}:
            continue
        network = Network((family.version, *route.destination))
        is_own = network.first in own and network.length == family.bits
        within_loopback = loopback.first <= network.first and network.last <= loopback.last
        leads_here = route.kind == DELIVERED_HERE or (route.kind == UNICAST and any(hop.index == LOOPBACK_INDEX for hop in route.hops))
        if leads_here and not (is_own or within_loopback):
            yield route


def _doubtful(snapshot: Snapshot, family: Family) -> tuple[Network, ...]:
    """Networks that policy rules may deliver here, and networks that are dropped.

    What the usual tables deliver here is among the routes instead.
    """
    kept = [one.destination for one in routes_that_stay(snapshot, family) if one.table not in (MAIN, LOCAL)]
    kept += [one.destination for one in dropping_routes(snapshot, family)]
    kept += [one.destination or (0, 0) for one in dropping_rules(snapshot, family)]
    return tuple(Network((family.version, *one)) for one in kept)


def dropping_rules(snapshot: Snapshot, family: Family) -> list[RoutingRule]:
    """Policy rules that drop packets."""
    return [one for one in snapshot.routing_rules if one.family == family.number and one.action in LOST]


def dropping_routes(snapshot: Snapshot, family: Family) -> list[TableRoute]:
    """Routes that drop packets, in tables that are looked up, without IPv6's own "no default route"."""
    tables = {*[one.table for one in snapshot.routing_rules if one.family == family.number], MAIN, LOCAL}
    found = [one for one in snapshot.routes if one.family == family.number and one.kind in LOST and one.table in tables]
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
    plain = all(len(one.hops) <= 1 and not (one.others or one.tos) for one in routes)
    return plain and len(set(ways)) == len(ways) and all(_is_usual(rule) or rule in to_lo for rule in rules)


def _is_usual(rule: RoutingRule) -> bool:
    """Whether it is one of a network namespace's three default rules."""
    return rule.table in (DEFAULT, MAIN, LOCAL) and rule == _bare(rule)


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


def _delivered_here(snapshot: Snapshot, family: Family) -> Iterator[tuple[Network, int]]:
    """Networks delivered to this host that no device has (`ip route add local NETWORK dev lo`), with their tables.

    The kernel calls them LOCAL: for IPv4 if the table local has them, for IPv6 if any table does.
    """
    own = {number_of(one.address) for one in snapshot.addresses if one.family == family.number}
    for route in snapshot.routes:
        if (route.family, route.kind) == (family.number, DELIVERED_HERE) and route.table in (MAIN, LOCAL):
            network = Network((family.version, *route.destination))
            loopback = network.first >> 24 == 127 if family is IPV4 else False  # noqa: PLR2004 - 127.0.0.0/8
            if not loopback and not (network.length == family.bits and network.first in own):
                yield network, route.table
