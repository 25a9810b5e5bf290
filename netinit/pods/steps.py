"""The steps of a run from what is there to a plan, each with its inverse: policy routes, rules, and rules of another backend."""

from __future__ import annotations

from netinit.backends import Backend, Change, Comparison, State, routes
from netinit.backends.machine import Machine
from netinit.backends.routes import Made, RouteChange
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

INTERIM_BIT = 1 << 20  # of a firewall mark


class Task(Record):
    """What is to be brought about, and where."""

    settled: Settled
    plan: Plan
    final: bool
    machine: Machine
    signals: Signals | None

    @property
    def options(self) -> Options:
        """The options without open questions."""
        return self.settled.options

    def on(self, backend: str) -> Task:
        """The same by a backend, which has a say in what --ipv6 auto comes to."""
        settled = self.settled.on(backend)
        same = settled.options is self.options
        return self if same else self.replace(settled=settled, plan=plan_for(settled.options))

    def forced(self) -> Task:
        """The same with --force-apply."""
        return self.replace(settled=self.settled.replace(options=self.options.replace(force_apply=True)))


def bring_about(
    run: Transaction, chosen: Observed, others: tuple[Observed, ...], task: Task,
    *, comparison: Comparison, steps: tuple[RouteChange, ...],
) -> tuple[str, ...]:
    """The steps from what is there to the plan, and warnings. Acquires every lock before the first of them."""
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
        commit(run, other.backend, other.state.compare(plan).removal())
    if leftovers:  # the interim mark's, and what had to be kept for the other backends' rules
        steps = routes_towards(plan, task)
    route(run, [step for step in steps if not step.add], task.machine)
    return warnings


def routes_towards(plan: Plan, task: Task) -> tuple[RouteChange, ...]:
    """The steps from the policy rules, routes and addresses that are there to the plan's."""
    return routes.steps_towards(plan, task.settled.kernel_families, link=task.machine.link)


def _hand_over(run: Transaction, chosen: Observed, others: tuple[Observed, ...], task: Task) -> State:
    """Hands TPROXY over from other backends: for a moment both capture, each with a mark of its own.

    With one mark the second to see a packet would take it for one that the proxy sent and save the mark for its whole
    connection, whose answers would then be delivered to this pod.
    """
    interim = plan_for(task.options.replace(tproxy_mark=_interim_mark(task.options.tproxy_mark)))
    route(run, [step for step in routes_towards(interim, task) if step.add], task.machine)
    commit(run, chosen.backend, chosen.state.compare(interim).change())
    for other in others:
        commit(run, other.backend, other.state.compare(interim).removal())
    return chosen.backend.observe()


def _interim_mark(mark: int) -> int:
    """Another mark, and no mark that has a meaning already."""
    other = mark ^ INTERIM_BIT
    return other if other not in (0, LOOP_MARK) else other ^ INTERIM_BIT << 1


def commit(run: Transaction, backend: Backend, change: Change) -> None:
    """Makes a change of rules as a step of the run."""
    run.do_in_parts(backend.name, lambda: backend.commit(change), lambda: backend.put_back(change))


def route(run: Transaction, steps: Sequence[RouteChange], machine: Machine) -> tuple[str, ...]:
    """Makes changes of routing, each a step of the run; warnings."""
    made = [_make(run, step, machine) for step in steps]
    return tuple([one.warning for one in made if one.warning])


def _make(run: Transaction, step: RouteChange, machine: Machine) -> Made:
    return run.do(
        step.describe(), lambda: routes.make_one(step, machine.link), lambda made: routes.undo(step, made, machine.link)
    )
