"""`netinit verify`: the live rules against the plan."""

from __future__ import annotations

import json
import sys

import click

from netinit.cli.flags import FlagCommand
from netinit.errors import DriftError
from netinit.logs import Log
from netinit.options import Options
from netinit.render import hash_plan
from netinit.rules.xtables import write_plan
from netinit.verify import Report
from netinit.verify import verify as compare

AS_PLANNED = 0


@click.command("verify", cls=FlagCommand)
@click.option("--json", "as_json", is_flag=True, help="Print an object with ok, backend, hash and differences.")
def command(options: Options, as_json: bool) -> int:
    """Compare live rules with what the options want: of this namespace, or of a pod by --pid or --netns.

    Says what is missing, extra, moved, shadowed by rules of others, or left over from an earlier run; changes nothing.
    Give the options that the init container has got.

    Exit codes: 0 as planned, 3 different, 1 the rules cannot be read.
    """
    report = compare(options)
    log = Log(options.log_level, as_json=options.log_as_json)
    for warning in report.warnings:
        log.warn(warning)
    sys.stdout.write(render_json(report) if as_json else render_text(report))
    return DriftError.exit_code if report.differences else AS_PLANNED


def render_text(report: Report) -> str:
    """A line for each difference, and one that sums up."""
    count = sum(
        len(chain.rules)
        for family in report.plan.families
        for chains in write_plan(report.plan, family).values()
        for chain in chains.values()
    )
    lines = [difference.describe() for difference in report.differences]
    if lines:
        differences = f"{len(lines)} difference{'s' if len(lines) > 1 else ''}"
        lines.append(f"{differences} from the plan of {count} rules ({report.backend})")
    else:
        families = " and ".join([family.name for family in report.plan.families])
        lines.append(f"as planned: {count} rules for {families} ({report.backend})")
    return "".join([line + "\n" for line in lines])


def render_json(report: Report) -> str:
    """`ok`, `backend`, the plan's `hash`, `warnings`, and `differences` with the fields of rules.diff.Difference."""
    found = {
        "ok": not report.differences,
        "backend": report.backend,
        "hash": hash_plan(report.plan),
        "differences": [difference.__getstate__() for difference in report.differences],
        "warnings": list(report.warnings),
    }
    return json.dumps(found, indent=2) + "\n"
