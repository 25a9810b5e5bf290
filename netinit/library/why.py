"""Reads what `netinit why` is asked about: files with pods and other objects, live rules, or the file of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.manifests import Selection, Workload, objects
from netinit.inject.deciding.podfile import deciding_objects
from netinit.library.manifest_files import in_file, read_file, read_manifests
from netinit.library.rule_reading import Outlook, find_live, plan_here
from netinit.options import Options
from netinit.questions.answers import explain_connection
from netinit.questions.connections import Question
from netinit.questions.pasted_rules import name_form
from netinit.questions.rule_sources import RULES, RuleSource
from netinit.questions.why.asked import WhyQuestion
from netinit.questions.why.bug_report import examine_report, read_report
from netinit.questions.why.connection import Explain
from netinit.questions.why.examination import Evidence, examine
from netinit.questions.why.objects import ClusterObjects, read_objects
from netinit.questions.why.pods import PodInQuestion, read_pod
from netinit.questions.why.steps import WhyReport

REPORT = "--report"
MAX_NAMED = 5  # pods in a message


def why_of_files(asked: WhyQuestion, files: Sequence[str], select: str, options: Options, outlook: Outlook) -> WhyReport:
    """Examine the pod of files that `select` names, or the only one; with the rules of a live pod if the options name one.

    Raises OptionError, ParseError, NetinitError.
    """
    known = read_objects(read_trees(files))
    chosen = _choose(known, select, ", ".join(files))
    return why_of_objects(asked, chosen, known, options=options, outlook=outlook)


def why_of_objects(
    asked: WhyQuestion, chosen: Workload, known: ClusterObjects, *, options: Options, outlook: Outlook, explain: Explain | None = None,
) -> WhyReport:  # fmt: skip
    """Examine a pod among objects. `explain`: answers about its rules; by default by its manifest, or the live pod of the options."""
    foresee = outlook.foresee_by(deciding_objects([one for some in known.by_kind.values() for one in some]))

    found: dict[int, PodInQuestion] = {}

    def read_one(one: Workload) -> PodInQuestion:
        return found.get(id(one)) or found.setdefault(id(one), read_pod(one, foresee))

    pod = read_one(chosen)
    by_rules, note = (explain, ()) if explain else explain_by_rules(pod, options)
    return examine(asked, pod, Evidence(known, read_one, by_rules, note))


def explain_by_rules(pod: PodInQuestion, options: Options) -> tuple[Explain, tuple[str, ...]]:
    """What answers about a pod's rules, live if the options name a namespace, else by its manifest; and what was read."""
    if pod.facts is None:
        return _refuse(pod.problem), ()
    if options.pid or options.netns:
        live = find_live(options, pod.facts)
        return explain_by_source(live), (f"live rules of {live.name}",)
    return explain_by_source(plan_here(options, pod.facts)), ("manifests alone: the live pod was not read",)


def explain_by_source(source: RuleSource) -> Explain:
    """What answers questions about these rules."""
    return lambda question: explain_connection([source], question).to_object()


def _refuse(problem: str) -> Explain:
    def refuse(_: Question) -> Tree:
        raise OptionError(problem or "the pod's options cannot be read")

    return refuse


def why_of_report(asked: WhyQuestion, file: str) -> WhyReport:
    """Examine what a report says, offline. Raises OptionError, ParseError."""
    report = read_report(read_file(file, REPORT), shorten(file))
    return examine_report(report, asked, shorten(file), lambda options: explain_by_source(plan_here(options)))


def read_trees(files: Sequence[str]) -> list[Any]:
    """The objects of files, also those in Lists. Raises OptionError, ParseError."""
    found: list[Any] = []
    for name, text in read_manifests(files, "", recursive=True):
        try:
            there = [one for tree in yaml_texts.load_all(text) for one in objects(tree)]
        except ParseError as error:
            _refuse_rules(name, text)
            raise ParseError(in_file(name, error)) from None
        if not any(isinstance(one, dict) and one.get("kind") for one in there):
            _refuse_rules(name, text)
        found += there
    return found


def _refuse_rules(name: str, text: str) -> None:
    """Refuse a text of rules by what it is, and say what answers about it. Raises OptionError."""
    if form := name_form(text):
        shown = "stdin" if name == "-" else shorten(name)
        instead = f"netinit explain {RULES} {shorten(name)}"
        raise OptionError(f"{shown} holds rules ({form}), and no pod; ask about a connection with {instead}")


def _choose(known: ClusterObjects, select: str, named: str) -> Workload:
    selection = Selection(select)
    found = [one for one in known.workloads if selection.takes(one)]
    selection.check(shorten(named))
    if not found:
        raise ParseError(f"no pod, and nothing that makes pods, is in {shorten(named)}; give kubectl get pod NAME -o yaml")
    if len(found) > 1:
        names = ", ".join([one.title for one in found[:MAX_NAMED]]) + (" and more" if len(found) > MAX_NAMED else "")
        raise OptionError(f"{len(found)} pods are in {shorten(named)}: choose one with --select ({names})")
    return found[0]
