"""The path of a packet through the kernel.

Laws kept: tables are asked in the order of `hooks.STAGES`; NAT is asked once for a connection's destination and once
for its source; a packet to this host itself leaves through lo and comes in again with the connection it has; a rule
that may or may not hold ends the simulation with UNKNOWN unless its target changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from netinit.base.net import Network, number_of
from netinit.base.shown import MOST_OF_A_RULE, shorten
from netinit.rules.model import BUILTIN_CHAINS, INPUT, MANGLE, NAT, OUTPUT, PREROUTING, RAW
from netinit.rules.packet import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.rules.targets import ACCEPTED, BACK, ENDED, GO_ON
from netinit.simulate.connections import Connection, ConnectionTable, begins, flow_of
from netinit.simulate.hooks import CONFIRMS, FORWARD, POSTROUTING, STAGES, TRACKING, TRANSLATES_DESTINATION
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, REFUSED, SENT, UNKNOWN, Trace, TraceStep

if TYPE_CHECKING:
    from netinit.rules.traversal import Verdict

_UNTRACKED = ("INVALID", "UNTRACKED")
_DESTINATION, _SOURCE = "destination", "source"


def simulate(packet: Packet, ruleset: Ruleset, surroundings: Surroundings) -> Trace:
    """The path of one packet: made here when it has no incoming interface, else coming in through that one."""
    return Host(ruleset, surroundings).process(packet)


@dataclass(frozen=True, slots=True)
class _Place:
    """A rule in its chain, and the chains that led there."""

    table: str
    chain: LoadedChain
    loaded: LoadedRule
    above: tuple[str, ...]

    def __str__(self) -> str:
        return f"rule {self.loaded.number} of {self.table} {self.chain.name}, {self.loaded.quotation}"


class Host:
    """A host with rules that remembers connections from packet to packet."""

    def __init__(self, ruleset: Ruleset, surroundings: Surroundings) -> None:
        self.ruleset = ruleset
        self.surroundings = surroundings.replace(local_marks=surroundings.local_marks | ruleset.local_marks)
        self.connections = ConnectionTable()

    def process(self, packet: Packet) -> Trace:
        """The path of one packet."""
        journey = _Journey(self, packet)
        if packet.in_interface:
            journey.come_in()
        else:
            journey.go_out()
        return journey.trace()


class _Journey:
    """One packet on its path."""

    def __init__(self, host: Host, packet: Packet) -> None:
        self._host = host
        self._around = host.surroundings
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
        self._at: _Place

    def trace(self) -> Trace:
        """What has happened."""
        return Trace(
            first=self._first, last=self._packet, fate=self._fate, steps=tuple(self._steps), reason=self._reason,
            redirect_port=self._port, transparent=self._transparent, translated=self._translated,
            policy_routed=self._policy_routed, zone=self._zone, decider=self._decider, unread=tuple(self._unread),
        )  # fmt: skip

    def go_out(self) -> None:
        """A packet that a socket (or the kernel) of this host makes."""
        self._route_out()
        if not self._pass(OUTPUT):
            return
        self._route_out()  # its destination or mark may be new; OUTPUT's rules saw the first interface throughout
        if not self._pass(POSTROUTING):
            return
        if self._packet.out_interface != LOOPBACK_DEVICE:
            self._fate = SENT
            return
        self._note("it comes in again through lo")
        # On lo the packet loses its socket, keeps its mark and its connection.
        self._packet = self._packet.replace(
            in_interface=LOOPBACK_DEVICE, out_interface="", has_socket=False, uid=None, gid=None
        )
        self.come_in(looped=True)

    def come_in(self, *, looped: bool = False) -> None:
        """A packet that comes through an interface."""
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
        local = self._around.is_local(self._packet.destination)
        if local is None and not (self._connection and self._connection.redirected):
            self._end(UNKNOWN, "its destination is not known")
            return False
        if local is not False:
            return True
        if self._around.routes_here(self._packet.mark):
            self._policy_routed = True
            self._note(f"its mark {self._packet.mark} is routed to this host by a policy rule{self._table_note()}")
            return True
        return False

    def _table_note(self) -> str:
        return f" (table {self._host.ruleset.routing_table})" if self._host.ruleset.routing_table else ""

    def _route_out(self) -> None:
        packet = self._packet
        out = self._around.leaving_interface(packet.destination, packet.mark)
        if packet.destination is None or self._around.is_local(packet.destination):
            how = "the destination is this host's own"
        elif out == LOOPBACK_DEVICE and self._around.routes_here(packet.mark):
            how = f"its mark {packet.mark} is routed to this host by a policy rule{self._table_note()}"
            self._policy_routed = True
        else:
            how = "by the routing table"
        if out != packet.out_interface:
            self._packet = packet.replace(out_interface=out)
            self._note(f"it leaves through {out}: {how}")

    def _pass(self, hook: str) -> bool:
        """Whether the packet gets through a hook."""
        self._hook = hook
        for other in self._host.ruleset.unread.get(hook, ()):
            self._unread[other] = None
            self._note(f"{other}, which is foreign and not read, looks at it too")
        for stage in STAGES[hook]:
            if stage == TRACKING:
                self._track()
            elif stage == NAT:
                self._translate(hook)
            else:
                before = self._packet.mark
                self._ask(stage, hook)
                if (hook, stage) == (OUTPUT, MANGLE) and self._packet.mark != before and not self._fate:
                    self._note(f"its mark is {self._packet.mark} now: it is routed anew after this hook")
            if self._fate:
                return False
        if hook in CONFIRMS and self._connection is not None:
            self._host.connections.confirm(self._connection)
        return True

    def _track(self) -> None:
        """Connection tracking gives the packet its state; a packet that has passed lo keeps it."""
        packet = self._packet
        if self._connection is not None or packet.state in _UNTRACKED or not self._host.ruleset.tracks:
            return
        found = self._host.connections.find(self._zone, packet)
        if found:
            self._connection, self._is_answer = found
            self._connection.answered |= self._is_answer
            state = "ESTABLISHED" if self._connection.answered else "NEW"
        elif packet.protocol == "tcp" and packet.flags and not begins(packet.flags, picks_up=self._around.picks_up):
            self._packet = packet.replace(state="INVALID")  # no connection begins like this
            self._note("its connection is not known: INVALID", TRACKING)
            return
        else:
            self._connection = Connection(flow_of(packet), self._zone, mark=packet.connection_mark)
            state = packet.state or "NEW"
            if state != "NEW":  # of a connection whose beginning was not simulated
                self._connection.decided = {_DESTINATION, _SOURCE}
        self._packet = packet.replace(state=state, connection_mark=self._connection.mark)
        self._note(f"its connection is {state}" + (f" (zone {self._zone})" if self._zone else ""), TRACKING)

    def _translate(self, hook: str) -> None:
        """NAT: decided by the first packet of a connection, repeated for all others."""
        connection = self._connection
        side = _DESTINATION if hook in TRANSLATES_DESTINATION else _SOURCE
        if connection is None:
            if NAT in self._host.ruleset.tables:
                self._note("NAT is not asked: the packet belongs to no tracked connection", NAT)
            return
        if side not in connection.decided:
            self._ask(NAT, hook)
            connection.decided.add(side)
        elif NAT in self._host.ruleset.tables and not self._is_answer:
            self._note(f"NAT is not asked: its {side} was decided before", NAT)
        if side == _DESTINATION and not self._is_answer and connection.to != connection.original:
            to = connection.to
            self._packet = self._packet.replace(destination=to.destination, destination_port=to.destination_port)
        elif side == _SOURCE and self._is_answer and connection.to != connection.original:
            back = connection.original
            self._packet = self._packet.replace(source=back.destination, source_port=back.destination_port)

    def _ask(self, table: str, hook: str) -> None:
        chain = self._host.ruleset.tables.get(table, {}).get(hook)
        if chain is None or (not chain.rules and chain.policy == "ACCEPT"):
            return
        if self._walk(table, chain, ()) == GO_ON:
            self._steps.append(TraceStep(self._hook, f"the policy is {chain.policy}", table, chain.name))
            if chain.policy == "DROP":
                self._end(DROPPED, f"the policy of {table} {chain.name} is DROP")
            elif chain.policy != "ACCEPT":
                self._end(UNKNOWN, f"the policy of {table} {chain.name} is {chain.policy}, which netinit does not know")

    def _walk(self, table: str, chain: LoadedChain, above: tuple[str, ...]) -> Verdict:
        """Goes through a chain: accepted, ended for good, or on with the chain that called it."""
        for loaded in chain.rules:
            holds = self._test(loaded)
            target = loaded.rule.target
            at = _Place(table, chain, loaded, above)
            if holds is None and not target.only_observes:
                self._step(at, None, "whether it holds cannot be known")
                return self._end_by_rule(UNKNOWN, f"{at}: {self._unknown_part(loaded)}")
            self._step(at, holds, target.describe() if holds else "may hold, and lets it go on" if holds is None else "does not hold")
            if not holds:
                continue
            self._at = at
            verdict = target.act(self)
            if verdict == BACK:
                return GO_ON
            if verdict != GO_ON:
                return verdict
        if chain.name not in BUILTIN_CHAINS:
            self._steps.append(TraceStep(self._hook, "the chain ends: back to its caller", table, chain.name))
        return GO_ON

    # What targets do (rules.targets.Traversal). `_at` is the rule whose target acts.

    def drop(self) -> Verdict:
        """It vanishes."""
        return self._end_by_rule(DROPPED, str(self._at))

    def refuse(self) -> Verdict:
        """Its sender learns that it was refused."""
        return self._end_by_rule(REFUSED, str(self._at))

    def give_up(self) -> Verdict:
        """Nobody knows what becomes of it."""
        return self._end_by_rule(UNKNOWN, f"{self._at}: netinit does not know the target")

    def call(self, chain: str) -> Verdict:
        """It goes through another chain."""
        at = self._at
        called = self._host.ruleset.tables[at.table].get(chain)
        if called is None or chain in BUILTIN_CHAINS:
            return self._end_by_rule(UNKNOWN, f"{at}: nothing is known of {chain}")
        if chain in at.above:
            return self._end_by_rule(UNKNOWN, f"{at}: the chain {chain} calls itself")
        return self._walk(at.table, called, (*at.above, at.chain.name))

    def track(self, zone: int | None) -> Verdict:
        """Gives the connection a zone, or none; the first such rule counts, and what was tracked stays (xt_CT)."""
        if self._at.table != RAW:
            return self.give_up()
        if self._connection is None and not self._zone:
            if zone is None:
                self._packet = self._packet.replace(state="UNTRACKED")
            else:
                self._zone = zone
        return GO_ON

    def hand_over(self, port: int, mark: int) -> Verdict:
        """A transparent socket gets it, and it has a mark."""
        self._packet = self._packet.replace(mark=mark)
        self._port, self._transparent = port, True
        return ACCEPTED

    def redirect(self, port: int) -> Verdict:
        """Its connection goes to a port of this host."""
        if self._at.table != NAT:
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
        if not self._transparent:  # the socket that TPROXY chose gets the packet whatever its addresses become
            self._port = port
        return ACCEPTED

    def send_to(self, address: str, port: int) -> Verdict:
        """Its connection goes elsewhere; an empty address and port 0 leave as they are."""
        connection = self._connection
        if self._at.table != NAT or connection is None:
            return self.give_up()
        original = connection.original
        connection.send_to(number_of(address) if address else original.destination, port or original.destination_port)
        self._translated = True
        return ACCEPTED

    def replace_source(self) -> Verdict:
        """Its source becomes what only the kernel knows."""
        if self._at.table != NAT:
            return self.give_up()
        self._packet = self._packet.replace(source=None)
        return ACCEPTED

    def set_mark(self, value: int, mask: int, *, connection: bool) -> Verdict:
        """The bits of `mask` are cleared in its mark or its connection's, then `value` is xored in."""
        packet = self._packet
        if connection:
            return self._mark_connection((packet.connection_mark & ~mask) ^ value)
        self._packet = packet.replace(mark=(packet.mark & ~mask) ^ value)
        return GO_ON

    def save_mark(self) -> Verdict:
        """Its connection gets its mark."""
        return self._mark_connection(self._packet.mark)

    def restore_mark(self) -> Verdict:
        """It gets its connection's mark, where it has one."""
        if self._connection is not None:
            self._packet = self._packet.replace(mark=self._packet.connection_mark)
        return GO_ON

    def _mark_connection(self, mark: int) -> Verdict:
        if self._connection is not None:
            self._connection.mark = mark
            self._packet = self._packet.replace(connection_mark=mark)
        return GO_ON

    def _test(self, loaded: LoadedRule) -> bool | None:
        """Whether all matches hold: no, as soon as one does not, however little is known of the others."""
        unknown = False
        shown = self._visible()
        for match in loaded.rule.matches:
            truth = match.test(shown, self._around)
            if truth is False:
                return False
            unknown |= truth is None
        return None if unknown else True

    def _visible(self) -> Packet:
        """The packet as rules of this hook see it: coming in, or going out, or both."""
        if self._hook in (PREROUTING, INPUT):
            return self._packet.replace(out_interface="") if self._packet.out_interface else self._packet
        if self._hook == FORWARD or not self._packet.in_interface:
            return self._packet
        return self._packet.replace(in_interface="")

    def _unknown_part(self, loaded: LoadedRule) -> str:
        shown = self._visible()
        parts = [match.describe() for match in loaded.rule.matches if match.test(shown, self._around) is None]
        return f"nobody can know here whether {shorten(' and '.join(parts), MOST_OF_A_RULE)}"

    def _end_by_rule(self, fate: str, reason: str) -> Verdict:
        """The rule that was looked at last ends it."""
        self._decider = self._steps[-1]
        return self._end(fate, reason)

    def _end(self, fate: str, reason: str) -> Verdict:
        self._fate, self._reason = fate, reason
        return ENDED

    def _step(self, at: _Place, holds: bool | None, outcome: str) -> None:
        self._steps.append(TraceStep(self._hook, outcome, at.table, at.chain.name, at.loaded, holds))

    def _note(self, outcome: str, table: str = "") -> None:
        self._steps.append(TraceStep(self._hook, outcome, table))
