"""The way to stdout and stderr."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest
from hypothesis import given

from hostile_texts import ATTACKS, commands, texts
from netinit.base import output
from netinit.base.errors import NetinitError
from netinit.base.sanitize import lines


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    def switch():  # in the test itself: pytest sets its own streams after the fixtures
        monkeypatch.setattr(sys, "stdout", Terminal())
        monkeypatch.setattr(sys, "stderr", Terminal())

    return switch


def test_an_artefact_is_written_to_the_letter_into_a_pipe(capsys):
    text = "a: \u202e\x85\n"
    output.show_artefact(text)
    assert capsys.readouterr().out == text


def test_a_terminal_gets_an_artefact_without_what_it_obeys(terminal):
    terminal()
    output.show_artefact("".join(f"- {attack}\n\tx\n" for attack in ATTACKS))
    assert not commands(sys.stdout.getvalue(), "\n\t")


@given(texts)
def test_json_is_ascii_and_means_the_text(text):
    document = output.to_json({text: [text]})
    assert not commands(document)
    assert document.isascii()
    meant = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # two halves are one character there
    assert json.loads(document) == {meant: [meant]}


def test_an_object_is_indented_and_one_of_many_is_a_line_that_is_written_at_once(monkeypatch):
    seen = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(seen))
    output.show_object({"a": [1]}, now=True)
    assert seen.getvalue() == b'{"version": 1, "a": [1]}\n'
    output.show_object({"a": [1]})
    assert seen.getvalue().count(b"\n") == 1
    sys.stdout.flush()
    assert seen.getvalue().partition(b"\n")[2] == b'{\n  "version": 1,\n  "a": [\n    1\n  ]\n}\n'


def test_lines_for_stderr_are_as_many_as_were_given(terminal):
    terminal()
    output.show_lines(ATTACKS)
    assert len(sys.stderr.getvalue().splitlines()) == len(ATTACKS)
    assert not commands(sys.stderr.getvalue())


def test_rows_are_shown_in_the_place_of_those_before(terminal):
    terminal()
    output.show_painted([[("a", ""), ("b", "1")], [("c\x1b", "")]], 0)
    output.show_painted([[("d", "")]], 2)
    assert sys.stdout.getvalue() == "\r\x1b[Ja\x1b[1mb\x1b[0m\nc\\x1b\n\x1b[2A\r\x1b[Jd\n"


@pytest.mark.parametrize(("named", "columns"), [("", 77), ("wide", 77), ("60", 60)])
def test_the_width_is_that_of_the_stream_s_own_terminal_unless_the_environment_names_one(terminal, monkeypatch, named, columns):
    terminal()
    monkeypatch.setenv("COLUMNS", named)
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 9)
    monkeypatch.setattr("os.get_terminal_size", {9: os.terminal_size((77, 20))}.__getitem__)
    assert output.width_of_messages() == columns


def test_a_page_is_no_line_on_stderr(terminal):
    terminal()
    output.show_lines(["x" * 500_000, "short"])
    assert [len(line) for line in sys.stderr.getvalue().splitlines()] == [2001, 5]


def test_progress_goes_over_its_own_line_alone(terminal):
    terminal()
    output.show_progress("a\r\n\x1b[2Jb: 1 of 2", last=True)
    assert sys.stderr.getvalue() == "\ra\\r\\n\\x1b[2Jb: 1 of 2\n"


def test_colours_are_ours_alone(terminal):
    terminal()
    output.show_painted([[("✔", "32"), (" \x1b[8mhidden", "")]])
    assert sys.stdout.getvalue() == "\x1b[32m✔\x1b[0m \\x1b[8mhidden\n"


def test_without_a_stdout_the_error_says_so_and_stderr_is_not_needed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(NetinitError, match="stdout is closed"):
        output.show(lines(["x"]))
    output.show_lines(["x"])
    assert not output.answers_a_terminal()
    assert not output.shows_on_a_terminal()
