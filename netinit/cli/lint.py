"""`netinit lint`: what is wrong with options before they are programmed."""

from __future__ import annotations

from collections.abc import Sequence

import click

from netinit.base.output import show_artefact, to_json
from netinit.base.shown import Lines, lines
from netinit.cli.face import answer, color_option
from netinit.cli.flags import FlagCommand
from netinit.cli.question import complete_servers, pod_options, read_pods
from netinit.kernel.detect import read_name_servers
from netinit.options import Options
from netinit.simulate.lint import ERROR, NO_EFFECT, WARNING, Finding, lint

CLEAN, FOUND = 0, 1
Linted = tuple[str, tuple[Finding, ...]]
"""The name of a pod, empty where options alone are meant, and its findings."""


@click.command("lint", cls=FlagCommand)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@pod_options("Check these pods and the options of their init containers (YAML or JSON).")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a list of objects with severity, kind, option, message and pod."
)
@color_option
def command(  # noqa: PLR0917 - click's
    options: Options, files: tuple[str, ...], pod: tuple[str, ...], select: str, strict: bool, as_json: bool
) -> int:
    """Find options that contradict each other, lose traffic or have no effect; changes nothing.

    With --pod also what is wrong with the pods themselves: host network, missing capabilities, users that are the
    proxy's, init containers without a network.

    Exit codes: 0 nothing wrong (or warnings alone, without --strict), 1 errors.
    """
    pod = (*pod, *files)
    found = (
        _lint_pods(options, pod, select)
        if pod or select
        else [("", lint_options(options.with_servers(read_name_servers)))]
    )
    if as_json:
        show_artefact(render_json(found))
    else:
        answer(render_text(found))
    every = [finding for _, findings in found for finding in findings]
    return FOUND if any(strict or finding.severity == ERROR for finding in every) else CLEAN


def lint_options(options: Options, has_tunnel: bool | None = None) -> tuple[Finding, ...]:
    """What is wrong with options of which nobody knows the pod, or no more than whether its proxy has a tunnel."""
    # Whether a pod has IPv6 is not known here: what it would do counts.
    return lint(options.replace(ipv6="on") if options.ipv6 == "auto" else options, given=options, has_tunnel=has_tunnel)


def _lint_pods(options: Options, pod: Sequence[str], select: str) -> list[Linted]:
    """By the pod's name what is wrong with it and with the options of its init container."""
    found = []
    for facts in read_pods(pod, select):
        own = tuple([Finding(one.severity, one.kind, one.subject, str(one)) for one in facts.findings])
        complete = complete_servers(facts, options)
        needed = lint_options(complete.options, facts.has_tunnel) if facts.programs and not facts.host_network else ()
        if complete.notes != facts.notes:  # nobody named all of its servers
            needed = tuple([one for one in needed if (one.kind, one.option) != (NO_EFFECT, "--redirect-dns")])
            kind = "dns-incomplete" if complete.options.dns_servers else NO_EFFECT
            needed += (Finding(WARNING, kind, "--redirect-dns", complete.notes[-1]),)
        found.append((facts.name, tuple(sorted((*own, *needed), key=lambda finding: finding.severity != ERROR))))
    return found


def render_text(found: Sequence[Linted]) -> Lines:
    """A line for each finding, below the name of its pod, and one that sums up."""
    told: list[str] = []
    for name, findings in found:
        told += [name] if name and findings else []
        told += [f"{'  ' if name else ''}{finding}" for finding in findings]
    every = [finding for _, findings in found for finding in findings]
    errors = sum(finding.severity == ERROR for finding in every)
    where = f" in {_count(len(found), 'pod')}" if any(name for name, _ in found) else ""
    summary = f"{_count(errors, 'error')}, {_count(len(every) - errors, 'warning')}" if every else "no problems found"
    return lines([*told, f"{summary}{where}"])


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def render_json(found: Sequence[Linted]) -> str:
    """The findings as objects with severity (error, warning), kind, option (or container), message and the pod's name."""
    objects = [
        {"severity": one.severity, "kind": one.kind, "option": one.option, "message": one.message, "pod": name or None}
        for name, findings in found
        for one in findings
    ]
    return to_json(objects)
