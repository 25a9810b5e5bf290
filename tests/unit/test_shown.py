"""Foreign text as people see it."""

from __future__ import annotations

import ast
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from hostile_texts import ATTACKS, commands, texts
from netinit.base.sanitize import MAX_TEXT_LENGTH, Lines, escape, lines, quote, quote_words, shorten, split_message
from sweeps import together

NAMED = [
    *range(0x20), 0x7F, *range(0x80, 0xA0), 0x61C, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F),
    *range(0x2060, 0x2065), *range(0x2066, 0x206A), 0xFEFF, 0xD800, 0xDFFF, 0xE0001, *range(0xE0020, 0xE0080),
]  # fmt: skip


@together("number", NAMED, ids=hex)
def test_controls_of_terminals_direction_width_and_lines_are_spelled(number):
    shown = escape(f"a{chr(number)}b")
    assert shown == f"a{repr(chr(number))[1:-1]}b"
    assert shown.isascii()


def test_characters_that_are_kept_stay_and_no_others():
    assert escape("a\n\tb\x1bXé") == r"a\n\tb\x1bXé"
    assert escape("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


def test_what_people_write_stays_as_it_is():
    for text in ("netinit", "Prüfung → 漢字 ✔ 😀", "", "a b", 'say "so" \\'):
        assert escape(text) == text


@given(texts)
def test_nothing_that_is_not_printable_is_left_and_a_second_time_changes_nothing(text):
    assert not commands(escape(text), "")
    assert escape(escape(text)) == escape(text)
    assert {unicodedata.category(letter) for letter in escape(text)} & {"Cc", "Cf", "Cs", "Zl", "Zp"} == set()


@given(st.lists(texts))
def test_a_text_is_one_line_whatever_it_holds(found):
    shown = lines(found)
    assert isinstance(shown, Lines)
    assert shown.count("\n") == len(found)
    assert len(shown.splitlines()) == len(found), "another line break than ours was left"
    assert not commands(shown)


@given(texts)
@example("\udcff\ud800")
def test_a_quotation_cannot_be_closed_from_inside_and_is_not_long(text):
    said = quote(text)
    assert said[0] == said[-1] == '"'
    as_read = "".join([chr(ord(letter) - 0xDC00) if "\udc80" <= letter <= "\udcff" else letter for letter in shorten(text)])  # a byte that is not UTF-8
    assert ast.literal_eval(said) == as_read
    assert len(said) <= 2 + 10 * (MAX_TEXT_LENGTH + 1)  # an escape has at most ten letters
    assert not commands(said, "")


def test_words_are_quoted_as_in_a_listing_of_iptables():
    assert quote_words("a \\ \"b\" 'c'") == '"a \\\\ \\"b\\" \\\'c\\\'"'


def test_long_texts_are_cut_and_say_so():
    assert shorten("x" * MAX_TEXT_LENGTH) == "x" * MAX_TEXT_LENGTH
    assert shorten("x" * (MAX_TEXT_LENGTH + 1)) == "x" * MAX_TEXT_LENGTH + "…"


def test_a_message_is_split_at_line_feeds_alone():
    assert split_message("a\n  b\n") == ["a", "  b"]
    assert split_message("a\x85b\u2028c\x0bd\re") == ["a\x85b\u2028c\x0bd\re"]


def test_every_attack_is_changed_by_escaping_or_has_nothing_to_escape():
    assert sum(escape(attack) != attack for attack in ATTACKS) >= 16
