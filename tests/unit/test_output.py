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
from netinit.base.json_answers import to_json
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
    document = to_json({text: [text]})
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
    output.show_progress("2 of 2", last=False)
    assert sys.stderr.getvalue().endswith("\n\r2 of 2")


def test_a_terminal_that_does_not_report_its_width_has_none_and_so_has_a_pipe(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert output.width_of_answers() == 0
    terminal()
    assert output.width_of_answers() == 60
    monkeypatch.setenv("COLUMNS", "")
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 9)
    monkeypatch.setattr("os.get_terminal_size", lambda _: fail(OSError(25, "Inappropriate ioctl for device")))
    assert output.width_of_answers() == 0


def fail(error):
    raise error


def test_a_full_disk_does_not_end_the_run_and_a_broken_pipe_does(monkeypatch):
    discarded = []
    monkeypatch.setattr(output, "discard_stderr", lambda: discarded.append(1))
    for error in (BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device")):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "flush", lambda error=error: fail(error))
        monkeypatch.setattr(sys, "stderr", stream)
        if isinstance(error, BrokenPipeError):
            with pytest.raises(BrokenPipeError):
                output.show_lines_if_possible([[("x", "1")]])
        else:
            output.show_lines_if_possible([[("x", "1")]])
        assert stream.getvalue() == "\x1b[1mx\x1b[0m\n"
    assert discarded == [1]


def test_characters_can_be_shown_that_the_encoding_has(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert (output.can_show("x"), output.can_show("✔")) == (True, False)


def test_colours_are_ours_alone(terminal):
    terminal()
    output.show_painted([[("✔", "32"), (" \x1b[8mhidden", "")]])
    assert sys.stdout.getvalue() == "\x1b[32m✔\x1b[0m \\x1b[8mhidden\n"


def test_without_a_stdout_the_error_says_so_and_stderr_is_not_needed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(NetinitError) as caught:
        output.show(lines(["x"]))
    assert str(caught.value) == "stdout is closed: nothing can be printed; open it, or send it to /dev/null"
    output.show_lines_if_possible([[("x", "")]])
    assert (output.width_of_answers(), output.width_of_messages()) == (0, 0)
    output.show_lines(["x"])
    assert not output.answers_a_terminal()
    assert not output.shows_on_a_terminal()
