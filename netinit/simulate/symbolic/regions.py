"""Packet sets: union, intersection, difference, size, boxes, and selection of a member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from netinit.base.net import FULL_MASK, Interval, join_ranges
from netinit.simulate.condition import MarkBits
from netinit.simulate.symbolic.diagram import EVERYTHING, NOTHING
from netinit.simulate.symbolic.space import BITS, Dim, Dimension, Point, Space


@dataclass(frozen=True, slots=True)
class Region:
    """A set of packets of a space."""

    space: Space
    node: int

    def __and__(self, other: Region) -> Region:
        if self.space is not other.space:
            raise _of_another_space(self.space)
        node = self.space.diagram.intersect(self.node, other.node)
        return self if node == self.node else other if node == other.node else Region(self.space, node)

    def __or__(self, other: Region) -> Region:
        if self.space is not other.space:
            raise _of_another_space(self.space)
        node = self.space.diagram.unite(self.node, other.node)
        return self if node == self.node else other if node == other.node else Region(self.space, node)

    def __sub__(self, other: Region) -> Region:
        if self.space is not other.space:
            raise _of_another_space(self.space)
        node = self.space.diagram.subtract(self.node, other.node)
        return self if node == self.node else Region(self.space, node)

    def split(self, other: Region) -> tuple[Region, Region]:
        """The packets that are in another set, and those that are not; quicker than both by themselves."""
        inside = self & other
        if not inside:
            return inside, self
        return inside, nothing(self.space) if inside.node == self.node else self - other

    def seen_in(self, space: Space) -> Region:
        """The same packets in a space that differs in its host alone."""
        return Region(space, self.node)

    def ignoring(self, name: str) -> Region:
        """All packets that equal a member in every other dimension; of one level, so not a mark."""
        return Region(self.space, self.space.diagram.project(self.node, self.space.dimension(name).level))

    def __bool__(self) -> bool:
        return self.node != NOTHING

    @property
    def size(self) -> int:
        """The number of packets."""
        return self.space.diagram.size(self.node)

    def tests(self, dimension: Dimension, node: int) -> bool:
        """Whether a node distinguishes values of a dimension."""
        return self.space.diagram.level(node) < dimension.level + dimension.levels

    def exits(self, dimension: Dimension, node: int) -> dict[int, list[Interval]]:
        """The successors of a dimension's node with their coordinates, without NOTHING."""
        found: dict[int, list[Interval]] = {}
        if dimension.levels == 1:
            for interval, to in self.space.diagram.branches(node):
                if to != NOTHING:
                    found.setdefault(to, []).append(interval)
            return found
        left: list[tuple[int, int, int]] = [(node, 0, 0)]
        while left:
            at, value, mask = left.pop()
            if not self.tests(dimension, at):
                if at != NOTHING:
                    found.setdefault(at, []).append((value, mask))
                continue
            bit = 1 << (BITS - 1 - (self.space.diagram.level(at) - dimension.level))
            zero, one = (self.space.diagram.follow(at, coordinate) for coordinate in (0, 1))
            left += [(one, value | bit, mask | bit), (zero, value, mask | bit)]
        return found

    def reach(self, name: str) -> tuple[Interval, ...]:
        """The coordinates that occur in one dimension: intervals, or (value, mask) of a mark."""
        dimension = self.space.dimension(name)
        found: list[Interval] = []
        seen, left = set(), [self.node]
        while left:
            node = left.pop()
            if node in seen or node == NOTHING:
                continue
            seen.add(node)
            level = self.space.diagram.level(node)
            if level < dimension.level:
                left += [to for _, to in self.space.diagram.branches(node)]
            elif level >= dimension.level + dimension.levels:
                return dimension.everything
            else:
                found += [side for sides in self.exits(dimension, node).values() for side in sides]
        return tuple(found)

    def pick(self, preferred: Mapping[str, tuple[int, ...]]) -> Point:
        """One member: in each dimension but marks the first feasible coordinate, or else the lowest coordinate."""
        point: Point = {}
        node = self.node
        for dimension in self.space.dimensions:
            value = 0
            for level in range(dimension.level, dimension.level + dimension.levels):  # one, or for a mark each bit
                coordinate, node = self._step(level, node, preferred.get(dimension.name, ()))
                value = value << 1 | coordinate
            point[dimension.name] = value
        return point

    def _step(self, level: int, node: int, preferred: tuple[int, ...]) -> tuple[int, int]:
        """A feasible coordinate of one level, and its successor."""
        diagram = self.space.diagram
        if diagram.level(node) != level:
            return (preferred[0] if preferred else 0), node
        for coordinate in preferred:
            if to := diagram.follow(node, coordinate):
                return coordinate, to
        return next((first, to) for (first, _), to in diagram.branches(node) if to != NOTHING)


def _of_another_space(space: Space) -> ValueError:
    return ValueError(f"packets of {space.direction} {space.family} and of another space")


def everything(space: Space) -> Region:
    """The set of all packets."""
    return Region(space, EVERYTHING)


def nothing(space: Space) -> Region:
    """The empty set."""
    return Region(space, NOTHING)


def unite(regions: list[Region]) -> Region:
    """The union of one or more sets, merged pairwise: many small sets stay cheap."""
    while len(regions) > 1:
        regions = [one | two for one, two in zip(regions[::2], regions[1::2], strict=False)] + regions[len(regions) & ~1 :]
    return regions[0]


def within(space: Space, name: str, intervals: Iterable[Interval]) -> Region:
    """Packets whose coordinate in a dimension is in one of the intervals."""
    level, chosen = space.dimension(name).level, tuple(intervals)
    known = space.diagram.known
    node = known.get((level, chosen))
    if node is None:
        joined = join_ranges(sorted(chosen))
        node = known[level, chosen] = space.diagram.restrict(level, joined) if joined else NOTHING
    return Region(space, node)


def valued(space: Space, name: str, *values: str) -> Region:
    """Packets with one of these values of a dimension."""
    known = space.dimension(name).values
    return within(space, name, [(at, at) for at in map(known.index, values)])


def in_states(space: Space, states: tuple[str, ...]) -> Region:
    """Packets with one of these values of the dimension STATE."""
    return valued(space, Dim.STATE, *states)


def unmarked(space: Space) -> Region:
    """Packets without a mark and without a connection mark."""
    return marked(space, Dim.MARK, 0, FULL_MASK) & marked(space, Dim.CONNECTION_MARK, 0, FULL_MASK)


def marked(space: Space, name: str, value: int, mask: int) -> Region:
    """Packets whose mark equals `value` under the mask."""
    if value & ~mask:
        return nothing(space)
    level = space.dimension(name).level
    known = space.diagram.known
    node = known.get((level, value, mask))
    if node is None:
        node = EVERYTHING
        for bit in range(BITS):  # the lowest bit has the last level
            if mask >> bit & 1:
                wanted = value >> bit & 1
                node = space.diagram.restrict(level + BITS - 1 - bit, [(wanted, wanted)], node)
        known[level, value, mask] = node
    return Region(space, node)


def having_bits(space: Space, mark: MarkBits, value: int, mask: int) -> Region:
    """Packets for which a mark, as a function of their initial ones, equals `value` under the mask."""
    known = space.diagram.known
    node = known.get((mark, value, mask))
    if node is None:
        node = known[mark, value, mask] = _find_bits(space, mark, value, mask).node
    return Region(space, node)


def _find_bits(space: Space, mark: MarkBits, value: int, mask: int) -> Region:
    wanted, both = value ^ mark.flip, mark.packet & mark.connection & mask
    if value & ~mask or wanted & mask & ~(mark.packet | mark.connection):
        return nothing(space)
    found = everything(space)
    for name, source in ((Dim.MARK, mark.packet), (Dim.CONNECTION_MARK, mark.connection)):
        alone = source & mask & ~both
        found &= marked(space, name, wanted & alone, alone)
    for bit in [1 << number for number in range(BITS) if both >> number & 1]:
        pairs = [marked(space, Dim.MARK, one, bit) & marked(space, Dim.CONNECTION_MARK, one ^ wanted & bit, bit) for one in (0, bit)]
        found &= unite(pairs)
    return found
