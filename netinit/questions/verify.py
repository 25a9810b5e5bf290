"""What verify found: how live rules differ from their plan, as text and as an object. Pure.

netinit.pods.verify reads the namespace and compares; it gives a `Report`.
"""

from __future__ import annotations

from typing import Any

from netinit.base.json_answers import with_version
from netinit.base.records import Record
from netinit.base.sanitize import Lines, lines
from netinit.base.tables import count
from netinit.live.recipients import Recipient
from netinit.options import Options
from netinit.options.command_line import format_options
from netinit.questions.listening import describe
from netinit.questions.listening import to_object as recipient_to_object
from netinit.questions.plan_comparison import Report
from netinit.questions.release_comparison import ReleaseComparison
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import MISSING, Difference, Plan
from netinit.rules.render import hash_plan

MAX_SHOWN = 8  # kinds of packets
NOTHING = "no rules of netinit here"


class VerifyReport(Record):
    """A namespace's rules compared with the plan of `options`.

    `report` and `options` are None where no options were named and there are no rules that show any. `notes`: whose the options
    are. `mesh`: whose the rules are instead, if that is known.
    """

    report: Report | None
    options: Options | None
    notes: tuple[str, ...] = ()
    mesh: str = ""

    @property
    def ok(self) -> bool:
        """Whether the rules are there and as planned."""
        return self.report is not None and not self.report.differences

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All differences from the plan."""
        return self.report.differences if self.report else ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful."""
        return self.report.warnings if self.report else ()

    @property
    def listeners(self) -> tuple[Recipient, ...]:
        """What is wrong with who listens where captured connections arrive, and with what the application listens on."""
        return self.report.listening if self.report else ()

    @property
    def backend(self) -> str:
        """The backend whose rules were compared; empty without any."""
        return self.report.backend if self.report else ""

    @property
    def plan(self) -> Plan | None:
        """The plan that the rules were compared with."""
        return self.report.plan if self.report else None

    @property
    def text(self) -> Lines:
        """What `netinit verify` prints."""
        return render_text(self.report) if self.report else lines([describe_nothing(self.mesh)])

    def to_object(self) -> dict[str, Any]:
        """What `netinit verify --json` prints: netinit/data/verify.schema.json describes it."""
        return with_version(to_object(self.report, self.options))


def describe_nothing(mesh: str) -> str:
    """Say that no rules of netinit are here, and what can be asked of those of another mesh instead."""
    if not mesh:
        return NOTHING
    asked = "netinit audit and explain read them"
    return f"{NOTHING}: they are {mesh}'s; {asked}, netinit convert {mesh.lower()} finds the options for the same traffic"


def render_text(report: Report) -> Lines:
    """Format a line per difference, and a summary."""
    written = [write_plan(report.plan, family) for family in report.plan.families]
    number = sum(len(chain.rules) for tables in written for chains in tables.values() for chain in chains.values())
    if not report.ours and {difference.kind for difference in report.differences} == {MISSING}:
        return lines([f"{NOTHING}: all {number} rules of the plan are missing ({report.backend})"])
    printed = [difference.describe() for difference in report.differences]
    if printed:
        whose = f", those of {report.older.releases}" if report.older else ""
        printed.append(f"{count(len(printed), 'difference')} from the plan of {number} rules ({report.backend}){whose}")
    else:
        families = " and ".join([family.name for family in report.plan.families])
        printed.append(f"as planned: {number} rules for {families} ({report.backend})")
        printed += describe_older(report.older) if report.older else []
    counted = {difference.rule for difference in report.differences}  # with --require-listener
    return lines([*printed, *[describe(one) for one in report.listening if one.text not in counted]])


def describe_older(older: ReleaseComparison) -> list[str]:
    """How the rules of an earlier release of Istio differ from today's."""
    if older.doubt:
        return [f"rules of {older.releases}; {older.doubt}"]
    if not older.differences:
        return [f"rules of {older.releases}, equal for all packets to the current ones ({older.options}): proved"]
    number, left = len(older.differences), len(older.differences) - MAX_SHOWN
    said = f"rules of {older.releases}; the current ones ({older.options}) treat {count(number, 'kind')} of packets differently:"
    more = [f"  and {count(left, 'kind')} more"] if left > 0 else []
    return [said, *[f"  {text}" for text in older.differences[:MAX_SHOWN]], *more]


def _older_to_object(older: ReleaseComparison) -> dict[str, Any]:
    equal = not (older.doubt or older.differences)
    return {"releases": older.releases, "equal": equal, "differences": list(older.differences)}


def to_object(report: Report | None, options: Options | None = None) -> dict[str, Any]:
    """The object of netinit/data/verify.schema.json; the comparison's fields are null without a report, which is not ok."""
    return {
        "ok": report is not None and not report.differences,
        "backend": report.backend if report else None,
        "hash": hash_plan(report.plan) if report else None,
        "differences": [difference.__getstate__() for difference in report.differences] if report else None,
        "warnings": list(report.warnings) if report else [],
        "options": format_options(options) if options else None,
        "istio": _older_to_object(report.older) if report and report.older else None,
        "listeners": [recipient_to_object(one) for one in report.listening] if report else [],
    }
