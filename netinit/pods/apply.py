"""Applying: look, compare in order, act only if needed; and removing. One namespace, one run at a time.

The kernel is touched here and below only, after every value has been checked. What was changed when something fails is
put back before the error is raised.
"""

from __future__ import annotations

from netinit.backends import Comparison, Lock, routes
from netinit.backends.machine import HERE, Machine
from netinit.base.errors import (
    AS_BEFORE,
    SIGNALS,
    ApplyError,
    BackendUnavailableError,
    NetinitError,
    ended_by,
)
from netinit.base.logs import discard_stderr
from netinit.base.records import Record
from netinit.kernel import detect
from netinit.kernel.run import Signals
from netinit.options import Options
from netinit.pods import self_check
from netinit.pods.backend_choice import Observed, Survey, describe_leftover
from netinit.pods.self_check import NotInForceError
from netinit.pods.steps import Task, bring_about, commit, route, routes_towards
from netinit.pods.transaction import Transaction
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import EMPTY_PLAN, TABLES, Difference, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.base.logs import Log

NFT_DIALECT = "nft"


class Outcome(Record):
    """What was done: the backend, whether anything had to be changed, and the rules by family, as they were listed.

    `committed`: nobody has listed them since; they are what the kernel took, whole.
    """

    backend: str
    changed: bool
    rules: dict[str, str]
    committed: bool = False
    warnings: tuple[str, ...] = ()
    plan: Plan = EMPTY_PLAN
    options: Options | None = None  # as settled by the pod's addresses and name servers
    notes: tuple[str, ...] = ()
    unended: str = ""  # what --reset-existing could not do


def main(options: Options, log: Log) -> int:
    """Does all that the options ask of the container: program or remove, validate. 0; NetinitError otherwise."""
    signals = Signals()
    if options.pid or options.netns:
        return _reach_out(options, log, signals)
    _program(options, log, signals, locked=False)
    _answer_late_signal(options, log, signals)
    if options.run_validation and not options.cleanup_only:
        from netinit.pods.validate import validate

        validate(options, log)
    return 0


def _answer_late_signal(options: Options, log: Log, signals: Signals) -> None:
    """A signal that came when everything was done ends nothing but what was to follow."""
    signals.stop()
    number = signals.take()
    if number and options.run_validation and not options.cleanup_only:
        raise ended_by(number, "the rules are programmed, and were not validated")
    if number:
        log.info(f"{SIGNALS[number]} came when everything was done")


def _reach_out(options: Options, log: Log, signals: Signals) -> int:
    """The same in a pod, from outside: see netinit.kernel.pods."""
    from netinit.kernel.pods import OpenPod

    with OpenPod(pid=options.pid, netns=options.netns) as pod:
        if not options.host_network and (options.cleanup_only or not options.skip_rule_apply):
            pod.refuse_host()
        meant = options.with_servers(pod.read_name_servers)
        with pod.lock(options.lock_timeout, log.warn) as held:
            pod.modify_inside(lambda own: _program(meant, log, own, locked=True), signals, holding=held.descriptors)
        _answer_late_signal(options, log, signals)
        if options.run_validation and not options.cleanup_only:
            from netinit.pods.validate import validate

            ids = (detect.CAP_SETUID, detect.CAP_SETGID)  # it connects as the proxy and as the application
            pod.run_inside(lambda: validate(meant, log), joins=True, keep=ids)
    return 0


def _program(options: Options, log: Log, signals: Signals, *, locked: bool) -> None:
    """Programs or removes, and reports what was done; a report that cannot be written is no failure.

    From the first step on `signals` are kept back, also where all went well.
    """
    try:
        if options.cleanup_only:
            outcome = _again(options, log, signals, lambda meant: remove(meant, locked=locked, signals=signals))
        elif options.skip_rule_apply:
            return
        else:
            wanted = log.wants("info")
            outcome = _again(options, log, signals, lambda meant: apply(meant, final=wanted, locked=locked, signals=signals))
    except NetinitError:
        number = signals.take()
        if number:  # it has ended a program that looked; the error of a change knows of its signal already
            raise ended_by(number, AS_BEFORE) from None
        raise
    try:
        _tell(outcome, log, removed=options.cleanup_only)
    except OSError:  # a full disk
        discard_stderr()
    if outcome.unended:
        raise ApplyError(f"the rules are programmed, but {outcome.unended}")


def _again(options: Options, log: Log, signals: Signals, act: Callable[[Options], Outcome]) -> Outcome:
    """What `act` comes to; with --retries it is begun anew where that may help."""
    if not options.retries:
        return act(options)
    from netinit.pods.retry import retry

    return retry(act, options, log, lambda: bool(signals.heard))


def _tell(outcome: Outcome, log: Log, *, removed: bool) -> None:
    if removed:
        log.info("removed all rules" if outcome.changed else "there were no rules to remove")
        return
    for warning in (*outcome.warnings, *_lint(outcome)):
        log.warn(warning)
    log.info(
        f"programmed by {outcome.backend}"
        if outcome.changed
        else f"rules are as planned ({outcome.backend}): nothing to do"
    )
    for note in outcome.notes:
        log.info(note)
    for name, rules in outcome.rules.items():
        what = "nftables state" if name == NFT_DIALECT else f"iptables state ({name})"
        log.info(f"Final {what}{', as committed' if outcome.committed else ''}:", rules)


def apply(
    options: Options, *, final: bool = True, locked: bool = False, machine: Machine = HERE, signals: Signals | None = None
) -> Outcome:
    """Brings this process's network namespace to what the options ask for; what is right already stays untouched.

    `final` asks for the rules as they are afterwards; `locked` says that the namespace's lock is held already. `signals`
    stay kept back after a success (default: whoever listened before hears them).
    ApplyError when other rules of Istio or netinit are there and --reconcile is not set, when the kernel refuses a rule,
    or when no backend works; LockedError; NamespaceError in the machine's own namespace, unless --host-network.
    """
    with _claim(options, machine, locked=locked):
        if loopback := machine.renamed_loopback():
            from netinit.pods.refusals import refuse_loopback

            raise refuse_loopback(loopback)
        settled = machine.settle(options)
        survey = Survey(settled.options, settled.kernel_families, thorough=False, machine=machine)
        try:
            survey.prepare()  # programs load their libraries while the plan is made
            plan = plan_for(settled.options)
            task = Task(settled=settled, plan=plan, final=final, machine=machine, signals=signals)
            outcome = _apply_first_that_works(task, survey)
        finally:
            survey.release()
        return _look_for_older(outcome, options) if machine is HERE else outcome


def _look_for_older(outcome: Outcome, options: Options) -> Outcome:
    """The same, with what is to be said of connections that are older than the rules; without new ones there are none."""
    if not (outcome.changed or options.reset_existing) or outcome.options is None:
        return outcome
    from netinit.pods import reset_connections

    found = reset_connections.look(outcome.options, outcome.plan)
    if found is None:
        return outcome
    return outcome.replace(warnings=outcome.warnings + found.warnings, notes=found.notes, unended=found.unended)


def remove(
    options: Options, *, locked: bool = False, machine: Machine = HERE, signals: Signals | None = None
) -> Outcome:
    """Removes every rule, route and address of ours (or of Istio), whatever options and backend made them.

    Errors, `locked` and `signals` as in `apply`.
    """
    with _claim(options, machine, locked=locked):
        settled = machine.settle(options)
        plan = plan_for(settled.options)
        survey = Survey(settled.options, settled.kernel_families, machine=machine)
        if survey.failures:  # rules may be where nobody could look
            from netinit.pods.refusals import nothing_works

            raise nothing_works(survey.failures, machine)
        holders = survey.holders()
        steps = routes.steps_towards(EMPTY_PLAN, settled.kernel_families, hints=plan, link=machine.link)
        removals = [(holder.backend, holder.state.compare(plan).removal()) for holder in holders]
        with Transaction(signals) as run:
            for backend, _ in removals:
                run.hold(backend.lock())
            for backend, change in removals:
                commit(run, backend, change)
            route(run, steps, machine)  # after the rules, whose marked packets would else go astray
        return Outcome(
            backend=", ".join([holder.backend.name for holder in holders]),
            changed=bool(steps or holders),
            rules={},
        )


def _claim(options: Options, machine: Machine, *, locked: bool) -> Lock:
    """The lock of this namespace, which may be changed; none where the caller has it."""
    if not options.host_network:
        machine.refuse_own_namespace()
    return Lock() if locked else machine.lock(options.lock_timeout)


def _lint(outcome: Outcome) -> tuple[str, ...]:
    """What is wrong with the options themselves, where they are not the usual ones of a sidecar.

    Looking takes 20 ms, more than programming; the usual options have nothing that could contradict each other.
    """
    options = outcome.options
    if options is None or not options.may_contradict():
        return ()
    from netinit.simulate.lint import lint

    found = [f"{finding.option}: {finding.message}" for finding in lint(options, outcome.plan, proved=False)]
    return tuple([text for text in found if text not in outcome.warnings])


def _apply_first_that_works(task: Task, survey: Survey) -> Outcome:
    """Tries the candidates in order; one that cannot work here makes room for the next."""
    failures = {}
    for chosen in survey.candidates():
        try:
            own = task.on(chosen.backend.name)
            outcome = _apply_with(chosen, survey.others(chosen.backend), own)
            warnings = own.settled.warnings + own.plan.warnings + outcome.warnings
            return outcome.replace(warnings=warnings, plan=own.plan, options=own.options)
        except BackendUnavailableError as error:
            if task.signals and task.signals.heard:  # it has ended the program, not the backend's prospects
                raise
            failures[chosen.backend.name] = error
    from netinit.pods.refusals import nothing_works

    raise nothing_works({**survey.failures, **failures}, task.machine)


def _apply_with(chosen: Observed, others: tuple[Observed, ...], task: Task) -> Outcome:
    """Brings the plan about and checks it; rules that are not in force are programmed anew with --reconcile."""
    try:
        return _bring_about_once(chosen, others, task)
    except NotInForceError:
        if not task.options.reconcile or task.options.force_apply:
            raise
    return _bring_about_once(chosen.replace(state=chosen.backend.observe()), (), task.forced())


def _bring_about_once(chosen: Observed, others: tuple[Observed, ...], task: Task) -> Outcome:
    backend, state, plan = chosen.backend, chosen.state, task.plan
    leftovers = tuple([describe_leftover(other) for other in others])
    comparison = state.compare(plan)
    differs = bool(leftovers) or comparison.differs()
    steps = routes_towards(plan, task)
    if not differs and not steps and not _dormant(task) and not task.options.force_apply:
        rules = (comparison.committed() or state.describe()) if task.final else {}
        outcome = Outcome(backend=backend.name, changed=False, rules=rules, warnings=state.notices)
        return _check(outcome, chosen, comparison, comparison, task)
    if differs and not task.options.reconcile:
        _refuse_to_replace(chosen, leftovers, comparison)
    warnings: tuple[str, ...] = ()
    with Transaction(task.signals) as run:
        for dormant in _dormant(task):
            from netinit.pods.activation import activate

            warnings += activate(run, task.machine, *dormant)
        warnings += bring_about(run, chosen, others, task, comparison=comparison, steps=steps)
    outcome, after = _report(chosen, task, comparison, state.notices + warnings)
    return _check(outcome, chosen, comparison, after, task)


def _dormant(task: Task) -> list[tuple[int, str]]:
    """The tables of the plan in nf_tables that the kernel does not ask: somebody has set their flag."""
    return [one for one in task.machine.dormant_tables() if one[1].removeprefix(task.plan.nft_prefix) in TABLES]


def _refuse_to_replace(chosen: Observed, leftovers: tuple[Difference, ...], comparison: Comparison) -> None:
    """ApplyError where rules of ours are there that are no beginning of the plan's."""
    if leftovers or (chosen.state.ours and not comparison.resumable()):
        from netinit.pods.refusals import refuse_to_replace

        raise refuse_to_replace(leftovers + (comparison.differences if chosen.state.ours else ()))


def _report(
    chosen: Observed, task: Task, comparison: Comparison, warnings: tuple[str, ...]
) -> tuple[Outcome, Comparison | None]:
    """The outcome of a run that has succeeded, whatever becomes of looking at it; and the plan beside what is live now."""
    backend = chosen.backend
    rules: dict[str, str] = {}
    committed, after = False, None
    try:
        if comparison.state.foreign:
            state = backend.observe()
            after = state.compare(task.plan)
            rules = state.describe()
        elif task.final:
            rules = comparison.committed()
            committed = bool(rules)
            rules = rules or backend.list_rules()
    except (NetinitError, OSError) as error:
        warnings += (f"the rules are programmed, but could not be listed afterwards: {error}",)
    return Outcome(backend=backend.name, changed=True, rules=rules, committed=committed, warnings=warnings), after


def _check(outcome: Outcome, chosen: Observed, before: Comparison, after: Comparison | None, task: Task) -> Outcome:
    """The outcome with what foreign rules do to captured packets. NotInForceError; with --require-capture also ApplyError."""
    shadows = after.shadows() if after else ()
    found = self_check.check(task.machine, task.plan, chosen.backend.name, before, shadows, required=task.options.require_capture)
    return outcome.replace(warnings=outcome.warnings + found)
