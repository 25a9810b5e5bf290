"""The rules of pilot-agent beside netinit's with --istio-exact, in pods alike: equal, and each removes the other's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from laboratory import Pod
from programming import SIDECAR

AGENT = Path(os.environ.get("ISTIO_ASSETS", "")) / "pilot-agent"
pytestmark = pytest.mark.skipif(not os.environ.get("ISTIO_ASSETS") or not AGENT.exists(), reason="ISTIO_ASSETS names no folder with pilot-agent")
SETS = {
    "redirect": (),
    "dual stack": ("--dual-stack",),
    "dns": ("--redirect-dns",),
    "tproxy": ("-m", "TPROXY"),
    "much": ("-m", "TPROXY", "--redirect-dns", "--dual-stack", "-i", "10.0.0.0/8", "-x", "10.1.0.0/16,10.2.3.0/24", "-b", "80,443", "-q", "8443", "-o", "22", "-k", "virbr0"),
    "less": ("--drop-invalid", "-x", "10.1.0.0/16", "-o", "22,25", "-c", "eth1"),
}  # fmt: skip
VARIANTS = ("nft", "legacy")


def program(pod, who, *arguments):
    """Runs pilot-agent or netinit in the pod."""
    own = [sys.executable, "-m", "netinit", "istio-iptables"]
    pod.run([*(own if who == "netinit" else [str(AGENT), "istio-iptables"]), *arguments], check=True)


def read_rules(pod, variant):
    """The rules of both families, in order, by program and table; tables without any are left out."""
    found = {}
    for program in ("iptables", "ip6tables"):
        for line in pod.run([f"{program}-{variant}-save"], check=True).stdout.splitlines():
            if line.startswith("*"):
                table = line
            elif line.startswith("-A"):
                found.setdefault((program, table), []).append(line)
    return found


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("more", SETS.values(), ids=SETS)
def test_rules_are_equal_and_each_removes_the_other_s(more, variant):
    chosen = ("--force-iptables-binary", variant)
    with Pod() as theirs, Pod() as ours:
        program(theirs, "pilot-agent", *chosen, *SIDECAR, *more)
        program(ours, "netinit", *chosen, *SIDECAR, *more, "--istio-exact")
        found = read_rules(theirs, variant)
        assert found
        assert read_rules(ours, variant) == found
        program(theirs, "netinit", *chosen, "--cleanup-only")
        program(ours, "pilot-agent", *chosen, *SIDECAR, *more, "--cleanup-only")
        assert read_rules(theirs, variant) == read_rules(ours, variant) == {}


@pytest.mark.parametrize("name", ["redirect", "dual stack", "dns", "tproxy"])  # lists are sets with netinit, rules with Istio
def test_native_rules_of_pilot_agent_are_as_planned_and_each_removes_the_other_s(name):
    arguments = ("--native-nftables", *SIDECAR, *SETS[name])
    with Pod() as theirs, Pod() as ours:
        program(theirs, "pilot-agent", *arguments)
        verified = theirs.run([sys.executable, "-m", "netinit", "verify"], check=False)
        assert verified.returncode == 0, verified.stdout
        program(theirs, "netinit", *arguments, "--istio-exact")  # exits with 1 where other rules are there
        program(ours, "netinit", *arguments, "--istio-exact")
        program(theirs, "netinit", "--native-nftables", "--cleanup-only")
        program(ours, "pilot-agent", *arguments, "--cleanup-only")
        for pod in (theirs, ours):
            assert "istio" not in pod.run(["nft", "list", "ruleset"], check=True).stdout
