"""Command lines of inject mean the same with click and without it, and every way to spell a flag is understood."""

from __future__ import annotations

import os

import click
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netinit.base.errors import OptionError
from netinit.cli.inject import command as inject
from netinit.cli.inject.flags import STDIN, InjectFlags
from netinit.options.declare import parse_flags
from netinit.options.kinds import SWITCH
from randomness import some

FLAGS = InjectFlags.flags
NAMES = {flag.field: [f"--{flag.long}"] + ([f"-{flag.short}"] if flag.short else []) for flag in FLAGS}
VARIABLES = tuple(name for flag in FLAGS for name in flag.variables)
VALUES = ("true", "false", "TRUE", "1", "yes", "maybe", "", "-", "--", "-f", "a=b", "=", "x y", "é", "\n", " ", os.devnull, os.curdir, "/nonexistent", "shop", "a,b")
STRAYS = ("stray", "--nonsense", "--nonsense=1", "-X", "-RX", "-Rfa.yaml", "-fa.yaml", "-f=a.yaml", "--", "-", "--filenam", "--json=true", "--no-json", "---", "-o-", "")
FREE = ("", "shop", "a=b", "é", "x y", "-x")
RIGHT = {"SWITCH": ("true", "false"), "true|false|auto": ("true", "false", "0", "Yes", "off"), "FILE": (os.devnull,), "FILE|-": (os.devnull,), "FILE|DIR|-": ("a", os.curdir), "KIND=PATH": ("Job.batch.volcano.sh=spec.tasks[].template", "A=b"), "IMAGE": ("r/n:1", "registry.example:5000/r/n@sha256:0a")}

_value = st.sampled_from(VALUES)
_name = st.sampled_from([name for names in NAMES.values() for name in names])
_piece = st.one_of(
    st.tuples(_name, _value).map(list),
    st.tuples(_name, st.sampled_from(("", "=")), _value).map("".join).map(lambda word: [word]),
    _name.map(lambda name: [name]),
    st.sampled_from(STRAYS).map(lambda word: [word]),
)


@st.composite
def right_lines(draw):
    """A command line in which every value is right, and the fields that it sets; lists grow, else the last one counts."""
    words, given_last = ["-f", STDIN], {"filenames": (STDIN,)}
    for flag in draw(st.lists(st.sampled_from([flag for flag in FLAGS if flag.field not in ("explain", "check_config", "as_json", "labels")]), max_size=6)):
        name = draw(st.sampled_from(NAMES[flag.field]))
        text = draw(st.sampled_from(RIGHT["SWITCH"] if flag.kind is SWITCH else RIGHT.get(flag.kind.metavar, FREE if flag.kind.empty else FREE[1:])))
        joined = flag.kind is SWITCH or text.startswith("-") or draw(st.booleans())
        words += [f"{name}={text}"] if joined else [name, text]
        value = flag.kind.read(text)
        given_last[flag.field] = (*given_last.get(flag.field, ()), value) if flag.repeated else value
    return words, given_last


def read_lean(words, environ):
    try:
        return InjectFlags.from_texts(parse_flags(words, FLAGS), environ)
    except OptionError:
        return None


def read_by_click(words, environ):
    try:
        return inject.command.make_context("inject", list(words), obj=environ).params["options"]
    except (OptionError, click.ClickException):
        return None


@settings(max_examples=some(60))
@given(
    st.lists(_piece, max_size=4).map(lambda pieces: [word for piece in pieces for word in piece]),
    st.dictionaries(st.sampled_from(VARIABLES), _value, max_size=2),
)
@example(["-f", "-f", "a"], {})
@example(["-f", "a", "-f=b"], {})
@example(["-f", "a", "--native-sidecars", "yes"], {})
@example(["-f", "a"], {"ENABLE_NATIVE_SIDECARS": "0"})
def test_any_command_line_means_the_same_with_click_and_without(words, environ):
    assert read_lean(words, environ) == read_by_click(words, environ)


@settings(max_examples=some(50))
@given(right_lines())
def test_every_spelling_of_right_values_is_understood_without_click(line):
    words, wanted = line
    found = read_lean(words, {})
    assert found is not None, words
    defaults = {flag.field: flag.default for flag in FLAGS}
    assert {field: getattr(found, field) for field in defaults} == {**defaults, **wanted}
