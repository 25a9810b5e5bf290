"""Run work in a forked child that answers once, through a pipe, before a deadline.

When this process exits, the kernel kills the child (`tie` of netinit.kernel.run), even under another user. A fork is ready
in 2 ms, a new interpreter in 30. Answers are plain data (netinit.kernel.answers): a pod may take over a child inside it.
"""

from __future__ import annotations

import gc
import sys
import time

from netinit.base import errors
from netinit.base.errors import ChildLostError, NamespaceError, NetinitError
from netinit.base.logs import flush
from netinit.base.system import LINUX, NEEDS_LINUX, posix
from netinit.kernel import answers, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Self, TypeVar

    Result = TypeVar("Result")

MAX_BYTES = 1 << 28  # of an answer, as of a netlink dump: rules are what answers hold most of
RLIMIT_AS, RLIMIT_FSIZE = 9, 1  # bits/resource.h
LIMIT_SIZE = 16  # struct rlimit: soft and hard limit, each of 64 bits
_STDERR = 2
_EXITING = 5 * 10**9  # nanoseconds from the pipe's end to that of the process, which needs another turn of a busy machine's processors
INTERRUPTED = 130  # exit status after SIGINT, as in shells
_HEADER = 8  # bytes before an answer that hold its length
_VALUE, _ERROR = b"=", b"!"  # before an answer; None is empty
_TOO_MUCH = "it exceeds the memory limit for reading a pod: remove what is not needed"


class ChildError(Exception):
    """A bug of netinit in a child: the last line of its traceback, and in `trace` all of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text.partition("\n")[0])
        self.trace = text.partition("\n")[2]


class Answer:
    """The child's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def give(self, value: object) -> None:
        """Send `value` as the answer now, instead of the action's result."""
        self._send(b"" if value is None else _VALUE + answers.encode(value))

    def _send(self, data: bytes) -> None:
        if self.descriptor < 0:
            return
        view = memoryview(len(data).to_bytes(_HEADER, "little") + data)
        while view:
            view = view[posix.write(self.descriptor, view) :]
        posix.close(self.descriptor)
        self.descriptor = -1


class Child:
    """The parent's end; kills the child at the end of a `with` block. `fileno` is readable once there is an answer."""

    def __init__(self, pid: int, answer: int, leash: int, seconds: float, what: str) -> None:
        self.pid = pid
        self._answer = answer
        self._leash = leash
        self._what = what
        self._received = bytearray()
        self._seconds = seconds
        self._deadline = time.monotonic_ns() + int(seconds * 10**9)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def fileno(self) -> int:
        """Return the pipe's descriptor, for poll(2)."""
        return self._answer

    def receive(self) -> Any:
        """Return the answer, or raise the error that the child reported.

        Raises ChildLostError if it timed out, was killed or exited without an answer; ChildError for a bug of netinit.
        """
        while len(self._received) < self._expected():
            if not run.await_input(self._answer, self._deadline):
                raise ChildLostError(
                    f"{self._what}: it did not finish within {self._seconds:.0f} s and was stopped; is a process of it stopped?",
                    late=True,
                )
            if not self.read():
                raise self._explain_end()
        return _open(bytes(self._received[_HEADER:]))

    def read(self) -> bool:
        """Read what has arrived of the answer, for event loops; return False at its end."""
        part = posix.read(self._answer, 1 << 20)
        self._received += part
        return bool(part)

    def _expected(self) -> int:
        size = int.from_bytes(self._received[:_HEADER], "little") if len(self._received) >= _HEADER else 0
        if size > MAX_BYTES:
            raise ChildLostError(f"{self._what}: its process answered more than {MAX_BYTES >> 20} MB")
        return _HEADER + size

    def poll(self) -> int | None:
        """Return the exit code, the negative number of the signal that ended it, or None while it runs."""
        return self._reap(time.monotonic_ns()) if self.pid else 0

    def _reap(self, deadline: int) -> int | None:
        status = run.wait(self.pid, deadline)
        if status is None:
            return None
        self.pid = 0
        self._close()
        return posix.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """Kill the child and close the pipe; repeated calls have no effect."""
        if self.pid:
            pid, self.pid = self.pid, 0
            self._close()  # the leash first: it also kills a child that has changed its user id
            run.end(pid)

    def _explain_end(self) -> ChildLostError:
        code = self._reap(time.monotonic_ns() + _EXITING)
        if code is None:  # it closed the pipe but still runs
            return ChildLostError(f"{self._what}: its process gave no answer")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        ended_by = 2 if code == INTERRUPTED else max(0, -code)
        return ChildLostError(f"{self._what}: the process that did it {how}", how=how, signal=ended_by)

    def _close(self) -> None:
        posix.close(self._answer)
        posix.close(self._leash)


def start(
    action: Callable[[Answer], object], *, seconds: float, what: str, kept: tuple[int, ...] | None = (), keeps_groups: bool = False
) -> Child:
    """Fork a child that runs `action`; its result is the answer, unless it has sent one itself.

    The child keeps stdin, stdout, stderr and the descriptors in `kept`, and no supplementary groups; with None it keeps all
    descriptors and groups, with `keeps_groups` the groups (for children that enter no pod). `what` starts the message if it
    dies or does not answer in `seconds`.
    """
    answer, sender = posix.pipe2(posix.O_CLOEXEC)
    leash, leash_end = posix.pipe2(posix.O_CLOEXEC)
    flush()
    try:
        pid = _fork()
    except OSError:
        for descriptor in (answer, sender, leash, leash_end):
            posix.close(descriptor)
        raise
    if not pid:
        posix.close(answer)
        posix.close(leash_end)
        _serve(action if keeps_groups or kept is None else _without_groups(action), Answer(sender), leash, kept)
    posix.close(sender)
    posix.close(leash)
    return Child(pid, answer, leash_end, seconds, what)


def ask(action: Callable[[], Result], *, seconds: float, what: str, kept: tuple[int, ...] | None = ()) -> Result:
    """Run `action` in a child; return its result or raise its error, see `start` and `Child.receive`."""
    with start(lambda _: action(), seconds=seconds, what=what, kept=kept) as child:
        return child.receive()  # type: ignore[no-any-return]


def ask_with_signals(
    action: Callable[[run.Signals], Result], signals: run.Signals, *, seconds: float, what: str, kept: tuple[int, ...]
) -> Result:
    """Run `action` in a child that receives this process's signals and ends only where that is safe; return its result.

    `action` gets the child's `Signals` and rolls back when one arrives. Later signals are left in `signals`. Raises
    ApplyError or KeyboardInterrupt if a signal ended it.
    """
    signals.listen()  # before the fork: a signal now would end this process and with it the child

    def work() -> Result:
        signals.restore_and_resend()
        own = run.Signals(lasting=True)
        own.listen()
        return action(own)

    try:
        with start(lambda _: work(), seconds=seconds, what=what, kept=kept) as child:
            signals.pass_on(child.pid)
            try:
                found: Result = child.receive()
            except ChildLostError as error:
                if error.signal and error.signal == signals.pending:  # it died before it handled signals and changed anything
                    raise errors.ended_by(signals.pending, errors.AS_BEFORE) from None
                raise
            finally:
                signals.pass_on(0)
    except BaseException:
        signals.stop()
        raise
    return found


def limit(memory: int, output: int) -> None:
    """Limit the bytes of address space, and of each file written, of this process and its programs."""
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    from netinit.kernel import libc

    for kind, most in ((RLIMIT_AS, memory), (RLIMIT_FSIZE, output)):
        held = libc.buffer(LIMIT_SIZE)
        libc.call("getrlimit", kind, held)
        _set_limit(kind, min(most, int.from_bytes(held.raw[LIMIT_SIZE // 2 :], sys.byteorder)))  # no limit is the highest number


def _set_limit(kind: int, allowed: int) -> None:
    """Set both limits, as setrlimit(2): the executable has no module `resource`."""
    from netinit.kernel import libc

    libc.call("setrlimit", kind, libc.buffer(LIMIT_SIZE, 2 * allowed.to_bytes(LIMIT_SIZE // 2, sys.byteorder)))


def _fork() -> int:
    import warnings

    with warnings.catch_warnings():  # since 3.12, about other threads, whose locks this child does not use
        warnings.simplefilter("ignore", DeprecationWarning)
        return posix.fork()


def _serve(action: Callable[[Answer], object], answer: Answer, leash: int, kept: tuple[int, ...] | None) -> NoReturn:
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    code = 1
    try:
        gc.freeze()  # never finalise the parent's objects here: their descriptors may have been reused
        if run.tie(leash, posix.getpid()):
            _work(action, answer, None if kept is None else (answer.descriptor, leash, *kept))
            code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        posix._exit(code)  # noqa: SLF001 - the documented way out of a forked child


def _work(action: Callable[[Answer], object], answer: Answer, kept: tuple[int, ...] | None) -> None:
    try:
        if kept is not None:
            _close_others(kept)
        found = action(answer)
        flush()
        answer.give(found)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the parent reports it
        flush()
        answer._send(_ERROR + answers.encode(_describe(error)))  # noqa: SLF001 - its own module's


def _describe(error: BaseException) -> tuple[str, tuple[object, ...]]:
    """Return the name and the arguments of an error, of which `_make_error` makes it again."""
    if isinstance(error, MemoryError):
        error = NetinitError(_TOO_MUCH)
    if isinstance(error, NetinitError):
        problems = getattr(error, "problems", None)
        return type(error).__name__, problems if isinstance(problems, tuple) else (str(error),)
    if isinstance(error, OSError):
        return "OSError", (error.errno or 0, error.strerror or str(error), str(error.filename or ""))
    import traceback

    words = "".join(traceback.format_exception(error))
    return "ChildError", (f"{type(error).__name__}: {str(error).partition(chr(10))[0]}\n{words}",)


def _make_error(found: object) -> Exception:
    """Return the error of `_describe`: one of netinit.base.errors, whatever a child says that a pod took over."""
    match found:
        case ("ChildError", (str(text),)):
            return ChildError(text)
        case ("OSError", (int(number), str(text), str(name))):
            return OSError(number, text, name or None)
        case (str(name), tuple(words)):
            named = getattr(errors, name, None)
            kind = named if isinstance(named, type) and issubclass(named, NetinitError) else NetinitError
            try:
                return kind(*map(str, words))
            except TypeError:
                return NetinitError(*map(str, words))
    return NetinitError("a child's answer cannot be read: it is another one")


def _without_groups(action: Callable[[Answer], object]) -> Callable[[Answer], object]:
    """Return an action that drops supplementary groups first, which an attacker in the child could use.

    The primary group stays: it gives no further access, and a container without SETGID cannot drop it.
    """

    def act(answer: Answer) -> object:
        try:
            posix.setgroups([])
        except OSError as error:
            if set(posix.getgroups()) - {posix.getegid()}:
                raise NamespaceError(
                    f"supplementary groups cannot be dropped ({error.strerror}), as a pod requires: run as root with SETGID"
                ) from None
        return action(answer)

    return act


def _close_others(kept: tuple[int, ...]) -> None:
    for name in posix.listdir("/proc/self/fd"):
        if int(name) > _STDERR and int(name) not in kept:
            try:
                posix.close(int(name))
            except OSError:  # the descriptor of the listing itself
                continue


def _open(data: bytes) -> Any:
    found = answers.decode(data[1:]) if data else None
    if data.startswith(_ERROR):
        raise _make_error(found)
    return found
