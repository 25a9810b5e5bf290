"""The process that keeps the others alive, and nothing else: it forks, waits, and hands on signals.

It has no threads and no event loop, so that a fork of it is whole at any time; what the others need is imported here
once, and shared by all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from netinit.base.errors import ConfigError
from netinit.base.logs import level_of
from netinit.kernel import children
from netinit.kernel.children import Answer, Child
from netinit.serving.events import EventLog
from netinit.serving.resources import count_cores, listen
from netinit.webhook import board as on
from netinit.webhook import keeper, metrics, worker
from netinit.webhook.board import Board
from netinit.webhook.settings import SECOND, ServeSettings

__all__ = ["count_cores", "listen", "run"]

_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
_TICK = 0.5
_SILENT = 45.0  # seconds after which a worker hangs: longer than any review may take
_YOUNG = 5.0  # seconds; who dies younger is made again after a pause that doubles
_LONGEST_PAUSE = 5.0
_SLACK = 2.0
_LET_GO = 0.1
_PREFIX = "netinit-webhook-"  # of folders without a name of their own


@dataclass(slots=True)
class _Process:
    """One that is kept alive."""

    name: str
    action: Callable[[], None]
    slot: int = -1  # of a worker
    child: Child | None = None
    begun: float = 0.0
    pause: float = 0.0
    due: float = field(default=0.0)


def run(settings: ServeSettings) -> int:
    """Serves until SIGTERM or SIGINT; the exit code. Raises ConfigError where it cannot listen."""
    log = EventLog(level_of(settings.log_level), as_json=settings.log_as_json)
    reviews, monitoring = listen(settings.address, settings.port), listen(settings.address, settings.monitoring_port)
    folder = _state_folder(settings.state_folder)
    metrics.prepare(folder.path / "metrics")
    board = Board(folder.path)
    slots = settings.processes or count_cores()
    processes = [_Process("keeper", lambda: keeper.serve(settings, monitoring, board, slots))]
    processes += [
        _Process(f"worker {slot}", lambda slot=slot: worker.serve(settings, reviews, board, slot), slot)  # type: ignore[misc]
        for slot in range(slots)
    ]
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    gc.collect()
    gc.freeze()
    log.event(
        "info", f"serving reviews on port {settings.port} with {slots} processes, metrics on {settings.monitoring_port}"
    )
    try:
        _Supervisor(processes, board, log, settings, reviews).watch()
    finally:
        for process in processes:
            if process.child is not None:
                process.child.end()
        if folder.is_ours:
            shutil.rmtree(folder.path, ignore_errors=True)
    log.event("info", "ended")
    return 0


class _Supervisor:
    """Watches over processes until it is told to end."""

    def __init__(
        self, processes: list[_Process], board: Board, log: EventLog, settings: ServeSettings, listening: socket.socket
    ) -> None:
        self.processes = processes
        self.board = board
        self.log = log
        self.settings = settings
        self.listening = listening
        self.restarts = 0

    def watch(self) -> None:
        for process in self.processes:
            self._start(process)
        while True:
            caught = signal.sigtimedwait(_SIGNALS, _TICK)
            if caught is not None and caught.si_signo in {signal.SIGTERM, signal.SIGINT}:
                break
            for process in self.processes:
                self._look_after(process)
        self._end()

    def _start(self, process: _Process) -> None:
        def live(_: Answer) -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's is for the supervisor
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            process.action()

        process.child = children.start(live, seconds=1.0, what=process.name, kept=None)
        process.begun = time.monotonic()

    def _look_after(self, process: _Process) -> None:
        now = time.monotonic()
        if process.child is None:
            if now >= process.due:
                self._start(process)
            return
        code = process.child.poll()
        if code is None:
            silence = self.board.silence(process.slot) if process.slot >= 0 else 0.0
            if now - process.begun < _SILENT or silence < _SILENT:
                return
            process.child.end()
            self.log.event("error", f"{process.name} hung for {_SILENT:.0f} s and was killed")
        else:
            why = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            self.log.event("error", f"{process.name} {why}; it is made again")
        process.child = None
        if process.slot >= 0:
            self.board.forget(process.slot)
        young = now - process.begun < _YOUNG
        process.pause = min(_LONGEST_PAUSE, process.pause * 2 or 0.2) if young else 0.0
        process.due = now + process.pause
        self.restarts += 1
        self.board.put_tree(keeper.RESTARTS, self.restarts)
        if not process.pause:
            self._start(process)

    def _end(self) -> None:
        """Tells the workers to end, and waits for them; then the keeper, which answers for health until then."""
        self.log.event("info", "told to end: the reviews that were begun are finished")
        workers = [process for process in self.processes if process.slot >= 0]
        with contextlib.suppress(OSError):  # a full folder: the workers say it by themselves
            self.board.put_tree(on.DRAINING, 1)
        self._tell(workers)
        # When the workers have let go of the socket, all that share it do: new connections are refused, not queued.
        self._wait(workers, self.settings.shutdown_delay / SECOND + _LET_GO)
        self.listening.shutdown(socket.SHUT_RDWR)
        self._wait(workers, worker.DRAIN_SECONDS + _SLACK)
        others = [process for process in self.processes if process.slot < 0]
        self._tell(others)
        self._wait(others, _SLACK)
        for process in self.processes:
            if process.child is not None and process.child.poll() is None:
                self.log.event("error", f"{process.name} did not end in time and is killed")

    @staticmethod
    def _living(processes: list[_Process]) -> list[Child]:
        children_there = [process.child for process in processes if process.child is not None]
        return [child for child in children_there if child.poll() is None]

    def _tell(self, processes: list[_Process]) -> None:
        for child in self._living(processes):
            os.kill(child.pid, signal.SIGTERM)

    def _wait(self, processes: list[_Process], seconds: float) -> None:
        """They are gone, or the seconds are over."""
        end = time.monotonic() + seconds
        while self._living(processes) and time.monotonic() < end:
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)


@dataclass(frozen=True, slots=True)
class _Folder:
    """The folder for what the processes share, and whether it is to be removed in the end."""

    path: Path
    is_ours: bool


def _state_folder(named: str) -> _Folder:
    """The folder that was named, emptied, or a new one. Raises ConfigError."""
    try:
        if named:
            path = Path(named)
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.rmtree(path / "metrics", ignore_errors=True)
            Board(path).clear()
            return _Folder(path, is_ours=False)
        return _Folder(_new_folder(), is_ours=True)
    except OSError as error:
        raise ConfigError(
            f"--stateFolder: {error.filename} cannot be made: {error.strerror}; mount an emptyDir of medium Memory there"
        ) from error


def _new_folder() -> Path:
    """A folder in memory, if there is any; those of servers that were killed are taken away, with their keys."""
    memory = Path("/dev/shm")  # noqa: S108 - a new folder in it, for this user alone
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    for old in where.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _locked(old):
            shutil.rmtree(old, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where))
    fcntl.flock(os.open(made, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX)  # until the server's last process ends
    return made


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the folder; OSError where a server does."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
