"""The steps of a run from the current state to a plan, each with its inverse: all complete, or everything is rolled back.

SIGTERM and SIGINT kill the current step's programs or are handled before the next step; the error names the signal.
"""

from __future__ import annotations

from netinit.backends import Backend, Change, Comparison, State, routes
from netinit.backends.machine import Machine
from netinit.backends.routes import RouteChange, RouteResult
from netinit.base.errors import AS_BEFORE, SIGNALS, ApplyError, NetinitError, ended_by
from netinit.base.records import Record
from netinit.base.system import posix
from netinit.kernel.netlink import PolicyRule
from netinit.kernel.run import Signals
from netinit.options import LAYOUTS, LOOP_MARK, SettledOptions
from netinit.pods.backend_choice import Observed
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import MANGLE, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self, TypeVar

    from netinit.backends import Lock
    from netinit.kernel import Closing

    Result = TypeVar("Result")


class Transaction:
    """The steps of one run, as a context manager; an exception undoes them in reverse order.

    `signals` are deferred from the first step on, and stay so after a success. Without them the previous handlers get late
    signals at the end.
    """

    def __init__(self, signals: Signals | None = None) -> None:
        self._inverses: list[tuple[str, Callable[[], None]]] = []
        self._locks: list[Lock | Closing] = []
        self._signals = signals or Signals()
        self._own_signals = signals is None

    def hold(self, lock: Lock | Closing) -> None:
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
        if self._signals.pending:
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
            self._signals.restore_and_resend()

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
                left.append(f"{what}: the rollback failed too: {str(error) or type(error).__name__}")
        return "; ".join(left)


class Task(Record):
    """The plan to program, and where. `awaits_devices`: see `netinit.pods.apply.apply`."""

    options: SettledOptions
    plan: Plan
    final: bool
    machine: Machine
    signals: Signals | None
    awaits_devices: bool = False

    def for_backend(self, backend: str) -> Task:
        """Return the task for a backend, on which --ipv6 auto depends."""
        options = self.options.for_backend(backend)
        return self if options is self.options else self.replace(options=options, plan=plan_for(options))


def run_steps(
    run: Transaction, chosen: Observed, others: tuple[Observed, ...], task: Task,
    *, comparison: Comparison, differs: bool, steps: tuple[RouteChange, ...],
) -> tuple[str, ...]:
    """Run the steps to the plan; return warnings. Acquires every lock before the first step.

    `differs`: the rules have to change, not only policy rules, routes and addresses.
    """
    backend, plan, leftovers = chosen.backend, task.plan, bool(others)
    for one in (chosen, *others) if differs else ():
        run.hold(one.backend.lock())
    warnings = route(run, [step for step in steps if step.add], task.machine)
    interim = find_interim(task, steps) if others else None
    if interim is not None:
        comparison = _hand_over(run, chosen, others, task, interim).compare(plan)
        others = ()
    if differs:
        commit(run, backend, comparison.change(force=task.options.force_apply))
    for other in others:
        commit(run, other.backend, other.state.removal(plan))
    if leftovers:  # routes of the interim mark, and those kept for the other backends' rules
        steps = routes_towards(plan, task)
    route(run, [step for step in steps if not step.add], task.machine)
    return warnings


def routes_towards(plan: Plan, task: Task) -> tuple[RouteChange, ...]:
    """Return the steps to the plan's policy rules, routes and addresses."""
    return routes.steps_towards(plan, task.options.kernel_families, link=task.machine.link)


def _hand_over(run: Transaction, chosen: Observed, others: tuple[Observed, ...], task: Task, interim: Plan) -> State:
    """Switch from other backends by way of an interim plan, which captures beside their rules."""
    route(run, [step for step in routes_towards(interim, task) if step.add], task.machine)
    commit(run, chosen.backend, chosen.state.compare(interim).change())
    for other in others:
        commit(run, other.backend, other.state.removal(interim))
    return chosen.backend.observe()


def find_interim(task: Task, steps: tuple[RouteChange, ...]) -> Plan | None:
    """Return the plan to program while rules of other backends are in force too; None if this can be the plan itself.

    TPROXY gets another mark: with a shared one, the second backend would take packets for the proxy's and save the mark on
    their connections, whose replies would then be delivered to this pod. Rules for a proxy on the node would take what TPROXY
    marks with Istio's default for this proxy's packets; their mangle table waits until the other rules are gone.
    """
    plan = task.plan
    left = {step.target.mark for step in steps if not step.add and isinstance(step.target, PolicyRule)}
    if not plan.ip_rules:
        return None
    if task.options.traits.interim_bits:
        from netinit.rules.promises import leave_out, read_record  # rarely needed

        whole = plan_for(task.options.replace(tproxy_mark=interim_mark(task.options, left)))
        chains = {family: [chain for _, chain, rule in plan.walk() if family in rule.families] for family in plan.families}
        return leave_out(whole, read_record(chains))
    return plan.replace(tables=tuple([table for table in plan.tables if table.name != MANGLE])) if left else None


def interim_mark(options: SettledOptions, left: set[int]) -> int:
    """Return a TPROXY mark that neither the options' rules nor those of others know; `left`: marks of policy rules in force."""
    known = [(mark, line.mask) for line in LAYOUTS.values() if line.mask for mark in (line.mark, line.proxy_mark)]
    marks = [options.tproxy_mark ^ bits for bits in options.traits.interim_bits]
    return next(mark for mark in marks if mark not in (0, LOOP_MARK, *left) and all(mark & mask != one for one, mask in known))


def activate(run: Transaction, machine: Machine, family: int, table: str) -> tuple[str, ...]:
    """Clear the dormant flag of a table, whose committed rules have no effect; return a warning. Raises ApplyError."""
    from netinit.base.snapshot import FAMILY_NAMES  # rarely needed

    name = f"nft table {FAMILY_NAMES.get(family, str(family))} {table}"

    def change(dormant: bool) -> None:
        try:
            machine.set_dormant(family, table, dormant=dormant)
        except OSError as error:
            raise ApplyError(f"{name} is dormant, and cannot be activated: {posix.strerror(error.errno or 0)}") from None

    run.do(name, lambda: change(False), lambda _: change(True))  # noqa: FBT003
    return (f"{name} was dormant: the kernel evaluated none of its rules; it is active now",)


def commit(run: Transaction, backend: Backend, change: Change, *, last: bool = False) -> None:
    """Commit a change of rules as a step of the transaction; `last`: no step follows, so that only a part of it is ever undone."""
    kept = change if last else backend.keep(change)
    run.do_in_parts(backend.name, lambda: backend.commit(kept), lambda: backend.roll_back(kept))


def route(run: Transaction, steps: Sequence[RouteChange], machine: Machine) -> tuple[str, ...]:
    """Run changes of routing as steps of the transaction; return warnings."""
    made = [_make(run, step, machine) for step in steps]
    return tuple([one.warning for one in made if one.warning])


def _make(run: Transaction, step: RouteChange, machine: Machine) -> RouteResult:
    return run.do(step.describe(), lambda: routes.make_one(step, machine.link), lambda made: routes.undo(step, made, machine.link))
