"""Rules of nf_tables, expression by expression: what each value in a register, each comparison and each lookup means."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.base.snapshot import (
    ELEMENT_CATCHALL,
    INET,
    IP,
    IP6,
    SET_DYNAMIC,
    SET_INTERVAL,
    SET_MAP,
    NftChain,
    NftElement,
    NftRule,
    Snapshot,
)
from netinit.rules.expressions import rule_reader
from netinit.rules.expressions.rule_reader import LiveTables, read_comment
from netinit.rules.foreign_targets import UnknownTarget
from netinit.rules.matches.context import UnknownMatch
from nft_expressions import (
    ACCEPTS,
    CT_MARK,
    DPORT,
    DROPS,
    MARK,
    PROTOCOL,
    SPORT,
    TCP,
    decode,
    encode,
    equals,
    holds,
    loads,
    looks_up,
    mask,
    puts,
    read,
)

BRIDGE = 7
TO_ACCEPT, TO_DROP, TO_RETURN = (pack("=2H", 8, 1) + pack(">i", code) for code in (1, 0, -5))
JUMPS, GOES = (pack("=2H", 8, 1) + pack(">i", code) + pack("=2H", 6, 2) + b"x\0\0\0" for code in (-3, -4))
DEVICE, IN = ("meta", (2, 4), (1, 1)), ("meta", (2, 6), (1, 1))


@pytest.mark.parametrize(
    ("parts", "listed"),
    [
        # a port beside each end of the comparison: the values in registers are in network byte order
        ((*TCP, DPORT, equals(b"\0\x50", 0)), "-p tcp -m tcp --dport 80"), ((*TCP, DPORT, equals(b"\0\x50", 1)), "-p tcp -m tcp ! --dport 80"),
        ((*TCP, DPORT, equals(b"\0\x50", 2)), "-p tcp -m tcp ! --dport 80:65535"), ((*TCP, DPORT, equals(b"\0\x50", 3)), "-p tcp -m tcp --dport 0:80"),
        ((*TCP, DPORT, equals(b"\0\x50", 4)), "-p tcp -m tcp ! --dport 0:80"), ((*TCP, DPORT, equals(b"\0\x50", 5)), "-p tcp -m tcp --dport 80:65535"),
        ((*TCP, DPORT, equals(b"\0\x50", 5), equals(b"\0\x5a", 3)), "-p tcp -m tcp --dport 80:90"),
        ((*TCP, DPORT, equals(b"\0\x50", 5), SPORT, equals(b"\0\x5a", 3)), "-p tcp -m tcp --dport 80:65535 --sport 0:90"),
        ((*TCP, DPORT, equals(b"\0\x50", 5), ("limit", (1, 5), (2, 1), (3, 7)), equals(b"\0\x5a", 3)), "-p tcp -m tcp --dport 80:65535 -m limit --limit 5/sec --limit-burst 7 -m tcp --dport 0:90"),
        ((*TCP, DPORT, ("range", (1, 1), (2, 0), (3, ((1, b"\0\x50"),)), (4, ((1, b"\0\x5a"),)))), "-p tcp -m tcp --dport 80:90"),
        ((*TCP, DPORT, ("range", (1, 1), (2, 1), (3, ((1, b"\0\x50"),)), (4, ((1, b"\0\x5a"),)))), "-p tcp -m tcp ! --dport 80:90"),
        ((*TCP, DPORT, ("range", (1, 1), (3, ((1, b"\0\x50"),)), (4, ((1, b"\0\x5a"),)))), "-p tcp -m tcp --dport 80:90"),
        # without a protocol, or with one that is excluded, four bytes of the header are no ports
        ((DPORT, equals(b"\0\x50")), "[payload 2 2 == 0050]"), ((PROTOCOL, equals(b"\6", 1), DPORT, equals(b"\0\x50")), "! -p tcp [payload 2 2 == 0050]"),
        ((PROTOCOL, equals(b"\x11"), DPORT, equals(b"\0\x50")), "-p udp -m udp --dport 80"), ((PROTOCOL, equals(b"\x84"), DPORT, equals(b"\0\x50")), "-p sctp [payload 2 2 == 0050]"),
        ((MARK, equals(pack("=I", 7))), "-m mark --mark 0x7"), ((CT_MARK, equals(pack("=I", 7), 1)), "-m connmark ! --mark 0x7"),
        ((IN, equals(b"eth0".ljust(16, b"\0"))), "-i eth0"), ((IN, equals(b"eth")), "-i eth+"), ((DEVICE, equals(pack("=I", 3))), "-i eth0"), ((DEVICE, equals(pack("=I", 2))), f"[meta 4 == {pack('=I', 2).hex()}]"),
        # what is loaded of other kinds is not known, and is named by its kind
        ((("exthdr", (1, 1), (2, 1), (3, 0), (4, 1)), equals(b"\1")), "[other exthdr == 01]"), ((("rt", (1, 1), (2, 3)), equals(b"\1")), "[other rt == 01]"),
        ((("osf", (1, 1), (2, 3)), equals(b"\1")), "[other osf == 01]"), ((("tunnel", (2, 1), (1, 3)), equals(b"\1")), "[other tunnel == 01]"), ((("xfrm", (1, 1), (2, 3)), equals(b"\1")), "[other xfrm == 01]"),
        ((("ct", (1, 1), (2, 8), (3, 0)), equals(b"\1")), "[ct 8 0 == 01]"), ((("ct", (1, 1), (2, 8), (3, 1)), equals(b"\1", 1)), "[ct 8 1 != 01]"),
        ((("dynset", (1, b"s\0"), (3, 0), (4, 1)),), "[dynset]"), ((("quota", (1, bytes(8))),), "[quota]"), ((("connlimit", (1, 5)),), "[connlimit]"),
        # a register keeps what was loaded last, in each of its words
        ((MARK, CT_MARK, equals(pack("=I", 7))), "-m connmark --mark 0x7"), ((MARK, ("ct", (1, 2), (2, 3)), equals(pack("=I", 7))), "-m mark --mark 0x7"),
        ((("meta", (2, 3), (1, 9)), IN, equals(pack("=I", 7), register=9)), f"[other register == {pack('=I', 7).hex()}]"),
        # bits of a value
        ((MARK, mask(pack("=I", 3)), equals(pack("=I", 1))), "-m mark --mark 0x1/0x3"), ((MARK, mask(pack("=I", 3), _7=((1, bytes(4)),)), equals(pack("=I", 1))), "-m mark --mark 0x1/0x3"),
        ((MARK, mask(pack("=I", 3), into=2), equals(pack("=I", 1), register=2)), "-m mark --mark 0x1/0x3"), ((MARK, mask(pack("=I", 3), into=2), equals(pack("=I", 7))), "-m mark --mark 0x7"),
        ((MARK, mask(pack("=I", 3), pack("=I", 4)), equals(pack("=I", 1))), f"[meta 3 & {pack('=I', 3).hex()} == {pack('=I', 1).hex()}]"),
        ((MARK, mask(pack("=I", 3), _6=1), equals(pack("=I", 1))), f"[other bitwise == {pack('=I', 1).hex()}]"), ((MARK, mask(pack("=I", 3), length=3), equals(pack("=I", 1))), f"[other bitwise == {pack('=I', 1).hex()}]"),
        ((MARK, mask(pack("=I", 3), bytes(3)), equals(pack("=I", 1))), f"[other bitwise == {pack('=I', 1).hex()}]"),
        ((MARK, mask(pack("=I", 3)), mask(pack("=I", 1)), equals(pack("=I", 1))), f"[other bitwise == {pack('=I', 1).hex()}]"),
        ((("immediate", (1, 1), (2, ((1, b"1234"),))), mask(b"\xff" * 4), equals(b"1234")), "[other bitwise == 31323334]"),
        ((MARK, ("bitwise", (1, 1), (2, 1), (3, 4), (6, 0), (5, ((1, bytes(4)),))), equals(pack("=I", 1))), f"[other bitwise == {pack('=I', 1).hex()}]"), ((MARK, ("bitwise", (1, 1), (2, 1), (3, 4), (6, 0), (4, ((1, bytes(4)),))), equals(pack("=I", 1))), f"[other bitwise == {pack('=I', 1).hex()}]"),
        ((MARK, mask(pack("=I", 3), b"X\0\0\0"), equals(pack("=I", 1))), f"[meta 3 & {pack('=I', 3).hex()} == {pack('=I', 1).hex()}]"), ((("meta", (2, 3), (1, 13)), loads(1, 24, 16), mask(b"\xff" * 4, into=2), equals(pack("=I", 1), register=13)), "-m mark --mark 0x1"),
        # a value in network byte order, which a comparison of more than equality wants of a number of this machine
        ((("meta", (2, 10), (1, 1)), ("byteorder", (1, 1), (2, 1), (3, 1), (4, 4), (5, 4)), ("range", (1, 1), (2, 0), (3, ((1, pack(">I", 5)),)), (4, ((1, pack(">I", 9)),)))), "-m owner --uid-owner 5-9"),
        ((("meta", (2, 10), (1, 1)), ("range", (1, 1), (2, 0), (3, ((1, pack("=I", 5)),)), (4, ((1, pack("=I", 9)),)))), f"[meta 10 == {pack('=I', 5).hex()}-{pack('=I', 9).hex()}]"),
        ((("meta", (2, 10), (1, 1)), ("byteorder", (1, 1), (2, 1)), ("byteorder", (1, 1), (2, 1)), equals(pack("=I", 5))), "-m owner --uid-owner 5"),
        ((("meta", (2, 10), (1, 1)), ("byteorder", (1, 1), (2, 2)), equals(pack(">I", 5), register=2)), "-m owner --uid-owner 5"),
        ((MARK, mask(pack("=I", 3)), ("byteorder", (1, 1), (2, 1)), equals(pack(">I", 5))), "[other byteorder == 00000005]"),
        ((("numgen", (1, 1), (2, 1), (4, 5)), equals(pack("=I", 1))), f"[constant value == {pack('=I', 1).hex()}]"),
        # what is always true is no condition, and what is never true is no rule of which more is known
        ((("immediate", (1, 1), (2, ((1, b"1234"),))), equals(b"1234")), ""), ((("immediate", (1, 1), (2, ((1, b"1234"),))), equals(b"1235")), "[constant value == 31323335]"),
        ((("immediate", (1, 1), (2, ((1, b"1234"),))), equals(b"1234", 1)), "[constant value != 31323334]"), ((("immediate", (1, 1), (2, ((1, b"1234"),))), equals(b"1233", 5)), ""),
        ((("immediate", (1, 1), (2, ((1, b"1234"),))), equals(b"1235", 3)), ""), ((("immediate", (1, 1), (2, ((1, b"1234"),))), equals(b"1233", 3)), "[constant value == 00000000-31323333]"),
        # limits
        ((("limit", (1, 5), (2, 1), (3, 7), (4, 0), (5, 0)),), "-m limit --limit 5/sec --limit-burst 7"), ((("limit", (1, 5), (2, 60), (3, 7), (4, 0), (5, 0)),), "[limit]"),
        ((("limit", (1, 5), (2, 1), (3, 7), (4, 1), (5, 0)),), "[limit]"), ((("limit", (1, 5), (2, 1), (3, 7), (4, 0), (5, 1)),), "[limit]"), ((("limit", (1, 5), (2, 1), (3, 7), (5, 2)),), "-m limit --limit 5/sec --limit-burst 7"),
        # extensions
        ((("match", (1, b"mark\0"), (2, 1), (3, pack("=2IB3x", 1, 3, 1))),), "-m mark ! --mark 0x1/0x3"), ((("match", (1, b"mark\0"), (2, 0), (3, pack("=2IB3x", 1, 3, 1))),), "[-m mark]"), ((("match", (1, b"state\0"), (3, pack("=I", 8))),), "-m state --state NEW"), ((("match", (1, b"mark\0"), (2, 1)),), "[-m mark]"), ((("match", (1, b"comment\0"), (2, 0)),), ""),
        ((*TCP, ("match", (1, b"multiport\0"), (2, 1), (3, pack("=2B15H15BB", 1, 2, 80, 443, *[0] * 29)))), "-p tcp -m tcp --dport 80 -j ACCEPT | -p tcp -m tcp --dport 443"),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_rule_compares_is_what_iptables_would_say(parts, listed):
    assert read(*parts, ACCEPTS) == [f"{listed} -j ACCEPT".lstrip()]


ANY = NftElement(key=b"", flags=ELEMENT_CATCHALL)
ONE, TWO, THREE = (pack("=I", at) for at in (1, 2, 3))
NOT = (5, 1)
TO_VERDICT, TO_REGISTER = (3, 0), (3, 1)
SOURCE, IN_AT_9, DPORT_AT_9 = loads(1, 12, 4), ("meta", (2, 6), (1, 9)), loads(2, 2, 2, register=9)
ADDRESS = bytes((10, 0, 0, 1))


@pytest.mark.parametrize(
    ("parts", "held", "listed"),
    [
        # sets
        ((MARK, looks_up()), holds(ONE), "-m mark --mark 0x1"), ((MARK, looks_up("s", NOT)), holds(ONE), "-m mark ! --mark 0x1"),
        ((*TCP, DPORT, looks_up()), holds(b"\0\x50", b"\1\xbb"), "-p tcp -m tcp --dport 80 -j ACCEPT | -p tcp -m tcp --dport 443"),
        ((*TCP, DPORT, looks_up("s", NOT)), holds(b"\0\x50", b"\1\xbb"), "-p tcp -m multiport ! --dports 80,443"),
        ((SOURCE, looks_up()), holds(ADDRESS, family=IP), "-s 10.0.0.1/32"), ((*TCP, DPORT, looks_up()), holds(NftElement(key=b"\0\x50", key_end=b"\0\x5a"), flags=SET_INTERVAL), "-p tcp -m tcp --dport 80:90"),
        ((MARK, looks_up("other")), holds(ONE), "[meta 3 in a set that is not read: other]"), ((MARK, looks_up()), holds(ONE, table="u"), "[meta 3 in a set that is not read: s]"),
        ((MARK, looks_up()), holds(ONE, is_complete=False), "[meta 3 in a set that is not read: s]"), ((MARK, looks_up()), holds(ONE, flags=SET_DYNAMIC), "[meta 3 in the set s, to which packets add elements]"),
        ((MARK, looks_up()), holds(), "meta 3 in the empty set s"), ((MARK, looks_up("s", NOT)), holds(), ""),
        ((MARK, looks_up()), holds(ANY, key_length=4), ""), ((MARK, looks_up()), holds(ONE, ANY), ""), ((MARK, looks_up("s", NOT)), holds(ONE, ANY), "meta 3 in the set s, which holds all"),
        ((MARK, looks_up()), holds(NftElement(key=THREE), NftElement(key=b"\4", flags=1), flags=SET_INTERVAL), "[meta 3 in the set s]"), ((MARK, looks_up("s", TO_REGISTER)), holds(ONE), "[meta 3 in the map s]"),
        # protocols, of which each is a rule of its own, since what follows depends on it
        ((PROTOCOL, looks_up(), DPORT, equals(b"\0\x50")), holds(b"\6", b"\x11"), ["-p tcp -m tcp --dport 80", "-p udp -m udp --dport 80"]),
        ((PROTOCOL, looks_up()), holds(b"\6"), "-p tcp"), ((PROTOCOL, looks_up("s", NOT)), holds(b"\6", b"\x11"), "meta 16 != 06, 11"),
        ((("meta", (2, 1), (1, 1)), looks_up(), SOURCE, equals(ADDRESS)), holds(b"\x08\0", b"\x86\xdd"), ["-s 10.0.0.1/32", "[payload 1 12 == 0a000001]"]),
        ((("meta", (2, 1), (1, 1)), looks_up()), holds(b"\x08\0", b"\x08\6"), ["", "[meta 1 == 0806]"]),
        # keys of several fields, each at a multiple of four bytes
        ((*TCP, MARK, DPORT_AT_9, looks_up()), holds(ONE + b"\0\x50\0\0", TWO + b"\1\xbb\0\0"), ["-p tcp -m mark --mark 0x1 -m tcp --dport 80", "-p tcp -m mark --mark 0x2 -m tcp --dport 443"]),
        ((*TCP, IN, loads(2, 2, 2, register=12), looks_up()), holds(b"eth0".ljust(16, b"\0") + b"\0\x50\0\0"), "-i eth0 -p tcp -m tcp --dport 80"),
        ((PROTOCOL, DPORT_AT_9, looks_up()), holds(b"\6\0\0\0\0\x50\0\0", b"\x11\0\0\0\0\x35\0\0"), ["-p tcp -m tcp --dport 80", "-p udp -m udp --dport 53"]),
        ((("ct", (1, 1), (2, 1)), ("meta", (2, 3), (1, 9)), looks_up()), holds(b"\1\0\0\0" + ONE), "-m conntrack --ctdir REPLY -m mark --mark 0x1"),
        ((*TCP, MARK, ("ct", (1, 9), (2, 3)), loads(2, 2, 2, register=10), looks_up()), holds(ONE + TWO + b"\0\x50\0\0"), "-p tcp -m mark --mark 0x1 -m connmark --mark 0x2 -m tcp --dport 80"),
        ((MARK, looks_up()), holds(ONE + TWO), "[other register == 0100000002000000]"),
        ((*TCP, MARK, DPORT_AT_9, looks_up("s", NOT)), holds(ONE + b"\0\x50\0\0", TWO + b"\1\xbb\0\0"), "-p tcp not meta 3, payload 2 2 in the set s"),
        ((*TCP, MARK, DPORT_AT_9, looks_up()), holds(NftElement(key=ONE + b"\0\x50\0\0", key_end=ONE + b"\0\x5a\0\0"), flags=SET_INTERVAL), "-p tcp meta 3, payload 2 2 in the set s"),
        ((*TCP, MARK, DPORT_AT_9, looks_up()), holds(NftElement(key=ONE + b"\0\x50\0\0", key_end=TWO + b"\0\x5a\0\0"), flags=SET_INTERVAL), "-p tcp [meta 3 in the set s of several fields]"),
        ((MARK, DPORT_AT_9, looks_up("s", NOT)), holds(ONE + b"\0\x50\0\0"), "[meta 3 in the set s of several fields]"),
        ((*TCP, MARK, ("meta", (2, 15), (1, 9)), looks_up("s", NOT)), holds(ONE + b"\2\0\0\0"), "-p tcp [meta 3 in the set s of several fields]"),
        ((*TCP, MARK, ("meta", (2, 1), (1, 9)), looks_up("s", NOT)), holds(ONE + b"\x08\0\0\0"), "-p tcp [meta 3 in the set s of several fields]"),
        # maps of verdicts and of values
    ],
    ids=str,
)  # fmt: skip
def test_what_a_rule_looks_up_is_what_the_set_holds(parts, held, listed):
    texts = [listed] if isinstance(listed, str) else listed
    assert read(*parts, ACCEPTS, sets=(held,), family=held.family) == [f"{one} -j ACCEPT".lstrip() for one in texts]


def gives(key, *, verdict=b"", value=b"", end=b""):
    return NftElement(key=key, key_end=end, verdict=verdict, value=value)


def maps(*elements, flags=0):
    return holds(*elements, flags=SET_MAP | flags)


CHANCE = ("numgen", (1, 1), (2, 2), (3, 0), (4, 0))
SETS_MARK = ("meta", (2, 3), (3, 1))
TRANSLATES = ("nat", (1, 1), (2, 2), (3, 1))
IN_MAP, ZERO = looks_up("s", TO_REGISTER), bytes(4)


@pytest.mark.parametrize(
    ("parts", "held", "listed"),
    [
        ((MARK, looks_up("s", TO_VERDICT)), maps(gives(ONE, verdict=TO_DROP), gives(TWO, verdict=JUMPS)), ["-m mark --mark 0x1 -j DROP", "-m mark --mark 0x2 -j x"]),
        ((MARK, looks_up("s", TO_VERDICT)), maps(gives(ONE, verdict=TO_DROP), ANY.replace(verdict=GOES)), ["-m mark --mark 0x1 -j DROP", "-m mark ! --mark 0x1 -g x"]),
        ((MARK, looks_up("s", TO_VERDICT)), maps(gives(ONE, verdict=TO_DROP), gives(TWO, verdict=TO_DROP), ANY.replace(verdict=GOES)), ["-m mark --mark 0x1 -j DROP", "-m mark --mark 0x2 -j DROP", "meta 3 != 01000000, 02000000 -g x"]),
        ((("meta", (2, 12), (3, 1)), MARK, looks_up("s", TO_VERDICT)), maps(gives(ONE, verdict=TO_DROP), gives(TWO, verdict=TO_ACCEPT)), ["-m mark --mark 0x1 -j meta nftrace set DROP", "-m mark --mark 0x2 -j meta nftrace set ACCEPT"]),
        ((MARK, looks_up("s", TO_VERDICT)), maps(ANY.replace(verdict=TO_RETURN)), ["-j RETURN"]), ((MARK, looks_up("s", TO_VERDICT)), maps(), ["meta 3 in the empty set s"]),
        ((MARK, looks_up("s", TO_VERDICT)), maps(gives(ONE, verdict=TO_DROP), gives(b"\2", verdict=TO_DROP).replace(flags=1), flags=SET_INTERVAL), ["[meta 3 in the verdict map s] -j [a verdict in the verdict map s]"]),
        ((MARK, looks_up("other", TO_VERDICT)), maps(), ["[meta 3 in a set that is not read: other] -j [a verdict in a set that is not read: other]"]),
        ((*TCP, MARK, DPORT_AT_9, looks_up("s", TO_VERDICT)), maps(gives(ONE + b"\0\x50\0\0", verdict=TO_DROP), gives(TWO + b"\0\x51\0\0", verdict=TO_ACCEPT)), ["-p tcp -m mark --mark 0x1 -m tcp --dport 80 -j DROP", "-p tcp -m mark --mark 0x2 -m tcp --dport 81 -j ACCEPT"]),
        ((*TCP, MARK, DPORT_AT_9, looks_up("s", TO_VERDICT)), holds(gives(ONE + b"\0\x50\0\0", verdict=TO_DROP), ANY.replace(verdict=TO_DROP), flags=SET_MAP), ["-p tcp [meta 3 in the verdict map s] -j [a verdict in the verdict map s]"]),
        ((*TCP, MARK, DPORT_AT_9, looks_up("s", TO_VERDICT)), holds(ANY.replace(verdict=TO_DROP), flags=SET_MAP, key_length=8), ["-p tcp -j DROP"]),
        ((*TCP, DPORT, looks_up("s", TO_VERDICT)), maps(gives(b"\0\x50", verdict=TO_DROP, end=b"\0\x5a"), flags=SET_INTERVAL), ["-p tcp -m tcp --dport 80:90 -j DROP"]),
        ((MARK, IN_MAP, SETS_MARK), maps(gives(ONE, value=TWO)), ["-m mark --mark 0x1 -j MARK --set-xmark 0x2/0xffffffff"]),
        ((MARK, IN_MAP, SETS_MARK), maps(gives(ONE, value=TWO), ANY.replace(value=THREE)), ["-m mark --mark 0x1 -j MARK --set-xmark 0x2/0xffffffff", "-m mark ! --mark 0x1 -j MARK --set-xmark 0x3/0xffffffff"]),
        ((MARK, IN_MAP, SETS_MARK), maps(), ["meta 3 in the empty set s -j [meta]"]), ((MARK, looks_up("other", TO_REGISTER), SETS_MARK), maps(), ["[meta 3 in a set that is not read: other] -j [meta]"]),
        ((MARK, looks_up("other", TO_REGISTER), equals(ONE)), maps(), ["[meta 3 in a set that is not read: other] [other map == 01000000]"]),
        ((MARK, IN_MAP, equals(ONE)), maps(), ["meta 3 in the empty set s [other map == 01000000]"]),
        ((MARK, IN_MAP, SETS_MARK), maps(gives(ONE, value=TWO), gives(b"\2", value=TWO).replace(flags=1), flags=SET_INTERVAL), ["[meta 3 in the map s] -j [meta]"]),
        # all the numbers that chance gives are in the map: one is found, and the last needs no condition if each before it ends the chain
        ((CHANCE, looks_up("s", TO_VERDICT)), maps(gives(ZERO, verdict=TO_DROP), gives(ONE, verdict=TO_ACCEPT)), ["[numgen mod 2 == 0] -j DROP", "-j ACCEPT"]),
        ((CHANCE, looks_up("s", TO_VERDICT)), maps(gives(ZERO, verdict=GOES), gives(ONE, verdict=GOES)), ["[numgen mod 2 == 0] -g x", "-g x"]),
        ((CHANCE, looks_up("s", TO_VERDICT)), maps(gives(ZERO, verdict=JUMPS), gives(ONE, verdict=TO_ACCEPT)), ["[numgen mod 2 == 0] -j x", "[numgen mod 2 == 1] -j ACCEPT"]),
        ((CHANCE, looks_up("s", TO_VERDICT)), maps(gives(ZERO, verdict=TO_DROP), gives(TWO, verdict=TO_DROP)), ["[numgen mod 2 == 0] -j DROP", "[numgen mod 2 == 2] -j DROP"]),
        ((("numgen", (1, 1), (2, 3), (4, 1)), looks_up("s", TO_VERDICT)), maps(gives(ONE, verdict=TO_DROP), gives(TWO, verdict=TO_DROP)), ["[numgen mod 3 offset 1 == 1] -j DROP", "[numgen mod 3 offset 1 == 2] -j DROP"]),
        ((("numgen", (1, 1), (2, 2), (4, 1)), looks_up("s", TO_VERDICT)), maps(gives(ONE, verdict=TO_DROP), gives(TWO, verdict=TO_DROP)), ["[numgen mod 2 offset 1 == 1] -j DROP", "-j DROP"]),
        ((MARK, looks_up("s", TO_VERDICT)), maps(gives(ZERO, verdict=TO_DROP), gives(ONE, verdict=TO_DROP)), ["-m mark --mark 0x0 -j DROP", "-m mark --mark 0x1 -j DROP"]),
        ((CHANCE, IN_MAP, TRANSLATES), maps(gives(ZERO, value=ADDRESS), gives(ONE, value=bytes((10, 0, 0, 2)))), ["[numgen mod 2 == 0] -j DNAT --to-destination 10.0.0.1", "-j DNAT --to-destination 10.0.0.2"]),
        ((CHANCE, IN_MAP, ("redir", (1, 1))), maps(gives(ZERO, value=b"\0\x50"), gives(ONE, value=b"\0\x51")), ["[numgen mod 2 == 0] -j REDIRECT --to-ports 80", "-j REDIRECT --to-ports 81"]),
        ((CHANCE, IN_MAP, SETS_MARK), maps(gives(ZERO, value=ONE), gives(ONE, value=TWO)), ["[numgen mod 2 == 0] -j MARK --set-xmark 0x1/0xffffffff", "[numgen mod 2 == 1] -j MARK --set-xmark 0x2/0xffffffff"]),
        # and a number that becomes a mark is each of few
        ((CHANCE, SETS_MARK), maps(), ["[numgen mod 2 == 0] -j MARK --set-xmark 0x0/0xffffffff", "[numgen mod 2 == 1] -j MARK --set-xmark 0x1/0xffffffff"]),
        ((("hash", (1, 5), (2, 1), (3, 4), (4, 2), (5, 0), (6, 7)), ("ct", (2, 3), (4, 1))), maps(), ["[hash mod 2 offset 7 == 7] -j CONNMARK --set-xmark 0x7/0xffffffff", "[hash mod 2 offset 7 == 8] -j CONNMARK --set-xmark 0x8/0xffffffff"]),
        ((("numgen", (1, 1), (2, 17)), SETS_MARK), maps(), ["-j [meta]"]), ((("numgen", (1, 1), (2, 0)), SETS_MARK), maps(), ["-j [meta]"]), ((CHANCE, mask(ONE), SETS_MARK), maps(), ["-j [meta]"]),
        ((CHANCE, SETS_MARK, equals(THREE)), maps(), [f"[numgen mod 2 == {at}] [constant value == 03000000] -j MARK --set-xmark 0x{at}/0xffffffff" for at in (0, 1)]), ((("hash", (1, 5), (2, 1), (3, 4), (4, 1), (5, 0), (6, 7)), SETS_MARK), maps(), ["[hash mod 1 offset 7 == 7] -j MARK --set-xmark 0x7/0xffffffff"]),
        ((MARK, IN_MAP, equals(THREE)), maps(gives(ONE, value=TWO)), ["-m mark --mark 0x1 [constant value == 03000000]"]), ((CHANCE, ("byteorder", (1, 1), (2, 1)), SETS_MARK), maps(), ["-j [meta]"]), ((("numgen", (1, 1), (2, 1), (4, 5)), SETS_MARK), maps(), ["-j MARK --set-xmark 0x5/0xffffffff"]), ((("numgen", (1, 1), (2, 1)), SETS_MARK), maps(), ["-j MARK --set-xmark 0x0/0xffffffff"]),
    ],
    ids=str,
)  # fmt: skip
def test_a_rule_with_a_map_is_a_rule_for_each_of_its_elements(parts, held, listed):
    assert read(*parts, sets=(held,)) == listed


def test_a_number_of_sixteen_by_chance_is_followed_to_each_mark():
    assert len(read(("numgen", (1, 1), (2, 16)), SETS_MARK)) == 16


def test_of_more_alternatives_than_a_proof_can_ask_nothing_is_known(monkeypatch):
    monkeypatch.setattr(rule_reader, "MAX_ALTERNATIVES", 2)
    for count, listed in ((2, "-p tcp not meta 3, payload 2 2 in the set s -j ACCEPT"), (3, "-p tcp [meta 3 in the set s of several fields] -j ACCEPT")):
        held = holds(*[pack("=I", at) + b"\0\x50\0\0" for at in range(count)])
        assert read(*TCP, MARK, DPORT_AT_9, looks_up("s", NOT), ACCEPTS, sets=(held,)) == [listed]


def test_a_rule_that_would_be_too_many_is_malformed(monkeypatch):
    monkeypatch.setattr(rule_reader, "MAX_VARIANTS", 4)
    for count, is_read in ((4, True), (5, False)):
        rules = decode(MARK, looks_up("s", TO_VERDICT), sets=(maps(*[gives(pack("=I", at), verdict=TO_DROP) for at in range(count)]),)).rules
        assert (len(rules), isinstance(rules[0].target, UnknownTarget)) == ((count, False) if is_read else (1, True))
    assert rules[0].target.text == "malformed: a verdict map with too many elements"
    several = (CHANCE, SETS_MARK)
    assert len(decode(*several, *several).rules) == 4
    assert isinstance(decode(*several, *several, *several).rules[0].target, UnknownTarget)


@pytest.mark.parametrize(("count", "target"), [(128, "-j ACCEPT"), (129, "[malformed] -j [malformed: 129 expressions in one rule]")])
def test_a_rule_has_as_many_expressions_as_the_kernel_allows(count, target):
    assert read(*[MARK] * (count - 1), ACCEPTS) == [target]


@pytest.mark.parametrize("flags", [2, 3, 1 << 31])
def test_a_flag_of_a_lookup_that_is_not_known_makes_the_rule_malformed(flags):
    (rule,) = decode(MARK, looks_up("s", (5, flags)), ACCEPTS, sets=(holds(ONE),)).rules
    assert rule.target == UnknownTarget(text=f"malformed: flag {flags:#x} of a lookup is not known")


@pytest.mark.parametrize(
    "parts",
    [
        (equals(ONE, 6),), (("cmp", (2, 0), (3, ((1, ONE),))),), (("cmp", (1, 1), (2, 0)),), (("cmp", (1, 1), (3, b"")),), (("range", (1, 1), (3, ((1, ONE),))),), (("lookup", (1, b"s\0")),), (("lookup", (2, 1)),), (("immediate", (1, 1)),), (("immediate", (1, 1), (2, b"")),),
        (("immediate", (2, ((1, ONE),))),), (("bitwise", (2, 1)),), (("bitwise", (1, 1)),), (("byteorder", (2, 1)),), (("byteorder", (1, 1)),), (("meta", (1, 1)),), (("payload", (1, 1), (2, 1), (3, 0)),), (("match", (2, 1)),), (("target", (2, 1)),), (("numgen", (2, 1)),), (("numgen", (2, 2)),),
        (("hash", (4, 2)),), (("meta", (2, 3), (1, 99)),), (("exthdr", (1, 99)),),
    ],
    ids=str,
)  # fmt: skip
def test_a_rule_that_lacks_what_each_of_its_kind_has_is_unknown_as_a_whole(parts):
    userdata = b"\0\4why\0"
    rule = decode(MARK, *parts, ACCEPTS, family=IP, userdata=userdata)
    (unknown,) = rule.rules
    assert (unknown.matches, rule.handle, rule.packets) == ((UnknownMatch(text="malformed"),), 9, None)
    assert isinstance(unknown.target, UnknownTarget)
    assert unknown.target.text.startswith("malformed: ")
    assert (unknown.comment, unknown.families) == ("why", (IPV4,))


@pytest.mark.parametrize(
    ("parts", "family", "families"),
    [
        ((), IP, (IPV4,)), ((), IP6, (IPV6,)), ((), INET, FAMILIES), ((), BRIDGE, FAMILIES), ((("meta", (2, 15), (1, 1)), equals(b"\2")), INET, (IPV4,)), ((("meta", (2, 15), (1, 1)), equals(b"\2", 1)), INET, (IPV6,)),
        ((("meta", (2, 1), (1, 1)), equals(b"\x86\xdd")), INET, (IPV6,)), ((("meta", (2, 15), (1, 1)), equals(b"\2")), IP6, None), ((("meta", (2, 15), (1, 1)), equals(b"\2")), IP, (IPV4,)),
        ((("tproxy", (1, 2), (3, 1)),), INET, (IPV4,)), ((("tproxy", (1, 10), (3, 1)),), INET, (IPV6,)), ((("tproxy", (1, 0), (3, 1)),), INET, FAMILIES), ((("nat", (1, 1), (2, 10)),), INET, (IPV6,)), ((("nat", (1, 1), (2, 10)),), IP, None),
        ((("meta", (2, 12), (3, 1)), ("tproxy", (1, 2), (3, 1))), INET, FAMILIES),
    ],
    ids=str,
)  # fmt: skip
def test_a_rule_is_of_the_families_of_its_table_that_its_expressions_leave(parts, family, families):
    rules = decode(*parts, family=family).rules
    assert [one.families for one in rules] == ([families] if families else [])


def test_a_rule_has_the_comment_that_nft_keeps_or_that_a_match_has_and_counts_packets():
    assert decode(ACCEPTS).rules[0].comment == ""
    noted = ("match", (1, b"comment\0"), (2, 0), (3, b"by iptables\0 rest"))
    assert decode(noted, ("match", (1, b"state\0"), (2, 0), (3, pack("=I", 8)))).rules[0].comment == "by iptables"
    assert decode(noted, userdata=b"\0\3me\0").rules[0].comment == "me"
    assert [decode(*parts).packets for parts in ((), (("counter", (1, 500), (2, 7)),), (("counter", (1, 500)),))] == [None, 7, 0]


@pytest.mark.parametrize(
    ("userdata", "comment"),
    [
        (b"", ""), (b"\0\3me\0", "me"), (b"\0\2me", "me"), (b"\0\4meX\0", "meX"), (b"\1\1a\2\1b\0\3me\0", "me"), (b"\1\4abcd\0\3me\0", "me"), (b"\2\0\0\3me\0\7", "me"), (b"\0\3me\0\0\3you", "me"), (b"\1\3me\0", ""), (b"\0", ""), (b"\1\4ab", ""), (b"\0\x09me", "me"), (b"\0\1me", "m"), (b"\0\0", ""),
        (b"\0\2\xc3\xa9", "é"), (b"\0\2\xff\xc3", "\udcff\udcc3"),
    ],
)  # fmt: skip
def test_a_comment_of_nft_is_the_first_text_among_what_is_kept_with_a_rule(userdata, comment):
    assert read_comment(userdata) == comment


def test_flags_of_tcp_come_behind_ports_as_iptables_lists_them():
    flags = (loads(2, 13, 1), mask(b"\x3f", b"\0"), equals(b"\2"))
    assert read(*TCP, *flags, DPORT, equals(b"\0\x50"), ACCEPTS) == ["-p tcp -m tcp --dport 80 --tcp-flags FIN,SYN,RST,PSH,ACK,URG SYN -j ACCEPT"]
    assert read(*TCP, *flags, DPORT, equals(b"\0\x50"), SPORT, equals(b"\0\x51"), ACCEPTS) == ["-p tcp -m tcp --dport 80 --sport 81 --tcp-flags FIN,SYN,RST,PSH,ACK,URG SYN -j ACCEPT"]


def test_a_table_has_its_own_chains_rules_sets_and_devices():
    def rule(table, family, chain, *parts, handle):
        return NftRule(family=family, table=table, chain=chain, handle=handle, expressions=encode(*parts))

    chains = [
        NftChain(family=INET, table="t", name="in", kind="filter", hook=1, policy=0), NftChain(family=INET, table="t", name="out", kind="filter", hook=3, policy=1), NftChain(family=INET, table="t", name="odd", kind="filter", hook=3, policy=5),
        NftChain(family=INET, table="u", name="in"), NftChain(family=IP, table="t", name="in"), NftChain(family=INET, table="t", name="loose", policy=0),
    ]  # fmt: skip
    rules = [
        rule("t", INET, "in", ACCEPTS, handle=1), rule("t", INET, "in", MARK, looks_up(), DROPS, handle=2), rule("t", IP, "in", MARK, looks_up(), DROPS, handle=3), rule("u", INET, "in", MARK, looks_up(), DROPS, handle=4), rule("t", INET, "out", DEVICE, equals(ONE), DROPS, handle=5),
    ]  # fmt: skip
    sets = [holds(ONE), holds(TWO, family=IP), holds(THREE, table="u")]
    snapshot = Snapshot(chains=tuple(chains), rules=tuple(rules), sets=tuple(sets))
    live = LiveTables(snapshot)
    assert (live.names(INET), live.names(IP), live.names(IP6)) == (["t", "u"], ["t"], [])
    held = live.chains(INET, "t")
    assert [(one.name, one.policy, one.nft) for one in held] == [("in", "DROP", chains[0]), ("out", "ACCEPT", chains[1]), ("odd", "5", chains[2]), ("loose", "", chains[5])]
    assert [[rule.handle for rule in one.rules] for one in held] == [[1, 2], [5], [], []]
    assert [matches for one in (("t", INET), ("t", IP), ("u", INET)) for matches in [live.chains(one[1], one[0])[0].rules[-1].rules[0].matches[0].value]] == [1, 2, 3]
    assert live.chains(INET, "t") is held
    assert live.chains(INET, "none") == ()


def test_a_map_that_holds_no_more_than_where_an_interval_ends_is_no_rule():
    rule = decode(MARK, looks_up("s", TO_VERDICT), ("counter", (1, 5), (2, 5)), sets=(maps(gives(ONE, verdict=TO_DROP).replace(flags=1), flags=SET_INTERVAL),))
    assert (rule.rules, rule.packets, rule.handle) == ((), None, 9)


@pytest.mark.parametrize(
    "loaded",
    [MARK, CT_MARK, PROTOCOL, DEVICE, loads(1, 16, 4), loads(2, 2, 2), ("fib", (1, 1), (2, 3), (3, 1)), ("socket", (1, 0), (2, 1)), ("ct", (1, 1), (2, 0)), ("exthdr", (1, 1)), ("rt", (1, 1)), ("numgen", (1, 1), (2, 5)), ("numgen", (1, 1), (2, 1)), ("hash", (2, 1), (4, 5)), puts(ONE), puts(b"\0\x50")],
    ids=str,
)  # fmt: skip
def test_what_has_four_bytes_or_fewer_is_in_one_word_and_leaves_the_next_as_it_was(loaded):
    assert read(("ct", (1, 9), (2, 3)), loaded, equals(ONE, register=9)) == ["-m connmark --mark 0x1"]


def test_a_number_by_chance_that_becomes_a_mark_leaves_the_next_word_as_it_was():
    assert read(("ct", (1, 9), (2, 3)), CHANCE, SETS_MARK, equals(ONE, register=9)) == [f"[numgen mod 2 == {at}] -m connmark --mark 0x1 -j MARK --set-xmark 0x{at}/0xffffffff" for at in (0, 1)]


@pytest.mark.parametrize(("loaded", "words"), [(("meta", (2, 6), (1, 1)), 4), (("meta", (2, 7), (1, 1)), 4), (loads(1, 24, 16), 4), (loads(1, 12, 8), 2), (puts(bytes(5)), 2), (("meta", (2, 10), (1, 1)), 1), (("meta", (2, 1), (1, 1)), 1), (("meta", (2, 15), (1, 1)), 1)])
def test_what_is_loaded_takes_as_many_words_as_it_has_bytes(loaded, words):
    for word in range(1, 6):
        (listed,) = read(("ct", (1, 8 + word), (2, 3)), loaded, equals(ONE, register=8 + word))
        assert listed == ("-m connmark --mark 0x1" if word >= words else f"[other register == {ONE.hex()}]")
