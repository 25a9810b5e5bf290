"""Compares a packet's path reported by the kernel with the simulated one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from netinit.rules.model import NAT
from netinit.rules.packet_inputs import Packet
from netinit.simulate.endpoints import format_endpoint
from netinit.simulate.hooks import TABLES_OF_THE_KERNEL
from netinit.simulate.ruleset import LoadedRule, Ruleset
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, REFUSED, SENT, UNKNOWN, VANISHED, Trace, TraceStep

BOTH, KERNEL_ONLY, PREDICTED_ONLY, FOREIGN = "both", "kernel", "predicted", "foreign"  # who reports a rule
LABELS = {KERNEL_ONLY: "hit, and not predicted", PREDICTED_ONLY: "predicted, and not hit", FOREIGN: "not read by netinit"}
AS_KNOWN = "its connection was known before, so that NAT is skipped again"
INCOMPLETE = "some events of the kernel were lost, so that this is not the whole way"
_SAME = {REFUSED: DROPPED}


def trace_observed(first: Packet, last: Packet, fate: str, hits: tuple[TraceStep, ...], *, whole: bool = True) -> Trace:
    """The trace of an observed packet, from its headers at both ends and the rules it hits; `whole`: no event was lost."""
    ports = [one.rule.rule.target.captures_at for one in hits if one.rule]
    port = next((port for port in reversed(ports) if port), 0)
    return Trace(first, last, fate, hits, reason="" if whole else INCOMPLETE, redirect_port=port)


def describe_end(observed: Trace) -> str:
    """Describe an observed packet's end in words."""
    where = format_endpoint(observed.first.family, observed.last.destination, observed.last.destination_port)
    if observed.fate == DROPPED:
        _, table, chain, number = observed.steps[-1].place if observed.steps else ("", "", "", 0)
        return f"dropped by {table} {chain}, rule {number}" if number else "dropped"
    if observed.fate == VANISHED:
        return "unknown: it did not come to an end of the rules: the kernel dropped it between them (routing, rp_filter)"
    if observed.redirect_port:
        return f"captured: goes to the proxy on {observed.redirect_port}"
    if observed.fate == DELIVERED:
        return f"direct: arrives at {where}"
    return f"direct: {'is forwarded' if observed.fate == FORWARDED else 'goes out'} to {where} through {observed.last.out_interface}"


@dataclass(frozen=True, slots=True)
class AlignedTrace:
    """Both paths merged: each step with BOTH, KERNEL_ONLY, PREDICTED_ONLY, or FOREIGN if netinit cannot read the rule.

    `agrees` is None if the prediction is unknown or events were lost. `differences` list the disagreements; `notes` add
    context.
    """

    lines: tuple[tuple[TraceStep, str], ...]
    agrees: bool | None
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def align(observed: Trace, predicted: Trace) -> AlignedTrace:
    """Merge the observed path with the predicted one."""
    expected = [
        step for step in predicted.steps if step.rule is not None and step.holds is not False and step.table in TABLES_OF_THE_KERNEL
    ]  # shown as the kernel reports them
    hits = [one for one in observed.steps if one.rule]
    lines = tuple(_lines(observed, hits, expected))
    wrong = [line for line in lines if line[1] in (KERNEL_ONLY, PREDICTED_ONLY)]
    fate = _SAME.get(predicted.fate, predicted.fate)
    if fate == DROPPED and not predicted.decider and observed.fate == VANISHED:
        fate = VANISHED  # without a rule: the host does not forward
    if fate == UNKNOWN:
        return AlignedTrace(lines, None, notes=(f"this was not predicted: {predicted.reason}",))
    differences = []
    if fate != observed.fate:
        differences.append(f"predicted: {fate}; the kernel: {observed.fate}")
    elif observed.fate in (DELIVERED, SENT, FORWARDED):
        ends = [format_endpoint(end.family, end.destination, end.destination_port) for end in (predicted.last, observed.last)]
        if ends[0] != ends[1] and predicted.last.destination is not None:
            differences.append(f"predicted: it goes to {ends[0]}; the kernel: to {ends[1]}")
    of_nat = not any(one.table == NAT for one in hits) and all(line.table == NAT for line, _ in wrong)
    if wrong and not differences and of_nat:
        return AlignedTrace(lines, agrees=True, notes=(AS_KNOWN,))
    messages = [f"rule {step.place[-1]} of {step.table} {step.chain} ({step.hook}) was {LABELS[kind]}" for step, kind in wrong]
    if observed.reason:
        return AlignedTrace(lines, None, notes=(observed.reason,))
    return AlignedTrace(lines, not (messages or differences), (*messages, *differences))


def rules_of(ruleset: Ruleset, table: str, chain: str) -> dict[int, LoadedRule]:
    """A chain's rules by number."""
    found = ruleset.tables.get(table, {}).get(chain)
    return {loaded.number: loaded for loaded in found.rules} if found else {}


def _align(hits: list[TraceStep], expected: list[TraceStep]) -> dict[int, int]:
    """For each rule hits that was expected, by index, the index of that step.

    Backends are aligned separately, because the kernel reports legacy iptables by another mechanism.
    """
    pairs: dict[int, int] = {}
    several = any(step.source for step in expected)
    for source in dict.fromkeys([step.source for step in expected]):
        ours = [at for at, one in enumerate(hits) if not several or one.source == source]
        theirs = [at for at, step in enumerate(expected) if step.source == source]
        places = ([hits[at].place for at in ours], [expected[at].place for at in theirs])
        for i, j, size in SequenceMatcher(None, *places, autojunk=False).get_matching_blocks():
            pairs |= zip(ours[i : i + size], theirs[j : j + size], strict=True)
    return pairs


def _lines(observed: Trace, hits: list[TraceStep], expected: list[TraceStep]) -> Iterator[tuple[TraceStep, str]]:
    """Observed rules in order, each after the predicted rules that come before it; one that may match need not be hits."""
    pairs = _align(hits, expected)
    sure = {(step.source, step.place) for step in expected if step.holds}
    missing = [
        (at, (replace(step, outcome=""), PREDICTED_ONLY))
        for at, step in enumerate(expected)
        if at not in pairs.values() and (step.source, step.place) in sure
    ]
    matched = iter([pairs.get(index) for index in range(len(hits))])
    for one in observed.steps:
        if one.rule is None:
            yield one, FOREIGN
            continue
        expected_at = next(matched)
        while expected_at is not None and missing and missing[0][0] < expected_at:
            yield missing.pop(0)[1]
        yield replace(one, outcome=""), KERNEL_ONLY if expected_at is None else BOTH
    yield from [line for _, line in missing]
