"""What the encoders make of a plan is, byte for byte, what the programs make the kernel hold: for the rules of goldens."""

from __future__ import annotations

import re

import pytest

from core import plan, write_nft
from goldens import SAMPLE, options_of
from laboratory import NetworkNamespace
from netinit.backends.nftables import NftablesBackend
from netinit.base.net import FAMILIES
from netinit.base.netlink_attributes import split_attributes
from netinit.base.snapshot import INET, IP, IP6
from netinit.kernel.nf_tables import (
    NFT_MSG_NEWCHAIN,
    NFT_MSG_NEWRULE,
    NFT_MSG_NEWSET,
    NFT_MSG_NEWSETELEM,
    NFT_MSG_NEWTABLE,
    dump_tables,
)
from netinit.kernel.snapshot.reader import read_snapshot
from netinit.rules.expressions import compat
from netinit.rules.iptables.write import render_restore, write_plan
from netinit.rules.nft import TABLE_NAMES, render_tables
from netinit.rules.rule_builder import settle
from netinit.rules.xtables import building
from programming import needs
from rule_encodings import form_of

pytestmark = pytest.mark.netns


def version_of(namespace, program):
    printed = namespace.run([program, "--version"], check=True).stdout
    return tuple(int(part) for part in re.search(r"v(\d+(?:\.\d+)+)", printed)[1].split("."))


def test_the_backend_makes_of_goldens_what_nft_makes_of_their_text(require_netns):
    """What nft lists is the same byte for byte, and so is all that the kernel holds, but for notes that nft makes for itself."""
    needs("nftables")
    with NetworkNamespace("encoding") as namespace:
        if version_of(namespace, "nft") >= (1, 1):
            pytest.skip("nft 1.1 encodes masks and numbers sets otherwise: equal in meaning, which other tests hold, not in bytes")
    found, count = [], 0
    for behaviour in SAMPLE:
        made = plan(options_of(behaviour)).replace(made_from=None)  # whose record in the table no text has
        comments = "comments" in behaviour
        held, listed = [], []
        for by_program in (True, False):
            with NetworkNamespace("encoding") as namespace:
                if by_program:
                    done = namespace.run(["nft", "-f", "-"], stdin=render_tables(write_nft(made, comments=comments)))
                    assert done.returncode == 0, f"{behaviour}: {done.stderr}"
                else:
                    namespace.call(program, made, comments)
                listed.append([without_handles(namespace.run(["nft", *how, "list", "ruleset"], check=True).stdout) for how in (("-a",), ("-j",))])
                held.append(namespace.call(hold))
        if listed[0] != listed[1]:
            found.append(f"{behaviour}: {listed[0][0]}\n{listed[1][0]}")
        found += [f"{behaviour}: {kind} {ours} {theirs}" for kind in held[0] for theirs, ours in zip(*(one[kind] for one in held), strict=True) if ours != theirs]
        count += len(held[0]["rules"])
    assert not found, "\n".join(found)
    assert count > 10 * len(SAMPLE), f"only {count} rules were compared"


def program(made, comments):
    backend = NftablesBackend(comments=comments)
    backend.commit(backend.observe().compare(made).change())


def without_handles(listed):
    """What nft lists, without the handles of tables: older kernels number those of all namespaces together."""
    return re.sub(r'^(table .*\{) # handle \d+$|("table": \{[^{}]*"handle": )\d+', r"\1\2", listed, flags=re.MULTILINE)


def hold():
    """Everything in the tables as the kernel dumps it, without tables' handles, what nft notes beside sets, and the kernel's own addresses."""
    dump = dump_tables(INET, TABLE_NAMES, whole=True)
    handle, noted, own = 4, 13, 19  # NFTA_TABLE_HANDLE, NFTA_SET_USERDATA, NFTA_SET_TYPE
    tables = [[(kind, value) for kind, value in split_attributes(one) if kind != handle] for one in dump[NFT_MSG_NEWTABLE]]
    sets = [[(kind, value) for kind, value in split_attributes(one) if kind not in (noted, own)] for one in dump[NFT_MSG_NEWSET]]
    elements = [[(kind, sorted(split_attributes(value)) if kind == 3 else value) for kind, value in split_attributes(one)] for one in dump[NFT_MSG_NEWSETELEM]]
    return {
        "tables": tables, "chains": dump[NFT_MSG_NEWCHAIN], "sets": sets, "elements": elements, "rules": dump[NFT_MSG_NEWRULE],
    }  # fmt: skip


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_the_bytes_of_goldens_are_those_that_iptables_programs(variant, require_netns):
    needs(f"iptables-{variant}")
    found, count = [], 0
    for behaviour in SAMPLE:
        made = plan(options_of(behaviour))
        comments = "comments" in behaviour
        with NetworkNamespace("encoding") as namespace:
            for family in FAMILIES:
                text = render_restore(write_plan(made, family, comments=comments))
                done = namespace.run([f"{family.program}-{variant}-restore", "-n", "-w"], stdin=text)
                assert done.returncode == 0, f"{behaviour}: {done.stderr}"
            snapshot = namespace.call(read_snapshot)
            form = form_of(version_of(namespace, f"iptables-{variant}"))
        for family in FAMILIES:
            written = write_plan(made, family, comments=comments)
            if variant == "nft":
                planned = compat.encode_plan(written, family, form)
                live = expressions_of(snapshot, family)
            else:
                planned = building.encode_plan(written, family)
                live = entries_of(snapshot, family)
            for (table, chain), wanted in planned.items():
                count += len(wanted)
                if list(wanted) != live.get((table, chain), []):
                    found.append(f"{behaviour}: {family.name} {table} {chain}")
    assert not found, "\n".join(found)
    assert count > 10 * len(SAMPLE), f"only {count} rules were compared"


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
