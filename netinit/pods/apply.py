"""Applying: look, compare in order, act only if needed; and removing. One namespace, one run at a time.

The kernel is touched here and below only, after every value has been checked. What was changed when something fails is
put back before the error is raised.
"""

from __future__ import annotations

import posix

from netinit.backends import MEMORY, named
from netinit.backends.base import Backend, State
from netinit.base.errors import ApplyError, BackendUnavailableError, NetinitError
from netinit.base.net import Family
from netinit.base.records import Record
from netinit.kernel import detect, locks, namespaces, routes
from netinit.options import NONE, Options
from netinit.options.kinds import ALL
from netinit.pods.inspect import Side, Survey, describe_leftover
from netinit.rules.difference import Difference
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import EMPTY_PLAN, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.base.logs import Log

NFT_DIALECT = "nft"
INTERIM_BIT = 1 << 20  # of a firewall mark; LOOP_MARK has it not
_USUAL = Options(inbound_ports=ALL, outbound_cidrs=ALL)
_CONTRADICTING = (  # fields of which values beside the usual ones can work against others
    "inbound_ports", "outbound_cidrs", "outbound_ports", "exclude_outbound_ports", "virtual_interfaces",
    "exclude_interfaces", "redirect_dns", "owner_groups", "exclude_owner_groups", "layout",
)  # fmt: skip
_LEGACY = ("iptables-legacy:", "libiptc:")  # how failures of backends begin that want NET_RAW
MAX_REPORTED = 20  # differences in a message


class Outcome(Record):
    """What was done: the backend, whether anything had to be changed, and the rules as they are now by family."""

    backend: str
    changed: bool
    rules: dict[str, str]
    warnings: tuple[str, ...] = ()
    plan: Plan = EMPTY_PLAN
    options: Options | None = None  # as settled by the pod's addresses and name servers


def main(options: Options, log: Log) -> int:
    """Does all that the options ask of the container: program or remove, validate. 0; NetinitError otherwise."""
    if options.pid or options.netns:
        return _reach_out(options, log)
    _program(options, log, locked=False)
    if options.run_validation and not options.cleanup_only:
        from netinit.pods.validate import validate

        validate(options, log)
    return 0


def _reach_out(options: Options, log: Log) -> int:
    """The same in a pod, from outside: see netinit.kernel.pods."""
    from netinit.kernel.pods import Pod

    with Pod(options) as pod:
        if not options.host_network and (options.cleanup_only or not options.skip_rule_apply):
            pod.refuse_machine()
        meant = pod.complete(options)
        with pod.lock(options.lock_timeout, log.warn) as held:
            pod.visit(lambda: _program(meant, log, locked=True), joins=True, holding=held.descriptors)
        if options.run_validation and not options.cleanup_only:
            from netinit.pods.validate import validate

            ids = (detect.CAP_SETUID, detect.CAP_SETGID)  # it connects as the proxy and as the application
            pod.visit(lambda: validate(meant, log), joins=True, keep=ids)
    return 0


def _program(options: Options, log: Log, *, locked: bool) -> None:
    """Programs or removes, and tells what was done."""
    if options.cleanup_only:
        outcome = remove(options, locked=locked)
        log.info("removed all rules" if outcome.changed else "there were no rules to remove")
    elif not options.skip_rule_apply:
        outcome = apply(options, final=log.wants("info"), locked=locked)
        for warning in (*outcome.warnings, *_lint(outcome)):
            log.warn(warning)
        log.info(
            f"programmed by {outcome.backend}"
            if outcome.changed
            else f"rules are as planned ({outcome.backend}): nothing to do"
        )
        for name, rules in outcome.rules.items():
            log.info("Final nftables state:" if name == NFT_DIALECT else f"Final iptables state ({name}):", rules)


def apply(options: Options, *, final: bool = True, locked: bool = False) -> Outcome:
    """Brings this process's network namespace to what the options want; what is right already stays untouched.

    `final` asks for the rules as they are afterwards; `locked` tells that the namespace's lock is held already.
    ApplyError when other rules of Istio or netinit are there and --reconcile is not set, when the kernel refuses a rule,
    or when no backend works; LockedError; NamespaceError in the machine's own namespace, unless --host-network.
    """
    held = _claim(options, locked=locked)
    try:
        settled = detect.settle(options)
        plan = plan_for(settled.options)
        survey = Survey(settled.options, settled.kernel_families, thorough=False)
        outcome = _apply_first_that_works(settled.options, plan, survey, settled.kernel_families, final=final)
        warnings = settled.warnings + plan.warnings + outcome.warnings
        return outcome.replace(warnings=warnings, plan=plan, options=settled.options)
    finally:
        if held >= 0:
            posix.close(held)


def remove(options: Options, *, locked: bool = False) -> Outcome:
    """Removes every rule, route and address of ours (or of Istio), whatever options and backend made them.

    Errors and `locked` as in `apply`.
    """
    held = _claim(options, locked=locked)
    try:
        settled = detect.settle(options)
        plan = plan_for(settled.options)
        survey = Survey(settled.options, settled.kernel_families)
        if survey.failures:  # rules may be where nobody could look
            raise _nothing_works(survey.failures)
        holders = survey.holders()
        steps = routes.steps_towards(EMPTY_PLAN, settled.kernel_families, hints=plan)
        for backend, change in [(side.backend, side.backend.removal(plan, side.state)) for side in holders]:
            backend.commit(change)
        routes.make(steps)  # after the rules, whose marked packets would else go astray
        return Outcome(
            backend=", ".join([side.backend.name for side in holders]),
            changed=bool(steps or holders),
            rules={},
        )
    finally:
        if held >= 0:
            posix.close(held)


def _claim(options: Options, *, locked: bool) -> int:
    """The lock of this namespace, which may be changed; -1 where the caller has it."""
    if not options.host_network and named(options) != MEMORY:
        namespaces.refuse_machine()
    return -1 if locked else locks.lock(options.lock_timeout)


def _lint(outcome: Outcome) -> tuple[str, ...]:
    """What is wrong with the options themselves, where they are not the usual ones of a sidecar.

    Looking takes 20 ms, more than programming; the usual options have nothing that could contradict each other.
    """
    options = outcome.options
    if options is None:
        return ()
    unusual = any(getattr(options, field) != getattr(_USUAL, field) for field in _CONTRADICTING)
    if not unusual and options.inbound_mode != NONE:
        return ()
    from netinit.simulate.lint import lint

    found = [f"{finding.option}: {finding.message}" for finding in lint(options, outcome.plan)]
    return tuple([text for text in found if text not in outcome.warnings])


def _apply_first_that_works(options: Options, plan: Plan, survey: Survey, families: tuple[Family, ...], *, final: bool) -> Outcome:
    """Tries the candidates in order; one that cannot work here makes room for the next."""
    failures = []
    for side in survey.candidates():
        try:
            return _apply_with(side, options, plan, survey, families, final=final)
        except BackendUnavailableError as error:
            failures.append(f"{side.backend.name}: {error}")
    raise _nothing_works((*survey.failures, *failures))


def _apply_with(
    side: Side, options: Options, plan: Plan, survey: Survey, families: tuple[Family, ...], *, final: bool
) -> Outcome:
    backend, state = side.backend, side.state
    others = survey.others(backend)
    notices = state.notices
    leftovers = tuple([describe_leftover(other) for other in others])
    found = leftovers + backend.compare(plan, state)
    steps = routes.steps_towards(plan, families) if backend.in_kernel else ()
    if not found and not steps and not options.force_apply:
        rules = backend.describe(state) if final else {}
        return Outcome(backend=backend.name, changed=False, rules=rules, warnings=notices + _find_shadows(backend, plan, state))
    if found and not options.reconcile and (others or (state.ours and not backend.resumable(plan, state))):
        raise _refuse(found if state.ours else leftovers)
    additions = tuple([step for step in steps if step.add])
    warnings = notices + routes.make(additions)
    try:
        if others and plan.ip_rules:
            state = _meet(others, backend, state, options, families)
        if found or options.force_apply:
            backend.commit(backend.change(plan, state, force=options.force_apply))
    except (NetinitError, OSError):  # the latter where descriptors or memory are short
        routes.undo(additions)
        raise
    for other in () if plan.ip_rules else others:
        other.backend.commit(other.backend.removal(plan, other.state))
    steps = routes.steps_towards(plan, families) if others else steps
    routes.make(tuple([step for step in steps if not step.add]))
    rules = {}
    if state.others:
        after = backend.observe()
        warnings += _find_shadows(backend, plan, after)
        rules = backend.describe(after)
    elif final:
        rules = backend.list_rules()
    return Outcome(backend=backend.name, changed=True, rules=rules, warnings=warnings)


def _find_shadows(backend: Backend, plan: Plan, state: State) -> tuple[str, ...]:
    return tuple([shadow.describe() for shadow in backend.shadows(plan, state)]) if state.others else ()


def _meet(others: tuple[Side, ...], backend: Backend, state: State, options: Options, families: tuple[Family, ...]) -> State:
    """Hands TPROXY over from other backends: for a moment both capture, each with a mark of its own.

    With one mark the second to see a packet would take it for one that the proxy sent and save the mark for its whole
    connection, whose answers would then be delivered to this pod.
    """
    interim = plan_for(options.replace(tproxy_mark=options.tproxy_mark ^ INTERIM_BIT))
    additions = tuple([step for step in routes.steps_towards(interim, families) if step.add])
    routes.make(additions)
    try:
        backend.commit(backend.change(interim, state))
    except (NetinitError, OSError):  # the latter where descriptors or memory are short
        routes.undo(additions)
        raise
    for other in others:
        other.backend.commit(other.backend.removal(interim, other.state))
    return backend.observe()


def _refuse(found: tuple[Difference, ...]) -> ApplyError:
    lines = [f"  {difference.describe()}" for difference in found[:MAX_REPORTED]]
    if len(found) > MAX_REPORTED:
        lines.append(f"  and {len(found) - MAX_REPORTED} more")
    return ApplyError(
        "\n".join(
            [
                "other rules of Istio or netinit are here; --reconcile replaces them, --cleanup-only removes them:",
                *lines,
            ]
        )
    )


def _nothing_works(failures: Sequence[str]) -> BackendUnavailableError:
    uid = posix.geteuid()
    if not detect.has_capability(detect.CAP_NET_ADMIN):
        from netinit.kernel.capabilities import may_gain

        who = f"uid {uid}{', under allowPrivilegeEscalation: false' if uid and not may_gain() else ''}"
        return BackendUnavailableError(
            f"NET_ADMIN is missing ({who}): run the init container with securityContext.capabilities.add: [NET_ADMIN] as user 0"
        )
    if not detect.has_capability(detect.CAP_NET_RAW) and all(failure.startswith(_LEGACY) for failure in failures):
        return BackendUnavailableError(
            f"NET_RAW is missing (uid {uid}): legacy iptables wants securityContext.capabilities.add: [NET_ADMIN, NET_RAW]; "
            "--backend iptables-nft and nftables do with NET_ADMIN"
        )
    return BackendUnavailableError("\n".join(["no backend works here:", *[f"  {failure}" for failure in failures]]))
