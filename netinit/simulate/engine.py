"""The way of a packet through the kernel.

Laws kept: tables are asked in the order of `hooks.STAGES`; NAT is asked once for a connection's destination and once
for its source; a packet to this host itself leaves through lo and comes in again with the connection it has; a rule
that may or may not hold ends the simulation with UNKNOWN unless its target changes nothing.
"""

from __future__ import annotations

from netinit.base.net import Network, number_of
from netinit.rules import foreign
from netinit.rules.model import BUILTIN_CHAINS, INPUT, MANGLE, NAT, OUTPUT, PREROUTING, RAW
from netinit.rules.packet import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.rules.targets import (
    Accept,
    Drop,
    Jump,
    Redirect,
    Reject,
    RestoreMark,
    Return,
    SaveMark,
    SetMark,
    Target,
    Tproxy,
    TrackZone,
)
from netinit.simulate.connections import Connection, ConnectionTable, flow_of
from netinit.simulate.hooks import CONFIRMS, FORWARD, POSTROUTING, STAGES, TRACKING, TRANSLATES_DESTINATION
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, REFUSED, SENT, UNKNOWN, Step, Trace

_GO_ON, _ACCEPTED, _ENDED = "go on", "accepted", "ended"  # what walking a chain comes to
_UNTRACKED = ("INVALID", "UNTRACKED")
_DESTINATION, _SOURCE = "destination", "source"


def simulate(packet: Packet, ruleset: Ruleset, surroundings: Surroundings) -> Trace:
    """The way of one packet: made here when it has no incoming interface, else coming in through that one."""
    return Host(ruleset, surroundings).process(packet)


class Host:
    """A host with rules that remembers connections from packet to packet."""

    def __init__(self, ruleset: Ruleset, surroundings: Surroundings) -> None:
        self.ruleset = ruleset
        self.surroundings = surroundings.replace(local_marks=surroundings.local_marks | ruleset.local_marks)
        self.connections = ConnectionTable()

    def process(self, packet: Packet) -> Trace:
        """The way of one packet."""
        journey = _Journey(self, packet)
        if packet.in_interface:
            journey.come_in()
        else:
            journey.go_out()
        return journey.trace()


class _Journey:
    """One packet under way."""

    def __init__(self, host: Host, packet: Packet) -> None:
        self._host = host
        self._around = host.surroundings
        self._first = packet
        self._packet = packet
        self._connection: Connection | None = None
        self._is_answer = False
        self._steps: list[Step] = []
        self._hook = ""
        self._zone = 0
        self._fate = ""
        self._reason = ""
        self._port = 0  # of REDIRECT or TPROXY
        self._transparent = False
        self._translated = False
        self._policy_routed = False

    def trace(self) -> Trace:
        """What has happened."""
        return Trace(
            first=self._first, last=self._packet, fate=self._fate, steps=tuple(self._steps), reason=self._reason,
            redirect_port=self._port, transparent=self._transparent, translated=self._translated,
            policy_routed=self._policy_routed, zone=self._zone,
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
        if local is None and not (self._connection and self._connection.to.destination is None):
            self._end(UNKNOWN, "its destination is not known")
            return False
        if local is not False:
            return True
        if self._packet.mark in self._around.local_marks:
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
        elif out == LOOPBACK_DEVICE and packet.mark in self._around.local_marks:
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
        elif packet.protocol == "tcp" and packet.flags and not _begins(packet.flags, picks_up=self._around.picks_up):
            self._packet = packet.replace(state="INVALID")  # no connection begins like this
            self._note("its connection is not known: INVALID", TRACKING)
            return
        else:
            self._connection = Connection(flow_of(packet), self._zone, mark=packet.connection_mark)
            state = packet.state or "NEW"
            if state != "NEW":  # of a connection whose beginning was not simulated
                self._connection.decided = {_DESTINATION, _SOURCE}
        self._connection.related = state == "RELATED"
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
        if side not in connection.decided and not connection.related:
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
        if self._walk(table, chain, ()) == _GO_ON:
            self._step(table, chain.name, None, None, f"the policy is {chain.policy}")
            if chain.policy == "DROP":
                self._end(DROPPED, f"the policy of {table} {chain.name} is DROP")
            elif chain.policy != "ACCEPT":
                self._end(UNKNOWN, f"the policy of {table} {chain.name} is {chain.policy}, which netinit does not know")

    def _walk(self, table: str, chain: LoadedChain, above: tuple[str, ...]) -> str:
        """Goes through a chain: accepted, ended for good, or on with the chain that called it."""
        for loaded in chain.rules:
            holds = self._test(loaded)
            target = loaded.rule.target
            if holds is None and not isinstance(target, foreign.Nothing | foreign.Observe):
                self._step(table, chain.name, loaded, None, "whether it holds cannot be known")
                self._end(UNKNOWN, f"{self._place(table, chain, loaded)}: {self._unknown_part(loaded)}")
                return _ENDED
            self._step(table, chain.name, loaded, holds, target.describe() if holds else "does not hold")
            if not holds:
                continue
            if isinstance(target, Return):
                return _GO_ON
            if isinstance(target, Jump | foreign.Goto):
                result = self._call(table, chain, loaded, target.chain, above)
                if result != _GO_ON or isinstance(target, foreign.Goto):
                    return result
                continue
            result = self._apply(target, table, chain, loaded)
            if result != _GO_ON:
                return result
        if chain.name not in BUILTIN_CHAINS:
            self._step(table, chain.name, None, None, "the chain ends: back to its caller")
        return _GO_ON

    def _call(self, table: str, chain: LoadedChain, loaded: LoadedRule, name: str, above: tuple[str, ...]) -> str:
        called = self._host.ruleset.tables[table].get(name)
        if called is None or name in BUILTIN_CHAINS:
            self._end(UNKNOWN, f"{self._place(table, chain, loaded)}: nothing is known of {name}")
            return _ENDED
        if name in above:
            self._end(UNKNOWN, f"{self._place(table, chain, loaded)}: the chain {name} calls itself")
            return _ENDED
        return self._walk(table, called, (*above, chain.name))

    def _apply(self, target: Target, table: str, chain: LoadedChain, loaded: LoadedRule) -> str:
        """Does what a target that is no jump does."""
        place = self._place(table, chain, loaded)
        if isinstance(target, Drop):
            return self._end(DROPPED, place)
        if isinstance(target, Reject | foreign.RejectWith):
            return self._end(REFUSED, place)
        if (
            isinstance(target, foreign.Nothing | foreign.Observe)
            or self._change_mark(target)
            or self._track_apart(target, table)
        ):
            return _GO_ON
        if isinstance(target, Accept) or self._send_elsewhere(target, table):
            return _ACCEPTED
        return self._end(UNKNOWN, f"{place}: netinit does not know the target")

    def _track_apart(self, target: Target, table: str) -> bool:
        """Gives the connection a zone, or none; the first such rule counts, and what was tracked stays (xt_CT)."""
        if not isinstance(target, TrackZone | foreign.Untrack) or table != RAW:
            return False
        if self._connection is not None or self._zone:
            return True
        if isinstance(target, TrackZone):
            self._zone = target.zone
        else:
            self._packet = self._packet.replace(state="UNTRACKED")
        return True

    def _send_elsewhere(self, target: Target, table: str) -> bool:
        """Hands the packet to a socket or changes an address, where that is what the target does."""
        if isinstance(target, Tproxy):
            self._packet = self._packet.replace(mark=target.mark)
            self._port, self._transparent = target.port, True
        elif isinstance(target, Redirect) and table == NAT:
            self._redirect(target)
        elif isinstance(target, foreign.Dnat) and table == NAT and self._connection is not None:
            self._send_to(target)
        elif isinstance(target, foreign.SourceNat) and table == NAT:
            self._packet = self._packet.replace(source=None)
        else:
            return False
        return True

    def _change_mark(self, target: Target) -> bool:
        """Marks the packet or its connection, where that is what the target does."""
        packet, connection = self._packet, self._connection
        if isinstance(target, SetMark):
            self._packet = packet.replace(mark=target.value)
        elif isinstance(target, RestoreMark):
            self._packet = packet.replace(mark=packet.connection_mark if connection else packet.mark)
        elif isinstance(target, SaveMark):
            self._mark_connection(packet.mark)
        elif isinstance(target, foreign.ChangeMark):
            old = packet.connection_mark if target.connection else packet.mark
            new = (old & ~target.mask) ^ target.value
            if target.connection:
                self._mark_connection(new)
            else:
                self._packet = packet.replace(mark=new)
        else:
            return False
        return True

    def _mark_connection(self, mark: int) -> None:
        if self._connection is not None:
            self._connection.mark = mark
            self._packet = self._packet.replace(connection_mark=mark)

    def _redirect(self, target: Redirect) -> None:
        connection = self._connection
        if connection is None:
            return
        if self._hook == OUTPUT:
            address: int | None = Network.parse(self._packet.family.loopback).first
        else:
            address = self._around.primary_address(self._packet.in_interface)
        connection.send_to(address, target.port)
        if not self._transparent:  # the socket that TPROXY chose gets the packet whatever its addresses become
            self._port = target.port

    def _send_to(self, target: foreign.Dnat) -> None:
        connection = self._connection
        if connection is None:
            return
        address = connection.original.destination
        if target.address:
            address = number_of(target.address)
        connection.send_to(address, target.port or connection.original.destination_port)
        self._translated = True

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
        return f"nobody can know here whether {' and '.join(parts)}"

    def _place(self, table: str, chain: LoadedChain, loaded: LoadedRule) -> str:
        return f"rule {loaded.number} of {table} {chain.name}, `{loaded.text}`"

    def _end(self, fate: str, reason: str) -> str:
        self._fate, self._reason = fate, reason
        return _ENDED

    def _step(self, table: str, chain: str, loaded: LoadedRule | None, holds: bool | None, outcome: str) -> None:
        self._steps.append(Step(self._hook, outcome, table, chain, loaded, holds))

    def _note(self, outcome: str, table: str = "") -> None:
        self._steps.append(Step(self._hook, outcome, table))


def _begins(flags: tuple[str, ...], *, picks_up: bool) -> bool:
    """Whether a TCP packet with these flags makes a connection known."""
    return flags == ("SYN",) or (picks_up and flags == ("ACK",))
