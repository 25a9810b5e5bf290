"""The namespaces outside of the mesh: a list that the agent keeps in a file, for the plugin and for itself.

Pods of these namespaces start while the agent does not answer, and while the agent cannot ask the API about them: both read the
same file by the same rules, so that they decide alike.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, strings
from netinit.inject.deciding.webhooks import (
    DATAPLANE_LABEL,
    INJECTION_LABEL,
    REVISION_LABEL,
    Selector,
    Webhook,
    parse_injectors,
)
from netinit.kernel.files import read_regular
from netinit.kube import resources as api
from netinit.kube.client import Cache, Client, follow
from netinit.node.installer import replace_file
from netinit.node.node_pods import PodCache
from netinit.serving.event_log import EventLog

_PAUSE = 1.0  # seconds between two updates, however often namespaces change
_MAX_BYTES = 1 << 20  # bytes of the file; the plugin reads no longer one
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # a DNS label
_LINE = re.compile(r"[-a-z0-9]{1,63}")  # what the plugin takes for a name
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
    injection, mode = labels.get(INJECTION_LABEL, "disabled"), labels.get(DATAPLANE_LABEL, "none")
    return injection != "disabled" or mode != "none" or REVISION_LABEL in labels


def format_names(names: Iterable[str]) -> tuple[str, list[str]]:
    """Return the file's text, a name a line, sorted, and the names that would make it longer than the plugin reads."""
    known, size = sorted(filter(_NAME.fullmatch, names)), 0
    for at, name in enumerate(known):
        size += len(name) + 1
        if size >= _MAX_BYTES:
            return "".join(f"{one}\n" for one in known[:at]), known[at:]
    return "".join(f"{one}\n" for one in known), []


def is_listed(path: Path, namespace: str) -> bool:
    """Whether the file lists the namespace, judged as the plugin does (`is_outside` of netinit/node/plugin.c).

    A file that another user could write, that is longer than the plugin reads, or that has a line which is no name, lists nothing.
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
        text = read_regular(str(path), _MAX_BYTES - 1).decode("ascii")
    except (OSError, ValueError):
        return False
    *names, rest = text.split("\n")
    return not rest and namespace in names and all(map(_LINE.fullmatch, names))


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
    """Writes the list to `path` when it changes. Until everything has been listed once, the old file stays.

    `problem`: which namespaces have no room in it; empty if all have.
    """

    def __init__(self, path: Path, client: Client, pod_cache: PodCache, log: EventLog) -> None:
        self.problem = ""
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
        await asyncio.sleep(_PAUSE)
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
        text, left_out = format_names(self._found - {pod.namespace for pod in self._pod_cache if pod.proxy})
        self._note_left_out(left_out)
        if text != self._written:
            self._written = None
            replace_list(self._path, text)
            self._written = text

    def _note_left_out(self, names: list[str]) -> None:
        """Log which namespaces the list has no room for, once until there are others."""
        found = f"{len(names)} namespaces, {names[0]} to {names[-1]}, have no room in the list of 1 MiB" if names else ""
        if found and found != self.problem:
            self._log.event("warn", f"{found}: their pods wait while the agent does not answer; name them in --excludeNamespaces")
        self.problem = found
