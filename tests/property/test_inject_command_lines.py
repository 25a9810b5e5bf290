"""What the lean reader takes of inject's command lines, click reads alike; everything else is left to click."""

from __future__ import annotations

import os
from unittest import mock

import click
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netinit.cli.inject import command as inject
from netinit.cli.inject.flags import FILE, INJECT, NAMED_FILE, STDIN, SWITCH, TRUE_OR_FALSE, read

NAMES = tuple(name for flag in INJECT for name in flag.names)
VARIABLES = tuple(flag.variable for flag in INJECT if flag.variable)
VALUES = ("true", "false", "TRUE", "1", "yes", "maybe", "", "-", "--", "-f", "a=b", "=", "x y", "é", "\n", " ", os.devnull, os.curdir, "/nonexistent", "shop", "a,b")
STRAYS = ("stray", "--nonsense", "--nonsense=1", "-X", "-RX", "-fa.yaml", "-f=a.yaml", "--", "-", "--filenam", "--json=true", "--no-json", "-h", "--help", "---", "-o-", "")

_value = st.sampled_from(VALUES)
_piece = st.one_of(
    st.tuples(st.sampled_from(NAMES), _value).map(list),
    st.tuples(st.sampled_from(NAMES), _value).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
    st.tuples(st.sampled_from(NAMES), _value).map("".join).map(lambda word: [word]),
    st.sampled_from([name for flag in INJECT if flag.kind == SWITCH for name in flag.names]).map(lambda name: [name]),
    st.sampled_from(STRAYS).map(lambda word: [word]),
)
environments = st.dictionaries(st.sampled_from(VARIABLES), _value, max_size=2)
_GOOD = {FILE: (os.devnull, STDIN), NAMED_FILE: (os.devnull,), TRUE_OR_FALSE: ("true", "false"), SWITCH: (None,)}


@st.composite
def plain_lines(draw):
    """A command line as scripts have it: every value is right and in a word of its own or behind `=`."""
    words = []
    for flag in draw(st.lists(st.sampled_from([flag for flag in INJECT if flag.field != "explain"]), max_size=6)):
        name = draw(st.sampled_from(flag.names))
        value = draw(st.sampled_from(_GOOD.get(flag.kind, ("", "shop", "a=b", "é", STDIN))))
        joined = value is not None and name.startswith("--") and draw(st.booleans())
        words += [name] if value is None else [f"{name}={value}"] if joined else [name, value]
    return words


def read_by_click(words, environ):
    """The values that click would call the command with; None where it ends with help or an error."""
    with mock.patch.dict(os.environ, {**dict.fromkeys(VARIABLES, ""), **{k: v for k, v in environ.items() if "\0" not in v}}):
        try:
            return inject.command.make_context("inject", list(words)).params
        except (click.ClickException, click.exceptions.Exit):
            return None


@settings(max_examples=400)
@given(st.lists(_piece, max_size=4).map(lambda pieces: [word for piece in pieces for word in piece]), environments)
@example(["-f", "-f", "a"], {})
@example(["-f", "a", "-f=b"], {})
@example(["--native-sidecars", "yes"], {})
@example([], {"ENABLE_NATIVE_SIDECARS": "0"})
@example(["--revision="], {"COMPLIANCE_POLICY": " "})
def test_what_the_lean_reader_takes_click_reads_alike(words, environ):
    lean = read(words, environ)
    assert lean is None or lean == read_by_click(words, environ)


@settings(max_examples=200)
@given(plain_lines(), st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(("", "true", "false")), max_size=2))
def test_a_plain_command_line_never_needs_click(words, environ):
    lean = read(words, environ)
    assert lean is not None, words
    assert lean == read_by_click(words, environ)


def test_the_explanation_and_whatever_is_unusual_is_left_to_click():
    for words in (["--explain"], ["-h"], ["-fa"], ["-f"], ["stray"], ["--json=true"], ["--valuesFile", "/nonexistent"], ["--native-sidecars", "yes"]):
        assert read(words, {}) is None, words
