"""The only place that starts programs.

posix_spawn with memory files for input and output: nothing to poll, no pipe that fills up, no import beyond builtins.
Programs are started by path with a list of arguments, never through a shell. One whose input is not known yet may be
started already (`prepare`): it loads its libraries meanwhile, two milliseconds of a pod's start.

Every program has a deadline, and a leash: the reading end of a pipe whose writing end this process alone holds. When this
process ends, however it ends, the kernel signals the program with SIGKILL (F_SETOWN and F_SETSIG of fcntl(2), which
posix_spawn leaves possible; PR_SET_PDEATHSIG would have to be set between fork and exec). So nothing survives a killed
run to hold its lock, but for a run killed within the microseconds between starting a program and tying it. What a
restore program had committed by then is whole tables, which the next run completes.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the C part of signal, whose enumerations cost 3 ms
import fcntl
import posix
import select
import time

from netinit.base.errors import SIGNALS, BackendUnavailableError
from netinit.base.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import Any

USUAL_FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin")
# Listing 100,000 rules takes a slow machine some seconds. What takes longer hangs: a stopped process, a broken program.
SECONDS = 30.0
INPUT_PER_SECOND = 100_000  # bytes of input that give a program another second
# All that a program may know of this process's environment. The rest chooses what the loader and libxtables load
# (LD_*, XTABLES_LIBDIR), or is the application's.
PASSED_ON = (b"PATH", b"XTABLES_LOCKFILE")
_F_SETSIG, _SIGKILL = 10, 9  # asm-generic/fcntl.h
_SLICE = 100.0  # milliseconds
_DYING = 2.0  # seconds that a killed program may take to be gone; in the kernel's own hands it may take for ever
_POLL = 0.005  # seconds, where the kernel has no pidfd_open(2) (before 5.3)

_at_work: set[int] = set()  # process ids of the programs that were started and not waited for

# Filled once and for good by a child that is about to join another user namespace: see netinit.kernel.memfd_exec.
_sealed: dict[tuple[int, int], int] = {}  # device and inode of a program -> descriptor of its sealed copy


class Running(Record):
    """A started program; `finish` waits for it, after `feed` where it was prepared."""

    program: str
    pid: int
    input: int  # the writing end of a prepared program's pipe; -1: it has all of its input
    output: int  # file descriptors of memory files
    errors: int
    leash: int  # closing it kills the program
    deadline: int  # nanoseconds of the monotonic clock
    seconds: float  # that it was given


if TYPE_CHECKING:
    Begun = Running | BackendUnavailableError  # a program, or why it could not be started


class Finished(Record):
    """How a program ended: its exit status (negative: the signal that ended it) and what it printed.

    Bytes of the output that are no UTF-8 are kept as lone surrogates.
    """

    program: str
    status: int
    output: str
    errors: str


def find(program: str) -> str:
    """The path of an installed program, or an empty string. PATH is searched first, then the usual folders."""
    path = posix.environ.get(b"PATH", b"").decode("utf-8", "surrogateescape")
    for folder in (*path.split(":"), *USUAL_FOLDERS):
        candidate = f"{folder}/{program}"
        if folder and posix.access(candidate, posix.X_OK):
            return candidate
    return ""


def start(
    path: str, arguments: Sequence[str] = (), *, stdin: str = "", environment: Mapping[str, str] | None = None, waits: int = 0
) -> Running:
    """Starts the program at `path`; `stdin` is what it reads, `environment` is added to what is PASSED_ON.

    `waits` are nanoseconds that it may spend on waiting for locks, beside its work.
    """
    source = -1
    try:
        source = posix.memfd_create("stdin", posix.MFD_CLOEXEC)
        data = memoryview(stdin.encode())
        while data:
            data = data[posix.write(source, data) :]
        posix.lseek(source, 0, 0)
        return _spawn(path, arguments, environment or {}, source).replace(**_time_for(stdin, waits))
    except OSError as error:
        raise _cannot_start(path, error) from None
    finally:
        if source >= 0:
            posix.close(source)


def prepare(path: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None, group: int = -1) -> Running:
    """Starts the program at `path`, which reads its input to the end before it acts, and waits for `feed` or `kill`.

    `group` is the process group that it is in; 0 is one of its own, and -1 this process's.
    """
    reading = writing = -1
    try:
        reading, writing = posix.pipe2(posix.O_CLOEXEC)
        return _spawn(path, arguments, environment or {}, reading, group).replace(input=writing)
    except (OSError, BackendUnavailableError) as error:
        if writing >= 0:
            posix.close(writing)
        raise _cannot_start(path, error) if isinstance(error, OSError) else error from None
    finally:
        if reading >= 0:
            posix.close(reading)


def become(path: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Go on as the program in this process, with its input and output, and what it may know of this environment. OSError."""
    posix.execve(path, [path, *arguments], _make_environment(environment))


def feed(running: Running, text: str) -> Running:
    """Gives a prepared program its input: all of it, or the program is killed."""
    fed = running.replace(input=-1, **_time_for(text))
    data = memoryview(text.encode())
    posix.set_blocking(running.input, False)
    poller = select.poll()
    poller.register(running.input, select.POLLOUT)
    try:
        while data and poller.poll(max(0.0, (fed.deadline - time.monotonic_ns()) / 10**6)):
            data = data[posix.write(running.input, data) :]
    except BrokenPipeError:  # it has ended already, and its errors say why
        data = data[:0]
    except BaseException:
        kill(running)
        raise
    if data:  # the beginning of an input must not pass for the whole
        posix.kill(running.pid, _SIGKILL)
    posix.close(running.input)
    return fed


def _time_for(text: str, waits: int = 0) -> dict[str, Any]:
    """How long a program may take that begins to read its input now."""
    seconds = SECONDS + waits / 10**9 + len(text) / INPUT_PER_SECOND
    return {"seconds": seconds, "deadline": time.monotonic_ns() + int(seconds * 10**9)}


def _cannot_start(path: str, error: OSError) -> BackendUnavailableError:
    return BackendUnavailableError(f"{path} cannot be started: {posix.strerror(error.errno or 0)}")


def _spawn(path: str, arguments: Sequence[str], environment: Mapping[str, str], source: int, group: int = -1) -> Running:
    """Starts the program with `source` as its input. OSError."""
    program = path.rpartition("/")[2]
    opened: list[int] = []  # standard output and errors, the leash's end for the program, and ours
    try:
        for name in ("stdout", "stderr"):
            opened.append(posix.memfd_create(name, posix.MFD_CLOEXEC))  # noqa: PERF401 - what is open must be known
        opened += posix.pipe2(posix.O_CLOEXEC)
        posix.set_inheritable(opened[2], True)  # noqa: FBT003 - its signature
        pid = posix.posix_spawn(
            _find_sealed(path) if _sealed else path,
            [program, *arguments],
            _make_environment(environment),
            file_actions=[(posix.POSIX_SPAWN_DUP2, one, number) for number, one in enumerate((source, *opened[:2]))],
            **({} if group < 0 else {"setpgroup": group}),  # type: ignore[arg-type] # which it takes for one of the others
        )
    except BaseException:
        for descriptor in opened:
            posix.close(descriptor)
        raise
    _at_work.add(pid)
    tie(opened[2], pid)
    posix.close(opened[2])
    return Running(program=program, pid=pid, input=-1, output=opened[0], errors=opened[1], leash=opened[3], deadline=0, seconds=0.0)


def _make_environment(more: Mapping[str, str]) -> dict[bytes, bytes]:
    environ = {name: posix.environ[name] for name in PASSED_ON if name in posix.environ}
    environ[b"LC_ALL"] = b"C"  # messages are read by this project
    for name, value in more.items():
        environ[name.encode()] = value.encode()
    return environ


def finish(running: Running) -> Finished:
    """Waits for the program to end; one that has not by its deadline is killed, and its errors say so."""
    status = wait(running.pid, running.deadline)
    late = status is None
    if status is None:
        status = end(running.pid)
    _at_work.discard(running.pid)
    posix.close(running.leash)
    output = _read(running.output, "surrogateescape")
    errors = _read(running.errors, "replace").strip()
    if late:
        errors = f"{errors} did not end within {running.seconds:.0f} s and was killed; is it stopped, or broken?".strip()
    return Finished(program=running.program, status=posix.waitstatus_to_exitcode(status), output=output, errors=errors)


def start_all(
    jobs: Sequence[tuple[str, Sequence[str], str]], *, environment: Mapping[str, str] | None = None, waits: int = 0
) -> list[Begun]:
    """Starts programs (path, arguments, input) at the same time; one that cannot be started has its error instead.

    So none is left alone at its work because another could not be started.
    """
    begun: list[Begun] = []
    for path, arguments, text in jobs:
        try:
            begun.append(start(path, arguments, stdin=text, environment=environment, waits=waits))
        except BackendUnavailableError as error:
            begun.append(error)
    return begun


def finish_all(begun: Sequence[Begun]) -> list[Finished | BackendUnavailableError]:
    """Waits for all of them."""
    return [finish(one) if isinstance(one, Running) else one for one in begun]


def kill(running: Running) -> None:
    """Ends a program whose answer is not needed any more."""
    end(running.pid)
    _at_work.discard(running.pid)
    for descriptor in (running.input, running.leash, running.output, running.errors):
        if descriptor >= 0:
            posix.close(descriptor)


def end_all() -> None:
    """Kills all programs at work; whoever waits for them hears of it. For the handler of a signal."""
    for pid in _at_work:
        posix.kill(pid, _SIGKILL)


class Signals:
    """Signals that ask to end, heard and kept back from `listen` to `stop`: the run ends where it is safe, or goes back.

    Each kills the programs at work, unless `patient`, or goes to the child that `pass_on` names. `lasting` ones are never let go.
    """

    def __init__(self, *, lasting: bool = False) -> None:
        self.heard = 0  # the last one that nobody has taken
        self.patient = False
        self._lasting = lasting
        self._child = 0
        self._handlers: dict[int, Any] = {}  # by signal: who listened before

    def listen(self) -> None:
        """From here on signals are kept back; again changes nothing. Only the main thread hears signals."""
        for number in SIGNALS if not self._handlers else ():
            try:
                before = _signal.getsignal(number)
                if before not in (_signal.SIG_IGN, None):  # None: who listens cannot be put back
                    _signal.signal(number, self._hear)
                    self._handlers[number] = before
            except ValueError:
                return

    def take(self) -> int:
        """The last signal, 0 for none; it is answered by whoever calls."""
        heard, self.heard = self.heard, 0
        return heard

    def pass_on(self, child: int) -> None:
        """From here on signals go to this child, also the one that was heard already; 0: to nobody."""
        self._child = child
        try:
            if child and self.heard:
                posix.kill(child, self.heard)
        except OSError:  # it has ended, or is another user's and this process has no KILL: then it does all of its work
            return

    def stop(self) -> None:
        """Whoever listened before listens again."""
        if not self._lasting:
            for number, handler in self._handlers.items():
                _signal.signal(number, handler)
            self._handlers = {}

    def hand_back(self) -> None:
        """The same, and who listened before hears what came meanwhile."""
        self.stop()
        if heard := self.take():
            posix.kill(posix.getpid(), heard)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self.heard = number
        if self._child:
            self.pass_on(self._child)
        elif not self.patient:
            end_all()


def wait(pid: int, deadline: int) -> int | None:
    """The wait status of a child, None when it still runs at the deadline (nanoseconds of the monotonic clock)."""
    try:
        descriptor = posix.pidfd_open(pid)
    except OSError:  # an older kernel, or no descriptor is left
        descriptor = -1
    try:
        if descriptor >= 0:
            await_input(descriptor, deadline)
        while True:
            done, status = posix.waitpid(pid, posix.WNOHANG)
            if done:
                return status
            if descriptor >= 0 or time.monotonic_ns() >= deadline:
                return None
            time.sleep(_POLL)
    finally:
        if descriptor >= 0:
            posix.close(descriptor)


def await_input(descriptor: int, deadline: int) -> bool:
    """Whether there is something to read, at the latest at the deadline (nanoseconds of the monotonic clock).

    A signal that comes in the instant before poll(2) interrupts nothing, and is heard when that returns: hence in slices.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while True:
        left = max(0, deadline - time.monotonic_ns()) / 10**6
        if poller.poll(min(left, _SLICE)):
            return True
        if not left:
            return False


def end(pid: int) -> int:
    """Kills a child; its wait status, or SIGKILL's where the kernel does not let it go."""
    try:
        try:  # noqa: SIM105 - contextlib takes a millisecond of every start
            posix.kill(pid, _SIGKILL)
        except PermissionError:  # it runs as another user, and this process has no KILL: its leash ends it
            pass
        status = wait(pid, time.monotonic_ns() + int(_DYING * 10**9))
    except (ProcessLookupError, ChildProcessError):  # it was reaped elsewhere
        status = None
    return _SIGKILL if status is None else status


def tie(leash: int, pid: int) -> bool:
    """From now on the kernel kills the process when the last writing end of the pipe is closed, whatever ids it takes on.

    `leash` is the pipe's reading end, which the process holds. False where the writing end was closed before that.
    """
    fcntl.fcntl(leash, fcntl.F_SETOWN, pid)
    fcntl.fcntl(leash, _F_SETSIG, _SIGKILL)
    fcntl.fcntl(leash, fcntl.F_SETFL, posix.O_ASYNC)
    poller = select.poll()
    poller.register(leash, 0)
    return not poller.poll(0)


def exec_from_memfd(images: Mapping[tuple[int, int], int]) -> None:
    """From now on these descriptors are executed in place of the files (device and inode), and no other program is."""
    _sealed.update(images)


def is_sealed() -> bool:
    """Whether programs are sealed: any other program that this process starts can be traced by other processes."""
    return bool(_sealed)


def _find_sealed(path: str) -> str:
    status = posix.stat(path)
    image = _sealed.get((status.st_dev, status.st_ino))
    if image is None:
        raise BackendUnavailableError(f"{path} cannot be started in the user namespace of a pod")
    return f"/proc/self/fd/{image}"


def _read(descriptor: int, undecodable: str) -> str:
    size = posix.fstat(descriptor).st_size
    parts = []
    offset = 0
    while offset < size:
        part = posix.pread(descriptor, size - offset, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
    posix.close(descriptor)
    return b"".join(parts).decode("utf-8", undecodable)
