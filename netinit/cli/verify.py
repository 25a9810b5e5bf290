"""`netinit verify`: compares the live rules with the plan, with --watch again on every change."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from netinit.base.errors import BackendUnavailableError, DriftError, OptionError, ValidationFailedError
from netinit.base.net import join_host
from netinit.base.output import show_object
from netinit.base.sanitize import Lines, escape, lines
from netinit.base.snapshot import Snapshot
from netinit.base.tables import format_table
from netinit.cli.console import answer, color_option, note, warn
from netinit.cli.flags import ANY_BACKEND, ANY_NAMESPACE, FlagCommand, json_option
from netinit.cli.rule_options import pod_options, rules_option
from netinit.library.rule_reading import PodChoice, read_dumps
from netinit.library.verify import compare, find_target
from netinit.options import Options
from netinit.options.command_line import names_rules
from netinit.questions.plan_comparison import Report
from netinit.questions.rule_sources import RULES, RuleSource
from netinit.questions.verify import describe_nothing, render_text, to_object
from netinit.rules.model import BYPASSING

if TYPE_CHECKING:
    from netinit.pods.probe.rows import Probes

MARKS = {True: "✔", False: "✘", None: "?"}


@click.command("verify", cls=FlagCommand, shows=(*ANY_NAMESPACE, *ANY_BACKEND, "ipset_threshold"))
@pod_options("Compare with the options of this pod's init container (YAML or JSON).")
@json_option("verify")
@rules_option
@click.option("--strict", is_flag=True, help="Exit with 3 also where captured packets are dropped, or may be redirected unseen.")
@click.option("--live", is_flag=True, help="Also send real packets and see where they go; needs NET_ADMIN and NET_RAW.")
@click.option("--connections", is_flag=True, help="Also judge the open TCP connections: which of them bypass the proxy.")
@click.option("--require-listener", "requires_listener", is_flag=True, help="Exit with 3 also where no proxy listens.")
@click.option("--watch", "watching", is_flag=True, help="Compare again whenever something changes, until Ctrl-C.")
@color_option
def command(  # noqa: PLR0917 - click's
    options: Options, pods: PodChoice, as_json: bool, rules: tuple[str, ...], strict: bool, live: bool, connections: bool,
    requires_listener: bool, watching: bool,
) -> int:  # fmt: skip
    """Compare the live rules of this namespace, or of a pod (--pid, --netns), with the plan.

    Give the options of the init container, or its pod with --pod; without any, they are inferred from the rules. Lists missing, extra
    and moved rules, foreign ones that decide first, remains of an earlier run, inactive rules, what diverts captured
    packets, and who does not listen. Changes nothing.

    --live sends the first packets of connections as application, proxy and neighbour. --watch compares again at each change that
    the kernel reports (not of sockets, BPF and legacy iptables), until Ctrl-C.

    Exit codes: 0 as planned, 1 the rules cannot be read, 3 rules differ, 126 packets go elsewhere than planned.
    """
    if rules:
        if live or watching or connections or requires_listener:
            raise OptionError(f"{RULES}: a file is compared; leave out --live, --watch, --connections and --require-listener")
        return _verify_dump(read_dumps(rules, options, pods), as_json=as_json, strict=strict)
    if live and watching:
        raise OptionError("--watch: contradicts --live, which sends packets each time; give one of the two")
    found = find_target(options, pods, is_given=names_rules(options))
    note(found.notes)
    target = found.options
    if target is None:
        _show(None, None, None, as_json=as_json, mesh=found.mesh)
        return DriftError.exit_code

    def look(read: Snapshot | None = None) -> Report:
        compared = compare(found, target, connections=connections, snapshot=read)
        return found.complete(compared, strict=strict, requires_listener=requires_listener)

    if watching:
        return watch(target, look, as_json=as_json, connections=connections)
    report = probes = None
    try:
        report = look(found.snapshot)
    except BackendUnavailableError as error:
        if not live:
            raise
        warn([str(error)])  # the packets can be sent nevertheless
    if live:
        from netinit.pods.probe.rows import probe

        probes = probe(target)
    warn([*(report.warnings if report else found.conditions), *(probes.notes if probes else ())])
    _show(report, probes, target, as_json=as_json)
    if probes and probes.wrong:
        return ValidationFailedError.exit_code
    return DriftError.exit_code if report and report.differences else 0


def _verify_dump(source: RuleSource, *, as_json: bool, strict: bool) -> int:
    """Compare the rules of a dump, and show what was found."""
    from netinit.questions.pasted_comparison import verify_dump

    found = verify_dump(source, strict=strict)
    note(found.notes)
    warn(found.warnings if found.report else source.warnings)
    _show(found.report, None, found.options, as_json=as_json, mesh=found.mesh)
    return 0 if found.ok else DriftError.exit_code


def _show(report: Report | None, probes: Probes | None, target: Options | None, *, as_json: bool, mesh: str = "") -> None:
    if as_json:
        show_object(to_plain(report, probes, target))
        return
    if not (report or probes):
        answer(lines([describe_nothing(mesh)]))
    if probes:
        answer(render_probes(probes))
    if report:
        answer(render_text(report))
    if probes:
        answer(conclude(report, probes))


def render_probes(probes: Probes) -> Lines:
    """Format a line per probe, with the expected result if it differs, and a summary."""
    cells = []
    for row in probes.rows:
        ask = row.ask
        outcome = row.expected if row.right else f"{row.expected}: {row.observed}" if row.expected else row.observed
        if row.right is False:
            outcome = f"must be {row.expected}{f' ({row.because})' if row.because else ''}, but {row.observed}"
        end = join_host(ask.destination, ask.port)
        way = f" through {ask.interface}" if ask.interface else ""
        cells.append((MARKS[row.right], ask.family.name, ask.protocol, escape(f"{ask.who} to {ask.target}{way}"), end, outcome))
    counts = Counter(row.right for row in probes.rows)
    more = f", {counts[None]} not judged" if counts[None] else ""
    summary = f"{counts[True]} of {len(probes.rows)} packets went as planned, {counts[False]} did not{more}"
    return lines([*format_table(cells), summary])


def conclude(report: Report | None, probes: Probes) -> Lines:
    """The last line of `--live`: misdirected packets outweigh rules that look right."""
    rules = "could not be compared" if report is None else "differ from the plan" if report.differences else "are as planned"
    judged = sum(row.right is not None for row in probes.rows)
    if probes.wrong:
        return lines([f"NOT as planned: {len(probes.wrong)} of {judged} packets went elsewhere; the rules {rules}"])
    if report and report.differences:
        return lines([f"NOT as planned: the rules {rules}; {judged} packets went as expected"])
    if not judged:
        return lines([f"not proven: no packet could be judged; the rules {rules}"])
    return lines([f"as planned: {judged} packets went as expected; the rules {rules}"])


_OF_PROBES = ("protocol", "who", "uid", "gid", "target", "destination", "port", "interface")


def to_plain(report: Report | None, probes: Probes | None = None, options: Options | None = None) -> dict[str, object]:
    """The object of netinit/data/verify.schema.json, with what `--live` saw.

    Without report and probes there was nothing to compare, which is not ok.
    """
    found = to_object(report, options)
    if not probes:
        return found
    named = found.pop("options")
    found["ok"] = not (report and report.differences) and not probes.wrong
    return found | {
        "probes": [
            {
                "ok": row.right, "direction": row.ask.direction, "family": row.ask.family.name,
                **{key: getattr(row.ask, key) for key in _OF_PROBES},
                **{key: getattr(row, key) for key in ("expected", "observed", "because")},
            }
            for row in probes.rows
        ],
        "wrong": len(probes.wrong), "notes": list(probes.notes), "options": named,
    }  # fmt: skip


def _show_change(report: Report, before: Report | None, options: Options, *, seconds: float, as_json: bool) -> None:
    warn([text for text in report.warnings if before is None or text not in before.warnings])
    if before is not None and all(getattr(before, one) == getattr(report, one) for one in ("backend", "differences", "listening")):
        return
    if as_json:
        show_object({"seconds": round(seconds, 3), **to_plain(report, None, options)}, now=True)
    else:
        answer(render_text(report), now=True)


def watch(options: Options, look: Callable[[], Report], *, as_json: bool, connections: bool = False) -> int:
    """Compare until Ctrl-C and print each report that differs from the one before, as JSON lines or text.

    Returns the last report's exit code. Raises NamespaceError if the pod goes away.
    """
    from netinit.cli.watch import MAX_FAILURES
    from netinit.pods.pod_changes import Changes

    begun = time.monotonic()
    last: Report | None = None
    failures = 0
    try:
        with Changes(options, connections=connections) as changes:
            while True:
                changes.begin_read()
                try:
                    report = look()
                except BackendUnavailableError:
                    failures += 1
                    if last is None or failures > MAX_FAILURES:
                        raise
                else:
                    failures = 0
                    before, last = last, report  # from here on Ctrl-C ends with this report's code
                    _show_change(report, before, options, seconds=time.monotonic() - begun, as_json=as_json)
                    # The kernel reports a connection's end when its conntrack entry expires, 120 s later.
                    changes.wait(briefly=any(one.kind == BYPASSING for one in report.differences))
    except KeyboardInterrupt:
        if last is None:
            raise
        return DriftError.exit_code if last.differences else 0
