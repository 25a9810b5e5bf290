"""What the pod decides: IPv6 by its addresses, name servers by resolv.conf; and what the user is told of it."""

from __future__ import annotations

import pytest

from laboratory import Pod
from netinit.backends.machine import HERE
from netinit.kernel import detect
from netinit.options import Options
from programming import SIDECAR, run_tool


def settled(namespace, **options):
    with namespace.entered():
        return HERE.settle(Options(**options))


def test_an_ipv4_address_first_keeps_ipv6_off_and_says_what_stays_uncaptured(pod):
    found = settled(pod)
    assert found.ipv6 == "off", "IPv4 addresses come first in the kernel's list, as for Istio"
    (warning,) = found.warnings
    assert "fd77::2" in warning
    assert "--dual-stack" in warning


@pytest.mark.parametrize("options", [{"dual_stack": True}, {"ipv6": "on"}])
def test_dual_stack_or_the_option_turns_ipv6_on(pod, options):
    found = settled(pod, **options)
    assert (found.ipv6, found.warnings) == ("on", ())


def test_a_pod_with_ipv6_alone_has_it_on(pod_v6only):
    assert settled(pod_v6only).ipv6 == "on"


def test_a_pod_without_addresses_is_no_error():
    with Pod(ipv4=False, ipv6=False) as pod:
        found = settled(pod, dual_stack=True)
        assert (found.ipv6, found.warnings) == ("off", ())
        done = run_tool(pod, *SIDECAR)
        assert done.returncode == 0, done.stderr


def test_a_pod_in_which_ipv6_is_disabled_is_programmed_for_ipv4():
    with Pod() as pod:
        pod.set_sysctl("net/ipv6/conf/all/disable_ipv6", "1")
        pod.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        assert settled(pod, dual_stack=True).ipv6 == "off"
        done = run_tool(pod, *SIDECAR, "--dual-stack")
        assert done.returncode == 0, done.stderr
        done = run_tool(pod, *SIDECAR, "--ipv6", "on", "--reconcile")
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("\twarn\t") == 1, "one line about ::6, which cannot be had"
        assert "::6/128 cannot be added" in done.stderr


def test_the_warning_is_one_event_of_the_run(pod):
    done = run_tool(pod, *SIDECAR)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "\twarn\t" in line]
    assert "the pod's first address is IPv4, and fd77::2 is here too" in line


def test_name_servers_come_from_resolv_conf_without_zones_and_repetitions():
    text = "# comment\nnameserver 10.96.0.10\nnameserver fe80::1%eth0\nnameserver 10.96.0.10\nnameserver resolver\nsearch a b\nnameserver\noptions ndots:5\n"
    assert detect.name_servers(text) == ["10.96.0.10", "fe80::1"]


def test_without_a_server_dns_is_left_alone_and_a_warning_says_so(pod, monkeypatch):
    monkeypatch.setattr(detect, "RESOLV_CONF", "/nonexistent/resolv.conf")
    from programming import apply_in

    outcome = apply_in(pod, Options.from_argv([*SIDECAR, "--redirect-dns", "--ipv6", "off"]))
    assert outcome.warnings == ("--redirect-dns: no name server in /etc/resolv.conf or --dns-servers, so DNS is not captured",)
    assert "ISTIO_OUTPUT_DNS" not in "".join(outcome.rules.values())
