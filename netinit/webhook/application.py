"""What answers requests: reviews at /inject, health at /livez and /readyz. An ASGI application, one a process.

Theory of operation. A review is computed in the event loop, one after the other, since it is nothing but computing. What
comes in meanwhile, once its body is there, waits in a queue that has a bound; each request has a deadline, counted from
its head, of the seconds that the API server gives in the query less a margin. A request that gets its turn too late is
answered 503 without being computed; one that computes too long is interrupted by a timer's signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from netinit.inject.pod import Namespace
from netinit.serving.events import EventLog
from netinit.serving.listener import reply
from netinit.webhook import review
from netinit.webhook.bodies import Bodies
from netinit.webhook.configuration import Served
from netinit.webhook.metrics import Metrics
from netinit.webhook.review import LARGEST, Fault, Interruption, ReviewAnswer

__all__ = ["Application", "Stopwatch"]

_DEADLINE = 10.0  # seconds, the API's default for a webhook
_LONGEST = 30.0
_MOST_BYTES = 32 << 20  # of bodies that wait in one process
_MOST_DISCARDED, _LINGER = 32 << 20, 2.0  # bytes and seconds of a body that is too long
_MARGIN = 0.9  # of the seconds given, so that the answer arrives in time
_JSON = "application/json"


class Stopwatch:
    """Interrupts a computation of this thread, the main one, that takes longer than it may."""

    def __init__(self) -> None:
        self._armed = False
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, *_: object) -> None:
        if self._armed:
            raise Interruption

    def run(self, seconds: float, work: Callable[[], ReviewAnswer]) -> ReviewAnswer:
        """What the work returns. Raises Interruption."""
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return work()
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)


class Application:
    """Answers requests with what is in force: `served` is set from outside, whole."""

    def __init__(
        self,
        *,
        log: EventLog,
        metrics: Metrics,
        most: int,
        health: Callable[[bool], tuple[bool, str]],
        wants_certificate: bool = False,
    ) -> None:
        self.served: Served | None = None
        self.namespace: Callable[[str], Namespace] = lambda name: Namespace(name=name)
        self.draining = False
        self._log = log
        self._metrics = metrics
        self._most = most
        self._health = health
        self._wants_certificate = wants_certificate
        self._waiting = 0
        self._bodies = Bodies(_MOST_BYTES)
        self._turn = asyncio.Lock()
        self._watch = Stopwatch()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        path: str = scope["raw_path"].decode("latin-1")
        if path in {"/livez", "/readyz", "/healthz"}:
            await self._tell_health(path, scope, send)
            return
        arrived: float = scope["state"]["arrived"]
        loop = asyncio.get_running_loop()
        self._metrics.in_flight.inc()
        try:
            given = await self._review(path, scope, receive, arrived)
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
        cut_off = given.status >= 400  # noqa: PLR2004 - the client's errors and ours
        await reply(send, given.status, given.body, given.content_type, close=self.draining or cut_off, more=late)

    async def _tell_health(self, path: str, scope: Any, send: Any) -> None:
        if path == "/livez":
            good, text = True, "ok\n"
        else:
            good, text = self._health(b"verbose" in scope["query_string"])
        await reply(send, 200 if good else 503, text.encode(), close=self.draining)

    async def _review(self, path: str, scope: Any, receive: Any, arrived: float) -> ReviewAnswer:
        """The answer to a request for a review."""
        try:
            environment = review.environment_of(path)
            check_head(scope["method"], scope["headers"])
            self._check_client(scope)
            deadline = arrived + seconds_given(scope["query_string"])
            async with self._bodies.hold(receive, deadline) as body, self._place(), asyncio.timeout_at(deadline), self._turn:
                await asyncio.sleep(0)  # what has come in meanwhile gets its place in the queue
                return self._compute(body, environment, deadline)
        except Fault as fault:
            return review.refuse(fault)
        except TimeoutError:
            return review.refuse(Fault(503, "late", "the review did not get its turn in time; try again"))
        except Interruption:
            return review.refuse(Fault(503, "late", "the review takes longer than its deadline; the pod is too large"))

    def _check_client(self, scope: Any) -> None:
        """Nothing; raises Fault where the client may not ask."""
        if self._wants_certificate and not scope["state"]["certified"]:
            raise Fault(403, "no-certificate", "reviews are answered to clients with a certificate alone")

    @contextlib.asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """A place in the queue. Raises Fault where there is none."""
        if self._waiting >= self._most:
            raise Fault(503, "busy", f"{self._most} reviews are waiting already; try again")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _compute(self, body: bytes, environment: dict[str, str], deadline: float) -> ReviewAnswer:
        left = deadline - asyncio.get_running_loop().time()
        served = self.served
        if served is None:
            raise Fault(503, "not-ready", "there is no configuration yet; try again")
        if left <= 0:
            raise TimeoutError
        return self._watch.run(
            left, lambda: review.answer(body, served, environment=environment, namespace=self.namespace)
        )

    def _record(self, given: ReviewAnswer, seconds: float) -> None:
        level = {"injected": "info", "denied": "warn"}.get(given.outcome, "debug")
        level = "error" if given.detail else level
        if not self._log.wants(level):
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
