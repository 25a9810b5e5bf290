"""Packets that two sets of rules treat differently: of options, pods in manifests, dumps of rules, live rules. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.json_answers import with_version
from netinit.base.sanitize import Lines, lines
from netinit.base.snapshot import Snapshot
from netinit.base.tables import count
from netinit.inject.deciding.podfile import PodFacts
from netinit.live.in_force import ForceCheck
from netinit.live.snapshot_rules import SOURCES
from netinit.options import Options
from netinit.options.kinds import quote_value
from netinit.questions.audit.changes import FateChange, find_changes_of_fate
from netinit.questions.rule_sources import PLAN, RuleSource, find_planned
from netinit.rules.layouts import plan
from netinit.rules.model import DEVICES, ROUTING, Plan
from netinit.simulate.endpoints import format_example
from netinit.simulate.examples import example_of
from netinit.simulate.ruleset import load_plan

THIS_HOST = "both are compared on the devices and routes that the pod has now"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=")  # precedes a command, as in a shell; audit prints options without a flag this way
PROGRAMS = ("netinit", "apply", "istio-iptables")


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sets of rules with a common name; a side that lacks it is None."""

    name: str
    before: RuleSource | None
    after: RuleSource | None
    routing: tuple[str, ...] = ()  # traffic that devices and routes of the live host divert from the proxy
    changes: tuple[FateChange, ...] = ()  # what `compare` found
    unseen: tuple[FateChange, ...] = ()  # beside them, what nobody can send or see

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the rules come from."""
        return tuple([text for one in (self.before, self.after) if one for text in one.notes])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about the rules."""
        return tuple([text for one in (self.before, self.after) if one for text in one.warnings])

    @property
    def result(self) -> str:
        """Equal, which is a proof, different, unknown, or on which side alone the pod is."""
        if self.before is None or self.after is None:
            return ONLY_BEFORE if self.after is None else ONLY_AFTER
        return DIFFERENT if any(one.known for one in self.changes) else UNKNOWN if self.changes or self.routing else EQUAL


def pair_pods(before: Mapping[str, RuleSource], after: Mapping[str, RuleSource]) -> list[Compared]:
    """Pair the pods of two manifests by name."""
    if len(before) == len(after) == 1 and before.keys() != after.keys():  # one pod each: compare them despite their names
        (was, one), (now, other) = *before.items(), *after.items()
        return [Compared(f"{was} and {now}", one, other)]
    return [Compared(name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]


def plan_by_name(pods: Sequence[PodFacts], file: str) -> dict[str, RuleSource]:
    """The planned rules of a file's pods by their names. Raises OptionError for a name that occurs twice."""
    found = {facts.name: facts for facts in pods}
    if len(found) < len(pods):
        twice = next(facts.name for facts in pods if sum(facts.name == one.name for one in pods) > 1)
        raise OptionError(
            f"{quote_value(file)}: {twice} occurs twice; diff pairs pods by name: rename one, or use a file"
        )
    return {name: find_planned(facts=facts) for name, facts in found.items()}


def on_common_host(name: str, before: RuleSource, after: RuleSource, live: RuleSource | None) -> Compared:
    """Both sides on the host of the live rules, if there are any, and in their common families: a listing may cover one only."""
    old, new = before.rules, after.rules
    if live:
        old, new = (one.on_host(live.rules.hosts, routes_known=live.rules.routes_known) for one in (old, new))
    both = {family: one for family, one in new.hosts.items() if family in old.hosts}
    if not both:
        raise OptionError("diff: one side has only IPv4 rules, the other IPv6; save those of the same family")
    new = new.on_host(both, routes_known=new.routes_known)
    return Compared(name, replace(before, rules=old), replace(after, rules=new))


def read_written_options(side: str, environ: Mapping[str, str]) -> Options:
    """The options of a side that is a command line, such as `apply -b 8080`; variables may precede it. Raises OptionError."""
    try:
        words = shlex.split(side)
    except ValueError as error:
        raise OptionError(f"{quote_value(side)}: {error}") from None
    given: dict[str, str] = {}
    while words and _VARIABLE.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        given[name] = value
    if not words or words[0] not in PROGRAMS:
        what = "is neither a file nor options: name a file, write options as 'apply -b 8080', or give live"
        raise OptionError(f"{quote_value(side)} {what}")
    while words and words[0] in PROGRAMS:
        del words[0]
    return Options.from_argv(words, {**environ, **given})


def find_diversions(snapshot: Snapshot, plan: Plan, backend: str) -> tuple[str, ...]:
    """What devices and routes divert or drop, which the rules do not show."""
    checks = ForceCheck(snapshot, plan, SOURCES[backend])
    found = [one.describe() for one in checks.check()[0] if one.where == DEVICES or one.table == ROUTING]
    return (*found, *checks.losses())


def compare_with_plan(rule_source: RuleSource, *, known: bool) -> Compared:
    """Live rules beside the plan of the options that they should have, or of those inferred from them.

    `known`: somebody named these options. Raises ParseError if the rules show none.
    """
    live = rule_source.rules
    target = live.wanted or live.made_by
    if target is None:
        raise ParseError("no options were given, and the rules do not show any: give them, or the pod with --pod")
    made = plan(target)
    rulesets = {PLAN: {family: load_plan(made, family) for family in live.surroundings}}
    planned = RuleSource(PLAN, replace(live, rulesets=rulesets, options={PLAN: target}), notes=(THIS_HOST,))
    shown = "the plan of the options that the rules show" if live.wanted is None else "the plan of the recorded options"
    found = find_diversions(live.snapshot, made, live.place) if live.snapshot and live.options else ()
    return Compared(f"{'the plan' if known else shown} and the live rules", planned, rule_source, found)


@dataclass(frozen=True, slots=True)
class DiffReport:
    """What differs in each pair. `full`: show every kind of packet that is treated differently."""

    pairs: tuple[Compared, ...]
    full: bool = False

    @property
    def equal(self) -> bool:
        """Whether it is proved that no packet is treated differently."""
        return all(pair.result == EQUAL for pair in self.pairs)

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the rules come from."""
        return tuple([text for pair in self.pairs for text in pair.notes])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about the rules."""
        return tuple([text for pair in self.pairs for text in pair.warnings])

    @property
    def text(self) -> Lines:
        """What `netinit diff` prints."""
        return render_text([to_object(pair) for pair in self.pairs], full=self.full)

    def to_object(self) -> dict[str, Any]:
        """What `netinit diff --json` prints."""
        return with_version({"compared": [to_object(pair) for pair in self.pairs]})


def compare(pair: Compared) -> Compared:
    """The pair with all packets that its sides treat differently. Raises TooManyPartsError."""
    if pair.before is None or pair.after is None:
        return pair
    before, after = pair.before.rules, pair.after.rules
    if all(one.facts and one.facts.in_doubt for one in (pair.before, pair.after)):  # the same becomes of both
        before, after = before.without_doubt(), after.without_doubt()
    found = find_changes_of_fate(before, after)
    seen, unseen = (tuple([one for one in found if bool(one.unseen) is hidden]) for hidden in (False, True))
    return replace(pair, changes=seen, unseen=unseen)


def compare_all(pairs: Sequence[Compared], *, full: bool = False) -> DiffReport:
    """Compare all packets under the rules of each pair. Raises TooManyPartsError."""
    return DiffReport(tuple([compare(pair) for pair in pairs]), full)


EQUAL, DIFFERENT, UNKNOWN, ONLY_BEFORE, ONLY_AFTER = "equal", "different", "unknown", "only before", "only after"
MAX_SHOWN = 8  # kinds of packets
PROVED = "no packet is treated differently: proved for all packets"


def to_object(pair: Compared) -> dict[str, Any]:
    """A pair that was compared in the form of netinit/data/diff.schema.json."""
    found: dict[str, Any] = {
        "name": pair.name, "notes": list(pair.notes), "warnings": list(pair.warnings), "families": [], "result": pair.result,
    }  # fmt: skip
    if pair.before is None or pair.after is None:
        return found | {"differences": []}
    return found | {
        "families": [family.name for family in pair.after.rules.hosts], "routing": list(pair.routing),
        "differences": [_change(one) for one in pair.changes],
        "unseen": [{**_change(one), "unseen": one.unseen} for one in pair.unseen],
    }  # fmt: skip


def _change(one: FateChange) -> dict[str, Any]:
    return {
        "direction": one.direction, "known": one.known, "who": list(one.who), "before": one.before, "after": one.after,
        "because_before": one.why[0], "because_after": one.why[1],
        "packets": str(sum(region.size for region in one.regions)),
        "example": format_example(*example_of(one.regions[0])),
    }  # fmt: skip


def render_text(pairs: Sequence[dict[str, Any]], *, full: bool) -> Lines:
    """Format the pairs, abbreviated unless `full`, with a summary line for each if there are several."""
    printed: list[str] = []
    for pair in pairs:
        shown = pair["differences"] if full else pair["differences"][:MAX_SHOWN]
        left = len(pair["differences"]) - len(shown)
        printed += [_summarize(pair), *[f"  {text}" for text in pair.get("routing", ())]]
        unseen = Counter(one["unseen"] for one in pair.get("unseen", ()))
        printed += [f"  not counted: {count(number, 'kind')} of packets {why}" for why, number in unseen.items()]
        printed += [line for one in shown for line in _describe_change(one)]
        printed += [f"  and {count(left, 'kind')} more, of packets that are less ordinary (--full shows all)"] * bool(left)
    if len(pairs) > 1:
        equal = sum(pair["result"] == EQUAL for pair in pairs)
        printed.append(f"{count(len(pairs), 'pod')}: {equal} equal, {len(pairs) - equal} not")
    return lines(printed)


def _summarize(pair: dict[str, Any]) -> str:
    name, number = pair["name"], len(pair["differences"])
    if pair["result"] == EQUAL:
        return f"= {name}: {PROVED} of {' and '.join(pair['families'])}, in and out"
    if pair["result"] == UNKNOWN and not number:
        return f"? {name}: the rules treat no packet differently, but routing differs from what the plan expects"
    if pair["result"] == UNKNOWN:
        return f"? {name}: it is unknown whether {count(number, 'kind')} of packets are treated differently; no other is"
    if pair["result"] == DIFFERENT:
        return f"≠ {name}: {count(number, 'kind')} of packets {'is' if number == 1 else 'are'} treated differently"
    return f"{'-' if pair['result'] == ONLY_BEFORE else '+'} {name}: {pair['result']}"


def _describe_change(one: dict[str, Any]) -> list[str]:
    printed = [f"  {who}" for who in one["who"]]
    for when in ("before", "after"):
        because = f", because {one[f'because_{when}']}" if one[f"because_{when}"] else ""
        printed.append(f"    {when + ':':<8}{one[when]}{because}")
    return [*printed, f"    example: {one['example']}"]
