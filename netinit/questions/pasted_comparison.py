"""Compare rules of a dump with the plan of their options, or ask whether foreign rules leave a plan beside them alone. Pure.

Effect decides: rules that are written otherwise and treat every packet as the plan does are as planned. Where packets are treated
differently, the differences name the rules too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from netinit.base.errors import NOT_PROVED, ParseError, TooManyPartsError
from netinit.base.net import FULL_MASK, Family
from netinit.base.sanitize import MAX_LINE_LENGTH, shorten
from netinit.base.tables import count
from netinit.live.culprits import own_marks
from netinit.options import FIRST_WITH, TABLES_OF_OUR_OWN, SettledOptions
from netinit.questions.audit.changes import FateChange, find_changes_of_fate
from netinit.questions.comparison import Compared
from netinit.questions.older_rules import compare_release
from netinit.questions.pasted_rules import put_plan_first
from netinit.questions.plan_comparison import Report
from netinit.questions.pod_rules import PodRules
from netinit.questions.rule_sources import PLAN, RuleSource
from netinit.questions.shown_options import describe_gaps
from netinit.questions.unanswered import describe_unanswered
from netinit.questions.verify import VerifyReport
from netinit.rules.foreign_targets import UnknownTarget
from netinit.rules.infer_options import InferredOptions
from netinit.rules.iptables.compare import align
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.layouts import plan as plan_for
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.model import (
    BUILTIN_CHAINS,
    ESCAPING,
    EXTRA,
    LEFTOVER,
    MISSING,
    MOVED,
    OWNED_CHAINS,
    Difference,
    Plan,
)
from netinit.simulate.endpoints import format_example
from netinit.simulate.examples import example_of
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset, is_ours, load_plan
from netinit.simulate.symbolic.match_sets import local, martians
from netinit.simulate.symbolic.regions import Region, in_states, marked, unmarked
from netinit.simulate.symbolic.space import OUTBOUND, CtState, Dim, Space
from netinit.simulate.trace import CAPTURED, NOT_FORWARDED

DIFFERENT = "different"  # kind of a difference: packets
MAX_SHOWN = 20  # kinds of packets
BESIDE = "proved for both orders of the rules: every packet that the plan captures alone is captured beside these rules"
OWN_RULES = "proved: our rules are as planned, and every packet that they capture is captured beside the foreign ones"
SHOWN = "no options were given: the rules are compared with the plan of those that they show"


def compare_with_options(source: RuleSource, name: str = "") -> Compared:
    """A dump beside the plan of the options that it should have, or of those that it shows, on one host. Raises ParseError."""
    rules = source.rules
    target = rules.wanted or rules.made_by
    if target is None:
        raise _without_options(source)
    whose = "the plan of the options" if rules.wanted else "the plan of the options that the rules show"
    return Compared(name or f"{whose} and {shorten(source.name)}", _planned(rules, target), source)


def _without_options(source: RuleSource) -> ParseError:
    why = f" ({'; '.join(source.warnings)})" if source.warnings else ""
    return ParseError(f"{shorten(source.name)}: no options were given, and its rules do not show any: give them, such as -b '*'{why}")


def _own_chains(rules: PodRules) -> Iterator[LoadedChain]:
    for found in rules.rulesets.values():
        for ruleset in found.values():
            yield from [chain for chain in ruleset.chains if chain.name in OWNED_CHAINS]


def _planned(rules: PodRules, target: SettledOptions, made: Plan | None = None) -> RuleSource:
    made = made or plan_for(target)
    planned = {PLAN: {family: load_plan(made, family) for family in rules.surroundings}}
    return RuleSource(PLAN, replace(rules, rulesets=planned, options={PLAN: target}))


def verify_dump(source: RuleSource, *, strict: bool) -> VerifyReport:
    """Whether a dump's rules are as planned, or, where none is of a mesh, whether a plan beside them captures what it captures alone.

    `strict`: captured packets that foreign rules drop are differences too. Raises TooManyPartsError never: then nothing is proved.
    """
    rules = source.rules
    target = rules.wanted or rules.made_by
    if target is None and any(one.rules for one in _own_chains(rules)):
        raise _without_options(source)
    if target is None:
        return VerifyReport(report=None, options=None, notes=source.notes, mesh=rules.other_mesh)
    gaps = () if rules.wanted else describe_gaps(rules.older or InferredOptions(target))
    older = rules.older if rules.older and (rules.wanted is None or (rules.older.older and rules.older.older.exact)) else None
    made = plan_for(target) if older is None else older.make_plan(older.settle_as(target) if rules.wanted else target)
    made = made.replace(families=tuple([one for one in made.families if one in rules.surroundings]))
    later = put_plan_first(source)
    judge = _judge_beside if later else _judge
    differences, doubts, notes = judge(source, later or source, target, made)
    differences = (*_find_leftovers(rules), *differences)
    with suppress(TooManyPartsError):  # then it is a difference that nothing is proved
        doubts += tuple(describe_unanswered(rules))
    warnings = (*source.warnings, *doubts)
    report = Report(backend=rules.place or PLAN, plan=made, differences=differences, doubts=doubts, warnings=warnings)
    if older:
        report = report.replace(older=compare_release(str(older.older), target, made))
    return VerifyReport(report=report.with_doubts() if strict else report, options=target.given, notes=(*source.notes, *notes, *gaps))


def _find_leftovers(rules: PodRules) -> Iterator[Difference]:
    """Rules of ours in other tables than those that are compared, which an earlier run may have left there."""
    for place, found in rules.rulesets.items():
        there = place != rules.place and any(one.rules for one in _own_chains(replace(rules, rulesets={place: found})))
        if there:
            told = f"rules of netinit or Istio are active there, beside those of {rules.place}"
            yield Difference(kind=LEFTOVER, where=place, rule=told)


Judged = tuple[tuple[Difference, ...], tuple[str, ...], tuple[str, ...]]
"""Differences, doubts, and notes."""


def _judge(source: RuleSource, _: RuleSource, target: SettledOptions, made: Plan) -> Judged:
    rules = source.rules
    try:
        changes = [one for one in find_changes_of_fate(_planned(rules, target, made).rules, rules) if not one.unseen]
    except TooManyPartsError as error:
        return (_not_proved(error),), (), ()
    texts = tuple([one for family in rules.surroundings for one in _find_texts(rules, made, family)])
    notes: tuple[str, ...] = () if rules.wanted else (SHOWN,)
    if not changes:
        if texts:
            counts = Counter(one.kind for one in texts)
            kinds = ", ".join([f"{number} {kind}" for kind, number in counts.items()])
            notes += (f"{count(len(texts), 'difference')} in the text of rules ({kinds}): no packet is treated differently",)
        return (), (), notes
    if not texts and _has_own_effect(rules, target, made):
        differences, doubts = _judge_capture(changes, made)
        notes += () if differences else (f"{OWN_RULES}, but for those of the warnings" if doubts else OWN_RULES,)
        return tuple([*differences.values()][:MAX_SHOWN]), tuple([*doubts.values()][:MAX_SHOWN]), notes
    if not any(one.known for one in changes):
        texts = ()
    return (*texts, *[_describe(one, DIFFERENT) for one in changes[:MAX_SHOWN]]), (), notes


def _has_own_effect(rules: PodRules, target: SettledOptions, made: Plan) -> bool:
    """Whether our rules, without texts that differ, treat packets as planned, so that whatever differs is because of foreign rules."""
    if rules.place != FIRST_WITH[TABLES_OF_OUR_OWN]:
        return True
    alone = {family: replace(one, foreign=(), unread=()) for family, one in rules.rulesets[rules.place].items()}
    with suppress(TooManyPartsError):
        return not find_changes_of_fate(_planned(rules, target, made).rules, replace(rules, rulesets={rules.place: alone}))
    return False


def _judge_capture(
    changes: Sequence[FateChange], made: Plan, order: str = ""
) -> tuple[dict[tuple[object, ...], Difference], dict[tuple[object, ...], str]]:
    """Differences and doubts of packets that the plan, `made`, or the rules capture, not both alike; `order`: of the rules."""
    differences: dict[tuple[object, ...], Difference] = {}
    doubts: dict[tuple[object, ...], str] = {}
    for change in changes:
        likely = [region for each in change.regions if (region := each & _ordinary(each.space))]
        before, after = change.ends
        if CAPTURED not in (before[0], after[0]) or before == after or not likely:
            continue
        plain = [region for each in likely if (region := each & unmarked(each.space))]
        others = plain or [region for each in likely if (region := each - own_marks(made, each.space))]
        likely = others or likely
        found = _describe(replace(change, regions=tuple(likely)), ESCAPING if before[0] == CAPTURED else DIFFERENT)
        key = (change.direction, change.who, change.ends, change.why)
        if not others or (change.never_passes and NOT_FORWARDED not in change.after):
            sender = "" if others else " (the mark is netinit's own, and only a process with CAP_NET_ADMIN or CAP_NET_RAW can send it)"
            doubts.setdefault(key, f"{found.rule}{sender}: {found.purpose}{order}; {found.origin}")
        else:
            differences.setdefault(key, found.replace(purpose=f"{found.purpose}{order}"))
    return differences, doubts


def _judge_beside(source: RuleSource, later: RuleSource, target: SettledOptions, made: Plan) -> Judged:
    """Whether every packet that the plan captures alone is captured beside the foreign rules, whichever come first."""
    differences: dict[tuple[object, ...], Difference] = {}
    doubts: dict[tuple[object, ...], str] = {}
    for one, order in ((source, "these rules are there first"), (later, "these rules are appended to its chains later")):
        try:
            changes = [each for each in find_changes_of_fate(_planned(one.rules, target).rules, one.rules) if not each.unseen]
        except TooManyPartsError as error:
            return (_not_proved(error),), (), ()
        found, doubted = _judge_capture(changes, made, f", where {order}")
        differences = {**found, **differences}
        doubts = {**doubted, **doubts}
    note = f"{BESIDE}, but for those of the warnings" if doubts else BESIDE
    return tuple([*differences.values()][:MAX_SHOWN]), tuple([*doubts.values()][:MAX_SHOWN]), () if differences else (note,)


def _ordinary(space: Space) -> Region:
    """What an ordinary socket sends from an address of the pod, and what comes in for one: new connections without marks of others."""
    ours = local(space, Dim.SOURCE if space.direction == OUTBOUND else Dim.DESTINATION)
    marks = marked(space, Dim.CONNECTION_MARK, 0, FULL_MASK) if space.direction == OUTBOUND else unmarked(space)
    return in_states(space, (CtState.NEW,)) & ours & marks - martians(space)


def _not_proved(error: TooManyPartsError) -> Difference:
    return Difference(kind="unknown", where="rules", rule=f"{NOT_PROVED}: {error}")


def _describe(change: FateChange, kind: str) -> Difference:
    """A difference that says which packets, how the plan treats them, and how the rules do."""
    because = f", because {change.why[1]}" if change.why[1] and change.why[1] not in change.after else ""
    doubt = "" if change.known else "perhaps "
    example = format_example(*example_of(change.regions[0]))
    who = shorten("; ".join(change.who), MAX_LINE_LENGTH // 2)
    text = f"planned {change.before}, but {doubt}{change.after}{because}"
    return Difference(kind=kind, where=change.direction, rule=who, purpose=text, origin=f"for example {example}")


# ---- texts -----------------------------------------------------------------------------------------------------------------


def _find_texts(rules: PodRules, made: Plan, family: Family) -> Iterator[Difference]:
    """Rules that are missing, extra or moved; foreign rules in built-in chains are none of them."""
    if rules.place == FIRST_WITH[TABLES_OF_OUR_OWN]:  # which has one rule for a list, and not one for each element
        return
    found = rules.rulesets.get(rules.place, {}).get(family) or Ruleset(family)
    planned = load_plan(made, family)
    for table in dict.fromkeys([*planned.tables, *found.tables]):
        wanted, live = planned.tables.get(table, {}), found.tables.get(table, {})
        for chain in dict.fromkeys([*wanted, *[name for name in live if name in OWNED_CHAINS or name in BUILTIN_CHAINS]]):
            own = wanted[chain].rules if chain in wanted else ()
            there = live[chain].rules if chain in live else ()
            if chain in BUILTIN_CHAINS:
                there = tuple([one for one in there if is_ours(one)])
            if not any(_has_unknown(one) for one in there):
                yield from _compare(family, table, chain, own, there)


def _has_unknown(one: LoadedRule) -> bool:
    return isinstance(one.rule.target, UnknownTarget) or any(isinstance(match, UnknownMatch) for match in one.rule.matches)


def _compare(
    family: Family, table: str, chain: str, own: Sequence[LoadedRule], there: Sequence[LoadedRule]
) -> Iterator[Difference]:
    missing, extra = align(*[[normalise_rule(one.rule) for one in rules] for rules in (own, there)])
    for index, moved_from in missing:
        kind, number = (MISSING, index + 1) if moved_from is None else (MOVED, there[moved_from].number)
        one = own[index]
        origin = one.origin.label if one.origin else ""
        yield Difference(
            kind=kind, where=family.name, table=table, chain=chain, number=number, rule=one.bare_text,
            purpose=one.purpose, origin=origin,
        )  # fmt: skip
    for index in extra:
        one = there[index]
        yield Difference(
            kind=EXTRA, where=family.name, table=table, chain=chain, number=one.number, rule=one.bare_text, comment=one.comment
        )
