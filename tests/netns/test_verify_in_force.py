"""What verify calls a doubt, and what apply does about rules that are not in force; test_situations.py asks every command in each situation."""

from __future__ import annotations

import pytest

from in_force_cases import CAPTURED, DROPS, ESCAPED, LEGACY, NATIVE, NFT, OPTIONS, connect, do, programmed, verify
from laboratory import Pod, start_servers
from programming import needs, run_tool

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


def test_apply_refuses_a_pod_whose_loopback_has_another_name(require_netns):
    needs(NFT)
    with Pod() as pod:
        do(pod, ("ip link set lo down", "ip link set lo name xlo"), NFT)
        done = run_tool(pod, "apply", *OPTIONS)
        assert done.returncode == 1
        assert 'the loopback device is called "xlo" and not lo' in done.stderr
        assert pod.run(["nft", "list", "ruleset"], check=True).stdout == ""
