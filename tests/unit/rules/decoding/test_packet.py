"""Matches on addresses, interfaces, protocols, ports and owners: what their options, structs and comparisons mean."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import FULL_MASK, IPV4, IPV6
from netinit.base.snapshot import INET, IP, IP6
from netinit.rules.decoding import packet
from netinit.rules.decoding.matches import decode_match, read_module
from netinit.rules.decoding.packet import list_users
from netinit.rules.matches.context import Mark, TcpFlags
from netinit.rules.matches.foreign import AddressRange, EitherPort, name_unread
from netinit.rules.matches.packet import Owner, Port
from nft_expressions import (
    ACCEPTS,
    DPORT,
    PROTOCOL,
    SPORT,
    TCP,
    UDP,
    equals,
    fields_of,
    holds,
    loads,
    looks_up,
    mask,
    read,
    spans,
)

ANY_USER = Owner(kind="uid", first=0, last=FULL_MASK)
SYN = TcpFlags(mask=("FIN", "SYN", "RST", "ACK"), flags=("SYN",))
ALL_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG")


def port(*ports, protocol="tcp", source=False, negated=False):
    return Port(protocol=protocol, ports=ports, source=source, negated=negated)


def addresses(first, last, family=IPV4, *, source=False, negated=False):
    return AddressRange(family=family, first=first, last=last, source=source, negated=negated)


@pytest.mark.parametrize(
    ("module", "words", "matches"),
    [
        ("tcp", "--dport 80", [port(80)]), ("tcp", "--destination-port 80:90", [port((80, 90))]), ("tcp", "! --sport 0", [port(0, source=True, negated=True)]), ("tcp", "--source-port 65535", [port(65535, source=True)]), ("tcp", "--dport :", [port((0, 65535))]), ("tcp", "--dport :80", [port((0, 80))]), ("tcp", "--dport 80:", [port((80, 65535))]),
        ("tcp", "--dport", None), ("tcp", "--dport 80 90", None), ("tcp", "--dport 80,90", None), ("tcp", "--dport 65536", None), ("tcp", "--dport 0:65536", None), ("tcp", "--dport 9:8", None), ("tcp", "--dport x", None), ("tcp", "--dport 1:x", None), ("tcp", "--dport x:1", None), ("tcp", "80", None), ("tcp", "", None),
        ("udp", "--dport 53 --sport 54", [port(54, source=True), port(53)]), ("udp", "--syn", None), ("tcp", "--sport 1 --dport 2 --syn", [port(1, source=True), port(2), SYN]), ("tcp", "--syn --dport 2 ! --sport 1", [port(1, source=True, negated=True), port(2), SYN]), ("tcp", "--dport 2 --dport 1", [port(2), port(1)]), ("tcp", "--dport 2 --x", None), ("tcp", "--dport 2 !", None),
        ("tcp", "--syn", [SYN]), ("tcp", "! --syn", [SYN.replace(negated=True)]), ("tcp", "--syn now", None), ("tcp", "--tcp-option 5", None), ("tcp", "--syn --tcp-option 5", None),
        ("tcp", "--tcp-flags SYN,ACK SYN", [TcpFlags(mask=("SYN", "ACK"), flags=("SYN",))]), ("tcp", "! --tcp-flags ALL NONE", [TcpFlags(mask=ALL_FLAGS, flags=(), negated=True)]), ("tcp", "--tcp-flags NONE ALL", [TcpFlags(mask=(), flags=ALL_FLAGS)]), *[("tcp", f"--tcp-flags {one} {one}", [TcpFlags(mask=(one,), flags=(one,))]) for one in ALL_FLAGS],
        ("tcp", "--tcp-flags SYN", None), ("tcp", "--tcp-flags SYN ACK FIN", None), ("tcp", "--tcp-flags SYN,X SYN", None), ("tcp", "--tcp-flags SYN X", None), ("tcp", "--tcp-flags", None),
        ("multiport", "--dports 1,2:3", [port(1, (2, 3))]), ("multiport", "! --sports 1", [port(1, source=True, negated=True)]), ("multiport", "--source-ports 1,2", [port(1, 2, source=True)]), ("multiport", "--destination-ports 7:7", [port(7)]), ("multiport", "--ports 1,2", [EitherPort(protocol="tcp", ports=(1, 2))]), ("multiport", "! --ports 1:2", [EitherPort(protocol="tcp", ports=((1, 2),), negated=True)]),
        ("multiport", "--dports", None), ("multiport", "--dports 1, 2", None), ("multiport", "--dports 1,x", None), ("multiport", "--dports x,1", None), ("multiport", "--ports 1,x", None), ("multiport", "--ports", None), ("multiport", "--dports 1 --sports x", None),
        ("iprange", "--src-range 10.0.0.1-10.0.0.9", [addresses(0x0A000001, 0x0A000009, source=True)]), ("iprange", "! --dst-range fd00::-fd00::", [addresses(0xFD << 120, 0xFD << 120, IPV6, negated=True)]), ("iprange", "--dst-range 10.0.0.9-10.0.0.1", None), ("iprange", "--dst-range 10.0.0.1", None), ("iprange", "--dst-range", None), ("iprange", "--dst-range 10.0.0.1-", None),
        ("iprange", "--dst-range 10.0.0.1-fd00::", None), ("iprange", "--dst-range fd00::-10.0.0.1", None), ("iprange", "--dst-range 10.0.0.1-x", None), ("iprange", "--dst-range x-10.0.0.1", None), ("iprange", "--dst-range 1.1.1.1-1.1.1.2 x", None), ("iprange", "--dst-range 1.1.1.1-1.1.1.2-1.1.1.3", None), ("iprange", "--src-range x:-y:", None),
        ("owner", "--uid-owner 5", [Owner(kind="uid", first=5, last=5)]), ("owner", "! --gid-owner 5-9", [Owner(kind="gid", first=5, last=9, negated=True)]), ("owner", "--uid-owner 5-5", [Owner(kind="uid", first=5, last=5)]), ("owner", "--uid-owner 0x10", [Owner(kind="uid", first=16, last=16)]), ("owner", "--gid-owner 4294967295", [Owner(kind="gid", first=FULL_MASK, last=FULL_MASK)]),
        ("owner", "--uid-owner 9-5", None), ("owner", "--uid-owner 5-", None), ("owner", "--uid-owner -5", None), ("owner", "--uid-owner 5-x", None), ("owner", "--uid-owner root", None), ("owner", "--uid-owner", None), ("owner", "--uid-owner 5 6", None), ("owner", "--uid-owner 1-2-3", None),
        ("owner", "--socket-exists", [ANY_USER]), ("owner", "! --socket-exists", [ANY_USER.replace(negated=True)]), ("owner", "--socket-exists 5", None), ("owner", "--socket-exists --uid-owner 5", [Owner(kind="uid", first=5, last=5), ANY_USER]), ("owner", "--suppl-groups", None), ("owner", "--uid-owner 5 --suppl-groups", None),
    ],
)  # fmt: skip
def test_options_about_a_packet_are_read_whole_or_not_at_all(module, words, matches):
    protocol = "udp" if module == "udp" else "tcp"
    wanted = [one.replace(protocol=protocol) if isinstance(one, Port) else one for one in matches or ()]
    found = read_module(module, words.split(), protocol)
    assert (found and list(map(fields_of, found))) == (matches and list(map(fields_of, wanted)))


@pytest.mark.parametrize(("protocol", "known"), [("tcp", True), ("udp", True), ("sctp", False), ("", False)])
@pytest.mark.parametrize(("module", "words"), [("multiport", "--dports 1,2"), ("multiport", "--ports 1"), ("udp", "--dport 1")])
def test_ports_are_read_where_the_rule_has_a_protocol_with_ports(module, words, protocol, known):
    found = read_module(module, words.split(), protocol)
    assert ([one.protocol for one in found] == [protocol]) if known else found is None


def tcp(sports=(0, 65535), dports=(0, 65535), option=0, mask=0, flags=0, inverted=0):
    return pack("=4H4B", *sports, *dports, option, mask, flags, inverted)


def udp(sports=(0, 65535), dports=(0, 65535), inverted=0):
    return pack("=4HB", *sports, *dports, inverted)


def multiport(side, ports, ranges=(), inverted=0, count=None):
    numbers, flags = [*ports, *[0] * (15 - len(ports))], [int(at in ranges) for at in range(15)]
    return pack("=2B15H15BB", side, len(ports) if count is None else count, *numbers, *flags, inverted)


def spread(*ends, flags, size=4):
    return b"".join([end.to_bytes(size, "big").ljust(16, b"\xee") for end in ends]) + pack("=B", flags)


@pytest.mark.parametrize(
    ("name", "info", "matches"),
    [
        (("tcp", 0), tcp((0, 65534)), [port((0, 65534), source=True)]), (("tcp", 0), tcp((1, 65535)), [port((1, 65535), source=True)]), (("tcp", 0), tcp(dports=(0, 65534)), [port((0, 65534))]), (("tcp", 0), tcp(inverted=2), [port((0, 65535), negated=True)]), (("tcp", 0), tcp((1, 1), (2, 2), inverted=3), [port(1, source=True, negated=True), port(2, negated=True)]),
        (("tcp", 0), tcp((1, 1), (2, 3), mask=0x17, flags=2, inverted=7), [port(1, source=True, negated=True), port((2, 3), negated=True), SYN.replace(negated=True)]), (("tcp", 0), tcp(mask=0x20), [TcpFlags(mask=("URG",), flags=())]), (("tcp", 0), tcp(mask=0x3F, flags=0x3F), [TcpFlags(mask=ALL_FLAGS, flags=ALL_FLAGS)]), (("tcp", 0), tcp(mask=0x80, flags=0x80), None),
        (("tcp", 0), tcp(flags=1), None), (("tcp", 0), tcp(mask=2, flags=3), None), (("tcp", 0), tcp(option=1), None), (("tcp", 0), tcp(mask=1, inverted=16), None), (("tcp", 0), tcp(inverted=5), None), (("tcp", 0), tcp((2, 1)), None), (("tcp", 0), tcp(dports=(2, 1)), None), (("tcp", 1), tcp((1, 1)), None),
        (("udp", 0), udp((1, 1), (2, 2), 3), [port(1, protocol="udp", source=True, negated=True), port(2, protocol="udp", negated=True)]), (("udp", 0), udp(), []), (("udp", 0), udp(inverted=4), None), (("udp", 0), udp((2, 1)), None), (("udp", 0), udp()[:8], None),
        (("multiport", 1), multiport(0, [1, 2, 9], [0], 1), [port((1, 2), 9, source=True, negated=True)]), (("multiport", 1), multiport(1, list(range(1, 16)), range(0, 14, 2)), [port(*[(at, at + 1) for at in range(1, 15, 2)], 15)]), (("multiport", 1), multiport(1, [1, 2, 3, 4], [1]), [port(1, (2, 3), 4)]), (("multiport", 1), multiport(1, [1], [0]), None), (("multiport", 1), multiport(2, [1, 2], [0]), [EitherPort(protocol="tcp", ports=((1, 2),))]),
        (("multiport", 1), multiport(1, [1], count=0), None), (("multiport", 1), multiport(1, [1] * 15, count=15), [port(*[1] * 15)]), (("multiport", 1), multiport(1, [1] * 15, count=16), None), (("multiport", 1), multiport(3, [1]), None), (("multiport", 1), multiport(1, [1, 2], inverted=9), [port(1, 2, negated=True)]), (("multiport", 0), multiport(1, [1]), None), (("multiport", 1), multiport(1, [1])[:47], None),
        (("iprange", 1), spread(5, 9, 0, 0, flags=0x11), [addresses(5, 9, source=True, negated=True)]), (("iprange", 1), spread(9, 5, 5, 9, flags=0x02), [addresses(5, 9)]), (("iprange", 1), spread(5, 9, 9, 5, flags=0x01), [addresses(5, 9, source=True)]), (("iprange", 1), spread(5, 5, 6, 7, flags=0x23), [addresses(5, 5, source=True), addresses(6, 7, negated=True)]), (("iprange", 1), spread(9, 5, 0, 0, flags=0x01), None), (("iprange", 1), spread(0, 0, 9, 5, flags=0x02), None),
        *[(("iprange", 1), spread(5, 9, 5, 9, flags=flags), None) for flags in (0, 0x04, 0x08, 0x10, 0x12, 0x21, 0x40, 0x43, 0x83)], (("iprange", 1), spread(5, 9, 5, 9, flags=1)[:64], None), (("iprange", 0), spread(5, 9, 5, 9, flags=1), None),
        (("owner", 1), pack("=4I2B", 5, 9, 7, 8, 3, 1), [Owner(kind="uid", first=5, last=9, negated=True), Owner(kind="gid", first=7, last=8)]), (("owner", 1), pack("=4I2B", 5, 9, 7, 8, 2, 2), [Owner(kind="gid", first=7, last=8, negated=True)]), (("owner", 1), pack("=4I2B", 5, 9, 7, 8, 7, 4), [ANY_USER.replace(negated=True), Owner(kind="uid", first=5, last=9), Owner(kind="gid", first=7, last=8)]),
        (("owner", 1), pack("=4I2B", 5, 9, 7, 8, 4, 0), [ANY_USER]), (("owner", 1), pack("=4I2B", 5, 9, 7, 8, 4, 4), [ANY_USER.replace(negated=True)]), *[(("owner", 1), pack("=4I2B", 5, 9, 7, 8, *bits), None) for bits in ((0, 0), (8, 0), (9, 0), (1, 2), (2, 1), (1, 8), (1, 4))], (("owner", 1), pack("=4IB", 5, 9, 7, 8, 1), None), (("owner", 0), pack("=4I2B", 5, 9, 7, 8, 1, 0), None),
    ],
)  # fmt: skip
def test_a_struct_about_a_packet_is_read_whole_or_not_at_all(name, info, matches):
    found, _ = decode_match(*name, info, "tcp", IPV4)
    assert list(map(fields_of, found)) == [fields_of(one) for one in ([name_unread(f"-m {name[0]}", (*name, info))] if matches is None else matches)]


def test_a_range_of_addresses_of_ipv6_has_sixteen_bytes_and_one_of_no_family_is_unknown():
    info = spread(5, 1 << 127, 0, 0, flags=1, size=16)
    assert decode_match("iprange", 1, info, "", IPV6)[0] == [addresses(5, 1 << 127, IPV6, source=True)]
    assert decode_match("iprange", 1, info, "", None)[0] == [name_unread("-m iprange", ("iprange", 1, info))]


SOURCE, TARGET, SOURCE6, TARGET6, FLAGS = loads(1, 12, 4), loads(1, 16, 4), loads(1, 8, 16), loads(1, 24, 16), loads(2, 13, 1)
IN, OUT, IN_INDEX, OUT_INDEX, USER, GROUP = (("meta", (2, key), (1, 1)) for key in (6, 7, 4, 5, 10, 11))
HOST, NET = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 0))
SWAP = ("byteorder", (1, 1), (2, 1), (3, 1), (4, 4), (5, 4))


def name(text, length=16, pad=b"\0"):
    return text.encode().ljust(length, pad)


@pytest.mark.parametrize(
    ("parts", "listed"),
    [
        ((SOURCE, equals(HOST)), "-s 10.0.0.1/32"), ((TARGET, equals(HOST, 1)), "! -d 10.0.0.1/32"), ((TARGET, equals(HOST[:3])), "-d 10.0.0.0/24"), ((loads(1, 16, 1), equals(b"\x0a")), "-d 10.0.0.0/8"), ((loads(1, 12, 3), equals(b"\x0a\0\1", 1)), "! -s 10.0.1.0/24"),
        ((loads(1, 16, 2), mask(b"\xff\0"), equals(NET[:2])), "-d 10.0.0.0/8"), ((TARGET, mask(b"\xff\xff\0\0"), equals(NET)), "-d 10.0.0.0/16"), ((TARGET, mask(b"\xff\xff\0\0"), equals(NET, 1)), "! -d 10.0.0.0/16"), ((TARGET, mask(bytes(4)), equals(bytes(4))), ""), ((TARGET, mask(bytes(4)), equals(bytes(4), 1)), "! -d 0.0.0.0/0"), ((TARGET, mask(b"\xff" * 4), equals(HOST)), "-d 10.0.0.1/32"), ((TARGET, mask(b"\xff\0\xff\0"), equals(NET)), "[payload 1 16 & ff00ff00 == 0a000000]"), ((TARGET, mask(b"\xff\0\0\0"), equals(HOST)), "[payload 1 16 & ff000000 == 0a000001]"),
        ((TARGET, mask(b"\xff\0\0\0", b"\1\0\0\0"), equals(NET)), "[payload 1 16 & ff000000 == 0a000000]"), ((TARGET, SWAP, equals(HOST)), "[payload 1 16 == 0a000001]"), ((TARGET, spans(HOST, HOST)), "-d 10.0.0.1/32"), ((TARGET, mask(b"\xff\0\0\0"), spans(NET, b"\x0b\0\0\0")), "[payload 1 16 & ff000000 == 0a000000-0b000000]"), ((TARGET, equals(HOST + b"\0")), "[payload 1 16 == 0a00000100]"),
        ((loads(1, 9, 1), equals(b"\6")), "-p tcp"), ((loads(1, 9, 1), equals(b"\6", 1)), "! -p tcp"), ((loads(1, 9, 1), equals(b"\xfd")), "-p 253"), ((loads(1, 9, 1), mask(b"\xff"), equals(b"\6")), "[payload 1 9 & ff == 06]"), ((loads(1, 9, 1), spans(b"\6", b"\7")), "[payload 1 9 == 06-07]"), ((loads(1, 9, 1), equals(b"\6"), DPORT, equals(b"\0\x50")), "-p tcp -m tcp --dport 80"),
        # the version of the header, which the family of the table has said, and fields that no rule of iptables has
        ((loads(1, 0, 1), mask(b"\xf0"), equals(b"\x40")), ""), ((loads(1, 0, 1), mask(b"\xf0"), equals(b"\x60")), "[payload 1 0 & f0 == 60]"), ((loads(1, 0, 1), mask(b"\xf0"), equals(b"\x40", 1)), "[payload 1 0 & f0 != 40]"), ((loads(1, 0, 1), mask(b"\x0f"), equals(b"\5")), "[payload 1 0 & 0f == 05]"), ((loads(1, 8, 1), equals(b"\x40")), "[payload 1 8 == 40]"), ((loads(1, 2, 2), equals(b"\0\x40")), "[payload 1 2 == 0040]"),
        ((loads(1, 0, 1), mask(b"\xf0"), equals(b"\x40"), spans(b"\x40", b"\x50")), ""),
        # fields that stand side by side and are compared together
        ((loads(1, 12, 8), equals(HOST + NET)), "-s 10.0.0.1/32 -d 10.0.0.0/32"), ((loads(1, 12, 8), equals(HOST + NET, 1)), "[payload 1 12 != 0a0000010a000000]"), ((loads(1, 12, 8), spans(HOST + NET, HOST + HOST)), "[payload 1 12 == 0a0000010a000000-0a0000010a000001]"), ((loads(1, 12, 8), mask(b"\xff\xff\0\0" + b"\xff" * 4), equals(NET + HOST)), "-s 10.0.0.0/16 -d 10.0.0.1/32"), ((loads(1, 12, 8), mask(b"\xff" * 4 + b"\xff\xff\0\0"), equals(HOST + NET)), "-s 10.0.0.1/32 -d 10.0.0.0/16"),
        ((loads(1, 9, 11), equals(b"\6\0\0" + HOST + NET)), "[payload 1 9 == 0600000a0000010a000000]"), ((loads(1, 12, 6), equals(HOST + b"\x0a\0")), "-s 10.0.0.1/32 -d 10.0.0.0/16"), ((loads(1, 12, 12), equals(HOST * 3)), f"[payload 1 12 == {(HOST * 3).hex()}]"), ((loads(1, 12, 8), mask(b"\xff\0\xff\0" + b"\xff" * 4), equals(NET + HOST)), "[payload 1 12 & ff00ff00ffffffff == 0a0000000a000001]"),
        ((*TCP, loads(2, 0, 4), equals(b"\0\x50\0\x51")), "-p tcp -m tcp --sport 80 --dport 81"), ((*UDP, loads(2, 0, 4), equals(b"\0\x50\0\x51")), "-p udp -m udp --sport 80 -m udp --dport 81"), ((*TCP, loads(2, 0, 4), equals(b"\0\x50\0\x51", 1)), "-p tcp [payload 2 0 != 00500051]"), ((*TCP, loads(2, 0, 4), mask(b"\xff\xff\xff\xff"), equals(b"\0\x50\0\x51")), "-p tcp [payload 2 0 & ffffffff == 00500051]"),
        ((*TCP, loads(2, 2, 6), equals(b"\0\x50\0\0\0\1")), "-p tcp [payload 2 2 == 005000000001]"), ((*TCP, loads(2, 0, 1), equals(b"\0")), "-p tcp [payload 2 0 == 00]"), ((*TCP, loads(2, 4, 4), equals(bytes(4))), "-p tcp [payload 2 4 == 00000000]"), ((loads(3, 0, 2), equals(b"\0\1")), "[payload 3 0 == 0001]"), ((loads(0, 12, 4), equals(HOST)), "[payload 0 12 == 0a000001]"),
        # ports
        ((*TCP, SPORT, equals(b"\xff\xff")), "-p tcp -m tcp --sport 65535"), ((*UDP, SPORT, equals(b"\0\x35", 1)), "-p udp -m udp ! --sport 53"), ((*TCP, DPORT, spans(b"\0\x50", b"\1\x50")), "-p tcp -m tcp --dport 80:336"), ((*TCP, DPORT, mask(b"\xff\xf0"), equals(b"\0\x50")), "-p tcp [payload 2 2 & fff0 == 0050]"), ((*TCP, DPORT, ("byteorder", (1, 1), (2, 1)), equals(b"\0\x50")), "-p tcp [payload 2 2 == 0050]"),
        ((*TCP, DPORT, mask(b"\xff\xff", b"\0\1"), equals(b"\0\x50")), "-p tcp [payload 2 2 & ffff == 0050]"),
        # flags of TCP
        ((*TCP, FLAGS, mask(b"\x17"), equals(b"\2")), "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN"), ((*TCP, FLAGS, mask(b"\x17"), equals(b"\2", 1)), "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN"), ((*TCP, FLAGS, mask(b"\2"), equals(b"\0", 1)), "-p tcp -m tcp --tcp-flags SYN SYN"), ((*TCP, FLAGS, mask(b"\2"), equals(b"\0")), "-p tcp -m tcp --tcp-flags SYN NONE"),
        ((*TCP, FLAGS, mask(b"\x06"), equals(b"\0", 1)), "-p tcp -m tcp ! --tcp-flags SYN,RST NONE"), ((*TCP, FLAGS, mask(b"\2"), equals(b"\2", 1)), "-p tcp -m tcp ! --tcp-flags SYN SYN"), ((*TCP, FLAGS, mask(b"\x3f"), equals(b"\x3f")), f"-p tcp -m tcp --tcp-flags {','.join(ALL_FLAGS)} {','.join(ALL_FLAGS)}"), ((*TCP, FLAGS, mask(b"\x20"), equals(b"\x20")), "-p tcp -m tcp --tcp-flags URG URG"),
        ((*TCP, FLAGS, mask(b"\x42"), equals(b"\2")), "-p tcp [payload 2 13 & 42 == 02]"), ((*TCP, FLAGS, mask(b"\2"), equals(b"\3")), "-p tcp [payload 2 13 & 02 == 03]"), ((*TCP, FLAGS, equals(b"\2")), "-p tcp [payload 2 13 == 02]"), ((*TCP, FLAGS, mask(b"\x17"), spans(b"\0", b"\2")), "-p tcp [payload 2 13 & 17 == 00-02]"), ((*UDP, FLAGS, mask(b"\x17"), equals(b"\2")), "-p udp [payload 2 13 & 17 == 02]"), ((*TCP, loads(2, 12, 1), mask(b"\x17"), equals(b"\2")), "-p tcp [payload 2 12 & 17 == 02]"),
        # protocols, interfaces, owners
        ((PROTOCOL, equals(b"\x11", 1)), "! -p udp"), ((PROTOCOL, equals(b"\xfe")), "-p 254"), ((PROTOCOL, mask(b"\xff"), equals(b"\6")), "[meta 16 & ff == 06]"), ((PROTOCOL, equals(b"\0\6")), "[meta 16 == 0006]"), ((PROTOCOL, spans(b"\6", b"\x11")), "[meta 16 == 06-11]"),
        ((OUT, equals(name("eth0"))), "-o eth0"), ((OUT, equals(name("eth0"), 1)), "! -o eth0"), ((IN, equals(b"eth")), "-i eth+"), ((IN, equals(b"eth", 1)), "! -i eth+"), ((IN, equals(b"eth0\0")), "-i eth0"), ((IN, equals(name("ethX"))), "-i ethX"), ((IN, spans(name("ethX"), name("ethX", pad=b"\xff"))), "-i ethX+"), ((IN, equals(name("fifteen-letters"))), "-i fifteen-letters"), ((IN, equals(b"sixteen-letters-")), "-i sixteen-letters-"),
        ((IN, spans(name("eth"), name("eth", pad=b"\xff"))), "-i eth+"), ((IN, spans(name("eth"), name("eti", pad=b"\xff"))), f"[meta 6 == {name('eth').hex()}-{name('eti', pad=bytes((255,))).hex()}]"), ((IN, spans(b"eth\0", b"eth\xff")), "[meta 6 == 65746800-657468ff]"), ((IN, equals(bytes(16))), f"[meta 6 == {bytes(16).hex()}]"), ((IN, equals(name("a\0b"))), f"[meta 6 == {name('a' + chr(0) + 'b').hex()}]"),
        ((IN, mask(b"\xff" * 16), equals(name("eth0"))), f"[meta 6 & {'ff' * 16} == {name('eth0').hex()}]"), ((IN, equals(b"\xff\xfe".ljust(16, b"\0"))), "-i \udcff\udcfe"),
        ((IN_INDEX, equals(pack("=I", 1))), "-i lo"), ((OUT_INDEX, equals(pack("=I", 3), 1)), "! -o eth0"), ((OUT_INDEX, equals(pack("=I", 2))), f"[meta 5 == {pack('=I', 2).hex()}]"), ((OUT_INDEX, mask(pack("=I", 1)), equals(pack("=I", 1))), f"[meta 5 & {pack('=I', 1).hex()} == {pack('=I', 1).hex()}]"), ((OUT_INDEX, spans(pack("=I", 1), pack("=I", 3))), f"[meta 5 == {pack('=I', 1).hex()}-{pack('=I', 3).hex()}]"),
        ((USER, equals(pack("=I", 1337))), "-m owner --uid-owner 1337"), ((GROUP, equals(pack("=I", 1337), 1)), "-m owner ! --gid-owner 1337"), ((GROUP, SWAP, spans(pack(">I", 5), pack(">I", 260))), "-m owner --gid-owner 5-260"), ((USER, SWAP, spans(pack(">I", 5), pack(">I", 260), 1)), "-m owner ! --uid-owner 5-260"), ((USER, SWAP, equals(pack(">I", 260))), "-m owner --uid-owner 260"), ((USER, mask(pack("=I", 1)), equals(pack("=I", 1))), f"[meta 10 & {pack('=I', 1).hex()} == {pack('=I', 1).hex()}]"),
    ],
    ids=str,
)  # fmt: skip
def test_a_comparison_about_a_packet_is_what_iptables_has_for_it(parts, listed):
    assert read(*parts, ACCEPTS, family=IP) == [f"{listed} -j ACCEPT".lstrip()]


FAR = b"\xfd" + bytes(14) + b"\1"


@pytest.mark.parametrize(
    ("parts", "listed"),
    [
        ((SOURCE6, equals(FAR)), "-s fd00::1/128"), ((TARGET6, equals(FAR, 1)), "! -d fd00::1/128"), ((TARGET6, equals(FAR[:2])), "-d fd00::/16"), ((TARGET6, mask(b"\xff" * 8 + bytes(8)), equals(FAR[:8] + bytes(8))), "-d fd00::/64"), ((TARGET6, mask(b"\xff" * 8 + bytes(8)), equals(FAR)), f"[payload 1 24 & {'ff' * 8}{'00' * 8} == {FAR.hex()}]"),
        ((loads(1, 6, 1), equals(b"\x3a")), "-p ipv6-icmp"), ((loads(1, 0, 1), mask(b"\xf0"), equals(b"\x60")), ""), ((loads(1, 0, 1), mask(b"\xf0"), equals(b"\x40")), "[payload 1 0 & f0 == 40]"), ((loads(1, 8, 32), equals(FAR + FAR)), "-s fd00::1/128 -d fd00::1/128"), ((SOURCE, equals(HOST)), "[payload 1 12 == 0a000001]"),
    ],
    ids=str,
)  # fmt: skip
def test_a_comparison_in_a_header_of_ipv6_is_what_iptables_has_for_it(parts, listed):
    assert read(*parts, ACCEPTS, family=IP6) == [f"{listed} -j ACCEPT".lstrip()]


def test_what_stands_in_a_header_is_unknown_where_nobody_has_said_which_it_is():
    assert read(SOURCE, equals(HOST), ACCEPTS, family=INET) == ["[payload 1 12 == 0a000001] -j ACCEPT"]
    assert read(("meta", (2, 15), (1, 1)), equals(b"\2"), SOURCE, equals(HOST), ACCEPTS, family=INET) == ["-s 10.0.0.1/32 -j ACCEPT"]


@pytest.mark.parametrize(
    ("load", "keys", "listed"),
    [
        ((TARGET,), (HOST, NET), "-d 10.0.0.0/32 -j ACCEPT | -d 10.0.0.1/32"), ((IN,), (name("eth0"), name("lo")), "-i eth0 -j ACCEPT | -i lo"), ((OUT_INDEX,), (pack("=I", 1), pack("=I", 3)), "-o lo -j ACCEPT | -o eth0"), ((OUT_INDEX,), (pack("=I", 1), pack("=I", 2)), "[meta 5 == 01000000, 02000000]"), ((USER,), (pack("=I", 1), pack("=I", 2)), "meta 10 == 01000000, 02000000"),
        ((*TCP, SPORT), (b"\0\1", b"\0\2"), "-p tcp -m tcp --sport 1 -j ACCEPT | -p tcp -m tcp --sport 2"),
    ],
    ids=str,
)  # fmt: skip
def test_several_values_in_a_set_are_a_list(load, keys, listed):
    family = IP if load[0] is TARGET else INET
    assert read(*load, looks_up(), ACCEPTS, family=family, sets=(holds(*keys, family=family),)) == [f"{listed} -j ACCEPT"]


@pytest.mark.parametrize(("limit", "is_read"), [(6, True), (5, False)])
def test_a_range_of_more_networks_than_anybody_lists_is_not_split(monkeypatch, limit, is_read):
    monkeypatch.setattr(packet, "MAX_NETWORKS", limit)
    (found,) = read(TARGET, spans(HOST, bytes((10, 0, 0, 20))), ACCEPTS, family=IP)  # .1, .2/31, .4/30, .8/29, .16/30 and .20
    assert found.count("-d") == (0 if not is_read else 6)


def test_users_that_rules_name_are_those_that_stand_alone():
    five, more = Owner(kind="uid", first=5, last=5), Owner(kind="uid", first=5, last=6)
    assert list_users([five, more, five.replace(negated=True), five.replace(kind="gid"), Mark(value=7), five.replace(first=9, last=9)]) == [5, 9]
