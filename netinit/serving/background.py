"""What servers do beside their requests: tasks that are restarted, and answers about health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from netinit.base.errors import NetinitError
from netinit.serving.event_log import EventLog
from netinit.serving.listener import reply

_RETRY_SECONDS = 1.0
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ReportCallback = Callable[[bool], tuple[bool, str]]
"""Returns whether the server is ready, and the text of /readyz, with details if the argument is true."""


async def run_forever(name: str, task: Callable[[], Awaitable[None]], problems: MutableMapping[str, str], log: EventLog) -> None:
    """Restart a task whenever it ends; an error is in `problems` until then, and logged once."""
    last = ""
    while True:
        try:
            await task()
        except (Exception, ExceptionGroup) as error:  # noqa: BLE001 - the other tasks go on
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            problems[name] = problem = f"{cause}" if isinstance(cause, NetinitError) else f"{type(cause).__name__}: {cause}"
            if problem != last:
                log.event("error", f"{name}: {problem}")
            last = problem
        await asyncio.sleep(_RETRY_SECONDS)
        problems.pop(name, None)


async def reply_health(scope: Any, send: Any, report: ReportCallback, *, readiness: str = "/readyz", close: bool = False) -> bool:
    """Answer a health request; return False for other paths."""
    if scope["path"] in {"/livez", "/healthz"}:
        await reply(send, 200, b"ok\n", close=close)
    elif scope["path"] == readiness:
        is_ready, text = report(b"verbose" in scope["query_string"])
        await reply(send, 200 if is_ready else 503, text.encode(), close=close)
    else:
        return False
    return True


async def reply_monitoring(
    scope: Any, send: Any, metrics: Callable[[], bytes], report: ReportCallback, *, readiness: str = "/readyz", close: bool = False
) -> None:
    """Answer a request to the port without TLS: metrics and health."""
    if scope["path"] == "/metrics":
        await reply(send, 200, metrics(), _METRICS_TYPE)
    elif not await reply_health(scope, send, report, readiness=readiness, close=close):
        await reply(send, 404, b"there are /metrics, /livez and /readyz\n")
