"""The boxes of a packet set: products of intervals, for what writes a set down."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.net import Interval
from netinit.simulate.symbolic.diagram import NOTHING
from netinit.simulate.symbolic.regions import Region

Sides = dict[str, tuple[Interval, ...]]  # of a box, by dimension; marks are (value, mask)


def list_boxes(region: Region) -> Iterator[Sides]:
    """Yield disjoint boxes whose union is the set, each with the intervals of its restricted dimensions."""
    yield from _list_below(region, 0, region.node, {})


def _list_below(region: Region, at: int, node: int, sides: Sides) -> Iterator[Sides]:
    if node == NOTHING:
        return
    dimensions = region.space.dimensions
    while at < len(dimensions) and not region.tests(dimensions[at], node):
        at += 1
    if at == len(dimensions):
        yield sides
        return
    for below, found in region.exits(dimensions[at], node).items():
        yield from _list_below(region, at + 1, below, {**sides, dimensions[at].name: tuple(found)})
