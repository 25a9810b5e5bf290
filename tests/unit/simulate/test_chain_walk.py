"""Sets of packets in chains: the rules on their path, in doubt or not, and where they are merged again."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from allpackets import around, check_cover, check_members
from core import IPV4, parse_listing
from netinit.base.errors import TooManyPartsError
from netinit.simulate.condition import INITIAL_MARKS
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import HookedChain, Ruleset, join_backends
from netinit.simulate.symbolic import chain_walk
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.regions import in_states, unite, valued, within
from netinit.simulate.symbolic.space import OUTBOUND, CtState, Dim
from netinit.simulate.trace import DELIVERED, DROPPED, REFUSED, SENT, UNKNOWN

HOOKS = {"raw": ("PREROUTING", "OUTPUT"), "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"), "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
         "filter": ("INPUT", "FORWARD", "OUTPUT")}  # fmt: skip
MAYBE = "-m set --match-set x{} dst"


def load(*texts, policies=()) -> Ruleset:
    """A ruleset out of lines such as `nat OUTPUT -p tcp -j X`."""
    listing = ""
    for table, hooks in HOOKS.items():
        own = [text.split(" ", 2)[1:] for text in texts if text.startswith(f"{table} ")]
        names = dict.fromkeys([*hooks, *[chain for chain, _ in own]])
        lines = [f":{name} {dict(policies).get(f'{table} {name}', 'ACCEPT') if name in hooks else '-'} [0:0]" for name in names]
        if own:
            listing += "\n".join([f"*{table}", *lines, *[f"-A {chain} {rule}" for chain, rule in own], "COMMIT", ""])
    return load_listing(parse_listing(listing), IPV4)


def follow(ruleset, **more):
    """The space of outbound packets, and the fates and paths of its TCP packets that open connections to others."""
    (space,) = [one for one in make_spaces([{IPV4: ruleset}], {IPV4: around(IPV4)}, free=False) if one.direction == OUTBOUND]
    asked = in_states(space, (CtState.NEW,)) & valued(space, Dim.PROTOCOL, "tcp") & within(space, Dim.DESTINATION, [(7, 7)])
    return space, [(one.fate, [str(hit).partition(", ")[0] for hit in one.path], one) for one in divide(space, ruleset, asked, **more).parts if one.region]


def paths(ruleset, **more):
    return sorted([(fate, path) for fate, path, _ in follow(ruleset, **more)[1]])


@pytest.mark.parametrize(("rules", "found"), [
    (["mangle OUTPUT -p tcp -m tcp --dport 1:9 -j DROP", "mangle OUTPUT -p tcp -m tcp --dport 20 -j DROP"], [(DROPPED, ["rules 1 to 2 of mangle OUTPUT"]), (SENT, [])]),
    (["mangle OUTPUT -p tcp -m tcp --dport 1:9 -j DROP", "mangle OUTPUT -p tcp -m tcp --dport 20 -j REJECT"], [(DROPPED, ["rule 1 of mangle OUTPUT"]), (REFUSED, ["rule 2 of mangle OUTPUT"]), (SENT, [])]),
    (["mangle OUTPUT -p udp -j DROP", "mangle OUTPUT -p tcp -j LOG", "mangle OUTPUT -j ACCEPT", "mangle OUTPUT -j DROP"], [(SENT, ["rule 3 of mangle OUTPUT"])]),
    (["mangle OUTPUT -j A", "mangle A -p udp -j DROP"], [(SENT, [])]), (["mangle OUTPUT -j A", "mangle A -p tcp -j RETURN"], [(SENT, ["rule 1 of mangle OUTPUT", "rule 1 of mangle A"])]),
    (["mangle OUTPUT -j A", "mangle A -j B", "mangle B -p tcp -j DROP"], [(DROPPED, ["rule 1 of mangle OUTPUT", "rule 1 of mangle A", "rule 1 of mangle B"])]),
    (["mangle OUTPUT -p tcp -j A", "mangle OUTPUT -p udp -j A", "mangle A -p tcp -m tcp --dport 1 -j DROP"], [(DROPPED, ["rules 1 to 2 of mangle OUTPUT", "rule 1 of mangle A"]), (SENT, [])]),
    (["mangle OUTPUT -j NOWHERE"], [(UNKNOWN, ["rule 1 of mangle OUTPUT"])]), (["mangle OUTPUT -j A", "mangle A -j A"], [(UNKNOWN, ["rule 1 of mangle OUTPUT", *["rule 1 of mangle A"] * 2])]),
    (["mangle OUTPUT -g A", "mangle OUTPUT -j DROP", "mangle A -p udp -j DROP"], [(SENT, [])]),
    (["mangle OUTPUT -j A", "mangle OUTPUT -j DROP", "mangle A -j ACCEPT"], [(SENT, ["rule 1 of mangle OUTPUT", "rule 1 of mangle A"])]),
    (["nat OUTPUT -p tcp -j REDIRECT --to-ports 1", "nat OUTPUT -j DROP"], [(DELIVERED, ["rule 1 of nat OUTPUT"])]),
])  # fmt: skip
def test_a_path_has_the_rules_that_took_the_packets_and_those_that_lead_there(rules, found):
    assert paths(load(*rules)) == found
    for fate, _, part in follow(load(*rules))[1]:
        assert part.by_rule is (fate in (DROPPED, REFUSED, UNKNOWN))
        assert not part.by_rule or part.cause is part.path[-1]
    assert paths(load(*rules), keeps_paths=False) == sorted([(fate, []) for fate, _ in found])


@pytest.mark.parametrize(("policy", "fate", "reason"), [("DROP", DROPPED, "the policy of mangle OUTPUT is DROP"), ("QUEUE", UNKNOWN, "the policy of mangle OUTPUT is QUEUE, which netinit does not know")])
def test_what_comes_to_the_end_of_a_chain_meets_its_policy(policy, fate, reason):
    ruleset = load("mangle OUTPUT -p udp -j ACCEPT", "mangle OUTPUT -j A", "mangle A -p tcp -m tcp --dport 1 -j ACCEPT", "mangle A -p tcp -m tcp --dport 2 -j RETURN", policies=[("mangle OUTPUT", policy)])
    found = [(one, path, part.reason) for one, path, part in follow(ruleset)[1]]
    assert {(part.by_rule, part.cause) for one, _, part in follow(ruleset)[1] if one == fate} == {(False, None)}
    assert sorted(found) == sorted([(SENT, ["rule 2 of mangle OUTPUT", "rule 1 of mangle A"], ""), (fate, ["rule 2 of mangle OUTPUT", "rule 2 of mangle A"], reason), (fate, [], reason)])


XOR = "-j MARK --set-xmark 0x1/0x0"


@pytest.mark.parametrize("rules", [
    [f"mangle OUTPUT -p tcp {XOR}", f"mangle OUTPUT -m owner --uid-owner 5 {XOR}", "filter OUTPUT -m mark --mark 0x1/0x1 -j DROP"],
    ["mangle OUTPUT -p tcp -j A", "mangle OUTPUT -m owner --uid-owner 5 -j A", f"mangle A {XOR}", "filter OUTPUT -m mark --mark 0x1/0x1 -j DROP"],
    ["mangle OUTPUT -p tcp -j A", "mangle OUTPUT -m owner --uid-owner 5 -j A", "mangle A -p tcp -m tcp --dport 80 -j RETURN", f"mangle OUTPUT -p tcp {XOR}", "mangle A -m mark --mark 0x1/0x1 -j DROP"],
    ["mangle OUTPUT -p tcp -j DROP", f"mangle OUTPUT {MAYBE.format(1)} -j DROP", f"mangle OUTPUT {MAYBE.format(2)} -j DROP", f"mangle OUTPUT {XOR}"],
    [f"mangle OUTPUT {MAYBE.format(1)} -j A", "mangle OUTPUT -p udp -j A", "mangle A -p udp -j DROP", "mangle A -j ACCEPT", "mangle OUTPUT -j DROP"],
    [f"nat OUTPUT {MAYBE.format(1)} -j DNAT --to-destination 9.9.9.9", "nat OUTPUT -p tcp -j REDIRECT --to-ports 1", "filter OUTPUT -d 9.9.9.9/32 -j DROP"],
    [f"nat OUTPUT {MAYBE.format(1)} -j RETURN", f"nat OUTPUT {MAYBE.format(2)} -j ACCEPT", "nat OUTPUT -p tcp -j REDIRECT --to-ports 1", f"filter INPUT {MAYBE.format(3)} -j DROP"],
    ["raw OUTPUT -p udp -j CT --notrack", "raw OUTPUT -p tcp -j CT --zone 3", "nat OUTPUT -j DNAT --to-destination 9.9.9.9:9", "nat POSTROUTING -j MASQUERADE", "mangle POSTROUTING -s 192.0.2.10/32 -j ACCEPT"],
    ["mangle OUTPUT -g A", "mangle OUTPUT -j DROP", "mangle A -g B", "mangle A -j DROP", "mangle B -p udp -j ACCEPT", "mangle B -p tcp -j RETURN"],
    *[[*[f"mangle OUTPUT {MAYBE.format(at)} -j MARK --set-xmark {1 << at:#x}/{1 << at:#x}" for at in range(count)], "filter OUTPUT -m mark --mark 0x1/0xff -j DROP"] for count in (1, 3)],
])  # fmt: skip
def test_all_packets_at_once_end_as_each_of_them(rules):
    ruleset, random = load(*rules), Random(1)
    for space in make_spaces([{IPV4: ruleset}], {IPV4: around(IPV4, local_marks=frozenset({(2, 2)}))}, free=True):
        for keeps in (True, False):
            partition = divide(space, ruleset, keeps_paths=keeps)
            check_cover(partition)
            assert not keeps or check_members(partition, ruleset, random)


@pytest.mark.parametrize(("target", "twice"), [("MARK --set-xmark 0x1/0x0", INITIAL_MARKS["mark"]), ("A", INITIAL_MARKS["mark"]), ("MARK --set-xmark 0x1/0x1", INITIAL_MARKS["mark"].set(1, 1))])
def test_neighbours_change_packets_that_both_match_one_after_the_other(target, twice):
    ruleset = load(f"mangle OUTPUT -p tcp -j {target}", f"mangle OUTPUT -m owner --uid-owner 5 -j {target}", f"mangle A {XOR}")
    space, found = follow(ruleset)
    of_user = within(space, Dim.UID, [(5, 5)]) & within(space, Dim.SENDER, [(1, 1)])
    assert {part.condition.mark for _, _, part in found if part.region & of_user} == {twice}
    assert {part.condition.mark for _, _, part in found if part.region - of_user} == {INITIAL_MARKS["mark"].set(1, 1 if target.endswith("1/0x1") else 0)}


@pytest.mark.parametrize(("count", "ends"), [(4, {SENT}), (5, {UNKNOWN})])
def test_after_four_rules_that_may_match_packets_the_next_one_ends_them_as_unknown(count, ends):
    rules = [f"mangle OUTPUT -p tcp {MAYBE.format(at)} -j MARK --set-xmark {1 << at:#x}/{1 << at:#x}" for at in range(count)]
    _, found = follow(load(*rules, "filter OUTPUT -m mark --mark 0xff/0xff -j ACCEPT"), keeps_paths=False)
    assert {fate for fate, _, _ in found} == ends
    for path, part in [(path, part) for fate, path, part in found if fate == UNKNOWN]:
        assert path == ["rule 1 of mangle OUTPUT"]
        assert part.reason == f"{part.path[-1]}: it cannot be known here whether `-m set --match-set x0 dst` (not known to netinit) holds"
        assert part.cause is part.path[-1]


@pytest.mark.parametrize(("target", "fates", "vague"), [("ACCEPT", {SENT}, {False}), ("DROP", {UNKNOWN}, {False}), ("MARK --set-xmark 0x1/0x1", {SENT}, {True}), ("LOG", {SENT}, {False})])
def test_a_rule_that_may_match_matters_by_what_it_does(target, fates, vague):
    _, found = follow(load(f"mangle OUTPUT {MAYBE.format(1)} -j {target}", "mangle OUTPUT -m mark --mark 0x1/0x1 -m owner --uid-owner 99 -j LOG"))
    assert {fate for fate, _, _ in found} == fates
    assert vague <= {part.condition.has_vague_marks for _, _, part in found}


def test_packets_whose_source_rules_translate_in_many_ways_have_one_that_is_not_known():
    for count, known in ((8, True), (9, False)):
        rules = [f"nat POSTROUTING -p tcp -m tcp --dport {at} -j SNAT --to-source 192.0.2.{at}" for at in range(1, count + 1)]
        sources = {part.condition.source for _, _, part in follow(load(*rules))[1]}
        assert (None in sources, len(sources)) == (not known, count + 1)


def test_more_chains_of_one_priority_than_are_ordered_are_an_error_if_one_changes_packets():
    changing, seeing = load("mangle OUTPUT -p tcp -j MARK --set-xmark 0x1/0x1"), load("mangle OUTPUT -p udp -j DROP")
    for count, first in ((4, changing), (5, seeing)):
        joined = join_backends({f"b{at}": {IPV4: first if not at else seeing} for at in range(count)}, IPV4)
        assert {fate for fate, _ in paths(joined)} == {SENT}
    joined = join_backends({f"b{at}": {IPV4: changing if not at else seeing} for at in range(5)}, IPV4)
    with pytest.raises(TooManyPartsError, match=r"^more than 4 chains of one priority change packets at OUTPUT$"):
        follow(joined)


@pytest.mark.parametrize(("other", "fates", "named"), [
    ("nat OUTPUT -p tcp -j REDIRECT --to-ports 9", {UNKNOWN}, ["rule 1 of b's nat OUTPUT"]), ("nat OUTPUT -p tcp -j REDIRECT --to-ports 1", {DELIVERED}, None),
    ("nat OUTPUT -p tcp -m tcp --dport 80 -j DROP", {UNKNOWN, DELIVERED}, None), ("mangle OUTPUT -p tcp -m tcp --dport 80 -j DROP", {DROPPED, DELIVERED}, None),
    (f"nat OUTPUT {MAYBE.format(1)} -j REDIRECT --to-ports 9", {UNKNOWN}, None),
])  # fmt: skip
def test_where_the_order_of_two_backends_decides_packets_are_unknown(other, fates, named):
    joined = join_backends({"a": {IPV4: load("nat OUTPUT -p tcp -j REDIRECT --to-ports 1")}, "b": {IPV4: load(other)}}, IPV4)
    space, found = follow(joined)
    disputed = [(path, part) for fate, path, part in found if fate == UNKNOWN and "first" in part.reason]
    assert {fate for fate, _, _ in found} == fates
    for path, part in disputed:
        assert part.reason == "a and b both have rules for this connection, and the kernel does not show which it runs first"
        assert named in (None, path)
    assert unite([part.region for _, _, part in found]).size == sum(part.region.size for _, _, part in found)
    assert space


@pytest.mark.parametrize(("priority", "table", "fate"), [(-200, "raw", DROPPED), (-100, "nat", UNKNOWN), (-101, "mangle", DROPPED), (-99, "mangle", DELIVERED)])
def test_a_foreign_chain_that_comes_before_or_behind_drops_its_packets_once(priority, table, fate):
    tables = load(f"{table} OUTPUT -p tcp -m tcp --dport 80 -j DROP").tables[table]
    foreign = HookedChain("ip theirs", tables["OUTPUT"], tables, "filter", "OUTPUT", priority)
    ruleset = replace(load("nat OUTPUT -p tcp -j REDIRECT --to-ports 1"), foreign=(foreign,))
    assert {one for one, _ in paths(ruleset)} == {fate, DELIVERED}
    marked = load("mangle OUTPUT -p tcp -m conntrack --ctstate NEW -j DROP").tables["mangle"]
    unknown = replace(load("filter OUTPUT -j ACCEPT"), foreign=(HookedChain("ip theirs", marked["OUTPUT"], marked, "filter", "OUTPUT", -200),))
    reasons = {part.reason for one, _, part in follow(unknown)[1] if one == UNKNOWN}
    assert reasons == {"the kernel does not show whether ip theirs comes first at OUTPUT"}


def test_more_groups_in_transit_than_are_kept_are_an_error(monkeypatch):
    rules = [f"mangle OUTPUT -p tcp -m tcp --dport {at}:{at + 50} -j MARK --set-xmark {1 << at:#x}/{1 << at:#x}" for at in range(1, 6)]
    assert follow(load(*rules))[1]
    monkeypatch.setattr(chain_walk, "MAX_GROUPS", 5)
    with pytest.raises(TooManyPartsError, match=r"^these rules send the traffic more than 5 ways at once; ask for single connections \(netinit explain\)$"):
        follow(load(*rules))
