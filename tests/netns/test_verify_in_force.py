"""What verify calls a doubt, and what apply does about rules that are not in force; test_situations.py asks every command in each situation."""

from __future__ import annotations

import pytest

from in_force_cases import CAPTURED, DROPS, ESCAPED, NATIVE, NFT, OPTIONS, connect, do, programmed, verify
from laboratory import Pod, start_servers
from programming import needs, run_tool

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


def test_apply_refuses_a_pod_whose_loopback_has_another_name(require_netns):
    needs(NFT)
    with Pod() as pod:
        do(pod, ("ip link set lo down", "ip link set lo name xlo"), NFT)
        done = run_tool(pod, "apply", *OPTIONS)
        assert done.returncode == 1
        assert 'the loopback device is called "xlo" and not lo' in done.stderr
        assert pod.run(["nft", "list", "ruleset"], check=True).stdout == ""
