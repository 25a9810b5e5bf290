"""Where the keys and items of a text stand."""

from __future__ import annotations

import pytest

from netinit.golang import goyaml

TEXT = """\
# a comment
a:
  b: [1, {c: 2}]
  d:
  - e: x
    f: |
      text
  - y
---
{"a": {"b": "ü", "c": 1}}
---
---
base: &base {k: 1, l: [1, 2]}
all: [*base]
own: {<<: *base, m: 1}
both: {<<: [*base, {q: 2}]}
"""


@pytest.mark.parametrize(("document", "path", "place"), [
    (0, (), (2, 1)), (0, ("a",), (2, 1)), (0, ("a", "b"), (3, 3)), (0, ("a", "b", 1), (3, 10)), (0, ("a", "b", 1, "c"), (3, 11)),
    (0, ("a", "d", 0, "e"), (5, 5)), (0, ("a", "d", 0, "f"), (6, 5)), (0, ("a", "d", 1), (8, 5)),
    (1, ("a", "b"), (10, 8)), (1, ("a", "c"), (10, 18)),
    (3, ("all", 0, "k"), (13, 14)), (3, ("own", "k"), (13, 14)), (3, ("own", "m"), (15, 18)), (3, ("both", "l", 1), (13, 27)), (3, ("both", "q"), (16, 21)),
])  # fmt: skip
def test_each_key_and_item_has_its_line_and_column(document, path, place):
    found, steps = goyaml.read_places(TEXT)[document].find(path)
    assert ((found.line, found.column), steps) == (place, len(path))


def test_of_a_path_that_is_not_there_the_last_step_that_is_there_is_found():
    found, steps = goyaml.read_places(TEXT)[0].find(("a", "d", 7, "x"))
    assert (found.line, found.column, steps) == (4, 3, 2)


def test_documents_are_those_of_the_tree_also_empty_ones():
    assert len(goyaml.read_places(TEXT)) == len(goyaml.load_all(TEXT))


def test_the_last_of_equal_keys_is_the_one_that_counts():
    found, _ = goyaml.read_places("a: 1\na: 2\n")[0].find(("a",))
    assert (found.line, goyaml.load("a: 1\na: 2\n")) == (2, {"a": 2})


def test_aliases_are_not_expanded():
    levels = "".join([f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]\n" for number in range(1, 40)])
    found, steps = goyaml.read_places(f"l0: &l0 [1]\n{levels}")[0].find(("l39", 8, 8, 8))
    assert (found.line, steps) == (38, 4)
