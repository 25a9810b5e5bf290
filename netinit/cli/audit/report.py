"""The results of an audit as values shared by all output formats; JSON is these values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netinit.base.errors import OptionError
from netinit.cli.explain import shown_steps
from netinit.cli.findings import CODES, ERROR, NOTE, WARNING, Issue, without_ignored
from netinit.cli.rule_sources import RuleSource, format_options, list_conditions
from netinit.options.kinds import quote_value
from netinit.questions.audit import kinds
from netinit.questions.audit.assertions import Assertion, Ruling, rule_on
from netinit.questions.audit.bypasses import Traffic, audit
from netinit.questions.audit.words import format_box
from netinit.simulate.endpoints import format_example, format_packet
from netinit.simulate.examples import example_of

Row = dict[str, Any]
CAUSES = {  # an intent -> the cause in a sentence
    kinds.FOREIGN_RULES: "because of foreign rules", kinds.NOT_KNOWN: "that cannot be evaluated",
    kinds.CONFIGURATION: "because of the configuration", kinds.DESIGN: "by design",
}  # fmt: skip
SEVERITIES = {kinds.FOREIGN_RULES: ERROR, kinds.NOT_KNOWN: ERROR, kinds.CONFIGURATION: WARNING, kinds.DESIGN: NOTE}
ASSERTION = "assertion"  # kind of an issue
HOLDS = {True: "proved", False: "refuted", None: "unknown"}


@dataclass(frozen=True, slots=True)
class Audited:
    """The results for one pod: its traffic under the rules of `source`, and the rulings on assertions."""

    source: RuleSource
    traffic: tuple[Traffic, ...]
    rulings: tuple[Ruling, ...]

    @property
    def accepted(self) -> Mapping[str, str]:
        """The codes of findings that the pod's annotation accepts, with reasons."""
        return self.source.facts.accepted if self.source.facts else {}


def examine(rule_source: RuleSource, assertions: Sequence[Assertion]) -> Audited:
    """Audit one pod. Raises TooManyPartsError."""
    rules = rule_source.rules
    traffic = audit(rules)
    if rules.is_of_another_mesh:
        ports = ", ".join(map(str, sorted({one.port for one in traffic if one.kind is kinds.CAPTURED})))
        text = f"no rules of netinit here: what foreign rules redirect to port {ports} counts as captured"
        rule_source = replace(rule_source, warnings=(*rule_source.warnings, text))
    return Audited(rule_source, traffic, rule_on(rules, assertions))


def list_issues(audited: Audited, accepted: Mapping[str, str]) -> list[Issue]:
    """Bypasses that are not by design, and assertions that are not proved; `accepted` has codes with reasons."""
    found = [
        Issue(one.kind.name, SEVERITIES[one.kind.intent], "", f"{one.kind.title}: {'; '.join(one.who)}; {one.closes}")
        for one in audited.traffic
        if one.kind in kinds.BYPASSES and one.kind.name in CODES
    ]
    found += [
        Issue(ASSERTION, ERROR, one.assertion.name, f"{HOLDS[one.holds]}: {one.assertion.text}")
        for one in audited.rulings
        if one.holds is not True
    ]
    file = audited.source.facts.file if audited.source.facts else ""
    return without_ignored([replace(one, pod=audited.source.name, file=file) for one in found], accepted, audited.accepted)


def fails(audited: Audited, failing: frozenset[str], accepted: Mapping[str, str]) -> bool:
    """Whether traffic of a kind in `failing`, or an unproved assertion, is not accepted."""
    kinds_found = [one.kind.name for one in audited.traffic if one.kind.name in failing]
    kinds_found += [ASSERTION for one in audited.rulings if one.holds is not True]
    return any(CODES.get(kind) not in {*accepted, *audited.accepted} for kind in kinds_found)


def to_object(audited: Audited, *, full: bool) -> dict[str, Any]:
    """A pod in the form of netinit/data/audit.schema.json. `full`: all traffic, with its packet sets."""
    shown = [one for one in audited.traffic if full or one.kind in kinds.BYPASSES]
    source, made, conditions = audited.source, audited.source.rules.made_by, list_conditions(audited.source.facts)
    return {
        "name": source.name, "options": format_options(made.given) if made else None,
        "traffic": [_row(one, full=full) for one in shown],
        "assertions": [_ruling(one, conditions) for one in audited.rulings],
        "notes": list(source.notes), "warnings": list(source.warnings),
    }  # fmt: skip


def _row(one: Traffic, *, full: bool) -> Row:
    regions = one.regions
    boxes = [(region.space, [format_box(region.space, box) for box in region.boxes]) for region in regions if full]
    sets = [{"family": space.family.name, "direction": space.direction, "boxes": formatted} for space, formatted in boxes]
    return {
        "kind": one.kind.name,
        "by": one.kind.intent,
        "title": one.kind.title,
        "directions": list(one.directions),
        "port": one.port or None,
        "who": list(one.who),
        "because": list(one.because),
        "closes": one.closes,
        "example": format_example(*example_of(regions[0])),
        "packets": str(sum(region.size for region in regions)),
        "sets": sets if full else None,
    }


def _ruling(one: Ruling, conditions: Sequence[str]) -> Row:
    shown = one.counterexample
    return {
        "assertion": one.assertion.text, "name": one.assertion.name, "line": one.assertion.line or None,
        "result": HOLDS[one.holds], "about": str(one.packets), "unless": list(conditions) if one.holds else [],
        "counterexample": shown and {
            "packet": format_packet(shown.trace.first),
            "sentence": shown.sentence,
            "path": [
                f"{step.hook} {step.table} {step.chain} {step.rule.number}: {step.rule.bare_text}" if step.rule else step.outcome
                for step in shown_steps(shown, everything=False)
            ],
        },
        "cures": [{"change": change, "verdict": verdict} for change, verdict in one.cures],
    }  # fmt: skip


def read_fail_on(texts: Sequence[str]) -> frozenset[str]:
    """The kinds named by --fail-on, each `bypass[:class]`, where a class is a kind or a cause. Raises OptionError."""
    found: set[str] = set()
    classes: dict[str, tuple[str, ...]] = {kind.name: (kind.name,) for kind in kinds.BYPASSES}
    classes |= {intent: tuple(one.name for one in kinds.BYPASSES if one.intent == intent) for intent in kinds.INTENTS}
    for text in texts:
        word, colon, name = text.partition(":")
        if word != "bypass" or (colon and name not in classes):
            known = ", ".join(sorted(classes))
            raise OptionError(f"--fail-on: {quote_value(text)} is neither bypass nor bypass:CLASS, with CLASS one of {known}")
        found.update(classes[name] if colon else [one.name for one in kinds.BYPASSES if one.intent != kinds.DESIGN])
    return frozenset(found)


def summarise(found: dict[str, Any]) -> str:
    """The first line of a pod's report: how many kinds of traffic bypass the proxy, by cause."""
    rows = [row for row in found["traffic"] if row["by"] in CAUSES]
    counts = [f"{number} {CAUSES[word]}" for word in CAUSES if (number := sum(row["by"] == word for row in rows))]
    kinds_of = "1 kind of traffic bypasses" if len(rows) == 1 else f"{len(rows)} kinds of traffic bypass"
    return f"{kinds_of} the proxy: {', '.join(counts)}" if rows else "all traffic goes through the proxy"
