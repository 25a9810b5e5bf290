"""The lean parser and click agree on every command line: equal options, or both refuse."""

from __future__ import annotations

import click
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netinit.base.errors import OptionError
from netinit.cli import apply
from netinit.cli.config import read_options
from netinit.options import FLAGS, Options
from netinit.options.declare import extract_flags, parse_flags
from netinit.options.kinds import SWITCH
from randomness import some
from strategies import made_options

VALUES = ("15001", "80,443", "*", "", "true", "false", "0", "10.0.0.0/8", "eth0", "1337", "5s", "TPROXY", "classic", "on", "-", "-b", "--", "x y", "é", "\n", "=", "a=b")
STRAYS = ("stray", "--nonsense", "--nonsense=1", "-X", "-Xp", "-nX", "--", "-", "--envoy", "--=", "--no-dry-run", "---", "-=", "--help-me", "80")
LONGS = tuple(f"--{name}" for flag in FLAGS if flag.long for name in (flag.long, *flag.aliases))
SHORTS = tuple(flag.short for flag in FLAGS if flag.short)

_value = st.sampled_from(VALUES)
_piece = st.one_of(
    st.tuples(st.sampled_from(LONGS), _value).map(list),
    st.tuples(st.sampled_from(LONGS), _value).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
    st.tuples(st.sampled_from(SHORTS), _value).map(lambda pair: [f"-{pair[0]}", pair[1]]),
    st.tuples(st.sampled_from(SHORTS), st.sampled_from(("", "=")), _value).map(lambda three: [f"-{''.join(three)}"]),
    st.lists(st.sampled_from(SHORTS), min_size=2, max_size=4).map(lambda letters: [f"-{''.join(letters)}"]),
    st.sampled_from(LONGS).map(lambda name: [name]),
    st.sampled_from(STRAYS).map(lambda word: [word]),
)
command_lines = st.lists(_piece, max_size=5).map(lambda pieces: [word for piece in pieces for word in piece])


@st.composite
def valid_lines(draw: st.DrawFn) -> list[str]:
    """A command line that means some valid options, spelled in a random way and order."""
    options = draw(made_options()).replace(pid=draw(st.sampled_from((0, 7))), rule_comments=draw(st.booleans()))
    pairs = sorted(extract_flags(options.to_argv(), FLAGS).texts.items())
    words = []
    for field, (text, _) in draw(st.permutations(pairs)):
        flag = next(flag for flag in FLAGS if flag.field == field)
        name = draw(st.sampled_from([f"--{name}" for name in (flag.long, *flag.aliases)] + ([f"-{flag.short}"] if flag.short else [])))
        switched_on = flag.kind is SWITCH and text == "true" and draw(st.booleans())
        joined = flag.kind is SWITCH or draw(st.booleans())
        words += [name] if switched_on else [f"{name}={text}"] if joined else [name, text]
    return words


def read_lean(words, environ):
    """As the start does, which reads a file of options only where one is named."""
    try:
        texts = parse_flags(words, FLAGS)
        named = texts.get("config") or environ.get("NETINIT_CONFIG")
        return read_options(texts, environ) if named else Options.from_texts(texts, environ)
    except OptionError:
        return None


def read_by_click(words, environ):
    try:
        return apply.command.make_context("apply", list(words), obj=environ).params["options"]
    except (OptionError, click.ClickException):
        return None


@settings(max_examples=some(60))
@given(command_lines, st.dictionaries(st.sampled_from([name for flag in FLAGS for name in flag.variables]), _value, max_size=2))
@example(["-i", "-b", "80"], {})
@example(["--", "-p", "1"], {})
@example(["-n", "--"], {})
@example(["-p", "1", "false"], {})
@example(["--debug", "true"], {})
@example(["--config", "15001"], {})
@example(["--config", "", "-p", "1"], {"NETINIT_CONFIG": ""})
def test_both_parsers_make_the_same_of_any_command_line(words, environ):
    assert read_lean(words, environ) == read_by_click(words, environ)


@settings(max_examples=some(40))
@given(valid_lines())
def test_both_parsers_understand_every_valid_command_line(words):
    lean = read_lean(words, {})
    assert lean is not None, words
    assert lean == read_by_click(words, {})
    assert Options.from_argv(lean.to_argv(), lean.to_environ()) == lean
