"""A step of an examination, and the report that all of them make."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from netinit.base.findings import FindingKind
from netinit.base.json_answers import with_version
from netinit.base.records import Record
from netinit.base.sanitize import Lines, escape, lines, quote, shorten
from netinit.questions.findings import explain, link
from netinit.questions.why.objects import MAX_LISTED

PASSED, FAILED, UNKNOWN = "passed", "failed", "unknown"
SIGNS = {PASSED: "✔", FAILED: "✘", UNKNOWN: "?"}
MAX_TEXT = 600  # characters of a sentence that quotes foreign names
MAX_STEPS = 200  # a pod has some twenty; one with a hundred probes has more
NOTHING_FOUND = "no cause found"


class Step(Record):
    """What one step found.

    `name`: the step; `about`: the object, in words; `text`: what is so, and why that fails; `remedy`: what to do, in the words of who
    wrote the object; `shown_by`: a command that shows more; `kind`: of the finding.
    """

    name: str
    outcome: str
    text: str
    about: str = ""
    remedy: str = ""
    shown_by: str = ""
    kind: FindingKind | None = None

    @property
    def code(self) -> str:
        """The finding's code; empty without one."""
        return self.kind.code if self.kind else ""

    @property
    def head(self) -> str:
        """Sign, step and object."""
        return f"{SIGNS[self.outcome]} {self.name}: {f'{self.about}: ' if self.about else ''}"

    @property
    def line(self) -> str:
        """The step on one line."""
        code = f" ({self.code})" if self.code else ""
        return f"{self.head}{shorten(escape(self.text), MAX_TEXT)}{code}"

    def to_object(self) -> dict[str, Any]:
        """The step in the form of netinit/data/why.schema.json."""
        return {
            "step": self.name, "outcome": self.outcome, "object": self.about, "text": shorten(self.text, MAX_TEXT),
            "remedy": self.remedy or None, "shownBy": self.shown_by or None, "code": self.code or None,
            "page": link(self.code) if self.code else None,
        }  # fmt: skip


def passed(name: str, text: str, about: str = "") -> Step:
    """A step that is as it should be."""
    return Step(name=name, outcome=PASSED, text=text, about=about)


def unknown(name: str, text: str, about: str = "", *, remedy: str = "", shown_by: str = "", kind: FindingKind | None = None) -> Step:
    """A step of which it cannot be said whether it is the cause."""
    return Step(name=name, outcome=UNKNOWN, text=text, about=about, remedy=remedy, shown_by=shown_by, kind=kind)


def failed(name: str, kind: FindingKind | None, text: str, about: str = "", *, remedy: str = "", shown_by: str = "") -> Step:
    """A step that is a cause. `kind`: None if which finding it is, is not known."""
    return Step(name=name, outcome=FAILED, text=text, about=about, remedy=remedy, shown_by=shown_by, kind=kind)


def count_unexamined(name: str, found: Collection[object], what: str, about: str = "") -> Iterator[Step]:
    """Yield how many are left of what was found, of which only the first MAX_LISTED are examined. `what`: they are, in the plural."""
    if (left := len(found) - MAX_LISTED) > 0:
        yield unknown(name, f"{left} more of {len(found)} {what} {'is' if left == 1 else 'are'} not examined", about)


def name_first(names: Collection[str], separator: str = ", ") -> str:
    """The first MAX_LISTED names or sentences, and how many more there are."""
    left = len(names) - MAX_LISTED
    return separator.join([*names][:MAX_LISTED]) + (f" and {left} more" if left > 0 else "")


def name_object(kind: str, namespace: str, name: str) -> str:
    """An object in words, its names quoted."""
    return f"{kind} {quote(f'{namespace}/{name}' if namespace else name)}"


@dataclass(frozen=True, slots=True)
class WhyReport:
    """All steps, in the order in which they were taken. `asked`: the question; `pod`: whose; `sources`: what was read."""

    asked: str
    pod: str
    steps: tuple[Step, ...]
    sources: tuple[str, ...] = ()

    @property
    def cause(self) -> Step | None:
        """The first step that failed; None if none did."""
        return next((one for one in self.steps if one.outcome == FAILED), None)

    @property
    def text(self) -> Lines:
        """The cause with its remedy, then each step."""
        return lines(self._list_lines())

    def _list_lines(self) -> Iterator[str]:
        cause = self.cause
        open_steps = [one for one in self.steps if one.outcome == UNKNOWN]
        if cause:
            yield cause.line
            yield from _list_advice(cause)
        elif open_steps:
            yield f"? {NOTHING_FOUND}; not known: {', '.join(dict.fromkeys([one.name for one in open_steps]))}"
        else:
            yield f"✔ {NOTHING_FOUND}: every step is as it should be"
        yield ""
        yield f"{self.pod}, {self.asked}:" if self.asked else f"{self.pod}:"
        for one in self.steps:
            short = one.replace(about="") if one.about == self.pod else one
            yield f"  {short.head}see above" if one is cause else f"  {short.line}"
            if one is not cause and one.outcome != PASSED:
                yield from [f"  {line}" for line in _list_advice(one)]

    def to_object(self) -> dict[str, Any]:
        """What `netinit why --json` prints: netinit/data/why.schema.json describes it."""
        cause = self.cause
        return with_version({
            "asked": self.asked, "pod": self.pod, "sources": [*self.sources], "cause": cause.to_object() if cause else None,
            "steps": [one.to_object() for one in self.steps],
        })  # fmt: skip


def _list_advice(step: Step) -> Iterator[str]:
    if step.remedy:
        yield f"  remedy: {step.remedy}"
    if step.shown_by:
        yield f"  shown by: {step.shown_by}"
    if step.code and step.outcome == FAILED:
        yield f"  more: {explain(step.code)}"


def collect(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The steps, each once, as far as they are shown."""
    found: dict[Step, None] = {}
    for one in steps:
        found.setdefault(one)
        if len(found) == MAX_STEPS:
            last = f"more than {MAX_STEPS} steps: the rest is left out; ask about less, with --to, --from, --probe or --dns"
            return (*found, unknown("limit", last))
    return tuple(found)
