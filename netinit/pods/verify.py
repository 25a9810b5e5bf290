"""Compare a namespace with its plan; changes nothing.

A judgement of an earlier check is used again where nothing has changed: it follows from values that were read, without the
counters of rules, and from nothing else, and is made from exactly the values whose digest it carries. The digest covers every
field of every record, so that a new field counts without being listed here. Handles and generations decide nothing, but
change with the rules alone.

Rules are not even read where the kernel says that they are the same: nf_tables counts its commits, and a namespace has a
cookie that no other ever has. All that no commit changes is read and compared nevertheless (`SeenState`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from hashlib import blake2b
from io import BytesIO
from typing import TYPE_CHECKING, Any

from netinit.backends import routes, set_contents
from netinit.backends.machine import HERE, Machine
from netinit.backends.routes import RouteChange
from netinit.base.errors import NOT_PROVED, BackendUnavailableError, TooManyPartsError
from netinit.base.net import IPV4, IPV6
from netinit.base.snapshot import OWNED, SET_CONSTANT, Snapshot, explain_unread
from netinit.kernel.capabilities import advise
from netinit.kernel.detect import CAP_NET_ADMIN
from netinit.live.in_force import find_deviations, find_dormant_bypasses
from netinit.live.moved_rules import only_order_differs
from netinit.options import AUTO, LAYOUTS, Interception, Options, RunOptions, SettledOptions
from netinit.pods import reset_connections
from netinit.pods.backend_choice import Observed, Survey, describe_leftover
from netinit.questions.plan_comparison import Judgement, Report, SeenState
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import BYPASSING, EMPTY_PLAN, ESCAPING, EXTRA, MISSING, Difference, Plan
from netinit.rules.promises import leave_out, read_record
from netinit.rules.rule_builder import settle
from netinit.rules.xtables.decoded_tables import clear_counters

if TYPE_CHECKING:
    from types import ModuleType

    from netinit.base.net import HostAddress
    from netinit.kernel.netlink import LocalRoute, PolicyRule
    from netinit.live.lost_answers import LostAnswers

Differences = tuple[Difference, ...]
MakePlan = Callable[[SettledOptions], Plan]
Found = tuple[Differences, tuple[str, ...]]  # and warnings
LEGACY_PLACE = "legacy tables of "  # of what a snapshot could not list: netinit.kernel.snapshot.legacy_tables


def verify(
    options: Options, machine: Machine = HERE, *, connections: bool = False, known: Judgement | None = None,
    snapshot: Snapshot | None = None, make_plan: MakePlan = plan_for, answers: LostAnswers | None = None,
) -> Report:  # fmt: skip
    """Compare the namespace that the options name (default: this process's) with their plan.

    Compares rules of a snapshot in order, jumps in built-in chains, foreign rules before ours, policy routes and leftovers of
    other backends; then whether the rules are in force. `connections`: open connections that bypass the proxy are
    differences too. `known` is used again where nothing has changed since. `snapshot`: what was just read of the namespace.
    `make_plan`: makes the plan of the settled options, for the rules of an earlier release of Istio. `answers`: warn of lost
    ones too. Raises NamespaceError; BackendUnavailableError if rules cannot be read.
    """

    def look(resolved: Options, warning: str) -> Report:
        return _verify_here(
            resolved, warning, machine, connections=connections, known=known, snapshot=snapshot, make_plan=make_plan, answers=answers
        )

    return machine.inside(options, look)


def find_bypassing(options: Options) -> tuple[str, ...]:
    """Describe the open connections of a namespace that bypass the proxy against the options' plan.

    Raises NamespaceError; BackendUnavailableError if the kernel does not list connections.
    """

    def find(resolved: Options, _: str) -> tuple[str, ...]:
        settled = HERE.settle(resolved)
        return tuple([one.describe() for one in _find_bypassing(settled, plan_for(settled))])

    return HERE.inside(options, find)


def _find_bypassing(options: RunOptions, plan: Plan) -> Iterator[Difference]:
    try:
        found, unjudged = reset_connections.find_bypassing(options, plan)
    except OSError as error:
        raise BackendUnavailableError(f"the kernel does not list open connections: {error.strerror or error}") from None
    for one in found:
        yield Difference(
            kind=BYPASSING, where="IPv4" if len(one.found.local[0]) == IPV4.bits // 8 else "IPv6", rule=f"connection {one}",
            purpose="the plan captures it, but it bypasses the proxy until it ends", origin="an open connection",
        )  # fmt: skip
    if unjudged:
        yield Difference(
            kind=BYPASSING, where="IPv4 and IPv6", rule=f"{unjudged} more connections",
            purpose=f"whether they bypass the proxy is unknown: at most {reset_connections.MAX_JUDGED} are judged",
            origin="open connections",
        )  # fmt: skip


def _verify_here(
    options: Options, warning: str, machine: Machine, *, connections: bool, known: Judgement | None, snapshot: Snapshot | None,
    make_plan: MakePlan, answers: LostAnswers | None,
) -> Report:  # fmt: skip
    settled = asked = machine.settle(options)
    if known and not connections and (again := _look_again(asked, warning, machine, known)):
        return again
    try:
        snapshot = snapshot or machine.read_snapshot()
    except OSError as error:
        _refuse_without_admin(machine)
        raise BackendUnavailableError(explain_unread(error)) from None
    snapshot = without_counters(snapshot) if snapshot else None
    # Without root's right to list their names, legacy tables are not in the snapshot, but can be read.
    whole = snapshot if snapshot and not any(one.place.startswith(LEGACY_PLACE) for one in snapshot.unknown) else None
    survey = Survey(settled, machine=machine, snapshot=whole)
    if survey.failures and not survey.holders():  # unread tables may contain rules of ours
        raise _unreadable(survey, machine)
    chosen = _choose(survey, options, machine)
    backend, state = chosen.backend.name, chosen.state
    settled = settled.for_backend(backend)
    whole_plan = make_plan(settled)
    plan = leave_out(whole_plan, read_record(state.list_chains()))
    leftovers = tuple([describe_leftover(other) for other in survey.others(chosen.backend)])
    lists: Any = _RouteLists(machine.link, settled)  # a link
    steps = _describe_steps(routes.steps_towards(plan, settled.kernel_families, link=lists))

    def decide() -> Found:
        return _decide(plan, chosen, leftovers, steps, snapshot if state.ours else None, answers=answers)

    values = settled, plan, backend, state.beside, leftovers, steps, snapshot
    judgement = judge(decide, *values, known=known if whole else None)
    differences = judgement.differences
    if connections:
        differences += tuple(_find_bypassing(settled, plan))
    warnings = ((warning,) if warning else ()) + settled.warnings + plan.warnings + state.notices + judgement.warnings
    warnings += tuple([f"{name}: could not be read: {reason}" for name, reason in survey.failures.items()])
    ours = bool(survey.holders())
    doubts = plan.warnings[len(whole_plan.warnings) :] + judgement.warnings
    if whole and not survey.failures:
        seen = _describe_seen(whole, machine, _digest_beside(asked, warning, whole, lists))
        judgement = judgement.replace(seen=seen and seen.replace(backend=backend, ours=ours, warnings=warnings, doubts=doubts))
    return Report(
        backend=backend, plan=plan, differences=differences, warnings=warnings, ours=ours,
        doubts=doubts, judgement=judgement if whole else None,
        generation=snapshot.generation if snapshot else 0,
    )  # fmt: skip


class _RouteLists:
    """What a link lists of policy rules, routes and addresses, read once."""

    def __init__(self, link: ModuleType, settled: SettledOptions) -> None:
        families = [family.number for family in settled.kernel_families]
        self.rules = {one: link.list_mark_rules(one) for one in families}
        self.routes = {one: link.list_local_routes(one) for one in families}
        self.addresses = link.list_addresses()

    def list_mark_rules(self, family: int) -> tuple[PolicyRule, ...]:
        return self.rules[family]  # type: ignore[no-any-return]

    def list_local_routes(self, family: int) -> tuple[LocalRoute, ...]:
        return self.routes[family]  # type: ignore[no-any-return]

    def list_addresses(self) -> tuple[HostAddress, ...]:
        return self.addresses  # type: ignore[no-any-return]


def look_again(options: Options, warning: str, machine: Machine, known: Judgement) -> Report | None:
    """Return the report of an earlier check of this process's namespace, without its plan; None if anything may have changed."""
    return _look_again(machine.settle(options), warning, machine, known)


def _look_again(asked: SettledOptions, warning: str, machine: Machine, known: Judgement) -> Report | None:
    """Return the last report again, without its plan, if nothing that it follows from has changed; None if that is not known."""
    seen = known.seen
    if seen is None or machine.read_numbers() != (numbers := (seen.namespace, seen.generation)):
        return None
    try:
        beside = without_counters(machine.read_beside_nf_tables())
        digest = _digest_beside(asked, warning, beside, _RouteLists(machine.link, asked))
    except OSError:  # told when everything is read
        return None
    if digest != seen.digest or machine.read_numbers() != numbers:
        return None
    return Report(
        backend=seen.backend, plan=EMPTY_PLAN, differences=known.differences, warnings=seen.warnings, ours=seen.ours,
        doubts=seen.doubts, judgement=known, generation=seen.generation,
    )  # fmt: skip


def _describe_seen(snapshot: Snapshot, machine: Machine, digest: str) -> SeenState | None:
    """Return what the next check compares; None if the kernel numbers nothing, or something changes without a commit.

    Packets and time change sets that are not constant, and objects such as quotas; a table with an owner ends with its
    owner's socket (net/netfilter/nf_tables_api.c).
    """
    numbers = machine.read_numbers()
    is_fixed = (
        not snapshot.objects
        and all(one.flags & SET_CONSTANT for one in snapshot.sets)
        and not any(one.flags & OWNED for one in snapshot.tables)
    )
    if numbers is None or numbers[1] != snapshot.generation or not is_fixed:
        return None
    return SeenState(namespace=numbers[0], generation=numbers[1], digest=digest)


def _digest_beside(asked: SettledOptions, warning: str, snapshot: Snapshot, lists: _RouteLists) -> str:
    """Return the digest of what was asked and of all that was read beside nf_tables."""
    beside = snapshot.replace(generation=0, tables=(), chains=(), rules=(), sets=(), objects=())
    return digest_of((asked, warning, beside, lists.rules, lists.routes, lists.addresses))


def _decide(
    plan: Plan, chosen: Observed, leftovers: Differences, steps: Differences, snapshot: Snapshot | None, *, answers: LostAnswers | None
) -> Found:
    """Return all differences, and warnings about captured packets; without a snapshot those of the rules alone."""
    comparison = chosen.state.compare(plan)
    different, shadows = comparison.differences, comparison.shadows()
    if snapshot and only_order_differs(snapshot, plan, chosen.backend.name, different, set_contents.read_contents):
        different = ()
    listed = leftovers + different + steps
    if snapshot is None:
        return listed + shadows, ()
    try:
        differences, warnings = find_deviations(snapshot, plan, chosen.backend.name, listed, shadows, answers=answers)
        dormant = find_dormant_bypasses(snapshot, plan, chosen.backend.name, listed + differences, shadows)
    except TooManyPartsError as error:
        purpose = f"{NOT_PROVED}: {error}"
        doubt = Difference(kind=ESCAPING, where="kernel", rule="foreign rules", purpose=purpose, origin="foreign rules")
        return (*listed, *shadows, doubt), ()
    return listed + differences, warnings + dormant


def _describe_steps(steps: tuple[RouteChange, ...]) -> tuple[Difference, ...]:
    found = []
    for step in steps:
        address, table = (True, 0) if isinstance(step.target, str) else (False, step.target.table)
        option = "ipv6" if address else "layout" if any(table == line.table for line in LAYOUTS.values()) else "inbound_mode"
        found.append(
            Difference(
                kind=MISSING if step.add else EXTRA, table="routing", rule=routes.describe(step.target),
                where="IPv6" if isinstance(step.target, str) or step.target.family == IPV6.number else "IPv4",
                purpose="the proxy passes inbound connections on from it" if address else "marked packets are delivered to this pod",
                origin=Interception.flag(option).label,
            )
        )  # fmt: skip
    return tuple(found)


def _choose(survey: Survey, options: Options, machine: Machine) -> Observed:
    if options.wanted_backend == AUTO and survey.holders():
        return survey.holders()[0]
    for chosen in survey.candidates():
        return chosen
    raise _unreadable(survey, machine)


def _unreadable(survey: Survey, machine: Machine) -> BackendUnavailableError:
    _refuse_without_admin(machine)
    reasons = [f"  {name}: {reason}" for name, reason in survey.failures.items()]
    return BackendUnavailableError("\n".join(["the rules cannot be read:", *reasons]))


def _refuse_without_admin(machine: Machine) -> None:
    if not machine.has_capability(CAP_NET_ADMIN):
        raise BackendUnavailableError(f"the rules cannot be read: NET_ADMIN is missing: {advise('NET_ADMIN', reading=True)}")


def judge(decide: Callable[[], Found], *values: object, known: Judgement | None) -> Judgement:
    """Return `known` if it is about exactly these values, else what `decide` finds from them alone, whose errors are raised."""
    digest = digest_of(values)
    if known is not None and known.digest == digest:
        return known
    differences, warnings = decide()
    return Judgement(digest=digest, differences=differences, warnings=warnings)


def digest_of(value: object) -> str:
    """Return the digest of a value of records and plain data.

    Pickle writes every field of every record, whatever the record prints; it is never read back. `fast` leaves out
    references to equal objects, which say how a value was built and not what it is.
    """
    written = BytesIO()
    pickler = pickle.Pickler(written)
    pickler.fast = True
    pickler.dump(value)
    return blake2b(written.getbuffer(), digest_size=32).hexdigest()


def without_counters(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the counters of all rules at zero."""
    return snapshot.replace(
        rules=tuple([one.replace(expressions=settle(one.expressions)) for one in snapshot.rules]),
        legacy=tuple([clear_counters(one) for one in snapshot.legacy]),
    )
