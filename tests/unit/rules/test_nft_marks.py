"""Bits of marks in nft's JSON: what is compared, and what an assignment changes."""

from __future__ import annotations

import pytest

from netinit.base.net import FULL_MASK
from netinit.rules.nft.marks import CONNECTION_MARK, MARK, read_change, read_masked
from netinit.rules.targets import SetMark


def test_a_mark_under_a_mask_is_read_and_other_things_under_one_are_not():
    assert read_masked({"&": [MARK, 4095]}) == (MARK, 4095)
    assert read_masked({"&": [CONNECTION_MARK, 1]}) == (CONNECTION_MARK, 1)
    for other in (MARK, "mark", {"|": [MARK, 1]}, {"&": [{"meta": {"key": "priority"}}, 1]}, {"&": [MARK, "x"]}, {"&": [MARK, 2**32]}):
        assert read_masked(other) is None, other


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"|": [{"&": [MARK, 0xFFFFF111]}, 0x111]}, SetMark(value=0x111, mask=0xFFF)),  # as nft 1.0.6 lists it
        ({"|": [{"&": [MARK, 0xFFFFF000]}, 0x111]}, SetMark(value=0x111, mask=0xFFF)),
        ({"^": [{"&": [MARK, 0xFFFFFFF0]}, 0x11]}, SetMark(value=0x11, mask=0xF)),
        ({"&": [MARK, 0xFFFFFF00]}, SetMark(value=0, mask=0xFF)),
        ({"|": [MARK, 0x4]}, SetMark(value=4, mask=4)),
        ({"^": [MARK, 0x4]}, SetMark(value=4, mask=0)),
        ({"^": [CONNECTION_MARK, 0x4]}, None),
        ({"|": [{"&": [CONNECTION_MARK, 1]}, 1]}, None),
        ({"&": [CONNECTION_MARK, 1]}, None),
        ({"<<": [MARK, 1]}, None),
        ({"|": [MARK, "1"]}, None),
        ({"|": 1}, None),
        (1, None),
    ],
)
def test_an_assignment_of_a_mark_to_itself_is_a_change_of_its_bits(value, wanted):
    assert read_change(MARK, value) == wanted


@pytest.mark.parametrize("old", [0, 1, 0x111, 0x539, 0xABCDE, FULL_MASK])
def test_a_change_that_was_read_does_to_a_mark_what_nft_says(old):
    change = read_change(MARK, {"|": [{"&": [MARK, 0xFFFFF111]}, 0x111]})
    assert change is not None
    assert (old & ~change.mask) ^ change.value == old & 0xFFFFF111 | 0x111


def test_a_connection_s_mark_is_changed_as_a_packet_s():
    cleared = SetMark(value=0, mask=0xFF, connection=True)
    assert read_change(CONNECTION_MARK, {"&": [CONNECTION_MARK, 0xFFFFFF00]}) == cleared
    assert read_change(CONNECTION_MARK, {"|": [CONNECTION_MARK, 4]}) == SetMark(value=4, mask=4, connection=True)


def test_only_marks_are_changed():
    assert read_change({"meta": {"key": "priority"}}, {"|": [MARK, 1]}) is None
