"""Masquerading gives a packet one of the pod's own addresses: rules that look at the source are judged by it."""

from __future__ import annotations

import json

import pytest

from laboratory import start_servers
from netinit.lab import APP_ID
from programming import SIDECAR, run_tool

BACKENDS = ("iptables-nft", "iptables-legacy", "nftables")
# Tailscale's sidecar, reduced: addresses of the tailnet come from its device alone, and what leaves is masqueraded.
RULES = "{0} -N t; {0} -A INPUT -j t; {0} -A t -s 100.64.0.0/10 -j DROP; {0} -t nat -A POSTROUTING -p tcp -j MASQUERADE"
OUTSIDE = "203.0.113.7"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_example_fits_the_rule_that_it_illustrates(pod, backend):
    start_servers(pod)
    program = "iptables-legacy" if backend == "iptables-legacy" else "iptables-nft"
    pod.run(["sh", "-ec", RULES.format(program)], check=True)
    done = run_tool(pod, "apply", *SIDECAR, "--backend", backend)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in run_tool(pod, "verify").stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 2, warnings
    assert "drops the answers to connections that the proxy captures, for example TCP from 10.77.0.2 to 100.64." in warnings[0]
    assert "drops packets that the plan captures, for example TCP from 100.64." in warnings[1]
    told = json.loads(run_tool(pod, "explain", "--live", "--to", f"{OUTSIDE}:80", "--uid", str(APP_ID), "--json").stdout)
    assert told["verdict"] == "captured", told["sentence"]
    assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "proxy"
