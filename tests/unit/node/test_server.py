"""The process that answers: an end by an error is told from one that was asked for, and one out of memory is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import json
import os
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from netinit.base.errors import ChildLostError
from netinit.kernel import capabilities, children
from netinit.node import server
from netinit.node.events import NodeEvents
from netinit.node.metrics import NodeMetrics
from netinit.node.server import STATUS_FILE, AgentServer
from netinit.node.settings import NOTHING, OUTSIDE_FILE, AgentSettings
from netinit.node.supervisor import _explain_end
from netinit.node.sweep import HostProbeCheck
from netinit.node.unix_server import open_socket
from netinit.serving.event_log import EventLog
from netinit.serving.readiness import Unreadiness
from netinit.serving.server_process import listen
from node_agent import Api


def serve(folder, api):
    """The server with sockets of its own, until it ends."""
    settings = AgentSettings(
        node="n", namespace="mesh", install=False, sweep=False, watch=False, kubeconfig=str(api.kubeconfig(folder)), socket=str(folder / "run" / "cni.sock")
    )
    ours, programmer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, programmer, open_socket(settings.socket) as plugin, listen("127.0.0.1", 0) as monitoring:
        server.serve(settings, plugin, server.identify(settings.socket), monitoring, programmer)


@pytest.fixture
def api():
    with Api() as made:
        yield made


async def run_out_of_descriptors(self):
    raise OSError(errno.EMFILE, "Too many open files")


async def run_out_of_memory(self):
    raise MemoryError


def run_in_child(folder, api, monkeypatch, watch_socket):
    """How a child ends that serves, while what looks after the socket ends like this."""
    monkeypatch.setattr(AgentServer, "_lose_socket", watch_socket)
    monkeypatch.setattr(capabilities, "give_up", lambda: None)
    return children.start(lambda _: serve(folder, api), seconds=60, what="the agent", kept=None)


def test_an_error_of_what_looks_after_the_socket_is_not_an_end_that_was_asked_for(tmp_path, api, monkeypatch):
    with run_in_child(tmp_path, api, monkeypatch, run_out_of_descriptors) as child, pytest.raises(OSError, match="Too many open files"):
        child.receive()


def test_a_process_that_runs_out_of_memory_outside_of_its_tasks_is_lost_and_names_no_pod(tmp_path, api, monkeypatch):
    with run_in_child(tmp_path, api, monkeypatch, run_out_of_memory) as child, pytest.raises(ChildLostError) as lost:
        child.receive()
    assert lost.value.how == "ended with status 1"


class Pods(list):
    api_error = ""


@pytest.fixture
def made(tmp_path):
    """A server of a socket, which nobody serves yet, and what it logs."""
    settings = AgentSettings(node="n", namespace="mesh", install=True, taint="netinit.io/not-ready", host_probes="report", socket=str(tmp_path / "run" / "cni.sock"))
    ours, link = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, link, open_socket(settings.socket) as plugin:
        one = AgentServer(settings, plugin, server.identify(settings.socket), ours, link)
        yield one


def test_each_task_has_its_part(made, monkeypatch):
    keep, own, daemon_set, sweeper = (SimpleNamespace() for _ in range(4))
    for part in (own, daemon_set, sweeper):
        part.run = object()
    keep.keep, keep.own_namespace, keep.daemon_set = object(), own, daemon_set
    sweeper.watch, sweeper.check_after_change, sweeper.check_connections, sweeper.follow_pods = print, object(), object(), object()
    made.installation, made.sweeper, made.watchers = keep, sweeper, {False: "changes", True: "connections"}
    made.agent = SimpleNamespace(pod_cache=SimpleNamespace(run=object()))
    client, common = object(), {name: object() for name in ("pod_cache", "programmer", "metrics", "log")}
    accept = object()
    found = made._make_tasks(client, SimpleNamespace(run=accept), common)
    assert (found["watch"].args, found["connections"].args) == (("changes", sweeper.check_after_change), ("connections", sweeper.check_connections))
    assert (found["plugin"], found["DaemonSet"], found["namespace"]) == (keep.keep, daemon_set.run, own.run)
    assert (found["socket"], found["pods"], found["sweep"], found["appearing pods"]) == (accept, made.agent.pod_cache.run, sweeper.run, sweeper.follow_pods)
    reason, log, send = found["readiness"].args
    assert (reason, log, send.func.__name__, send.args) == (made._find_reason, made.log, "send", ("NotReady",))
    assert send.func.__self__ == NodeEvents(made.settings, client, made.log)
    probes = found["host probes"].__self__
    assert isinstance(probes, HostProbeCheck)
    assert (probes.settings, probes.client, {name: getattr(probes, name) for name in common}) == (made.settings, client, common)
    assert (found["outside namespaces"], made.outside._path) == (made.outside.run, made.folder / OUTSIDE_FILE)
    assert (made.outside._namespaces.client, made.outside._pod_cache, made.outside._log) == (client, made.agent.pod_cache, made.log)
    given = []
    monkeypatch.setattr(server, "remove_taint", lambda *words: given.extend(words))
    found["taint"]()
    assert (given[0], given[1], given[3]) == (client, made.settings, made.log)
    for problem, is_ready in (("", True), ("lost", False)):
        monkeypatch.setattr(made, "checks", lambda problem=problem: {"serving": "", "pods": problem})
        assert given[2]() is is_ready
    assert "status" in found
    list_of_names = made.folder / OUTSIDE_FILE
    list_of_names.touch()
    made.watchers, made.settings = {}, made.settings.replace(install=False, taint="", host_probes=NOTHING, outside_namespaces="wait")
    for _ in range(2):
        assert {*made._make_tasks(None, SimpleNamespace(run=object()), {})} == {"socket", "pods", "status", "sweep", "appearing pods", "readiness"}
        assert not list_of_names.exists(), "the plugin is to wait"
    made.settings = made.settings.replace(install=True, namespace="")
    assert {"plugin", "DaemonSet"} <= made._make_tasks(None, SimpleNamespace(run=object()), {}).keys() <= {"socket", "pods", "status", "sweep", "appearing pods", "readiness", "plugin", "DaemonSet"}


class Parts:
    """The parts that a server is made of, as calls in the order in which they are made, and what happens at its end."""

    def __init__(self, monkeypatch, made, *, removes=True, finishes=True):
        self.made, self.done, self.given, self.removes, self.finishes, self.stream = made, [], {}, removes, finishes, io.StringIO()
        made.log = EventLog("debug", as_json=True, stream=self.stream)
        for name in ("PodCache", "PodWatcher", "Attachments", "Agent", "InstallationKeeper", "Sweeper", "PluginServer"):
            monkeypatch.setattr(server, name, lambda *words, name=name, **more: self.make(name, words, more))
        monkeypatch.setattr(server, "run_forever", self.run_forever)
        monkeypatch.setattr(made, "_make_tasks", lambda *words: self.given.update(tasks=words) or {"one": "first", "two": "second"})
        monkeypatch.setattr(made, "_lose_socket", self.wait)

    def make(self, name, words, more):
        self.given.setdefault(name, []).append((words, more))
        return SimpleNamespace(name=name, answer="answers", in_progress={}, leave=self.leave, clear_run_folder=self.clear, close=self.close)

    async def wait(self):
        await asyncio.Event().wait()

    async def run_forever(self, *words, exhausted):
        self.given.setdefault("forever", []).append((words, exhausted.func, exhausted.args))
        try:
            await self.wait()
        finally:
            self.done.append(f"{words[0]} ended")

    async def leave(self):
        self.done.append(("leaves", self.made.draining))
        return self.removes

    async def close(self, seconds):
        self.done.append(("closes", seconds))
        return self.finishes

    async def clear(self, own_socket):
        self.done.append(("clears", own_socket))

    def lines(self):
        return [(line["level"], line["msg"]) for line in map(json.loads, self.stream.getvalue().splitlines())]

    def run(self, begin):
        async def run():
            asyncio.get_running_loop().call_soon(begin)
            await self.made._work("client")
            return [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.cancelling()]

        assert asyncio.run(run()) == []
        return self.done


CUT_OFF = ("error", "requests were cut off: they did not finish within 15 s")


@pytest.mark.parametrize(("removes", "finishes"), [(True, True), (True, False), (False, True)])
def test_a_server_that_is_asked_to_stop_leaves_the_plugin_first_finishes_its_requests_and_clears_up_last(made, monkeypatch, removes, finishes):
    parts = Parts(monkeypatch, made, removes=removes, finishes=finishes)
    done = parts.run(made._stop_requested.set)
    cleared = [("clears", made._own_socket)] * removes
    assert [one for one in done if not isinstance(one, str)] == [("leaves", True), ("closes", server._DRAIN), *cleared]
    assert {one for one in done if isinstance(one, str)} <= {"one ended", "two ended"}
    assert parts.lines() == [CUT_OFF] * (not finishes)


@pytest.mark.parametrize("lost", ["programmer", "socket"])
def test_a_server_without_its_other_process_or_its_socket_ends_and_leaves_the_plugin_where_it_is(made, monkeypatch, lost):
    parts, gone = Parts(monkeypatch, made), asyncio.Event()
    monkeypatch.setattr(made, "_lose_socket", gone.wait)
    assert [one for one in parts.run(made._programmer.lost.set if lost == "programmer" else gone.set) if not isinstance(one, str)] == [("closes", server._DRAIN)]


@pytest.mark.parametrize(("watch", "connections"), [(True, True), (True, False), (False, True), (False, False)])
def test_the_parts_of_a_server_share_what_they_know(made, monkeypatch, watch, connections):
    made.settings = made.settings.replace(watch=watch, watch_connections=connections, node="n-1", most_requests=7)
    parts = Parts(monkeypatch, made)
    parts.run(made._stop_requested.set)
    given = parts.given
    assert given["PodCache"] == [(("client", "n-1"), {})]
    kinds = [of for wanted, of in ((watch, False), (connections, True)) if wanted]
    shared = [*given["Agent"], *given["Sweeper"], *given.get("PodWatcher", ())]
    assert all((more["programmer"], more["metrics"], more["log"], more["pod_cache"].name) == (made._programmer, made.metrics, made.log, "PodCache") for _, more in shared)
    assert [(words, more["connections"]) for words, more in given.get("PodWatcher", ())] == [((made.settings.base,), of) for of in kinds]
    assert [*made.watchers] == kinds
    for (_, more), is_agent in ((given["Agent"][0], True), (given["Sweeper"][0], False)):
        assert more["watchers"] == tuple(made.watchers.values())
        assert more["attachments"].name == "Attachments"
        assert ("outside" in more, "is_busy" in more) == (is_agent, not is_agent)
    assert given["Attachments"] == [((made.folder / "attachments",), {})]
    assert (given["Agent"][0][0], given["Agent"][0][1]["outside"]) == ((made.settings,), made.folder / OUTSIDE_FILE)
    assert (given["Sweeper"][0][0], given["Sweeper"][0][1]["is_busy"]("uid")) == ((made.settings, "client"), False)
    assert given["InstallationKeeper"] == [((made.settings, "client", made.metrics, made.log), {})]
    assert given["PluginServer"] == [((made._plugin_socket, "answers"), {"most": 7})]
    client, plugin_server, common = given["tasks"]
    assert (client, plugin_server.name, {*common}) == ("client", "PluginServer", {"pod_cache", "programmer", "metrics", "log"})
    exhausted = (server.end_out_of_memory, (made.log,))
    assert given["forever"] == [((name, task, made.problems, made.log), *exhausted) for name, task in (("one", "first"), ("two", "second"))]


def test_an_agent_ends_without_its_socket_and_leaves_the_port_to_one_that_took_it(made, monkeypatch):
    monkeypatch.setattr(server, "_STATUS_SECONDS", 0.01)
    path, stream = Path(made.settings.socket), io.StringIO()
    made.log, made.installation = EventLog("debug", stream=stream), SimpleNamespace(is_replaced=False)

    async def run():
        closed = asyncio.Event()

        async def close(seconds):
            assert seconds == 1.0
            assert not closed.is_set(), "the port is left once"
            closed.set()

        made._listener = SimpleNamespace(close=close)
        watch = asyncio.create_task(made._lose_socket())
        await asyncio.sleep(0.05)
        assert not watch.done(), "its own socket is there, answered or not"
        path.unlink()  # noqa: ASYNC240 - of a file in memory
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as newer:
            newer.bind(str(path))
            newer.listen()
            await asyncio.wait_for(closed.wait(), 60)
            await asyncio.sleep(0.05)
            assert not watch.done(), "a newer agent answers there"
            assert made.installation.is_replaced
        await asyncio.wait_for(watch, 60)  # nobody answers at the socket that is left

    asyncio.run(run())
    newer, ended = stream.getvalue().splitlines()
    assert f"a newer agent has taken the plugin's socket; port {made.settings.monitoring_port} is left to it" in newer
    assert f"the socket {path} was removed; ending, to be restarted" in ended


def test_the_status_file_says_what_works_without_a_wait_for_the_disk_and_a_sweep_that_is_late_is_told_once(made, monkeypatch):
    stream = io.StringIO()
    late = iter(["", "it takes long", "it takes longer", "", "again"])
    made.log, made.installation, made.metrics = EventLog("debug", stream=stream), SimpleNamespace(problem="", warnings={"Odd": "odd"}), NodeMetrics()
    made.agent = SimpleNamespace(obstacle=lambda: "", pod_cache=Pods(["a", "b"]), last_errors={"a": "no"})
    made.sweeper, made.problems = SimpleNamespace(problem=lambda: made.late), {"socket": "lost"}
    monkeypatch.setattr(server.os, "fsync", lambda _: pytest.fail("a status is worth no wait"))
    found = []

    async def rest(seconds):
        assert seconds == server._STATUS_SECONDS
        text = made.metrics.text().decode()
        found.append([*(text.partition(f"\n{name} ")[2].partition("\n")[0] for name in ("istio_cni_install_ready", "netinit_node_api_error"))])
        made.late = next(late)
        made.agent.pod_cache.api_error = "" if made.late else "down"
        made.installation.problem = made.late[:2]

    made.late = next(late)
    monkeypatch.setattr(server.asyncio, "sleep", rest)
    with pytest.raises(RuntimeError, match="StopIteration"):
        made._write_status().send(None)
    assert [line.split("\t")[1:] for line in stream.getvalue().splitlines()] == [["warn", "sweep: it takes long"], ["warn", "sweep: again"]]
    assert found == [["1.0", "0.0"], ["0.0", "0.0"], ["0.0", "0.0"], ["1.0", "1.0"], ["0.0", "0.0"]]
    path = made.folder / STATUS_FILE
    tree = json.loads(path.read_text())
    assert (path.stat().st_mode & 0o777, 0 < time.time() - tree.pop("time") < 60) == (0o644, True)
    assert tree == {
        "pid": os.getpid(), "node": "n", "checks": {"serving": "", "pods": "", "plugin": "ag"}, "problems": {"sweep": "again", "socket": "lost"}, "pods": 2,
        "lastErrors": {"a": "no"},
    }  # fmt: skip


def test_an_agent_says_why_it_is_not_ready_and_what_does_not_work_although_it_is(made):
    made.installation = SimpleNamespace(problem="", warnings={"Odd": "odd"})
    made.agent = SimpleNamespace(obstacle=lambda: made.obstacle, pod_cache=SimpleNamespace(api_error=""))
    made.sweeper, made.problems, made.obstacle = SimpleNamespace(problem=lambda: ""), {"socket": "lost"}, ""
    checks = "[+]serving: ok\n[+]pods: ok\n[+]plugin: ok\n[!]Odd: odd\n[!]socket: lost\n"
    assert (made._report(verbose=False), made._report(verbose=True), made._find_reason()) == ((True, "ok\n"), (True, checks), Unreadiness("", ""))
    made.obstacle, made.agent.pod_cache.api_error, made.outside = "unknown", "down", SimpleNamespace(problem="no rights")
    problems = {"API": "down", "outside namespaces": "no rights", "socket": "lost"}
    assert made._find_problems() == problems
    assert made._find_reason() == Unreadiness("pods: unknown", "; ".join(f"{name}: {text}" for name, text in problems.items()))
    told = "[+]serving: ok\n[-]pods: unknown\n[+]plugin: ok\n[!]API: down\n[!]Odd: odd\n[!]outside namespaces: no rights\n[!]socket: lost\n"
    assert made._report(verbose=False) == (False, f"not ready: {made._find_reason()}\n{told}")
    made.draining = True
    assert made._find_reason() is None
    assert made._report(verbose=True)[1].startswith("not ready: it is stopping\n[-]serving: it is stopping\n")


@pytest.mark.parametrize(("instance", "path"), [("", "/readyz"), ("mesh.node", "/readyz/mesh.node")])
def test_a_probe_asks_the_release_s_own_path_and_the_port_is_left_in_the_end(made, monkeypatch, instance, path):
    done = []

    class Listener:
        def __init__(self, monitor, monitoring, *, max_connections):
            assert (monitoring, max_connections, monitor.func) == (made._monitoring, server._MAX_CONNECTIONS, server.reply_monitoring)
            assert (monitor.args, monitor.keywords) == ((), {"metrics": made.metrics.text, "report": made._report, "readiness": path})

        def start(self):
            done.append("listening")

        async def close(self, seconds):
            done.append(("closed", seconds))

    async def work(client):
        done.append(client)

    made.settings = made.settings.replace(instance=instance, kubeconfig="/k", context="c")
    made._programmer.start, made._work = lambda: done.append("programmer"), work
    monkeypatch.setattr(server, "HttpListener", Listener)
    monkeypatch.setattr(server, "find_access", lambda **given: given)
    monkeypatch.setattr(server, "Client", contextlib.nullcontext)
    monkeypatch.setattr(server, "forward_library_logs", done.append)
    monkeypatch.setattr(asyncio.unix_events._UnixSelectorEventLoop, "add_signal_handler", lambda _, number, call: done.append((number, call)))
    asyncio.run(made.run())
    assert done == [made.log, (signal.SIGTERM, made._stop_requested.set), "programmer", "listening", {"kubeconfig": "/k", "context": "c"}, ("closed", 1.0)]


def test_who_logs_without_memory_ends_all_the_same():
    class Full(io.StringIO):
        def write(self, text):
            raise MemoryError

    with (
        children.start(lambda _: server.end_out_of_memory(EventLog(stream=Full()), "the agent"), seconds=60, what="it", kept=None) as child,
        pytest.raises(ChildLostError, match="ended with status 1"),
    ):
        child.receive()


@pytest.mark.parametrize(
    ("error", "how"),
    [(OSError(errno.ENOSPC, "No space left on device"), "ended by an internal error ([Errno 28] No space left on device)"), (KeyError("x"), "ended by an internal error (KeyError: 'x')")],
    ids=repr,
)
def test_a_process_that_ends_by_an_error_of_the_system_is_replaced_as_one_that_ends_by_a_bug(error, how):
    def fail(_):
        raise error

    stream = io.StringIO()
    with children.start(fail, seconds=60, what="the agent", kept=None) as child:
        assert _explain_end(child, EventLog(stream=stream)) == how
    assert "internal error: " in stream.getvalue()
