"""Proves that options have no effect: without them every packet is treated the same.

Each option and list entry is omitted and both sets of rules are compared symbolically. If it has an effect with another
option omitted or added, that one is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from netinit.base.errors import OptionError, TooManyPartsError
from netinit.base.findings import FindingKind
from netinit.base.net import FAMILIES, Family, Network, PortRange, bounds_of
from netinit.inject.deciding.option_findings import NO_EFFECT
from netinit.options import AUTO, ON, Interception, Options, SettledOptions, kinds
from netinit.options.kinds import ALL, Flag
from netinit.options.user_ports import PortsOfUsers, is_within
from netinit.questions.lint.options import SHADOWED, WARNING, Finding
from netinit.questions.unseen import to_ports
from netinit.rules.layouts import plan
from netinit.simulate.ruleset import load_plan
from netinit.simulate.stand_ins import stand_in
from netinit.simulate.symbolic.diagram import MAX_WORK
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.partition import Divergence, Partition, compare
from netinit.simulate.symbolic.regions import Region, nothing, unite
from netinit.simulate.symbolic.space import Space

REDUNDANT = FindingKind("NI004", "redundant", "The value is contained in another one. Remove it.")
NOT_EXAMINED = FindingKind(
    "NI221", "effect-unknown",
    "Whether an option has an effect is not proved, for the proofs take too long. Give fewer values in the lists, or "
    "compare single connections (`netinit explain`).",
)

MAX_ITEMS = 16  # entries of a list that are tested one by one, at a proof each
MAX_EXPLAINED = 5  # findings for which a reason is searched, at several proofs each
CAPTURED_BY_EITHER = {("outbound_ports", "outbound_cidrs"), ("outbound_cidrs", "outbound_ports")}  # each alone captures less
MAX_TOTAL_WORK = 10 * MAX_WORK  # of all proofs about some options: 20 options with lists take 8 million steps
NO_DIFFERENCE = "no packet is treated differently without it"


class Prover:
    """Compares how packets are treated under different options; partitions are cached."""

    def __init__(self, options: SettledOptions) -> None:
        self.options = options
        # No cache refers to the prover itself: all is released with it, without a garbage collection.
        self._plan = plan_once = cache(plan)
        self._load = cache(lambda given: {family: load_plan(plan_once(given), family) for family in plan_once(given).families})
        self._partitions: dict[tuple[SettledOptions, Space], Partition] = {}
        self._left = MAX_TOTAL_WORK
        self.spaces = make_spaces((self._load(options),), {one: stand_in(one) for one in FAMILIES}, free=True)

    def divide(self, options: SettledOptions, space: Space) -> Partition:
        """How all packets are treated under these options.

        Raises TooManyPartsError.
        """
        found = self._partitions.get((options, space))
        if found is None:
            found = self._partitions[options, space] = self._divide(options, space, None, keeps_paths=options == self.options)
        return found

    def _divide(self, options: SettledOptions, space: Space, region: Region | None, *, keeps_paths: bool = False) -> Partition:
        """Divide the packets, or a region of them; each proof has the work of one, and all together have a bound.

        Raises TooManyPartsError.
        """
        if self._left < 0:
            raise TooManyPartsError(f"the proofs for all options take more than {MAX_TOTAL_WORK:,} steps")
        space.diagram.work = 0
        try:
            return divide(space, self._load(options).get(space.family), region, keeps_paths=keeps_paths)
        finally:
            self._left -= space.diagram.work

    def differences(self, one: SettledOptions, other: SettledOptions, family: Family | None = None) -> Iterator[Divergence]:
        """Packets that two sets of options treat differently; none is a proof."""
        if self._plan(one).tables != self._plan(other).tables:
            for space in self.spaces:
                for found in compare(self.divide(one, space), self.divide(other, space)) if family in (None, space.family) else ():
                    if found.region & to_ports(space):
                        yield found

    def shows(self, flag: Flag, other: SettledOptions | None, family: Family | None = None) -> bool:
        """Whether packets that meet an option's rules are treated differently under other options; cheaper than for all."""
        for space in self.spaces if other else ():
            if family not in (None, space.family):
                continue
            met = [
                part.region
                for part in self.divide(self.options, space).parts
                if any(rule.origin and rule.origin.option == flag.field for hit in part.path for rule in hit.rules[:MAX_ITEMS])
            ]
            if other and met:
                others = self._divide(other, space, unite([nothing(space), *met]) & to_ports(space))
                if any(compare(self.divide(self.options, space), others)):
                    return True
        return False

    def are_same(self, one: SettledOptions, other: SettledOptions | None, family: Family | None = None) -> bool:
        """Whether all packets and routes are treated alike; invalid options (None) are never the same."""
        if other is None:
            return False
        first, second = self._plan(one), self._plan(other)
        routes = (first.ip_rules, first.routes, first.addresses) == (second.ip_rules, second.routes, second.addresses)
        return routes and next(self.differences(one, other, family), None) is None

    def changes_nothing(self, flag: Flag, other: SettledOptions | None, family: Family | None = None) -> bool:
        """Whether all packets and routes are treated as under the given options if one of these is changed."""
        return not self.shows(flag, other, family) and self.are_same(self.options, other, family)


def without(options: SettledOptions, flag: Flag) -> SettledOptions | None:
    """The options with one omitted; None if that is invalid. Without --ipv6 the rules for IPv6 count: pods may have it."""
    with suppress(OptionError):
        return options.replace(**{flag.field: ON}) if flag.default == AUTO else options.without(flag.field)
    return None


def with_value(options: SettledOptions, flag: Flag, value: Any) -> SettledOptions | None:
    """The options with one value replaced, or omitted if it is the default; None if that is invalid."""
    return without(options, flag) if value is flag.default else replace(options, {flag.field: value})


def replace(options: SettledOptions, changes: Mapping[str, Any]) -> SettledOptions | None:
    """The options with values replaced; None if that is invalid."""
    with suppress(OptionError):
        return options.replace(**changes)
    return None


def given_flags(options: SettledOptions) -> list[Flag]:
    """Flags concerning packets that differ from their default."""
    found = [(flag, without(options, flag)) for flag in Interception.flags if flag.is_shown]
    return [flag for flag, other in found if other is None or getattr(other, flag.field) != getattr(options, flag.field)]


def find_without_effect(options: SettledOptions, known: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Yield a finding for each option or list entry without effect, except options in `known`."""
    prover = Prover(options)
    left = MAX_EXPLAINED
    for flag in given_flags(options):
        if flag.label in known or flag.default == AUTO:  # depends on the pod
            continue
        try:
            for finding in _check_option(prover, flag, explained=left > 0):
                left -= 1
                yield finding
        except TooManyPartsError as error:
            yield Finding(WARNING, NOT_EXAMINED, flag.label, f"it is not proved whether it has an effect: {error}")


def _check_option(prover: Prover, flag: Flag, *, explained: bool) -> Iterator[Finding]:
    value, other = getattr(prover.options, flag.field), without(prover.options, flag)
    if prover.changes_nothing(flag, other):
        yield _describe_without_effect(prover, flag, flag.default, value, explained=explained)
    elif value == ALL:
        for family in FAMILIES:
            for earlier, base in _omissions(prover, flag) if prover.changes_nothing(flag, other, family) else ():
                if earlier.default != AUTO and not prover.are_same(base, without(base, flag), family):
                    yield Finding(WARNING, SHADOWED, flag.label, f"'*' captures no {family.name}, because of {earlier.label}")
                    break
    elif type(value) is tuple:  # a list; networks and ranges of ports are of types of their own
        yield from _check_entries(prover, flag, value, explained=explained)


def _check_entries(prover: Prover, flag: Flag, value: tuple[Any, ...], *, explained: bool) -> Iterator[Finding]:
    contained = find_contained(value)
    for index, wider in contained.items():
        yield Finding(WARNING, REDUNDANT, flag.label, f"{value[index]} is in {wider} already; remove it")
    rest = tuple([item for index, item in enumerate(value) if index not in contained])
    for item in rest if len(rest) <= MAX_ITEMS else ():
        left = tuple([one for one in rest if one is not item])
        other = replace(prover.options, {flag.field: left})
        of_all = isinstance(item, PortsOfUsers) and item.protocol == "udp" and item.replace(protocol="tcp") in rest  # from `*`
        if not of_all and prover.changes_nothing(flag, other):
            yield _describe_without_effect(prover, flag, left, (item,), explained=explained)


def _describe_without_effect(prover: Prover, flag: Flag, left: Any, item: Any, *, explained: bool) -> Finding:
    """The finding for an option or list entry whose omission changes nothing."""
    shown = f"{', '.join(map(str, item))}: " if type(item) is tuple and len(item) <= MAX_ITEMS else ""
    if not explained:
        return Finding(WARNING, NO_EFFECT, flag.label, f"{shown}{NO_DIFFERENCE}; remove it")
    for other, base in _omissions(prover, flag):
        if prover.are_same(base, reduced := with_value(base, flag, left)) or reduced is None:
            continue
        found = next(prover.differences(base, reduced))
        whole = prover.divide(prover.options, found.region.space)
        if any(part.verdict != found.before.verdict for part in whole.parts if part.region & found.region):  # not merely repeated
            return Finding(WARNING, SHADOWED, flag.label, f"{shown}{other.label} decides before it does; remove one of the two")
        instead = f", or leave {other.label} out to capture only these" if (flag.field, other.field) in CAPTURED_BY_EITHER else ""
        return Finding(WARNING, NO_EFFECT, flag.label, f"{shown}{NO_DIFFERENCE} with {other.label}; remove it{instead}")
    for other, label, changes in _switches(prover.options):
        changed = replace(prover.options, changes) if other is not flag else None
        if changed and not prover.are_same(changed, with_value(changed, flag, left)):
            if changes.get(other.field) == ALL and getattr(prover.options, other.field):
                text = f"{shown}{NO_DIFFERENCE}: nothing in {other.label} is in it; remove it"
                return Finding(WARNING, NO_EFFECT, flag.label, text)
            return Finding(WARNING, NO_EFFECT, flag.label, f"{shown}counts only with {label}; remove it, or give that")
    return Finding(WARNING, NO_EFFECT, flag.label, f"{shown}{NO_DIFFERENCE}; remove it")


def _omissions(prover: Prover, flag: Flag) -> Iterator[tuple[Flag, SettledOptions]]:
    """Yield each other option that is given, with the options without it."""
    for other in given_flags(prover.options):
        base = without(prover.options, other)
        if other is not flag and base is not None:
            yield other, base


def _switches(options: SettledOptions) -> Iterator[tuple[Flag, str, dict[str, Any]]]:
    """Settings others may require: capture everything, a switch on, another enumeration value."""
    for flag in Interception.flags:
        value = getattr(options, flag.field)
        if flag.offers == () or not flag.is_shown:
            continue
        if flag.kind in (kinds.PORTS_OR_ALL, kinds.NETWORKS_OR_ALL) and value != ALL:
            yield flag, f"{flag.label} '*'", {flag.field: ALL}
        elif flag.kind is kinds.SWITCH and not value:
            yield flag, flag.label, {flag.field: True}
        elif flag.kind.words and flag.kind is not kinds.SWITCH:
            yield from [(flag, f"{flag.label} {word}", {flag.field: word}) for word in flag.kind.words if word and word != value]


def find_contained(items: tuple[Any, ...]) -> dict[int, Any]:
    """Entries of a list contained in another entry, by index, with that entry."""
    if any(isinstance(item, PortsOfUsers) for item in items):
        return {
            index: wider for index, item in enumerate(items[:MAX_ITEMS])
            for wider in items[:MAX_ITEMS] if wider is not item and is_within(item, wider)
        }  # fmt: skip
    found: dict[int, Any] = {}
    ends: dict[object, tuple[int, Any]] = {}  # the furthest end among the entries that begin earlier
    for index, (kind, _, high) in sorted(enumerate(map(_span, items)), key=lambda one: (one[1][0], one[1][1], -one[1][2])):
        last, wider = ends.get(kind, (-1, None))
        if high <= last:
            found[index] = wider
        else:
            ends[kind] = (high, items[index])
    return found


def _span(item: Any) -> tuple[str, int, int]:
    """An entry's kind, first and last value."""
    if isinstance(item, Network):
        return item.family.name, item.first, item.last
    if isinstance(item, (int, PortRange)):
        return "port", *bounds_of(item)
    return str(item), 0, 0


def minimise(options: SettledOptions) -> SettledOptions:
    """Remove options and list entries that no packet needs; others stay unless they require a removed one."""
    prover = Prover(options)
    found, before = options, None
    while found != before:
        before = found
        for flag in given_flags(found):
            if flag.default != AUTO:  # depends on the pod
                found = _accept(prover, flag, without(found, flag)) or _drop_entries(prover, found, flag)
    for flag in Options.flags:
        if flag.needs and not getattr(found, flag.needs):
            found = found.without(flag.field)
    return found


def _drop_entries(prover: Prover, options: SettledOptions, flag: Flag) -> SettledOptions:
    """Remove the list entries that no packet needs."""
    value = getattr(options, flag.field)
    if type(value) is not tuple:
        return options
    contained = find_contained(value)
    rest = tuple([item for index, item in enumerate(value) if index not in contained])
    found = (_accept(prover, flag, with_value(options, flag, rest)) if contained else None) or options
    for item in rest if 1 < len(rest) <= MAX_ITEMS else ():
        left = tuple([one for one in getattr(found, flag.field) if one is not item])
        found = _accept(prover, flag, with_value(found, flag, left)) or found
    return found


def _accept(prover: Prover, flag: Flag, options: SettledOptions | None) -> SettledOptions | None:
    """The options if they treat all packets as the original ones do."""
    return options if prover.changes_nothing(flag, options) else None
