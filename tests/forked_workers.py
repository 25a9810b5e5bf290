"""Workers of pytest-xdist without their imports: a process that has collected the tests forks itself for each of them.

Half of a worker's start is Python that imports the test modules and the package. As execnet starts `python -u -c LINE`, so it starts
this file with the path of a socket: it asks for a fork there, which does what that interpreter would, and waits for its end.

The fork collects once more, as any worker; all modules are in memory already. What differs between workers (process id, variables that
pytest-xdist sets) must not be read while a module is imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LINE = "import sys;exec(eval(sys.stdin.readline()))"  # what execnet has each interpreter do
MOST = 1 << 16  # bytes of a request


def start(specs: Sequence[Any], arguments: Sequence[str]) -> contextlib.ExitStack:
    """Start the process that forks, for these workers; it ends when what is returned is closed, or with this process."""
    stack = contextlib.ExitStack()
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netinit-workers-"))) / "socket"
    listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    listening.bind(str(place))
    listening.listen()
    line = [sys.executable, __file__, str(listening.fileno()), *arguments]
    process = stack.enter_context(subprocess.Popen(line, stdin=subprocess.PIPE, pass_fds=[listening.fileno()]))
    stack.callback(process.kill)
    for spec in specs:
        spec.python = f"'{sys.executable}' -I -S '{__file__}' '{place}'"
    return stack


def ask(place: str, words: Sequence[str]) -> None:
    """Be a worker to whoever has started this process: the fork has its inputs and outputs."""
    assert list(words) == ["-u", "-c", LINE], f"execnet starts a worker in another way: {words}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(place)
        request = {"environ": dict(os.environ), "folder": str(Path.cwd())}
        socket.send_fds(asking, [json.dumps(request).encode()], [0, 1, 2])
        for descriptor in (0, 1):
            os.close(descriptor)
        asking.recv(1)  # nothing, once the fork has ended


def serve(listening: socket.socket) -> None:
    """Return in a fork that shall be a worker; the process itself ends when its stdin does."""
    assert threading.active_count() == 1, "a test module starts a thread as it is imported"
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGCHLD, signal.SIGINT)}  # nobody waits; Ctrl-C is the workers'
    while True:
        if 0 in select.select([0, listening], [], [])[0]:
            os._exit(0)
        asking, _ = listening.accept()
        text, files, *_ = socket.recv_fds(asking, MOST, 3)
        if not os.fork():
            break
        for descriptor in (asking.detach(), *files):
            os.close(descriptor)
    for number, handler in before.items():
        signal.signal(number, handler)
    listening.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    asking.detach()  # stays open until this process ends
    request = json.loads(text)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as an interpreter starts
    sys.argv = ["-c"]


class _Reports:
    """Whether every file was imported to its end: of another, its second import in a fork would give what there is of it, and tell nothing."""

    whole = True

    def pytest_collectreport(self, report: Any) -> None:
        self.whole &= report.passed


def collect(arguments: Sequence[str]) -> bool:
    """Import all that the workers collect; whether nothing failed or was skipped meanwhile."""
    import pytest

    reports = _Reports()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        return pytest.main(list(arguments), plugins=[reports]) == pytest.ExitCode.OK and reports.whole


if __name__ == "__main__":
    if not sys.argv[1].isdecimal():
        ask(sys.argv[1], sys.argv[2:])
        sys.exit()
    if sys.argv[2:] and not collect(sys.argv[2:]):
        os.execv(sys.executable, [sys.executable, *sys.argv[:2]])  # whose forks import everything themselves, and tell what is wrong
    serve(socket.socket(fileno=int(sys.argv[1])))
    exec(LINE, {})
