"""Pods that the programs of other meshes have programmed: what netinit says of them is what their connections do.

PEER_ASSETS is a folder with `kumactl`, `linkerd2-proxy-init` and `consul`, any of them; releases may lie there side by side
under names that begin so (`consul-1.22`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import struct
from ipaddress import ip_address
from pathlib import Path
from socket import SO_LINGER, SO_REUSEADDR, SOL_SOCKET

import pytest

import peers
from audit_rows import CAPTURED, find_row
from conversations import make_socket, track
from laboratory import Pod
from netinit.library.rule_reading import LIVE, find_rule_source
from netinit.options import Options
from netinit.questions.answers import answer_question
from netinit.questions.connections import Question, make_packets
from peer_probes import ALL_OUTSIDE, POD, asked, fates, start
from programming import run_tool

COMMANDS = {
    "kumactl": ("kuma", ("install", "transparent-proxy")),
    "linkerd2-proxy-init": ("linkerd", ()),
    "consul": ("consul", ("connect", "redirect-traffic")),
}  # fmt: skip
FOLDER = os.environ.get("PEER_ASSETS", "")
PROGRAMS = [path for path in sorted(Path(FOLDER).glob("*")) if path.name.startswith(tuple(COMMANDS))] if FOLDER else []
pytestmark = pytest.mark.skipif(not PROGRAMS, reason=f"PEER_ASSETS names no folder with {', '.join(COMMANDS)}")
MORE = {"consul": ["-proxy-uid 123 -proxy-inbound-port 20000 -consul-dns-port 8600"]}  # which convert has no equivalent for
CASES = [
    pytest.param(path, args, id=f"{path.name} {name}")
    for path in PROGRAMS
    for peer in [next(peer for name, (peer, _) in COMMANDS.items() if path.name.startswith(name))]
    for name, args in [*((case.name, case.args) for case in peers.load_rules() if case.peer == peer), *(("dns", args) for args in MORE.get(peer, ()))]
]
# The pod's own address is in fd00::/8, which Kuma excludes there.
IN_A_POD = {"kuma-exclusions": (r"UDP within the pod to .* on port 53 from ::6 ", "TCP within the pod to fd77::2 .*, uid 5678$")}
# Kuma wants its user in /etc/passwd.
PROGRAM = """#!/bin/sh
exec unshare --mount sh -c 'mount --bind "$0" /etc/passwd && exec "$@"' {passwd} {program} "$@"
"""
PORT = 80
CLIENT = {4: "10.77.0.1", 6: "fd77::1"}
LINGER_RESET = struct.pack("ii", 1, 0)


def peer_of(path):
    return next(found for name, found in COMMANDS.items() if path.name.startswith(name))


@pytest.fixture
def program(request, tmp_path):
    """The program under test, on a machine that has the user it names."""
    passwd, made = tmp_path / "passwd", tmp_path / "program"
    passwd.write_text(Path("/etc/passwd").read_text() + "kuma-dp:x:5678:5678::/:/bin/sh\n")
    made.write_text(PROGRAM.format(passwd=passwd, program=request.getfixturevalue("path")))
    made.chmod(0o755)
    return made


def run_program(pod, program, path, args):
    _, words = peer_of(path)
    pod.run([str(program), *words, *shlex.split(args)], check=True)


@pytest.mark.parametrize(("path", "args"), CASES)
def test_explain_and_audit_say_of_each_connection_what_becomes_of_it(path, args, program):
    options = peers.convert_line(peer_of(path)[0], args).options
    wanted = asked(options, (4, 6))
    with Pod(outside=ALL_OUTSIDE) as pod:
        start(pod, options, (4, 6))
        run_program(pod, program, path, args)
        rule_source = find_rule_source(Options(pid=pod.pid), LIVE)
        audited = json.loads(run_tool(pod, "audit", "--live", "--full", "--json").stdout)["pods"][0]
        told = {one.name: (explained(rule_source, one), sorted_by(audited["traffic"], one)) for one in wanted}
        happened = fates_of(pod, wanted)
        happened |= fates_of(pod, [one for one in wanted if told[one.name] != (happened[one.name],) * 2])  # late answers
    assert set(happened.values()) > {"direct"}
    assert told == {name: (fate, fate) for name, fate in happened.items()}
    assert {row["kind"] for row in audited["traffic"]}.isdisjoint({"foreign", "unknown"})


def fates_of(pod, wanted):
    """Whether each connection ends at the proxy, and at which port."""
    return {name: fate if fate.startswith("proxy ") else "direct" for name, fate in fates(pod, wanted).items()}


def explained(rule_source, one):
    """What explain answers to a connection, as its fate."""
    probe = one.probe
    inbound = {"direction": "inbound", "source": CLIENT[ip_address(probe.host).version], "uid": "", "gid": ""}
    outbound = {"direction": "outbound", "source": "", "uid": str(probe.uid), "gid": str(probe.gid)}
    about = inbound if one.inbound else outbound
    question = Question(to=probe.host, to_port=str(probe.port), udp=probe.udp, interface="", mark=0, **about)
    ((_, packet),) = make_packets(question, rule_source)
    answer = answer_question(rule_source.rules, packet).answer
    return f"proxy {answer.trace.redirect_port}" if answer.verdict == "captured" else answer.verdict


def sorted_by(traffic, one):
    """The fate of a connection by the one line of the audit that its first packet is in."""
    probe = one.probe
    version = ip_address(probe.host).version
    own = ip_address(probe.host).is_loopback or probe.host in POD.values()
    row = find_row(
        traffic, "inbound" if one.inbound else "outbound", protocol="udp" if probe.udp else "tcp", destination=probe.host, port=probe.port,
        source=CLIENT[version] if one.inbound else probe.host if own else POD[version], interface="lo" if own and not one.inbound else "eth0",
        uid=probe.uid, gid=probe.gid,
    )  # fmt: skip
    return f"proxy {row['port']}" if row["kind"] in CAPTURED else "direct"


@pytest.mark.parametrize(("path", "args"), CASES)
def test_convert_runs_the_program_and_names_every_difference_that_is_known(path, args, program, require_netns):
    peer, _ = peer_of(path)
    case = next((case for case in peers.load_rules() if case.args == args), None)
    if case is None:
        pytest.skip("convert says that it has no equivalent for these options")
    with Pod() as pod:
        done = run_tool(pod, "convert", "--from", peer, "--format", "json", "--verify", str(program), "--", *shlex.split(args))
    known = {*case.differing, *IN_A_POD.get(case.name, ())}
    assert done.returncode == (3 if known else 0), done.stderr
    told = [who for one in json.loads(done.stdout)["proof"]["differences"] for who in one["who"]]
    assert [who for who in told if not any(re.search(pattern, who) for pattern in known)] == []
    assert {pattern for who in told for pattern in known if re.search(pattern, who)} == known


@pytest.mark.parametrize(("path", "args"), CASES)
def test_verify_finds_no_rules_of_netinit_and_misses_those_of_the_plan(path, args, program):
    options = peers.convert_line(peer_of(path)[0], args).options
    with Pod() as pod:
        run_program(pod, program, path, args)
        alone = run_tool(pod, "verify")
        told = run_tool(pod, "explain", "--live", "--from", CLIENT[4], "--to-port", str(PORT))
        compared = run_tool(pod, "verify", "--json", *options.to_argv())
        assert (alone.returncode, alone.stdout.strip()) == (3, "no rules of netinit here")
        assert compared.returncode == 3
        assert ("netinit convert finds the options" in told.stderr + told.stdout) == told.stdout.startswith("captured")
        assert "missing" in {one["kind"] for one in json.loads(compared.stdout)["differences"]}


@pytest.mark.parametrize(("path", "args"), CASES)
def test_a_connection_on_an_old_entry_passes_as_audit_says(path, args, program):
    with Pod() as pod:
        track(pod)
        before = call_from(pod, 7000)
        run_program(pod, program, path, args)
        audited = json.loads(run_tool(pod, "audit", "--live", "--json").stdout)["pods"][0]["traffic"]
        captured = CLIENT[4] not in args  # by Linkerd's networks to ignore
        assert "untranslated" in {row["kind"] for row in audited if row["directions"] == ["inbound"]}
        assert before == call_from(pod, 7000) == "application"
        assert call_from(pod, 7001) == ("refused" if captured else "application")  # nobody is the proxy


def call_from(pod, port):
    """Who answers a connection from this port of the client; the application resets it, which leaves an entry for 10 seconds."""
    with make_socket(pod, POD[4], 1000) as listener, make_socket(pod.client, POD[4], 1000) as client:
        for one in (listener, client):
            one.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        listener.bind((POD[4], PORT))
        listener.listen()
        client.bind((CLIENT[4], port))
        try:
            client.connect((POD[4], PORT))
        except ConnectionRefusedError:
            return "refused"
        with contextlib.closing(listener.accept()[0]) as accepted:
            accepted.setsockopt(SOL_SOCKET, SO_LINGER, LINGER_RESET)
        with contextlib.suppress(ConnectionResetError):
            client.recv(1)
        return "application"
