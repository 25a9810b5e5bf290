"""A cache kept up to date by a watch: list once, then follow changes; after 410 Gone, list again.

Watches end after about a minute and resume from the last version seen, so that dead connections are noticed. After an
error the cache keeps its content and retries after a pause that doubles up to half a minute; after several, or if the
version is too old, it lists again, which also removes deleted objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from netinit.base.errors import ClusterError
from netinit.base.tree import Tree, mapping, string
from netinit.kube.client import GONE, NOT_FOUND, Client, Resource, name_of

_WATCH_SECONDS = (50, 80)  # chosen at random, so that replicas do not reconnect all at once
_PAUSES = (0.5, 30.0)  # seconds after the first error, and at most
_UNKNOWN_RESOURCE_SECONDS = 60.0  # until a resource that the cluster does not know is listed again
_LIST_AFTER = 3  # consecutive errors


async def follow(
    caches: Iterable[Cache], changed: asyncio.Event, react: Callable[[], Awaitable[None]], *, seconds: float | None = None
) -> None:
    """Run the caches, and call `react` after `changed` is set, at least every `seconds`, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for cache in caches:
            group.create_task(cache.run())
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await changed.wait()
            changed.clear()
            await react()


@dataclass(eq=False)
class Cache:
    """The objects of one resource, of one namespace or all, filtered by fields; `items` has them by namespace and name.

    `keep` returns what to remember of an object (None: nothing). `changed`, which must not block, is called after
    each change and list, and when `error` changes. `optional`: a resource that the cluster does not know has no
    objects, and is looked for again once a minute.
    """

    client: Client
    resource: Resource
    namespace: str = ""
    _: KW_ONLY
    fields: str = ""
    keep: Callable[[Tree], Any] = lambda tree: tree
    changed: Callable[[], None] = lambda: None
    optional: bool = False
    items: dict[tuple[str, str], Any] = field(default_factory=dict, init=False)
    error: str = field(default="", init=False)
    _version: str = field(default="", init=False)
    _synced: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def synced(self) -> bool:
        """Whether the objects have been listed once."""
        return self._synced.is_set()

    async def wait(self) -> None:
        """Wait until the objects have been listed once."""
        await self._synced.wait()

    def get(self, name: str, namespace: str = "") -> Any:
        """What is remembered of the object, or None."""
        return self.items.get((namespace, name))

    async def run(self) -> None:
        """Keep the cache up to date until cancelled."""
        errors = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._follow()
                errors = 0
            except ClusterError as error:
                if error.status == NOT_FOUND and self.optional:
                    self._take({}, "")
                    await asyncio.sleep(_UNKNOWN_RESOURCE_SECONDS)
                    continue
                errors += 1
                if error.status == GONE:
                    self._version = ""
                    if errors == 1:
                        continue
                if str(error) != self.error:
                    self.error = str(error)
                    self.changed()
                if errors >= _LIST_AFTER:
                    self._version = ""
                first, longest = _PAUSES
                pause = min(longest, first * 2.0 ** min(errors - 1, 10))
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _list(self) -> None:
        found, version = await self.client.list(self.resource, self.namespace, fields=self.fields)
        kept = {name_of(tree): self.keep(tree) for tree in found}
        self._take({key: value for key, value in kept.items() if value is not None}, version)

    def _take(self, items: dict[tuple[str, str], Any], version: str) -> None:
        """Replace all items by those that were listed."""
        self.items = items
        self._version = version
        self.error = ""
        self._synced.set()
        self.changed()

    async def _follow(self) -> None:
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311 - no secret
        changes = self.client.watch(
            self.resource, self.namespace, version=self._version, seconds=seconds, opened=self._recover, fields=self.fields
        )
        async for kind, tree in changes:
            self._version = string(mapping(tree.get("metadata")).get("resourceVersion")) or self._version
            if kind == "BOOKMARK":
                continue
            kept = None if kind == "DELETED" else self.keep(tree)
            if kept is None:
                self.items.pop(name_of(tree), None)
            else:
                self.items[name_of(tree)] = kept
            self.changed()

    def _recover(self) -> None:
        if self.error:
            self.error = ""
            self.changed()
