"""Say why a server is not ready where operators look: in its log, and in an event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from netinit.serving.event_log import EventLog

_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0  # a start, or a change of reason, that is over by then is not told
_REPEAT_SECONDS = 60.0


async def tell_unreadiness(
    find_obstacle: Callable[[], str | None], log: EventLog, send: Callable[[str], Awaitable[None]], *,
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:  # fmt: skip
    """Log why the server is not ready, at `warn`: when it begins, when the reason changes, and once a minute.

    `find_obstacle`: the reason, empty while it is ready, None once it is stopping, which ends this. `send`: write an event;
    called when it begins and when the reason changes.
    """
    told, last, since = "", clock(), clock()
    while (reason := find_obstacle()) is not None:
        now = clock()
        if not reason:
            if told:
                log.event("info", "ready again")
            told, since = "", now
        elif now - since >= _PATIENCE_SECONDS and now - last >= (_PATIENCE_SECONDS if reason != told else _REPEAT_SECONDS):
            log.event("warn", f"not ready: {reason}")
            is_new, told, last = reason != told, reason, now
            if is_new:
                await send(reason)
        await sleep(_LOOK_SECONDS)
