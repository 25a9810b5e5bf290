"""What `netinit check` says of a repository: the findings of lint and audit together, less those of a baseline. Pure.

A baseline has the findings that a repository accepts for now, so that a gate stops at new ones. Its entries name the file, the pod,
the code and the text; lines are not among them, so that an edit elsewhere in the file changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from netinit.base.errors import OptionError
from netinit.base.findings import FindingKind
from netinit.base.json_answers import with_version
from netinit.base.sanitize import Lines, escape, lines, shorten
from netinit.base.tables import count
from netinit.inject.deciding.warnings import NOT_PROGRAMMED
from netinit.options.kinds import quote_value
from netinit.questions.audit.report import ASSERTION, AuditReport, list_issues
from netinit.questions.finding_codes import all_kinds
from netinit.questions.findings import ERROR, EXPLAINED, NOTE, WARNING, Issue, format_issue, to_object
from netinit.questions.lint.report import LintReport
from netinit.questions.several_pods import list_some, name_pods

FAILED_TRAFFIC, FAILED, PASSED = 4, 1, 0  # exit codes, as of audit and of lint
STALE = FindingKind(
    "NI117", "stale-baseline",
    "A finding of the baseline no longer occurs. Delete its entry, or write a new baseline.",
)
_FORMAT = 1
_HEAD = """\
# Findings that are accepted for now: `netinit check` fails for others. Delete what is fixed; --write-baseline rewrites the file.
"""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A finding of a baseline; `file` is relative to the folder of the baseline."""

    file: str
    pod: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings in a repository, accepted ones included, those that fail first.

    `pods`: names of all. `failing`: kinds of traffic that fail; `strict`: so do warnings. `passed`: which files held nothing to
    check, in words. `notes`: where the settings come from.
    """

    issues: tuple[Issue, ...]
    pods: tuple[str, ...]
    failing: frozenset[str]
    strict: bool = False
    passed: str = ""
    notes: tuple[str, ...] = ()

    def fails(self, one: Issue) -> bool:
        """Whether a finding fails the check."""
        failing = {ERROR, WARNING} if self.strict else {ERROR}
        return not one.accepted and (one.severity in failing or self._is_failing_traffic(one))

    def _is_failing_traffic(self, one: Issue) -> bool:
        return one.kind.name in self.failing or one.kind == ASSERTION or (one.kind == NOT_PROGRAMMED and bool(self.failing))

    @property
    def exit_code(self) -> int:
        """0; 1 for errors of lint or files; 4 for traffic, as audit has it."""
        failed = [one for one in self.issues if self.fails(one)]
        if any(self._is_failing_traffic(one) for one in failed):
            return FAILED_TRAFFIC
        return FAILED if failed else PASSED

    @property
    def text(self) -> Lines:
        """What `netinit check` prints: a summary, then each finding once with its pods, what fails first."""
        return lines([*self._summarise(), *self._list()])

    def _summarise(self) -> list[str]:
        counted = [one for one in self.issues if not one.accepted]
        failed = sum(map(self.fails, counted))
        others = sum(not self.fails(one) and one.severity != NOTE for one in counted)
        accepted = len(self.issues) - len(counted)
        said = [f"{count(failed, 'finding')} to act on" if failed else "nothing to act on"]
        said += [count(others, "warning")] if others else []
        said += [f"{accepted} accepted"] if accepted else []
        where = count(len(self.pods), "pod") if self.pods else "no pod"
        first = f"{'✘' if failed else '✔'} {where}: {', '.join(said)}{f'; {self.passed}' if self.passed else ''}"
        return [first, *([f"  {EXPLAINED}"] if counted else [])]

    def _list(self) -> list[str]:
        found: dict[tuple[bool, str, str, str], list[Issue]] = {}
        for one in self.issues:
            if not one.accepted:
                found.setdefault((self.fails(one), one.severity, one.code, one.text), []).append(one)
        printed = []
        for (failed, severity, code, text), alike in sorted(found.items(), key=lambda one: _rank(*one[0][:2])):
            sign = "✘" if failed else "·" if severity == NOTE else "!"
            pods = [one.pod for one in alike if one.pod]
            if not pods or len(alike) == 1:
                printed += [f"{sign} {format_issue(one)}" for one in alike]
            else:
                places = [one.place for one in alike if one.line]
                printed += [f"{sign} {severity} {code}: {text}", f"    in {name_pods(pods)}"]
                printed += [f"    at: {list_some(places)}"] if places else []
        return printed

    def to_object(self) -> dict[str, Any]:
        """What `netinit check --json` prints: netinit/data/findings.schema.json describes it."""
        return with_version({"findings": [to_object(one) for one in self.issues]})


def _rank(failed: bool, severity: str) -> tuple[bool, int]:
    return not failed, (ERROR, WARNING, NOTE).index(severity)


def examine_repository(
    linted: LintReport, audited: AuditReport, accepted: Mapping[str, str], failing: frozenset[str], *, strict: bool = False
) -> CheckReport:
    """Join what lint and audit say of the same pods. `accepted`: codes with reasons; `failing`: kinds of traffic."""
    of_traffic = [issue for one in audited.pods for issue in list_issues(one, accepted)]
    known = set(linted.issues)
    issues = (*linted.issues, *of_traffic, *[one for one in audited.issues if one not in known])
    return CheckReport(issues, linted.pods, failing, strict, linted.passed or "")


def with_baseline(
    report: CheckReport, entries: Iterable[Entry], name: str, relate: Mapping[str, str], gone: Iterable[str]
) -> CheckReport:
    """Accept the findings of a baseline, and note its entries that no longer occur.

    `relate`: the files that were read, with their names in the baseline; `gone`: files of entries that do not exist any more.
    """
    known = set(entries)
    seen = {_entry(one, relate) for one in report.issues}
    reason = f"in the baseline {shorten(name)}"
    issues = [replace(one, accepted=reason) if not one.accepted and _entry(one, relate) in known else one for one in report.issues]
    read, missing = {relate[file]: file for file in relate}, set(gone)
    for one in sorted(known - seen):
        if one.file in read or one.file in missing or not one.file:
            text = f"{one.code} of the baseline no longer occurs ({shorten(one.text)}); delete the entry"
            issues.append(Issue(STALE, NOTE, "", text, one.pod, read.get(one.file, one.file)))
    return replace(report, issues=tuple(issues))


def make_baseline(report: CheckReport, kept: Iterable[Entry], relate: Mapping[str, str], gone: Iterable[str]) -> str:
    """Write the findings that are not accepted otherwise, and the entries `kept` for files that were not read, as a file."""
    read = {*relate.values(), *gone, ""}
    found = {_entry(one, relate) for one in report.issues if one.severity != NOTE and not one.accepted}
    found |= {one for one in kept if one.file not in read}
    printed = [f"{_HEAD}version: {_FORMAT}\n", "findings:\n" if found else "findings: []\n"]
    for one in sorted(found):
        rows = [(name, getattr(one, name)) for name in Entry.__slots__ if getattr(one, name)]
        fields = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in rows]
        printed.append("- " + "\n  ".join(fields) + "\n")
    return "".join(printed)


def read_baseline(tree: Any, name: str) -> tuple[Entry, ...]:
    """Read the entries of a parsed file. Raises OptionError with the entry."""
    where = f"--baseline: {quote_value(name)}"
    if not isinstance(tree, dict) or tree.get("version") != _FORMAT or not isinstance(tree.get("findings"), list):
        raise OptionError(f"{where} is not a baseline: it needs version: {_FORMAT} and findings; write one with --write-baseline")
    found = []
    for number, one in enumerate(tree["findings"], 1):
        fields = one if isinstance(one, dict) else {}
        texts = {key: value for key, value in fields.items() if isinstance(value, str) and key in Entry.__slots__}
        if len(texts) != len(fields) or not texts.get("text") or texts.get("code") not in all_kinds():
            raise OptionError(f"{where}: entry {number} is not a finding: write file, pod, code and text, as --write-baseline does")
        found.append(Entry(**{"file": "", "pod": "", **texts}))
    return tuple(found)


def _entry(one: Issue, relate: Mapping[str, str]) -> Entry:
    return Entry(relate.get(one.file, one.file), escape(one.pod), one.code, escape(one.text))
