"""The agent's background tasks: keep the plugin installed, and remove the node's startup taint."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from netinit.base.errors import ClusterError, ConfigError
from netinit.base.tree import mapping, sequence, string
from netinit.kernel.file_changes import RESYNC_SECONDS, FileChanges
from netinit.kube import resources as api
from netinit.kube.client import Cache, Client
from netinit.node.events import NodeEvents
from netinit.node.installer import Installer
from netinit.node.metrics import NodeMetrics
from netinit.node.settings import AgentSettings, split_taint
from netinit.serving.event_log import EventLog
from netinit.serving.server_process import wait_readable

_LOOK = 1.0  # seconds between two checks for changes by other programs, where no notification tells of them
_AGAIN = 5.0  # after a failed installation
_REST = 1.0  # minimum pause after a check, in multiples of its duration: files that change constantly take half of a core
_SECONDS_TO_ASK = 5.0


class InstallationKeeper:
    """Keeps the plugin installed; `problem` says why it is not, empty if it is.

    `daemon_set` and `own_namespace` are watches that notice the release's end: whoever deletes the namespace takes the
    agent's account and rights away before the agent is told to end, so that it could not ask then.

    `warnings` says what else the node's administrator should know, by the reason of its event. `is_replaced` is set when a newer agent
    is there: the files are left to it, since the two may want different ones. It is also set before the plugin is removed.
    """

    def __init__(self, settings: AgentSettings, client: Client, metrics: NodeMetrics, log: EventLog) -> None:
        self.settings = settings
        self.problem = "the plugin is not installed yet" if settings.install else ""
        self.warnings: dict[str, str] = {}
        self.is_replaced = False
        self._turn = asyncio.Lock()
        self._installer = Installer(settings)
        self._client = client
        self._metrics = metrics
        self._log = log
        self._events = NodeEvents(settings, client, log)
        name = f"metadata.name={settings.daemon_set}"
        self.daemon_set = Cache(
            client, api.DAEMON_SETS, settings.namespace, fields=name, changed=self._note_deletion,
            keep=lambda tree: None if _is_deleted(tree) else True,
        )  # fmt: skip
        name = f"metadata.name={settings.namespace}"
        self.own_namespace = Cache(client, api.NAMESPACES, fields=name, changed=self._note_deletion, keep=_is_deleted)
        self._deleted = ""  # what the watches saw the deletion of

    def _note_deletion(self) -> None:
        """Note whether the watches have seen a deletion, which decides what the agent does when it ends; log it once."""
        deleted = ""
        if self.daemon_set.synced and self.daemon_set.get(self.settings.daemon_set, self.settings.namespace) is None:
            deleted = "DaemonSet"
        if self.own_namespace.get(self.settings.namespace):
            deleted = f"namespace {self.settings.namespace}"
        if deleted and not self._deleted:
            self._log.event("info", f"the {deleted} is deleted: the plugin is removed when this agent ends")
        self._deleted = deleted

    async def keep(self) -> None:
        """Check the installation whenever its files change, and every 10 s; repair it."""
        with contextlib.closing(FileChanges()) as changes:
            while True:
                begun = time.monotonic()
                async with self._turn:
                    is_watched = not self.is_replaced and await self._check(changes)
                await asyncio.sleep(_REST * (time.monotonic() - begun))
                await wait_readable(changes, _AGAIN if self.problem else RESYNC_SECONDS if is_watched else _LOOK)
                changes.drain()

    async def _check(self, changes: FileChanges) -> bool:
        """Check and repair the installation; return whether changes of its files notify."""
        is_watched = changes.watch(await asyncio.to_thread(self._installer.watched))  # before the check, to miss no change
        state = await asyncio.to_thread(self._installer.state)
        if any(state.values()) or self.problem:
            await self._install()
        await self._note_warnings(await asyncio.to_thread(self._installer.warnings))
        return is_watched

    async def _note_warnings(self, found: dict[str, str]) -> None:
        """Log each new warning, and write an event on the node."""
        known, self.warnings = self.warnings, found
        self._metrics.preceded.set(1 if "OwnListPreceded" in found else 0)
        for reason, text in found.items():
            if known.get(reason) != text:
                self._log.event("warn", text)
                await self._events.send(reason, text)

    async def _install(self) -> None:
        try:
            changed = await asyncio.to_thread(self._installer.install)
        except ConfigError as error:
            if str(error) != self.problem:
                self._log.event("error", f"the plugin cannot be installed: {error}")
            self.problem = str(error)
            self._metrics.installs.labels("failure").inc()
            return
        if changed:
            self._log.event("info", f"the plugin was put in place: {self._installer.target}")
        if changed or self.problem:
            self._metrics.installs.labels("success").inc()
        self.problem = ""

    async def leave(self) -> bool:
        """Uninstall the plugin if the DaemonSet or its namespace was deleted; keep it otherwise: pods wait during an upgrade.

        Returns whether it was removed.
        """
        if not self.settings.install:
            return False
        if not (deleted := self._deleted or ("DaemonSet" if await self._was_deleted() else "")):
            self._log.event("info", "the DaemonSet is still there: the plugin stays, and pods wait until the next agent answers")
            return False
        self.is_replaced = True
        if owner := await asyncio.to_thread(self._installer.find_other_owner):
            self._log.event("info", f"the plugin belongs to another release now, {owner}: it stays")
            return False
        try:
            async with self._turn:  # a check in progress would restore what is removed
                await asyncio.to_thread(self._installer.uninstall)
            self._log.event("info", f"the {deleted} was deleted: the plugin was removed")
        except ConfigError as error:
            self._log.event("error", f"the plugin cannot be removed: {error}")
            return False
        return True

    async def clear_run_folder(self, own_socket: tuple[int, int] | None) -> None:
        """Delete what agents keep in their directory, unless a successor uses it: one may come as soon as the plugin is removed."""
        try:
            if not await asyncio.to_thread(self._installer.clear_run_folder, own_socket):
                self._log.event("info", "another agent has claimed this node since: its socket and its records stay")
        except (ConfigError, OSError) as error:
            self._log.event("error", f"the agent's folder cannot be emptied: {error}")

    async def _was_deleted(self) -> bool:
        """Whether the API reports the DaemonSet's deletion now.

        Any other answer keeps the plugin, including 401 and 403 for an expired token: delayed pods are better than pods
        that are not captured.
        """
        name, namespace = self.settings.daemon_set, self.settings.namespace
        try:
            async with asyncio.timeout(_SECONDS_TO_ASK):
                return _is_deleted(await self._client.get(api.DAEMON_SETS, name, namespace))
        except ClusterError as error:
            return error.status == api.NOT_FOUND
        except TimeoutError:
            return False


def _is_deleted(tree: object) -> bool:
    return bool(mapping(mapping(tree).get("metadata")).get("deletionTimestamp"))


async def remove_taint(client: Client, settings: AgentSettings, is_ready: Callable[[], bool], log: EventLog) -> None:
    """Remove the startup taint from the node once everything is installed; until then it keeps pods away."""
    wanted = dict(zip(("key", "value", "effect"), split_taint(settings.taint), strict=True))
    while True:
        if is_ready():
            node = await client.get(api.NODES, settings.node)
            taints = sequence(mapping(node.get("spec")).get("taints"))
            kept = [one for one in taints if any(text and string(mapping(one).get(key)) != text for key, text in wanted.items())]
            if kept == taints:
                await asyncio.sleep(60.0)
                continue
            patch = [{"op": "test", "path": "/spec/taints", "value": taints}, {"op": "replace", "path": "/spec/taints", "value": kept}]
            try:
                await client.patch(api.NODES, settings.node, patch, kind=api.JSON_PATCH)
                log.event("info", f"the taint {settings.taint} was removed from the node")
            except ClusterError as error:
                if error.status not in (api.CONFLICT, 422):  # the taints were changed meanwhile: retry
                    raise
        await asyncio.sleep(_LOOK)
