"""The structs of extensions as the kernel holds them: what each of their fields says, and which values nobody knows."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import FULL_MASK, IPV4, IPV6
from netinit.rules import structs
from netinit.rules.decoding.matches import decode_match
from netinit.rules.decoding.targets import decode_target
from netinit.rules.foreign_targets import Observe, Queue, UnknownTarget, Untrack
from netinit.rules.marking_targets import LogTarget, RestoreMark, SaveMark, SetMark, TrackZone
from netinit.rules.matches.context import (
    AddressType,
    ConnectionDirection,
    ConnectionState,
    Limit,
    Mark,
    Socket,
    TcpFlags,
)
from netinit.rules.matches.foreign import AddressRange, EitherPort, name_unread
from netinit.rules.matches.packet import Owner, Port


def tcp(sports=(0, 65535), dports=(0, 65535), option=0, mask=0, flags=0, inverted=0):
    return pack("=4H4B", *sports, *dports, option, mask, flags, inverted)


def multiport(side, ports, ranges=(), inverted=0, count=None):
    """struct xt_multiport_v1: side, count, 15 ports, whether each is the first of a range, and whether all is inverted."""
    numbers, flags = [*ports, *[0] * (15 - len(ports))], [int(at in ranges) for at in range(15)]
    return pack("=2B15H15BB", side, len(ports) if count is None else count, *numbers, *flags, inverted)


def iprange(*ends, flags):
    return b"".join([end.ljust(16, b"\0") for end in ends]) + pack("=B", flags)


def conntrack(asked, inverted, bits):
    return bytes(146) + pack("=3H", asked, inverted, bits)


NOTHING, LAST = bytes(4), bytes((10, 0, 0, 9))
FIRST = bytes((10, 0, 0, 1))
SPORT, DPORT = Port(protocol="tcp", ports=(80,), source=True), Port(protocol="tcp", ports=((80, 90),), source=False)
FIFTEEN = [60000 + at for at in range(15)]
STATES = {1: "INVALID", 8: "NEW", 4: "RELATED", 2: "ESTABLISHED", 256: "UNTRACKED", 64: "SNAT", 128: "DNAT"}


@pytest.mark.parametrize(
    ("name", "info", "matches"),
    [
        (("tcp", 0), tcp(), []), (("tcp", 0), tcp(sports=(80, 80)), [SPORT]), (("tcp", 0), tcp(dports=(80, 90)), [DPORT]),
        (("tcp", 0), tcp((80, 80), (80, 90), inverted=1), [SPORT.replace(negated=True), DPORT]),
        (("tcp", 0), tcp((80, 80), (80, 90), inverted=2), [SPORT, DPORT.replace(negated=True)]),
        (("tcp", 0), tcp(inverted=1), [Port(protocol="tcp", ports=((0, 65535),), source=True, negated=True)]),
        (("tcp", 0), tcp(mask=0x3F, flags=2), [TcpFlags.from_bits(0x3F, 2, negated=False)]),
        (("tcp", 0), tcp(mask=3, flags=3, inverted=4), [TcpFlags.from_bits(3, 3, negated=True)]),
        (("tcp", 0), tcp(inverted=4), None), (("tcp", 0), tcp(mask=3, flags=4), None), (("tcp", 0), tcp(mask=0x40), None), (("tcp", 0), tcp(option=2), None),
        (("tcp", 0), tcp(mask=1, inverted=8), None), (("tcp", 0), tcp((81, 80)), None), (("tcp", 0), tcp(dports=(81, 80)), None), (("tcp", 0), tcp()[:11], None),
        (("udp", 0), pack("=4HB", 0, 65535, 53, 53, 0), [Port(protocol="udp", ports=(53,), source=False)]), (("udp", 0), pack("=4HB", 0, 65535, 53, 53, 4), None),
        (("multiport", 1), multiport(0, [1, 2]), [Port(protocol="tcp", ports=(1, 2), source=True)]),
        (("multiport", 1), multiport(1, [1, 5, 7], ranges=[1], inverted=1), [Port(protocol="tcp", ports=(1, (5, 7)), source=False, negated=True)]),
        (("multiport", 1), multiport(2, FIFTEEN), [EitherPort(protocol="tcp", ports=tuple(FIFTEEN))]),
        (("multiport", 1), multiport(2, FIFTEEN, ranges=[13], inverted=1), [EitherPort(protocol="tcp", ports=(*FIFTEEN[:13], (60013, 60014)), negated=True)]),
        (("multiport", 1), multiport(1, [65535]), [Port(protocol="tcp", ports=(65535,), source=False)]),
        (("multiport", 1), multiport(3, [1]), None), (("multiport", 1), multiport(1, []), None), (("multiport", 1), multiport(1, FIFTEEN, count=16), None),
        (("multiport", 1), multiport(1, [1, 5], ranges=[1]), None), (("multiport", 1), multiport(1, [1])[:40], None),
        (("iprange", 1), iprange(FIRST, LAST, NOTHING, NOTHING, flags=1), [AddressRange(family=IPV4, first=0x0A000001, last=0x0A000009, source=True)]),
        (("iprange", 1), iprange(NOTHING, NOTHING, FIRST, FIRST, flags=0x22), [AddressRange(family=IPV4, first=0x0A000001, last=0x0A000001, source=False, negated=True)]),
        (
            ("iprange", 1), iprange(FIRST, LAST, FIRST, LAST, flags=0x13),
            [AddressRange(family=IPV4, first=0x0A000001, last=0x0A000009, source=one, negated=one) for one in (True, False)],
        ),
        (("iprange", 1), iprange(LAST, FIRST, NOTHING, NOTHING, flags=1), None), (("iprange", 1), iprange(FIRST, LAST, LAST, FIRST, flags=3), None),
        (("iprange", 1), iprange(FIRST, LAST, NOTHING, NOTHING, flags=0), None), (("iprange", 1), iprange(FIRST, LAST, NOTHING, NOTHING, flags=0x20), None),
        (("iprange", 1), iprange(FIRST, LAST, NOTHING, NOTHING, flags=5), None),
        (("owner", 1), pack("=4I2B", 5, 9, 0, 0, 1, 0), [Owner(kind="uid", first=5, last=9)]),
        (("owner", 1), pack("=4I2B", 5, 9, 7, 7, 3, 2), [Owner(kind="uid", first=5, last=9), Owner(kind="gid", first=7, last=7, negated=True)]),
        (("owner", 1), pack("=4I2B", 0, 0, 0, 0, 4, 4), [Owner(kind="uid", first=0, last=FULL_MASK, negated=True)]),
        (("owner", 1), pack("=4I2B", 0, 0, 7, 7, 6, 0), [Owner(kind="uid", first=0, last=FULL_MASK), Owner(kind="gid", first=7, last=7)]),
        (("owner", 1), pack("=4I2B", 5, 9, 0, 0, 8, 0), None), (("owner", 1), pack("=4I2B", 5, 9, 0, 0, 1, 2), None), (("owner", 1), pack("=4I2B", 5, 9, 0, 0, 0, 0), None),
        (("mark", 1), pack("=2IB", 1, 3, 0), [Mark(value=1, mask=3)]), (("mark", 1), pack("=2IB", 1, FULL_MASK, 1), [Mark(value=1, negated=True)]),
        (("connmark", 1), pack("=2IB", 1, 3, 0), [Mark(value=1, mask=3, connection=True)]),
        *[(("conntrack", 3), conntrack(1, 0, bit), [ConnectionState(states=(state,), module="conntrack")]) for bit, state in STATES.items()],
        (("conntrack", 2), conntrack(1, 1, 10), [ConnectionState(states=("NEW", "ESTABLISHED"), module="conntrack", negated=True)]),
        (("conntrack", 3), conntrack(1 | 1 << 13, 0, 8), [ConnectionState(states=("NEW",), module="state")]),
        (("conntrack", 3), conntrack(1 << 12, 0, 0), [ConnectionDirection(direction="ORIGINAL")]),
        (("conntrack", 3), conntrack(1 << 12, 1 << 12, 0), [ConnectionDirection(direction="REPLY")]),
        (("conntrack", 3), conntrack(1 << 12, 1, 0), None), (("conntrack", 3), conntrack(1, 0, 0), None), (("conntrack", 3), conntrack(1, 0, 16), None),
        (("conntrack", 3), conntrack(3, 0, 8), None), (("conntrack", 3), conntrack(1, 2, 8), None), (("conntrack", 3), conntrack(2, 0, 8), None),
        (("state", 0), pack("=I", 10), [ConnectionState(states=("NEW", "ESTABLISHED"), module="state")]), (("state", 0), pack("=I", 0), None), (("state", 0), pack("=I", 16), None),
        (("socket", 0), b"", [Socket()]), (("socket", 3), bytes(8), [Socket()]), (("socket", 2), b"\1" + bytes(7), None), (("socket", 1), b"\2", None),
        (("addrtype", 1), pack("=2HI", 0, 4, 0), [AddressType(side="destination", types=("LOCAL",))]),
        (("addrtype", 1), pack("=2HI", 6, 8, 1), [AddressType(side="source", types=("UNICAST", "LOCAL"), negated=True), AddressType(side="destination", types=("BROADCAST",))]),
        (("addrtype", 1), pack("=2HI", 0, 1 << 11, 2), [AddressType(side="destination", types=("XRESOLVE",), negated=True)]),
        (("addrtype", 1), pack("=2HI", 0, 1 << 12, 0), None), (("addrtype", 1), pack("=2HI", 0, 4, 4), None), (("addrtype", 1), pack("=2HI", 0, 0, 0), None),
        (("limit", 0), pack("=2I", 2000, 7), [Limit(rate=5, burst=7)]), (("limit", 0), pack("=2I", 10000, 5), [Limit(rate=1, burst=5)]), (("limit", 0), pack("=2I", 1, 5), [Limit(rate=10000, burst=5)]),
        (("limit", 0), pack("=2I", 0, 5), None), (("limit", 0), pack("=2I", 10001, 5), None), (("limit", 0), pack("=2I", 600000, 5), None),
        (("newer", 0), b"", None), (("mark", 9), pack("=2IB", 1, 3, 0), None),
    ],
)  # fmt: skip
def test_a_struct_is_the_match_that_it_says_or_one_that_is_not_known(name, info, matches):
    found, comment = decode_match(*name, info, "tcp", IPV4)
    assert (found, comment) == ([name_unread(f"-m {name[0]}", (*name, info))] if matches is None else matches, "")


def test_ports_are_of_a_protocol_with_ports_and_a_comment_is_no_match():
    for protocol, known in (("udp", True), ("sctp", False), ("", False)):
        (found,) = decode_match("multiport", 1, multiport(1, [1]), protocol, IPV4)[0]
        assert isinstance(found, Port) is known
    assert decode_match("comment", 0, b"why not\0rest", "", IPV4) == ([], "why not")


@pytest.mark.parametrize(
    ("match", "values"),
    [
        (Owner(kind="uid", first=5, last=9), (5, 9, 0, 0, 1, 0)), (Owner(kind="gid", first=5, last=9, negated=True), (0, 0, 5, 9, 2, 2)),
        (Owner(kind="uid", first=0, last=FULL_MASK), (0, 0, 0, 0, 4, 0)),
    ],
)  # fmt: skip
def test_an_owner_s_struct_is_empty_where_it_asks_for_nothing_since_iptables_compares_all_its_bytes(match, values):
    assert match.struct() == ("owner", 1, pack("=4I2B", *values).ljust(24, b"\0"))


ZONE = "=2H2I"


@pytest.mark.parametrize(
    ("name", "info", "target"),
    [
        (("MARK", 2), pack("=2I", 7, 0xFF), SetMark(value=7, mask=0xFF)), (("MARK", 1), pack("=2I", 7, 0xFF), None), (("MARK", 2), pack("=I", 7), None),
        (("CONNMARK", 1), pack("=3IB", 7, 0xFF, 0xF0, 0), SetMark(value=7, mask=0xFF, connection=True)),
        (("CONNMARK", 1), pack("=3IB", 7, 0xFF, 0xF0, 1), SaveMark(nfmask=0xF0, ctmask=0xFF)), (("CONNMARK", 1), pack("=3IB", 7, 0xFF, 0xF0, 2), RestoreMark(nfmask=0xF0, ctmask=0xFF)),
        (("CONNMARK", 1), pack("=3IB", 7, 0xFF, 0xF0, 3), None), (("CONNMARK", 2), pack("=3I3B", 7, 0xFF, 0xF0, 0, 0, 0), SetMark(value=7, mask=0xFF, connection=True)),
        (("CONNMARK", 2), pack("=3I3B", 7, 0xFF, 0xF0, 1, 0, 1), SaveMark(nfmask=0xF0, ctmask=0xFF)), (("CONNMARK", 2), pack("=3I3B", 7, 0xFF, 0xF0, 0, 4, 0), None),
        (("CONNMARK", 2), pack("=3I3B", 7, 0xFF, 0xF0, 0, 4, 2), None),
        (("CT", 2), pack(ZONE, 1, 0, 0, 0) + bytes(60), Untrack()), (("CT", 1), pack(ZONE, 0, 5, 0, 0) + bytes(60), TrackZone(zone=5, side="")),
        (("CT", 2), pack(ZONE, 4, 5, 0, 0) + bytes(60), TrackZone(zone=5, side="orig")), (("CT", 2), pack(ZONE, 8, 5, 0, 0) + bytes(60), TrackZone(zone=5, side="reply")),
        (("CT", 0), pack(ZONE, 0, 5, 0, 0) + bytes(16) + b"\1" * 12, TrackZone(zone=5, side="")), (("CT", 0), pack(ZONE, 0, 5, 0, 0) + b"\1" + bytes(27), None),
        (("CT", 2), pack(ZONE, 2, 5, 0, 0) + bytes(60), None), (("CT", 2), pack(ZONE, 0, 5, 1, 0) + bytes(60), None), (("CT", 2), pack(ZONE, 0, 5, 0, 1) + bytes(60), None),
        (("CT", 2), pack(ZONE, 0, 0, 0, 0) + b"ftp".ljust(60, b"\0"), Observe(text="CT --helper ftp", is_of_ct=True)), (("CT", 2), pack(ZONE, 16, 0, 0, 0) + b"ftp".ljust(60, b"\0"), None),
        (("CT", 1), pack(ZONE, 0, 0, 3, 1) + bytes(16) + b"slow".ljust(44, b"\0"), Observe(text="CT --timeout slow --ctevents 3 --expevents 1", is_of_ct=True)),
        (("CT", 2), pack(ZONE, 0, 5, 0, 0) + b"ftp".ljust(60, b"\0"), None), (("CT", 2), pack(ZONE, 0, 5, 0, 0) + bytes(16) + b"timeout".ljust(44, b"\0"), None),
        (("LOG", 0), pack("=2B30s", 4, 0, b"x: "), LogTarget(prefix="x: ")), (("LOG", 0), pack("=2B30s", 5, 0, b"x"), Observe(text="LOG")), (("LOG", 0), pack("=2B30s", 4, 1, b"x"), Observe(text="LOG")),
        (("LOG", 0), pack("=2B30s", 4, 0, b""), Observe(text="LOG")),
        (("NFLOG", 0), pack("=I4H64s", 0, 3, 1, 0, 0, b"x"), LogTarget(prefix="x", group=3)), (("NFLOG", 0), pack("=I4H64s", 0, 3, 0, 0, 0, b"x"), LogTarget(prefix="x", group=3)),
        (("NFLOG", 0), pack("=I4H64s", 9, 3, 1, 0, 0, b"x"), Observe(text="NFLOG")), (("NFLOG", 0), pack("=I4H64s", 0, 0, 1, 0, 0, b"x"), Observe(text="NFLOG")),
        (("NFQUEUE", 0), pack("=H", 3), Queue(text="NFQUEUE --queue-num 3")), (("NFQUEUE", 1), pack("=2H", 0, 1), Queue(text="NFQUEUE --queue-num 0")),
        (("NFQUEUE", 3), pack("=3H", 3, 4, 3), Queue(text="NFQUEUE --queue-balance 3:6 --queue-bypass --queue-cpu-fanout")), (("NFQUEUE", 3), pack("=3H", 3, 2, 1), Queue(text="NFQUEUE --queue-balance 3:4 --queue-bypass")),
        (("NFLOG", 0), pack("=I4H64s", 0, 3, 2, 0, 0, b"x"), Observe(text="NFLOG")), (("NFLOG", 0), pack("=I4H64s", 0, 3, 1, 1, 0, b"x"), Observe(text="NFLOG")),
        (("NFLOG", 0), pack("=I4H64s", 0, 3, 1, 0, 0, b""), Observe(text="NFLOG")), (("TEE", 1), b"", Observe(text="TEE", copies=True)), (("newer", 0), b"", None),
    ],
)  # fmt: skip
def test_a_struct_is_the_target_that_it_says_or_one_that_is_not_known(name, info, target):
    for family in (IPV4, IPV6):
        assert decode_target(*name, info, family) == (target or UnknownTarget(text=name[0]))


@pytest.mark.parametrize(("source", "negated", "text"), [(True, False, "--src-range"), (False, True, "! --dst-range")])
def test_a_range_of_addresses_is_written_as_iptables_lists_it(source, negated, text):
    match = AddressRange(family=IPV4, first=0x0A000001, last=0x0A000009, source=source, negated=negated)
    assert match.xt() == f"-m iprange {text} 10.0.0.1-10.0.0.9"


WHOLE = {**{key: {IPV4: size, IPV6: size} for key, size in structs.SIZES.items()}, ("REDIRECT", 0): {IPV4: 24, IPV6: 40}, ("NETMAP", 0): {IPV4: 24, IPV6: 40}}


@pytest.mark.parametrize("family", [IPV4, IPV6], ids=str)
def test_a_struct_has_its_whole_size_and_that_of_nat_an_older_form_for_ipv4(family):
    assert {key: structs.pad(*key, b"\1\2", family) for key in WHOLE} == {key: (*key, b"\1\2".ljust(sizes[family], b"\0")) for key, sizes in WHOLE.items()}
    assert structs.pad("REDIRECT", 0, b"") == ("REDIRECT", 0, bytes(24))
    with pytest.raises(KeyError):
        structs.pad("MARK", 1, b"", family)


def test_marks_comments_and_questions_about_connections_stand_where_the_kernel_reads_them():
    assert structs.pad_connmark(1) == ("CONNMARK", 2, pack("=3I3B", 0, FULL_MASK, FULL_MASK, 0, 0, 1).ljust(16, b"\0"))
    assert structs.pad_connmark(2, 3, 4, 5) == ("CONNMARK", 2, pack("=3I3B", 3, 4, 5, 0, 0, 2).ljust(16, b"\0"))
    assert structs.pad_comment("a\udcffé") == ("comment", 0, b"a\xff\xc3\xa9".ljust(256, b"\0"))
    assert structs.pad_conntrack(1, 2, 3) == ("conntrack", 3, (bytes(146) + pack("=3H", 1, 2, 3)).ljust(168, b"\0"))


def test_a_protocol_has_its_number_and_its_name_or_a_number_for_a_name():
    assert [structs.protocol_name(number) for number in (6, 17, 58, 143, 0)] == ["tcp", "udp", "ipv6-icmp", "143", "0"]
    assert [structs.protocol_number(name) for name in ("tcp", "udp", "ipv6-icmp", "143", "0")] == [6, 17, 58, 143, 0]
    with pytest.raises(ValueError, match="invalid literal"):
        structs.protocol_number("hopopt")
