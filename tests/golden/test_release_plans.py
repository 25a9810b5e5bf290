"""The rules of earlier releases of Istio for the same options: the first release's whole, and of each later one what changed.

    pytest tests/golden/test_release_plans.py --update-golden

writes them anew; what changed is then for a person to read.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from netinit.options import Options, offline
from netinit.rules.infer_options import native_plan, release_plans
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import IpRule, Plan
from netinit.rules.nft import render_script

FOLDER = Path(__file__).parent / "releases"
ALL = {"inbound_ports": "*", "outbound_cidrs": "*", "proxy_gids": "7"}
DNS = {**ALL, "redirect_dns": True}
SETS = {
    "all-ports": {**ALL, "exclude_inbound_ports": "15020,15008", "ipv6": "off"},
    "all-ports-of-both-families": {**ALL, "exclude_inbound_ports": "15020", "ipv6": "on", "drop_invalid": True},
    "listed": {
        "inbound_ports": "80,443", "outbound_cidrs": "10.0.0.0/8,fd00::/8", "exclude_outbound_cidrs": "10.1.0.0/16", "outbound_ports": "8080",
        "exclude_outbound_ports": "5432", "virtual_interfaces": ("tap0",), "exclude_interfaces": ("eth7",), "owner_groups": "5", "ipv6": "on",
    },
    "networks-of-ipv4": {"inbound_ports": "80", "outbound_cidrs": "10.0.0.0/8,192.0.2.0/24", "tunnel_port": 0, "ipv6": "on"},
    "tproxy": {**ALL, "inbound_mode": "TPROXY", "exclude_inbound_ports": "15020", "drop_invalid": True, "virtual_interfaces": ("tap0",), "ipv6": "on"},
    "tproxy-listed": {**ALL, "inbound_ports": "80,443", "inbound_mode": "TPROXY", "ipv6": "off"},
    "tproxy-nothing": {"inbound_mode": "TPROXY", "virtual_interfaces": ("tap0",), "outbound_cidrs": "10.0.0.0/8", "ipv6": "on"},
    "dns": {**DNS, "dns_servers": "10.0.0.10,fd00::10", "tunnel_port": 15009, "ipv6": "on"},
    "dns-of-ipv4": {**DNS, "dns_servers": "10.0.0.10", "inbound_mode": "TPROXY", "ipv6": "on"},
    "dns-of-all-servers": {**DNS, "capture_all_dns": True, "ipv6": "off"},
    "nothing": {"ipv6": "off", "keep_local_loopback": True},
    "more-than-istio-has": {
        **DNS, "capture_all_dns": True, "redirect_forwarded_dns": True, "virtual_interfaces": ("tap0",), "exclude_outbound_for_uids": "5",
        "exclude_outbound_for_gids": "5", "exclude_inbound_cidrs": "10.0.0.0/8", "exclude_cloud_metadata": True, "reject_quic": True,
        "redirect_outbound_udp": "514:10514", "log_rules": True, "ipv6": "off",
    },
}  # fmt: skip


def settle(fields):
    return Options(**fields).settle(offline())


def lines_of(made: Plan) -> list[str]:
    """Every rule with its option and its purpose, and what is beside the rules."""
    listed = []
    for family in made.families:
        for table, chains in write_plan(made, family).items():
            for name, chain in chains.items():
                listed += [f"{family.name} {table} {name} {one.text}  # {one.rule.origin_label}: {one.rule.comment}" for one in chain.rules]
                listed += [] if chain.rules else [f"{family.name} {table} {name}"]
    listed += [f"{one.family.name} {f'rule {one.describe()}' if isinstance(one, IpRule) else f'route in {one.table}'}" for one in (*made.ip_rules, *made.routes)]
    return [*listed, *(f"address {one.cidr}" for one in made.addresses), *made.warnings, f"families: {', '.join(one.name for one in made.families)}"]


@pytest.mark.parametrize("name", SETS)
def test_what_each_release_changed_is_on_file(name, golden):
    known: list[str] = []
    pages = []
    for minor in (*release_plans.GENERATIONS, release_plans.AFTER):
        made = release_plans.plan(release_plans.settle_as(settle(SETS[name]), minor), minor)
        assert made.made_from, "else no command can say what it would be with other options"
        listed = lines_of(made)
        changed = list(difflib.unified_diff(known, listed, n=0, lineterm=""))[2:]
        pages.append("\n".join([f"1.{minor}", *(changed if known else listed), ""]))
        known = listed
    golden({FOLDER / f"{name}.txt": "\n".join(pages)})


@pytest.mark.parametrize("name", SETS)
def test_istio_s_native_rules_are_on_file(name, golden):
    options = native_plan.settle_as(settle(SETS[name]))
    golden({FOLDER / f"{name}.nft": render_script(native_plan.plan(options), comments=True)})


@pytest.mark.parametrize("minor", [6, 7, 8])
def test_where_the_agent_resolves_its_port_takes_the_place_of_the_proxy_s(minor):
    options = release_plans.settle_as(settle(SETS["dns"]), minor)
    of_proxy, of_agent = (lines_of(release_plans.plan(options, minor, *port)) for port in ((), (release_plans.AGENT_LISTENER,)))
    assert of_agent == [line.replace("15053", "15013") for line in of_proxy]
    assert of_agent != of_proxy
