"""`netinit check`: what is wrong with the pods of a repository, in one answer."""

from __future__ import annotations

import click

from netinit.base.errors import NetinitError, OptionError
from netinit.base.output import show_artefact, show_object
from netinit.base.tables import count
from netinit.cli.console import answer, color_option, note, say
from netinit.cli.findings import JSON, TEXT, format_options, ignore_options, render
from netinit.cli.flags import FlagCommand
from netinit.cli.rule_options import choose_pods, find_settings, gate_options, outlook_options, stdin_name_option
from netinit.cli.values import takes
from netinit.library import safe_files
from netinit.library.assertion_files import read_assertions
from netinit.library.check import check_files
from netinit.library.rule_reading import Gate, Outlook
from netinit.options import Options


@click.command("check", cls=FlagCommand, shows=("dns_servers",), rules=None)
@click.argument("files", nargs=-1, **takes("PATH..."))
@gate_options
@outlook_options
@stdin_name_option
@click.option("--assert", "asserted", multiple=True, **takes("FILE|TEXT"), help="Prove or refute what this says; repeatable.")
@click.option("--fail-on", multiple=True, **takes("bypass[:CLASS]"), help="Which bypasses fail (default: bypass); repeatable.")
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
@click.option("--baseline", default="", **takes("FILE"), help="Findings that are accepted for now.")
@click.option("--write-baseline", is_flag=True, help="Write all findings of today into the file of --baseline.")
@ignore_options
@format_options("findings")
@color_option
def command(
    options: Options, gate: Gate, outlook: Outlook, *, files: tuple[str, ...], stdin_name: str, asserted: tuple[str, ...],
    fail_on: tuple[str, ...], strict: bool, baseline: str, write_baseline: bool, accepted: dict[str, str], form: str,
) -> int:  # fmt: skip
    """Say what is wrong with the pods of a repository, and which traffic bypasses the proxy; changes nothing.

    Pods that are not injected yet are injected in memory; then the checks of lint and audit follow. A summary comes first, then what
    fails, each finding once. Files without pods are counted and passed over, templates of Helm too.

    --baseline names the findings that are accepted for now, so that only new ones fail; entries that no longer occur are notes.
    --settings, or the file netinit.yaml of the working folder, holds what a repository says once.

    Exit codes: 0; 1 for errors, also for files that cannot be read, with --strict also for warnings; 4 for a bypass that --fail-on
    names (default: all that are not by design), and for assertions that are not proved.
    """
    if not files:
        raise OptionError("missing argument: PATH, the repository's folder, files, or - for stdin")
    own = find_settings()
    kept = baseline or own.baseline
    if write_baseline and not kept:
        raise OptionError("--write-baseline: needs the file's name: --baseline FILE")
    done = check_files(
        options, choose_pods(outlook=outlook, files=files, gate=gate, stdin_name=stdin_name), accepted,
        assertions=read_assertions(asserted), fail_on=fail_on or own.fail_on, strict=strict or own.strict,
    )  # fmt: skip
    if write_baseline:
        _write(kept, done.write(kept))
        return 0
    report = done.against(kept) if kept else done.report
    note([f"settings of {own.name}"] if own.name else [])
    if form == TEXT:
        answer(report.text)
    elif form == JSON:
        show_object(report.to_object())
    else:
        note([report.passed] if report.passed else [])
        show_artefact(render(form, "check", report.issues, report.pods))
    return report.exit_code


def _write(name: str, text: str) -> None:
    try:
        safe_files.replace(name, [text])
    except OSError as error:
        raise NetinitError(f"--baseline: {name}: cannot be written: {error.strerror or error}") from error
    say([f"{name}: {count(text.count(chr(10) + '- '), 'finding')} accepted for now; review it, and commit it"])
