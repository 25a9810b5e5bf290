"""`netinit.verify`, and the options that a namespace's rules should have."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.base.errors import OptionError
from netinit.base.snapshot import Snapshot
from netinit.library.parameters import Files, Pods, choose_pods, list_files, name_place
from netinit.library.rule_reading import PodChoice, find_known, read_dumps
from netinit.options import Options
from netinit.options.command_line import format_options
from netinit.questions.pasted_comparison import verify_dump
from netinit.questions.plan_comparison import Report
from netinit.questions.rule_sources import complete_servers, list_conditions
from netinit.questions.verify import VerifyReport

KEPT = ("netns", "pid", "debug")  # options of the run, not of the rules


def verify(
    options: Options | None = None, *, pod: Pods = (), select: str = "", pid: int | None = None, netns: str | None = None,
    rules: Files = (), strict: bool = False, connections: bool = False,
) -> VerifyReport:  # fmt: skip
    """Compare a namespace (default: this process's) with a plan, and say whether its rules are in force; changes nothing.

    The plan is that of the options, or of a `pod`; without either, that of the node agent's record, or of the options that the
    rules show. `strict`: captured packets that foreign rules drop, or may redirect unseen, are differences. `connections`:
    so are open connections that bypass the proxy. `rules`: files of dumps, which are compared instead of a
    namespace. Raises OptionError, ParseError, NamespaceError; BackendUnavailableError if rules cannot be read.
    """
    if rules:
        if connections:
            raise OptionError("connections: a dump has none; leave it out")
        place = name_place(options, pid, netns)
        return verify_dump(read_dumps(list_files(rules), place, choose_pods(pod, select, options)), strict=strict)
    from netinit.pods.verify import verify as compare

    place = name_place(options, pid, netns)
    target = find_target(place, choose_pods(pod, select, options), is_given=options is not None)
    if target.options is None:
        return VerifyReport(report=None, options=None, notes=target.notes)
    report = compare(target.options, connections=connections, snapshot=target.snapshot)
    return VerifyReport(report=target.complete(report, strict=strict), options=target.options, notes=target.notes)


@dataclass(frozen=True, slots=True)
class VerifyTarget:
    """The options to compare with, None if none are given and no rules show them, and notes on whose they are.

    `conditions`: what would make the proof void. `snapshot`: what was read of the namespace to infer the options.
    """

    options: Options | None
    notes: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    snapshot: Snapshot | None = None

    def complete(self, report: Report, *, strict: bool) -> Report:
        """The report with the conditions of the proof, and with its doubts as differences if `strict`."""
        counted = report.with_doubts() if strict else report
        return counted.replace(warnings=counted.warnings + self.conditions)


def find_target(options: Options, pods: PodChoice, *, is_given: bool) -> VerifyTarget:
    """Find the options to compare with. `is_given`: whether the options name rules. Raises OptionError, ParseError."""
    if options.cleanup_only:
        raise OptionError("--cleanup-only: verify compares with rules; leave it out (netinit remove --dry-run lists the rules)")
    kept = {name: getattr(options, name) for name in KEPT}
    if pods.names_any:
        facts = complete_servers(pods.read_one(), options)
        if facts.host_network:
            raise OptionError(f"--pod: {facts.name}: {facts.findings[0]}")
        conditions = tuple([f"this holds unless {condition}" for condition in list_conditions(facts)])
        return VerifyTarget(facts.options.replace(**kept), (f"{facts.name}: {'; '.join(facts.notes)}",), conditions)
    if is_given:
        return VerifyTarget(options)
    known, _ = find_known(options)
    if known:
        text = f"no options were given; those with which the node's agent programmed the pod: {format_options(known)}"
        return VerifyTarget(known.replace(**kept), (text,))
    from netinit.pods.live import infer_run

    if shown := infer_run(options):
        target, source, inferred, snapshot = shown
        origin = "the nft table's comment records" if inferred.recorded else "the rules show"
        unread = () if inferred.recorded else [f"{source}: not shown by the rules: {text}" for text in inferred.unread]
        notes = (f"no options were given; those that {origin}: {format_options(target)}", *unread)
        return VerifyTarget(target, notes, snapshot=snapshot)
    return VerifyTarget(None)
