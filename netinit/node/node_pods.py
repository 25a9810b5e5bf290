"""The node's pods: a cache that follows the API, and a watch of what changes in pods between sweeps.

When a pod changes, the agent checks it as a sweep would. For each pod a privileged child has opened netlink notification
sockets in the pod's namespace (netinit.kernel.notifications); this process, which has no privileges, polls them. The
first notification disarms the pod's sockets, so further changes cost nothing. The check that follows drains the sockets,
arms them, and then compares the pod's rules with the plan, by the same job as a sweep's. So every change is followed by
a check that starts after it, and the content of notifications is never trusted. Our own changes cause a check as well,
which finds the plan.

A pod that changes constantly is checked less and less often (`_LEAST` to `_MAX_PAUSE`); checks of such pods have a queue
of their own, so that they do not delay others.

Connections, where they are watched, have a watcher of their own, so that a pod that opens many delays no check of rules. A
pod that opens 10,000 a second costs as much as one that opens one a check: what the kernel has no room for it drops. Its workers
rest four times as long as they work.

A socket keeps the pod's namespace alive. So it is closed on the runtime's DEL, when the namespace's file is gone, and
when the pod is no longer to be captured.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from netinit.base.errors import ClusterError, CniError, NetinitError
from netinit.kernel import identify, notifications
from netinit.kube.client import Cache, Client
from netinit.kube.resources import NOT_FOUND, PODS
from netinit.node.decision import NodePod, matches_uid, read_pod
from netinit.node.jobs import SUBSCRIBE, SUBSCRIBE_CONNECTIONS, Job
from netinit.node.metrics import NodeMetrics
from netinit.node.programmer_client import ProgrammerClient
from netinit.node.protocol import CniCode
from netinit.options import Options
from netinit.serving.event_log import EventLog

_REQUESTS = 16  # concurrent ones: after a restart of the node all pods start at once
_RETRY = 0.25  # seconds between two requests
_REMEMBERED = 5.0  # seconds for which a failed request counts for others: a connection that is cut off fails late
MAX_WATCHED = 1024  # pods: three descriptors each, of the agent's limit of 8,192; a kubelet's default is 110 pods
_SETTLE = 0.05  # seconds from a notification to the check: programs change several rules in a row
_AFTER_ADD = 0.5  # seconds until a newly programmed pod is watched: starting pods come first
_LEAST, _MAX_PAUSE = 0.1, 5.0  # seconds between two checks of one pod
_QUIET = 1.0  # seconds without a change after which a pod's pause is reset to the least; or four pauses
_NOISY = 0.5  # seconds of pause from which a pod moves to the queue of noisy pods
_REST = 4  # minimum pause after a check of such a pod, in multiples of the check's duration
_WORKERS, _WORKERS_OF_NOISY = 3, 1
_SECONDS = 10.0  # for a subscription
_TIDY = 2.0  # seconds between two checks for deleted namespaces

CheckPod = Callable[[NodePod, str], Awaitable[bool]]


class PodCache(Cache):
    """The pods of one node."""

    def __init__(self, client: Client, node: str) -> None:
        super().__init__(client, PODS, fields=f"spec.nodeName={node}", keep=read_pod)
        self._turn = asyncio.Semaphore(_REQUESTS)
        self._refused = (-_REMEMBERED, "")  # when a request failed last, and why

    def __iter__(self) -> Iterator[NodePod]:
        return iter(list(self.items.values()))

    @property
    def api_error(self) -> str:
        """Why the API cannot be asked: the watch's error, or that of a request in the last seconds; empty if it can."""
        return self.error or (self._refused[1] if time.monotonic() < self._refused[0] + _REMEMBERED else "")

    def _note(self, error: str) -> None:
        if not error:  # the API has accepted a watch: it is back
            self._refused = (-_REMEMBERED, "")
        super()._note(error)

    def known(self, namespace: str, name: str, uid: str) -> NodePod | None:
        """Return the pod of this name and uid if the watch has told of it."""
        found: NodePod | None = self.get(name, namespace)
        return found if found is not None and matches_uid(found, uid) else None

    async def find(self, namespace: str, name: str, uid: str, deadline: float, *, insists: bool = True) -> NodePod:
        """Return the pod of this name and uid, asking the API until `deadline` (time.monotonic()), or once unless it `insists`.

        Raises ClusterError if the API gave no answer about the pod, CniError if it says that there is no such pod.
        """
        if known := self.known(namespace, name, uid):
            return known
        problem = "it did not answer in time"
        while (left := deadline - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left), self._turn:
                    found = read_pod(await self.client.get(PODS, name, namespace))
            except TimeoutError:
                break
            except ClusterError as error:
                problem = str(error)
                if error.status == NOT_FOUND:
                    self._refused = (-_REMEMBERED, "")
                    raise _unknown(namespace, name, problem) from None
                self._refused = (time.monotonic(), problem)
                if not insists:
                    break
                await asyncio.sleep(min(_RETRY, left))
                continue
            self._refused = (-_REMEMBERED, "")
            if matches_uid(found, uid):
                return found
            raise _unknown(namespace, name, "another pod has that name now")
        self._refused = (time.monotonic(), problem)
        raise ClusterError(problem)


def _unknown(namespace: str, name: str, problem: str) -> CniError:
    return CniError(f"pod {namespace}/{name} is not known: {problem}", CniCode.LATER)


# ---- changes in pods


@dataclass(slots=True, eq=False)
class _Watched:
    """A watched pod; times are the event loop's."""

    uid: str
    path: str
    identity: tuple[int, int]
    sockets: list[socket.socket] = field(default_factory=list)
    pause: float = _LEAST
    ended: float = 0.0  # end of the last check
    notified: float = 0.0  # the first notification after the last check; 0 if there is none
    looking: bool = False


@dataclass(eq=False)
class PodWatcher:
    """The watched pods. `add` and `forget` may be called at any time; checks are made while `run` runs."""

    base: Options
    pod_cache: PodCache
    programmer: ProgrammerClient
    metrics: NodeMetrics
    log: EventLog
    connections: bool = False
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _quiet: asyncio.Queue[_Watched] = field(default_factory=asyncio.Queue)
    _noisy: asyncio.Queue[_Watched] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        if not self.connections:
            self.metrics.watched.set_function(lambda: sum(1 for one in self._watched.values() if one.sockets))

    def add(self, uid: str, path: str, *, delay: float = _AFTER_ADD) -> None:
        """Check the namespace at `path` after `delay` s and watch it; not without uid or file, or beyond MAX_WATCHED."""
        known, identity = self._watched.get(uid), identify(path)
        if not uid or identity is None or (known and known.identity == identity):
            return
        if known is None and len(self._watched) >= MAX_WATCHED:
            self.log.event("warn", f"{MAX_WATCHED} pods are watched, and no more: only sweeps check it", pod=uid)
            return
        if known:
            self._drop(known)
        watched = self._watched[uid] = _Watched(uid, path, identity)
        self._schedule(watched, delay)

    def forget(self, identity: tuple[int, int] | None, path: str) -> None:
        """Stop watching the namespace with this identity, or at this path."""
        for one in list(self._watched.values()):
            if one.identity == identity or one.path == path:
                self._drop(one)

    async def run(self, check: CheckPod, is_busy: Callable[[str], bool]) -> None:
        """Check pods that change, until cancelled. `check` compares, reports and repairs, and returns whether there was drift."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for queue, number in ((self._quiet, 1 if self.connections else _WORKERS), (self._noisy, _WORKERS_OF_NOISY)):
                    for _ in range(number):
                        tasks.create_task(self._work(queue, check, is_busy))
                tasks.create_task(self._drop_deleted())
        finally:
            for one in list(self._watched.values()):  # the next sweep, or the next run, watches them again
                self._drop(one)

    async def _drop_deleted(self) -> None:
        while True:
            uids = {pod.uid for pod in self.pod_cache if not pod.ended}
            for one in list(self._watched.values()):
                if identify(one.path) != one.identity or (self.pod_cache.synced and one.uid not in uids):
                    self._drop(one)
            await asyncio.sleep(_TIDY)

    async def _work(self, queue: asyncio.Queue[_Watched], check: CheckPod, is_busy: Callable[[str], bool]) -> None:
        while True:
            watched = await queue.get()
            if self._watched.get(watched.uid) is not watched:
                continue
            if is_busy(watched.uid):
                self._schedule(watched, _LEAST)
                continue
            started = asyncio.get_running_loop().time()
            await self._answer(watched, check)
            if self.connections:
                await asyncio.sleep(_REST * (asyncio.get_running_loop().time() - started))

    async def _answer(self, watched: _Watched, check: CheckPod) -> None:
        """Run one check, which starts after all notifications so far; schedule another if more arrive meanwhile."""
        now = asyncio.get_running_loop().time
        started, watched.looking = now(), True
        try:
            await self._arm(watched)
            notified, watched.notified = watched.notified or started, 0.0
            pod = next((pod for pod in self.pod_cache if pod.uid == watched.uid), None)
            if pod is None:
                self._drop(watched)
                return
            (self.metrics.connection_looks if self.connections else self.metrics.looks).inc()
            if await check(pod, watched.path):
                self.metrics.noticed.observe(now() - notified)
        except (NetinitError, OSError) as error:
            self._drop(watched)
            if identify(watched.path) == watched.identity:  # otherwise the pod was deleted meanwhile
                self.log.event("warn", f"a pod cannot be watched, only sweeps check it: {error}", pod=watched.uid)
        finally:
            watched.looking, watched.ended = False, now()
            if watched.pause > _NOISY:
                watched.pause = max(watched.pause, min(_MAX_PAUSE, (watched.ended - started) * _REST))
        if watched.notified:
            watched.pause = min(_MAX_PAUSE, 2 * watched.pause)
            self._schedule(watched, watched.pause)

    async def _arm(self, watched: _Watched) -> None:
        """Drain earlier notifications and listen for new ones."""
        if not watched.sockets:
            found = await self._subscribe(watched.path)
            if self._watched.get(watched.uid) is not watched:  # the pod was removed meanwhile
                notifications.close(found)
                raise NetinitError("the pod is gone")
            watched.sockets = found
        self.metrics.dropped.inc(notifications.drain(watched.sockets))
        for one in watched.sockets:
            asyncio.get_running_loop().add_reader(one, self._receive, watched)

    async def _subscribe(self, path: str) -> list[socket.socket]:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                kind = SUBSCRIBE_CONNECTIONS if self.connections else SUBSCRIBE
                done = await self.programmer.do(Job.of(kind, self.base, seconds=_SECONDS, path=path), theirs.fileno())
            if done.error:
                raise NetinitError(done.error)
            return notifications.receive_sockets(ours)

    def _receive(self, watched: _Watched) -> None:
        """Schedule a check after a change, and ignore notifications until then."""
        now = asyncio.get_running_loop().time()
        self._disarm(watched)
        watched.notified = now
        if watched.looking:
            return
        is_quiet = now >= watched.ended + max(_QUIET, 4 * watched.pause)
        watched.pause = _LEAST if is_quiet else min(_MAX_PAUSE, 2 * watched.pause)
        self._schedule(watched, max(_SETTLE, watched.ended + watched.pause - now))

    def _schedule(self, watched: _Watched, delay: float) -> None:
        queue = self._noisy if watched.pause > _NOISY else self._quiet
        asyncio.get_running_loop().call_later(delay, queue.put_nowait, watched)

    @staticmethod
    def _disarm(watched: _Watched) -> None:
        for one in watched.sockets:
            asyncio.get_running_loop().remove_reader(one)

    def _drop(self, watched: _Watched) -> None:
        if self._watched.get(watched.uid) is watched:
            del self._watched[watched.uid]
        self._disarm(watched)
        notifications.close(watched.sockets)
        watched.sockets = []
