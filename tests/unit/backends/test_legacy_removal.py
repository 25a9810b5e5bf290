"""The removal of rules of legacy tables: found by bytes, and decoded only where other options may have made a rule."""

from __future__ import annotations

import pytest

from core import plan, write_plan
from netinit.backends.encoded_rules import EncodedLegacy
from netinit.backends.iptables import XtablesState
from netinit.backends.legacy import EditsWriter
from netinit.backends.legacy_edits import LegacyChange
from netinit.backends.legacy_removal import OWN_TARGETS, find_removal
from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.base.snapshot import Snapshot
from netinit.options import Options
from netinit.rules import targets
from netinit.rules.iptables.keys import target_of
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS
from netinit.rules.rule_patterns import layout_patterns
from netinit.rules.xtables.building import TableEntry, encode_rule

TPROXY = Options.from_argv(["-b", "*", "-i", "*", "-m", "TPROXY", "--ipv6", "on", "--drop-invalid"])
NEVER_OURS = (
    "-j DOCKER", "-g DOCKER", "", "-p tcp -m tcp --dport 9 -j ACCEPT", "-j DROP", "-p tcp -j REDIRECT --to-ports 9",
)  # fmt: skip


def entry_of(text, family=IPV4):
    rule = parse_rule(text, family)
    return encode_rule(rule.matches, rule.target, family)


def live(options, more=(), *, comments=False):
    """The rules of a plan as the kernel holds them, with `more` (place and entry) at the end of chains."""
    found = []
    for family in FAMILIES:
        rules = {}
        for table, chains in write_plan(plan(options), family, comments=comments).items():
            for name, chain in chains.items():
                rules[table, name] = tuple(encode_rule(one.matches, one.rule.target, family, one.comment) for one in chain.rules)
        for place, one in more:
            rules[place] = (*rules.get(place, ()), one)
        found.append(EncodedLegacy(family=family, rules=rules, accepts=True, snapshot=Snapshot))
    return tuple(found)


def removal(encoded, options, *, comments=False):
    """The removal with these options; None if all rules were to be decoded."""
    state = XtablesState(writer=EditsWriter(), families=FAMILIES, encoded=encoded, comments=comments, in_use=True, ours=True, foreign=False)
    return find_removal(state, encoded, plan(options), lambda: None)


def check_gone(encoded, change):
    """All of ours is deleted, and nothing else."""
    assert isinstance(change, LegacyChange)
    for one in encoded:
        deleted, removed = {}, set()
        for edit in change.write(dict)[one.family]:
            assert (edit.chains, edit.added) == ({}, {})
            removed |= {(edit.table, name) for name in edit.removed}
            for name, rules in edit.deleted.items():
                deleted.setdefault((edit.table, name), []).extend(rules)
        assert removed == {place for place in one.rules if place[1] in OWNED_CHAINS}
        for place, rules in one.rules.items():
            if place[1] in BUILTIN_CHAINS:
                kept = [entry for index, entry in enumerate(rules) if (index, entry) not in deleted.get(place, [])]
                assert all(entry in FOREIGN for entry in kept), place
                assert len(kept) == sum(entry in FOREIGN for entry in rules)


FOREIGN = [entry_of(text) for text in NEVER_OURS]


@pytest.mark.parametrize("comments", [False, True])
def test_rules_of_the_same_options_are_found_by_their_bytes(comments):
    encoded = live(TPROXY, comments=comments)
    check_gone(encoded, removal(encoded, TPROXY, comments=comments))


@pytest.mark.parametrize("foreign", FOREIGN, ids=[text or "nothing" for text in NEVER_OURS])
def test_a_foreign_rule_that_no_layout_would_make_is_not_decoded(foreign):
    encoded = live(TPROXY, [(("mangle", "OUTPUT"), foreign), (("filter", "INPUT"), foreign), (("nat", "THEIRS"), foreign)])
    check_gone(encoded, removal(encoded, TPROXY))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (("nat", "PREROUTING"), "-i eth9 -j RETURN"),
        (("mangle", "OUTPUT"), "-p tcp -m connmark --mark 7 -j CONNMARK --restore-mark"),
        (("mangle", "OUTPUT"), "-o lo -j MARK --set-mark 7"),
        (("filter", "INPUT"), "-j REJECT"),
    ],
)
def test_a_rule_that_other_options_may_have_made_is_decoded(place, text):
    assert removal(live(TPROXY, [(place, entry_of(text))]), TPROXY) is None


def test_rules_of_other_options_are_decoded_where_they_do_more_than_jump_to_our_chains():
    assert removal(live(TPROXY), Options()) is None
    encoded = live(Options.from_argv(["-b", "*", "-i", "*"]))
    check_gone(encoded, removal(encoded, TPROXY))


def test_a_foreign_chain_that_jumps_to_ours_is_named_by_decoding():
    jump = TableEntry(data=entry_of("-j ISTIO_OUTPUT").data, chain="ISTIO_OUTPUT")
    assert removal(live(TPROXY, [(("nat", "THEIRS"), jump)]), TPROXY) is None


def test_the_targets_that_are_decoded_are_those_of_all_layouts():
    patterns = layout_patterns()
    for one in patterns.rules:
        target = one.key[-1]
        name = "RETURN" if target == targets.Return() else target_of(one.key)
        assert name in OWN_TARGETS[one.table], one
    for table, _, run in patterns.runs:
        assert any(target_of(key) in OWN_TARGETS[table] for key in run)


def test_filter_which_rejects_goes_first_in_each_family():
    change = removal(live(TPROXY), TPROXY)
    assert {family: edits[0].table for family, edits in change.write(dict).items()} == {IPV4: "filter", IPV6: "filter"}
