"""What the quick reader reads, PyYAML's parser reads alike; whatever else it meets it leaves to that one."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netinit.errors import ParseError
from netinit.inject.goyaml import dump, events, plain

INDENTS = ("", "", " ", "  ", "    ", "- ", "-   ", "  - ", "- - ", "\t")
KEYS = ("a: ", "b: ", "c:", "a.b/c-d: ", "1: ", "y: ", "~: ", "<<: ", "'q': ", '"q": ', '"": ', "a b: ", "a : ", "?a: ", "- a: ", "é: ", "-a: ", "a:b: ", "--- ", "")
SCALARS = (
    "", "x", "x y", "1", "010", "1.5", "y", "~", "null", "<<", "-", "--", "-1", "--flag", "a:b", "http://a/b", "a: b", "a:", "a #c", "a#c", "#c", " #c", "'", '"',
    "''", '""', "'a'", "'a''b'", "'a' ", "'a' #c", "'a'#c", "'a' b", '"a"', '"a\\n"', '"a" #c', '"a": b', "|", "|-", "|+", "|2", "| #c", ">", "*a", "&a", "!!str a", "%", "@",
    "[]", "{}", "[a]", "[a, b]", "[a,b]", "[a, ]", "[a b]", "[ a , 'b' ]", "[a]: b", "[a: b]", "[[a], {b: c}]", "[a", "[]]", "[] #c", "[]#c", "{a: b}", "{a: b, c: [d]}", "{a:b}",
    '{"a":"b"}', '{"a": "b"}', "{a}", "{a: }", "{a: b, a: c}", "{y: b}", "{a: b: c}", "{a: <<}", "{", "[", "}", "]", "{a: b,", "a: b,", "'c': d }", "b, ]", ",", "{a:", "b}", "a: [", "{", "[", "}", "]", "{a: b,", "a: b,", "'c': d }", "b, ]", ",", "{a:", "b}", "a: [", "...", "---", "? a", ": a", "a,b", "2001-01-01", "1_000", "0x1F", "12:30", "=", "é", "\u2028", "\x7f", "\xa0",
)  # fmt: skip
_line = st.tuples(st.sampled_from(INDENTS), st.sampled_from(KEYS), st.sampled_from(SCALARS)).map("".join)
texts = st.tuples(st.lists(st.one_of(_line, st.sampled_from(("", "  ", "# c", "  # c", "---", "...", "%YAML 1.1"))), max_size=7), st.sampled_from(("", "\n", "\n\n"))).map(
    lambda parts: "\n".join(parts[0]) + parts[1]
)
_strings = st.text(st.sampled_from("ab1y:-#'\"{}[],&*!|> \n\\é~"), max_size=8)
_leaves = st.one_of(st.none(), st.booleans(), st.integers(-10, 10**6), st.floats(allow_nan=False, width=32), _strings)
trees = st.recursive(_leaves, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_strings, inner, max_size=4)), max_leaves=12)


def read_by_events(text):
    """The tree of the only document; UNREAD for what needs a word said about it."""
    try:
        found = events.build(text)
    except ParseError:
        return plain.UNREAD
    return found.documents[0] if len(found.documents) == 1 and not found.duplicates else plain.UNREAD


def assert_same(text):
    quick = plain.read(text)
    if quick is not plain.UNREAD:
        slow = read_by_events(text)
        assert slow is not plain.UNREAD, f"only the quick reader takes {text!r}, as {quick!r}"
        assert json.dumps(quick) == json.dumps(slow), text
    return quick


@settings(max_examples=1500, deadline=None)
@given(texts)
@example("a: |\n  x")
@example("a: |\n  x\n   \n  \n b: 1\n")
@example("a: |-\n\n  x\n")
@example("- a: |\n    x\n  # c\n  b:\n  - c\n- d\n")
@example("a: x\n y\n")
@example("a: {\n  b: 'c',\n  d:\n [e,\nf, ],\n}  # g\nh: i\n")
@example("a: ['b\n  c']\n")
@example("a: [b,\n  # c\n  d]\n")
@example("a: [b\n---\n]\n")
@example("a: {\n  b: 'c',\n  d:\n [e,\nf, ],\n}  # g\nh: i\n")
@example("a: ['b\n  c']\n")
@example("a: [b,\n  # c\n  d]\n")
@example("a: [b\n---\n]\n")
@example("a:\n- b\n  c\n")
@example("a:\n  - b\n  c: d\n")
def test_what_the_quick_reader_takes_the_parser_reads_alike(text):
    assert_same(text)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_strings, trees, min_size=1, max_size=4), st.data())
def test_a_written_tree_with_a_line_changed_is_read_alike(tree, data):
    lines = dump(tree).split("\n")
    assert_same("\n".join(lines))
    place = data.draw(st.integers(0, len(lines) - 1))
    lines[place] = data.draw(st.sampled_from(INDENTS)) + lines[place].lstrip(" ") + data.draw(st.sampled_from(("", " ", ":", " #c", "x", ": y")))
    assert_same("\n".join(lines))


@settings(max_examples=100, deadline=None)
@given(st.recursive(st.sampled_from(("x", "x y", 1, True, None, "a\nb\n", "é")), lambda inner: st.one_of(st.lists(inner, min_size=1, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, min_size=1)), max_leaves=9))
def test_simple_trees_never_need_the_parser(tree):
    text = dump({"k": tree})
    assert plain.read(text) == {"k": tree}, text


def test_deep_and_long_texts_are_left_to_the_parser_with_its_limits():
    for text in ("- " * 60 + "a", "".join(f"{' ' * n}a:\n" for n in range(60)), "a: " + "[" * 60 + "]" * 60, "a: " + "x" * 1_000_001):
        assert plain.read(text) is plain.UNREAD


@pytest.mark.parametrize(
    "text",
    ["".join(f"k{number}: |\n  x\n" for number in range(70_000)), "- []\n" * 190_000, "- {a: [b, c], d:\n  'e'}\n" * 30_000, "- '" + "''" * 400_000 + "'\n",
     "a: " + "[ " * 400_000, "- [\n" * 200_000, "- " * 400_000 + "a", "- a" + " #" * 400_000, " \n" * 400_000 + "a: b", 'a: "' + "\\" * 900_000, "a: |\n  x\n" + "\n" * 900_000],
    ids=lambda text: text[:12].encode("unicode_escape").decode(),
)  # fmt: skip
def test_no_text_takes_it_long(text):
    started = time.process_time()
    plain.read(text)
    assert time.process_time() - started < 3, "a text of the greatest length takes a second at most"


def test_istios_own_files_need_no_parser(conformance):
    for path in sorted((conformance / "inject" / "current" / "settings").glob("default/*.yaml")):
        assert assert_same(path.read_text()) is not plain.UNREAD, path


def test_every_yaml_text_of_the_conformance_data_is_read_alike(conformance):
    paths = sorted((conformance / "inject").rglob("*.yaml"))
    assert paths
    read = sum(assert_same(path.read_text()) is not plain.UNREAD for path in paths)
    print(f"{read} of {len(paths)} texts read")


if __name__ == "__main__":
    pytest.main([__file__])
