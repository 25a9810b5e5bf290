"""Targets that end, redirect, translate or queue packets: what their options, structs and expressions mean."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import FULL_MASK, IPV4, IPV6, Network
from netinit.base.snapshot import INET, IP, IP6
from netinit.rules.decoding.targets import _EXTENSIONS, decode_target, decode_verdict, read_target
from netinit.rules.foreign_targets import (
    OBSERVING,
    DestinationNat,
    MapNetwork,
    Observe,
    OfferedToSocket,
    Queue,
    SourceNat,
    UnknownTarget,
    Untrack,
    WriteDestination,
)
from netinit.rules.marking_targets import SetMark
from netinit.rules.structs import REJECTIONS
from netinit.rules.targets import Accept, Drop, Jump, Redirect, Reject, Return, Tproxy
from nft_expressions import MARK, decode, fields_of, puts, read

HOST, OTHER, PORT, FAR = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)), b"\0\x50", b"\xfd" + bytes(14) + b"\1"


def words(text, family=IPV4, *, is_goto=False):
    return read_target(is_goto=is_goto, words=text.split(), text=text, family=family)


def same(one, other):
    assert fields_of(one) == fields_of(other)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("", Observe(text="")), ("ACCEPT", Accept()), ("DROP", Drop()), ("RETURN", Return()), ("ACCEPT x", None), ("DROP --x", None), ("ISTIO_OUTPUT", Jump(chain="ISTIO_OUTPUT")), ("ISTIO_OUTPUT --x", None), ("ACCEPT2", Jump(chain="ACCEPT2")),
        ("REDIRECT --to-ports 80", Redirect(port=80)), ("REDIRECT --to-port 80", Redirect(port=80)), ("REDIRECT", None), ("REDIRECT --to-ports 80 --random", None), ("REDIRECT --to-ports 80-90", None), ("REDIRECT --to-ports 0", None), ("REDIRECT --to-ports", None), ("REDIRECT 80", None), ("REDIRECT --to-ports 80 --to-ports 80", None), ("REDIRECT --to-ports 80 90", None), ("REDIRECT --port 80", None),
        ("TPROXY --on-port 80 --tproxy-mark 1", Tproxy(port=80, mark=1)), ("TPROXY --tproxy-mark 1/2 --on-port 80 --on-ip 127.0.0.1", Tproxy(port=80, mark=1, mask=2, address="127.0.0.1")), ("TPROXY --on-port 80 --tproxy-mark 1 --on-ip 0.0.0.0", Tproxy(port=80, mark=1)), ("TPROXY --on-port 80 --tproxy-mark 0", Tproxy(port=80, mark=0)),
        ("TPROXY --on-port 80", None), ("TPROXY --tproxy-mark 1", None), ("TPROXY --on-port 0 --tproxy-mark 1", None), ("TPROXY --on-port x --tproxy-mark 1", None), ("TPROXY --on-port 80 --tproxy-mark x", None), ("TPROXY --on-port 80 --tproxy-mark 1 --x", None), ("TPROXY --on-port 80 --tproxy-mark 1 --on-ip x", None), ("TPROXY", None),
        ("REJECT", Reject()), ("REJECT --reject-with tcp-reset", Reject(message="tcp-reset")), ("REJECT --reject-with icmp-port-unreachable", Reject()), ("REJECT --reject-with port-unreach", Reject()), ("REJECT --reject-with port-unreachable", Reject()), ("REJECT --reject-with icmp6-port-unreach", Reject(message="icmp6-port-unreachable")), ("REJECT --reject-with", None), ("REJECT --reject-with tcp-reset --x", None), ("REJECT --x", None), ("REJECT x", None),
        ("SNAT --to-source 1.2.3.4", SourceNat(text="SNAT --to-source 1.2.3.4", address="1.2.3.4")), *[(text, SourceNat(text=text)) for text in ("SNAT", "SNAT --to-source 1.2.3.4:80", "SNAT --to-source 1.2.3.4-1.2.3.5", "SNAT --to-source 1.2.3.4 --random", "SNAT --random", "SNAT --to-source")],
        ("MASQUERADE", SourceNat(text="MASQUERADE", own=True)), ("MASQUERADE --to-ports 1-9", SourceNat(text="MASQUERADE --to-ports 1-9", own=True)), ("MASQUERADE x", None),
        ("DNAT --to-destination 1.2.3.4", DestinationNat(address="1.2.3.4", port=0)), ("DNAT --to-destination 1.2.3.4:80", DestinationNat(address="1.2.3.4", port=80)), ("DNAT --to-destination :80", DestinationNat(address="", port=80)), ("DNAT --to-destination [fd00::1]:80", DestinationNat(address="fd00::1", port=80)), ("DNAT --to-destination fd00::1", DestinationNat(address="fd00::1", port=0)),
        *[(f"DNAT --to-destination {one}", None) for one in ("1.2.3.4:x", "1.2.3.4-1.2.3.5", "1.2.3.4:80-90", "[fd00::1]", "[fd00::1", "[fd00::1:80", "[1.2.3.4:80", "x", "1.2.3.4:80 --random")], ("DNAT", None), ("DNAT --to-destination", None), ("DNAT --to 1.2.3.4", None),
        ("NETMAP --to 10.6.0.0/16", MapNetwork(network=Network.parse("10.6.0.0/16"))), ("NETMAP --to 10.6.0.0/255.255.0.0", MapNetwork(network=Network.parse("10.6.0.0/16"))), ("NETMAP --to 10.6.0.1", MapNetwork(network=Network.parse("10.6.0.1/32"))), ("NETMAP", None), ("NETMAP --to 10.6.0.0/16 --x", None), ("NETMAP --to 10.6.0.0/33", None), ("NETMAP --x 10.6.0.0/16", None),
        *[(f"{name} --{option}-{kind}", Observe(text=f"{name} --{option}-{kind}")) for name, option in (("TTL", "ttl"), ("HL", "hl")) for kind in ("set 2", "set 255", "inc 1", "inc 9", "dec 1")], *[(f"TTL --ttl-{kind}", None) for kind in ("set 1", "set 0", "dec 2", "dec 0", "set x", "inc", "inc x", "other 9", "set 64 --x 1")], ("TTL", None), ("HL", None),
        ("NFQUEUE", Queue(text="NFQUEUE")), ("NFQUEUE --queue-num 3 --queue-bypass", Queue(text="NFQUEUE --queue-num 3 --queue-bypass")), ("QUEUE", Queue(text="QUEUE")), ("QUEUE x", None), ("NOTRACK", Untrack()), ("NOTRACK --x", None),
        ("TEE --gateway 10.0.0.9", Observe(text="TEE --gateway 10.0.0.9", copies=True)), ("TEE", Observe(text="TEE", copies=True)), ("TRACE", Observe(text="TRACE")), ("TRACE x", Observe(text="TRACE x")), ("DSCP --set-dscp 1", Observe(text="DSCP --set-dscp 1")),
        *[(name, None) for name in ("CLUSTERIP", "CONNMARK", "CT", "DNPT", "HMARK", "MARK", "SET", "SNPT", "SYNPROXY")],
    ],
)  # fmt: skip
def test_a_target_is_what_its_words_say_or_is_kept_to_the_letter(text, target):
    same(words(text), target or UnknownTarget(text=text))


def test_each_name_of_an_extension_is_no_chain_and_after_a_goto_every_name_is_one():
    for name in sorted(_EXTENSIONS):
        assert not isinstance(words(name), Jump), name
        assert isinstance(words(name), Observe) is (name in OBSERVING)
        same(words(name, is_goto=True), Jump(chain=name, goto=True))
    same(words("THEIRS"), Jump(chain="THEIRS", goto=False))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("REJECT --reject-with icmp6-port-unreachable", Reject()), ("REJECT --reject-with icmp6-port-unreach", Reject()), ("REJECT --reject-with icmp-port-unreachable", Reject(message="icmp-port-unreachable")), ("REJECT", Reject()), ("REJECT --reject-with port-unreachable", Reject(message="icmp-port-unreachable")),
        ("TPROXY --on-port 80 --tproxy-mark 1 --on-ip ::", Tproxy(port=80, mark=1)), ("TPROXY --on-port 80 --tproxy-mark 1", Tproxy(port=80, mark=1)), ("TPROXY --on-port 80 --tproxy-mark 1 --on-ip ::1", Tproxy(port=80, mark=1, address="::1")), ("TPROXY --on-port 80 --tproxy-mark 1 --on-ip fd00:0::1", Tproxy(port=80, mark=1, address="fd00::1")),
        ("NETMAP --to fd00::/64", MapNetwork(network=Network.parse("fd00::/64"))), ("NETMAP --to fd00::1", MapNetwork(network=Network.parse("fd00::1/128"))),
    ],
)  # fmt: skip
def test_words_of_ipv6_have_its_own_defaults(text, target):
    same(words(text, IPV6), target)


def multi(flags, first=HOST, last=HOST, ports=(80, 80), count=1):
    """struct nf_nat_ipv4_multi_range_compat."""
    return pack("=2I4s4s", count, flags, first, last) + pack(">2H", *ports)


def ranged(flags, first=HOST, last=HOST, ports=(80, 80)):
    """struct nf_nat_range."""
    return pack("=I16s16s", flags, first, last) + pack(">2H", *ports)


def tproxy(port, address=HOST, mark=7, mask=255, size=16):
    """struct xt_tproxy_target_info, or _v1."""
    return pack("=2I", mask, mark) + address.ljust(size, b"\0") + pack(">H", port) + bytes(2 if size == 4 else 6)


def destination(address="", port=0):
    return DestinationNat(address=address, port=port)


@pytest.mark.parametrize(
    ("family", "name", "info", "target"),
    [
        (IPV4, ("REDIRECT", 0), multi(2), Redirect(port=80)), (IPV6, ("REDIRECT", 0), ranged(2), Redirect(port=80)), (IPV4, ("REDIRECT", 0), multi(0), None), (IPV4, ("REDIRECT", 0), multi(3), None), (IPV4, ("REDIRECT", 0), multi(1), None), (IPV4, ("REDIRECT", 0), multi(2, ports=(80, 81)), None), (IPV4, ("REDIRECT", 0), multi(2, ports=(81, 80)), None), (IPV4, ("REDIRECT", 0), multi(2, ports=(0, 0)), None),
        (IPV4, ("REDIRECT", 0), multi(2, count=2), None), (IPV4, ("REDIRECT", 0), multi(2, count=0), None), (IPV4, ("REDIRECT", 0), multi(6), None), (IPV4, ("REDIRECT", 0), multi(2)[:19], None), (IPV4, ("REDIRECT", 1), ranged(2), None),
        (IPV4, ("DNAT", 0), multi(1), destination("10.0.0.1")), (IPV4, ("DNAT", 0), multi(3), destination("10.0.0.1", 80)), (IPV4, ("DNAT", 0), multi(2), destination("", 80)), (IPV4, ("DNAT", 0), multi(0), None), (IPV4, ("DNAT", 1), ranged(3), destination("10.0.0.1", 80)), (IPV4, ("DNAT", 2), ranged(1), destination("10.0.0.1")), (IPV4, ("DNAT", 3), ranged(1), None), (IPV4, ("DNAT", 1), ranged(1, last=OTHER), None),
        (IPV6, ("DNAT", 0), ranged(3, FAR, FAR), destination("fd00::1", 80)), (IPV6, ("DNAT", 1), ranged(1, FAR, FAR), destination("fd00::1")), (IPV6, ("DNAT", 2), ranged(1, FAR, FAR[:15] + b"\2"), None), (IPV4, ("DNAT", 2), ranged(1, HOST, HOST + b"\1"), destination("10.0.0.1")), (IPV4, ("DNAT", 2), ranged(1 | 16), None), (IPV4, ("DNAT", 2), ranged(1)[:39], None),
        (IPV4, ("SNAT", 0), multi(1), SourceNat(text="SNAT", address="10.0.0.1")), (IPV4, ("SNAT", 0), multi(3), SourceNat(text="SNAT")), (IPV4, ("SNAT", 0), multi(0), SourceNat(text="SNAT")), (IPV4, ("SNAT", 0), multi(1, last=OTHER), SourceNat(text="SNAT")), (IPV6, ("SNAT", 1), ranged(1, FAR, FAR), SourceNat(text="SNAT", address="fd00::1")), (IPV4, ("SNAT", 9), multi(1), SourceNat(text="SNAT")), (IPV4, ("SNAT", 1), ranged(1), SourceNat(text="SNAT", address="10.0.0.1")),
        (IPV4, ("MASQUERADE", 0), multi(0), SourceNat(text="MASQUERADE", own=True)), (IPV4, ("MASQUERADE", 7), b"", SourceNat(text="MASQUERADE", own=True)),
        (IPV4, ("NOTRACK", 0), b"", Untrack()), (IPV4, ("NOTRACK", 1), b"", None), (IPV4, ("TEE", 1), HOST + bytes(12), Observe(text="TEE --gateway 10.0.0.1", copies=True)), (IPV6, ("TEE", 1), FAR, Observe(text="TEE --gateway fd00::1", copies=True)), (IPV4, ("TEE", 1), HOST + bytes(11), Observe(text="TEE", copies=True)), (IPV4, ("TEE", 0), HOST + bytes(12), Observe(text="TEE", copies=True)), (IPV4, ("TRACE", 0), b"", Observe(text="TRACE")),
        (IPV4, ("TPROXY", 1), tproxy(80), Tproxy(port=80, mark=7, mask=255, address="10.0.0.1")), (IPV4, ("TPROXY", 0), tproxy(80, size=4), Tproxy(port=80, mark=7, mask=255, address="10.0.0.1")), (IPV4, ("TPROXY", 1), tproxy(80, b""), Tproxy(port=80, mark=7, mask=255)), (IPV6, ("TPROXY", 1), tproxy(80, FAR), Tproxy(port=80, mark=7, mask=255, address="fd00::1")), (IPV6, ("TPROXY", 1), tproxy(80, b""), Tproxy(port=80, mark=7, mask=255)),
        (IPV4, ("TPROXY", 1), tproxy(65535, mark=FULL_MASK, mask=FULL_MASK), Tproxy(port=65535, mark=FULL_MASK, mask=FULL_MASK, address="10.0.0.1")), (IPV4, ("TPROXY", 1), tproxy(0), None), (IPV4, ("TPROXY", 2), tproxy(80), None), (IPV4, ("TPROXY", 1), tproxy(80)[:26], Tproxy(port=80, mark=7, mask=255, address="10.0.0.1")), (IPV4, ("TPROXY", 0), tproxy(80, size=4)[:13], None), (IPV4, ("TPROXY", 0), tproxy(80, size=4)[:14], Tproxy(port=80, mark=7, mask=255, address="10.0.0.1")),
        (IPV4, ("NETMAP", 0), multi(1, bytes((10, 6, 0, 0)), bytes((10, 6, 255, 255))), MapNetwork(network=Network.parse("10.6.0.0/16"))), (IPV4, ("NETMAP", 0), multi(1), MapNetwork(network=Network.parse("10.0.0.1/32"))), (IPV4, ("NETMAP", 0), multi(1, HOST, OTHER), MapNetwork(network=Network.parse("10.0.0.0/30"))), (IPV4, ("NETMAP", 0), multi(1, bytes((10, 0, 0, 0)), bytes((10, 0, 0, 5))), None),
        (IPV6, ("NETMAP", 0), ranged(1, b"\xfd" + bytes(15), b"\xfd" + bytes(7) + b"\xff" * 8), MapNetwork(network=Network.parse("fd00::/64"))), (IPV6, ("NETMAP", 0), ranged(1, b"\xfd" + bytes(15), b"\xfd" + bytes(14) + b"\2"), None), (IPV4, ("NETMAP", 1), multi(1), None),
        *[(IPV4, (name, 0), bytes(info), Observe(text=f"{name} --{name.lower()}-{text}")) for name in ("TTL", "HL") for info, text in (((0, 64), "set 64"), ((0, 200), "set 200"), ((0, 2), "set 2"), ((1, 1), "inc 1"), ((1, 5), "inc 5"), ((2, 1), "dec 1"))], *[(IPV4, (name, 0), bytes(info), None) for name in ("TTL", "HL") for info in ((0, 1), (0, 0), (2, 2), (2, 0), (3, 1), (3, 64))], (IPV4, ("TTL", 0), b"\0", None), (IPV4, ("TTL", 1), b"\0\x40", None),
        (IPV4, ("NFQUEUE", 0), pack("=H", 65535), Queue(text="NFQUEUE --queue-num 65535")), (IPV4, ("NFQUEUE", 1), pack("=2H", 5, 2), Queue(text="NFQUEUE --queue-balance 5:6")), (IPV4, ("NFQUEUE", 2), pack("=3H", 5, 1, 1), Queue(text="NFQUEUE --queue-num 5 --queue-bypass")), (IPV4, ("NFQUEUE", 3), pack("=3H", 5, 9, 2), Queue(text="NFQUEUE --queue-balance 5:13 --queue-cpu-fanout")), (IPV4, ("NFQUEUE", 4), pack("=3H", 5, 9, 2), None), (IPV4, ("NFQUEUE", 0), b"", Queue(text="NFQUEUE --queue-num 0")),
        *[(family, ("REJECT", 0), pack("=I", number), Reject(message=one)) for family in (IPV4, IPV6) for number, one in enumerate(REJECTIONS[family.version]) if one], (IPV4, ("REJECT", 0), pack("=I", 3), Reject()), (IPV6, ("REJECT", 0), pack("=I", 4), Reject()), (IPV4, ("REJECT", 0), pack("=I", 4), None), (IPV6, ("REJECT", 0), pack("=I", 2), None), (IPV4, ("REJECT", 0), pack("=I", 9), None), (IPV6, ("REJECT", 0), pack("=I", 9), None), (IPV4, ("REJECT", 0), bytes(3), None),
        (IPV4, ("NEWER", 0), b"", None),
    ],
    ids=str,
)  # fmt: skip
def test_a_struct_of_a_target_is_read_whole_or_not_at_all(family, name, info, target):
    same(decode_target(*name, info, family), target or UnknownTarget(text=name[0]))


def verdict(code, chain=b""):
    return pack("=2H", 8, 1) + pack(">i", code) + (pack("=2H", 4 + len(chain), 2) + chain + bytes(-len(chain) % 4) if chain else b"")


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (verdict(0), (Drop(),)), (verdict(1), (Accept(),)), (verdict(-5), (Return(),)), (verdict(-1), ()), (verdict(-2), ()), (verdict(-3, b"x\0"), (Jump(chain="x", goto=False),)), (verdict(-4, b"x\0"), (Jump(chain="x", goto=True),)), (verdict(3), (UnknownTarget(text="verdict 3"),)), (verdict(-6), (UnknownTarget(text="verdict -6"),)),
    ],
)  # fmt: skip
def test_a_verdict_is_what_its_number_says(payload, found):
    assert list(map(fields_of, decode_verdict(payload))) == list(map(fields_of, found))


def offered(port, address=""):
    return OfferedToSocket(port=port, whole=Tproxy(port=port, mark=0, address=address))


HIGH = puts(HOST + OTHER)
WRITES = ((6, 0), (7, 0), (8, 0))


def writes(base, offset, length):
    return ("payload", (2, base), (3, offset), (4, length), (5, 1), *WRITES)


@pytest.mark.parametrize(
    ("parts", "target"),
    [
        ((puts(HOST), ("nat", (1, 0), (2, 2), (3, 1))), SourceNat(text="snat", address="10.0.0.1")), ((puts(HOST), ("nat", (2, 2), (3, 1))), SourceNat(text="snat", address="10.0.0.1")), ((("nat", (1, 0), (2, 2)),), SourceNat(text="snat")), ((puts(HOST), ("nat", (1, 0), (2, 2), (3, 1), (4, 2))), SourceNat(text="snat")),
        ((puts(HOST), puts(PORT, 2), ("nat", (1, 1), (2, 2), (3, 1), (5, 2))), destination("10.0.0.1", 80)), ((puts(HOST), puts(PORT, 2), ("nat", (1, 1), (2, 2), (3, 1), (4, 1), (5, 2), (6, 2), (7, 3))), destination("10.0.0.1", 80)), ((puts(HOST), ("nat", (1, 1), (2, 2), (3, 1), (5, 2))), None), ((puts(PORT, 2), ("nat", (1, 1), (2, 2), (3, 1), (5, 2))), None),
        ((puts(PORT), ("nat", (1, 1), (2, 2), (5, 1))), destination("", 80)), ((puts(b"\x01\xbb\0\0"), ("nat", (1, 1), (2, 2), (5, 1))), destination("", 443)), ((puts(PORT), ("nat", (1, 1), (2, 2), (5, 1), (6, 2))), None), ((puts(HOST), ("nat", (1, 1), (2, 2), (3, 1), (4, 2))), None), ((puts(HOST), ("nat", (1, 1), (2, 2), (4, 1))), None), ((puts(PORT), ("nat", (1, 1), (2, 2), (6, 1))), None), ((("nat", (1, 1), (2, 2)),), None),
        *[((puts(HOST), ("nat", (1, 1), (2, 2), (3, 1), (7, flags))), destination("10.0.0.1") if flags < 4 else None) for flags in (0, 1, 2, 3, 4, 8, 32)], ((puts(HOST + b"\1\2\3\4"), ("nat", (1, 1), (2, 2), (3, 1))), destination("10.0.0.1")), ((puts(HOST), ("nat", (1, 1), (3, 1))), None), ((MARK, ("nat", (1, 1), (2, 2), (3, 1))), None), ((MARK, ("nat", (1, 1), (2, 2), (5, 1))), None), ((puts(b"\0\0"), ("nat", (1, 1), (2, 2), (5, 1))), None),
        ((puts(PORT), ("redir", (1, 1))), Redirect(port=80)), ((puts(PORT), ("redir", (1, 1), (2, 1))), Redirect(port=80)), ((puts(PORT), ("redir", (1, 1), (2, 1), (3, 2))), Redirect(port=80)), ((puts(PORT), ("redir", (1, 1), (2, 2))), None), ((puts(PORT), ("redir", (1, 1), (3, 4))), None), ((puts(PORT), ("redir", (1, 1), (3, 1))), None), ((("redir",),), None), ((puts(b"\0\0"), ("redir", (1, 1))), None), ((MARK, ("redir", (1, 1))), None), ((puts(PORT), ("redir", (2, 1))), None),
        ((("masq",),), SourceNat(text="masquerade", own=True)), ((("masq", (1, 4)),), SourceNat(text="masquerade", own=True)), ((("notrack",),), Untrack()),
        ((puts(PORT), ("tproxy", (1, 2), (3, 1))), offered(80)), ((puts(HOST), puts(PORT, 2), ("tproxy", (1, 2), (2, 1), (3, 2))), offered(80, "10.0.0.1")), ((puts(PORT), ("tproxy", (1, 2))), None), ((puts(b"\0\0"), ("tproxy", (1, 2), (3, 1))), None), ((puts(PORT, 2), ("tproxy", (1, 2), (2, 1), (3, 2))), None), ((puts(HOST), ("tproxy", (1, 2), (2, 1))), None),
        ((puts(HOST[:3]), puts(PORT, 2), ("tproxy", (1, 2), (2, 1), (3, 2))), None), ((puts(HOST + HOST), puts(PORT, 3), ("tproxy", (1, 2), (2, 1), (3, 3))), None), ((MARK, ("tproxy", (1, 2), (3, 1))), None),
        ((puts(HOST), writes(1, 16, 4)), WriteDestination(text="write 4 bytes at 16 of the network header", address="10.0.0.1")), ((puts(PORT), writes(2, 2, 2)), WriteDestination(text="write 2 bytes at 2 of the transport header", port=80)), ((puts(PORT + b"\1\1"), writes(2, 2, 2)), WriteDestination(text="write 2 bytes at 2 of the transport header", port=80)), ((HIGH, writes(1, 16, 4)), WriteDestination(text="write 4 bytes at 16 of the network header", address="10.0.0.1")),
        ((MARK, writes(1, 16, 4)), UnknownTarget(text="write 4 bytes at 16 of the network header")), ((MARK, writes(2, 2, 2)), UnknownTarget(text="write 2 bytes at 2 of the transport header")), ((puts(HOST), writes(1, 12, 4)), UnknownTarget(text="write 4 bytes at 12 of the network header")), ((puts(PORT), writes(2, 0, 2)), UnknownTarget(text="write 2 bytes at 0 of the transport header")), ((puts(PORT), writes(3, 2, 2)), UnknownTarget(text="write 2 bytes at 2 of the transport header")), ((puts(HOST), writes(2, 16, 4)), UnknownTarget(text="write 4 bytes at 16 of the transport header")),
        ((puts(PORT), writes(1, 2, 2)), UnknownTarget(text="write 2 bytes at 2 of the network header")), ((puts(b"\1"), writes(1, 1, 1)), Observe(text="DSCP set")), ((puts(PORT), writes(1, 0, 2)), Observe(text="DSCP set")), ((puts(HOST), writes(1, 0, 4)), UnknownTarget(text="write 4 bytes at 0 of the network header")), ((puts(b"\1"), writes(1, 2, 1)), UnknownTarget(text="write 1 bytes at 2 of the network header")), ((puts(b"\1"), writes(2, 1, 1)), UnknownTarget(text="write 1 bytes at 1 of the transport header")),
        ((puts(b"\2"), writes(1, 8, 1)), Observe(text="ttl set")), ((puts(b"\xff"), writes(1, 8, 1)), Observe(text="ttl set")), ((puts(b"\1"), writes(1, 8, 1)), UnknownTarget(text="write 1 bytes at 8 of the network header")), ((puts(b"\x40"), writes(1, 7, 1)), UnknownTarget(text="write 1 bytes at 7 of the network header")), ((puts(b"\x40\1"), writes(1, 8, 2)), UnknownTarget(text="write 2 bytes at 8 of the network header")), ((MARK, writes(1, 8, 1)), UnknownTarget(text="write 1 bytes at 8 of the network header")), ((puts(b"\x40"), writes(2, 8, 1)), UnknownTarget(text="write 1 bytes at 8 of the transport header")),
        ((("reject", (1, 1)),), Reject(message="tcp-reset")), ((("reject", (1, 2), (2, b"\1")),), Reject()), ((("reject", (1, 2), (2, b"\0")),), Reject(message="icmpx code 0")), ((("reject", (1, 0), (2, b"\3")),), Reject()), ((("reject", (1, 0), (2, b"\4")),), Reject(message="icmp code 4")), ((("reject", (2, b"\1")),), Reject(message="icmp code 1")), ((("reject", (1, 3), (2, b"\3")),), None),
        ((puts(HOST), ("dup", (1, 1))), Observe(text="dup to 10.0.0.1", copies=True)), ((puts(FAR), ("dup", (1, 1))), Observe(text="dup to fd00::1", copies=True)), ((puts(HOST[:2]), ("dup", (1, 1))), Observe(text="dup", copies=True)), ((("dup", (2, 1)),), Observe(text="dup", copies=True)), ((MARK, ("dup", (1, 1))), Observe(text="dup", copies=True)),
        ((("queue", (1, b"\0\5")),), Queue(text="queue num 5")), ((("queue", (2, b"\0\5")),), Queue(text="queue num 0")), ((("exthdr", (2, 2), (3, 2), (4, 2), (7, 1)),), Observe(text="tcp option set")), ((("last",),), Observe(text="last")), ((("flow_offload", (1, b"f\0")),), Observe(text="flow add")),
        *[((("objref", (1, kind), (2, b"x\0")),), Observe(text="object") if kind in (1, 3, 7, 9) else None) for kind in range(11)], ((("objref", (3, 1), (4, b"x\0")),), None), ((("numbers",),), None),
        ((("target", (1, b"MARK\0"), (2, 2), (3, pack("=2I", 7, 255))),), SetMark(value=7, mask=255)), ((("target", (1, b"TRACE\0")),), Observe(text="TRACE")), ((("target", (1, b"REDIRECT\0"), (2, 0), (3, multi(2))),), Redirect(port=80)), ((("target", (1, b"TEE\0"), (2, 1), (3, HOST + bytes(12))),), Observe(text="TEE --gateway 10.0.0.1", copies=True)),
    ],
    ids=str,
)  # fmt: skip
def test_an_expression_that_ends_or_changes_a_packet_s_way_is_the_target_that_it_means(parts, target):
    same(decode(*parts, family=IP).rules[0].target, target or UnknownTarget(text=parts[-1][0]))


@pytest.mark.parametrize(
    ("parts", "family", "target"),
    [
        ((puts(FAR), writes(1, 24, 16)), IP6, WriteDestination(text="write 16 bytes at 24 of the network header", address="fd00::1")), ((puts(HOST), writes(1, 16, 4)), IP6, UnknownTarget(text="write 4 bytes at 16 of the network header")), ((puts(HOST), writes(1, 16, 4)), INET, UnknownTarget(text="write 4 bytes at 16 of the network header")), ((puts(b"\1"), writes(1, 1, 1)), INET, UnknownTarget(text="write 1 bytes at 1 of the network header")),
        ((puts(HOST), writes(1, 0, 4)), IP6, Observe(text="DSCP set")), ((puts(b"\1"), writes(1, 4, 1)), IP6, UnknownTarget(text="write 1 bytes at 4 of the network header")), ((puts(b"\x40"), writes(1, 7, 1)), IP6, Observe(text="ttl set")), ((puts(b"\x40"), writes(1, 8, 1)), INET, UnknownTarget(text="write 1 bytes at 8 of the network header")), ((puts(PORT), writes(2, 2, 2)), INET, WriteDestination(text="write 2 bytes at 2 of the transport header", port=80)),
        ((puts(FAR), ("nat", (1, 1), (2, 10), (3, 1))), INET, destination("fd00::1")), ((puts(FAR), puts(PORT, 2), ("tproxy", (1, 10), (2, 1), (3, 2))), INET, offered(80, "fd00::1")),
        ((("reject", (1, 0), (2, b"\4")),), IP6, Reject()), ((("reject", (1, 0), (2, b"\3")),), IP6, Reject(message="icmp code 3")), ((("reject", (1, 0), (2, b"\3")),), INET, Reject(message="icmp code 3")), ((("reject", (1, 2), (2, b"\1")),), INET, Reject()), ((("target", (1, b"REJECT\0"), (2, 0), (3, pack("=I", 4))),), IP6, Reject()), ((("target", (1, b"REJECT\0"), (2, 0), (3, pack("=I", 3))),), INET, Reject()),
    ],
    ids=str,
)  # fmt: skip
def test_what_an_expression_does_to_a_header_is_known_by_the_family_of_the_packets(parts, family, target):
    same(decode(*parts, family=family).rules[0].target, target)


def test_a_socket_s_packets_are_marked_and_accepted_as_one_target_of_iptables():
    hands = (puts(PORT), ("tproxy", (1, 2), (3, 1)))
    marks, accepts = (puts(pack("=I", 7)), ("meta", (2, 3), (3, 1))), ("immediate", (1, 0), (2, ((2, ((1, 1),)),)))
    assert read(*hands, *marks, accepts) == ["-j TPROXY --on-port 80 --on-ip 0.0.0.0 --tproxy-mark 0x7/0xffffffff"]
    assert decode(*hands, *marks, accepts).rules[0].target.is_final
    assert decode(*hands, accepts).rules[0].target != decode(*hands, *marks, accepts).rules[0].target
