"""Sets of points in a multi-dimensional space, as interval decision diagrams.

A node tests the coordinate of its level and splits its domain into intervals, each leading to a node of a later level
or to the leaves NOTHING and EVERYTHING. Neighbouring intervals lead to different nodes, no node has a single successor,
and equal nodes are shared: a set has exactly one node. Ten thousand networks take one node of twenty thousand
intervals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from math import prod

from netinit.base.errors import TooManyPartsError
from netinit.base.net import Interval

NOTHING, EVERYTHING = 0, 1
AND, OR, LESS = "and", "or", "less"
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
        self._known: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        self._combined: dict[tuple[str, int, int], int] = {}
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

    def combine(self, how: str, one: int, other: int) -> int:
        """AND: intersection, OR: union, LESS: difference."""
        if how == LESS:
            if one in (NOTHING, other) or other == EVERYTHING:
                return NOTHING
            if other == NOTHING:
                return one
        else:
            if one == other:
                return one
            if one > other:
                one, other = other, one
            if one <= EVERYTHING:  # the leaves come before all nodes
                return other if (how == AND) == (one == EVERYTHING) else one
        key = (how, one, other)
        found = self._combined.get(key)
        if found is None:
            found = self._combined[key] = self._merge(how, one, other)
        return found

    def project(self, node: int, level: int) -> int:
        """Points that are in the set for some coordinate of a level."""
        if self._levels[node] > level:
            return node
        if self._levels[node] == level:
            found = NOTHING
            for to in self._nodes[node]:
                found = self.combine(OR, found, to)
            return found
        ends: list[int] = []
        nodes: list[int] = []
        for (_, last), to in self.branches(node):
            below = self.project(to, level)
            if nodes and nodes[-1] == below:
                ends[-1] = last
            else:
                ends.append(last)
                nodes.append(below)
        return self._make(self._levels[node], ends, nodes)

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

    def _merge(self, how: str, one: int, other: int) -> int:
        level = min(self._levels[one], self._levels[other])
        ends_one, to_one = self._at(level, one)
        ends_other, to_other = self._at(level, other)
        self.work += len(ends_one) + len(ends_other)
        if self.work > 2 * MAX_WORK:  # a walk through rules has stopped at MAX_WORK, at a rule that it can name
            raise TooManyPartsError(f"the proof takes more than {2 * MAX_WORK:,} steps; ask for single connections (netinit explain)")
        ends: list[int] = []
        nodes: list[int] = []
        i = j = 0
        last_one, last_other = ends_one[0], ends_other[0]
        while True:
            node = self.combine(how, to_one[i], to_other[j])
            end = min(last_one, last_other)
            if nodes and nodes[-1] == node:
                ends[-1] = end
            else:
                nodes.append(node)
                ends.append(end)
            if last_one == end:
                i += 1
                if i == len(ends_one):
                    return self._make(level, ends, nodes)
                last_one = ends_one[i]
            if last_other == end:
                j += 1
                last_other = ends_other[j]

    def _at(self, level: int, node: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The intervals of a node at a level: one if it does not test the level."""
        if self._levels[node] == level:
            return self._ends[node], self._nodes[node]
        return (self.lasts[level],), (node,)

    def _make(self, level: int, ends: list[int], nodes: list[int]) -> int:
        """The unique node with these intervals; neighbours lead to different nodes."""
        if len(nodes) == 1:
            return nodes[0]
        key = (level, tuple(ends), tuple(nodes))
        found = self._known.get(key)
        if found is None:
            self._intervals += len(ends)
            if self._intervals > MAX_INTERVALS:
                raise TooManyPartsError(
                    f"these rules cut the traffic into more than {MAX_INTERVALS} intervals, more than is kept in memory;"
                    " ask for single connections (netinit explain)"
                )
            found = self._known[key] = len(self._levels)
            self._levels.append(level)
            self._ends.append(key[1])
            self._nodes.append(key[2])
        return found
