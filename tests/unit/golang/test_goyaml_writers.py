"""The two ways to write YAML: as Go does, and so that no reader errs. Both share layout, words, blocks and escapes."""

from __future__ import annotations

import pytest
import yaml

from netinit.golang.goyaml import dump, load
from netinit.golang.goyaml.scalars import WORDS
from netinit.golang.goyaml.values import to_yaml
from netinit.golang.template import FunctionError
from sweeps import together

# What Go writes, by package yaml's own rules: what resolves to another type, timestamps and base-60 numbers are quoted.
GO = [
    ("1e999", "1e999"), ("0x_", "0x_"), (".5_", ".5_"), ("-_1", '"-_1"'), ("+_1", '"+_1"'), ("1_000", '"1_000"'),
    ("2001-01-01", '"2001-01-01"'), ("2001-01-01T00:00:00Z", '"2001-01-01T00:00:00Z"'), ("2001-01-01 x", "2001-01-01 x"),
    ("12:30:45", '"12:30:45"'), ("1:99", "1:99"), ("a: b", "'a: b'"), ("it's", "it's"), ("#a", "'#a'"), ("x\xa0y", "x\xa0y"),
    ("\x85", '"\\N"'), ("\x07", '"\\a"'), ("😀", '"\\U0001F600"'), ("a\tb", '"a\\tb"'), ("a\n", "|\n  a"), (" a\nb", "|2-\n   a\n  b"),
    ("a\n\n", "|+\n  a\n"),
]  # fmt: skip

CAREFUL = [
    ("1.2.3", '"1.2.3"'), ("10.0.0.1", '"10.0.0.1"'), ("yEs", '"yEs"'), ("=", '"="'), ("a: b", '"a: b"'), ("http://x:80/", "http://x:80/"),
    ('{"a": "b"}', "'{\"a\": \"b\"}'"), ("\x07", '"\\a"'), ("\x85\xa0", '"\\N\\_"'), ("😀", '"😀"'), ("a😀\nb", "|-\n  a😀\n  b"),
    ("a\n\n", '"a\\n\\n"'), (" a\nb", '" a\\nb"'),
]  # fmt: skip


@together(("text", "shown"), GO)
def test_go_quotes_what_its_reader_would_take_for_something_else(text, shown):
    assert to_yaml({"k": text}) == f"k: {shown}\n"
    assert load(f"k: {shown}\n") == {"k": text}


@together(("text", "shown"), CAREFUL)
def test_the_careful_writer_quotes_what_any_reader_could(text, shown):
    assert dump({"k": text}) == f"k: {shown}\n"
    assert load(dump({"k": text})) == yaml.safe_load(dump({"k": text})) == {"k": text}


@together("word", WORDS)
@pytest.mark.parametrize("write", [dump, to_yaml])
def test_no_word_of_yaml_stands_without_quotes(write, word):
    assert write({"k": word}) == f'k: "{word}"\n'
    assert write({word: 1}) == f'"{word}": 1\n'


@pytest.mark.parametrize("write", [dump, to_yaml])
def test_both_lay_out_alike(write):
    tree = {"a": [{"b": [], "c": {}}, ["d"]], "e": {"f": "g\nh\n"}, "i": [[1, 2], {"j": None}]}
    assert write(tree) == ("a:\n- b: []\n  c: {}\n- - d\ne:\n  f: |\n    g\n    h\ni:\n- - 1\n  - 2\n- j: null\n")


@pytest.mark.parametrize("key", ["k" * 129, "k" * 2000, "two\nlines"])
@pytest.mark.parametrize("write", [dump, to_yaml])
def test_a_key_too_long_for_its_line_comes_back(write, key):
    tree = {key: {"a": [1]}, "z": 2}
    assert write(tree).startswith("? ")
    assert load(write(tree)) == yaml.safe_load(write(tree)) == tree


@pytest.mark.parametrize("text", ["\x7f", "a\ufffe", "\uffff"])
def test_go_refuses_what_no_reader_takes(text):
    with pytest.raises(FunctionError, match="control characters are not allowed"):
        to_yaml({"a": text})
    assert load(dump({"a": text})) == {"a": text}
