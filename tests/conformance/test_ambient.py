"""Istio's cases of ambient mode: what the kernel holds is the same, and rules that Istio's node agent made are known as such."""

from __future__ import annotations

import json

import pytest

from core import settled
from laboratory import Pod
from netinit.base.net import FAMILIES
from netinit.options import Options
from netinit.rules.infer_options import find_other_values
from programming import VARIANTS, apply_in, differences_in, listing, load, needs, run_tool
from sweeps import choose

pytestmark = pytest.mark.netns
DIALECTS = (*VARIANTS, "nft")

ROUTING = "rule add fwmark 0x111/0xfff pref 32764 lookup 100\nroute add local default dev lo table 100\n"


def read_cases(folder):
    cases = [json.loads(path.read_text()) for path in sorted((folder / "ambient").glob("*.json"))]
    assert cases
    return cases


def read_options(case, **more):
    return Options(
        layout="ambient", redirect_dns=case["redirect_dns"], ingress=case["ingress"], ipv6="on" if case["ipv6"] else "off",
        virtual_interfaces=tuple(case["virtual_interfaces"]),
        host_probe_addresses=(case["host_probe_address"], case["host_probe_address_v6"]), istio_exact=True, **more,
    )  # fmt: skip


def route(pod, case):
    """The policy rule and route as Istio's agent makes them."""
    for version in (4, 6) if case["ipv6"] else (4,):
        pod.run(["ip", f"-{version}", "-batch", "-"], stdin=ROUTING, check=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_ambient_case_is_equal_in_the_kernel(conformance, require_netns, variant):
    needs(variant)
    for case in read_cases(conformance):
        with Pod() as theirs, Pod() as ours:
            for family in FAMILIES:
                if case[family.program]:
                    load(theirs, variant, family, case[family.program])
            apply_in(ours, read_options(case, backend=variant))
            assert listing(ours, variant) == listing(theirs, variant), case["name"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rules_of_the_node_agent_are_verified_read_back_and_removed(conformance, require_netns, dialect):
    cases = list(read_cases(conformance))
    for case in choose(cases[DIALECTS.index(dialect) :: len(DIALECTS)], cases):
        options = read_options(case)
        with Pod() as pod:
            route(pod, case)
            if dialect == "nft":
                pod.run(["nft", "-f", "-"], stdin=case["nft"], check=True)
            for family in FAMILIES if dialect in VARIANTS else ():
                if case[family.program]:
                    load(pod, dialect, family, case[family.program])
            assert differences_in(pod, options) == [], case["name"]
            without_options = run_tool(pod, "verify")
            assert without_options.returncode == 0, (case["name"], without_options.stdout, without_options.stderr)
            assert "--layout ambient" in without_options.stderr

            other = differences_in(pod, options.replace(ingress=not case["ingress"]))
            assert any("ISTIO_PRERT" in one or "istio-prerouting" in one for one in other), case["name"]
            assert run_tool(pod, "remove").returncode == 0
            assert "istio" not in (pod.run(["nft", "list", "ruleset"]).stdout + listing(pod, "iptables-legacy")).lower()
            assert "fwmark" not in pod.run(["ip", "rule"]).stdout + pod.run(["ip", "-6", "rule"]).stdout
            assert pod.run(["ip", "route", "show", "table", "100"]).stdout == ""


def test_what_is_read_back_of_native_tables_are_the_options(conformance, require_netns):
    for case in read_cases(conformance):
        with Pod() as pod:
            pod.run(["nft", "-f", "-"], stdin=case["nft"], check=True)
            with pod.entered():
                from netinit.pods.live import read_live

                found = read_live(Options()).inferred["nftables"]
            assert found.unread == ()
            assert find_other_values(settled(read_options(case)), found.options) == (), case["name"]
