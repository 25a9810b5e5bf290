"""What `nft list ruleset` and `nft -j list ruleset` print is read as what the kernel holds, or is unknown in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from core import plan
from goldens import SAMPLE, options_of
from laboratory import NetworkNamespace
from netinit.base.net import FAMILIES
from netinit.kernel.snapshot.reader import read_snapshot
from netinit.live.snapshot_rules import load_snapshot
from netinit.questions.pasted_rules import read_dump
from netinit.rules.foreign_targets import Observe, Several, UnknownTarget
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.nft import render_script
from programming import needs

pytestmark = pytest.mark.netns
PRODUCTS = sorted((Path(__file__).parents[1] / "unit" / "rules" / "products").glob("*.nft"))
COMMANDS = {"text": ["nft", "list", "ruleset"], "JSON": ["nft", "-j", "list", "ruleset"]}


def list_rules(rulesets, foreign):
    """Every rule by family and place."""
    found = {}
    for family in FAMILIES:
        tables = [(place, table, one[family].tables[table]) for place, one in rulesets.items() if family in one for table in one[family].tables]
        tables += [("foreign", f"{one.table} {one.chain.name}", one.chains) for one in foreign.get(family, ())]
        for place, table, chains in tables:
            for name, chain in chains.items():
                found[family.name, place, table, name] = [loaded.rule for loaded in chain.rules], chain.policy
    return {place: one for place, one in found.items() if one[0] or one[1]}


def is_unknown(rule):
    targets = rule.target.targets if isinstance(rule.target, Several) else (rule.target,)
    return any(isinstance(one, UnknownMatch) for one in rule.matches) or any(isinstance(one, UnknownTarget) for one in targets)


def key_of(rule):
    """The rule without the texts of what only observes."""
    targets = rule.target.targets if isinstance(rule.target, Several) else (rule.target,)
    shown = tuple(one.replace(text="") if isinstance(one, Observe) else one for one in targets)
    *matches, _ = normalise_rule(rule)
    return tuple(matches), shown, rule.comment


def compare(namespace, form):
    """Rules that are read otherwise, without those that are unknown in the dump; and how many rules there are, and how many unknown."""
    text = namespace.run(COMMANDS[form], check=True).stdout
    kernel = load_snapshot(namespace.call(read_snapshot))
    wanted = list_rules(kernel.rulesets, kernel.foreign)
    dump = read_dump([("dump", text)])
    one = next(iter(dump.rulesets.values()))
    found = list_rules(dump.rulesets, {family: one[family].foreign for family in one})
    wrong = [f"{place}: not read" for place in wanted if place not in found and place[0] in {family.name for family in dump.families}]
    count = unknown = 0
    for place, (rules, policy) in found.items():
        there, its_policy = wanted[place]
        if len(there) != len(rules) and not any(map(is_unknown, rules)):
            wrong.append(f"{place}: {len(there)} rules, {len(rules)} read")
        assert policy == its_policy
        for live, read in zip(there, rules, strict=False) if len(there) == len(rules) else ():
            count += 1
            unknown += is_unknown(read) and not is_unknown(live)
            if not is_unknown(read) and key_of(live) != key_of(read):
                wrong.append(f"{place}:\n  kernel {live}\n  dump   {read}")
    return wrong, count, unknown


RULES = (
    "reject", "reject with tcp reset", "reject with icmp host-prohibited", "reject with icmpv6 no-route", "reject with icmpx admin-prohibited",
    "ip daddr . tcp dport { 192.0.2.9 . 80 } drop", "ip6 daddr . udp dport { fd00::1 . 53 } drop", "ip saddr . ip daddr { 10.0.0.1 . 10.0.0.2 } drop",
    "meta mark . tcp sport { 1 . 9 } drop", "tcp dport . ip saddr { 80 . 10.0.0.1 } drop",
    "ip daddr . udp dport vmap { 10.0.0.1 . 53 : drop }", "ip saddr 10.0.0.1 tcp dport 80 drop", "ip6 saddr fe80::/10 drop", "meta l4proto { tcp, udp } th dport 53 drop",
    "tcp dport != { 80, 81 } drop", "udp dport >= 1024 drop", "ct state established,related accept", "meta mark and 0x3 == 1 drop", "meta skuid 1000-2000 drop",
    "fib daddr type local drop", "socket transparent 1 drop", "meta mark set ct mark", "ip dscp set cs1", "ip daddr set 10.0.0.9", "tcp option maxseg size set 1400",
)  # fmt: skip


@pytest.mark.parametrize("form", COMMANDS)
def test_each_kind_of_statement_is_read_from_a_dump_as_the_kernel_has_it(form, require_netns):
    needs("nftables")
    tables = [f"table inet t{at} {{ chain c {{ type filter hook output priority {at}; {rule}; }}; }}\n" for at, rule in enumerate(RULES)]
    with NetworkNamespace("dump") as namespace:
        done = namespace.run(["nft", "-f", "-"], stdin="".join(tables))
        assert done.returncode == 0, done.stderr
        wrong, count, unknown = compare(namespace, form)
    assert wrong == []
    assert count >= len(RULES)
    assert unknown <= 9, "what is written into packets, for each family"


@pytest.mark.parametrize("form", COMMANDS)
def test_the_rules_of_goldens_are_read_from_a_dump_as_the_kernel_has_them(form, require_netns):
    needs("nftables")
    seen = 0
    with NetworkNamespace("dump") as namespace:
        for behaviour in SAMPLE:
            made = plan(options_of(behaviour))
            assert namespace.run(["nft", "-f", "-"], stdin="flush ruleset\n" + render_script(made)).returncode == 0
            if not made.tables:
                continue
            wrong, count, unknown = compare(namespace, form)
            assert wrong == [], behaviour
            assert unknown == 0, behaviour
            seen += count
    assert seen > 200


@pytest.mark.parametrize("form", COMMANDS)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda path: path.stem)
def test_the_rules_of_products_are_read_from_a_dump_as_the_kernel_has_them(form, product, require_netns):
    needs("nftables")
    with NetworkNamespace("dump") as namespace:
        done = namespace.run(["nft", "-f", "-"], stdin=product.read_text())
        assert done.returncode == 0, done.stderr
        wrong, count, unknown = compare(namespace, form)
    assert wrong == []
    assert count > 3
    assert unknown <= count // 10, f"{unknown} of {count}"
