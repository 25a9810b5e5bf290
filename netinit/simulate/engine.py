"""Simulates the path of one packet through the kernel's hooks.

Chains run in order of priority. NAT decides a connection's destination and source once each. A packet to this host
itself leaves through lo and re-enters with its conntrack entry. Where a match, or the order of chains of equal
priority, is uncertain, all cases are followed; if they end differently, the verdict is UNKNOWN.
"""

from __future__ import annotations

from dataclasses import replace

from netinit.rules.matches.context import BARE_SYN
from netinit.rules.model import INPUT, MANGLE, NAT, OUTPUT, PREROUTING
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.rules.targets import Accept, Return
from netinit.simulate.connections import Connection, ConnectionTable, begins, flow_of
from netinit.simulate.hooks import CONFIRMS, FORWARD, POSTROUTING, TRACKING, TRANSLATES_DESTINATION
from netinit.simulate.loaded_rules import HookStage
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.tables import PacketState
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, ROUTED_OTHERWISE, SENT, UNKNOWN, Trace, TraceStep

MAX_PATHS = 32  # followed for one packet: all combinations of five uncertain rules
_UNTRACKED = ("INVALID", "UNTRACKED")
_FLAGS = {"": ("SYN",), "ESTABLISHED": ("ACK",)}
_DESTINATION, _SOURCE = "destination", "source"


def simulate(packet: Packet, ruleset: Ruleset, surroundings: Surroundings) -> Trace:
    """Simulate one packet; without an incoming interface, this host sends it."""
    return Host(ruleset, surroundings).process(packet)


def simulate_on_old_entries(packet: Packet, ruleset: Ruleset, surroundings: Surroundings) -> list[Trace]:
    """Simulate a SYN on another connection's untranslated conntrack entry, for which nat is skipped.

    One trace per state (nf_conntrack_proto_tcp.c): NEW on an unanswered entry, ESTABLISHED on one that is open or
    was reset, INVALID in the reply direction.
    """
    if packet.protocol != "tcp":
        return []
    opening = packet.replace(flags=BARE_SYN.flags, destination_translated=False)
    return [simulate(opening.replace(state=state), ruleset, surroundings) for state in ("NEW", "ESTABLISHED", "INVALID")]


class Host:
    """A host with rules, and a conntrack table that lasts from packet to packet."""

    def __init__(self, ruleset: Ruleset, surroundings: Surroundings) -> None:
        self.ruleset = ruleset
        self.surroundings = surroundings.replace(local_marks=surroundings.local_marks | ruleset.local_marks)
        self.connections = ConnectionTable()

    def process(self, packet: Packet) -> Trace:
        """Simulate one packet; UNKNOWN if the end depends on uncertain matches."""
        known = self.connections
        waiting: list[tuple[bool, ...]] = [()]
        ways: list[tuple[_PacketPath, ConnectionTable]] = []
        while waiting and len(ways) < MAX_PATHS:
            assumed = waiting.pop()
            self.connections = known.copy()
            attempt = _PacketPath(self, packet, assumed)
            if packet.in_interface:
                attempt.receive()
            else:
                attempt.send_out()
            ways.append((attempt, self.connections))
            chosen = tuple([one for one, _, _ in attempt.doubts])
            waiting += [(*chosen[:at], True) for at in range(len(assumed), len(chosen))]
        first, self.connections = ways[0]
        trace = first.trace()
        ends = {attempt.trace().end for attempt, _ in ways}
        if len(ends) == 1 and not waiting:
            return trace
        _, step, reason = min(first.doubts, key=_only_accepts)
        at = next((number for number, one in enumerate(trace.steps, 1) if one is step), len(trace.steps))
        return replace(trace, fate=UNKNOWN, reason=reason, redirect_port=0, decider=step, steps=trace.steps[:at])


def _only_accepts(doubt: tuple[bool, TraceStep | None, str]) -> bool:
    step = doubt[1]
    return step is not None and isinstance(step.met.target, Accept | Return)


class _PacketPath(PacketState):
    """One packet traversing the hooks. TCP without flags is a SYN, or an ACK on a known connection."""

    def __init__(self, host: Host, packet: Packet, assumed: tuple[bool, ...]) -> None:
        super().__init__(host.ruleset, host.surroundings, packet, assumed)
        if packet.protocol == "tcp" and packet.flags is None and packet.state in _FLAGS:
            self._packet = packet.replace(flags=_FLAGS[packet.state])
        self._connections = host.connections

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
        self._packet = self._packet.replace(in_interface=LOOPBACK_DEVICE, out_interface="", has_socket=False, uid=None, gid=None)
        self.receive(looped=True)

    def receive(self, *, looped: bool = False) -> None:
        """Receive a packet from an interface."""
        if not self._pass(PREROUTING):
            return
        if looped or self._is_for_us():
            if self._pass(INPUT):
                self._fate = DELIVERED
            return
        if self._fate:
            return
        if not self._around.forwards:
            self._end(DROPPED, "it is for another host, and this one does not forward")
            return
        out = self._around.replace(local_marks=frozenset()).leaving_interface(self._packet.destination, 0)
        self._packet = self._packet.replace(out_interface=out)
        self._note(f"it is forwarded through {out}")
        if self._pass(FORWARD) and self._pass(POSTROUTING):
            self._fate = FORWARDED

    def _is_for_us(self) -> bool:
        local = self._around.is_of_type_local(self._packet.destination)
        if local is None and not (self._connection and self._connection.redirected):
            self._end(UNKNOWN, "its destination is not known")
            return False
        if local is not False or self._around.hears(self._packet.protocol, self._packet.destination):
            return True
        if self._around.routes_here(self._packet.mark):
            self._note(self._route_by_mark())
            return True
        return False

    def _route_by_mark(self) -> str:
        self._policy_routed = True
        table = f" (table {self._ruleset.routing_table})" if self._ruleset.routing_table else ""
        return f"its mark {self._packet.mark} is routed to this host by a policy rule{table}"

    def _route_out(self) -> None:
        packet = self._packet
        out = self._around.leaving_interface(packet.destination, packet.mark)
        if packet.destination is None or self._around.is_local(packet.destination):
            how = "the destination is this host's own"
        elif out == LOOPBACK_DEVICE and self._around.routes_here(packet.mark):
            how = self._route_by_mark()
        else:
            how = "by the routing table"
        if out != packet.out_interface:
            self._packet = packet.replace(out_interface=out)
            self._note(f"it leaves through {out}: {how}")

    def _pass(self, hook: str) -> bool:
        """Traverse a hook; False if the packet ends there."""
        self._hook = hook
        for other in self._ruleset.unread.get(hook, ()):
            self._unread[other] = None
            self._note(f"{other}, which is foreign and not read, looks at it too")
        for stage in self._ruleset.stages[hook]:
            if stage.name == TRACKING:
                self._track()
            elif stage.name == NAT:
                self._translate(stage, hook)
            else:
                before = self._packet.mark
                self.ask(stage)
                if (hook, stage.name) == (OUTPUT, MANGLE) and self._packet.mark != before and not self._fate:
                    self._note(f"its mark is {self._packet.mark} now: it is routed anew after this hook")
            if self._fate:
                return False
        if hook in CONFIRMS and self._connection is not None:
            self._connections.confirm(self._connection)
        return True

    def _track(self) -> None:
        """Assign the conntrack state; a packet that passed lo keeps its state."""
        packet = self._packet
        if self._connection is not None or packet.state in _UNTRACKED or not self._ruleset.tracks:
            return
        state = self._find_state(packet)
        if state == "INVALID":
            self._packet = packet.replace(state=state)
            self._note("its connection is not known: INVALID", TRACKING)
            return
        found = self._connection is not None
        if self._connection is None:
            self._connection = Connection(flow_of(packet), self._zone, mark=packet.connection_mark)
            if packet.state:  # the beginning of the connection was not simulated
                self._connection.decided = {_DESTINATION, _SOURCE}
                self._connection.translated_before = packet.destination_translated
        self._packet = packet.replace(
            state=state, connection_mark=self._connection.mark, destination_translated=self._connection.translated,
            is_answer=self._is_answer if found or not packet.state else packet.is_answer,
        )  # fmt: skip
        self._note(f"its connection is {state}" + (f" (zone {self._zone})" if self._zone else ""), TRACKING)

    def _find_state(self, packet: Packet) -> str:
        """The conntrack state; a packet of a known connection is attached to it."""
        found = self._connections.find(self._zone, packet)
        if found:
            connection, is_answer = found
            state = connection.take(packet.flags, is_answer=is_answer)
            if state not in ("", "INVALID"):
                self._connection, self._is_answer = connection, is_answer
            if state:
                return state
            self._connections.forget(connection)
        if packet.state or packet.protocol != "tcp" or not packet.flags or begins(packet.flags, picks_up=self._around.picks_up):
            return packet.state or "NEW"
        return "INVALID"  # no connection begins with these flags

    def _translate(self, stage: HookStage, hook: str) -> None:
        """Apply NAT: decided by a connection's first packet, repeated for the others."""
        connection = self._connection
        side = _DESTINATION if hook in TRANSLATES_DESTINATION else _SOURCE
        if connection is None:
            if self._ruleset.translates:
                self._note("NAT is not asked: the packet belongs to no tracked connection", NAT)
            return
        if side not in connection.decided:
            self.ask(stage)
            connection.decided.add(side)
        elif self._ruleset.translates and not self._is_answer:
            self._note(f"NAT is not asked: its {side} was decided before", NAT)
        if side == _DESTINATION:
            self._packet = self._packet.replace(destination_translated=connection.translated)
        if side == _DESTINATION and not self._is_answer and connection.to != connection.original:
            to = connection.to
            self._packet = self._packet.replace(destination=to.destination, destination_port=to.destination_port)
        elif side == _SOURCE and self._is_answer and connection.to != connection.original:
            back = connection.original
            self._packet = self._packet.replace(source=back.destination, source_port=back.destination_port)
