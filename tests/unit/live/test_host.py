"""Policy rules and tables, in the order in which the kernel asks them."""

from __future__ import annotations

import pytest

from core import plan
from netinit.base.net import FAMILIES, IPV4, IPV6, HostAddress, Network, number_of
from netinit.base.snapshot import (
    Device,
    RoutingRule,
    Snapshot,
    TableRoute,
)
from netinit.live.host import (
    LOST,
    NO_DEFAULT,
    addresses_on_loopback,
    dropping_routes,
    find_devices,
    find_devices_of_sockets,
    find_loopback_fault,
    is_simple,
    routes_that_stay,
    surroundings_of,
    why_unroutable,
)
from netinit.options import Options
from netinit.rules.packet_inputs import Packet
from sweeps import together

LO, ETH0, ETH1 = 1, 2, 3
OUTSIDE = number_of("203.0.113.7")
PACKET = Packet(
    family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), destination=OUTSIDE, source_port=40000, destination_port=80, uid=1000
)


def route(table, device, *, to="0.0.0.0/0", kind=1, metric=0, more=()):
    address, _, length = to.partition("/")
    hops = tuple(filter(None, (device, *more)))
    return TableRoute(family=2, table=table, kind=kind, destination=(number_of(address), int(length)), metric=metric, hops=hops)


def host(*rules, routes=()):
    main = RoutingRule(family=2, priority=32766, action=1, table=254)
    return Snapshot(
        links=tuple(Device(index=number, name=name) for number, name in ((LO, "lo"), (ETH0, "eth0"), (ETH1, "eth1"))),
        addresses=(HostAddress(family=2, address="10.0.0.2", length=24, index=ETH0), HostAddress(family=2, address="10.1.0.2", length=24, index=ETH1)),
        routing_rules=(*rules, main), routes=(route(254, ETH0), route(100, ETH1), *routes),
    )


def rule(**more):
    return RoutingRule(**{"family": 2, "priority": 100, "action": 1, "table": 100, **more})


@together(("asked", "ways"), [
    ({}, {"eth1"}),
    ({"source": (number_of("10.0.0.0"), 24)}, {"eth1"}),
    ({"source": (number_of("10.9.0.0"), 24)}, {"eth0"}),
    ({"source": (number_of("10.9.0.0"), 24), "is_inverted": True}, {"eth1"}),
    ({"destination": (OUTSIDE, 32)}, {"eth1"}),
    ({"mark": 1, "mask": 1}, {"eth0"}),
    ({"users": (500, 1500)}, {"eth1"}),
    ({"users": (0, 0)}, {"eth0"}),
    ({"ip_protocol": 6, "destination_ports": (80, 90)}, {"eth1"}),
    ({"ip_protocol": 17}, {"eth0"}),
    ({"source_ports": (1, 1023)}, {"eth0"}),
    ({"in_interface": "lo"}, {"eth1"}),
    ({"in_interface": "eth1"}, {"eth0"}),
    ({"out_interface": "eth1"}, {"eth0"}),
    ({"suppresses_length": 0}, {"eth0"}),
    ({"table": 55}, {"eth0"}),
    ({"action": 7}, {LOST}),
    ({"action": 2, "goes_to": 32766}, {"eth0"}),
    ({"action": 2, "goes_to": 100}, {"eth0"}),  # not to itself
    ({"action": 2, "goes_to": 40000}, {"eth0"}),
    ({"action": 3}, {"eth0"}),
    ({"others": (99,)}, {"eth0", "eth1"}),
    ({"is_l3mdev": True}, {"eth0"}),
    ({"tos": 16}, {"eth0"}),
    ({"others": (99,), "is_inverted": True}, {"eth0", "eth1"}),
    ({"destination": (OUTSIDE + 1, 32)}, {"eth0"}),
    ({"users": (1000, 1000)}, {"eth1"}),
    ({"source_ports": (40000, 40000)}, {"eth1"}),
    ({"destination_ports": (81, 90)}, {"eth0"}),
])  # fmt: skip
def test_a_policy_rule_decides_for_what_it_matches(asked, ways):
    assert find_devices(host(rule(**asked)), PACKET) == ways


@pytest.mark.parametrize(("routes", "ways"), [
    ([route(254, ETH1, to="203.0.113.0/24")], {"eth1"}),
    ([route(254, ETH1, metric=900)], {"eth0"}),
    ([route(254, LO, to="203.0.113.7/32", kind=2)], {"lo"}),
    ([route(254, 0, to="203.0.113.7/32", kind=6)], {LOST}),
    ([route(254, ETH0, to="203.0.113.0/24", more=(ETH1,))], {"eth0", "eth1"}),
])  # fmt: skip
def test_the_longest_prefix_and_the_lowest_metric_win(routes, ways):
    assert find_devices(host(routes=routes), PACKET) == ways


def test_a_route_that_throws_leaves_it_to_the_next_rule():
    assert find_devices(host(rule(), routes=[route(100, 0, to="203.0.113.7/32", kind=9)]), PACKET) == {"eth0"}


def test_what_is_not_known_of_a_packet_is_followed_both_ways():
    assert find_devices(host(rule(users=(0, 9))), PACKET.replace(uid=None)) == {"eth0", "eth1"}


def test_a_packet_that_comes_in_meets_the_policy_rules_of_its_device():
    diverted = host(rule(in_interface="eth0"), routes=[route(255, LO, to="10.0.0.2/32", kind=2)])
    arriving = PACKET.replace(source=OUTSIDE, destination=number_of("10.0.0.2"))
    assert find_devices(diverted, arriving.replace(in_interface="eth0")) == {"eth1"}
    assert find_devices(diverted, arriving.replace(in_interface="eth1")) == {"eth0"}
    delivered = host(rule(in_interface="eth0", table=255, priority=9), rule(in_interface="eth0"), routes=diverted.routes)
    assert find_devices(delivered, arriving.replace(in_interface="eth0")) == {"lo"}


def test_a_socket_without_an_address_gets_that_of_its_way_first():
    from_eth0, from_eth1 = ((number_of(address), 32) for address in ("10.0.0.2", "10.1.0.2"))
    assert find_devices_of_sockets(host(rule(source=from_eth0)), IPV4, OUTSIDE) == {"eth1"}
    assert find_devices_of_sockets(host(rule(source=from_eth1)), IPV4, OUTSIDE) == {"eth0"}
    turned = host(rule(source=from_eth0))
    assert find_devices_of_sockets(turned.replace(addresses=turned.addresses[::-1]), IPV4, OUTSIDE) == {"eth1"}, "that of the device, in whatever order"
    assert find_devices_of_sockets(turned.replace(addresses=turned.addresses[1:]), IPV4, OUTSIDE) == {"eth0"}, "it has none"
    sixth = HostAddress(family=10, address="fd00::2", length=64, index=ETH0)
    assert find_devices_of_sockets(turned.replace(addresses=(sixth, *turned.addresses)), IPV4, OUTSIDE) == {"eth1"}


def test_without_a_default_route_the_first_interface_but_lo_is_the_default_one():
    snapshot = host()
    assert surroundings_of(snapshot.replace(routes=(*snapshot.routes, route(254, ETH1, metric=7))), IPV4).default_interface == "eth0"
    assert surroundings_of(snapshot.replace(routes=(route(254, ETH1, metric=7),)), IPV4).default_interface == "eth1"
    local = HostAddress(family=2, address="127.0.0.1", length=8, index=LO)
    assert surroundings_of(snapshot.replace(routes=(), addresses=(local, *snapshot.addresses)), IPV4).default_interface == "eth0"
    assert surroundings_of(snapshot.replace(routes=(), addresses=(local, *snapshot.addresses[1:])), IPV4).default_interface == "eth1"
    assert surroundings_of(snapshot.replace(routes=(), addresses=(local,)), IPV4).default_interface == "eth0"


@pytest.mark.parametrize("table", [254, 255])
def test_a_network_that_is_delivered_here_is_behind_the_loopback_device(table):
    network = Network.parse("198.51.100.0/24")
    around = surroundings_of(host(routes=[route(table, LO, to=str(network), kind=2)]), IPV4)
    assert dict(around.routes)[network] == "lo"
    assert around.local_networks == (network,) * (table == 255)


def test_broadcast_addresses_are_those_of_the_kernel_s_routes():
    routes = [route(255, ETH0, to=to, kind=3) for to in ("10.1.0.255/32", "10.0.0.255/32", "10.0.0.255/32")]
    assert surroundings_of(host(routes=routes), IPV4).broadcasts == (number_of("10.0.0.255"), number_of("10.1.0.255"))


def test_routes_that_drop_are_doubtful_but_not_the_kernel_s_own_for_want_of_a_default_route():
    own = route(254, 0, kind=7, metric=NO_DEFAULT)
    black_hole, whole = route(254, 0, to="198.51.100.0/24", kind=6, metric=NO_DEFAULT), route(254, 0, kind=6, metric=5)
    unseen = route(77, 0, to="192.0.2.0/24", kind=6)
    assert dropping_routes(host(routes=[own, black_hole, whole, unseen]), IPV4) == [black_hole, whole]


@pytest.mark.parametrize(("family", "settings", "forwards", "picks_up"), [
    (IPV4, {}, False, True), (IPV4, {"ipv4/ip_forward": "1"}, True, True), (IPV6, {"ipv4/ip_forward": "1"}, False, True),
    (IPV6, {"ipv6/conf/all/forwarding": "1"}, True, True), (IPV4, {"ipv6/conf/all/forwarding": "1"}, False, True),
    (IPV4, {"ipv4/ip_forward": "0", "netfilter/nf_conntrack_tcp_loose": "0"}, False, False),
    (IPV4, {"netfilter/nf_conntrack_tcp_loose": "1"}, False, True),
])  # fmt: skip
def test_the_host_s_settings_say_whether_it_forwards_and_picks_connections_up(family, settings, forwards, picks_up):
    around = surroundings_of(host().replace(settings=tuple(settings.items())), family)
    assert (around.forwards, around.picks_up) == (forwards, picks_up)


@pytest.mark.parametrize(("changes", "stays"), [
    ({"kind": 2, "to": "198.51.100.0/24"}, True), ({"kind": 2, "to": "10.0.0.2/32"}, False), ({"kind": 2, "to": "10.0.0.3/32"}, True),
    ({"kind": 2, "to": "10.0.0.2/31"}, True), ({"kind": 2, "to": "127.0.0.0/8"}, False), ({"kind": 2, "to": "127.1.0.0/16"}, False),
    ({"kind": 1, "to": "198.51.100.0/24"}, True), ({"kind": 1, "to": "198.51.100.0/24", "device": ETH0}, False),
    ({"kind": 6, "to": "198.51.100.0/24"}, False), ({"kind": 2, "to": "198.51.100.0/24", "table": 100}, False),
    ({"kind": 2, "to": "198.51.100.0/24", "table": 255}, True),
])  # fmt: skip
def test_a_route_to_this_host_for_an_address_that_is_not_its_own_stays(changes, stays):
    made = route(changes.pop("table", 254), changes.pop("device", LO), **changes)
    assert list(routes_that_stay(host(routes=[made]), IPV4)) == [made] * stays


def test_a_route_in_a_table_stays_where_a_rule_without_a_mark_leads_there():
    made = route(100, LO, to="198.51.100.0/24", kind=2)
    assert list(routes_that_stay(host(rule(), routes=[made]), IPV4)) == [made]
    assert list(routes_that_stay(host(rule(mark=1, mask=1), routes=[made]), IPV4)) == []


@pytest.mark.parametrize(("changes", "simple"), [
    ({}, True), ({"others": (9,)}, False), ({"tos": 16}, False), ({"hops": (ETH0, ETH1)}, False), ({"metric": 5}, True),
    ({"table": 100, "tos": 16}, True), ({"destination": (0, 0)}, False),
])  # fmt: skip
def test_routing_is_simple_where_each_network_of_the_main_table_has_one_route(changes, simple):
    made = route(254, ETH1, to="203.0.113.0/24")
    assert is_simple(host(routes=[made.replace(**changes)]), IPV4) is simple


@pytest.mark.parametrize(("rules", "simple"), [
    ([], True), ([rule()], False), ([rule(table=253)], True), ([rule(table=254, users=(0, 9))], False), ([rule(table=254, action=7)], False),
    ([rule(mark=1, mask=1)], False), ([rule(mark=1, mask=1, table=133)], True), ([rule(mark=1, mask=1, table=133, users=(0, 9))], False),
])  # fmt: skip
def test_routing_is_simple_where_rules_deliver_only_marked_packets_here(rules, simple):
    snapshot = host(*rules, routes=[route(133, LO, kind=2)])
    assert is_simple(snapshot, IPV4) is simple
    marks = {(1, 1)} if simple and rules and rules[0].mark else set()
    assert surroundings_of(snapshot, IPV4).local_marks == marks


@pytest.mark.parametrize(("kind", "hops", "others", "ways"), [
    (1, (ETH1,), (), {"eth1"}), (1, (), (30,), {"lo", "eth0", "eth1"}), (1, (), (), {LOST}), (2, (LO,), (), {"lo"}), (2, (), (), {"lo"}),
    (3, (ETH1,), (), {"eth1"}), (4, (ETH1,), (), {"lo"}), (5, (ETH1,), (), {"eth1"}), (6, (ETH1,), (), {LOST}), (8, (), (), {LOST}), (11, (ETH1,), (), {LOST}),
])  # fmt: skip
def test_each_type_of_route_leads_somewhere_here_or_nowhere(kind, hops, others, ways):
    made = TableRoute(family=2, table=254, kind=kind, destination=(OUTSIDE, 32), hops=hops, others=others)
    assert find_devices(host(routes=[made]), PACKET) == ways


@pytest.mark.parametrize(("table", "tos", "length", "ways"), [(254, 16, 32, {"eth0"}), (100, 0, 32, {"eth0"}), (254, 0, 32, {"eth1"}), (254, 0, 24, {"eth1"})])
def test_a_route_of_another_table_or_for_a_type_of_service_is_not_taken(table, tos, length, ways):
    made = TableRoute(family=2, table=table, kind=1, destination=(OUTSIDE if length == 32 else OUTSIDE & ~0xFF, length), hops=(ETH1,), tos=tos)
    assert find_devices(host(routes=[made]), PACKET) == ways


def test_a_rule_that_suppresses_short_prefixes_leaves_longer_ones():
    routes = [route(100, ETH1, to="203.0.113.0/24")]
    assert find_devices(host(rule(suppresses_length=23), routes=routes), PACKET) == {"eth1"}
    assert find_devices(host(rule(suppresses_length=24), routes=routes), PACKET) == {"eth0"}


@pytest.mark.parametrize(("kinds", "ways"), [((), {"eth0"}), (("vrf",), {"eth0", "eth1"})])
def test_a_rule_for_vrfs_may_match_only_where_there_is_one(kinds, ways):
    snapshot = host(rule(is_l3mdev=True))
    links = (*snapshot.links, *[Device(index=9, name="red", kind=kind) for kind in kinds])
    assert find_devices(snapshot.replace(links=links), PACKET) - {"red"} == ways


def test_the_kernel_or_a_daemon_may_have_made_the_three_usual_rules():
    assert is_simple(host(rule(table=254, protocol=2), rule(table=255, protocol=3)), IPV4)
    assert not is_simple(host(rule(table=254, protocol=2, tos=8)), IPV4)


def test_link_local_networks_of_ipv6_have_a_route_on_each_device():
    def sixth(to, length, device):
        return TableRoute(family=10, table=254, kind=1, destination=(number_of(to), length), hops=(device,))

    both = [sixth("fe80::", 64, ETH0), sixth("fe80::", 64, ETH1)]
    assert is_simple(host(routes=both), IPV6)
    assert not is_simple(host(routes=[sixth("fd00::", 64, ETH0), sixth("fd00::", 64, ETH1)]), IPV6)
    assert not is_simple(host(routes=[sixth("fec0::", 64, ETH0), sixth("fec0::", 64, ETH1)]), IPV6)


@pytest.mark.parametrize(("links", "fault"), [
    ((Device(index=1, name="lo", flags=9),), ""), ((Device(index=1, name="lo", flags=8),), "is down"), ((Device(index=2, name="lo", flags=0),), ""), ((), ""),
])  # fmt: skip
def test_the_loopback_device_is_the_first_whatever_its_name(links, fault):
    assert find_loopback_fault(Snapshot(links=links), FAMILIES)[0] == fault


def at(address, length, device):
    return HostAddress(family=10 if ":" in address else 2, address=address, length=length, index=device)


POD, POD_6, LOCAL_4 = at("10.0.0.2", 24, ETH0), at("fd00::2", 64, ETH0), at("127.0.0.1", 8, LO)
BY_ROUTE = TableRoute(family=2, table=255, kind=2, destination=(number_of("127.0.0.0"), 8), hops=(LO,))


@pytest.mark.parametrize(("addresses", "routes", "families", "fault"), [
    ((POD, LOCAL_4), (), FAMILIES, ""), ((POD,), (), FAMILIES, "has no address 127.0.0.1/32"), ((POD, at("127.0.0.1", 8, ETH0)), (), FAMILIES, "has no address 127.0.0.1/32"),
    ((POD, at("127.0.0.2", 8, LO)), (), FAMILIES, ""), ((POD, at("127.0.0.2", 32, LO)), (), FAMILIES, "has no address 127.0.0.1/32"),
    ((POD,), (BY_ROUTE,), FAMILIES, ""), ((POD,), (BY_ROUTE.replace(table=100),), FAMILIES, "has no address 127.0.0.1/32"),
    ((POD, LOCAL_4, POD_6, at("::6", 128, LO)), (), FAMILIES, "has no address ::1/128"), ((POD, LOCAL_4, POD_6, at("::1", 128, LO)), (), FAMILIES, ""),
    ((POD, LOCAL_4, POD_6), (), (IPV4,), ""), ((), (), FAMILIES, ""),
])  # fmt: skip
def test_what_is_redirected_needs_the_loopback_address_of_each_family_that_the_pod_has(addresses, routes, families, fault):
    links = (Device(index=LO, name="lo", flags=9), Device(index=ETH0, name="eth0", flags=1))
    found, remedy = find_loopback_fault(Snapshot(links=links, addresses=addresses, routes=routes), families)
    assert found == fault
    assert ("disable_ipv6" in remedy, remedy.startswith("add it: ip address add ")) == ("::1" in fault, bool(fault))


def test_foreign_addresses_of_lo_alone_stay_in_the_pod():
    given = [("127.0.0.1", LO), ("127.255.255.255", LO), ("128.0.0.0", LO), ("203.0.113.9", LO), ("203.0.113.10", LO), ("203.0.113.10", ETH0), ("203.0.113.11", ETH0)]
    addresses = [HostAddress(family=2, address=address, length=32, index=index) for address, index in given]
    sixth = HostAddress(family=10, address="fd00::9", length=128, index=LO)
    snapshot = Snapshot(addresses=(*addresses, sixth))
    made = plan(Options.from_argv(["-b", "*", "--ipv6", "on"]))
    assert addresses_on_loopback(snapshot, made, IPV4) == {number_of("128.0.0.0"), number_of("203.0.113.9")}
    assert addresses_on_loopback(snapshot, made, IPV6) == {number_of("fd00::9")}
    (own,) = [one for one in made.addresses if one.family is IPV6]
    ours = sixth.replace(address=own.cidr.partition("/")[0])
    assert addresses_on_loopback(Snapshot(addresses=(ours,)), made, IPV6) == frozenset()


def test_networks_that_a_lookup_does_not_settle_are_doubtful():
    """Those delivered here by a table of a policy rule, and what is dropped by a route or by a rule."""
    routes = [route(100, LO, to="198.51.100.0/24", kind=2), route(254, 0, to="192.0.2.0/24", kind=7)]
    drops = rule(action=8, table=0, destination=(number_of("203.0.113.0"), 24))
    around = surroundings_of(host(rule(), drops, routes=routes), IPV4)
    assert around.doubtful == tuple(map(Network.parse, ("198.51.100.0/24", "192.0.2.0/24", "203.0.113.0/24")))
    assert around.local_networks == ()
    everything = surroundings_of(host(rule(action=8, table=0)), IPV4)
    assert everything.doubtful == (Network.parse("0.0.0.0/0"),)


def test_an_address_or_route_of_a_device_that_is_not_there_is_of_none():
    snapshot = host(routes=[route(254, 99, to="198.51.100.0/24")])
    around = surroundings_of(snapshot.replace(addresses=(HostAddress(family=2, address="10.9.0.2", length=24, index=99),)), IPV4)
    assert around.addresses == (("", number_of("10.9.0.2")),)
    assert dict(around.routes)[Network.parse("198.51.100.0/24")] == ""


@pytest.mark.parametrize(
    ("routes", "rules", "why"),
    [
        ([], [], ""), ([route(254, 0, to="203.0.113.0/24", kind=7)], [], "the route unreachable 203.0.113.0/24 of table 254 refuses it"),
        ([route(100, 0, to="203.0.113.7/32", kind=8)], [rule()], "the route prohibit 203.0.113.7/32 of table 100 refuses it"),
        ([route(254, 0, to="192.0.2.0/24", kind=6)], [], ""),
        ([], [rule(action=8, table=0)], "no route leads there, or a policy rule refuses it (ip rule)"),
        ([], [rule(action=8, table=0, users=(0, 0))], ""),
    ],
)  # fmt: skip
def test_what_refuses_a_packet_before_any_rule_is_named(routes, rules, why):
    assert why_unroutable(host(*rules, routes=routes), PACKET) == why


def test_without_any_route_none_leads_there():
    assert why_unroutable(host().replace(routes=()), PACKET) == "no route leads there"
    unknown = host(rule(action=8, table=0, users=(0, 9)))
    assert why_unroutable(unknown, PACKET.replace(uid=None)) == "", "another user's packet finds its way"
