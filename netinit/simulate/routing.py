"""Looks up routes for a packet of this host: policy rules in order, longest prefix, lowest metric.

Where a packet's field, a VRF or an attribute is unknown, both cases are followed, so that there may be several routes
(net/core/fib_rules.c, net/ipv4/fib_rules.c).
"""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.net import IPV4, Family, Network, number_of
from netinit.base.snapshot import RoutingRule, Snapshot, TableRoute
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet

LOOK_UP, GO_TO, NOP = 1, 2, 3  # FR_ACT_*; all others drop
UNICAST, DELIVERED_HERE, BROADCAST, ANYCAST, MULTICAST, THROW = 1, 2, 3, 4, 5, 9  # RTN_*; RTN_LOCAL is delivered here
NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": 58, "sctp": 132, "udplite": 136}
LOST = ""  # leads nowhere: blackhole, unreachable, prohibit, no route
SAMPLES = {  # public addresses from every eighth of IPv4 and every IPv6 registry
    4: ("1.1.1.1", "45.1.1.1", "80.1.1.1", "110.1.1.1", "140.1.1.1", "170.1.1.1", "200.1.1.1", "220.1.1.1"),
    6: ("2001:4860::1", "2400::1", "2600::1", "2800::1", "2a00::1", "2c00::1"),
}


def find_devices(snapshot: Snapshot, packet: Packet) -> frozenset[str]:
    """The devices through which the packet may leave: lo if it stays here, LOST if it is dropped."""
    rules = [one for one in snapshot.routing_rules if one.family == packet.family.number]
    return frozenset(_follow(snapshot, packet, rules, 0))


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


def _follow(snapshot: Snapshot, packet: Packet, rules: list[RoutingRule], at: int) -> Iterator[str]:
    for number, rule in enumerate(rules[at:], at):
        matched = _matches(snapshot, rule, packet)
        if matched is False or rule.action == NOP:
            continue
        ways: set[str] | None = {LOST}
        if rule.action == GO_TO:
            further = next((place for place in range(number + 1, len(rules)) if rules[place].priority >= rule.goes_to), None)
            ways = None if further is None else set(_follow(snapshot, packet, rules, further))
        elif rule.action == LOOK_UP:
            ways = _look_up(snapshot, rule, packet)
        yield from ways or ()
        if matched and ways is not None:
            return
    yield LOST


def _matches(snapshot: Snapshot, rule: RoutingRule, packet: Packet) -> bool | None:
    """Whether a policy rule matches the packet; None if unknown."""
    tests: list[bool | None] = [
        _is_within(packet.source, rule.source, packet.family),
        _is_within(packet.destination, rule.destination, packet.family),
        (packet.mark & (rule.mask or 0)) == rule.mark,
        not rule.tos,
        rule.in_interface in ("", LOOPBACK_DEVICE),  # locally sent packets count as coming in through lo
        not rule.out_interface,  # matches sockets bound to a device
        _is_between(packet.uid, rule.users),
        not rule.ip_protocol or NUMBERS.get(packet.protocol) == rule.ip_protocol,
        _is_between(packet.source_port, rule.source_ports),
        _is_between(packet.destination_port, rule.destination_ports),
    ]
    if rule.others or (rule.is_l3mdev and any(link.kind == "vrf" for link in snapshot.links)):
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


def _look_up(snapshot: Snapshot, rule: RoutingRule, packet: Packet) -> set[str] | None:
    """The devices of a table's best route; None if it has none and the next rule applies."""
    fitting = [
        one
        for one in snapshot.routes
        if (one.family, one.table, one.tos) == (packet.family.number, rule.table, 0)
        and _is_within(packet.destination, one.destination, packet.family)
    ]
    fitting = [one for one in fitting if one.destination[1] > rule.suppresses_length]
    if not fitting:
        return None
    longest = max(one.destination[1] for one in fitting)
    best = [one for one in fitting if one.destination[1] == longest]
    lowest = min(one.metric for one in best)
    found: set[str] = set()
    for route in [one for one in best if one.metric == lowest]:
        if route.kind == THROW:
            return None
        found |= _devices_of(snapshot, route)
    return found


def _devices_of(snapshot: Snapshot, route: TableRoute) -> set[str]:
    if route.kind in (DELIVERED_HERE, ANYCAST):
        return {LOOPBACK_DEVICE}
    if route.kind in (UNICAST, BROADCAST, MULTICAST):
        return {snapshot.name_of(hop.index) for hop in route.hops} or {LOST}
    return {LOST}


def sample_destinations(family: Family) -> Iterator[int]:
    """Addresses outside any pod network."""
    yield from map(number_of, SAMPLES[4 if family is IPV4 else 6])
