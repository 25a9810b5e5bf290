"""A look at a pod with the judgement of an earlier one finds what a look without it finds: whatever has changed is judged anew."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bpf import attach_xdp, attached, cgroup, rewrite_port
from in_force_cases import CAPTURED, DROPS, ESCAPES, HARMLESS, LEGACY, NATIVE, NFT, OPTIONS, connect, do, programmed
from live_commands import look
from netinit.kernel import children, detect
from netinit.kernel.snapshot import nf_tables_dump
from netinit.node import programmer
from netinit.node.jobs import LOOK_AGAIN, VERIFY, Job, JobResult
from netinit.options import Options
from netinit.pods import child_jobs
from netinit.pods.verify import verify
from netinit.questions.plan_comparison import Report
from netinit.rules.model import EMPTY_PLAN
from programming import needs
from sweeps import choose

TABLE = (
    "nft add table inet x; nft add chain inet x o '{ type filter hook output priority raw; }'; nft add set inet x s '{ type ipv4_addr; }';"
    " nft add rule inet x o ip daddr @s drop"
)
CHANGES = {  # each on what the one before has left, and each of another kind
    "a foreign table": TABLE,
    "an element of a set": "nft add element inet x s { 203.0.113.9 }",
    "a rule's order": "nft insert rule inet x o udp dport 9 drop",
    "a rule of ours": "nft insert rule ip nat ISTIO_OUTPUT tcp dport 81 return",
    "a rule's handle": "H=$(nft -a list chain ip nat ISTIO_OUTPUT | sed -n 's/.*dport 81 .*handle //p'); nft replace rule ip nat ISTIO_OUTPUT handle $H tcp dport 82 return",
    "a chain's policy": "nft add chain ip filter OUTPUT '{ type filter hook output priority 0; policy drop; }' || (nft add table ip filter; nft add chain ip filter OUTPUT '{ type filter hook output priority 0; policy drop; }')",
    "a table's flags": "nft 'add table ip nat { flags dormant; }'",
    "a named object": "nft add counter inet x c",
    "a route": "ip route add 203.0.113.0/24 dev lo table 77",
    "a policy rule": "ip rule add to 203.0.113.0/24 lookup 77",
    "an address": "ip address add 10.99.0.1/32 dev lo",
    "a device": "ip link add d0 type veth peer name d9",
    "a device's name": "ip link set d0 name d1",
    "a device's flags": "ip link set d1 up",
    "tc": "tc qdisc add dev d1 clsact",
    "a sysctl": "sysctl -qw net.ipv4.conf.all.route_localnet=1",
    "an IPsec policy": "ip xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 dir out tmpl src 10.0.0.1 dst 10.0.0.2 proto esp mode tunnel",
    "a table of the older interface": "iptables-legacy -w -t nat -A OUTPUT -p tcp --dport 81 -j ACCEPT",
    "an entry of it": "iptables-legacy -w -t nat -R OUTPUT 1 -p tcp --dport 82 -j ACCEPT",
}  # fmt: skip
BESIDE = {what: command for what, command in CHANGES.items() if command.startswith(("ip ", "tc ", "sysctl ", "iptables-legacy "))}
WITHOUT_COMMITS = {  # what packets, time or the end of a process change, and no commit
    "a set that packets fill": "nft add set ip nat s '{ type ipv4_addr; flags dynamic; }'",
    "a set whose elements end": "nft add set ip nat s '{ type ipv4_addr; flags timeout; }'",
    "a set that is not constant": "nft add set ip nat s '{ type ipv4_addr; }'",
    "a quota": "nft add quota ip nat q '{ over 1 mbytes; }'",
}  # fmt: skip
SITUATIONS = [(what, case.commands, case.backends[0], case.options) for what, case in {**ESCAPES, **DROPS}.items()]
SITUATIONS += [(what, commands, NFT, ()) for what, commands in HARMLESS.items()]


def options_of(backend, more=()):
    return Options.from_argv((*OPTIONS, *more, "--backend", backend), {})


def same(one, other):
    return replace(one, judgement="") == replace(other, judgement="")


def test_every_kind_of_change_is_judged_anew(require_netns):
    needs(NFT)
    pod = programmed(NFT)
    try:
        last = look(pod, options_of(NFT))
        assert (last.error, last.differences, bool(last.judgement)) == ("", (), True)
        for what, command in CHANGES.items():
            pod.run(["sh", "-ec", command], check=True)
            found, anew = look(pod, options_of(NFT), last.judgement), look(pod, options_of(NFT))
            assert found.judgement != last.judgement, f"{what} goes unnoticed"
            assert found == anew, what
            last = found
        pod.call(attach_xdp, "d1")
        assert look(pod, options_of(NFT), last.judgement).judgement != last.judgement
    finally:
        pod.__exit__(None, None, None)


@pytest.fixture
def without_rules(monkeypatch):
    """Reading nf_tables fails."""
    def fail(*_, **__):
        raise PermissionError(1, "the rules are read")

    return lambda: monkeypatch.setattr(nf_tables_dump, "read", fail)


def test_what_no_commit_changes_is_read_though_the_rules_are_not(require_netns):
    needs(NFT)
    pod = programmed(NFT)
    try:
        last = look(pod, options_of(NFT))
        assert len(BESIDE) > 8
        for what, command in BESIDE.items():
            assert '"generation":' in last.judgement, what
            pod.run(["sh", "-ec", command], check=True)
            found, anew = look(pod, options_of(NFT), last.judgement), look(pod, options_of(NFT))
            assert found.judgement != last.judgement, f"{what} goes unnoticed"
            assert found == anew, what
            last = found
    finally:
        pod.__exit__(None, None, None)


@pytest.mark.parametrize("backend", [NFT, NATIVE])
def test_rules_are_not_read_again_until_a_commit_or_in_another_pod(backend, require_netns, without_rules):
    needs(backend)
    pod, other = programmed(backend), programmed(backend)
    try:
        first = look(pod, options_of(backend))
        assert (first.error, first.differences) == ("", ())
        connect(pod, "out")
        without_rules()
        assert look(pod, options_of(backend), first.judgement) == first
        for changed in (look(pod, options_of(backend)), look(other, options_of(backend), first.judgement), look(pod, options_of(backend, ("-d", "9")), first.judgement)):
            assert "the rules are read" in changed.error
        pod.run(["nft", "add table inet x"], check=True)
        assert "the rules are read" in look(pod, options_of(backend), first.judgement).error
    finally:
        pod.__exit__(None, None, None)
        other.__exit__(None, None, None)


def test_what_is_reported_again_has_its_doubts(require_netns):
    needs(NFT)
    pod = programmed(NFT)
    try:
        for command in next(iter(DROPS.values())).commands:
            pod.run(["sh", "-ec", command], check=True)
        with pod.entered():
            first = verify(options_of(NFT))
            again = verify(options_of(NFT), known=first.judgement)
        assert (again.plan, bool(first.plan.tables)) == (EMPTY_PLAN, True), "so that it is the report of the first look"
        assert first.doubts
        assert (again.doubts, again.warnings, again.differences) == (first.doubts, first.warnings, first.differences)
    finally:
        pod.__exit__(None, None, None)


@pytest.mark.parametrize("command", WITHOUT_COMMITS.values(), ids=WITHOUT_COMMITS)
def test_rules_are_read_each_time_where_something_changes_them_without_a_commit(command, require_netns, without_rules):
    needs(NFT)
    pod = programmed(NFT)
    try:
        pod.run(["sh", "-ec", command], check=True)
        first = look(pod, options_of(NFT))
        assert bool(first.judgement)
        without_rules()
        assert "the rules are read" in look(pod, options_of(NFT), first.judgement).error
    finally:
        pod.__exit__(None, None, None)


def test_rules_are_read_each_time_where_a_table_ends_with_its_owner(require_netns):
    needs(NFT)
    pod = programmed(NFT)
    try:
        with pod.popen(["nft", "-i"], stdin=subprocess.PIPE) as owner:
            owner.stdin.write("add table inet owned { flags owner; }\nadd chain inet owned o { type filter hook output priority raw; }\nadd rule inet owned o tcp dport 9 drop\nlist tables\n")
            owner.stdin.flush()
            while "owned" not in owner.stdout.readline():
                pass
            first = look(pod, options_of(NFT))
            assert '"generation":' not in first.judgement
            owner.kill()
            owner.wait()
        assert look(pod, options_of(NFT), first.judgement).judgement != first.judgement
    finally:
        pod.__exit__(None, None, None)


def look_again(pods, folder, judgements):
    """What one child finds that looks at all pods with these judgements, as the agent's does for a sweep."""
    checks = [Job.of(VERIFY, options_of(NFT), seconds=20.0, path=f"/proc/{pod.pid}/ns/net", cgroup_folder=str(folder.parent), cgroup=f"/{folder.name}") for pod in pods]
    job = Job(kind=LOOK_AGAIN, environ={}, seconds=20.0, pods=tuple(checks))
    return JobResult.check(children.ask(lambda: programmer._look_again(job, judgements), seconds=60, what="a look at all")).pods


def look_from(pod, folder, known=""):
    """What a child of its own finds, of which the pod's cgroup is known too."""
    job = Job.of(VERIFY, options_of(NFT), seconds=20.0, path=f"/proc/{pod.pid}/ns/net", cgroup_folder=str(folder.parent), cgroup=f"/{folder.name}")
    return JobResult.check(children.ask(lambda: programmer._work(job, -1, known), seconds=60, what="a look"))


def test_one_child_that_looks_at_several_pods_finds_each_kind_of_change_in_its_pod_alone(require_netns):
    needs(NFT)
    with contextlib.ExitStack() as stack:
        pods = [programmed(NFT) for _ in range(3)]
        for pod in pods:
            stack.callback(pod.__exit__, None, None, None)
        folder = stack.enter_context(cgroup(f"netinit-judgement-{os.getpid()}"))
        told = [look_from(pod, folder) for pod in pods]
        commits = {what: CHANGES[what] for what in ("a rule of ours", "a rule's handle", "a table's flags")}
        for what, command in {"nothing": "true", **commits, **BESIDE}.items():
            pods[1].run(["sh", "-ec", command], check=True)
            before, anew = told[1], look_from(pods[1], folder)
            found = look_again(pods, folder, [one.judgement for one in told])
            unchanged = replace(before, judgement="") if command == "true" else None
            assert found == (replace(told[0], judgement=""), unchanged, replace(told[2], judgement="")), what
            told[1] = anew
            assert '"generation":' in anew.judgement, f"{what}: from here on it takes a look at the rules"
        with attached(folder, "connect4", rewrite_port(80, 443)):
            assert look_again(pods, folder, [one.judgement for one in told]) == (None, None, None)


def test_one_child_for_several_pods_may_enter_no_other_while_it_reads_one(require_netns, monkeypatch):
    """SYS_ADMIN is not among the capabilities that are effective, and all others but NET_ADMIN and NET_RAW are gone."""
    needs(NFT)
    pod = programmed(NFT)
    try:
        with cgroup(f"netinit-judgement-{os.getpid()}") as folder:
            first = look_from(pod, folder)

            def tell(*_):
                held = [detect.read_capabilities(which) for which in ("CapEff", "CapPrm")]
                return Report(backend=str(held), plan=EMPTY_PLAN, differences=())

            monkeypatch.setattr(child_jobs.verification, "look_again", tell)
            (found,) = look_again([pod], folder, [first.judgement])
    finally:
        pod.__exit__(None, None, None)
    both = 1 << detect.CAP_NET_ADMIN | 1 << detect.CAP_NET_RAW
    assert found.backend == str([both, both | 1 << detect.CAP_SYS_ADMIN])


def test_a_pod_of_another_user_or_that_is_gone_gets_a_child_of_its_own(require_netns):
    needs(NFT)
    pod = programmed(NFT)
    try:
        with cgroup(f"netinit-judgement-{os.getpid()}") as folder, subprocess.Popen(["unshare", "-Urn", "sh", "-c", "echo in; exec sleep 600"], stdout=subprocess.PIPE) as foreign:
            try:
                assert foreign.stdout.readline() == b"in\n"
                first = look_from(pod, folder)
                gone = SimpleNamespace(pid=2**22)
                found = look_again([foreign, pod, gone, pod], folder, [first.judgement, first.judgement, first.judgement, ""])
                assert found == (None, replace(first, judgement=""), None, None)
            finally:
                foreign.kill()
    finally:
        pod.__exit__(None, None, None)


def test_a_program_of_a_cgroup_is_judged_anew(require_netns):
    needs(NFT)
    pod = programmed(NFT)
    try:
        with cgroup(f"netinit-judgement-{os.getpid()}/c1") as folder, pod.popen(["sh", "-c", f"echo $$ > {folder}/cgroup.procs; echo in; exec sleep 600"]) as process:
            try:
                assert process.stdout.readline() == "in\n"
                first = look(pod, options_of(NFT))
                assert look(pod, options_of(NFT), first.judgement).judgement == first.judgement
                with attached(folder, "connect4", rewrite_port(80, 443)):
                    found = look(pod, options_of(NFT), first.judgement)
                assert "BPF" in str(found.differences), found
            finally:
                process.kill()
    finally:
        pod.__exit__(None, None, None)


@pytest.mark.parametrize("backend", [NFT, LEGACY, NATIVE])
def test_packets_alone_change_no_judgement(backend, require_netns):
    needs(backend)
    pod = programmed(backend)
    try:
        first = look(pod, options_of(backend))
        assert [connect(pod, direction) for direction in ("out", "in")] == [CAPTURED["out"], CAPTURED["in"]]
        assert look(pod, options_of(backend)).judgement == first.judgement
        forged = first.judgement.replace('"warnings":[]', '"warnings":["from memory"]')
        assert "from memory" in look(pod, options_of(backend), forged).warnings, "the judgement is made anew though nothing has changed"
    finally:
        pod.__exit__(None, None, None)


@pytest.mark.parametrize(("what", "commands", "backend", "options"), choose(SITUATIONS[::8], SITUATIONS), ids=lambda one: one if isinstance(one, str) else "")
def test_a_look_with_a_judgement_finds_what_a_look_without_finds(what, commands, backend, options, require_netns):
    needs(backend)
    pod = programmed(backend, options)
    try:
        wanted = options_of(backend, options)
        before = look(pod, wanted)
        do(pod, commands, backend)
        found, anew = look(pod, wanted, before.judgement), look(pod, wanted)
        assert same(found, anew), what
        assert found.judgement != before.judgement
        again = look(pod, wanted, found.judgement)
        assert same(again, anew), what
    finally:
        pod.__exit__(None, None, None)
