"""Finds the packets that two sets of rules treat differently: which, how before and after, and the rules responsible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from netinit.base.net import FULL_MASK, IPV4, IPV6, text_of
from netinit.questions.audit.kinds import WHERE_IPV4_IS_FIRST
from netinit.questions.audit.words import describe, merge_families, unite_by_space
from netinit.questions.pod_rules import PodRules
from netinit.questions.unseen import UNSEEN, UNSENT, ComparedSpace, are_answered_alike, find_unsent
from netinit.rules.packet_inputs import Surroundings
from netinit.simulate.condition import CONNECTION_MARK, INITIAL_MARKS, KEPT, MARK, PRIMARY, Condition, MarkBits
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.partition import Divergence, Part, compare
from netinit.simulate.symbolic.regions import Region, in_states, nothing, unite, unmarked
from netinit.simulate.symbolic.space import REUSES, CtState, Dim, Space
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED, FORWARDED, REFUSED

End = tuple[str, int, bool]
"""A verdict, the port of the proxy that packets go to, and whether they keep both addresses."""


@dataclass(frozen=True, slots=True)
class FateChange:
    """Packets of one direction with one treatment `before` and one `after`.

    `who` describes them; `why` has the deciding rules before and after, or "". `known` is False if the treatment
    may in fact be unchanged.
    """

    direction: str
    who: tuple[str, ...]
    before: str
    after: str
    why: tuple[str, str]
    known: bool
    regions: tuple[Region, ...]
    unseen: str = ""  # why nobody can send these packets, or see the difference
    ends: tuple[End, End] = (("", 0, False), ("", 0, False))  # of the treatments
    never_passes: bool = False  # afterwards, the packets are dropped, or captured or dropped


def find_changes_of_fate(before: PodRules, after: PodRules) -> tuple[FateChange, ...]:
    """Find all packets that are treated differently or cannot be compared; an empty result proves equality.

    Both are evaluated on the host of `after`, and where --ipv6 auto depends on the pod's addresses, for both cases.
    Raises TooManyPartsError.
    """
    found = _find(before, after)
    if not (before.ipv4_first or after.ipv4_first):
        return found
    sides = [replace(one.ipv4_first or one, families=(IPV6,)) for one in (before, after)]
    known = {(one.direction, one.who, one.before, one.after) for one in found}
    others = [one for one in _find(sides[0], sides[1]) if (one.direction, one.who, one.before, one.after) not in known]
    return (*found, *[replace(one, who=tuple(f"{who}, {WHERE_IPV4_IS_FIRST}" for who in one.who)) for one in others])


def _find(before: PodRules, after: PodRules) -> tuple[FateChange, ...]:
    rulesets = [*before.rulesets.values(), *after.rulesets.values()]
    grouped: dict[tuple[str, tuple[str, str], tuple[str, str], bool, str], list[Divergence]] = {}
    hosts = {family: _add_addresses(host, before, after) for family, host in after.audited.items()}
    compared = [_compare(before, after, space) for space in make_spaces(rulesets, hosts, free=not after.routes_known)]
    answered = {
        family: are_answered_alike(before, after, [one for one in compared if one.before.space.family is family]) for family in hosts
    }
    for each in compared:
        space = each.before.space
        found = [*zip(each.found, each.list_hidden(alike=answered[space.family]), strict=True)]
        begins = [(one.region - hidden) & in_states(space, (CtState.NEW,)) for one, hidden in found]
        changed = unite([nothing(space), *begins]).ignoring(Dim.STATE)
        implied = changed & in_states(space, (*REUSES, CtState.INVALID))  # for old or invalid entries, as for new connections
        for one, hidden in found:
            why = (_why(before, one.before), _why(after, one.after))
            seen = one.region - hidden - implied
            unsent = find_unsent(seen)
            for left, unseen in ((seen - unsent, ""), (unsent, UNSENT), (hidden - implied, UNSEEN)):
                if left:
                    key = (space.direction, (_fate(one.before), _fate(one.after)), why, one.known, unseen)
                    grouped.setdefault(key, []).append(replace(one, region=left))
    changes = []
    for (direction, fates, why, known, unseen), alike in sorted(grouped.items(), key=lambda one: _rank(one[1])):
        regions = unite_by_space(one.region for one in alike)
        who = merge_families([(describe(region), region.space.family) for region in regions], len(after.hosts))
        ends = (_end(alike[0].before), _end(alike[0].after))
        never_passes = alike[0].after.verdict == DROPPED or alike[0].after.at_worst_dropped
        changes.append(FateChange(direction, who, *fates, why, known, regions, unseen, ends, never_passes))
    return tuple(changes)


def _compare(before: PodRules, after: PodRules, space: Space) -> ComparedSpace:
    sides = before.divide(space), after.divide(space)
    return ComparedSpace(*sides, tuple(compare(*sides)))


def _add_addresses(host: Surroundings, *sides: PodRules) -> Surroundings:
    """The host with the addresses that either side's plan adds: no packet comes from an address that only one of them has."""
    for side in sides:
        host = replace(side.join(host.family), local_marks=frozenset()).place_on(host)
    return host


def _end(part: Part) -> End:
    return DIRECT if part.always_direct else part.verdict, part.condition.redirect_port, part.condition.transparent


def _rank(found: list[Divergence]) -> tuple[bool, ...]:
    """Sort key: changed ends of new connections first, those that one side drops last among them."""
    one = found[0]
    before, after = [(side.verdict, side.condition.redirect_port) for side in (one.before, one.after)]
    ordinary = any(each.region & in_states(each.region.space, (CtState.NEW,)) & unmarked(each.region.space) for each in found)
    return (not one.known, not ordinary, before == after, DROPPED in (before[0], after[0]))


def _fate(part: Part) -> str:
    """Describe a part's treatment: where its packets end and how they are modified."""
    ended = part.condition
    verdict = part.verdict
    if part.at_worst_dropped:
        return f"captured or dropped, never past the proxy: {part.reason}"
    if part.always_direct:
        return "direct, to one of several ends"
    if verdict not in (CAPTURED, DIRECT):
        return f"{'refused' if part.fate == REFUSED else verdict}: {part.reason}"
    words = f"captured, to port {ended.redirect_port}" if verdict == CAPTURED else verdict
    return ", ".join([words, *_left(ended, verdict, part.fate)])


def _left(ended: Condition, verdict: str, fate: str) -> Iterator[str]:
    """Describe modifications of packets other than their destination."""
    if ended.transparent:
        yield "both addresses kept"
    if verdict == DIRECT and (ended.destination is not KEPT or ended.destination_port is not KEPT):
        yield f"to {_address(ended.destination)}" + (f" port {ended.destination_port}" if ended.destination_port is not KEPT else "")
    if ended.source is not KEPT:
        yield "with another source"
    if ended.policy_routed:
        yield "routed to this host by its mark"
    if fate == FORWARDED:
        yield f"forwarded through {ended.out_interface}"
    for what, mark in ((Dim.MARK, ended.mark), (Dim.CONNECTION_MARK, ended.connection_mark)):
        if mark != INITIAL_MARKS[what]:
            yield f"{what} {_mark(mark)}"
    if ended.zone:
        yield f"zone {ended.zone}" + (" in the original direction" if not ended.reply_zone else "")
    elif ended.reply_zone:
        yield f"zone {ended.reply_zone} in the reply direction"
    if ended.state is not KEPT:
        yield "untracked"


def _mark(mark: MarkBits) -> str:
    kept = {name: bits for name, bits in ((MARK, mark.packet), (CONNECTION_MARK, mark.connection)) if bits}
    if not kept:
        return str(mark.flip)
    parts = [f"its {name}" if bits == FULL_MASK else f"its {name} & {bits:#x}" for name, bits in kept.items()]
    return f"of {' ^ '.join([*parts, *([f'{mark.flip:#x}'] if mark.flip else [])])}"


def _address(address: object) -> str:
    if isinstance(address, int):
        return text_of(address, IPV4 if address < 1 << IPV4.bits else IPV6)
    return "the interface's address" if address is PRIMARY else "the same address" if address is KEPT else "an unknown address"


def _why(subject: PodRules, part: Part) -> str:
    """The deciding rule and the option it comes from."""
    cause = part.cause
    return (cause.rules[0].why(subject.origins) or str(cause)) if cause else ""
