"""All packets of a space, divided into parts that are treated alike, and the comparison of two such partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from netinit.base.net import FULL_MASK
from netinit.simulate.condition import KEPT, PRIMARY, Condition, MarkBits
from netinit.simulate.ruleset import RuleHit
from netinit.simulate.symbolic.regions import Region, everything, having_bits, nothing, unite, valued, within
from netinit.simulate.symbolic.space import BITS, Dim, Space
from netinit.simulate.trace import CAPTURED, DROPPED, REFUSED, UNKNOWN, cause_of, verdict_of

ENDS = (DROPPED, REFUSED)  # fates of packets that are gone
Path = tuple[RuleHit, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Packets that are treated alike: where they end, as in Trace, their condition then, and why (`reason`)."""

    region: Region
    fate: str
    condition: Condition
    path: Path
    reason: str = ""
    by_rule: bool = False  # ended by the last rule on the path
    always_direct: bool = False  # unknown, but every outcome is direct
    at_worst_dropped: bool = False  # unknown, but every outcome is either captured or dropped

    @property
    def verdict(self) -> str:
        """captured, direct, dropped or unknown."""
        return verdict_of(self.fate, self.condition.redirect_port)

    @property
    def source(self) -> str:
        """The backend whose rule decided; empty if none did, or only one has rules."""
        return self.cause.source if self.cause else ""

    @property
    def cause(self) -> RuleHit | None:
        """The deciding rule, or None. Not for parts made without `keeps_paths` (divide): IndexError where a rule has ended one."""
        if self.verdict in (DROPPED, UNKNOWN):
            return self.path[-1] if self.by_rule else None
        ended = self.condition
        return cause_of(self.path, captured=self.verdict == CAPTURED, transparent=ended.transparent, translated=ended.translated)

    @property
    def behaviour_but_source(self) -> tuple[object, ...]:
        """What makes two outcomes equal, except marks and the source of captured packets."""
        ended = self.condition
        if self.fate in ENDS:
            return (self.fate,)
        source = () if ended.redirect_port else (ended.source,)
        return (
            self.fate, ended.redirect_port, ended.transparent, ended.destination, ended.destination_port,
            ended.out_interface, ended.policy_routed, ended.zone, ended.reply_zone, ended.state, *source,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Partition:
    """All packets of a space, each in exactly one part."""

    space: Space
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Packets that are treated differently, or may be if both sides are unknown."""

    region: Region
    before: Part
    after: Part

    @property
    def known(self) -> bool:
        """False if both sides are unknown and may be equal."""
        return self.before.fate != UNKNOWN or self.after.fate != UNKNOWN


def compare(before: Partition, after: Partition) -> Iterator[Divergence]:
    """Yield all packets treated differently, or not comparable; none is a proof of equality.

    Both partitions have one space. Equal means the same end, addresses, port, interface, marks, zone and conntrack
    state.
    """
    first, second = _by_outcome(before), _by_outcome(after)
    united = {key: unite([part.region for part in parts]) for key, parts in second.items()}
    for key, parts in first.items():
        left = unite([part.region for part in parts])
        outcome = parts[0]
        if outcome.fate != UNKNOWN and not outcome.condition.has_vague_marks and key in second:
            left -= united[key]
        for other_key, others in second.items() if left else ():
            both = left & united[other_key]
            if not compare_parts(both, outcome, others[0]):
                continue
            for one in parts:
                here = one.region & both
                for other in others if here else ():
                    if region := compare_parts(here & other.region, one, other):
                        yield Divergence(region, one, other)


def _by_outcome(partition: Partition) -> dict[tuple[object, ...], list[Part]]:
    """Group parts by keys under which outcomes are certainly equal."""
    found: dict[tuple[object, ...], list[Part]] = {}
    for part in partition.parts:
        ended = part.condition
        key: tuple[object, ...] = (part.fate,)
        if part.fate not in ENDS:
            key = (part.behaviour_but_source, ended.source, ended.mark, ended.connection_mark, ended.has_vague_marks)
        found.setdefault(key, []).append(part)
    return found


def compare_parts(region: Region, one: Part, other: Part) -> Region:
    """The packets of a region for which two outcomes differ."""
    space = region.space
    if not region or one.fate != other.fate or UNKNOWN in (one.fate, other.fate):
        return region
    if one.fate in ENDS:
        return nothing(space)
    first, second = one.condition, other.condition
    exact = ("redirect_port", "transparent", "policy_routed", "zone", "reply_zone")
    if any(getattr(first, name) != getattr(second, name) for name in exact):
        return region
    if first.has_vague_marks or second.has_vague_marks:
        return region
    same = _equal(space, Dim.DESTINATION, first.destination, second.destination)
    same &= _equal(space, Dim.DESTINATION_PORT, first.destination_port, second.destination_port)
    same &= _equal(space, Dim.SOURCE, first.source, second.source)
    same &= _equal(space, Dim.INTERFACE, first.out_interface, second.out_interface)
    same &= _equal(space, Dim.STATE, first.state, second.state)
    found = region - same
    for marks in ((first.mark, second.mark), (first.connection_mark, second.connection_mark)):
        found |= _differing_marks(region, *marks)
    return found


def _equal(space: Space, name: str, one: object, other: object) -> Region:
    """Packets for which two values are equal: constants, the initial value, or the interface's address."""
    if one == other:
        return everything(space)
    if PRIMARY in (one, other):
        value = other if one is PRIMARY else one
        found = nothing(space)
        for interface in space.dimension(Dim.INTERFACE).values:
            found |= valued(space, Dim.INTERFACE, interface) & _equal(space, name, value, space.around.primary_address(interface))
        return found
    if KEPT not in (one, other):
        return nothing(space)
    value = other if one is KEPT else one
    if values := space.dimension(name).values:
        value = values.index(value) if value in values else None
    return within(space, name, [(value, value)]) if isinstance(value, int) else nothing(space)


def _differing_marks(region: Region, one: MarkBits, other: MarkBits) -> Region:
    """Packets whose marks differ; of bits that depend on both initial marks only the first is compared."""
    mixed = one.mix(other, 0, FULL_MASK)
    if mixed.flip & ~(mixed.packet | mixed.connection):
        return region
    both = mixed.packet & mixed.connection
    found = nothing(region.space)
    for bit in [1 << number for number in range(BITS) if both >> number & 1]:
        if not found:  # considering all such bits would make the diagram explode
            found = region & having_bits(region.space, mixed, bit, bit)
    return found | region - having_bits(region.space, mixed, 0, mixed.packet ^ mixed.connection)
