"""Answer the plugin's requests: look up the pod, decide, and have it programmed; one function for each CNI verb."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from netinit.base.errors import ClusterError, CniError, OptionError
from netinit.base.sanitize import quote, shorten
from netinit.base.tree import mapping, sequence, string
from netinit.kernel import identify
from netinit.node.decision import NodeDecision, NodePod, decide, is_own_pod
from netinit.node.jobs import APPLY, REMOVE, VERIFY, Job, JobResult
from netinit.node.metrics import NodeMetrics
from netinit.node.node_pods import PodCache, PodWatcher
from netinit.node.outside_namespaces import is_listed
from netinit.node.pod_records import Attachments
from netinit.node.programmer_client import ProgrammerClient
from netinit.node.protocol import CniCode, Request, encode_answer, encode_error, result
from netinit.node.settings import OUTSIDE_FILE, START, AgentSettings
from netinit.options import Interception, Options
from netinit.pods.attachments import Attachment
from netinit.serving.event_log import EventLog

_OUTSIDE_SECONDS = 2.0  # for the API to answer about a pod that is probably outside of the mesh: its watch usually told long before
OK, FAILED, LEFT_ALONE, PROGRAMMED = "ok", "failed", "left-alone", "programmed"


@dataclass(eq=False)
class Agent:
    """The node's agent: answers the plugin's requests. `in_progress` counts the pods being programmed, by uid."""

    settings: AgentSettings
    pod_cache: PodCache
    programmer: ProgrammerClient
    attachments: Attachments
    metrics: NodeMetrics
    log: EventLog
    outside: Path = Path(OUTSIDE_FILE)  # the list of namespaces outside of the mesh
    watchers: Sequence[PodWatcher] = ()
    last_errors: list[str] = field(default_factory=list)
    in_progress: Counter[str] = field(default_factory=Counter)
    # By container and interface: a lock, so that requests are answered in their order; and the ADD that does not program yet
    _turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _deciding: dict[tuple[str, str], asyncio.Task[Any]] = field(default_factory=dict)

    def obstacle(self) -> str:
        """Why pods cannot be programmed now; empty if they can."""
        if self.pod_cache.synced:
            return ""
        return f"the node's pods are not known yet: {self.pod_cache.error or 'the API was not asked yet'}"

    async def answer(self, request: Request, namespace: int, deadline: float) -> bytes:
        """Return the plugin's output, or its error. `namespace`: a descriptor or -1; `deadline`: of time.monotonic()."""
        started = time.monotonic()
        self.metrics.in_flight.inc()
        outcome = FAILED
        verbs = {"ADD": self._add, "CHECK": self._check, "DEL": self._delete, "GC": self._collect}
        try:
            async with self._turn(request, deadline):
                outcome = await verbs[request.verb](request, namespace, deadline)
            answer = encode_answer(result(request) if request.verb == "ADD" else None)
        except CniError as error:
            answer = encode_error(error, request.version)
            self._note(request, error)
        except Exception as error:  # noqa: BLE001 - the pod waits, and the log says why
            answer = encode_error(CniError("internal error; the agent's log has details", CniCode.LATER), request.version)
            self._note(request, error)
        finally:
            self.metrics.in_flight.dec()
        seconds = time.monotonic() - started
        self.metrics.requests.labels(request.verb, outcome).inc()
        self.metrics.seconds.labels(request.verb).observe(seconds)
        return answer

    @asynccontextmanager
    async def _turn(self, request: Request, deadline: float) -> AsyncIterator[None]:
        """Wait for earlier requests of the same container and interface: a runtime that has killed an ADD sends DEL at once.

        A DEL ends an ADD that only waits for the API. Raises CniError after the deadline.
        """
        key = request.container, request.interface
        if request.verb == "DEL" and key in self._deciding:
            self._deciding[key].cancel()
        lock = self._turns.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await lock.acquire()
        except TimeoutError:
            raise CniError("an earlier request of this container is still being answered", CniCode.LATER) from None
        try:
            yield
        finally:
            lock.release()

    def _note(self, request: Request, error: Exception) -> None:
        pod = "/".join(request.pod)
        text = str(error) if isinstance(error, CniError) else f"internal error: {type(error).__name__}: {error}"
        self.last_errors = [*self.last_errors[-9:], f"{request.verb} {pod}: {shorten(text, 300)}"]
        self.log.event("error", f"{request.verb}: {text}", pod=pod, container=request.container)

    # ---- ADD

    async def _add(self, request: Request, namespace: int, deadline: float) -> str:
        started = time.monotonic()
        key, task = (request.container, request.interface), asyncio.current_task()
        if task:
            self._deciding[key] = task
        try:
            decision, pod = await self._decide(request, deadline)
        finally:
            self._deciding.pop(key, None)
        if decision.options is None:
            self.log.event("debug", f"left alone: {decision.reason}", pod="/".join(request.pod))
            return LEFT_ALONE
        job = Job.of(APPLY, decision.options, seconds=_left(deadline))
        uid = pod.uid if pod else ""
        if namespace >= 0:  # before programming, so that DEL knows what an agent that is killed meanwhile leaves
            self._remember(request, namespace, decision.options, pod)
        self.in_progress[uid] += 1
        try:
            done = await self._do(job, request, namespace)
        finally:
            self.in_progress[uid] -= 1
            self.in_progress += Counter()  # drop entries that are done
        if pod:
            for watcher in self.watchers:
                watcher.add(pod.uid, request.netns)
        for warning in done.warnings:
            self.log.event("warn", warning, pod="/".join(request.pod))
        self.log.event(
            "info", f"programmed by {done.backend}" if done.changed else f"rules are as planned ({done.backend})",
            pod="/".join(request.pod), milliseconds=round((time.monotonic() - started) * 1000, 2),
        )  # fmt: skip
        return PROGRAMMED

    async def _decide(self, request: Request, deadline: float) -> tuple[NodeDecision, NodePod | None]:
        """Decide in Istio's order, starting with what needs no information about the pod."""
        given = request.configuration.get("capture")
        namespace, name = request.pod
        if isinstance(given, list) and not namespace:
            return NodeDecision(options=_parse_capture(self.settings.base, given)), None
        if not name or not namespace:
            return NodeDecision(reason="the runtime names no pod of Kubernetes"), None
        if namespace in self.settings.exclude_namespaces:
            return NodeDecision(reason=f"its namespace {namespace} is excluded"), None
        if is_own_pod(namespace, name, self.settings.namespace, self.settings.daemon_set):
            return NodeDecision(reason="it is the agent's own"), None
        pod = await self._find(request, deadline)
        if pod is None:
            return NodeDecision(reason=f"the API cannot be asked, and its namespace {namespace} was outside of the mesh"), None
        return decide(pod, self.settings.base, request.addresses), pod

    async def _find(self, request: Request, deadline: float) -> NodePod | None:
        """Return the pod; None if the API cannot be asked and the pod is outside of the mesh. Raises CniError.

        The plugin, without an agent, decides by the same list. While the API is known to be away it is not asked about such pods.
        """
        namespace, name = request.pod
        if known := self.pod_cache.known(namespace, name, request.uid):
            return known
        is_outside = self.settings.outside_namespaces == START and is_listed(self.outside, namespace)
        if is_outside and self.pod_cache.api_error:
            return None
        latest = min(deadline, time.monotonic() + _OUTSIDE_SECONDS) if is_outside else deadline
        try:
            return await self.pod_cache.find(namespace, name, request.uid, latest, insists=not is_outside)
        except ClusterError as error:
            if is_outside:
                return None
            raise CniError(f"pod {namespace}/{name} is not known: {error}", CniCode.LATER) from None

    async def _do(self, job: Job, request: Request, namespace: int) -> JobResult:
        if request.unopened and namespace < 0:
            why = os.strerror(request.unopened)
            raise CniError(f"the pod's network namespace {quote(request.netns)} cannot be opened on the node: {why}", CniCode.LATER)
        done = await self.programmer.do(job, namespace)
        if done.gone:
            raise CniError(done.error, CniCode.UNKNOWN)
        if done.error:
            raise CniError(done.error, CniCode.LATER if done.late else CniCode.NOT_PROGRAMMED)
        return done

    def _remember(self, request: Request, namespace: int, options: Options, pod: NodePod | None) -> None:
        """Write the record that DEL, CHECK and sweeps read. If that fails (a full disk), the pod still starts."""
        device, inode = identify(namespace) or (0, 0)
        attachment = Attachment(
            container=request.container, interface=request.interface, namespace=request.pod[0], name=request.pod[1],
            uid=pod.uid if pod else request.uid, netns=request.netns, device=device, inode=inode,
            argv=options.to_argv(), environ=options.to_environ(),
        )  # fmt: skip
        try:
            self.attachments.put(attachment)
        except OSError as error:
            self.log.event("warn", f"what was programmed cannot be noted: {error.strerror}", pod="/".join(request.pod))

    # ---- the other verbs

    async def _check(self, request: Request, namespace: int, deadline: float) -> str:
        """Handle CHECK: the first rule that differs is the error."""
        known = self.attachments.get(request.container, request.interface)
        options = (known.options if known else None) or (await self._decide(request, deadline))[0].options
        if options is None:
            return LEFT_ALONE
        done = await self._do(Job.of(VERIFY, options, seconds=_left(deadline)), request, namespace)
        if done.differences:
            first, *more = done.differences
            raise CniError("\n".join([f"the pod's rules differ from the plan: {first}", *more]), CniCode.DRIFT)
        return OK

    async def _delete(self, request: Request, namespace: int, deadline: float) -> str:
        """Handle DEL: undo ADD if the namespace still exists; never an error, since the rest is deleted with the namespace."""
        known = self.attachments.get(request.container, request.interface)
        for watcher in self.watchers:  # its sockets would keep the namespace alive
            watcher.forget(identify(namespace), request.netns or (known.netns if known else ""))
        if known is None:
            return LEFT_ALONE
        if known.is_at(namespace) and (options := known.options) is not None:
            done = await self.programmer.do(Job.of(REMOVE, options, seconds=_left(deadline)), namespace)
            if done.error and not done.gone:
                self.log.event("warn", f"DEL: the rules were not removed: {done.error}", pod="/".join(request.pod))
        self.attachments.drop(request.container, request.interface)
        return OK

    async def _collect(self, request: Request, namespace: int, deadline: float) -> str:  # noqa: ARG002 - a verb's signature
        """Handle GC: forget containers that the runtime no longer has."""
        valid = request.configuration.get("cni.dev/valid-attachments", request.configuration.get("cni.dev/attachments"))
        if not isinstance(valid, list):
            raise CniError("GC: cni.dev/valid-attachments is not a list", CniCode.CONFIGURATION)
        known = {(string(mapping(one).get("containerID")), string(mapping(one).get("ifname"))) for one in sequence(valid)}
        gone = [one for one in self.attachments if (one.container, one.interface) not in known]
        for one in gone:
            self.attachments.drop(one.container, one.interface)
        self.log.event("info", f"GC: forgot {len(gone)} containers, {len(known)} remain")
        return OK


def _left(deadline: float) -> float:
    """Return the seconds until the deadline. Raises CniError if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise CniError("there was no time left to program the pod", CniCode.LATER)
    return left


def _parse_capture(base: Options, words: list[object]) -> Options:
    """Return options from a network list, for a runtime without Kubernetes: `"capture": ["-b", "*"]`."""
    try:
        given = Options.from_argv([string(word) for word in words])
        own = {flag.field: getattr(given, flag.field) for flag in Interception.flags}
        return Options(**own, backend=base.backend, native_nftables=base.native_nftables, reconcile=True)
    except OptionError as error:
        raise CniError(str(error), CniCode.CONFIGURATION) from None
