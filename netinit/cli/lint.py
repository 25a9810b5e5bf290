"""`netinit lint`: what is wrong with options before they are programmed."""

from __future__ import annotations

import click

from netinit.base.output import show, show_artefact, to_json
from netinit.base.shown import Lines, lines
from netinit.cli.flags import FlagCommand
from netinit.cli.question import read_file
from netinit.options import Options
from netinit.simulate.lint import ERROR, Finding, lint

CLEAN, FOUND = 0, 1


@click.command("lint", cls=FlagCommand)
@click.option(
    "--pod", default="", metavar="FILE|-", help="Check the options of this pod's init container (YAML or JSON)."
)
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a list of objects with severity, kind, option and message."
)
def command(options: Options, pod: str, strict: bool, as_json: bool) -> int:
    """Find options that contradict each other, lose traffic or have no effect; changes nothing.

    Exit codes: 0 nothing wrong (or warnings alone, without --strict), 1 errors.
    """
    if pod:
        from netinit.inject.podfile import read_pod

        options = read_pod(read_file(pod), pod).options
    if options.ipv6 == "auto":
        options = options.replace(ipv6="on")  # whether a pod has IPv6 is not known here: what it would do counts
    found = lint(options)
    if as_json:
        show_artefact(render_json(found))
    else:
        show(render_text(found))
    return FOUND if any(strict or finding.severity == ERROR for finding in found) else CLEAN


def render_text(found: tuple[Finding, ...]) -> Lines:
    """A line for each finding, and one that sums up."""
    errors = sum(finding.severity == ERROR for finding in found)
    summary = f"{_count(errors, 'error')}, {_count(len(found) - errors, 'warning')}" if found else "nothing found"
    return lines([*map(str, found), summary])


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def render_json(found: tuple[Finding, ...]) -> str:
    """The findings as objects with severity (error, warning), kind, option and message."""
    objects = [
        {"severity": one.severity, "kind": one.kind, "option": one.option, "message": one.message} for one in found
    ]
    return to_json(objects)
