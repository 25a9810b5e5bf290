"""`netinit lint`: problems with options before they are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import click

from netinit.base.errors import OptionError
from netinit.base.output import show_artefact
from netinit.base.sanitize import Lines, lines
from netinit.cli.console import answer, color_option, count
from netinit.cli.findings import NOTE, PAGE, TEXT, Issue, format_options, ignore_options, render, without_ignored
from netinit.cli.flags import FlagCommand, write_command
from netinit.cli.rule_sources import complete_servers, name_manifests, pod_options, read_pods
from netinit.cli.values import takes
from netinit.inject.deciding.podfile import PodFacts
from netinit.kernel.detect import read_name_servers
from netinit.options import Options, offline
from netinit.questions.lint import ERROR, NO_EFFECT, WARNING, Finding, lint

CLEAN, FOUND = 0, 1
ReadServers = Callable[[], Sequence[str]]


@click.command("lint", cls=FlagCommand, judges_all=True)
@click.argument("files", nargs=-1, **takes("[FILE]..."))
@pod_options("Check these pods and the options of their init containers (YAML or JSON).")
@click.option("--minimal", is_flag=True, help="Print the fewest options under which no packet is treated differently, proved.")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@ignore_options
@format_options("findings")
@color_option
def command(
    options: Options, files: tuple[str, ...], pod: tuple[str, ...], select: str, *, minimal: bool, strict: bool,
    accepted: dict[str, str], form: str,
) -> int:  # fmt: skip
    """Find options that contradict each other, lose traffic or have no effect; changes nothing.

    With files, the pods are checked too: host network, missing capabilities, users that are the proxy's, init containers
    without a network, containers that may change the rules, annotations without effect. That an option has no effect is
    proved for all packets; --minimal prints the fewest options with the same effect.

    docs/findings.md explains the codes. --ignore, --ignore-file, or the pod's annotation netinit.io/accepted-findings accept
    findings of a code.

    Exit codes: 0 no error (with --strict also no warning), 1 errors.
    """
    pods = read_pods((*pod, *files), select, name_manifests(pod, files)) if pod or files or select else None
    if minimal:
        if strict or accepted or form != TEXT:
            raise OptionError("--minimal: prints options and no findings; leave out --strict, --ignore…, --format and --json")
        asked = [("", options, read_name_servers)]
        if pods is not None:
            asked = [(facts.name, complete_servers(facts, options).options, tuple) for facts in pods if facts.programs]
        answer(lines([line for one in asked for line in _format_minimal(*one)]))
        return CLEAN
    if pods:
        issues = [one for facts in pods for one in lint_pod(options, facts, accepted)]
    else:
        issues = without_ignored(_to_issues(lint_options(options, read_servers=read_name_servers)), accepted, {})
    names = [facts.name for facts in pods or ()] or [""]
    if form == TEXT:
        answer(render_text(issues, names))
    else:
        show_artefact(render(form, "lint", issues, names))
    failing = {ERROR, WARNING} if strict else {ERROR}
    return FOUND if any(one.severity in failing for one in issues if not one.accepted) else CLEAN


def lint_options(
    options: Options, has_tunnel: bool | None = None, addresses: Sequence[str] = (), read_servers: ReadServers = tuple
) -> tuple[Finding, ...]:
    """Check options without a pod; known are at most its addresses and name servers and whether its proxy has a tunnel."""
    settled = options.settle(offline(addresses, read_servers))
    uncaptured = [Finding(WARNING, "ipv6", "--ipv6", text) for text in settled.warnings[-1:] if settled.second_address]
    return (*lint(settled, given=options, has_tunnel=has_tunnel), *uncaptured)


def lint_pod(options: Options, facts: PodFacts, accepted: Mapping[str, str]) -> list[Issue]:
    """Check a pod of a manifest, together with its init container's options; `accepted` has codes with reasons."""
    own = [Finding(one.severity, one.kind, one.subject, str(one)) for one in facts.findings]
    complete = complete_servers(facts, options)
    needed = lint_options(complete.options, facts.has_tunnel, facts.addresses) if facts.programs and not facts.host_network else ()
    if complete.notes != facts.notes:  # not all of its servers were named
        needed = tuple([one for one in needed if (one.kind, one.option) != (NO_EFFECT, "--redirect-dns")])
        kind = "dns-incomplete" if complete.options.dns_servers else NO_EFFECT
        needed += (Finding(WARNING, kind, "--redirect-dns", complete.notes[-1]),)
    findings = sorted((*own, *needed), key=lambda finding: finding.severity != ERROR)
    return without_ignored(_to_issues(findings, facts.name, facts.file), accepted, facts.accepted)


def _format_minimal(name: str, options: Options, read_servers: ReadServers) -> list[str]:
    """The shortest equivalent command line, below the pod's name."""
    from netinit.questions.lint.effect_proof import minimise  # imports the symbolic engine

    least = minimise(options.settle(offline(read_servers=read_servers)))
    return [*([f"# {name}"] if name else []), write_command(least.given)]


def _to_issues(findings: Iterable[Finding], pod: str = "", file: str = "") -> list[Issue]:
    return [Issue(one.kind, one.severity, one.option, one.message, pod, file) for one in findings]


def render_text(issues: Sequence[Issue], pods: Sequence[str]) -> Lines:
    """Format a line per finding that counts, grouped by pod, and a summary."""
    counted = [one for one in issues if not one.accepted]
    printed: list[str] = []
    place = ("", "")
    for one in counted:
        printed += [one.pod] if one.pod and (one.pod, one.file) != place else []
        place = (one.pod, one.file)
        printed.append(f"{'  ' if one.pod else ''}{one.severity} {one.code}: {one.text}")
    errors, warnings, notes = (sum(one.severity == severity for one in counted) for severity in (ERROR, WARNING, NOTE))
    where = f" in {count(len(pods), 'pod')}" if any(pods) else ""
    found = [count(errors, "error"), count(warnings, "warning"), *([count(notes, "note")] if notes else [])]
    summary = ", ".join(found) if counted else "no problems found"
    accepted = f", {len(issues) - len(counted)} accepted" if len(issues) > len(counted) else ""
    return lines([*printed, f"{summary}{where}{accepted}{f'; {PAGE} explains the codes' if counted else ''}"])
