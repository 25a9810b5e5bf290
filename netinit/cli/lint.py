"""`netinit lint`: problems with options before they are applied."""

from __future__ import annotations

import click

from netinit.base.errors import OptionError
from netinit.base.output import show_artefact
from netinit.cli.console import answer, color_option, note
from netinit.cli.findings import TEXT, format_options, ignore_options, render
from netinit.cli.flags import FlagCommand
from netinit.cli.rule_options import find_settings, gate_options, pod_options, rules_option, stdin_name_option
from netinit.cli.values import takes
from netinit.library.lint import examine
from netinit.library.rule_reading import PodChoice
from netinit.options import Options
from netinit.questions.findings import ERROR, WARNING

CLEAN, FOUND = 0, 1


@click.command("lint", cls=FlagCommand, judges_all=True)
@click.argument("files", nargs=-1, **takes("[FILE]..."))
@gate_options
@pod_options("Check these pods and the options of their init containers (YAML or JSON).", stdin_name_option)
@rules_option
@click.option("--minimal", is_flag=True, help="Print the fewest options under which no packet is treated differently, proved.")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@ignore_options
@format_options("findings")
@color_option
def command(
    options: Options, pods: PodChoice, *, rules: tuple[str, ...], minimal: bool, strict: bool,
    accepted: dict[str, str], form: str,
) -> int:  # fmt: skip
    """Find options that contradict each other, lose traffic or have no effect; changes nothing.

    With files, the pods are checked too: host network, missing capabilities, users that are the proxy's, init containers
    without a network, containers that may change the rules, annotations without effect. That an option has no effect is
    proved for all packets; --minimal prints the fewest options with the same effect. Files without pods are counted and passed
    over, templates of Helm too; a manifest that cannot be read is a finding.

    With --rules, the options that these rules show are checked.

    `netinit help CODE` explains a finding. --ignore, --ignore-file, or the pod's annotation netinit.io/accepted-findings accept
    findings of a code.

    Exit codes: 0 no error (with --strict also no warning), 1 errors.
    """
    if minimal and (strict or accepted or form != TEXT):
        raise OptionError("--minimal: prints options and no findings; leave out --strict, --ignore…, --format and --json")
    found = examine(options, pods, accepted, rules)
    note(found.notes)
    if minimal:
        answer(found.minimal)
        return CLEAN
    if form == TEXT:
        answer(found.text)
    else:
        note([found.passed] if found.passed else [])
        show_artefact(render(form, "lint", found.issues, found.pods or ([] if pods.names_any else [""])))
    failing = {ERROR, WARNING} if strict or find_settings().strict else {ERROR}
    return FOUND if any(one.severity in failing for one in found.issues if not one.accepted) else CLEAN
