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
from netinit.node.metrics import NodeMetrics
from netinit.node.server import STATUS_FILE, AgentServer
from netinit.node.settings import NOTHING, AgentSettings
from netinit.node.supervisor import _explain_end
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


def test_each_task_has_its_part(made):
    keep, own, daemon_set, sweeper = (SimpleNamespace() for _ in range(4))
    for part in (own, daemon_set, sweeper):
        part.run = object()
    keep.keep, keep.own_namespace, keep.daemon_set = object(), own, daemon_set
    sweeper.watch, sweeper.check_after_change, sweeper.check_connections, sweeper.follow_pods = print, object(), object(), object()
    made.installation, made.sweeper, made.watchers = keep, sweeper, {False: "changes", True: "connections"}
    made.agent = SimpleNamespace(pod_cache=SimpleNamespace(run=object()))
    found = made._make_tasks(None, SimpleNamespace(run=object()), {"pod_cache": None, "programmer": None, "metrics": None, "log": None})
    assert (found["watch"].args, found["connections"].args) == (("changes", sweeper.check_after_change), ("connections", sweeper.check_connections))
    assert (found["plugin"], found["DaemonSet"], found["namespace"]) == (keep.keep, daemon_set.run, own.run)
    send = found["readiness"].args[2]
    assert (send.func.__name__, send.args) == ("send", ("NotReady",))
    assert {"socket", "pods", "status", "sweep", "appearing pods", "host probes", "taint"} <= found.keys()
    made.watchers, made.settings = {}, made.settings.replace(install=False, taint="", host_probes=NOTHING, outside_namespaces="wait")
    assert {*made._make_tasks(None, SimpleNamespace(run=object()), {})} == {"socket", "pods", "status", "sweep", "appearing pods", "readiness"}


def test_an_agent_ends_without_its_socket_and_leaves_the_port_to_one_that_took_it(made, monkeypatch):
    monkeypatch.setattr(server, "_STATUS_SECONDS", 0.01)
    path, stream = Path(made.settings.socket), io.StringIO()
    made.log, made.installation = EventLog("debug", stream=stream), SimpleNamespace(is_replaced=False)

    async def run():
        closed = asyncio.Event()

        async def close(_):
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
