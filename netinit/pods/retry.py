"""A run that begins anew, for --retries: where somebody holds a lock, or the kernel has no time (EAGAIN, EBUSY)."""

from __future__ import annotations

import time

from netinit.base.errors import BusyError, LockedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from netinit.base.logs import Log
    from netinit.options import Options

    Result = TypeVar("Result")


def retry(act: Callable[[Options], Result], options: Options, log: Log, ended: Callable[[], bool] = bool) -> Result:
    """What `act` comes to, tried --retries times more with --retry-delay in between, and no longer than --lock-timeout in all.

    Each time everything was put back before, and what is left of the time is what a run may wait for locks. A run that
    was told to end (`ended`) is not begun anew.
    """
    deadline = time.monotonic_ns() + options.lock_timeout
    left = options.retries
    while True:
        try:
            return act(options if left == options.retries else options.replace(lock_timeout=deadline - time.monotonic_ns()))
        except (LockedError, BusyError) as error:
            if not left or ended() or time.monotonic_ns() + options.retry_delay >= deadline:
                raise
            left -= 1
            log.warn(f"{error}; begins anew in {options.retry_delay / 10**9:g} s ({options.retries - left} of {options.retries})")
            time.sleep(options.retry_delay / 10**9)
