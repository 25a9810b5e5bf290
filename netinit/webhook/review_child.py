"""Compute an expensive review in a child process with limits on priority, CPU time and memory.

A thread would block the event loop through the GIL. The fork inherits configuration and body; exiting frees its memory.
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

_CPU_SECONDS = 2  # twice that of the largest pod within `bounds`, with Istio's template
_MEMORY_BYTES = 112 << 20  # beyond the server's: such a pod needs 90 MiB
_NICE = 10  # a tenth of the weight: sched_prio_to_weight in kernel/sched/core.c
_ANSWER_SECONDS = 60.0  # the review's own deadline is shorter
_POLL_SECONDS = 0.005  # for a killed child


async def run_in_child(work: Callable[[], ReviewAnswer], deadline: float) -> ReviewAnswer:
    """Return the result of `work`, run in a child. Raises Interruption at a limit, `deadline` (loop time) or its death."""
    child = children.start(lambda _: _compute(work), seconds=_ANSWER_SECONDS, what="the review", keeps_groups=True)
    try:
        await _read(child, deadline)
        return child.receive()  # type: ignore[no-any-return]
    except (NetinitError, TimeoutError):
        raise Interruption from None
    finally:
        await _end(child)


def _compute(work: Callable[[], ReviewAnswer]) -> ReviewAnswer:
    signal.set_wakeup_fd(-1)  # the event loop's descriptor is closed in the child
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.nice(_NICE)
    children.limit_growth(_MEMORY_BYTES)
    for kind, limit in ((resource.RLIMIT_CPU, _CPU_SECONDS), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (limit, limit))
    return work()


async def _read(child: children.Child, deadline: float) -> None:
    """Wait for the answer. Raises TimeoutError."""
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
    """Kill the child and wait for it: the next one needs its memory."""
    while child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        await asyncio.sleep(_POLL_SECONDS)
