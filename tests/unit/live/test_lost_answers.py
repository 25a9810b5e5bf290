"""Answers that policy routing keeps from coming back, as a snapshot shows them; tests/netns has those that rules lose."""

from __future__ import annotations

import pytest

from netinit.base.net import IPV4, IPV6, HostAddress, number_of
from netinit.base.snapshot import Device, RoutingRule, Snapshot, TableRoute
from netinit.live.lost_answers import LostAnswers, find_proxy
from netinit.options import Options, offline

LINKS = tuple([Device(index=at, name=name, flags=1) for at, name in enumerate(("lo", "eth0", "eth1"), 1)])
ADDRESSES = {IPV4: HostAddress(family=2, address="10.0.0.2", length=24, index=2), IPV6: HostAddress(family=10, address="fd00::2", length=64, index=2)}


def pod(family, *rules, routes=()):
    main = RoutingRule(family=family.number, priority=32766, action=1, table=254)
    default = TableRoute(family=family.number, table=254, kind=1, destination=(0, 0), hops=(2,))
    off = tuple([(f"ipv4/conf/{name}/rp_filter", "0") for name in ("all", "eth0", "eth1")])
    return Snapshot(links=LINKS, addresses=(ADDRESSES[family],), routing_rules=(*rules, main), routes=(default, *routes), settings=off)


def from_own(family, **more):
    own = (number_of(ADDRESSES[family].address), family.bits)
    return RoutingRule(**{"family": family.number, "priority": 9, "action": 1, "table": 100, "source": own, **more})


@pytest.mark.parametrize("family", [IPV4, IPV6])
@pytest.mark.parametrize(
    ("action", "device", "way"), [(1, 3, "eth1"), (6, 3, "no device"), (1, 2, "")]
)  # fmt: skip
def test_policy_rules_that_send_answers_through_another_device_are_named(family, action, device, way):
    elsewhere = TableRoute(family=family.number, table=100, kind=1, destination=(0, 0), hops=(device,))
    found = list(LostAnswers().by_routes(pod(family, from_own(family, action=action), routes=(elsewhere,)), family))
    said = f"{family.name}: policy rules send the answers to connections that come in through eth0 elsewhere: through {way}"
    assert found == ([said] if way else [])


def test_of_several_ways_one_through_the_device_is_enough_and_the_others_are_named():
    elsewhere = TableRoute(family=2, table=100, kind=1, destination=(0, 0), hops=(3,))
    nowhere = TableRoute(family=2, table=100, kind=6, destination=(number_of("1.1.1.1"), 32))
    found = list(LostAnswers().by_routes(pod(IPV4, from_own(IPV4), routes=(elsewhere, nowhere)), IPV4))
    assert found == ["IPv4: policy rules send the answers to connections that come in through eth0 elsewhere: through no device, eth1"]
    by_user = pod(IPV4, from_own(IPV4, users=(0, 0)), routes=(elsewhere,))
    assert list(LostAnswers().by_routes(by_user, IPV4)) == [], "those of other users come back as they should"
    for protocol, lines in ((6, 1), (17, 0)):
        assert len(list(LostAnswers().by_routes(pod(IPV4, from_own(IPV4, ip_protocol=protocol), routes=(elsewhere,)), IPV4))) == lines


def test_what_is_dropped_for_its_source_is_said_of_ipv4_alone():
    strict = pod(IPV4).replace(settings=(("ipv4/conf/all/rp_filter", "1"),), routes=(TableRoute(family=2, table=254, kind=1, destination=(0, 0), hops=(3,)),))
    both = strict.replace(addresses=(HostAddress(family=2, address="10.0.0.2", length=24, index=3), ADDRESSES[IPV4], ADDRESSES[IPV6]))
    strict = both.replace(routes=(*both.routes, TableRoute(family=2, table=77, kind=1, destination=(0, 0), hops=(2,))))
    assert [line.partition(",")[0] for line in LostAnswers().by_routes(strict, IPV4)] == ["IPv4: packets that come in through eth0"]
    assert list(LostAnswers().by_routes(strict, IPV6)) == []


def test_without_policy_rules_or_without_an_address_there_is_nothing_to_say():
    assert list(LostAnswers().by_routes(pod(IPV4), IPV4)) == []
    assert list(LostAnswers().by_routes(pod(IPV4, from_own(IPV4)).replace(addresses=()), IPV4)) == []


def test_the_proxy_is_the_first_user_and_group_where_the_options_name_both():
    made = Options.from_argv(["-u", "1337,1338", "-g", "1339"]).settle(offline())
    assert find_proxy(made) == (1337, 1339)
    assert find_proxy(None) is None
