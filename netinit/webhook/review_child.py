"""A heavy review's own process: a fork with lower priority and bounds on its processor time, memory and answer.

Python's lock would let a thread hold up the event loop; a process competes with it for the processor alone, and with
this priority it gets a tenth of one that both want. Its memory goes back to the system when it ends. The fork has the
configuration and the request's body already.
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

_CPU_SECONDS = 2  # twice what the largest pods within `bounds` take with Istio's template
_MEMORY = 112 << 20  # bytes beyond what the server has: such a pod takes 90 MiB
_NICE = 10  # a tenth of the weight of the event loop: sched_prio_to_weight in kernel/sched/core.c
_ANSWER_SECONDS = 60.0  # never waited for: the review's own deadline is shorter
_LOOK = 0.005  # seconds between two looks whether a killed child is gone


async def run_in_child(work: Callable[[], ReviewAnswer], deadline: float) -> ReviewAnswer:
    """The work's result. Raises Interruption where it takes more time or memory than it may; the child has ended then."""
    child = children.start(lambda _: _compute(work), seconds=_ANSWER_SECONDS, what="the review", keeps_groups=True)
    try:
        await _read(child, deadline)
        return child.receive()  # type: ignore[no-any-return]
    except (NetinitError, TimeoutError):
        raise Interruption from None
    finally:
        await _end(child)


def _compute(work: Callable[[], ReviewAnswer]) -> ReviewAnswer:
    """Does the work, in the child."""
    signal.set_wakeup_fd(-1)  # of the event loop, whose descriptors are closed
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.nice(_NICE)
    children.limit_growth(_MEMORY)
    for kind, most in ((resource.RLIMIT_CPU, _CPU_SECONDS), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))
    return work()


async def _read(child: children.Child, deadline: float) -> None:
    """Returns when the child has answered or ended. Raises TimeoutError at the deadline."""
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
    """Returns when the child is gone, and its memory with it; the next one starts after that."""
    while child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        await asyncio.sleep(_LOOK)
