"""Start programs; no other module does.

By path, never through a shell, with memory files for input and output, which need no polling. Every program has a deadline
and holds the reading end of a pipe ("leash"); when this process, which has the writing end, exits, the kernel kills the
program (F_SETOWN, F_SETSIG of fcntl(2); PR_SET_PDEATHSIG does not work with posix_spawn), except in the microseconds before
`tie`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the C part of signal, whose enumerations cost 3 ms
import select
import time

from netinit.base.errors import SIGNALS, BackendUnavailableError
from netinit.base.records import Record
from netinit.base.system import LINUX, NEEDS_LINUX, fcntl, posix
from netinit.kernel import Closing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import Any

USUAL_FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin")
# Listing 100,000 rules takes some seconds on a slow machine; a program that needs more is stopped or broken.
SECONDS = 30.0
INPUT_PER_SECOND = 100_000  # bytes of input that give a program another second
# The environment variables that programs inherit. Others choose what the loader and libxtables load (LD_*, XTABLES_LIBDIR),
# or belong to the application.
PASSED_ON = (b"PATH", b"XTABLES_LOCKFILE")
_F_SETSIG, _SIGKILL = 10, 9  # asm-generic/fcntl.h
_SLICE = 100.0  # milliseconds
KILLED_LATE = "was killed; is it stopped, or broken?"  # how the errors of a program end that missed its deadline
_DYING = 2.0  # seconds to wait for a killed program; one blocked in the kernel may never exit
_POLL = 0.005  # seconds, where the kernel has no pidfd_open(2) (before 5.3)

_running: set[int] = set()  # process ids of programs that were started and not yet waited for

_sealed = False  # set once by a child that is about to join another user namespace


class Running(Record):
    """A started program; `finish` waits for it."""

    program: str
    pid: int
    output: int  # file descriptors of memory files
    errors: int
    leash: int  # closing it kills the program
    deadline: int  # nanoseconds of the monotonic clock
    seconds: float  # the timeout, for messages


class Finished(Record):
    """How a program ended: exit status (negative: the signal) and output, with lone surrogates for bytes that are not UTF-8."""

    program: str
    status: int
    output: str
    errors: str


def find(program: str) -> str:
    """Return the path of an installed program, from PATH and the usual directories; empty if not installed."""
    path = posix.environ.get(b"PATH", b"").decode("utf-8", "surrogateescape")
    for folder in (*path.split(":"), *USUAL_FOLDERS):
        candidate = f"{folder}/{program}"
        if folder and posix.access(candidate, posix.X_OK):
            return candidate
    return ""


def start(
    path: str, arguments: Sequence[str] = (), *, stdin: str = "", environment: Mapping[str, str] | None = None, waits: int = 0
) -> Running:
    """Start the program at `path` with the input `stdin`; `environment` is added to the variables in PASSED_ON.

    `waits`: nanoseconds it may wait for locks, in addition to its timeout. Raises BackendUnavailableError.
    """
    try:
        with Closing(posix.memfd_create("stdin", posix.MFD_CLOEXEC)) as source:
            data = memoryview(stdin.encode())
            while data:
                data = data[posix.write(source, data) :]
            posix.lseek(source, 0, 0)
            seconds = SECONDS + waits / 10**9 + len(stdin) / INPUT_PER_SECOND
            deadline = time.monotonic_ns() + int(seconds * 10**9)
            return spawn(path, arguments, environment or {}, source).replace(seconds=seconds, deadline=deadline)
    except OSError as error:
        raise cannot_start(path, error) from None


def become(path: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replace this process with the program; it keeps the standard streams and the variables in PASSED_ON. Raises OSError."""
    posix.execve(path, [path, *arguments], _make_environment(environment))


def cannot_start(path: str, error: OSError) -> BackendUnavailableError:
    """Return the error for a program that the system does not start."""
    return BackendUnavailableError(f"{path} cannot be started: {posix.strerror(error.errno or 0)}")


def spawn(path: str, arguments: Sequence[str], environment: Mapping[str, str], source: int, group: int = -1) -> Running:
    """Start the program with `source` as input, in the process group `group` unless it is -1. Raises OSError."""
    if _sealed:
        raise BackendUnavailableError(f"{path} cannot be started in the user namespace of a pod")
    program = path.rpartition("/")[2]
    opened: list[int] = []  # stdout, stderr, the leash's reading end for the program, its writing end for us
    try:
        for name in ("stdout", "stderr"):
            opened.append(posix.memfd_create(name, posix.MFD_CLOEXEC))  # noqa: PERF401 - what is open must be known
        opened += posix.pipe2(posix.O_CLOEXEC)
        posix.set_inheritable(opened[2], True)  # noqa: FBT003 - its signature
        pid = posix.posix_spawn(
            path,
            [program, *arguments],
            _make_environment(environment),
            file_actions=[(posix.POSIX_SPAWN_DUP2, one, number) for number, one in enumerate((source, *opened[:2]))],
            **({} if group < 0 else {"setpgroup": group}),  # type: ignore[arg-type] # which it takes for one of the others
        )
    except BaseException:
        for descriptor in opened:
            posix.close(descriptor)
        raise
    _running.add(pid)
    tie(opened[2], pid)
    posix.close(opened[2])
    return Running(program=program, pid=pid, output=opened[0], errors=opened[1], leash=opened[3], deadline=0, seconds=0.0)


def _make_environment(more: Mapping[str, str]) -> dict[bytes, bytes]:
    environ = {name: posix.environ[name] for name in PASSED_ON if name in posix.environ}
    environ[b"LC_ALL"] = b"C"  # netinit parses messages
    for name, value in more.items():
        environ[name.encode()] = value.encode()
    return environ


def finish(running: Running) -> Finished:
    """Wait for the program; after its deadline kill it and say so in `errors`."""
    status = wait(running.pid, running.deadline)
    late = status is None
    if status is None:
        status = end(running.pid)
    _running.discard(running.pid)
    posix.close(running.leash)
    output = _read(running.output, "surrogateescape")
    errors = _read(running.errors, "replace").strip()
    if late:
        errors = f"{errors} did not end within {running.seconds:.0f} s and {KILLED_LATE}".strip()
    return Finished(program=running.program, status=posix.waitstatus_to_exitcode(status), output=output, errors=errors)


def end_all() -> None:
    """Kill all running programs, from a signal handler; `finish` reports them."""
    for pid in _running:
        posix.kill(pid, _SIGKILL)


class Signals:
    """Defers SIGTERM, SIGINT and the like from `listen` to `stop`, so that a run can end at a safe point.

    A signal kills the running programs unless `patient` is set; after `pass_on` it goes to a child instead. `lasting`: the
    handlers stay installed.
    """

    def __init__(self, *, lasting: bool = False) -> None:
        self.pending = 0  # the last signal not yet taken
        self.patient = False
        self._lasting = lasting
        self._child = 0
        self._handlers: dict[int, Any] = {}  # previous handlers by signal

    def listen(self) -> None:
        """Start to defer signals, in the main thread only; repeated calls have no effect."""
        for number in SIGNALS if not self._handlers else ():
            try:
                before = _signal.getsignal(number)
                if before not in (_signal.SIG_IGN, None):  # None: the handler cannot be restored
                    _signal.signal(number, self._on_signal)
                    self._handlers[number] = before
            except ValueError:
                return

    def take(self) -> int:
        """Return the last signal and clear it; 0: none."""
        pending, self.pending = self.pending, 0
        return pending

    def pass_on(self, child: int) -> None:
        """Send signals to this child from now on, also one already received; 0: to none."""
        self._child = child
        try:
            if child and self.pending:
                posix.kill(child, self.pending)
        except OSError:  # it has exited, or belongs to another user and KILL is missing: then it completes its work
            return

    def stop(self) -> None:
        """Restore the previous signal handlers, unless `lasting`."""
        if not self._lasting:
            for number, handler in self._handlers.items():
                _signal.signal(number, handler)
            self._handlers = {}

    def restore_and_resend(self) -> None:
        """Restore the previous handlers and resend the last deferred signal."""
        self.stop()
        if pending := self.take():
            posix.kill(posix.getpid(), pending)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.pending = number
        if self._child:
            self.pass_on(self._child)
        elif not self.patient:
            end_all()


def wait(pid: int, deadline: int) -> int | None:
    """Return a child's wait status; None if it still runs at the deadline (nanoseconds of the monotonic clock)."""
    try:
        with Closing(posix.pidfd_open(pid)) as descriptor:
            await_input(descriptor, deadline)
    except OSError:  # an older kernel, or no free descriptor
        pass
    while True:
        done, status = posix.waitpid(pid, posix.WNOHANG)
        if done:
            return status
        if time.monotonic_ns() >= deadline:
            return None
        time.sleep(_POLL)


def await_input(descriptor: int, deadline: int) -> bool:
    """Wait for something to read; False at the deadline (nanoseconds of the monotonic clock).

    Polls in slices: a signal just before poll(2) does not interrupt it.
    """
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while True:
        left = max(0, deadline - time.monotonic_ns()) / 10**6
        if poller.poll(min(left, _SLICE)):
            return True
        if not left:
            return False


def end(pid: int) -> int:
    """Kill a child; return its wait status, SIGKILL's if it is not reaped in time."""
    try:
        try:  # noqa: SIM105 - contextlib takes a millisecond of every start
            posix.kill(pid, _SIGKILL)
        except PermissionError:  # it runs as another user and KILL is missing: the leash kills it
            pass
        status = wait(pid, time.monotonic_ns() + int(_DYING * 10**9))
    except (ProcessLookupError, ChildProcessError):  # it was reaped elsewhere
        status = None
    return _SIGKILL if status is None else status


def tie(leash: int, pid: int) -> bool:
    """Let the kernel kill the process when the writing end of its `leash` is closed; False if it is closed already.

    `leash`: the pipe's reading end, held by the process, which may change its user.
    """
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    fcntl.fcntl(leash, fcntl.F_SETOWN, pid)
    fcntl.fcntl(leash, _F_SETSIG, _SIGKILL)
    fcntl.fcntl(leash, fcntl.F_SETFL, posix.O_ASYNC)
    poller = select.poll()
    poller.register(leash, 0)
    return not poller.poll(0)


def seal() -> None:
    """Refuse to start programs from now on: see netinit.kernel.open_pod."""
    global _sealed  # noqa: PLW0603 - of this process
    _sealed = True


def is_sealed() -> bool:
    """Whether this process starts no programs."""
    return _sealed


def _read(descriptor: int, undecodable: str) -> str:
    data = posix.pread(descriptor, posix.fstat(descriptor).st_size, 0)
    posix.close(descriptor)
    return data.decode("utf-8", undecodable)
