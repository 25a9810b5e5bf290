"""Sets of points in a multi-dimensional space, as interval decision diagrams.

A node tests the coordinate of its level and splits its domain into intervals, each leading to a node of a later level
or to the leaves NOTHING and EVERYTHING. Neighbouring intervals lead to different nodes, no node has a single successor,
and equal nodes are shared: a set has exactly one node. Ten thousand networks take one node of twenty thousand
intervals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import prod
from operator import eq

from netinit.base.errors import TooManyPartsError
from netinit.base.net import Interval

NOTHING, EVERYTHING = 0, 1
MAX_INTERVALS = 5_000_000  # in all nodes: about 250 MB
MAX_WORK = 4_000_000  # intervals compared in one space: 5 to 10 s; ten thousand networks take 1.7 million
_BELOW = 1 << 30  # level of the leaves


class Diagram:
    """The nodes over dimensions with coordinates from 0 to `lasts`."""

    def __init__(self, lasts: tuple[int, ...]) -> None:
        self.lasts = lasts
        self._levels = [_BELOW, _BELOW]
        self._ends: list[tuple[int, ...]] = [(), ()]  # last coordinate of each interval
        self._nodes: list[tuple[int, ...]] = [(), ()]  # successor of each interval
        self._unique: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        self.known: dict[Hashable, int] = {}  # sets that are asked for again and again, by what they are asked with
        self._intersections: dict[tuple[int, int], int] = {}
        self._unions: dict[tuple[int, int], int] = {}
        self._differences: dict[tuple[int, int], int] = {}
        self._sizes: dict[int, int] = {}
        self._intervals = 0
        self.work = 0  # intervals that were compared: what a proof takes, on any machine

    def level(self, node: int) -> int:
        """The dimension a node tests; leaves are below all."""
        return self._levels[node]

    def branches(self, node: int) -> Iterator[tuple[Interval, int]]:
        """The node's intervals in ascending order, with their successors."""
        first = 0
        for last, to in zip(self._ends[node], self._nodes[node], strict=True):
            yield (first, last), to
            first = last + 1

    def follow(self, node: int, coordinate: int) -> int:
        """The successor for a coordinate."""
        return self._nodes[node][bisect_left(self._ends[node], coordinate)]

    def restrict(self, level: int, intervals: list[Interval], below: int = EVERYTHING) -> int:
        """Points of `below`, a set of later levels, with a coordinate in one of the intervals (ascending, not touching)."""
        ends: list[int] = []
        nodes: list[int] = []
        at = 0
        for first, last in intervals:
            if first > at:
                ends.append(first - 1)
                nodes.append(NOTHING)
            ends.append(last)
            nodes.append(below)
            at = last + 1
        if at <= self.lasts[level]:
            ends.append(self.lasts[level])
            nodes.append(NOTHING)
        return self._make(level, ends, nodes)

    def intersect(self, one: int, other: int) -> int:
        """Points that are in both sets."""
        if one > other:
            one, other = other, one
        if one <= EVERYTHING or one == other:  # the leaves come before all nodes
            return other if one else NOTHING
        found = self._intersections.get((one, other))
        if found is None:
            found = self._intersections[one, other] = self._merge(self.intersect, one, other)
        return found

    def unite(self, one: int, other: int) -> int:
        """Points that are in either set."""
        if one > other:
            one, other = other, one
        if one <= EVERYTHING or one == other:
            return one or other
        found = self._unions.get((one, other))
        if found is None:
            found = self._unions[one, other] = self._merge(self.unite, one, other)
        return found

    def subtract(self, one: int, other: int) -> int:
        """Points of the first set that are not in the other."""
        if one in (NOTHING, other) or other == EVERYTHING:
            return NOTHING
        if other == NOTHING:
            return one
        found = self._differences.get((one, other))
        if found is None:
            found = self._differences[one, other] = self._merge(self.subtract, one, other)
        return found

    def project(self, node: int, level: int) -> int:
        """Points that are in the set for some coordinate of a level."""
        if self._levels[node] > level:
            return node
        if self._levels[node] == level:
            found = NOTHING
            for to in self._nodes[node]:
                found = self.unite(found, to)
            return found
        return self._join(self._levels[node], self._ends[node], [self.project(to, level) for to in self._nodes[node]])

    def size(self, node: int) -> int:
        """The number of points in a set."""
        return self._count(node) * self._skipped(0, self._levels[node])

    def _count(self, node: int) -> int:
        """The number of points below a node, in the dimensions from its own on."""
        if node in (NOTHING, EVERYTHING):
            return node
        found = self._sizes.get(node)
        if found is None:
            below = self._levels[node] + 1
            found = self._sizes[node] = sum(
                (last - first + 1) * self._count(to) * self._skipped(below, self._levels[to])
                for (first, last), to in self.branches(node)
                if to != NOTHING
            )
        return found

    def _skipped(self, first: int, last: int) -> int:
        """The number of points of the dimensions between two levels."""
        return prod(domain + 1 for domain in self.lasts[first:last])

    def _merge(self, combine: Callable[[int, int], int], one: int, other: int) -> int:
        """Combine two sets interval by interval, at the first level that either tests."""
        level, level_other = self._levels[one], self._levels[other]
        ends_one, to_one = self._ends[one], self._nodes[one]
        ends_other, to_other = self._ends[other], self._nodes[other]
        if level < level_other:
            self._count_work(len(ends_one) + 1)
            return self._join(level, ends_one, [combine(to, other) for to in to_one])
        if level > level_other:
            self._count_work(len(ends_other) + 1)
            return self._join(level_other, ends_other, [combine(one, to) for to in to_other])
        self._count_work(len(ends_one) + len(ends_other))
        if ends_one == ends_other:
            return self._join(level, ends_one, [*map(combine, to_one, to_other)])
        ends: list[int] = []
        nodes: list[int] = []
        i = j = 0
        while i < len(ends_one):  # both end with the last coordinate
            nodes.append(combine(to_one[i], to_other[j]))
            last_one, last_other = ends_one[i], ends_other[j]
            ends.append(min(last_one, last_other))
            i += last_one <= last_other
            j += last_other <= last_one
        return self._join(level, ends, nodes)

    def _count_work(self, intervals: int) -> None:
        self.work += intervals
        if self.work > 2 * MAX_WORK:  # a walk through rules has stopped at MAX_WORK, at a rule that it can name
            raise TooManyPartsError(f"the proof takes more than {2 * MAX_WORK:,} steps; ask for single connections (netinit explain)")

    def _join(self, level: int, ends: Sequence[int], nodes: list[int]) -> int:
        """The node with these intervals, neighbours of which may lead to the same node."""
        if any(map(eq, nodes, nodes[1:])):
            after = [*nodes[1:], -1]
            ends = [end for end, to, following in zip(ends, nodes, after, strict=True) if to != following]
            nodes = [to for to, following in zip(nodes, after, strict=True) if to != following]
        return self._make(level, ends, nodes)

    def _make(self, level: int, ends: Sequence[int], nodes: Sequence[int]) -> int:
        """The unique node with these intervals; neighbours lead to different nodes."""
        if len(nodes) == 1:
            return nodes[0]
        key = (level, tuple(ends), tuple(nodes))
        found = self._unique.get(key)
        if found is None:
            self._intervals += len(ends)
            if self._intervals > MAX_INTERVALS:
                raise TooManyPartsError(
                    f"these rules cut the traffic into more than {MAX_INTERVALS} intervals, more than is kept in memory;"
                    " ask for single connections (netinit explain)"
                )
            found = self._unique[key] = len(self._levels)
            self._levels.append(level)
            self._ends.append(key[1])
            self._nodes.append(key[2])
        return found
