"""The agent's first process: what it does before the other is started, and whether and when it starts another. Without a process."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from netinit.base.errors import BackendUnavailableError, ChildLostError
from netinit.kernel.children import ChildError
from netinit.node import server as node_server
from netinit.node import supervisor
from netinit.node.settings import AgentSettings
from netinit.serving.event_log import EventLog

SETTINGS = AgentSettings(node="n", socket="/run/plugin.sock")
OWN = (1, 2)
LOST = "was killed by signal 9"


class Machine:
    """A clock that only waiting moves, the socket's file, and the answers of `_work`: how the other process was lost, and after how long."""

    def __init__(self, monkeypatch, *ways):
        self.now, self.ways, self.done, self.handlers, self.stream = 0.0, list(ways), [], {}, io.StringIO()
        self.file = OWN
        self.stops_at = None  # when the container is told to end
        for name, value in {
            "open_socket": lambda path: self.done.append(f"open {path}") or "its socket", "_limit_data": lambda limit: self.done.append(f"limit {limit}"),
            "memory_limit": lambda: 64, "allow_descriptors": lambda number: self.done.append(f"{number} descriptors"), "identify": lambda path: self.file,
            "EventLog": lambda level, as_json: self.done.append((level, as_json)) or EventLog("debug", as_json=True, stream=self.stream),
            "_work": self.work, "Installer": lambda settings: SimpleNamespace(claim=self.claim),
        }.items():  # fmt: skip
            monkeypatch.setattr(supervisor, name, value)
        monkeypatch.setattr(supervisor.preload, "load_all", lambda folder: self.done.append(f"load {Path(folder).name}"))
        monkeypatch.setattr(supervisor.detect, "has_capability", lambda which: which == supervisor.detect.CAP_SYS_ADMIN)
        monkeypatch.setattr(supervisor.gc, "freeze", lambda: self.done.append("freeze"))
        monkeypatch.setattr(supervisor.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(supervisor.time, "sleep", self.wait)
        monkeypatch.setattr(supervisor.signal, "signal", self.handlers.__setitem__)

    def claim(self, *, is_stopped):
        self.done.append("claim")
        self.is_stopped = is_stopped
        if self.stops_at == 0:
            self.stop()

    def stop(self):
        self.handlers[signal.SIGTERM](signal.SIGTERM, None)

    def wait(self, seconds):
        self.now += seconds
        if self.stops_at is not None and self.now >= self.stops_at:
            self.stop()

    def work(self, settings, log, signals, plugin_socket, own):
        assert (settings.socket, log.wants("debug"), plugin_socket, own) == (SETTINGS.socket, True, "its socket", OWN)
        self.signals = signals
        how, seconds = self.ways.pop(0)
        self.now += seconds
        if how == "signal":
            self.stop()
            return ""
        if how == "replaced":
            self.file = (3, 4)
        return how

    def lines(self):
        return [(line["level"], line["msg"]) for line in map(json.loads, self.stream.getvalue().splitlines())]


def test_without_the_right_to_enter_pods_nothing_is_begun(monkeypatch):
    machine = Machine(monkeypatch)
    monkeypatch.setattr(supervisor.detect, "has_capability", lambda _: False)
    with pytest.raises(BackendUnavailableError, match=r"^SYS_ADMIN is missing: pods' namespaces cannot be entered$"):
        supervisor.run(SETTINGS)
    assert machine.done == [("info", False)]


def test_the_node_is_claimed_and_everything_is_loaded_before_the_other_process_is_started(monkeypatch):
    machine = Machine(monkeypatch, ("signal", 1))
    assert supervisor.run(SETTINGS.replace(log_level="debug", log_as_json=True)) == 0
    assert machine.done == [("debug", True), "claim", "8192 descriptors", "open /run/plugin.sock", "load netinit", "limit 64", "freeze"]
    assert {*machine.handlers} == {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    assert machine.is_stopped() is True
    assert machine.signals == [signal.SIGTERM]
    assert machine.lines() == [("info", "ended")]


def test_an_agent_that_installs_nothing_claims_nothing(monkeypatch):
    machine = Machine(monkeypatch, ("signal", 1))
    assert supervisor.run(SETTINGS.replace(install=False)) == 0
    assert "claim" not in machine.done


def test_a_signal_while_the_node_is_claimed_ends_the_agent_before_it_begins(monkeypatch):
    machine = Machine(monkeypatch)
    machine.stops_at = 0
    assert supervisor.run(SETTINGS) == 0
    assert machine.done[-1] == "claim"
    assert machine.lines() == [("info", "ended")]


@pytest.mark.parametrize("how", ["", "replaced"], ids=["it has exited by itself", "a newer agent has the socket"])
def test_an_end_that_only_a_new_container_mends_ends_this_one_too(monkeypatch, how):
    machine = Machine(monkeypatch, (how, 100))
    assert supervisor.run(SETTINGS) == 1
    assert machine.lines() == [("info", "the process that answers has exited; ending, to be restarted")]


def test_a_process_that_is_lost_is_started_again_more_slowly_each_time_and_at_once_after_a_minute_of_life(monkeypatch):
    machine = Machine(monkeypatch, *[(LOST, seconds) for seconds in (1, 1, 1, 60, 1, 60.5, 1)], ("signal", 1))
    assert supervisor.run(SETTINGS) == 0
    pauses = [" in 1 s", " in 3 s", " in 7 s", " in 10 s", " in 10 s", "", " in 1 s"]
    assert machine.lines() == [*[("error", f"the process that answers {LOST}; starting another{pause}") for pause in pauses], ("info", "ended")]
    assert machine.now == sum((1, 1, 1, 60, 1, 60.5, 1, 1)) + 1 + 3 + 7 + 10 + 10 + 1


def test_a_signal_is_heard_while_a_start_waits(monkeypatch):
    machine = Machine(monkeypatch, *[(LOST, 0)] * 3)  # a fourth process would have no way to end
    machine.stops_at = 6.0  # in the third pause, which begins at 4 s
    assert supervisor.run(SETTINGS) == 0
    assert machine.now == 6.0


class Lost:
    """The other process after its end: what reading its answer raises."""

    def __init__(self, error):
        self.error = error

    def fileno(self):
        return 0

    def receive(self):
        if self.error:
            raise self.error


@pytest.mark.parametrize(
    ("error", "how", "lines"),
    [
        (None, "", []),
        (ChildLostError("x", how="was killed by signal 9"), "was killed by signal 9", []),
        (ChildLostError("x"), "gives no answer", []),
        (ChildError("KeyError: 1"), "ended by an internal error (KeyError: 1)", [("error", "internal error: KeyError: 1")]),
        (ChildError("KeyError: 1\nTraceback: here"), "ended by an internal error (KeyError: 1)", [("error", "internal error: Traceback: here")]),
        (OSError(5, "Input/output error"), "ended by an internal error ([Errno 5] Input/output error)", [("error", "internal error: [Errno 5] Input/output error")]),
    ],
    ids=repr,
)  # fmt: skip
def test_how_the_other_process_was_lost_is_told(monkeypatch, error, how, lines):
    stream, waited = io.StringIO(), []
    monkeypatch.setattr(supervisor.select, "select", lambda *given: waited.append(given))
    agent = Lost(error)
    assert supervisor._explain_end(agent, EventLog("debug", as_json=True, stream=stream)) == how
    assert [(line["level"], line["msg"]) for line in map(json.loads, stream.getvalue().splitlines())] == lines
    assert waited == [([0], [], [], supervisor._DRAIN)]


def work(monkeypatch, *signals, polls=(), **more):
    """What `_work` returns, its line, and what it does in order, with the process that answers in the place of its child."""
    done, ticks, stream = [], [], io.StringIO()

    def thing(name):
        return SimpleNamespace(name=name, close=lambda: done.append(f"{name} closed"))

    def start(run, **given):
        assert given == {"seconds": 1.0, "what": "the agent", "kept": None}
        run(None)
        done.append("started")
        agent = Lost(ChildLostError("x", how=LOST))
        agent.pid, agent.poll = 77, iter(polls).__next__
        return contextlib.nullcontext(agent)

    def program(own_end, most):
        done.append(f"programmer at {own_end.name}, {most} at a time")
        return made

    def serve(tick):
        ticks.append(tick)
        made.open = len(ticks) < 3

    def pair(family, kind):
        assert (family, kind) == (socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own = contextlib.nullcontext(thing("own end"))
        own.name, own.close = "own end", own.enter_result.close
        return own, thing("server end")

    made = SimpleNamespace(open=True, serve=serve, end=lambda: done.append("programmer ended"))
    monkeypatch.setattr(supervisor, "listen", lambda *given, shared: done.append(("listen", *given, shared)) or thing("port"))
    monkeypatch.setattr(supervisor.socket, "socketpair", pair)
    monkeypatch.setattr(supervisor.signal, "signal", lambda *given: done.append(given))
    monkeypatch.setattr(supervisor.resource, "getrlimit", {resource.RLIMIT_DATA: (5, 9)}.get)
    monkeypatch.setattr(supervisor.resource, "setrlimit", lambda *given: done.append(("limit", *given)))
    monkeypatch.setattr(supervisor.children, "start", start)
    monkeypatch.setattr(supervisor, "Programmer", program)
    monkeypatch.setattr(supervisor, "count_cores", lambda: 4)
    monkeypatch.setattr(supervisor.os, "kill", lambda *given: done.append(("kill", *given)))
    monkeypatch.setattr(supervisor.select, "select", lambda *_: None)
    monkeypatch.setattr(node_server, "serve", lambda *given: done.append(("serve", *[getattr(one, "name", one) for one in given])))
    settings = SETTINGS.replace(address="127.0.0.1", monitoring_port=7, **more)
    how = supervisor._work(settings, EventLog("debug", as_json=True, stream=stream), [*signals], thing("plugin's socket"), OWN)
    return how, json.loads(stream.getvalue())["msg"], [one if one != ("serve", settings, *one[2:]) else one[2:] for one in done], ticks


IGNORED = [(signal.SIGINT, signal.SIG_IGN), (signal.SIGHUP, signal.SIG_IGN), (signal.SIGTERM, signal.SIG_DFL)]
OPENED, CLOSED = ("listen", "127.0.0.1", 7, True), ["started", "server end closed", "port closed"]


@pytest.mark.parametrize(("jobs", "most"), [(0, 12), (5, 5)])
def test_the_process_that_answers_has_the_sockets_and_the_first_one_programs_until_it_is_lost(monkeypatch, jobs, most):
    how, line, done, ticks = work(monkeypatch, jobs=jobs)
    assert (how, line) == (LOST, f"answering at /run/plugin.sock, metrics on port 7, {most} pods at a time")
    served = [("limit", resource.RLIMIT_DATA, (9, 9)), "own end closed", ("plugin's socket", OWN, "port", "server end")]
    assert done == [OPENED, *IGNORED, *served, *CLOSED, f"programmer at own end, {most} at a time", "programmer ended"]
    assert ticks == [0.5] * 3


@pytest.mark.parametrize(("polls", "ticks"), [([0], 0), ([None, None, 0], 2)])
def test_a_signal_ends_the_process_that_answers_which_may_finish_what_it_does(monkeypatch, polls, ticks):
    how, _, done, served = work(monkeypatch, signal.SIGTERM, polls=polls)
    assert (how, served) == ("", [0.05] * ticks)
    assert done == [OPENED, *IGNORED, *CLOSED, "programmer at own end, 12 at a time", "plugin's socket closed", ("kill", 77, signal.SIGTERM), "programmer ended"]


@pytest.mark.parametrize(
    ("limit", "bounds"),
    [(None, []), (4 << 30, [(1 << 30, 2 << 30)]), (1 << 20, ["least"])],
    ids=["no limit", "a quarter and a half", "more than this process has"],
)  # fmt: skip
def test_the_data_of_the_other_processes_is_bounded_below_the_container_s_limit(monkeypatch, limit, bounds):
    given = []
    monkeypatch.setattr(supervisor.resource, "setrlimit", lambda which, two: given.append((which, two)))
    monkeypatch.setattr(supervisor.Path, "read_text", lambda *_, **__: "9 9 9 9 9 256 9\n")
    supervisor._limit_data(limit)
    least = 256 * resource.getpagesize() + (64 << 20)
    assert given == [(resource.RLIMIT_DATA, (least, least) if two == "least" else two) for two in bounds]
