"""Findings of lint and audit with their stable codes, and which of them are accepted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netinit.base.documentation import address_of
from netinit.base.findings import FindingKind
from netinit.base.sanitize import quote
from netinit.base.tables import count
from netinit.inject.deciding.manifest_places import UNKNOWN
from netinit.inject.deciding.manifest_survey import PlacedFinding
from netinit.inject.deciding.podfile import PodFacts
from netinit.inject.deciding.warnings import NOT_PROGRAMMED

EXPLAINED = "netinit help CODE explains them"
ERROR, WARNING, NOTE = "error", "warning", "note"
STDIN = "stdin"  # in the place of a file's name

UNCAPTURED_IPV6 = FindingKind("NI203", "ipv6", "IPv6 is not captured: it bypasses the proxy and mTLS.")


def explain(code: str) -> str:
    """The command that explains a code, wherever the reader is."""
    return f"netinit help {code}"


def link(code: str) -> str:
    """The address of the page that explains a code, in the documentation of this version."""
    return address_of("findings", code.lower())


@dataclass(frozen=True, slots=True)
class Issue:
    """A finding about `subject` (an option or a container), with `severity` ERROR, WARNING or NOTE.

    `pod` and `file` are empty if only options were checked, `line` and `column` are 0 if unknown. `accepted` is the reason for
    ignoring it, or empty.
    """

    kind: FindingKind
    severity: str
    subject: str
    message: str
    pod: str = ""
    file: str = ""
    accepted: str = ""
    line: int = 0
    column: int = 0

    @property
    def place(self) -> str:
        """The file, with the line and the column if they are known; empty without a file."""
        name = STDIN if self.file == "-" else self.file
        return ":".join([name, *[str(number) for number in (self.line, self.column) if number]])

    @property
    def code(self) -> str:
        """The stable code."""
        return self.kind.code

    @property
    def text(self) -> str:
        """The subject, unless the message names it, and the message."""
        subject = "" if f"container {quote(self.subject)} " in self.message else self.subject
        return ": ".join([part for part in (subject, self.message) if part])


def without_ignored(issues: Iterable[Issue], ignored: Mapping[str, str], of_pod: Mapping[str, str]) -> list[Issue]:
    """Attach the reason to accepted issues; `of_pod` holds the codes of the pod's annotation."""
    reasons = {**of_pod, **ignored}
    return [replace(one, accepted=reasons.get(one.code, "")) for one in issues]


def place_issues(findings: Iterable[PlacedFinding], ignored: Mapping[str, str]) -> list[Issue]:
    """The issues of files, and of pods whose options are not known; `ignored` has codes with reasons."""
    found = []
    for one in findings:
        it = one.finding
        issue = Issue(it.kind, it.severity, it.subject, it.text, one.pod, one.file, "", *one.at)
        found += without_ignored([issue], ignored, one.accepted)
    return found


def list_doubts(pods: Sequence[PodFacts], ignored: Mapping[str, str]) -> list[Issue]:
    """One issue for all pods of which it is not known whether they are injected, and one for those of them that accept it."""
    found = []
    doubted = [one for one in pods if one.in_doubt]
    groups: dict[tuple[bool, str], list[PodFacts]] = {}
    for one in sorted(doubted, key=lambda one: NOT_PROGRAMMED.code in one.accepted):
        groups.setdefault((NOT_PROGRAMMED.code in one.accepted, one.doubt), []).append(one)
    for (_, doubt), several in groups.items():
        names = ", ".join([one.name for one in several[:MAX_NAMED]]) + (" and more" if len(several) > MAX_NAMED else "")
        text = doubt if len(several) == 1 else f"{count(len(several), 'pod')} ({names}): {doubt}"
        pod, file = (several[0].name, several[0].file) if len(several) == 1 else ("", "")
        at = several[0].place.own if file and several[0].place else UNKNOWN
        issue = Issue(NOT_PROGRAMMED, WARNING, "", text, pod, file, "", *at)
        found += without_ignored([issue], ignored, several[0].accepted)
    return found


MAX_NAMED = 5  # pods in a message


def format_issue(one: Issue) -> str:
    """An issue on a line, with the pod or the place that it is about."""
    return ": ".join([part for part in (one.place, f"{one.severity} {one.code}", one.pod, one.text) if part])


def to_object(one: Issue) -> dict[str, Any]:
    """An issue in the form of netinit/data/findings.schema.json."""
    return {
        "code": one.code, "kind": one.kind.name, "severity": one.severity, "option": one.subject, "message": one.message,
        "pod": one.pod or None, "file": one.file or None, "line": one.line or None, "column": one.column or None,
        "accepted": one.accepted or None, "page": link(one.code),
    }  # fmt: skip
