"""Expressions of nf_tables as the kernel has them: their names, attributes and values (linux/netfilter/nf_tables.h)."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import IPV4, IPV6
from netinit.base.netlink_attributes import split_attributes, write_attribute
from netinit.base.snapshot import INET
from netinit.rules.rule_builder import RuleBuilder, be32, element, expression, intervals, settle

ONE, TWO = "00000001", "00000002"
LOAD_FAMILY, LOAD_PROTOCOL = ("meta", [(2, "0000000f"), (1, ONE)]), ("meta", [(2, "00000010"), (1, ONE)])


def read(block):
    """Each expression with its attributes: numbers and bytes in hexadecimal, values without what they are nested in."""
    found = []
    for kind, payload in split_attributes(block):
        assert kind == 1, "NFTA_LIST_ELEM"
        (_, name), (_, data) = split_attributes(payload)
        found.append((name.decode().removesuffix("\0"), [(number, value.hex()) for number, value in split_attributes(data)]))
    return found


def value_of(text):
    """A value as it is nested in NFTA_DATA_VALUE."""
    return write_attribute(1, text).hex()


def compared(operator, value):
    return ("cmp", [(1, ONE), (2, f"{operator:08x}"), (3, value_of(value))])


@pytest.mark.parametrize(
    ("calls", "listed"),
    [
        ([("load_mark", {"connection": False})], [("meta", [(2, "00000003"), (1, ONE)])]),
        ([("load_mark", {"connection": True})], [("ct", [(1, ONE), (2, "00000003")])]),
        ([("store_mark", {"connection": False})], [("meta", [(2, "00000003"), (3, ONE)])]),
        ([("store_mark", {"connection": True})], [("ct", [(4, ONE), (2, "00000003")])]),
        ([("load", "payload", 1, 12, 4)], [("payload", [(1, ONE), (2, ONE), (3, "0000000c"), (4, "00000004")])]),
        ([("load", "socket", 2)], [("socket", [(1, "00000002"), (2, ONE)])]),
        ([("load", "fib", 3, 1)], [("fib", [(1, ONE), (2, "00000003"), (3, ONE)])]),
        ([("load", "meta", 6), ("load", "meta", 7), ("load", "meta", 6)], [("meta", [(2, f"0000000{key}"), (1, ONE)]) for key in (6, 7, 6)]),
        ([("mask", b"\xff\x00")], [("bitwise", [(1, ONE), (2, ONE), (3, TWO), (6, "00000000"), (4, value_of(b"\xff\x00")), (5, value_of(b"\0\0"))])]),
        ([("mask", b"\xff", b"\x0f")], [("bitwise", [(1, ONE), (2, ONE), (3, ONE), (6, "00000000"), (4, value_of(b"\xff")), (5, value_of(b"\x0f"))])]),
        ([("swap", 4)], [("byteorder", [(1, ONE), (2, ONE), (3, ONE), (4, "00000004"), (5, "00000004")])]),
        ([("limit_family", IPV4), ("limit_family", IPV4)], [LOAD_FAMILY, compared(0, b"\x02")]),
        ([("limit_family", IPV6)], [LOAD_FAMILY, compared(0, b"\x0a")]),
        ([("limit_protocol", "udp"), ("limit_protocol", "udp"), ("limit_protocol", "tcp")], [LOAD_PROTOCOL, compared(0, b"\x11"), LOAD_PROTOCOL, compared(0, b"\x06")]),
        ([("compare", b"a"), ("compare", b"b", True)], [compared(0, b"a"), compared(1, b"b")]),
        ([("compare_with", one, b"a") for one in ("==", "!=", "<", "<=", ">", ">=")], [compared(number, b"a") for number in range(6)]),
        ([("put", b"ab"), ("put", b"c", 2)], [("immediate", [(1, ONE), (2, value_of(b"ab"))]), ("immediate", [(1, TWO), (2, value_of(b"c"))])]),
        ([("count",)], [("counter", [(1, "00" * 8), (2, "00" * 8)])]),
        ([("add_struct", b"match", ("tcp", 2, b"xyz"))], [("match", [(1, b"tcp\0".hex()), (2, TWO), (3, b"xyz".hex())])]),
        ([("add_struct", b"target", ("a\udcff", 0, b""))], [("target", [(1, "61ff00"), (2, "00000000"), (3, "")])]),
    ],
)  # fmt: skip
def test_each_expression_has_the_kernel_s_attributes_in_its_order(calls, listed):
    builder = RuleBuilder(INET, [])
    for name, *given in calls:
        named = given.pop() if given and isinstance(given[-1], dict) else {}
        getattr(builder, name)(*given, **named)
    assert read(builder.block()) == listed


@pytest.mark.parametrize(
    ("code", "chain", "verdict"),
    [
        (1, "", [(1, b"\0\0\0\1")]), (0, "", [(1, b"\0\0\0\0")]), (-3, "A", [(1, b"\xff\xff\xff\xfd"), (2, b"A\0")]), (-4, "B\udcff", [(1, b"\xff\xff\xff\xfc"), (2, b"B\xff\0")]),
        (-5, "A", [(1, b"\xff\xff\xff\xfb")]),
    ],
)  # fmt: skip
def test_a_verdict_names_a_chain_if_it_jumps(code, chain, verdict):
    builder = RuleBuilder(INET, [])
    builder.decide(code, chain)
    ((name, attributes),) = read(builder.block())
    assert (name, attributes[0], attributes[1][0]) == ("immediate", (1, "00000000"), 2)
    ((number, payload),) = split_attributes(bytes.fromhex(attributes[1][1]))
    assert (number, split_attributes(payload)) == (2, verdict)


def test_in_a_table_of_one_family_only_the_other_is_compared():
    for family, other in ((IPV4, IPV6), (IPV6, IPV4)):
        builder = RuleBuilder(family.number, [])
        builder.limit_family(family)
        assert (read(builder.block()), builder.is_mixed) == ([], False)
        builder.limit_family(other)
        assert read(builder.block()) == [LOAD_FAMILY, compared(0, bytes((other.number,)))]
    mixed = RuleBuilder(INET, [])
    assert mixed.is_mixed
    mixed.limit_family(IPV6)
    assert not mixed.is_mixed


A, B, C = b"a", b"b", b"c"


@pytest.mark.parametrize(
    ("low", "high", "negated", "splits", "listed"),
    [
        (A, A, False, True, [compared(0, A)]), (A, A, True, True, [compared(1, A)]), (A, C, False, True, [compared(5, A), compared(3, C)]),
        (A, C, True, True, [("range", [(1, ONE), (2, ONE), (3, value_of(A)), (4, value_of(C))])]),
        (A, C, False, False, [("range", [(1, ONE), (2, "00000000"), (3, value_of(A)), (4, value_of(C))])]),
        (A, C, True, False, [("range", [(1, ONE), (2, ONE), (3, value_of(A)), (4, value_of(C))])]),
    ],
)  # fmt: skip
def test_a_range_is_one_comparison_or_two_and_one_value_is_compared(low, high, negated, splits, listed):
    builder = RuleBuilder(INET, [], splits_ranges=splits)
    builder.compare_ranges([(low, high)], negated, 13)
    assert (read(builder.block()), builder.sets) == (listed, [])
    if splits:
        usual = RuleBuilder(INET, [])
        usual.compare_ranges([(low, high)], negated, 13)
        assert usual.block() == builder.block()


def keys_of(elements):
    """The keys of a set's elements, with a bar where an interval ends."""
    found = []
    for one in elements:
        ((kind, payload),) = split_attributes(one)
        (first, key), *flags = split_attributes(payload)
        ((nested, value),) = split_attributes(key)
        assert (kind, first, nested, flags in ([], [(3, b"\0\0\0\1")])) == (1, 1, 1, True), "NFTA_LIST_ELEM, NFTA_SET_ELEM_KEY, NFTA_DATA_VALUE, _FLAGS"
        found.append(f"{value.hex()}{'|' * bool(flags)}")
    return found


def test_several_values_are_looked_up_in_a_set_of_them_and_ranges_in_one_of_intervals():
    builder = RuleBuilder(INET, [])
    builder.compare_ranges([(A, A), (C, C)], negated=True, key_type=13)
    builder.compare_ranges([(b"\0\x50", b"\0\x50"), (b"\1\0", b"\1\x10")], negated=False, key_type=21)
    assert read(builder.block()) == [("lookup", [(1, b"__set0\0".hex()), (2, ONE), (5, ONE)]), ("lookup", [(1, b"__set1\0".hex()), (2, ONE), (5, "00000000")])]
    assert [(one.name, one.flags, one.key_type, one.key_length, keys_of(one.elements)) for one in builder.sets] == [
        ("__set0", 1 | 2, 13, 1, ["61", "63"]), ("__set1", 1 | 2 | 4, 21, 2, ["0000|", "0050", "0051|", "0100", "0111|"]),
    ], "NFT_SET_ANONYMOUS, _CONSTANT, _INTERVAL"  # fmt: skip


@pytest.mark.parametrize(
    ("ranges", "elements"),
    [
        ([(0, 0)], ["00", "01|"]), ([(5, 7)], ["00|", "05", "08|"]), ([(0, 255)], ["00"]), ([(255, 255)], ["00|", "ff"]), ([(1, 1)], ["00|", "01", "02|"]),
        ([(9, 9), (3, 4)], ["00|", "03", "05|", "09", "0a|"]), ([(3, 4), (5, 6)], ["00|", "03", "05", "07|"]), ([(0, 4), (6, 6)], ["00", "05|", "06", "07|"]),
        ([(0, 1), (254, 255)], ["00", "02|", "fe"]),
    ],
)  # fmt: skip
def test_intervals_begin_with_what_is_in_none_and_end_where_the_next_begins(ranges, elements):
    assert keys_of(intervals([(bytes((low,)), bytes((high,))) for low, high in ranges])) == elements


@pytest.mark.parametrize("key", [b"a", b"ab", b"abc", b"abcd", b"a" * 16, b"b" * 16])
def test_an_element_has_its_key_whatever_was_made_before(key):
    assert keys_of([element(key), element(key, ends=True), element(key)]) == [key.hex(), f"{key.hex()}|", key.hex()]


def test_a_number_has_32_bits_in_network_byte_order():
    assert (be32(1), be32(-3), be32(1 << 32)) == (b"\0\0\0\1", b"\xff\xff\xff\xfd", b"\0\0\0\0")
    assert read(expression(b"x", (1, -3), (2, 1 << 32))) == [("x", [(1, "fffffffd"), (2, "00000000")])]


# --- what the kernel chooses -----------------------------------------------------------------------------------------

ZEROES, COUNTED = (expression(b"counter", (1, count * 8), (2, count * 8)) for count in (b"\0", b"\7"))
OTHERS = [expression(b"meta", (2, 6), (1, 1)), expression(b"counters", (1, b"\7" * 8), (2, b"\7" * 8)), expression(b"lookups", (1, b"__set0\0"))]
NAMES = {b"__set0": b"__set1234", b"__set%d": b"s"}


def looked_up(name, *more):
    return expression(b"lookup", (1, name + b"\0"), (2, 1), *more)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("behind", [(), (5, 1)])
def test_counters_are_zero_and_sets_renamed_wherever_they_stand_and_all_else_stays(other, behind):
    more = [behind] if behind else []
    old = [other, COUNTED, looked_up(b"__set0", *more), other, COUNTED, COUNTED, looked_up(b"__set%d", *more), other]
    new = [other, ZEROES, looked_up(b"__set1234", *more), other, ZEROES, ZEROES, looked_up(b"s", *more), other]
    assert settle(b"".join(old), NAMES.__getitem__) == b"".join(new)
    assert settle(b"".join(old)) == b"".join([ZEROES if one is COUNTED else one for one in old]), "names stay without a function"


def test_a_set_that_has_a_name_of_its_own_keeps_it():
    named = looked_up(b"mine")
    assert settle(named, NAMES.__getitem__) == named


@pytest.mark.parametrize("broken", [b"", b"\7", b"\0" * 20, pack("=HH", 0, 1) + COUNTED[4:], pack("=HH", 24, 1) + COUNTED[4:24]])
def test_what_is_no_whole_expression_stays_as_it_is(broken):
    assert settle(broken, NAMES.__getitem__) == broken
    assert settle(COUNTED + broken) == ZEROES + broken


def test_behind_an_attribute_without_payload_there_may_be_more():
    assert settle(pack("=HH", 4, 1) + COUNTED) == pack("=HH", 4, 1) + ZEROES


def test_an_expression_that_was_made_before_is_not_made_again():
    builder = RuleBuilder(INET, [])
    for _ in range(2):
        builder.load("meta", 6)
        builder.compare(b"a value of its own")
    assert builder.parts[0] is builder.parts[2]
    assert builder.parts[1] is builder.parts[3]
