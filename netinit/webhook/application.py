"""What answers requests: reviews at /inject, health at /livez and /readyz. An ASGI application.

Theory of operation. A review whose body is small is computed in the event loop, one after the other, since it is nothing but
computing. A large one, and one that turns out to take longer than a moment, is computed in a child process (`review_child`),
also one after the other, with a tenth of the event loop's priority. Peers take turns in both queues, and all who wait there,
their bodies read, have a place out of a bounded number. Each request has a deadline, counted from its head, of the seconds
that the API server gives in the query less a margin: it is answered 503 where its turn comes too late, and interrupted where
it takes too long.
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
_MOST_DISCARDED, _LINGER = 32 << 20, 2.0  # bytes and seconds of a body that is too long
_MARGIN = 0.9  # of the seconds given, so that the answer arrives in time
_LIGHT = 32 << 10  # bytes of a body that is tried in the event loop; most have less than 10 KiB
_MOMENT = 0.05  # seconds of processor time after which a child begins it anew; 2 ms are usual
_DENIALS = 60  # lines of the log a minute about pods that are refused
_JSON = "application/json"


class Stopwatch:
    """Interrupts a computation of this thread, the main one, that takes more processor time than it may."""

    def __init__(self) -> None:
        self._armed = False
        signal.signal(signal.SIGPROF, self._ring)

    def _ring(self, *_: object) -> None:
        if self._armed:
            raise Interruption

    def run(self, seconds: float, work: Callable[[], ReviewAnswer]) -> ReviewAnswer:
        """What the work returns. Raises Interruption."""
        self._armed = True
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            return work()
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_PROF, 0.0)


class Monitoring:
    """Answers at the port without TLS: metrics and health."""

    def __init__(self, state: ServingState, metrics: Metrics) -> None:
        self._state = state
        self._metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - ASGI's signature
        """One request."""
        if scope["path"] == "/metrics":
            await reply(send, 200, self._metrics.text(), CONTENT_TYPE)
        elif not await reply_health(self._state, scope, send):
            await reply(send, 404, b"there are /metrics, /livez and /readyz\n")


async def reply_health(state: ServingState, scope: Any, send: Any) -> bool:
    """Answers a request for health; whether it is one."""
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
    """Answers requests with what is in `state`."""

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
        self._denials = LineLimit(_DENIALS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if await reply_health(self._state, scope, send):
            return
        arrived: float = scope["state"]["arrived"]
        loop = asyncio.get_running_loop()
        self._metrics.in_flight.inc()
        try:
            given = await self._review(scope, receive, arrived)
        except asyncio.CancelledError:
            given = review.refuse(Fault(503, "ended", "the server ends, and has no time left; try again"))
        except Exception as error:  # noqa: BLE001 - nothing of ours goes to a client
            given = review.refuse(Fault(500, "internal", "internal error; the injector's log says more"))
            self._log.event("error", f"internal error: {type(error).__name__}: {error}")
        finally:
            self._metrics.in_flight.dec()
        seconds = loop.time() - arrived
        self._metrics.count(given.outcome, given.reason, seconds)
        self._record(given, seconds)
        if given.status == 413:  # noqa: PLR2004 - Content Too Large
            await discard(receive)
        late = [(b"retry-after", b"1")] if given.status == 503 else []  # noqa: PLR2004 - Service Unavailable
        # A request of which the rest is not read must not be taken for the next one.
        last = given.status >= 400 or self._state.draining or scope["state"]["last"]  # noqa: PLR2004 - the client's errors and ours
        await reply(send, given.status, given.body, given.content_type, close=last, more=late)

    async def _review(self, scope: Any, receive: Any, arrived: float) -> ReviewAnswer:
        """The answer to a request for a review."""
        try:
            environment = review.environment_of(scope["raw_path"].decode("latin-1"))
            check_head(scope["method"], scope["headers"])
            self._check_client(scope)
            deadline = arrived + seconds_given(scope["query_string"])
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
        """Nothing; raises Fault where the client may not ask, or not yet."""
        if obstacle := self._state.find_obstacle():
            raise Fault(503, "not-ready", f"{obstacle}; try again")
        if self._wants_certificate and not scope["state"]["certified"]:
            raise Fault(403, "no-certificate", "reviews are answered to clients with a certificate alone")

    async def _compute(self, body: bytearray, environment: dict[str, str], place: QueuePlace, deadline: float) -> ReviewAnswer:
        """The answer, computed where it holds up nobody. Raises TimeoutError, Interruption and Fault."""

        def work() -> ReviewAnswer:
            served = self._state.served
            assert served is not None  # noqa: S101 - a configuration is replaced, never removed
            return review.answer(body, served, environment=environment, namespace=self._state.namespace)

        if len(body) <= _LIGHT:
            async with self._in_loop.take(place, deadline):
                await asyncio.sleep(0)  # what has come in meanwhile gets its place in the queue
                try:
                    return self._watch.run(min(_left(deadline), _MOMENT), work)
                except Interruption:
                    _left(deadline)
        async with self._in_child.take(place, deadline):
            _left(deadline)
            self._metrics.heavy.inc()
            return await run_in_child(work, deadline)

    def _record(self, given: ReviewAnswer, seconds: float) -> None:
        level = {"injected": "info", "denied": "warn"}.get(given.outcome, "debug")
        level = "error" if given.detail else level
        if not self._log.wants(level):
            return
        if level in {"warn", "error"}:
            admitted, kept_back = self._denials.admit()
            if kept_back:
                self._log.event("warn", f"{kept_back} lines about denied pods were left out in the minute before")
            if not admitted:
                return
        self._log.event(
            level,
            f"{given.outcome}: {given.message}" if given.message else given.outcome,
            pod=f"{given.namespace}/{given.pod}" if given.pod else "",
            owner=given.owner,
            decision=given.outcome,
            reason=given.reason,
            milliseconds=round(seconds * 1000, 2),
            uid=given.uid,
            dryRun=given.dry_run or "",
            detail=given.detail if self._log.wants("debug") else "",
        )


def check_head(method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Nothing; raises Fault for what cannot be a review, by the request's head alone."""
    if method != "POST":
        raise Fault(405, "no-review", "reviews are sent by POST")
    given: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in given and name in {b"content-type", b"content-length", b"content-encoding"}:
            raise Fault(400, "no-review", f"the header {name.decode('latin-1')} is given twice")
        given[name] = value
    if given.get(b"content-type", b"").split(b";")[0].strip().lower() != _JSON.encode():
        raise Fault(415, "no-json", f"the Content-Type must be {_JSON}")
    if given.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise Fault(415, "no-json", "compressed bodies are not read")
    length = given.get(b"content-length", b"0")
    if not length.isdigit():
        raise Fault(400, "no-review", "the Content-Length is no number")
    if len(length) > 10 or int(length) > LARGEST:  # noqa: PLR2004 - digits
        raise Fault(413, "too-large", f"the body is longer than {LARGEST >> 20} MiB")


def _left(deadline: float) -> float:
    """The seconds until the deadline. Raises TimeoutError where there are none."""
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise TimeoutError
    return left


def seconds_given(query: bytes) -> float:
    """The seconds that a request may take: those of the API server's `timeout=10s`, less a margin."""
    for item in query.split(b"&"):
        name, _, value = item.partition(b"=")
        if name == b"timeout" and value.endswith(b"s") and value[:-1].isdigit() and len(value) < 4:  # noqa: PLR2004
            return min(_LONGEST, max(1.0, float(value[:-1]))) * _MARGIN
    return _DEADLINE * _MARGIN


async def discard(receive: Any) -> None:
    """Reads on for a moment: a client that still sends would not see the answer otherwise."""
    left = _MOST_DISCARDED
    try:
        async with asyncio.timeout(_LINGER):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return
