"""Runs a continuous netinit command, watch or trace, for a pod in the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable

import click

from netinit.base.errors import ClusterError, NetinitError, OptionError
from netinit.base.sanitize import lines, split_message
from netinit.cli.console import answer, note
from netinit.cli.kubectl.common_options import AGENT, AUTO, EPHEMERAL, Sources, make_remote_command
from netinit.cli.kubectl.destinations import find_destinations
from netinit.cli.kubectl.objects import ClusterPod
from netinit.cli.kubectl.program import describe_errors
from netinit.cli.kubectl.sources import EphemeralSource, LiveAnswer, ManifestSource, PodQuestion
from netinit.cli.watch import AUTO as ANY_FORM
from netinit.cli.watch import JSON, LINES, TABLE, CounterSnapshotWriter, read_object

Show = Callable[[str], None]
MORE = """The other options are those of netinit's command of this name; those that kubectl has too by their long names. The rules are
read through the node agent, or by an ephemeral container (kubectl debug), which needs an image of netinit that the node can
pull. Ctrl-C ends the command in the cluster too.
"""
MAX_LOOKS = 3600  # of an ephemeral container: it ends by itself if this command was killed
_KUBECTL_SAYS = ("command terminated with exit code", "If you don't see a command prompt", "All commands and output from this session")


def make_command(verb: str) -> click.Command:
    """Create the command of this name."""

    def command(words: tuple[str, ...], pods: list[ClusterPod], sources: Sources, to: str = "", form: str = ANY_FORM) -> int:
        return _run(verb, words, pods, sources, to=to, form=form)

    if verb == "trace":
        more = click.option("--to", default="", metavar="HOST:PORT", help="Where the connection goes; of a Service its ClusterIP.")
    else:
        text = "The format; auto is a table on a terminal, else lines."
        forms = click.Choice((ANY_FORM, TABLE, LINES, JSON))
        more = click.option("-o", "--output", "--format", "form", type=forms, default=ANY_FORM, show_default=True, help=text)
    return make_remote_command(verb, MORE, (AUTO, AGENT, EPHEMERAL), command, more)


def _run(verb: str, words: tuple[str, ...], pods: list[ClusterPod], sources: Sources, *, to: str, form: str) -> int:
    if len(pods) > 1:
        named = click.get_current_context().params["named"]
        raise OptionError(f"{verb}: {named} has {len(pods)} pods; name one of them: {', '.join(sorted(pod.name for pod in pods))}")
    (pod,) = pods
    if to:
        destination = find_destinations(sources.kubectl, to, pod.namespace)[0]
        words = ("--to", destination.endpoint, *words)
        note([f"{destination.title}: {destination.endpoint}"] if destination.title else [])
    refused: list[str] = []
    for source in sources.of(pod):
        if isinstance(source, ManifestSource):
            continue
        more = _of_ephemeral(verb, words) if isinstance(source, EphemeralSource) else ()
        question = PodQuestion(verb, (*words, *(("--format", "json") if verb == "watch" else ()), *more))
        try:
            live = source.follow(pod, question)
        except NetinitError as error:
            refused.append(str(error))
            continue
        note([*refused, f"{pod.title}: {live.source}", "Ctrl-C ends it"])
        return _follow(live, _make_show(verb, pod, form, everything="--all" in words))
    raise ClusterError(f"{pod.title}: {'; '.join(refused)}")


def _of_ephemeral(verb: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Further words for the container: it ends with its input, and a watch after MAX_LOOKS."""
    bounded = verb == "trace" or any(word.partition("=")[0] == "--count" for word in words)
    return ("--until-input", *(() if bounded else ("--count", str(MAX_LOOKS))))


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
            followed.ask_to_end()
            for line in followed.lines():
                show(line)
    if live.find_code and followed.status:
        raise ClusterError(f"kubectl debug: {describe_errors(followed.errors, followed.status)}")
    note([said for said in split_message(followed.errors) if said and not said.startswith(_KUBECTL_SAYS)])
    return live.find_code() if live.find_code else abs(followed.status)
