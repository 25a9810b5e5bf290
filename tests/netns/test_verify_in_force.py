"""Changes that iptables-save and nft do not show: verify names each that takes traffic away, and none that does not.

Each situation is made in a pod that was programmed well; a real connection says what it does, and verify must agree with it.
"""

from __future__ import annotations

import pytest

from in_force_cases import (
    APP_ID,
    CAPTURED,
    DROPS,
    ESCAPED,
    ESCAPES,
    HARMLESS,
    NATIVE,
    NFT,
    OPTIONS,
    OUTSIDE,
    PORT,
    connect,
    do,
    programmed,
    verify,
)
from netinit.cli.diff.sides import THIS_HOST
from netinit.lab import Pod, start_servers
from programming import needs, run_tool


def explain(pod, direction):
    """What netinit says of the same connection."""
    words = ("--to", f"{OUTSIDE}:{PORT}", "--uid", str(APP_ID)) if direction == "out" else ("--from", "10.77.0.1", "--to-port", str(PORT))
    return run_tool(pod, "explain", "--live", *words)


def assert_all(pod, direction):
    """What netinit says of the assertion that all connections of the direction to the same place are captured."""
    words = f"outbound ipv4 tcp to {OUTSIDE} port {PORT} not by proxy" if direction == "out" else f"inbound ipv4 tcp port {PORT}"
    return run_tool(pod, "audit", "--live", "--assert", f"{words} is captured")


def compare(pod, options):
    """What netinit says of the difference between the plan and the live rules."""
    return run_tool(pod, "diff", "--live", *OPTIONS, *options)


FOLLOWS_THE_MAIN_TABLE = ("a policy rule that leads to lo",)  # explain warns of policy rules
OF_THE_HOST = ("any address is this host's", "a device has the name of an excluded one")  # diff compares rules on the same host
CASES = [(what, case, backend) for what, case in ESCAPES.items() for backend in case.backends]


@pytest.mark.parametrize(("what", "case", "backend"), CASES, ids=[f"{what} ({backend})" for what, _, backend in CASES])
def test_what_takes_captured_traffic_away_is_named_by_verify(what, case, backend, require_netns):
    needs(backend)
    pod = programmed(backend, case.options)
    try:
        assert connect(pod, case.direction) == CAPTURED[case.direction]
        do(pod, case.commands, backend)
        truth = connect(pod, case.direction)
        wanted = case.truth[case.direction] if isinstance(case.truth, dict) else case.truth
        assert truth == wanted, f"{what} is another situation here: the connection ends as {truth}"
        found = verify(pod, backend, case.options)
        explained, asserted = explain(pod, case.direction), assert_all(pod, case.direction)
        compared = compare(pod, case.options)
    finally:
        pod.__exit__(None, None, None)
    if what not in FOLLOWS_THE_MAIN_TABLE:
        assert explained.stdout.strip(), explained.stderr
        assert not explained.stdout.startswith("captured"), f"{what}: explain says otherwise than the kernel: {explained.stdout}"
        assert asserted.returncode == 4, f"{what}: audit says otherwise than the kernel: {asserted.stdout}{asserted.stderr}"
    if what not in OF_THE_HOST:
        assert compared.returncode == 3, f"{what}: diff says otherwise than the kernel: {compared.stdout}{compared.stderr}"
    assert THIS_HOST in compared.stderr
    assert found.returncode == 3, f"{what}: verify ends with {found.returncode}: {found.stdout}{found.stderr}"
    assert any(all(word in line for word in case.named) for line in found.stdout.splitlines()), found.stdout


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


@pytest.mark.parametrize("what", HARMLESS)
@pytest.mark.parametrize("backend", [NFT, NATIVE])
def test_foreign_rules_that_take_nothing_away_are_no_difference(what, backend, require_netns):
    needs(backend)
    pod = programmed(backend)
    try:
        do(pod, HARMLESS[what], backend)
        truth = [connect(pod, direction) for direction in ("out", "in")]
        found, asserted = verify(pod, backend), [assert_all(pod, direction) for direction in ("out", "in")]
    finally:
        pod.__exit__(None, None, None)
    assert [one.returncode for one in asserted] == [0, 0], "".join(one.stdout + one.stderr for one in asserted)
    assert truth == [CAPTURED["out"], CAPTURED["in"]], f"{what} is another situation here"
    assert found.returncode == 0, f"{what}: {found.stdout}{found.stderr}"


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
