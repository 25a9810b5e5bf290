"""YAML as kubectl reads it."""

from __future__ import annotations

import pytest

from netinit.golang.errors import YamlError
from netinit.golang.goyaml import dump, load, load_all, load_reporting
from netinit.golang.goyaml.events import MAX_ALIASED_NODES, MAX_DEPTH
from sweeps import together

# Values as sigs.k8s.io/yaml gives them.
SCALARS = [
    ("y", True), ("Y", True), ("yes", True), ("on", True), ("On", True), ("true", True), ("TRUE", True),
    ("n", False), ("N", False), ("no", False), ("off", False), ("False", False),
    ("yEs", "yEs"), ("tRUE", "tRUE"), ("oN", "oN"),
    ("~", None), ("null", None), ("Null", None), ("nULL", "nULL"),
    ("0", 0), ("-0", 0), ("+5", 5), ("010", 8), ("0o10", 8), ("0x1F", 31), ("0X1f", 31), ("0b101", 5), ("-0b11", -3),
    ("1_000", 1000), ("_1", "_1"), ("08", 8.0), ("18446744073709551615", 2**64 - 1), ("123456789012345678901", 123456789012345678901),
    ("1.5", 1.5), ("-1.5e3", -1500.0), ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0), ("1e", "1e"), ("1.2.3", "1.2.3"), ("0x", "0x"),
    ("1e999", "1e999"), ("! 08", "08"), ("&a ! 08", "08"),
    ("2001-01-01", "2001-01-01"), ("2001-12-14T21:59:43Z", "2001-12-14T21:59:43Z"), ("12:30:45", "12:30:45"), ("80,", "80,"),
    ('"true"', "true"), ("'010'", "010"), ("!!str 10", "10"), ("!!int '10'", 10), ("!!float 1", 1.0), ("!!binary aGk=", "hi"),
    ("=", "="), ("a b", "a b"), ("-", [None]), ("{}", {}), ("[]", []),
]  # fmt: skip


@together(("text", "value"), SCALARS)
def test_scalars_have_the_types_of_go(text, value):
    found = load(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("text", "shown"), [("a: .inf", r"\+Inf"), ("- -.Inf", "-Inf"), (".nan", "NaN"), ("a: !!float .inf", r"\+Inf")])
def test_infinity_and_not_a_number_are_no_values_of_json(text, shown):
    with pytest.raises(YamlError, match=f"^line 1, column [0-9]+: unsupported value: {shown}$"):
        load(text)
    assert load(".inf: x") == {".inf": "x"}


def test_a_merge_wins_over_the_keys_before_it_and_loses_to_those_behind_it():
    text = "<<: {a: 1}\nb: 2\na: 3\nc: 4\n"
    assert (load(text), load_reporting(text)[1]) == ({"a": 3, "b": 2, "c": 4}, ())
    assert load("a: 1\n<<: [{a: 2, b: 2}, {a: 3, c: 3}]") == {"a": 2, "b": 2, "c": 3}


@together(("text", "value"), SCALARS)
def test_what_is_written_comes_back_as_it_was(text, value):
    assert load(dump({"k": value, "l": [value]})) == {"k": value, "l": [value]}


@together(("text", "value"), SCALARS)
def test_strings_that_look_like_other_types_come_back_as_strings(text, value):
    assert load(dump({text: text, "l": [text]})) == {text: text, "l": [text]}


def test_a_text_that_does_not_fit_its_tag_is_named_with_its_place():
    with pytest.raises(YamlError, match=r"^line 2, column 4: cannot decode !!str `x` as a !!int$"):
        load("a: 1\nb: !!int x\n")


def test_keys_become_strings():
    assert load("{1: a, true: b, 1.5: c, yes: d}") == {"1": "a", "true": "d", "1.5": "c"}


@pytest.mark.parametrize("text", ["? [a]\n: b", "? {a: b}\n: c", "~: a"])
def test_keys_that_json_cannot_have_are_refused(text):
    with pytest.raises(YamlError, match=r"line 1.*a key must be"):
        load(text)


def test_merge_keys_give_way_to_own_keys():
    assert load("base: &b {a: 1, b: 2}\nuse: {<<: *b, b: 3}\nmany:\n  <<: [*b, {c: 4}]") == {
        "base": {"a": 1, "b": 2},
        "use": {"b": 3, "a": 1},
        "many": {"a": 1, "b": 2, "c": 4},
    }


def test_aliases_are_copies():
    tree = load("a: &x {k: [1]}\nb: *x")
    tree["a"]["k"].append(2)
    assert tree["b"] == {"k": [1]}


def test_the_last_of_two_keys_counts_and_both_are_reported():
    tree, errors = load_reporting("a: 1\nb: 2\na: 3")
    assert tree == {"a": 3, "b": 2}
    assert [(str(one), one.line, one.column) for one in errors] == [("line 3, column 4: the key 'a' occurs twice in one mapping", 3, 4)]


def test_a_billion_laughs_are_refused():
    bomb = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    with pytest.raises(YamlError, match=f"aliases expand to more than {MAX_ALIASED_NODES} nodes"):
        load(bomb)


def test_a_list_that_contains_itself_is_refused():
    with pytest.raises(YamlError, match="lies inside its own anchor"):
        load("a: &a [*a]")


@pytest.mark.parametrize("text", ["[" * (MAX_DEPTH + 1), "{a: " * (MAX_DEPTH + 1), "- " * (MAX_DEPTH + 1)])
def test_too_deep_a_document_is_refused(text):
    with pytest.raises(YamlError, match=f"nested deeper than {MAX_DEPTH} levels"):
        load(text)


def test_a_syntax_error_names_its_place():
    with pytest.raises(YamlError, match=r"\Aline 2, column 4: a value is missing here, or a bracket is not closed before this\Z"):
        load("a: [1,\nb: }")


@pytest.mark.parametrize("text", ["a: \x00", "a: \x07", "\ud800"])
def test_characters_that_yaml_forbids_are_a_clear_error(text):
    with pytest.raises(YamlError):
        load(text)


def test_several_documents_are_a_stream():
    assert load_all("a: 1\n---\n- 2\n---\n") == [{"a": 1}, [2], None]
    with pytest.raises(YamlError, match="2 documents where one is expected"):
        load("a: 1\n---\nb: 2")
    assert load("") is None


def test_texts_of_several_lines_stay_readable():
    assert dump({"run": "set -eu\n\nreport\n", "last": "no end\nhere"}) == (
        "run: |\n  set -eu\n\n  report\nlast: |-\n  no end\n  here\n"
    )


@together(
    "text",
    ["a\n", "a\n\n", " a\nb", "a \nb", "\na", "a\tb\nc", "#a\nb", "- a\n- b", "a: b\nc: d", "\n", "a\r\nb", "é\nü", "a\u2028b\nc",
     "\x85", "\ufeffa", "\U0001f600", "'", '"', "it's", 'say "hi"', "{\"a\": 'b'}", "a #b", "a: b", "a:", "-a", "--a", "---", "?a", "*",
     "", " ", "a  b", "@a", "%a", "`", "<<", "|", ">", "!a", "&a", ",", "[", "]", "{", "}", "\\", "\\n", "key: |", "a\x7f"],
)  # fmt: skip
def test_every_string_comes_back(text):
    assert load(dump({"k": text, "l": [text, [text]], text: 1})) == {"k": text, "l": [text, [text]], text: 1}
