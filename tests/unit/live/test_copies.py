"""Rules that copy packets to another host: which packets of the pod they see, in tables of iptables and of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import IPV4, parse_listing
from netinit.base.net import number_of
from netinit.live.copies import list_copied, stop_at_copies
from netinit.rules.packet_inputs import Surroundings
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import HookedChain, Ruleset
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.regions import unite, valued, within
from netinit.simulate.symbolic.space import Dim

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
COPY = "-j TEE --gateway 10.0.0.9"
RULES = f"*mangle\n:OUTPUT ACCEPT [0:0]\n:MORE - [0:0]\n-A OUTPUT -p tcp -j MORE\n-A MORE -p tcp -m tcp --dport 80 {COPY}\nCOMMIT\n"


def load(text):
    return load_listing(parse_listing(text), IPV4)


def of_others(ruleset):
    """The same chains in a table of nft's that iptables does not know."""
    chains = ruleset.tables["mangle"]
    return Ruleset(IPV4, foreign=(HookedChain("ip theirs", chains["OUTPUT"], chains, "filter", "OUTPUT", 5),))


def of_another_backend(ruleset):
    return Ruleset(IPV4, others=(replace(ruleset, source="iptables-legacy"),))


@pytest.mark.parametrize("place", [lambda ruleset: ruleset, of_others, of_another_backend])
def test_the_copying_rule_is_named_with_the_packets_that_reach_it(place):
    stopped = stop_at_copies(place(load(RULES)))
    (space,) = [one for one in make_spaces([{IPV4: stopped}], {IPV4: POD}, free=False) if one.direction == "outbound"]
    found = list(list_copied(divide(space, stopped).parts))
    assert {(hit.chain, hit.rules[0].number) for hit, _, _ in found} == {("MORE", 1)}
    assert unite([region for _, _, region in found]) == valued(space, Dim.PROTOCOL, "tcp") & within(space, Dim.DESTINATION_PORT, [(80, 80)])


def test_without_a_rule_that_copies_there_is_nothing_to_ask():
    assert stop_at_copies(load(RULES.replace(COPY, "-j ACCEPT"))) is None
