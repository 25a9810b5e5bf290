"""Moves one packet through the chains of a hook: which rules match, and what their targets do."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from netinit.base.net import Network, number_of
from netinit.base.sanitize import MAX_RULE_LENGTH, shorten
from netinit.rules.foreign_targets import is_of_other_family
from netinit.rules.model import INPUT, NAT, OUTPUT, PREROUTING, RAW
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.rules.targets import ACCEPTED, BACK, ENDED, GO_ON
from netinit.simulate.connections import Connection
from netinit.simulate.hooks import FORWARD, TRANSLATES_DESTINATION
from netinit.simulate.loaded_rules import EARLY, HookedChain, HookStage, LoadedChain, LoadedRule
from netinit.simulate.one_packet import TRUTHS, OnePacket
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.trace import DROPPED, REFUSED, UNKNOWN, Trace, TraceStep, explain_dispute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.rules.traversal import Verdict

MAX_OUTCOMES = 16  # of one order of chains: all combinations of four uncertain rules
MAX_ORDERED_CHAINS = 4  # of one priority, tried in all 24 orders


@dataclass(frozen=True, slots=True)
class _Place:
    """A rule in its chain, and the chains that called it."""

    hooked: HookedChain
    chain: LoadedChain
    loaded: LoadedRule
    above: tuple[str, ...]

    def __str__(self) -> str:
        return f"rule {self.loaded.number} of {self.hooked.name} {self.chain.name}, {self.loaded.quotation}"


class PacketState:
    """One packet on its path: its headers, the rules it met, and where it ended.

    Implements rules.traversal.Traversal.
    """

    def __init__(self, ruleset: Ruleset, surroundings: Surroundings, packet: Packet, assumed: Sequence[bool] = ()) -> None:
        self._ruleset = ruleset
        self._around = surroundings
        self._first = packet
        self._packet = packet
        self._connection: Connection | None = None
        self._is_answer = False
        self._steps: list[TraceStep] = []
        self._hook = ""
        self._zone = 0
        self._fate = ""
        self._reason = ""
        self._decider: TraceStep | None = None
        self._port = 0  # of REDIRECT or TPROXY
        self._transparent = False
        self._translated = False
        self._policy_routed = False
        self._unread: dict[str, None] = {}
        self._disputed: tuple[str, ...] = ()
        self._assumed = tuple(assumed)  # for rules whose match is uncertain, in the order they are met
        self.doubts: tuple[tuple[bool, TraceStep | None, str], ...] = ()  # assumed match, rule, reason
        self._early: set[tuple[str, tuple[str, str]]] = set()  # ran before connection tracking or NAT of the same priority
        self._at: _Place

    def trace(self) -> Trace:
        """The path so far."""
        return Trace(
            first=self._first, last=self._packet, fate=self._fate, steps=tuple(self._steps), reason=self._reason,
            redirect_port=self._port, transparent=self._transparent, translated=self._translated,
            policy_routed=self._policy_routed, zone=self._zone, decider=self._decider, unread=tuple(self._unread),
            disputed=self._disputed,
        )  # fmt: skip

    def ask(self, stage: HookStage) -> None:
        """Traverse the chains of a stage."""
        before = self._translation()
        for hooked_chains in stage.rounds:
            if self._fate or (stage.name == NAT and self._translation() != before):
                return
            self._ask_round(hooked_chains)

    def _ask_round(self, hooked_chains: Sequence[HookedChain]) -> None:
        """Traverse chains of one priority."""
        several = len(hooked_chains) > 1 and any(one.changes_packets for one in hooked_chains)
        if several and len(hooked_chains) > MAX_ORDERED_CHAINS:
            self._end(UNKNOWN, f"more than {MAX_ORDERED_CHAINS} chains of one priority change packets at {self._hook}")
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
        self._early = set(self._early)
        self._connection = self._connection and self._connection.copy()
        self._ask_each(order)
        if self._fate:  # gone in any order
            return (DROPPED if self._fate == REFUSED else self._fate,)
        connection = self._connection
        kept = connection and (connection.to, connection.mark, connection.zone, connection.redirected)
        return (self._packet, kept, self._port, self._transparent, self._translated, self._zone)

    def _ask_each(self, hooked_chains: Sequence[HookedChain]) -> None:
        before = self._translation()
        for hooked in hooked_chains:
            if self._fate or (hooked.effect == NAT and self._translation() != before):
                return  # once a NAT chain has translated a packet, it skips the others
            if hooked.turn == EARLY:
                if not self._assume(None, f"the kernel does not show whether {hooked.name} comes first at {self._hook}"):
                    continue
                self._early.add((self._hook, hooked.place))
            elif hooked.turn and (self._hook, hooked.place) in self._early:
                continue
            chain = hooked.chain
            if self._walk(hooked, chain, ()) != GO_ON:
                continue
            outcome = f"the policy is {chain.policy}"
            self._steps.append(TraceStep(self._hook, outcome, hooked.table, chain.name, source=hooked.source))
            policy = f"the policy of {hooked.name} {chain.name} is {chain.policy}"
            if chain.policy == "DROP":
                self._end(DROPPED, policy)
            elif chain.policy != "ACCEPT":
                self._end(UNKNOWN, f"{policy}, which netinit does not know")

    def _assume(self, step: TraceStep | None, reason: str) -> bool:
        """Choose one of both possibilities where the match is uncertain."""
        count = len(self.doubts)
        chosen = self._assumed[count] if count < len(self._assumed) else False
        self.doubts = (*self.doubts, (chosen, step, reason))
        return chosen

    def _translation(self) -> tuple[object, ...]:
        """What NAT has done to the packet."""
        to = self._connection and (self._connection.to, self._connection.redirected)
        return (to, self._translated, self._packet.source)

    def _walk(self, hooked: HookedChain, chain: LoadedChain, above: tuple[str, ...]) -> Verdict:
        """Traverse a chain: accepted, ended, or returned to the calling chain."""
        for loaded in chain.rules:
            holds = self._test(loaded)
            target = loaded.rule.target
            at = _Place(hooked, chain, loaded, above)
            if holds is None and not target.only_observes:
                self._step(at, None, "whether it holds cannot be known")
                holds = self._assume(self._steps[-1], f"{at}: {self._unknown_part(loaded)}")
            else:
                outcomes = {True: target.describe(), False: "does not hold", None: "may hold, and lets it go on"}
                self._step(at, holds, outcomes[holds])
            if not holds:
                continue
            self._at = at
            verdict = target.act(self)
            if verdict == BACK:
                return GO_ON
            if verdict != GO_ON:
                return verdict
        if not chain.policy:
            ended = TraceStep(self._hook, "the chain ends: back to its caller", hooked.table, chain.name, source=hooked.source)
            self._steps.append(ended)
        return GO_ON

    # Target effects (rules.traversal.Traversal); `_at` is the rule whose target acts.

    def drop(self) -> Verdict:
        return self._end_by_rule(DROPPED, str(self._at))

    def refuse(self) -> Verdict:
        return self._end_by_rule(REFUSED, str(self._at))

    def give_up(self) -> Verdict:
        return self._end_by_rule(UNKNOWN, f"{self._at}: netinit does not know the target")

    def call(self, chain: str) -> Verdict:
        at = self._at
        called = at.hooked.chains.get(chain)
        if called is None or called.policy:
            return self._end_by_rule(UNKNOWN, f"{at}: nothing is known of {chain}")
        if chain in at.above:
            return self._end_by_rule(UNKNOWN, f"{at}: the chain {chain} calls itself")
        return self._walk(at.hooked, called, (*at.above, at.chain.name))

    def track(self, zone: int | None) -> Verdict:
        """The first such rule wins, and a tracked packet keeps its zone (xt_CT)."""
        if self._at.hooked.effect != RAW:
            return self.give_up()
        if self._connection is None and not self._zone:
            if zone is None:
                self._packet = self._packet.replace(state="UNTRACKED")
            else:
                self._zone = zone
        return GO_ON

    def hand_over(self, port: int, mark: int) -> Verdict:
        self._packet = self._packet.replace(mark=mark)
        self._port, self._transparent = (port if self._ruleset.is_proxy(port) else 0), True
        return ACCEPTED

    def redirect(self, port: int) -> Verdict:
        if self._at.hooked.effect != NAT:
            return self.give_up()
        connection = self._connection
        if connection is None:
            return ACCEPTED
        if self._hook == OUTPUT:
            address: int | None = Network.parse(self._packet.family.loopback).first
        else:
            address = self._around.primary_address(self._packet.in_interface)
        connection.send_to(address, port)
        connection.redirected = True
        if not self._ruleset.is_proxy(port):
            self._translated = True
        elif not self._transparent:  # the socket that TPROXY assigned still gets the packet
            self._port = port
        return ACCEPTED

    def send_to(self, address: str, port: int) -> Verdict:
        connection = self._connection
        if is_of_other_family(address, self._packet.family):
            return GO_ON
        if self._at.hooked.effect != NAT or connection is None:
            return self.give_up()
        original = connection.original
        connection.send_to(number_of(address) if address else original.destination, port or original.destination_port)
        self._translated = True
        return ACCEPTED

    def write_destination(self, address: str, port: int) -> Verdict:
        """Unknown after connection tracking, where NAT may overwrite it."""
        packet = self._packet
        if self._hook not in TRANSLATES_DESTINATION or self._connection is not None or self._port:
            return self.give_up()
        destination = number_of(address) if address else packet.destination
        self._packet = packet.replace(destination=destination, destination_port=port or packet.destination_port)
        return GO_ON

    def replace_source(self, address: str) -> Verdict:
        if self._at.hooked.effect != NAT:
            return self.give_up()
        self._packet = self._packet.replace(source=number_of(address) if address else None)
        return ACCEPTED

    def set_mark(self, value: int, mask: int, *, connection: bool) -> Verdict:
        packet = self._packet
        if connection:
            return self._mark_connection((packet.connection_mark & ~mask) ^ value)
        self._packet = packet.replace(mark=(packet.mark & ~mask) ^ value)
        return GO_ON

    def save_mark(self) -> Verdict:
        return self._mark_connection(self._packet.mark)

    def restore_mark(self) -> Verdict:
        if self._connection is not None:
            self._packet = self._packet.replace(mark=self._packet.connection_mark)
        return GO_ON

    def _mark_connection(self, mark: int) -> Verdict:
        if self._connection is not None:
            self._connection.mark = mark
            self._packet = self._packet.replace(connection_mark=mark)
        return GO_ON

    def _test(self, loaded: LoadedRule) -> bool | None:
        """Whether all matches hold: False as soon as one fails, None if some are uncertain."""
        found = TRUTHS[True]
        packets = self._visible()
        for match in loaded.rule.matches:
            found &= match.choose(packets)
            if found.holds is False:
                return False
        return found.holds

    def _visible(self) -> OnePacket:
        """The packet as rules of this hook see it, with the interfaces known there."""
        packet = self._packet
        if self._hook in (PREROUTING, INPUT):
            packet = packet.replace(out_interface="") if packet.out_interface else packet
        elif self._hook != FORWARD and packet.in_interface:
            packet = packet.replace(in_interface="")
        return OnePacket(packet, self._around)

    def _unknown_part(self, loaded: LoadedRule) -> str:
        packets = self._visible()
        parts = [match.describe() for match in loaded.rule.matches if match.choose(packets) == TRUTHS[None]]
        return f"it cannot be known here whether {shorten(' and '.join(parts), MAX_RULE_LENGTH)}"

    def _end_by_rule(self, fate: str, reason: str) -> Verdict:
        """End the packet, with the current rule as the decider."""
        self._decider = self._steps[-1]
        return self._end(fate, reason)

    def _end(self, fate: str, reason: str) -> Verdict:
        self._fate, self._reason = fate, reason
        return ENDED

    def _step(self, at: _Place, holds: bool | None, outcome: str) -> None:
        step = TraceStep(self._hook, outcome, at.hooked.table, at.chain.name, at.loaded, holds, at.hooked.source)
        self._steps.append(step)

    def _note(self, outcome: str, table: str = "") -> None:
        self._steps.append(TraceStep(self._hook, outcome, table))
