"""Say why a server is not ready where operators look: in its log, and in an event."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from netinit.serving.event_log import EventLog

_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0  # a start, or a change of reason, that is over by then is not told
_REPEAT_SECONDS = 60.0  # between two log lines about the same checks, and between any two events


class Unreadiness(NamedTuple):
    """Why a server is not ready: the checks that fail, each with its reason, and the problems behind them; empty while it is ready."""

    checks: str
    causes: str = ""  # may be worded anew at every look, such as with an age

    def __str__(self) -> str:
        return "; ".join(filter(None, self))


async def tell_unreadiness(
    find_reason: Callable[[], Unreadiness | None], log: EventLog, send: Callable[[str], Awaitable[None]], *,
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:  # fmt: skip
    """Log why the server is not ready, at `warn`: after 5 seconds, when the checks that fail change, and once a minute.

    `find_reason`: None once the server is stopping, which ends this. `send`: write an event; called when unreadiness begins and when
    the checks that fail change, at most once a minute however often that is.
    """
    told, logged, since = "", clock(), clock()
    sent, sent_at = "", -math.inf
    while (reason := find_reason()) is not None:
        now = clock()
        if not reason.checks:
            if told:
                log.event("info", "ready again")
            told, sent, since = "", "", now
        elif now - since >= _PATIENCE_SECONDS and now - logged >= (_PATIENCE_SECONDS if reason.checks != told else _REPEAT_SECONDS):
            log.event("warn", f"not ready: {reason}")
            told, logged = reason.checks, now
        if told and sent != told == reason.checks and now - sent_at >= _REPEAT_SECONDS:
            sent, sent_at = told, now
            await send(str(reason))
        await sleep(_LOOK_SECONDS)
