"""Runs a netinit command for a pod in the cluster, or for every pod of a workload."""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

from netinit.base.errors import ClusterError, OptionError
from netinit.base.output import show_artefact, to_json, with_version
from netinit.base.sanitize import lines
from netinit.base.tree import Tree
from netinit.cli.console import answer
from netinit.cli.kubectl.common_options import AGENT, AUTO, EPHEMERAL, MANIFEST, Sources, make_remote_command
from netinit.cli.kubectl.destinations import NamedDestination, find_destinations
from netinit.cli.kubectl.objects import ClusterPod
from netinit.cli.kubectl.sources import PodAnswer, PodQuestion, PodSource, ask_first
from netinit.inject.podfile import read_object

WITH_TARGET = ("explain", "draw")
WITH_JSON = ("explain", "audit", "verify", "doctor")
TEXT, JSON = "text", "json"
MORE = """OBJECT is a pod's name, or KIND/NAME as for kubectl: deploy/web means all its pods, those that differ from most first. The
other options are those of netinit's command of this name; those that kubectl has too (-n, -o) by their long names. The live
rules are read through the node agent, or by an ephemeral container (kubectl debug), which needs an image of netinit that the
node can pull.
"""
OF_TARGET = """--to takes an address, service.namespace:port, pod/name:port or host:port. A Service has an answer for its ClusterIP and
for each of its endpoints.
"""
_COUNTERS = re.compile(r'  \[\d+ packets\]|"packets": \d+')


@dataclass(frozen=True, slots=True)
class _PodStatus:
    pod: ClusterPod
    head: str
    notes: tuple[str, ...]
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


def make_command(verb: str) -> click.Command:
    """Create the command of this name."""

    def command(words: tuple[str, ...], pods: list[ClusterPod], sources: Sources, to: str = "", output: str = TEXT) -> int:
        return _run(verb, words, pods, sources, to, as_json=output == JSON)

    in_json = (
        click.option("-o", "--output", type=click.Choice((TEXT, JSON)), default=TEXT, show_default=True,
                     help="The format; json is one object with the answer of each pod."),
        click.option("--json", "output", flag_value=JSON, help="Short for -o json."),
    )  # fmt: skip
    target = click.option("--to", default="", metavar="HOST:PORT", help="Where the connection goes, by name or address.")
    more = (*(in_json if verb in WITH_JSON else ()), *((target,) if verb in WITH_TARGET else ()))
    text = f"{MORE}\n{OF_TARGET if verb in WITH_TARGET else ''}"
    return make_remote_command(verb, text, (AUTO, AGENT, EPHEMERAL, MANIFEST), command, *more)


def _run(verb: str, words: tuple[str, ...], pods: list[ClusterPod], sources: Sources, to: str, *, as_json: bool) -> int:
    targets: list[NamedDestination] = find_destinations(sources.kubectl, to, pods[0].namespace) if to else []
    if verb == "verify" and "--watch" in words:
        raise OptionError("--watch: goes on until Ctrl-C; run netinit verify --watch on the node, or let its agent watch")
    words = (*words, *["--json"] * as_json)
    to_each: list[tuple[str, ...]] = [("--to", one.endpoint) for one in targets] or [()]
    options = [read_object(pod.tree, sources.base(pod)).options for pod in pods]
    asked = [[PodQuestion(verb, (*to_one, *words), own) for to_one in to_each] for own in options]
    if sources.chosen in (AUTO, AGENT):
        sources.agent.prepare([(pod, question) for pod, questions in zip(pods, asked, strict=True) for question in questions])
    statuses = [_ask(pod, questions, targets, sources.of(pod), as_json=as_json) for pod, questions in zip(pods, asked, strict=True)]
    if as_json:
        show_artefact(to_json(with_version({"pods": [one.tree for group in _group(statuses) for one in group]})))
    else:
        answer(lines(_arrange(statuses)))
    return max(one.code for one in statuses)


def _ask(
    pod: ClusterPod, questions: list[PodQuestion], targets: list[NamedDestination], sources: list[PodSource], *, as_json: bool
) -> _PodStatus:
    statuses: list[str] = []
    notes: dict[str, None] = {}
    found: list[PodAnswer] = []
    heads = [f"  to {one.title or 'the address'}, {one.endpoint}:" for one in targets] or [""]
    for head, question in zip(heads, questions, strict=True):
        found.append(ask_first(sources, pod, question))
        notes |= dict.fromkeys(found[-1].notes)
        statuses += [head] * bool(head)
        statuses += [f"    {line}" for line in found[-1].text]
    code = max(abs(one.code) for one in found)
    named = [{"to": one.endpoint, "of": one.title or None} for one in targets] or [{"to": None, "of": None}]
    answers = [to | {"code": abs(one.code), "answer": _read(one) if as_json else None} for to, one in zip(named, found, strict=True)]
    tree = {"namespace": pod.namespace, "name": pod.name, "source": found[0].source, "notes": list(notes), "answers": answers}
    return _PodStatus(pod, f"{pod.title}: {found[0].source}", tuple(notes), tuple(statuses), code, tree)


def _read(found: PodAnswer) -> Tree | None:
    """The answer as an object, or None; the notes then have the reason."""
    try:
        return found.tree
    except ClusterError:
        return None


def _group(statuses: list[_PodStatus]) -> list[list[_PodStatus]]:
    groups: dict[tuple[str, ...], list[_PodStatus]] = {}
    for one in statuses:
        groups.setdefault(one.meaning, []).append(one)
    return sorted(groups.values(), key=len)


def _arrange(statuses: list[_PodStatus]) -> list[str]:
    groups = _group(statuses)
    printed: list[str] = []
    for group in groups:
        first = group[0]
        printed += [first.head, *[f"  note: {note}" for note in first.notes], *first.body]
        printed += [f"{one.head}: the same as of {first.pod.name}" for one in group[1:]]
    if len(statuses) > 1:
        printed.append(f"{len(statuses)} pods: " + ("all the same" if len(groups) == 1 else f"{len(groups)} different answers"))
    return printed


