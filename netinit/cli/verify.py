"""`netinit verify`: the live rules against the plan."""

from __future__ import annotations

import click

from netinit.base.errors import BackendUnavailableError, DriftError, ValidationFailedError
from netinit.base.logs import Log
from netinit.base.output import show, show_artefact, to_json
from netinit.base.shown import Lines, escape, lines
from netinit.cli.flags import FlagCommand
from netinit.options import Options
from netinit.pods.probe import Probes, probe
from netinit.pods.probe.matrix import INBOUND
from netinit.pods.verify import Report
from netinit.pods.verify import verify as compare
from netinit.rules.iptables.write import write_plan
from netinit.rules.render import hash_plan

AS_PLANNED = 0
MARKS = {True: "✔", False: "✘", None: "?"}


@click.command("verify", cls=FlagCommand)
@click.option("--json", "as_json", is_flag=True, help="Print an object with ok, backend, hash and differences.")
@click.option("--live", is_flag=True, help="Also send real packets and see where they go; needs NET_ADMIN and NET_RAW.")
def command(options: Options, as_json: bool, live: bool) -> int:
    """Compare the live rules of this namespace, or of a pod (--pid, --netns), with those that the options ask for.

    Lists rules that are missing, extra, moved, shadowed by foreign rules, or left over from an earlier run; changes
    nothing. Give the same options as the init container has.

    With --live, the first packets of connections are sent: as the application, as the proxy, and from a temporary
    neighbour. Connection tracking shows where each one goes. No program in the pod sees them, and those that are not
    captured are dropped at the first router. Rule counters rise; nothing else changes.

    Exit codes: 0 as planned, 3 rules differ, 126 packets go elsewhere than planned, 1 the rules cannot be read.
    """
    log = Log(options.log_level, as_json=options.log_as_json)
    report = probes = None
    try:
        report = compare(options)
    except BackendUnavailableError as error:
        if not live:
            raise
        log.warn(str(error))  # packets can be sent all the same
    if live:
        probes = probe(options)
    for warning in dict.fromkeys([*(report.warnings if report else ()), *(probes.notes if probes else ())]):
        log.warn(warning)
    if as_json:
        show_artefact(render_json(report, probes))
    else:
        if probes:
            show(render_probes(probes))
        if report:
            show(render_text(report))
        if probes:
            show(conclude(report, probes))
    if probes and probes.wrong:
        return ValidationFailedError.exit_code
    return DriftError.exit_code if report and report.differences else AS_PLANNED


def render_probes(probes: Probes) -> Lines:
    """A line for each probe, what it should have come to where it came to something else, and one that sums up."""
    cells = []
    for row in probes.rows:
        ask = row.ask
        end = f"[{ask.destination}]:{ask.port}" if ":" in ask.destination else f"{ask.destination}:{ask.port}"
        outcome = row.expected if row.right else f"{row.expected}: {row.observed}" if row.expected else row.observed
        if row.right is False:
            outcome = f"must be {row.expected}{f' ({row.because})' if row.because else ''}, but {row.observed}"
        cells.append(
            (MARKS[row.right], ask.family.name, ask.protocol, escape(f"{ask.who} to {ask.target}"), end, outcome)
        )
    widths = [max(len(line[column]) for line in cells) for column in range(5)] if cells else []
    printed = [
        "  ".join([*[cell.ljust(width) for cell, width in zip(line, widths, strict=False)], line[5]]) for line in cells
    ]
    right = sum(row.right is True for row in probes.rows)
    untold = sum(row.right is None for row in probes.rows)
    more = f", {untold} not judged" if untold else ""
    printed.append(f"{right} of {len(probes.rows)} packets went as planned, {len(probes.wrong)} did not{more}")
    return lines(printed)


def conclude(report: Report | None, probes: Probes) -> Lines:
    """The verdict of `--live` in one line, the last: packets that go elsewhere outweigh rules that look right."""
    rules = "could not be compared" if report is None else "differ from the plan" if report.differences else "are as planned"
    judged = sum(row.right is not None for row in probes.rows)
    if probes.wrong:
        return lines([f"NOT as planned: {len(probes.wrong)} of {judged} packets went elsewhere; the rules {rules}"])
    if report and report.differences:
        return lines([f"NOT as planned: the rules {rules}; {judged} packets went as they must"])
    if not judged:
        return lines([f"not proven: no packet could be judged; the rules {rules}"])
    return lines([f"as planned: {judged} packets went as they must; the rules {rules}"])


def render_text(report: Report) -> Lines:
    """A line for each difference, and one that sums up."""
    count = sum(
        len(chain.rules)
        for family in report.plan.families
        for chains in write_plan(report.plan, family).values()
        for chain in chains.values()
    )
    printed = [difference.describe() for difference in report.differences]
    if printed:
        differences = f"{len(printed)} difference{'s' if len(printed) > 1 else ''}"
        printed.append(f"{differences} from the plan of {count} rules ({report.backend})")
    else:
        families = " and ".join([family.name for family in report.plan.families])
        printed.append(f"as planned: {count} rules for {families} ({report.backend})")
    return lines(printed)


def render_json(report: Report | None, probes: Probes | None = None) -> str:
    """`ok`, `backend`, the plan's `hash`, `warnings`, and `differences` with the fields of rules.diff.Difference."""
    return to_json(_to_plain(report, probes))


def _to_plain(report: Report | None, probes: Probes | None) -> dict[str, object]:
    """The comparison's fields, null where it could not be made; with probes also `probes`, `wrong` and `notes`."""
    found: dict[str, object] = {
        "ok": not (report and report.differences) and not (probes and probes.wrong),
        "backend": report.backend if report else None,
        "hash": hash_plan(report.plan) if report else None,
        "differences": [difference.__getstate__() for difference in report.differences] if report else None,
        "warnings": list(report.warnings) if report else [],
    }
    if probes:
        found |= {
            "probes": [
                {
                    "ok": row.right, "direction": "inbound" if row.ask.direction == INBOUND else "outbound",
                    "family": row.ask.family.name, "protocol": row.ask.protocol, "who": row.ask.who,
                    "uid": row.ask.uid, "gid": row.ask.gid, "target": row.ask.target,
                    "destination": row.ask.destination, "port": row.ask.port,
                    "expected": row.expected, "observed": row.observed, "because": row.because,
                }
                for row in probes.rows
            ],
            "wrong": len(probes.wrong),
            "notes": list(probes.notes),
        }  # fmt: skip
    return found
