"""A run as a list of steps, each with its inverse: all of them are done, or everything is as it was before.

A signal that asks to end kills the programs of the step at hand, which then fails, or is heard before the next step; the
run goes back, whatever comes meanwhile. Then it finds whoever listened before.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the C part of signal, whose enumerations cost 3 ms
import posix

from netinit.base.errors import ApplyError, NetinitError
from netinit.kernel import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, Self, TypeVar

    from netinit.backends.base import Lock

    Result = TypeVar("Result")


SIGNALS = {_signal.SIGHUP: "SIGHUP", _signal.SIGINT: "SIGINT", _signal.SIGTERM: "SIGTERM"}


class Signals:
    """Signals that ask to end, heard and kept back between `listen` and `stop`.

    `stop` gives the last one to whoever listened before, unless `obey` has. `patient`: programs at work go on.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}  # by signal: who listened before
        self._heard = 0
        self.patient = False

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

    def obey(self) -> None:
        """KeyboardInterrupt or ApplyError, where a signal came."""
        heard, self._heard = self._heard, 0
        if heard == _signal.SIGINT:
            raise KeyboardInterrupt
        if heard:
            raise ApplyError(f"ended by {SIGNALS[heard]}; what was changed was put back")

    def stop(self) -> None:
        """Whoever listened before listens again, and hears what came meanwhile."""
        for number, handler in self._handlers.items():
            _signal.signal(number, handler)
        self._handlers = {}
        if self._heard:
            posix.kill(posix.getpid(), self._heard)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self._heard = number
        if not self.patient:
            run.end_all()


class Transaction:
    """The steps of one run, by `with`; whatever leaves the block as an exception undoes them, the last first."""

    def __init__(self) -> None:
        self._inverses: list[tuple[str, Callable[[], None]]] = []
        self._locks: list[Lock] = []
        self._signals = Signals()

    def hold(self, lock: Lock) -> None:
        """Takes a lock, which is let go at the end of the run, after the last step or its undoing. LockedError."""
        lock.__enter__()
        self._locks.append(lock)

    def do(self, what: str, step: Callable[[], Result], inverse: Callable[[Result], None]) -> Result:
        """Makes a step, which changes all or nothing, and returns what it returned, which `inverse` gets to undo it.

        `what` names the step's object where that fails as well.
        """
        self._signals.listen()
        self._signals.obey()
        done = step()
        self._inverses.append((what, lambda: inverse(done)))
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        left = ""
        self._signals.patient = True
        try:
            if error is not None:
                left = self._undo()
        finally:
            for lock in reversed(self._locks):
                lock.__exit__(None, None, None)
        if left:
            raised = type(error) if isinstance(error, NetinitError) else ApplyError
            self._signals.stop()
            raise raised(f"{error or type(error).__name__}; {left}") from error
        self._signals.stop()

    def _undo(self) -> str:
        """Goes back as far as possible; what could not be put back and why, empty when all is as before."""
        left = []
        for what, inverse in reversed(self._inverses):
            try:
                inverse()
            except (NetinitError, OSError) as error:  # the latter where descriptors or memory are short
                left.append(f"{what}: putting back what was before failed too: {error}")
        return "; ".join(left)
