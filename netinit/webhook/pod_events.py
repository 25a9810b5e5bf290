"""Events about pods that the webhook injected, on their controllers: reviews offer them, a task of the controller writes them.

Whoever reaches the webhook's port can offer some, so they are few: each one once in ten minutes, and at most thirty in a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from netinit.base.sanitize import escape, shorten
from netinit.base.tree import Tree, mapping, sequence, string

SHARED_USER = "SharedProxyUser"
_MAX_WAITING = 64  # events; further ones are dropped while the API server is slow
_AGAIN_SECONDS = 600.0
_MAX_PER_MINUTE = 30
_MAX_FIELD = 253  # characters of a name (a DNS subdomain)


@dataclass(frozen=True, slots=True)
class PodEvent:
    """A warning about a pod: what it is on (kind, API version, namespace, name, uid), its reason and its message."""

    involved: tuple[tuple[str, str], ...]
    reason: str
    message: str


def find_involved(pod: Tree, namespace: str) -> tuple[tuple[str, str], ...]:
    """Return a reference to a new pod's controller, which is where its author looks; to the pod if it has none."""
    metadata = mapping(pod.get("metadata"))
    references = [one for one in map(mapping, sequence(metadata.get("ownerReferences"))) if one.get("controller") is True]
    itself = {"kind": "Pod", "apiVersion": "v1", "name": metadata.get("name") or metadata.get("generateName")}
    found = references[0] if references else itself
    fields = {"namespace": namespace, **{key: found.get(key) for key in ("kind", "apiVersion", "name", "uid")}}
    return tuple((key, escape(shorten(string(value), _MAX_FIELD - 1))) for key, value in fields.items() if value)


class PodEvents:
    """The events that wait, and those that were offered lately."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: asyncio.Queue[PodEvent] = asyncio.Queue(_MAX_WAITING)
        self._offered: dict[PodEvent, float] = {}
        self._minute: deque[float] = deque(maxlen=_MAX_PER_MINUTE)

    def offer(self, event: PodEvent) -> bool:
        """Queue the event; return whether it will be written. Never blocks."""
        now = self._now()
        self._offered = {one: at for one, at in self._offered.items() if now - at < _AGAIN_SECONDS}
        busy = len(self._minute) == _MAX_PER_MINUTE and now - self._minute[0] < 60  # noqa: PLR2004 - seconds
        if event in self._offered or busy or self._waiting.full():
            return False
        self._offered[event] = now
        self._minute.append(now)
        self._waiting.put_nowait(event)
        return True

    async def write(self, send: Callable[[PodEvent], Awaitable[None]]) -> None:
        """Send each event as it comes, until cancelled."""
        while True:
            await send(await self._waiting.get())
