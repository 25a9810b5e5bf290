"""Two partitions of all packets: which packets are treated differently."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from allpackets import around
from core import FAMILIES, IPV4, Surroundings, number_of, parse_listing, plan
from goldens import SAMPLE, options_of
from netinit.base.errors import TooManyPartsError
from netinit.base.net import FULL_MASK
from netinit.rules.foreign_targets import WriteDestination
from netinit.rules.model import Rule
from netinit.simulate.condition import KEPT, PRIMARY, Condition, MarkBits
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import HookedChain, LoadedChain, LoadedRule, RuleHit, join_backends, load_plan
from netinit.simulate.symbolic import chain_walk
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import local, make_spaces
from netinit.simulate.symbolic.partition import Part, Partition, compare, compare_parts
from netinit.simulate.symbolic.regions import everything, in_states, marked, nothing, valued, within
from netinit.simulate.symbolic.space import INBOUND, OUTBOUND, CtState, Dim, make_space
from netinit.simulate.trace import DELIVERED, DROPPED, SENT, UNKNOWN

SETS_BIT_1 = "-j MARK --set-xmark 0x1/0x1"


def load(table, *lists):
    """The rulesets of these lists of rules of OUTPUT, and the outbound packets of both."""
    texts = ["\n".join([f"*{table}", ":OUTPUT ACCEPT [0:0]", *[f"-A OUTPUT {rule}" for rule in rules], "COMMIT", ""]) for rules in lists]
    rulesets = [{IPV4: load_listing(parse_listing(text), IPV4)} for text in texts]
    (space,) = [one for one in make_spaces(rulesets, {IPV4: around(IPV4)}, free=False) if one.direction == OUTBOUND]
    return *rulesets, space


def find_divergent(before, after):
    """The marks of outbound packets, of 0 and 1, that two lists of rules of mangle treat differently."""
    first, second, space = load("mangle", before, after)
    found = [one.region for one in compare(divide(space, first[IPV4]), divide(space, second[IPV4]))]
    return {mark for mark in (0, 1) if any(region & marked(space, "mark", mark, 1) for region in found)}


@pytest.mark.parametrize(
    ("before", "after", "marks"),
    [
        ([SETS_BIT_1], [SETS_BIT_1], set()),
        ([SETS_BIT_1], [], {0}),
        ([f"-m mark --mark 0x1/0x1 {SETS_BIT_1}"], [], set()),
        ([f"-m mark --mark 0x0/0x1 {SETS_BIT_1}"], [], {0}),
        (["-j MARK --set-xmark 0x0/0x1"], [], {1}),
        ([SETS_BIT_1], ["-j MARK --set-xmark 0x0/0x1"], {0, 1}),
    ],
)
def test_packets_differ_where_their_marks_end_differently(before, after, marks):
    assert find_divergent(before, after) == find_divergent(after, before) == marks


def test_marks_that_differ_by_both_initial_marks_are_found_beside_those_that_differ_by_one():
    copies = "-j CONNMARK --restore-mark --nfmask 0x2 --ctmask 0x2"
    first, second, space = load("mangle", [copies, SETS_BIT_1], [])
    found = [one.region for one in compare(divide(space, first[IPV4]), divide(space, second[IPV4]))]
    sets, restores = [any(region & marked(space, "mark", one, 3) for region in found) for one in (0, 1)]
    assert sets
    assert restores, "the first bit of this packet is set already, and its second one becomes that of its connection"


@pytest.mark.parametrize("behaviour", SAMPLE)
def test_without_paths_all_packets_end_alike_in_fewer_parts(behaviour):
    made = plan(options_of(behaviour))
    rulesets = {family: load_plan(made, family) for family in made.families}
    for space in make_spaces([rulesets], {family: around(family) for family in FAMILIES}, free=True):
        ruleset = rulesets.get(space.family)
        with_paths, without = [divide(space, ruleset, keeps_paths=keeps) for keeps in (True, False)]
        assert not any(compare(with_paths, without))
        assert not any(part.path for part in without.parts)
        assert len(without.parts) == len({(part.fate, part.condition, part.reason) for part in without.parts}) <= len(with_paths.parts)


def test_without_paths_what_is_uncertain_stays_so():
    rules = ["-m statistic --mode random --probability 0.5 -j MARK --set-xmark 0x1/0x1", "-p tcp -j DROP"]
    first, _, space = load("mangle", rules, [])
    for keeps in (True, False):
        parts = divide(space, first[IPV4], keeps_paths=keeps).parts
        assert {(one.fate, one.condition.has_vague_marks) for one in parts} == {(fate, True) for fate in (DROPPED, SENT, DELIVERED)}


def test_the_first_difference_takes_less_work_than_all_of_them():
    ports = [f"-p tcp -m tcp --dport {port} -j MARK --set-xmark {port:#x}" for port in range(1000, 1040)]
    first, second, space = load("mangle", ports, [])
    before, after = divide(space, first[IPV4]), divide(space, second[IPV4])
    space.diagram.work = 0
    next(compare(before, after))
    one, space.diagram.work = space.diagram.work, 0
    assert len(list(compare(before, after))) >= 40
    assert one < space.diagram.work / 4


def test_packets_that_end_in_the_same_way_do_not_differ_whatever_they_were_before():
    first, _, space = load("mangle", ["-j DROP"], [])
    part = next(part for part in divide(space, first[IPV4]).parts if part.fate == DROPPED)
    changed = replace(part, condition=part.condition.replace(zone=7))
    assert compare_parts(part.region, part, changed) == nothing(space)
    assert compare_parts(part.region, part, replace(changed, fate=UNKNOWN)) == part.region


def test_packets_whose_fate_depends_on_the_order_are_told_by_the_rule_that_departs_from_ours():
    redirect = "-p tcp -j REDIRECT --to-ports"
    ours, theirs, space = load("nat", [f"{redirect} 15001"], [f"{redirect} 9"])
    parts = divide(space, join_backends({"nft": ours, "legacy": theirs}, IPV4, "nft")).parts
    assert {tuple(map(str, part.path)) for part in parts if part.fate == UNKNOWN} == {(f"rule 1 of legacy's nat OUTPUT, `{redirect} 9`",)}


def mark_each(count, *more):
    """Rules that each set a bit of the mark on a condition of its own: they double the ways of packets one by one."""
    kinds = ("-p tcp -m tcp --dport {0}:{1}", "-m owner --uid-owner {0}-{1}", "-m owner --gid-owner {0}-{1}", "-s 10.0.0.{2}/32")
    ways = [kinds[at % len(kinds)].format(1000 + at * 100, 1400 + at * 90, at) for at in range(count)]
    return [*[f"{way} -j MARK --set-xmark {1 << at + 4:#x}/{1 << at + 4:#x}" for at, way in enumerate(ways)], *more]


def test_marks_that_nothing_reads_make_no_parts_unless_marks_matter():
    rules, other, space = load("mangle", mark_each(8), mark_each(8, "-m mark --mark 0x10/0x10 -j ACCEPT"))
    few, many = (divide(space, rules[IPV4], marks_matter=matter).parts for matter in (False, True))
    assert len(few) < 4
    assert len(many) > 100
    assert len(few) < len(divide(space, other[IPV4], marks_matter=False).parts) < 8, "one bit is read"


def test_a_proof_that_takes_too_much_work_ends_with_the_name_of_a_rule_that_divides(monkeypatch):
    monkeypatch.setattr(chain_walk, "MAX_WORK", 20_000)
    rules, _, space = load("mangle", mark_each(12, "-m mark --mark 0x550/0xffff0 -j DROP"), [])
    with pytest.raises(TooManyPartsError, match=r"more than 20,000 steps, most of all because of rule \d+ of mangle OUTPUT, `.* -j MARK .*`; ask for"):
        divide(space, rules[IPV4], marks_matter=False)


@pytest.mark.parametrize(("nat", "fate"), [("-A OUTPUT -p tcp -j REDIRECT --to-ports 15001\n", DROPPED), ("", SENT)])
@pytest.mark.parametrize(("address", "port"), [("203.0.113.9", 0), ("", 81), ("203.0.113.9", 81)])
def test_what_a_rule_wrote_before_tracking_is_no_destination_that_nat_translated(nat, fate, address, port):
    text = f"*nat\n:OUTPUT ACCEPT [0:0]\n{nat}COMMIT\n*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m conntrack --ctstate DNAT -j DROP\nCOMMIT\n"
    chain = LoadedChain("OUTPUT", (LoadedRule(1, "", Rule(target=WriteDestination(text="", address=address, port=port))),), "ACCEPT")
    writes = HookedChain("ip theirs", chain, {"OUTPUT": chain}, "filter", "OUTPUT", -300)
    ruleset = replace(load_listing(parse_listing(text), IPV4), foreign=(writes,))
    (space,) = [one for one in make_spaces([{IPV4: ruleset}], {IPV4: around(IPV4)}, free=False) if one.direction == OUTBOUND]
    asked = in_states(space, (CtState.NEW,)) & valued(space, Dim.PROTOCOL, "tcp") - local(space, Dim.DESTINATION)
    assert {part.fate for part in divide(space, ruleset).parts if part.region & asked} == {fate}


TWO_DEVICES = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")), ("net1", number_of("10.1.0.2"))))
OUT, IN = (make_space(direction, TWO_DEVICES, set(), {"br0"}, free=True) for direction in (OUTBOUND, INBOUND))


def differ(space, one, other, *, fates=(SENT, SENT)):
    """The packets of a space for which two conditions, or two fates, differ."""
    parts = [Part(everything(space), fate, Condition(**given), ()) for fate, given in zip(fates, (one, other), strict=True)]
    found = compare_parts(everything(space), *parts)
    assert found == compare_parts(everything(space), *parts[::-1])
    return found


@pytest.mark.parametrize(("name", "value"), [
    ("redirect_port", 1), ("transparent", True), ("policy_routed", True), ("zone", 1), ("reply_zone", 1), ("has_vague_marks", True), ("mark", MarkBits(flip=1)),
    ("connection_mark", MarkBits(connection=FULL_MASK, flip=2)), ("destination", None), ("source", None), ("destination_port", None), ("state", "OTHER"), ("out_interface", "eth9"),
])  # fmt: skip
def test_each_thing_that_packets_end_with_makes_a_difference(name, value):
    kept = {"out_interface": KEPT} if name == "out_interface" else {}
    whole = everything(OUT)
    assert differ(OUT, kept, {name: value}) == (whole - marked(OUT, "mark", 1, FULL_MASK) if name == "mark" else whole)
    if name != "has_vague_marks":
        assert differ(OUT, {name: value}, {name: value}) == nothing(OUT)
    assert differ(OUT, {}, {name: value}, fates=(DROPPED, DROPPED)) == nothing(OUT), "it is gone"


@pytest.mark.parametrize(("name", "value", "same"), [
    ("destination", 7, within(OUT, Dim.DESTINATION, [(7, 7)])), ("source", 7, within(OUT, Dim.SOURCE, [(7, 7)])),
    ("destination_port", 7, within(OUT, Dim.DESTINATION_PORT, [(7, 7)])), ("state", "UNTRACKED", valued(OUT, Dim.STATE, "UNTRACKED")),
])  # fmt: skip
def test_what_began_as_another_packet_ends_is_no_difference(name, value, same):
    assert differ(OUT, {}, {name: value}) == everything(OUT) - same
    if name != "state":
        assert differ(OUT, {name: 8}, {name: value}) == everything(OUT)


def test_a_packet_that_keeps_its_device_differs_from_one_that_gets_another():
    assert differ(OUT, {"out_interface": KEPT}, {"out_interface": "net1"}) == everything(OUT) - valued(OUT, Dim.INTERFACE, "net1")


@pytest.mark.parametrize(("other", "same"), [
    (number_of("10.1.0.2"), valued(IN, Dim.INTERFACE, "net1")), (number_of("10.9.9.9"), nothing(IN)),
    (None, valued(IN, Dim.INTERFACE, "br0") | valued(IN, Dim.INTERFACE, IN.dimension(Dim.INTERFACE).values[-1])),
    (KEPT, valued(IN, Dim.INTERFACE, "eth0") & within(IN, Dim.DESTINATION, [(number_of("10.0.0.2"),) * 2]) | valued(IN, Dim.INTERFACE, "net1") & within(IN, Dim.DESTINATION, [(number_of("10.1.0.2"),) * 2])),
])  # fmt: skip
def test_the_address_of_the_device_where_a_packet_came_in_is_compared_device_by_device(other, same):
    assert differ(IN, {"destination": PRIMARY}, {"destination": other}) == everything(IN) - same


def test_marks_differ_for_the_packets_that_began_with_such_marks():
    kinds = [MarkBits(packet=one, connection=two, flip=three) for one in (0, 1, 3) for two in (0, 2, 3) for three in (0, 1)]
    points = {(mark, other): marked(OUT, "mark", mark, FULL_MASK) & marked(OUT, "connection mark", other, FULL_MASK) for mark in range(4) for other in range(4)}
    for one, other in product(kinds, repeat=2):
        ends = {(mark, also): [(mark & bits.packet) ^ (also & bits.connection) ^ bits.flip for bits in (one, other)] for mark, also in points}
        wanted = {point for point, (first, second) in ends.items() if first != second}
        found = differ(OUT, {"mark": one}, {"mark": other})
        told = {point for point, region in points.items() if region & found}
        mixed = one.packet ^ other.packet, one.connection ^ other.connection
        assert told <= wanted
        assert told == wanted if (mixed[0] & mixed[1]).bit_count() <= 1 else bool(told) == bool(wanted), (one, other)


@pytest.mark.parametrize(("fate", "vague", "known"), [(UNKNOWN, False, False), (SENT, True, True), (SENT, False, None)])
def test_what_is_not_known_may_differ_from_itself(fate, vague, known):
    one = Partition(OUT, (Part(everything(OUT), fate, Condition(has_vague_marks=vague), ()),))
    assert [(found.region, found.known) for found in compare(one, one)] == ([] if known is None else [(everything(OUT), known)])
    other = Partition(OUT, (Part(everything(OUT), DROPPED, Condition(), ()),))
    assert [(found.region, found.known) for found in compare(one, other)] == [(everything(OUT), True)]
    assert [found.known for found in compare(other, one)] == [True]


def test_each_pair_of_parts_is_a_difference_of_its_own():
    tcp, udp, rest = (valued(OUT, Dim.PROTOCOL, name) for name in OUT.dimension(Dim.PROTOCOL).values)
    hits = [RuleHit("OUTPUT", "nat", "OUTPUT", (LoadedRule(at, "", Rule(target=WriteDestination(text=""))),)) for at in (1, 2)]
    before = Partition(OUT, (Part(tcp, SENT, Condition(), (hits[0],)), Part(udp, SENT, Condition(), (hits[1],)), Part(rest, SENT, Condition(zone=1), ())))
    after = Partition(OUT, (Part(tcp | udp, SENT, Condition(zone=1), ()), Part(rest, SENT, Condition(zone=1), ())))
    found = [(one.region, one.before.path, one.after.region) for one in compare(before, after)]
    assert found == [(tcp, (hits[0],), tcp | udp), (udp, (hits[1],), tcp | udp)]
