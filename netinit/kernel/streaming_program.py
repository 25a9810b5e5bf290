"""Run a program whose output lines are read as they come, until it is asked to end."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from netinit.base.errors import NetinitError
from netinit.kernel import run

MAX_BYTES = 64 << 20  # of all that it prints
_PAUSE = 10**8  # nanoseconds between two reads of its output
_ENDING = 10.0  # seconds that it may take to end
_PIECE = 1 << 16


class Followed:
    """The program at `path`, as a context manager. Ctrl-C does not reach it; a byte or the end of its input ends it."""

    def __init__(self, path: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        # In a process group of its own, so that Ctrl-C reaches this process only.
        self._running, self._input = run.start_with_pipe(path, arguments, environment)
        self._process = os.pidfd_open(self._running.pid)
        self._read = 0
        self._rest = b""
        self._waiting: deque[bytes] = deque()
        self.status = 0  # exit status and error output, after `finish`
        self.errors = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def lines(self) -> Iterator[str]:
        """Yield lines until the program ends; a second call continues. Raises NetinitError above MAX_BYTES."""
        ended = False
        while self._waiting or not ended:
            while self._waiting:
                yield self._waiting.popleft().decode("utf-8", "replace")
            ended = ended or run.await_input(self._process, time.monotonic_ns() + _PAUSE)
            while data := os.pread(self._running.output, _PIECE, self._read):
                self._read += len(data)
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._waiting.extend(whole)
                if self._read > MAX_BYTES:
                    limit = f"{self._running.program} printed more than {MAX_BYTES >> 20} MiB"
                    raise NetinitError(f"{limit}: ask for less, or less often")
            if ended and self._rest:
                self._waiting.append(self._rest)
                self._rest = b""

    def ask_to_end(self) -> None:
        """Ask the program to end; `lines` yields the rest of its output."""
        if self._input >= 0:
            with contextlib.suppress(BrokenPipeError):  # it has ended
                os.write(self._input, b"\n")
            os.close(self._input)
            self._input = -1

    def finish(self) -> None:
        """Ask the program to end and wait; after 10 s kill it."""
        if self._process < 0:
            return
        self.ask_to_end()
        os.close(self._process)
        self._process = -1
        deadline = time.monotonic_ns() + int(_ENDING * 10**9)
        done = run.finish(self._running.replace(deadline=deadline, seconds=_ENDING))
        self.status, self.errors = done.status, done.errors
