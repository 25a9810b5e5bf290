"""Matches on marks, connections, types of addresses, sockets and rates: what their options, structs and comparisons mean."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import FULL_MASK, IPV4, IPV6, Network
from netinit.base.snapshot import IP
from netinit.rules.decoding.matches import decode_match, read_module
from netinit.rules.matches.context import AddressType, ConnectionDirection, ConnectionState, Limit, Mark, Socket
from netinit.rules.matches.foreign import OriginalEnd, Undecided, name_unread
from netinit.rules.structs import ADDRESS_TYPES
from nft_expressions import ACCEPTS, CT_MARK, MARK, decode, equals, fields_of, holds, looks_up, mask, read, spans

STATE, STATUS, DIRECTION = ("ct", (1, 1), (2, 0)), ("ct", (1, 1), (2, 2)), ("ct", (1, 1), (2, 1))
SOURCE_TYPE, TARGET_TYPE, OTHER_TYPE = (("fib", (1, 1), (2, 3), (3, flags)) for flags in (1, 2, 4))
ZERO, ONE, TWO, FOUR, SIX, EIGHT = (pack("=I", number) for number in (0, 1, 2, 4, 6, 8))
SWAP = ("byteorder", (1, 1), (2, 1), (3, 1), (4, 4), (5, 4))


def of(*texts):
    return tuple(map(Network.parse, texts))


@pytest.mark.parametrize(
    ("module", "words", "matches"),
    [
        ("mark", "--mark 0x5/0x7", [Mark(value=5, mask=7)]), ("mark", "! --mark 5", [Mark(value=5, negated=True)]), ("mark", "--mark", None), ("mark", "--mark 5 --mark 6", [Mark(value=5), Mark(value=6)]), ("mark", "", None), ("mark", "!", None), ("mark", "5", None),
        ("connmark", "! --mark 5/6", [Mark(value=5, mask=6, connection=True, negated=True)]), ("connmark", "--mark 1 2", None),
        ("conntrack", "--ctstate ESTABLISHED,NEW", [ConnectionState(states=("NEW", "ESTABLISHED"))]), ("conntrack", "! --ctstate INVALID", [ConnectionState(states=("INVALID",), negated=True)]), ("conntrack", "--ctstate", None), ("conntrack", "--ctstate NEW,", None), ("conntrack", "--ctstate NEW OLD", None),
        ("state", "--state RELATED", [ConnectionState(states=("RELATED",), module="state")]), ("state", "--ctstate RELATED", None),
        *[("conntrack", f"--ctstate {one}", [ConnectionState(states=(one,))]) for one in ("INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT")],
        ("conntrack", "--ctdir ORIGINAL", [ConnectionDirection(direction="ORIGINAL")]), ("conntrack", "--ctdir REPLY", [ConnectionDirection(direction="REPLY")]), ("conntrack", "! --ctdir REPLY", None), ("conntrack", "--ctdir OTHER", None), ("conntrack", "--ctdir ORIGINAL REPLY", None), ("conntrack", "--ctdir", None),
        ("conntrack", "--ctstate NEW --ctdir REPLY", [ConnectionState(states=("NEW",)), ConnectionDirection(direction="REPLY")]), ("conntrack", "--ctdir REPLY ! --ctstate NEW", [ConnectionState(states=("NEW",), negated=True), ConnectionDirection(direction="REPLY")]), ("conntrack", "--ctproto 6", None), ("conntrack", "--ctstate NEW --ctproto 6", None),
        ("conntrack", "--ctorigsrc 10.0.0.0/8", [OriginalEnd(source=True, networks=of("10.0.0.0/8"))]), ("conntrack", "--ctorigsrc 10.0.0.1", [OriginalEnd(source=True, networks=of("10.0.0.1/32"))]), ("conntrack", "! --ctorigdst fd00::1", [OriginalEnd(networks=of("fd00::1/128"), negated=True)]),
        ("conntrack", "--ctorigdst fd00::/8", [OriginalEnd(networks=of("fd00::/8"))]), ("conntrack", "--ctorigdst ::1", [OriginalEnd(networks=of("::1/128"))]), ("conntrack", "--ctorigdst 10.0.0.0/255.255.0.0", [OriginalEnd(networks=of("10.0.0.0/16"))]), ("conntrack", "--ctorigdst 10.0.0.0/33", None), ("conntrack", "--ctorigdst db.example", None),
        ("conntrack", "--ctorigdst 10.0.0.1 10.0.0.2", None), ("conntrack", "--ctorigdst", None), ("conntrack", "--ctorigsrcport 80", [OriginalEnd(source=True, ports=((80, 80),))]), ("conntrack", "! --ctorigdstport 80:90", [OriginalEnd(ports=((80, 90),), negated=True)]), ("conntrack", "--ctorigdstport x", None), ("conntrack", "--ctorigdstport 80:x", None), ("conntrack", "--ctorigdstport x:80", None),
        ("addrtype", "--src-type LOCAL,UNICAST", [AddressType(side="source", types=("LOCAL", "UNICAST"))]), ("addrtype", "! --dst-type LOCAL", [AddressType(side="destination", types=("LOCAL",), negated=True)]), ("addrtype", "--dst-type LOCAL --src-type UNICAST", [AddressType(side="source", types=("UNICAST",)), AddressType(side="destination", types=("LOCAL",))]),
        ("addrtype", "--src-type", None), ("addrtype", "--src-type A B", None), ("addrtype", "--dst-type LOCAL --limit-iface-in", None), ("addrtype", "--limit-iface-out --src-type LOCAL", None),
        ("limit", "--limit 5/sec --limit-burst 7", [Limit(rate=5, burst=7)]), ("limit", "--limit 5/second --limit-burst 7", None), ("limit", "--limit 5/sec/sec --limit-burst 7", None), ("limit", "--limit 5/min --limit-burst 7", None), ("limit", "--limit 5 --limit-burst 7", None), ("limit", "--limit 0/sec --limit-burst 7", None), ("limit", "--limit 5/sec --limit-burst 0", None), ("limit", "--limit x/sec --limit-burst 7", None),
        ("limit", "--limit 5/sec --limit-burst x", None), ("limit", "--limit 5/sec", None), ("limit", "--limit-burst 7 --limit 5/sec", None), ("limit", "--limit 5/sec --burst 7", None), ("limit", "! --limit 5/sec --limit-burst", None), ("limit", "--limit 5/sec --limit-burst 7 --x", None), ("limit", "", None),
        ("socket", "", [Socket()]), ("socket", "--transparent", None), ("socket", "--nowildcard", None), ("newer", "--mark 5", None), ("comment", "--comment x", None),
    ],
)  # fmt: skip
def test_options_about_a_packet_s_connection_are_read_whole_or_not_at_all(module, words, matches):
    found = read_module(module, words.split(), "tcp")
    assert (found and list(map(fields_of, found))) == (matches and list(map(fields_of, matches)))


def ends(asked, inverted=0, bits=0, *, source=b"", source_mask=b"", destination=b"", destination_mask=b"", ports=(0, 0), last=(0, 0)):
    """struct xt_conntrack_mtinfo3: the ends of the first packet, what is asked, what of it is inverted, and states."""
    addresses = b"".join([one.ljust(16, b"\0") for one in (source, source_mask, destination, destination_mask)])
    return addresses.ljust(138, b"\0") + pack("=2H", *ports) + bytes(4) + pack("=3H", asked, inverted, bits) + bytes(2) + pack("=2H", *last) + bytes(10)


HOST, NET, BITS, ALL = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 0)), b"\xff\0\0\0", b"\xff" * 4
NEW = ConnectionState(states=("NEW",))


@pytest.mark.parametrize(
    ("info", "matches"),
    [
        (ends(4, source=HOST, source_mask=ALL), [OriginalEnd(source=True, networks=of("10.0.0.1/32"))]), (ends(8, 8, destination=NET, destination_mask=BITS), [OriginalEnd(networks=of("10.0.0.0/8"), negated=True)]), (ends(4, 4, source=NET, source_mask=BITS), [OriginalEnd(source=True, networks=of("10.0.0.0/8"), negated=True)]),
        (ends(12, 4, source=HOST, source_mask=ALL, destination=NET, destination_mask=BITS), [OriginalEnd(source=True, networks=of("10.0.0.1/32"), negated=True), OriginalEnd(networks=of("10.0.0.0/8"))]), (ends(4, source=HOST, source_mask=b"\xff\0\xff\0"), None), (ends(4), [OriginalEnd(source=True, networks=of("0.0.0.0/0"))]),
        (ends(256, ports=(80, 9), last=(90, 9)), [OriginalEnd(source=True, ports=((80, 90),))]), (ends(512, 512, ports=(9, 80), last=(9, 80)), [OriginalEnd(ports=((80, 80),), negated=True)]), (ends(768, 256, ports=(1, 2), last=(3, 4)), [OriginalEnd(source=True, ports=((1, 3),), negated=True), OriginalEnd(ports=((2, 4),))]),
        (ends(768, ports=(40000, 50000), last=(60000, 65535)), [OriginalEnd(source=True, ports=((40000, 60000),)), OriginalEnd(ports=((50000, 65535),))]),
        (ends(256, ports=(80, 9), last=(90, 9))[:156], [OriginalEnd(source=True, ports=((80, 90),))]), (ends(256, ports=(80, 9), last=(90, 9))[:155], None), (ends(512, ports=(9, 80), last=(9, 90))[:158], [OriginalEnd(ports=((80, 90),))]), (ends(512, ports=(9, 80), last=(9, 90))[:157], None), (ends(512)[:152], None),
        (ends(1 | 1 << 12, 1 << 12, 8), [NEW, ConnectionDirection(direction="REPLY")]), (ends(1 | 1 << 12, 1, 8), [NEW.replace(negated=True), ConnectionDirection(direction="ORIGINAL")]), (ends(1 | 1 << 13, 1, 8), [NEW.replace(module="state", negated=True)]), (ends(1 << 13, 0, 8), None), (ends(1 << 12 | 1 << 13), None),
        (ends(1, 0, 8 | 512), None), (ends(1, 0, 32), None), (ends(1, 0, 0), None), (ends(0), None), (ends(1 | 16, 0, 8), None), (ends(1, 3, 8), None), (ends(1, 1 << 12, 8), None), (ends(1, 0, 8)[:151], None), (ends(1, 0, 8)[:152], [NEW]),
        (ends(5, 5, 2, source=HOST, source_mask=ALL), [ConnectionState(states=("ESTABLISHED",), negated=True), OriginalEnd(source=True, networks=of("10.0.0.1/32"), negated=True)]),
    ],
)  # fmt: skip
def test_what_a_struct_asks_of_a_connection_is_read_whole_or_not_at_all(info, matches):
    found, comment = decode_match("conntrack", 3, info, "", IPV4)
    assert (list(map(fields_of, found)), comment) == ([fields_of(one) for one in matches or [name_unread("-m conntrack", ("conntrack", 3, info))]], "")
    assert (decode_match("conntrack", 1, info, "", IPV4)[0] == found) is (matches is None)


def test_the_first_packet_s_addresses_of_ipv6_have_sixteen_bytes_and_those_of_no_family_are_unknown():
    info = ends(8, destination=b"\xfd" + bytes(15), destination_mask=b"\xff" * 8)
    assert decode_match("conntrack", 3, info, "", IPV6)[0] == [OriginalEnd(networks=of("fd00::/64"))]
    assert isinstance(decode_match("conntrack", 3, info, "", None)[0][0], Undecided)
    assert decode_match("conntrack", 3, ends(1, 0, 8), "", None)[0] == [NEW]


def limit(period):
    return pack("=2I", period, 7)


@pytest.mark.parametrize(
    ("name", "info", "matches"),
    [
        (("limit", 0), limit(10000), [Limit(rate=1, burst=7)]), (("limit", 0), limit(5000), [Limit(rate=2, burst=7)]), (("limit", 0), limit(3333), [Limit(rate=3, burst=7)]), (("limit", 0), limit(100), [Limit(rate=100, burst=7)]), (("limit", 0), limit(9999), [Limit(rate=1, burst=7)]), (("limit", 0), limit(9998), None), (("limit", 0), limit(1), [Limit(rate=10000, burst=7)]), (("limit", 0), limit(0), None), (("limit", 0), limit(10001), None), (("limit", 0), limit(20000), None),
        # what iptables lists in another unit since it is exact there: 7 a minute is no whole number a second
        (("limit", 0), limit(600000), None), (("limit", 0), limit(6001), None), (("limit", 0), limit(10000)[:7], None),
        (("mark", 1), pack("=2IB", 0xFFFFFFFF, 0, 0), [Mark(value=0xFFFFFFFF, mask=0)]), (("mark", 1), pack("=2IB", 1, 3, 9), [Mark(value=1, mask=3, negated=True)]), (("connmark", 1), pack("=2IB", 1, 3, 1), [Mark(value=1, mask=3, connection=True, negated=True)]), (("connmark", 1), pack("=2I", 1, 3), None),
        (("state", 0), pack("=I", 1 | 64), [ConnectionState(states=("INVALID", "UNTRACKED"), module="state")]), (("state", 0), pack("=I", 8 | 32), None), (("state", 0), bytes(3), None),
        *[(("addrtype", 1), pack("=2HI", 1 << at, 0, 0), [AddressType(side="source", types=(one,))]) for at, one in enumerate(ADDRESS_TYPES)],
        (("addrtype", 1), pack("=2HI", 4, 4, 3), [AddressType(side=side, types=("LOCAL",), negated=True) for side in ("source", "destination")]), (("addrtype", 1), pack("=2HI", 4, 0, 2), [AddressType(side="source", types=("LOCAL",))]), (("addrtype", 1), pack("=2HI", 1 << 12, 4, 0), None), (("addrtype", 1), pack("=2HI", 4, 0, 8), None),
        (("addrtype", 0), pack("=2HI", 4, 0, 0), None), (("socket", 0), b"\1", [Socket()]), (("socket", 1), b"\0", [Socket()]), (("socket", 1), b"", [Socket()]), (("socket", 3), b"\4", None), (("socket", 4), b"\0", None), (("socket", 2), b"\0\1", [Socket()]),
    ],
)  # fmt: skip
def test_a_struct_about_a_packet_s_surroundings_is_read_whole_or_not_at_all(name, info, matches):
    found, _ = decode_match(*name, info, "", IPV4)
    assert list(map(fields_of, found)) == [fields_of(one) for one in matches or [name_unread(f"-m {name[0]}", (*name, info))]]


@pytest.mark.parametrize("name", ["ttl", "hl"])
@pytest.mark.parametrize(("mode", "option"), [(0, "--{}-eq"), (1, "! --{}-eq"), (2, "--{}-lt"), (3, "--{}-gt"), (4, None)])
def test_a_lifetime_that_is_compared_is_named_as_iptables_lists_it(name, mode, option):
    (found,), _ = decode_match(name, 0, bytes((mode, 200)), "", IPV4)
    assert found.text == (f"-m {name} {option.format(name)} 200" if option else f"-m {name}")
    assert found.kept == (name, 0, bytes((mode, 200)))


@pytest.mark.parametrize(
    ("parts", "listed"),
    [
        ((MARK, mask(b"\xff" * 4), equals(ONE)), "-m mark --mark 0x1"), ((MARK, mask(ZERO), equals(ZERO)), "-m mark --mark 0x0/0x0"), ((CT_MARK, mask(SIX), equals(FOUR, 1)), "-m connmark ! --mark 0x4/0x6"), ((MARK, SWAP, equals(b"\0\0\1\2")), "-m mark --mark 0x102"), ((MARK, equals(pack("=I", 0x0102))), "-m mark --mark 0x102"),
        ((MARK, mask(SIX, FOUR), equals(FOUR)), f"[meta 3 & {SIX.hex()} == {FOUR.hex()}]"), ((CT_MARK, mask(SIX, FOUR), equals(FOUR)), f"[ct 3 & {SIX.hex()} == {FOUR.hex()}]"), ((MARK, spans(ONE, TWO)), f"[meta 3 == {ONE.hex()}-{TWO.hex()}]"),
        # states: one of those under a mask is set, or the state is the one that is named
        ((STATE, equals(TWO)), "-m conntrack --ctstate ESTABLISHED"), ((STATE, equals(TWO, 1)), "-m conntrack ! --ctstate ESTABLISHED"), ((STATE, mask(SIX), equals(ZERO, 1)), "-m conntrack --ctstate RELATED,ESTABLISHED"), ((STATE, mask(SIX), equals(ZERO)), "-m conntrack ! --ctstate RELATED,ESTABLISHED"),
        ((STATE, mask(TWO), equals(TWO)), f"[ct 0 & {TWO.hex()} == {TWO.hex()}]"), ((STATE, mask(SIX, TWO), equals(ZERO, 1)), f"[ct 0 & {SIX.hex()} != {ZERO.hex()}]"), ((STATE, SWAP, equals(b"\0\0\0\2")), "-m conntrack --ctstate ESTABLISHED"), ((STATE, SWAP, equals(TWO)), f"[ct 0 == {TWO.hex()}]"), ((STATE, mask(SIX), SWAP, equals(ZERO)), f"[other byteorder == {ZERO.hex()}]"), ((STATE, SWAP, mask(b"\0\0\0\6"), equals(ZERO)), f"[ct 0 & 00000006 == {ZERO.hex()}]"), ((STATE, mask(SIX), spans(ZERO, ONE)), f"[ct 0 & {SIX.hex()} == {ZERO.hex()}-{ONE.hex()}]"), ((STATE, mask(ZERO), equals(ZERO)), f"[ct 0 & {ZERO.hex()} == {ZERO.hex()}]"), ((STATE, spans(ONE, TWO)), f"[ct 0 == {ONE.hex()}-{TWO.hex()}]"), ((STATE, equals(ZERO)), f"[ct 0 == {ZERO.hex()}]"), ((STATE, equals(SIX)), f"[ct 0 == {SIX.hex()}]"),
        ((STATE, equals(pack("=I", 64))), "-m conntrack --ctstate UNTRACKED"), ((STATE, equals(pack("=I", 16))), f"[ct 0 == {pack('=I', 16).hex()}]"), ((STATE, mask(pack("=I", 24)), equals(ZERO, 1)), f"[ct 0 & {pack('=I', 24).hex()} != {ZERO.hex()}]"), ((STATE, equals(EIGHT)), "-m conntrack --ctstate NEW"), ((STATE, equals(ONE)), "-m conntrack --ctstate INVALID"),
        ((STATUS, mask(pack("=I", 0x20)), equals(ZERO, 1)), "-m conntrack --ctstate DNAT"), ((STATUS, mask(pack("=I", 0x30)), equals(ZERO)), "-m conntrack ! --ctstate SNAT,DNAT"), ((STATUS, mask(pack("=I", 0x10)), equals(ZERO, 1)), "-m conntrack --ctstate SNAT"), ((STATUS, equals(pack("=I", 0x20))), f"[ct 2 == {pack('=I', 0x20).hex()}]"), ((STATUS, mask(pack("=I", 0x8)), equals(ZERO, 1)), f"[ct 2 & {EIGHT.hex()} != {ZERO.hex()}]"),
        ((DIRECTION, equals(b"\0")), "-m conntrack --ctdir ORIGINAL"), ((DIRECTION, equals(b"\1")), "-m conntrack --ctdir REPLY"), ((DIRECTION, equals(b"\1", 1)), "[ct 1 != 01]"), ((DIRECTION, equals(b"\2")), "[ct 1 == 02]"), ((DIRECTION, mask(b"\1"), equals(b"\1")), "[ct 1 & 01 == 01]"), ((DIRECTION, spans(b"\0", b"\1")), "[ct 1 == 00-01]"), ((DIRECTION, equals(b"\0\0")), "[ct 1 == 0000]"),
        *[((SOURCE_TYPE, equals(pack("=I", at))), f"-m addrtype --src-type {one}") for at, one in enumerate(ADDRESS_TYPES)],
        ((TARGET_TYPE, equals(TWO, 1)), "-m addrtype ! --dst-type LOCAL"), ((OTHER_TYPE, equals(TWO)), f"[fib 3 4 == {TWO.hex()}]"), ((("fib", (1, 1), (2, 1), (3, 2)), equals(TWO)), f"[fib 1 2 == {TWO.hex()}]"), ((TARGET_TYPE, equals(pack("=I", 12))), f"[fib 3 2 == {pack('=I', 12).hex()}]"), ((TARGET_TYPE, mask(TWO), equals(TWO)), f"[fib 3 2 & {TWO.hex()} == {TWO.hex()}]"), ((TARGET_TYPE, spans(ONE, TWO)), f"[fib 3 2 == {ONE.hex()}-{TWO.hex()}]"),
        ((("socket", (1, 0), (2, 1)), equals(b"\1")), "[socket 0 == 01]"),
    ],
    ids=str,
)  # fmt: skip
def test_a_comparison_about_a_packet_s_surroundings_is_what_iptables_has_for_it(parts, listed):
    assert read(*parts, ACCEPTS, family=IP) == [f"{listed} -j ACCEPT"]


@pytest.mark.parametrize(
    ("load", "keys", "listed"),
    [
        ((STATE,), (TWO, FOUR), "-m conntrack --ctstate RELATED,ESTABLISHED"), ((STATE,), (ONE, EIGHT, pack("=I", 64)), "-m conntrack --ctstate INVALID,NEW,UNTRACKED"), ((STATE,), (TWO, SIX), None), ((STATE,), (TWO, pack("=I", 16)), None), ((STATUS,), (pack("=I", 0x10), pack("=I", 0x20)), None),
        ((TARGET_TYPE,), (ONE, TWO), "-m addrtype --dst-type UNICAST,LOCAL"), ((SOURCE_TYPE,), (TWO, pack("=I", 11)), "-m addrtype --src-type LOCAL,XRESOLVE"), ((DIRECTION,), (b"\0", b"\1"), None),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("negated", [False, True])
def test_several_states_or_types_in_a_set_are_one_match(load, keys, listed, negated):
    (found,) = read(*load, looks_up("s", (5, negated)), sets=(holds(*keys),))
    if listed:
        assert found == (listed.replace(" --", " ! --") if negated else listed)
    else:
        assert keys[0].hex() in found


def test_a_mark_without_a_mask_is_the_whole_mark():
    assert fields_of(read_module("mark", ["--mark", "5"], "")[0]) == ("Mark", {"value": 5, "mask": FULL_MASK, "connection": False, "negated": False})


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ((STATE, equals(TWO)), ConnectionState(states=("ESTABLISHED",), module="conntrack")), ((STATUS, mask(pack("=I", 0x20)), equals(ZERO, 1)), ConnectionState(states=("DNAT",), module="conntrack")), ((DIRECTION, equals(b"\1")), ConnectionDirection(direction="REPLY")), ((SOURCE_TYPE, equals(TWO)), AddressType(side="source", types=("LOCAL",))), ((TARGET_TYPE, equals(TWO, 1)), AddressType(side="destination", types=("LOCAL",), negated=True)),
        ((CT_MARK, equals(TWO)), Mark(value=2, connection=True)),
    ],
    ids=str,
)  # fmt: skip
def test_a_comparison_has_all_that_the_options_of_iptables_give_a_match(parts, match):
    assert list(map(fields_of, decode(*parts).rules[0].matches)) == [fields_of(match)]
