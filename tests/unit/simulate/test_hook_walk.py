"""Sets of packets at the kernel's hooks: routing, tracking, NAT, and what is unknown of packets that may end in several ways."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from allpackets import anywhere, check_cover, check_members, corner
from core import IPV4, IPV6, Network, Surroundings, number_of, parse_listing, simulate
from netinit.base.net import FULL_MASK
from netinit.simulate.condition import KEPT
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.symbolic.boxes import list_boxes
from netinit.simulate.symbolic.hook_walk import divide, split_by_route
from netinit.simulate.symbolic.match_sets import local, make_spaces
from netinit.simulate.symbolic.partition import compare
from netinit.simulate.symbolic.regions import everything, in_states, marked, unite, valued, within
from netinit.simulate.symbolic.space import INBOUND, OUTBOUND, CtState, Dim, make_space, packet_of
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, NOT_FORWARDED, ROUTED_OTHERWISE, SENT, UNKNOWN

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")), ("net1", number_of("10.1.0.2"))))
ROUTER = POD.replace(forwards=True, routes=((Network.parse("8.0.0.0/8"), "net1"), (Network.parse("8.8.0.0/16"), "eth0"), (Network.parse("9.0.0.0/8"), "eth2")))
MARKED = POD.replace(local_marks=frozenset({(1, 3), (4, 4)}))
DOUBTFUL = POD.replace(doubtful=(Network.parse("10.0.0.0/30"), Network.parse("7.0.0.0/8")))
LISTENING = POD.replace(broadcasts=(number_of("10.0.0.255"),), local_networks=(Network.parse("198.51.100.0/24"),), routes=((Network.parse("198.51.100.0/24"), "lo"),))
REDIRECTS = "*nat\n:OUTPUT ACCEPT [0:0]\n:PREROUTING ACCEPT [0:0]\n{}-A OUTPUT -p tcp -j REDIRECT --to-ports 15001\nCOMMIT\n"
FILTER = "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n{}COMMIT\n"
MAYBE = "-m set --match-set x{} dst"


def load(text):
    return load_listing(parse_listing(text), IPV4)


def spaces(ruleset, host=POD, *, free=False):
    return make_spaces([{IPV4: ruleset}], {IPV4: host}, free=free)


def test_packets_are_routed_by_the_longest_prefix():
    host = POD.replace(routes=((Network.parse("8.0.0.0/8"), "a"), (Network.parse("8.8.0.0/16"), "b"), (Network.parse("9.0.0.0/8"), "a"), (Network.parse("8.8.8.0/24"), "c")))
    space = make_space(INBOUND, host, set(), set(), free=False)
    for name in (Dim.DESTINATION, Dim.SOURCE):
        found = list(split_by_route(space, name))
        nets = {key: [(Network.parse(key).first, Network.parse(key).last)] for key in ("8.0.0.0/8", "8.8.0.0/16", "9.0.0.0/8", "8.8.8.0/24")}
        to = {key: within(space, name, side) for key, side in nets.items()}
        assert found == [
            (to["8.8.8.0/24"], "c"), (to["8.8.0.0/16"] - to["8.8.8.0/24"], "b"), ((to["8.0.0.0/8"] | to["9.0.0.0/8"]) - to["8.8.0.0/16"], "a"),
            (everything(space) - to["8.0.0.0/8"] - to["9.0.0.0/8"], "eth0"),
        ]  # fmt: skip
    assert next(iter(split_by_route(space)))[0] == within(space, Dim.DESTINATION, nets["8.8.8.0/24"])


@pytest.mark.parametrize("host", [POD, ROUTER, MARKED, DOUBTFUL, LISTENING, ROUTER.replace(local_marks=MARKED.local_marks), LISTENING.replace(local_marks=MARKED.local_marks)])
@pytest.mark.parametrize("text", [
    "", FILTER.format("-A INPUT -p udp -j DROP\n-A FORWARD -o net1 -j DROP\n-A OUTPUT -o eth2 -j DROP\n"), REDIRECTS.format("-A PREROUTING -i eth0 -p tcp -j REDIRECT --to-ports 9\n"),
    REDIRECTS.format("-A OUTPUT -p udp -j DNAT --to-destination 8.8.8.8\n-A PREROUTING -p tcp -j DNAT --to-destination 10.1.0.2:7\n"),
    "*mangle\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A PREROUTING -p tcp -j MARK --set-xmark 0x1/0x1\n-A OUTPUT -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x4/0xf\nCOMMIT\n",
    "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m conntrack --ctstate RELATED,INVALID -j DROP\n-A PREROUTING -p tcp -j CONNMARK --set-xmark 0x1/0x1\nCOMMIT\n",
])  # fmt: skip
def test_all_packets_at_once_go_where_each_of_them_goes(host, text):
    ruleset, random = load(text) if text else Ruleset(IPV4), Random(2)
    for space in spaces(ruleset, host):
        partition = divide(space, ruleset)
        check_cover(partition)
        assert check_members(partition, ruleset, random)


@pytest.mark.parametrize("rules", [
    [f"-A OUTPUT {MAYBE.format(1)} -j DNAT --to-destination 9.9.9.9"], [f"-A OUTPUT {MAYBE.format(1)} -j ACCEPT"], [f"-A OUTPUT -p udp {MAYBE.format(1)} -j DNAT --to-destination 9.9.9.9"],
    [f"-A OUTPUT -p udp {MAYBE.format(1)} -j DNAT --to-destination 9.9.9.9", f"-A OUTPUT -p udp {MAYBE.format(2)} -j DNAT --to-destination 9.9.9.8"],
    [f"-A OUTPUT -p tcp -m tcp --dport 80 {MAYBE.format(1)} -j RETURN", "-A OUTPUT -p tcp -m tcp --dport 80 -j ACCEPT"],
    [f"-A OUTPUT -p udp {MAYBE.format(1)} -j RETURN", "-A OUTPUT -p udp -j DNAT --to-destination 9.9.9.9"],
])  # fmt: skip
@pytest.mark.parametrize("drop", ["", f"-A OUTPUT {MAYBE.format(3)} -j DROP\n", f"-A INPUT {MAYBE.format(3)} -j REJECT\n", f"-A OUTPUT -p udp {MAYBE.format(3)} -j DROP\n"])
def test_what_may_end_in_several_ways_is_said_to_be_direct_or_captured_at_the_worst_dropped(rules, drop):
    """As of each packet."""
    ruleset, random = load(REDIRECTS.format("\n".join([*rules, ""])) + FILTER.format(drop)), Random(3)
    for space in spaces(ruleset):
        partition = divide(space, ruleset)
        check_cover(partition)
        assert check_members(partition, ruleset, random)
        for part in partition.parts:
            for box in list(list_boxes(part.region))[:3]:
                packet, around = packet_of(space, corner(space, box, anywhere(random)))
                trace = simulate(packet, ruleset, around)
                assert (part.always_direct, part.at_worst_dropped) == (bool(trace.direct), bool(trace.dropped_by)), (packet, trace)
                if part.fate == UNKNOWN:
                    assert part.by_rule
                    assert str(part.path[-1]) == trace.reason.partition(": it cannot")[0]


@pytest.mark.parametrize(("text", "at_worst_dropped"), [
    (f"-A OUTPUT -p tcp {MAYBE.format(1)} -j REDIRECT --to-ports 9", False), (f"-A OUTPUT -p tcp {MAYBE.format(1)} -j DROP", True), (f"-A OUTPUT -p tcp {MAYBE.format(1)} -j ACCEPT", False),
])  # fmt: skip
def test_what_may_be_captured_at_two_ports_is_not_captured_or_dropped(text, at_worst_dropped):
    space, parts = parts_of(load(REDIRECTS.format(f"{text}\n")), OUTBOUND)
    asked = in_states(space, (CtState.NEW,)) & valued(space, Dim.PROTOCOL, "tcp") - local(space, Dim.DESTINATION)
    assert {(one.fate, one.always_direct, one.at_worst_dropped) for one in parts if one.region & asked} == {(UNKNOWN, False, at_worst_dropped)}


def parts_of(ruleset, direction, host=POD):
    (space,) = [one for one in spaces(ruleset, host) if one.direction == direction]
    return space, divide(space, ruleset).parts


def test_packets_of_which_routing_is_not_known_are_unknown_before_all_rules():
    space, parts = parts_of(load(FILTER.format("-A OUTPUT -j DROP\n")), OUTBOUND, DOUBTFUL)
    (unknown,) = [one for one in parts if one.fate == UNKNOWN]
    nets = [(one.first, one.last) for one in DOUBTFUL.doubtful]
    assert (unknown.region, unknown.reason, unknown.path) == (within(space, Dim.DESTINATION, nets) - local(space, Dim.DESTINATION), ROUTED_OTHERWISE, ())
    assert {one.fate for one in parts} == {UNKNOWN, DROPPED}


def test_packets_for_others_are_dropped_where_the_host_does_not_forward():
    space, parts = parts_of(Ruleset(IPV4), INBOUND)
    (dropped,) = [one for one in parts if one.fate == DROPPED]
    assert (dropped.reason, dropped.by_rule, dropped.cause) == (NOT_FORWARDED, False, None)
    assert not dropped.region & local(space, Dim.DESTINATION)
    multicast = within(space, Dim.DESTINATION, [(number_of("224.0.0.0"), number_of("239.255.255.255"))])
    assert multicast & dropped.region == multicast & valued(space, Dim.PROTOCOL, "tcp")
    assert {one.fate for one in parts} == {DROPPED, DELIVERED}
    _, forwarding = parts_of(Ruleset(IPV4), INBOUND, ROUTER)
    assert {(one.fate, one.condition.out_interface) for one in forwarding} == {(DELIVERED, ""), (FORWARDED, "eth0"), (FORWARDED, "net1"), (FORWARDED, "eth2")}


def test_packets_that_are_mapped_to_some_address_of_a_network_are_unknown_and_to_one_address_are_not():
    for network, unknown in (("10.0.0.0/24", True), ("203.0.113.0/24", True), ("10.0.0.2/32", False)):
        space, parts = parts_of(load(f"*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j NETMAP --to {network}\nCOMMIT\n"), INBOUND)
        fresh = in_states(space, (CtState.NEW,)) & valued(space, Dim.PROTOCOL, "tcp")
        found = {(one.fate, one.reason) for one in parts if one.region & fresh}
        assert found == ({(UNKNOWN, "its destination is not known")} if unknown else {(DELIVERED, "")})


def test_marks_that_a_policy_rule_routes_are_for_this_host():
    for direction in (OUTBOUND, INBOUND):
        space, parts = parts_of(Ruleset(IPV4), direction, MARKED)
        routed = unite([one.region for one in parts if one.condition.policy_routed])
        fitting = marked(space, Dim.MARK, 1, 3) | marked(space, Dim.MARK, 4, 4)
        assert {one.fate for one in parts if one.condition.policy_routed} == {DELIVERED}
        assert not routed - fitting
        assert not (fitting - local(space, Dim.DESTINATION) - routed) & valued(space, Dim.PROTOCOL, "tcp")


def test_rules_that_are_not_read_or_may_not_be_there_leave_all_packets_unknown():
    ruleset = load(FILTER.format("-A OUTPUT -p udp -j DROP\n-A OUTPUT -p tcp -m set --match-set x dst -j DROP\n"))
    space, parts = parts_of(replace(ruleset, unread=("a", "b")), OUTBOUND)
    assert {one.fate for one in parts} == {UNKNOWN}
    assert len({one.reason for one in parts}) == 2
    assert any(one.reason.endswith("(a, b)") for one in parts)
    assert unite([one.region for one in parts]) == everything(space)
    space, parts = parts_of(replace(ruleset, unread=("a",), doubt="it may change"), OUTBOUND)
    (part,) = parts
    assert (part.region, part.fate, part.reason, part.path, part.by_rule) == (everything(space), UNKNOWN, "it may change", (), False)


def test_without_rules_packets_are_treated_as_by_an_empty_ruleset_and_of_some_nothing_else_is_said():
    for space in spaces(Ruleset(IPV4)):
        assert list(compare(divide(space, None), divide(space, Ruleset(IPV4)))) == []
        tcp = valued(space, Dim.PROTOCOL, "tcp")
        parts = divide(space, None, tcp).parts
        assert unite([one.region for one in parts]) == tcp
        assert {one.region.space for one in parts} == {space}
    six = make_space(OUTBOUND, Surroundings(family=IPV6), set(), set(), free=False)
    assert unite([one.region for one in divide(six, None).parts]) == everything(six)


def test_what_a_plan_adds_to_its_host_decides_and_is_no_part_of_the_space():
    ruleset = replace(Ruleset(IPV4), local_marks=frozenset({(7, FULL_MASK)}), addresses=frozenset({number_of("6.6.6.6")}))
    space, parts = parts_of(ruleset, OUTBOUND)
    here = within(space, Dim.DESTINATION, [(number_of("6.6.6.6"),) * 2]) | marked(space, Dim.MARK, 7, FULL_MASK)
    assert unite([one.region for one in parts if one.fate == DELIVERED]) == here | local(space, Dim.DESTINATION)
    assert {one.region.space for one in parts} == {space}


@pytest.mark.parametrize("first", ["-A POSTROUTING -p tcp -j SNAT --to-source 10.9.9.9\n", "-A POSTROUTING -p udp -j ACCEPT\n", ""])
def test_the_source_of_a_connection_to_this_host_is_decided_once(first):
    text = f"*nat\n:INPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n{first}-A INPUT -p tcp -j SNAT --to-source 10.8.8.8\nCOMMIT\n"
    written = number_of("10.9.9.9") if "SNAT" in first else KEPT
    for direction, sources in ((OUTBOUND, {written}), (INBOUND, {number_of("10.8.8.8")})):
        space, parts = parts_of(load(text), direction)
        asked = in_states(space, (CtState.NEW,)) & valued(space, Dim.PROTOCOL, "tcp") & within(space, Dim.DESTINATION, [(number_of("10.0.0.2"),) * 2])
        assert {one.condition.source for one in parts if one.region & asked} == sources



@pytest.mark.parametrize(("state", "fate"), [
    (CtState.NEW, DELIVERED), (CtState.ESTABLISHED, SENT), (CtState.ANSWER, SENT), (CtState.TRANSLATED, SENT), (CtState.RELATED, SENT), (CtState.REUSED_NEW, SENT), (CtState.REUSED, SENT),
    (CtState.INVALID, SENT), (CtState.INVALID_CLOSING, SENT), (CtState.UNTRACKED, SENT), (CtState.REUSED_INVALID, SENT), (CtState.TRANSLATED_ANSWER, SENT),
])  # fmt: skip
def test_nat_asks_for_the_beginnings_of_connections_alone(state, fate):
    space, parts = parts_of(load(REDIRECTS.format("")), OUTBOUND)
    asked = in_states(space, (state,)) & valued(space, Dim.PROTOCOL, "tcp") - local(space, Dim.DESTINATION)
    found = {(one.fate, one.condition.connection, one.condition.tracked) for one in parts if one.region & asked}
    belongs = state not in (CtState.INVALID, CtState.INVALID_CLOSING, CtState.UNTRACKED, CtState.REUSED_INVALID)
    assert found == {(fate, belongs, True)}


def test_an_end_is_told_with_what_others_may_have_made_of_it():
    maybe = f"*mangle\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT {MAYBE.format(1)} -j MARK --set-xmark 0x1/0x1\nCOMMIT\n" + FILTER.format("-A OUTPUT -m mark --mark 0x1/0x1 -m owner --uid-owner 1 -j ACCEPT\n")
    _, parts = parts_of(load(maybe), OUTBOUND)
    assert {one.condition.has_vague_marks for one in parts} == {True}
    translated = "*nat\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n-A OUTPUT -p tcp -j REDIRECT --to-ports 15001\n-A POSTROUTING {} -j SNAT --to-source 10.9.9.9\nCOMMIT\n"
    space, parts = parts_of(load(translated.format(MAYBE.format(1))), OUTBOUND)
    assert {one.condition.source for one in parts if one.condition.redirect_port} == {None}
    direct = [one for one in parts if one.region & valued(space, Dim.PROTOCOL, "udp") & in_states(space, (CtState.NEW,)) - local(space, Dim.DESTINATION)]
    assert {(one.fate, one.always_direct) for one in direct} == {(UNKNOWN, True)}
    _, parts = parts_of(load(translated.format("-p tcp")), OUTBOUND)
    assert {one.condition.source for one in parts} == {number_of("10.9.9.9"), KEPT}
    assert all(not one.region & other.region for one, other in pairwise(parts))
