"""What is known of the check of sources, and what is not, from snapshots."""

from __future__ import annotations

import pytest

from netinit.base.net import IPV4, IPV6, HostAddress, number_of
from netinit.base.snapshot import Device, RoutingRule, Snapshot, TableRoute
from netinit.live.reverse_path import PASSES, check_marked, check_source, warn_of_refused
from netinit.rules.packet_inputs import Packet

FAR = number_of("203.0.113.7")
PACKET = Packet(family=IPV4, protocol="tcp", source=FAR, destination=number_of("10.1.0.2"), in_interface="eth1")
OWN = number_of("10.0.0.2")
MARKED = RoutingRule(family=2, priority=9, action=1, table=133, mark=1337, mask=0xFFFFFFFF)
FOR_A_PORT = RoutingRule(family=2, priority=9, action=1, table=100, destination_ports=(80, 80))
UNREADABLE = RoutingRule(family=2, priority=9, action=1, table=100, others=(99,))


def route(table, device, *more, to=(0, 0), **others):
    return TableRoute(**{"family": 2, "table": table, "kind": 1, "destination": to, "hops": (device, *more), **others})


TO_LO = route(133, 1, kind=2)
OF_ETH0 = route(254, 2, to=(OWN, 32), kind=2, protocol=2)


def host(*rules, routes=()):
    main = RoutingRule(family=2, priority=32766, action=1, table=254)
    return Snapshot(
        links=tuple([Device(index=number, name=name, flags=1) for number, name in ((1, "lo"), (2, "eth0"), (3, "eth1"))]),
        addresses=tuple([HostAddress(family=2, address=address, length=24, index=index) for index, address in ((2, "10.0.0.2"), (3, "10.1.0.2"))]),
        routing_rules=(*rules, main), routes=routes or (route(254, 2), route(100, 3)),
    )  # fmt: skip


def with_filter(every, own):
    values = (("all", every), ("eth1", own))
    return host().replace(settings=tuple([(f"ipv4/conf/{name}/rp_filter", str(value)) for name, value in values if value is not None]))


def with_settings(snapshot, device="eth1", **values):
    """A host with these settings, of `all` and a device alike, and without rp_filter; None: not read."""
    given = [(name, value) for name, value in {"rp_filter": 0, **values}.items() if value is not None]
    return snapshot.replace(settings=tuple([(f"ipv4/conf/{at}/{name}", str(value)) for at in ("all", device) for name, value in given]))


@pytest.mark.parametrize(("every", "own", "drops"), [
    (0, 0, False), (1, 0, True), (0, 1, True), (1, 2, False), (None, None, None), (0, None, None), (None, 0, None), (1, None, None),
])  # fmt: skip
def test_a_setting_that_was_not_read_leaves_it_unknown(every, own, drops):
    assert check_source(with_filter(every, own), PACKET).drops is drops


def test_what_is_routed_back_passes_whatever_the_setting_is():
    assert check_source(host(), PACKET.replace(in_interface="eth0")) == PASSES


def test_one_of_several_hops_of_the_route_back_is_enough():
    settings = with_filter(1, 1).settings
    assert check_source(host(routes=(route(254, 2, 3),)).replace(settings=settings), PACKET) == PASSES


def test_a_policy_rule_that_is_not_understood_leaves_it_unknown():
    found = check_source(host(UNREADABLE).replace(settings=with_filter(1, 1).settings), PACKET)
    assert found.drops is None
    assert "by more than a packet shows" in found.reason


def test_ipv6_has_no_such_check_nor_has_lo():
    strict = with_filter(1, 1)
    assert check_source(strict, PACKET.replace(in_interface="lo")) == PASSES
    assert check_source(strict, Packet(family=IPV6, protocol="tcp", source=1, destination=2, in_interface="eth1")) == PASSES


def test_only_devices_with_a_default_route_are_warned_of():
    assert [line.partition(",")[0] for line in warn_of_refused(with_filter(1, 0))] == ["IPv4: packets that come in through eth1"]
    assert not list(warn_of_refused(with_filter(1, 0).replace(routes=(route(254, 2),))))


def test_a_packet_of_unknown_ports_is_judged_as_both_routes_say():
    strict = with_settings(host(FOR_A_PORT), rp_filter=1)
    assert check_source(strict, PACKET).drops is None
    assert check_source(strict, PACKET.replace(source_port=80)) == PASSES
    assert check_source(strict, PACKET.replace(source_port=5000)).drops
    assert check_source(with_settings(host(FOR_A_PORT)), PACKET) == PASSES


def test_a_policy_rule_for_a_port_hides_no_device_from_the_warning():
    strict = with_settings(host(FOR_A_PORT), rp_filter=1)
    assert [line.partition(" drops ")[0] for line in warn_of_refused(strict)] == [
        "IPv4: packets that come in through eth1, for example from 1.1.1.1, are dropped: reverse path filtering (net.ipv4.conf.all.rp_filter=1)"
    ]


@pytest.mark.parametrize(("marking", "mark", "drops"), [
    (1, 1337, True), (0, 1337, False), (None, 1337, None), (None, 0, False), (1, 0, False),
])  # fmt: skip
def test_a_mark_counts_as_src_valid_mark_says_and_not_as_if_it_were_off_where_it_was_not_read(marking, mark, drops):
    marked = with_settings(host(MARKED, routes=(route(254, 3), TO_LO)), src_valid_mark=marking, accept_local=0)
    found = check_source(marked, PACKET.replace(mark=mark))
    assert found.drops is drops
    assert found.remedy == ("net.ipv4.conf.all.src_valid_mark=0 net.ipv4.conf.eth1.src_valid_mark=0" if drops else "")
    assert ("by its mark if src_valid_mark is set, which is not known" in found.reason) is (drops is None)


@pytest.mark.parametrize(("is_known", "drops"), [(True, False), (False, None)])
def test_a_mark_that_is_not_known_may_be_that_of_any_policy_rule(is_known, drops):
    marked = with_settings(host(MARKED, routes=(route(254, 3), TO_LO)), src_valid_mark=1, accept_local=0)
    assert check_source(marked, PACKET, is_mark_known=is_known).drops is drops


@pytest.mark.parametrize(("accepting", "strictness", "drops"), [
    (0, 0, True), (1, 0, False), (None, 0, None), (0, None, True), (1, None, None), (1, 1, True), (1, 2, False),
])  # fmt: skip
def test_a_source_of_its_own_needs_accept_local_and_the_filter_of_another_device(accepting, strictness, drops):
    own = with_settings(host(routes=(OF_ETH0,)), accept_local=accepting, rp_filter=strictness)
    assert check_source(own, PACKET.replace(source=OWN)).drops is drops


def test_the_settings_of_the_65th_device_are_not_off_because_they_are_not_read():
    beyond = with_settings(host(MARKED, routes=(route(254, 3), TO_LO, OF_ETH0)), "eth0", src_valid_mark=0, accept_local=0)
    assert check_source(beyond, PACKET.replace(mark=1337)).drops is None
    assert check_source(beyond, PACKET.replace(source=OWN)).drops is None


def test_a_route_to_lo_is_one_to_this_host_only_by_its_type():
    routes = (route(254, 1),)
    assert check_source(with_settings(host(routes=routes)), PACKET) == PASSES
    strict = check_source(with_settings(host(routes=routes), rp_filter=1), PACKET)
    assert "rp_filter=1) drops what comes in through eth1: the route back to 203.0.113.7 leaves through lo" in strict.reason


@pytest.mark.parametrize("routes", [
    (route(254, 2), route(254, 3)),  # of which the kernel takes the first whose device is up
    (TableRoute(family=2, table=254, kind=1, destination=(0, 0), others=(30,)),),  # by a nexthop object that is not read
])  # fmt: skip
def test_a_route_back_that_is_one_of_several_or_not_read_leaves_it_unknown(routes):
    assert check_source(with_settings(host(routes=routes), rp_filter=1), PACKET).drops is None
    assert check_source(with_settings(host(routes=routes)), PACKET) == PASSES


def test_the_way_back_of_what_is_forwarded_begins_where_it_leaves():
    inwards = RoutingRule(family=2, priority=9, action=1, table=100, in_interface="eth0")
    strict = with_settings(host(inwards), rp_filter=1)
    assert check_source(strict, PACKET.replace(out_interface="eth0")) == PASSES
    assert check_source(strict, PACKET).drops


@pytest.mark.parametrize(
    ("routed", "drops", "reason"),
    [
        (1, False, ""), (0, True, "the kernel takes nothing from 127.0.0.0/8 that comes in through eth1"),
        (None, None, "the kernel takes nothing from 127.0.0.0/8 that comes in through eth1, unless route_localnet is set there, which is not known"),
    ],
)  # fmt: skip
def test_a_loopback_source_from_outside_needs_a_setting(routed, drops, reason):
    found = check_source(with_settings(host(), route_localnet=routed), PACKET.replace(source=number_of("127.0.0.6")))
    assert (found.drops, found.reason) == (drops, reason)


def test_without_its_source_a_packet_is_not_judged():
    assert check_source(with_settings(host()), PACKET.replace(source=None)).drops is None


BACK = "the route back to 203.0.113.7"
STRICTLY = "reverse path filtering (net.ipv4.conf.{}.rp_filter={}) drops what comes in through eth1"
NO_OWN = "the kernel takes no source of its own from eth1"
LOOSEN = "net.ipv4.conf.eth1.rp_filter=2"
NOT_FAR = (route(254, 2, to=(number_of("10.0.0.0"), 8)),)
TO_FAR = (FAR, 32)
BROADCAST, HERE = route(254, 2, to=TO_FAR, kind=3), route(254, 1, to=TO_FAR, kind=2, protocol=2)
BY_MARK = host(MARKED, routes=(route(254, 3), TO_LO))
WITHOUT_ADDRESS = host().replace(addresses=host().addresses[:1])
UNMARK = "net.ipv4.conf.all.src_valid_mark=0 net.ipv4.conf.eth1.src_valid_mark=0"


@pytest.mark.parametrize(("snapshot", "packet", "reason", "remedy"), [
    (with_filter(1, 0), {}, f"{STRICTLY.format('all', 1)}: {BACK} leaves through eth0", LOOSEN),
    (with_filter(1, 1), {}, f"{STRICTLY.format('all', 1)}: {BACK} leaves through eth0", LOOSEN),
    (with_filter(0, 1), {}, f"{STRICTLY.format('eth1', 1)}: {BACK} leaves through eth0", LOOSEN),
    (with_filter(None, 0), {}, f"{BACK} leaves through eth0, and whether rp_filter is strict on eth1 is not known", ""),
    (with_settings(WITHOUT_ADDRESS, rp_filter=1), {}, f"{STRICTLY.format('all', 1)}: {BACK} leaves through eth0", ""),
    (with_settings(WITHOUT_ADDRESS, rp_filter=2), {}, f"{STRICTLY.format('all', 2)}: {BACK} leaves through eth0", ""),
    (with_settings(host(routes=NOT_FAR), rp_filter=2), {}, f"{STRICTLY.format('all', 2)}: {BACK} is missing", ""),
    (with_settings(host(routes=(route(254, 0, to=TO_FAR, kind=6, hops=()),)), rp_filter=1), {}, f"{STRICTLY.format('all', 1)}: {BACK} is missing", ""),
    (
        with_settings(host(routes=(route(254, 2), route(254, 3))), rp_filter=1), {},
        f"{STRICTLY.format('all', 1)}, or not: {BACK} leaves through eth0 or eth1, by more than a packet shows", "",
    ),
    (
        with_settings(host(routes=(route(254, 2, hops=(), others=(30,)),)), rp_filter=1), {},
        f"{BACK} leaves through a device that is not known, and whether that is eth1 is not known", "",
    ),
    (with_settings(host(routes=(OF_ETH0,)), accept_local=0), {"source": OWN}, f"{NO_OWN}: the route back to 10.0.0.2 stays in this pod", ""),
    (
        with_settings(host(routes=(OF_ETH0,)), accept_local=None), {"source": OWN},
        "the route back to 10.0.0.2 stays in this pod, and whether accept_local is set on eth1 is not known", "",
    ),
    (
        with_settings(host(routes=(OF_ETH0,)), accept_local=1, rp_filter=1), {"source": OWN},
        f"{STRICTLY.format('all', 1)}: the route back to 10.0.0.2 stays in this pod", LOOSEN,
    ),
    (with_settings(host(routes=(HERE.replace(protocol=3),)), accept_local=0), {}, f"{NO_OWN}: {BACK} stays in this pod", ""),
    (  # the kernel has no reason to look for routes to sources
        with_settings(host(routes=(HERE,)), accept_local=0), {},
        f"{BACK} stays in this pod, and whether the kernel looks for routes to sources from eth1 is not known", "",
    ),
    (
        with_settings(host(routes=(BROADCAST,)), accept_local=0), {},
        f"{BACK} leaves through eth0, and whether the kernel looks for routes to sources from eth1 is not known", "",
    ),
    (
        with_settings(host(routes=(BROADCAST,)), accept_local=1, rp_filter=1), {},
        f"the kernel takes no broadcast or multicast address as a source from eth1: {BACK} leaves through eth0", "",
    ),
    (
        with_settings(BY_MARK, src_valid_mark=1, accept_local=0), {"mark": 1337},
        f"{NO_OWN}: {BACK} stays in this pod, by its mark (net.ipv4.conf.all.src_valid_mark is set)", UNMARK,
    ),
    (
        with_settings(host(MARKED, routes=(route(254, 2), TO_LO)), src_valid_mark=1, accept_local=0, rp_filter=1), {"mark": 1337},
        f"{NO_OWN}: {BACK} stays in this pod, by its mark (net.ipv4.conf.all.src_valid_mark is set)", "",  # without the mark it is dropped too
    ),
    (
        with_settings(BY_MARK, src_valid_mark=None, accept_local=0), {"mark": 1337},
        f"{NO_OWN}, or not: {BACK} leaves through eth1 or stays in this pod, by its mark if src_valid_mark is set, which is not known, by more than a packet shows", "",
    ),
    (with_settings(host()), {"source": None}, "its source, which the kernel checks, is not known", ""),
])  # fmt: skip
def test_the_reason_names_the_setting_and_the_route_and_the_remedy_is_one_that_helps(snapshot, packet, reason, remedy):
    found = check_source(snapshot, PACKET.replace(**packet))
    assert (found.reason, found.remedy) == (reason, remedy)
    assert found.drops is (None if "not known" in reason or "or not:" in reason else True)


@pytest.mark.parametrize(("settings", "drops"), [
    ({"src_valid_mark": 1, "accept_local": 0}, True), ({"src_valid_mark": 1, "accept_local": 0, "rp_filter": 1}, True),
    ({"src_valid_mark": 0, "accept_local": 0, "rp_filter": 1}, False), ({"src_valid_mark": 1, "accept_local": 1}, False),
    ({"src_valid_mark": None, "accept_local": 0}, None),
])  # fmt: skip
def test_marked_packets_that_a_policy_rule_delivers_need_accept_local_or_no_mark_in_the_check(settings, drops):
    """Whatever the host's own routes and policy rules are: doctor asks before there is a plan."""
    found = check_marked(with_settings(host(FOR_A_PORT, routes=NOT_FAR), **settings), host().links[2])
    why = f"{NO_OWN}: the route back to 198.51.100.7 stays in this pod, by its mark (net.ipv4.conf.all.src_valid_mark is set)"
    assert (found.drops, found.remedy) == (drops, UNMARK if drops else "")
    assert drops is None or found.reason == (why if drops else "")


def test_a_device_is_warned_of_with_an_example_the_reason_and_a_remedy():
    strict = with_settings(host(), rp_filter=1)
    came = "IPv4: packets that come in through eth1, for example from 1.1.1.1,"
    dropped = f"{came} are dropped: {STRICTLY.format('all', 1)}: the route back to 1.1.1.1 leaves through eth0; set {LOOSEN}"
    assert list(warn_of_refused(strict)) == [dropped]
    unread = f"{came} may be dropped: the route back to 1.1.1.1 leaves through eth0, and whether rp_filter is strict on eth1 is not known"
    assert list(warn_of_refused(with_settings(host(), rp_filter=None))) == [unread]
    marked = list(warn_of_refused(with_settings(BY_MARK, src_valid_mark=1, accept_local=0)))
    assert [line.partition(": ")[2].partition(": ")[0] for line in marked] == ["packets that come in through eth1, for example from 1.1.1.1, are dropped"]
    for changes in (
        {"links": tuple([one.replace(flags=0) for one in strict.links])}, {"addresses": strict.addresses[:1]}, {"routes": (route(254, 2),)},
        {"links": tuple([one.replace(name="lo" if one.index == 3 else one.name) for one in strict.links])},
    ):  # fmt: skip
        assert list(warn_of_refused(strict.replace(**changes))) == [], changes
