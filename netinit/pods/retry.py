"""Retry a run (--retries) while another process holds a lock or the kernel is busy (EAGAIN, EBUSY)."""

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
    """Call `act`, and up to --retries times again after --retry-delay, within --lock-timeout in total.

    Each attempt is rolled back before the next, which waits for locks for the remaining time. A run that was asked to end
    (`ended`) is not retried.
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
