# ruff: noqa: INP001 - the playground's worker loads this file by its address
"""What the playground answers: each question as a JSON text in, and out. It stands on netinit's `questions`, and runs in a browser.

A question has the fields of the page's form. An answer has `text`, and what of `verdict`, `notes` and `warnings` there is; or `error`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from netinit.base.errors import NetinitError, OptionError
from netinit.base.sanitize import quote
from netinit.base.tables import count
from netinit.inject.adding.config import load_config
from netinit.inject.adding.future_pods import foresee
from netinit.inject.deciding.manifest_survey import FileSurvey, read_pods
from netinit.options import NFTABLES, Options
from netinit.options.command_line import write_command
from netinit.questions.answers import Answered, explain_connection
from netinit.questions.audit.report import examine_all, with_files
from netinit.questions.comparison import PROGRAMS, compare_all, on_common_host, pair_pods, read_written_options
from netinit.questions.connections import Question
from netinit.questions.lint.report import examine_options, examine_pods, examine_rules
from netinit.questions.pasted_rules import name_form, read_rules
from netinit.questions.picture import draw_rules
from netinit.questions.rule_sources import Made, RuleSource, find_planned
from netinit.rules.layouts import plan
from netinit.rules.render import render
from netinit.simulate.draw import render_dot

MAX_PODS = 10  # that are answered for: more make a page that nobody reads
MAX_SHOWN = 200_000  # characters of an answer: some thousand lines
MAX_NAME, MAX_NAMES = 63, 50  # of containers: a label's length, as Kubernetes has it, and a list that fits a screen
MAX_COMMAND = 128 << 10  # characters of flags: Linux takes no longer argument (MAX_ARG_STRLEN, execve(2))
OPTIONS, RULES, PODS = "options", "rules", "pods"
_OPTIONS = re.compile(rf"(?:-{{1,2}}[A-Za-z]|[A-Z][A-Z0-9_]*=|(?:{'|'.join(PROGRAMS)})\s)")
FILE = "pasted"  # what messages call the text
Answer = dict[str, Any]


def answer(task: str, given: str) -> str:
    """Answer one question. `given`: the form's fields, a JSON object of texts."""
    try:
        found = TASKS[task](json.loads(given))
    except NetinitError as error:
        found = {"error": str(error)}
    for name in ("text", "error", "iptables", "nft"):
        if len(found.get(name, "")) > MAX_SHOWN:
            found[name] = f"{found[name][:MAX_SHOWN]}\n… cut: {len(found[name]) - MAX_SHOWN} characters more"
    return json.dumps(found)


def name_kind(text: str) -> str:
    """What a pasted text is: options, rules, or manifests of pods. Raises OptionError for an empty one."""
    if not text.strip():
        raise OptionError("nothing is pasted: paste a pod, flags or rules, or choose a situation")
    if name_form(text):
        return RULES
    return OPTIONS if _OPTIONS.match(f"{text.strip()} ") else PODS


@lru_cache(maxsize=4)
def _read(text: str, select: str, assume: str) -> tuple[str, Options, tuple[RuleSource, ...]]:
    """What the text is, its options, and the rules of each of its pods. Raises OptionError."""
    kind = name_kind(text)
    if kind == OPTIONS:
        if len(text) > MAX_COMMAND:
            raise OptionError(f"the flags have {len(text)} characters; a program takes at most {MAX_COMMAND}: paste fewer")
        words = text.strip().replace("\\\n", " ")
        options = read_written_options(f"apply {words}" if words.startswith("-") else words, {})
        if options.pid or options.netns:
            raise OptionError("--pid, --netns: a browser sees no network namespace; remove them")
        return kind, options, (find_planned(options),)
    if kind == RULES:
        return kind, Options(), (read_rules([(FILE, text)]),)
    made: Made = {}
    pods = read_pods([(FILE, text)], select, "", lambda deciding: foresee(deciding, partial(load_config, None, lazily=True), assume))
    return kind, Options(), tuple([find_planned(facts=facts, made=made) for facts in pods])


def _find(asked: dict[str, str]) -> tuple[RuleSource, ...]:
    found = _read(asked["input"], asked["select"].strip(), asked["assume"])[2]
    if not found:
        raise OptionError("no pod is in it")
    return found


def _question(asked: dict[str, str]) -> Question:
    return Question(
        asked["direction"] or None, asked["to"].strip(), asked["source"].strip(), asked["port"].strip(), udp=bool(asked["udp"]),
        uid=asked["user"].strip(),
    )  # fmt: skip


def ask_connection(asked: dict[str, str]) -> Answer:
    """What becomes of a connection, of all containers or of one."""
    found, container = _find(asked), asked["container"].strip()
    report = explain_connection(found[:MAX_PODS], _question(asked))
    if container:
        pods = [replace(pod, answers=_of(container, pod.answers, asked)) for pod in report.pods]
        report = replace(report, pods=tuple([pod for pod in pods if pod.answers]))
        if not report.pods:
            raise OptionError(f"container: {quote(container)} is none of {', '.join(map(quote, _list_containers(found)))}")
    sentences = dict.fromkeys([one.answer.sentence for one in report.answers])
    title = "\n".join(sentences)
    text = report.text.removeprefix(title).lstrip("\n")
    return {
        "verdict": report.verdict if len(sentences) == 1 else "several", "title": title, "text": text,
        "notes": [*report.notes, *_count_others(found)], "warnings": report.warnings,
    }  # fmt: skip


def _of(container: str, answers: tuple[Answered, ...], asked: dict[str, str]) -> tuple[Answered, ...]:
    if asked["user"].strip():
        raise OptionError("container: a container has its own user; give one of the two")
    if len(answers) == 1 and not answers[0].containers:
        raise OptionError("container: what comes in is sent by none of its containers, and flags and rules have none; remove it")
    return tuple([replace(one, containers=(container,)) for one in answers if container in one.containers])


def _list_containers(found: tuple[RuleSource, ...]) -> list[str]:
    """The names of the containers that send traffic, as far as they are names."""
    users = [user.container for one in found[:MAX_PODS] if one.facts for user in one.facts.users]
    return [name for name in dict.fromkeys(users) if len(name) <= MAX_NAME][:MAX_NAMES]


def _count_others(found: tuple[RuleSource, ...]) -> list[str]:
    return [f"{count(len(found) - MAX_PODS, 'more pod')}: name one to ask about it"] if len(found) > MAX_PODS else []


def show_rules(asked: dict[str, str]) -> Answer:
    """The rules in both dialects, of the first pod; and the containers of all, for the form."""
    found = _find(asked)
    one = found[0]
    others = [f"of {one.name}, the first of {len(found)} pods: name another to see its rules"] if len(found) > 1 else []
    shown: Answer = {"notes": [*one.notes, *others], "warnings": one.warnings, "containers": _list_containers(found)}
    settled = one.rules.made_by
    if not settled or not one.rules.has_rules():
        return {**shown, "text": one.rules.outside or "no rules of netinit or Istio, and so no options that would make others"}
    wanted = {"iptables": plan(settled), "nft": plan(settled.for_backend(NFTABLES))}
    rules = {name: render(each, "nft" if name == "nft" else "restore", comments=True) for name, each in wanted.items()}
    return {**shown, "text": f"{write_command(settled.given)}\n", **rules}


def draw_path(asked: dict[str, str]) -> Answer:
    """The picture as a text for Graphviz, of the first pod: the rules that decide, with the connection's path."""
    one, question = _find(asked)[0], _question(asked)
    picture, _ = draw_rules(one, question if question.names_an_end else Question())
    if not picture.tables:
        return {"text": "no rules to draw"}
    return {"text": picture.caption or picture.title, "dot": render_dot(picture)}


def list_bypasses(asked: dict[str, str]) -> Answer:
    """What bypasses the proxy, of each pod."""
    found = _find(asked)
    report = with_files(examine_all(found[:MAX_PODS], (), everything=True), FileSurvey(), {})
    return {"text": report.text, "notes": [*report.notes, *_count_others(found)], "warnings": report.warnings}


def list_findings(asked: dict[str, str]) -> Answer:
    """What is wrong with the options or the pods."""
    kind, options, found = _read(asked["input"], asked["select"].strip(), asked["assume"])
    if kind == RULES:
        return {"text": examine_rules(found[0], {}).text}
    if kind == OPTIONS:
        return {"text": examine_options(options, {}).text}
    facts = tuple([one.facts for one in found[:MAX_PODS] if one.facts])
    return {"text": examine_pods(facts, Options(), {}).text, "notes": _count_others(found)}


def compare(asked: dict[str, str]) -> Answer:
    """Which packets both texts treat differently; pods of two manifests are paired by name."""
    (old, _, before), (new, _, after) = (_read(asked[name], "", asked["assume"]) for name in ("input", "other"))
    if old == new == PODS:
        pairs = pair_pods({one.name: one for one in before}, {one.name: one for one in after})[:MAX_PODS]
    elif len(before) == len(after) == 1:
        pairs = [on_common_host(f"the first ({old}) and the second ({new})", before[0], after[0], None)]
    else:
        raise OptionError("several pods are compared with pods only: paste one pod, or pods on both sides")
    report = compare_all(pairs)
    verdict = "equal" if report.equal else "different"
    return {"verdict": verdict, "text": report.text, "notes": report.notes, "warnings": report.warnings}


TASKS: dict[str, Callable[[dict[str, str]], Answer]] = {
    "connection": ask_connection, "rules": show_rules, "picture": draw_path, "audit": list_bypasses, "lint": list_findings,
    "compare": compare,
}  # fmt: skip
