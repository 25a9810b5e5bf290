"""What lint says of options, and of the pods of manifests: findings with their codes, and the fewest options of equal effect. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from netinit.base.errors import ParseError
from netinit.base.findings import FindingKind
from netinit.base.json_answers import with_version
from netinit.base.sanitize import Lines, lines, shorten
from netinit.base.tables import count
from netinit.inject.deciding.manifest_places import UNKNOWN
from netinit.inject.deciding.manifest_survey import FileSurvey
from netinit.inject.deciding.podfile import PodFacts
from netinit.options import Options, SettledOptions, offline
from netinit.options.command_line import write_command
from netinit.questions.findings import (
    ERROR,
    EXPLAINED,
    NOTE,
    UNCAPTURED_IPV6,
    WARNING,
    Issue,
    format_issue,
    list_doubts,
    place_issues,
    to_object,
    without_ignored,
)
from netinit.questions.lint import NO_EFFECT, Finding, lint
from netinit.questions.option_names import is_of_injection, name_options, translate
from netinit.questions.rule_sources import ReadServers, RuleSource, complete_servers
from netinit.questions.several_pods import list_some, name_pods

DNS_INCOMPLETE = FindingKind(
    "NI011", "dns-incomplete",
    "Not all name servers of the pod are known, so queries to the others are not captured.",
)


@dataclass(frozen=True, slots=True)
class LintReport:
    """The findings of each pod, or of options alone, accepted ones included.

    `pods`: the names of all pods; empty for options. `linted`: for `minimal`, the options that program rules, by pod. `notes`:
    where the options come from. `passed`: which files held nothing to check, in words; None without files.
    """

    issues: tuple[Issue, ...]
    pods: tuple[str, ...] = ()
    linted: tuple[tuple[str, SettledOptions], ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    passed: str | None = None

    @property
    def errors(self) -> tuple[Issue, ...]:
        """The findings that are errors and not accepted."""
        return tuple([one for one in self.issues if one.severity == ERROR and not one.accepted])

    @property
    def text(self) -> Lines:
        """What `netinit lint` prints."""
        return render_text(self.issues, self.pods or [""], self.passed)

    @property
    def minimal(self) -> Lines:
        """What `netinit lint --minimal` prints: the fewest options under which no packet is treated differently, proved."""
        return lines([line for one in self.linted for line in _format_minimal(*one)])

    def to_object(self) -> dict[str, Any]:
        """What `netinit lint --json` prints: netinit/data/findings.schema.json describes it."""
        return with_version({"findings": [to_object(one) for one in self.issues]})


def examine_options(options: Options, accepted: Mapping[str, str], read_servers: ReadServers = tuple) -> LintReport:
    """Check options alone, with the name servers of `read_servers` if they need any; `accepted` has codes with reasons."""
    issues = without_ignored(_to_issues(lint_options(options, read_servers=read_servers)), accepted, {})
    return LintReport(tuple(issues), linted=(("", options.settle(offline(read_servers=read_servers))),))


def examine_rules(source: RuleSource, accepted: Mapping[str, str]) -> LintReport:
    """Check the options that a dump's rules show; `accepted` has codes with reasons. Raises ParseError if they show none."""
    shown = source.rules.made_by
    if shown is None:
        raise ParseError(f"{shorten(source.name)}: its rules show no options of netinit or Istio, so there is nothing to check")
    report = examine_options(shown.given, accepted, lambda: shown.dns_servers)
    return replace(report, notes=source.notes)


def examine_pods(pods: Sequence[PodFacts], options: Options, accepted: Mapping[str, str]) -> LintReport:
    """Check pods of manifests; of the options, they take the name servers they need. `accepted` has codes with reasons."""
    ask = cache(lint_options)  # most pods of a repository have the same options
    issues = [*[one for facts in pods for one in lint_pod(options, facts, accepted, ask)], *list_doubts(pods, accepted)]
    linted = [(facts.name, complete_servers(facts, options).written_options.settle(offline())) for facts in pods if facts.programs]
    return LintReport(tuple(issues), tuple([facts.name for facts in pods]), tuple(linted))


def examine_files(found: FileSurvey, options: Options, accepted: Mapping[str, str]) -> LintReport:
    """Check the pods of files, and list what else is wrong with the files; `accepted` has codes with reasons."""
    placed = place_issues(found.findings, accepted)
    errors, notes = ([one for one in placed if (one.severity == NOTE) is is_note] for is_note in (False, True))
    of_pods = examine_pods(found.pods, options, accepted)
    refused = dict.fromkeys([one.pod for one in placed if one.pod])
    issues, names = (*errors, *of_pods.issues, *notes), (*refused, *of_pods.pods)
    return replace(of_pods, issues=issues, pods=names, passed=found.summary)


def lint_options(
    options: Options, has_tunnel: bool | None = None, addresses: Sequence[str] = (), read_servers: ReadServers = tuple
) -> tuple[Finding, ...]:
    """Check options without a pod; known are at most its addresses and name servers and whether its proxy has a tunnel."""
    settled = options.settle(offline(addresses, read_servers))
    uncaptured = [Finding(WARNING, UNCAPTURED_IPV6, "--ipv6", text) for text in settled.warnings[-1:] if settled.second_address]
    return (*lint(settled, given=options, has_tunnel=has_tunnel), *uncaptured)


LintOptions = Callable[[Options, bool | None, Sequence[str]], tuple[Finding, ...]]


def lint_pod(options: Options, facts: PodFacts, accepted: Mapping[str, str], ask: LintOptions = lint_options) -> list[Issue]:
    """Check a pod of a manifest, together with its init container's options; `accepted` has codes with reasons.

    Options are named as the pod's author does. `ask` checks options, and may know the answer.
    """
    complete = complete_servers(facts, options)
    needed = ask(complete.options, facts.has_tunnel, facts.addresses) if facts.programs and not facts.host_network else ()
    needed = tuple([one for one in needed if one.kind != NO_EFFECT or not is_of_injection(one.option, facts)])
    if complete.notes != facts.notes:  # not all of its servers were named
        needed = tuple([one for one in needed if (one.kind, one.option) != (NO_EFFECT, "--redirect-dns")])
        kind = DNS_INCOMPLETE if complete.options.dns_servers else NO_EFFECT
        needed += (Finding(WARNING, kind, "--redirect-dns", complete.notes[-1]),)
    names = name_options(facts) if needed else {}
    pod, file, place = facts.name, facts.file, facts.place
    issues = []
    for one in facts.findings:
        at = place.of_finding(one) if place else UNKNOWN
        issues.append(Issue(one.kind, one.severity, one.subject, str(one), pod, file, "", *at))
    for other in needed:
        at = place.of_option(other.option) if place else UNKNOWN
        option, message = translate(other.option, names), translate(other.message, names)
        issues.append(Issue(other.kind, other.severity, option, message, pod, file, "", *at))
    return without_ignored(sorted(issues, key=lambda one: one.severity != ERROR), accepted, facts.accepted)


def _format_minimal(name: str, options: SettledOptions) -> list[str]:
    """The shortest equivalent command line, below the pod's name."""
    from netinit.questions.lint.effect_proof import minimise  # imports the symbolic engine

    return [*([f"# {name}"] if name else []), write_command(minimise(options).given)]


def _to_issues(findings: Iterable[Finding]) -> list[Issue]:
    return [Issue(one.kind, one.severity, one.option, one.message) for one in findings]


def _group(issues: Iterable[Issue]) -> list[tuple[list[str], list[tuple[Issue, ...]]]]:
    """Pods with the same findings, in the order of the first ones; for each finding, that of every pod."""
    by_pod: dict[tuple[str, str], list[Issue]] = {}
    for one in issues:
        by_pod.setdefault((one.pod, one.file), []).append(one)
    alike: dict[tuple[tuple[str, str, str], ...], list[list[Issue]]] = {}
    for found in by_pod.values():
        key = tuple([(one.severity, one.code, one.text) for one in found])
        alike.setdefault(key, []).append(found)
    return [([found[0].pod for found in several], list(zip(*several, strict=True))) for several in alike.values()]


def render_text(issues: Sequence[Issue], pods: Sequence[str], passed: str | None = None) -> Lines:
    """Format a line per finding that counts, once for all pods with the same ones, and a summary. `passed`: see LintReport."""
    counted = [one for one in issues if not one.accepted]
    printed = [format_issue(one) for one in counted if one.severity != NOTE and not one.pod]
    for names, alike in _group(one for one in counted if one.pod):
        printed.append(name_pods(names))
        for several in alike:
            one_place = several[0].line and len(several) == 1
            said = replace(several[0], pod="") if one_place else replace(several[0], pod="", file="", line=0, column=0)
            printed.append(f"  {format_issue(said)}")
            places = [one.place for one in several if one.line and len(several) > 1]
            printed += [f"    at: {list_some(places)}"] if places else []
    printed += [format_issue(one) for one in counted if one.severity == NOTE and not one.pod]
    if passed is not None and not issues and not any(pods):
        return lines([f"nothing to check: {passed}"])
    errors, warnings, notes = (sum(one.severity == severity for one in counted) for severity in (ERROR, WARNING, NOTE))
    where = f" in {count(len(pods), 'pod')}" if any(pods) else ""
    found = [count(errors, "error"), count(warnings, "warning"), *([count(notes, "note")] if notes else [])]
    summary = ", ".join(found) if counted else "no problems found"
    accepted = f", {len(issues) - len(counted)} accepted" if len(issues) > len(counted) else ""
    besides = f"; {passed}" if passed else ""
    return lines([*printed, f"{summary}{where}{accepted}{besides}{f'; {EXPLAINED}' if counted else ''}"])
