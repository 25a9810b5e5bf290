"""The agent's privileged process: it forks children that enter pods, and does nothing else.

It is single-threaded and small and has imported everything that a child needs. Jobs arrive from the agent's other process
in packets on a socket: a number, and descriptors of a memory file with the job and of the pod's namespace. A child per
job enters the namespace for good and programs the pod as the command line would from outside; it forks again only for a foreign
user namespace, which halves the cost of a pod's start. A fixed number run at a time; jobs that start pods come before
those that maintain them. A job that times out gets SIGTERM, so that it rolls back, then SIGKILL. The result is returned in
a memory file under the job's number.

What the last check of a pod decided is kept here and passed to the child of the next one, which decides, and reads nf_tables,
again only where something has changed (netinit.pods.verify). A child's judgement is used for its own pod alone, and only its text
is held here. One child looks at many pods that were judged before, since most of what a child costs is to be made; a pod where
anything may have changed then gets a child of its own.

This process itself enters no namespace. A child refuses the machine's namespace and this process's, checking the same
descriptor that it enters.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from netinit.base.errors import ChildLostError, NetinitError, NoNamespaceError
from netinit.kernel import answers, children, notifications
from netinit.kernel.children import Child, ChildError
from netinit.kernel.descriptors import receive_descriptors
from netinit.node import jobs
from netinit.node.jobs import Job, JobResult
from netinit.pods import child_jobs
from netinit.pods.probe import host_probe_rules
from netinit.pods.verify import find_bypassing
from netinit.questions.plan_comparison import Judgement, Report

PACKET = 64  # bytes of a packet: the job's number
MAX_WAITING = 4096
MAX_KNOWN = 1024  # judgements: a node has some hundred pods, few of them with several plans
_LONGEST = 1800.0  # seconds that a judgement counts: it names a generation of 32 bits, and a commit of nf_tables takes over 1 µs
_MAX_JUDGEMENT_LENGTH = 4096  # characters; that of a pod without findings has 200
_MAX_BYTES = 4 << 20  # of a job or result
_GRACE = 2.0  # seconds to roll back before SIGKILL
_PROGRAMMING, _CHECKING = "programming the pod", "checking the pod"
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True)
class _AcceptedJob:
    """An accepted job: it waits, or its child runs, until `due`."""

    number: bytes
    job: Job
    namespace: int  # a descriptor; -1 if the job names a path; for a subscription, the Unix socket
    due: float
    stopped: bool = False


@dataclass(slots=True)
class Programmer:
    """The queue of jobs; `most` run at a time."""

    agent: socket.socket
    most: int
    waiting: deque[_AcceptedJob] = field(default_factory=deque)
    maintenance: deque[_AcceptedJob] = field(default_factory=deque)  # jobs that no pod's start waits for
    running: dict[Child, _AcceptedJob] = field(default_factory=dict)
    known: dict[tuple[object, ...], tuple[str, float]] = field(default_factory=dict)  # judgements, and when each was made
    open: bool = True

    def serve(self, seconds: float) -> None:
        """Process pending work, then wait up to `seconds` for more."""
        poller = select.poll()
        if self.open and len(self.waiting) + len(self.maintenance) < MAX_WAITING:
            poller.register(self.agent, select.POLLIN)
        for child in self.running:
            poller.register(child, select.POLLIN)
        soonest = min((accepted.due for accepted in self.running.values()), default=time.monotonic() + seconds)
        wait = max(0.0, min(seconds, soonest - time.monotonic()))
        ready = {descriptor for descriptor, _ in poller.poll(wait * 1000)}
        if self.agent.fileno() in ready:
            self._take()
        for child, accepted in list(self.running.items()):
            if child.fileno() in ready:
                self._finish(child, accepted)
            elif time.monotonic() >= accepted.due:
                self._stop_late(child, accepted)
        self._start()

    def end(self) -> None:
        """Stop: running jobs are asked to roll back, and no process is left."""
        for child, accepted in list(self.running.items()):
            self._stop_late(child, accepted)
        end = time.monotonic() + _GRACE
        while self.running and time.monotonic() < end:
            self.serve(0.05)
        for child in self.running:
            child.end()

    def _take(self) -> None:
        """Receive one job from the agent's other process; also notices when that process has exited."""
        try:
            number, descriptors = receive_descriptors(self.agent, PACKET, 2)
        except BlockingIOError:
            return
        except ConnectionResetError:
            number, descriptors = b"", []
        if not number:
            self.open = False
            return
        try:
            job = Job.decode(read_message(descriptors))
        except (NetinitError, OSError, IndexError) as error:
            _close(descriptors[1:])
            self._send(number, JobResult(error=str(error)))
            return
        namespace = descriptors[1] if len(descriptors) > 1 else -1
        accepted = _AcceptedJob(number, job, namespace, time.monotonic() + job.seconds)
        (self.waiting if job.kind == jobs.APPLY else self.maintenance).append(accepted)

    def _start(self) -> None:
        while len(self.running) < self.most and (self.waiting or self.maintenance):
            accepted = (self.waiting or self.maintenance).popleft()
            left = accepted.due - time.monotonic()
            if left <= 0:
                self._answer(accepted, JobResult(error="there was no time left for it when its turn came", late=True))
                continue
            try:
                self.running[self._fork(accepted, left)] = accepted
            except OSError as error:
                self._answer(accepted, JobResult(error=f"no child process can be made: {error.strerror}"))

    def _fork(self, accepted: _AcceptedJob, left: float) -> Child:
        kept = (accepted.namespace,) if accepted.namespace >= 0 else ()
        job = accepted.job
        known, of_pods = self._judgement_of(job), [self._judgement_of(one) for one in job.pods]
        what = _PROGRAMMING if job.kind in (jobs.APPLY, jobs.REMOVE) else _CHECKING
        work = lambda _: _look_again(job, of_pods) if job.kind == jobs.LOOK_AGAIN else _work(job, accepted.namespace, known)  # noqa: E731
        return children.start(work, seconds=left + _GRACE, what=what, kept=kept)

    def _judgement_of(self, job: Job) -> str:
        known, made = self.known.get(_subject(job), ("", 0.0))
        return known if time.monotonic() - made < _LONGEST else ""

    def _finish(self, child: Child, accepted: _AcceptedJob) -> None:
        try:
            result = JobResult.check(child.receive())
        except ChildLostError as error:
            result = JobResult(error=str(error), late=accepted.stopped or error.late)
        except (ChildError, NetinitError, OSError) as error:
            result = JobResult(error=f"{type(error).__name__}: {error}")
        del self.running[child]
        child.end()
        self._remember(accepted.job, result.judgement)
        self._answer(accepted, replace(result, judgement=""))

    def _remember(self, job: Job, judgement: str) -> None:
        if job.kind != jobs.VERIFY:
            return
        last = self.known.pop(_subject(job), ("", 0.0))
        if 0 < len(judgement) <= _MAX_JUDGEMENT_LENGTH:
            is_same = judgement == last[0] and time.monotonic() - last[1] < _LONGEST
            self.known[_subject(job)] = last if is_same else (judgement, time.monotonic())
        while len(self.known) > MAX_KNOWN:
            del self.known[next(iter(self.known))]

    def _stop_late(self, child: Child, accepted: _AcceptedJob) -> None:
        """Ask a job that timed out to roll back, and kill it if it does not."""
        if accepted.stopped:
            del self.running[child]
            child.end()
            self._answer(accepted, JobResult(error="it did not finish in time and was killed", late=True))
            return
        accepted.stopped = True
        accepted.due = time.monotonic() + _GRACE
        if child.poll() is None:
            os.kill(child.pid, signal.SIGTERM)
        else:  # it exited without a readable answer
            del self.running[child]
            self._answer(accepted, JobResult(error="the process that did it ended without an answer"))

    def _answer(self, accepted: _AcceptedJob, result: JobResult) -> None:
        if accepted.namespace >= 0:
            os.close(accepted.namespace)
        self._send(accepted.number, result)

    def _send(self, number: bytes, result: JobResult) -> None:
        try:
            with write_message(answers.encode(result)) as file:
                socket.send_fds(self.agent, [number], [file])
        except OSError:  # the other process has exited, which `_take` notices
            self.open = False


def _subject(job: Job) -> tuple[object, ...]:
    """What a judgement is about: the pod, and the options, of which an ambient mesh's pod has several."""
    return job.path, job.argv, *sorted(job.environ.items())


def _work(job: Job, namespace: int, known: str) -> JobResult:
    """In the child: run the job and return its result."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    netns = f"/proc/self/fd/{namespace}" if namespace >= 0 and job.kind not in jobs.SUBSCRIPTIONS else job.path
    return perform(job, netns, namespace, known)


def perform(job: Job, netns: str, channel: int = -1, known: str = "") -> JobResult:
    """Run the job in the namespace at this path; a subscription sends its sockets through `channel`.

    `known`: the judgement of the last check of the pod; empty if there is none.
    """
    if job.kind in jobs.OF_THE_NODE:
        return _work_on_node(job)
    if not netns:
        return JobResult(error="the pod's network namespace is gone", gone=True)
    try:
        options = job.options(netns)
        if job.kind in (jobs.APPLY, jobs.REMOVE):
            done = child_jobs.program(options)
            messages = (*done.warnings, *done.notes, *([done.unended] if done.unended else []))
            return JobResult(backend=done.backend, changed=done.changed, warnings=messages)
        if job.kind == jobs.VERIFY:
            last = _read_judgement(known)
            report = child_jobs.verify_by_cgroup(options, (job.cgroup_folder, job.cgroup), last)
            judged = report.judgement
            judgement = "" if judged is None else known if judged is last else answers.encode(judged).decode()
            return replace(_tell(report), judgement=judgement)
        if job.kind == jobs.JUDGE_CONNECTIONS:
            return JobResult(differences=find_bypassing(options)[:jobs.MAX_DIFFERENCES])
        if job.kind in jobs.SUBSCRIPTIONS:
            groups = notifications.CHANGES if job.kind == jobs.SUBSCRIBE else notifications.CONNECTIONS
            child_jobs.subscribe(options, groups, channel)
            return JobResult()
    except (NetinitError, KeyboardInterrupt) as error:
        late = isinstance(error, ChildLostError) and error.late
        return JobResult(error=str(error), gone=isinstance(error, NoNamespaceError), late=late)
    raise ValueError(job.kind)


def _look_again(job: Job, known: list[str]) -> JobResult:
    """In the child of a LOOK_AGAIN job: return the results of the pods where nothing has changed since these judgements."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    judged = zip(job.pods, map(_read_judgement, known), strict=True)
    looks = [(one.options(one.path), (one.cgroup_folder, one.cgroup), judgement) for one, judgement in judged]
    return JobResult(pods=tuple([None if one is None else _tell(one) for one in child_jobs.look_again(looks)]))


def _tell(report: Report) -> JobResult:
    found = tuple([difference.describe() for difference in report.differences[:jobs.MAX_DIFFERENCES]])
    return JobResult(
        backend=report.backend, differences=found, warnings=report.warnings, ours=report.ours, generation=report.generation
    )


def _work_on_node(job: Job) -> JobResult:
    """Check or repair the node's rules for probes. A difference is a finding's state, address and detail."""
    backend = ""
    try:
        if job.kind == jobs.CHECK_PROBES:
            found = host_probe_rules.check_host_probes(tuple(job.uids))
        else:
            backend, found = host_probe_rules.repair_host_probes(job.uids)
    except (NetinitError, OSError) as error:
        return JobResult(error=str(error))
    return JobResult(backend=backend, differences=tuple([f"{one.state} {one.address} {one.detail}" for one in found]))


def _read_judgement(text: str) -> Judgement | None:
    found = answers.decode(text.encode()) if text else None
    return found if isinstance(found, Judgement) else None


@contextlib.contextmanager
def write_message(data: bytes) -> Iterator[int]:
    """Return a descriptor of a memory file with a job or result, until the block ends."""
    with os.fdopen(os.memfd_create("message", os.MFD_CLOEXEC), "wb") as file:
        file.write(data)
        file.flush()
        yield file.fileno()


def read_message(descriptors: list[int]) -> bytes:
    """Return what the first descriptor's file holds, and close it. Raises NetinitError, OSError, IndexError."""
    try:
        size = os.fstat(descriptors[0]).st_size
        if size > _MAX_BYTES:
            raise NetinitError(f"the message is longer than {_MAX_BYTES >> 20} MiB")
        return os.pread(descriptors[0], size, 0)
    finally:
        _close(descriptors[:1])


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
