"""Sets of packets: what is in them, which values occur, and the member that stands for them."""

from __future__ import annotations

from itertools import product

import pytest

from core import IPV4, IPV6, Surroundings, number_of
from netinit.base.net import FULL_MASK, MAX_PORT
from netinit.simulate.condition import MarkBits
from netinit.simulate.symbolic.boxes import list_boxes
from netinit.simulate.symbolic.regions import (
    everything,
    having_bits,
    in_states,
    marked,
    nothing,
    unite,
    unmarked,
    valued,
    within,
)
from netinit.simulate.symbolic.space import INBOUND, OUTBOUND, CtState, Dim, make_space

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
SPACE = make_space(OUTBOUND, POD, {"icmp"}, set(), free=False)
MARKS = (Dim.MARK, Dim.CONNECTION_MARK)
PORTS = everything(SPACE).size // (MAX_PORT + 1)  # packets of one destination port


def ports(*intervals):
    return within(SPACE, Dim.DESTINATION_PORT, intervals)


def test_sets_of_two_spaces_are_not_combined():
    other = make_space(INBOUND, Surroundings(family=IPV6), set(), set(), free=False)
    for combine in (lambda one, two: one & two, lambda one, two: one | two, lambda one, two: one - two):
        with pytest.raises(ValueError, match=r"^packets of outbound IPv4 and of another space$"):
            combine(everything(SPACE), everything(other))
        with pytest.raises(ValueError, match=r"^packets of inbound IPv6 and of another space$"):
            combine(everything(other), everything(SPACE))


def test_intervals_in_any_order_and_that_touch_are_one_set():
    found = ports((8, 9), (1, 2), (3, 5))
    assert found == ports((1, 5), (8, 9))
    assert (found.size, found.reach(Dim.DESTINATION_PORT)) == (7 * PORTS, ((1, 5), (8, 9)))
    assert ports() == nothing(SPACE)
    assert (bool(nothing(SPACE)), nothing(SPACE).size, bool(found)) == (False, 0, True)
    assert ports((0, MAX_PORT)) == everything(SPACE)


def test_a_set_is_split_into_what_is_in_another_and_what_is_not():
    for one, other in product((ports((1, 9)), ports((4, 5)), ports((20, 30)), nothing(SPACE), everything(SPACE)), repeat=2):
        assert one.split(other) == (one & other, one - other)
        assert (one & other, one | other) == (other & one, other | one)
        assert (one | other).size == one.size + other.size - (one & other).size


@pytest.mark.parametrize("count", range(1, 8))
def test_a_union_of_many_sets_has_the_members_of_each(count):
    assert unite([ports((2 * at, 2 * at)) for at in range(count)]) == ports(*[(2 * at, 2 * at) for at in range(count)])


def test_packets_are_selected_by_values_that_have_names():
    names = SPACE.dimension(Dim.PROTOCOL).values
    assert valued(SPACE, Dim.PROTOCOL, "icmp", "udp") == within(SPACE, Dim.PROTOCOL, [(names.index("icmp"),) * 2, (names.index("udp"),) * 2])
    assert valued(SPACE, Dim.PROTOCOL) == nothing(SPACE)
    assert in_states(SPACE, (CtState.NEW,)) == within(SPACE, Dim.STATE, [(0, 0)])
    assert in_states(SPACE, (CtState.NEW, CtState.RELATED)) == valued(SPACE, Dim.STATE, CtState.RELATED) | valued(SPACE, Dim.STATE, CtState.NEW)


def exactly(mark, connection):
    """Packets with these two marks."""
    return marked(SPACE, Dim.MARK, mark, FULL_MASK) & marked(SPACE, Dim.CONNECTION_MARK, connection, FULL_MASK)


def test_marks_are_compared_under_their_mask():
    values = (0, 1, 2, 5, 1 << 31, FULL_MASK)
    for (at, name), value, mask, mark in product(enumerate(MARKS), values, values, values):
        packets = exactly(*((mark, 0) if not at else (0, mark)))
        assert packets.size == everything(SPACE).size >> 64
        assert bool(packets & marked(SPACE, name, value, mask)) is (mark & mask == value)
    assert unmarked(SPACE) == exactly(0, 0)


def test_a_mark_that_was_made_of_both_is_compared_bit_by_bit():
    bits = (0, 1, 2, 6)
    for packet, connection, flip in product(bits, (0, 1, 3), (0, 1, 4)):
        for value, mask in product((0, 1, 3, 4), (0, 1, 3, 7)):
            found = having_bits(SPACE, MarkBits(packet=packet, connection=connection, flip=flip), value, mask)
            for mark, other in product((0, 1, 2, 7), (0, 1, 3)):
                made = (mark & packet) ^ (other & connection) ^ flip
                assert bool(exactly(mark, other) & found) is (made & mask == value)


def test_the_values_that_occur_are_intervals_or_values_under_a_mask():
    found = (ports((1, 2)) & valued(SPACE, Dim.PROTOCOL, "tcp") & marked(SPACE, Dim.MARK, 5, 0xF)) | (ports((7, 7)) & valued(SPACE, Dim.PROTOCOL, "udp"))
    assert sorted(found.reach(Dim.DESTINATION_PORT)) == [(1, 2), (7, 7)]
    assert sorted(found.reach(Dim.PROTOCOL)) == [(1, 1), (2, 2)]
    assert found.reach(Dim.UID) == ((0, FULL_MASK),)
    assert (ports((1, 2)) & marked(SPACE, Dim.MARK, 5, 0xF)).reach(Dim.MARK) == ((5, 0xF),)
    assert found.reach(Dim.MARK) == ((0, 0),), "one part has any mark"
    assert found.reach(Dim.CONNECTION_MARK) == ((0, 0),)
    either = marked(SPACE, Dim.CONNECTION_MARK, 1, 1) | marked(SPACE, Dim.CONNECTION_MARK, 1 << 31, 1 << 31)
    assert sorted(either.reach(Dim.CONNECTION_MARK)) == [(1, 0x80000001), (1 << 31, 1 << 31)]
    assert nothing(SPACE).reach(Dim.UID) == ()


def test_a_dimension_that_is_ignored_has_all_values():
    found = ports((1, 2)) & within(SPACE, Dim.UID, [(7, 7)]) | ports((5, 5)) & within(SPACE, Dim.UID, [(8, 9)])
    assert found.ignoring(Dim.DESTINATION_PORT) == within(SPACE, Dim.UID, [(7, 9)])
    assert found.ignoring(Dim.UID) == ports((1, 2), (5, 5))
    assert found.ignoring(Dim.SOURCE) == found
    assert found.seen_in(SPACE) == found


def test_the_member_that_is_picked_has_the_first_value_that_is_preferred_and_possible_or_the_lowest():
    found = ports((5, 9), (20, 30)) & within(SPACE, Dim.UID, [(7, 8)]) & marked(SPACE, Dim.MARK, 5, 0xF)
    point = found.pick({Dim.DESTINATION_PORT: (1, 25, 6), Dim.UID: (1, 2), Dim.GID: (3, 4), Dim.SOURCE: ()})
    expected = {one.name: 0 for one in SPACE.dimensions} | {Dim.DESTINATION_PORT: 25, Dim.UID: 7, Dim.GID: 3, Dim.MARK: 5}
    assert point == expected
    assert found.pick({}) == expected | {Dim.DESTINATION_PORT: 5, Dim.GID: 0}
    high = marked(SPACE, Dim.CONNECTION_MARK, 0x80000003, 0x80000007)
    assert high.pick({})[Dim.CONNECTION_MARK] == 0x80000003


def test_boxes_have_the_sides_of_dimensions_in_which_packets_differ():
    found = ports((1, 2), (7, 7)) & marked(SPACE, Dim.MARK, 5, 0xF)
    assert list(list_boxes(found)) == [{Dim.DESTINATION_PORT: ((1, 2), (7, 7)), Dim.MARK: ((5, 0xF),)}]
    assert list(list_boxes(everything(SPACE))) == [{}]
    assert list(list_boxes(nothing(SPACE))) == []
    two = ports((1, 1)) | within(SPACE, Dim.UID, [(7, 7)])
    assert sorted([box.get(Dim.UID, ()) for box in list_boxes(two)]) == [(), ((7, 7),)]
    assert [box[Dim.DESTINATION_PORT] for box in list_boxes(two) if Dim.UID in box] == [((0, 0), (2, MAX_PORT))]
