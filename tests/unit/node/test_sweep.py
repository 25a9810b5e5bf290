"""What the agent does about a pod that it has checked: states, events, log lines, metrics and repairs."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from netinit.base.errors import DORMANT_BYPASS, NOT_PROVED, ClusterError, NetinitError
from netinit.inject.deciding.pod_options import REDIRECTION
from netinit.kube.resources import PODS
from netinit.node import events as node_events
from netinit.node import sweep
from netinit.node.decision import UNCAPTURED, read_pod
from netinit.node.jobs import APPLY, JUDGE_CONNECTIONS, LOOK_AGAIN, VERIFY, JobResult
from netinit.node.metrics import NodeMetrics
from netinit.node.pod_history import MANY, QUIET, SILENCE, SPAN, PodHistory
from netinit.node.settings import DELETE, LABEL, NOTHING, PROGRAM, REPORT, AgentSettings
from netinit.node.sweep import BARE, CAPTURED, DRIFTED, SURE, UNKNOWN
from netinit.serving.event_log import EventLog
from node_agent import make_pod

DIFFERS = JobResult(differences=("missing: one", "missing: two"), ours=True)
NO_RULES = JobResult(differences=("missing: all",), ours=False)
LABELLED = {"labels": {"cni.istio.io/uninitialized": "true"}, "resourceVersion": "7"}
INVOLVED = {"kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": "web", "uid": "shop-web"}


class Pods(list):
    synced, changed = True, None

    async def wait(self):
        """They have been listed."""


class Records(list):
    """What was programmed, by the uid of its pod."""

    known = None  # the uids that records were kept for in the last sweep

    def drop_gone(self, uids):
        self.known = set(uids)
        return 0

    def add(self, uid, *, is_there=True):
        self.append(SimpleNamespace(uid=uid, netns="/run/netns/x", is_at=lambda path: is_there))


class Node:
    """A sweeper with its surroundings: `answers` by kind of job; what was asked, sent, changed, watched and logged."""

    def __init__(self, monkeypatch, *pods, paths=("shop-web",), busy=(), event_error="", **settings):
        self.answers = {VERIFY: JobResult(), APPLY: JobResult(backend="nftables", changed=True), JUDGE_CONNECTIONS: JobResult(), LOOK_AGAIN: JobResult()}
        self.jobs, self.events, self.calls, self.watched, self.stream = [], [], [], [], io.StringIO()
        self.error = None
        self.pods = Pods(pods or [running()])
        self.metrics = NodeMetrics()

        def find(uids, folder="/run/netns", **_):
            return {uid: f"{folder}/{uid}" for uid in uids if uid in paths}

        def find_namespaces(uids, *, attachments, records, folder):
            assert (attachments, str(records), str(folder)) == (self.sweeper.attachments, "/var/lib/cni/results", "/run/netns")
            return find(uids)

        monkeypatch.setattr(sweep, "find_namespaces", find_namespaces)
        monkeypatch.setattr(sweep, "find_cgroups", find)

        async def write_event(client, involved, **event):
            assert client is self
            assert event.pop("component") == "netinit-node"
            self.events.append((involved, event["kind"], event["reason"], event["message"]))
            return event_error

        monkeypatch.setattr(node_events, "write_event", write_event)
        watcher = SimpleNamespace(add=lambda uid, path: self.watched.append((uid, path)))
        self.sweeper = sweep.Sweeper(
            AgentSettings(node="n", namespace="mesh", **settings), self, self.pods, SimpleNamespace(do=self.do), self.metrics,
            EventLog("debug", as_json=True, stream=self.stream), is_busy=lambda uid: uid in busy,
            attachments=Records(), watchers=(watcher,),
        )  # fmt: skip

    async def do(self, job):
        self.jobs.append(job)
        answer = self.answers[job.kind]
        answer = answer(job) if callable(answer) else answer
        return answer.pop(0) if isinstance(answer, list) else answer

    async def patch(self, *words, **more):
        self.calls.append(("patch", words, more))
        if self.error:
            raise self.error

    async def delete(self, *words, **more):
        self.calls.append(("delete", words, more))
        if self.error:
            raise self.error

    def check(self):
        return [(one.pod.name, one.state, one.detail) for one in asyncio.run(self.sweeper.check_pods(list(self.pods)))]

    def logged(self, *levels):
        lines = map(json.loads, self.stream.getvalue().splitlines())
        return [(line["level"], line["msg"], line.get("pod")) for line in lines if line["level"] in (levels or ("warn", "error"))]

    def count(self, sample):
        lines = self.metrics.text().decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{sample} ")), None)


def running(name="web", *, ips=("10.0.0.2",), exit_code=None, version="7", **more):
    tree = make_pod(name, uid=f"shop-{name}", **more)
    tree["metadata"]["resourceVersion"] = version
    tree["status"] = {"phase": "Running", "podIPs": [{"ip": ip} for ip in ips]}
    if exit_code is not None:
        tree["status"]["initContainerStatuses"] = [{"name": "istio-validation", "state": {"terminated": {"exitCode": exit_code}}}]
    return read_pod(tree)


@pytest.mark.parametrize(("answer", "state", "detail"), [
    (JobResult(ours=True), CAPTURED, ""), (DIFFERS, DRIFTED, "missing: one"), (NO_RULES, BARE, "missing: all"),
    (JobResult(error="no rights"), UNKNOWN, "no rights"),
])  # fmt: skip
def test_a_pod_s_state_is_what_verify_finds(monkeypatch, answer, state, detail):
    node = Node(monkeypatch)
    node.answers[VERIFY] = answer
    assert node.check() == [("web", state, detail)]
    (job,) = node.jobs
    assert (job.kind, job.seconds, job.path) == (VERIFY, 30.0, "/run/netns/shop-web")
    assert (job.cgroup_folder, job.cgroup) == ("/host/sys/fs/cgroup", "/host/sys/fs/cgroup/shop-web")
    assert job.options("/x").reconcile


@pytest.mark.parametrize(("exit_code", "state", "detail"), [
    (None, UNKNOWN, "its namespace is not found"), (1, UNKNOWN, "its namespace is not found"),
    (UNCAPTURED, BARE, "its validation ended with 126"),
])  # fmt: skip
def test_a_pod_without_a_known_namespace_is_bare_only_where_its_validation_says_so(monkeypatch, exit_code, state, detail):
    node = Node(monkeypatch, running(exit_code=exit_code), paths=())
    assert node.check() == [("web", state, detail)]
    assert node.jobs == []


@pytest.mark.parametrize(("answer", "reason", "text", "word"), [
    (DIFFERS, "InterceptionDrift", "the pod has other rules than planned: missing: one", "drifted"),
    (NO_RULES, "InterceptionMissing", "the pod runs without its interception rules: missing: all", "without-rules"),
])  # fmt: skip
def test_a_problem_is_reported_once_until_it_changes_or_is_gone(monkeypatch, answer, reason, text, word):
    node = Node(monkeypatch, repair=REPORT)
    event = (INVOLVED, "Warning", reason, text)
    fine, unread = JobResult(), JobResult(error="x")
    for found, events, drifts in ((answer, 1, 1), (answer, 1, 2), (fine, 1, 2), (answer, 2, 3), (unread, 2, 3), (answer, 2, 4)):
        node.answers[VERIFY] = found
        node.check()
        assert node.events == [event] * events
        assert node.count("netinit_node_drift_total") == drifts
    assert node.logged() == [("warn", text, "shop/web")] * 2
    node.answers[VERIFY] = JobResult(differences=("another",), ours=True)
    node.check()
    assert node.events[-1] == (INVOLVED, "Warning", "InterceptionDrift", "the pod has other rules than planned: another")
    assert {job.kind for job in node.jobs} == {VERIFY}
    assert node.calls == []


def test_with_repair_none_there_are_no_events_and_the_log_says_it_still(monkeypatch):
    node = Node(monkeypatch, repair=NOTHING)
    node.answers[VERIFY] = NO_RULES
    node.check()
    assert (node.events, len(node.logged("warn"))) == ([], 1)


def test_an_event_that_cannot_be_written_is_an_error_in_the_log(monkeypatch):
    node = Node(monkeypatch, event_error="forbidden")
    node.answers[VERIFY] = NO_RULES
    node.check()
    assert node.logged("error") == [("error", "an event cannot be written: forbidden", "shop/web")]
    asyncio.run(node.sweeper.send_event("Reason", "text"))
    assert node.events[-1] == ({"kind": "Node", "apiVersion": "v1", "name": "n", "uid": "n"}, "Warning", "Reason", "text")
    assert node.logged("error")[1] == ("error", "an event cannot be written: forbidden", None)


@pytest.mark.parametrize("answer", [DIFFERS, NO_RULES])
def test_a_pod_is_programmed_in_its_namespace_and_the_event_names_backend_and_warnings(monkeypatch, answer):
    node = Node(monkeypatch, repair=PROGRAM)
    node.answers |= {VERIFY: answer, APPLY: JobResult(backend="nftables", changed=True, warnings=("first", "second"))}
    node.check()
    job = node.jobs[-1]
    assert (job.kind, job.path, job.seconds, job.cgroup) == (APPLY, "/run/netns/shop-web", 30.0, "")
    assert node.events[-1] == (INVOLVED, "Normal", "InterceptionRepaired", "the rules were programmed by nftables; first; second")
    assert node.logged()[-2:] == [("warn", "first", "shop/web"), ("warn", "second", "shop/web")]
    assert node.count('istio_cni_repair_pods_repaired_total{result="success",type="repair"}') == 1
    node.check()
    assert len(node.events) == 4, "what comes back after a repair is reported again"


def test_a_repair_that_fails_is_an_error_in_the_log_and_the_problem_is_not_reported_again(monkeypatch):
    node = Node(monkeypatch, repair=PROGRAM)
    node.answers |= {VERIFY: DIFFERS, APPLY: JobResult(error="locked")}
    node.check()
    node.check()
    assert [reason for _, _, reason, _ in node.events] == ["InterceptionDrift"]
    assert node.logged("error") == [("error", "the pod cannot be programmed: locked", "shop/web")] * 2
    assert node.count('istio_cni_repair_pods_repaired_total{result="fail",type="repair"}') == 2


@pytest.mark.parametrize(("repair", "call"), [
    (LABEL, ("patch", (PODS, "web", {"metadata": LABELLED}, "shop"), {"part": "status"})),
    (DELETE, ("delete", (PODS, "web", "shop"), {"uid": "shop-web", "version": "7"})),
])  # fmt: skip
@pytest.mark.parametrize(("error", "result", "level"), [
    (None, "success", ""), (ClusterError("x", status=409), "skip", "debug"), (ClusterError("x", status=404), "skip", "debug"),
    (ClusterError("x", status=403), "fail", "error"),
])  # fmt: skip
def test_a_pod_without_rules_is_labelled_or_deleted_as_the_one_that_was_checked(monkeypatch, repair, call, error, result, level):
    node = Node(monkeypatch, repair=repair)
    node.answers[VERIFY], node.error = NO_RULES, error
    node.check()
    assert node.calls == [call]
    assert node.count(f'istio_cni_repair_pods_repaired_total{{result="{result}",type="{repair}"}}') == 1
    assert node.logged("debug", "error") == ([(level, f"{repair}: x", "shop/web")] if level else [])
    node.answers[VERIFY] = DIFFERS
    node.check()
    assert node.calls == [call], "only a pod without rules"


def test_a_pod_that_has_the_label_is_not_labelled_again(monkeypatch):
    node = Node(monkeypatch, running(labels={"cni.istio.io/uninitialized": "true"}), repair=LABEL)
    node.answers[VERIFY] = NO_RULES
    node.check()
    assert node.calls == []
    node = Node(monkeypatch, running(labels={"cni.istio.io/uninitialized": "false"}), repair=LABEL)
    node.answers[VERIFY] = NO_RULES
    node.check()
    assert len(node.calls) == 1


def test_a_label_s_value_is_all_that_follows_its_key(monkeypatch):
    node = Node(monkeypatch, repair=LABEL, repair_label="key=a=b")
    node.answers[VERIFY] = NO_RULES
    node.check()
    assert node.calls[0][1][2]["metadata"]["labels"] == {"key": "a=b"}


@pytest.mark.parametrize(("pod", "more"), [
    (running(ips=()), {}), (replace(running(), ended=True), {}), (replace(running(), host_network=True), {}),
    (running(), {"busy": ["shop-web"]}), (running(), {"exclude_namespaces": ("other", "shop")}),
    (running(annotations={"sidecar.istio.io/inject": "false"}), {}),
    (running(annotations={"traffic.sidecar.istio.io/includeInboundPorts": "x"}), {}),
])  # fmt: skip
def test_a_pod_that_is_not_to_be_captured_or_is_starting_is_not_checked(monkeypatch, pod, more):
    node = Node(monkeypatch, pod, **more)
    assert (node.check(), node.jobs) == ([], [])
    assert asyncio.run(node.sweeper.check_after_change(pod, "/n")) is False
    assert asyncio.run(node.sweeper.check_connections(pod, "/n")) is False
    assert node.jobs == []


@pytest.mark.parametrize(("answer", "is_drift"), [(JobResult(), False), (DIFFERS, True), (NO_RULES, True), (JobResult(error="x"), False)])
def test_a_check_after_a_change_says_whether_it_was_drift(monkeypatch, answer, is_drift):
    node = Node(monkeypatch)
    node.answers[VERIFY] = answer
    assert asyncio.run(node.sweeper.check_after_change(node.pods[0], "/n")) is is_drift
    assert (node.jobs[0].path, node.jobs[0].cgroup) == ("/n", "/host/sys/fs/cgroup/shop-web")


def test_a_pod_of_an_ambient_mesh_is_compared_with_each_of_its_possible_rules(monkeypatch):
    pod = running(annotations={REDIRECTION: "enabled"})
    node = Node(monkeypatch, pod)
    many = JobResult(differences=("a", "b"), ours=True)
    node.answers[VERIFY] = [many, JobResult(differences=("least",), ours=True), many, many]
    assert node.check() == [("web", DRIFTED, "least")]
    tried = [job.options("/x") for job in node.jobs]
    assert [(one.layout, one.ipv6, one.redirect_dns, one.reconcile) for one in tried] == [
        ("ambient", "on", True, True), ("ambient", "on", False, True), ("ambient", "off", True, True), ("ambient", "off", False, True),
    ]  # fmt: skip
    node.answers[VERIFY] = [many, JobResult()]
    assert node.check() == [("web", CAPTURED, "")]


def paths_of(kind, node):
    return [job.path.removeprefix("/run/netns/shop-") for job in node.jobs if job.kind == kind]


def test_one_process_looks_at_many_pods_and_each_where_something_may_have_changed_is_checked_in_one_of_its_own(monkeypatch):
    names = [f"pod{number}" for number in range(20)]
    node = Node(monkeypatch, *map(running, names), paths=[f"shop-{name}" for name in names])
    node.answers |= {VERIFY: DIFFERS, LOOK_AGAIN: lambda job: JobResult(pods=tuple(None if one.path.endswith("7") else JobResult(generation=3) for one in job.pods))}
    found = node.check()
    assert {name: state for name, state, _ in found} == {name: DRIFTED if name.endswith("7") else CAPTURED for name in names}
    looks = [job for job in node.jobs if job.kind == LOOK_AGAIN]
    assert [len(job.pods) for job in looks] == [16, 4]
    assert {one.path for job in looks for one in job.pods} == {f"/run/netns/shop-{name}" for name in names}
    assert {(one.kind, one.cgroup_folder, one.cgroup) for one in looks[1].pods[:1]} == {(VERIFY, "/host/sys/fs/cgroup", "/host/sys/fs/cgroup/shop-pod16")}
    assert sorted(paths_of(VERIFY, node)) == ["pod17", "pod7"]


@pytest.mark.parametrize("answer", [JobResult(error="killed", late=True), JobResult(pods=(JobResult(),)), JobResult(pods=(JobResult(),) * 3)], ids=["lost", "fewer", "more"])
def test_each_pod_is_checked_in_a_process_of_its_own_where_the_one_for_all_does_not_answer(monkeypatch, answer):
    node = Node(monkeypatch, running("a"), running("b"), paths=("shop-a", "shop-b"))
    node.answers |= {VERIFY: DIFFERS, LOOK_AGAIN: answer}
    assert [state for _, state, _ in node.check()] == [DRIFTED, DRIFTED]
    assert sorted(paths_of(VERIFY, node)) == ["a", "b"]


def test_a_pod_alone_and_one_whose_namespace_is_not_found_need_no_look_at_all_pods(monkeypatch):
    node = Node(monkeypatch, running("a"))
    node.check()
    assert {job.kind for job in node.jobs} <= {VERIFY}
    node = Node(monkeypatch, running("a"), running("lost"), paths=("shop-a",))
    node.answers[LOOK_AGAIN] = lambda job: JobResult(pods=(JobResult(),) * len(job.pods))
    assert [(name, state) for name, state, _ in node.check()] == [("a", CAPTURED), ("lost", UNKNOWN)]
    assert [len(job.pods) for job in node.jobs] == [1]


def test_of_an_ambient_mesh_s_pod_the_look_at_all_pods_tells_which_of_its_possible_rules_it_has(monkeypatch):
    ambient = running("b", annotations={REDIRECTION: "enabled"})
    node = Node(monkeypatch, running("a"), ambient, paths=("shop-a", "shop-b"))
    results = (JobResult(), JobResult(differences=("x",)), JobResult(generation=5), None, None)
    node.answers[LOOK_AGAIN] = JobResult(pods=results)
    assert [(name, state) for name, state, _ in node.check()] == [("a", CAPTURED), ("b", CAPTURED)]
    (look,) = node.jobs
    assert [job.options("/x").layout for job in look.pods] == ["current", "ambient", "ambient", "ambient", "ambient"]


def test_a_sweep_counts_states_watches_what_it_found_and_forgets_pods_that_are_gone(monkeypatch):
    web, lost = running(), running("lost")
    node = Node(monkeypatch, web, lost)
    node.answers[VERIFY] = DIFFERS
    assert asyncio.run(node.sweeper.sweep()) == {DRIFTED: 1, UNKNOWN: 1}
    assert [node.count(f'netinit_node_pods{{state="{state}"}}') for state in ("captured", "drifted", "without-rules", "unknown")] == [0, 1, 0, 1]
    assert node.watched == [("shop-web", "/run/netns/shop-web")]
    assert 0 < node.count("netinit_node_sweep_seconds") < 30
    (line,) = [json.loads(line) for line in node.stream.getvalue().splitlines() if "sweep: " in line]
    assert (line["level"], line["msg"]) == ("debug", "sweep: {'drifted': 1, 'unknown': 1}")
    assert line["seconds"] == pytest.approx(node.count("netinit_node_sweep_seconds"), abs=0.001)
    for pods, events in (([web], 1), ([], 1), ([web], 2)):
        node.pods[:] = pods
        asyncio.run(node.sweeper.sweep())
        assert len(node.events) == events


@pytest.mark.parametrize(("synced", "known"), [(True, {"shop-web", "shop-fixed", "static"}), (False, None)])
def test_a_sweep_forgets_the_records_of_pods_that_the_api_does_not_have_once_it_has_told_of_all(monkeypatch, synced, known):
    node = Node(monkeypatch, running(), running("fixed", annotations={"kubernetes.io/config.mirror": "static"}))
    node.pods.synced = synced
    asyncio.run(node.sweeper.sweep())
    assert node.sweeper.attachments.known == known


def counts(node):
    return {state: number for state in (CAPTURED, DRIFTED, BARE, UNKNOWN) if (number := node.count(f'netinit_node_pods{{state="{state}"}}'))}


@pytest.mark.parametrize(("repair", "answer", "left"), [
    (PROGRAM, NO_RULES, {CAPTURED: 1}), (PROGRAM, DIFFERS, {CAPTURED: 1}), (DELETE, NO_RULES, {}), (DELETE, DIFFERS, {DRIFTED: 1}),
    (LABEL, NO_RULES, {BARE: 1}), (REPORT, NO_RULES, {BARE: 1}), (PROGRAM, JobResult(error="unreadable"), {UNKNOWN: 1}),
])  # fmt: skip
def test_a_pod_that_was_repaired_is_not_counted_as_one_without_its_rules(monkeypatch, repair, answer, left):
    node = Node(monkeypatch, repair=repair)
    node.answers[VERIFY] = answer
    asyncio.run(node.sweeper.sweep())
    assert counts(node) == left


@pytest.mark.parametrize("failure", [JobResult(error="locked"), ClusterError("away", status=500)], ids=repr)
def test_a_pod_whose_repair_failed_is_counted_as_what_it_is(monkeypatch, failure):
    node = Node(monkeypatch, repair=PROGRAM if isinstance(failure, JobResult) else DELETE)
    node.answers |= {VERIFY: NO_RULES, APPLY: failure}
    node.error = failure if isinstance(failure, ClusterError) else None
    asyncio.run(node.sweeper.sweep())
    assert counts(node) == {BARE: 1}


def test_what_changes_between_two_sweeps_is_counted_at_once(monkeypatch):
    pod = running()
    node = Node(monkeypatch, pod)
    node.answers[VERIFY] = NO_RULES
    asyncio.run(node.sweeper.sweep())
    assert counts(node) == {BARE: 1}
    node.answers[VERIFY] = JobResult()
    asyncio.run(node.sweeper.check_after_change(pod, "/run/netns/shop-web"))
    assert counts(node) == {CAPTURED: 1}, "somebody has repaired it"
    node.pods.clear()
    assert counts(node) == {}


@pytest.mark.parametrize(("interval", "first"), [(300, 30.0), (7, 7.0)])
def test_the_first_sweep_is_soon_and_the_others_at_the_interval_that_is_asked_for(monkeypatch, interval, first):
    node = Node(monkeypatch, sweep_interval=interval * 10**9)
    now, swept = [100.0], []
    monkeypatch.setattr(sweep.time, "monotonic", lambda: now[0])

    class Sweeper(sweep.Sweeper):
        async def sweep(self):
            swept.append(now[0] - 100.0)

    async def pause(seconds):
        assert seconds == 2.0
        now[0] += 1.0
        if len(swept) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(sweep.asyncio, "sleep", pause)
    own = {name: getattr(node.sweeper, name) for name in ("settings", "client", "pod_cache", "programmer", "metrics", "log", "attachments", "is_busy")}
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Sweeper(**own).run())
    assert swept == [first, first + interval, first + 2 * interval]


def test_a_static_pod_is_found_by_the_uid_that_the_runtime_uses(monkeypatch):
    pod = running(annotations={"kubernetes.io/config.mirror": "static"})
    node = Node(monkeypatch, pod, paths=("static",))
    assert pod.static_uid == "static"
    assert node.check() == [("web", CAPTURED, "")]
    assert node.jobs[0].path == "/run/netns/static"


def test_connections_past_the_proxy_are_reported_at_most_once_a_minute(monkeypatch):
    node = Node(monkeypatch)
    clock = [1000.0]
    monkeypatch.setattr(sweep.time, "monotonic", lambda: clock[0])
    node.answers[JUDGE_CONNECTIONS] = JobResult(differences=("b to 2", "a to 1"))
    text = "2 open connections of the pod bypass the proxy, such as a to 1"
    for now, events in ((1000.0, 1), (1059.0, 1), (1060.0, 2)):
        clock[0] = now
        assert asyncio.run(node.sweeper.check_connections(node.pods[0], "/n")) is False
        assert node.events == [(INVOLVED, "Warning", "InterceptionBypassed", text)] * events
    assert node.logged() == [("warn", text, "shop/web")] * 2
    assert node.count("netinit_node_bypassing_total") == 3
    assert {(job.kind, job.path, job.seconds) for job in node.jobs} == {(JUDGE_CONNECTIONS, "/n", 30.0)}
    node.answers[JUDGE_CONNECTIONS] = JobResult()
    assert asyncio.run(node.sweeper.check_connections(node.pods[0], "/n")) is False
    assert node.count("netinit_node_bypassing_total") == 3
    node.answers[JUDGE_CONNECTIONS] = JobResult(error="no rights")
    with pytest.raises(NetinitError, match=r"^no rights$"):
        asyncio.run(node.sweeper.check_connections(node.pods[0], "/n"))


def test_a_connection_of_an_ambient_pod_bypasses_only_if_it_does_by_all_possible_rules(monkeypatch):
    node = Node(monkeypatch, running(annotations={REDIRECTION: "enabled"}))
    both = [JobResult(differences=("a", "b")), JobResult(differences=("b", "c"))]
    node.answers[JUDGE_CONNECTIONS] = both * 2
    asyncio.run(node.sweeper.check_connections(node.pods[0], "/n"))
    assert [text for _, _, _, text in node.events] == ["1 open connections of the pod bypass the proxy, such as b"]


# ---- what is not known


def test_a_pod_that_cannot_be_checked_is_reported_after_two_looks_once_whatever_the_reasons_and_again_after_an_answer(monkeypatch):
    node = Node(monkeypatch)
    events = 0
    for turn in range(2):
        for look in range(4):
            node.answers[VERIFY] = JobResult(error=f"reason {look}")
            node.check()
            events += look == 1
            assert [reason for _, _, reason, _ in node.events] == ["InterceptionUnknown"] * events
        assert node.events[-1] == (INVOLVED, "Warning", "InterceptionUnknown", "whether the pod is captured is unknown: reason 1")
        assert node.count("netinit_node_unknown_total") == 4 * (turn + 1)
        node.answers[VERIFY] = JobResult()
        node.check()
    assert node.logged() == [("warn", "whether the pod is captured is unknown: reason 1", "shop/web")] * 2
    assert {job.kind for job in node.jobs} == {VERIFY}


def test_a_pod_whose_foreign_rules_are_too_many_to_judge_is_unknown_and_not_captured(monkeypatch):
    node = Node(monkeypatch)
    node.answers[VERIFY] = JobResult(warnings=("other", f"{NOT_PROVED}: too many parts"))
    assert node.check() == [("web", UNKNOWN, f"{NOT_PROVED}: too many parts")]


def test_the_second_look_does_not_wait_for_the_next_sweep(monkeypatch):
    node = Node(monkeypatch, sweep_interval=10**12)
    monkeypatch.setattr(sweep, "_LOOK", 0.0)
    node.answers[VERIFY] = JobResult(error="killed")

    async def run():
        await node.sweeper.sweep()
        task = asyncio.create_task(node.sweeper.run())
        async with asyncio.timeout(60):
            while not node.events:  # noqa: ASYNC110 - of code that has no event for it
                await asyncio.sleep(0.01)
        looks = len(node.jobs)
        await asyncio.sleep(0.05)
        task.cancel()
        assert len(node.jobs) == looks == 2, "a pod that is reported waits for the sweep"

    asyncio.run(run())


@pytest.mark.parametrize(("repair", "unknown", "changes"), [
    (DELETE, False, []), (PROGRAM, False, []), (DELETE, True, ["delete", "delete"]), (LABEL, True, ["patch", "patch"]), (PROGRAM, True, [APPLY]),
])  # fmt: skip
def test_a_pod_that_is_unknown_is_repaired_only_where_the_settings_say_so(monkeypatch, repair, unknown, changes):
    node = Node(monkeypatch, repair=repair, repair_unknown=unknown)
    node.answers[VERIFY] = JobResult(error="x")
    for _ in range(3):
        node.check()
    assert [one for one, _, _ in node.calls] + [job.kind for job in node.jobs if job.kind != VERIFY] == changes


def test_a_pod_whose_namespace_is_not_found_is_never_deleted(monkeypatch):
    node = Node(monkeypatch, paths=(), repair=DELETE, repair_unknown=True)
    for _ in range(3):
        node.check()
    assert node.calls == []
    assert [text for _, _, _, text in node.events] == ["whether the pod is captured is unknown: its namespace is not found"]


def test_a_dormant_table_that_would_let_traffic_escape_is_reported_once_and_the_pod_is_captured(monkeypatch):
    node = Node(monkeypatch)
    text = f"{DORMANT_BYPASS}: nft table ip x"
    node.answers[VERIFY] = JobResult(warnings=(text,))
    for _ in range(2):
        assert node.check() == [("web", CAPTURED, text)]
    assert node.events == [(INVOLVED, "Warning", "InterceptionAtRisk", f"the pod's rules are as planned, but: {text}")]


@pytest.mark.parametrize("static", ["", "fixed"])
def test_the_pods_that_run_already_are_watched_where_they_are_to_be_captured_and_found(monkeypatch, static):
    pods = [running(annotations={"kubernetes.io/config.mirror": static}), running("lost"), running("plain", annotations={"sidecar.istio.io/inject": "false"})]
    node = Node(monkeypatch, *pods, paths=(static or "shop-web", "shop-plain"), busy=["shop-x"])
    told, check = [], object()

    async def run(given, is_busy):
        told.append((given is check, is_busy("shop-x"), is_busy("shop-web")))

    asyncio.run(node.sweeper.watch(SimpleNamespace(add=lambda *words: told.append(words), run=run), check))
    assert told == [("shop-web", f"/run/netns/{static or 'shop-web'}"), (True, True, False)]


# ---- changes between two looks


def looks(monkeypatch, *found, woken=False):
    """The sweeper and its events after looks, each at a time and with a generation and a result."""
    node = Node(monkeypatch)
    monkeypatch.setattr(sweep, "identify", lambda path: (1, 2))
    clock = [0.0]
    monkeypatch.setattr(sweep.time, "monotonic", lambda: clock[0])
    for clock[0], generation, result in found:
        node.answers[VERIFY] = replace(result, generation=generation)
        if woken:
            asyncio.run(node.sweeper.check_after_change(node.pods[0], "/n"))
        else:
            node.check()
    return node, [(reason, text) for _, _, reason, text in node.events]


def test_changes_that_were_undone_before_the_look_are_reported_at_most_once_a_minute_and_counted(monkeypatch):
    fine = JobResult()
    node, events = looks(
        monkeypatch, (1000.0, 7, fine), (1005.0, 7, fine), (1010.0, 9, fine), (1015.0, 12, fine), (1050.0, 12, fine), (1070.5, 13, fine), (1200.0, 13, fine)
    )
    text = "the pod's nf_tables changed {} times in {} s and are as planned now: what they were is unknown"
    assert events == [("InterceptionChanged", text.format(2, "5.0")), ("InterceptionChanged", text.format(4, "60.5"))]
    assert (node.count("netinit_node_rule_changes_total"), node.count("netinit_node_undone_total")) == (6, 3)


def test_a_drift_that_is_put_right_is_no_further_report(monkeypatch):
    assert [reason for reason, _ in looks(monkeypatch, (1.0, 7, JobResult()), (2.0, 8, DIFFERS), (3.0, 9, JobResult()))[1]] == ["InterceptionDrift"]


@pytest.mark.parametrize("between", [{"answer": JobResult(error="no rights")}, {"path": ""}])
def test_a_look_that_did_not_answer_or_found_no_namespace_is_no_look_to_compare_with(monkeypatch, between):
    node, _ = looks(monkeypatch, (1000.0, 7, JobResult()))
    pod = node.pods[0]
    clock = [1005.0]
    monkeypatch.setattr(sweep.time, "monotonic", lambda: clock[0])
    node.answers[VERIFY] = between.get("answer", JobResult())
    lost = replace(pod, exit_code=UNCAPTURED)
    asyncio.run(node.sweeper.check_after_change(lost if "path" in between else pod, between.get("path", "/n")))
    clock[0], node.answers[VERIFY] = 1010.0, JobResult(generation=9)
    asyncio.run(node.sweeper.check_after_change(pod, "/n"))
    assert node.events[-1][2:] == ("InterceptionChanged", "the pod's nf_tables changed 2 times in 10.0 s and are as planned now: what they were is unknown")


def test_a_kernel_without_nf_tables_has_no_generation_to_compare(monkeypatch):
    assert looks(monkeypatch, (1.0, 0, JobResult()), (2.0, 5, JobResult()), (3.0, 0, JobResult()))[1] == []


def test_a_pod_that_changes_its_rules_again_and_again_is_an_event_of_its_own(monkeypatch):
    found = [(1000.0 + 4 * number, 1 + 5 * number, JobResult()) for number in range(6)]
    assert [reason for reason, _ in looks(monkeypatch, *found)[1]] == ["InterceptionChanged", "InterceptionUnstable"]


def test_a_pod_that_changes_routes_again_and_again_is_told_by_its_notifications_alone(monkeypatch):
    found = [(1000.0 + 2 * number, 0, JobResult()) for number in range(12)]
    ((reason, text),) = looks(monkeypatch, *found, woken=True)[1]
    assert (reason, text) == ("InterceptionUnstable", "the pod's rules, devices or routes change again and again: at least 10 times in 18 s")


@pytest.mark.parametrize("later", [SPAN, QUIET + 1])
def test_a_script_that_sets_up_rules_once_and_one_change_later_is_not_called_unstable(later):
    history = PodHistory()
    for at, generation in ((1.0, 1), (1.1, 20), (1.5, 60), (2.5, 90), (3.4, 140), (3.4 + later, 141)):
        history.note_look((1, 2), generation, at, planned=True, woken=True)
        assert history.take_series(at) == (0, 0.0)


def test_a_pod_that_stays_unstable_is_told_again_after_a_while_and_sweeps_alone_find_it_too():
    history, told = PodHistory(), []
    for number in range(10):
        at = 300.0 * number
        history.note_look((1, 2), 1 + MANY * number, at, planned=True, woken=False)
        if history.take_series(at)[0]:
            told.append(at)
    assert told == [1200.0, 1200.0 + SILENCE, 1200.0 + 2 * SILENCE]


def test_another_namespace_of_the_same_pod_starts_anew_and_a_generation_may_overflow():
    history = PodHistory()
    assert history.note_look((1, 2), 0xFFFFFFFF, 1.0, planned=True, woken=False) == 0
    assert history.note_look((1, 2), 2, 2.0, planned=True, woken=False) == 3
    assert history.note_look((1, 3), 90, 3.0, planned=True, woken=False) == 0
    history.forget_rules()
    assert history.note_look((1, 3), 99, 4.0, planned=True, woken=False) == 0
    assert history.take_undone(5.0)[0] == 0


def test_without_sweeps_the_histories_of_pods_that_are_gone_are_forgotten_once_there_are_too_many(monkeypatch):
    monkeypatch.setattr(sweep, "MAX_WATCHED", 2)
    pods = [running(name) for name in ("a", "b", "c", "d", "e")]
    node = Node(monkeypatch, *pods)
    kept = [node.sweeper._history(pod) for pod in pods[:3]]
    assert [node.sweeper._history(pod) for pod in pods[:3]] == kept, "a pod that is known is not too many"
    node.pods[:] = pods[1:]
    node.sweeper._history(pods[3])
    assert sorted(node.sweeper._histories) == ["shop-b", "shop-c", "shop-d"]
    assert node.sweeper._history(pods[1]) is kept[1]


# ---- sweeps that do not end


def test_a_sweep_in_which_nothing_proceeds_is_given_up_and_the_next_one_says_why_it_cannot_read(monkeypatch):
    node = Node(monkeypatch)
    monkeypatch.setattr(sweep, "_STUCK", 0.1)
    released = threading.Event()

    def hang(uids, **_):
        released.wait(20)
        return {}

    monkeypatch.setattr(sweep, "find_namespaces", hang)

    async def run():
        with pytest.raises(NetinitError, match="the sweep was given up: nothing has proceeded"):
            await node.sweeper._sweep_in_time()
        with pytest.raises(NetinitError, match="files of the node cannot be read: an attempt from 0 s ago has not ended"):
            await node.sweeper._sweep_in_time()
        released.set()
        async with asyncio.timeout(60):
            while node.sweeper._files._begun:  # noqa: ASYNC110 - of code that has no event for it
                await asyncio.sleep(0.01)
        await node.sweeper._sweep_in_time()

    asyncio.run(run())


def test_a_sweep_of_many_slow_pods_goes_on_as_long_as_pods_are_checked(monkeypatch):
    node = Node(monkeypatch, *[running(f"web{number}") for number in range(12)], paths=[f"shop-web{number}" for number in range(12)])
    monkeypatch.setattr(sweep, "_STUCK", 0.5)
    monkeypatch.setattr(sweep, "_AT_ONCE", 1)
    do = node.do

    async def slowly(job):
        await asyncio.sleep(0.1)
        return await do(job)

    node.sweeper.programmer.do = slowly
    asyncio.run(node.sweeper._sweep_in_time())
    assert len(paths_of(VERIFY, node)) == 12


def test_the_age_of_the_last_sweep_is_a_metric_and_a_problem_where_it_is_more_than_two_intervals(monkeypatch):
    node = Node(monkeypatch, sweep_interval=10 * 10**9)
    clock = [float(int(time.monotonic()))]  # whose sums are exact
    monkeypatch.setattr(sweep.time, "monotonic", lambda: clock[0])
    asyncio.run(node.sweeper.sweep())
    clock[0] += 20 + sweep._STUCK
    assert (node.sweeper.problem(), node.count("netinit_node_sweep_age_seconds")) == ("", pytest.approx(320.0))
    clock[0] += 1
    assert node.sweeper.problem() == "the last complete sweep ended 321 s ago: drift may have been missed since"
    assert Node(monkeypatch, sweep=False).sweeper.problem() == ""


@pytest.mark.parametrize(("answer", "known", "looks"), [
    (JobResult(error="no rights"), ("web",), SURE - 1), (JobResult(error="no rights"), (), 0), (DIFFERS, ("web",), 0), (JobResult(), ("web",), 0),
])  # fmt: skip
def test_a_pod_whose_last_look_did_not_answer_is_looked_at_again_until_it_is_reported(monkeypatch, answer, known, looks):
    node = Node(monkeypatch, running(), running("other"), paths=("shop-web",), sweep=False, repair=REPORT)
    node.answers[VERIFY] = answer
    asyncio.run(node.sweeper.check_pods([pod for pod in node.pods if pod.name in known]))
    node.jobs.clear()
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 4:
            raise NetinitError("these are enough")

    monkeypatch.setattr(sweep.asyncio, "sleep", pause)
    with pytest.raises(NetinitError, match="enough"):
        asyncio.run(node.sweeper.run())
    assert pauses == [2.0] * 4
    assert [job.path for job in node.jobs if job.kind == VERIFY] == ["/run/netns/shop-web"] * looks


# ---- pods that appear


def follow(node, *changes):
    """The uids of the pods that were checked after each change of the node's pods, while the sweeper follows them."""
    found = []

    async def run():
        following = asyncio.create_task(node.sweeper.follow_pods())
        for change in changes:
            node.jobs.clear()
            change()
            for _ in range(5):
                await asyncio.sleep(0)
            node.pods.changed()
            for _ in range(5):
                await asyncio.sleep(0)
            while others := asyncio.all_tasks() - {following, asyncio.current_task()}:
                await asyncio.wait(others)
            found.append([job.path.rpartition("/")[2] for job in node.jobs if job.kind == VERIFY])
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(run())
    return found


def test_a_pod_that_the_plugin_was_not_asked_about_is_checked_as_soon_as_it_has_an_address(monkeypatch):
    node = Node(monkeypatch, running("web", ips=()), paths=("shop-web", "shop-asked", "shop-late"))
    node.answers[VERIFY] = NO_RULES
    node.sweeper.attachments.add("shop-asked")

    def put(*pods):
        return lambda: node.pods.__setitem__(slice(None), pods)

    web, asked = running("web"), running("asked")
    assert follow(node, put(running("web", ips=())), put(web), put(web, asked), put(running("web", version="8"), asked)) == [[], ["shop-web"], [], []]
    assert node.events == [(INVOLVED, "Warning", "InterceptionMissing", "the pod runs without its interception rules: missing: all")]
    assert node.watched == [("shop-web", "/run/netns/shop-web")]
    assert node.count("netinit_node_uncaptured_total") == 1
    # a new sandbox has other addresses; a validation that fails says that the rules are missing, whoever was asked
    assert follow(node, put(running("web", ips=("10.0.0.3",)), asked), put(running("asked", exit_code=UNCAPTURED))) == [["shop-web"], ["shop-asked"]]
    node.sweeper.attachments.add("shop-late", is_there=False)
    assert follow(node, put(running("late"))) == [["shop-late"]], "a record of an earlier sandbox says nothing"


@pytest.mark.parametrize(("answer", "paths", "count"), [
    (NO_RULES, ("shop-web",), 1), (NO_RULES, (), 0), (DIFFERS, ("shop-web",), 0), (JobResult(error="no rights"), ("shop-web",), 0), (JobResult(ours=True), ("shop-web",), 0),
])  # fmt: skip
def test_a_pod_that_appears_counts_as_uncaptured_where_it_has_a_namespace_without_rules(monkeypatch, answer, paths, count):
    node = Node(monkeypatch, running(exit_code=UNCAPTURED), paths=paths)
    node.answers[VERIFY] = answer
    follow(node, lambda: None)
    assert (node.count("netinit_node_uncaptured_total") or 0, [uid for uid, _ in node.watched]) == (count, list(paths))


@pytest.mark.parametrize(("repair", "calls", "jobs"), [(REPORT, [], 0), (DELETE, ["delete"], 0), (LABEL, ["patch"], 0), (PROGRAM, [], 1)])
def test_a_pod_that_appears_without_rules_is_repaired_as_the_settings_say(monkeypatch, repair, calls, jobs):
    node = Node(monkeypatch, repair=repair)
    node.answers[VERIFY] = NO_RULES
    kinds = []
    do = node.sweeper.programmer.do
    node.sweeper.programmer.do = lambda job: kinds.append(job.kind) or do(job)
    follow(node, lambda: None)
    assert ([call[0] for call in node.calls], kinds.count(APPLY)) == (calls, jobs)


def test_a_pod_that_the_api_has_not_changed_is_not_decided_about_again(monkeypatch):
    node, decided = Node(monkeypatch, running(), running("lost")), []
    monkeypatch.setattr(sweep.Sweeper, "_options_of", lambda self, pod: decided.append(pod.name))
    for _ in range(3):
        assert node.sweeper._find_appeared() == []
    assert decided == ["web", "lost"]
    node.pods[0] = running(version="8")
    node.sweeper._find_appeared()
    assert decided == ["web", "lost", "web"]
    node.pods.pop(0)
    node.sweeper._find_appeared()
    assert {*node.sweeper._considered} == {"shop-lost"}


def test_a_pod_whose_check_was_cut_off_is_checked_by_the_next_run(monkeypatch):
    node = Node(monkeypatch)

    async def fail(work):
        raise NetinitError("files of the node cannot be read")

    files = node.sweeper._files
    node.sweeper._files = SimpleNamespace(run=fail)
    with pytest.raises(ExceptionGroup):
        asyncio.run(node.sweeper.follow_pods())
    node.sweeper._files = files
    assert follow(node, lambda: None) == [["shop-web"]]


def test_a_pod_that_is_being_programmed_is_looked_at_when_that_is_done(monkeypatch):
    busy = {"shop-web"}
    node = Node(monkeypatch, busy=busy)
    assert follow(node, lambda: None, busy.clear) == [[], ["shop-web"]]
