"""What the agent does not know is said: pods that cannot be checked, changes that are undone before a look, sweeps that hang; and DEL after a killed ADD."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from netinit.kernel import netlink, nf_tables
from netinit.node import events as node_events
from netinit.node import programmer, sweep
from netinit.node.decision import read_pod
from netinit.node.metrics import NodeMetrics
from netinit.node.programmer_client import ProgrammerClient
from netinit.node.settings import AgentSettings
from netinit.node.sweep import UNKNOWN, Sweeper
from netinit.serving.event_log import EventLog
from node_agent import ROOT, Api, Node, make_validated_pod, record
from programming import state
from randomness import SEED
from sweeps import choose

PREVIOUS = {"prevResult": {"ips": [{"address": "10.77.0.2/24"}]}}
UNKNOWN_EVENT = "whether the pod is captured is unknown: "


@pytest.fixture
def api():
    with Api() as made:
        yield made


@pytest.fixture
def path(tmp_path, pod):
    """The pod's namespace in the runtime's folder, as a file that is mounted and of which the runtime has a record."""
    folder = tmp_path / "netns"
    folder.mkdir()
    (folder / "cni-1").touch()
    subprocess.run(["mount", "--bind", pod.path, folder / "cni-1"], check=True)
    record(tmp_path, folder / "cni-1", uid="uid-shop-web")
    try:
        yield folder / "cni-1"
    finally:
        subprocess.run(["umount", "--lazy", folder / "cni-1"], check=True)


def messages(api, reason):
    return [event["message"] for event in api.events() if event["reason"] == reason]


def metric(node, name):
    return float(next(line for line in node.get("/metrics")[1].splitlines() if line.startswith(f"netinit_node_{name} ")).split()[1])


# ---- each way in which a check can fail, in the agent's own processes


@contextlib.contextmanager
def programming():
    """The privileged process, forked from this one with what a test has changed; the socket to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        made = programmer.Programmer(theirs, 2)
        while made.open:
            made.serve(0.1)
        os._exit(0)
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        os.waitpid(pid, 0)


def fill(monkeypatch, places):
    subprocess.run(["nsenter", f"--net={places['uid-shop-web']}", "nft", "add", "table", "ip", "y"], check=True)
    monkeypatch.setattr(nf_tables, "MAX_BYTES", 10)


def keep_changing(monkeypatch, _):
    monkeypatch.setattr(netlink, "read_nft_generation", itertools.count(1).__next__)


def be_late(monkeypatch, _):
    monkeypatch.setattr(sweep, "_JOB_SECONDS", 0.3)
    monkeypatch.setattr(programmer, "perform", lambda *_: time.sleep(60))


def be_killed(monkeypatch, _):
    monkeypatch.setattr(programmer, "perform", lambda *_: os.kill(os.getpid(), signal.SIGKILL))


def answer_nonsense(monkeypatch, _):
    monkeypatch.setattr(programmer, "perform", lambda *_: "captured")


def lose_namespace(_, places):
    places["uid-shop-web"] += "-gone"


def have_no_record(_, places):
    places.clear()


def name_a_file(_, places):
    places["uid-shop-web"] = __file__


@pytest.mark.parametrize(("fail", "reason"), [
    (fill, "there is more here that affects packets than netinit reads"), (keep_changing, "changes faster than it can be read"),
    (be_late, ""), (be_killed, "checking the pod: the process that did it was killed by signal 9"), (answer_nonsense, "this is not a result"), (lose_namespace, "gone"),
    (have_no_record, "its namespace is not found"), (name_a_file, "not a network namespace"),
])  # fmt: skip
def test_a_check_that_fails_in_any_way_is_an_event_a_log_line_and_counted(tmp_path, monkeypatch, path, fail, reason):
    places, events, log = {"uid-shop-web": str(path)}, [], io.StringIO()
    monkeypatch.setattr(sweep, "find_namespaces", lambda uids, **_: places)

    async def write_event(client, involved, **event):
        events.append((involved["name"], event["reason"], event["message"]))
        return ""

    monkeypatch.setattr(node_events, "write_event", write_event)
    fail(monkeypatch, places)
    metrics = NodeMetrics()

    async def run(channel):
        client = ProgrammerClient(channel)
        client.start()
        pods = [read_pod(make_validated_pod("web", "10.77.0.2"))]
        made = Sweeper(
            AgentSettings(node="n", cgroup_folder=str(tmp_path)), None, pods, client, metrics, EventLog("warn", stream=log),
            attachments=SimpleNamespace(), is_busy=lambda _: False,
        )  # fmt: skip
        for number in (0, 1, 1):
            (found,) = await made.check_pods(pods)
            assert (found.state, len(events)) == (UNKNOWN, number)
        asyncio.get_running_loop().remove_reader(channel)

    with programming() as channel:
        asyncio.run(run(channel))
    ((name, kind, text),) = events
    assert (name, kind) == ("web", "InterceptionUnknown")
    assert text.startswith(UNKNOWN_EVENT)
    assert len(text) > len(UNKNOWN_EVENT)
    assert reason in text
    assert text in log.getvalue()
    assert "netinit_node_unknown_total 3.0" in metrics.text().decode()


# ---- pods that hide


def test_a_bypass_behind_more_foreign_rules_than_are_read_is_reported_as_unknown(api, tmp_path, pod, path):
    """With NET_ADMIN a pod can have more rules than anybody reads, and among them one that lets everything past."""
    api.put(make_validated_pod("web", "10.77.0.2"))
    with Node(tmp_path, api, "--sweepInterval", "5s") as node:
        assert node.ask("ADD", netns=path, configuration=PREVIOUS)[0] == 0
        node.until(lambda: 'state="captured"} 1.0' in node.get("/metrics")[1], "the first sweep")
        rule = "add rule ip y c " + f'log prefix "{"x" * 126}" ' * 120 + "accept\n"  # 18 KiB, most of which are texts: nft and the kernel are done soon
        text = "add table ip y\nadd chain ip y c\n" + rule * 4_000
        pod.run(["nft", "-f", "-"], stdin=text, check=True, timeout=300)
        pod.run(["iptables", "-t", "nat", "-I", "OUTPUT", "-p", "tcp", "--dport", "9999", "-j", "ACCEPT"], check=True)
        node.until(lambda: messages(api, "InterceptionUnknown"), "the event")
        (message,) = messages(api, "InterceptionUnknown")
        assert message.startswith(f"{UNKNOWN_EVENT}there is more here that affects packets than netinit reads")
        assert message in node.log.read_text()
        time.sleep(6)
        assert len(messages(api, "InterceptionUnknown")) == 1, "once, not with each sweep"
        pod.run(["nft", "delete", "table", "ip", "y"], check=True)
        node.until(lambda: messages(api, "InterceptionDrift"), "what was behind it")


HIDE = """
import sys, time
from netinit.kernel.nf_tables import set_dormant

pid, pause = int(sys.argv[1]), float(sys.argv[2])
def looks():
    with open("/proc/net/netlink") as file:
        return sum(1 for line in file if line.split()[1] == "12")
usual, opened = looks(), 0
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    set_dormant(2, "x", dormant=False)
    opened += 1
    until = time.monotonic() + 0.5
    while looks() <= usual and time.monotonic() < until:
        time.sleep(0.0002)
    set_dormant(2, "x", dormant=True)
    time.sleep(pause)
print(opened, flush=True)
"""
BYPASS = """add table ip x { flags dormant; }
add chain ip x c { type nat hook output priority -110; }
add rule ip x c tcp dport 9998 dnat to 10.9.0.1:9999
"""


@pytest.mark.parametrize("pause", choose([0.02], [0.001, 0.02, 0.2]))
def test_a_pod_that_hides_its_bypass_from_each_look_is_an_event_by_its_changes_alone(api, tmp_path, pod, path, pause):
    """A pod with NET_ADMIN sees a look's socket in /proc/net/netlink, closes its way meanwhile, and opens it again."""
    api.put(make_validated_pod("web", "10.77.0.2"))
    with Node(tmp_path, api, "--sweepInterval", "2s") as node:
        assert node.ask("ADD", netns=path, configuration=PREVIOUS)[0] == 0
        node.until(lambda: 'state="captured"} 1.0' in node.get("/metrics")[1], "the first sweep")
        pod.run(["nft", "-f", "-"], stdin=BYPASS, check=True)
        node.until(lambda: messages(api, "InterceptionAtRisk"), "the dormant table")
        (message,) = messages(api, "InterceptionAtRisk")
        assert "dormant table" in message
        assert "nft table ip x" in message
        command = ["nsenter", f"--net={pod.path}", sys.executable, "-c", HIDE, str(os.getpid()), str(pause), "60"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as hiding:
            try:
                assert hiding.stdout.readline() == "ready\n"
                node.until(lambda: messages(api, "InterceptionUnstable"), "it changes again and again")
            finally:
                hiding.kill()
        assert metric(node, "rule_changes_total") >= 10
    told = messages(api, "InterceptionUnstable") + messages(api, "InterceptionChanged")
    assert len(messages(api, "InterceptionUnstable")) == 1, told
    assert len(messages(api, "InterceptionChanged")) <= 2, "at most one a minute"


def test_a_change_that_is_undone_before_the_look_is_an_event_with_its_number(api, tmp_path, pod, path):
    api.put(make_validated_pod("web", "10.77.0.2"))
    with Node(tmp_path, api, "--sweepInterval", "3s", "--watch=false") as node:
        assert node.ask("ADD", netns=path, configuration=PREVIOUS)[0] == 0
        node.until(lambda: 'state="captured"} 1.0' in node.get("/metrics")[1], "the first sweep")
        pod.run(["nft", "-f", "-"], stdin="add table ip x\nadd chain ip x c\n", check=True)
        pod.run(["nft", "delete", "table", "ip", "x"], check=True)
        node.until(lambda: messages(api, "InterceptionChanged"), "the event")
    assert "the pod's nf_tables changed " in messages(api, "InterceptionChanged")[0]
    assert not messages(api, "InterceptionDrift")


# ---- files and sweeps


def test_a_fifo_in_the_runtimes_folder_stops_no_sweep(api, tmp_path, pod, path):
    api.put(make_validated_pod("web", "10.77.0.2"))
    api.put(make_validated_pod("without-a-record", "10.77.0.3"))
    os.mkfifo(tmp_path / "results" / "net-fifo-eth0")
    (tmp_path / "results" / "net-zero-eth0").symlink_to("/dev/zero")
    with Node(tmp_path, api, "--sweepInterval", "1s") as node:
        node.until(lambda: 'state="without-rules"} 1.0' in node.get("/metrics")[1], "a sweep")
        node.until(lambda: messages(api, "InterceptionUnknown"), "the pod without a record")
        time.sleep(3)
        assert metric(node, "sweep_age_seconds") < 30
        assert "sweep" not in node.get("/readyz?verbose")[1]


# ---- DEL after a killed ADD


def test_a_del_right_after_a_killed_add_leaves_neither_rules_nor_a_record(api, tmp_path, pod, path):
    api.put(make_validated_pod("web", "10.77.0.2"))
    before, left, randomly = state(pod), [], random.Random(SEED)
    with Node(tmp_path, api, "--sweep=false", "--watch=false") as node:
        for number in range(choose(20, 60)):
            adding = node.begin("ADD", netns=path, container=f"c{number}", configuration=PREVIOUS)
            time.sleep(randomly.uniform(0.001, 0.03))
            adding.kill()
            adding.communicate()
            assert node.ask("DEL", netns=path, container=f"c{number}", configuration=PREVIOUS)[0] == 0
            if state(pod) != before:
                left.append(number)
                node.ask("ADD", netns=path, container="c", configuration=PREVIOUS)
                node.ask("DEL", netns=path, container="c", configuration=PREVIOUS)
        assert left == []
        folder = tmp_path / "run" / "attachments"
        assert not folder.exists() or [*folder.iterdir()] == []


def test_records_of_pods_that_are_gone_are_dropped_by_a_sweep_and_ids_of_any_length_are_noted(api, tmp_path, pod, path):
    api.put(make_validated_pod("web", "10.77.0.2"))
    before = state(pod)
    folder = tmp_path / "run" / "attachments"
    with Node(tmp_path, api, "--sweepInterval", "1s") as node:
        name = "c" * 300
        assert node.ask("ADD", netns=path, container=name, configuration=PREVIOUS)[0] == 0
        (found,) = folder.iterdir()
        assert json.loads(found.read_text())["container"] == name
        assert node.ask("DEL", netns=path, container=name, configuration=PREVIOUS)[0] == 0
        assert state(pod) == before
        assert node.ask("ADD", netns=path, container=name, configuration=PREVIOUS)[0] == 0
        subprocess.run(["umount", "--lazy", path], check=True)  # no DEL comes
        api.drop(make_validated_pod("web", "10.77.0.2"))
        node.until(lambda: [*folder.iterdir()] == [], "the record is dropped")
        subprocess.run(["mount", "--bind", pod.path, path], check=True)
