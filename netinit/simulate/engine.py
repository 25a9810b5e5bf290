"""Simulates the path of one packet through the kernel's hooks.

Chains run in order of priority. NAT decides a connection's destination and source once each. A packet to this host
itself leaves through lo and re-enters with its conntrack entry. Where a match, or the order of chains of equal
priority, is uncertain, all cases are followed; if they end differently, the verdict is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from netinit.rules.matches.context import BARE_SYN
from netinit.rules.model import INPUT, MANGLE, NAT, OUTPUT, PREROUTING
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.rules.targets import Accept, Return
from netinit.simulate.condition import Condition
from netinit.simulate.hooks import FORWARD, POSTROUTING, TRACKING, TRANSLATES_DESTINATION
from netinit.simulate.one_packet import PacketState
from netinit.simulate.ruleset import HookStage, Ruleset
from netinit.simulate.trace import (
    CAPTURED,
    DELIVERED,
    DIRECT,
    DROPPED,
    FORWARDED,
    NOT_FORWARDED,
    ROUTED_OTHERWISE,
    SENT,
    UNKNOWN,
    Trace,
    TraceStep,
)

MAX_PATHS = 32  # followed for one packet: all combinations of five uncertain rules
_UNTRACKED = ("INVALID", "UNTRACKED")
_FLAGS = {"": ("SYN",), "ESTABLISHED": ("ACK",)}


def simulate(packet: Packet, ruleset: Ruleset, surroundings: Surroundings) -> Trace:
    """Simulate one packet; without an incoming interface, this host sends it."""
    around = ruleset.place_on(surroundings)
    return follow(lambda assumed: PacketPath(ruleset, around, packet, assumed))


def follow(begin: Callable[[tuple[bool, ...]], PacketPath]) -> Trace:
    """Follow a packet under all assumptions about uncertain matches; UNKNOWN if its end depends on them."""
    ways, is_all = _follow_each(begin)
    trace = ways[0].trace()
    if is_all and all(attempt.trace().end == trace.end for attempt in ways[1:]):
        return trace
    _, step, reason = min(ways[0].doubts, key=lambda one: one[1] is not None and isinstance(one[1].matched.target, Accept | Return))
    at = next((number for number, one in enumerate(trace.steps, 1) if one is step), len(trace.steps))
    ends = [attempt.trace() for attempt in ways]
    direct: tuple[Trace, ...] = ()
    if is_all and {one.verdict for one in ends} == {DIRECT}:
        _, step, reason = min(ways[0].doubts, key=lambda one: one[1] is None)
        at = next((number for number, one in enumerate(trace.steps, 1) if one is step), len(trace.steps))
        direct = tuple({one.end: one for one in (*reversed(ends[1:]), trace)}.values())
    is_safe = is_all and {one.verdict for one in ends} == {CAPTURED, DROPPED}
    dropped_by = next(one.reason for one in ends if one.verdict == DROPPED) if is_safe else ""
    return replace(
        trace, fate=UNKNOWN, reason=reason, redirect_port=0, decider=step, steps=trace.steps[:at], dropped_by=dropped_by, direct=direct
    )


def _follow_each(begin: Callable[[tuple[bool, ...]], PacketPath]) -> tuple[list[PacketPath], bool]:
    """The ways of a packet under all assumptions, and whether these are all: at most MAX_PATHS are followed."""
    waiting: list[tuple[bool, ...]] = [()]
    ways: list[PacketPath] = []
    while waiting and len(ways) < MAX_PATHS:
        assumed = waiting.pop()
        attempt = begin(assumed)
        attempt.run()
        ways.append(attempt)
        chosen = tuple([one for one, _, _ in attempt.doubts])
        waiting += [(*chosen[:at], True) for at in range(len(assumed), len(chosen))]
    return ways, not waiting


def list_met(packet: Packet, ruleset: Ruleset, surroundings: Surroundings) -> list[TraceStep]:
    """The steps at rules that match a packet, or may, on any of its ways."""
    around = ruleset.place_on(surroundings)
    ways, _ = _follow_each(lambda assumed: PacketPath(ruleset, around, packet, assumed))
    return [step for way in ways for step in way.trace().steps if step.rule and step.holds is not False]


class PacketPath(PacketState):
    """One packet traversing the hooks. TCP without flags is a SYN, or an ACK on a known connection."""

    def __init__(self, ruleset: Ruleset, surroundings: Surroundings, packet: Packet, assumed: tuple[bool, ...]) -> None:
        super().__init__(ruleset, surroundings, packet, assumed)
        if packet.protocol == "tcp" and packet.flags is None and packet.state in _FLAGS:
            self._packet = packet.replace(flags=_FLAGS[packet.state])

    def run(self) -> None:
        """Follow the packet to its end."""
        if self._first.in_interface:
            self.receive()
        else:
            self.send_out()

    def send_out(self) -> None:
        """Send a packet from a socket (or the kernel) of this host."""
        self._route_out()
        if self._around.is_doubtful(self._packet.destination):
            self._end(UNKNOWN, ROUTED_OTHERWISE)
            return
        if not self._pass(OUTPUT):
            return
        self._route_out()  # destination or mark may have changed; OUTPUT's rules saw the first interface throughout
        if not self._pass(POSTROUTING):
            return
        if self._packet.out_interface != LOOPBACK_DEVICE:
            self._fate = SENT
            return
        self._note("it comes in again through lo")
        # On lo the packet loses its socket but keeps its mark and conntrack entry.
        self._become(self._now.replace(in_interface=LOOPBACK_DEVICE, out_interface="", sender=False))
        self.receive(looped=True)

    def receive(self, *, looped: bool = False) -> None:
        """Receive a packet from an interface."""
        if not self._pass(PREROUTING):
            return
        self._routed = self._packet
        self._is_mark_known = not self.doubts and not any(one.rule and one.holds is None for one in self._steps)
        if looped or self._is_for_us():
            if self._pass(INPUT):
                self._fate = DELIVERED
            return
        if self._fate:
            return
        if not self._around.forwards:
            self._end(DROPPED, NOT_FORWARDED)
            return
        out = self._around.replace(local_marks=frozenset()).leaving_interface(self._packet.destination, 0)
        self._become(self._now.replace(out_interface=out))
        self._routed = self._packet
        self._note(f"it is forwarded through {out}")
        if self._pass(FORWARD) and self._pass(POSTROUTING):
            self._fate = FORWARDED

    def _is_for_us(self) -> bool:
        local = self._around.is_of_type_local(self._packet.destination)
        if local is None and not self._now.redirected:
            self._end(UNKNOWN, "its destination is not known")
            return False
        if local is not False or self._around.delivers_to_group(self._packet.protocol, self._packet.destination):
            return True
        if self._around.routes_here(self._packet.mark):
            self._note(self._route_by_mark())
            return True
        return False

    def _route_by_mark(self) -> str:
        self._now = self._now.replace(policy_routed=True)
        table = f" (table {self._ruleset.routing_table})" if self._ruleset.routing_table else ""
        return f"its mark {self._packet.mark} is routed to this host by a policy rule{table}"

    def _route_out(self) -> None:
        packet = self._packet
        out = self._around.leaving_interface(packet.destination, packet.mark)
        if packet.destination is None or self._around.is_of_type_local(packet.destination):
            how = "the destination is this host's own"
        elif out == LOOPBACK_DEVICE and self._around.routes_here(packet.mark):
            how = self._route_by_mark()
        else:
            how = "by the routing table"
        if out != packet.out_interface:
            self._become(self._now.replace(out_interface=out))
            self._note(f"it leaves through {out}: {how}")

    def _pass(self, hook: str) -> bool:
        """Traverse a hook; False if the packet ends there."""
        self._now = self._now.replace(hook=hook)
        self._look(hook)
        for other in self._ruleset.unread if hook in (PREROUTING, OUTPUT) else ():
            self._note(f"{other}, which is foreign and not read, applies to it too")
        for stage in self._ruleset.stages[hook]:
            if stage.name == TRACKING:
                self._track()
            elif stage.name == NAT:
                self._translate(stage, hook)
            else:
                before = self._packet.mark
                self.ask(stage)
                if (hook, stage.name) == (OUTPUT, MANGLE) and self._packet.mark != before and not self._fate:
                    self._note(f"its mark is {self._packet.mark} now: it is routed again after this hook")
            if self._fate:
                return False
        return True

    def _track(self) -> None:
        """Assign the conntrack state; a packet that passed lo keeps its state."""
        now, packet = self._now, self._packet
        if now.connection or now.state in _UNTRACKED or not self._ruleset.tracks:
            return
        joins = packet.flags == BARE_SYN.flags or (self._around.picks_up and packet.flags == ("ACK",))  # nf_conntrack_proto_tcp.c
        if packet.protocol == "tcp" and packet.flags and not packet.state and not joins:
            self._become(now.replace(state="INVALID"))
            self._note("its connection is not known: INVALID", TRACKING)
            return
        known = bool(packet.state)  # the beginning of the connection was not simulated
        self._tracked = (now.destination, now.destination_port)
        if not known:
            self._was_translated = self._is_answer = False
        self._join(now.replace(state=packet.state or "NEW", decided=known, source_decided=known))

    def _join(self, now: Condition) -> None:
        """Belong to a connection from here on."""
        self._become(now.replace(connection=True))
        self._note(f"its connection is {now.state}" + (f" (zone {now.zone})" if now.zone else ""), TRACKING)

    def _translate(self, stage: HookStage, hook: str) -> None:
        """Apply NAT: decided by a connection's first packet, repeated for the others."""
        towards = hook in TRANSLATES_DESTINATION
        if self._now.connection and not (self._now.decided if towards else self._now.source_decided):
            self.ask(stage)
            self._now = self._now.replace(decided=True) if towards else self._now.replace(source_decided=True)
        elif any(NAT in backend.tables for backend in self._ruleset.backends):
            known = f"its {'destination' if towards else 'source'} was decided before"
            self._note(f"NAT is skipped: {known if self._now.connection else 'the packet belongs to no tracked connection'}", NAT)
