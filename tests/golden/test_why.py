"""The sentences of `netinit why`, with remedies and what shows more: a file a step, with the situations that it tells apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from netinit.library.rule_reading import plan_here
from netinit.library.why import explain_by_source
from netinit.questions.why.asked import read_asked
from netinit.questions.why.bug_report import examine_report, read_report
from netinit.questions.why.steps import WhyReport
from schemas import check_schema
from why_situations import PODS, REPORTS, SITUATIONS, examine, live

FOLDER = Path(__file__).parent / "why"
WHOLE = {"pods": PODS}  # every step
BY_MANIFEST = ("", "rules", "listeners")  # where the answer about the rules is that of the pod's options


def tell(situation, step):
    """What is said of a situation: of one step alone, if it is named."""
    found = examine(situation if situation.answer or step in BY_MANIFEST else replace(situation, answer=live()))
    check_schema(found.to_object(), "why")
    for one in found.steps:
        assert one.about, "text leaves out the object where it is the pod itself; JSON does not"
        assert {type(text) for text in (one.name, one.about, one.text, one.remedy, one.shown_by)} == {str}, one
    steps = tuple(one for one in found.steps if not step or one.name.removeprefix("client: ").removeprefix("server: ") == step)
    return str(WhyReport(found.asked, found.pod, steps, found.sources).text)


@pytest.mark.parametrize("name", [*WHOLE, *SITUATIONS])
def test_the_sentences_are_those_on_file(name, golden):
    situations, step = (WHOLE[name], "") if name in WHOLE else (SITUATIONS[name], name)
    told = [f"# {title}\n{tell(situation, step)}\n" for title, situation in situations.items()]
    golden({FOLDER / f"{name.replace(' ', '-')}.txt": "\n".join(told)})


def test_the_sentences_about_the_file_of_a_report_are_those_on_file(golden):
    told = []
    for title, (text, asked) in REPORTS.items():
        found = examine_report(read_report(text, "r.md"), read_asked(**asked), "r.md", lambda options: explain_by_source(plan_here(options)))
        told.append(f"# {title}\n{found.text}\n")
    golden({FOLDER / "report.txt": "\n".join(told)})


def test_every_file_has_its_situations():
    assert {file.stem for file in FOLDER.glob("*.txt")} == {"report", *[name.replace(" ", "-") for name in (*WHOLE, *SITUATIONS)]}
