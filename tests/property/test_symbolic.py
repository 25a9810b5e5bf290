"""All packets at once: parts cover everything once, and the packet simulator agrees with every one of them.

`make prove` takes all goldens, more random options and more packets of each part: NETINIT_OPTION_SETS, NETINIT_BOXES.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from allpackets import around, check_cover, check_members, divide_all, divide_plan
from core import IPV4, IPV6, Network, parse_listing, plan
from goldens import BEHAVIOURS, FEW, options_of
from netinit.rules.iptables.parse.__init__ import parse_rule
from netinit.rules.model import NAT, OUTPUT
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import ACCEPT, HookedChain, LoadedChain, LoadedRule, join_backends
from randomness import SEED
from rules_data import read_cases, read_options
from strategies import made_any_options
from sweeps import choose, together

pytestmark = pytest.mark.timeout(3600)
SETS = min(int(os.environ.get("NETINIT_OPTION_SETS", "3")), 200)
GOLDENS = BEHAVIOURS if SETS > 90 else FEW[::2]
MATCHES = (
    "-p tcp", "! -p tcp", "-p udp -m udp --dport 53", "-p icmp", "-p tcp -m tcp --sport 1:1023", "-s 10.0.0.0/8", "! -d 198.51.100.0/24",
    "-d 192.0.2.10/32", "-i eth0", "! -i lo", "-o eth+", "-o eth1", "-o lo", "-m owner --uid-owner 1000-2000", "-m owner ! --gid-owner 5",
    "-m mark --mark 0x1/0x3", "-m mark ! --mark 0x539", "-m connmark --mark 0x10/0x10", "-m connmark ! --mark 0x0",
    "-m conntrack --ctstate NEW", "-m conntrack ! --ctstate INVALID,UNTRACKED", "-m conntrack --ctstate RELATED,ESTABLISHED",
    "-m addrtype --dst-type LOCAL", "-m addrtype ! --src-type LOCAL", "-m addrtype --dst-type LOCAL,BROADCAST", "-m socket",
    "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", "-m time --timestart 08:00:00", "-p tcp -m multiport --dports 80,1000:2000", "",
)  # fmt: skip
TARGETS = {
    "raw": ("CT --notrack", "CT --zone 3", "ACCEPT", "MINE"),
    "mangle": ("MARK --set-xmark 0x5/0xffffffff", "MARK --set-xmark 0x2/0x3", "CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff",
               "CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", "CONNMARK --set-xmark 0x10/0xf0", "RETURN", "DROP", "MINE",
               "LOG", "NOBODYKNOWS"),
    "nat": ("MARK --set-xmark 0x5/0xffffffff", "REDIRECT --to-ports 9000", "DNAT --to-destination 203.0.113.9:99", "DNAT --to-destination 192.0.2.10", "RETURN", "ACCEPT", "MINE"),
    "filter": ("DROP", "REJECT --reject-with icmp-port-unreachable", "ACCEPT", "MINE", "RETURN"),
}  # fmt: skip
HOOKS = {
    "raw": ("PREROUTING", "OUTPUT"), "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "OUTPUT"), "filter": ("INPUT", "FORWARD", "OUTPUT"),
}  # fmt: skip
ROUTED = {
    IPV4: around(IPV4, routes=((Network.parse("10.0.0.0/8"), "eth1"), (Network.parse("10.1.0.0/16"), "eth2")), forwards=True),
    IPV6: around(IPV6, routes=((Network.parse("fd00::/8"), "eth1"),), forwards=True),
}  # fmt: skip


def hold(name, strategy, check, examples=SETS):
    """Runs the check on that many examples; what failed can be repeated by its seed."""
    counted = Counter()
    run = settings(
        max_examples=examples, database=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )(given(strategy)(lambda made: check(made, counted)))  # fmt: skip
    seed(SEED)(run)()
    print(f"\n{name}: {dict(counted)}, seed {SEED}")


@pytest.mark.parametrize("free", [True, False], ids=["any interface", "by routes"])
def test_parts_of_any_options_cover_everything_once_and_the_simulator_agrees(free, capsys):
    def check(options, counted):
        counted.update(check_options(options, None if free else ROUTED, free=free))

    with capsys.disabled():
        hold("all packets of any options", made_any_options(), check)


def check_options(options, places, *, free):
    counted = Counter()
    rulesets, partitions = divide_plan(plan(options), places, free=free)
    for partition in partitions:
        counted["boxes"] += check_cover(partition)
        counted["parts"] += len(partition.parts)
        counted["packets"] += check_members(partition, rulesets[partition.space.family], Random(1), members=1)
    return counted


@together("behaviour", GOLDENS)
def test_parts_of_a_golden_cover_everything_once_and_the_simulator_agrees(behaviour):
    assert check_options(options_of(behaviour), None, free=True)["packets"]


def test_parts_of_istios_cases_cover_everything_once_and_the_simulator_agrees(conformance):
    cases = [read_options(case, istio_exact=exact) for case in read_cases(conformance) for exact in (False, True)]
    assert cases
    for options in choose(cases[::4], cases):
        assert check_options(options, None, free=True)["packets"]


@st.composite
def made_listings(draw):
    """A listing of anybody's rules, and a policy."""
    text = ""
    for table, hooks in HOOKS.items():
        chains = [f":{hook} {draw(st.sampled_from(('ACCEPT', 'ACCEPT', 'ACCEPT', 'DROP'))) if table == 'filter' else 'ACCEPT'} [0:0]" for hook in hooks]
        rules = draw(st.lists(st.tuples(st.sampled_from((*hooks, *hooks, "MINE")), st.sampled_from(MATCHES), st.sampled_from(TARGETS[table])), max_size=7))
        lines = [f"-A {hook} {match} {'-g' if draw(st.integers(0, 5)) == 0 and target == 'MINE' else '-j'} {target}" for hook, match, target in rules]
        text += "\n".join([f"*{table}", *chains, ":MINE - [0:0]", *[" ".join(line.split()) for line in lines], "COMMIT", ""])
    return text


def test_parts_of_anybodys_rules_cover_everything_once_and_the_simulator_agrees(capsys):
    def check(text, counted):
        rulesets = {IPV4: load_listing(parse_listing(text), IPV4)}
        for partition in divide_all(rulesets, {IPV4: ROUTED[IPV4]}, free=False):
            counted["boxes"] += check_cover(partition)
            counted["parts"] += len(partition.parts)
            counted["packets"] += check_members(partition, rulesets[IPV4], Random(1), members=1)

    with capsys.disabled():
        hold("all packets of anybody's rules", made_listings(), check, 2 * SETS)


def test_a_mark_of_a_nat_rule_does_not_keep_packets_from_later_nat_chains():
    """Only what NAT translated goes past them."""
    ours = load_listing(parse_listing("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p tcp -j REDIRECT --to-ports 15001\nCOMMIT\n"), IPV4)
    marks = LoadedRule(1, "meta mark set 5", parse_rule("-A c -j MARK --set-xmark 0x5/0xffffffff", IPV4))
    chain = LoadedChain("c", (marks,), ACCEPT)
    earlier = HookedChain("nft table ip others", chain, {"c": chain}, NAT, OUTPUT, -110)
    both = replace(ours, foreign=(earlier,))
    partitions = list(divide_all({IPV4: both}, {IPV4: ROUTED[IPV4]}, free=False))
    assert {part.condition.redirect_port for partition in partitions for part in partition.parts} == {0, 15001}
    for partition in partitions:
        check_members(partition, both, Random(1), members=1)


def test_parts_of_rules_in_several_places_cover_everything_once_and_the_simulator_agrees(capsys):
    def check(texts, counted):
        places = {name: {IPV4: load_listing(parse_listing(text), IPV4)} for name, text in zip(("nft", "legacy"), texts, strict=True)}
        joined = {IPV4: join_backends(places, IPV4)}
        for partition in divide_all(joined, {IPV4: ROUTED[IPV4]}, free=False):
            counted["boxes"] += check_cover(partition)
            counted["parts"] += len(partition.parts)
            # What two orders leave on a set of packets may be the same on one of them: there the simulator knows more.
            sure = tuple(part for part in partition.parts if "does not show which it runs first" not in part.reason)
            counted["disputed"] += len(partition.parts) - len(sure)
            counted["packets"] += check_members(replace(partition, parts=sure), joined[IPV4], Random(1), members=1)

    with capsys.disabled():
        hold("all packets of several places", st.tuples(made_listings(), made_listings()), check)
