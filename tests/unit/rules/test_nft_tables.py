"""A plan as tables of nft: which rules name a family, what is written of a chain, and when two tables are equal as bytes."""

from __future__ import annotations

import pytest

from core import plan
from netinit.base.net import FAMILIES, IPV4, IPV6, Network
from netinit.base.netlink_attributes import split_attributes
from netinit.base.snapshot import INET
from netinit.options import Options
from netinit.rules.matches.context import Socket
from netinit.rules.matches.packet import Destination, InInterface, Port, Protocol
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS, Chain, Rule, Table
from netinit.rules.nft import (
    EncodedTable,
    are_equal,
    encode_steps,
    format_hook,
    format_rule,
    model_name,
    model_table,
    plan_steps,
    render_script,
    render_tables,
    write_steps,
)
from netinit.rules.rule_builder import EncodedSet, RuleBuilder, expression
from netinit.rules.targets import Accept, Drop, Jump, Reject, Return, format_chain

FOUR, SIX = (IPV4,), (IPV6,)
HOME = Destination(networks=(Network.parse("10.0.0.0/8"),))
PORTS = Port(protocol="tcp", ports=(80, 81))
RANGE = Port(protocol="tcp", ports=((80, 90),))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (("PREROUTING", "nat", -100), "type nat hook prerouting priority dstnat; policy accept;"), (("OUTPUT", "nat", -100), "type nat hook output priority -100; policy accept;"),
        (("PREROUTING", "filter", -300), "type filter hook prerouting priority raw; policy accept;"), (("OUTPUT", "route", -150), "type route hook output priority mangle; policy accept;"),
        (("INPUT", "filter", 0), "type filter hook input priority filter; policy accept;"), (("INPUT", "filter", 50), "type filter hook input priority 50; policy accept;"),
    ],
)  # fmt: skip
def test_a_hook_has_the_name_of_its_priority_where_nft_has_one(place, text):
    assert format_hook(*place) == text
    assert format_hook(*place, accepts=False) == text.replace("accept", "drop")


@pytest.mark.parametrize(
    ("matches", "target", "families", "text"),
    [
        ((), Accept(), FAMILIES, "counter accept"), ((), Accept(), FOUR, "meta nfproto ipv4 counter accept"), ((), Drop(), SIX, "meta nfproto ipv6 counter drop"),
        ((HOME,), Return(), FOUR, "ip daddr 10.0.0.0/8 counter return"), ((Protocol(name="tcp"),), Reject(), FOUR, "meta nfproto ipv4 meta l4proto tcp counter reject with icmp type port-unreachable"),
        ((PORTS, InInterface(names=("lo",))), Reject(), SIX, 'iifname "lo" meta nfproto ipv6 tcp dport { 80, 81 } counter reject with icmpv6 type port-unreachable'),
        ((PORTS, InInterface(names=("lo",))), Jump(chain="ISTIO_PRERT", goto=True), FAMILIES, 'iifname "lo" tcp dport { 80, 81 } counter goto istio-prerouting'),
    ],
)  # fmt: skip
def test_a_rule_is_written_with_its_interfaces_first_and_with_its_family_unless_an_address_says_it(matches, target, families, text):
    rule = Rule(matches=matches, target=target, families=families)
    assert format_rule(rule) == text
    assert format_rule(rule, counter=False) == text.replace("counter ", "")


def steps_of(*chains):
    return plan_steps(Table(name="mangle", chains=chains))


def texts(steps):
    return {chain: [step.text() for step in found] for chain, (_, found) in steps.items()}


def test_a_chain_is_entered_by_the_families_of_all_jumps_that_lead_to_it_however_far_away():
    """A rule of one family says so where packets of the other can come."""
    inner = Chain(name="ISTIO_DIVERT", rules=(Rule(target=Accept(), families=SIX),))
    middle = Chain(name="ISTIO_INBOUND", rules=(Rule(target=Jump(chain="ISTIO_DIVERT")),))
    ways = {families: Rule(target=Jump(chain="ISTIO_INBOUND"), families=families) for families in (FOUR, SIX)}
    one = steps_of(inner, middle, Chain(name="PREROUTING", rules=(ways[SIX],)))
    assert texts(one) == {"istio-divert": ["counter accept"], "istio-inbound": ["counter jump istio-divert"], "prerouting": ["meta nfproto ipv6 counter jump istio-inbound"]}
    for first, second in ((FOUR, SIX), (SIX, FOUR)):
        both = steps_of(Chain(name="PREROUTING", rules=(ways[first],)), Chain(name="OUTPUT", inserted=(ways[second],)), middle, inner)
        assert texts(both)["istio-divert"] == ["meta nfproto ipv6 counter accept"]
        assert texts(both)["istio-inbound"] == ["counter jump istio-divert"]


def test_a_chain_has_a_hook_if_it_is_built_in_and_rules_that_are_inserted_stand_first():
    drop, accept = Rule(target=Drop(), comment="no"), Rule(target=Accept(), comment="yes")
    steps = steps_of(Chain(name="OUTPUT", rules=(drop,), inserted=(accept,)), Chain(name="ISTIO_DIVERT"))
    hook = "type route hook output priority mangle; policy accept;"
    assert write_steps({"t": steps}) == {"t": {"output": (hook, ["counter accept", "counter drop"]), "istio-divert": ("", [])}}
    assert write_steps({"t": steps}, comments=True)["t"]["output"] == (hook, ['counter accept comment "yes"', 'counter drop comment "no"'])


def test_tables_are_written_as_nft_lists_them():
    written = {"one": {"output": ("type nat hook output priority -100; policy accept;", ["counter accept"]), "istio-divert": ("", ["counter drop", "counter return"])}, "two": {"x": ("", [])}}
    assert render_tables(written) == """\
table inet one {
	chain output {
		type nat hook output priority -100; policy accept;
		counter accept
	}

	chain istio-divert {
		counter drop
		counter return
	}
}
table inet two {
	chain x {
	}
}
"""


def test_a_script_has_comments_where_they_are_asked_for():
    made = plan(Options.from_argv(["-b", "80"]))
    plain, commented = render_script(made), render_script(made, comments=True)
    assert (plain.count(' comment "'), render_script(made, comments=False)) == (0, plain)
    assert commented.count(' comment "') == plain.count("counter ")
    assert commented.splitlines()[:8] == plain.splitlines()[:8]


class SocketOfAny(Socket):
    """A socket that nft finds as iptables does."""

    def nft_unless(self):
        return None


def test_a_match_that_stands_in_a_chain_of_its_own_is_tested_behind_its_exception_and_the_other_matches():
    for kind, before in ((Socket, ["socket wildcard 1 counter return"]), (SocketOfAny, [])):
        rule = Rule(matches=(kind(), PORTS), target=Jump(chain="ISTIO_DIVERT"))
        steps = steps_of(Chain(name="PREROUTING", rules=(rule,)), Chain(name="ISTIO_DIVERT"))
        assert texts(steps) == {
            "istio-divert-socket": [*before, "socket transparent <= 1 counter jump istio-divert"], "prerouting": ["tcp dport { 80, 81 } counter jump istio-divert-socket"], "istio-divert": [],
        }  # fmt: skip
        assert {step.rule for _, found in steps.values() for step in found} == {rule}
        assert not steps["istio-divert-socket"][0]


def test_the_names_of_chains_and_tables_are_found_again():
    for name in (*BUILTIN_CHAINS, *OWNED_CHAINS):
        assert model_name(format_chain(name)) == name
    assert [model_table(name) for name in ("istio-proxy-nat", "istio-ambient-raw", "nat", "istio-nat", "x-istio-proxy-nat")] == ["nat", "raw", "nat", "istio-nat", "x-istio-proxy-nat"]


# ---- as bytes --------------------------------------------------------------------------------------------------------------


def encode(*matches, target=Accept(), families=FAMILIES, **more):  # noqa: B008 - a value
    chain = Chain(name="OUTPUT", rules=(Rule(matches=matches, target=target, families=families),))
    return encode_steps(plan_steps(Table(name="filter", chains=(chain, Chain(name="ISTIO_PRERT")))), **more)


def test_a_jump_leads_to_the_name_that_the_chain_has_in_nft_and_a_goto_does_not_come_back():
    jump, goto = (encode(target=Jump(chain="ISTIO_PRERT", goto=goto)).chains["output"][0] for goto in (False, True))
    for rule in (jump, goto):
        assert b"istio-prerouting\0" in rule
        assert b"ISTIO_PRERT" not in rule
    writer = RuleBuilder(INET, [])
    writer.count()
    writer.decide(-4, "istio-prerouting")  # NFT_GOTO
    assert goto == writer.block() != jump


def test_a_range_is_two_comparisons_as_the_oldest_nft_writes_it_unless_one_is_asked_for():
    usual, two, one = encode(RANGE), encode(RANGE, splits_ranges=True), encode(RANGE, splits_ranges=False)
    assert usual == two != one
    assert [found.chains["output"][0].count(b"range\0") for found in (two, one)] == [0, 1]


def test_a_condition_on_the_family_is_encoded_since_both_reach_the_tables():
    rules = [encode(families=families).chains["output"][0] for families in (FAMILIES, FOUR, SIX)]
    load = expression(b"meta", (2, 15), (1, 1))  # NFT_META_NFPROTO
    assert [rule.startswith(load) for rule in rules] == [False, True, True]
    assert len(set(rules)) == 3
    assert len(split_attributes(rules[0])) + 2 == len(split_attributes(rules[1]))


def test_a_rejection_is_encoded_with_the_code_of_its_family():
    assert [encode(target=Reject(), families=families).chains["output"][0].endswith(expression(b"reject", (1, 0), (2, code))) for families, code in ((FOUR, b"\3"), (SIX, b"\4"))] == [True, True]


def test_lists_are_sets_of_the_table_that_are_numbered_through_all_its_chains():
    chains = [Chain(name=name, rules=(Rule(matches=(Port(protocol="tcp", ports=ports),), target=Accept()),)) for name, ports in (("OUTPUT", (80, 81)), ("PREROUTING", (80, 82)))]
    table = encode_steps(plan_steps(Table(name="filter", chains=tuple(chains))))
    assert [(one.name, one.key_length, len(one.elements)) for one in table.sets] == [("__set0", 2, 2), ("__set1", 2, 2)]
    assert [name in rules[0] for name in (b"__set0\0", b"__set1\0") for rules in table.chains.values()] == [True, False, False, True]
    assert encode().sets == ()


def a_set(name, *elements, **more):
    return EncodedSet(name=name, flags=3, key_type=13, key_length=2, elements=elements).replace(**more)


def lookups(*names):
    return b"".join([expression(b"lookup", (1, name.encode("utf-8", "surrogateescape") + b"\0"), (2, 1), (5, 0)) for name in names])


def a_table(*sets, chains=None):
    return EncodedTable(chains=chains if chains is not None else {"c": [lookups(*[one.name for one in sets])]}, sets=sets)


A, B = a_set("__set0", b"1", b"2"), a_set("__set1", b"3")


@pytest.mark.parametrize(
    "other",
    [
        a_table(A, B), a_table(a_set("__set7", b"1", b"2"), a_set("__set3", b"3")), a_table(a_set("__set1", b"2", b"1"), a_set("__set0", b"3")), a_table(a_set("__set\udcff", b"1", b"2"), B),
        a_table(B, A, chains={"c": [lookups("__set0", "__set1")], "empty": []}), a_table(A, B, a_set("__set2", b"9"), chains={"empty": (), "c": (lookups("__set0", "__set1"),)}),
        a_table(A, B, chains={"c": [lookups("__set0", "__set1")]}),
    ],
)  # fmt: skip
def test_tables_are_equal_whatever_their_sets_are_called_and_in_whatever_order_the_elements_are(other):
    assert are_equal(a_table(A, B), other)
    assert are_equal(other, a_table(A, B))


@pytest.mark.parametrize(
    "other",
    [
        a_table(B, A), a_table(A, a_set("__set1", b"4")), a_table(A, B.replace(key_type=12)), a_table(A, B.replace(flags=7)), a_table(A, B.replace(key_length=4)), a_table(A, B.replace(elements=())),
        a_table(A, B, chains={"d": [lookups("__set0", "__set1")]}), a_table(A, B, chains={}), a_table(A, B, chains={"c": [lookups("__set0", "__set0")]}), a_table(A),
        a_table(A, B, chains={"c": [lookups("__set0"), lookups("__set1")]}), a_table(A, B, chains={"c": [lookups("__set0", "theirs")]}), a_table(A, B, chains={"c": [lookups("__set0", "__set9")]}),
        a_table(A, B, chains={"c": [lookups("__set0", "__set1")] * 2}),
    ],
)  # fmt: skip
def test_tables_differ_by_their_rules_and_by_what_the_sets_hold(other):
    assert not are_equal(a_table(A, B), other)
    assert not are_equal(other, a_table(A, B))


def test_sets_of_the_same_content_are_one_and_a_counter_does_not_count():
    twice = a_table(A, A.replace(name="__set1"))
    assert are_equal(twice, a_table(A, chains={"c": [lookups("__set0", "__set0")]}))
    counted = [{"c": [expression(b"counter", (1, bytes(8)), (2, bytes(7) + bytes((number,))))]} for number in (0, 1)]
    assert are_equal(*[EncodedTable(chains=one, sets=()) for one in counted])
