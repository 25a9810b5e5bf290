"""What the encoders make of a plan is, byte for byte, what the programs make the kernel hold: for the rules of all goldens."""

from __future__ import annotations

import pytest

from goldens import BEHAVIOURS, options_of
from netinit.kernel.snapshot.reading import read_snapshot
from netinit.lab import NetworkNamespace
from netinit.rules.expressions.native import encode_live, encode_plan, find_unequal
from netinit.rules.layouts import plan
from netinit.rules.nft import render_script
from programming import needs

pytestmark = pytest.mark.netns


def test_the_expressions_of_all_goldens_are_those_that_nft_programs(require_netns):
    needs("nftables")
    found, count = [], 0
    for behaviour in BEHAVIOURS:
        made = plan(options_of(behaviour))
        with NetworkNamespace("encoding") as namespace:
            done = namespace.run(["nft", "-f", "-"], stdin=render_script(made))
            assert done.returncode == 0, f"{behaviour}: {done.stderr}"
            snapshot = namespace.call(read_snapshot)
        for name, table in encode_plan(made).items():
            found += [f"{behaviour} {name} {chain}" for chain in find_unequal(table, encode_live(snapshot, name, table.chains))]
            count += sum(map(len, table.chains.values()))
    assert not found, "\n".join(found)
    assert count > 1000, f"only {count} rules were compared"
