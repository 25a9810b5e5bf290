"""A second run whose lists are in another order: what differs in effect decides, not where a rule stands."""

from __future__ import annotations

import pytest

from programming import needs, run_tool
from sweeps import choose

CAPTURED = ("-b", "*", "-i", "*", "-d", "15020", "--ipv6", "on")
LISTS = {
    "networks": ("-x", "10.1.0.0/16,10.2.0.0/16,fd01::/64,fd02::/64"), "outbound ports": ("-o", "8080,443,9090"),
    "inbound ports": ("-d", "15020,9091,8081"), "interfaces": ("-c", "eth1,eth2"), "sources": ("--exclude-inbound-cidrs", "10.3.0.0/16,10.4.0.0/16"),
}  # fmt: skip
BACKENDS = ("iptables-nft", "iptables-legacy", "libiptc", "nftables")


def turned(values):
    return ",".join(reversed(values.split(",")))


@pytest.mark.parametrize(
    ("backend", "name"), choose([*zip(BACKENDS, LISTS, strict=False)], [(backend, name) for backend in BACKENDS for name in LISTS])
)
def test_the_order_of_exclusions_is_no_difference(pod, backend, name):
    needs(backend)
    flag, values = LISTS[name]
    assert run_tool(pod, "apply", *CAPTURED, flag, values, "--backend", backend).returncode == 0
    again = run_tool(pod, "apply", *CAPTURED, flag, turned(values), "--backend", backend)
    assert again.returncode == 0, again.stderr
    assert "rules are as planned" in again.stdout + again.stderr
    verified = run_tool(pod, "verify", "--strict", *CAPTURED, flag, turned(values))
    assert (verified.returncode, verified.stdout.partition(":")[0]) == (0, "as planned")
    run_tool(pod, "remove")


@pytest.mark.parametrize("backend", choose(BACKENDS[:1], BACKENDS))
def test_a_moved_rule_that_decides_otherwise_is_one(pod, backend):
    needs(backend)
    users = "1337,2000"  # on lo the first one's rules decide about what the second one sends
    assert run_tool(pod, "apply", *CAPTURED, "-u", users, "--backend", backend).returncode == 0
    again = run_tool(pod, "apply", *CAPTURED, "-u", turned(users), "--backend", backend)
    assert again.returncode == 1
    assert "moved: " in again.stderr
    verified = run_tool(pod, "verify", *CAPTURED, "-u", turned(users))
    assert (verified.returncode, "moved: " in verified.stdout) == (3, True)
    run_tool(pod, "remove")


def test_a_rule_moved_by_hand_past_a_verdict_is_one(pod):
    needs("iptables-legacy")
    options = (*CAPTURED, "-x", "10.1.0.0/16", "--backend", "iptables-legacy")
    assert run_tool(pod, "apply", *options).returncode == 0
    rule = ["-d", "10.1.0.0/16", "-j", "RETURN"]
    pod.run(["iptables-legacy", "-t", "nat", "-D", "ISTIO_OUTPUT", *rule], check=True)
    pod.run(["iptables-legacy", "-t", "nat", "-A", "ISTIO_OUTPUT", *rule], check=True)
    verified = run_tool(pod, "verify", *options)
    assert (verified.returncode, "moved: IPv4 nat ISTIO_OUTPUT" in verified.stdout) == (3, True)
    assert run_tool(pod, "apply", *options).returncode == 1
    run_tool(pod, "remove")


def test_where_a_log_rule_stands_matters_though_no_packet_is_treated_differently(pod):
    needs("iptables-legacy")
    options = (*CAPTURED, "--log-rules", "--backend", "iptables-legacy")
    assert run_tool(pod, "apply", *options).returncode == 0
    listed = pod.run(["iptables-legacy", "-t", "nat", "-S", "ISTIO_REDIRECT"], check=True).stdout.splitlines()
    log = next(line for line in listed if "NFLOG" in line or "LOG" in line).split()[2:]
    words = [word.strip('"') for word in " ".join(log).replace('"netinit outbound: "', "PREFIX").split()]
    words = ["netinit outbound: " if word == "PREFIX" else word for word in words]
    pod.run(["iptables-legacy", "-t", "nat", "-D", "ISTIO_REDIRECT", *words], check=True)
    pod.run(["iptables-legacy", "-t", "nat", "-A", "ISTIO_REDIRECT", *words], check=True)
    verified = run_tool(pod, "verify", *options)
    assert (verified.returncode, "moved: IPv4 nat ISTIO_REDIRECT" in verified.stdout) == (3, True), verified.stdout
    run_tool(pod, "remove")
