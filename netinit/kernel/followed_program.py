"""A program whose output is read as it comes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence

from netinit.kernel import run

_PIECE = 1 << 16


class Followed:
    """A program whose output is read as it comes; a byte or the end of its input ends it. Raises BackendUnavailableError."""

    def __init__(self, path: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        # In a process group of its own, so that Ctrl-C reaches this process only.
        self._running, self._input = _start_with_pipe(path, arguments, environment)
        self._process = os.pidfd_open(self._running.pid)
        self._read = 0
        self.program = self._running.program
        self.is_open = True

    def read(self, seconds: float) -> tuple[list[bytes], bool]:
        """Return new output, waiting this long for the program's end, and whether it was the last."""
        ended = run.await_input(self._process, time.monotonic_ns() + int(seconds * 10**9))
        pieces = []
        while data := os.pread(self._running.output, _PIECE, self._read):
            self._read += len(data)
            pieces.append(data)
        return pieces, ended

    def request_end(self) -> None:
        """Ask the program to end."""
        if self._input >= 0:
            with contextlib.suppress(BrokenPipeError):  # it has ended
                os.write(self._input, b"\n")
            os.close(self._input)
            self._input = -1

    def finish(self, seconds: float) -> tuple[int, str]:
        """Wait for the program, and kill it after this time; return its exit status and error output."""
        self.is_open = False
        os.close(self._process)
        deadline = time.monotonic_ns() + int(seconds * 10**9)
        done = run.finish(self._running.replace(deadline=deadline, seconds=seconds))
        return done.status, done.errors


def _start_with_pipe(path: str, arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[run.Running, int]:
    """Start the program at `path` with a pipe as input; return it and the writing end, which the caller closes."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        return run.spawn(path, arguments, environment, reading, group=0), writing
    except OSError as error:
        os.close(writing)
        raise run.cannot_start(path, error) from None
    finally:
        os.close(reading)
