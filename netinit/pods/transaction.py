"""A run as a list of steps, each with its inverse: all of them are done, or everything is as it was before.

A signal that asks to end kills the programs of the step at hand, which then fails, or is heard before the next step; the
run goes back, whatever comes meanwhile, and says what ended it.
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
    """The steps of one run, by `with`; whatever leaves the block as an exception undoes them, the last first.

    `signals` are heard from the first step on. Those of a caller are kept back until the caller lets them go, where the
    run succeeds; without, whoever listened before hears at the end what came too late.
    """

    def __init__(self, signals: Signals | None = None) -> None:
        self._inverses: list[tuple[str, Callable[[], None]]] = []
        self._locks: list[Lock] = []
        self._signals = signals or Signals()
        self._own_signals = signals is None

    def hold(self, lock: Lock) -> None:
        """Takes a lock, which is let go at the end of the run, after the last step or its undoing. LockedError."""
        lock.__enter__()
        self._locks.append(lock)

    def do(self, what: str, step: Callable[[], Result], inverse: Callable[[Result], None]) -> Result:
        """Makes a step, which changes all or nothing, and returns what it returned, which `inverse` gets to undo it.

        `what` names the step's object where that fails as well.
        """
        self._listen()
        done = step()
        self._inverses.append((what, lambda: inverse(done)))
        return done

    def do_in_parts(self, what: str, step: Callable[[], None], inverse: Callable[[], None]) -> None:
        """Makes a step that may fail with a part of it made: `inverse` undoes what there is of it, then too."""
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
        """Raises what a signal makes of the error, or what could not be put back; returns where the error says it all."""
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
        """Goes back as far as possible; what could not be put back and why, empty when all is as before."""
        left = []
        for what, inverse in reversed(self._inverses):
            try:
                inverse()
            except Exception as error:  # noqa: BLE001 - whatever it is, the steps before this one are still to be undone
                left.append(f"{what}: putting back what was before failed too: {str(error) or type(error).__name__}")
        return "; ".join(left)
