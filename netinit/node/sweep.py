"""Check running pods, and the node's rules for their probes: find what differs from the plan, and report or repair it.

A sweep compares the live rules of each captured pod on the node with its plan, as `netinit verify` does. Namespaces of
pods come from the runtime's own record (`pod_records`). A pod that the plugin was not asked about is checked when it appears with an
address: another installer may just have rewritten the runtime's list. So is one whose istio-validation exits with 126.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from netinit.base.errors import DORMANT_BYPASS, NOT_PROVED, ClusterError, CniError, NetinitError
from netinit.base.net import read_addresses
from netinit.inject.deciding.pod_options import REDIRECTION, make_ambient_options
from netinit.kernel import identify
from netinit.kube.client import Client
from netinit.kube.resources import CONFLICT, NOT_FOUND, PODS
from netinit.node.decision import UNCAPTURED, NodePod, decide, is_own_pod
from netinit.node.events import NodeEvents
from netinit.node.file_thread import FileThread
from netinit.node.jobs import (
    APPLY,
    CHECK_PROBES,
    JUDGE_CONNECTIONS,
    LOOK_AGAIN,
    REPAIR_PROBES,
    VERIFY,
    Job,
    JobResult,
)
from netinit.node.metrics import NodeMetrics
from netinit.node.node_pods import MAX_WATCHED, CheckPod, PodCache, PodWatcher
from netinit.node.pod_history import SURE, PodHistory
from netinit.node.pod_records import Attachments, find_cgroups, find_namespaces
from netinit.node.programmer_client import ProgrammerClient
from netinit.node.settings import DELETE, LABEL, PROGRAM, SECOND, AgentSettings
from netinit.options import OFF, ON, Options
from netinit.options.interception import BROKEN, EXEMPT
from netinit.serving.event_log import EventLog

CAPTURED, DRIFTED, BARE, UNKNOWN = "captured", "drifted", "without-rules", "unknown"
_NO_HOST = "this agent is not on the node's network: set node.hostNetwork"
_REPORTS = {  # by state: what is reported, and the event's reason
    BARE: ("the pod runs without its interception rules", "InterceptionMissing"),
    DRIFTED: ("the pod has other rules than planned", "InterceptionDrift"),
    UNKNOWN: ("whether the pod is captured is unknown", "InterceptionUnknown"),
    CAPTURED: ("the pod's rules are as planned, but", "InterceptionAtRisk"),
}
_AT_ONCE, _REPAIRS_AT_ONCE = 4, 2
_JOB_SECONDS = 30.0
_LOOKS, _LOOK_SECONDS = 16, 5.0  # pods that one process looks at again, and how long: it takes 2 ms for each
_QUIET = 60.0  # seconds between two reports of a pod's connections
_STUCK = 300.0  # seconds without a checked pod after which a sweep is given up: the jobs for one, each in time, take 180 at most
_LOOK = 2.0  # seconds between two checks for pods whose validation failed


@dataclass(frozen=True, slots=True)
class SweptPod:
    """The result of checking a pod: its state, and the first difference, why it is unknown, or what may end its capture."""

    pod: NodePod
    state: str
    detail: str = ""
    path: str = ""
    options: Options | None = None
    generation: int = 0  # of the rules that were judged


@dataclass(frozen=True, slots=True)
class _PodCheck:
    """A pod to check: its candidates for options, and the paths of its namespace and cgroup, empty if they are not found."""

    pod: NodePod
    candidates: tuple[Options, ...]
    path: str
    cgroup: str

    def jobs(self, cgroup_folder: str) -> tuple[Job, ...]:
        """Return a job for each candidate; none without a namespace."""
        more = {"path": self.path, "cgroup_folder": cgroup_folder, "cgroup": self.cgroup}
        return tuple([Job.of(VERIFY, options, seconds=_JOB_SECONDS, **more) for options in self.candidates if self.path])


@dataclass(slots=True)
class Turns:
    """Limits on how many pods are checked and repaired at the same time. Repairs have their own, so that they delay no report."""

    checks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    repairs: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_REPAIRS_AT_ONCE))


@dataclass(slots=True)
class NodeCheck:
    """What a check of the node or of its pods needs, and the events that report what it finds."""

    settings: AgentSettings
    client: Client
    pod_cache: PodCache
    programmer: ProgrammerClient
    metrics: NodeMetrics
    log: EventLog

    async def send_event(self, reason: str, message: str, *, kind: str = "Warning", pod: NodePod | None = None) -> None:
        """Write an event on the pod or the node."""
        await NodeEvents(self.settings, self.client, self.log).send(reason, message, kind=kind, pod=pod)


@dataclass(slots=True)
class Sweeper(NodeCheck):
    """Sweeps periodically; `is_busy` says whether the pod with a uid is being programmed."""

    attachments: Attachments
    is_busy: Callable[[str], bool]
    watchers: Sequence[PodWatcher] = ()
    # By uid: a lock, so that a pod has one check at a time; what is remembered; when connections were last reported
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _histories: dict[str, PodHistory] = field(default_factory=dict)
    _bypassing: dict[str, float] = field(default_factory=dict)
    # By uid: the pod as it was last looked at, and what made it appear, which is checked once: addresses, and a failed validation
    _considered: dict[str, NodePod] = field(default_factory=dict)
    _appeared: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _files: FileThread = field(default_factory=FileThread)
    _swept: float = field(default_factory=time.monotonic)  # when the last sweep ended; at first, when the agent started
    _deadline: asyncio.Timeout | None = None  # of the sweep in progress

    def __post_init__(self) -> None:
        if self.settings.sweep:
            self.metrics.sweep_age.set_function(lambda: time.monotonic() - self._swept)

    def problem(self) -> str:
        """Why sweeps tell nothing now; empty if they do."""
        age = time.monotonic() - self._swept
        if not self.settings.sweep or age <= 2 * self.settings.sweep_interval / SECOND + _STUCK:
            return ""
        return f"the last complete sweep ended {age:.0f} s ago: drift may have been missed since"

    async def run(self) -> None:
        """Sweep until cancelled. Raises NetinitError if a sweep comes to a stop."""
        due = time.monotonic() + min(30.0, self.settings.sweep_interval / SECOND)
        while True:
            if self.settings.sweep and time.monotonic() >= due:
                due = time.monotonic() + self.settings.sweep_interval / SECOND
                await self._sweep_in_time()
            if again := [pod for pod in self.pod_cache if self._is_doubtful(pod)]:
                await self.check_pods(again)
            await asyncio.sleep(_LOOK)

    def _is_doubtful(self, pod: NodePod) -> bool:
        """Whether the last look at the pod did not answer, and it is not reported yet: the next sweep may be minutes away."""
        history = self._histories.get(pod.uid)
        return history is not None and 0 < history.unknown < SURE and bool(self._options_of(pod))

    async def _sweep_in_time(self) -> None:
        """Sweep, and give up when nothing proceeds any more; a sweep of many slow pods may take long."""
        try:
            async with asyncio.timeout(_STUCK) as self._deadline:
                await self.sweep()
        except TimeoutError:
            raise NetinitError(f"the sweep was given up: nothing has proceeded in it for {_STUCK:.0f} s") from None
        finally:
            self._deadline = None

    async def sweep(self) -> Counter[str]:
        """Check every pod of the node; return how many are in each state."""
        started = time.monotonic()
        found = await self.check_pods(list(self.pod_cache))
        seconds = time.monotonic() - started
        counts = Counter(finding.state for finding in found)
        for state in (CAPTURED, DRIFTED, BARE, UNKNOWN):
            self.metrics.pods.labels(state).set_function(partial(self._count, state))
        self.metrics.sweep.set(seconds)
        self._watch_pods(found)
        swept = {finding.pod.uid for finding in found}
        self._histories = {uid: history for uid, history in self._histories.items() if uid in swept}
        if self.pod_cache.synced:
            uids = {uid for pod in self.pod_cache for uid in (pod.uid, pod.static_uid) if uid}
            await self._files.run(lambda: self.attachments.drop_gone(uids))
        self._swept = time.monotonic()
        self.log.event("debug", f"sweep: {dict(counts)}", seconds=round(seconds, 3))
        return counts

    def _count(self, state: str) -> int:
        """Return the number of running pods in this state, by the last look at each and what was repaired since."""
        known = [self._histories.get(pod.uid) for pod in self.pod_cache if not pod.ended]
        return sum(1 for history in known if history and history.state == state)

    def _watch_pods(self, found: Iterable[SweptPod]) -> None:
        for finding in found:
            for watcher in self.watchers if finding.path else ():
                watcher.add(finding.pod.uid, finding.path)

    # ---- pods that appear

    async def follow_pods(self) -> None:
        """Check each pod that the plugin was not asked about as soon as it has an address, until cancelled."""
        changed, turns = asyncio.Event(), Turns()
        self.pod_cache.changed = changed.set
        await self.pod_cache.wait()
        async with asyncio.TaskGroup() as group:
            while True:
                changed.clear()
                if appeared := self._find_appeared():
                    group.create_task(self._check_appeared(appeared, turns))
                with contextlib.suppress(TimeoutError):  # a pod that was busy may not change again
                    async with asyncio.timeout(_LOOK):
                        await changed.wait()

    def _find_appeared(self) -> list[NodePod]:
        """Return the pods to be captured that have got addresses, or whose validation has failed, since the last call."""
        pods = {pod.uid: pod for pod in self.pod_cache}
        self._appeared = {uid: seen for uid, seen in self._appeared.items() if uid in pods}
        found = []
        for uid, pod in pods.items():
            if self._considered.get(uid) is pod or self.is_busy(uid):
                continue
            self._considered[uid] = pod
            seen = (pod.addresses, pod.exit_code == UNCAPTURED)
            if self._appeared.get(uid) != seen and self._options_of(pod):
                self._appeared[uid] = seen
                found.append(pod)
        self._considered = {uid: pod for uid, pod in self._considered.items() if uid in pods}
        return found

    async def _check_appeared(self, pods: list[NodePod], turns: Turns) -> None:
        """Check the pods, but not those that were just programmed: their watcher checks them soon."""
        is_done = False
        try:
            own = await self._files.run(lambda: {one.uid for one in self.attachments if one.is_at(one.netns)})
            unasked = [pod for pod in pods if pod.exit_code == UNCAPTURED or not {pod.uid, pod.static_uid} & own]
            found = await self.check_pods(unasked, turns)
            is_done = True
        finally:
            if not is_done:  # the next run checks them
                for pod in pods:
                    self._appeared.pop(pod.uid, None)
                    self._considered.pop(pod.uid, None)
        self.metrics.uncaptured.inc(sum(1 for finding in found if finding.state == BARE and finding.path))
        self._watch_pods(found)

    async def check_pods(self, pods: list[NodePod], turns: Turns | None = None) -> list[SweptPod]:
        """Check these pods and report, then repair each as the settings say; `turns` are shared with other calls."""
        turns = turns or Turns()
        wanted = [(pod, options) for pod in pods if (options := self._options_of(pod))]
        paths = await self._find_namespaces([pod for pod, _ in wanted])
        cgroups = await self._find_cgroups([pod for pod, _ in wanted])

        async def look(check: _PodCheck, known: tuple[JobResult | None, ...]) -> SweptPod:
            async with turns.checks:
                found, is_new = await self._look(check, known)
            async with turns.repairs:
                await self._repair(found, is_new=is_new)
            if self._deadline and not self._deadline.expired():
                self._deadline.reschedule(asyncio.get_running_loop().time() + _STUCK)
            return found

        async def look_at_all(checks: list[_PodCheck]) -> list[SweptPod]:
            async with turns.checks:
                known = await self._look_again(checks)
            return await asyncio.gather(*map(look, checks, known))

        checks = [_PodCheck(pod, options, paths.get(pod.uid, ""), cgroups.get(pod.uid, "")) for pod, options in wanted]
        groups = [checks[start : start + _LOOKS] for start in range(0, len(checks), _LOOKS)]
        return [found for group in await asyncio.gather(*map(look_at_all, groups)) for found in group]

    async def check_after_change(self, pod: NodePod, path: str) -> bool:
        """Check a pod, report and repair it; True if its rules were missing or differed, False also if not readable."""
        options = self._options_of(pod)
        if not options:
            return False
        cgroups = await self._find_cgroups([pod])
        finding, is_new = await self._look(_PodCheck(pod, options, path, cgroups.get(pod.uid, "")), woken=True)
        await self._repair(finding, is_new=is_new)
        return finding.state in (DRIFTED, BARE)

    async def check_connections(self, pod: NodePod, path: str) -> bool:
        """Report the open connections of a pod that bypass the proxy, at most once a minute; those are not repaired: False."""
        found: list[set[str]] = []
        for options in self._options_of(pod):
            done = await self.programmer.do(Job.of(JUDGE_CONNECTIONS, options, seconds=_JOB_SECONDS, path=path))
            if done.error:
                raise NetinitError(done.error)
            found.append(set(done.differences))
        bypassing = sorted(set.intersection(*found)) if found else []
        if not bypassing:
            return False
        self.metrics.bypassing.inc()
        now = time.monotonic()
        self._bypassing = {uid: reported for uid, reported in self._bypassing.items() if now - reported < _QUIET}
        if pod.uid not in self._bypassing:
            self._bypassing[pod.uid] = now
            text = f"{len(bypassing)} open connections of the pod bypass the proxy, such as {bypassing[0]}"
            self.log.event("warn", text, pod=pod.label)
            await self.send_event("InterceptionBypassed", text, pod=pod)
        return False

    async def watch(self, watcher: PodWatcher, check: CheckPod) -> None:
        """Check pods as they change, until cancelled; first those that were programmed before this agent started."""
        await self.pod_cache.wait()
        known = await self._find_namespaces(self.pod_cache)
        for pod in self.pod_cache:
            if pod.uid in known and self._options_of(pod):
                watcher.add(pod.uid, known[pod.uid])
        await watcher.run(check, self.is_busy)

    async def _look_again(self, checks: list[_PodCheck]) -> list[tuple[JobResult | None, ...]]:
        """Return each check's results by candidate, None where something may have changed; one process looks at all pods."""
        jobs = [check.jobs(self.settings.cgroup_folder) for check in checks]
        known: tuple[JobResult | None, ...] = ()
        wanted = tuple([job for of_pod in jobs for job in of_pod])
        if len(checks) > 1:
            known = (await self.programmer.do(Job(kind=LOOK_AGAIN, environ={}, seconds=_LOOK_SECONDS, pods=wanted))).pods
        results = iter(known if len(known) == len(wanted) else (None,) * len(wanted))  # after an error, which each check tells
        return [tuple([next(results) for _ in of_pod]) for of_pod in jobs]

    async def _look(
        self, check: _PodCheck, known: tuple[JobResult | None, ...] = (), *, woken: bool = False
    ) -> tuple[SweptPod, bool]:
        """Check a pod and report; return also whether the problem is new. `woken`: because of a notification."""
        async with self._turns.setdefault(check.pod.uid, asyncio.Lock()):
            identity = identify(check.path)
            finding = await self._examine(check, known)
            await self._note_changes(finding, identity if identity == identify(check.path) else None, woken=woken)
            return finding, await self._tell(finding)

    def _history(self, pod: NodePod) -> PodHistory:
        if len(self._histories) > MAX_WATCHED and pod.uid not in self._histories:  # without sweeps nothing else forgets pods
            present = {pod.uid for pod in self.pod_cache}
            self._histories = {uid: history for uid, history in self._histories.items() if uid in present}
        return self._histories.setdefault(pod.uid, PodHistory())

    def _options_of(self, pod: NodePod) -> tuple[Options, ...]:
        """Return the options of a running pod that is to be captured; empty for others and for a pod that is starting.

        Several for a pod that a mesh's ambient agent programmed: the mesh's settings for DNS and IPv6 are not visible in
        the pod.
        """
        if pod.ended or pod.host_network or not pod.addresses or self.is_busy(pod.uid):
            return ()
        if pod.namespace in self.settings.exclude_namespaces:
            return ()
        if pod.annotations.get(REDIRECTION) == "enabled":
            base = self.settings.base
            own = {"backend": base.backend, "native_nftables": base.native_nftables, "reconcile": True}
            made = [make_ambient_options(pod.annotations, dns=dns) for dns in (True, False)]
            return tuple(dict.fromkeys(one.replace(ipv6=ipv6, **own) for ipv6 in (ON, OFF) for one in made))
        try:
            options = decide(pod, self.settings.base, pod.addresses).options
        except CniError:  # with such annotations it could not have started
            return ()
        return (options,) if options is not None else ()

    # ---- namespaces

    async def _find_namespaces(self, pods: Iterable[NodePod]) -> dict[str, str]:
        """Return the paths of the pods' namespaces, by uid."""
        records, folder = Path(self.settings.records_folder), Path(self.settings.netns_folder)
        own = self.attachments
        return await self._by_uid(pods, lambda uids: find_namespaces(uids, attachments=own, records=records, folder=folder))

    async def _find_cgroups(self, pods: Iterable[NodePod]) -> dict[str, str]:
        """Return the paths of the pods' cgroups, by uid: one walk of the tree for all of them."""
        return await self._by_uid(pods, lambda uids: find_cgroups(uids, self.settings.cgroup_folder))

    async def _by_uid(self, pods: Iterable[NodePod], find: Callable[[Iterable[str]], dict[str, str]]) -> dict[str, str]:
        """Return what `find`, run in a thread, finds for the pods' uids; a static pod's may be found by that of the runtime."""
        names = {uid: pod.uid for pod in pods for uid in (pod.static_uid, pod.uid) if uid}
        found = await self._files.run(lambda: find(names))
        return {names[uid]: path for uid, path in found.items()}

    # ---- one pod

    async def _examine(self, check: _PodCheck, known: tuple[JobResult | None, ...]) -> SweptPod:
        pod, candidates, path = check.pod, check.candidates, check.path
        if not path and pod.exit_code == UNCAPTURED:
            return SweptPod(pod, BARE, "its validation ended with 126")
        if not path:
            return SweptPod(pod, UNKNOWN, "its namespace is not found")
        compared: list[tuple[JobResult, Options]] = []
        jobs = check.jobs(self.settings.cgroup_folder)
        for options, job, found in zip(candidates, jobs, known or (None,) * len(jobs), strict=True):
            done = found or await self.programmer.do(job)
            unproved = next((one for one in done.warnings if one.startswith(NOT_PROVED)), "")
            if done.error or (unproved and not done.differences):
                return SweptPod(pod, UNKNOWN, done.error or unproved, path, candidates[0] if len(candidates) == 1 else None)
            if not done.differences:
                dormant = next((one for one in done.warnings if one.startswith(DORMANT_BYPASS)), "")
                return SweptPod(pod, CAPTURED, dormant, path, generation=done.generation)
            compared.append((done, options))
        done, options = min(compared, key=lambda one: len(one[0].differences))
        return SweptPod(pod, DRIFTED if done.ours else BARE, done.differences[0], path, options, done.generation)

    async def _tell(self, finding: SweptPod) -> bool:
        """Report each problem of a pod once; return whether it is another than that of the last look."""
        pod, state = finding.pod, finding.state
        history = self._history(pod)
        history.state = state
        history.unknown = history.unknown + 1 if state == UNKNOWN else 0
        if state == UNKNOWN:
            self.metrics.unknown.inc()
            if history.unknown < SURE:
                return False
        elif state in (DRIFTED, BARE):
            self.metrics.drift.inc()
        what, reason = _REPORTS[state]
        # The reason why a pod is unknown may be another at each look, and is reported once.
        text = state if state == UNKNOWN else f"{state}: {finding.detail}"
        is_new, history.reported = history.reported != text, text
        if is_new and finding.detail:
            await self._report(reason, f"{what}: {finding.detail}", pod)
        return is_new

    async def _report(self, reason: str, text: str, pod: NodePod) -> None:
        """Log a problem of a pod, and write an event on it."""
        self.log.event("warn", text, pod=pod.label)
        await self.send_event(reason, text, pod=pod)

    async def _note_changes(self, finding: SweptPod, identity: tuple[int, int] | None, *, woken: bool) -> None:
        """Report changes that were undone before this look, and a pod that changes its rules again and again."""
        if finding.state == UNKNOWN or not finding.path:
            return
        pod, now, history = finding.pod, time.monotonic(), self._history(finding.pod)
        planned = finding.state == CAPTURED
        changes = history.note_look(identity, finding.generation, now, planned=planned, woken=woken)
        self.metrics.rule_changes.inc(changes)
        if changes and planned:
            self.metrics.undone.inc()
        number, seconds = history.take_undone(now)
        if number:
            text = f"the pod's nf_tables changed {number} times in {seconds:.1f} s and are as planned now: what they were is unknown"
            await self._report("InterceptionChanged", text, pod)
        number, seconds = history.take_series(now)
        if number:
            text = f"the pod's rules, devices or routes change again and again: at least {number} times in {seconds:.0f} s"
            await self._report("InterceptionUnstable", text, pod)

    async def _repair(self, finding: SweptPod, *, is_new: bool) -> None:
        """Repair a pod as the settings say; one that is unknown only if they say so, for sure, and if its namespace is known."""
        repair, is_unknown = self.settings.repair, finding.state == UNKNOWN
        is_sure = self.settings.repair_unknown and finding.path and self._history(finding.pod).unknown >= SURE
        if finding.state == CAPTURED or (is_unknown and not is_sure):
            return
        async with self._turns.setdefault(finding.pod.uid, asyncio.Lock()):
            if repair == PROGRAM and finding.options is not None:
                if is_new or not is_unknown:  # programming changes the pod, which wakes the agent
                    await self._program(finding, finding.options)
            elif repair in (LABEL, DELETE) and finding.state in (BARE, UNKNOWN):
                await self._change(finding.pod, repair)

    async def _program(self, finding: SweptPod, options: Options) -> None:
        done = await self.programmer.do(Job.of(APPLY, options, seconds=_JOB_SECONDS, path=finding.path))
        self.metrics.repairs.labels("repair", "fail" if done.error else "success").inc()
        pod = finding.pod
        if done.error:
            self.log.event("error", f"the pod cannot be programmed: {done.error}", pod=pod.label)
            return
        history = self._history(pod)
        history.forget_rules()
        if finding.state != UNKNOWN:
            history.reported, history.state = "", CAPTURED
        for warning in done.warnings:
            self.log.event("warn", warning, pod=pod.label)
        message = "; ".join([f"the rules were programmed by {done.backend}", *done.warnings])
        await self.send_event("InterceptionRepaired", message, kind="Normal", pod=pod)

    async def _change(self, pod: NodePod, repair: str) -> None:
        """Label or delete exactly the pod that was checked."""
        try:
            if repair == LABEL:
                key, _, value = self.settings.repair_label.partition("=")
                if pod.labels.get(key) == value:
                    return
                patch = {"metadata": {"labels": {key: value}, "resourceVersion": pod.version}}
                await self.client.patch(PODS, pod.name, patch, pod.namespace, part="status")
            else:
                await self.client.delete(PODS, pod.name, pod.namespace, uid=pod.uid, version=pod.version)
                self._history(pod).state = ""  # it ends; the next sweep counts it if it does not
        except ClusterError as error:
            gone = error.status in {CONFLICT, NOT_FOUND}  # the pod was replaced or deleted; the watch reports it
            self.metrics.repairs.labels(repair, "skip" if gone else "fail").inc()
            self.log.event("debug" if gone else "error", f"{repair}: {error}", pod=pod.label)
            return
        self.metrics.repairs.labels(repair, "success").inc()


# ---- the node's own rules for probes of an ambient mesh's pods


@dataclass(slots=True)
class HostProbeCheck(NodeCheck):
    """Checks periodically, while the node has ambient pods; reports each problem once."""

    _reported: str = ""

    async def run(self) -> None:
        """Check until cancelled."""
        await self.pod_cache.wait()
        while True:
            await self.check()
            await asyncio.sleep(self.settings.sweep_interval / SECOND)

    async def check(self) -> None:
        """Judge the probes of all ambient pods; report and repair."""
        pods = {address: pod for pod in self.pod_cache if _is_ambient(pod) for address in read_addresses(pod.addresses)}
        found = await self._judge(pods) if pods else {}
        self._count(state for state, _ in found.values())
        lines = [f"{address} of {pods[address].label}: {detail}" for address, (state, detail) in found.items() if state == BROKEN]
        reasons = [detail for state, detail in found.values() if state == UNKNOWN]
        last, self._reported = self._reported, ""
        if lines:
            self._reported = f"the kubelet's probes of {len(lines)} addresses of ambient pods are captured, such as {lines[0]}"
        elif reasons:
            self._reported = f"whether the kubelet's probes of ambient pods are captured is unknown: {reasons[0]}"
        if self._reported not in ("", last):
            self.log.event("warn" if lines else "info", self._reported)
            if lines:
                await self.send_event("HostProbesCaptured", self._reported)
        if lines and self.settings.host_probes == PROGRAM and await self._repair(pods):
            self._count(EXEMPT if state == BROKEN else state for state, _ in found.values())

    def _count(self, states: Iterable[str]) -> None:
        counts = Counter(states)
        for state in (EXEMPT, BROKEN, UNKNOWN):
            self.metrics.probes.labels(state).set(counts[state])

    async def _judge(self, pods: dict[str, NodePod]) -> dict[str, tuple[str, str]]:
        """Return state and detail of each address."""
        own = [pod for pod in self.pod_cache if is_own_pod(pod.namespace, pod.name, self.settings.namespace, self.settings.daemon_set)]
        is_outside = bool(own) and not any(pod.host_network for pod in own)
        done = JobResult(error=_NO_HOST) if is_outside else await self._do(CHECK_PROBES, pods)
        if done.error:
            return dict.fromkeys(pods, (UNKNOWN, done.error))
        parts = [one.split(" ", 2) for one in done.differences]
        return {address: (state, detail) for state, address, detail in parts}

    async def _do(self, kind: str, pods: dict[str, NodePod]) -> JobResult:
        uids = {address: pod.uid for address, pod in pods.items()}
        return await self.programmer.do(Job.of(kind, self.settings.base, seconds=_JOB_SECONDS, uids=uids))

    async def _repair(self, pods: dict[str, NodePod]) -> bool:
        """Program the node's rules; return whether the probes of all addresses are exempt now."""
        done = await self._do(REPAIR_PROBES, pods)
        problem = done.error or "; ".join(one.partition(" ")[2] for one in done.differences)
        self.metrics.repairs.labels("host-probes", "fail" if problem else "success").inc()
        if problem:
            self.log.event("error", f"the node's rules for probes of ambient pods cannot be repaired: {problem}")
            return False
        self._reported = ""
        await self.send_event("HostProbesRepaired", f"the node's rules were programmed by {done.backend}", kind="Normal")
        return True


def _is_ambient(pod: NodePod) -> bool:
    return pod.annotations.get(REDIRECTION) == "enabled" and not pod.ended and not pod.host_network
