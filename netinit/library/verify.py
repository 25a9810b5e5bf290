"""`netinit.verify`, and the options that a namespace's rules should have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from netinit.base.errors import BackendUnavailableError, OptionError
from netinit.base.snapshot import Snapshot
from netinit.inject.deciding.podfile import PodFacts
from netinit.library.parameters import Files, Pods, choose_pods, list_files, name_place
from netinit.library.rule_reading import PodChoice, find_known, read_dumps
from netinit.live.lost_answers import LostAnswers
from netinit.live.unfollowed import list_hidden
from netinit.options import Options, SettledOptions
from netinit.options.command_line import format_options
from netinit.questions.listening import examine_pod, require
from netinit.questions.option_names import name_options, translate
from netinit.questions.plan_comparison import Report
from netinit.questions.rule_sources import complete_servers, list_conditions
from netinit.questions.shown_options import describe_gaps
from netinit.questions.verify import VerifyReport
from netinit.rules.infer_options import InferredOptions
from netinit.rules.model import Plan

KEPT = ("netns", "pid", "debug")  # options of the run, not of the rules


def verify(
    options: Options | None = None, *, pod: Pods = (), select: str = "", pid: int | None = None, netns: str | None = None,
    rules: Files = (), strict: bool = False, connections: bool = False, require_listener: bool = False,
) -> VerifyReport:  # fmt: skip
    """Compare a namespace (default: this process's) with a plan, and say whether its rules are in force; changes nothing.

    The plan is that of the options, or of a `pod`; without either, that of the node agent's record, or of the options that the
    rules show. `strict`: captured packets that foreign rules drop, or may redirect unseen, are differences. `connections`:
    so are open connections that bypass the proxy. `require_listener`: so is a proxy that does not listen where the rules send
    connections. `rules`: files of dumps, which are compared instead of a
    namespace. Raises OptionError, ParseError, NamespaceError; BackendUnavailableError if rules cannot be read.
    """
    if rules:
        if connections or require_listener:
            label = "connections" if connections else "require_listener"
            raise OptionError(f"{label}: a dump has none; remove it")
        from netinit.questions.pasted_comparison import verify_dump

        place = name_place(options, pid, netns)
        return verify_dump(read_dumps(list_files(rules), place, choose_pods(pod, select, options)), strict=strict)
    place = name_place(options, pid, netns)
    target = find_target(place, choose_pods(pod, select, options), is_given=options is not None)
    if target.options is None:
        return VerifyReport(report=None, options=None, notes=target.notes, mesh=target.mesh)
    report = compare(target, target.options, connections=connections, snapshot=target.snapshot)
    report = target.complete(report, strict=strict, requires_listener=require_listener)
    return VerifyReport(report=report, options=target.options, notes=target.notes)


@dataclass(frozen=True, slots=True)
class VerifyTarget:
    """The options to compare with, None if none are given and no rules show them, and notes on whose they are.

    `conditions`: what would make the proof void. `snapshot`: what was read of the namespace to infer the options. `shown`:
    what the rules show, if the options are theirs. `mesh`: whose rules are there instead, if that is known. `origins`: what sets
    an option, if not a flag; `names`: what the pod's author calls options, by field.
    """

    options: Options | None
    notes: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    snapshot: Snapshot | None = None
    shown: InferredOptions | None = None
    mesh: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def complete(self, report: Report, *, strict: bool, requires_listener: bool = False) -> Report:
        """The report with the conditions of the proof.

        Its doubts are differences if `strict`, and so is a proxy that does not listen if `requires_listener`.
        """
        counted = report.with_doubts() if strict else report
        more = require(report.listening) if requires_listener else ()
        named = tuple([one.replace(origin=translate(one.origin, self.origins)) for one in counted.differences + more])
        warnings = tuple([translate(one, self.names) for one in counted.warnings + self.conditions])
        return counted.replace(differences=named, warnings=warnings)


def read_pod(options: Options, pods: PodChoice) -> PodFacts:
    """The pod that is meant, with its options, in the namespace that `options` name. Raises OptionError, ParseError."""
    facts = pods.read_one()
    if facts.host_network:
        raise OptionError(f"--pod: {facts.name}: {facts.findings[0]}")
    return replace(facts, options=facts.options.replace(**{name: getattr(options, name) for name in KEPT}))


def find_target(options: Options, pods: PodChoice, *, is_given: bool) -> VerifyTarget:
    """Find the options to compare with. `is_given`: whether the options name rules.

    Raises OptionError, ParseError, BackendUnavailableError.
    """
    if options.cleanup_only:
        raise OptionError("--cleanup-only: verify compares with rules; remove it (netinit remove --dry-run lists the rules)")
    kept = {name: getattr(options, name) for name in KEPT}
    if pods.names_any:
        facts = complete_servers(read_pod(options, pods), options)
        conditions = tuple([f"this holds unless {condition}" for condition in list_conditions(facts)])
        note = f"{facts.name}: {'; '.join(facts.notes)}"
        return VerifyTarget(facts.options, (note,), conditions, origins=facts.origins, names=name_options(facts))
    if is_given:
        return VerifyTarget(options)
    known, _ = find_known(options)
    if known:
        text = f"no options were given; those with which the node's agent programmed the pod: {format_options(known)}"
        return VerifyTarget(known.replace(**kept), (text,))
    from netinit.pods.live import infer_run, read_live

    if shown := infer_run(options):
        target, source, inferred, snapshot = shown
        origin = "the nft table's comment records" if inferred.recorded else "the rules show"
        unread = () if inferred.recorded else [f"{source}: not shown by the rules: {text}" for text in inferred.unread]
        gaps = () if inferred.recorded else describe_gaps(inferred)
        notes = (f"no options were given; those that {origin}: {format_options(target)}", *unread, *gaps)
        return VerifyTarget(target, notes, snapshot=snapshot, shown=None if inferred.recorded else inferred)
    rules = read_live(options).rules
    if rules.snapshot and (hidden := list_hidden(rules.snapshot)):
        what = " and ".join(hidden)
        raise BackendUnavailableError(f"whether rules are here is not known: {what} may not be read by this user: run netinit as root")
    return VerifyTarget(None, mesh=rules.other_mesh)


def compare(
    target: VerifyTarget, options: Options, *, connections: bool = False, snapshot: Snapshot | None = None
) -> Report:
    """Compare a namespace with its target, `options`, and say who listens.

    Rules that an earlier release of Istio made are compared with that release's.
    """
    snapshot = snapshot or _read_snapshot(options)
    report = _compare_rules(target, options, connections=connections, snapshot=snapshot)
    recipients = examine_pod(snapshot, report.plan, report.backend) if report.ours else ()
    return report.replace(listening=recipients)


def _read_snapshot(options: Options) -> Snapshot | None:
    """Read a namespace with who listens in it; None if it cannot be read, which the comparison reports. Raises NamespaceError."""
    from netinit.pods.live import read_with_listeners

    try:
        return read_with_listeners(options)
    except OSError:
        return None


def _compare_rules(target: VerifyTarget, options: Options, *, connections: bool, snapshot: Snapshot | None) -> Report:
    from netinit.pods.verify import verify as compare_plan

    shown = target.shown
    if shown and shown.older:
        return _compare_older(options, shown, connections=connections, snapshot=snapshot)
    report = compare_plan(options, connections=connections, snapshot=snapshot, answers=LostAnswers())
    given = report.plan.made_from
    if shown or not (report.ours and report.differences and isinstance(given, SettledOptions)):
        return report
    shown = _find_older(options)
    return _compare_older(options, shown, connections=connections, snapshot=snapshot, given=given) if shown else report


def _find_older(options: Options) -> InferredOptions | None:
    """What the rules show, if they are exactly those of an earlier release of Istio."""
    from netinit.pods.live import infer_run

    found = infer_run(options)
    return found[2] if found and found[2].older and found[2].older.exact else None


def _compare_older(
    options: Options, shown: InferredOptions, *, connections: bool, snapshot: Snapshot | None, given: SettledOptions | None = None
) -> Report:
    """Compare with the plan of the earlier release; `given`: the options of its pod, if they are not those that its rules show."""
    from netinit.pods.verify import verify as compare_plan
    from netinit.questions.older_rules import compare_release

    def make_plan(settled: SettledOptions) -> Plan:
        return shown.make_plan(shown.settle_as(settled) if given else settled)

    report = compare_plan(options, connections=connections, snapshot=snapshot, make_plan=make_plan, answers=LostAnswers())
    wanted = given or report.plan.made_from
    if not isinstance(wanted, SettledOptions):
        return report
    return report.replace(older=compare_release(str(shown.older), wanted, report.plan))
