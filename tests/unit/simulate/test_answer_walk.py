"""Answers to all packets at once: who waits for one, and why it does not come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import IPV4, IPV6, Surroundings, number_of, parse_listing
from netinit.rules.foreign_targets import WriteDestination
from netinit.rules.model import Rule
from netinit.simulate.answers import UNSENT
from netinit.simulate.condition import KEPT, OWN, Condition
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import HookedChain, LoadedChain, LoadedRule, Ruleset
from netinit.simulate.symbolic.answer_walk import (
    NOT_FOUND,
    NOT_TRACKED,
    REWRITTEN,
    STAYS,
    find_loss,
    find_lost,
    follow_answers,
    is_known,
    list_askers,
)
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import martians
from netinit.simulate.symbolic.partition import Part
from netinit.simulate.symbolic.regions import everything, in_states, nothing, unite, valued, within
from netinit.simulate.symbolic.space import INBOUND, OUTBOUND, CtState, Dim, make_space
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, REFUSED, SENT, UNKNOWN

PODS = {
    IPV4: Surroundings(family=IPV4, addresses=(("eth0", number_of("192.0.2.10")),)),
    IPV6: Surroundings(family=IPV6, addresses=(("eth0", number_of("2001:db8::10")),)),
}
OUT, IN, OUT6 = make_space(OUTBOUND, PODS[IPV4], set(), set(), free=False), make_space(INBOUND, PODS[IPV4], set(), set(), free=False), make_space(OUTBOUND, PODS[IPV6], set(), set(), free=False)
OWNED, ELSEWHERE, LOOPBACK = "192.0.2.10", "198.51.100.7", "127.0.0.9"


def packets(space, *, source=OWNED, to=ELSEWHERE, port=40000, state=CtState.NEW, protocol="tcp"):
    """The packets of a space with these values."""
    named = {Dim.SOURCE: number_of(source), Dim.DESTINATION: number_of(to), Dim.SOURCE_PORT: port}
    found = in_states(space, (state,)) & valued(space, Dim.PROTOCOL, protocol)
    for name, value in named.items():
        found &= within(space, name, [(value, value)])
    return found


def part_of(space, fate=DELIVERED, **changes):
    return Part(everything(space), fate, Condition(**changes), ())


@pytest.mark.parametrize(("asks", "given"), [
    (True, {}), (True, {"protocol": "udp"}), (False, {"protocol": "sctp"}), (False, {"state": CtState.ESTABLISHED}), (False, {"state": CtState.REUSED_NEW}), (False, {"port": 0}),
    (True, {"port": 1}), (True, {"port": 65535}), (False, {"source": ELSEWHERE}),
])  # fmt: skip
def test_who_opens_a_connection_from_a_port_waits_for_an_answer(asks, given):
    assert bool(list_askers(part_of(OUT)) & packets(OUT, **given)) is asks
    comes = {**given, "source": {OWNED: ELSEWHERE}.get(given.get("source", OWNED), OWNED), "to": OWNED}
    assert bool(list_askers(part_of(IN)) & packets(IN, **comes)) is asks
    nothing_there = list_askers(Part(packets(OUT, port=7), DELIVERED, Condition(), ()))
    assert nothing_there == packets(OUT, port=7)


@pytest.mark.parametrize(("fate", "changes", "to", "asks"), [
    (DELIVERED, {}, LOOPBACK, True), (DELIVERED, {}, ELSEWHERE, False), (SENT, {}, LOOPBACK, False), (SENT, {"source": 7}, LOOPBACK, True), (SENT, {"source": 7}, ELSEWHERE, False),
    (DELIVERED, {"source": 7}, OWNED, True),
])  # fmt: skip
def test_from_a_loopback_address_only_this_host_is_asked(fate, changes, to, asks):
    assert bool(list_askers(part_of(OUT, fate, **changes)) & packets(OUT, source=LOOPBACK, to=to)) is asks
    assert list_askers(part_of(OUT, fate, **changes)) & packets(OUT, to=to), "from its own address each is asked"
    assert list_askers(part_of(OUT6, fate, **changes)) & packets(OUT6, source="::1", to="2001:db8:9::1"), "IPv6 routes it"


def captured(**changes):
    return part_of(OUT, DELIVERED, redirect_port=15001, **changes)


FOUND = {"state": "ESTABLISHED"}
CAPTURED_ONES, DIRECT_ONES = "connections that the proxy captures", "direct connections"


@pytest.mark.parametrize(("fate", "changes", "reason", "why"), [
    (DROPPED, {}, "", "drops the answers to {}"), (REFUSED, {}, "", "drops the answers to {}"), (DROPPED, {}, UNSENT, "keeps the answers to {} from coming back: " + UNSENT),
    (UNKNOWN, {"source": 7}, "", ""), (DELIVERED, {"destination": None}, "", ""), (DELIVERED, {"destination": OWN, "source": 7}, "", ""), (DELIVERED, FOUND, "", ""),
    (DELIVERED, {"source": 7, **FOUND}, "", "keeps the answers to {} from coming back: " + REWRITTEN), (DELIVERED, {"source_port": 7, **FOUND}, "", "keeps the answers to {} from coming back: " + REWRITTEN),
    (DELIVERED, {"destination": 7, "state": "NEW"}, "", "keeps the answers to {} from coming back: " + NOT_FOUND),
    (DELIVERED, {"source": 7, "state": "UNTRACKED"}, "", "keeps the answers to {} from coming back: " + NOT_TRACKED), (SENT, FOUND, "", "keeps the answers to {} from coming back: " + STAYS),
    (FORWARDED, FOUND, "", "keeps the answers to {} from coming back: " + STAYS),
])  # fmt: skip
def test_an_answer_is_lost_where_it_ends_goes_elsewhere_or_is_not_translated_back(fate, changes, reason, why):
    end = Part(everything(OUT), fate, Condition(**changes), (), reason)
    assert find_loss(end, captured()) == why.format(CAPTURED_ONES)
    assert find_loss(end, part_of(OUT)) == why.format(DIRECT_ONES)
    assert is_known(end) is (fate != UNKNOWN and changes.get("destination", KEPT) not in (None, OWN))


def test_answers_of_this_host_are_sent_and_a_connection_that_is_not_tracked_is_said_to_be():
    end = Part(everything(IN), SENT, Condition(state="ESTABLISHED"), ())
    assert find_loss(end, part_of(IN)) == ""
    assert find_loss(replace(end, fate=DELIVERED), part_of(IN)).endswith(STAYS)
    rewritten = replace(end, condition=Condition(source=7, state="NEW"))
    assert find_loss(rewritten, part_of(IN)).endswith(NOT_FOUND)
    assert find_loss(rewritten, part_of(IN, state="UNTRACKED")).endswith(NOT_TRACKED)


def load(text):
    return load_listing(parse_listing(text), IPV4)


NAT = "*nat\n:OUTPUT ACCEPT [0:0]\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n-A OUTPUT -p tcp -m owner ! --uid-owner 1337 -j REDIRECT --to-ports 15001\n{}COMMIT\n"
FILTER = "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A {}\nCOMMIT\n"
PLANNED = load(NAT.format(""))


def lost(space, more="", nat="", foreign=()):
    """What each rule does to whose answers, by its text."""
    live = replace(load(NAT.format(nat) + more), foreign=foreign)
    parts = divide(space, live, marks_matter=False).parts
    return [(str(hit), effect) for hit, effect, region, _ in find_lost(PLANNED, live, parts, (1337, 1337), lambda hit: "1337" not in str(hit) or "filter" in str(hit)) if region]


@pytest.mark.parametrize(("rule", "whose"), [
    ("OUTPUT -m owner --uid-owner 1337 -p tcp -m tcp --sport 15001 -j DROP", CAPTURED_ONES), ("OUTPUT -m owner --uid-owner 1338 -p tcp -m tcp --sport 15001 -j DROP", ""),
    ("OUTPUT -m owner --gid-owner 1337 -p tcp -m tcp --sport 15001 -j REJECT", CAPTURED_ONES), ("INPUT -i eth0 -p tcp -m tcp --sport 80 -j DROP", DIRECT_ONES),
    ("OUTPUT -p tcp -m tcp --sport 15001 --tcp-flags SYN,ACK SYN,ACK -j DROP", CAPTURED_ONES), ("INPUT -i eth0 -p tcp -m tcp --tcp-flags SYN,ACK SYN -j DROP", ""),
    ("INPUT -i eth0 -m conntrack --ctdir REPLY -j DROP", DIRECT_ONES), ("INPUT -i eth0 -p tcp -m conntrack --ctdir ORIGINAL -j DROP", ""),
    ("OUTPUT -p tcp -m conntrack --ctstate DNAT -m tcp --sport 15001 -j DROP", CAPTURED_ONES), ("INPUT -i eth0 -m conntrack --ctstate DNAT -j DROP", ""),
    ("INPUT -i eth0 -m conntrack --ctstate NEW -j DROP", ""), ("INPUT -i eth0 -m conntrack --ctstate ESTABLISHED -j DROP", DIRECT_ONES), ("INPUT -j LOG", ""), ("INPUT -j ACCEPT", ""),
])  # fmt: skip
def test_a_rule_that_drops_answers_is_named_with_those_whose_they_are(rule, whose):
    found = lost(OUT, FILTER.format(rule))
    assert [effect for _, effect in found] == ([f"drops the answers to {whose}"] if whose else [])
    assert all(hit.startswith(f"rule 1 of filter {rule.partition(' ')[0]}") for hit, _ in found)


def test_what_loses_the_answers_to_captured_connections_is_named_for_these_alone():
    found = lost(OUT, FILTER.format("INPUT -p tcp -m tcp --sport 80 -j DROP"))
    assert [effect for _, effect in found] == [f"drops the answers to {CAPTURED_ONES}"]


@pytest.mark.parametrize(("priority", "tracks", "ends"), [(-300, True, REWRITTEN), (-300, False, NOT_FOUND)])
def test_answers_to_a_destination_that_a_rule_wrote_do_not_come_back(priority, tracks, ends):
    chain = LoadedChain("c", (LoadedRule(1, "", Rule(target=WriteDestination(text="", address="203.0.113.50"))),), "ACCEPT")
    foreign = (HookedChain("ip x", chain, {"c": chain}, "raw", "OUTPUT", priority),)
    if tracks:
        assert {effect.rpartition(": ")[2] for _, effect in lost(OUT, foreign=foreign)} == {ends}
    else:
        part = next(one for one in divide(OUT, Ruleset(IPV4, foreign=foreign)).parts if one.fate == SENT)
        asked = replace(part, region=list_askers(part))
        ended = follow_answers(Ruleset(IPV4), asked, None)
        assert {find_loss(one, part).rpartition(": ")[2] for one in ended if one.condition.source is not KEPT} == {ends}


def test_answers_come_back_where_nothing_is_in_their_way():
    for space in (OUT, IN, OUT6):
        rules = Ruleset(space.family) if space is OUT6 else PLANNED
        for part in divide(space, rules, marks_matter=False).parts:
            if part.fate in (DELIVERED, SENT) and (asked := list_askers(part) - martians(space)):
                ends = follow_answers(rules, replace(part, region=asked), (1337, 1337))
                assert ends
                assert {find_loss(end, part) for end in ends} == {""}
                assert {end.region.space for end in ends} == {space}


def test_answers_to_a_translated_source_are_told_apart_from_those_that_nat_need_not_translate():
    more = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -p tcp -j SNAT --to-source 192.0.2.10\nCOMMIT\n"
    both = replace(OUT, around=PODS[IPV4].replace(addresses=(("eth0", number_of(OWNED)), ("eth0", number_of("192.0.2.11")))))
    (part,) = [one for one in divide(both, load(more)).parts if one.fate == SENT and isinstance(one.condition.source, int)]
    asked = list_askers(part)
    dropped = load(more + FILTER.format("INPUT -i eth0 -p tcp -d 192.0.2.11/32 -j DROP"))
    for ruleset, lost_ones in ((load(more), None), (dropped, within(both, Dim.SOURCE, [(number_of("192.0.2.11"),) * 2]))):
        ends = follow_answers(ruleset, replace(part, region=asked), None)
        assert {bool(find_loss(end, part)) for end in ends} == ({False} if lost_ones is None else {False, True})
        assert unite([end.region for end in ends]) == asked
        assert unite([nothing(both), *[end.region for end in ends if find_loss(end, part)]]) == (nothing(both) if lost_ones is None else asked & lost_ones)
    early = replace(load(more), tables={**load(more).tables, **load("*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 192.0.2.10/32 -j DROP\nCOMMIT\n").tables})
    assert {find_loss(end, part) for end in follow_answers(early, replace(part, region=asked), None)} == {f"drops the answers to {DIRECT_ONES}"}
