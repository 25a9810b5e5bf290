"""Moves the answers to sets of packets through the hooks, as `netinit.simulate.answers` moves one answer.

The sets remain those of the packets that were asked with, whose source is where the answers go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from netinit.base.net import IPV4, MAX_PORT
from netinit.rules.foreign_targets import Several
from netinit.rules.model import OUTPUT, PREROUTING
from netinit.rules.targets import Accept, Jump, Return
from netinit.simulate.answers import SYN_AND_ACK, UNSENT, UserAndGroup
from netinit.simulate.condition import KEPT, UNTRACKED, Condition, InitialState, MarkBits
from netinit.simulate.endpoints import CLIENT_PORTS
from netinit.simulate.hooks import TRANSLATES_DESTINATION
from netinit.simulate.ruleset import HookStage, RuleHit, Ruleset
from netinit.simulate.symbolic.chain_walk import Groups, add_group
from netinit.simulate.symbolic.hook_walk import PacketSets, divide, split_by_route
from netinit.simulate.symbolic.match_sets import Choice, SymbolicPackets, local, split_by_rule, view
from netinit.simulate.symbolic.partition import ENDS, Part
from netinit.simulate.symbolic.regions import Region, in_states, nothing, unite, valued, within
from netinit.simulate.symbolic.space import INBOUND, CtState, Dim, Space, intervals_of
from netinit.simulate.trace import CAPTURED, DELIVERED, DIRECT, DROPPED, SENT, UNKNOWN

FOUND = "ESTABLISHED"  # the state of answers whose connection is found
DROPS, LOSES = "drops the answers to {}", "keeps the answers to {} from coming back: {}"
OF_VERDICT = {CAPTURED: "connections that the proxy captures", DIRECT: "direct connections"}
NOT_FOUND = "the kernel does not find their connection in the zone of the answers"
STAYS = "their mark is routed to this pod"
NOT_TRACKED = "they are not tracked"
REWRITTEN = "they are translated back to a destination that a rule wrote into the packets"


Lost = tuple[RuleHit, str, Region, Part]
"""A rule that keeps answers from coming back, what it does, the packets that are answered, and their part."""


def find_lost(
    planned: Ruleset, live: Ruleset, parts: Iterable[Part], owner: UserAndGroup | None, is_foreign: Callable[[RuleHit], bool]
) -> Iterator[Lost]:
    """The connections among captured and direct `parts` of the live rules whose answers are lost because of foreign ones.

    `owner` is the proxy, which answers captured connections. A rule that loses their answers is named for these alone.

    Raises TooManyPartsError.
    """
    named = set()
    for effect, part, end in sorted(_list_lost(live, parts, owner), key=lambda one: one[1].verdict != CAPTURED):
        region = end.region
        hits = [one for one in (*part.path, *end.path) if _acts(one) and is_foreign(one)]
        before = divide(region.space, planned, region, marks_matter=False).parts if hits else ()
        anyway = unite([nothing(region.space), *[one.region for _, _, one in _list_lost(planned, before, owner)]])
        if hits and (part.verdict == CAPTURED or str(hits[-1]) not in named) and (left := region - anyway):
            named |= {str(hits[-1])} if part.verdict == CAPTURED else set()
            ends_there = end.by_rule and hits[-1] is end.path[-1]
            for hit, taken in split_by_rule(hits[-1], end.condition, left) if ends_there else ((hits[-1], left),):
                yield hit, effect, taken, part


def _list_lost(ruleset: Ruleset, parts: Iterable[Part], owner: UserAndGroup | None) -> Iterator[tuple[str, Part, Part]]:
    """Answers that do not come back: why, the part of what they answer, and where they end."""
    for part in parts:
        if not _is_received(part) or not (asked := list_askers(part) & _sent_from_usual_ports(part.region.space)):
            continue
        for end in follow_answers(ruleset, replace(part, region=asked), owner if part.verdict == CAPTURED else None):
            if effect := find_loss(end, part):
                yield effect, part, end


def _is_received(part: Part) -> bool:
    """Whether somebody receives these packets: this host, or another one if they are direct."""
    return part.fate == DELIVERED if part.verdict == CAPTURED else part.verdict == DIRECT and part.fate in (DELIVERED, SENT)


def list_askers(part: Part) -> Region:
    """Packets of a part that open connections of somebody elsewhere, or of this host's applications."""
    space = part.region.space
    own = local(space, Dim.SOURCE)
    found = part.region & in_states(space, (CtState.NEW,)) & valued(space, Dim.PROTOCOL, "tcp", "udp")
    found &= within(space, Dim.SOURCE_PORT, [(1, MAX_PORT)])  # no socket has port 0
    if space.direction == INBOUND:
        return found - own
    if space.family is IPV4:  # it has no route for what is from loopback to others, before and after NAT
        staying = local(space, Dim.DESTINATION) if part.fate == DELIVERED or part.condition.source is not KEPT else nothing(space)
        own -= within(space, Dim.SOURCE, intervals_of([IPV4.loopback_network])) - staying
    return found & own


def _sent_from_usual_ports(space: Space) -> Region:
    """What clients of TCP send: a rule that drops what goes to a server's port does not drop the answers to any of them."""
    return valued(space, Dim.PROTOCOL, "udp") | within(space, Dim.SOURCE_PORT, [CLIENT_PORTS])


def find_loss(end: Part, part: Part) -> str:
    """Why answers are lost; empty if they arrive, or if it is not known."""
    now, whose = end.condition, OF_VERDICT[part.verdict]
    if end.fate in ENDS:
        return LOSES.format(whose, UNSENT) if end.reason == UNSENT else DROPS.format(whose)
    if not is_known(end):
        return ""
    if (now.source, now.source_port, now.destination) != (KEPT, KEPT, KEPT):
        found = REWRITTEN if now.state == FOUND else NOT_FOUND
        return LOSES.format(whose, NOT_TRACKED if UNTRACKED in (now.state, part.condition.state) else found)
    expected = SENT if end.region.space.direction == INBOUND else DELIVERED
    return "" if end.fate == expected else LOSES.format(whose, STAYS)


def is_known(end: Part) -> bool:
    """Whether it is known what becomes of answers; what is masqueraded may keep the address that it had."""
    return end.fate != UNKNOWN and end.condition.destination not in (None, InitialState.OWN)


def _acts(hit: RuleHit) -> bool:
    target = hit.matched.target
    parts = target.targets if isinstance(target, Several) else (target,)
    return any(not (isinstance(one, Jump | Accept | Return) or one.only_observes) for one in parts)


def follow_answers(ruleset: Ruleset, part: Part, owner: UserAndGroup | None) -> list[Part]:
    """Where the answers to packets end that this host has received or sent; `owner` sends those of this host, if it is known."""
    space = part.region.space
    placed = replace(space, around=ruleset.place_on(space.around))
    found = _AnswerSets(placed, ruleset, marks_matter=False).follow(replace(part, region=part.region.seen_in(placed)), owner)
    return [replace(one, region=one.region.seen_in(space)) for one in found]


@dataclass(frozen=True)
class Asked:
    """The end of the packets that others answer; `owner` answers."""

    condition: Condition
    owner: UserAndGroup | None

    def view(self, space: Space, now: Condition) -> SymbolicPackets:
        """The answers under a condition of theirs."""
        return _AnswerPackets(space, now, self)


class _AnswerPackets(SymbolicPackets):
    """The answers under one condition: what is kept of their source is the destination that was asked."""

    ADDRESSES = {True: Dim.DESTINATION, False: Dim.SOURCE}  # noqa: RUF012
    PORTS = {True: Dim.DESTINATION_PORT, False: Dim.SOURCE_PORT}  # noqa: RUF012

    def __init__(self, space: Space, condition: Condition, asked: Asked) -> None:
        super().__init__(space, condition)
        self._asked = asked

    @property
    def _is_found(self) -> bool:
        return self._now.state == FOUND

    def owned_by(self, kind: str, low: int, high: int) -> Choice:
        if not self._now.sender or not self._asked.owner:
            return self.unknown() if self._now.sender else self._always(holds=False)
        return self._always(holds=low <= self._asked.owner[kind == "gid"] <= high)

    def with_flags(self, mask: tuple[str, ...], flags: tuple[str, ...]) -> Choice:
        return self._always(holds={one for one in SYN_AND_ACK if one in mask} == set(flags))

    def with_translated_destination(self) -> Choice:
        return view(self._space, self._asked.condition).with_translated_destination() if self._is_found else self._always(holds=False)

    def in_reply_direction(self) -> Choice:
        return self._always(holds=self._is_found)

    def to_socket(self) -> Choice:
        return self._always(holds=True)


class _AnswerSets(PacketSets):
    """Answers of this host, or to it."""

    def follow(self, part: Part, owner: UserAndGroup | None) -> list[Part]:
        """Send the answers out, or receive those to what was sent."""
        end = part.condition
        begin = Condition(
            hook=OUTPUT, sender=True, asked=Asked(end, owner), source=end.destination, source_port=end.destination_port,
            destination=end.source, mark=MarkBits(), connection_mark=MarkBits(), state="INVALID",
        )  # fmt: skip
        if part.fate == SENT:
            coming = begin.replace(hook=PREROUTING, sender=False, in_interface=end.out_interface)
            groups: Groups = {(coming, ()): part.region}
            if isinstance(end.source, int):  # translated, and perhaps sent from that address already
                same = part.region & within(self._space, Dim.SOURCE, [(end.source, end.source)])
                groups = {(coming, ()): part.region - same, (coming.replace(destination=KEPT), ()): same}
            self._receive(groups)
        else:
            answers, unsent = view(self._space, begin), nothing(self._space)
            if self._space.family is IPV4:
                unsent = answers.in_networks((IPV4.loopback_network,), source=True).certain - answers.local(source=False).possible
            self._end({(begin, ()): part.region & unsent}, DROPPED, UNSENT)
            self._send({(begin, ()): part.region - unsent})
        return self._list_ends(part.region)

    def _ways(self, condition: Condition, *, free: bool) -> Iterator[tuple[Region, str | InitialState]]:
        if condition.destination is not KEPT:
            yield from super()._ways(condition, free=free)
        elif free:  # back through the device where the connection came in
            yield self._everything, KEPT
        else:
            yield from split_by_route(self._space, Dim.SOURCE)

    def _track(self, condition: Condition) -> Iterator[tuple[Region, Condition]]:
        asked = condition.asked.condition if isinstance(condition.asked, Asked) else condition
        is_found = asked.connection and asked.state != UNTRACKED and condition.reply_zone == asked.reply_zone
        if condition.connection or condition.state == UNTRACKED:
            yield self._everything, condition
        elif not is_found:  # a datagram begins a connection, a SYN and ACK does not
            datagrams = valued(self._space, Dim.PROTOCOL, "udp")
            yield datagrams, condition.replace(state=CtState.NEW, connection=True)
            yield self._everything - datagrams, condition
        else:
            mark = asked.connection_mark
            yield self._everything, condition.replace(state=FOUND, connection=True, connection_mark=mark)

    def _translate(self, stage: HookStage, hook: str, groups: Groups) -> Groups:  # noqa: ARG002
        """Undo the translation of the connection."""
        found: Groups = {}
        for (condition, path), region in groups.items():
            if condition.state != FOUND:
                add_group(found, (condition, path), region)
            elif hook in TRANSLATES_DESTINATION:
                add_group(found, (condition.replace(destination=KEPT), path), region)
            else:
                for source, port, own in self._list_tracked(condition.asked.condition, region):
                    add_group(found, (condition.replace(source=source, source_port=port), path), own)
        return found

    def _list_tracked(self, asked: Condition, region: Region) -> Iterator[tuple[Any, Any, Region]]:
        """The destinations of packets when they were tracked: those that they were sent to, or what a rule wrote into them before."""
        address, port = asked.rewritten or (KEPT, KEPT)
        same = region & within(self._space, Dim.DESTINATION, [(address, address)]) if isinstance(address, int) else region
        same = same & within(self._space, Dim.DESTINATION_PORT, [(port, port)]) if isinstance(port, int) else same
        if same:
            yield KEPT, KEPT, same
        if others := region - same:
            yield address, port, others
