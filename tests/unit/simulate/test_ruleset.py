"""One family's rules as they are simulated: what a rule is called, what a plan adds to the host, and what marks are for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import FAMILIES, IPV4, IPV6, Options, Surroundings, load_plan, number_of, parse_listing, parse_rule, plan
from netinit.base.net import FULL_MASK
from netinit.rules.foreign_targets import Several
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import Origin
from netinit.rules.targets import Accept, Jump, Return
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import (
    HookedChain,
    LoadedChain,
    LoadedRule,
    Ruleset,
    is_ours,
    join_backends,
    list_reachable,
    list_targets,
    map_chains,
    with_plan,
)

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")), ("lo", 7)), local_marks=frozenset({(1, 1)}))


def load(*texts):
    """Rules, numbered from 1."""
    return tuple([LoadedRule(at, text, parse_rule(text, IPV4)) for at, text in enumerate(texts, 1)])


def chains(**texts):
    return {name: LoadedChain(name, load(*rules), "ACCEPT" if name == "OUTPUT" else "") for name, rules in texts.items()}


def hooked(**texts):
    found = chains(**{"OUTPUT": [], **texts})
    return HookedChain("nat", found["OUTPUT"], found, "nat", "OUTPUT", -100)


@pytest.mark.parametrize(("origin", "purpose", "label", "why"), [
    (None, "", "", ""), (None, "a purpose", "", "a purpose"), (Origin(), "a purpose", "", "a purpose"), (Origin(option="", label="x"), "p", "", "p"),
    (Origin(option="uid", label="--uid"), "p", "--uid", "p (--uid)"), (Origin(option="given", label="--given"), "p", "-g 7", "p (-g 7)"),
])  # fmt: skip
def test_a_rule_is_called_by_the_option_that_makes_it_as_it_was_given(origin, purpose, label, why):
    rule = replace(load("-p tcp -j RETURN")[0], origin=origin, purpose=purpose)
    assert (rule.label({"given": "-g 7"}), rule.why({"given": "-g 7"})) == (label, why)


def test_a_host_has_the_addresses_and_marks_that_the_plan_of_its_rules_adds():
    assert Ruleset(IPV4).place_on(POD) is POD
    assert Ruleset(IPV4, addresses=frozenset({7}), local_marks=frozenset({(1, 1)})).place_on(POD) is POD
    placed = Ruleset(IPV4, addresses=frozenset({9, 7, 8})).place_on(POD)
    assert placed == POD.replace(addresses=(*POD.addresses, ("lo", 8), ("lo", 9)))
    assert Ruleset(IPV4, local_marks=frozenset({(2, 3)})).place_on(POD) == POD.replace(local_marks=frozenset({(1, 1), (2, 3)}))


def test_a_called_chain_is_followed_where_it_is_known_has_no_hook_and_did_not_call_before():
    base = hooked(OUTPUT=["-j A"], A=["-j RETURN"])
    assert base.find_called("A", ("OUTPUT",)) == (base.chains["A"], "")
    assert base.find_called("A", ("OUTPUT", "A")) == (None, "the chain A calls itself")
    for name in ("B", "OUTPUT"):
        assert base.find_called(name, ()) == (None, f"nothing is known of {name}")


@pytest.mark.parametrize(("rules", "is_final"), [
    (["-p tcp -j ACCEPT", "-j RETURN"], True), (["-p tcp -j LOG", "-j B"], True), (["-j DNAT --to-destination 1.1.1.1"], True), (["-p tcp"], True), ([], True),
    (["-j RETURN", "-j MARK --set-xmark 1/1"], False), (["-j MYSTERY"], True),
])  # fmt: skip
def test_packets_come_back_from_a_chain_as_they_were_unless_one_of_its_rules_changes_them(rules, is_final):
    base = hooked(A=rules, B=["-p udp -j ACCEPT"])
    assert base.is_final(Jump(chain="A")) is is_final
    assert hooked(A=["-j B"], B=rules).is_final(Jump(chain="A")) is is_final
    mark = parse_rule("-j MARK --set-xmark 1/1", IPV4).target
    assert (base.is_final(mark), base.is_final(Return())) == (False, True)
    assert (base.is_final(Several(targets=(mark, Accept()))), base.is_final(Several(targets=(Accept(), mark)))) == (True, False)


@pytest.mark.parametrize(("rules", "target", "local", "nobody"), [
    ([], "MARK --set-xmark 0x1/0x1", (), True), (["-m mark --mark 0x2/0x2"], "MARK --set-xmark 0x1/0x1", (), True), (["-m mark --mark 0x1/0x3"], "MARK --set-xmark 0x1/0x1", (), False),
    (["-m mark ! --mark 0x0/0x1"], "MARK --set-xmark 0x0/0x1", (), False), (["-m mark --mark 0x1/0x1"], "MARK --set-xmark 0x1/0x0", (), False),
    (["-m connmark --mark 0x1/0x1"], "MARK --set-xmark 0x1/0x1", (), True), (["-m mark --mark 0x1/0x1"], "CONNMARK --set-xmark 0x1/0x1", (), True),
    (["-m connmark --mark 0x1/0x1"], "CONNMARK --set-xmark 0x1/0x1", (), False), ([], "MARK --set-xmark 0x4/0x4", ((4, 4),), False), ([], "MARK --set-xmark 0x4/0x4", ((0, 3),), True),
    ([], "CONNMARK --set-xmark 0x4/0x4", ((4, 4),), True), (["-m connmark --mark 0x1/0x1", "-j CONNMARK --save-mark"], "MARK --set-xmark 0x1/0x1", (), False),
    (["-m mark --mark 0x1/0x1", "-j CONNMARK --restore-mark"], "CONNMARK --set-xmark 0x1/0x1", (), False), (["-m mark --mark 0x2/0x2", "-j CONNMARK --restore-mark"], "CONNMARK --set-xmark 0x1/0x1", (), True),
    ([], "ACCEPT", (), False), ([], "CONNMARK --restore-mark", (), False),
])  # fmt: skip
def test_a_mark_is_for_nobody_whose_bits_no_rule_and_no_policy_rule_reads(rules, target, local, nobody):
    ruleset = Ruleset(IPV4, {"mangle": chains(OUTPUT=rules)})
    assert ruleset.marks_for_nobody(parse_rule(f"-j {target}", IPV4).target, frozenset(local)) is nobody


def test_marks_that_rules_of_others_read_are_read():
    base = hooked(A=["-m mark --mark 0x1/0x1"])
    sets = parse_rule("-j MARK --set-xmark 0x1/0x1", IPV4).target
    other = Ruleset(IPV4, {"mangle": chains(A=["-m mark --mark 0x1/0x1"])})
    for more in ({"foreign": (base, base)}, {"others": (other,)}, {"local_marks": frozenset({(1, 1)})}):
        ruleset = replace(Ruleset(IPV4), **more)
        assert ruleset.marks_for_nobody(sets, frozenset()) is False
    ruleset = Ruleset(IPV4, {"mangle": chains(B=[])}, foreign=(base, base), others=(other,))
    assert [chain.name for chain in ruleset.list_chains()] == ["B", "A", "OUTPUT", "A"], "those of a foreign table once"


@pytest.mark.parametrize(("rules", "proxies"), [([("", "9")], {9, 10}), ([("p", "9"), ("", "10")], {9}), ([("p", "9"), ("p", "10")], {9, 10})])
def test_any_port_may_be_the_proxy_s_where_no_rule_is_known_to_be_planned(rules, proxies):
    loaded = [replace(load(f"-p tcp -j REDIRECT --to-ports {port}")[0], purpose=purpose) for purpose, port in rules]
    ruleset = Ruleset(IPV4, {"nat": {"A": LoadedChain("A", tuple(loaded))}})
    assert {port for port in (9, 10) if ruleset.is_proxy(port)} == proxies


def test_the_rules_of_several_backends_are_one_ruleset_of_the_backend_that_is_ours():
    empty, drops = load_listing(parse_listing("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"), IPV4), load_listing(parse_listing("*filter\n:INPUT DROP [0:0]\nCOMMIT\n"), IPV4)
    one = replace(load_listing(parse_listing("*nat\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n"), IPV4), local_marks=frozenset({(1, 1)}), addresses=frozenset({1}))
    two = replace(drops, local_marks=frozenset({(2, 2)}), addresses=frozenset({2}))
    rulesets = {"none": {IPV4: empty}, "nft": {IPV4: one}, "legacy": {IPV4: two, IPV6: empty}}
    for first, ours, other in (("", "nft", "legacy"), ("nft", "nft", "legacy"), ("legacy", "legacy", "nft"), ("none", "nft", "legacy")):
        found = join_backends(rulesets, IPV4, first)
        assert (found.source, [each.source for each in found.others], found.tables) == (ours, [other], rulesets[ours][IPV4].tables)
        assert found.others[0].tables == rulesets[other][IPV4].tables
        assert (found.local_marks, found.addresses) == (frozenset({(1, 1), (2, 2)}), frozenset({1, 2}))
    assert join_backends(rulesets, IPV6) is empty
    assert join_backends({"none": {IPV4: empty}}, IPV6) == Ruleset(IPV6)
    assert join_backends({"none": {IPV4: empty}, "more": {IPV4: empty}}, IPV4, "more").source == "more"


def test_a_plan_is_loaded_with_its_rules_purposes_marks_and_addresses_of_the_family():
    made = plan(Options.from_argv(["-i", "*", "-b", "*", "-m", "TPROXY"], {}))
    for family in FAMILIES:
        loaded, written = load_plan(made, family), write_plan(made, family)
        assert load_plan(made, family, written) == loaded
        assert (loaded.family, loaded.local_marks, loaded.routing_table) == (family, {(1337, FULL_MASK)}, 133)
        assert {table: [*found] for table, found in loaded.tables.items()} == {table: [*found] for table, found in written.items()}
        for table, found in loaded.tables.items():
            for name, chain in found.items():
                assert (chain.name, chain.policy) == (name, "" if name.startswith("ISTIO_") else "ACCEPT")
                assert [(rule.number, rule.text, rule.purpose, rule.origin) for rule in chain.rules] == [
                    (at, one.text, one.rule.comment, one.rule.origin) for at, one in enumerate(written[table][name].rules, 1)
                ]
                assert [rule.rule for rule in chain.rules] == [parse_rule(rule.text, family) for rule in chain.rules]
                assert {rule.rule.families for rule in chain.rules} <= {(family,)}
    redirect = load_plan(plan(Options.from_argv(["-i", "*", "-b", "*"], {})), IPV4)
    assert (redirect.local_marks, redirect.routing_table) == (frozenset(), 0)
    assert load_plan(made, IPV4).addresses == frozenset([number_of(one.cidr.partition("/")[0]) for one in made.addresses if one.family is IPV4])
    assert load_plan(made, IPV6).addresses == frozenset([number_of(one.cidr.partition("/")[0]) for one in made.addresses if one.family is IPV6]) != frozenset()


@pytest.mark.parametrize(("text", "origin", "ours"), [("-j ISTIO_OUTPUT", None, True), ("-j OTHER", None, False), ("-j RETURN", None, False), ("-j RETURN", Origin(), True)])
def test_a_rule_in_a_built_in_chain_is_ours_if_it_is_planned_or_jumps_to_a_chain_of_ours(text, origin, ours):
    rule = replace(load(text)[0], origin=origin)
    assert is_ours(rule) is ours


def test_what_a_plan_adds_to_the_host_comes_with_its_rules():
    made = plan(Options.from_argv(["-i", "*", "-b", "*", "-m", "TPROXY"], {}))
    before = Ruleset(IPV6, {"nat": chains(OUTPUT=["-j ISTIO_OUTPUT", "-p udp -j RETURN"])}, local_marks=frozenset({(5, 5)}), routing_table=9, addresses=frozenset({5}), unread=("x",))
    found, planned = with_plan(before, made), load_plan(made, IPV6)
    assert (found.local_marks, found.routing_table, found.addresses, found.unread) == (planned.local_marks, 133, planned.addresses, ("x",))
    assert [rule.text for rule in found.tables["nat"]["OUTPUT"].rules] == ["-p udp -j RETURN", *[rule.text for rule in planned.tables["nat"]["OUTPUT"].rules]]


def test_chains_that_may_be_called_are_listed_depth_first_and_once():
    found = chains(OUTPUT=["-j B", "-j A", "-j NOWHERE"], A=["-j C"], B=["-j C", "-j A"], C=["-j B"], LONE=["-j C"])
    assert list_reachable(found, ("OUTPUT", "LONE")) == ["OUTPUT", "B", "C", "A", "LONE"]
    assert list_reachable(found, ("LONE", "OUTPUT")) == ["LONE", "C", "B", "A", "OUTPUT"]
    target = Jump(chain="A")
    assert [str(one.calls) for one in list_targets(found, target)] == ["A", "C", "B", "C", "A"]
    assert list_targets(found, Return()) == [Return()]


def test_each_chain_is_changed_with_the_name_of_its_table():
    tables = {"nat": chains(A=[], B=[]), "mangle": chains(A=[])}
    changed = map_chains(tables, lambda table, chain: replace(chain, name=f"{table} {chain.name}"))
    assert {table: {name: chain.name for name, chain in found.items()} for table, found in changed.items()} == {"nat": {"A": "nat A", "B": "nat B"}, "mangle": {"A": "mangle A"}}
