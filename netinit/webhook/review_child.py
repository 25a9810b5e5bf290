"""Compute a heavy review in a child process with lower priority and limits on processor time, memory and answer.

A thread would block the event loop through Python's GIL; a process competes only for the processor, with a tenth of the
event loop's weight, and frees its memory when it exits. The fork inherits the configuration and the request's body.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
from collections.abc import Callable

from netinit.base.errors import NetinitError
from netinit.kernel import children
from netinit.webhook.review import Interruption, ReviewAnswer

__all__ = ["run_in_child"]

_CPU_SECONDS = 2  # twice the time of the largest pod within `bounds` with Istio's template
_MEMORY = 112 << 20  # bytes beyond the server's: such a pod needs 90 MiB
_NICE = 10  # a tenth of the event loop's weight: sched_prio_to_weight in kernel/sched/core.c
_ANSWER_SECONDS = 60.0  # never reached: the review's own deadline is shorter
_POLL_SECONDS = 0.005  # between two checks whether a killed child is gone


async def run_in_child(work: Callable[[], ReviewAnswer], deadline: float) -> ReviewAnswer:
    """Run `work` in a child and return its result. Raises Interruption if it exceeds a limit; the child is gone then."""
    child = children.start(lambda _: _compute(work), seconds=_ANSWER_SECONDS, what="the review", keeps_groups=True)
    try:
        await _read(child, deadline)
        return child.receive()  # type: ignore[no-any-return]
    except (NetinitError, TimeoutError):
        raise Interruption from None
    finally:
        await _end(child)


def _compute(work: Callable[[], ReviewAnswer]) -> ReviewAnswer:
    """In the child: set the limits and run the work."""
    signal.set_wakeup_fd(-1)  # the event loop's descriptor is closed in the child
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.nice(_NICE)
    children.limit_growth(_MEMORY)
    for kind, most in ((resource.RLIMIT_CPU, _CPU_SECONDS), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))
    return work()


async def _read(child: children.Child, deadline: float) -> None:
    """Wait until the child has answered or exited. Raises TimeoutError at the deadline."""
    loop = asyncio.get_running_loop()
    complete = asyncio.Event()

    def read() -> None:
        if not child.read():
            complete.set()

    loop.add_reader(child.fileno(), read)
    try:
        async with asyncio.timeout_at(deadline):
            await complete.wait()
    finally:
        loop.remove_reader(child.fileno())


async def _end(child: children.Child) -> None:
    """Kill the child and wait until its memory is free, before the next one starts."""
    while child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        await asyncio.sleep(_POLL_SECONDS)
