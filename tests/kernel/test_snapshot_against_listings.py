"""What the kernel's own bytes decode to is what iptables-save and nft print, rule by rule, for the rules of goldens."""

from __future__ import annotations

import pytest

from core import plan
from goldens import SAMPLE, options_of
from lab_state import one_spelling
from laboratory import NetworkNamespace
from netinit.base.net import FAMILIES
from netinit.kernel.snapshot.reader import read_snapshot
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import IPTABLES_LEGACY, IPTABLES_NFT
from netinit.rules.expressions.table_differences import compare_tables, decode_tables, format_live
from netinit.rules.iptables.parse import normalise_rule, parse_rule
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.iptables.write import render_restore, write_plan
from netinit.rules.nft import render_script
from programming import needs
from recorded import ADDRESS_SETS, FOREIGN, PRODUCTS

pytestmark = pytest.mark.netns
MOST_UNKNOWN = 5  # of the rules of one product


def restore(namespace, variant, family, text):
    done = namespace.run([f"{family.program}-{variant}-restore", "-n", "-w"], stdin=text)
    assert done.returncode == 0, f"{family.name}: {done.stderr}\n{text}"


def differences(namespace, variant):
    """Where the snapshot says otherwise than the listing, as lines for people."""
    source = {"nft": IPTABLES_NFT, "legacy": IPTABLES_LEGACY}[variant]
    rulesets = load_snapshot(namespace.call(read_snapshot)).rulesets.get(source, {})
    found, count = [], 0
    for family in FAMILIES:
        listing = parse_listing(namespace.run([f"{family.program}-{variant}-save"], check=True).stdout)
        for table, listed in listing.items():
            for chain, specs in listed.rules.items():
                place = f"{family.name} {table} {chain}"
                decoded = rulesets[family].tables[table][chain].rules if specs else ()
                if len(decoded) != len(specs):
                    found.append(f"{place}: {len(specs)} rules are listed, {len(decoded)} decoded")
                for spec, loaded in zip(specs, decoded, strict=False):
                    wanted = parse_rule(spec, family)
                    count += 1
                    same = normalise_rule(wanted) == normalise_rule(loaded.rule) and wanted.comment == loaded.rule.comment
                    if not same:
                        found.append(f"{place}: {spec}\n  listed  {wanted}\n  decoded {loaded.rule}")
    return found, count


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_the_rules_of_goldens_decode_to_what_iptables_lists(variant, require_netns):
    needs(f"iptables-{variant}")
    found, count = [], 0
    for behaviour in SAMPLE:
        made = plan(options_of(behaviour))
        with NetworkNamespace("snapshot") as namespace:
            for family in FAMILIES:
                restore(namespace, variant, family, render_restore(write_plan(made, family, comments="comments" in behaviour)))
            wrong, rules = differences(namespace, variant)
        found += [f"{behaviour}: {line}" for line in wrong]
        count += rules
    assert not found, "\n".join(found[:20])
    assert count > 10 * len(SAMPLE), f"only {count} rules were compared"


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_foreign_rules_of_every_known_form_decode_to_what_iptables_lists(variant, require_netns):
    needs(f"iptables-{variant}")
    with NetworkNamespace("snapshot") as namespace:
        for table, rules in FOREIGN.items():
            text = "\n".join([f"*{table}", ":ELSEWHERE - [0:0]", *rules, "COMMIT", ""])
            restore(namespace, variant, FAMILIES[0], text)
        found, count = differences(namespace, variant)
    assert not found, "\n".join(found)
    assert count == sum(map(len, FOREIGN.values()))


@pytest.mark.parametrize("variant", ["nft", "legacy"])
@pytest.mark.parametrize("product", [path.stem for path in sorted(PRODUCTS.glob("*.rules"))])
def test_the_rules_of_products_decode_to_what_iptables_lists(product, variant, require_netns):
    needs(f"iptables-{variant}")
    text = (PRODUCTS / f"{product}.rules").read_text()
    with NetworkNamespace("snapshot") as namespace:
        for one in ADDRESS_SETS:
            namespace.run(["ipset", "create", one, "hash:net"], check=True)
        restore(namespace, variant, FAMILIES[0], text)
        found, count = differences(namespace, variant)
    # What neither reads in full is called what its listing or its module calls it
    assert [line for line in found if line.count("UnknownMatch") + line.count("Undecided") < 2 and "--match-set" not in line and line.count("SourceNat") < 2] == []
    assert len(found) <= MOST_UNKNOWN
    assert count == sum(line.startswith("-A") for line in text.splitlines())


def test_the_rules_of_goldens_decode_to_what_nft_lists(require_netns):
    needs("nftables")
    count = 0
    for behaviour in SAMPLE:
        made = plan(options_of(behaviour))
        with NetworkNamespace("snapshot") as namespace:
            done = namespace.run(["nft", "-f", "-"], stdin=render_script(made))
            assert done.returncode == 0, f"{behaviour}: {done.stderr}"
            snapshot = namespace.call(read_snapshot)
            listed = namespace.run(["nft", "--stateless", "list", "ruleset"], check=True).stdout
            listed = one_spelling(listed)
        tables = decode_tables(snapshot)
        decoded = [format_live(one) for chains in tables.values() for chain in chains.values() for one in chain.rules]
        lines = [line.strip() for line in listed.splitlines() if line.startswith("\t\t") and " hook " not in line]
        assert sorted(map(words, decoded)) == sorted(map(words, lines)), behaviour
        assert compare_tables(made, snapshot) == ()
        count += len(decoded)
    assert count > 5 * len(SAMPLE), f"only {count} rules were compared"


def words(text):
    """The words of a rule in any order; what nft calls `socket wildcard` has a number in expressions, `type` may be left out."""
    return ["socket"] if text.startswith("socket") else sorted(set(text.split()) - {"type"})
