"""Requests to the API, each with a deadline and a size limit, and caches of resources.

Objects are plain trees; every failure is a ClusterError.

A cache lists once, then follows changes by a watch; after 410 Gone it lists again. Watches end after about a minute and
resume from the last version seen, so that dead connections are noticed. After an error the cache keeps its content and
retries after a pause that doubles up to half a minute; after several, or if the version is too old, it lists again, which
also removes deleted objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import httpx2

from netinit.base.errors import ClusterError
from netinit.base.sanitize import escape, shorten
from netinit.base.tree import Tree, explain_json_error, mapping, string
from netinit.kube.access import Access, Credentials, make_context
from netinit.kube.resources import EVENTS, GONE, MERGE_PATCH, NOT_FOUND, PAGE, Resource, name_of, take_page

_MAX_BYTES = 64 << 20  # bytes of an answer
_MAX_LINE_BYTES = 8 << 20  # bytes of an event in a watch: etcd's limit for an object is 1.5 MiB
_REFUSED = 400
_MAX_MESSAGE = 1000  # characters of an event; the API accepts 1024
_WATCH_SECONDS = (50, 80)  # chosen at random, so that replicas do not reconnect all at once
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 30.0  # seconds after errors
_UNKNOWN_RESOURCE_SECONDS = 60.0  # until a resource that the cluster does not know is listed again
_LIST_AFTER = 3  # consecutive errors
_SLACK = 15.0  # seconds that a silent watch may last beyond its end


class Client:
    """One cluster's API, an async context manager; a request has `seconds`. Raises ConfigError for bad certificates."""

    def __init__(self, access: Access, *, seconds: float = 10.0) -> None:
        self.access = access
        self._timeout = httpx2.Timeout(seconds, connect=min(seconds, 5.0))
        self._extensions = {"sni_hostname": access.server_name} if access.server_name else {}  # also verified in the certificate
        self._http = httpx2.AsyncClient(
            base_url=access.server,
            auth=httpx2.BasicAuth(access.username, access.password) if access.username else Credentials(access),
            verify=make_context(access) if access.server.startswith("https:") else True,
            timeout=self._timeout,
            headers={"Accept": "application/json", "User-Agent": "netinit"},
            trust_env=False,  # a proxy from the environment is not for the cluster's own API
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Tree:
        """Get one object. Raises ClusterError, with status NOT_FOUND if there is none."""
        return await self._ask("GET", resource.path(namespace, name))

    async def list(
        self, resource: Resource, namespace: str = "", *, fields: str = "", keep: Callable[[Tree], Any] = lambda tree: tree
    ) -> tuple[list[Any], str]:
        """List objects, page by page, as what `keep` returns of each but None; also returns their resourceVersion."""
        found: list[Any] = []
        query = {"limit": str(PAGE), **({"fieldSelector": fields} if fields else {})}
        while True:
            items, version = take_page(await self._ask("GET", resource.path(namespace), query), query)
            found += [kept for item in items if (kept := keep(item)) is not None]
            if not query["continue"]:
                return found, version

    async def create(self, resource: Resource, tree: Tree, namespace: str = "") -> Tree:
        """Create an object and return it. Raises ClusterError, with status CONFLICT if the name exists."""
        return await self._ask("POST", resource.path(namespace), body=resource.typed(tree))

    async def replace(self, resource: Resource, tree: Tree, name: str, namespace: str = "") -> Tree:
        """Replace an object and return it. Status CONFLICT if its metadata.resourceVersion is not current."""
        return await self._ask("PUT", resource.path(namespace, name), body=resource.typed(tree))

    async def patch(
        self, resource: Resource, name: str, patch: Any, namespace: str = "", *, kind: str = MERGE_PATCH, part: str = ""
    ) -> Tree:
        """Apply a JSON patch or merge patch and return the object; `part` is a subresource such as status."""
        return await self._ask("PATCH", resource.path(namespace, name, *([part] if part else [])), body=patch, kind=kind)

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "", version: str = "") -> None:
        """Delete an object. Status CONFLICT if it has another uid or resourceVersion than given."""
        wanted = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": wanted} if wanted else None
        await self._ask("DELETE", resource.path(namespace, name), body=body)

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: str,
        seconds: int,
        fields: str = "",
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[tuple[str, Tree]]:
        """Yield changes after a resourceVersion: ADDED, MODIFIED, DELETED or BOOKMARK, and the object.

        `opened` is called when the API accepts the watch. It ends after `seconds`, a silent connection 15 s
        later. Raises ClusterError, with status GONE if the version is too old.
        """
        asked = {
            **({"fieldSelector": fields} if fields else {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        path, timeout = resource.path(namespace), httpx2.Timeout(**{**self._timeout.as_dict(), "read": seconds + _SLACK})
        async with self._send("GET", path, params=asked, timeout=timeout) as response:
            opened()
            async for line in _lines(response):
                yield _event(path, line)

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, body: Any = None, kind: str = ""
    ) -> Tree:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind or "application/json"} if content is not None else {}
        async with self._send(method, path, params=query, content=content, headers=headers) as response:
            return _tree(path, await _read(response))

    @contextlib.asynccontextmanager
    async def _send(self, method: str, path: str, **more: Any) -> AsyncIterator[httpx2.Response]:
        """Send a request and give its response, if the API does not refuse it. Raises ClusterError."""
        try:
            async with self._http.stream(method, path, extensions=self._extensions, **more) as response:
                if response.status_code >= _REFUSED:
                    raise _refusal(method, path, response.status_code, await _read(response))
                yield response
        except httpx2.HTTPError as error:
            why = "was late" if isinstance(error, httpx2.TimeoutException) else f"{error}" or type(error).__name__
            text = f"the API at {self.access.server} cannot be asked ({method} {path}): {escape(shorten(why))}"
            raise ClusterError(text) from error


async def write_event(client: Client, involved: Tree, *, reason: str, message: str, component: str, kind: str = "Warning") -> str:
    """Create an event on the object that `involved` refers to. Return why it cannot be written; empty if it was."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    namespace = string(involved.get("namespace")) or "default"  # as for nodes, which have none
    event = {
        "metadata": {"generateName": f"{involved.get('name')}.", "namespace": namespace},
        "involvedObject": involved,
        "type": kind,
        "reason": reason,
        "message": message[:_MAX_MESSAGE],
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await client.create(EVENTS, event, namespace)
    except ClusterError as error:
        return str(error)
    return ""


async def _read(response: httpx2.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > _MAX_BYTES:
            raise ClusterError(f"the API's answer to {response.request.url.path} is longer than {_MAX_BYTES >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for part in response.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > _MAX_LINE_BYTES:
            raise ClusterError(f"an event of {response.request.url.path} is longer than {_MAX_LINE_BYTES >> 20} MiB")


def _tree(path: str, data: bytes) -> Tree:
    try:
        tree = json.loads(data) if data else {}
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"the API's answer to {path} is not JSON: {explain_json_error(error)}") from error
    if not isinstance(tree, dict):
        raise ClusterError(f"the API's answer to {path} is not an object")
    return tree


def _event(path: str, line: bytes) -> tuple[str, Tree]:
    event = _tree(path, line)
    found = mapping(event.get("object"))
    kind = string(event.get("type"))
    if kind == "ERROR":
        code = found.get("code")
        raise ClusterError(
            f"the watch of {path} ended: {escape(shorten(string(found.get('message'))))}",
            status=code if isinstance(code, int) else 0,
            reason=string(found.get("reason")),
        )
    return kind, found


def _refusal(method: str, path: str, status: int, data: bytes) -> ClusterError:
    try:
        tree = _tree(path, data)
    except ClusterError:
        tree = {}
    reason = string(tree.get("reason"))
    message = string(tree.get("message")) or data[:200].decode(errors="replace")
    return ClusterError(f"the API refuses {method} {path}: {status} {escape(shorten(message, 400))}", status=status, reason=reason)


# ---- caches


async def follow(
    caches: Iterable[Cache], react: Callable[[], Awaitable[None]], *, changed: asyncio.Event | None = None,
    seconds: float | None = None,
) -> None:  # fmt: skip
    """Run the caches, and call `react` after a change or when `changed` is set, at least every `seconds`, until cancelled."""
    changed = changed or asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for cache in caches:
            cache.changed = changed.set
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
                    self._take(*await self.client.list(self.resource, self.namespace, fields=self.fields, keep=self._keep))
                await self._follow()
                errors = 0
            except ClusterError as error:
                if error.status == NOT_FOUND and self.optional:
                    self._take([], "")
                    await asyncio.sleep(_UNKNOWN_RESOURCE_SECONDS)
                    continue
                errors += 1
                if error.status == GONE:
                    self._version = ""
                    if errors == 1:
                        continue
                self._note(str(error))
                if errors >= _LIST_AFTER:
                    self._version = ""
                pause = min(_MAX_PAUSE, _FIRST_PAUSE * 2.0 ** min(errors - 1, 10))
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    def _keep(self, tree: Tree) -> tuple[tuple[str, str], Any] | None:
        kept = self.keep(tree)
        return None if kept is None else (name_of(tree), kept)

    def _take(self, found: Sequence[tuple[tuple[str, str], Any]], version: str) -> None:
        """Replace all items by what is remembered of the listed objects."""
        self.items = dict(found)
        self._version = version
        self.error = ""
        self._synced.set()
        self.changed()

    async def _follow(self) -> None:
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311 - no secret
        changes = self.client.watch(
            self.resource, self.namespace, version=self._version, seconds=seconds, fields=self.fields, opened=lambda: self._note("")
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

    def _note(self, error: str) -> None:
        if error != self.error:
            self.error = error
            self.changed()
