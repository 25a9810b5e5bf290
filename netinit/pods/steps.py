"""The steps of a run from the current state to a plan: policy routes, rules, other backends' rules."""

from __future__ import annotations

import posix

from netinit.backends import Backend, Change, Comparison, State, routes
from netinit.backends.machine import Machine
from netinit.backends.routes import Made, RouteChange
from netinit.base.errors import ApplyError
from netinit.base.records import Record
from netinit.kernel.run import Signals
from netinit.options import LOOP_MARK, Options, Settled
from netinit.pods.backend_choice import Observed
from netinit.pods.transaction import Transaction
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

INTERIM_BIT = 1 << 20  # a bit of firewall marks


class Task(Record):
    """The plan to program, and where."""

    settled: Settled
    plan: Plan
    final: bool
    machine: Machine
    signals: Signals | None

    @property
    def options(self) -> Options:
        """The settled options."""
        return self.settled.options

    def on(self, backend: str) -> Task:
        """Return the task for a backend, on which --ipv6 auto depends."""
        settled = self.settled.on(backend)
        same = settled.options is self.options
        return self if same else self.replace(settled=settled, plan=plan_for(settled.options))

    def forced(self) -> Task:
        """Return the task with --force-apply."""
        return self.replace(settled=self.settled.replace(options=self.options.replace(force_apply=True)))


def run_steps(
    run: Transaction, chosen: Observed, others: tuple[Observed, ...], task: Task,
    *, comparison: Comparison, steps: tuple[RouteChange, ...],
) -> tuple[str, ...]:
    """Run the steps to the plan; return warnings. Acquires every lock before the first step."""
    backend, plan, leftovers = chosen.backend, task.plan, bool(others)
    differs = leftovers or comparison.differs() or task.options.force_apply
    for one in (chosen, *others) if differs else ():
        run.hold(one.backend.lock())
    warnings = route(run, [step for step in steps if step.add], task.machine)
    if others and plan.ip_rules:
        comparison = _hand_over(run, chosen, others, task).compare(plan)
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
    return routes.steps_towards(plan, task.settled.kernel_families, link=task.machine.link)


def _hand_over(run: Transaction, chosen: Observed, others: tuple[Observed, ...], task: Task) -> State:
    """Switch TPROXY from other backends: for a moment both capture, each with its own mark.

    With a shared mark the second backend would take packets for the proxy's and save the mark on their connections, whose
    replies would then be delivered to this pod.
    """
    interim = plan_for(task.options.replace(tproxy_mark=_interim_mark(task.options.tproxy_mark)))
    route(run, [step for step in routes_towards(interim, task) if step.add], task.machine)
    commit(run, chosen.backend, chosen.state.compare(interim).change())
    for other in others:
        commit(run, other.backend, other.state.removal(interim))
    return chosen.backend.observe()


def _interim_mark(mark: int) -> int:
    other = mark ^ INTERIM_BIT
    return other if other not in (0, LOOP_MARK) else other ^ INTERIM_BIT << 1


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
    return (f"{name} was dormant: the kernel asked none of its rules; it is active now",)


def commit(run: Transaction, backend: Backend, change: Change) -> None:
    """Commit a change of rules as a step of the transaction."""
    run.do_in_parts(backend.name, lambda: backend.commit(change), lambda: backend.put_back(change))


def route(run: Transaction, steps: Sequence[RouteChange], machine: Machine) -> tuple[str, ...]:
    """Run changes of routing as steps of the transaction; return warnings."""
    made = [_make(run, step, machine) for step in steps]
    return tuple([one.warning for one in made if one.warning])


def _make(run: Transaction, step: RouteChange, machine: Machine) -> Made:
    return run.do(step.describe(), lambda: routes.make_one(step, machine.link), lambda made: routes.undo(step, made, machine.link))
