"""`netinit.explain`, `audit`, `diff`, `verify` of a live pod: what the commands print, read by a child that enters the pod."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import netinit
from netinit.base.errors import NamespaceError
from netinit.cli import start
from netinit.kernel import children
from netinit.options import Options
from programming import apply_in
from public_calls import compare

OPTIONS = Options(inbound_ports="*", outbound_cidrs="*", exclude_inbound_ports="15021", backend="iptables-nft")
GIVEN = ("-b", "*", "-i", "*", "-d", "15021")
QUESTION = ("--to", "203.0.113.7:443", "--uid", "1000")
ASKED = {"to": "203.0.113.7:443", "uid": 1000}

INIT = {"name": "istio-init", "args": ["istio-iptables", *GIVEN], "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
MAY_CHANGE_RULES = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
    "spec": {"initContainers": [INIT], "containers": [{"name": "app", "securityContext": {"privileged": True}}]},
}  # fmt: skip


@pytest.fixture
def run(capsys):
    def run_line(argv):
        capsys.readouterr()
        code = start.run(argv, {})
        return SimpleNamespace(code=code, **dict(zip(("out", "err"), capsys.readouterr(), strict=True)))

    return run_line


def test_each_call_of_a_live_pod_answers_as_its_command(pod, run, tmp_path):
    rules = OPTIONS.replace(backend="auto")
    assert netinit.verify(pid=pod.pid).to_object()["ok"] is False
    compare(run, ["verify", "--pid", str(pod.pid)], pid=pod.pid)
    apply_in(pod, OPTIONS)
    place, path = ["--pid", str(pod.pid)], f"/proc/{pod.pid}/ns/net"
    found = compare(run, ["explain", *place, *QUESTION], pid=pod.pid, **ASKED)
    assert (found.verdict, found.answers[0].source) == ("captured", "iptables-nft")
    compare(run, ["explain", "--netns", path, *GIVEN, *QUESTION], (rules,), netns=path, **ASKED)
    compare(run, ["audit", *place], pid=pod.pid)
    equal = compare(run, ["diff", *place], pid=pod.pid)
    assert equal.equal
    compare(run, ["diff", "netinit apply -b 80", "live", *place], (Options(inbound_ports="80"), "live"), pid=pod.pid)
    different = compare(run, ["diff", "-b", "80", "-i", "*", *place], (Options(inbound_ports="80", outbound_cidrs="*"),), pid=pod.pid)
    assert not different.equal
    right = compare(run, ["verify", *GIVEN, *place], (rules,), pid=pod.pid)
    assert (right.ok, right.differences, right.backend) == (True, (), "iptables-nft")
    compare(run, ["verify", *place, "--connections", "--strict"], pid=pod.pid, connections=True, strict=True)
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(json.dumps(MAY_CHANGE_RULES))
    known = compare(run, ["verify", "--pod", str(manifest), *place], pod=manifest, pid=pod.pid)
    assert known.warnings[-1] == 'this holds unless container "app" changes the rules: it is privileged'
    compare(run, ["explain", "--pod", str(manifest), *place, *QUESTION], pod=MAY_CHANGE_RULES, pid=pod.pid, **ASKED)
    pod.run(["iptables-nft", "-w", "-t", "nat", "-D", "ISTIO_OUTPUT", "-j", "ISTIO_REDIRECT"], check=True)
    wrong = compare(run, ["verify", *GIVEN, *place], (rules,), pid=pod.pid)
    assert not wrong.ok
    assert {one.kind for one in wrong.differences} >= {"missing"}


def test_this_namespace_is_asked_where_it_is_meant(pod, run):
    apply_in(pod, OPTIONS)
    with pod.entered():
        compare(run, ["explain", "--live", *QUESTION], live=True, **ASKED)
        compare(run, ["audit", "--live"], live=True)
        compare(run, ["diff", "--live"], live=True)
        assert netinit.verify(OPTIONS).differences == ()


def test_a_pod_is_entered_by_a_child_and_never_by_this_process(pod, monkeypatch):
    apply_in(pod, OPTIONS)
    before, started = Path("/proc/self/ns/net").readlink(), []
    monkeypatch.setattr(children, "start", lambda *given, _start=children.start, **more: started.append(more["seconds"]) or _start(*given, **more))
    assert netinit.explain(pid=pod.pid, **ASKED).verdict == "captured"
    assert Path("/proc/self/ns/net").readlink() == before
    assert started
    assert all(0 < seconds < 600 for seconds in started), "each has a deadline"


@pytest.mark.parametrize("call", ["explain", "audit", "diff", "verify"])
def test_a_namespace_that_is_gone_is_an_error(call):
    with pytest.raises(NamespaceError, match="/no/such/netns"):
        getattr(netinit, call)(netns="/no/such/netns", **(ASKED if call == "explain" else {}))
