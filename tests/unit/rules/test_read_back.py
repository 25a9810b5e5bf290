"""Every rule of a plan is, once it is written, the rule that is read: in what iptables lists and in what the kernel holds of nft."""

from __future__ import annotations

import pytest

from core import FAMILIES, Options, parse_rule, plan, write_plan
from netinit.rules.iptables.parse import normalise_rule
from plan_snapshot import live_chains

ALL = {"inbound_ports": "*", "outbound_cidrs": "*", "ipv6": "on", "redirect_dns": True, "capture_all_dns": True, "virtual_interfaces": ("tap0",), "exclude_interfaces": ("eth1",)}
OPTIONS = {
    "sidecar": {**ALL, "exclude_inbound_ports": "22", "redirect_outbound_udp": "514:10514", "drop_invalid": True},
    "tproxy": {**ALL, "inbound_mode": "TPROXY", "redirect_forwarded_dns": True},
    "classic": {"inbound_ports": "80", "outbound_cidrs": "10.0.0.0/8", "layout": "classic", "ipv6": "on"},
    "classic-tproxy": {"layout": "classic", "inbound_mode": "TPROXY", "inbound_ports": "*", "ipv6": "on"},
    "ambient": {"layout": "ambient", "ipv6": "on", "redirect_dns": True},
    "rejected": {**ALL, "ipv6": "reject", "reject_quic": True},
}  # fmt: skip


def keys(rules):
    return [(frozenset(matches), target) for *matches, target in map(normalise_rule, rules)]


@pytest.mark.parametrize("name", OPTIONS)
def test_what_iptables_lists_is_what_was_planned(name):
    made = plan(Options(**OPTIONS[name]))
    for family in FAMILIES:
        for table, chains in write_plan(made, family).items():
            for chain, written in chains.items():
                planned, listed = ([one.listed(family) for one in written.rules], [parse_rule(one.text, family) for one in written.rules])
                assert keys(listed) == keys(planned), (table, chain)


@pytest.mark.parametrize("name", [name for name in OPTIONS if "tproxy" not in name])  # whose closing is a rule of its own
def test_what_the_kernel_holds_of_nft_is_what_was_planned(name):
    made = plan(Options(**OPTIONS[name]))
    planned = {}
    for table, chain, rule in made.walk():
        for family in rule.families:
            planned.setdefault((family, table, chain), []).append(rule)
    live = {(family, *place): rules for family, chains in live_chains(made).items() for place, rules in chains.items() if rules}
    assert live.keys() == planned.keys()
    for place, rules in planned.items():
        assert keys(live[place]) == keys(rules), place
