"""iptables' rules and nft's, of the same plan: no packet is treated differently. Proved of all packets, not of a sample."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from allpackets import around
from core import FAMILIES, load_plan, plan
from goldens import SAMPLE, options_of
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import NFTABLES
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.partition import compare
from plan_snapshot import snapshot_of
from randomness import SEED
from strategies import made_any_options

pytestmark = pytest.mark.timeout(3600)
SETS = int(os.environ.get("NETINIT_OPTION_SETS", "6"))


def diverge(made, counted):
    """What iptables and nft do differently, under one plan."""
    held = load_snapshot(snapshot_of(made)).rulesets[NFTABLES]
    iptables = {family: load_plan(made, family) for family in FAMILIES}
    nft = {family: replace(held[family], local_marks=one.local_marks, addresses=one.addresses) for family, one in iptables.items()}
    found = []
    for space in make_spaces([iptables, nft], {family: around(family) for family in FAMILIES}, free=True):
        one, other = divide(space, iptables[space.family]), divide(space, nft[space.family])
        counted["parts"] += len(one.parts) + len(other.parts)
        found += compare(one, other)
    return found


@pytest.mark.parametrize("behaviour", SAMPLE)
def test_no_packet_is_treated_differently_by_the_two_dialects_of_a_golden(behaviour):
    assert not diverge(plan(options_of(behaviour)), Counter())


def test_no_packet_is_treated_differently_by_the_two_dialects_of_any_options(capsys):
    counted = Counter()

    @seed(SEED)
    @settings(
        max_examples=SETS, database=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )  # fmt: skip
    @given(made_any_options())
    def hold(options):
        counted["option sets"] += 1
        assert not diverge(plan(options), counted)

    hold()
    with capsys.disabled():
        print(f"\niptables and nft treat all packets alike: {dict(counted)}, seed {SEED}")
