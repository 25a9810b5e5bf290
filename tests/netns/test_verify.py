"""Verify on the kernel: every way in which a pod can drift is named as what it is, and the exit code is 3."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

from core import plan
from hostile import tool
from laboratory import Pod
from netinit.base.net import IPV4
from netinit.options import Options
from netinit.rules.iptables.write import render_restore, write_plan
from netinit.simulate.symbolic import chain_walk
from programming import (
    FOLDERS,
    SIDECAR,
    TOOL,
    VARIANTS,
    apply_in,
    differences_in,
    load,
    needs,
    remove_in,
    run_tool,
    state,
)
from sweeps import choose, in_turn

variants = in_turn("variant", VARIANTS)
OPTIONS = Options.from_argv([*SIDECAR, "-m", "TPROXY", "-c", "eth1", "--ipv6", "on"])

# What somebody does -> how each line of the report begins.
DRIFTS = {
    "a rule deleted": ("-t nat -D ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN", ["missing: IPv4 nat ISTIO_OUTPUT rule 8: -d 127.0.0.1/32 -j RETURN"]),
    "a rule added inside a chain": ("-t nat -I ISTIO_OUTPUT 3 -p tcp --dport 9 -j RETURN", ["extra: IPv4 nat ISTIO_OUTPUT rule 3: -p tcp -m tcp --dport 9 -j RETURN"]),
    "the jump removed": ("-t nat -D OUTPUT -j ISTIO_OUTPUT", ["missing: IPv4 nat OUTPUT rule 2: -j ISTIO_OUTPUT"]),
    "a foreign rule before ours": ("-t nat -I OUTPUT -p tcp --dport 9 -j ACCEPT", ["shadowing: IPv4 nat OUTPUT rule 1: -p tcp -m tcp --dport 9 -j ACCEPT"]),
    "a chain emptied": ("-t nat -F ISTIO_IN_REDIRECT", ["missing: IPv4 nat ISTIO_IN_REDIRECT rule 1: -p tcp -j REDIRECT --to-ports 15006"]),
}  # fmt: skip


# Foreign rules before ours, some of which programs add to every host: none treats a planned packet otherwise.
WITHOUT_EFFECT = {
    "an empty chain, as dockerd has it": "-t nat -N X; -t nat -I OUTPUT -m addrtype --dst-type LOCAL -j X",
    "a redirection of UDP": "-t nat -I OUTPUT -p udp --dport 514 -j REDIRECT --to-ports 10514",
    "ACCEPT of an excluded port": "-t nat -I PREROUTING -p tcp --dport 15021 -j ACCEPT",
    "RETURN of the proxy's user": "-t nat -I OUTPUT -m owner --uid-owner 1337 -o eth+ ! -d 127.0.0.0/8 -p udp -j RETURN",
    "a chain for forwarded packets": "-N DOCKER-USER; -I FORWARD -j DOCKER-USER",
    "a chain that only marks": "-t mangle -N M; -t mangle -A M -j MARK --set-xmark 0x40000/0xff0000; -t mangle -I PREROUTING -j M",
}  # fmt: skip


@pytest.fixture(scope="module", params=VARIANTS)
def programmed(request):
    """A pod with the rules of OPTIONS in one variant, for tests that put back what they change."""
    from conftest import insist_on_namespaces

    insist_on_namespaces(request.config)
    needs(request.param)
    with Pod() as pod:
        apply_in(pod, OPTIONS.replace(backend=request.param))
        yield pod, request.param


@pytest.mark.parametrize("what", DRIFTS)
def test_drift_is_named(programmed, what):
    pod, variant = programmed
    command, wanted = DRIFTS[what]
    assert differences_in(pod, OPTIONS) == []
    try:
        pod.run([variant, "-w", *command.split()], check=True)
        found = differences_in(pod, OPTIONS)
        assert len(found) == len(wanted), found
        for line, beginning in zip(found, wanted, strict=True):
            assert line.startswith(beginning)
    finally:
        remove_in(pod, OPTIONS)
        pod.run([variant, "-w", "-t", "nat", "-F", "OUTPUT"], check=True)
        apply_in(pod, OPTIONS.replace(backend=variant))


@variants
def test_a_foreign_rule_before_ours_that_treats_no_planned_packet_otherwise_is_not_mentioned(variant):
    needs(variant)
    options = Options.from_argv([*SIDECAR, "-d", "15021", "-k", "docker0", "--ipv6", "off", "--backend", variant])
    for what, commands in WITHOUT_EFFECT.items():
        with Pod() as pod:
            for command in commands.split("; "):
                pod.run([variant, "-w", *command.split()], check=True)
            outcome = apply_in(pod, options.replace(require_capture=True))
            assert outcome.warnings == (), what
            assert differences_in(pod, options) == [], what


UNMET = "-N DOCKER-USER; -I FORWARD -j DOCKER-USER; -A DOCKER-USER -p tcp --dport 9 -j DROP"
MET = "-t nat -A OUTPUT -p udp --dport 514 -j REDIRECT --to-ports 10514"


def loads_the_engine(pod, options, variant):
    """Whether a `verify` that finds the rules as planned imports the symbolic engine."""
    code = "import sys; from netinit.cli.start import main; sys.argv[0] = 'netinit'; main()"
    done = pod.run([sys.executable, "-X", "importtime", "-c", code, "verify", *options, "--backend", variant])
    assert done.returncode == 0, done.stderr
    return "netinit.simulate.symbolic" in done.stderr


@variants
def test_the_symbolic_engine_is_loaded_only_where_planned_packets_meet_a_foreign_rule(variant):
    needs(variant)
    options = (*SIDECAR, "--ipv6", "off")
    with Pod() as pod:
        apply_in(pod, Options.from_argv([*options, "--backend", variant]))
        assert not loads_the_engine(pod, options, variant)
        assert not loads_the_engine(pod, (), variant), "nor where the options are read back"
        for command in UNMET.split("; "):
            pod.run([variant, "-w", *command.split()], check=True)
        assert not loads_the_engine(pod, options, variant)
        pod.run([variant, "-w", *MET.split()], check=True)
        assert loads_the_engine(pod, options, variant)


def test_a_moved_rule_is_named_with_its_place(programmed):
    pod, variant = programmed
    pod.run([variant, "-w", "-t", "nat", "-D", "ISTIO_OUTPUT", "-j", "ISTIO_REDIRECT"], check=True)
    pod.run([variant, "-w", "-t", "nat", "-I", "ISTIO_OUTPUT", "-j", "ISTIO_REDIRECT"], check=True)

    found = differences_in(pod, OPTIONS)

    assert found[0].startswith("moved: IPv4 nat ISTIO_OUTPUT rule 1: -j ISTIO_REDIRECT"), found
    apply_in(pod, OPTIONS.replace(backend=variant, reconcile=True))
    assert differences_in(pod, OPTIONS) == []


def test_a_missing_policy_rule_or_route_or_address_is_named(programmed):
    pod, variant = programmed
    for command, wanted in (
        ("ip rule del fwmark 1337 lookup 133", "missing: IPv4 routing: -4 rule fwmark 0x539 lookup 133"),
        ("ip -6 route flush table 133", "missing: IPv6 routing: -6 route local default dev lo table 133"),
        ("ip -6 addr del ::6/128 dev lo", "missing: IPv6 routing: address ::6/128 dev lo"),
    ):
        if pod.run(["sh", "-c", "command -v ip"]).returncode:
            pytest.skip("ip is not installed: apt-get install iproute2")
        pod.run(command.split(), check=True)
        found = differences_in(pod, OPTIONS)
        assert [line.startswith(wanted) for line in found] == [True], found
        assert apply_in(pod, OPTIONS.replace(backend=variant)).changed
        assert differences_in(pod, OPTIONS) == []


@variants
def test_leftovers_in_the_other_variant_are_named(pod, variant):
    other = next(name for name in VARIANTS if name != variant)
    for name in VARIANTS:
        needs(name)
    apply_in(pod, OPTIONS.replace(backend=variant))
    load(pod, other, IPV4, render_restore(write_plan(plan(OPTIONS), IPV4)))

    found = differences_in(pod, OPTIONS.replace(backend=variant))

    assert [line.partition(": rules")[0] for line in found] == [f"leftover: {other}"]


def test_an_operator_verifies_from_outside_by_pid(pod):
    needs("iptables-nft")
    arguments = [*SIDECAR, "--pid", str(pod.pid)]
    assert outside("apply", *arguments).returncode == 0
    listing = subprocess.run(
        ["nsenter", "-t", str(pod.pid), "-n", "iptables-nft-save", "-t", "nat"], capture_output=True, text=True, check=True
    ).stdout
    assert "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001\n" in listing
    assert outside("verify", *arguments).returncode == 0

    pod.run(["iptables-nft", "-t", "nat", "-F", "ISTIO_REDIRECT"], check=True)
    drift = outside("verify", *arguments)

    assert drift.returncode == 3, drift.stderr
    assert "missing: IPv4 nat ISTIO_REDIRECT rule 1: -p tcp -j REDIRECT --to-ports 15001" in drift.stdout + drift.stderr
    assert outside("verify", "--netns", pod.path, *SIDECAR).returncode == 3
    gone = outside("verify", *SIDECAR, "--pid", "4194304")
    assert gone.returncode == 1
    assert "/proc/4194304/ns/net: No such file or directory" in gone.stderr
    assert "Traceback" not in gone.stderr


def outside(*arguments):
    """The tool run in the machine's own namespace."""
    return tool(*arguments)


def run_outside(prefix, *arguments):
    """The same, started in full, by a prefix: whoever joins a pod's users reads files as one of them from there on."""
    return subprocess.run([*prefix, *TOOL, *arguments], env={"PATH": FOLDERS}, capture_output=True, text=True, check=False)


@variants
@pytest.mark.users
def test_a_pod_with_users_of_its_own_is_programmed_and_verified_from_outside(readable, variant):
    needs(variant)
    outside = functools.partial(run_outside, readable)
    with Pod(user_namespace=True) as pod:
        before = state(pod)
        arguments = [*SIDECAR, "--pid", str(pod.pid)]
        applied = outside("apply", *arguments, "--backend", variant)
        assert applied.returncode == 0, applied.stderr
        verified = outside("verify", *arguments)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        again = outside("apply", *arguments, "--backend", variant)
        assert "nothing to do" in again.stderr, again.stderr
        listing = entered_by_nsenter(pod, f"{variant}-save", "-t", "nat")
        assert "--uid-owner 1337 " in listing, "1337 of the pod, not of the node"

        pod_rules = ["nsenter", "-t", str(pod.pid), "-U", "-n", variant, "-w", "-t", "nat", "-D", "OUTPUT", "-j", "ISTIO_OUTPUT"]
        subprocess.run(pod_rules, check=True, env={"PATH": FOLDERS, "XTABLES_LOCKFILE": "/dev/null"})
        assert outside("verify", *arguments).returncode == 3
        assert outside("remove", "--pid", str(pod.pid)).returncode == 0
        assert state(pod) == before


@pytest.mark.parametrize("backend", choose(["iptables-legacy", "nftables"], ["iptables-nft", "iptables-legacy", "nftables", "libiptc"]))
@pytest.mark.users
def test_every_backend_programs_a_pod_with_users_of_its_own(backend):
    needs(backend)
    with Pod(user_namespace=True) as pod:
        before = state(pod)
        arguments = [*SIDECAR, "--pid", str(pod.pid), "--backend", backend]
        for command, said in (("apply", f"programmed by {backend}"), ("verify", f"({backend})"), ("apply", "nothing to do"), ("remove", "removed")):
            done = run_outside((), command, *arguments)
            assert done.returncode == 0, done.stdout + done.stderr
            assert said in done.stdout + done.stderr
        assert state(pod) == before


@variants
@pytest.mark.users
def test_the_init_container_of_such_a_pod_works_as_in_any_other(readable, variant):
    needs(variant)
    with Pod(user_namespace=True) as pod:
        before = state(pod)
        inside = [*readable, "nsenter", "-t", str(pod.pid), "-U", "-n", *TOOL]
        for said in ("programmed by", "nothing to do"):
            done = subprocess.run(
                [*inside, *SIDECAR, "--backend", variant], env={"PATH": FOLDERS}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert said in done.stderr
        assert entered_by_nsenter(pod, f"{variant}-save", "-t", "nat").count("-j ISTIO_OUTPUT\n") == 1

        subprocess.run([*inside, "--cleanup-only"], env={"PATH": FOLDERS}, check=True, capture_output=True)
        assert state(pod) == before


def entered_by_nsenter(pod, *argv):
    return subprocess.run(
        ["nsenter", "-t", str(pod.pid), "-U", "-n", *argv], capture_output=True, text=True, check=True, env={"PATH": FOLDERS}
    ).stdout


def test_a_clean_pod_exits_0_and_an_empty_one_3(pod):
    needs("iptables-nft")
    empty = run_tool(pod, "verify", *SIDECAR)
    assert empty.returncode == 3
    assert "no rules of netinit here: all" in empty.stdout

    assert run_tool(pod, "apply", *SIDECAR).returncode == 0
    assert run_tool(pod, "verify", *SIDECAR).returncode == 0


def test_a_proof_that_takes_too_much_work_is_a_difference_with_the_rule(pod, monkeypatch):
    """A hostile pod may add rules that divide packets into ever more groups: nothing says then that all is as planned."""
    needs("iptables-nft")
    options = Options.from_argv([*SIDECAR, "--ipv6", "off", "--backend", "iptables-nft"])
    apply_in(pod, options)
    for at in range(10):
        mark = f"{1 << at + 4:#x}/{1 << at + 4:#x}"
        pod.run(["iptables-nft", "-w", "-t", "mangle", "-A", "OUTPUT", "-d", f"10.{at}.0.0/16", "-j", "MARK", "--set-xmark", mark], check=True)
    pod.run(["iptables-nft", "-w", "-t", "mangle", "-A", "OUTPUT", "-m", "mark", "--mark", "0x550/0xffff0", "-j", "DROP"], check=True)
    monkeypatch.setattr(chain_walk, "MAX_WORK", 6_000)
    (found,) = differences_in(pod, options)
    assert found.startswith("escaping: kernel: foreign rules  (whether foreign rules divert captured traffic is not known: ")
    assert "most of all because of rule " in found
    assert "mangle OUTPUT, `" in found
