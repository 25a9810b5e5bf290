"""Sets of points: what is joined, cut and counted is what sets of Python say, over a space small enough to write down."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from netinit.base.errors import TooManyPartsError
from netinit.simulate.symbolic import diagram
from netinit.simulate.symbolic.diagram import EVERYTHING, NOTHING, Diagram
from sweeps import together

LASTS = (4, 2, 6)
POINTS = frozenset(product(*[range(last + 1) for last in LASTS]))


def box(made, sides):
    node = EVERYTHING
    for level, intervals in enumerate(sides):
        node = made.intersect(node, made.restrict(level, intervals))
    return node


def points_of(made, node):
    return frozenset(point for point in POINTS if leads(made, node, point))


def leads(made, node, point):
    while node not in (NOTHING, EVERYTHING):
        node = made.follow(node, point[made.level(node)])
    return node == EVERYTHING


def some_set(made, random):
    """A union of boxes, as a diagram and as points."""
    node, points = NOTHING, frozenset()
    for _ in range(random.randint(0, 4)):
        ends = [sorted((random.randint(0, last), random.randint(0, last))) for last in LASTS]
        node = made.unite(node, box(made, [[tuple(pair)] for pair in ends]))
        points |= {point for point in POINTS if all(low <= at <= high for at, (low, high) in zip(point, ends, strict=True))}
    return node, points


@together("number", range(200))
def test_sets_are_joined_cut_and_counted_like_sets_of_points(number):
    made, random = Diagram(LASTS), Random(number)
    (one, its), (other, their) = some_set(made, random), some_set(made, random)
    assert points_of(made, one) == its
    for combine, wanted in ((made.intersect, its & their), (made.unite, its | their), (made.subtract, its - their)):
        node = combine(one, other)
        assert points_of(made, node) == wanted
        assert made.size(node) == len(wanted)


@together("number", range(50))
def test_equal_sets_are_one_node_however_they_were_made(number):
    made, random = Diagram(LASTS), Random(number)
    one, _ = some_set(made, random)
    other, _ = some_set(made, random)
    apart = made.unite(made.subtract(one, other), made.intersect(one, other))
    assert apart == one


def test_everything_of_a_dimension_asks_nothing():
    made = Diagram(LASTS)
    assert made.restrict(1, [(0, 2)]) == EVERYTHING
    assert made.size(EVERYTHING) == len(POINTS)


def test_ten_thousand_intervals_are_one_node():
    made = Diagram((10**6,))
    node = made.restrict(0, [(10 * at, 10 * at + 3) for at in range(10_000)])
    assert made.size(node) == 40_000
    assert len(list(made.branches(node))) == 20_000


def test_more_than_can_be_kept_is_an_error_and_not_a_full_memory(monkeypatch):
    monkeypatch.setattr(diagram, "MAX_INTERVALS", 1000)
    made = Diagram((10**6, 10**6))
    many = [(2 * at, 2 * at) for at in range(600)]
    with pytest.raises(TooManyPartsError, match="netinit explain"):
        made.restrict(0, many)


@together("number", range(50))
def test_a_dimension_is_left_out_like_a_coordinate_of_each_point(number):
    made, random = Diagram(LASTS), Random(number)
    node, points = some_set(made, random)
    for level, last in enumerate(LASTS):
        wanted = {(*point[:level], at, *point[level + 1 :]) for point in points for at in range(last + 1)}
        assert points_of(made, made.project(node, level)) == wanted


def test_a_node_has_its_level_and_its_intervals_with_their_successors():
    made = Diagram((9, 5))
    below = made.restrict(1, [(2, 5)])
    node = made.restrict(0, [(0, 1), (4, 9)], below)
    assert (made.level(node), made.level(below), made.level(NOTHING), made.level(EVERYTHING)) == (0, 1, 1 << 30, 1 << 30)
    assert list(made.branches(node)) == [((0, 1), below), ((2, 3), NOTHING), ((4, 9), below)]
    assert list(made.branches(below)) == [((0, 1), NOTHING), ((2, 5), EVERYTHING)]
    assert [made.follow(node, at) for at in (0, 1, 2, 3, 4, 9)] == [below, below, NOTHING, NOTHING, below, below]
    assert (made.size(node), made.size(below), made.size(NOTHING)) == (32, 40, 0)
    assert made.restrict(0, [(0, 9)], below) == below


def test_work_is_the_number_of_intervals_that_are_compared(monkeypatch):
    made = Diagram((9, 9))
    one, other, below = made.restrict(0, [(1, 2)]), made.restrict(0, [(5, 5), (7, 7)]), made.restrict(1, [(3, 3)])
    for combine, work in ((lambda: made.intersect(one, below), 4), (lambda: made.intersect(below, other), 6), (lambda: made.unite(one, other), 8), (lambda: made.unite(one, other), 0)):
        made.work = 0
        combine()
        assert made.work == work
    monkeypatch.setattr(diagram, "MAX_WORK", 4)
    made.work = 0
    made.subtract(one, other)
    assert made.work == 8
    with pytest.raises(TooManyPartsError, match=r"^the proof takes more than 8 steps; ask for single connections \(netinit explain\)$"):
        made.subtract(one, below)


def test_as_many_intervals_are_kept_as_the_limit_says(monkeypatch):
    monkeypatch.setattr(diagram, "MAX_INTERVALS", 6)
    made = Diagram((9, 9))
    first = made.restrict(0, [(1, 2)])
    made.restrict(0, [(3, 4)])
    assert made.restrict(0, [(1, 2)]) == first
    with pytest.raises(TooManyPartsError, match=r"^these rules cut the traffic into more than 6 intervals, more than is kept in memory; ask for single connections"):
        made.restrict(0, [(5, 6)])
