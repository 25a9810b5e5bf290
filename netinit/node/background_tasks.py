"""The agent's background tasks: keep the plugin installed, remove the node's startup taint, and list namespaces outside of the mesh.

The plugin lets pods of those namespaces start while the agent does not answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from netinit.base.errors import ClusterError, ConfigError
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.inject.deciding.webhooks import INJECTION_LABEL, REVISION_LABEL, Selector, Webhook, parse_injectors
from netinit.kube import client as api
from netinit.kube.client import Cache, Client, follow
from netinit.node.installer import Installer, replace_file
from netinit.node.metrics import NodeMetrics
from netinit.node.node_pods import PodCache
from netinit.node.settings import AgentSettings, split_taint
from netinit.serving.event_log import EventLog

_LOOK = 1.0  # seconds between two checks for changes by other programs
_AGAIN = 5.0
_SECONDS_TO_ASK = 5.0
_MAX_BYTES = 1 << 20  # bytes of the file; the plugin reads no longer one
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # a DNS label
_DATAPLANE_LABEL = "istio.io/dataplane-mode"
_UNREADABLE = Webhook(name="", namespace_selector=Selector(), object_selector=Selector())  # selects everything


class InstallationKeeper:
    """Keeps the plugin installed; `problem` says why it is not, empty if it is. `daemon_set`, a watch, notices its deletion."""

    def __init__(self, settings: AgentSettings, client: Client, metrics: NodeMetrics, log: EventLog) -> None:
        self.settings = settings
        self.problem = "the plugin is not installed yet" if settings.install else ""
        self._installer = Installer(settings)
        self._client = client
        self._metrics = metrics
        self._log = log
        name = f"metadata.name={settings.daemon_set}"
        self.daemon_set = Cache(
            client, api.DAEMON_SETS, settings.namespace, fields=name, changed=self._note_deletion,
            keep=lambda tree: not _is_deleted(tree),
        )  # fmt: skip
        self._has_seen_deletion = False

    def _note_deletion(self) -> None:
        """Note whether the watch has seen the deletion, which decides what the agent does when it ends; log it once."""
        is_deleted = self.daemon_set.synced and self.daemon_set.get(self.settings.daemon_set, self.settings.namespace) is None
        if is_deleted and not self._has_seen_deletion:
            self._log.event("info", "the DaemonSet does not exist: the plugin is removed when this agent ends")
        self._has_seen_deletion = is_deleted

    async def keep(self) -> None:
        """Check the installation periodically and repair it."""
        while True:
            state = await asyncio.to_thread(self._installer.state)
            if any(state.values()) or self.problem:
                await self._install()
            await asyncio.sleep(_LOOK if not self.problem else _AGAIN)

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
        """Uninstall the plugin if the DaemonSet was deleted; keep it otherwise, so that pods wait during an upgrade.

        Returns whether it was removed.
        """
        if not self.settings.install:
            return False
        if not await self._was_deleted():
            self._log.event("info", "the DaemonSet is still there: the plugin stays, and pods wait until the next agent answers")
            return False
        try:
            await asyncio.to_thread(self._installer.uninstall)
            self._log.event("info", "the DaemonSet was deleted: the plugin was removed")
        except ConfigError as error:
            self._log.event("error", f"the plugin cannot be removed: {error}")
            return False
        return True

    async def _was_deleted(self) -> bool:
        """Whether the watch saw the DaemonSet's deletion, or the API reports it now.

        Any other answer keeps the plugin, including 401 and 403 for an expired token: delayed pods are better than pods
        that are not captured.
        """
        name, namespace = self.settings.daemon_set, self.settings.namespace
        if self._has_seen_deletion:  # also if the agent's permissions have been deleted since
            return True
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


# ---- namespaces outside of the mesh


def find_outside(namespaces: Mapping[str, Mapping[str, str]], webhooks: Iterable[Webhook]) -> set[str]:
    """Return the namespaces, given with their labels, in which no webhook injects pods without labels, and that have no mesh label.

    Without any webhook nothing is known, since pods are then injected by hand: the result is empty.
    """
    webhooks = tuple(webhooks)
    if not webhooks:
        return set()
    return {
        name for name, labels in namespaces.items()
        if not _has_mesh_label(labels) and not any(webhook.matches(labels, {}) for webhook in webhooks)
    }  # fmt: skip


def _has_mesh_label(labels: Mapping[str, str]) -> bool:
    """Whether the namespace asks for a mesh, even if no webhook selects it now: its revision may be about to be installed."""
    injection, mode = labels.get(INJECTION_LABEL, "disabled"), labels.get(_DATAPLANE_LABEL, "none")
    return injection != "disabled" or mode != "none" or REVISION_LABEL in labels


def format_names(names: Iterable[str]) -> str:
    """Return the file's text: a name a line, sorted; what would make it longer than the plugin reads is left out."""
    text, size = [], 0
    for name in sorted(filter(_NAME.fullmatch, names)):
        size += len(name) + 1
        if size >= _MAX_BYTES:
            break
        text.append(f"{name}\n")
    return "".join(text)


def replace_list(path: Path, text: str) -> None:
    """Replace the file. Raises OSError, and removes it then: an old list may name a namespace that has joined the mesh."""
    try:
        replace_file(path, text.encode(), durable=False)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _read_webhooks(tree: Tree) -> tuple[Webhook, ...]:
    try:
        return tuple(webhook for _, webhook in parse_injectors(tree))
    except ConfigError:  # of a newer Kubernetes, perhaps
        return (_UNREADABLE,)


class OutsideNamespaces:
    """Writes the list to `path` when it changes. Until everything has been listed once, the old file stays."""

    def __init__(self, path: Path, client: Client, pod_cache: PodCache, log: EventLog) -> None:
        self._path = path
        self._pod_cache = pod_cache
        self._log = log
        self._namespaces = Cache(client, api.NAMESPACES, keep=lambda tree: strings(mapping(tree.get("metadata")).get("labels")))
        self._webhooks = Cache(client, api.WEBHOOK_CONFIGURATIONS, keep=_read_webhooks)
        self._seen: tuple[dict[Any, Any], ...] = ()
        self._found: set[str] = set()
        self._written: str | None = None
        self._error = ""

    async def run(self) -> None:
        """Keep the file up to date until cancelled."""
        await follow((self._namespaces, self._webhooks), self._update, seconds=0.0)

    async def _update(self) -> None:
        await asyncio.sleep(_LOOK)  # once a second, however often namespaces change
        error = self._namespaces.error or self._webhooks.error
        if error and error != self._error:
            self._log.event("warn", f"which namespaces are outside of the mesh is not known: {error}")
        self._error = error
        if not (self._namespaces.synced and self._webhooks.synced and self._pod_cache.synced):
            return
        seen = (dict(self._namespaces.items), dict(self._webhooks.items))
        if seen != self._seen:
            self._seen = seen
            namespaces = {name: labels for (_, name), labels in self._namespaces.items.items()}
            self._found = find_outside(namespaces, (one for found in self._webhooks.items.values() for one in found))
        text = format_names(self._found - {pod.namespace for pod in self._pod_cache if pod.proxy})
        if text != self._written:
            self._written = None
            replace_list(self._path, text)
            self._written = text
