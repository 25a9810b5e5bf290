"""`netinit trace`: follows real packets with the kernel's trace and compares them with `explain`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from netinit.base.errors import DriftError, NetinitError
from netinit.base.net import FAMILIES
from netinit.base.output import show_object
from netinit.base.sanitize import Lines, escape, lines
from netinit.base.snapshot import Snapshot
from netinit.cli.console import answer as show_answer
from netinit.cli.console import color_option, note, warn
from netinit.cli.flags import ANY_NAMESPACE, STDIN, FlagCommand, json_option, until_input_option
from netinit.cli.rule_options import question_options
from netinit.cli.values import SECONDS, numbers, takes
from netinit.kernel.netlink import read_nft_generation
from netinit.kernel.run import Signals, await_input
from netinit.kernel.trace_messages import require_admin
from netinit.library.rule_reading import LIVE, find_rule_source
from netinit.live.verdict_counters import Place, count_rules
from netinit.options import Options
from netinit.pods.pod_trace import SLICE, Follower, inside, number_rules, open_tracer
from netinit.questions.answers import PathRow, answer_question, format_path, format_rule
from netinit.questions.connections import Question, make_packet
from netinit.questions.explain import Explanation
from netinit.questions.pod_rules import PodRules
from netinit.simulate.endpoints import format_packet
from netinit.simulate.engine import simulate
from netinit.simulate.old_entries import simulate_on_old_entries
from netinit.simulate.stand_ins import stand_in
from netinit.simulate.trace import Trace, TraceStep
from netinit.simulate.trace_alignment import FOREIGN, LABELS, AlignedTrace, align, describe_end

REPLACED = "the rules were replaced while it was on its way: the next packets are compared with the new ones"
SIGNS = dict(zip(LABELS, ("!", "✘", "?"), strict=True))
ON_OLD_ENTRY = "so does a connection that is untracked, or that starts on another one's old conntrack entry"


@click.command("trace", cls=FlagCommand, shows=(*ANY_NAMESPACE, "host_network"))
@question_options("Only connections of this user: number or name.", "Only connections of this group.")
@click.option("--count", default=1, show_default=True, **takes(numbers(1)), help="End after this many packets.")
@click.option("--timeout", default=60.0, show_default=True, **takes(SECONDS), help="End after this time.")
@click.option(
    "--rate", default=5, show_default=True, **takes(numbers(1, 1000)), help="At most this many packets a second."
)
@json_option("trace", "one object a line")
@until_input_option
@color_option
def command(options: Options, question: Question, *, count: int, timeout: float, rate: int, as_json: bool, until_input: bool) -> int:
    """Follow real packets of a pod through its rules, and compare with what explain predicts.

    Nothing is sent: the command waits for packets that open a connection to --to (for UDP, each datagram). Each rule that the
    kernel reports is compared with the prediction.

    Meanwhile an nf_tables table netinit-trace is in the pod, which affects no packet. It is deleted with the command, also
    after kill -9 (before Linux 5.12 by the next run). A pod has one trace at a time.

    Exit codes: 0 every packet went as predicted, or nothing could be predicted; 1 no packet was seen; 3 one did not.
    """
    make_packet(question, {family: stand_in(family) for family in FAMILIES})  # fail early: invalid here, invalid in every pod

    def work(here: Options, signals: Signals) -> tuple[int, int]:
        seen = wrong = 0
        for found in _follow(here, question, signals, timeout, rate, until_input=until_input):
            seen += 1
            wrong += found[2].agrees is False
            if as_json:
                show_object(to_object(*found), now=True)
            else:
                show_answer(render_text(*found), now=True)
            if seen >= count or signals.pending:
                break
        signals.take()
        return seen, wrong

    seen, wrong = inside(options, work, timeout, holding=(STDIN,) if until_input else ())
    if not seen:
        raise NetinitError(
            "no packet that begins such a connection was seen; make the connection while this waits (--timeout),"
            " or filter less (--uid, --from)"
        )
    return DriftError.exit_code if wrong else 0


def _follow(
    options: Options, question: Question, signals: Signals, timeout: float, rate: int, *, until_input: bool
) -> Iterator[tuple[Trace, Explanation, AlignedTrace]]:
    """Yield the packets in question as they come: observed path, explanation, and both merged."""
    require_admin()
    rule_source = find_rule_source(options, LIVE)
    note(rule_source.notes)
    warn(rule_source.warnings)
    rules = rule_source.rules
    snapshot = rules.snapshot or Snapshot()
    generation = snapshot.generation  # of the rules that were read last
    packet = make_packet(question, rules.surroundings)
    inbound = bool(packet.in_interface)
    wanted = packet.replace(
        source=packet.source if question.source else None, destination=packet.destination if question.to else None,
        uid=packet.uid if question.uid else None, gid=packet.gid if question.gid else None,
    )  # fmt: skip
    older = any(name.endswith("legacy") for name in rules.rulesets)
    deadline = time.monotonic() + timeout
    with open_tracer(wanted, rate=rate, older=older) as tracer:
        follower = Follower(tracer, wanted, rules.rulesets, snapshot)
        which = f"{'a datagram' if question.udp else 'a connection'} that {'comes in' if inbound else 'is made here'}"
        note([f"waiting for {which}, to port {wanted.destination_port or 0}; Ctrl-C ends it"])
        while time.monotonic() < deadline and not signals.pending and not (until_input and await_input(STDIN, 0)):
            found = follower.read(SLICE)
            if not found:
                continue
            rules_now, snapshot_now = rules, snapshot
            if older or read_nft_generation() != generation:
                rules_now = find_rule_source(options, LIVE).rules
                snapshot_now = rules_now.snapshot or Snapshot()
                generation = snapshot_now.generation
            current = number_rules(snapshot_now) == number_rules(snapshot) and _texts(rules_now) == _texts(rules)
            for observed in found:
                answer, folded = compare(rules, observed)
                yield observed, answer, folded if current else replace(folded, agrees=None, notes=(*folded.notes, REPLACED))
            if not current:
                rules, snapshot = rules_now, snapshot_now
                follower = Follower(tracer, wanted, rules.rulesets, snapshot)


def _texts(rules: PodRules) -> dict[Place, str]:
    """Key that changes with the rules; legacy iptables has no handles."""
    return {place: text for place, (text, _) in count_rules(rules.rulesets, frozenset()).items()}


def compare(rules: PodRules, observed: Trace) -> tuple[Explanation, AlignedTrace]:
    """Explain an observed packet and merge both paths."""
    packet = observed.first
    answer = answer_question(rules, packet).answer
    ruleset, around = rules.join(packet.family), rules.surroundings[packet.family]
    folded = align(observed, simulate(packet, ruleset, around))
    if folded.agrees is False:
        for trace in simulate_on_old_entries(packet, ruleset, around):
            if align(observed, trace).agrees:
                return answer, replace(folded, notes=(*folded.notes, ON_OLD_ENTRY))
    return answer, folded


def render_text(observed: Trace, answer: Explanation, folded: AlignedTrace) -> Lines:
    """Format the observation, the prediction and the path."""
    agreement = {True: "as predicted", False: "NOT as predicted", None: "not predicted"}[folded.agrees]
    printed = [describe_end(observed), f"{agreement}: {answer.sentence}", *[f"  ✘ {text}" for text in folded.differences]]
    printed += [f"note: {text}" for text in folded.notes]
    printed += ["", f"packet: {format_packet(observed.first)}", "path:"]
    printed += format_path([_path_row(line, kind, answer) for line, kind in folded.lines])
    return lines([line.rstrip() for line in [*printed, ""]])


def _path_row(line: TraceStep, kind: str, answer: Explanation) -> PathRow:
    label = LABELS.get(kind, "")
    title = f"{line.hook}, {'' if kind == FOREIGN else 'table '}{line.table}"
    head = f"{SIGNS.get(kind, '✔')} " + escape(f"{line.chain} {line.place[-1] or '-'}")
    if line.rule is None:
        return line.place[:2], title, head, f"{line.outcome}  # {label}"
    return line.place[:2], title, head, f"{format_rule(line.rule, answer.option_of(line))}{f'  <- {label}' if label else ''}"


def to_object(observed: Trace, answer: Explanation, folded: AlignedTrace) -> dict[str, Any]:
    """A packet in the form of netinit/data/trace.schema.json."""
    return {
        "verdict": observed.verdict, "port": observed.redirect_port or None, "sentence": describe_end(observed),
        "predicted": answer.sentence, "agrees": folded.agrees, "differences": list(folded.differences),
        "notes": list(folded.notes), "packet": format_packet(observed.first),
        "uid": observed.first.uid, "gid": observed.first.gid,
        "path": [
            {
                "seen": kind, "hook": line.hook, "table": line.table, "chain": line.chain, "number": line.place[-1] or None,
                "rule": line.rule.text if line.rule else "", "purpose": line.rule.purpose if line.rule else "",
                "comment": line.rule.comment if line.rule else "", "outcome": line.outcome,
            }
            for line, kind in folded.lines
        ],
    }  # fmt: skip
