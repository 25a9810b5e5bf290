"""The agent's verbs in one process, on a machine in memory: what is programmed, compared, removed, remembered and answered."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from memory_machine import MemoryMachine
from netinit.base.errors import ClusterError, CniError, NetinitError, ParseError
from netinit.base.version import __version__
from netinit.kernel import answers
from netinit.node import agent as agent_module
from netinit.node.agent import Agent
from netinit.node.decision import decide, read_pod
from netinit.node.jobs import APPLY, REMOVE, REPAIR_PROBES, VERIFY, Job, JobResult
from netinit.node.metrics import NodeMetrics
from netinit.node.pod_records import Attachments, find_namespaces
from netinit.node.protocol import parse_request
from netinit.node.server import AgentServer
from netinit.node.settings import AgentSettings
from netinit.options import Options
from netinit.pods.apply import apply, remove
from netinit.pods.attachments import Attachment
from netinit.pods.verify import verify
from netinit.serving.event_log import EventLog
from node_agent import make_pod

SETTINGS = AgentSettings(node="n", namespace="mesh")


def pass_on(result):
    return JobResult.check(answers.decode(answers.encode(result)))


class MemoryLink:
    """Does jobs on a machine in memory, through the messages of the real one; `error` is what happens to the next."""

    def __init__(self):
        self.machine = MemoryMachine()
        self.jobs = []
        self.error = None

    async def do(self, job, namespace=-1):
        job = Job.decode(job.encode())
        self.jobs.append(job.kind)
        if self.error:
            return pass_on(self.error)
        options = job.options("/pretended")
        try:
            if job.kind == VERIFY:
                report = verify(options, self.machine)
                found = JobResult(differences=tuple(one.describe() for one in report.differences), ours=report.ours)
            else:
                done = (apply if job.kind == APPLY else remove)(options, locked=True, machine=self.machine)
                found = JobResult(backend=done.backend, changed=done.changed)
        except NetinitError as error:
            found = JobResult(error=str(error))
        return pass_on(found)


class FixedPodCache:
    """The pods that the watch has told of; `find` is what the API answers about others, which is asked once more where it insists."""

    synced, error, api_error = True, "", ""

    def __init__(self, *trees):
        self.pods = {(pod.namespace, pod.name): pod for pod in map(read_pod, trees)}

    def known(self, namespace, name, uid):
        return self.pods.get((namespace, name))

    async def find(self, namespace, name, uid, deadline, *, insists=True):
        raise CniError("not known", 11)


@pytest.fixture
def agent(tmp_path):
    stream = io.StringIO()
    made = Agent(
        SETTINGS, pod_cache=FixedPodCache(make_pod("web"), make_pod("plain", annotations={"sidecar.istio.io/inject": "false"})), programmer=MemoryLink(),
        attachments=Attachments(tmp_path / "attachments"), metrics=NodeMetrics(), log=EventLog("debug", stream=stream),
    )  # fmt: skip
    made.stream = stream
    return made


def ask(agent, verb="ADD", *, pod="shop/web", version="1.0.0", seconds=5.0, variables=(), opened=True, **more):
    namespace, _, name = pod.partition("/")
    arguments = f"K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}" if name else ""
    given = {"CNI_COMMAND": verb, "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": "/n", "CNI_ARGS": arguments, **dict(variables)}
    data = b"".join(f"{key}={value}".encode() + b"\0" for key, value in given.items())
    request = parse_request(data, json.dumps({"cniVersion": version, "name": "net", **more}).encode())
    with open(os.devnull) as file:  # noqa: PTH123 - a descriptor in the place of a namespace's
        answer = asyncio.run(agent.answer(request, file.fileno() if opened else -1, time.monotonic() + seconds))
    head, _, body = answer.partition(b"\n")
    return int(head.split()[2]), json.loads(body) if body else None


def logged(agent):
    """What was logged: level, message, and the fields besides the time that it took."""
    lines = [line.split("\t")[1:] for line in agent.stream.getvalue().splitlines()]
    return [[part for part in line if not part.startswith("milliseconds=")] for line in lines]


def rules(agent):
    return agent.programmer.machine.snapshot()


def test_add_programs_check_compares_and_del_takes_back(agent):
    before = rules(agent)
    assert ask(agent, prevResult={"ips": [{"address": "10.0.0.2/24"}]}) == (0, {"ips": [{"address": "10.0.0.2/24"}]})
    assert "ISTIO_INBOUND" in rules(agent)
    assert ask(agent, "CHECK") == (0, None)
    assert ask(agent, "DEL") == (0, None)
    assert rules(agent) == before
    code, tree = ask(agent, "CHECK")
    assert (code, tree["code"]) == (1, 102)
    assert "missing" in tree["msg"]
    assert agent.programmer.jobs == [APPLY, VERIFY, REMOVE, VERIFY]


@pytest.mark.parametrize("pod", ["shop/plain", "kube-system/any", "mesh/netinit-node-ab3de", ""])
def test_pods_that_are_left_alone_cost_no_job(agent, pod):
    assert ask(agent, pod=pod)[0] == 0
    assert ask(agent, "CHECK", pod=pod)[0] == 0
    assert agent.programmer.jobs == []


@pytest.mark.parametrize(
    ("result", "code"),
    [(JobResult(error="x"), 100), (JobResult(error="x", late=True), 11), (JobResult(error="x", gone=True), 3)],
    ids=["refused", "late", "gone"],
)
def test_what_fails_has_a_code_by_its_kind_and_is_remembered_for_status(agent, result, code):
    agent.programmer.error = result
    assert ask(agent)[1]["code"] == code
    assert agent.last_errors == ["ADD shop/web: x"]
    assert [one.container for one in agent.attachments] == ["c1"], "the DEL that follows knows what may be left"
    assert not agent.in_progress


def test_a_namespace_that_the_plugin_could_not_open_is_to_be_tried_again_for_pods_that_are_captured_alone(agent):
    unopened = {"variables": {"NETINIT_NETNS_ERRNO": "13"}, "opened": False}
    for verb in ("ADD", "CHECK"):
        code, tree = ask(agent, verb, **unopened)
        assert (code, tree["code"]) == (1, 11)
        assert tree["msg"] == 'netinit: the pod\'s network namespace "/n" cannot be opened on the node: Permission denied'
        assert ask(agent, verb, pod="shop/plain", **unopened)[0] == 0
    assert ask(agent, "DEL", **unopened) == (0, None)
    assert agent.programmer.jobs == []


def test_a_request_whose_time_is_over_is_told_to_come_again(agent):
    assert ask(agent, seconds=-1)[1]["code"] == 11
    assert agent.programmer.jobs == []


def test_a_fault_of_our_own_makes_the_pod_wait(agent):
    agent.pod_cache.pods[("shop", "web")] = object()
    code, tree = ask(agent)
    assert (code, tree["code"]) == (1, 11)
    assert tree["msg"] == "netinit: internal error; the agent's log has details"


def test_a_list_for_runtimes_without_kubernetes_says_what_is_captured(agent):
    assert ask(agent, pod="", capture=["-b", "*", "-i", "*"])[0] == 0
    assert agent.programmer.jobs == [APPLY]
    assert ask(agent, pod="", capture=["--no-such-flag"])[1]["code"] == 7
    assert ask(agent, pod="shop/plain", capture=["-b", "*"])[0] == 0
    assert agent.programmer.jobs == [APPLY], "a pod of Kubernetes goes by its own annotations"


def test_such_a_list_has_no_backend_of_its_own_and_repairs_what_is_there(agent):
    agent.settings = SETTINGS.replace(backend="nftables")
    asked = []

    async def do(job, _=-1):
        asked.append(job.options("/n"))
        return JobResult(backend="b")

    agent.programmer.do = do
    ask(agent, pod="", capture=["-b", "80", "--backend", "iptables-legacy"])
    (made,) = asked
    assert (made.inbound_ports, made.backend, made.reconcile) == ((80,), "nftables", True)


def test_del_does_not_touch_a_namespace_that_it_does_not_know(agent):
    ask(agent)
    (known,) = agent.attachments
    agent.attachments.put(type(known)(**{**{name: getattr(known, name) for name in known.__slots__}, "inode": 1}))
    assert ask(agent, "DEL") == (0, None)
    assert agent.programmer.jobs == [APPLY]
    assert list(agent.attachments) == []


EXCLUDED = "left alone: its namespace kube-system is excluded"


@pytest.mark.parametrize(("pod", "reason", "field"), [
    ("kube-system/any", EXCLUDED, ["pod=kube-system/any"]), ("", "left alone: the runtime names no pod of Kubernetes", ["pod=/"]),
    ("mesh/netinit-node-ab3de", "left alone: it is the agent's own", ["pod=mesh/netinit-node-ab3de"]),
    ("shop/plain", "left alone: sidecar.istio.io/inject is false", ["pod=shop/plain"]),
])  # fmt: skip
def test_the_log_says_why_a_pod_is_left_alone(agent, pod, reason, field):
    ask(agent, pod=pod)
    assert logged(agent) == [["debug", reason, *field]]
    assert 'netinit_node_requests_total{outcome="left-alone",verb="ADD"} 1.0' in agent.metrics.text().decode()


def test_the_log_and_the_metrics_say_what_was_done(agent):
    backend = "iptables-nft"
    for verb in ("ADD", "ADD", "CHECK", "DEL", "DEL"):
        ask(agent, verb)
    assert logged(agent) == [
        ["info", f"programmed by {backend}", "pod=shop/web"], ["info", f"rules are as planned ({backend})", "pod=shop/web"],
    ]  # fmt: skip
    text = agent.metrics.text().decode()
    for verb, outcome, number in (("ADD", "programmed", 2), ("CHECK", "ok", 1), ("DEL", "ok", 1), ("DEL", "left-alone", 1)):
        assert f'netinit_node_requests_total{{outcome="{outcome}",verb="{verb}"}} {number}.0' in text
    assert 'netinit_node_request_seconds_count{verb="ADD"} 2.0' in text
    assert "netinit_node_requests_in_flight 0.0" in text
    assert not any("milliseconds=-" in line for line in agent.stream.getvalue().splitlines())


def test_how_long_an_add_took_is_logged_in_milliseconds_and_counted_in_seconds(agent, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(agent_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def do(job, _=-1):
        now[0] += 0.0123456
        return JobResult(backend="b", changed=True)

    agent.programmer.do = do
    data = answer_until(agent, make_request("ADD"), 1005.0)
    assert data.startswith(b"netinit-cni 1 0 ")
    assert agent.stream.getvalue().rstrip().endswith("\tprogrammed by b\tpod=shop/web\tmilliseconds=12.35")
    (line,) = [line for line in agent.metrics.text().decode().splitlines() if line.startswith('netinit_node_request_seconds_sum{verb="ADD"}')]
    assert float(line.split()[1]) == pytest.approx(0.0123456)


@pytest.mark.parametrize(("left", "code"), [(0.001, 0), (0.0, 1), (-0.001, 1)])
def test_a_job_has_what_is_left_of_the_request_s_time(agent, monkeypatch, left, code):
    monkeypatch.setattr(agent_module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    given = []

    async def do(job, _=-1):
        given.append(job.seconds)
        return JobResult(backend="b")

    agent.programmer.do = do
    assert int(answer_until(agent, make_request("ADD"), 1000.0 + left).split()[2]) == code
    assert given == [pytest.approx(left)] * (not code)


@pytest.mark.parametrize(("request_of", "uid"), [({"pod": "shop/web"}, "uid-shop-web"), ({"pod": "", "capture": ["-b", "*"]}, "")])
def test_a_pod_is_in_progress_while_it_is_programmed(agent, request_of, uid):
    seen = []

    async def do(job, _=-1):
        seen.append(dict(agent.in_progress))
        return JobResult(backend="b")

    agent.programmer.do = do
    assert ask(agent, **request_of)[0] == 0
    assert (seen, dict(agent.in_progress)) == ([{uid: 1}], {})


def test_a_pod_of_two_interfaces_is_in_progress_until_both_are_programmed(agent):
    seen, released = [], {}

    async def do(job, _=-1):
        seen.append(dict(agent.in_progress))
        await released[len(seen)].wait()
        return JobResult(backend="b")

    async def run():
        released.update({1: asyncio.Event(), 2: asyncio.Event()})
        agent.programmer.do = do
        tasks = [asyncio.create_task(agent.answer(make_request("ADD", interface=name), -1, time.monotonic() + 60)) for name in ("eth0", "net1")]
        while len(seen) < 2:  # noqa: ASYNC110 - of code that has no event for it
            await asyncio.sleep(0)
        for number, task in enumerate(tasks, 1):
            released[number].set()
            await task
            seen.append(dict(agent.in_progress))

    asyncio.run(run())
    assert seen == [{"uid-shop-web": 1}, {"uid-shop-web": 2}, {"uid-shop-web": 1}, {}]


@pytest.mark.parametrize(("listed", "deadline", "latest"), [(True, 1030.0, 1002.0), (True, 1001.5, 1001.5), (False, 1030.0, 1030.0)])
def test_the_api_has_two_seconds_to_tell_of_a_pod_that_is_probably_outside_of_the_mesh(agent, tmp_path, monkeypatch, listed, deadline, latest):
    monkeypatch.setattr(agent_module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    asked = []

    async def find(namespace, name, uid, until, *, insists):
        asked.append((namespace, name, until, insists))
        raise ClusterError("away")

    agent.pod_cache.find, agent.outside = find, tmp_path / "outside"
    agent.outside.write_text("shop\n" if listed else "batch\n")
    answer_until(agent, make_request("ADD", pod="new"), deadline)
    assert asked == [("shop", "new", latest, not listed)]


@pytest.mark.parametrize(("errno", "namespace", "is_done"), [(13, -1, False), (13, 0, True), (13, 7, True), (0, -1, True), (0, 0, True)])
def test_what_kept_the_plugin_from_a_namespace_counts_where_no_descriptor_came(agent, errno, namespace, is_done):
    done = []

    async def do(job, given=-1):
        done.append(given)
        return JobResult(backend="b")

    agent.programmer.do = do
    request = replace(make_request("CHECK"), unopened=errno)
    asyncio.run(agent.answer(request, namespace, time.monotonic() + 60))
    assert done == [namespace] * is_done


@pytest.mark.parametrize(("netns", "is_known", "path"), [("/n", False, "/n"), ("/n", True, "/n"), ("", True, "/recorded"), ("", False, "")])
def test_a_pod_is_no_longer_watched_where_its_namespace_was_when_a_del_names_none(agent, netns, is_known, path):
    told = []
    agent.watchers = (SimpleNamespace(forget=lambda *words: told.append(words)),)
    if is_known:
        agent.attachments.put(Attachment(container="c1", interface="eth0", namespace="shop", name="web", uid="u", netns="/recorded", device=0, inode=0, environ={}))
    assert asyncio.run(agent.answer(replace(make_request("DEL"), netns=netns), -1, time.monotonic() + 60)).startswith(b"netinit-cni 1 0 ")
    assert told == [(None, path)]


def test_a_namespace_that_cannot_be_identified_is_noted_as_none(agent, monkeypatch):
    monkeypatch.setattr(agent_module, "identify", lambda _: None)
    ask(agent)
    (known,) = agent.attachments
    assert (known.device, known.inode) == (0, 0)


@pytest.mark.parametrize(("addresses", "ipv6"), [(["10.0.0.2/24"], "off"), (["fd00::2/64"], "on"), ([], "auto")])
def test_the_addresses_that_earlier_plugins_gave_decide_about_ipv6(agent, addresses, ipv6):
    asked = []

    async def do(job, _=-1):
        asked.append(job.options("/n").ipv6)
        return JobResult(backend="b")

    agent.programmer.do, agent.settings = do, SETTINGS.replace(backend="iptables-nft")
    ask(agent, prevResult={"ips": [{"address": one} for one in addresses]})
    assert asked == [ipv6]


def test_the_uid_that_the_runtime_passes_decides_which_pod_is_meant(agent):
    asked = []
    agent.pod_cache.known = lambda *words: asked.append(words)

    async def find(*words, insists):
        asked.append((*words[:3], round(words[3] - time.monotonic()), insists))
        raise ClusterError("away")

    agent.pod_cache.find = find
    for verb in ("ADD", "CHECK"):
        request = replace(make_request(verb), uid="u-1")
        assert asyncio.run(agent.answer(request, -1, time.monotonic() + 60)).startswith(b"netinit-cni 1 1 ")
        assert asked == [("shop", "web", "u-1"), ("shop", "web", "u-1", 60, True)]
        asked.clear()


def test_a_list_for_runtimes_without_kubernetes_has_the_node_s_dialect_and_its_error_is_the_option_s(agent):
    agent.settings, asked = SETTINGS.replace(native_nftables=True), []

    async def do(job, _=-1):
        asked.append(job.options("/n"))
        return JobResult(backend="b")

    agent.programmer.do = do
    ask(agent, pod="", capture=["-b", "80"])
    assert [one.native_nftables for one in asked] == [True]
    assert "nonsense" in ask(agent, pod="", capture=["-b", "nonsense"])[1]["msg"]
    assert ask(agent, pod="", capture="-b 80")[0] == 0
    assert len(asked) == 1, "what is no list of words captures nothing"


def answer_until(agent, request, deadline):
    with open(os.devnull) as file:  # noqa: PTH123 - a descriptor in the place of a namespace's
        return asyncio.run(agent.answer(request, file.fileno(), deadline))


def test_warnings_of_an_add_and_a_removal_that_fails_are_logged_and_the_pod_goes_on(agent):
    async def do(job, _=-1):
        if job.kind == APPLY:
            return JobResult(backend="b", changed=True, warnings=("first", "second"))
        return JobResult(error="locked")

    agent.programmer.do = do
    assert ask(agent)[0] == 0
    assert ask(agent, "DEL") == (0, None)
    assert logged(agent) == [
        ["warn", "first", "pod=shop/web"], ["warn", "second", "pod=shop/web"], ["info", "programmed by b", "pod=shop/web"],
        ["warn", "DEL: the rules were not removed: locked", "pod=shop/web"],
    ]  # fmt: skip
    assert list(agent.attachments) == []


def test_an_error_is_logged_and_the_last_ten_are_remembered(agent):
    agent.programmer.error = JobResult(error="x" * 400)
    ask(agent)
    assert logged(agent) == [["error", f"ADD: {'x' * 400}", "pod=shop/web", "container=c1"]]
    assert agent.last_errors == [f"ADD shop/web: {'x' * 300}…"]
    for number in range(10):
        agent.programmer.error = JobResult(error=f"{number}")
        ask(agent)
    assert agent.last_errors == [f"ADD shop/web: {number}" for number in range(10)]
    agent.pod_cache.pods[("shop", "web")] = object()
    ask(agent)
    assert agent.last_errors[-1].startswith("ADD shop/web: internal error: AttributeError: ")
    assert 'netinit_node_requests_total{outcome="failed",verb="ADD"} 12.0' in agent.metrics.text().decode()


def test_a_record_that_cannot_be_written_is_a_warning_and_the_pod_starts(agent):
    def put(_):
        raise OSError(28, "No space left on device")

    agent.attachments.put = put
    assert ask(agent)[0] == 0
    assert logged(agent)[0] == ["warn", "what was programmed cannot be noted: No space left on device", "pod=shop/web"]


def test_a_record_is_worth_no_wait_for_the_disk(agent, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("records are lost with the node's pods"))
    ask(agent)
    assert len([*agent.attachments]) == 1


def test_a_record_has_all_that_later_requests_and_sweeps_need(agent):
    ask(agent)
    (known,) = agent.attachments
    assert (known.container, known.interface, known.namespace, known.name, known.netns) == ("c1", "eth0", "shop", "web", "/n")
    assert known.uid == "uid-shop-web"
    assert known.options == decide(read_pod(make_pod("web")), SETTINGS.base).options
    place = os.stat(os.devnull)  # noqa: PTH116 - the file in the place of a namespace
    assert (known.device, known.inode) == (place.st_dev, place.st_ino)


def test_a_pod_is_watched_from_its_add_to_its_del(agent):
    told = []
    agent.watchers = (SimpleNamespace(add=lambda *words: told.append(("add", *words)), forget=lambda *words: told.append(("forget", *words))),)
    place = os.stat(os.devnull)  # noqa: PTH116 - the file in the place of a namespace
    ask(agent)
    ask(agent, pod="", capture=["-b", "*"])
    ask(agent, "DEL")
    assert told == [("add", "uid-shop-web", "/n"), ("forget", (place.st_dev, place.st_ino), "/n")]


def test_check_names_the_first_difference_and_the_others_are_details(agent):
    async def do(job, _=-1):
        return JobResult(differences=("one", "two", "three"))

    agent.programmer.do = do
    expected = {"cniVersion": "1.0.0", "code": 102, "msg": "netinit: the pod's rules differ from the plan: one", "details": "two\nthree"}
    assert ask(agent, "CHECK") == (1, expected)


def test_gc_forgets_what_the_runtime_no_longer_has(agent):
    ask(agent)
    valid = [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "eth0"}, "odd"]
    other = [{"containerID": "c1", "ifname": "eth1"}]
    for key, kept in (("cni.dev/valid-attachments", valid), ("cni.dev/attachments", valid), ("cni.dev/valid-attachments", other)):
        assert ask(agent, "GC", version="1.1.0", **{key: kept}) == (0, None)
    assert list(agent.attachments) == []
    assert logged(agent)[1:] == [["info", f"GC: forgot {gone}"] for gone in ("0 containers, 3 remain", "0 containers, 3 remain", "1 containers, 1 remain")]
    code, tree = ask(agent, "GC", version="1.1.0")
    assert (code, tree["code"], tree["msg"]) == (1, 7, "netinit: GC: cni.dev/valid-attachments is not a list")


def test_the_obstacle_is_that_of_the_pods(agent):
    assert agent.obstacle() == ""
    agent.pod_cache.synced = False
    assert agent.obstacle() == "the node's pods are not known yet: the API was not asked yet"
    agent.pod_cache.error = "401"
    assert agent.obstacle() == "the node's pods are not known yet: 401"


def test_a_request_without_time_says_so(agent):
    assert ask(agent, seconds=-1)[1]["msg"] == "netinit: there was no time left to program the pod"


@pytest.mark.parametrize(("seconds", "asked", "timeout"), [(3.0, "30s", 3.0), (60.0, "2s", 2.0), (0.0, "2s", 1e-9), (-5.0, "2s", 1e-9)])
def test_a_job_waits_for_the_lock_no_longer_than_it_has_time(seconds, asked, timeout):
    given = Options.from_argv(["--lock-timeout", asked, "--host-network", "--pid", "7"])
    for kind in (APPLY, REMOVE, VERIFY):
        made = Job.of(kind, given, seconds=seconds).options("/n")
        assert (made.lock_timeout, made.netns, made.pid) == (round(timeout * 10**9), "/n", 0)
        assert (made.cni_mode, made.host_network, made.cleanup_only) == (True, False, kind == REMOVE)


def test_a_job_is_the_same_after_its_message():
    options = Options(inbound_ports="80", exclude_outbound_cidrs="10.0.0.0/8", inbound_mode="TPROXY", backend="nftables", reconcile=True)
    job = Job.of(APPLY, options, seconds=3.0)
    read = Job.decode(job.encode()).options("/n")
    assert read == options.replace(netns="/n", cni_mode=True, lock_timeout=3 * 10**9)
    wrong = "this is not a job: a field has the wrong type"
    for bad, said in {
        b"": "this is not a job: Expecting value: line 1 column 1 (char 0)", b'{"kind": "apply"}': "this is not a job: 'uids'",
        job.encode().replace(b'"apply"', b'"dance"'): wrong, job.encode().replace(b"3.0", b'"x"'): wrong,
    }.items():  # fmt: skip
        with pytest.raises(NetinitError) as raised:
            Job.decode(bad)
        assert str(raised.value) == said
    with pytest.raises(NetinitError, match=r"^this is not a job: "):
        Job.decode(b"[]")


@pytest.mark.parametrize("address", ["10.0.0.1 }; flush ruleset; add element inet t s { 10.0.0.2", "10.0.0.1\ndestroy", "", "web"])
def test_the_process_with_the_rights_takes_only_addresses_into_what_it_programs(address):
    assert Job.decode(Job.of(REPAIR_PROBES, Options(), seconds=1.0, uids={"fd00:0::1": "u"}).encode()).uids == {"fd00::1": "u"}
    with pytest.raises(ParseError, match="is not an IP address"):
        Job.decode(Job.of(REPAIR_PROBES, Options(), seconds=1.0, uids={address: "u"}).encode())


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        *[(one, "") for one in (None, "done", {"error": ""}, JobResult(judgement=7), JobResult(error=None), JobResult(warnings=["a"]))],
        *[(one, ": a difference or warning is not a text") for one in (JobResult(differences=("a", 1)), JobResult(warnings=("a", None)))],
    ],
)  # fmt: skip
def test_an_answer_that_is_no_result_is_refused(answer, part):
    with pytest.raises(ParseError) as raised:
        pass_on(answer)
    assert str(raised.value) == f"this is not a result{part}"


HELP = {
    "istio_cni_repair_pods_repaired_total": "Pods found uncaptured.",
    "istio_cni_installs_total": "Attempts to install the plugin.",
    "istio_cni_install_ready": "1 while the plugin is in place and the agent answers.",
    "netinit_node_requests_total": "Requests of the runtime.",
    "netinit_node_request_seconds": "From a request's first byte to its answer.",
    "netinit_node_requests_in_flight": "Requests being answered.",
    "netinit_node_pods": "Pods by what their last check found; repaired ones are captured.",
    "netinit_node_host_probes": "Addresses of ambient pods by the state of their probes.",
    "netinit_node_sweep_seconds": "How long the last sweep took.",
    "netinit_node_sweep_age_seconds": "Since the last complete sweep, or the agent's start.",
    "netinit_node_unknown_total": "Checks that could not say whether a pod is captured.",
    "netinit_node_rule_changes_total": "Transactions of nf_tables in captured pods.",
    "netinit_node_undone_total": "Checks of a changed pod that found the rules as planned.",
    "netinit_node_drift_total": "Pods found with other rules than planned.",
    "netinit_node_watched_pods": "Pods whose changes wake the agent.",
    "netinit_node_looks_total": "Checks of a pod because something in it has changed.",
    "netinit_node_connection_looks_total": "Checks of the open connections of a pod.",
    "netinit_node_bypassing_total": "Checks that found open connections that bypass the proxy.",
    "netinit_node_notifications_dropped_total": "Sockets whose buffer overflowed.",
    "netinit_node_drift_seconds": "From a change to its report and repair.",
    "netinit_node_api_error": "1 while the API is unreachable.",
    "netinit_node_list_preceded": "1 while another list of the node sorts before the agent's own.",
    "netinit_node_uncaptured_total": "Pods that started without their rules.",
}


def test_each_metric_says_what_it_counts():
    texts = dict(line.split(" ", 3)[2:] for line in NodeMetrics().text().decode().splitlines() if line.startswith("# HELP"))
    shared = {name: text for name, text in texts.items() if not name.startswith("process_") and name != "netinit_build_info"}
    assert shared == HELP


def test_each_metric_has_its_labels_and_a_histogram_its_buckets():
    metrics = NodeMetrics()
    for name, values in {
        "repairs": "AB", "installs": "A", "requests": "AB", "seconds": "A", "pods": "A", "probes": "A",
    }.items():  # fmt: skip
        getattr(metrics, name).labels(*values)
    lines = [line.rpartition(" ")[0] for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    assert {line for line in lines if "{" in line and "_bucket" not in line} == {
        f'netinit_build_info{{component="node",version="{__version__}"}}',
        'istio_cni_repair_pods_repaired_total{result="B",type="A"}', 'istio_cni_installs_total{result="A"}',
        'netinit_node_requests_total{outcome="B",verb="A"}', 'netinit_node_request_seconds_count{verb="A"}',
        'netinit_node_request_seconds_sum{verb="A"}', 'netinit_node_pods{state="A"}', 'netinit_node_host_probes{state="A"}',
    }  # fmt: skip
    bounds = ["0.002", "0.005", "0.01", "0.015", "0.02", "0.03", "0.05", "0.1", "0.2", "0.5", "1.0", "2.0", "5.0", "10.0", "30.0", "+Inf"]
    assert [line for line in lines if "_bucket" in line] == [
        f'netinit_node_{name}_bucket{{le="{bound}"{more}}}' for name, more in (("request_seconds", ',verb="A"'), ("drift_seconds", "")) for bound in bounds
    ]
    assert not any("_created" in line for line in lines)


@pytest.mark.parametrize(("asked", "wanted"), [("warn", ["warn"]), ("default:debug", ["warn", "info", "debug"])])
def test_the_agent_logs_from_the_level_of_its_settings_on(asked, wanted):
    ours, programmer = socket.socketpair()
    with ours, programmer:
        log = AgentServer(SETTINGS.replace(log_level=asked), ours, None, ours, programmer).log
    assert [level for level in ("warn", "info", "debug") if log.wants(level)] == wanted


@pytest.mark.parametrize("as_json", [True, False])
def test_the_agent_logs_json_where_its_settings_ask_for_it(capsys, as_json):
    ours, programmer = socket.socketpair()
    with ours, programmer:
        AgentServer(SETTINGS.replace(log_as_json=as_json), ours, None, ours, programmer).log.event("warn", "a line", pod="shop/web")
    line = capsys.readouterr().err
    assert line.startswith("{") is as_json
    assert (json.loads(line)["msg"] if as_json else line.split("\t")[2]) == "a line"


# ---- requests of one container, in their order


def make_request(verb, *, pod="web", container="c1", interface="eth0"):
    variables = {
        "CNI_COMMAND": verb, "CNI_CONTAINERID": container, "CNI_IFNAME": interface, "CNI_NETNS": "/n",
        "CNI_ARGS": f"K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod}",
    }  # fmt: skip
    data = b"".join(f"{key}={value}".encode() + b"\0" for key, value in variables.items())
    return parse_request(data, json.dumps({"cniVersion": "1.0.0", "name": "net"}).encode())


def answer_all(agent, *requests, seconds=20.0):
    """Whether each request was answered with success; they come in this order, one right after the other."""

    async def run():
        tasks = []
        with open(os.devnull) as file:  # noqa: ASYNC230, PTH123 - a descriptor in the place of a namespace's
            for one in requests:
                tasks.append(asyncio.create_task(agent.answer(one, file.fileno(), time.monotonic() + seconds)))
                await asyncio.sleep(0)
            found = await asyncio.gather(*tasks, return_exceptions=True)
        return [isinstance(one, bytes) and one.split()[2] == b"0" for one in found]

    return asyncio.run(run())


def test_a_del_that_comes_while_add_still_programs_waits_for_it_and_leaves_nothing(agent):
    before, do = rules(agent), agent.programmer.do

    async def slowly(job, namespace=-1):
        await asyncio.sleep(0.05)
        return await do(job, namespace)

    agent.programmer.do = slowly
    assert answer_all(agent, make_request("ADD"), make_request("DEL")) == [True, True]
    assert (rules(agent), list(agent.attachments)) == (before, [])
    assert agent.programmer.jobs == [APPLY, REMOVE]


def test_requests_of_other_containers_and_interfaces_wait_for_nobody_and_nothing_is_kept_of_them(agent):
    order = []

    async def find(namespace, name, uid, deadline, *, insists):
        order.append(name)
        await asyncio.sleep(0.05)
        order.append(name)
        raise CniError("not known", 11)

    agent.pod_cache.find = find
    answer_all(agent, make_request("ADD", pod="a", container="1"), make_request("ADD", pod="b", container="2"), make_request("ADD", pod="c", container="2", interface="net1"))
    assert order == ["a", "b", "c"] * 2
    assert (dict(agent._turns), agent._deciding) == ({}, {})


@pytest.mark.parametrize(("listed", "known_away", "wait", "asked", "code"), [
    (True, True, "", [], 0), (True, False, "", [False], 0), (False, True, "", [True], 11), (False, False, "", [True], 11),
    (True, True, "wait", [True], 11),
])  # fmt: skip
def test_a_pod_outside_of_the_mesh_starts_without_the_api_and_any_other_waits(agent, tmp_path, listed, known_away, wait, asked, code):
    """The API is asked about a pod outside of the mesh once, if it is not known to be away; about others until the deadline."""
    found = []

    async def find(namespace, name, uid, deadline, *, insists):
        found.append(insists)
        raise ClusterError("the API at https://10.0.0.1 cannot be asked")

    agent.pod_cache.find = find
    agent.pod_cache.api_error = "connection refused" if known_away else ""
    agent.settings = SETTINGS.replace(outside_namespaces=wait or "start")
    agent.outside = tmp_path / "outside"
    agent.outside.write_text("batch\nshop\n" if listed else "batch\n")
    status, tree = ask(agent, pod="shop/new")
    assert (found, tree.get("code", 0), status) == (asked, code, int(bool(code)))
    if not code:
        assert ["debug", "left alone: the API cannot be asked, and its namespace shop was outside of the mesh", "pod=shop/new"] in logged(agent)
    if code:
        assert tree["msg"] == "netinit: pod shop/new is not known: the API at https://10.0.0.1 cannot be asked"


def test_a_del_ends_an_add_that_only_waits_for_the_api(agent):
    async def find(namespace, name, uid, deadline, *, insists):
        await asyncio.sleep(3600)

    agent.pod_cache.find = find
    assert answer_all(agent, make_request("ADD", pod="new"), make_request("DEL", pod="new")) == [False, True]
    assert (agent.programmer.jobs, agent._deciding) == ([], {})


def test_a_del_that_is_not_its_turn_in_time_is_asked_to_try_again(agent):
    async def run():
        released = asyncio.Event()

        async def hang(job, namespace=-1):
            await released.wait()
            return JobResult()

        agent.programmer.do = hang
        with open(os.devnull) as file:  # noqa: ASYNC230, PTH123 - a descriptor in the place of a namespace's
            first = asyncio.create_task(agent.answer(make_request("ADD"), file.fileno(), time.monotonic() + 60))
            await asyncio.sleep(0)
            second = await agent.answer(make_request("DEL"), file.fileno(), time.monotonic() + 0.05)
            released.set()
            await first
        return json.loads(second.partition(b"\n")[2])

    found = asyncio.run(run())
    assert (found["code"], found["msg"]) == (11, "netinit: an earlier request of this container is still being answered")


def test_an_add_is_noted_before_it_programs_so_that_del_knows_what_a_killed_agent_has_left(agent):
    noted = []

    async def die(job, namespace=-1):
        noted.extend(agent.attachments)
        raise RuntimeError

    agent.programmer.do = die
    answer_all(agent, make_request("ADD"))
    assert [(one.container, one.interface) for one in noted] == [("c1", "eth0")]


@pytest.mark.parametrize("length", [1, 64, 199, 260, 4000])
def test_an_id_of_any_length_is_noted_and_del_removes_its_rules(agent, length):
    before, name = rules(agent), "c" * length
    assert answer_all(agent, make_request("ADD", container=name)) == [True]
    assert [one.container for one in agent.attachments] == [name]
    assert rules(agent) != before
    assert answer_all(agent, make_request("DEL", container=f"{name}d")) == [True]
    assert rules(agent) != before
    assert answer_all(agent, make_request("DEL", container=name)) == [True]
    assert (rules(agent), list(agent.attachments)) == (before, [])


def test_records_whose_namespace_and_pod_are_gone_are_dropped_and_others_are_kept(tmp_path):
    (tmp_path / "there").touch()
    status = (tmp_path / "there").stat()
    found = Attachments(tmp_path / "attachments")
    common = {"interface": "eth0", "namespace": "shop", "name": "web", "environ": {}}
    places = {
        "present": (tmp_path / "there", status.st_ino, "other"), "gone": (tmp_path / "lost", 5, "other"), "replaced": (tmp_path / "there", 5, "other"),
        "of a pod that is there": (tmp_path / "lost", 5, "known"), "not visible here": ("/no/such/folder/n", 5, "other"),
    }  # fmt: skip
    for name, (path, inode, uid) in places.items():
        found.put(Attachment(container=name, netns=str(path), device=status.st_dev, inode=inode, uid=uid, **common))
    assert found.drop_gone({"known"}) == 2
    assert {one.container for one in found} == {"present", "of a pod that is there", "not visible here"}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.write_text("[" * 10**6)])
def test_whatever_lies_in_the_runtime_s_folder_is_passed_over(tmp_path, make):
    (tmp_path / "netns").mkdir()
    (tmp_path / "netns" / "cni-1").touch()
    (tmp_path / "results").mkdir()
    record = {"cniArgs": [["K8S_POD_UID", "u"]], "netns": "/var/run/netns/cni-1"}
    (tmp_path / "results" / "good").write_text(json.dumps(record))
    make(tmp_path / "results" / "bad")
    found = find_namespaces(["u", "v"], attachments=Attachments(tmp_path / "none"), records=tmp_path / "results", folder=tmp_path / "netns")
    assert found == {"u": str(tmp_path / "netns" / "cni-1")}


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ({"netns": "/var/run/netns/cni-1", "result": {"interfaces": [{"sandbox": "/var/run/netns/cni-2"}]}}, "cni-1"),
        ({"result": {"interfaces": [{"name": "veth1"}, {"sandbox": "/var/run/netns/cni-2"}, 7]}}, "cni-2"),
        ({"result": {"interfaces": [{"sandbox": "/"}]}}, ""), ({"result": {"interfaces": {}}}, ""), ({"result": []}, ""), ({}, ""),
    ],
)  # fmt: skip
def test_a_record_names_its_namespace_itself_or_by_the_sandboxes_of_its_interfaces(tmp_path, record, name):
    (tmp_path / "netns").mkdir()
    for one in ("cni-1", "cni-2"):
        (tmp_path / "netns" / one).touch()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "r").write_text(json.dumps({**record, "cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_UID", "u"]]}))
    found = find_namespaces(["u"], attachments=Attachments(tmp_path / "none"), records=tmp_path / "results", folder=tmp_path / "netns")
    assert found == ({"u": str(tmp_path / "netns" / name)} if name else {})


def test_a_sweep_that_does_not_end_is_named_by_readyz_in_words_and_pods_still_start(agent):
    ours, programmer = socket.socketpair()
    with ours, programmer:
        server = AgentServer(SETTINGS, ours, None, ours, programmer)
    server.agent = agent
    server.installation = SimpleNamespace(problem="", warnings={})
    server.sweeper = SimpleNamespace(problem=lambda: "the last complete sweep ended 999 s ago")
    assert server._report(verbose=False) == (True, "ok\n")
    is_ready, text = server._report(verbose=True)
    assert (is_ready, text.splitlines()[-1]) == (True, "[!]sweep: the last complete sweep ended 999 s ago")
    assert server._find_reason() == ("", "")


def test_readyz_begins_with_the_reason_and_names_the_problems_behind_it(agent):
    ours, programmer = socket.socketpair()
    with ours, programmer:
        server = AgentServer(SETTINGS, ours, None, ours, programmer)
    server.agent = agent
    server.installation = SimpleNamespace(problem="10-a.conflist is no list", warnings={})
    server.sweeper = SimpleNamespace(problem=lambda: "")
    server.problems["DaemonSet"] = "403 Forbidden"
    is_ready, text = server._report(verbose=False)
    assert not is_ready
    checks, causes = "plugin: 10-a.conflist is no list", "DaemonSet: 403 Forbidden"
    assert (text.splitlines()[0], server._find_reason()) == (f"not ready: {checks}; {causes}", (checks, causes))
    server.draining = True
    assert server._find_reason() is None, "an agent that ends is no problem to report"
    assert server._report(verbose=False)[1].splitlines()[0] == "not ready: it is stopping"
