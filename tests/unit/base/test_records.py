"""The base of the records: immutable, equal by value, keyword-only."""

from __future__ import annotations

import copy
import pickle

import pytest

from netinit.base.records import Record


class Point(Record):
    x: int
    y: int = 0

    @property
    def sum(self):
        return self.x + self.y


class Point3(Point):
    z: int = 9


def test_fields_come_by_keyword_and_default():
    assert (Point(x=1).y, Point(x=1, y=2).sum) == (0, 2 + 1)
    assert repr(Point(x=1)) == "Point(x=1, y=0)"


def test_a_missing_or_unknown_field_is_an_error_that_names_it():
    with pytest.raises(TypeError, match="Point: x is missing"):
        Point()
    with pytest.raises(TypeError, match="Point has no field z"):
        Point(x=1, z=2)
    with pytest.raises(TypeError):
        Point(1)


def test_nothing_can_be_set_added_or_deleted():
    point = Point(x=1)
    with pytest.raises(AttributeError, match="Point is immutable: x cannot be set"):
        point.x = 2
    with pytest.raises(AttributeError, match="cannot be set"):
        point.other = 2
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del point.x


def test_equality_is_by_class_and_value_and_agrees_with_the_hash():
    assert Point(x=1) == Point(x=1, y=0)
    assert hash(Point(x=1)) == hash(Point(x=1, y=0))
    assert Point(x=1) != Point(x=2)
    assert Point(x=1) != Point3(x=1)
    assert Point(x=1) != (1, 0)
    assert len({Point(x=1), Point(x=1), Point(x=2)}) == 2


def test_a_subclass_has_the_fields_of_its_base_first():
    assert repr(Point3(x=1)) == "Point3(x=1, y=0, z=9)"


def test_replace_makes_a_copy_with_new_values():
    point = Point3(x=1)
    assert point.replace(y=5) == Point3(x=1, y=5)
    assert point == Point3(x=1)
    with pytest.raises(TypeError, match="no field w"):
        point.replace(w=1)


def test_records_survive_pickling_and_copying():
    point = Point3(x=1, y=(1, 2))
    assert pickle.loads(pickle.dumps(point)) == point
    assert copy.deepcopy(point) == point
