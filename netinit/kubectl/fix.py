"""`kubectl netinit fix`: restores the rules of running pods to those of their manifests."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

from netinit.base.errors import DriftError, NetinitError, OptionError
from netinit.base.sanitize import lines
from netinit.base.tables import count
from netinit.base.tree import mapping, sequence, string
from netinit.cli.console import answer, warn
from netinit.inject.deciding.podfile import describe_other_proxy, read_object
from netinit.kubectl.common_options import AGENT, AUTO, EPHEMERAL, Sources, object_options
from netinit.kubectl.objects import ClusterPod
from netinit.kubectl.sources import LiveSource, PodQuestion, ask_first, find_first
from netinit.options import Options
from netinit.rules.model import EXTRA, MISSING, MOVED


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod, the options its rules should have, the source that accesses it, and the differences."""

    pod: ClusterPod
    options: Options
    source: LiveSource
    differences: tuple[str, ...]


@click.command("fix")
@click.option("--dry-run", is_flag=True, help="Show what differs, change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@object_options((AUTO, AGENT, EPHEMERAL), "Who changes the rules: the first that can, or only this one.")
def command(sources: Sources, *, dry_run: bool, yes: bool) -> int:
    """Restore the rules of a pod that its manifest asks for.

    OBJECT is a pod's name, or KIND/NAME as for kubectl: deploy/web means all its pods. Prints what differs, asks, reconciles and
    compares again. Each table is replaced in one transaction: no packet finds a pod without rules, and a failure leaves the old
    ones. Foreign rules stay. It works through the node agent (`create` of `pods/exec` in its namespace), or an ephemeral
    container (kubectl debug).

    Exit codes: 0 the rules are as planned, 3 some are not (with --dry-run: would be changed), 1 failed.
    """
    states = [_examine(pod, sources) for pod in sources.pods]
    for one in states:
        answer(lines([f"{one.pod.title}: {_summarize(one.differences)}", *[f"  {text}" for text in one.differences]]))
    different = [one for one in states if one.differences]
    if not different or dry_run:
        return DriftError.exit_code if different else 0
    if not yes:
        if not sys.stdin.isatty():
            raise OptionError("--yes: there is no terminal to confirm on; give it to reconcile, or --dry-run to look")
        click.confirm(f"Reconcile the rules of {count(len(different), 'pod')}?", abort=True, err=True)
    warned: dict[str, None] = {}  # by any of the runs, once
    codes = [_reconcile(one, warned) for one in different]
    warn(warned)
    return max(codes)


def _examine(pod: ClusterPod, sources: Sources) -> PodState:
    """Compare a pod's rules with its manifest. Raises OptionError for a pod without netinit's rules."""
    facts = read_object(pod.tree, sources.base(pod))
    if not facts.intercepted:
        neither = "has neither an init container nor a proxy, so no rules are planned for it"
        why = describe_other_proxy(facts.other_proxy) if facts.other_proxy else neither
        raise OptionError(f"{pod.title}: {why}")
    return find_first(sources.live(pod), pod, lambda one: PodState(pod, facts.options, one, _compare(pod, facts.options, one)))[0]


def _compare(pod: ClusterPod, options: Options, source: LiveSource) -> tuple[str, ...]:
    found = source.ask(pod, PodQuestion("verify", ("--json",), options))
    report = found.tree
    if report.get("ok") is True:
        return ()
    rows: list[Any] = [mapping(one) for one in sequence(report.get("differences"))]
    words = [[string(one.get(name)) for name in ("kind", "where", "table", "chain", "rule")] for one in rows]
    lines = [f"{kind}: {' '.join(filter(None, rest))}" for kind, *rest in words]
    return tuple(lines) or tuple(found.notes) or ("the rules could not be compared",)


def _summarize(differences: tuple[str, ...]) -> str:
    return f"{count(len(differences), 'difference')} from the plan" if differences else "as planned, nothing to do"


def _reconcile(one: PodState, warned: dict[str, None]) -> int:
    done = ask_first([one.source], one.pod, PodQuestion("apply", ("--reconcile",), one.options))
    if done.code:
        why = "; ".join((*done.notes, *done.text)) or "no reason is given"
        raise NetinitError(f"{one.pod.title}: the rules stay as they were: {why}")
    left = _compare(one.pod, one.options, one.source)
    warned |= dict.fromkeys(filter(None, map(_read_warning, done.notes)))
    told = _summarize(left) if left else f"{_describe_changes(one.differences)}: as planned"
    answer(lines([f"{one.pod.title}: {told}", *[f"  {text}" for text in left]]))
    return DriftError.exit_code if left else 0


def _describe_changes(differences: tuple[str, ...]) -> str:
    """What a reconciliation did about these differences: `9 rules restored, 1 removed`."""
    kinds = [text.partition(":")[0] for text in differences]
    counts = {done: kinds.count(kind) for kind, done in ((MISSING, "restored"), (EXTRA, "removed"), (MOVED, "moved back"))}
    (first, number), *others = [(done, number) for done, number in counts.items() if number] or [("restored", len(kinds))]
    return ", ".join([f"{count(number, 'rule')} {first}", *[f"{number} {done}" for done, number in others]])


def _read_warning(line: str) -> str:
    """The warning or error that a line of the run's log has (`TIME<TAB>LEVEL<TAB>TEXT`, or `warning: TEXT`); empty if it has none."""
    _, *logged = line.split("\t")
    if logged:
        return "\t".join(logged[1:]) if logged[0] in ("warn", "error") else ""
    return line.removeprefix("warning: ") if line.startswith("warning: ") else ""
