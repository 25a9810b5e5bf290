"""Follows the answer to a packet: the SYN and ACK of a connection, or a datagram that comes back.

The kernel finds the connection of an answer in the zone of its reply direction, gives the answer the connection's mark, and undoes
NAT: the source's at the hooks that translate destinations, the destination's at the others (nf_nat_core.c, nf_nat_packet). An
answer whose connection is not found keeps its addresses, so that nobody waits for it. Nor does anybody for one to a packet whose
destination a rule wrote before it was tracked: NAT knows that destination alone. Before all hooks an answer of this host needs a
route to where it goes until then, which is the address that NAT gave the source.
"""

from __future__ import annotations

from dataclasses import dataclass

from netinit.base.net import IPV4
from netinit.rules.matches.context import BARE_SYN
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.simulate.condition import UNTRACKED, Condition, MarkBits
from netinit.simulate.engine import PacketPath, follow
from netinit.simulate.hooks import TRANSLATES_DESTINATION
from netinit.simulate.ruleset import HookStage, Ruleset
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, REFUSED, SENT, UNKNOWN, Trace, TraceStep

SYN_AND_ACK = ("SYN", "ACK")
UserAndGroup = tuple[int, int]  # uid and gid
UNSENT = "the kernel sends nothing from 127.0.0.0/8 through another device than lo (unless route_localnet is set)"



@dataclass(frozen=True, slots=True)
class AnswerTrace:
    """Where an answer goes. `arrives`: at the socket or host that asked; None: unknown. `reason`: why it does not."""

    trace: Trace
    arrives: bool | None
    reason: str = ""

    @property
    def cause(self) -> TraceStep | None:
        """The rule that drops the answer; None if none does."""
        return self.trace.decider if self.arrives is False else None


def make_answer(asked: Trace, surroundings: Surroundings, owner: UserAndGroup | None = None) -> Packet | None:
    """The answer to a packet that reached somebody, as it begins; `owner` answers in this host. None if nobody was reached."""
    if asked.fate not in (DELIVERED, SENT, FORWARDED):
        return None
    first, last = asked.first, asked.last
    out = surroundings.default_interface if last.in_interface == LOOPBACK_DEVICE else last.out_interface
    inside = asked.fate == DELIVERED
    return Packet(
        family=first.family, protocol=first.protocol, source=last.destination, source_port=last.destination_port,
        destination=surroundings.primary_address(out) if last.source is None else last.source, destination_port=first.source_port,
        in_interface="" if inside else last.out_interface, has_socket=inside, uid=owner[0] if inside and owner else None,
        gid=owner[1] if inside and owner else None, socket=asked.fate != FORWARDED,
        flags=SYN_AND_ACK if first.protocol == "tcp" else None,
    )  # fmt: skip


def follow_answer(
    asked: Trace, ruleset: Ruleset, surroundings: Surroundings, *, owner: UserAndGroup | None = None, usual: Surroundings | None = None
) -> AnswerTrace | None:
    """Follow the answer to a connection's first packet; None if that reached nobody, or has no answer.

    `owner`: who answers in this host, if it is known. `usual`: the host without policy routing, whose routes lead back by any device.
    """
    around = ruleset.place_on(surroundings)
    packet = make_answer(asked, around, owner)
    opens = asked.first.flags in (None, BARE_SYN.flags) and not asked.first.state
    if packet is None or not opens or asked.first.protocol not in ("tcp", "udp"):
        return None
    trace = follow(lambda assumed: _AnswerPath(ruleset, around, packet, assumed, asked))
    if packet.has_socket and _is_unsent(packet, around):
        return AnswerTrace(trace, arrives=False, reason=UNSENT)
    arrives, reason = _judge(asked, trace, ruleset.place_on(usual or surroundings))
    return AnswerTrace(trace, arrives, reason)


def _is_unsent(packet: Packet, surroundings: Surroundings) -> bool:
    """Whether the kernel has no route for a packet of this host: see `UNSENT` (net/ipv4/route.c, __mkroute_output). IPv6 sends it."""
    if packet.family is not IPV4 or packet.source is None:
        return False
    loopback = IPV4.loopback_network
    return loopback.first <= packet.source <= loopback.last and surroundings.is_of_type_local(packet.destination) is False


def _judge(asked: Trace, found: Trace, usual: Surroundings) -> tuple[bool | None, str]:
    """Whether an answer arrives, and why not."""
    first, last = asked.first, found.last
    if found.fate == UNKNOWN:
        return None, found.reason
    if found.fate in (DROPPED, REFUSED):
        return False, f"it is {'refused' if found.fate == REFUSED else 'dropped'}, because {found.reason}"
    if (last.source, last.source_port) != (first.destination, first.destination_port) or last.destination != first.source:
        return False, _explain_untranslated(asked, found)
    wanted = DELIVERED if first.in_interface in ("", LOOPBACK_DEVICE) else FORWARDED if asked.fate == FORWARDED else SENT
    if found.fate != wanted:
        stays = found.fate == DELIVERED
        mark = f" its mark {last.mark} is routed there by a policy rule" if found.policy_routed else " it is routed there"
        return False, f"it is delivered to this pod:{mark}" if stays else f"it leaves through {last.out_interface}"
    back = {first.in_interface, usual.leaving_interface(first.source, 0)}
    if wanted != DELIVERED and last.out_interface not in back:
        return False, f"it leaves through {last.out_interface}, and the connection comes in through {first.in_interface}"
    return True, ""


def _explain_untranslated(asked: Trace, found: Trace) -> str:
    if asked.last.state == UNTRACKED:
        return "its connection is not tracked, so that its address is not translated back"
    if found.last.state == UNTRACKED:
        return "it is not tracked, so that its address is not translated back"
    if found.reply_zone != asked.reply_zone:
        return f"it is looked up in conntrack zone {found.reply_zone}, and the connection is in zone {asked.reply_zone}"
    return "its address is not translated back"


class _AnswerPath(PacketPath):
    """An answer traversing the hooks; until it is tracked, nothing of its connection is known."""

    def __init__(
        self, ruleset: Ruleset, surroundings: Surroundings, packet: Packet, assumed: tuple[bool, ...], asked: Trace
    ) -> None:
        super().__init__(ruleset, surroundings, packet, assumed)
        self._asked = asked
        self._is_answer = self._was_translated = False

    def _track(self) -> None:
        now, asked = self._now, self._asked
        is_found = bool(asked.last.state) and asked.last.state != UNTRACKED and now.reply_zone == asked.reply_zone
        if now.connection or now.state == UNTRACKED or not is_found:
            super()._track()
            return
        self._is_answer, self._was_translated = True, bool(asked.last.destination_translated)
        mark = MarkBits(flip=asked.last.connection_mark)
        self._join(now.replace(state="ESTABLISHED", connection_mark=mark))

    def _is_translated(self, now: Condition) -> bool | None:
        return self._was_translated if self._is_answer else super()._is_translated(now)

    def _translate(self, stage: HookStage, hook: str) -> None:
        if not self._is_answer:
            super()._translate(stage, hook)
            return
        first, before = self._asked.first, (self._packet.source, self._packet.destination, self._packet.source_port)
        if hook in TRANSLATES_DESTINATION:
            self._become(self._now.replace(destination=first.source))
        else:
            source, port = self._asked.rewritten or (first.destination, first.destination_port)
            self._packet = self._packet.replace(source_port=port)
            self._become(self._now.replace(source=source))
        if before != (self._packet.source, self._packet.destination, self._packet.source_port):
            self._note("NAT translates its address back, as that of the connection", stage.name)
