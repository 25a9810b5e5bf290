"""Differences between rules that nobody can see, or whose packets nobody can send, so that they are told by themselves. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from netinit.base.net import FULL_MASK
from netinit.questions.pod_rules import PodRules
from netinit.simulate.answers import UserAndGroup
from netinit.simulate.condition import Condition
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.symbolic.answer_walk import follow_answers
from netinit.simulate.symbolic.partition import ENDS, Divergence, Part, Partition, compare_parts
from netinit.simulate.symbolic.regions import Region, everything, in_states, nothing, unite, valued, within
from netinit.simulate.symbolic.space import OUTBOUND, WITH_PORTS, CtState, Dim, Space
from netinit.simulate.trace import DELIVERED, DROPPED, SENT, UNKNOWN

UNSENT = "that cannot be sent: to port 0, or by uid or gid 4294967295"
UNSEEN = "that cannot be observed: only their conntrack zone differs, and their answers arrive all the same"
MAX_USERS = 64  # combinations of users and groups that may answer, each a walk
NO_ID = FULL_MASK  # (uid_t) -1, which stands for "no user" (include/linux/uidgid.h)


def to_ports(space: Space) -> Region:
    """All packets except those to port 0, where nothing can listen."""
    with_ports = valued(space, Dim.PROTOCOL, *WITH_PORTS.intersection(space.dimension(Dim.PROTOCOL).values))
    return everything(space) - (with_ports & within(space, Dim.DESTINATION_PORT, [(0, 0)]))


def find_unsent(region: Region) -> Region:
    """The packets among some that nobody can send, unless they differ from others of them in nothing else."""
    space = region.space
    sent = to_ports(space)
    by_users = valued(space, Dim.SENDER, "yes") if space.direction == OUTBOUND else nothing(space)
    for name in (Dim.UID, Dim.GID) if by_users else ():
        sent -= by_users & within(space, name, [(NO_ID, NO_ID)])
    parts = [one for one in (region & by_users, region - by_users) if not one & sent]
    return unite([nothing(space), *parts])


@dataclass(frozen=True, slots=True)
class ComparedSpace:
    """A space divided by two sets of rules, and the packets that these treat differently."""

    before: Partition
    after: Partition
    found: tuple[Divergence, ...]

    def list_hidden(self, *, alike: bool) -> list[Region]:
        """Of each divergence the packets whose conntrack zone alone differs, if answers are `alike`."""
        space = self.before.space
        return [_differ_by_zone(one) if alike else nothing(space) for one in self.found]


def are_answered_alike(before: PodRules, after: PodRules, spaces: Sequence[ComparedSpace]) -> bool:
    """Whether the answers to all connections of a family end alike, but where their first packets do not; only asked if zones differ.

    An answer whose connection is in another zone is not found, and NAT does not undo what it did to the connection.
    """
    alone = [one for each in spaces for one in map(_differ_by_zone, each.found) if one]
    if not alone:
        return True
    space = alone[0].space
    names = space.dimension(Dim.PROTOCOL).values
    protocols = {name for one in alone for low, high in one.reach(Dim.PROTOCOL) for name in names[low : high + 1]}
    users = _list_users(before.join(space.family), after.join(space.family))
    if not users or not protocols <= {"tcp", "udp"}:
        return False
    return all(_is_answered_alike(before, after, one, protocols, users) for one in spaces)


def _is_answered_alike(
    before: PodRules, after: PodRules, compared: ComparedSpace, protocols: Collection[str], users: Sequence[UserAndGroup]
) -> bool:
    space = compared.before.space
    differing = unite([nothing(space), *[one.region - _differ_by_zone(one) for one in compared.found]])
    begins = in_states(space, (CtState.NEW,)) & valued(space, Dim.PROTOCOL, *sorted(protocols)) - differing
    sides = [(rules, _list_asked(partition, begins)) for rules, partition in ((before, compared.before), (after, compared.after))]
    for fate, answering in ((SENT, [None]), (DELIVERED, users)):  # what others answer does not depend on users of this host
        for user in answering:
            first, second = (_follow(rules.join(space.family), asked[fate], user) for rules, asked in sides)
            if UNKNOWN in first or UNKNOWN in second:
                return False
            if any(first.get(key, nothing(space)) != second.get(key, nothing(space)) for key in {*first, *second}):
                return False
    return True


def _differ_by_zone(found: Divergence) -> Region:
    one, other = found.before, found.after
    if UNKNOWN in (one.fate, other.fate):
        return nothing(found.region.space)
    zones = {"zone": one.condition.zone, "reply_zone": one.condition.reply_zone}
    same = replace(other, condition=other.condition.replace(**zones))
    return found.region - compare_parts(found.region, one, same)


def _list_users(*rulesets: Ruleset) -> list[UserAndGroup]:
    """A user and a group of each kind that rules distinguish; none if there are too many."""
    rules = [loaded.rule for ruleset in rulesets for chain in ruleset.list_chains() for loaded in chain.rules]
    owners: set[Any] = {match for rule in rules for one in rule.matches for match in one.parts if match.sender_ids}

    def list_ids(kind: str) -> list[int]:
        ends = {end for one in owners if getattr(one, one.sender_ids) == kind for end in (one.first, one.last + 1)}
        return sorted({0, *ends} - {NO_ID, NO_ID + 1})

    found = [*product(list_ids("uid"), list_ids("gid"))]
    return found if len(found) <= MAX_USERS else []


def _list_asked(partition: Partition, among: Region) -> dict[str, list[Part]]:
    """The packets that this host or another one answers, by their fate: one part for each condition in which they arrive."""
    found: dict[str, dict[Condition, Region]] = {DELIVERED: {}, SENT: {}}
    for part in partition.parts:
        if part.fate in found and (here := part.region & among):
            known = found[part.fate].get(part.condition)
            found[part.fate][part.condition] = known | here if known else here
    return {fate: [Part(region, fate, condition, ()) for condition, region in asked.items()] for fate, asked in found.items()}


def _follow(ruleset: Ruleset, asked: Sequence[Part], user: UserAndGroup | None) -> dict[object, Region]:
    """Where the answers to some packets end, with the packets that are answered; `user` sends those of this host."""
    found: dict[object, Region] = {}
    for part in asked:
        for end in follow_answers(ruleset, part, user):
            now = end.condition
            way = (end.fate, now.source, now.source_port, now.destination, now.out_interface)
            name = UNKNOWN if end.fate == UNKNOWN else DROPPED if end.fate in ENDS else way
            found[name] = found[name] | end.region if name in found else end.region
    return found
