"""The results of an audit as values shared by all output formats; JSON is these values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netinit.base.errors import OptionError
from netinit.base.findings import FindingKind
from netinit.base.json_answers import with_version
from netinit.base.sanitize import Lines, lines, split_message
from netinit.base.tables import count
from netinit.inject.deciding.manifest_places import UNKNOWN, Position
from netinit.inject.deciding.manifest_survey import FileSurvey
from netinit.inject.deciding.podfile import PodFacts
from netinit.inject.deciding.warnings import NOT_PROGRAMMED
from netinit.options.command_line import format_options
from netinit.options.kinds import quote_value
from netinit.questions.answers import shown_steps
from netinit.questions.audit import kinds
from netinit.questions.audit.assertions import Assertion, Ruling, rule_on
from netinit.questions.audit.bypasses import Traffic, audit
from netinit.questions.audit.text import Row, render_text
from netinit.questions.audit.words import format_box
from netinit.questions.findings import (
    ERROR,
    NOTE,
    WARNING,
    Issue,
    format_issue,
    list_doubts,
    place_issues,
    without_ignored,
)
from netinit.questions.findings import to_object as describe_issue
from netinit.questions.rule_sources import RuleSource, list_conditions
from netinit.questions.several_pods import gather
from netinit.simulate.endpoints import format_example, format_packet
from netinit.simulate.examples import example_of
from netinit.simulate.symbolic.boxes import list_boxes

SEVERITIES = {kinds.FOREIGN_RULES: ERROR, kinds.NOT_KNOWN: ERROR, kinds.CONFIGURATION: WARNING, kinds.DESIGN: NOTE}
ASSERTION = FindingKind("NI299", "assertion", "An assertion of --assert is refuted, or cannot be proved.")
UNKNOWN_FAMILIES = FindingKind(
    "NI116", "unknown-families",
    "Whether the cluster's pods have IPv6 addresses is not known, and their IPv6 is not captured if the first "
    "address is IPv4. Say it once: ipFamilies in the file of --settings.",
)
HOLDS = {True: "proved", False: "refuted", None: "unknown"}


@dataclass(frozen=True, slots=True)
class Audited:
    """The results for one pod: its traffic under the rules of `source`, and the rulings on assertions."""

    source: RuleSource
    traffic: tuple[Traffic, ...]
    rulings: tuple[Ruling, ...]

    @property
    def in_doubt(self) -> bool:
        """Whether it is not known that the pod will be injected."""
        return self.source.facts is not None and self.source.facts.in_doubt

    @property
    def accepted(self) -> Mapping[str, str]:
        """The codes of findings that the pod's annotation accepts, with reasons."""
        return self.source.facts.accepted if self.source.facts else {}


def examine(rule_source: RuleSource, assertions: Sequence[Assertion]) -> Audited:
    """Audit one pod. Raises TooManyPartsError."""
    rules = rule_source.rules
    return _describe_source(Audited(rule_source, audit(rules), rule_on(rules, assertions)))


def _describe_source(audited: Audited) -> Audited:
    """Warn where the rules are another mesh's."""
    rules, traffic = audited.source.rules, audited.traffic
    if rules.is_of_another_mesh:
        ports = ", ".join(map(str, sorted({one.port for one in traffic if one.kind is kinds.CAPTURED})))
        whose = f"the rules of {rules.other_mesh}" if rules.other_mesh else "foreign rules"
        text = f"no rules of netinit here: what {whose} redirect to port {ports} counts as captured"
        return replace(audited, source=replace(audited.source, warnings=(*audited.source.warnings, text)))
    return audited


def list_issues(audited: Audited, accepted: Mapping[str, str]) -> list[Issue]:
    """Bypasses that are not by design, and assertions that are not proved; `accepted` has codes with reasons."""
    facts = audited.source.facts
    pod, file = audited.source.name, facts.file if facts else ""
    own = facts.place.own if facts and facts.place else UNKNOWN
    found = []
    for one in audited.traffic:
        if one.kind in kinds.SHOWN and one.kind.finding and not audited.in_doubt:
            text = f"{one.kind.title}: {'; '.join(one.who)}; {one.closes}"
            severity, at = SEVERITIES.get(one.kind.intent, WARNING), _find_setting(facts, one)
            at = at if at != UNKNOWN else own
            found.append(Issue(one.kind.finding, severity, "", text, pod, file, "", *at))
    for ruling in audited.rulings:
        if ruling.holds is not True:
            text = f"{HOLDS[ruling.holds]}: {ruling.assertion.text}"
            found.append(Issue(ASSERTION, ERROR, ruling.assertion.name, text, pod, file, "", *own))
    return without_ignored(found, accepted, audited.accepted)


def _find_setting(facts: PodFacts | None, one: Traffic) -> Position:
    """The line and column of what causes it in the pod's file: the option, or the user of a container."""
    if facts is None or facts.place is None:
        return UNKNOWN
    if one.kind is kinds.SHARED_OWNER and facts.shared_owners:
        return facts.place.of_user(facts.shared_owners[0][0])
    return facts.place.of_setting(one.option) if one.option else UNKNOWN


def fails(audited: Audited, failing: frozenset[str], accepted: Mapping[str, str]) -> bool:
    """Whether traffic of a kind in `failing`, a doubt whether there will be rules, or an unproved assertion, is not accepted."""
    found: list[FindingKind | None]
    if audited.in_doubt:
        found = [NOT_PROGRAMMED] if failing else []
    else:
        found = [one.kind.finding for one in audited.traffic if one.kind.name in failing]
    found += [ASSERTION for one in audited.rulings if one.holds is not True]
    return any(kind is None or kind.code not in {*accepted, *audited.accepted} for kind in found)


def to_object(audited: Audited, *, full: bool, rows: dict[int, list[Row]] | None = None) -> dict[str, Any]:
    """A pod in the form of netinit/data/audit.schema.json. `full`: all traffic, with its packet sets. `rows`: made before."""
    shown = [one for one in audited.traffic if full or one.kind in kinds.SHOWN]
    source, facts, made = audited.source, audited.source.facts, audited.source.rules.made_by
    conditions = list_conditions(facts)
    known = rows if rows is not None else {}
    if id(audited.traffic) not in known:
        known[id(audited.traffic)] = [_row(one, full=full) for one in shown]
    placed = zip(known[id(audited.traffic)], [_find_setting(facts, one) for one in shown], strict=True)
    return {
        "name": source.name, "file": (facts.file if facts else "") or None, "options": format_options(made.given) if made else None,
        "traffic": [{**row, "line": line or None, "column": column or None} for row, (line, column) in placed],
        "assertions": [_ruling(one, conditions) for one in audited.rulings],
        "notes": list(source.notes), "warnings": list(source.warnings),
    }  # fmt: skip


def _row(one: Traffic, *, full: bool) -> Row:
    regions = one.regions
    boxes = [(region.space, [format_box(region.space, box) for box in list_boxes(region)]) for region in regions if full]
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
        "line": None,  # of each pod
        "column": None,
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


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The traffic of each pod that bypasses the proxy, and the rulings on assertions. `full`: also what goes through the proxy.

    `everything`: say why of what is by design, too. `issues`: files and pods that were not audited, and why; `passed`: which files
    held no pod, in words.
    """

    pods: tuple[Audited, ...]
    full: bool = False
    issues: tuple[Issue, ...] = ()
    passed: str = ""
    everything: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the rules come from, except of pods of which that is not known; what several pods have in common is said once."""
        return gather([(one.source.name, one.source.notes) for one in self.pods if not one.in_doubt])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about the rules; what several pods have in common is said once."""
        return gather([(one.source.name, one.source.warnings) for one in self.pods])

    @property
    def is_complete(self) -> bool:
        """Whether every manifest could be read, or what could not is accepted."""
        return not any(one.severity == ERROR and not one.accepted for one in self.issues)

    @property
    def objects(self) -> list[Row]:
        """The pods in the form of JSON, from which all other formats are made."""
        rows: dict[int, list[Row]] = {}  # equal traffic is one object
        return [to_object(one, full=self.full, rows=rows) for one in self.pods]

    @property
    def text(self) -> Lines:
        """What `netinit audit` prints."""
        counted = [one for one in self.issues if not one.accepted]
        before, after = ([format_issue(one) for one in counted if (one.severity != NOTE) is is_first] for is_first in (True, False))
        if self.passed:
            after.append(self.passed if self.pods or self.issues else f"nothing to check: {self.passed}")
        printed = render_text(self.objects, everything=self.everything or self.full) if self.pods else ""
        return lines([*before, *(split_message(printed) if printed else ()), *after])

    def to_object(self) -> Row:
        """What `netinit audit --json` prints: netinit/data/audit.schema.json describes it."""
        return with_version({"pods": self.objects, "findings": [describe_issue(one) for one in self.issues]})


def examine_all(
    sources: Sequence[RuleSource], assertions: Sequence[Assertion] = (), *, full: bool = False, everything: bool = False
) -> AuditReport:
    """Audit each pod; pods with the same rules have the same answers. Raises TooManyPartsError."""
    known: dict[int, Audited] = {}
    found = []
    for one in sources:
        equal = known.get(id(one.rules))
        known[id(one.rules)] = done = _describe_source(replace(equal, source=one)) if equal else examine(one, assertions)
        found.append(done)
    return AuditReport(tuple(found), full, everything=everything)


def _ask_for_families(report: AuditReport, accepted: Mapping[str, str]) -> list[Issue]:
    """One note for all pods of manifests of which it is not known whether they have IPv6, at the file of the first.

    Code scanning refuses a whole SARIF file for one result that is in no file.
    """
    asked = [one for one in report.pods if one.source.facts and any(row.kind is kinds.PERHAPS_IPV6 for row in one.traffic)]
    text = (
        f"{count(len(asked), 'pod')}: IPv6 is not captured where the first address is IPv4, and it is not known whether the cluster "
        "has IPv6; say ipFamilies: [ipv4], or [ipv4, ipv6], in the file of --settings, such as netinit.yaml"
    )
    files = [one.source.facts.file for one in asked if one.source.facts]
    return without_ignored([Issue(UNKNOWN_FAMILIES, NOTE, "", text, file=files[0])] if asked else [], accepted, {})


def with_files(report: AuditReport, found: FileSurvey, accepted: Mapping[str, str]) -> AuditReport:
    """Add the files, and the pods in them, that cannot be audited; `accepted` has codes with reasons."""
    issues = [one for one in place_issues(found.findings, accepted) if one.severity == ERROR or not one.pod]
    issues += list_doubts([one.source.facts for one in report.pods if one.source.facts], accepted)
    issues += _ask_for_families(report, accepted)
    return replace(report, issues=tuple(issues), passed=found.summary)
