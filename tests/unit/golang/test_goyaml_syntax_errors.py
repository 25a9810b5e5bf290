"""What is said of a text that is not YAML: the place, and what is wrong there, in words of the text."""

from __future__ import annotations

import pytest

from netinit.golang.errors import YamlError
from netinit.golang.goyaml import load_all
from sweeps import together

TAB, NO_KEY, VALUE = "a tab stands", "no key is possible here", "a value is missing here, or a bracket is not closed"
CASES = [
    ("a:\n\tb: 1\n", 2, 1, TAB), ("a:\n  b: 1\n\tc: 2\n", 3, 1, TAB), ("a: |\n\tx\n", 2, 1, TAB),
    ("a: @x\n", 1, 4, "@ cannot begin a value; quote it"), ("- `x`\n", 1, 3, "` cannot begin a value"), ("a: %x\n", 1, 4, "% cannot begin"),
    ("a: b: c\n", 1, 5, NO_KEY), ("a:\n  b: 1\n   c: 2\n", 3, 5, NO_KEY), ("a\nb: 1\n", 2, 2, NO_KEY), ("a: ? b\n", 1, 4, NO_KEY),
    ("a:\n    b: 1\n  c: 2\n", 3, 3, "this is no key of the mapping that begins 2 lines above; check indentation, and quotes"),
    ("a: 'it's'\n", 1, 8, "this is no key of the mapping that begins in this line"),
    ("a: 1\nbcd\nc: 2\n", 2, 1, "this key has no ':' behind it"), ("a:\n- b\nc\n- d\n", 3, 1, "this key has no ':' behind it"),
    ("a: - b\n", 1, 4, "no list is possible here"), ("- a\nb: 1\n", 2, 1, "this is no item of the list that begins in the line above"),
    ("a: [\n", 2, 1, VALUE), ("a: {b: [}\n", 1, 9, VALUE), ("a: ]\n", 1, 4, VALUE), ('{"a": 1,,}', 1, 9, VALUE),
    ("a: [1, 2\nb: 3\n", 2, 2, "the [ in the line above is not closed before this, or a comma is missing"),
    ('{"a": 1 "b": 2}', 1, 12, "the { in this line is not closed before this, or a comma is missing"),
    ('a: 1\nb: "x\nc: 1\n', 2, 4, "this quote is not closed"), ("a: 'x\n---\nb'\n", 1, 4, "this quote is not closed before the end"),
    ('a: "\\q"\n', 1, 5, "this is no escape of double quotes"), ('a: "\\xzz"\n', 1, 7, "need 2, 4 and 8 hexadecimal digits"),
    ("a: *\n", 1, 5, "an alias has a name behind its *; quote"), ("a: & x\n", 1, 5, "an anchor has a name behind its &; quote"),
    ("a: !x!y z\n", 1, 4, "this tag is not declared"), ("a: | x\n  y\n", 1, 6, "only the signs of a block"),
    ("a: 1\n...\nb: 2\n", 3, 1, "the document ends before this; begin another one with a line of ---"),
    ('é: "\x01"\n', 1, 5, "the character U+0001 is not allowed"), ("a: 1\nb: é\x00", 2, 5, "the character U+0000 is not"),
    ("a: \ud800\n", 1, 4, "the character U+D800 is not allowed"),
    ("%FOO\n--- a\n", 1, 5, "while scanning a directive, found unknown directive name"),  # the parser's own words
    ("a: b\nc: *x\n", 2, 4, "the alias *x names no anchor before it"), ("a: b\na: !!int x\n", 2, 4, "cannot decode !!str"),
]  # fmt: skip


@together(("text", "line", "column", "said"), CASES)
def test_an_error_has_its_place_and_says_what_is_wrong(text, line, column, said):
    with pytest.raises(YamlError) as caught:
        load_all(text)
    error = caught.value
    assert (error.line, error.column) == (line, column), str(error)
    assert error.problem.startswith(said) or said in error.problem, error.problem
    assert str(error) == f"line {line}, column {column}: {error.problem}"


def test_an_error_of_many_lines_of_text_is_short():
    with pytest.raises(YamlError) as caught:
        load_all('a: "' + "x" * 100_000)
    assert str(caught.value) == "line 1, column 4: this quote is not closed"
