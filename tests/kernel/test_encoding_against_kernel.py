"""What the encoders make of a plan is, byte for byte, what the programs make the kernel hold: for the rules of all goldens."""

from __future__ import annotations

import re

import pytest

from goldens import BEHAVIOURS, options_of
from netinit.base.net import FAMILIES
from netinit.base.snapshot import IP, IP6
from netinit.kernel.snapshot.reading import read_snapshot
from netinit.lab import NetworkNamespace
from netinit.rules.expressions import compat, native
from netinit.rules.expressions.building import settle
from netinit.rules.iptables.write import render_restore, write_plan
from netinit.rules.layouts import plan
from netinit.rules.nft import render_script
from netinit.rules.xtables import building
from programming import needs

pytestmark = pytest.mark.netns


def version_of(namespace, program):
    printed = namespace.run([program, "--version"], check=True).stdout
    return tuple(int(part) for part in re.search(r"v(\d+(?:\.\d+)+)", printed)[1].split("."))


def test_the_expressions_of_all_goldens_are_those_that_nft_programs(require_netns):
    needs("nftables")
    found, count = [], 0
    for behaviour in BEHAVIOURS:
        made = plan(options_of(behaviour))
        with NetworkNamespace("encoding") as namespace:
            done = namespace.run(["nft", "-f", "-"], stdin=render_script(made))
            assert done.returncode == 0, f"{behaviour}: {done.stderr}"
            snapshot = namespace.call(read_snapshot)
            splits_ranges = version_of(namespace, "nft") < (1, 1)
        for name, table in native.encode_plan(made, splits_ranges=splits_ranges).items():
            live = native.encode_live(snapshot, name, table.chains)
            found += [f"{behaviour} {name} {chain}" for chain in native.find_unequal(table, live)]
            count += sum(map(len, table.chains.values()))
    assert not found, "\n".join(found)
    assert count > 1000, f"only {count} rules were compared"


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_the_bytes_of_all_goldens_are_those_that_iptables_programs(variant, require_netns):
    needs(f"iptables-{variant}")
    found, count = [], 0
    for behaviour in BEHAVIOURS:
        made = plan(options_of(behaviour))
        comments = "comments" in behaviour
        with NetworkNamespace("encoding") as namespace:
            for family in FAMILIES:
                text = render_restore(write_plan(made, family, comments=comments))
                done = namespace.run([f"{family.program}-{variant}-restore", "-n"], stdin=text)
                assert done.returncode == 0, f"{behaviour}: {done.stderr}"
            snapshot = namespace.call(read_snapshot)
            form = compat.form_of(version_of(namespace, f"iptables-{variant}"))
        for family in FAMILIES:
            if variant == "nft":
                planned = compat.encode_plan(made, family, comments=comments, form=form)
                live = expressions_of(snapshot, family)
            else:
                planned = building.encode_plan(made, family, comments=comments)
                live = entries_of(snapshot, family)
            for table, chain in [(table, chain) for table, chains in planned.items() for chain in chains]:
                wanted = [one for one, _ in planned[table][chain]]
                count += len(wanted)
                if wanted != live.get((table, chain), []):
                    found.append(f"{behaviour}: {family.name} {table} {chain}")
    assert not found, "\n".join(found)
    assert count > 1000, f"only {count} rules were compared"


def expressions_of(snapshot, family):
    """The rules of iptables-nft's tables, by table and chain."""
    found = {}
    for rule in snapshot.rules:
        if rule.family == {4: IP, 6: IP6}[family.version]:
            found.setdefault((rule.table, rule.chain), []).append(settle(rule.expressions))
    return found


def entries_of(snapshot, family):
    """The rules of iptables-legacy's tables, by table and chain."""
    tables = {one.name: building.split_table(one) for one in snapshot.legacy if one.version == family.version}
    return {(table, chain.name): list(chain.entries[:-1]) for table, chains in tables.items() for chain in chains}
