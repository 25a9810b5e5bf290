"""The agent's watch of pods and its check of host probes, with a programmer that answers as the test says."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
from types import SimpleNamespace

import pytest

from netinit.base.errors import ClusterError, NetinitError
from netinit.inject.deciding.pod_options import REDIRECTION
from netinit.kube.resources import DAEMON_SETS
from netinit.node import events as node_events
from netinit.node import node_pods, sweep
from netinit.node.background_tasks import InstallationKeeper
from netinit.node.decision import NodePod
from netinit.node.jobs import CHECK_PROBES, REPAIR_PROBES, Job, JobResult
from netinit.node.metrics import NodeMetrics
from netinit.node.node_pods import PodWatcher
from netinit.node.programmer import perform
from netinit.node.settings import LABEL, NOTHING, PROGRAM, REPORT, AgentSettings
from netinit.node.sweep import HostProbeCheck
from netinit.options import Options
from netinit.serving.event_log import EventLog


def make_pod(name, **more):
    return NodePod(**{"namespace": "shop", "name": name, "uid": f"uid-{name}", "annotations": {}, "labels": {}, "containers": (), "environment": {}, **more})


# ---- the watch -----------------------------------------------------------------------------------------------------------


class Pods(list):
    synced = True


def watch(visit, *names, connections=False, monkeypatch, busy=()):
    """What was checked and how often, by name, while `visit` runs beside the watch."""
    monkeypatch.setattr(node_pods, "_LEAST", 0.01)
    pods, looks, heard, stream = Pods(map(make_pod, names)), [], {}, io.StringIO()
    files = SimpleNamespace(identity={name: (1, place) for place, name in enumerate(names)}, busy=set(busy))
    monkeypatch.setattr(node_pods, "identify", files.identity.get)

    class Watcher(PodWatcher):
        async def _subscribe(self, path):
            ours, heard[path] = socket.socketpair(type=socket.SOCK_DGRAM)
            return [ours]

    monkeypatch.setattr(node_pods.notifications, "drain", drain)

    async def look(pod, path):
        assert pod.name == path
        looks.append(pod.name)
        return False

    async def run():
        made = Watcher(Options(), pod_cache=pods, programmer=None, metrics=NodeMetrics(), log=EventLog("warn", stream=stream), connections=connections)
        for name in names:
            made.add(f"uid-{name}", name, delay=0.0)
        task = asyncio.create_task(made.run(look, lambda uid: uid in files.busy))
        try:
            await visit(SimpleNamespace(watcher=made, looks=looks, heard=heard, files=files, pods=pods))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert (made._watched, stream.getvalue()) == ({}, "")
            for one in heard.values():
                one.close()
        return looks

    return asyncio.run(run())


def drain(sockets):
    for one in sockets:
        with contextlib.suppress(BlockingIOError):
            one.recv(9, socket.MSG_DONTWAIT)
    return 0


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of code that has no event for it
            await asyncio.sleep(0.005)


def is_open(one):
    try:
        one.send(b"x")
    except ConnectionError:
        return False
    return True


def test_a_pod_that_is_forgotten_is_closed_and_the_other_is_still_watched(monkeypatch):
    async def visit(agent):
        await until(lambda: sorted(agent.looks) == ["a", "b"])
        agent.watcher.forget((1, 0), "elsewhere")
        assert (is_open(agent.heard["a"]), is_open(agent.heard["b"])) == (False, True)
        await until(lambda: agent.looks.count("b") == 2)
        agent.watcher.forget(None, "b")
        assert not is_open(agent.heard["b"])

    assert watch(visit, "a", "b", monkeypatch=monkeypatch).count("a") == 1


def test_a_pod_that_has_a_new_namespace_is_watched_there_and_no_longer_in_the_old(monkeypatch):
    async def visit(agent):
        await until(lambda: agent.looks == ["a"])
        old = agent.heard["a"]
        agent.files.identity["a"] = (1, 7)
        agent.watcher.add("uid-a", "a", delay=0.0)
        await until(lambda: agent.looks == ["a", "a"])
        assert (is_open(old), is_open(agent.heard["a"])) == (False, True)
        old.close()

    watch(visit, "a", monkeypatch=monkeypatch)


@pytest.mark.parametrize("connections", [False, True])
def test_what_was_queued_for_a_pod_that_is_forgotten_is_not_checked(monkeypatch, connections):
    async def visit(agent):
        agent.watcher.forget((1, 0), "")
        await until(lambda: agent.looks)

    assert watch(visit, "a", "b", connections=connections, monkeypatch=monkeypatch) == ["b"]


@pytest.mark.parametrize("connections", [False, True])
def test_a_busy_pod_is_checked_later(monkeypatch, connections):
    async def visit(agent):
        await until(lambda: agent.looks == ["b"])
        await asyncio.sleep(0.05)
        assert agent.looks == ["b"]
        agent.files.busy.clear()
        await until(lambda: agent.looks == ["b", "a"])

    watch(visit, "a", "b", connections=connections, monkeypatch=monkeypatch, busy=["uid-a"])


@pytest.mark.parametrize(("connections", "rests"), [(True, True), (False, False)])
def test_only_checks_of_connections_are_followed_by_a_rest(connections, rests, monkeypatch):
    monkeypatch.setattr(node_pods, "_REST", 1e9)

    async def visit(agent):
        await until(lambda: agent.looks)
        await asyncio.sleep(0.05)

    assert len(watch(visit, "a", "b", connections=connections, monkeypatch=monkeypatch)) == (1 if rests else 2)


class Clock:
    """An event loop whose time stands still: it has what was scheduled (after how many seconds, in which queue) and the sockets it reads."""

    def __init__(self, monkeypatch, now=10.0):
        self.now, self.scheduled, self.closed, self.read, self.log = now, [], [], set(), io.StringIO()
        monkeypatch.setattr(node_pods.asyncio, "get_running_loop", lambda: self)
        monkeypatch.setattr(node_pods.notifications, "drain", len)
        monkeypatch.setattr(node_pods.notifications, "close", self.closed.extend)
        monkeypatch.setattr(node_pods, "identify", {"a": (1, 1), "b": (1, 2), "new": (1, 3)}.get)

    def watch(self, **more):
        pods = Pods([make_pod("a"), make_pod("b"), make_pod("over", ended=True)])
        return PodWatcher(Options(), pod_cache=pods, programmer=None, metrics=NodeMetrics(), log=EventLog("warn", stream=self.log), **more)

    def time(self):
        return self.now

    def call_later(self, delay, put, watched):
        self.scheduled.append((pytest.approx(delay), put.__self__, watched.uid))

    def add_reader(self, one, receive, watched):
        assert receive.__func__ is PodWatcher._receive
        self.read.add((one, watched.uid))

    def remove_reader(self, one):
        self.read = {(other, uid) for other, uid in self.read if other != one}


def run_alone(coroutine):
    """What it returns, which waits for nothing."""
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    return ended.value.value


def add(watcher, uid, path, sockets=(), **more):
    made = watcher._watched[uid] = node_pods._Watched(uid, path, node_pods.identify(path), sockets=[*sockets], **more)
    return made


@pytest.mark.parametrize(("pause", "now", "paused", "delay", "noisy"), [
    (0.125, 11.0, 0.1, 0.05, False), (0.125, 10.5, 0.25, 0.05, False), (0.125, 10.0, 0.25, 0.25, False), (0.25, 10.125, 0.5, 0.375, False),
    (0.5, 10.0, 1.0, 1.0, True), (1.0, 14.0, 0.1, 0.05, False), (1.0, 13.75, 2.0, 0.05, True), (4.0, 10.0, 5.0, 5.0, True), (5.0, 11.0, 5.0, 4.0, True),
])  # fmt: skip
def test_a_pod_that_changes_again_soon_is_checked_after_twice_the_pause_and_one_that_was_quiet_at_once(monkeypatch, pause, now, paused, delay, noisy):
    clock = Clock(monkeypatch, now)
    watcher = clock.watch()
    watched = add(watcher, "uid-a", "a", ["one"], pause=pause, ended=10.0)
    clock.read.add(("one", "uid-a"))
    watcher._receive(watched)
    assert (watched.pause, watched.notified, clock.read) == (pytest.approx(paused), now, set())
    assert clock.scheduled == [(delay, watcher._noisy if noisy else watcher._quiet, "uid-a")]
    watched.looking, clock.now = True, 99.0
    watcher._receive(watched)
    assert (watched.pause, watched.notified, len(clock.scheduled)) == (pytest.approx(paused), 99.0, 1), "the check that runs schedules the next"


@pytest.mark.parametrize(("pause", "seconds", "again", "paused", "noisy"), [
    (0.25, 1.0, False, 0.25, None), (0.5, 1.0, False, 0.5, None), (1.0, 0.125, False, 1.0, None), (1.0, 0.5, False, 2.0, None), (1.0, 2.0, False, 5.0, None),
    (0.125, 1.0, True, 0.25, False), (0.25, 1.0, True, 0.5, False), (0.5, 0.0, True, 1.0, True), (1.0, 0.5, True, 4.0, True), (4.0, 0.0, True, 5.0, True),
])  # fmt: skip
def test_a_noisy_pod_rests_four_times_as_long_as_its_check_and_one_that_changed_meanwhile_is_checked_again(monkeypatch, pause, seconds, again, paused, noisy):
    clock = Clock(monkeypatch)
    watcher = clock.watch(connections=again)
    watched = add(watcher, "uid-a", "a", ["one", "two"], pause=pause, notified=9.5)

    async def check(pod, path):
        assert (pod.name, path, watched.looking, watched.notified) == ("a", "a", True, 0.0)
        assert clock.read == {("one", "uid-a"), ("two", "uid-a")}
        clock.now += seconds
        watched.notified = clock.now if again else 0.0
        return True

    run_alone(watcher._answer(watched, check))
    assert (watched.pause, watched.looking, watched.ended) == (pytest.approx(paused), False, 10.0 + seconds)
    assert clock.scheduled == ([(paused, watcher._noisy if noisy else watcher._quiet, "uid-a")] if again else [])
    told = watcher.metrics.text().decode()
    for name, value in (("drift_seconds_sum", 0.5 + seconds), ("looks_total", float(not again)), ("connection_looks_total", float(again)), ("notifications_dropped_total", 2.0)):
        assert f"\nnetinit_node_{name} {value}\n" in told


@pytest.mark.parametrize(("path", "told"), [("a", [["warn", "a pod cannot be watched, only sweeps check it: no answer", "pod=uid-a"]]), ("gone", [])])
def test_a_pod_that_cannot_be_watched_is_told_unless_it_is_gone(monkeypatch, path, told):
    clock = Clock(monkeypatch)
    watcher = clock.watch()
    watched = add(watcher, "uid-a", "a", ["one"])
    watched.path = path

    async def check(pod, path):
        raise NetinitError("no answer")

    run_alone(watcher._answer(watched, check))
    assert (watcher._watched, clock.closed, watched.sockets, watched.looking, clock.scheduled) == ({}, ["one"], [], False, [])
    assert [line.split("\t")[1:] for line in clock.log.getvalue().splitlines()] == told


def test_a_pod_is_watched_once_for_each_namespace_and_no_more_pods_than_there_are_descriptors_for(monkeypatch):
    clock = Clock(monkeypatch)
    watcher = clock.watch()
    for uid, path in (("", "a"), ("uid-a", "gone"), ("uid-a", "a"), ("uid-a", "a")):
        watcher.add(uid, path)
    assert clock.scheduled == [(0.5, watcher._quiet, "uid-a")]
    first = watcher._watched["uid-a"]
    first.sockets = ["one"]
    assert b"\nnetinit_node_watched_pods 1.0\n" in watcher.metrics.text()
    monkeypatch.setattr(node_pods, "MAX_WATCHED", 1)
    watcher.add("uid-b", "b")
    assert "1 pods are watched, and no more: only sweeps check it" in clock.log.getvalue()
    assert "pod=uid-b" in clock.log.getvalue()
    watcher.add("uid-a", "new", delay=0.25)
    assert (clock.closed, clock.scheduled[1:]) == (["one"], [(0.25, watcher._quiet, "uid-a")])
    assert {uid: (one.path, one.identity) for uid, one in watcher._watched.items()} == {"uid-a": ("new", (1, 3))}
    watcher._drop(first)
    assert watcher._watched, "what was watched before is dropped alone"
    assert b"\nnetinit_node_watched_pods 0.0\n" in Clock(monkeypatch).watch(connections=True).metrics.text()


@pytest.mark.parametrize(("synced", "kept"), [(True, ["uid-a"]), (False, ["uid-a", "uid-over", "uid-nobody"])])
def test_pods_that_the_api_no_longer_has_and_namespaces_that_are_gone_are_dropped(monkeypatch, synced, kept):
    clock = Clock(monkeypatch)
    watcher = clock.watch()
    watcher.pod_cache.synced = synced
    for uid, path in (("uid-a", "a"), ("uid-over", "a"), ("uid-nobody", "a"), ("uid-b", "b")):
        add(watcher, uid, path)
    watcher._watched["uid-b"].path = "gone"

    async def rest(seconds):
        assert seconds == 2.0
        raise EOFError

    monkeypatch.setattr(node_pods.asyncio, "sleep", rest)
    with pytest.raises(EOFError):
        watcher._drop_deleted().send(None)
    assert [*watcher._watched] == kept


@pytest.mark.parametrize(("connections", "kind"), [(False, "subscribe"), (True, "subscribe-connections")])
def test_a_privileged_child_opens_the_sockets_of_a_pod(monkeypatch, connections, kind):
    watcher = Clock(monkeypatch).watch(connections=connections)
    error = ""

    async def do(job, channel):
        assert (job.kind, job.path, job.seconds) == (kind, "/at", 10.0)
        with socket.socket() as one, socket.socket(fileno=socket.dup(channel)) as link:
            socket.send_fds(link, [b"x"], [one.fileno()])
        return JobResult(error=error)

    watcher.programmer = SimpleNamespace(do=do)
    (found,) = run_alone(watcher._subscribe("/at"))
    with found:
        assert found.type == socket.SOCK_STREAM
    error = "the pod's network namespace is gone"
    with pytest.raises(NetinitError, match=error):
        watcher._subscribe("/at").send(None)


def test_what_opens_sockets_of_a_pod_that_is_dropped_meanwhile_closes_them(monkeypatch):
    clock = Clock(monkeypatch)
    watcher = clock.watch()
    watched = add(watcher, "uid-a", "a")

    async def subscribe(path):
        watcher._drop(watched)
        return ["late"]

    watcher._subscribe = subscribe
    with pytest.raises(NetinitError, match=r"^the pod is gone$"):
        watcher._arm(watched).send(None)
    assert (clock.closed, watched.sockets, clock.read) == (["late"], [], set())


# ---- the check of host probes --------------------------------------------------------------------------------------------

AMBIENT = {"annotations": {REDIRECTION: "enabled"}}


def check_probes(monkeypatch, pods, *found, mode=REPORT, repair=LABEL, error=""):
    """The jobs asked for, the events and the log after checks that found this."""
    asked, sent, stream = [], [], io.StringIO()

    async def do(job):
        asked.append(job.kind)
        assert {*job.uids.values()} == {pod.uid for pod in pods if pod.annotations == AMBIENT["annotations"]}
        assert (job.seconds, job.options("/n").backend) == (30.0, "nftables")
        if job.kind == CHECK_PROBES:
            return JobResult(differences=answers.pop(0))
        return JobResult(error=error, backend="nftables")

    async def write_event(client, involved, **event):
        assert involved == {"kind": "Node", "apiVersion": "v1", "name": "n", "uid": "n"}
        assert event["component"] == "netinit-node"
        assert event["kind"] == ("Normal" if event["reason"] == "HostProbesRepaired" else "Warning")
        sent.append((event["reason"], event["message"]))
        return ""

    monkeypatch.setattr(node_events, "write_event", write_event)
    answers = list(found)
    settings = SimpleNamespace(base=Options(backend="nftables"), host_probes=mode, repair=repair, node="n", namespace="mesh", daemon_set="netinit-node")
    metrics = NodeMetrics()
    check = HostProbeCheck(settings, None, pods, SimpleNamespace(do=do), metrics, EventLog("info", stream=stream))
    for _ in found:
        asyncio.run(check.check())
    return asked, sent, stream.getvalue(), metrics.text().decode()


@pytest.mark.parametrize("kind", [CHECK_PROBES, REPAIR_PROBES])
def test_the_node_s_rules_are_answered_by_state_address_and_detail(kind, monkeypatch):
    found = [SimpleNamespace(state="captured", address="10.0.0.1", detail="by rule 1"), SimpleNamespace(state="unknown", address="10.0.0.2", detail="x")]
    monkeypatch.setattr("netinit.pods.probe.host_probe_rules.check_host_probes", lambda uids: found)
    monkeypatch.setattr("netinit.pods.probe.host_probe_rules.repair_host_probes", lambda uids: ("nftables", found))
    done = perform(Job(kind=kind, environ={}, seconds=1.0), "")
    assert done.differences == ("captured 10.0.0.1 by rule 1", "unknown 10.0.0.2 x")
    assert done.backend == ("nftables" if kind == REPAIR_PROBES else "")


def test_a_captured_probe_is_reported_once_until_it_is_gone_and_the_metric_counts_addresses(monkeypatch):
    pods = [make_pod("a", addresses=("10.0.0.1", "10.0.0.2", "no address"), **AMBIENT), make_pod("plain", addresses=("10.0.0.9",))]
    broken, fine = ("broken 10.0.0.1 goes to ztunnel", "exempt 10.0.0.2 is fine"), ("exempt 10.0.0.1 x", "exempt 10.0.0.2 x")
    asked, sent, log, metrics = check_probes(monkeypatch, pods, broken, broken, fine, broken)
    assert asked == [CHECK_PROBES] * 4
    assert [line.split("\t")[1] for line in log.splitlines()] == ["warn", "warn"], "that it is gone is no line"
    text = "the kubelet's probes of 1 addresses of ambient pods are captured, such as 10.0.0.1 of shop/a: goes to ztunnel"
    assert sent == [("HostProbesCaptured", text)] * 2
    assert 'host_probes{state="broken"} 1.0' in metrics
    assert 'host_probes{state="exempt"} 1.0' in metrics


def test_a_probe_that_is_exempt_needs_no_detail(monkeypatch):
    pods = [make_pod("a", addresses=("10.0.0.1", "10.0.0.2"), **AMBIENT)]
    _, sent, _, metrics = check_probes(monkeypatch, pods, ("exempt 10.0.0.1 ", "broken 10.0.0.2 goes to  ztunnel"))
    assert [text.rpartition(": ")[2] for _, text in sent] == ["goes to  ztunnel"]
    assert 'host_probes{state="exempt"} 1.0' in metrics


def test_what_a_repair_does_not_make_known_stays_unknown(monkeypatch):
    pods = [make_pod("a", addresses=("10.0.0.1", "10.0.0.2"), **AMBIENT)]
    metrics = check_probes(monkeypatch, pods, ("broken 10.0.0.1 x", "unknown 10.0.0.2 y"), mode=PROGRAM)[3]
    assert [f'host_probes{{state="{state}"}} 1.0' in metrics for state in ("exempt", "unknown", "broken")] == [True, True, False]


def test_probes_are_checked_at_the_interval_of_sweeps(monkeypatch):
    done = []

    class Check(HostProbeCheck):
        async def check(self):
            done.append("checked")

    async def pause(seconds):
        done.append(seconds)
        if len(done) == 5:
            raise EOFError

    async def wait():
        done.append("listed")

    monkeypatch.setattr(sweep.asyncio, "sleep", pause)
    settings = SimpleNamespace(sweep_interval=90 * 10**9)
    with pytest.raises(EOFError):
        Check(settings, None, SimpleNamespace(wait=wait), None, NodeMetrics(), None).run().send(None)
    assert done == ["listed", "checked", 90.0, "checked", 90.0]


def test_what_is_unknown_is_no_event_and_said_only_where_nothing_is_broken(monkeypatch):
    pods = [make_pod("a", addresses=("10.0.0.1", "10.0.0.2"), **AMBIENT)]
    unknown = ("unknown 10.0.0.1 no rights", "exempt 10.0.0.2 x")
    _, sent, log, _ = check_probes(monkeypatch, pods, unknown, unknown)
    assert sent == []
    assert log.count("whether the kubelet's probes of ambient pods are captured is unknown: no rights") == 1
    _, sent, log, _ = check_probes(monkeypatch, pods, ("unknown 10.0.0.1 no rights", "broken 10.0.0.2 x"))
    assert len(sent) == 1
    assert "is unknown" not in log


@pytest.mark.parametrize(("own", "asked"), [({"host_network": True}, [CHECK_PROBES]), ({"host_network": False}, []), (None, [CHECK_PROBES])])
def test_an_agent_that_is_not_on_the_nodes_network_does_not_judge_it(own, asked, monkeypatch):
    pods = [make_pod("a", addresses=("10.0.0.1",), **AMBIENT)]
    if own is not None:
        pods.append(make_pod("netinit-node-4fj2k", **own, namespace="mesh"))
    found, sent, log, _ = check_probes(monkeypatch, pods, ("exempt 10.0.0.1 x",))
    assert (found, sent) == (asked, [])
    assert ("set node.hostNetwork" in log) is (asked == [])


@pytest.mark.parametrize("ends", [{"ended": True}, {"host_network": True}, {"annotations": {REDIRECTION: "disabled"}}])
def test_pods_that_are_not_ambient_or_over_are_not_asked_about(ends, monkeypatch):
    assert check_probes(monkeypatch, [make_pod("a", addresses=("10.0.0.1",), **{**AMBIENT, **ends})], ())[0] == []


@pytest.mark.parametrize(("error", "repair", "events"), [
    ("", LABEL, ["HostProbesCaptured", "HostProbesRepaired"]), ("refused", LABEL, ["HostProbesCaptured"]), ("", NOTHING, []),
])  # fmt: skip
def test_a_repair_follows_where_it_is_asked_for(error, repair, events, monkeypatch):
    pods = [make_pod("a", addresses=("10.0.0.1",), **AMBIENT)]
    asked, sent, log, metrics = check_probes(monkeypatch, pods, ("broken 10.0.0.1 x",), mode=PROGRAM, repair=repair, error=error)
    assert asked == [CHECK_PROBES, REPAIR_PROBES]
    assert [reason for reason, _ in sent] == events
    assert ("cannot be repaired: refused" in log) is bool(error)
    assert f'result="{"fail" if error else "success"}",type="host-probes"' in metrics
    assert f'host_probes{{state="{"broken" if error else "exempt"}"}} 1.0' in metrics
    assert f'host_probes{{state="{"exempt" if error else "broken"}"}} 0.0' in metrics
    assert check_probes(monkeypatch, pods, ("exempt 10.0.0.1 x",), mode=PROGRAM)[0] == [CHECK_PROBES]


# ---- the installation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "deleted"),
    [
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True), ({"metadata": {}}, False), ({}, False),
        (ClusterError("none", status=404), True), (ClusterError("expired", status=401), False), (ClusterError("down"), False), (TimeoutError(), False),
    ],
    ids=["being deleted", "there", "odd", "404", "401", "no answer", "late"],
)  # fmt: skip
def test_the_plugin_goes_only_where_its_daemon_set_is_known_to_be_deleted(answer, deleted):
    asked = []

    async def get(*words):
        asked.append(words)
        if isinstance(answer, Exception):
            raise answer
        return answer

    settings = AgentSettings.from_argv(["--namespace", "mesh", "--daemonSetName", "netinit-node"], {"NODE_NAME": "n"})
    keeper = InstallationKeeper(settings, SimpleNamespace(get=get), NodeMetrics(), EventLog("error", stream=io.StringIO()))
    assert asyncio.run(keeper._was_deleted()) is deleted
    assert asked == [(DAEMON_SETS, "netinit-node", "mesh")]
