"""What verify calls a doubt, and what apply does about rules that are not in force; test_situations.py asks every command in each situation."""

from __future__ import annotations

import re

import pytest

from in_force_cases import CAPTURED, DROPS, ESCAPED, LEGACY, NATIVE, NFT, OPTIONS, PORT, connect, do, programmed, verify
from lab_probes import Probe
from laboratory import Pod, start_servers
from netinit.lab import APP_ID, PROXY_ID
from programming import arrivals, needs, run_tool

BACKENDS = (NFT, LEGACY, NATIVE)
DROPPING = [(what, case, backend) for what, case in DROPS.items() for backend in case.backends]


@pytest.mark.parametrize(("what", "case", "backend"), DROPPING, ids=[f"{what} ({backend})" for what, _, backend in DROPPING])
def test_what_drops_captured_traffic_is_a_warning(what, case, backend, require_netns):
    needs(backend)
    pod = programmed(backend)
    try:
        do(pod, case.commands, backend)
        truth = connect(pod, "out")
        found, strict = verify(pod, backend), verify(pod, backend, ("--strict",))
    finally:
        pod.__exit__(None, None, None)
    assert (strict.returncode, strict.stdout.startswith("doubt: kernel: ")) == (3, True), strict.stdout
    assert truth in ("timeout", "unreachable"), f"{what} is another situation here: the connection ends as {truth}"
    assert found.returncode == 0, f"{what}: {found.stdout}{found.stderr}"
    assert any(all(word in line for word in case.named) for line in found.stderr.splitlines()), found.stderr


DIVERTING = (  # one rule diverts, others stand beside it
    "nft 'table ip t { chain c { type nat hook prerouting priority -110; tcp sport 1-1023 dnat to 10.77.0.2:8080; }; }'",
    "nft 'table inet u { chain c { type filter hook input priority 10; tcp flags syn meta mark set 1337; meta mark set mark or 0x40000; }; }'",
    "nft 'table ip v { chain c { type nat hook postrouting priority 110; masquerade; }; }'",
)


def test_the_rule_is_named_without_which_packets_are_captured_and_its_example_is_one_of_them(require_netns):
    pod = programmed(NATIVE)
    try:
        do(pod, DIVERTING, NATIVE)
        (line, _) = verify(pod, NATIVE).stdout.splitlines()
        answers = [arrivals(pod.client, Probe("10.77.0.2", PORT, source_port=port))[0] for port in (999, 40000)]
    finally:
        pod.__exit__(None, None, None)
    assert line.startswith("escaping: IPv4 nft table ip t c rule 1: ")
    source = int(re.search(r"for example TCP from [\d.]+:(\d+) to 10\.77\.0\.2:", line)[1])
    assert source < 1024, "the example has the source port that makes it one"
    assert answers == [("app", 8080), CAPTURED["in"]]


@pytest.mark.parametrize("backend", [NFT, NATIVE])
def test_packets_that_begin_with_a_mark_of_ours_are_a_warning(backend, require_netns):
    needs(backend)
    options = ("-m", "TPROXY")
    pod = programmed(backend, options)
    try:
        do(pod, ("nft 'table ip t { chain c { type route hook output priority -160; meta mark set 7; }; }'",), backend)
        found, strict = (verify(pod, backend, (*options, *more)) for more in ((), ("--strict",)))
        assert connect(pod, "out") == CAPTURED["out"]
    finally:
        pod.__exit__(None, None, None)
    assert found.returncode == 0, found.stdout
    assert "packets that begin with a mark of netinit's own escape there, for example " in found.stderr
    assert strict.returncode == 3


@pytest.mark.parametrize("backend", [NFT, LEGACY])
@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
def test_what_a_foreign_rule_keeps_from_nat_is_as_planned_where_tproxy_captures_it_at_the_same_port(mode, backend, require_netns):
    """As ipvs has it: the addresses of Services are the pod's own, and the proxy calls one that leads to the pod itself."""
    needs(backend)
    options = ("-m", mode)
    with Pod() as pod:
        start_servers(pod, transparent=(15006,) if mode == "TPROXY" else ())
        do(pod, ("ip address add 10.96.0.1/32 dev eth0", "{iptables} -w -t nat -I OUTPUT -p tcp -d 10.96.0.1 -j ACCEPT"), backend)
        assert run_tool(pod, "apply", *OPTIONS, *options, "--backend", backend).returncode == 0
        found = verify(pod, backend, options)
        truth = arrivals(pod, Probe("10.96.0.1", PORT, uid=PROXY_ID, gid=APP_ID))[0]
    if mode == "TPROXY":
        assert (found.returncode, truth) == (0, CAPTURED["in"]), found.stdout
    else:
        assert (found.returncode, truth) == (3, ESCAPED["in"]), found.stdout
        assert "captured packets escape there, for example TCP from 10.77.0.2 to 10.96.0.1:8080, sent by uid 1337" in found.stdout


def test_a_rule_for_a_device_that_does_not_exist_is_not_mentioned(require_netns):
    pod = programmed(NFT)
    try:
        do(pod, ("iptables-nft -w -t nat -I PREROUTING -i eniz0 -p tcp -j ACCEPT",), NFT)
        assert (verify(pod, NFT).returncode, verify(pod, NFT).stderr) == (0, "")
        do(pod, ("ip link add eniz0 type veth peer name eniz1",), NFT)
        found = verify(pod, NFT)
    finally:
        pod.__exit__(None, None, None)
    assert found.returncode == 3
    assert "coming in through eniz0" in found.stdout


DORMANT = {
    NFT: (2, "ip nat"),
    NATIVE: (1, "inet istio-proxy-nat"),
}


@pytest.mark.parametrize("backend", DORMANT)
@pytest.mark.parametrize("options", [(), ("--reconcile",), ("--force-apply",)], ids=["", "reconcile", "force"])
def test_apply_activates_a_dormant_table_of_its_own(backend, options, require_netns):
    needs(backend)
    pod = programmed(backend)
    try:
        do(pod, (f"nft 'add table {DORMANT[backend][1]} {{ flags dormant; }}'",), backend)
        assert connect(pod, "out") == ESCAPED["out"]
        done = run_tool(pod, "apply", *OPTIONS, "--backend", backend, *options)
        assert done.returncode == 0, done.stderr
        assert "nothing to do" not in done.stderr
        assert [connect(pod, direction) for direction in ("out", "in")] == [CAPTURED["out"], CAPTURED["in"]]
        again = run_tool(pod, "apply", *OPTIONS, "--backend", backend)
        assert "nothing to do" in again.stderr
    finally:
        pod.__exit__(None, None, None)


@pytest.mark.parametrize("backend", [NFT, NATIVE])
def test_a_first_apply_into_a_dormant_table_is_active_and_says_so(backend, require_netns):
    needs(backend)
    with Pod() as pod:
        start_servers(pod)
        do(pod, (f"nft 'add table {DORMANT[backend][1]} {{ flags dormant; }}'",), backend)
        done = run_tool(pod, "apply", *OPTIONS, "--backend", backend)
        assert done.returncode == 0, done.stderr
        assert connect(pod, "out") == CAPTURED["out"], done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loopback_that_is_down_is_inactive_for_every_command_until_it_is_up(backend, require_netns):
    needs(backend)
    arguments = (*OPTIONS, "--backend", backend)
    with Pod() as pod:
        start_servers(pod)
        do(pod, ("ip link set lo down",), backend)
        for _ in range(2):  # the second run finds the rules as planned, and is no success either
            done = run_tool(pod, "apply", *arguments)
            assert done.returncode == 1
            assert "the rules are programmed and stay, but are not in force" in done.stderr
            assert "inactive: devices: the loopback device is down" in done.stderr
        checked = run_tool(pod, "verify", *arguments)
        assert (checked.returncode, checked.stdout.count("\ninactive: ") + checked.stdout.startswith("inactive: ")) == (3, 1), checked.stdout
        examined = run_tool(pod, "doctor", without=("sys_admin",))
        assert "✘ settings: the loopback device is down" in examined.stdout
        assert examined.returncode == 1
        assert connect(pod, "out") in ("timeout", "unreachable", "nothing answers"), "the truth"
        do(pod, ("ip link set lo up",), backend)
        done = run_tool(pod, "apply", *arguments)
        assert (done.returncode, "nothing to do" in done.stderr) == (0, True), done.stderr
        assert run_tool(pod, "verify", *arguments).returncode == 0
        assert "loopback" not in run_tool(pod, "doctor", without=("sys_admin",)).stdout
        assert connect(pod, "out") == CAPTURED["out"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loopback_without_its_address_is_inactive_and_nothing_counts_as_captured(backend, require_netns):
    needs(backend)
    arguments = (*OPTIONS, "--backend", backend)
    with Pod() as pod:
        start_servers(pod)
        assert run_tool(pod, "apply", *arguments).returncode == 0
        do(pod, ("ip address flush dev lo",), backend)
        checked = run_tool(pod, "verify", *arguments)
        assert checked.returncode == 3
        assert [line for line in checked.stdout.splitlines() if line.startswith("inactive: devices: the loopback device has no address ")], checked.stdout
        asked = run_tool(pod, "explain", "--live", "--to", "203.0.113.7:80", "--uid", "1000")
        assert asked.stdout.startswith("unknown: "), asked.stdout
        assert "a loopback device that has no address 127.0.0.1/32" in asked.stdout
        assert connect(pod, "out") in ("timeout", "unreachable", "nothing answers"), "the truth"
        do(pod, ("ip address add 127.0.0.1/8 dev lo",), backend)
        assert run_tool(pod, "explain", "--live", "--to", "203.0.113.7:80", "--uid", "1000").stdout.startswith("captured: ")
        assert connect(pod, "out") == CAPTURED["out"]


def test_apply_refuses_a_pod_whose_loopback_has_another_name(require_netns):
    needs(NFT)
    with Pod() as pod:
        do(pod, ("ip link set lo down", "ip link set lo name xlo"), NFT)
        done = run_tool(pod, "apply", *OPTIONS)
        assert done.returncode == 1
        assert 'the loopback device is called "xlo" and not lo' in done.stderr
        assert pod.run(["nft", "list", "ruleset"], check=True).stdout == ""
