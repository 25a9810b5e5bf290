"""Init containers that crash: killed, with all their processes, some time after they have started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from laboratory import Pod

__all__ = ["find_half", "run_and_kill"]

PROGRAM = "netinit"  # what the image starts
_SECONDS = 60.0
_ATTEMPTS = 60
_STEP, _SMALLEST_STEP = 0.002, 0.0001  # seconds
_GROWTH = 1.25  # of the step while the moment is missed on the same side: a busy machine is many times slower
Run = Callable[[], subprocess.CompletedProcess[str]]


def find_half(pod: Pod, run: Run, look: Callable[[], str], *, before: str, after: str, undo: Callable[[], object]) -> float:
    """Kills containers until one leaves neither the state before it nor the one after it; that state stays.

    Each is killed later than one that had changed nothing, earlier than one that had done all; `undo` brings the state
    before it back. Returns the seconds after which the last one was killed. AssertionError when none is hit.
    """
    delay, step = 3 * _STEP, _STEP
    late = None
    for _ in range(_ATTEMPTS):
        run_and_kill(pod, run, delay)
        seen = look()
        if seen not in (before, after):
            return delay
        if late is not None:
            step = step * _GROWTH if late == (seen == after) else max(step / 2, _SMALLEST_STEP)
        late = seen == after
        delay = max(0.0, delay - step if late else delay + step)
        if late:
            undo()
    raise AssertionError(f"none of {_ATTEMPTS} killed containers left its work half done; the last was killed after {delay * 1e3:.1f} ms")


def run_and_kill(pod: Pod, run: Run, delay: float) -> None:
    """Runs a container and kills it so many seconds after netinit has started, unless it ended before.

    AssertionError when it fails by itself.
    """
    others = set(_inhabitants(pod))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        first = _await_newcomer(pod, others, running.done)
        if first is not None:
            try:
                time.sleep(delay)
                # It is number 1 of the container's own process namespace, with which all others go.
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(first, signal.SIGKILL)
            finally:
                os.close(first)
        done = running.result()
    assert done.returncode in (0, 128 + signal.SIGKILL), done.stderr


def _await_newcomer(pod: Pod, others: set[int], ended: Callable[[], bool]) -> int | None:
    """A descriptor of netinit's process, not of runc's before it; None when it ended before it was seen."""
    deadline = time.monotonic() + _SECONDS
    while not ended():
        assert time.monotonic() < deadline, "no container starts"
        for pid in _inhabitants(pod):
            with contextlib.suppress(OSError):
                if pid not in others and Path(f"/proc/{pid}/exe").readlink().name == PROGRAM:
                    return os.pidfd_open(pid)
    return None


def _inhabitants(pod: Pod) -> Iterator[int]:
    """The processes whose network is the pod's, of those that this one has started: to look through all takes longer than netinit."""
    wanted = Path(f"/proc/{pod.pid}/ns/net").readlink()
    left = [os.getpid()]
    while left:
        pid = left.pop()
        with contextlib.suppress(OSError):
            for listed in Path(f"/proc/{pid}/task").glob("*/children"):
                left += map(int, listed.read_text().split())
            if pid != os.getpid() and Path(f"/proc/{pid}/ns/net").readlink() == wanted:
                yield pid
