"""`netinit node run`: commands for pods of this node; `kubectl netinit` runs it in the agent's container."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from netinit.base.errors import NamespaceError, NetinitError, OptionError
from netinit.base.output import show_artefact
from netinit.base.sanitize import shorten
from netinit.base.tree import explain_json_error, mapping, sequence, string, strings
from netinit.cli.captured_run import MAX_BYTES, run_captured
from netinit.cli.reexec import become_netinit, run_netinit
from netinit.cli.values import takes
from netinit.kernel import children, preload
from netinit.kernel.processes import count_cores
from netinit.kernel.snapshot import bpf
from netinit.node.pod_records import Attachments, find_cgroups, find_namespaces
from netinit.node.settings import CGROUPS, RECORDS, SOCKET
from netinit.options import Options
from netinit.options.kinds import quote_value
from netinit.pods.attachments import ATTACHMENTS

READING = ("explain", "audit", "verify", "draw", "doctor")
FOLLOWING = ("watch", "trace")  # these run until they are stopped
CHANGING = "apply"  # of kubectl netinit fix; with --reconcile alone
MORE_THAN_A_REPAIR = ("cleanup_only", "netns", "pid", "host_network", "skip_rule_apply", "run_validation", "config")
ENDLESS = "--watch"  # of a reading command: its answer would never come
MAX_ASKED_BYTES = 16 << 20  # bytes of all questions
SECONDS = 60.0  # per answer


@click.command("run")
@click.option("--uid", "uids", multiple=True, **takes("UID"), help="The pod's uid, as the runtime knows it; repeatable.")
@click.option("--env", "variables", multiple=True, **takes("NAME=VALUE"), help="A variable for the command; repeatable.")
@click.option(
    "--netnsFolder", "folder", default="/run/netns", show_default=True, **takes("FOLDER"),
    help="Where the runtime has its namespaces.",
)  # fmt: skip
@click.option(
    "--recordsFolder", "records", default=RECORDS, show_default=True, **takes("FOLDER"),
    help="Where the runtime has the results of plugins.",
)  # fmt: skip
@click.option(
    "--cgroupFolder", "cgroup_folder", default=CGROUPS, show_default=True, **takes("FOLDER"),
    help="Where the node's cgroups are mounted.",
)  # fmt: skip
@click.option("--socket", default=SOCKET, show_default=True, **takes("FILE"), help="The agent's socket; its records are next to it.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND...")
def command(
    *, uids: tuple[str, ...], variables: tuple[str, ...], folder: str, records: str, cgroup_folder: str, socket: str,
    words: tuple[str, ...],
) -> int:
    """Run explain, audit, verify, draw, doctor, watch or trace for pods of this node, or repair them.

    `kubectl netinit` runs it in the agent's container. Without COMMAND it reads questions from stdin, a JSON object a line with the
    members uids, title, environ and words, and prints the answers in this order, an object a line with the exit code, the
    answer and notes. With COMMAND (watch or trace) it prints that command's lines until stdin ends. The only command that
    changes rules is apply --reconcile, for `kubectl netinit fix`.
    """
    attachments = Attachments(Path(socket).parent / ATTACHMENTS)

    def find(wanted: Iterable[str]) -> dict[str, str]:
        return find_namespaces(wanted, attachments=attachments, records=Path(records), folder=Path(folder))

    if not words:
        _answer_all([_read_question(line) for line in sys.stdin.read(MAX_ASKED_BYTES).splitlines()], find, cgroup_folder)
        return 0
    if words[0] not in FOLLOWING:
        raise OptionError(f"{quote_value(words[0])} ends by itself: ask on the standard input; to follow: {', '.join(FOLLOWING)}")
    environ = dict(one.split("=", 1) for one in variables if "=" in one)
    check(words, environ)
    asked = (*words, "--netns", _choose(find(uids), uids))
    show_artefact(json.dumps({"following": words[0]}) + "\n", now=True)
    become_netinit((*asked, "--until-input"), environ=environ)
    return 0


class _Question(NamedTuple):
    uids: tuple[str, ...]
    title: str
    environ: dict[str, str]
    words: tuple[str, ...]


def _read_question(line: str) -> _Question:
    try:
        tree = mapping(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise OptionError(f"the standard input: a question is not JSON: {explain_json_error(error)}") from None
    uids, words = ([string(one) for one in sequence(tree.get(key))] for key in ("uids", "words"))
    question = _Question(tuple(uids), string(tree.get("title")), strings(tree.get("environ")), tuple(words))
    known = (*READING, *FOLLOWING, CHANGING)
    if not words or words[0] not in known or words[0] in FOLLOWING:
        raise OptionError(f"{quote_value(''.join(words[:1]))} is not run for a pod; commands: {', '.join(known)}")
    check(question.words, question.environ)
    if words[0] == CHANGING:
        options = Options.from_argv(words[1:], question.environ)
        if not options.reconcile:
            raise OptionError("apply: is run for a pod only with --reconcile")
        for flag in map(Options.flag, MORE_THAN_A_REPAIR):
            if getattr(options, flag.field) != flag.default:
                raise OptionError(f"{flag.label}: is not allowed for a pod of the node; remove it")
    return question


def check(words: tuple[str, ...], environ: dict[str, str]) -> None:
    """Reject commands that would not end and variables that are not netinit's. Raises OptionError."""
    if ENDLESS in words:
        raise OptionError(f"{ENDLESS}: goes on until Ctrl-C; run netinit {words[0]} {ENDLESS} on the node itself")
    known = {name for flag in Options.flags for name in flag.variables}
    for name in environ:
        if name not in known:
            raise OptionError(f"{quote_value(name)} is not a variable of an option")


def _answer_all(questions: list[_Question], find: Callable[[set[str]], dict[str, str]], cgroup_folder: str) -> None:
    """Answer the questions in forked children, some concurrently, and print the answers in order."""
    wanted = {uid for one in questions for uid in one.uids}
    found, groups = find(wanted), find_cgroups(wanted, cgroup_folder)
    preload.load_all(str(Path(__file__).parents[2]))
    def ask(question: _Question) -> dict[str, Any]:
        path = _choose(found, question.uids)
        if question.words[0] == CHANGING:  # a separate program with its own locks, signals and exit
            done = run_netinit((*question.words, "--netns", path), environ=question.environ)
            return {"code": done.status, "answer": shorten(done.output, MAX_BYTES), "notes": shorten(done.errors, MAX_BYTES)}
        for group in [groups[uid] for uid in question.uids if uid in groups]:
            bpf.remember(bpf.of_folder(cgroup_folder, group))
        environ = {"PATH": os.environ.get("PATH", ""), **question.environ}
        code, *texts = run_captured((*question.words, "--netns", path), environ)
        answer, notes = [text.replace(path, question.title or path) for text in texts]
        return {"code": code, "answer": answer, "notes": notes}

    for answer in _in_children(questions, ask):
        show_artefact(json.dumps(answer) + "\n", now=True)


def _in_children(questions: list[_Question], ask: Callable[[_Question], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    most = 2 * count_cores()
    started: list[children.Child] = []

    def begin(question: _Question) -> children.Child:
        return children.start(lambda _: ask(question), seconds=SECONDS, what="the answer", kept=None)

    for position, _ in enumerate(questions):
        while len(started) < len(questions) and len(started) - position < most:
            started.append(begin(questions[len(started)]))
        with started[position] as child:
            try:
                yield child.receive()
            except (NetinitError, children.ChildError, OSError) as error:
                yield {"code": NetinitError.exit_code, "error": str(error)}


def _choose(found: dict[str, str], uids: tuple[str, ...]) -> str:
    """The namespace of the pod with one of these UIDs. Raises NamespaceError."""
    path = next((found[uid] for uid in uids if uid in found), "")
    if not path:
        named = " or ".join(map(quote_value, uids))
        raise NamespaceError(f"the runtime has no record of a network namespace of the pod with the uid {named}")
    return path
