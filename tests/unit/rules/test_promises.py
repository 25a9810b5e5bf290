"""What gives way where a kernel lacks a feature: the promises that need it, each alone, and nothing of Istio's."""

from __future__ import annotations

import pytest

from core import plan
from netinit.backends.kernel_support import find_unsupported
from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.options import Options
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import OPEN_CHAINS, OWNED_CHAINS, PROMISES, SHARED
from netinit.rules.promises import (
    KEPT,
    OPEN,
    NeededError,
    describe_open,
    find_broken,
    judge_promises,
    leave_out,
    name_missing,
    read_record,
)
from netinit.rules.targets import Jump

ALL_IN = {"ipv6": "on", "inbound_ports": "*", "outbound_cidrs": "*"}
LAYOUTS = [
    ALL_IN, {**ALL_IN, "inbound_mode": "TPROXY"}, {**ALL_IN, "virtual_interfaces": ("net1",)}, {"layout": "ambient", "ipv6": "on"},
    {**ALL_IN, "layout": "classic"}, {**ALL_IN, "layout": "classic", "inbound_mode": "TPROXY"},
]
EVERYTHING = dict.fromkeys(FAMILIES, frozenset(PROMISES))


def without(made, *names, family=None):
    """What of a plan a kernel without these features does not take; `family`: only there."""
    return find_unsupported(made, made.families, lambda one, need: need.name not in names or family not in (None, one))


def texts(made, family=IPV4):
    return {(table, chain): one.texts for table, chains in write_plan(made, family).items() for chain, one in chains.items() if chain not in OPEN_CHAINS}


def test_each_promise_has_words_and_a_chain_with_a_name_that_every_backend_takes():
    assert list(KEPT) == list(OPEN) == list(PROMISES)
    assert set(OPEN_CHAINS.values()) == set(PROMISES)
    assert all(len(name) <= 28 for name in OPEN_CHAINS)
    assert OPEN_CHAINS.keys() < OWNED_CHAINS


def test_what_a_kernel_lacks_is_named_once():
    lacking = without(plan(Options(**ALL_IN)), "conntrack", "addrtype", "REJECT")
    assert any(", " in need for rules in lacking.values() for need in rules.values()), "a rule may need several"
    assert sorted(name_missing(lacking).split(", ")) == ["REJECT", "addrtype", "conntrack"]


@pytest.mark.parametrize("given", LAYOUTS)
def test_without_all_promises_the_rules_are_istios(given):
    left = leave_out(plan(Options(**given)), EVERYTHING)
    exact = plan(Options(**given, istio_exact=True))
    inbound = [one for one in texts(exact) if one[0] != "filter"]
    for family in FAMILIES:
        reduced = texts(left, family)
        assert not [one for one in reduced if one[0] == "filter" and one not in texts(exact, family)]
        if given.get("layout") != "classic":  # there, an IPv6 redirect stays that needs nothing more than Istio's rules
            assert reduced == texts(exact, family)
    assert inbound


@pytest.mark.parametrize("given", LAYOUTS)
def test_every_rule_beyond_istios_is_a_promise_or_shared_by_some(given):
    made, exact = plan(Options(**given)), plan(Options(**given, istio_exact=True))
    known = {(table, chain, rule.matches, type(rule.target)) for table, chain, rule in exact.walk()}
    more = [(table, rule) for table, chain, rule in made.walk() if (table, chain, rule.matches, type(rule.target)) not in known]
    assert more
    assert {rule.promise for table, rule in more if table != "nat"} <= {*PROMISES, SHARED}
    assert not {rule.promise for *_, rule in exact.walk()} - {""}


@pytest.mark.parametrize(("names", "broken"), [
    (("addrtype",), {"own_addresses"}),
    (("REJECT",), {"reuse"}),
    (("conntrack",), {"reuse", "segments", "handshakes", "loopback", "own_addresses"}),
    (("filter",), {"reuse", "segments", "handshakes", "loopback", "own_addresses", "passthrough"}),
])  # fmt: skip
def test_promises_give_way_alone(names, broken):
    made = plan(Options(**ALL_IN))
    found = find_broken(made, without(made, *names))
    assert found[IPV6] == broken
    assert found[IPV4] == broken - {"passthrough"}
    left = leave_out(made, found)
    assert not without(left, *names)
    assert {rule.promise for *_, rule in left.walk()} - {"", SHARED} == {rule.promise for *_, rule in made.walk()} - {"", SHARED} - broken
    called = {(table, rule.target.chain) for table, _, rule in left.walk() if isinstance(rule.target, Jump)}
    chains = {(table.name, chain.name) for table in left.tables for chain in table.chains}
    assert called <= chains


def test_families_give_way_apart():
    made = plan(Options(**ALL_IN))
    left = leave_out(made, find_broken(made, without(made, "REJECT", family=IPV6)))
    assert texts(left, IPV4) == texts(made, IPV4)
    assert not any("REJECT" in text for rules in texts(left, IPV6).values() for text in rules)
    assert left.warnings[-1].endswith(f"this is open: IPv6: {OPEN['reuse']}")


@pytest.mark.parametrize(("names", "given"), [
    (("owner",), {}), (("REDIRECT",), {}), (("TPROXY",), {"inbound_mode": "TPROXY"}), (("REJECT",), {"reject_quic": True}),
    (("CT",), {"redirect_dns": True, "dns_servers": ("10.0.0.10",)}),
])  # fmt: skip
def test_what_istios_rules_or_an_option_need_does_not_give_way(names, given):
    made = plan(Options(**ALL_IN, **given))
    with pytest.raises(NeededError, match=names[0]):
        find_broken(made, without(made, *names))


def test_in_tproxy_mode_istios_rule_comes_in_place_of_ours():
    given = {**ALL_IN, "inbound_mode": "TPROXY"}
    made, exact = plan(Options(**given)), plan(Options(**given, istio_exact=True))
    left = leave_out(made, dict.fromkeys(FAMILIES, frozenset({"answers"})))
    assert texts(left)["mangle", "ISTIO_INBOUND"] == texts(exact)["mangle", "ISTIO_INBOUND"]
    assert texts(left)["filter", "OUTPUT"] == texts(made)["filter", "OUTPUT"]


def test_the_record_is_read_back_and_ignores_what_the_plan_does_not_promise():
    made = plan(Options(**ALL_IN))
    left = {IPV4: frozenset({"reuse"}), IPV6: frozenset({"segments", "reuse"})}
    reduced = leave_out(made, left)
    names = {family: [chain for chains in write_plan(reduced, family).values() for chain in chains] for family in FAMILIES}
    assert read_record(names) == left
    assert leave_out(made, read_record({family: ["ISTIO_OPEN_ANSWERS", "FOREIGN"] for family in FAMILIES})) is made
    assert leave_out(made, {}) is made


def test_what_is_open_is_said_once_if_it_is_alike():
    both = dict.fromkeys(FAMILIES, frozenset({"reuse"}))
    assert describe_open(both, "REJECT") == (
        "this kernel has no REJECT: rules beyond Istio's that the kernel does not take are left out, and this is open: " + OPEN["reuse"]
    )
    assert describe_open({**both, IPV4: frozenset({"segments"})}).endswith(f"open: IPv4: {OPEN['segments']}; IPv6: {OPEN['reuse']}")


def test_a_plan_that_no_options_made_cannot_be_reduced():
    made = plan(Options(**ALL_IN))
    with pytest.raises(TypeError, match=r"^the plan was not made from options$"):
        leave_out(made.replace(made_from=None), EVERYTHING)
    assert leave_out(made.replace(made_from=None), {}).tables == made.tables


def named(made, *names, family=None):
    """What the kernel lacks for each promise, of those for which it lacks something."""
    return {one: {promise: needs for promise, needs in its.items() if needs} for one, its in judge_promises(made, without(made, *names, family=family)).items()}


def test_what_the_kernel_lacks_is_named_for_each_promise_that_needs_it():
    made = plan(Options(**ALL_IN))
    assert named(made) == {IPV4: {}, IPV6: {}}
    assert named(made, "REJECT") == {IPV4: {"reuse": "REJECT"}, IPV6: {"reuse": "REJECT"}}
    assert named(made, "addrtype", family=IPV6) == {IPV4: {}, IPV6: {"own_addresses": "addrtype"}}
    assert named(made, "owner", family=IPV4) == {IPV4: {"": "owner", **dict.fromkeys(("reuse", "segments", "own_addresses"), "owner")}, IPV6: {}}
    several = named(made, "conntrack", "addrtype", "REJECT")[IPV4]
    assert several == {"reuse": "conntrack, REJECT", "segments": "conntrack", "handshakes": "conntrack", "loopback": "conntrack", "own_addresses": "addrtype, conntrack"}
    assert named(made, "conntrack", "addrtype")[IPV6]["own_addresses"] == "addrtype, conntrack", "once, though two rules need one and one both"
    promises = {rule.promise for *_, rule in made.walk()} - {"shared"}
    assert judge_promises(made, {})[IPV6].keys() == promises
    assert judge_promises(made, {})[IPV4].keys() == promises - {"passthrough"}


def test_what_istios_rules_need_is_named_for_each_family():
    made = plan(Options(**ALL_IN))
    lacking = {IPV4: without(made, "owner")[IPV4], IPV6: without(made, "REDIRECT")[IPV6]}
    with pytest.raises(NeededError, match=r"^owner, REDIRECT$"):
        find_broken(made, lacking)
    assert find_broken(made, {}) == {}
    assert find_broken(made, without(made, "REJECT", family=IPV6)) == {IPV6: {"reuse"}}


def test_the_kernel_s_lack_is_in_the_warning_if_it_is_known():
    made = plan(Options(**ALL_IN))
    left = dict.fromkeys(FAMILIES, frozenset({"reuse"}))
    assert leave_out(made, left).warnings == (describe_open(left),)
    assert leave_out(made, left, "REJECT").warnings == (describe_open(left, "REJECT"),)
    assert leave_out(made.replace(warnings=("before",)), left, "REJECT").warnings == ("before", describe_open(left, "REJECT"))
    assert describe_open(left).startswith("rules beyond Istio's")
    assert describe_open({IPV4: frozenset({"reuse", "segments"}), IPV6: frozenset()}).endswith(f"open: IPv4: {OPEN['reuse']}; {OPEN['segments']}")
    assert read_record({IPV4: ["ISTIO_OPEN_REUSE"], IPV6: ["ISTIO_OUTPUT"]}) == {IPV4: {"reuse"}}


def test_the_record_follows_from_the_option_that_leaves_these_rules_out():
    left = leave_out(plan(Options(**ALL_IN)), EVERYTHING)
    records = [(rule.origin.option, rule.origin.label, rule.families) for _, chain, rule in left.walk() if chain in OPEN_CHAINS]
    assert set(records) == {("istio_exact", "this kernel", FAMILIES), ("istio_exact", "this kernel", (IPV6,))}
