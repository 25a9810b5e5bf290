"""A thread for a review that takes long, beside the event loop: with a deadline and a budget of processor time."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable

from netinit.webhook.review import Interruption, ReviewAnswer

__all__ = ["CPU_SECONDS", "run_in_thread"]

CPU_SECONDS = 2.0
"""Processor time of one review: twice what the largest pods within `bounds` take with Istio's template."""
_LOOK = 0.05  # seconds between two looks at what a review has used
_PER_THREAD = 6  # CPUCLOCK_SCHED of one thread: include/linux/posix-timers.h

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)


async def run_in_thread(work: Callable[[], ReviewAnswer], deadline: float) -> ReviewAnswer:
    """The work's result. Raises Interruption where it takes longer than it may; the thread has ended then."""
    loop = asyncio.get_running_loop()
    finished = asyncio.Event()
    job = _Job(work, lambda: loop.call_soon_threadsafe(finished.set))
    job.start()
    try:
        while job.is_alive() and not finished.is_set():
            try:
                async with asyncio.timeout(_LOOK):
                    await finished.wait()
            except TimeoutError:
                if loop.time() >= deadline or job.used() > CPU_SECONDS:
                    job.interrupt()  # again and again: it is lost where it is raised in a destructor
    except asyncio.CancelledError:
        job.interrupt()
        raise
    job.join()  # it has nothing more to do
    return job.result()


class _Job(threading.Thread):
    """A computation that the event loop may interrupt. A thread of its own: it cannot be interrupted after its end."""

    def __init__(self, work: Callable[[], ReviewAnswer], finished: Callable[[], object]) -> None:
        super().__init__(name="review", daemon=True)
        self._work = work
        self._finished = finished
        self._answer: ReviewAnswer | None = None
        self._error: BaseException = Interruption()

    def run(self) -> None:
        """Computes, in the thread."""
        try:
            self._answer = self._work()
        except BaseException as error:  # noqa: BLE001 - the loop's to raise
            self._error = error
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            self._finished()

    def used(self) -> float:
        """Seconds of processor time so far."""
        try:
            return time.clock_gettime(~(self.native_id or 0) << 3 | _PER_THREAD)
        except OSError:  # it has just ended
            return 0.0

    def interrupt(self) -> None:
        """Raises Interruption in the computation, if it still runs; only this thread starts others, so none has its number."""
        if self.is_alive() and self.ident is not None:
            _raise_in(self.ident, Interruption)

    def result(self) -> ReviewAnswer:
        """What came of it."""
        if self._answer is None:
            raise self._error
        return self._answer
