"""Values in registers, their comparisons, and the ranges of sets."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.base.netlink_attributes import MalformedError
from netinit.base.snapshot import ELEMENT_CATCHALL, ELEMENT_INTERVAL_END, SET_INTERVAL, NftElement
from netinit.rules.decoding.registers import (
    Known,
    Operand,
    Registers,
    RegisterTest,
    catch_all_of,
    families_of,
    with_ends,
)
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import Undecided
from nft_expressions import fields_of, holds

PORT = Operand(source="payload", key=(2, 2), length=2)
CHANCE = Operand(source="other", key=("numgen", 4, 0), length=4)
A, B, C, D = b"\0\1", b"\0\2", b"\0\3", b"\0\4"


def compare(*ranges, operand=PORT, negated=False):
    return RegisterTest(operand=operand, ranges=ranges, negated=negated)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (compare((A, C)), compare((B, D)), (B, C)), (compare((B, D)), compare((A, C)), (B, C)), (compare((A, D)), compare((B, C)), (B, C)), (compare((A, B)), compare((B, D)), (B, B)), (compare((A, B)), compare((C, D)), None), (compare((C, D)), compare((A, B)), None),
        (compare((A, C)), compare((B, D), operand=PORT.replace(key=(2, 0))), None), (compare((A, C), negated=True), compare((B, D)), None), (compare((A, C)), compare((B, D), negated=True), None), (compare((A, C), negated=True), compare((B, D), negated=True), None), (compare((A, A), (C, C)), compare((B, D)), None), (compare((A, C)), compare((B, B), (D, D)), None), (compare(), compare((A, B)), None), (compare((A, B)), compare(), None),
        (compare((A, C)), compare((b"\0\2\0", b"\0\2\1")), None), (compare((b"\0", b"\1")), compare((A, C)), None),
    ],
    ids=str,
)  # fmt: skip
def test_two_comparisons_of_one_value_with_one_range_each_are_one_where_they_overlap(one, other, both):
    found = one.intersect(other)
    assert (found and fields_of(found)) == (fields_of(compare(both)) if both else None)


@pytest.mark.parametrize(("ranges", "single"), [(((A, A),), A), (((A, B),), None), (((A, A), (B, B)), None), ((), None), (((A, A), (A, A)), None)])
def test_a_comparison_has_a_single_value_where_it_has_one_range_of_one(ranges, single):
    assert compare(*ranges).single == single


def test_a_number_is_read_in_the_order_of_its_bytes():
    value = pack("=H", 0x0102)
    assert compare().number(value) == 0x0102
    assert compare(operand=PORT.replace(swapped=True)).number(b"\1\2") == 0x0102


@pytest.mark.parametrize(
    ("compared", "match", "text"),
    [
        (compare((A, A)), UnknownMatch, "payload 2 2 == 0001"), (compare((A, A), negated=True), UnknownMatch, "payload 2 2 != 0001"), (compare((A, B), (C, C)), UnknownMatch, "payload 2 2 == 0001-0002, 0003"), (compare((A, A), (B, B), (C, C), (D, D)), UnknownMatch, "payload 2 2 == 0001, 0002, 0003"),
        (compare((A, A), operand=PORT.replace(mask=b"\xff\0")), UnknownMatch, "payload 2 2 & ff00 == 0001"), (compare((A, A), operand=PORT.replace(xor=b"\xff\0", swapped=True)), UnknownMatch, "payload 2 2 == 0001"), (compare(operand=PORT.replace(source="ct", key=(8,))), UnknownMatch, "ct 8 == "),
        (compare((pack("=I", 3),) * 2, operand=CHANCE), Undecided, "numgen mod 4 == 3"), (compare((pack("=I", 3),) * 2, operand=CHANCE, negated=True), Undecided, "numgen mod 4 != 3"), (compare((pack("=I", 9),) * 2, operand=CHANCE.replace(key=("hash", 4, 7))), Undecided, "hash mod 4 offset 7 == 9"), (compare((b"\0\0\0\3",) * 2, operand=CHANCE.replace(swapped=True)), Undecided, "numgen mod 4 == 3"),
        (compare((b"abcd", b"abce"), operand=CHANCE), Undecided, "other numgen 4 0 == 61626364-61626365"), (compare((b"abcd",) * 2, operand=CHANCE.replace(mask=b"\xff" * 4)), Undecided, "other numgen 4 0 & ffffffff == 61626364"), (compare((b"abcd", b"abce"), operand=CHANCE, negated=True), Undecided, "other numgen 4 0 != 61626364-61626365"),
    ],
    ids=str,
)  # fmt: skip
def test_a_comparison_that_is_not_known_is_shown_with_what_it_compares(compared, match, text):
    (found,) = compared.unknown()
    assert (type(found), found.text) == (match, text)
    assert getattr(found, "about", "") == ("chance, or its turn" if match is Undecided else "")


def at(number):
    return number.to_bytes(4, "big")


NAME, NUMBER, BYTE = (Operand(source="meta", key=(length,), length=length) for length in (16, 4, 1))
NOTHING = Operand(source="other", key=("register",), length=4)


@pytest.mark.parametrize(
    ("stored", "register", "held"),
    [
        (((1, NAME),), 1, NAME), (((1, NAME),), 8, NAME), (((1, NAME),), 9, NOTHING), (((1, NAME), (2, NUMBER)), 1, NAME), (((1, NAME), (12, NUMBER)), 8, NAME), (((1, NAME), (9, NUMBER)), 9, NUMBER), (((9, NUMBER), (1, NAME)), 9, NOTHING), (((11, NUMBER), (1, NAME)), 11, NOTHING), (((12, NUMBER), (1, NAME)), 2, NUMBER), (((7 + 1, NUMBER), (9, BYTE)), 8, NUMBER),
        (((9, NUMBER), (8, BYTE)), 9, NUMBER), (((8, NUMBER), (8, BYTE)), 8, BYTE), (((8, NUMBER), (8, BYTE.replace(length=0))), 8, BYTE.replace(length=0)), (((9, NUMBER), (8, BYTE.replace(length=5))), 9, NOTHING), (((9, NUMBER), (8, BYTE.replace(length=0))), 9, NUMBER), ((), 23, NOTHING), (((23, NUMBER),), 23, NUMBER), (((4, NUMBER),), 20, NUMBER),
    ],
    ids=str,
)  # fmt: skip
def test_a_register_holds_what_was_stored_last_in_any_of_its_words(stored, register, held):
    known = Registers()
    for number, operand in stored:
        known.store(at(number), operand)
    assert known.load(at(register)) == held


@pytest.mark.parametrize(
    ("length", "fields"),
    [(16, [NAME]), (20, [NAME, NUMBER]), (21, [NAME, NUMBER, BYTE]), (24, [NAME, NUMBER, BYTE]), (17, [NAME, NUMBER]), (25, None), (28, None), (4, [NAME]), (0, [])],
)
def test_a_key_of_several_fields_has_each_at_a_multiple_of_four_bytes(length, fields):
    known = Registers()
    for number, operand in ((1, NAME), (12, NUMBER), (13, BYTE)):
        known.store(at(number), operand)
    assert known.load_fields(at(1), length) == ([NOTHING.replace(length=length)] if fields is None else fields)
    assert known.load_fields(at(12), 4) == [NUMBER]
    assert known.load_fields(at(9), 4) == [NOTHING]


@pytest.mark.parametrize("number", [None, b"", at(0), at(5), at(7), at(24), at(1 << 31)])
def test_what_is_no_register_is_refused(number):
    for use in (Registers().load, lambda one: Registers().store(one, NUMBER), lambda one: Registers().load_fields(one, 4)):
        with pytest.raises(MalformedError, match=rf"^there is no register {int.from_bytes(number or b'', 'big')}$"):
            use(number)


def about(key, value, *, negated=False, source="meta", mask=b"", high=None):
    return compare((value, high or value), operand=Operand(source=source, key=key, length=len(value), mask=mask), negated=negated)


@pytest.mark.parametrize(
    ("compared", "families"),
    [
        (about((15,), b"\2"), (IPV4,)), (about((15,), b"\x0a"), (IPV6,)), (about((15,), b"\2", negated=True), (IPV6,)), (about((15,), b"\x0a", negated=True), (IPV4,)), (about((15,), b"\7"), None), (about((15,), b"\0\2"), None), (about((15,), b"\2", mask=b"\xff"), None), (about((15,), b"\2", source="ct"), None), (about((15,), b"\2", high=b"\3"), None),
        (about((1,), b"\x08\0"), (IPV4,)), (about((1,), b"\x86\xdd"), (IPV6,)), (about((1,), b"\x08\0", negated=True), (IPV6,)), (about((1,), b"\x08\6"), None), (about((1,), b"\0\0\x08\0"), None), (about((1,), b"\2"), None), (about((16,), b"\2"), None), (about((16,), b"\x08\0"), None), (about((15, 0), b"\2"), None),
    ],
    ids=str,
)  # fmt: skip
def test_a_comparison_with_a_family_or_an_ethertype_leaves_one_of_two_families(compared, families):
    assert families_of(compared) == families


def test_a_family_is_known_where_there_is_one():
    assert [Known(families=families, devices={}).family for families in ((IPV4,), (IPV6,), FAMILIES, ())] == [IPV4, IPV6, None, None]


def el(key, end=b"", *, ends=False, every=False):
    return NftElement(key=key, key_end=end, flags=ends * ELEMENT_INTERVAL_END | every * ELEMENT_CATCHALL)


@pytest.mark.parametrize(
    ("elements", "flags", "ranges"),
    [
        ((), 0, []), ((), SET_INTERVAL, []), ((el(B), el(A)), 0, [(A, A), (B, B)]), ((el(A), el(b"", every=True)), 0, [(A, A)]), ((el(A, C),), 0, [(A, A)]), ((el(A, C), el(D)), SET_INTERVAL, [(A, C), (D, D)]), ((el(D, D), el(A, C), el(b"", every=True)), SET_INTERVAL, [(D, D), (A, C)]),
        ((el(A), el(C, ends=True)), SET_INTERVAL, [(A, B)]), ((el(C, ends=True), el(A)), SET_INTERVAL, [(A, B)]), ((el(b"\0\0", ends=True), el(A), el(C, ends=True)), SET_INTERVAL, [(A, B)]), ((el(A), el(B, ends=True), el(C)), SET_INTERVAL, [(A, A), (C, b"\xff\xff")]), ((el(A), el(C), el(D, ends=True)), SET_INTERVAL, [(A, B), (C, C)]),
        ((el(A), el(C, ends=True), el(C), el(D, ends=True)), SET_INTERVAL, [(A, B), (C, C)]), ((el(A), el(C), el(C, ends=True), el(D, ends=True)), SET_INTERVAL, [(A, B), (C, C)]), ((el(A), el(A)), SET_INTERVAL, None), ((el(A), el(b"\0\2\0", ends=True)), SET_INTERVAL, None), ((el(b"\0\0"),), SET_INTERVAL, [(b"\0\0", b"\xff\xff")]), ((el(A), el(b"\0\2\0")), SET_INTERVAL, None), ((el(A, ends=True),), SET_INTERVAL, []), ((el(b"", every=True),), SET_INTERVAL, []),
    ],
    ids=str,
)  # fmt: skip
def test_a_set_has_a_range_for_each_element_but_the_one_for_all_others(elements, flags, ranges):
    found = with_ends(holds(*elements, flags=flags))
    assert (found and [ends for _, ends in found]) == (ranges or found)
    assert (found is None) is (ranges is None)
    starts = {one.key: one for one in elements if not one.flags}
    assert all(element in starts.values() and low == element.key for element, (low, _) in found or ())


def test_the_element_for_all_others_is_found_wherever_it_stands():
    every = el(b"", every=True)
    assert [catch_all_of(holds(*elements)) for elements in ((), (el(A),), (every,), (el(A), every), (every, el(A)), (el(A, ends=True),))] == [None, None, every, every, every, None]
