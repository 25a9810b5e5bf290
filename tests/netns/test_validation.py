"""Validation by real connections: what it proves, what it refuses to call proven, and what it exits with."""

from __future__ import annotations

import pytest

from laboratory import Pod, start_servers
from netinit.base.errors import ValidationFailedError, ValidationLateError
from netinit.base.logs import Log
from netinit.base.net import IPV4, IPV6
from netinit.lab import PROXY_ID
from netinit.options import Options
from netinit.pods.probe.validate import validate
from programming import SIDECAR, VARIANTS, apply_in, load, needs, remove_in, run_tool
from sweeps import crossed

ON = (*SIDECAR, "--ipv6", "on", "--probe-timeout", "1s")
ALONE = (*ON, "--skip-rule-apply", "--run-validation")


@crossed(backend=(*VARIANTS, "nftables"), more=((), ("-m", "TPROXY"), ("--layout", "classic"), ("--redirect-dns", "--capture-all-dns")))
def test_good_rules_are_proven_in_both_families_and_directions(pod, backend, more):
    needs(backend) if backend in VARIANTS else None
    done = run_tool(pod, *ON, *more, "--backend", backend, "--run-validation")
    assert done.returncode == 0, done.stderr
    for family in ("IPv4", "IPv6"):
        proven = [line for line in done.stderr.splitlines() if f"{family}: uid" in line and "captured on port" in line]
        assert len(proven) == 2, done.stderr


def test_validation_alone_programs_nothing_and_fails_without_rules(pod):
    done = run_tool(pod, *ALONE)
    assert done.returncode == 126
    assert "uid 1337 to 127.0.0.6 port 15002: the connection failed" in done.stderr
    assert "uid 1337 to ::6 port 15002" in done.stderr
    assert pod.run(["iptables-nft-save"]).stdout == ""


def test_as_in_the_validation_container_the_proxys_user_needs_no_privilege(pod, readable):
    apply_in(pod, Options.from_argv(ON))
    proxy = (*readable, "setpriv", f"--reuid={PROXY_ID}", f"--regid={PROXY_ID}", "--clear-groups", "--inh-caps=-all")
    done = run_tool(pod, *ALONE, prefix=proxy)
    assert done.returncode == 0, done.stderr
    assert "uid 1337 to 127.0.0.6 port 15002: captured on port 15006, original destination kept" in done.stderr
    remove_in(pod)
    assert run_tool(pod, *ALONE, prefix=proxy).returncode == 126


@pytest.mark.parametrize(
    ("family", "rules", "said"),
    [
        (IPV4, "-F ISTIO_IN_REDIRECT", "IPv4: uid 1337 to 127.0.0.6 port 15002: the connection failed"),
        (IPV6, "-F ISTIO_REDIRECT", "IPv6: uid 65534 to 2001:db8::1 port 15002"),
        (IPV4, "-I OUTPUT -p tcp --dport 15002 -j DNAT --to-destination 127.0.0.1:15006", "with the original destination"),
    ],
)
def test_a_single_broken_rule_fails_the_validation_and_is_named(pod, family, rules, said):
    apply_in(pod, Options.from_argv([*ON, "--backend", "iptables-nft"]))
    load(pod, "iptables-nft", family, f"*nat\n{rules}\nCOMMIT\n")
    done = run_tool(pod, *ALONE)
    assert done.returncode == 126, done.stderr
    if said != "with the original destination":
        assert said in done.stderr


def test_a_connection_that_does_not_arrive_in_time_is_told_from_one_that_goes_astray(pod):
    options = Options.from_argv([*SIDECAR, "--ipv6", "off", "--probe-timeout", "200ms"])
    apply_in(pod, options.replace(backend="iptables-nft"))
    load(pod, "iptables-nft", IPV4, "*filter\n-I OUTPUT -o lo -j DROP\nCOMMIT\n")
    with pod.entered(), pytest.raises(ValidationLateError, match="did not arrive within --probe-timeout"):
        validate(options, Log("none"))
    load(pod, "iptables-nft", IPV4, "*filter\n-D OUTPUT -o lo -j DROP\nCOMMIT\n")
    remove_in(pod)
    with pod.entered(), pytest.raises(ValidationFailedError, match="the connection failed") as caught:
        validate(options.replace(probe_timeout=3 * 10**9), Log("none"))
    assert type(caught.value) is ValidationFailedError


def test_a_proxy_that_runs_already_is_left_alone(pod):
    start_servers(pod)
    apply_in(pod, Options.from_argv(ON))
    done = run_tool(pod, *ALONE)
    assert done.returncode == 1, "the rules were not tried, so they have not failed"
    assert "port 15006 cannot be listened on (Address already in use): validate before the proxy runs" in done.stderr


def test_a_pod_without_ipv6_is_validated_in_ipv4_alone():
    with Pod(ipv6=False) as pod:
        done = run_tool(pod, *SIDECAR, "--run-validation")
        assert done.returncode == 0, done.stderr
        assert "IPv6: uid" not in done.stderr
