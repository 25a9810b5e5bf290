"""The webhook server: reviews at /inject of the port with TLS, health at /livez and /readyz, tasks and graceful shutdown.

Theory of operation
-------------------

One process, one event loop. A review passes these places in order; each has a bound, and what does not fit is refused there:

    accept ──▶ HttpListener   connections: by the memory limit; a client that is slow or silent is closed
           ──▶ check_head     method, type and length, before a byte of the body is read
           ──▶ _check_client  503 until there is a configuration and a certificate; 403 without the client's certificate
           ──▶ Bodies         bytes of all bodies together: a sixteenth of the memory limit
           ──▶ ReviewPlaces   reviews in progress; the oldest of the greediest client makes room
           ──▶ RoundRobin     one turn at a time, clients in rotation
                 ├─ body ≤ 32 KiB: in the event loop, for at most 0.05 s of CPU
                 └─ else, or interrupted there: in a forked child with limits of its own (CPU, memory, priority)
           ──▶ review.answer  pure: a body and the configuration in use give an answer

The deadline is the API server's (`?timeout=`), less a margin, counted from `accept`: waiting anywhere ends in 503 with a reason,
so that the API server hears a refusal and not a timeout.

Beside the reviews, the `Controller` keeps `ServingState` current: configuration, certificate, namespaces. It replaces whole
values; a review takes the configuration once and keeps it to its end. A configuration that cannot be used leaves the previous
one in place, and shows in health, metrics, log and event.

On SIGTERM the server is `draining`: it answers what it has and what still arrives, not ready any more, for --shutdownDelay;
then it closes the port and gives open reviews 15 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from netinit.base.errors import NetinitError
from netinit.base.logs import level_of
from netinit.base.sanitize import escape, shorten
from netinit.kernel import children, read_text
from netinit.serving.event_log import EventLog, LineLimit, forward_library_logs
from netinit.serving.listener import HttpListener, reply, reply_health, reply_monitoring
from netinit.serving.server_process import allow_descriptors, listen, memory_limit, wait_readable
from netinit.webhook import review
from netinit.webhook.controller import Controller
from netinit.webhook.loaders import CertificateLoader
from netinit.webhook.review import MAX_REVIEW_BYTES, Fault, Interruption, ReviewAnswer
from netinit.webhook.review_queue import Bodies, QueuePlace, ReviewPlaces, RoundRobin
from netinit.webhook.serving_state import Metrics, ServingState
from netinit.webhook.settings import SECOND, ServeSettings

_DRAIN_SECONDS = 15.0  # for open reviews
_MONITORING_CONNECTIONS = 64
_SPARE_DESCRIPTORS = 256  # for files, the API and closing connections
_BYTES_PER_CONNECTION = 512 << 10  # of the memory limit; one with TLS and half its headers takes a fifth
_MIN_CONNECTIONS, _MAX_CONNECTIONS = 64, 512
_MIN_BYTES, _MAX_BYTES = 8 << 20, 32 << 20  # for request bodies: 1/16 of the memory limit, within these bounds
_DEFAULT_SECONDS = 10.0  # the API's default timeout of webhooks
_MAX_SECONDS = 30.0
_DISCARD_BYTES, _DISCARD_SECONDS = 32 << 20, 2.0  # to read from a body that is too long
_MARGIN = 0.9  # of the timeout, so that the answer arrives in time
_LIGHT_BYTES = 32 << 10  # larger bodies go to a child; usual ones have less than 10 KiB
_LIGHT_CPU_SECONDS = 0.05  # in the event loop, then a child starts over; 2 ms are usual
_MAX_PROBLEM_LINES = 60  # per minute: clients cause them
_JSON = "application/json"
_MAX_PROTOCOL = 60  # characters of a protocol's name in an error
_CHILD_CPU_SECONDS = 2  # twice that of the largest pod within the size limits, with Istio's template
_CHILD_MEMORY_BYTES = 112 << 20  # beyond the server's: such a pod needs 90 MiB
_CHILD_NICE = 10  # a tenth of the weight: sched_prio_to_weight in kernel/sched/core.c
_ANSWER_SECONDS = 60.0  # the review's own deadline is shorter
_POLL_SECONDS = 0.005  # for a killed child


def run(settings: ServeSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises ConfigError if a port cannot be opened."""
    log = EventLog(level_of(settings.log_level), as_json=settings.log_as_json)
    reviews, monitoring = listen(settings.address, settings.port), listen(settings.address, settings.monitoring_port)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asyncio.run(_serve(settings, log, reviews, monitoring))
    log.event("info", "ended")
    return 0


async def _serve(settings: ServeSettings, log: EventLog, reviews_socket: socket.socket, monitoring_socket: socket.socket) -> None:
    """Connect the server's parts, and run them until the process is asked to stop."""
    state = ServingState()
    memory = memory_limit() or _MAX_CONNECTIONS * _BYTES_PER_CONNECTION * 2
    max_connections = settings.max_connections or _clamp(_MIN_CONNECTIONS, memory // _BYTES_PER_CONNECTION, _MAX_CONNECTIONS)
    allow_descriptors(max_connections + _MONITORING_CONNECTIONS + _SPARE_DESCRIPTORS)
    certificates = CertificateLoader(settings, state, log)
    controller = Controller(settings, state, certificates, log)
    metrics = Metrics(state, lambda: reviews.connections)
    application = Application(
        state, log=log, metrics=metrics, max_reviews=settings.max_reviews, max_bytes=_clamp(_MIN_BYTES, memory // 16, _MAX_BYTES),
        wants_certificate=bool(settings.client_ca_file),
    )  # fmt: skip
    reviews = HttpListener(
        application, reviews_socket, context=certificates.context, max_connections=max_connections,
        dropped=lambda stage: metrics.dropped.labels(stage).inc(),
    )  # fmt: skip
    monitor = partial(reply_monitoring, metrics=metrics.text, report=state.report, closes=lambda: state.draining)
    monitoring = HttpListener(monitor, monitoring_socket, max_connections=_MONITORING_CONNECTIONS)
    forward_library_logs(log)
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    tasks = asyncio.create_task(controller.run())
    monitoring.start()
    reviews.start()
    log.event("info", f"serving reviews on port {settings.port}, metrics on port {settings.monitoring_port}")
    await stop_requested.wait()
    log.event("info", "stopping: reviews in progress are finished")
    state.draining = True
    await asyncio.sleep(settings.shutdown_delay / SECOND)  # until the API server stops sending reviews
    if not await reviews.close(_DRAIN_SECONDS):
        log.event("error", f"reviews were cut off: they did not finish within {_DRAIN_SECONDS:.0f} s")
    tasks.cancel()
    await monitoring.close(1.0)


def _clamp(low: int, value: int, high: int) -> int:
    return min(max(low, value), high)


# ---- reviews


def run_limited(seconds: float, work: Callable[[], ReviewAnswer]) -> ReviewAnswer:
    """Run `work` in the main thread. Raises Interruption after `seconds` of CPU time (SIGPROF)."""

    def interrupt(*_: object) -> None:
        raise Interruption

    signal.signal(signal.SIGPROF, interrupt)
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)


class Application:
    """Answers reviews and questions about health."""

    def __init__(
        self, state: ServingState, *, log: EventLog, metrics: Metrics, max_reviews: int, max_bytes: int,
        wants_certificate: bool = False,
    ) -> None:  # fmt: skip
        self._state = state
        self._log = log
        self._metrics = metrics
        self._wants_certificate = wants_certificate
        self._bodies = Bodies(max_bytes)
        self._places = ReviewPlaces(max_reviews)
        self._loop_turns, self._child_turns = RoundRobin(), RoundRobin()
        self._problems = LineLimit(_MAX_PROBLEM_LINES, what="about denied pods and errors")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if await reply_health(scope, send, self._state.report, close=self._state.draining):
            return
        arrived: float = scope["state"]["arrived"]
        loop = asyncio.get_running_loop()
        self._metrics.in_flight.inc()
        try:
            answer = await self._review(scope, receive, arrived)
        except asyncio.CancelledError:
            answer = review.refuse(Fault(503, "ended", "the server is stopping, and has no time left; try again"))
        except Exception as error:  # noqa: BLE001 - the client must not see internals
            answer = review.refuse(Fault(500, "internal", "internal error; the injector's log has details"))
            self._problems.write(self._log, "error", f"internal error: {type(error).__name__}: {error}")
        finally:
            self._metrics.in_flight.dec()
        seconds = loop.time() - arrived
        self._metrics.count(answer.outcome, answer.reason, seconds)
        self._record(answer, seconds)
        if answer.event is not None:
            self._state.pod_events.offer(answer.event)
        if answer.status == 413:  # noqa: PLR2004 - Content Too Large
            await discard(receive)
        retry = [(b"retry-after", b"1")] if answer.status == 503 else []  # noqa: PLR2004 - Service Unavailable
        # Never parse the unread rest of a rejected request as the next one.
        last = answer.status >= 400 or self._state.draining or scope["state"]["last"]  # noqa: PLR2004 - 4xx and 5xx
        await reply(send, answer.status, answer.body, answer.content_type, close=last, more=retry)

    async def _review(self, scope: Any, receive: Any, arrived: float) -> ReviewAnswer:
        try:
            environment = review.environment_of(scope["raw_path"].decode("latin-1"))
            check_head(scope["method"], scope["headers"])
            self._check_client(scope)
            deadline = arrived + request_seconds(scope["query_string"])
            async with self._bodies.hold(receive, deadline) as body:
                with self._places.hold(scope["client"][0] if scope["client"] else "") as place:
                    return await self._compute(body, environment, place, deadline)
        except Fault as fault:
            return review.refuse(fault)
        except TimeoutError:
            return review.refuse(Fault(503, "late", "the review waited too long; try again"))
        except Interruption:
            return review.refuse(Fault(503, "late", "the review exceeds its time or memory; the pod is too large"))

    def _check_client(self, scope: Any) -> None:
        if obstacle := self._state.find_obstacle():
            raise Fault(503, "not-ready", f"{obstacle}; try again")
        if self._wants_certificate and not scope["state"]["certified"]:
            raise Fault(403, "no-certificate", "reviews are only answered to clients with a certificate")

    async def _compute(self, body: bytearray, environment: dict[str, str], place: QueuePlace, deadline: float) -> ReviewAnswer:
        """Compute the answer. Raises TimeoutError, Interruption and Fault."""

        def work() -> ReviewAnswer:
            served = self._state.served
            assert served is not None  # noqa: S101 - a configuration is replaced, never removed
            return review.answer(body, served, environment=environment, namespace=self._state.namespace)

        if len(body) <= _LIGHT_BYTES:
            async with self._loop_turns.take(place, deadline):
                await asyncio.sleep(0)  # let waiting requests join the queue
                try:
                    return run_limited(min(_seconds_left(deadline), _LIGHT_CPU_SECONDS), work)
                except Interruption:
                    _seconds_left(deadline)
        async with self._child_turns.take(place, deadline):
            _seconds_left(deadline)
            self._metrics.heavy.inc()
            return await run_in_child(work, deadline)

    def _record(self, answer: ReviewAnswer, seconds: float) -> None:
        level = {"injected": "info", "denied": "warn"}.get(answer.outcome, "debug")
        level = "error" if answer.detail else level
        if not self._log.wants(level):
            return
        write = partial(self._problems.write, self._log) if level in {"warn", "error"} else self._log.event
        write(
            level, f"{answer.outcome}: {answer.message}" if answer.message else answer.outcome,
            pod=f"{answer.namespace}/{answer.pod}" if answer.pod else "", owner=answer.owner, decision=answer.outcome,
            reason=answer.reason, milliseconds=round(seconds * 1000, 2), uid=answer.uid, dryRun=answer.dry_run or "",
            detail=answer.detail if self._log.wants("debug") else "",
        )  # fmt: skip


def check_head(method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise Fault if method or headers are not a review's."""
    if method != "POST":
        raise Fault(405, "no-review", "reviews are sent by POST")
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in seen and name in {b"content-type", b"content-length", b"content-encoding"}:
            raise Fault(400, "no-review", f"the header {name.decode('latin-1')} is given twice")
        seen[name] = value
    if b"upgrade" in seen and b"upgrade" in [word.strip().lower() for word in seen.get(b"connection", b"").split(b",")]:
        wanted = escape(shorten(seen[b"upgrade"].decode("latin-1"), _MAX_PROTOCOL))
        raise Fault(400, "no-review", f"the header Upgrade asks for {wanted}, which is not served: send the review without it")
    if seen.get(b"content-type", b"").split(b";")[0].strip().lower() != _JSON.encode():
        raise Fault(415, "no-json", f"the Content-Type must be {_JSON}")
    if seen.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise Fault(415, "no-json", "compressed bodies are not accepted")
    length = seen.get(b"content-length", b"0")
    if not length.isdigit():
        raise Fault(400, "no-review", "the Content-Length is not a number")
    if len(length) > 10 or int(length) > MAX_REVIEW_BYTES:  # noqa: PLR2004 - digits
        raise Fault(413, "too-large", f"the body is longer than {MAX_REVIEW_BYTES >> 20} MiB")


def _seconds_left(deadline: float) -> float:
    """Return the seconds left. Raises TimeoutError."""
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise TimeoutError
    return left


def request_seconds(query: bytes) -> float:
    """Return the time for a request: `timeout=10s` in the query (default 10, maximum 30), less a margin."""
    for item in query.split(b"&"):
        name, _, value = item.partition(b"=")
        if name == b"timeout" and value.endswith(b"s") and value[:-1].isdigit() and len(value) < 4:  # noqa: PLR2004
            return min(_MAX_SECONDS, max(1.0, float(value[:-1]))) * _MARGIN
    return _DEFAULT_SECONDS * _MARGIN


async def discard(receive: Any) -> None:
    """Read more of a rejected body, so that the client gets to read the response."""
    left = _DISCARD_BYTES
    try:
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return


# ---- expensive reviews: in a child process with limits on priority, CPU time and memory. A thread would block the event loop
# through the GIL. The fork inherits configuration and body; exiting frees its memory.


async def run_in_child(work: Callable[[], ReviewAnswer], deadline: float) -> ReviewAnswer:
    """Return the result of `work`, run in a child. Raises Interruption at a limit, `deadline` (loop time) or its death."""
    child = children.start(lambda _: _work_in_child(work), seconds=_ANSWER_SECONDS, what="the review", keeps_groups=True)
    try:
        async with asyncio.timeout_at(deadline):
            await wait_readable(child.fileno())
            while child.read():
                await wait_readable(child.fileno())
        return child.receive()  # type: ignore[no-any-return]
    except (NetinitError, TimeoutError):
        raise Interruption from None
    finally:
        while child.poll() is None:  # the next child needs its memory
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            await asyncio.sleep(_POLL_SECONDS)


def _work_in_child(work: Callable[[], ReviewAnswer]) -> ReviewAnswer:
    signal.set_wakeup_fd(-1)  # the event loop's descriptor is closed in the child
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.nice(_CHILD_NICE)
    size = int(read_text("/proc/self/statm").split()[0]) * resource.getpagesize()
    limits = (resource.RLIMIT_AS, size + _CHILD_MEMORY_BYTES), (resource.RLIMIT_CPU, _CHILD_CPU_SECONDS), (resource.RLIMIT_CORE, 0)
    for kind, limit in limits:
        resource.setrlimit(kind, (limit, limit))
    return work()
