"""Make a network namespace match the options, changing only what differs, or remove everything of ours.

Theory of operation
-------------------

One run is one pass through these states; each is a value, and only the fourth one changes the kernel:

    Options ──settle──▶ SettledOptions ──plan──▶ Plan          what shall be there (`options`, `rules.layouts`)
                                                  │
    the kernel ──Survey──▶ Observed ──compare──▶ Comparison    what is there, and what differs
                                                  │
               as planned ◀───────────────────────┼──────────▶ refused: rules of another run, without --reconcile
                   │                              │ differs
                   │                              ▼
                   │                         Transaction       locks, then one step after the other, each with its inverse
                   │                              │
                   │             a step fails: ◀──┴──▶ all done
                   │             undone in reverse     │
                   ▼                                   ▼
                 check: are the rules in force, and does what the plan captures reach them?
                   │                                   │
                 Outcome                            NotInForceError, ApplyError

- `Survey` (`backend_choice`) reads the tables of each backend that may hold rules of ours. `Observed` is a backend with what it
  read; the candidates are tried in order until one works here.
- `Comparison` (`backends`) pairs the backend's state with the plan. Without a difference nothing is written, so that a second
  run is cheap and safe.
- `Transaction` (`transaction`) defers signals from its first step on. Whatever fails, the inverses of the steps that were done
  run in reverse order; if one of them fails too, the error says what is left.
- The check proves in most pods within 1 ms that nothing else is there (`kernel.plain_namespace`); otherwise a snapshot is
  analysed as in `verify`. If it fails the rules stay: they capture what they can, and the error keeps the pod from starting.

Two rules hold in this file. Every value is checked before the first change. And what cannot be read is an error, never "there
are no rules".
"""

from __future__ import annotations

from netinit.backends import BACKENDS, Comparison, Lock, routes
from netinit.backends.machine import HERE, Machine
from netinit.base.errors import (
    NOT_PROVED,
    ApplyError,
    BackendUnavailableError,
    KernelFeatureError,
    NetinitError,
    OptionError,
    TooManyPartsError,
)
from netinit.base.records import Record
from netinit.kernel import Closing
from netinit.kernel.run import Signals
from netinit.options import LEGACY_TABLES, Options, SettledOptions
from netinit.pods.backend_choice import Observed, Survey, describe_leftover
from netinit.pods.transaction import Task, Transaction, activate, commit, route, routes_towards, run_steps
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import DEVICES, EMPTY_PLAN, INACTIVE, MOVED, OPEN_CHAINS, TABLES, Difference, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from netinit.live.foreign_proof import Deviations

    Result = TypeVar("Result")

NFT_DIALECT = "nft"
MAX_NAMED = 10  # differences per message
STAY = "the rules are programmed and stay"


class NotInForceError(ApplyError):
    """The rules are in the kernel but not in force."""


class Outcome(Record):
    """The result of a run: the backend, whether anything changed, and the rules by family.

    `committed`: the rules are what the kernel accepted as a whole; they were not listed again.
    """

    backend: str
    changed: bool
    rules: dict[str, str]
    committed: bool = False
    warnings: tuple[str, ...] = ()
    plan: Plan = EMPTY_PLAN
    options: SettledOptions | None = None
    notes: tuple[str, ...] = ()
    unended: str = ""  # connections that --reset-existing could not end


def apply(
    options: Options, *, final: bool = True, locked: bool = False, machine: Machine = HERE, signals: Signals | None = None,
    awaits_devices: bool = False,
) -> Outcome:  # fmt: skip
    """Make the rules of this process's network namespace match the options; correct parts stay untouched.

    `final`: list the rules afterwards. `locked`: the caller holds the namespace's lock. `signals` stay deferred after a
    success. `awaits_devices`: a loopback device that is down is a warning, because the runtime may still set up devices
    (containerd starts its network plugins and loopback at once). Otherwise it is an error: no connection inside of the pod,
    so none that is redirected to the proxy, would work. Raises ApplyError if other rules of Istio or netinit exist without
    --reconcile, the kernel refuses a rule or no backend works; LockedError; NamespaceError in the machine's own namespace
    without --host-network; OptionError if `pid` or `netns` names another one.
    """
    with _lock_namespace(options, machine, locked=locked):
        if loopback := machine.renamed_loopback():
            from netinit.pods.refusals import refuse_loopback

            raise refuse_loopback(loopback)
        settled = machine.settle(options)
        survey = Survey(settled, thorough=False, machine=machine)
        task = Task(
            options=settled, plan=plan_for(settled), final=final, machine=machine, signals=signals, awaits_devices=awaits_devices
        )
        outcome = _try_backends(task, survey)
        return _look_for_older(outcome, options) if machine is HERE else outcome


def _look_for_older(outcome: Outcome, options: Options) -> Outcome:
    if not (outcome.changed or options.reset_existing) or outcome.options is None:
        return outcome
    from netinit.pods import reset_connections

    found = reset_connections.look(outcome.options, outcome.plan)
    if found is None:
        return outcome
    return outcome.replace(warnings=outcome.warnings + found.warnings, notes=found.notes, unended=found.unended)


def remove(options: Options, *, locked: bool = False, machine: Machine = HERE, signals: Signals | None = None) -> Outcome:
    """Delete every rule, route and address of ours or Istio's, whatever options and backend made them.

    Arguments and errors as for `apply`.
    """
    with _lock_namespace(options, machine, locked=locked):
        plan, holders, steps = find_owned_state(options, machine)
        removals = [(holder.backend, holder.state.removal(plan)) for holder in holders]
        with Transaction(signals) as run:
            for backend, _ in removals:
                run.hold(backend.lock())
            for backend, change in removals:
                commit(run, backend, change, last=len(removals) == 1 and not steps)
            route(run, steps, machine)  # after the rules: otherwise packets they mark would be misrouted
        return Outcome(backend=", ".join([holder.backend.name for holder in holders]), changed=bool(steps or holders), rules={})


def find_owned_state(options: Options, machine: Machine) -> tuple[Plan, tuple[Observed, ...], tuple[routes.RouteChange, ...]]:
    """Return the options' plan, the backends that hold rules of ours, and the steps that delete our routes and addresses.

    Raises BackendUnavailableError if tables cannot be read, which may hold rules of ours.
    """
    settled = machine.settle(options)
    plan = plan_for(settled)
    survey = Survey(settled, machine=machine)
    if survey.failures:
        from netinit.pods.refusals import no_backend_works

        raise no_backend_works(survey.failures, machine)
    steps = routes.steps_towards(EMPTY_PLAN, settled.kernel_families, hints=plan, link=machine.link)
    return plan, survey.holders(), steps


def _lock_namespace(options: Options, machine: Machine, *, locked: bool) -> Lock | Closing:
    """Return this namespace's lock after checking that it may be changed; a no-op if the caller holds it."""
    if not locked and (options.pid or options.netns):
        raise OptionError("pid, netns: this changes the network namespace of its own process: enter the pod's namespace before")
    if not options.host_network:
        machine.refuse_own_namespace()
    return Lock() if locked else machine.lock(options.lock_timeout)


def _try_backends(task: Task, survey: Survey) -> Outcome:
    failures = {}
    for chosen in survey.candidates():
        try:
            own = task.for_backend(chosen.backend.name)
            if chosen.state.ours:
                own = _expect_recorded(own, chosen)
            return _complete(_apply_with(chosen, survey.others(chosen.backend), own), own)
        except BackendUnavailableError as error:
            if task.signals and task.signals.pending:  # a signal killed the program; the backend may work
                raise
            failures[chosen.backend.name] = error
    if any(isinstance(one, KernelFeatureError) for one in failures.values()):
        from netinit.pods.giving_way import apply_without  # rarely needed

        if done := apply_without(task, survey, failures, _apply_with):
            return _complete(done[1], done[0])
    from netinit.pods.refusals import no_backend_works

    raise no_backend_works({**survey.failures, **failures}, task.machine)


def _complete(outcome: Outcome, task: Task) -> Outcome:
    warnings = task.options.warnings + task.plan.warnings + outcome.warnings
    return outcome.replace(warnings=warnings, plan=task.plan, options=task.options)


def _expect_recorded(task: Task, chosen: Observed) -> Task:
    """Return the task for the rules that are here, if these record that a kernel could not keep every promise."""
    if not any(name in OPEN_CHAINS for names in chosen.state.list_chains().values() for name in names):
        return task
    from netinit.pods.giving_way import expect_recorded  # rarely needed

    return expect_recorded(task, chosen)


def _apply_with(chosen: Observed, others: tuple[Observed, ...], task: Task) -> Outcome:
    try:
        return _make_as_planned(chosen, others, task)
    except NotInForceError:
        if not task.options.reconcile or task.options.force_apply:
            raise
    forced = task.replace(options=task.options.replace(force_apply=True))
    return _make_as_planned(chosen.replace(state=chosen.backend.observe()), (), forced)


def _make_as_planned(chosen: Observed, others: tuple[Observed, ...], task: Task) -> Outcome:
    backend, state, plan = chosen.backend, chosen.state, task.plan
    leftovers = tuple([describe_leftover(other) for other in others])
    comparison = state.compare(plan)
    differs = bool(leftovers) or comparison.differs()
    if differs and state.ours and not (leftovers or task.options.reconcile):
        differs = not _only_order_differs(backend.name, comparison, task)
    steps = routes_towards(plan, task)
    dormant = [one for one in task.machine.dormant_tables() if one[1].removeprefix(plan.nft_prefix) in TABLES]
    if not differs and not steps and not dormant and not task.options.force_apply:
        rules = (comparison.committed() or state.describe()) if task.final else {}
        warnings = state.notices + _check(backend.name, comparison, comparison.shadows(), task)
        return Outcome(backend=backend.name, changed=False, rules=rules, warnings=warnings)
    if differs and not task.options.reconcile and (leftovers or (state.ours and not comparison.resumable())):
        from netinit.pods.refusals import refuse_to_replace

        raise refuse_to_replace(leftovers + (comparison.differences if state.ours else ()))
    warnings = state.notices
    with Transaction(task.signals) as run:
        for table in dormant:
            warnings += activate(run, task.machine, *table)
        changes = differs or task.options.force_apply
        warnings += run_steps(run, chosen, others, task, comparison=comparison, differs=changes, steps=steps)
    outcome, after = _report(chosen, task, comparison, warnings)
    found = _check(backend.name, comparison, after.shadows() if after else (), task)
    return outcome.replace(warnings=outcome.warnings + found)


def _only_order_differs(backend: str, comparison: Comparison, task: Task) -> bool:
    """Whether only rules moved, without an effect on any packet."""
    if any(one.kind != MOVED for one in comparison.differences):
        return False
    try:
        snapshot = task.machine.read_snapshot()
    except OSError:
        return False
    from netinit.live.moved_rules import only_order_differs

    return snapshot is not None and only_order_differs(snapshot, task.plan, backend, comparison.differences)


def _report(chosen: Observed, task: Task, comparison: Comparison, warnings: tuple[str, ...]) -> tuple[Outcome, Comparison | None]:
    """Return a successful run's outcome, even if listing fails, and the plan compared with the live rules."""
    backend = chosen.backend
    rules: dict[str, str] = {}
    committed, after = False, None
    try:
        if comparison.state.foreign or backend.met_others:
            state = backend.observe()
            after = state.compare(task.plan)
            rules = state.describe()
        elif task.final:
            rules = comparison.committed()
            committed = bool(rules)
            rules = rules or backend.observe().describe()
    except (NetinitError, OSError) as error:
        warnings += (f"the rules are programmed, but could not be listed afterwards: {error}",)
    return Outcome(backend=backend.name, changed=True, rules=rules, committed=committed, warnings=warnings), after


def _check(backend: str, comparison: Comparison, shadows: tuple[Difference, ...], task: Task) -> tuple[str, ...]:
    """Return warnings about what diverts captured packets, or may.

    `comparison`: what the rules were computed from. `shadows`: foreign rules before ours in a chain, which are named if
    they have an effect, or if that cannot be proved. Raises NotInForceError; with --require-capture, ApplyError if captured
    packets may bypass the proxy.
    """
    required = task.options.require_capture
    try:
        is_plain = not shadows and _is_plain(backend, comparison, task)
        differences, warnings = ((), ()) if is_plain else _judge(backend, shadows, task)
    except (OSError, TooManyPartsError) as error:
        why = f"{NOT_PROVED}: {(isinstance(error, OSError) and error.strerror) or error}"
        if required:
            raise ApplyError(f"{STAY}, but --require-capture is set, and {why}") from None
        return (*[one.describe() for one in shadows], why)
    idle = tuple([one for one in differences if one.kind == INACTIVE])
    only_devices = all(one.where == DEVICES for one in idle)
    if idle and not (only_devices and task.awaits_devices):
        from netinit.pods.refusals import list_differences

        text = list_differences(f"{STAY}, but are not in force:", idle, MAX_NAMED)
        raise ApplyError(text) if only_devices else NotInForceError(text)  # programming them anew would help the latter
    escaping = tuple([one for one in differences if one.kind != INACTIVE])
    if escaping and required:
        from netinit.pods.refusals import list_differences

        what = f"{STAY}, but --require-capture is set, and packets that they should capture may escape:"
        raise ApplyError(list_differences(what, escaping, MAX_NAMED))
    return (*[one.describe() for one in (*idle, *escaping)], *warnings)


def _is_plain(backend: str, comparison: Comparison, task: Task) -> bool:
    known = comparison.known_chains()
    return known is not None and task.machine.is_plain(
        known, tables=tuple([route.table for route in task.plan.routes]), excluded=task.plan.excluded_interfaces(),
        addresses=tuple([one.cidr.partition("/")[0] for one in task.plan.addresses]),
        own_legacy=BACKENDS[backend].tables == LEGACY_TABLES and not comparison.state.foreign, sure=task.options.require_capture,
    )  # fmt: skip


def _judge(backend: str, shadows: tuple[Difference, ...], task: Task) -> Deviations:
    snapshot = task.machine.read_snapshot()
    if snapshot is None:
        return shadows, ()
    from netinit.live.in_force import find_deviations  # imports the simulator

    return find_deviations(snapshot, task.plan, backend, (), shadows)
