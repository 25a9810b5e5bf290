"""The parts of a plan, and which chains of the kernel are those of a plan."""

from __future__ import annotations

import pytest

from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.base.snapshot import INET, NftChain
from netinit.rules.matches.packet import InInterface, OutInterface, Protocol
from netinit.rules.model import ALWAYS, EMPTY_PLAN, Chain, IpRule, Origin, Plan, Rule, Table, expected_base, is_base_of
from netinit.rules.targets import Accept, Jump, Return

# As `iptables-nft` creates them: table, chain, type, priority and the number of the hook
BASES = [
    ("raw", "PREROUTING", "filter", -300, 0), ("raw", "OUTPUT", "filter", -300, 3),
    ("mangle", "PREROUTING", "filter", -150, 0), ("mangle", "INPUT", "filter", -150, 1), ("mangle", "FORWARD", "filter", -150, 2), ("mangle", "OUTPUT", "route", -150, 3),
    ("mangle", "POSTROUTING", "filter", -150, 4),
    ("nat", "PREROUTING", "nat", -100, 0), ("nat", "INPUT", "nat", 100, 1), ("nat", "OUTPUT", "nat", -100, 3), ("nat", "POSTROUTING", "nat", 100, 4),
    ("filter", "INPUT", "filter", 0, 1), ("filter", "FORWARD", "filter", 0, 2), ("filter", "OUTPUT", "filter", 0, 3), ("security", "INPUT", "filter", 50, 1),
]  # fmt: skip


@pytest.mark.parametrize(("table", "chain", "kind", "priority", "hook"), BASES)
def test_a_built_in_chain_has_its_hook_type_and_priority_and_only_one_with_all_three_is_it(table, chain, kind, priority, hook):
    assert expected_base(table, chain) == (kind, priority)
    live = NftChain(family=INET, table="any", name="any", kind=kind, hook=hook, priority=priority)
    assert is_base_of(live, table, chain)
    assert [one[:2] for one in BASES if is_base_of(live, *one[:2])] == [(table, chain)]
    others = [live.replace(kind="" if kind else "nat"), live.replace(priority=priority + 1), live.replace(hook=(hook + 1) % 5), live.replace(hook=-1), live.replace(hook=7)]
    assert not any(is_base_of(one, table, chain) for one in others)
    assert not is_base_of(live, "bridge", chain)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mark": 1337, "table": 133}, "fwmark 0x539 lookup 133"), ({"mark": 273, "mask": 4095, "table": 100}, "fwmark 0x111/0xfff lookup 100"),
        ({"mark": 273, "mask": 4095, "table": 100, "priority": 32764}, "fwmark 0x111/0xfff pref 32764 lookup 100"), ({"mark": 1, "table": 2, "priority": 3}, "fwmark 0x1 pref 3 lookup 2"),
    ],
)  # fmt: skip
def test_a_policy_rule_is_described_as_ip_takes_it(fields, words):
    assert IpRule(family=IPV4, **fields).describe() == words


def test_a_rule_says_which_option_it_follows_from_if_it_is_of_a_plan():
    assert Rule(target=Return()).origin_label == ""
    assert Rule(target=Return(), origin=ALWAYS).origin_label == "always"
    assert Rule(target=Return(), origin=Origin(option="x", label="--x")).origin_label == "--x"
    assert (ALWAYS.option, Rule(target=Return()).families) == ("", FAMILIES)


FIRST, SECOND, THIRD = (Rule(target=target) for target in (Return(), Accept(), Jump(chain="ISTIO_OUTPUT")))
OF_OPTION = Origin(option="exclude_interfaces", label="--istio-exclude-interfaces")


def test_rules_are_listed_with_those_first_that_come_before_foreign_ones():
    chain = Chain(name="OUTPUT", rules=(FIRST, SECOND), inserted=(THIRD,))
    assert (chain.builtin, chain.all_rules) == (True, (THIRD, FIRST, SECOND))
    own = Chain(name="ISTIO_OUTPUT", rules=(FIRST,))
    assert (own.builtin, own.all_rules, Chain(name="x").all_rules) == (False, (FIRST,), ())
    made = Plan(layout="current", families=(IPV6,), tables=(Table(name="nat", chains=(chain, own)), Table(name="raw", chains=(own,))))
    assert list(made.walk()) == [
        ("nat", "OUTPUT", THIRD), ("nat", "OUTPUT", FIRST), ("nat", "OUTPUT", SECOND), ("nat", "ISTIO_OUTPUT", FIRST), ("raw", "ISTIO_OUTPUT", FIRST),
    ]  # fmt: skip
    assert (list(EMPTY_PLAN.walk()), EMPTY_PLAN.excluded_interfaces(), EMPTY_PLAN.families) == ([], frozenset(), ())


def test_excluded_interfaces_are_those_of_rules_that_follow_from_the_option():
    rules = (
        Rule(target=Return(), matches=(InInterface(names=("a", "b+")),), origin=OF_OPTION), Rule(target=Return(), matches=(Protocol(name="tcp"), OutInterface(names=("c",))), origin=OF_OPTION),
        Rule(target=Return(), matches=(InInterface(names=("d",)),)), Rule(target=Return(), matches=(InInterface(names=("e",)),), origin=ALWAYS),
    )  # fmt: skip
    made = Plan(layout="current", families=FAMILIES, tables=(Table(name="nat", chains=(Chain(name="OUTPUT", rules=rules),)),))
    assert made.excluded_interfaces() == {"a", "b+", "c"}
