"""Moves one packet through the chains of a hook: which rules match, and what their targets do.

Matches are evaluated by the same `choose` as for sets of packets; what does not decide is None, UNKNOWN.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from netinit.base.net import FULL_MASK, Network, is_named
from netinit.base.sanitize import MAX_RULE_LENGTH, shorten
from netinit.rules.model import NAT
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.rules.packet_interfaces import Chosen
from netinit.rules.targets import BACK, ENDED, GO_ON
from netinit.simulate.condition import OWN, Condition, InitialState, MarkBits, TargetEffects
from netinit.simulate.hooks import shows_interface
from netinit.simulate.ruleset import ACCEPT, EARLY, HookedChain, HookStage, LoadedChain, LoadedRule, RuleHit, Ruleset
from netinit.simulate.trace import DROPPED, REFUSED, UNKNOWN, Trace, TraceStep, explain_dispute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.rules.packet_interfaces import Verdict

MAX_OUTCOMES = 16  # of one order of chains: all combinations of four uncertain rules
MAX_ORDERED_CHAINS = 4  # of one priority, tried in all 24 orders
_WITHOUT_CONNECTION = ("", "INVALID", "UNTRACKED")


@dataclass(frozen=True, slots=True)
class Truth:
    """Whether a condition holds; None: unknown."""

    holds: bool | None

    def negated_if(self, negated: bool) -> Truth:
        """The opposite if `negated`; unknown stays unknown."""
        return self if self.holds is None or not negated else TRUTHS[not self.holds]

    def __and__(self, other: Chosen) -> Truth:
        """Whether both hold."""
        assert isinstance(other, Truth)  # noqa: S101 - made by the same OnePacket
        if self.holds is False or other.holds:
            return self
        return other if self.holds or other.holds is False else self

    def __or__(self, other: Chosen) -> Truth:
        """Whether at least one holds."""
        assert isinstance(other, Truth)  # noqa: S101
        if self.holds or other.holds is False:
            return self
        return other if self.holds is False or other.holds else self


Ends = tuple[tuple[int | None, int | None], tuple[int | None, int | None]]  # a destination and a source, each with its port
TRUTHS = {holds: Truth(holds) for holds in (True, False, None)}  # made once: a simulation needs thousands


class OnePacket:
    """A packet at one point of its path (rules.packet_interfaces.PacketSet)."""

    def __init__(
        self, packet: Packet, surroundings: Surroundings, hook: str, *, masqueraded: bool = False, began: Ends | None = None
    ) -> None:
        self._began = began  # the destination and the source with which its connection began, if known
        self._packet = packet
        self._around = surroundings
        self._hook = hook
        self._sources = surroundings.own_sources if masqueraded else ()

    def of_protocol(self, name: str) -> Truth:
        return TRUTHS[self._packet.protocol == name]

    def in_networks(self, networks: tuple[Network, ...], *, source: bool) -> Truth:
        address = self._packet.source if source else self._packet.destination
        found = {any(one.first <= each <= one.last for one in networks) for each in self._sources} if source else set()
        if len(found) == 1:
            return TRUTHS[found.pop()]
        return TRUTHS[None if address is None else any(one.first <= address <= one.last for one in networks)]

    def with_port(self, ranges: tuple[tuple[int, int], ...], *, source: bool) -> Truth:
        port = self._packet.source_port if source else self._packet.destination_port
        return TRUTHS[None if port is None else any(low <= port <= high for low, high in ranges)]

    def through_interfaces(self, names: tuple[str, ...], *, inbound: bool) -> Truth:
        interface = self._packet.in_interface if inbound else self._packet.out_interface
        return TRUTHS[is_named(interface if shows_interface(self._hook, inbound=inbound) else "", names)]

    def owned_by(self, kind: str, low: int, high: int) -> Truth:
        """Without a socket, xt_owner is true for every negated match."""
        owner = self._packet.uid if kind == "uid" else self._packet.gid
        is_known = owner is not None or (low, high) == (0, FULL_MASK)  # the latter has every owner
        return TRUTHS[self._packet.has_socket and (low <= (owner or 0) <= high if is_known else None)]

    def with_mark(self, value: int, mask: int, *, connection: bool) -> Truth:
        return TRUTHS[(self._packet.connection_mark if connection else self._packet.mark) & mask == value]

    def in_state(self, states: tuple[str, ...]) -> Truth:
        """Before it is tracked the kernel calls a packet INVALID (nft_ct.c, xt_conntrack.c)."""
        state = self._packet.state
        return TRUTHS[state in states or (not state and "INVALID" in states)]

    def with_flags(self, mask: tuple[str, ...], flags: tuple[str, ...]) -> Truth:
        known = self._packet.flags
        return TRUTHS[None if known is None else {flag for flag in known if flag in mask} == set(flags)]

    def with_translated_destination(self) -> Truth:
        return TRUTHS[False if self._packet.state in _WITHOUT_CONNECTION else self._packet.destination_translated]

    def in_reply_direction(self) -> Truth:
        return TRUTHS[self._packet.is_answer]

    def began_with(self, networks: tuple[Network, ...], ports: tuple[tuple[int, int], ...], *, source: bool) -> Truth:
        if self._began is None:
            return TRUTHS[None]
        address, port = self._began[source]
        if ports:
            return TRUTHS[None if port is None else any(low <= port <= high for low, high in ports)]
        return TRUTHS[None if address is None else any(one.first <= address <= one.last for one in networks)]

    def to_socket(self) -> Truth:
        return TRUTHS[self._packet.socket]

    def local(self, *, source: bool) -> Truth:
        if source and self._sources:
            return TRUTHS[True]
        return TRUTHS[self._around.is_of_type_local(self._packet.source if source else self._packet.destination)]

    def unknown(self) -> Truth:
        return TRUTHS[None]


class PacketState:
    """One packet on its path: its state, the rules it met, and where it ended."""

    def __init__(self, ruleset: Ruleset, surroundings: Surroundings, packet: Packet, assumed: Sequence[bool] = ()) -> None:
        self._ruleset = ruleset
        self._around = surroundings
        self._first = self._packet = packet
        self._seen: OnePacket  # what rules see of it
        self._now = Condition(
            hook="", destination=packet.destination, destination_port=packet.destination_port, source=packet.source,
            in_interface=packet.in_interface, out_interface=packet.out_interface, sender=packet.has_socket, state=packet.state,
            mark=MarkBits(flip=packet.mark), connection_mark=MarkBits(flip=packet.connection_mark),
        )  # fmt: skip
        self._tracked = (self._now.destination, self._now.destination_port)  # as connection tracking saw them
        self._was_translated = packet.destination_translated  # when the connection was known before
        self._is_answer = packet.is_answer
        self._steps: list[TraceStep] = []
        self._routed: Packet | None = None
        self._is_mark_known = True
        self._fate = ""
        self._reason = ""
        self._decider: TraceStep | None = None
        self._disputed: tuple[str, ...] = ()
        self._assumed = tuple(assumed)  # for rules whose match is uncertain, in the order they are met
        self.doubts: tuple[tuple[bool, TraceStep | None, str], ...] = ()  # assumed match, rule, reason

    def trace(self) -> Trace:
        """The path so far."""
        now = self._now
        return Trace(
            first=self._first, last=self._packet, fate=self._fate, steps=tuple(self._steps), reason=self._reason,
            redirect_port=now.redirect_port, transparent=now.transparent, translated=now.translated, rewritten=now.rewritten,
            policy_routed=now.policy_routed, zone=now.zone, reply_zone=now.reply_zone, decider=self._decider, disputed=self._disputed,
            routed=self._routed, is_mark_known=self._is_mark_known,
        )  # fmt: skip

    def _become(self, now: Condition) -> None:
        """Change the packet's state, and its headers with it."""
        if now is not self._now:
            self._now = now
            self._packet = self._make_packet(now)
            self._look(now.hook)

    def _look(self, hook: str) -> None:
        """See the packet as the rules at a hook do."""
        first, began = self._first, None
        if self._now.connection and not (first.state or self._is_answer):
            destination, port = self._tracked
            began = ((_known(destination), _known(port)), (first.source, first.source_port))
        self._seen = OnePacket(self._packet, self._around, hook, masqueraded=self._now.source is OWN, began=began)

    def _make_packet(self, now: Condition) -> Packet:
        return self._packet.replace(
            source=_known(now.source), destination=_known(now.destination), destination_port=_known(now.destination_port),
            in_interface=str(now.in_interface), out_interface=str(now.out_interface), has_socket=now.sender,
            uid=self._packet.uid if now.sender else None, gid=self._packet.gid if now.sender else None,
            mark=now.mark.flip, connection_mark=now.connection_mark.flip, state=str(now.state),
            destination_translated=self._is_translated(now), is_answer=self._is_answer,
        )  # fmt: skip

    def _is_translated(self, now: Condition) -> bool | None:
        """Whether NAT replaced the destination (IPS_DST_NAT); None if unknown.

        Translation to itself does not set the status (nf_nat_setup_info).
        """
        if not now.connection or (now.destination, now.destination_port) == self._tracked:
            return self._was_translated
        return None if (None, now.destination_port) == (now.destination, self._tracked[1]) else True

    def ask(self, stage: HookStage) -> None:
        """Traverse the chains of a stage."""
        before = self._now.translation
        for hooked_chains in stage.rounds:
            if self._fate or (stage.name == NAT and self._now.translation != before):
                return
            self._ask_round(hooked_chains)

    def _ask_round(self, hooked_chains: Sequence[HookedChain]) -> None:
        """Traverse chains of one priority."""
        several = len(hooked_chains) > 1 and any(one.changes_packets for one in hooked_chains)
        if several and len(hooked_chains) > MAX_ORDERED_CHAINS:
            self._end(UNKNOWN, f"more than {MAX_ORDERED_CHAINS} chains of one priority change packets at {self._now.hook}")
            return
        first, *others = [self._try_all(order) for order in permutations(hooked_chains)] if several else [set()]
        self._ask_each(hooked_chains)
        if self._fate != UNKNOWN and any(outcomes != first for outcomes in others):
            self._disputed = tuple(one.source or one.table for one in hooked_chains)
            self._decider = None
            self._end(UNKNOWN, explain_dispute(self._disputed))

    def _try_all(self, order: Sequence[HookedChain]) -> set[tuple[object, ...]]:
        """Possible outcomes if the chains run in this order, under all assumptions."""
        found: set[tuple[object, ...]] = set()
        before = tuple([one for one, _, _ in self.doubts])
        waiting: list[tuple[bool, ...]] = [before]
        while waiting and len(found) < MAX_OUTCOMES:
            assumed = waiting.pop()
            other = copy(self)
            found.add(other.try_order(order, assumed))
            chosen = tuple([one for one, _, _ in other.doubts])
            waiting += [(*chosen[:at], True) for at in range(len(assumed), len(chosen))]
        return found

    def try_order(self, order: Sequence[HookedChain], assumed: tuple[bool, ...]) -> tuple[object, ...]:
        """The outcome of one order under some assumptions; call it on a copy."""
        self._steps = []
        self._assumed = assumed
        self._ask_each(order)
        if self._fate:  # gone in any order
            return (DROPPED if self._fate == REFUSED else self._fate,)
        return (self._now.replace(early=()),)

    def _ask_each(self, hooked_chains: Sequence[HookedChain]) -> None:
        before = self._now.translation
        for hooked in hooked_chains:
            if self._fate or (hooked.effect == NAT and self._now.translation != before):
                return  # once a NAT chain has translated a packet, it skips the others
            if hooked.turn == EARLY:
                if not self._assume(None, f"the kernel does not show whether {hooked.name} comes first at {self._now.hook}"):
                    continue
                self._now = self._now.replace(early=(*self._now.early, hooked.place))
            elif hooked.turn and hooked.place in self._now.early:
                continue
            chain = hooked.chain
            if self._walk(hooked, chain, ()) != GO_ON:
                continue
            outcome = f"the policy is {chain.policy}"
            self._steps.append(TraceStep(self._now.hook, outcome, hooked.table, chain.name, source=hooked.source))
            if chain.policy != ACCEPT:
                self._end(DROPPED if chain.policy == "DROP" else UNKNOWN, hooked.policy_reason)

    def _assume(self, step: TraceStep | None, reason: str) -> bool:
        """Choose one of both possibilities where the match is uncertain."""
        count = len(self.doubts)
        chosen = self._assumed[count] if count < len(self._assumed) else False
        self.doubts = (*self.doubts, (chosen, step, reason))
        return chosen

    def _walk(self, hooked: HookedChain, chain: LoadedChain, above: tuple[str, ...]) -> Verdict:
        """Traverse a chain: accepted, ended, or returned to the calling chain."""
        for loaded in chain.rules:
            holds = self._test(loaded)
            target = loaded.rule.target
            idle = target.only_observes or self._ruleset.marks_for_nobody(target, self._around.local_marks)
            uncertain = holds is None and not idle
            outcome = target.describe() if holds else "does not hold"
            if holds is None:
                outcome = "whether it holds cannot be known" if uncertain else "may match, and passes it on"
            self._steps.append(TraceStep(self._now.hook, outcome, hooked.table, chain.name, loaded, holds, hooked.source))
            if uncertain:
                holds = self._assume(self._steps[-1], f"{self._place(hooked, chain, loaded)}: {self._unknown_part(loaded)}")
            if not holds:
                continue
            verdict = self._act(hooked, chain, loaded, above)
            if verdict != GO_ON:
                return GO_ON if verdict == BACK else verdict
        if not chain.policy:
            ended = TraceStep(self._now.hook, "the chain ends: back to its caller", hooked.table, chain.name, source=hooked.source)
            self._steps.append(ended)
        return GO_ON

    def _act(self, hooked: HookedChain, chain: LoadedChain, loaded: LoadedRule, above: tuple[str, ...]) -> Verdict:
        """Apply the target of a rule that matches."""
        actor = TargetEffects(self._around, self._now, hooked.effect, self._ruleset.is_proxy)
        verdict = loaded.rule.target.act(actor)
        self._become(actor.now)
        why = loaded.rule.target.unfollowed if actor.fate == UNKNOWN else ""
        if actor.called:
            called, why = hooked.find_called(actor.called, above)
            if called:
                inside = self._walk(hooked, called, (*above, chain.name))
                return verdict if inside == GO_ON else inside
        elif not actor.fate:
            return verdict
        self._decider = self._steps[-1]
        place = self._place(hooked, chain, loaded)
        return self._end(actor.fate or UNKNOWN, f"{place}: {why}" if why else place)

    def _place(self, hooked: HookedChain, chain: LoadedChain, loaded: LoadedRule) -> str:
        return str(RuleHit(self._now.hook, hooked.table, chain.name, (loaded,), hooked.source))

    def _test(self, loaded: LoadedRule) -> bool | None:
        """Whether all matches hold: False as soon as one fails, None if some are uncertain."""
        found = TRUTHS[True]
        packets = self._seen
        for match in loaded.rule.matches:
            found &= match.choose(packets)
            if found.holds is False:
                return False
        return found.holds

    def _unknown_part(self, loaded: LoadedRule) -> str:
        packets = self._seen
        parts = [match.describe() for match in loaded.rule.matches if match.choose(packets) == TRUTHS[None]]
        return f"it cannot be known here whether {shorten(' and '.join(parts), MAX_RULE_LENGTH)}"

    def _end(self, fate: str, reason: str) -> Verdict:
        self._fate, self._reason = fate, reason
        return ENDED

    def _note(self, outcome: str, table: str = "") -> None:
        self._steps.append(TraceStep(self._now.hook, outcome, table))


def _known(value: int | InitialState | None) -> int | None:
    return value if isinstance(value, int) else None
