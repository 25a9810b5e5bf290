"""The ASGI application: admission reviews at /inject, health at /livez and /readyz.

Theory of operation. Reviews with a small body are computed in the event loop, one at a time. A review with a large
body, or one that exceeds its processor time there, is computed in a child process (`review_child`), also one at a time,
with a tenth of the event loop's scheduling weight. Both queues are round-robin over clients, and the number of reviews
that wait is limited. A request's deadline is the timeout that the API server sends in the query, less a margin, counted
from the arrival of its headers. A review that gets no turn by then, or runs longer, is answered with 503.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable
from typing import Any

from netinit.serving.events import EventLog, LineLimit
from netinit.serving.listener import reply
from netinit.webhook import review
from netinit.webhook.bodies import Bodies
from netinit.webhook.bounds import LARGEST
from netinit.webhook.metrics import CONTENT_TYPE, Metrics
from netinit.webhook.review import Fault, Interruption, ReviewAnswer
from netinit.webhook.review_child import run_in_child
from netinit.webhook.review_queue import QueuePlace, ReviewPlaces, Turns
from netinit.webhook.serving_state import ServingState

__all__ = ["Application", "Monitoring", "Stopwatch"]

_DEADLINE = 10.0  # seconds, the API's default for a webhook
_LONGEST = 30.0
_MAX_DISCARDED, _LINGER = 32 << 20, 2.0  # bytes and seconds to read from a body that is too long
_MARGIN = 0.9  # fraction of the timeout to use, so that the answer arrives in time
_LIGHT = 32 << 10  # bytes: larger bodies go to a child at once; most have less than 10 KiB
_MOMENT = 0.05  # seconds of processor time in the event loop, then a child starts over; 2 ms are usual
_PROBLEMS = 60  # log lines in any minute about denied pods and errors
_JSON = "application/json"


class Stopwatch:
    """Interrupts a computation in the main thread that exceeds its processor time (SIGPROF)."""

    def __init__(self) -> None:
        self._armed = False
        signal.signal(signal.SIGPROF, self._ring)

    def _ring(self, *_: object) -> None:
        if self._armed:
            raise Interruption

    def run(self, seconds: float, work: Callable[[], ReviewAnswer]) -> ReviewAnswer:
        """Return the result of `work`. Raises Interruption after `seconds` of processor time."""
        self._armed = True
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            return work()
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_PROF, 0.0)


class Monitoring:
    """ASGI application of the port without TLS: metrics and health."""

    def __init__(self, state: ServingState, metrics: Metrics) -> None:
        self._state = state
        self._metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - ASGI's signature
        """Answer one request."""
        if scope["path"] == "/metrics":
            await reply(send, 200, self._metrics.text(), CONTENT_TYPE)
        elif not await reply_health(self._state, scope, send):
            await reply(send, 404, b"there are /metrics, /livez and /readyz\n")


async def reply_health(state: ServingState, scope: Any, send: Any) -> bool:
    """Answer a health request; return False for any other path."""
    path = scope["path"]
    if path in {"/livez", "/healthz"}:
        await reply(send, 200, b"ok\n", close=state.draining)
    elif path == "/readyz":
        text = state.report(verbose=b"verbose" in scope["query_string"])
        await reply(send, 200 if state.is_ready() else 503, text.encode(), close=state.draining)
    else:
        return False
    return True


class Application:
    """Answers requests, with the values in `state`."""

    def __init__(
        self,
        state: ServingState,
        *,
        log: EventLog,
        metrics: Metrics,
        most_reviews: int,
        most_bytes: int,
        wants_certificate: bool = False,
    ) -> None:
        self._state = state
        self._log = log
        self._metrics = metrics
        self._wants_certificate = wants_certificate
        self._bodies = Bodies(most_bytes)
        self._places = ReviewPlaces(most_reviews)
        self._in_loop, self._in_child = Turns(), Turns()
        self._watch = Stopwatch()
        self._problems = LineLimit(_PROBLEMS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if await reply_health(self._state, scope, send):
            return
        arrived: float = scope["state"]["arrived"]
        loop = asyncio.get_running_loop()
        self._metrics.in_flight.inc()
        try:
            answer = await self._review(scope, receive, arrived)
        except asyncio.CancelledError:
            answer = review.refuse(Fault(503, "ended", "the server ends, and has no time left; try again"))
        except Exception as error:  # noqa: BLE001 - the client must not see internals
            answer = review.refuse(Fault(500, "internal", "internal error; the injector's log says more"))
            self._log_limited("error", f"internal error: {type(error).__name__}: {error}")
        finally:
            self._metrics.in_flight.dec()
        seconds = loop.time() - arrived
        self._metrics.count(answer.outcome, answer.reason, seconds)
        self._record(answer, seconds)
        if answer.status == 413:  # noqa: PLR2004 - Content Too Large
            await discard(receive)
        late = [(b"retry-after", b"1")] if answer.status == 503 else []  # noqa: PLR2004 - Service Unavailable
        # The unread rest of a rejected request must not be parsed as the next request.
        last = answer.status >= 400 or self._state.draining or scope["state"]["last"]  # noqa: PLR2004 - 4xx and 5xx
        await reply(send, answer.status, answer.body, answer.content_type, close=last, more=late)

    async def _review(self, scope: Any, receive: Any, arrived: float) -> ReviewAnswer:
        """Return the answer to a review, or the refusal; other exceptions are internal errors."""
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
            return review.refuse(Fault(503, "late", "the review did not get its turn in time; try again"))
        except Interruption:
            return review.refuse(Fault(503, "late", "the review takes more time or memory than it may; the pod is too large"))

    def _check_client(self, scope: Any) -> None:
        """Raise Fault if the server is not ready, or if a required client certificate is missing."""
        if obstacle := self._state.find_obstacle():
            raise Fault(503, "not-ready", f"{obstacle}; try again")
        if self._wants_certificate and not scope["state"]["certified"]:
            raise Fault(403, "no-certificate", "reviews are answered to clients with a certificate alone")

    async def _compute(self, body: bytearray, environment: dict[str, str], place: QueuePlace, deadline: float) -> ReviewAnswer:
        """Compute the answer in the event loop or in a child process. Raises TimeoutError, Interruption and Fault."""

        def work() -> ReviewAnswer:
            served = self._state.served
            assert served is not None  # noqa: S101 - a configuration is replaced, never removed
            return review.answer(body, served, environment=environment, namespace=self._state.namespace)

        if len(body) <= _LIGHT:
            async with self._in_loop.take(place, deadline):
                await asyncio.sleep(0)  # let requests that arrived meanwhile join the queue
                try:
                    return self._watch.run(min(_seconds_left(deadline), _MOMENT), work)
                except Interruption:
                    _seconds_left(deadline)
        async with self._in_child.take(place, deadline):
            _seconds_left(deadline)
            self._metrics.heavy.inc()
            return await run_in_child(work, deadline)

    def _record(self, answer: ReviewAnswer, seconds: float) -> None:
        level = {"injected": "info", "denied": "warn"}.get(answer.outcome, "debug")
        level = "error" if answer.detail else level
        if not self._log.wants(level):
            return
        write = self._log_limited if level in {"warn", "error"} else self._log.event
        write(
            level,
            f"{answer.outcome}: {answer.message}" if answer.message else answer.outcome,
            pod=f"{answer.namespace}/{answer.pod}" if answer.pod else "",
            owner=answer.owner,
            decision=answer.outcome,
            reason=answer.reason,
            milliseconds=round(seconds * 1000, 2),
            uid=answer.uid,
            dryRun=answer.dry_run or "",
            detail=answer.detail if self._log.wants("debug") else "",
        )


    def _log_limited(self, level: str, message: str, **fields: str | float | bool) -> None:
        """Write one event, unless this minute has its lines: clients decide how often there is something to say."""
        admitted, left_out = self._problems.admit()
        if left_out:
            self._log.event("warn", f"{left_out} lines about denied pods and errors were left out: more than {_PROBLEMS} in a minute")
        if admitted:
            self._log.event(level, message, **fields)


def check_head(method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise Fault if method or headers rule out a review."""
    if method != "POST":
        raise Fault(405, "no-review", "reviews are sent by POST")
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in seen and name in {b"content-type", b"content-length", b"content-encoding"}:
            raise Fault(400, "no-review", f"the header {name.decode('latin-1')} is given twice")
        seen[name] = value
    if seen.get(b"content-type", b"").split(b";")[0].strip().lower() != _JSON.encode():
        raise Fault(415, "no-json", f"the Content-Type must be {_JSON}")
    if seen.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise Fault(415, "no-json", "compressed bodies are not read")
    length = seen.get(b"content-length", b"0")
    if not length.isdigit():
        raise Fault(400, "no-review", "the Content-Length is no number")
    if len(length) > 10 or int(length) > LARGEST:  # noqa: PLR2004 - digits
        raise Fault(413, "too-large", f"the body is longer than {LARGEST >> 20} MiB")


def _seconds_left(deadline: float) -> float:
    """Return the seconds until the deadline. Raises TimeoutError if it has passed."""
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise TimeoutError
    return left


def request_seconds(query: bytes) -> float:
    """Return the seconds a request may take: the API server's `timeout=10s` (default 10, maximum 30), less a margin."""
    for item in query.split(b"&"):
        name, _, value = item.partition(b"=")
        if name == b"timeout" and value.endswith(b"s") and value[:-1].isdigit() and len(value) < 4:  # noqa: PLR2004
            return min(_LONGEST, max(1.0, float(value[:-1]))) * _MARGIN
    return _DEADLINE * _MARGIN


async def discard(receive: Any) -> None:
    """Read the rest of a rejected body for a moment, so that a client that is still sending can read the answer."""
    left = _MAX_DISCARDED
    try:
        async with asyncio.timeout(_LINGER):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return
