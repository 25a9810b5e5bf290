"""Open connections that bypass the proxy: judged on request, and seen when they are opened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from conversations import converse
from netinit.lab import PROXY_ID
from netinit.options import Options
from netinit.pods import reset_connections
from netinit.pods.verify import verify as verify_rules
from netinit.rules.model import BYPASSING
from node_agent import Api, Node, make_validated_pod, record
from prefork import Running
from programming import run_tool

# The first packets of connections without a redirection pass: nothing but nat captures.
RULES = ("-b", "*", "-i", "*", "-u", "1337", "--ipv6", "off", "--istio-exact", "--backend", "iptables-nft")
OUTSIDE, PORT = "203.0.113.7", 8000
SKIP = ("iptables-nft", "-w", "-t", "nat", "-{verb}", "OUTPUT", "-d", OUTSIDE, "-p", "tcp", "-j", "ACCEPT")


@pytest.fixture
def programmed(pod):
    assert run_tool(pod, "apply", *RULES).returncode == 0
    return pod


@contextlib.contextmanager
def passing(stack, pod, *, user=1000, port=PORT):
    """A connection that goes past the proxy, since a rule was there in the moment of its first packet."""
    skip(pod, "I")
    try:
        yield converse(stack, pod.client, OUTSIDE, port, pod, user=user)
    finally:
        skip(pod, "D")


def skip(pod, verb):
    words = [word.format(verb=verb) for word in SKIP]
    pod.run([*words[:6], *(["1"] if verb == "I" else []), *words[6:]], check=True)


def verify(pod, *words):
    return run_tool(pod, "verify", *RULES, *words)


def test_connections_beyond_those_that_are_judged_are_unknown_and_not_fine(programmed, monkeypatch):
    monkeypatch.setattr(reset_connections, "MAX_JUDGED", 1)
    with contextlib.ExitStack() as stack:
        for port in (PORT, PORT + 1):
            with passing(stack, programmed, port=port) as made:
                assert made.fate == ("ok", "ok")
        with programmed.entered():
            report = verify_rules(Options.from_argv([*RULES, "--host-network"], {}), connections=True)
        kinds = [(one.kind, one.rule.split()[1:]) for one in report.differences]
        assert (BYPASSING, ["more", "connections"]) in kinds, report.differences
        assert len(kinds) == 2, "one is judged, and the other one is named as not judged"


def test_a_connection_that_goes_past_the_proxy_is_a_difference_on_request_alone(programmed):
    with contextlib.ExitStack() as stack:
        with passing(stack, programmed) as made:
            pass
        assert made.fate == ("ok", "ok")
        assert verify(programmed).returncode == 0
        found = verify(programmed, "--connections")
        line, count, *listening = found.stdout.splitlines()
        assert count.startswith("1 difference from the plan of ")
        assert listening == [f"then: nothing listens on {port} (the proxy is not up): the connection is refused (NI301)" for port in (15001, 15006)]
        assert found.returncode == 3
        assert line.startswith("bypassing: IPv4: connection from 10.77.0.2:")
        assert f"to {OUTSIDE}:{PORT}, of user 1000" in line
    assert verify(programmed, "--connections").returncode == 0


def test_connections_of_the_proxy_and_those_that_it_has_are_none(programmed):
    with contextlib.ExitStack() as stack:
        proxy = programmed.listen(15001, uid=PROXY_ID)
        own = converse(stack, programmed.client, OUTSIDE, PORT, programmed, user=PROXY_ID)
        with programmed.entered():
            captured = stack.enter_context(socket.create_connection((OUTSIDE, 80)))
        assert captured.getpeername() == (OUTSIDE, 80)
        found = verify(programmed, "--connections")
        assert own.fate == ("ok", "ok")
        proxy.close()
    assert found.returncode == 0, found.stdout


def test_watch_says_it_when_such_a_connection_is_opened_and_when_it_ends(programmed):
    process = Running(["verify", "--watch", "--connections", "--json", f"--pid={programmed.pid}", *RULES], environ=os.environ)
    try:
        assert json.loads(process.stdout.readline())["ok"] is True
        with contextlib.ExitStack() as stack:
            with passing(stack, programmed):
                pass
            kinds = set()
            while kinds != {"bypassing"}:
                kinds = {one["kind"] for one in json.loads(process.stdout.readline())["differences"]}
            ended = time.monotonic()
        while json.loads(process.stdout.readline())["ok"] is not True:
            pass
        assert time.monotonic() - ended < 60, "connection tracking keeps its entry for two minutes"
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 0
    finally:
        process.kill()


@pytest.fixture
def watched(tmp_path, pod):
    """An agent that watches connections, and a pod that its plugin has programmed."""
    (tmp_path / "netns").mkdir()
    path = tmp_path / "netns" / "cni-1"
    path.touch()
    subprocess.run(["mount", "--bind", pod.path, path], check=True)
    record(tmp_path, path, uid="uid-shop-web")
    tree = make_validated_pod("web", "10.77.0.2")
    tree["metadata"]["annotations"]["netinit.io/istio-exact"] = "true"
    try:
        with Api() as api:
            api.put(tree)
            with Node(tmp_path, api, "--sweep=false", "--watch=false", "--watchConnections") as node:
                assert node.ask("ADD", netns=path, configuration={"prevResult": {"ips": [{"address": "10.77.0.2/24"}]}})[0] == 0
                node.until(lambda: metric(node, "connection_looks_total") >= 1, "the first look")
                yield node, api, pod
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def metric(node, name):
    return float(next(line for line in node.get("/metrics")[1].splitlines() if line.startswith(f"netinit_node_{name} ")).split()[1])


def bypassed(api):
    return [event["message"] for event in api.events() if event["reason"] == "InterceptionBypassed"]


def test_the_agent_tells_of_a_connection_that_bypasses_once_and_counts_it(watched):
    node, api, pod = watched
    with contextlib.ExitStack() as stack:
        with passing(stack, pod):
            pass
        node.until(lambda: bypassed(api), "the event")
        with passing(stack, pod, port=PORT + 1):
            pass
        node.until(lambda: metric(node, "bypassing_total") >= 2, "the metric")
    (message,) = bypassed(api)
    assert "1 open connections of the pod bypass the proxy, such as bypassing: IPv4: connection from 10.77.0.2:" in message


def test_a_pod_that_opens_connections_all_the_time_is_looked_at_now_and_then(watched):
    node, _, pod = watched
    stop, opened = threading.Event(), [0]

    def open_many():
        with pod.entered():
            while not stop.is_set():
                with socket.socket(type=socket.SOCK_DGRAM) as one:
                    one.sendto(b"x", (OUTSIDE, 9))  # a flow of its own for the kernel, as each connection is
                    opened[0] += 1

    thread = threading.Thread(target=open_many)
    thread.start()
    try:
        node.until(lambda: opened[0] > 1500, "it is known to open many")
        before, looks, begun = opened[0], metric(node, "connection_looks_total"), time.monotonic()
        node.until(lambda: opened[0] - before > 3000 and time.monotonic() - begun > 6, "it opens many more, for a while")
        took = time.monotonic() - begun
        number = metric(node, "connection_looks_total") - looks
    finally:
        stop.set()
        thread.join()
    print(f"{(opened[0] - before) / took:.0f} flows a second, {number / took:.2f} looks a second")
    assert number / took < 2
