"""Applying: look, compare in order, act only if needed; and removing. One namespace, one run at a time.

The kernel is touched here and below only, after every value has been checked. What was changed when something fails is
put back before the error is raised.
"""

from __future__ import annotations

from netinit import backends
from netinit.backends import routes
from netinit.backends.base import Backend, Change, State
from netinit.errors import ApplyError, BackendUnavailableError, NetinitError
from netinit.host import detect, netns
from netinit.records import Record
from netinit.rules.diff import LEFTOVER, Difference
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import EMPTY_PLAN, Plan
from netinit.rules.network import Family

TYPE_CHECKING = False
if TYPE_CHECKING:
    import posix  # noqa: F401 - the module is needed by type checkers alone

    from netinit.logs import Log
    from netinit.options import Options

MAX_REPORTED = 20  # differences in a message


class Side(Record):
    """A backend and what it saw."""

    backend: Backend
    state: State


class Survey(Record):
    """What is there: the backends to try in order, those that hold rules of ours, and why others cannot be used."""

    candidates: tuple[Side, ...]
    holders: tuple[Side, ...]
    failures: tuple[str, ...]


class Outcome(Record):
    """What was done: the backend, whether anything had to be changed, and the rules as they are now by family."""

    backend: str
    changed: bool
    rules: dict[str, str]
    warnings: tuple[str, ...] = ()


def main(options: Options, log: Log) -> int:
    """Does all that the options ask of the container: enter, program or remove, validate. 0; NetinitError otherwise."""
    path = netns.path_of(options.netns, options.pid)
    if path:
        netns.enter(path)
    if options.cleanup_only:
        outcome = remove(options)
        log.info("removed all rules" if outcome.changed else "there were no rules to remove")
    elif not options.skip_rule_apply:
        outcome = apply(options, final=log.wants("info"))
        for warning in outcome.warnings:
            log.warn(warning)
        log.info(f"programmed by {outcome.backend}" if outcome.changed else f"rules are as planned ({outcome.backend}): nothing to do")
        for family, rules in outcome.rules.items():
            log.info(f"Final iptables state ({family}):\n{rules}")
    if options.run_validation and not options.cleanup_only:
        from netinit.validation import validate

        validate(options, log)
    return 0


def apply(options: Options, *, final: bool = True) -> Outcome:
    """Brings this process's network namespace to what the options want; what is right already stays untouched.

    `final` asks for the rules as they are afterwards. ApplyError when other rules of Istio or netinit are there and
    --reconcile is not set, when the kernel refuses a rule, or when no backend works; LockedError.
    """
    held = netns.lock(options.lock_timeout)
    try:
        settled = detect.settle(options)
        plan = plan_for(settled.options)
        survey = look(settled.options, settled.kernel_families)
        outcome = _apply_first_that_works(settled.options, plan, survey, settled.kernel_families, final=final)
        return outcome.replace(warnings=settled.warnings + plan.warnings + outcome.warnings)
    finally:
        _unlock(held)


def remove(options: Options) -> Outcome:
    """Removes every rule, route and address of ours (or of Istio), whatever options and backend made them."""
    held = netns.lock(options.lock_timeout)
    try:
        settled = detect.settle(options)
        plan = plan_for(settled.options)
        survey = look(settled.options, settled.kernel_families)
        if survey.failures and not survey.candidates:
            raise _nothing_works(survey.failures)
        steps = routes.steps_towards(EMPTY_PLAN, settled.kernel_families, plan)
        routes.make(steps)
        for side in survey.holders:
            side.backend.commit(side.backend.removal(plan, side.state))
        return Outcome(backend=", ".join([side.backend.name for side in survey.holders]), changed=bool(steps or survey.holders), rules={})
    finally:
        _unlock(held)


def look(options: Options, families: tuple[Family, ...]) -> Survey:
    """Looks at both kernel interfaces of iptables and orders the candidates. Starts a program only where tables exist.

    The one that holds our rules comes first; then legacy if somebody else's legacy rules are there, since the two would
    both be walked; then nft; then the rest.
    """
    wanted = backends.named(options)
    sides: dict[str, Side] = {}
    failures: dict[str, str] = {}
    for name in dict.fromkeys((wanted, *backends.KERNEL_SIDES) if wanted in backends.BACKENDS else backends.KERNEL_SIDES):
        backend = backends.load(name, options, families)
        try:
            sides[name] = Side(backend=backend, state=backend.observe())
        except BackendUnavailableError as error:
            failures[name] = str(error)
    order = [wanted] if wanted in backends.BACKENDS else _preference(sides, options, families)
    holders = [sides[name] for name in backends.KERNEL_SIDES if name in sides and sides[name].state.ours]
    if wanted not in (*backends.KERNEL_SIDES, "auto", "libiptc") and wanted in sides and sides[wanted].state.ours:
        holders.append(sides[wanted])
    return Survey(
        candidates=tuple([sides[name] for name in order if name in sides]),
        holders=tuple(holders),
        failures=tuple([f"{name}: {failures[name]}" for name in order if name in failures]),
    )
