"""Matches in any notation: which reader is asked, and what becomes of what none understands."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import IPV4
from netinit.rules.decoding import matches
from netinit.rules.decoding.matches import decode_match, read_module
from netinit.rules.matches.context import Mark, UnknownMatch
from netinit.rules.matches.foreign import InSet, Undecided
from netinit.rules.matches.packet import Owner, Port
from nft_expressions import CT_MARK, MARK, TCP, decode, equals, fields_of, holds, loads, looks_up, spans

MARKS = [pack("=I", number) for number in range(1, 5)]
USER, GROUP = (("meta", (2, key), (1, 1)) for key in (10, 11))


@pytest.mark.parametrize(("info", "comment"), [(b"", ""), (b"why", "why"), (b"why\0", "why"), (b"a\0b\0c", "a"), (b"\0why", ""), (b"\xff\xc3\xa9\0", "\udcffé")])
@pytest.mark.parametrize("revision", [0, 1])
def test_a_comment_is_no_match_and_ends_at_its_first_zero(info, comment, revision):
    assert decode_match("comment", revision, info, "tcp", IPV4) == ([], comment)


def test_a_struct_that_is_not_known_is_kept():
    for name, kind in (("newer", UnknownMatch), ("statistic", Undecided)):
        (found,), comment = decode_match(name, 3, b"info", "", None)
        assert (type(found), found.text, found.kept, comment) == (kind, f"-m {name}", (name, 3, b"info"), "")


@pytest.mark.parametrize("load", [MARK, CT_MARK])
@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(("count", "is_asked"), [(2, True), (3, True), (4, False)])
def test_values_that_one_match_cannot_hold_are_alternatives_where_they_are_few(monkeypatch, load, negated, count, is_asked):
    monkeypatch.setattr(matches, "MAX_ALTERNATIVES", 3)
    (found,) = decode(load, looks_up("s", (5, negated)), sets=(holds(*MARKS[:count]),)).rules[0].matches
    values = tuple([(Mark(value=number, connection=load is CT_MARK),) for number in range(1, count + 1)])
    of = "meta" if load is MARK else "ct"
    assert isinstance(found, InSet) is is_asked
    if is_asked:
        assert (found.text, found.alternatives, found.negated) == (f"{of} 3 {'!=' if negated else '=='} {', '.join([one.hex() for one in MARKS[:count]])}", values, negated)
    else:
        assert type(found) is UnknownMatch


@pytest.mark.parametrize("load", [USER, GROUP])
def test_an_owner_in_a_set_is_an_alternative_but_none_can_be_excluded_where_a_packet_has_none(load):
    held = holds(*MARKS[:2])
    (found,) = decode(load, looks_up(), sets=(held,)).rules[0].matches
    kind = "uid" if load is USER else "gid"
    assert found.alternatives == ((Owner(kind=kind, first=1, last=1),), (Owner(kind=kind, first=2, last=2),))
    (found,) = decode(load, looks_up("s", (5, 1)), sets=(held,)).rules[0].matches
    assert fields_of(found) == fields_of(UnknownMatch(text=f"meta {load[1][1]} != {MARKS[0].hex()}, {MARKS[1].hex()}"))
    (found,) = decode(load, equals(MARKS[0], 1)).rules[0].matches
    assert found == Owner(kind=kind, first=1, last=1, negated=True)


def test_one_value_that_is_not_understood_makes_all_of_a_set_unknown():
    alike = decode(("meta", (2, 15), (1, 1)), looks_up(), sets=(holds(b"\2", b"\7"),)).rules[0].matches
    assert [type(one) for one in alike] == [UnknownMatch]
    assert [type(one) for one in decode(MARK, spans(MARKS[0], MARKS[1])).rules[0].matches] == [UnknownMatch]


@pytest.mark.parametrize(
    "parts",
    [
        (*TCP, loads(2, 13, 1), ("bitwise", (1, 1), (2, 1), (3, 1), (6, 0), (4, ((1, b"\2"),)), (5, ((1, b"\0"),))), equals(b"")), (("meta", (2, 4), (1, 1)), equals(b"")), (("ct", (1, 1), (2, 1)), equals(b"")), (("meta", (2, 16), (1, 1)), equals(b"")),
        (("meta", (2, 6), (1, 1)), equals(b"")), (("ct", (1, 1), (2, 0)), equals(b"")), (loads(1, 9, 1), equals(b"")), (loads(1, 12, 4), equals(b"\1" * 5)),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_a_length_that_nothing_has_is_no_error(parts):
    found = decode(*parts, family=2).rules[0].matches[-1]
    assert isinstance(found, UnknownMatch)
    assert "malformed" not in found.text


def test_options_are_told_in_the_order_of_a_listing_however_they_were_given():
    first, second = Port(protocol="tcp", ports=(1,), source=True), Port(protocol="tcp", ports=(2,))
    for words in ("--sport 1 --dport 2", "--dport 2 --sport 1"):
        assert read_module("tcp", words.split(), "tcp") == [first, second]
    assert read_module("tcp", ["!", "--dport", "2", "--sport", "1"], "tcp") == [first, second.replace(negated=True)]
    assert read_module("tcp", ["--dport", "2", "!", "--sport", "1"], "tcp") == [first.replace(negated=True), second]
    assert read_module("tcp", ["--dport", "!", "--sport", "1"], "tcp") is None
    assert read_module("tcp", ["--dport", "--sport", "1"], "tcp") is None
    assert read_module("tcp", ["!"], "tcp") is None
    assert read_module("nowhere", ["--dport", "1"], "tcp") is None
