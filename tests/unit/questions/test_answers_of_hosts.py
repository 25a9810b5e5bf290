"""Connections of a live pod: its routes decide the device, whether a packet is sent at all, and whether the kernel takes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import FAMILIES, IPV4, IPV6, Options, load_plan, plan, settled
from netinit.base.net import HostAddress, number_of
from netinit.base.snapshot import Device, RoutingRule, Snapshot, TableRoute
from netinit.live.host import surroundings_of
from netinit.questions.answers import TO_A_NEIGHBOUR, answer_question, explain_connection
from netinit.questions.connections import Question
from netinit.questions.pod_rules import PodRules
from netinit.questions.rule_sources import find_planned
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.stand_ins import make_inbound

LO, ETH0, ETH1 = 1, 2, 3
PEER, OWN = "203.0.113.7", ("10.0.0.2", "10.1.0.2")


def route(*devices, to=("0.0.0.0", 0), table=254):
    return TableRoute(family=2, table=table, kind=1, destination=(number_of(to[0]), to[1]), hops=devices)


def pod(*routes, rules=(), settings=(), words=(), known=False):
    """A pod with two devices, from whose capture connections through eth1 are excluded."""
    main = RoutingRule(family=2, priority=32766, action=1, table=254)
    snapshot = Snapshot(
        links=tuple(Device(index=number, name=name) for number, name in ((LO, "lo"), (ETH0, "eth0"), (ETH1, "eth1"))),
        addresses=tuple(HostAddress(family=2, address=one, length=24, index=at) for at, one in enumerate(OWN, ETH0)),
        routing_rules=(*rules, main), routes=routes, settings=settings,
    )  # fmt: skip
    options = settled(Options.from_argv(["-b", "*", "-i", "*", "-c", "eth1", "--ipv6", "on", *words], {}))
    made = plan(options)
    rulesets = {"iptables-nft": {family: load_plan(made, family) for family in FAMILIES}}
    around = {family: surroundings_of(snapshot, family) for family in FAMILIES}
    return PodRules(rulesets, around, {"iptables-nft": options}, snapshot=snapshot, routes_known=known)


def ask(rules, to=PEER, **more):
    return answer_question(rules, make_outbound(rules.surroundings[IPV4], to, 80, uid=1000, gid=1000, **more))


@pytest.mark.parametrize(
    ("routes", "sentence"),
    [
        ([route(ETH0)], "captured: goes to the proxy on 15001"), ([route(ETH1)], "direct"), ([route(ETH0), route(ETH1, to=("203.0.113.0", 24))], "direct"),
        ([route(ETH0, ETH1)], "unknown: the way out depends on more than the destination: captured through eth0, direct through eth1"),
    ],
)  # fmt: skip
def test_the_device_of_the_route_decides_and_where_several_may_be_taken_with_other_ends_nobody_knows(routes, sentence):
    assert ask(pod(*routes)).answer.sentence.startswith(sentence)


def test_several_ways_with_one_end_are_one_answer():
    both = route(ETH0, ETH1)
    rules = pod(both)
    made = settled(Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "on"], {}))
    same = replace(rules, rulesets={"iptables-nft": {family: load_plan(plan(made), family) for family in FAMILIES}})
    assert ask(same).answer.verdict == "captured"


def test_what_no_route_leads_to_is_not_sent_and_a_route_would_change_it():
    found = ask(pod(route(ETH0, to=("10.0.0.0", 8)))).answer
    assert (found.verdict, found.is_refused_before_rules) == ("dropped", True)
    assert [(one.hook, one.outcome) for one in found.trace.steps] == [("OUTPUT", f"it is not sent: {found.trace.reason}")]
    assert found.changes == (("a route that leads there", "captured"),)
    assert ask(pod(route(ETH0, to=("10.0.0.0", 8))), to="10.9.9.9").answer.verdict == "captured"


@pytest.mark.parametrize(("mode", "device", "verdict"), [("1", "eth0", "captured"), ("1", "eth1", "dropped"), ("2", "eth1", "captured"), ("0", "eth1", "captured")])
def test_a_packet_that_came_where_no_answer_would_leave_is_dropped_where_the_kernel_looks(mode, device, verdict):
    rules = pod(route(ETH0), settings=tuple((f"ipv4/conf/{name}/rp_filter", mode) for name in ("all", "eth0", "eth1")))
    around = rules.surroundings[IPV4]
    plain = replace(rules, rulesets={"iptables-nft": {family: load_plan(plan(settled(Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "on"], {}))), family) for family in FAMILIES}})
    found = answer_question(plain, make_inbound(around, PEER, OWN[device == "eth1"], 80, interface=device)).answer
    assert found.verdict == verdict, found.sentence
    assert ("rp_filter" in found.sentence) is (verdict == "dropped")


@pytest.mark.parametrize(
    ("to", "protocol", "told"), [("fe80::9", "tcp", True), ("fe80::9", "udp", False), ("fd00::9", "tcp", False), ("febf:ffff::1", "tcp", True), ("fec0::1", "tcp", False)]
)
def test_a_neighbour_s_captured_connection_is_not_answered_by_the_proxy(to, protocol, told):
    rules = replace(pod(), snapshot=None)
    own = rules.surroundings[IPV6].replace(addresses=(("eth0", number_of("fd00::2")),), routes=(), default_interface="eth0")
    rules = replace(rules, surroundings={IPV6: own})
    found = answer_question(rules, make_outbound(own, to, 80, protocol=protocol, uid=1000, gid=1000))
    assert (TO_A_NEIGHBOUR in found.warnings) is told, (found.answer.sentence, found.warnings)


@pytest.mark.parametrize(("udp", "verdict"), [(False, "dropped"), (True, "direct")])
def test_a_group_that_any_socket_may_join_is_no_address_of_the_pod_that_is_called_there(udp, verdict):
    source = find_planned(Options(inbound_ports="*", exclude_inbound_ports=(80,)))
    (found,) = explain_connection([source], Question(direction="inbound", to="224.0.0.1", to_port="80", udp=udp)).answers
    assert found.answer.verdict == verdict, found.answer.sentence
