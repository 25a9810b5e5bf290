"""The agent's unprivileged process: it answers requests, and passes what needs capabilities to the other process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from netinit.base.logs import level_of
from netinit.kernel import capabilities, identify
from netinit.kube.access import find_access
from netinit.kube.client import Client
from netinit.node.agent import Agent
from netinit.node.background_tasks import InstallationKeeper, remove_taint
from netinit.node.events import NodeEvents
from netinit.node.installer import replace_file
from netinit.node.metrics import NodeMetrics
from netinit.node.node_pods import PodCache, PodWatcher
from netinit.node.outside_namespaces import OutsideNamespaces
from netinit.node.pod_records import Attachments
from netinit.node.programmer_client import ProgrammerClient
from netinit.node.settings import NOTHING, OUTSIDE_FILE, START, STATUS_FILE, AgentSettings
from netinit.node.sweep import HostProbeCheck, Sweeper
from netinit.node.unix_server import PluginServer
from netinit.pods.attachments import ATTACHMENTS
from netinit.serving.event_log import EventLog, forward_library_logs
from netinit.serving.listener import HttpListener, reply_monitoring
from netinit.serving.readiness import Unreadiness, tell_unreadiness
from netinit.serving.server_process import is_answered, run_forever

_MAX_CONNECTIONS = 64
_DRAIN = 15.0  # seconds to complete requests in progress
_STATUS_SECONDS = 2.0

Identity = tuple[int, int]  # device and inode


def serve(
    settings: AgentSettings, plugin_socket: socket.socket, own_socket: Identity | None, monitoring: socket.socket,
    programmer: socket.socket,
) -> None:  # fmt: skip
    """Run until SIGTERM, or until the privileged process exits. `own_socket`: the identity of the file of `plugin_socket`."""
    capabilities.give_up()
    server = AgentServer(settings, plugin_socket, own_socket, monitoring, programmer)
    try:
        asyncio.run(server.run())
    except MemoryError:
        end_out_of_memory(server.log, "the agent")


def end_out_of_memory(log: EventLog, what: str) -> None:
    """End this process at once, so that another is started: what leaks stays, and only a new process has room again."""
    try:
        log.event("error", f"{what}: out of memory; ending, to be restarted")
    finally:
        os._exit(1)


class AgentServer:
    """The process's state. `problems` maps a subject to its current problem."""

    def __init__(
        self, settings: AgentSettings, plugin_socket: socket.socket, own_socket: Identity | None, monitoring: socket.socket,
        programmer: socket.socket,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.log = EventLog(level_of(settings.log_level), as_json=settings.log_as_json)
        self.metrics = NodeMetrics()
        self.problems: dict[str, str] = {}
        self.folder = Path(settings.socket).parent
        self.draining = False
        self.outside: OutsideNamespaces | None = None
        self._plugin_socket, self._own_socket, self._monitoring = plugin_socket, own_socket, monitoring
        self._programmer = ProgrammerClient(programmer)
        self._stop_requested = asyncio.Event()

    async def run(self) -> None:
        """Run the background tasks until the process is asked to stop."""
        forward_library_logs(self.log)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop_requested.set)
        self._programmer.start()
        readiness = "/".join(filter(None, ("/readyz", self.settings.instance)))
        monitor = partial(reply_monitoring, metrics=self.metrics.text, report=self._report, readiness=readiness)
        self._listener = HttpListener(monitor, self._monitoring, max_connections=_MAX_CONNECTIONS)
        self._listener.start()
        async with Client(find_access(kubeconfig=self.settings.kubeconfig, context=self.settings.context)) as client:
            await self._work(client)
        await self._listener.close(1.0)

    async def _work(self, client: Client) -> None:
        common: dict[str, Any] = {
            "pod_cache": PodCache(client, self.settings.node), "programmer": self._programmer, "metrics": self.metrics,
            "log": self.log,
        }  # fmt: skip
        kinds = ((self.settings.watch, False), (self.settings.watch_connections, True))
        self.watchers = {of: PodWatcher(self.settings.base, **common, connections=of) for wanted, of in kinds if wanted}
        shared = {**common, "attachments": Attachments(self.folder / ATTACHMENTS), "watchers": tuple(self.watchers.values())}
        self.agent = Agent(self.settings, **shared, outside=self.folder / OUTSIDE_FILE)
        self.installation = InstallationKeeper(self.settings, client, self.metrics, self.log)
        self.sweeper = Sweeper(self.settings, client, **shared, is_busy=self.agent.in_progress.__contains__)
        plugin_server = PluginServer(self._plugin_socket, self.agent.answer, most=self.settings.most_requests)
        found = self._make_tasks(client, plugin_server, common).items()
        exhausted = partial(end_out_of_memory, self.log)
        tasks = [asyncio.create_task(run_forever(name, task, self.problems, self.log, exhausted=exhausted)) for name, task in found]
        ends = [asyncio.create_task(end) for end in (self._stop_requested.wait(), self._programmer.lost.wait(), self._lose_socket())]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in done:
            await end  # its error is the process's: an end by an error is not one that was asked for
        self.draining = True
        is_removed = self._stop_requested.is_set() and await self.installation.leave()
        for task in (*tasks, *ends):
            task.cancel()
        if not await plugin_server.close(_DRAIN):
            self.log.event("error", f"requests were cut off: they did not finish within {_DRAIN:.0f} s")
        if is_removed:
            await self.installation.clear_run_folder(self._own_socket)

    def _make_tasks(
        self, client: Client, plugin_server: PluginServer, common: dict[str, Any]
    ) -> dict[str, Callable[[], Awaitable[None]]]:
        events = NodeEvents(self.settings, client, self.log)
        found: dict[str, Callable[[], Awaitable[None]]] = {
            "socket": plugin_server.run, "pods": self.agent.pod_cache.run, "status": self._write_status, "sweep": self.sweeper.run,
            "appearing pods": self.sweeper.follow_pods,
            "readiness": partial(tell_unreadiness, self._find_reason, self.log, partial(events.send, "NotReady")),
        }  # fmt: skip
        if watcher := self.watchers.get(False):
            found["watch"] = partial(self.sweeper.watch, watcher, self.sweeper.check_after_change)
        if watcher := self.watchers.get(True):
            found["connections"] = partial(self.sweeper.watch, watcher, self.sweeper.check_connections)
        if self.settings.install:
            found |= {"plugin": self.installation.keep, "DaemonSet": self.installation.daemon_set.run}
            found |= {"namespace": self.installation.own_namespace.run} if self.settings.namespace else {}
        if self.settings.host_probes != NOTHING:
            found["host probes"] = HostProbeCheck(self.settings, client, **common).run
        outside = self.folder / OUTSIDE_FILE
        if self.settings.outside_namespaces == START:
            self.outside = OutsideNamespaces(outside, client, self.agent.pod_cache, self.log)
            found["outside namespaces"] = self.outside.run
        else:
            outside.unlink(missing_ok=True)
        if self.settings.taint:
            found["taint"] = lambda: remove_taint(client, self.settings, lambda: not any(self.checks().values()), self.log)
        return found

    async def _lose_socket(self) -> None:
        """Return when the plugin no longer reaches this agent: its socket was deleted or replaced by a dead one.

        If a newer agent has replaced it, as in an upgrade, the port for metrics and health is closed too: both agents may
        share it, and a probe must not be answered by the wrong one.
        """
        is_replaced = False
        while True:
            found = identify(self.settings.socket)
            if not found or (found != self._own_socket and not is_answered(self.settings.socket)):
                break
            if found != self._own_socket and not is_replaced:
                is_replaced = self.installation.is_replaced = True
                port = self.settings.monitoring_port
                self.log.event("info", f"a newer agent has taken the plugin's socket; port {port} is left to it")
                await self._listener.close(1.0)
            await asyncio.sleep(_STATUS_SECONDS)
        self.log.event("error", f"the socket {self.settings.socket} was removed; ending, to be restarted")

    # ---- how it is

    def checks(self) -> dict[str, str]:
        """Return what must work for pods to start, each with its problem."""
        return {
            "serving": "it is stopping" if self.draining else "",
            "pods": self.agent.obstacle(),
            "plugin": self.installation.problem,
        }

    async def _write_status(self) -> None:
        """Write the status file for `netinit node status`, and update metrics."""
        told = ""
        while True:
            checks, problems = self.checks(), self._find_problems()
            if (late := self.sweeper.problem()) and not told:
                self.log.event("warn", f"sweep: {late}")
            told = late
            self.metrics.ready.set(0 if any(checks.values()) else 1)
            self.metrics.api_error.set(1 if self.agent.pod_cache.api_error else 0)
            tree = {
                "time": time.time(), "pid": os.getpid(), "node": self.settings.node, "checks": checks, "problems": problems,
                "pods": sum(1 for _ in self.agent.pod_cache), "lastErrors": self.agent.last_errors,
            }  # fmt: skip
            replace_file(self.folder / STATUS_FILE, json.dumps(tree).encode(), mode=0o644, durable=False)
            await asyncio.sleep(_STATUS_SECONDS)

    def _find_problems(self) -> dict[str, str]:
        """Return what does not work although pods start: errors of tasks, and what they wait for."""
        late = {"API": self.agent.pod_cache.api_error, "sweep": self.sweeper.problem()}
        late |= {"outside namespaces": self.outside.problem} if self.outside else {}
        return {**{name: text for name, text in late.items() if text}, **self.problems}

    def _find_reason(self) -> Unreadiness | None:
        """Return why it is not ready; None if it is stopping."""
        if self.draining:
            return None
        checks = [f"{name}: {text}" for name, text in self.checks().items() if text]
        causes = [f"{name}: {text}" for name, text in self._find_problems().items()] if checks else []
        return Unreadiness("; ".join(checks), "; ".join(causes))

    def _report(self, verbose: bool) -> tuple[bool, str]:
        checks = self.checks()
        is_ready = not any(checks.values())
        lines = [f"[{'-' if wrong else '+'}]{name}: {wrong or 'ok'}" for name, wrong in checks.items()]
        lines += [f"[!]{name}: {problem}" for name, problem in sorted({**self.installation.warnings, **self._find_problems()}.items())]
        if not is_ready:
            lines = [f"not ready: {self._find_reason() or checks['serving']}", *lines]
        return is_ready, "ok\n" if is_ready and not verbose else "\n".join([*lines, ""])
