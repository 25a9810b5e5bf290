"""Keep the list of namespaces outside of the mesh, whose pods the plugin lets start while the agent does not answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, strings
from netinit.inject.selectors import Selector
from netinit.inject.webhooks import INJECTION_LABEL, REVISION_LABEL, Webhook, parse_injectors
from netinit.kube.cache import Cache
from netinit.kube.client import NAMESPACES, WEBHOOK_CONFIGURATIONS, Client
from netinit.node.installer import replace_file
from netinit.node.pod_cache import PodCache
from netinit.serving.event_log import EventLog

_PAUSE = 1.0  # seconds between two comparisons
_MAX_BYTES = 1 << 20  # bytes of the file; the plugin reads no longer one
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # a DNS label
_DATAPLANE_LABEL = "istio.io/dataplane-mode"
_UNREADABLE = Webhook(name="", namespace_selector=Selector(), object_selector=Selector())  # selects everything


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
    """Writes the list to `path` when it changes. Until everything has been listed once, what was there stays."""

    def __init__(self, path: Path, client: Client, pod_cache: PodCache, log: EventLog) -> None:
        self._path = path
        self._pod_cache = pod_cache
        self._log = log
        self._changed = asyncio.Event()
        self._namespaces = Cache(
            client, NAMESPACES, keep=lambda tree: strings(mapping(tree.get("metadata")).get("labels")), changed=self._changed.set
        )
        self._webhooks = Cache(client, WEBHOOK_CONFIGURATIONS, keep=_read_webhooks, changed=self._changed.set)
        self._found: set[str] = set()
        self._written: str | None = None
        self._error = ""

    async def run(self) -> None:
        """Keep the file up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in (self._namespaces, self._webhooks):
                group.create_task(cache.run())
            while True:
                self._update()
                await asyncio.sleep(_PAUSE)

    def _update(self) -> None:
        self._note(self._namespaces.error or self._webhooks.error)
        if not (self._namespaces.synced and self._webhooks.synced and self._pod_cache.synced):
            return
        if self._changed.is_set():
            self._changed.clear()
            namespaces = {name: labels for (_, name), labels in self._namespaces.items.items()}
            self._found = find_outside(namespaces, (one for found in self._webhooks.items.values() for one in found))
        text = format_names(self._found - {pod.namespace for pod in self._pod_cache if pod.proxy})
        if text != self._written:
            self._written = None
            replace_list(self._path, text)
            self._written = text

    def _note(self, error: str) -> None:
        if error and error != self._error:
            self._log.event("warn", f"which namespaces are outside of the mesh is not known: {error}")
        self._error = error
