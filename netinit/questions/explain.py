"""Explains what happens to a connection and why, and which options would change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from netinit.base.errors import OptionError
from netinit.base.net import Family, Network, PortRange, covers, lists_port
from netinit.inject.deciding.podfile import DOUBT
from netinit.options import DNS_LISTENER, Interception, SettledOptions, kinds
from netinit.options.kinds import ALL, Flag
from netinit.rules.foreign_targets import socket_target
from netinit.rules.iptables.write import Written, write_plan
from netinit.rules.layouts import plan
from netinit.rules.model import OUTPUT, OWNED_CHAINS
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.answers import AnswerTrace
from netinit.simulate.endpoints import format_endpoint
from netinit.simulate.engine import simulate
from netinit.simulate.old_entries import simulate_on_old_entries
from netinit.simulate.ruleset import Ruleset, load_plan, with_loaded
from netinit.simulate.trace import (
    CAPTURED,
    DELIVERED,
    DIRECT,
    DROPPED,
    FORWARDED,
    REFUSED,
    UNKNOWN,
    Trace,
    TraceStep,
    list_unread,
)

OR_ALL = f"|{ALL}"  # at the end of a placeholder
Alternative = tuple[str, dict[str, Any] | None]
"""An option as it would be given, and the fields that it sets; None: as if the option had not been given."""


def find_alternatives(options: SettledOptions, packet: Packet) -> Iterator[tuple[str, SettledOptions]]:
    """Yield each option of the layout with another value: how to write it, and the resulting options."""
    for flag in Interception.flags:
        if flag.offers == () or not flag.applies_to(options.layout):
            continue
        for label, changes in _values(flag, options, packet):
            with suppress(OptionError):  # it contradicts another option
                changed = options.without(flag.field) if changes is None else options.replace(**changes)
                if changed != options:
                    yield label, changed


def _values(flag: Flag, options: Interception, packet: Packet) -> Iterator[Alternative]:
    """Yield other values of an option. They follow from its kind; where the kind names none, the default."""
    kind, value, field, label = flag.kind, getattr(options, flag.field), flag.field, flag.label
    if isinstance(value, bool):
        yield _switch(flag, options, value)
        return
    yield from [(f"{label} {word}", {field: word}) for word in (kind.words if flag.offers is None else flag.offers)]
    if kind.lists:
        yield from _items(flag, value, packet) if value != ALL else ()
    elif not kind.words:
        yield f"without {label}", None


def _switch(flag: Flag, options: Interception, value: bool) -> Alternative:
    """Turn it off, or on, together with the option that it requires."""
    if flag.kind is not kinds.SWITCH:  # a variable that is on with any text
        return (f"without {flag.label}", None) if value else (f"{flag.label}={flag.kind.write(not value)}", {flag.field: True})
    if value:
        return f"{flag.label}=false", {flag.field: False}
    switched = [*([options.flag(flag.needs)] if flag.needs else []), flag]
    return " ".join([one.label for one in switched]), {one.field: True for one in switched}


def _items(flag: Flag, value: tuple[Any, ...], packet: Packet) -> Iterator[Alternative]:
    """Add the packet's port or address to a list, or remove what names it."""
    if flag.kind.lists == kinds.PORTS_OF_A_PACKET:
        if port := packet.destination_port:
            yield _toggle_item(flag, value, port, [one for one in value if lists_port((one,), port)])
    else:
        address = packet.source if packet.in_interface else packet.destination
        host = Network((packet.family.version, address or 0, packet.family.bits))
        inside = [one for one in value if covers(one, host)]
        yield _toggle_item(flag, value, host, inside)
        if inside:
            yield f"add {host} to {flag.label}", {flag.field: (*value, host)}
    if flag.kind.metavar.endswith(OR_ALL):
        yield f"{flag.label} '*'", {flag.field: ALL}


def _toggle_item(flag: Flag, listed: tuple[Any, ...], item: int | PortRange | Network, found: list[Any]) -> Alternative:
    """Remove the entries that contain an item, or add the item if none does."""
    if not found:
        return f"add {item} to {flag.label}", {flag.field: (*listed, item)}
    left = tuple([one for one in listed if one not in found])
    return f"remove {', '.join(map(str, found))} from {flag.label}", {flag.field: left}


REPAIR = "netinit apply --reconcile"
CAPTURED_OR_DROPPED = "captured, or dropped because of {}; never past the proxy"
CONVERT = "configure the mesh that made these rules, or replace them with netinit's: netinit convert finds the options"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer: a path, and `changes`, which pairs options, as written, with the verdict they would bring."""

    trace: Trace
    changes: tuple[tuple[str, str], ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)  # option -> where it was set, if not by a flag
    passes_on_old_entries: bool = False  # captured otherwise
    answer: AnswerTrace | None = None  # what becomes of the answer; None if there is none, or it was not followed
    is_refused_before_rules: bool = False  # the kernel refuses the socket, for no route leads out

    def unknown_because(self, reason: str) -> Explanation:
        """A copy with the verdict UNKNOWN, for a reason that the path does not show."""
        unknown = replace(self.trace, fate=UNKNOWN, reason=reason, redirect_port=0, decider=None, dropped_by="", direct=())
        return Explanation(unknown, (), self.origins)

    def unless_ipv4_is_first(self, other: Explanation) -> Explanation:
        """The answer, or UNKNOWN if `other`, for a pod whose first address is IPv4, differs."""
        if (self.verdict, self.trace.redirect_port) == (other.verdict, other.trace.redirect_port):
            return self
        ways = f"{self.verdict} where the first is IPv6, {other.verdict} where it is IPv4"
        return replace(self.unknown_because(f"depends on the pod's addresses (--ipv6 auto): {ways}"), changes=other.changes)

    def dropped_because(self, reason: str, remedy: str) -> Explanation:
        """A copy with the verdict DROPPED, for a reason beside the rules, which a setting, `remedy`, ends."""
        dropped = replace(self.trace, fate=DROPPED, reason=reason, redirect_port=0, decider=None, dropped_by="", direct=())
        return Explanation(dropped, ((remedy, self.verdict),) if remedy else (), self.origins)

    def refused_before_rules(self, reason: str, remedy: str) -> Explanation:
        """A copy with the verdict DROPPED for a socket that the kernel refuses, so that no rule sees a packet of it."""
        steps = (TraceStep(OUTPUT, f"it is not sent: {reason}"),)
        refused = replace(
            self.trace, last=self.trace.first, fate=REFUSED, steps=steps, reason=reason, redirect_port=0, decider=None, dropped_by="",
            direct=(),
        )  # fmt: skip
        changes = () if self.verdict == DROPPED else ((remedy, self.verdict),) if self.verdict != UNKNOWN else ()
        return Explanation(refused, changes, self.origins, is_refused_before_rules=True)

    @property
    def verdict(self) -> str:
        """captured, direct, dropped or unknown."""
        return DIRECT if self.trace.direct else self.trace.verdict

    @property
    def sentence(self) -> str:
        """The verdict, where the packet goes, and why."""
        trace = self.trace
        if trace.direct:
            return f"direct: {_describe_ends(trace.direct)}: {trace.reason}"
        if trace.verdict == UNKNOWN:
            doubt = trace.reason.removeprefix(f"{trace.dropped_by}: ")
            return f"{CAPTURED_OR_DROPPED.format(trace.dropped_by)}: {doubt}" if trace.dropped_by else f"unknown: {trace.reason}"
        if trace.verdict == DROPPED:
            how = "refused, with a notice to its sender" if trace.fate == REFUSED else "dropped"
            step = trace.decider
            purpose = f" ({step.rule.purpose}; {self.origin_of(step)})" if step and step.rule and step.rule.origin else ""
            return f"dropped: it is {how}, because {trace.reason}{purpose}"
        if trace.verdict == DIRECT:
            return f"direct: {_describe_end(trace)}{_describe_cause(self)}{self._describe_answer()}"
        others = "the pod's listener" if trace.first.protocol == "udp" else "the proxy"
        who = "the proxy's resolver" if trace.redirect_port == DNS_LISTENER else others
        how = "both addresses kept, " if trace.transparent else ""
        where = f"goes to {who} on {trace.redirect_port}, {how}original destination {self.original_destination}"
        return f"captured: {where}{_describe_cause(self)}{self._describe_answer()}"

    def _describe_answer(self) -> str:
        is_lost = self.answer is not None and self.answer.arrives is False
        return f"; but its answer does not come back: {self.answer.reason}" if is_lost and self.answer else ""

    @property
    def original_destination(self) -> str:
        """Where the packet was sent, as `address:port`."""
        first = self.trace.first
        return format_endpoint(first.family, first.destination, first.destination_port)

    def origin_of(self, step: TraceStep) -> str:
        """The option, variable or annotation behind a step's rule; empty for foreign rules."""
        made = step.rule.origin if step.rule else None
        return self.origins.get(made.option, made.label) if made else ""

    def option_of(self, step: TraceStep) -> str:
        """The option behind a step's rule; empty for foreign rules and those of every plan."""
        return step.rule.label(self.origins) if step.rule else ""


def explain(
    packet: Packet, ruleset: Ruleset, surroundings: Surroundings, *, options: SettledOptions | None = None,
    wanted: SettledOptions | None = None, origins: Mapping[str, str] | None = None,
) -> Explanation:  # fmt: skip
    """Explain the verdict for a connection's first packet.

    `options` made the rules; changes to them are tried by simulation, with foreign rules kept. `wanted` should
    apply, if different.
    """
    trace = simulate(packet, ruleset, surroundings)
    made = Explanation(trace, origins=origins or {})
    if ruleset.doubt:
        as_injected = f"; with the rules of injection: {made.sentence}" if ruleset.doubt == DOUBT else ""
        return made.unknown_because(f"{ruleset.doubt}{as_injected}")
    if ruleset.unread and trace.verdict != UNKNOWN:
        return made.unknown_because(f"{list_unread(ruleset.unread)}; without that: {made.sentence}")
    changes = find_changes(packet, ruleset, surroundings, made.verdict, options=options, wanted=wanted)
    inside = not packet.in_interface and surroundings.is_local(packet.destination)
    passes = trace.verdict == CAPTURED and not inside and any(
        one.verdict == DIRECT for one in simulate_on_old_entries(packet, ruleset, surroundings)
    )
    return replace(made, changes=changes, passes_on_old_entries=passes)


def _describe_end(trace: Trace) -> str:
    """Where a packet goes that is not captured."""
    last = trace.last
    target = format_endpoint(last.family, last.destination, last.destination_port)
    if trace.translated:
        return f"a rule that is not netinit's sends it to {target} instead"
    if step := trace.diverted:
        target_socket = socket_target(step.matched.target)
        taken = target_socket.port if target_socket else 0
        return f"stays in the pod and is handed to the transparent socket on port {taken}, with its destination {target}"
    if trace.fate == DELIVERED:
        port = f"port {last.destination_port}" if last.destination_port else "this pod"
        return f"arrives at {port} as it is" if trace.first.in_interface else f"stays in the pod and arrives at {target}"
    return f"{'is forwarded' if trace.fate == FORWARDED else 'goes out'} to {target} through {last.out_interface}"


def _describe_ends(traces: Sequence[Trace]) -> str:
    """Where a packet goes that may end in several places."""
    if not all(one.translated for one in traces):
        return "; or: ".join(dict.fromkeys(map(_describe_end, traces)))
    last = [one.last for one in traces]
    targets = dict.fromkeys([format_endpoint(one.family, one.destination, one.destination_port) for one in last])
    return f"a rule that is not netinit's sends it to one of {', '.join(targets)}"


def _describe_cause(made: Explanation) -> str:
    step = made.trace.cause
    if step is None or step.rule is None:
        if not any(one.rule for one in made.trace.steps):
            return f", because no {made.trace.first.family.name} rule applies to it"
        return f", because no rule captures {'this datagram' if made.trace.first.protocol == 'udp' else 'it'}"
    if step.rule.purpose:
        return f", because {step.rule.why(made.origins)}"
    whose = "in netinit's chain that no option makes" if step.chain in OWNED_CHAINS else "that is not netinit's"
    return f", because of a rule {whose}: {step.rule.quotation} ({step.table} {step.chain}, rule {step.rule.number})"


def find_changes(
    packet: Packet, ruleset: Ruleset, surroundings: Surroundings, verdict: str, *, options: SettledOptions | None,
    wanted: SettledOptions | None = None,
) -> tuple[tuple[str, str], ...]:  # fmt: skip
    """Find option changes that alter the verdict by simulating each: (option as written, new verdict).

    First comes reapplying the options, if the live rules differ from their plan.
    """
    target = wanted or options
    found: dict[str, str] = {}
    candidates = [(REPAIR, target)] if target else []
    for label, changed in [*candidates, *(find_alternatives(options, packet) if options else ())]:
        after = simulate(packet, with_loaded(ruleset, *_load(changed, packet.family)), surroundings).verdict
        if after not in (verdict, UNKNOWN):
            found.setdefault(label, after)
    return tuple(found.items())


@lru_cache(maxsize=64)  # two questions' worth: many pods have the same options, and are asked the same
def _load(options: SettledOptions, family: Family) -> tuple[Written, Ruleset]:
    made = plan(options)
    written = write_plan(made, family)
    return written, load_plan(made, family, written)
