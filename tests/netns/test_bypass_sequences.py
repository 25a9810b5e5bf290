"""Sequences drawn at random that nobody thought of: no peer and no application gets past the proxy with any of them."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from bypass_sequences import run_inbound, run_outbound
from bypass_world import BACKENDS, DEFAULT_IS_EXACT, EXACT, MODES, OTHER_LAYOUTS, World
from programming import needs
from randomness import SEED, some
from sweeps import choose

NUMBER = some(150)
RUNS = {"peer": run_inbound, "application": run_outbound}
TURNS = itertools.cycle(BACKENDS)
# Whoever finds something with Istio's rules: a peer only in TPROXY mode.
OPEN_WITH_ISTIO = [("TPROXY", "peer"), ("REDIRECT", "application"), ("TPROXY", "application")]
open_today = pytest.mark.xfail(DEFAULT_IS_EXACT, strict=True, raises=AssertionError, reason="no rule stops it yet")


def find_past(world: World, who: str, number: int) -> list[str]:
    random = Random(SEED)
    return [found for found in (RUNS[who](world, random) for _ in range(number)) if found]


@pytest.mark.parametrize(
    ("mode", "who", "backend"),
    [pytest.param(mode, who, backend, marks=open_today if (mode, who) in OPEN_WITH_ISTIO else ())
     for mode in (*MODES, *OTHER_LAYOUTS) for who in RUNS for backend in choose([next(TURNS)], BACKENDS)],
)  # fmt: skip
def test_no_random_sequence_gets_past_the_proxy(require_netns, mode, who, backend):
    needs(backend)
    with World(mode, backend) as world:
        past = find_past(world, who, NUMBER)
    shortest = "\n".join(sorted(past, key=len)[:5])
    assert not past, f"{mode}, {backend}, NETINIT_SEED={SEED}: {len(past)} of {NUMBER} sequences of the {who} got past, the shortest:\n{shortest}"


@pytest.mark.parametrize(("mode", "who"), OPEN_WITH_ISTIO)
def test_random_sequences_do_find_what_istios_own_rules_let_past(require_netns, mode, who):
    needs("iptables-nft")
    with World(mode, "iptables-nft", *([] if DEFAULT_IS_EXACT else [EXACT])) as world:
        assert find_past(world, who, 100)
