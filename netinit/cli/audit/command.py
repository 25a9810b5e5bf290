"""`netinit audit`: the traffic that bypasses the proxy."""

from __future__ import annotations

import time
from dataclasses import replace

import click

from netinit.base.errors import NetinitError, OptionError
from netinit.base.output import show_artefact, show_object
from netinit.base.tables import count
from netinit.cli.audit.markdown import render_markdown
from netinit.cli.audit.page import render_page
from netinit.cli.console import answer, color_option, note, say, warn
from netinit.cli.findings import FORMATS, JSON, TEXT, format_options, ignore_options, render
from netinit.cli.flags import ANY_NAMESPACE, FlagCommand
from netinit.cli.rule_options import find_settings, gate_options, rule_source_options
from netinit.cli.values import takes
from netinit.inject.deciding.manifest_survey import FileSurvey
from netinit.kernel.pod_processes import find_pods
from netinit.library.assertion_files import read_assertions
from netinit.library.rule_reading import LIVE, RuleChoice, find_rule_source, survey_rule_sources
from netinit.options import Options
from netinit.questions.audit.report import AuditReport, examine_all, fails, list_issues, read_fail_on, with_files
from netinit.questions.findings import format_issue
from netinit.questions.rule_sources import RuleSource

MARKDOWN, HTML = "markdown", "html"
FOUND, UNREAD = 4, 1


@click.command("audit", cls=FlagCommand, shows=ANY_NAMESPACE)
@click.argument("files", nargs=-1, **takes("[FILE]..."))
@gate_options
@rule_source_options
@click.option("--all-pods", is_flag=True, help="Audit the live rules of every pod of this node.")
@click.option("--assert", "asserted", multiple=True, **takes("FILE|TEXT"), help="Prove or refute what this says; repeatable.")
@click.option("--fail-on", multiple=True, **takes("bypass[:CLASS]"), help="Exit with 4 for a bypass (of a class); repeatable.")
@ignore_options
@click.option("--all", "everything", is_flag=True, help="Say why of what is by design, too, which has a line each otherwise.")
@click.option("--full", is_flag=True, help="Show all traffic, also what goes through the proxy.")
@format_options("audit", MARKDOWN, HTML)
@color_option
def command(
    options: Options, choice: RuleChoice, *, all_pods: bool, asserted: tuple[str, ...],
    fail_on: tuple[str, ...], accepted: dict[str, str], everything: bool, full: bool, form: str,
) -> int:  # fmt: skip
    """Show which traffic of a pod bypasses the proxy, why, and how to close it.

    All packets are covered, not a sample. The most dangerous bypasses come first: those of foreign rules, those that cannot be
    evaluated, those by configuration, and those by design. Nothing is sent and nothing changes. --assert proves or refutes a
    sentence such as 'outbound tcp not by proxy not to pod is captured'.

    Files without pods are counted and passed over, templates of Helm too; a manifest that cannot be read is a finding.

    Exit codes: 0; 1 if a manifest cannot be read; 4 if --fail-on names a bypass that exists, or an assertion is not proved.
    """
    assertions = read_assertions(asserted)
    failing = read_fail_on(fail_on or find_settings().fail_on)
    if full and form in FORMATS:
        raise OptionError(f"--full: --format {form} lists only findings; leave one of them out")
    if all_pods and (choice.pods.pod or choice.rules or choice.live or options.pid or options.netns):
        raise OptionError("--all-pods: names all pods of this node; leave out --pod, --rules, --live, --pid and --netns")
    rule_sources, files = (_find_all(options), FileSurvey()) if all_pods else survey_rule_sources(options, choice)
    found = with_files(examine_all(rule_sources, assertions, full=full, everything=everything), files, accepted)
    if form in FORMATS:
        note([found.passed] if found.passed else [])
        issues = [*found.issues, *[issue for one in found.pods for issue in list_issues(one, accepted)]]
        names = dict.fromkeys([one.pod for one in found.issues if one.pod])
        show_artefact(render(form, "audit", issues, [*names, *[one.source.name for one in found.pods]]))
    else:
        _show(found, form)
    if any(fails(one, failing, accepted) for one in found.pods):
        return FOUND
    return 0 if found.is_complete else UNREAD


def _show(found: AuditReport, form: str) -> None:
    if form == TEXT:
        note(found.notes)
        warn(found.warnings)
        answer(found.text)
        return
    if form == JSON:
        show_object(found.to_object())
        return
    say([format_issue(one) for one in found.issues if not one.accepted])
    note([found.passed] if found.passed else [])
    if form == MARKDOWN:
        show_artefact(render_markdown(found.objects))
    else:
        show_artefact(render_page(found.objects, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())))


def _find_all(options: Options) -> list[RuleSource]:
    """The live rules of every pod here that has any. Raises NetinitError if there is none."""
    rule_sources: list[RuleSource] = []
    without = 0
    for pid, program in find_pods():
        name = f"pid {pid} ({program})"
        try:
            rule_source = find_rule_source(options.replace(pid=pid), LIVE)
        except NetinitError as error:
            warn([f"{name}: {error}"])
            continue
        if rule_source.rules.has_rules():
            rule_sources.append(replace(rule_source, name=name))
        else:
            without += 1
    if without:
        note([f"{count(without, 'network namespace')} of this node without any rule: not of a mesh"])
    if not rule_sources:
        raise NetinitError(
            "--all-pods: no pod of this node has rules that can be read; run it as root on the node, where its processes are seen"
        )
    return rule_sources
