"""Masquerading gives a packet one of the pod's own addresses: rules that look at the source are judged by it."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from laboratory import Pod, start_servers
from netinit.base.errors import NetinitError
from netinit.lab import APP_ID
from programming import SIDECAR, apply_in, run_tool
from strategies import made_options

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
    assert len(warnings) == 1, warnings
    assert "drops packets that the plan captures, for example TCP from 100.64." in warnings[0]
    told = json.loads(run_tool(pod, "explain", "--live", "--to", f"{OUTSIDE}:80", "--uid", str(APP_ID), "--json").stdout)
    assert told["verdict"] == "captured", told["sentence"]
    assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "proxy"


def tells_by_words(options):
    """Whether flags alone say everything: a few options are variables."""
    return not (options.owner_groups != "*" or options.exclude_owner_groups or str(options.loopback_cidr) != "127.0.0.1/32" or options.keep_local_loopback)


@settings(max_examples=4, phases=[Phase.generate], deadline=None, suppress_health_check=[*HealthCheck])
@given(options=made_options().filter(tells_by_words), backend=st.sampled_from(BACKENDS))
def test_options_and_the_pod_that_was_programmed_with_them_treat_no_packet_differently(options, backend):
    with Pod() as own:
        try:
            apply_in(own, options.replace(backend=backend))
        except NetinitError:  # a combination that this backend refuses
            reject()
        done = run_tool(own, "diff", "--live", *options.to_argv(), "--backend", backend)
        assert done.returncode == 0, f"{options.to_argv()}\n{done.stderr}{done.stdout}"
