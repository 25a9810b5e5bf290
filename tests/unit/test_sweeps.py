"""What tests/sweeps.py chooses: few cases in which every value is, and of a table in one test every row."""

from __future__ import annotations

import itertools

import pytest

import sweeps


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(sweeps, "WHOLE", False)


@pytest.mark.parametrize("sizes", [(1,), (3, 2), (2, 3), (5, 3, 2), (2, 2, 4), (4, 4), (1, 7, 7, 3)])
def test_combinations_have_every_value_of_every_dimension(sizes, monkeypatch):
    dimensions = [range(size) for size in sizes]
    chosen = sweeps.combine(*dimensions)
    assert len(chosen) == max(sizes)
    assert [{*values} for values in zip(*chosen, strict=True)] == [{*one} for one in dimensions]
    monkeypatch.setattr(sweeps, "WHOLE", True)
    assert sweeps.combine(*dimensions) == list(itertools.product(*dimensions))


def values_for(decorate):
    """What a test that is decorated so is called with."""

    def test(number):
        assert number

    (mark,) = decorate(test).pytestmark
    return list(mark.args[1])


def test_one_test_after_the_other_gets_the_next_values(monkeypatch):
    backends = sweeps.in_turn("backend", "abc", 2)
    assert [values_for(backends) for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]
    monkeypatch.setattr(sweeps, "WHOLE", True)
    assert values_for(backends) == ["a", "b", "c"]


def test_a_table_in_one_test_is_tried_to_its_first_failure_which_names_its_row():
    tried = []

    @sweeps.together("number, text", [(1, "a"), pytest.param(2, "b", id="two"), (3, "c"), (4, "d")])
    def test(number, text, fixture):
        tried.append((number, text, fixture))
        assert number < 3

    with pytest.raises(AssertionError) as raised:
        test(fixture="f")
    assert tried == [(1, "a", "f"), (2, "b", "f"), (3, "c", "f")]
    assert raised.value.__notes__ == ["with {'number': 3, 'text': 'c'}"]


def test_a_row_that_is_skipped_keeps_no_other_from_being_tried():
    tried = []

    @sweeps.together("number", [1, 2])
    def test(number):
        tried.append(number)
        if number == 1:
            pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception, match="not here"):
        test()
    assert tried == [1, 2]


def test_a_table_with_marks_is_as_pytest_has_it(monkeypatch):
    rows = [1, pytest.param(2, marks=pytest.mark.xfail)]
    assert values_for(sweeps.together("number", rows)) == rows
    monkeypatch.setattr(sweeps, "WHOLE", True)
    assert values_for(sweeps.together("number", [1, 2])) == [1, 2]
    assert sweeps.together("number", [1, 2]).mark.args[0] == "number", "one name is no list of names, of whose values each is one, too"
