"""`netinit audit` and `netinit diff` in pods: what they say of live rules is what the kernel does with a connection."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from laboratory import Pod, start_servers
from netinit.lab import APP_ID
from netinit.options import Options
from programming import REDIRECT, TPROXY, VARIANTS, apply_in, needs, run_tool
from sweeps import fixtures_in_turn

pytestmark = pytest.mark.netns
OUTSIDE = "203.0.113.7"
BACKENDS = ("iptables-nft", "iptables-legacy", "libiptc", "nftables")
ASSERTED = "outbound tcp port 80 not by proxy not to pod is captured"


pytest_generate_tests = fixtures_in_turn(backend=BACKENDS, variant=VARIANTS)


@pytest.fixture
def backend(request) -> str:
    needs(request.param)
    return request.param


@pytest.fixture
def variant(request) -> str:
    needs(request.param)
    return request.param


def ask(pod: Pod, *words: str):
    done = run_tool(pod, *words, "--live", "--json")
    assert done.stdout.startswith("{"), done.stderr
    return done.returncode, json.loads(done.stdout)


def run_rules(pod: Pod, variant: str, words: str) -> None:
    pod.run([variant, "-w", *words.split()], check=True)


@pytest.mark.parametrize("argv", [REDIRECT, TPROXY, (*REDIRECT, "-x", ",".join(f"10.{n}.0.0/16" for n in range(150)))], ids=["redirect", "tproxy", "sets"])
def test_what_was_applied_is_proved_to_be_the_plan_on_every_backend(pod, backend, argv):
    apply_in(pod, Options.from_argv([*argv, "--backend", backend]))
    code, tree = ask(pod, "diff", *argv)
    (pair,) = tree["compared"]
    assert (code, pair["result"], pair["differences"]) == (0, "equal", [])
    assert pair["families"] == ["IPv4", "IPv6"]


def test_rules_whose_options_nobody_gives_are_compared_with_those_that_they_show(pod, backend):
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", backend]))
    code, tree = ask(pod, "diff")
    assert (code, tree["compared"][0]["result"]) == (0, "equal")


def test_a_moved_rule_that_changes_nothing_is_equal_for_diff_and_verify(pod, variant):
    argv = (*REDIRECT, "-d", "81,82")
    apply_in(pod, Options.from_argv([*argv, "--backend", variant]))
    run_rules(pod, variant, "-t nat -D ISTIO_INBOUND -p tcp --dport 82 -j RETURN")
    run_rules(pod, variant, "-t nat -I ISTIO_INBOUND 1 -p tcp --dport 82 -j RETURN")
    assert run_tool(pod, "verify", *argv).returncode == 0
    code, tree = ask(pod, "diff", *argv)
    assert (code, tree["compared"][0]["result"]) == (0, "equal")


@pytest.mark.parametrize("exact", [False, True], ids=["", "istio-exact"])
def test_a_harmful_rule_is_a_difference_with_an_example_that_the_kernel_confirms(pod, variant, exact):
    start_servers(pod)
    argv = (*REDIRECT, "--istio-exact") if exact else REDIRECT
    apply_in(pod, Options.from_argv([*argv, "--backend", variant]))
    run_rules(pod, variant, f"-t nat -I OUTPUT 1 -p tcp -d {OUTSIDE} --dport 80 -j ACCEPT")
    code, tree = ask(pod, "diff", *argv)
    assert code == 3
    (one,) = [one for one in tree["compared"][0]["differences"] if one["before"] == "captured, to port 15001"]
    assert one["who"] == [f"IPv4: TCP outbound to {OUTSIDE} on port 80, uid other than 1337, gid other than 1337"]
    arrival = pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID)
    if exact:
        assert one["after"] == "direct"
        assert "--dport 80 -j ACCEPT" in one["because_after"]
        assert arrival.server == "outside"
    else:  # by the rule for what nat has not redirected
        assert one["after"].startswith("refused: ")
        assert arrival.outcome == "refused"
    assert pod.connect(OUTSIDE, 443, uid=APP_ID, gid=APP_ID).server == "proxy"


def test_audit_alone_finds_a_foreign_rule_before_ours(pod, variant):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--istio-exact", "--backend", variant]))
    run_rules(pod, variant, "-t nat -I OUTPUT 1 -p tcp --dport 80 -m comment --comment theirs -j ACCEPT")
    code, tree = ask(pod, "audit", "--fail-on", "bypass:foreign")
    (found,) = tree["pods"]
    first = found["traffic"][0]
    assert code == 4
    assert (first["kind"], first["by"]) == ("foreign", "foreign")
    assert first["who"] == ["IPv4: TCP outbound on port 80"]
    assert "rule 1 of nat OUTPUT" in first["because"][0]
    assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "outside"


def test_an_assertion_holds_and_then_it_does_not_and_the_counterexample_is_real(pod, variant):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--istio-exact", "--backend", variant]))
    code, tree = ask(pod, "audit", "--assert", ASSERTED)
    assert (code, tree["pods"][0]["assertions"][0]["result"]) == (0, "proved")
    assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "proxy"
    run_rules(pod, variant, f"-t nat -I ISTIO_OUTPUT 1 -d {OUTSIDE} -j RETURN")
    code, tree = ask(pod, "audit", "--assert", ASSERTED, *REDIRECT, "--istio-exact")
    (ruling,) = tree["pods"][0]["assertions"]
    assert (code, ruling["result"]) == (4, "refuted")
    assert f"to {OUTSIDE}:80" in ruling["counterexample"]["packet"]
    assert any(f"-d {OUTSIDE}/32 -j RETURN" in step for step in ruling["counterexample"]["path"])
    assert any("--reconcile" in cure["change"] and cure["verdict"] == "captured" for cure in ruling["cures"])
    assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "outside"


def test_all_pods_of_a_node_are_audited_by_a_process_of_each(pod):
    needs("iptables-nft")
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "iptables-nft"]))
    start_servers(pod)
    done = run_tool(pod.client, "audit", "--all-pods", "--json")
    assert done.returncode == 0, done.stderr
    alone = ask(pod, "audit")[1]["pods"][0]["traffic"]
    named = {f"pid {pid} (" for pid in pod_processes(pod)}
    ours = [found["traffic"] for found in json.loads(done.stdout)["pods"] if found["name"].startswith(tuple(named))]  # other pods of the machine are there, too
    assert [[row["kind"] for row in traffic] for traffic in ours] == [[row["kind"] for row in alone]]
    assert {"tunnel-port", "proxy", "not-tcp", "local"} <= {row["kind"] for row in alone}


def pod_processes(pod: Pod) -> list[str]:
    """The processes of a pod, by their namespace."""
    own, found = Path(f"/proc/{pod.pid}/ns/net").stat().st_ino, []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if (path / "ns/net").stat().st_ino == own:
                found.append(path.name)
    return found
