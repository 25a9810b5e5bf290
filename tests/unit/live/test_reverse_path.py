"""What is known of the check of sources, and what is not, from snapshots."""

from __future__ import annotations

import pytest

from netinit.base.net import IPV4, IPV6, HostAddress, number_of
from netinit.base.snapshot import Device, RoutingRule, Snapshot, TableRoute
from netinit.live.reverse_path import PASSES, check_source, warn_of_refused
from netinit.rules.packet_inputs import Packet

FAR = number_of("203.0.113.7")
PACKET = Packet(family=IPV4, protocol="tcp", source=FAR, destination=number_of("10.1.0.2"), in_interface="eth1")
UNREADABLE = RoutingRule(family=2, priority=9, action=1, table=100, others=(99,))


def route(table, device, *more):
    return TableRoute(family=2, table=table, kind=1, destination=(0, 0), hops=(device, *more))


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
