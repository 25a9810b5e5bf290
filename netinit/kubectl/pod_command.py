"""Runs a netinit command for a pod in the cluster: for every pod of a workload, or until Ctrl-C (watch, trace) for one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import click

from netinit.base.errors import ClusterError, OptionError
from netinit.base.sanitize import lines, split_message
from netinit.base.tree import Tree
from netinit.cli.commands import KUBECTL
from netinit.cli.console import answer, answer_either, note
from netinit.cli.flags import add_options
from netinit.cli.values import OneOf, takes
from netinit.cli.watch import AUTO as ANY_FORM
from netinit.cli.watch import JSON, LINES, TABLE, CounterSnapshotWriter, read_object
from netinit.inject.deciding import podfile
from netinit.kubectl.common_options import AGENT, AUTO, EPHEMERAL, MANIFEST, Sources, object_options
from netinit.kubectl.destinations import NamedDestination, find_destinations
from netinit.kubectl.objects import ClusterPod
from netinit.kubectl.program import describe_failure, read_json
from netinit.kubectl.sources import (
    EphemeralSource,
    LiveAnswer,
    LiveSource,
    PodQuestion,
    PodSource,
    ask_first,
    find_first,
)

TEXT = "text"
FOLLOWING = ("watch", "trace")
WITH_TARGET = ("explain", "draw")
MORE = """OBJECT is a pod's name, or KIND/NAME as for kubectl: deploy/web means all its pods, outliers first. The
other options are those of netinit's command of this name; those that kubectl has too (-n, -o) by their long names. The live
rules are read through the node agent, or by an ephemeral container (kubectl debug), which needs an image of netinit that the
node can pull.
"""
OF_TARGET = """--to takes an address, service.namespace:port, pod/name:port or host:port. A Service has an answer for its ClusterIP and
for each of its endpoints.
"""
OF_FOLLOWING = """The other options are those of netinit's command of this name; those that kubectl has too by their long names. The
rules are read through the node agent, or by an ephemeral container (kubectl debug), which needs an image of netinit that the
node can pull. Ctrl-C ends the command in the cluster too.
"""
IN_JSON = (
    click.option("-o", "--output", "form", type=OneOf((TEXT, JSON)), default=TEXT, show_default=True,
                 help="The format; json is one object with the answer of each pod."),
    click.option("--json", "form", flag_value=JSON, help="Short for -o json."),
)  # fmt: skip
TO = click.option("--to", default="", **takes("HOST:PORT"), help="Where the connection goes, by name or address.")
OPTIONS = {  # of our own; others are passed on
    "explain": (*IN_JSON, TO), "audit": IN_JSON, "verify": IN_JSON, "doctor": IN_JSON, "draw": (TO,),
    "trace": (click.option("--to", default="", **takes("HOST:PORT"), help="Where the connection goes; of a Service its ClusterIP."),),
    "watch": (
        click.option("-o", "--output", "--format", "form", type=OneOf((ANY_FORM, TABLE, LINES, JSON)), default=ANY_FORM,
                     show_default=True, help="The format; auto is a table on a terminal, else lines."),
    ),
}  # fmt: skip
MAX_LOOKS = 3600  # of an ephemeral container: it ends by itself if this command was killed
_COUNTERS = re.compile(r'  \[\d+ packets\]|"packets": \d+')
_KUBECTL_SAYS = ("command terminated with exit code", "If you don't see a command prompt", "All commands and output from this session")
Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _PodStatus:
    pod: ClusterPod
    body: tuple[str, ...]
    code: int
    tree: Tree  # the output as an object

    @property
    def meaning(self) -> tuple[str, ...]:
        """The answer without names, addresses and counters, which differ even between equal pods."""
        text = "\n".join(self.body).replace(self.pod.title, "POD")
        for address in sorted(self.pod.addresses, key=len, reverse=True):
            text = re.sub(rf"(?<![0-9a-f.:]){re.escape(address)}(?![0-9a-f])", "POD", text)
        return tuple(_COUNTERS.sub("", text).split("\n"))


def make_command(verb: str, cls: type[click.Command] = click.Command) -> click.Command:
    """Create the command that runs `netinit VERB` for pods; unknown options are passed on."""
    follows = verb in FOLLOWING

    def command(words: tuple[str, ...], sources: Sources, to: str = "", form: str = TEXT) -> int:
        return (_follow_one if follows else _ask_all)(verb, words, sources, to=to, form=form)

    text = OF_FOLLOWING if follows else f"{MORE}\n{OF_TARGET if verb in WITH_TARGET else ''}"
    choices = (AUTO, AGENT, EPHEMERAL) if follows else (AUTO, AGENT, EPHEMERAL, MANIFEST)
    chosen = object_options(choices, "Who reads the rules: the first that can, or only this one.")
    passed_on = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF THE COMMAND]")
    decorated = add_options(*OPTIONS[verb], chosen, passed_on)(command)
    settings = {"ignore_unknown_options": True}
    made: click.Command = click.command(verb, cls=cls, help=f"{KUBECTL[verb][1]}\n\n{text}", context_settings=settings)(decorated)
    return made


def _ask_all(verb: str, words: tuple[str, ...], sources: Sources, *, to: str, form: str) -> int:
    pods = sources.pods
    targets: list[NamedDestination | None] = [*find_destinations(sources.kubectl, to, pods[0].namespace)] if to else [None]
    if verb == "verify" and "--watch" in words:
        raise OptionError("--watch: goes on until Ctrl-C; run netinit verify --watch on the node, or let its agent watch")
    as_json = form == JSON
    words = (*words, *["--json"] * as_json)
    to_each = [("--to", one.endpoint) if one else () for one in targets]
    options = [podfile.read_object(pod.tree, sources.base(pod)).options for pod in pods]
    asked = [[PodQuestion(verb, (*to_one, *words), own) for to_one in to_each] for own in options]
    if sources.chosen in (AUTO, AGENT):
        sources.agent.prepare([(pod, question) for pod, questions in zip(pods, asked, strict=True) for question in questions])
    statuses = [_ask(pod, questions, targets, sources.of(pod)) for pod, questions in zip(pods, asked, strict=True)]
    groups = _group(statuses)
    answer_either({"pods": [one.tree for group in groups for one in group]}, lines(_arrange(groups)), as_json=as_json)
    return max(one.code for one in statuses)


def _ask(
    pod: ClusterPod, questions: list[PodQuestion], targets: list[NamedDestination | None], sources: list[PodSource]
) -> _PodStatus:
    body: list[str] = []
    notes: dict[str, None] = {}
    source = ""
    answers: list[Tree] = []
    for target, question in zip(targets, questions, strict=True):
        found = ask_first(sources, pod, question)
        source = source or found.source
        notes |= dict.fromkeys(found.notes)
        body += [f"  to {target.title or 'the address'}, {target.endpoint}:"] if target else []
        body += [f"    {line}" for line in found.text]
        to = {"to": target.endpoint, "of": target.title or None} if target else {"to": None, "of": None}
        answers.append(to | {"code": abs(found.code), "answer": read_json(found.output)})
    tree = {"namespace": pod.namespace, "name": pod.name, "source": source, "notes": list(notes), "answers": answers}
    return _PodStatus(pod, tuple(body), max(one["code"] for one in answers), tree)


def _group(statuses: list[_PodStatus]) -> list[list[_PodStatus]]:
    groups: dict[tuple[str, ...], list[_PodStatus]] = {}
    for one in statuses:
        groups.setdefault(one.meaning, []).append(one)
    return sorted(groups.values(), key=len)


def _arrange(groups: list[list[_PodStatus]]) -> list[str]:
    told = Counter(note for group in groups for note in group[0].tree["notes"])
    shared = [note for note, number in told.items() if number > 1]  # such as about the node
    printed: list[str] = []
    for group in groups:
        first = group[0]
        heads = [f"{one.pod.title}: {one.tree['source']}" for one in group]
        printed += [heads[0], *[f"  note: {note}" for note in first.tree["notes"] if note not in shared], *first.body]
        printed += [f"{head}: the same as of {first.pod.name}" for head in heads[1:]]
    printed += [f"note, of {told[note]} answers: {note}" for note in shared]
    if (number := sum(map(len, groups))) > 1:
        printed.append(f"{number} pods: " + ("all the same" if len(groups) == 1 else f"{len(groups)} different answers"))
    return printed


def _follow_one(verb: str, words: tuple[str, ...], sources: Sources, *, to: str, form: str) -> int:
    pod, *others = sources.pods
    if others:
        named, names = click.get_current_context().params["named"], sorted(one.name for one in sources.pods)
        raise OptionError(f"{verb}: {named} has {len(names)} pods; name one of them: {', '.join(names)}")
    if to:
        destination = find_destinations(sources.kubectl, to, pod.namespace)[0]
        words = ("--to", destination.endpoint, *words)
        note([f"{destination.title}: {destination.endpoint}"] if destination.title else [])

    def start(source: LiveSource) -> LiveAnswer:
        more = ["--format", "json"] if verb == "watch" else []
        if isinstance(source, EphemeralSource):
            is_bounded = verb == "trace" or any(word.partition("=")[0] == "--count" for word in words)
            more += ["--until-input"] if is_bounded else ["--until-input", "--count", str(MAX_LOOKS)]
        return source.follow(pod, PodQuestion(verb, (*words, *more)))

    live, refused = find_first(sources.live(pod), pod, start)
    note([*refused, f"{pod.title}: {live.source}", "Ctrl-C ends it"])
    return _follow(live, _make_show(verb, pod, form, everything="--all" in words))


def _make_show(verb: str, pod: ClusterPod, form: str, *, everything: bool) -> Show:
    if verb == "trace":
        return lambda line: answer(lines([line]), now=True)
    writer = CounterSnapshotWriter(form, everything=everything)

    def show(line: str) -> None:
        try:
            snapshot = read_object(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            raise ClusterError(f"{pod.title}: its watch gave a line that cannot be read; is it another version?") from None
        writer.show(snapshot, pod.title)

    return show


def _follow(live: LiveAnswer, show: Show) -> int:
    """Print lines until the command ends or Ctrl-C stops it; return its exit code."""
    with live.followed as followed:
        try:
            for line in followed.lines():
                show(line)
        except KeyboardInterrupt:
            followed.request_end()
            for line in followed.lines():
                show(line)
    if live.find_code and followed.status:
        raise ClusterError(f"kubectl debug: {describe_failure(followed)}")
    note([line for line in split_message(followed.errors) if line and not line.startswith(_KUBECTL_SAYS)])
    return live.find_code() if live.find_code else abs(followed.status)
