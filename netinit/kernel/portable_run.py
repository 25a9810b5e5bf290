"""Starts programs on macOS and Windows, as `netinit.kernel.run` does on Linux, with what Python has on every system.

By path, never through a shell. Every program has a deadline; where this process is killed, programs that it started go on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from queue import Empty, Queue

from netinit.base.errors import BackendUnavailableError
from netinit.kernel.run import INPUT_PER_SECOND, KILLED_LATE, SECONDS, Finished

PIECE = 1 << 16
PASSED_ON = ("PATH", "HOME", "USERPROFILE", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR")  # Windows starts little without its last ones


class PortableProgram:
    """A started program; `finish` waits for it. Raises BackendUnavailableError if it cannot be started."""

    def __init__(self, path: str, arguments: Sequence[str], stdin: str, environment: Mapping[str, str], seconds: float) -> None:
        self.program = os.path.basename(path)  # noqa: PTH119
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.files = tuple(tempfile.TemporaryFile() for _ in range(3))  # noqa: SIM115 - input, output, errors; `finish` closes them
        self.files[0].write(stdin.encode())
        self.files[0].seek(0)
        self.process = _open(path, arguments, environment, self.files)


def find(program: str) -> str:
    """Return the path of an installed program, from PATH; empty if not installed."""
    return shutil.which(program) or ""


def _open(path: str, arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[object]) -> subprocess.Popen[bytes]:
    environ = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {"LC_ALL": "C"} | dict(environment)
    source, output, errors = files
    try:
        return subprocess.Popen([path, *arguments], stdin=source, stdout=output, stderr=errors, env=environ)  # type: ignore[call-overload, no-any-return]
    except OSError as error:
        raise BackendUnavailableError(f"{path} cannot be started: {error.strerror or error}") from None


def start(
    path: str, arguments: Sequence[str] = (), *, stdin: str = "", environment: Mapping[str, str] | None = None, waits: int = 0
) -> PortableProgram:
    """Start the program at `path` with the input `stdin`; `environment` is added to the variables in PASSED_ON.

    `waits`: nanoseconds it may wait, in addition to its timeout. Raises BackendUnavailableError.
    """
    return PortableProgram(path, arguments, stdin, environment or {}, SECONDS + waits / 10**9 + len(stdin) / INPUT_PER_SECOND)


def finish(running: PortableProgram) -> Finished:
    """Wait for the program; after its deadline kill it and say so in `errors`."""
    late = ""
    try:
        running.process.wait(max(0, running.deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        running.process.kill()
        running.process.wait()
        late = f" did not end within {running.seconds:.0f} s and {KILLED_LATE}"
    texts = []
    for file in running.files:
        file.seek(0)
        texts.append(file.read())
        file.close()
    output, errors = texts[1].decode("utf-8", "surrogateescape"), texts[2].decode("utf-8", "replace").strip()
    return Finished(program=running.program, status=running.process.returncode, output=output, errors=f"{errors}{late}".strip())


class PortableFollowed:
    """A program whose output is read as it comes; a byte or the end of its input ends it. Raises BackendUnavailableError."""

    def __init__(self, path: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.program = os.path.basename(path)  # noqa: PTH119
        self.is_open = True
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `finish` closes it
        self._process = _open(path, arguments, environment, (subprocess.PIPE, subprocess.PIPE, self._errors))
        self._pieces: Queue[bytes] = Queue(256)  # as a pipe that is full, it holds up the program
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        while data := os.read(self._process.stdout.fileno(), PIECE) if self._process.stdout else b"":
            self._pieces.put(data)
        self._pieces.put(b"")

    def read(self, seconds: float) -> tuple[list[bytes], bool]:
        """Return new output, waiting for it this long, and whether it was the last."""
        try:
            piece = self._pieces.get(timeout=seconds)
        except Empty:
            return [], False
        return [piece], not piece

    def request_end(self) -> None:
        """Ask the program to end."""
        if self._process.stdin and not self._process.stdin.closed:
            try:
                self._process.stdin.write(b"\n")
                self._process.stdin.close()
            except OSError:  # it has ended
                return

    def finish(self, seconds: float) -> tuple[int, str]:
        """Wait for the program, and kill it after this time; return its exit status and error output."""
        self.is_open = False
        late = ""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            late = f" did not end within {seconds:.0f} s and {KILLED_LATE}"
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace").strip()
        self._errors.close()
        return self._process.returncode, f"{text}{late}".strip()
