"""Compares a packet's path reported by the kernel with the simulated one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from netinit.rules.model import NAT
from netinit.rules.packet_inputs import Packet
from netinit.simulate.endpoints import format_endpoint
from netinit.simulate.hooks import TABLES_OF_THE_KERNEL
from netinit.simulate.loaded_rules import LoadedRule
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, REFUSED, SENT, UNKNOWN, Trace, TraceStep, verdict_of

VANISHED = "vanished"  # its path was not seen to end, by a rule or otherwise
BOTH, KERNEL_ONLY, PREDICTED_ONLY, FOREIGN = "both", "kernel", "predicted", "foreign"
AS_KNOWN = "its connection was known before, so that NAT is not asked again"
_SAME = {REFUSED: DROPPED}


@dataclass(frozen=True, slots=True)
class ObservedHit:
    """A rule on a packet's path. `loaded` is None in a table that netinit cannot read; `outcome` is then the kernel's report.

    `kind`: BOTH, KERNEL_ONLY, PREDICTED_ONLY or FOREIGN, after comparison with the prediction.
    """

    hook: str
    table: str
    chain: str
    number: int
    loaded: LoadedRule | None = None
    outcome: str = ""
    source: str = ""  # backend of the table
    kind: str = ""

    @property
    def place(self) -> tuple[str, str, str, int]:
        """The rule's hook, table, chain and number."""
        return (self.hook, self.table, self.chain, self.number)


@dataclass(frozen=True, slots=True)
class TracedPacket:
    """An observed packet: initial headers, rules met, and end. `whole`: no event was lost."""

    first: Packet
    met: tuple[ObservedHit, ...]
    fate: str
    destination: int | None
    port: int | None
    interface: str = ""  # outgoing interface
    whole: bool = True

    @property
    def captured_at(self) -> int:
        """The proxy port that a rule redirected it to, or 0."""
        ports = [one.loaded.rule.target.captures_at for one in self.met if one.loaded]
        return next((port for port in reversed(ports) if port), 0)

    @property
    def verdict(self) -> str:
        """captured, direct or dropped; unknown if the packet vanished."""
        return UNKNOWN if self.fate == VANISHED else verdict_of(self.fate, self.captured_at)

    def describe(self) -> str:
        """Describe the packet's end in words."""
        where = format_endpoint(self.first.family, self.destination, self.port)
        if self.fate == DROPPED:
            last = self.met[-1] if self.met else None
            by = f" by {last.table} {last.chain}, rule {last.number}" if last and last.number else ""
            return f"dropped{by}"
        if self.fate == VANISHED:
            return "unknown: it did not come to an end of the rules: the kernel dropped it between them (routing, rp_filter)"
        if self.captured_at:
            return f"captured: goes to the proxy on {self.captured_at}"
        if self.fate == DELIVERED:
            return f"direct: arrives at {where}"
        return f"direct: {'is forwarded' if self.fate == FORWARDED else 'goes out'} to {where} through {self.interface}"


@dataclass(frozen=True, slots=True)
class AlignedTrace:
    """Both paths merged. `agrees` is None if the prediction is unknown or events were lost.

    `differences` list the disagreements; `notes` add context.
    """

    lines: tuple[ObservedHit, ...]
    agrees: bool | None
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def align(observed: TracedPacket, predicted: Trace) -> AlignedTrace:
    """Merge the observed path with the predicted one."""
    expected = [
        step for step in predicted.steps if step.rule is not None and step.holds is not False and step.table in TABLES_OF_THE_KERNEL
    ]  # shown as the kernel reports them
    met = [one for one in observed.met if one.loaded]
    lines = tuple(_lines(observed, met, expected))
    wrong = [line for line in lines if line.kind in (KERNEL_ONLY, PREDICTED_ONLY)]
    fate = _SAME.get(predicted.fate, predicted.fate)
    if fate == DROPPED and not predicted.decider and observed.fate == VANISHED:
        fate = VANISHED  # without a rule: the host does not forward
    if fate == UNKNOWN:
        return AlignedTrace(lines, None, notes=(f"this was not predicted: {predicted.reason}",))
    differences = []
    if fate != observed.fate:
        differences.append(f"predicted: {fate}; the kernel: {observed.fate}")
    elif observed.fate in (DELIVERED, SENT, FORWARDED):
        ends = [format_endpoint(observed.first.family, *end) for end in
                ((predicted.last.destination, predicted.last.destination_port), (observed.destination, observed.port))]  # fmt: skip
        if ends[0] != ends[1] and predicted.last.destination is not None:
            differences.append(f"predicted: it goes to {ends[0]}; the kernel: to {ends[1]}")
    of_nat = not any(one.table == NAT for one in met) and all(line.table == NAT for line in wrong)
    if wrong and not differences and of_nat:
        return AlignedTrace(lines, agrees=True, notes=(AS_KNOWN,))
    differences = [_describe(line) for line in wrong] + differences
    if not observed.whole:
        return AlignedTrace(lines, None, notes=("some events of the kernel were lost, so that this is not the whole way",))
    return AlignedTrace(lines, not differences, tuple(differences))


def rules_of(ruleset: Ruleset, table: str, chain: str) -> dict[int, LoadedRule]:
    """A chain's rules by number."""
    found = ruleset.tables.get(table, {}).get(chain)
    return {loaded.number: loaded for loaded in found.rules} if found else {}


def _place(step: TraceStep) -> tuple[str, str, str, int]:
    return (step.hook, step.table, step.chain, step.rule.number if step.rule else 0)


def _align(met: list[ObservedHit], expected: list[TraceStep]) -> dict[int, int]:
    """For each rule met that was expected, by index, the index of that step.

    Backends are aligned separately, because the kernel reports legacy iptables by another mechanism.
    """
    pairs: dict[int, int] = {}
    several = any(step.source for step in expected)
    for source in dict.fromkeys([step.source for step in expected]):
        ours = [at for at, one in enumerate(met) if not several or one.source == source]
        theirs = [at for at, step in enumerate(expected) if step.source == source]
        places = ([met[at].place for at in ours], [_place(expected[at]) for at in theirs])
        for i, j, size in SequenceMatcher(None, *places, autojunk=False).get_matching_blocks():
            pairs |= zip(ours[i : i + size], theirs[j : j + size], strict=True)
    return pairs


def _lines(observed: TracedPacket, met: list[ObservedHit], expected: list[TraceStep]) -> Iterator[ObservedHit]:
    """Observed rules in order, each after the predicted rules that come before it; one that may match need not be met."""
    pairs = _align(met, expected)
    sure = {(step.source, _place(step)) for step in expected if step.holds}
    missing = [
        (at, ObservedHit(step.hook, step.table, step.chain, step.rule.number, step.rule, kind=PREDICTED_ONLY))
        for at, step in enumerate(expected)
        if step.rule and at not in pairs.values() and (step.source, _place(step)) in sure
    ]
    matched = iter([pairs.get(index) for index in range(len(met))])
    for one in observed.met:
        if one.loaded is None:
            yield replace(one, kind=FOREIGN)
            continue
        expected_at = next(matched)
        while expected_at is not None and missing and missing[0][0] < expected_at:
            yield missing.pop(0)[1]
        yield replace(one, kind=KERNEL_ONLY if expected_at is None else BOTH, outcome="")
    yield from [line for _, line in missing]


def _describe(line: ObservedHit) -> str:
    rule = f"rule {line.number} of {line.table} {line.chain} ({line.hook})"
    if line.kind == KERNEL_ONLY:
        return f"{rule} was met, and not predicted"
    return f"{rule} was predicted, and not met"
