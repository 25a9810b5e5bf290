"""A single deleted rule: what is left differs from the plan of the options that it shows, or verify says what those leave out."""

from __future__ import annotations

import pytest

from netinit.options import Options, offline
from netinit.questions.shown_options import describe_gaps
from netinit.rules.infer_options import _rules_of, find_other_values, from_iptables, from_nft
from netinit.rules.infer_options import release_plans as older
from netinit.rules.infer_options.older_releases import list_rules
from netinit.rules.layouts import plan
from sweeps import choose, crossed

USUAL = "-b * -i * -d 15090,15021,15020 -u 1337 -g 1337 --ipv6 off"
SETS = {
    "usual": USUAL, "as Istio": f"{USUAL} --istio-exact", "TPROXY": f"{USUAL} -m TPROXY --drop-invalid",
    "DNS": f"{USUAL} --redirect-dns --dns-servers 10.96.0.10", "both families": USUAL.replace("off", "on"),
    "classic": "--layout classic -b * -i * -d 15020 --ipv6 off", "ambient": "--layout ambient --ipv6 off",
}  # fmt: skip
DIALECTS = {"iptables": (list_rules, from_iptables), "nft": (_rules_of, from_nft)}
GENERATIONS = (3, 9, 13, 20)  # of Istio, whose rules are read by what they have in common


def keys(made):
    return {
        (family, place): [str((one.matches, one.target)) for one in its]
        for family, chains in made.items() for place, its in chains.items() if its
    }  # fmt: skip


def without(rules, family, place, at):
    chains = {**rules[family], place: [one for number, one in enumerate(rules[family][place]) if number != at]}
    return {**rules, family: chains}


def read_each_deletion(made, make, read):
    """Yield the deleted rule and what the others show, where these are exactly the rules of the options that they show."""
    rules, routing = make(made), {one.mark: one.table for one in made.ip_rules}
    for family, chains in rules.items():
        for place, its in chains.items():
            for at, deleted in enumerate(its):
                left = without(rules, family, place, at)
                shown = read(left, routing)
                if shown.options and keys(make(shown.make_plan(shown.options))) == keys(left):
                    yield f"{place} {deleted.matches} {deleted.target}", shown


@crossed(what=SETS, dialect=DIALECTS)
def test_a_deletion_that_leaves_the_rules_of_other_options_is_said(what, dialect):
    options = Options.from_argv(SETS[what].split()).settle(offline())
    make, read = DIALECTS[dialect]
    whole = read(make(plan(options)), {one.mark: one.table for one in plan(options).ip_rules})
    assert not list(describe_gaps(whole)) or what == "classic"
    for deleted, shown in read_each_deletion(plan(options), make, read):
        said = list(describe_gaps(shown))
        assert said, f"{deleted} is gone, and the options are {[(one.label, old, new) for one, old, new in find_other_values(options, shown.options)]}"


@pytest.mark.parametrize("minor", choose(GENERATIONS[::2], GENERATIONS))
def test_a_deletion_from_the_rules_of_an_earlier_release_is_said(minor):
    options = Options.from_argv([*USUAL.split(), "--istio-exact"]).settle(offline())
    for deleted, shown in read_each_deletion(older.plan(options, minor), list_rules, from_iptables):
        said = list(describe_gaps(shown))
        assert said, f"{deleted} is gone, and the options are {[(one.label, old, new) for one, old, new in find_other_values(options, shown.options)]} ({shown.older})"


def test_options_that_leave_nothing_out_are_not_commented():
    shown = from_iptables(list_rules(plan(Options.from_argv(USUAL.split()).settle(offline()))), {})
    assert not list(describe_gaps(shown))
