"""Takes the steps of an examination from the file that `kubectl netinit report` wrote; without the cluster, and redacted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping

from netinit.base.errors import OptionError, ParseError
from netinit.base.records import Record
from netinit.inject.deciding.containers import INIT, PROXY, VALIDATION
from netinit.options import Options
from netinit.questions.connections import Question
from netinit.questions.finding_codes import all_kinds
from netinit.questions.why.asked import WhyQuestion
from netinit.questions.why.connection import (
    KINDS,
    LISTENERS,
    NOT_AS_PLANNED,
    REMEDIES,
    RULES,
    Explain,
    ask,
    judge_rules,
)
from netinit.questions.why.injection import NOT_INJECTED
from netinit.questions.why.objects import MAX_LISTED
from netinit.questions.why.steps import Step, WhyReport, collect, count_unexamined, failed, name_first, passed, unknown

TITLE = "# netinit report"
MAX_LINES = 20_000  # a report with a thousand rules has some four thousand
_SECTION, _FENCE = re.compile(r"## (.{1,80})\Z"), "```"
_EXIT = re.compile(r"netinit [a-z]{1,20}: exit code (\d{1,3})\Z")
_CODE = re.compile(r"\((NI\d{3})\)\Z")
_REDACTED = re.compile(r"\b(?:NAME|ADDRESS|NUMBER|BYTES|TEXT)-\d+\b|…")
_POD, _OPTIONS, _COMPARED, _DOCTOR = "Pod", "Options", "Rules compared", "Doctor"
_OF_MESH = re.compile(rf'(?:init )?container: "(?:{PROXY}|{INIT}|{VALIDATION})"')
_FOUND = "finding: "
MakeExplain = Callable[[Options], Explain]


class BugReport(Record):
    """The lines of a report's sections, by title."""

    sections: Mapping[str, tuple[str, ...]]

    def lines(self, title: str) -> tuple[str, ...]:
        """The lines of a section; none if it is not there."""
        return self.sections.get(title, ())

    def code(self, title: str) -> int | None:
        """The exit code of the command whose answer a section holds; None if it has none."""
        found = next((match for line in self.lines(title) if (match := _EXIT.match(line))), None)
        return int(found[1]) if found else None


def read_report(text: str, name: str) -> BugReport:
    """Read a report. Raises ParseError for another text."""
    every = text.split("\n")
    if not every or every[0].strip() != TITLE:
        raise ParseError(f"{name}: is not a report: it does not begin with {TITLE!r}; kubectl netinit report POD writes one")
    if len(every) > MAX_LINES:
        raise ParseError(f"{name}: has more than {MAX_LINES} lines")
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in every[1:]:
        if section := _SECTION.match(line):
            lines = found.setdefault(section[1], [])
        elif line and not line.startswith(_FENCE):
            lines.append(line)
    return BugReport(sections={title: tuple(some) for title, some in found.items()})


def examine_report(report: BugReport, asked: WhyQuestion, name: str, make_explain: MakeExplain) -> WhyReport:
    """Take the steps that a report tells of. `make_explain`: from options, what answers questions about their rules."""
    steps = [*_of_pod(report), *_of_rules(report), *_of_doctor(report), *_of_question(report, asked, make_explain)]
    return WhyReport("" if asked.is_start else asked.words, f"the pod of {name}", collect(steps), (name,))


def _of_pod(report: BugReport) -> Iterator[Step]:
    lines = report.lines(_POD)
    findings = [line.removeprefix(_FOUND) for line in lines if line.startswith(_FOUND)]
    for text in findings[:MAX_LISTED]:
        code = _CODE.search(text)
        sentence, _, remedy = _CODE.sub("", text).strip().rpartition("; ")
        kind = all_kinds().get(code[1]) if code else None  # a report may be of another version
        yield failed("manifest", kind, sentence or remedy, remedy=remedy if sentence else "")
    yield from count_unexamined("manifest", findings, "findings")
    if lines and not findings:
        yield passed("manifest", "the report has no finding about it")
    if not lines:
        yield unknown("manifest", "the report does not describe the pod")
    elif any(_OF_MESH.match(line) for line in lines):
        yield passed("injection", "the pod has containers of a mesh")
    else:
        text = "the pod has neither a proxy nor an init container of a mesh"
        yield failed("injection", NOT_INJECTED, text, remedy="netinit check-inject says what decides that")


def _of_rules(report: BugReport) -> Iterator[Step]:
    lines, code = report.lines(_COMPARED), report.code(_COMPARED)
    if code is None:
        yield unknown(RULES, lines[0] if lines else "the report has no comparison of the live rules")
        return
    told = [line for line in lines if not line.startswith(("netinit ", "source: ", "note: "))]
    if code:
        text = name_first(told, "; ") or f"verify ended with {code}"
        text = f"the live rules are not those that the pod asks for: {text}"
        yield failed(RULES, NOT_AS_PLANNED, text, remedy="kubectl netinit fix POD")
    else:
        yield passed(RULES, told[0] if told else "as planned")
    listeners = [(line, KINDS[found[1]]) for line in told if (found := _CODE.search(line)) and found[1] in KINDS]
    known = [(line, kind) for line, kind in listeners if kind in REMEDIES]
    for line, kind in known[:MAX_LISTED]:
        yield failed(LISTENERS, kind, _CODE.sub("", line).strip().removeprefix("then: "), remedy=REMEDIES[kind])
    yield from count_unexamined(LISTENERS, known, "findings about listeners")
    if not listeners:
        yield passed(LISTENERS, "the report has no finding about who listens")


def _of_doctor(report: BugReport) -> Iterator[Step]:
    code = report.code(_DOCTOR)
    if code is None:
        yield unknown("node", "the report has no answer of the doctor")
    elif code:
        yield unknown("node", f"the doctor ended with {code}: see the section {_DOCTOR} of the report")
    else:
        yield passed("node", "the doctor found nothing that is missing")


def _read_options(text: str) -> Options:
    """The options of a report, as their section begins. Raises OptionError."""
    if _REDACTED.search(text):
        raise OptionError("the report's options are redacted: names and addresses in them are not known")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise OptionError(f"the report's options cannot be read: {error}") from None
    if "apply" not in words:
        raise OptionError(f"the report's options {text}" if text else "the report does not tell the pod's options")
    at = words.index("apply")
    environ = dict(word.split("=", 1) for word in words[:at] if "=" in word)
    return Options.from_argv(words[at + 1 :], environ)


def _of_question(report: BugReport, asked: WhyQuestion, make_explain: MakeExplain) -> Iterator[Step]:
    """What the options of the report do with the connection that is asked about, by address."""
    if asked.is_start:
        return
    if not (asked.to and asked.to.address and asked.to.number):
        text = "a report has no Services and no other pods: ask it with --to ADDRESS:PORT, and about names in the cluster"
        yield unknown("question", text)
        return
    text = next(iter(report.lines(_OPTIONS)), "")
    try:
        explain = make_explain(_read_options(text))
    except OptionError as error:
        yield unknown(RULES, str(error))
        return
    answers, problem = ask(explain, Question("outbound", to=asked.to.title, udp=asked.udp, uid=asked.uid))
    for one in answers:
        yield judge_rules(one, f"to {one.destination}", udp=asked.udp, client_in_mesh=False)
    if problem:
        yield unknown(RULES, problem)
