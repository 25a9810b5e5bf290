"""Moves packet sets through the kernel's hooks, as `netinit.simulate.engine` moves one packet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

from netinit.base.net import Network
from netinit.rules.model import INPUT, NAT, OUTPUT, PREROUTING
from netinit.rules.packet_inputs import LOOPBACK_DEVICE
from netinit.rules.targets import Accept, Return
from netinit.simulate.condition import KEPT, Condition, InitialState
from netinit.simulate.hooks import FORWARD, POSTROUTING, TRACKING, TRANSLATES_DESTINATION
from netinit.simulate.ruleset import HookStage, Ruleset
from netinit.simulate.symbolic.chain_walk import Groups, Walker, add_group
from netinit.simulate.symbolic.match_sets import local, view
from netinit.simulate.symbolic.partition import ENDS, Part, Partition
from netinit.simulate.symbolic.regions import Region, everything, in_states, nothing, unite, within
from netinit.simulate.symbolic.space import INBOUND, KNOWN, CtState, Dim, Space, intervals_of
from netinit.simulate.trace import (
    DELIVERED,
    DIRECT,
    DROPPED,
    FORWARDED,
    NOT_FORWARDED,
    ROUTED_OTHERWISE,
    SENT,
    UNKNOWN,
    list_unread,
)

Split = Callable[[Condition], Iterable[tuple[Region, Condition]]]


def divide(
    space: Space, ruleset: Ruleset | None, among: Region | None = None, *, marks_matter: bool = True, keeps_paths: bool = True
) -> Partition:
    """Partition all packets, or those `among` them, by their treatment; no rules change nothing.

    `marks_matter`: packets that end with other marks are other parts, also if nothing reads these marks. Without
    `keeps_paths`, which is quicker, parts do not tell which rules they met. Raises TooManyPartsError.
    """
    ruleset = ruleset or Ruleset(space.family)
    placed = replace(space, around=ruleset.place_on(space.around))  # another view of the same diagram
    region = everything(placed) if among is None else among.seen_in(placed)
    parts = PacketSets(placed, ruleset, marks_matter=marks_matter, keeps_paths=keeps_paths).divide(region)
    return Partition(space, tuple([replace(one, region=one.region.seen_in(space)) for one in parts]))


def split_by_route(space: Space, ends: str = Dim.DESTINATION) -> Iterator[tuple[Region, str]]:
    """Packets to other hosts, whose address is in the dimension `ends`, by outgoing interface; the longest prefix wins."""
    left = everything(space)
    by_rank: dict[tuple[int, str], list[Network]] = {}
    for network, name in space.around.routes:
        by_rank.setdefault((network.length, name), []).append(network)
    for rank, networks in sorted(by_rank.items(), reverse=True):
        region = left & within(space, ends, intervals_of(networks))
        yield region, rank[1]
        left -= region
    yield left, space.around.default_interface


class PacketSets:
    """All packets of a space under a ruleset."""

    def __init__(self, space: Space, ruleset: Ruleset, *, marks_matter: bool, keeps_paths: bool = True) -> None:
        self._space = space
        self._ruleset = ruleset
        local = space.around.local_marks
        self._walker = Walker(
            space, ruleset.is_proxy, lambda one: not marks_matter and ruleset.marks_for_nobody(one, local), keeps_paths=keeps_paths
        )
        self._everything = everything(space)

    def divide(self, region: Region) -> list[Part]:
        """Compute the treatment of each packet."""
        if self._space.direction == INBOUND:
            self._receive({(Condition(hook=PREROUTING, in_interface=KEPT), ()): region})
        else:
            self._send_out({(Condition(hook=OUTPUT, sender=True), ()): region})
        return self._list_ends(region)

    def _list_ends(self, region: Region) -> list[Part]:
        """Where the packets ended."""
        found = _settle(self._walker.ended, self._walker.doubts)
        if self._ruleset.doubt:
            return [Part(region, UNKNOWN, Condition(), (), self._ruleset.doubt)]
        if self._ruleset.unread:
            reason = list_unread(self._ruleset.unread)
            found = [one if one.fate == UNKNOWN else Part(one.region, UNKNOWN, one.condition, one.path, reason) for one in found]
        return found

    def _send_out(self, groups: Groups) -> None:
        """Send packets from sockets (or the kernel) of this host."""
        staying = within(self._space, Dim.DESTINATION, intervals_of(self._space.around.doubtful)) - local(self._space, Dim.DESTINATION)
        self._end({key: region & staying for key, region in groups.items()}, UNKNOWN, ROUTED_OTHERWISE)
        self._send({key: region - staying for key, region in groups.items()})

    def _send(self, groups: Groups) -> None:
        groups = self._pass(OUTPUT, self._part(groups, self._route_out))
        groups = self._pass(POSTROUTING, self._part(groups, self._route_out))
        self._end({key: region for key, region in groups.items() if key[0].out_interface != LOOPBACK_DEVICE}, SENT)
        groups = {key: region for key, region in groups.items() if key[0].out_interface == LOOPBACK_DEVICE}
        back = {"in_interface": LOOPBACK_DEVICE, "out_interface": "", "sender": False}  # marks and conntrack entries stay
        looped = self._part(groups, lambda now: [(self._everything, now.replace(**back))])
        self._end(self._pass(INPUT, self._pass(PREROUTING, looped)), DELIVERED)

    def _receive(self, groups: Groups) -> None:
        """Receive packets from interfaces."""
        groups = self._pass(PREROUTING, groups)
        sort = cache(lambda condition: [*self._sort(condition)])

        def bound(fate: str) -> Groups:
            return self._part(groups, lambda condition: [(region, now) for region, now, end in sort(condition) if end == fate])

        self._end(bound(UNKNOWN), UNKNOWN, "its destination is not known")
        self._end(self._pass(INPUT, bound(DELIVERED)), DELIVERED)
        passing = bound(FORWARDED)
        if self._space.around.forwards:
            passing = self._part(
                passing, lambda now: [(here, now.replace(out_interface=name)) for here, name in self._ways(now, free=False)]
            )
            self._end(self._pass(POSTROUTING, self._pass(FORWARD, passing)), FORWARDED)
        else:
            self._end(passing, DROPPED, NOT_FORWARDED)

    def _sort(self, condition: Condition) -> Iterator[tuple[Region, Condition, str]]:
        """Split packets into those for this host, for others, and unknown, by the fate that they are bound for."""
        packets = view(self._space, condition)
        local = packets.local(source=False)
        if condition.redirected:
            yield self._everything, condition, DELIVERED
            return
        yield local.certain, condition, DELIVERED
        yield local.possible - local.certain, condition, UNKNOWN
        group_addresses = nothing(self._space)
        if condition.destination is KEPT:  # a broadcast address or multicast group
            group_addresses = within(self._space, Dim.DESTINATION, intervals_of(self._space.around.group_addresses))
            group_addresses -= packets.of_protocol("tcp").certain | local.possible
        yield group_addresses, condition, DELIVERED
        rest = self._everything - local.possible - group_addresses
        routed = self._routed_here(condition)
        yield rest & routed, condition.replace(policy_routed=True), DELIVERED
        yield rest - routed, condition, FORWARDED

    def _route_out(self, condition: Condition) -> Iterator[tuple[Region, Condition]]:
        """Route packets of this host."""
        local = view(self._space, condition).local(source=False).possible
        yield local, condition.replace(out_interface=LOOPBACK_DEVICE)
        routed = self._routed_here(condition)
        yield routed - local, condition.replace(out_interface=LOOPBACK_DEVICE, policy_routed=True)
        for region, interface in self._ways(condition, free=self._space.free):
            yield region - local - routed, condition.replace(out_interface=interface)

    def _routed_here(self, condition: Condition) -> Region:
        """Packets whose mark a policy rule routes to this host."""
        found = nothing(self._space)
        for value, mask in self._space.around.local_marks:
            found |= view(self._space, condition).with_mark(value, mask, connection=False).certain
        return found

    def _ways(self, condition: Condition, *, free: bool) -> Iterator[tuple[Region, str | InitialState]]:
        """Routes of packets to other hosts."""
        if isinstance(condition.destination, int):
            yield self._everything, self._space.around.leaving_interface(condition.destination, 0)
        elif free:
            yield self._everything, KEPT
        else:
            yield from split_by_route(self._space)

    def _pass(self, hook: str, groups: Groups) -> Groups:
        """Traverse a hook and return the packets that pass."""
        entering: Groups = {}
        for (condition, path), region in groups.items():
            add_group(entering, (condition.replace(hook=hook), path), region)
        for stage in self._ruleset.stages[hook]:
            if stage.name == TRACKING:
                entering = self._part(entering, self._track)
            elif stage.name == NAT:
                entering = self._translate(stage, hook, entering)
            else:
                entering = self._walker.ask(stage, entering)
        return entering

    def _track(self, condition: Condition) -> Iterator[tuple[Region, Condition]]:
        """Assign conntrack states: new, known or belonging to no connection."""
        if condition.connection or not self._ruleset.tracks:
            yield self._everything, condition
        elif condition.state is not KEPT:
            yield self._everything, condition.replace(tracked=True)
        else:
            begins = in_states(self._space, (CtState.NEW,))
            known = in_states(self._space, (*KNOWN, CtState.REUSED_NEW, CtState.REUSED))
            joined = condition.replace(tracked=True, connection=True)
            yield begins, joined
            yield known, joined.replace(decided=True, source_decided=True)  # the connection's beginning was not simulated
            yield self._everything - begins - known, condition.replace(tracked=True)

    def _translate(self, stage: HookStage, hook: str, groups: Groups) -> Groups:
        """Apply NAT: decided by a connection's first packet, repeated for the others."""
        towards = hook in TRANSLATES_DESTINATION
        decision = {"decided" if towards else "source_decided": True}
        asked: Groups = {}
        others: Groups = {}
        for (condition, path), region in groups.items():
            known = condition.decided if towards else condition.source_decided
            add_group(asked if condition.connection and not known else others, (condition, path), region)
        for (condition, path), region in self._walker.ask(stage, asked).items():
            add_group(others, (condition.replace(**decision), path), region)
        return others

    def _part(self, groups: Groups, split: Split) -> Groups:
        """Split each group by condition."""
        divided = cache(lambda condition: [*split(condition)])
        found: Groups = {}
        for (condition, path), region in groups.items():
            for part, now in divided(condition):
                if here := region & part:
                    add_group(found, (now, path), here)
        return found

    def _end(self, groups: Groups, fate: str, reason: str = "") -> None:
        """Record where packets end."""
        for (condition, path), region in groups.items():
            if region:
                self._walker.ended.append(Part(region, fate, condition, path, reason))


def _settle(ended: list[Part], doubts: list[Part]) -> list[Part]:
    """Merge the ends of each packet; if they differ, UNKNOWN because of the first doubtful rule."""
    if not doubts:
        return ended
    several = unite([one.region for one in doubts])
    found = [replace(one, region=one.region - several) for one in ended]
    alike: dict[tuple[object, ...], list[Part]] = {}
    for one in _restore_states(ended):
        key = ENDS if one.fate in ENDS else one.behaviour_but_source
        alike.setdefault(key, []).append(replace(one, region=one.region & several))
    disputed = seen = risky = kept = other = nothing(several.space)
    for ends in alike.values():
        here = unite([one.region for one in ends])
        disputed |= seen & here
        seen |= here
        if ends[0].verdict != DIRECT:
            other |= here
        if ends[0].fate not in ENDS:
            risky |= kept & here if ends[0].condition.redirect_port else here
            kept |= here
    for ends in alike.values():
        left = several - disputed
        marked_otherwise = _by_others(ends, "mark", "connection_mark")
        sent_otherwise = _by_others(ends, "source")
        for one in sorted(ends, key=lambda end: any(hit.doubtful for hit in end.path)):
            vague = one.region & marked_otherwise[one.condition.mark, one.condition.connection_mark] & left
            unsure = one.region & sent_otherwise[one.condition.source,] & left
            for here, source in ((unsure, None), (left - unsure, one.condition.source)):
                known = one.condition.replace(source=source)
                found.append(replace(one, region=one.region & here - vague, condition=known))
                found.append(replace(one, region=here & vague, condition=known.replace(has_vague_marks=True)))
            left -= one.region
    for one in sorted(doubts, key=lambda one: bool(one.path) and isinstance(one.path[-1].matched.target, Accept | Return)):
        here = one.region & disputed
        found += [replace(one, region=here & risky & other), replace(one, region=here - other, always_direct=True)]
        found.append(replace(one, region=here - risky, at_worst_dropped=True))
        disputed -= one.region
    return [one for one in found if one.region]


def _by_others(ends: list[Part], *names: str) -> dict[tuple[object, ...], Region]:
    """For each combination of values of these fields, the packets that also end, or end instead, with other values."""
    regions: dict[tuple[object, ...], list[Region]] = {}
    for one in ends:
        regions.setdefault(tuple([getattr(one.condition, name) for name in names]), []).append(one.region)
    whole = {values: unite(each) for values, each in regions.items()}
    return {own: unite([nothing(ends[0].region.space), *[one for other, one in whole.items() if other != own]]) for own in whole}


def _restore_states(ended: list[Part]) -> Iterator[Part]:
    """Restore the initial state of packets that were untracked from the start."""
    for one in ended:
        already = one.region & in_states(one.region.space, (CtState.UNTRACKED,))
        if one.condition.state == CtState.UNTRACKED and already:
            yield replace(one, region=one.region - already)
            yield replace(one, region=already, condition=one.condition.replace(state=KEPT))
        else:
            yield one
