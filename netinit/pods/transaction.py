"""Run steps, each with its inverse: all complete, or everything is rolled back.

SIGTERM and SIGINT kill the current step's programs or are handled before the next step; the error names the signal.
"""

from __future__ import annotations

from netinit.base.errors import AS_BEFORE, SIGNALS, ApplyError, NetinitError, ended_by
from netinit.kernel.run import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self, TypeVar

    from netinit.backends import Lock

    Result = TypeVar("Result")


class Transaction:
    """The steps of one run, as a context manager; an exception undoes them in reverse order.

    `signals` are deferred from the first step on, and stay so after a success. Without them the previous handlers get late
    signals at the end.
    """

    def __init__(self, signals: Signals | None = None) -> None:
        self._inverses: list[tuple[str, Callable[[], None]]] = []
        self._locks: list[Lock] = []
        self._signals = signals or Signals()
        self._own_signals = signals is None

    def hold(self, lock: Lock) -> None:
        """Acquire a lock until the end of the run. Raises LockedError."""
        lock.__enter__()
        self._locks.append(lock)

    def do(self, what: str, step: Callable[[], Result], inverse: Callable[[Result], None]) -> Result:
        """Run a step that changes all or nothing; return its result, with which `inverse` undoes it.

        `what` names the step if undoing fails.
        """
        self._listen()
        done = step()
        self._inverses.append((what, lambda: inverse(done)))
        return done

    def do_in_parts(self, what: str, step: Callable[[], None], inverse: Callable[[], None]) -> None:
        """Run a step that may fail half-way; `inverse` undoes a partial change too."""
        self._listen()
        self._inverses.append((what, inverse))
        step()

    def _listen(self) -> None:
        self._signals.listen()
        if self._signals.heard:
            raise InterruptedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        left = ""
        self._signals.patient = True
        try:
            if error is not None:
                left = self._undo()
        finally:
            self._signals.patient = False
            for lock in reversed(self._locks):
                lock.__exit__(None, None, None)
        if error is not None:
            self._fail(error, left)
        elif self._own_signals:
            self._signals.hand_back()

    def _fail(self, error: BaseException, left: str) -> None:
        """Raise the error of a signal or an incomplete rollback; return if the original error is enough."""
        self._signals.stop()
        number = self._signals.take()
        if number and left:
            raise ApplyError(f"ended by {SIGNALS[number]}; {left}") from error
        if number:
            raise ended_by(number, AS_BEFORE) from error
        if left:
            raised = type(error) if isinstance(error, NetinitError) else ApplyError
            raise raised(f"{str(error) or type(error).__name__}; {left}") from error

    def _undo(self) -> str:
        """Roll back as far as possible; return what could not be restored and why."""
        left = []
        for what, inverse in reversed(self._inverses):
            try:
                inverse()
            except Exception as error:  # noqa: BLE001 - whatever it is, the steps before this one are still to be undone
                left.append(f"{what}: putting back what was before failed too: {str(error) or type(error).__name__}")
        return "; ".join(left)
