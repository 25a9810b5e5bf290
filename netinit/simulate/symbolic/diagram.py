"""Sets of points in a space of many dimensions, as interval decision diagrams.

A node asks one coordinate, the one of its level, and cuts its domain into intervals, each of which leads to a node of a
later level, or to one of the leaves NOTHING and EVERYTHING. Neighbouring intervals lead to different nodes, a node whose
intervals all lead to the same one does not exist, and equal nodes are one: a set has exactly one node, so two sets are
equal when their numbers are. Ten thousand networks are one node of twenty thousand intervals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from netinit.base.more_errors import TooManyPartsError
from netinit.base.net import Interval

NOTHING, EVERYTHING = 0, 1
AND, OR, LESS = "and", "or", "less"
MOST_INTERVALS = 5_000_000  # of all nodes together; one takes about 50 bytes
_BELOW = 1 << 30  # the level of the leaves


class Diagram:
    """The nodes over dimensions whose coordinates go from 0 to `lasts`."""

    def __init__(self, lasts: tuple[int, ...]) -> None:
        self.lasts = lasts
        self._levels = [_BELOW, _BELOW]
        self._ends: list[tuple[int, ...]] = [(), ()]  # the last coordinate of each interval
        self._nodes: list[tuple[int, ...]] = [(), ()]  # where it leads
        self._known: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        self._combined: dict[tuple[str, int, int], int] = {}
        self._sizes: dict[int, int] = {}
        self._intervals = 0

    def level(self, node: int) -> int:
        """The dimension that a node asks for; a leaf is below them all."""
        return self._levels[node]

    def branches(self, node: int) -> Iterator[tuple[Interval, int]]:
        """The node's intervals, ascending, and where each leads."""
        first = 0
        for last, to in zip(self._ends[node], self._nodes[node], strict=True):
            yield (first, last), to
            first = last + 1

    def follow(self, node: int, coordinate: int) -> int:
        """Where a coordinate of the node's dimension leads."""
        return self._nodes[node][bisect_left(self._ends[node], coordinate)]

    def restrict(self, level: int, intervals: list[Interval], below: int = EVERYTHING) -> int:
        """The points of `below`, a set of later levels, whose coordinate lies in one of the intervals.

        These ascend and do not touch each other.
        """
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
        """AND: the points of both sets, OR: of either, LESS: of the first without those of the second."""
        leaf = _shortcut(how, one, other)
        if leaf is not None:
            return leaf
        if how != LESS and one > other:
            one, other = other, one
        key = (how, one, other)
        found = self._combined.get(key)
        if found is None:
            found = self._combined[key] = self._merge(how, one, other)
        return found

    def project(self, node: int, level: int) -> int:
        """The points that are in the set with some coordinate of this level: it is not asked any more."""
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
        """How many points the set has."""
        return self._count(node) * self._skipped(0, self._levels[node])

    def _count(self, node: int) -> int:
        """The number of points below a node, of the dimensions from its own on."""
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
        """The number of points of the dimensions between two levels, which nobody asks for."""
        product = 1
        for domain in self.lasts[first : min(last, len(self.lasts))]:
            product *= domain + 1
        return product

    def _merge(self, how: str, one: int, other: int) -> int:
        level = min(self._levels[one], self._levels[other])
        ends_one, to_one = self._at(level, one)
        ends_other, to_other = self._at(level, other)
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
        """The intervals of a level: the node's own, or one for all where it does not ask."""
        if self._levels[node] == level:
            return self._ends[node], self._nodes[node]
        return (self.lasts[level],), (node,)

    def _make(self, level: int, ends: list[int], nodes: list[int]) -> int:
        """The node with these intervals, of which neighbours lead to different nodes."""
        if len(nodes) == 1:
            return nodes[0]
        key = (level, tuple(ends), tuple(nodes))
        found = self._known.get(key)
        if found is None:
            self._intervals += len(ends)
            if self._intervals > MOST_INTERVALS:
                raise TooManyPartsError(
                    f"these rules cut the traffic into more than {MOST_INTERVALS} intervals, more than is kept in memory;"
                    " ask for single connections (netinit explain)"
                )
            found = self._known[key] = len(self._levels)
            self._levels.append(level)
            self._ends.append(key[1])
            self._nodes.append(key[2])
        return found


def _shortcut(how: str, one: int, other: int) -> int | None:
    """The result where it is plain."""
    if how == LESS:
        if one in (NOTHING, other) or other == EVERYTHING:
            return NOTHING
        return one if other == NOTHING else None
    strong, weak = (NOTHING, EVERYTHING) if how == AND else (EVERYTHING, NOTHING)
    if strong in (one, other):
        return strong
    if one in (weak, other):
        return other
    return one if other == weak else None
