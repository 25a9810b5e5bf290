"""The agent's background tasks, in a fixed number of rounds: their log lines, metrics and requests to the API."""

from __future__ import annotations

import asyncio
import io
import json
import time
from types import SimpleNamespace

import pytest

from netinit.base.errors import ClusterError, ConfigError
from netinit.kube.resources import DAEMON_SETS, JSON_PATCH, NAMESPACES, NODES
from netinit.node import background_tasks
from netinit.node import events as node_events
from netinit.node.background_tasks import InstallationKeeper, remove_taint
from netinit.node.metrics import NodeMetrics
from netinit.node.settings import AgentSettings
from netinit.serving.event_log import EventLog

SETTINGS = AgentSettings(node="n", namespace="mesh", taint="netinit.io/not-ready")
MISSING, WELL = {"executable": "is missing", "entry": ""}, {"executable": "", "entry": ""}


class StopError(Exception):
    pass


def log_and_lines():
    stream = io.StringIO()

    def lines():
        return [(line["level"], line["msg"]) for line in map(json.loads, stream.getvalue().splitlines())]

    return EventLog("debug", as_json=True, stream=stream), lines


def pauses(monkeypatch, most):
    """The pauses that a task makes; it ends with the last of `most`."""
    found = []

    async def pause(seconds):
        found.append(seconds)
        if len(found) == most:
            raise StopError

    monkeypatch.setattr(background_tasks.asyncio, "sleep", pause)
    return found


# ---- the plugin


def waits(monkeypatch, most, *, watched=True):
    """How long the keeper waits for changes of files; it ends with the last of `most`. `watched`: whether there are notifications."""
    found = []
    changes = SimpleNamespace(watch=lambda paths: watched, drain=lambda: None, close=lambda: None)

    async def wait(file, seconds):
        assert file is changes
        found.append(seconds)
        if len(found) == most:
            raise StopError

    monkeypatch.setattr(background_tasks, "FileChanges", lambda: changes)
    monkeypatch.setattr(background_tasks, "wait_readable", wait)
    return found


class FixedInstaller:
    """An installer whose answers are listed: states, and what `install` returns or raises."""

    target = "/bin/netinit-cni"

    def __init__(self, states=(), installed=(), error=None):
        self.states, self.installed, self.error, self.calls = list(states), list(installed), error, []
        self.found = {}
        self.other_owner = ""

    def find_other_owner(self):
        return self.other_owner

    def watched(self):
        return []

    def warnings(self):
        return dict(self.found)

    def state(self):
        return self.states.pop(0)

    def install(self):
        self.calls.append("install")
        done = self.installed.pop(0)
        if isinstance(done, Exception):
            raise done
        return done

    def uninstall(self):
        self.calls.append("uninstall")
        if self.error:
            raise self.error


def keeper(installer, **settings):
    log, lines = log_and_lines()
    metrics = NodeMetrics()
    made = InstallationKeeper(SETTINGS.replace(**settings), SimpleNamespace(), metrics, log)
    made._installer = installer
    return made, lines, lambda: metrics.text().decode()


def test_the_plugin_is_installed_once_and_again_where_it_is_gone(monkeypatch):
    installer = FixedInstaller([WELL, WELL, MISSING, MISSING], [True, True, False])
    made, lines, metrics = keeper(installer)
    assert made.problem == "the plugin is not installed yet"
    found = waits(monkeypatch, 4)
    with pytest.raises(StopError):
        asyncio.run(made.keep())
    assert made.problem == ""
    assert (installer.calls, found) == (["install"] * 3, [10.0] * 4)
    assert lines() == [("info", "the plugin was put in place: /bin/netinit-cni")] * 2
    assert 'istio_cni_installs_total{result="success"} 2.0' in metrics()


def test_what_is_in_place_from_the_start_is_a_success_without_a_line(monkeypatch):
    made, lines, metrics = keeper(FixedInstaller([WELL], [False]))
    waits(monkeypatch, 1)
    with pytest.raises(StopError):
        asyncio.run(made.keep())
    assert (made.problem, lines()) == ("", [])
    assert 'istio_cni_installs_total{result="success"} 1.0' in metrics()


def test_a_plugin_that_cannot_be_installed_is_an_error_once_and_is_tried_again_more_slowly(monkeypatch):
    installer = FixedInstaller([MISSING, MISSING, MISSING, WELL], [ConfigError("full"), ConfigError("full"), ConfigError("read-only"), True])
    made, lines, metrics = keeper(installer)
    found = waits(monkeypatch, 4, watched=False)
    with pytest.raises(StopError):
        asyncio.run(made.keep())
    assert found == [5.0, 5.0, 5.0, 1.0]
    assert lines() == [
        ("error", "the plugin cannot be installed: full"), ("error", "the plugin cannot be installed: read-only"),
        ("info", "the plugin was put in place: /bin/netinit-cni"),
    ]  # fmt: skip
    assert 'istio_cni_installs_total{result="failure"} 3.0' in metrics()
    assert 'istio_cni_installs_total{result="success"} 1.0' in metrics()


def test_a_warning_is_logged_and_an_event_on_the_node_once_until_it_changes(monkeypatch):
    installer = FixedInstaller([WELL] * 4, [False])
    made, lines, metrics = keeper(installer)
    found = [{}, {"OwnListPreceded": "first"}, {"OwnListPreceded": "first"}, {"OwnListPreceded": "second"}]
    installer.warnings = lambda: found.pop(0)
    sent = []

    async def write_event(client, involved, **event):
        sent.append((involved["kind"], event["reason"], event["message"]))
        return ""

    monkeypatch.setattr(node_events, "write_event", write_event)
    waits(monkeypatch, 4)
    with pytest.raises(StopError):
        asyncio.run(made.keep())
    assert lines() == [("warn", "first"), ("warn", "second")]
    assert sent == [("Node", "OwnListPreceded", "first"), ("Node", "OwnListPreceded", "second")]
    assert "netinit_node_list_preceded 1.0" in metrics()
    assert made.warnings == {"OwnListPreceded": "second"}


def test_an_agent_leaves_the_files_to_a_newer_one(monkeypatch):
    installer = FixedInstaller()
    made, _, _ = keeper(installer)
    made.is_replaced, made.problem = True, ""
    waits(monkeypatch, 3)
    with pytest.raises(StopError):
        asyncio.run(made.keep())
    assert installer.calls == []


def test_the_removal_of_the_plugin_waits_for_a_check_and_no_later_check_restores_it(monkeypatch):
    installer = FixedInstaller([MISSING], [True])
    made, _, _ = keeper(installer)
    made._deleted = "DaemonSet"
    leaving = []

    async def wait(file, seconds):
        await asyncio.sleep(0)
        if leaving and leaving[0].done():
            raise StopError

    def install(real=installer.install):
        made_loop.call_soon_threadsafe(lambda: leaving.append(made_loop.create_task(made.leave())))
        time.sleep(0.05)
        assert installer.calls == [], "the removal waits"
        return real()

    async def run():
        nonlocal made_loop
        made_loop = asyncio.get_running_loop()
        await made.keep()

    made_loop = None
    waits(monkeypatch, 99)
    monkeypatch.setattr(background_tasks, "wait_readable", wait)
    installer.install = install
    with pytest.raises(StopError):
        asyncio.run(run())
    assert installer.calls == ["install", "uninstall"]


def test_an_agent_that_installs_nothing_has_no_problem_and_leaves_everything():
    made, lines, _ = keeper(FixedInstaller(), install=False)
    made._deleted = "DaemonSet"
    assert (made.problem, asyncio.run(made.leave()), lines()) == ("", False, [])


def test_a_check_listens_before_it_looks_rests_as_long_as_it_took_and_closes_what_it_opened(monkeypatch):
    done, clock = [], [100.0]
    installer = FixedInstaller([WELL, WELL], [False])
    looked = installer.state
    installer.watched = lambda: ["list", "executable"]
    changes = SimpleNamespace(watch=lambda paths: done.append(("watch", paths)), drain=lambda: done.append("drained"), close=lambda: done.append("closed"))

    def state():
        done.append("looked")
        clock[0] += 0.25
        return looked()

    async def wait(file, seconds):
        done.append(("waits", seconds))
        if done.count(("waits", 1.0)) == 2:
            raise StopError

    async def pause(seconds):
        done.append(("rests", seconds))

    installer.state = state
    monkeypatch.setattr(background_tasks, "FileChanges", lambda: changes)
    monkeypatch.setattr(background_tasks, "wait_readable", wait)
    monkeypatch.setattr(background_tasks, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(background_tasks.asyncio, "sleep", pause)
    made, _, _ = keeper(installer)
    with pytest.raises(StopError):
        asyncio.run(made.keep())
    check = [("watch", ["list", "executable"]), "looked", ("rests", 0.25), ("waits", 1.0)]
    assert done == [*check, "drained", *check, "closed"]


@pytest.mark.parametrize(("answer", "line"), [
    (True, []), (False, [("info", "another agent has claimed this node since: its socket and its records stay")]),
    *[(error, [("error", f"the agent's folder cannot be emptied: {error}")]) for error in (ConfigError("read-only"), OSError(5, "Input/output error"))],
])  # fmt: skip
def test_what_keeps_the_run_folder_from_being_emptied_is_a_line(answer, line):
    asked = []

    def clear(own_socket):
        asked.append(own_socket)
        if isinstance(answer, Exception):
            raise answer
        return answer

    installer = FixedInstaller()
    installer.clear_run_folder = clear
    made, lines, _ = keeper(installer)
    asyncio.run(made.clear_run_folder((1, 2)))
    assert (asked, lines()) == ([(1, 2)], line)


def test_an_agent_that_leaves_has_five_seconds_to_ask_about_its_daemon_set(monkeypatch):
    given, timeout = [], asyncio.timeout
    monkeypatch.setattr(background_tasks.asyncio, "timeout", lambda seconds: given.append(seconds) or timeout(0.01))
    made, lines, _ = keeper(FixedInstaller())

    async def get(*_):
        await asyncio.sleep(3600)

    made._client.get = get
    assert asyncio.run(made.leave()) is False
    assert (given, lines(), made.is_replaced) == ([5.0], [STAYS], False)


STAYS = ("info", "the DaemonSet is still there: the plugin stays, and pods wait until the next agent answers")


@pytest.mark.parametrize(("is_deleted", "error", "left", "line"), [
    (False, None, False, STAYS), (True, None, True, ("info", "the DaemonSet was deleted: the plugin was removed")),
    (True, ConfigError("read-only"), False, ("error", "the plugin cannot be removed: read-only")),
])  # fmt: skip
def test_the_plugin_is_removed_with_the_daemon_set(is_deleted, error, left, line):
    installer = FixedInstaller(error=error)
    made, lines, _ = keeper(installer)

    async def get(*_):
        return {"metadata": {}}

    made._client.get = get
    made._deleted = "DaemonSet" if is_deleted else ""
    assert asyncio.run(made.leave()) is left
    assert lines() == [line]
    assert made.is_replaced is is_deleted, "no later check installs it again"
    assert installer.calls == ["uninstall"] * is_deleted


def test_a_deletion_that_the_watch_sees_is_one_line_until_the_daemon_set_is_back():
    made, lines, _ = keeper(FixedInstaller())
    cache = made.daemon_set = SimpleNamespace(synced=False, found=None, get=lambda name, namespace: cache.found)
    for synced, found, seen, count in (
        (False, None, False, 0), (True, True, False, 0), (True, None, True, 1), (True, None, True, 1), (True, True, False, 1),
        (True, None, True, 2),
    ):  # fmt: skip
        cache.synced, cache.found = synced, found
        made._note_deletion()
        assert (bool(made._deleted), len(lines())) == (seen, count)
    assert lines() == [("info", "the DaemonSet is deleted: the plugin is removed when this agent ends")] * 2


@pytest.mark.parametrize(("metadata", "deleted"), [({}, ""), ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "namespace mesh")])
def test_the_deletion_of_its_own_namespace_is_noted_while_the_daemon_set_is_still_there(metadata, deleted):
    made, lines, _ = keeper(FixedInstaller())
    made.daemon_set._take([made.daemon_set._keep({"metadata": {"name": SETTINGS.daemon_set, "namespace": "mesh"}})], "1")
    made.own_namespace._take([made.own_namespace._keep({"metadata": {"name": "mesh", **metadata}})], "1")
    assert made._deleted == deleted
    assert lines() == [("info", "the namespace mesh is deleted: the plugin is removed when this agent ends")] * bool(deleted)
    assert asyncio.run(made.leave()) is bool(deleted) if deleted else True


def test_the_agent_s_own_daemon_set_and_namespace_alone_are_watched():
    made, _, _ = keeper(FixedInstaller())
    watches = [(one.client, one.resource, one.namespace, one.fields, one.changed) for one in (made.daemon_set, made.own_namespace)]
    assert watches == [
        (made._client, DAEMON_SETS, "mesh", f"metadata.name={SETTINGS.daemon_set}", made._note_deletion),
        (made._client, NAMESPACES, "", "metadata.name=mesh", made._note_deletion),
    ]  # fmt: skip


def test_a_daemon_set_that_waits_for_its_pods_to_be_deleted_is_deleted():
    made, _, _ = keeper(FixedInstaller())
    leaving = {"metadata": {"name": SETTINGS.daemon_set, "namespace": "mesh", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert made.daemon_set._keep(leaving) is None
    made.daemon_set._take([], "1")
    assert made._deleted == "DaemonSet"


def test_a_release_that_is_uninstalled_leaves_the_plugin_to_the_release_that_has_it():
    installer = FixedInstaller()
    installer.other_owner = "mesh-2/netinit-node"
    made, lines, _ = keeper(installer)
    made._deleted = "DaemonSet"
    assert asyncio.run(made.leave()) is False
    assert installer.calls == []
    assert lines() == [("info", "the plugin belongs to another release now, mesh-2/netinit-node: it stays")]


# ---- the startup taint


class Api:
    """The API with one node; `errors` are raised by the next patches."""

    def __init__(self, taints, *errors):
        self.taints, self.errors, self.asked, self.patches = taints, list(errors), [], []

    async def get(self, *words):
        self.asked.append(words)
        return {"spec": {"taints": self.taints}} if self.taints is not None else {"spec": {}}

    async def patch(self, *words, kind):
        self.patches.append((words, kind))
        if self.errors and (error := self.errors.pop(0)):
            raise error
        self.taints = words[2][1]["value"]


OTHER = {"key": "other", "effect": "NoSchedule"}
NOT_READY = {"key": "netinit.io/not-ready", "value": "yes", "effect": "NoSchedule"}


def run_taint(monkeypatch, api, *, most, ready=lambda: True, taint=SETTINGS.taint):
    log, lines = log_and_lines()
    found = pauses(monkeypatch, most)
    with pytest.raises(StopError):
        asyncio.run(remove_taint(api, SETTINGS.replace(taint=taint), ready, log))
    return found, lines()


@pytest.mark.parametrize("taint", [
    "netinit.io/not-ready", "netinit.io/not-ready=yes", "netinit.io/not-ready:NoSchedule", "netinit.io/not-ready=yes:NoSchedule",
])  # fmt: skip
def test_the_taint_alone_is_removed_by_a_patch_that_fails_if_the_taints_have_changed(monkeypatch, taint):
    api = Api([OTHER, NOT_READY])
    found, lines = run_taint(monkeypatch, api, most=2, taint=taint)
    before, after = [OTHER, NOT_READY], [OTHER]
    patch = [{"op": "test", "path": "/spec/taints", "value": before}, {"op": "replace", "path": "/spec/taints", "value": after}]
    assert api.patches == [((NODES, "n", patch), JSON_PATCH)]
    assert api.asked == [(NODES, "n")] * 2
    assert found == [1.0, 60.0]
    assert lines == [("info", f"the taint {taint} was removed from the node")]


@pytest.mark.parametrize("taint", [
    "netinit.io/ready", "netinit.io/not-ready=no", "netinit.io/not-ready:NoExecute", "netinit.io/not-ready=yes:PreferNoSchedule",
])  # fmt: skip
def test_another_taint_stays(monkeypatch, taint):
    api = Api([OTHER, NOT_READY])
    assert run_taint(monkeypatch, api, most=1, taint=taint) == ([60.0], [])
    assert api.patches == []
    assert run_taint(monkeypatch, Api(None), most=1) == ([60.0], [])


def test_the_taint_stays_until_everything_is_ready(monkeypatch):
    api, answers = Api([NOT_READY]), [False, False, True]
    found, _ = run_taint(monkeypatch, api, most=3, ready=lambda: answers.pop(0))
    assert (found, len(api.asked), api.taints) == ([1.0, 1.0, 1.0], 1, [])


@pytest.mark.parametrize("status", [409, 422])
def test_taints_that_were_changed_meanwhile_are_read_again(monkeypatch, status):
    api = Api([NOT_READY], ClusterError("changed", status=status))
    found, lines = run_taint(monkeypatch, api, most=2)
    assert (found, len(api.patches), len(lines), api.taints) == ([1.0, 1.0], 2, 1, [])


@pytest.mark.parametrize("status", [403, 404, 500, 0])
def test_a_patch_that_is_refused_is_the_tasks_problem(monkeypatch, status):
    log, lines = log_and_lines()
    pauses(monkeypatch, 1)
    with pytest.raises(ClusterError, match="refused"):
        asyncio.run(remove_taint(Api([NOT_READY], ClusterError("refused", status=status)), SETTINGS, lambda: True, log))
    assert lines() == []
