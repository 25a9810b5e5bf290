"""Rules with one of them left out, and the marks of a plan. tests/unit/live/test_foreign_proof.py has whom a proof blames."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import IPV4, IPV6, parse_listing, plan
from netinit.base.net import FULL_MASK
from netinit.live.culprits import leave_out, marks_of
from netinit.options import Options
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import HookedChain, RuleHit, Ruleset

TEXT = "*filter\n:OUTPUT ACCEPT [0:0]\n:MORE - [0:0]\n-A OUTPUT -p tcp -j MORE\n-A OUTPUT -p tcp -j DROP\n-A MORE -p udp -j DROP\n-A MORE -p tcp -j DROP\nCOMMIT\n"


def load():
    return load_listing(parse_listing(TEXT), IPV4)


def texts(ruleset):
    """The rules of every chain, of the ruleset, the other backends, and foreign tables."""
    own = [chain for one in ruleset.backends for chain in one.chains]
    return {
        (place, chain.name): [one.text for one in chain.rules]
        for place, chains in (("tables", own), ("foreign", [chain for one in ruleset.foreign for chain in (*one.chains.values(), one.chain)]))
        for chain in chains
    }  # fmt: skip


PLACES = {
    "its own": lambda one: one,
    "another backend's": lambda one: Ruleset(IPV4, others=(replace(one, source="iptables-legacy"),)),
    "foreign": lambda one: Ruleset(IPV4, foreign=(HookedChain("ip x", one.tables["filter"]["OUTPUT"], one.tables["filter"], "filter", "OUTPUT", 5),)),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("chain", "at"), [("OUTPUT", 0), ("OUTPUT", 1), ("MORE", 1)])
def test_a_rule_is_left_out_where_it_is_and_in_no_other_chain(place, chain, at):
    loaded = load()
    before, gone = texts(PLACES[place](loaded)), loaded.tables["filter"][chain].rules[at]
    after = texts(leave_out(PLACES[place](loaded), RuleHit("OUTPUT", "filter", chain, (gone,))))
    assert after == {key: [text for text in rules if key[1] != chain or text != gone.text] for key, rules in before.items()}
    assert after != before


def test_what_the_kernel_holds_as_one_rule_is_left_out_as_one():
    loaded = load()
    first, second = loaded.tables["filter"]["OUTPUT"].rules
    output = replace(loaded.tables["filter"]["OUTPUT"], rules=(replace(first, handle=7), replace(second, number=1, handle=7), replace(second, handle=8), replace(second, number=1, handle=9)))
    split = replace(loaded, tables={"filter": {**loaded.tables["filter"], "OUTPUT": output}})
    left = leave_out(split, RuleHit("OUTPUT", "filter", "OUTPUT", (output.rules[1],))).tables["filter"]["OUTPUT"].rules
    assert [(one.number, one.handle) for one in left] == [(2, 8), (1, 9)]


@pytest.mark.parametrize(
    ("words", "marks"),
    [
        ("-b *", set()), ("-b * -m TPROXY", {(1337, FULL_MASK), (1338, FULL_MASK)}), ("-b * -m TPROXY -t 7", {(7, FULL_MASK), (1338, FULL_MASK)}),
        ("--layout ambient", {(0x539, 0xFFF), (0x111, 0xFFF)}),
    ],
)  # fmt: skip
def test_the_marks_of_a_plan_are_those_that_it_gives_and_asks_for(words, marks):
    for family in (IPV4, IPV6):
        assert marks_of(plan(Options.from_argv([*words.split(), "--ipv6", "on"])), family) == marks
