"""Statements of `nft -j list ruleset` as the expressions that the kernel holds of them, and each that is not understood as text."""

from __future__ import annotations

import json
from struct import pack

import pytest

from netinit.base.errors import ParseError
from netinit.base.net import FULL_MASK, IPV4, IPV6
from netinit.base.netlink_attributes import split_attributes, write_attribute
from netinit.base.snapshot import (
    FAMILY_NAMES,
    IP,
    SET_ANONYMOUS,
    SET_DYNAMIC,
    SET_INTERVAL,
    SET_MAP,
    NftElement,
    NftRule,
    NftSet,
)
from netinit.live.snapshot_rules import load_snapshot
from netinit.rules import numbers
from netinit.rules.nft import listing_objects
from netinit.rules.nft.listing_objects import read_objects
from netinit.rules.rule_builder import RuleBuilder, be32, expression

MARK, CT_MARK, STATE, FLAGS = {"meta": {"key": "mark"}}, {"ct": {"key": "mark"}}, {"ct": {"key": "state"}}, {"payload": {"protocol": "tcp", "field": "flags"}}
DPORT, SADDR, SADDR6 = {"payload": {"protocol": "tcp", "field": "dport"}}, {"payload": {"protocol": "ip", "field": "saddr"}}, {"payload": {"protocol": "ip6", "field": "saddr"}}
DADDR, TH_DPORT = {"payload": {"protocol": "ip", "field": "daddr"}}, {"payload": {"protocol": "th", "field": "dport"}}
IIFNAME, UID = {"meta": {"key": "iifname"}}, {"meta": {"key": "skuid"}}
LOAD_MARK, LOAD_STATE, LOAD_UID, LOAD_NAME = ("load", "meta", 3), ("load", "ct", 0), ("load", "meta", 10), ("load", "meta", 6)
LOAD_PORT, LOAD_SADDR, LOAD_DADDR = ("load", "payload", 2, 2, 2), ("load", "payload", 1, 12, 4), ("load", "payload", 1, 16, 4)
IS_TCP = [("limit_protocol", "tcp")]
TEN, TEN_TO_NINE = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 9))


def snapshot_of(*statements, family="ip", more=(), **rule):
    place = {"family": family, "table": "t"}
    chain = {"chain": {**place, "name": "c", "type": "filter", "hook": "output", "prio": 0}}
    return read_objects([{"table": {"family": family, "name": "t"}}, chain, *more, {"rule": {**place, "chain": "c", "expr": [*statements], **rule}}])


def encoded(*statements, family="ip"):
    """The expressions of a rule, and the sets that it looks into."""
    snapshot, _ = snapshot_of(*statements, family=family)
    (rule,) = snapshot.rules
    return rule.expressions, snapshot.sets


def built(calls, family="ip"):
    builder = RuleBuilder({name: number for number, name in FAMILY_NAMES.items()}[family], [])
    for name, *arguments in calls:
        builder.parts.extend(arguments) if name == "raw" else getattr(builder, name)(*arguments)
    return builder.block()


def add(name, *attributes):
    return ("add", name.encode(), *attributes)


def port(number):
    return pack(">H", number)


def host(number):
    return pack("=I", number)


def padded(name):
    return name.encode().ljust(16, b"\0")


def between(low, high, negated=False):
    return add("range", (1, 1), (2, int(negated)), (3, ((1, low),)), (4, ((1, high),)))


def match(left, right, *op):
    return {"match": {"left": left, "right": right, **({"op": op[0]} if op else {})}}


def is_kept_as_text(statement, family="ip"):
    """Whether nothing but its text, and what its name says of packets, is in the rule."""
    found = [split_attributes(one) for _, one in split_attributes(encoded({"counter": None}, statement, {"drop": None}, family=family)[0])][1:-1]
    names = [dict(one)[1].rstrip(b"\0") for one in found]
    is_match = next(iter(statement)) == "match"
    known = [b"match"] if is_match else [dict(found[-1])[1].rstrip(b"\0")]
    if is_match and names[:2] == [b"meta", b"cmp"]:
        names = names[2:]
    return names == known and names[0] not in {b"meta", b"payload", b"immediate", b"cmp", b"lookup", b"redir", b"nat", b"reject", b"limit", b"log", b"queue", b"ct"}


# ---- conditions ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "calls"),
    [
        (match(MARK, 5), [LOAD_MARK, ("compare", host(5))]), (match(MARK, 5, "=="), [LOAD_MARK, ("compare", host(5))]), (match(MARK, 5, "in"), [LOAD_MARK, ("compare", host(5))]), (match(MARK, 5, "!="), [LOAD_MARK, ("compare", host(5), True)]),
        (match(MARK, "0x10"), [LOAD_MARK, ("compare", host(16))]), (match(MARK, FULL_MASK), [LOAD_MARK, ("compare", host(FULL_MASK))]), (match(MARK, 0), [LOAD_MARK, ("compare", host(0))]), (match(MARK, [5]), [LOAD_MARK, ("compare", host(5))]), (match(MARK, {"set": [5]}), [LOAD_MARK, ("compare", host(5))]),
        (match(MARK, {"range": [5, 5]}), [LOAD_MARK, ("compare", host(5))]), (match(MARK, {"elem": {"val": 5, "comment": "x"}}), [LOAD_MARK, ("compare", host(5))]), (match(CT_MARK, 5), [("load", "ct", 3), ("compare", host(5))]),
        (match(DPORT, 80), [*IS_TCP, LOAD_PORT, ("compare", port(80))]), (match(DPORT, 65535), [*IS_TCP, LOAD_PORT, ("compare", port(65535))]), (match(TH_DPORT, 80), [LOAD_PORT, ("compare", port(80))]),
        (match({"payload": {"protocol": "udp", "field": "sport"}}, 53), [("limit_protocol", "udp"), ("load", "payload", 2, 0, 2), ("compare", port(53))]), (match(DPORT, {"range": [80, 90]}, "!="), [*IS_TCP, LOAD_PORT, between(port(80), port(90), negated=True)]),
        (match(DPORT, 80, "<"), [*IS_TCP, LOAD_PORT, between(port(0), port(79))]), (match(DPORT, 80, "<="), [*IS_TCP, LOAD_PORT, between(port(0), port(80))]), (match(DPORT, 80, ">"), [*IS_TCP, LOAD_PORT, between(port(81), port(65535))]), (match(DPORT, 80, ">="), [*IS_TCP, LOAD_PORT, between(port(80), port(65535))]),
        (match(DPORT, 1, "<"), [*IS_TCP, LOAD_PORT, ("compare", port(0))]), (match(DPORT, 65534, ">"), [*IS_TCP, LOAD_PORT, ("compare", port(65535))]), (match(DPORT, [80], "<"), [*IS_TCP, LOAD_PORT, between(port(0), port(79))]), (match(DPORT, "80", "<"), [*IS_TCP, LOAD_PORT, between(port(0), port(79))]),
        (match(SADDR, "10.0.0.1"), [LOAD_SADDR, ("compare", TEN)]), (match(SADDR, {"range": ["10.0.0.1", "10.0.0.9"]}), [LOAD_SADDR, between(TEN, TEN_TO_NINE)]), (match(DADDR, {"prefix": {"addr": "10.0.0.0", "len": 8}}), [LOAD_DADDR, between(bytes((10, 0, 0, 0)), bytes((10, 255, 255, 255)))]),
        (match({"payload": {"protocol": "ip", "field": "protocol"}}, "udp"), [("load", "payload", 1, 9, 1), ("compare", b"\x11")]), (match({"meta": {"key": "l4proto"}}, "icmpv6"), [("load", "meta", 16), ("compare", b"\x3a")]), (match({"meta": {"key": "l4proto"}}, 132), [("load", "meta", 16), ("compare", b"\x84")]),
        (match(IIFNAME, "lo"), [LOAD_NAME, ("compare", padded("lo"))]), (match(IIFNAME, "e"), [LOAD_NAME, ("compare", padded("e"))]), (match(IIFNAME, "e" * 15, "!="), [LOAD_NAME, ("compare", padded("e" * 15), True)]), (match({"meta": {"key": "oif"}}, "lo"), [("load", "meta", 7), ("compare", padded("lo"))]),
        (match(IIFNAME, "e\udcff"), [LOAD_NAME, ("compare", b"e\xff".ljust(16, b"\0"))]), (match(IIFNAME, "eth*"), [LOAD_NAME, ("compare", b"eth")]), (match(IIFNAME, "eth*", "!="), [LOAD_NAME, ("compare", b"eth", True)]), (match(IIFNAME, "eX*"), [LOAD_NAME, ("compare", b"eX")]), (match(IIFNAME, {"set": ["eth*"]}), [LOAD_NAME, ("compare", b"eth")]),
        (match(UID, 1000), [LOAD_UID, ("compare", host(1000))]), (match({"meta": {"key": "skgid"}}, "root"), [("load", "meta", 11), ("compare", host(0))]), (match(UID, {"range": [1000, 2000]}), [LOAD_UID, ("swap", 4), between(be32(1000), be32(2000))]), (match(UID, {"range": [7, 7]}, "!="), [LOAD_UID, ("swap", 4), ("compare", be32(7), True)]),
        (match(STATE, "new", "in"), [LOAD_STATE, ("mask", host(8)), ("compare", bytes(4), True)]), (match(STATE, ["new", "established"], "in"), [LOAD_STATE, ("mask", host(10)), ("compare", bytes(4), True)]), (match(STATE, {"set": ["new", "related"]}, "in"), [LOAD_STATE, ("mask", host(12)), ("compare", bytes(4), True)]),
        (match(STATE, "invalid", "!"), [LOAD_STATE, ("mask", host(1)), ("compare", bytes(4))]), (match(STATE, "untracked", "=="), [LOAD_STATE, ("compare", host(64))]), (match(STATE, "new", "!="), [LOAD_STATE, ("compare", host(8), True)]), (match(STATE, 8), [LOAD_STATE, ("compare", host(8))]),
        (match({"ct": {"key": "status"}}, ["snat", "dnat"], "in"), [("load", "ct", 2), ("mask", host(0x30)), ("compare", bytes(4), True)]), (match({"ct": {"key": "direction"}}, "original"), [("load", "ct", 1), ("compare", b"\0")]), (match({"ct": {"key": "direction"}}, "reply", "!="), [("load", "ct", 1), ("compare", b"\1", True)]),
        (match(FLAGS, ["syn", "ack"], "in"), [*IS_TCP, ("load", "payload", 2, 13, 1), ("mask", b"\x12"), ("compare", b"\0", True)]), (match(FLAGS, "fin"), [*IS_TCP, ("load", "payload", 2, 13, 1), ("compare", b"\1")]),
        (match({"&": [FLAGS, ["fin", "syn"]]}, "syn", "!="), [*IS_TCP, ("load", "payload", 2, 13, 1), ("mask", b"\3"), ("compare", b"\2", True)]), (match({"&": [FLAGS, {"|": ["fin", "syn"]}]}, {"|": ["fin", "syn"]}), [*IS_TCP, ("load", "payload", 2, 13, 1), ("mask", b"\3"), ("compare", b"\3")]),
        (match({"&": [FLAGS, "syn"]}, ["syn", "rst"], "in"), [*IS_TCP, ("load", "payload", 2, 13, 1), ("mask", b"\2"), ("compare", b"\6")]), (match({"&": [MARK, 255]}, 5), [LOAD_MARK, ("mask", host(255)), ("compare", host(5))]), (match({"&": [MARK, 255]}, 5, "in"), [LOAD_MARK, ("mask", host(255)), ("compare", host(5))]),
        (match({"&": [MARK, {"|": [1, 2]}]}, 3, "!="), [LOAD_MARK, ("mask", host(3)), ("compare", host(3), True)]), (match({"&": [STATE, ["new", "related"]]}, 0, "=="), [LOAD_STATE, ("mask", host(12)), ("compare", host(0))]), (match({"&": [MARK, 0]}, {"set": [0]}), [LOAD_MARK, ("mask", host(0)), ("compare", host(0))]),
        (match({"socket": {"key": "transparent"}}, 1), [("load", "socket", 0), ("compare", b"\1")]), (match({"socket": {"key": "wildcard"}}, 0, "!="), [("load", "socket", 2), ("compare", b"\0", True)]), (match({"socket": {"key": "transparent"}}, 1, "<="), [("load", "socket", 0), ("compare_with", "<=", b"\1")]),
        (match({"numgen": {"mode": "inc", "mod": 3, "offset": 1}}, 2), [add("numgen", (1, 1), (2, 3), (3, 0), (4, 1)), ("compare", host(2))]), (match({"numgen": {"mode": "random", "mod": 3}}, 2), [add("numgen", (1, 1), (2, 3), (3, 1), (4, 0)), ("compare", host(2))]),
        (match({"jhash": {"mod": 3, "offset": 1}}, 2), [add("hash", (2, 1), (4, 3), (6, 1)), ("compare", host(2))]), (match({"symhash": {"mod": 4}}, 2, "!="), [add("hash", (2, 1), (4, 4), (6, 0)), ("compare", host(2), True)]),
        (match({"fib": {"flags": "saddr", "result": "type"}}, "local"), [("load", "fib", 3, 1), ("compare", host(2))]), (match({"fib": {"flags": ["daddr"], "result": "type"}}, "unicast", "!="), [("load", "fib", 3, 2), ("compare", host(1), True)]), (match({"fib": {"flags": ["daddr"], "result": "type"}}, "unspec"), [("load", "fib", 3, 2), ("compare", host(0))]),
        (match({"meta": {"key": "nfproto"}}, "ipv4"), [("load", "meta", 15), ("compare", b"\2")]), (match({"meta": {"key": "nfproto"}}, "ipv6"), [("load", "meta", 15), ("compare", b"\x0a")]), (match({"meta": {"key": "protocol"}}, "ip"), [("load", "meta", 1), ("compare", b"\x08\0")]), (match({"meta": {"key": "protocol"}}, "ip6"), [("load", "meta", 1), ("compare", b"\x86\xdd")]),
        (match(DPORT, "@s"), [*IS_TCP, LOAD_PORT, add("lookup", (1, b"s\0"), (2, 1), (5, 0))]), (match(DPORT, "@s", "!="), [*IS_TCP, LOAD_PORT, add("lookup", (1, b"s\0"), (2, 1), (5, 1))]), (match(MARK, "@\udcff", "in"), [LOAD_MARK, add("lookup", (1, b"\xff\0"), (2, 1), (5, 0))]),
    ],
)  # fmt: skip
def test_a_match_is_what_the_kernel_compares(statement, calls):
    assert encoded(statement) == (built(calls), ())
    assert encoded({"counter": "k"}, statement, {"drop": None}) == (built([add("objref", (1, 1), (2, b"k\0")), *calls, ("decide", 0)]), ())


SIX = bytes(15) + b"\1"


@pytest.mark.parametrize(
    ("statement", "calls", "limits"),
    [
        (match(SADDR, "10.0.0.1"), [LOAD_SADDR, ("compare", TEN)], {"inet": IPV4, "bridge": IPV4, "ip6": IPV4}), (match(SADDR6, "::1"), [("load", "payload", 1, 8, 16), ("compare", SIX)], {"inet": IPV6, "ip": IPV6}), (match({"payload": {"protocol": "ip6", "field": "daddr"}}, "::1"), [("load", "payload", 1, 24, 16), ("compare", SIX)], {"inet": IPV6}),
        (match({"payload": {"protocol": "ip", "field": "protocol"}}, 6), [("load", "payload", 1, 9, 1), ("compare", b"\6")], {"inet": IPV4}), (match({"payload": {"protocol": "ip6", "field": "nexthdr"}}, 6), [("load", "payload", 1, 6, 1), ("compare", b"\6")], {"inet": IPV6}), (match(MARK, 6), [LOAD_MARK, ("compare", host(6))], {"inet": None, "ip": None}),
    ],
)  # fmt: skip
def test_a_field_of_one_family_is_of_packets_of_this_family(statement, calls, limits):
    for family, limit in {**limits, **{one.nft: None for one in limits.values() if one}}.items():
        assert encoded(statement, family=family) == (built([*([("limit_family", limit)] if limit else []), *calls], family), ())


def the_set(elements, length, flags=SET_ANONYMOUS):
    found = tuple([NftElement(key=low, key_end=high) for low, high in elements])
    return (NftSet(family=IP, table="t", name="__set0", flags=flags, key_length=length, elements=found),)


LOOKUP, LOOKUP_NOT = add("lookup", (1, b"__set0\0"), (2, 1), (5, 0)), add("lookup", (1, b"__set0\0"), (2, 1), (5, 1))
LOOKUP_OF_MANY = add("lookup", (1, b"__set0\0"), (2, 8), (5, 0))
BOTH = {"concat": [SADDR, DPORT]}
LOAD_BOTH = [*IS_TCP, add("payload", (1, 8), (2, 1), (3, 12), (4, 4)), add("payload", (1, 9), (2, 2), (3, 2), (4, 2))]


@pytest.mark.parametrize(
    ("statement", "calls", "elements", "length", "is_ranged"),
    [
        (match(MARK, {"set": [1, 2]}), [LOAD_MARK, LOOKUP], [(host(1), b""), (host(2), b"")], 4, False), (match(MARK, [1, 2], "!="), [LOAD_MARK, LOOKUP_NOT], [(host(1), b""), (host(2), b"")], 4, False),
        (match(DPORT, {"set": [80, {"range": [90, 95]}]}), [*IS_TCP, LOAD_PORT, LOOKUP], [(port(80), port(80)), (port(90), port(95))], 2, True), (match(IIFNAME, {"set": ["lo", "eth0"]}, "in"), [LOAD_NAME, LOOKUP], [(padded("lo"), b""), (padded("eth0"), b"")], 16, False),
        (match(UID, {"set": [1, {"range": [3, 5]}]}), [LOAD_UID, ("swap", 4), LOOKUP], [(be32(1), be32(1)), (be32(3), be32(5))], 4, True), (match(UID, {"set": [1, 2]}), [LOAD_UID, LOOKUP], [(host(1), b""), (host(2), b"")], 4, False),
        (match(BOTH, {"set": [{"concat": ["10.0.0.1", 80]}]}), [*LOAD_BOTH, LOOKUP_OF_MANY], [(TEN + port(80) + bytes(2), b"")], 8, False), (match(BOTH, {"concat": ["10.0.0.1", 80]}), [*LOAD_BOTH, LOOKUP_OF_MANY], [(TEN + port(80) + bytes(2), b"")], 8, False),
        (match(BOTH, {"set": [{"concat": [{"range": ["10.0.0.1", "10.0.0.9"]}, 80]}]}, "in"), [*LOAD_BOTH, LOOKUP_OF_MANY], [(TEN + port(80) + bytes(2), TEN_TO_NINE + port(80) + bytes(2))], 8, True),
        (match(BOTH, {"set": [{"elem": {"val": {"concat": ["10.0.0.1", 80]}, "comment": "x"}}]}, "!="), [*LOAD_BOTH, add("lookup", (1, b"__set0\0"), (2, 8), (5, 1))], [(TEN + port(80) + bytes(2), b"")], 8, False),
        (match({"concat": [IIFNAME, MARK, {"meta": {"key": "l4proto"}}]}, {"set": [{"concat": ["lo", 1, "tcp"]}]}), [add("meta", (2, 6), (1, 8)), add("meta", (2, 3), (1, 12)), add("meta", (2, 16), (1, 13)), LOOKUP_OF_MANY], [(padded("lo") + host(1) + b"\6\0\0\0", b"")], 24, False),
    ],
)  # fmt: skip
def test_several_values_are_a_set_that_the_rule_looks_into(statement, calls, elements, length, is_ranged):
    assert encoded(statement) == (built(calls), the_set(elements, length, SET_ANONYMOUS | (SET_INTERVAL if is_ranged else 0)))


def test_a_lookup_of_several_fields_says_first_of_which_packets_they_are():
    for family, limits in (("inet", [("limit_family", IPV4)]), ("ip", [])):
        calls = [*limits, *LOAD_BOTH, add("lookup", (1, b"s\0"), (2, 8), (5, 1))]
        assert encoded(match(BOTH, "@s", "!="), family=family) == (built(calls, family), ())


def test_sets_of_rules_are_numbered_behind_those_that_are_listed():
    listed = {"set": {"family": "ip", "table": "t", "name": "s", "type": "mark", "elem": [1]}}
    snapshot, _ = snapshot_of(match(MARK, {"set": [1, 2]}), match(MARK, {"set": [3, 4]}), more=[listed])
    assert [one.name for one in snapshot.sets] == ["s", "__set1", "__set2"]


@pytest.mark.parametrize(
    "statement",
    [
        *[match(MARK, value) for value in (-1, 1 << 32, "x", "", None, True, False, 1.5, {}, {"range": [5, 6]}, {"range": [6, 5]}, {"prefix": {"addr": "0.0.0.5", "len": 32}}, {"set": []}, [], "eth*", {"elem": 5}, {"elem": {}})],
        *[match(MARK, 5, op) for op in ("<", ">", "<=", ">=", "!", "newer", None)],
        *[match(DPORT, value) for value in (65536, -1, "http", True, {"range": [90, 80]}, {"range": [80]}, {"range": [80, 81, 82]}, {"range": 80}, {"range": [80, 65536]}, {"prefix": {"addr": "0.0.0.80", "len": 32}}, {"set": [80, "x"]})],
        match(DPORT, 0, "<"), match(DPORT, 65535, ">"), match(DPORT, 65536, "<"), match(DPORT, "x", "<"), match({"concat": [UID, MARK]}, {"concat": [{"range": [1, 5]}, 1]}), match({"concat": [UID, IIFNAME]}, {"set": [{"concat": [1, "lo*"]}]}), match(DPORT, [80, 90], "<"), match(DPORT, {"range": [80, 90]}, ">"), match(DPORT, 80, "in "), match(DPORT, "@s", "<"), match(DPORT, "@s", "!"), match({"&": [MARK, 255]}, "@s"),
        *[match(SADDR, value) for value in ("fd00::1", "10.0.0.256", "x", 1 << 33, {"prefix": {"addr": "10.0.0.0", "len": 33}}, {"prefix": {"addr": "fd00::", "len": 8}}, {"prefix": {"addr": "10.0.0.0"}}, {"prefix": 8}, {"range": ["10.0.0.9", "10.0.0.1"]}, {"range": ["10.0.0.1", "::1"]})],
        *[match(IIFNAME, value) for value in ("", "e" * 16, 5, "*", {"set": ["eth*", "lo"]}, {"set": ["lo", "eth*"]}, {"range": [5, 6]})], match(IIFNAME, "eth*", "<"), *[match(UID, value) for value in ("alice", 1 << 32, {"range": [5, 1]}, {"range": ["root", "daemon"]})],
        *[match({"meta": {"key": "l4proto"}}, value) for value in ("newer", 256, -1, None)], *[match(STATE, value, op) for value, op in ((["new", "related"], "=="), (["new", "related"], "!="), ("newer", "in"), ([], "in"), ({"range": [1, 2]}, "in"), ({"range": [1, 1]}, "=="))],
        match({"&": [DPORT, 1]}, 1), match({"&": [SADDR, 1]}, 1), match({"&": [MARK, 255]}, [5, 6]), match({"&": [MARK, 255]}, {"|": [5, 6]}), match({"&": [MARK, 255]}, 5, "<"), match({"&": [MARK, "x"]}, 5), match({"&": [MARK]}, 5), match({"&": [MARK, []]}, 5), match({"&": [BOTH, 1]}, "@s"),
        match({"socket": {"key": "mark"}}, 1), match({"socket": {}}, 1), match({"socket": {"key": "wildcard"}}, 256), match({"socket": {"key": "wildcard"}}, 1, "in"), match({"socket": {"key": "wildcard"}}, {"set": [1]}),
        match({"numgen": {"mode": "newer", "mod": 3}}, 1), match({"numgen": {"mode": "inc"}}, 1), match({"jhash": {"offset": 1}}, 1), match({"numgen": {"mode": "inc", "mod": 3}}, 1, "<"), match({"jhash": {}}, 1),
        match({"fib": {"flags": ["saddr", "iif"], "result": "type"}}, "local"), match({"fib": {"flags": "oif", "result": "type"}}, "local"), match({"fib": {"flags": ["saddr"], "result": "oif"}}, 1), match({"fib": {"flags": ["saddr"], "result": "type"}}, "newer"), match({"fib": {"flags": []}}, 1),
        match({"ct": {"key": "direction", "dir": "reply"}}, "reply"), match({"ct": {"key": "mark", "dir": "original"}}, 5), match({"ct": {"key": "newer"}}, 1), match({"meta": {"key": "cpu"}}, 1), match({"meta": {}}, 1), match({"payload": {"protocol": "tcp"}}, 1), match({"payload": {"field": "dport"}}, 1), match({"payload": {}}, 1),
        match({"payload": {"base": "nh", "offset": 1, "len": 8}}, 1), match({"exthdr": {"name": "frag"}}, 1), match({}, 1), match("x", 1), match(None, 1), match([MARK], 1), match({"concat": []}, 1), {"match": {"left": MARK}}, {"match": {"right": 1}}, {"match": None}, {"match": []},
        *[match(BOTH, value) for value in ({"set": [{"concat": ["10.0.0.1"]}]}, {"set": ["10.0.0.1"]}, {"set": [{"concat": ["10.0.0.1", 80, 1]}]}, {"concat": ["x", 80]}, 5, {"set": [{"elem": {"val": {"concat": ["10.0.0.1", 80]}, "limit": 5}}]})],
        match(BOTH, {"concat": ["10.0.0.1", 80]}, "<"), match(BOTH, "@s", "<"), match({"concat": [IIFNAME, MARK]}, {"concat": ["eth*", 1]}), match({"concat": [MARK, {"meta": {"key": "cpu"}}]}, "@s"),
    ],
)  # fmt: skip
def test_a_match_of_which_anything_is_not_understood_is_kept_as_text_and_nothing_of_it_is_compared(statement):
    for family in ("ip", "inet"):
        assert is_kept_as_text(statement, family)
        assert encoded(statement, family=family)[1] == ()


@pytest.mark.parametrize(
    ("statement", "text", "protocol"),
    [
        (match({"payload": {"protocol": "icmp", "field": "type"}}, "echo-request"), "icmp type echo-request", 1), (match({"payload": {"protocol": "icmpv6", "field": "type"}}, "echo-reply", "!="), "icmpv6 type != echo-reply", 58), (match({"payload": {"protocol": "tcp", "field": "window"}}, 5, "<"), "tcp window < 5", 6),
        (match({"payload": {"protocol": "udp", "field": "length"}}, 5), "udp length 5", 17), (match({"payload": {"protocol": "sctp", "field": "dport"}}, 5, "=="), "sctp dport 5", 132), (match({"payload": {"protocol": "ip", "field": "dscp"}}, "cs1"), "ip dscp cs1", 0), (match({"payload": {"protocol": "th", "field": "x"}}, 1), "th x 1", 0),
        (match({"meta": {"key": "cpu"}}, 1, "!="), "meta cpu != 1", 0), (match({"ct": {"key": "saddr", "dir": "original", "family": "ip"}}, "10.0.0.1"), "ct original ip saddr 10.0.0.1", 0), (match({"ct": {"key": "saddr", "dir": "reply"}}, "10.0.0.1"), "ct reply saddr 10.0.0.1", 0),
        (match({"fib": {"flags": "saddr", "result": "oif"}}, 1), "fib saddr oif 1", 0), (match({"fib": {"flags": ["saddr", "iif"], "result": "oif"}}, 7), "fib saddr . iif oif 7", 0),
        (match({"payload": {"field": "x"}}, 1), "x 1", 0),
        *[(one, json.dumps(one), 0) for one in (match({"meta": {"key": "cpu"}}, {"set": [1]}), match({"meta": {"key": "cpu"}}, "a\nb"), match({"meta": {"key": "cpu"}}, "ä"), match({"meta": {}}, 1), match({"socket": {"key": "mark"}}, 1), match({}, 1), match("x", 1), {"match": None}, {"match": {"left": MARK}}, match({"fib": {"result": "oif"}}, 1))],
        (match({"payload": {"protocol": "tcp"}}, 1), json.dumps(match({"payload": {"protocol": "tcp"}}, 1)), 6), (match({"payload": {"protocol": "udp", "field": "x"}}, [1]), json.dumps(match({"payload": {"protocol": "udp", "field": "x"}}, [1])), 17),
    ],
)  # fmt: skip
def test_a_match_that_is_not_understood_is_listed_as_nft_does_and_says_the_protocol_that_it_is_about(statement, text, protocol):
    text = text if len(text) <= 120 else text[:120] + "…"
    limits = [("load", "meta", 16), ("compare", bytes((protocol,)))] if protocol else []
    assert encoded(statement) == (built([*limits, add("match", (1, text.encode() + b"\0"), (2, 0), (3, b""))]), ())


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"newer": 5}, '{"newer": 5}'), ({"newer": None, "drop": None}, '{"newer": null, "drop": null}'), ("accept", '"accept"'), (7, "7"), (None, "null"), ({}, "{}"), ([], "[]"), ({"unknown": "what is this"}, "what is this"), ({"unknown": "a\udcff\0b"}, "a\udcff?b"),
        ({"unknown": "x" * 120}, "x" * 120), ({"unknown": "x" * 121}, "x" * 120 + "…"), ({"jump": {}}, '{"jump": {}}'), ({"goto": None}, '{"goto": null}'), ({"vmap": {"key": MARK}}, json.dumps({"vmap": {"key": MARK}})),
    ],
)  # fmt: skip
def test_what_is_no_statement_is_kept_as_its_text(item, text):
    kept = encoded({"counter": "k"}, item, {"drop": None})[0]
    name = text.encode("utf-8", "surrogateescape")
    assert kept == built([add("objref", (1, 1), (2, b"k\0")), ("raw", expression(name)), ("decide", 0)])


# ---- statements -----------------------------------------------------------------------------------------------------------------


def put(value, register=1):
    return ("put", value, register)


def mangle(key, value):
    return {"mangle": {"key": key, "value": value}}


def change(mask, xor, *, source=LOAD_MARK, store=False):
    return [source, ("mask", host(mask), host(xor)), ("store", store)]


@pytest.mark.parametrize(
    ("statement", "calls"),
    [
        ({"accept": None}, [("decide", 1)]), ({"drop": None}, [("decide", 0)]), ({"return": None}, [("decide", -5)]), ({"continue": None}, [("decide", -1)]), ({"jump": {"target": "d\udcff"}}, [("decide", -3, "d\udcff")]), ({"goto": {"target": "d"}}, [("decide", -4, "d")]),
        ({"counter": None}, [add("counter", (1, bytes(8)), (2, bytes(8)))]), ({"counter": {"packets": 3, "bytes": 40}}, [add("counter", (1, pack(">Q", 40)), (2, pack(">Q", 3)))]), ({"counter": {"bytes": 1}}, [add("counter", (1, pack(">Q", 1)), (2, bytes(8)))]), ({"counter": {"packets": 1}}, [add("counter", (1, bytes(8)), (2, pack(">Q", 1)))]),
        ({"counter": "k\udcff"}, [add("objref", (1, 1), (2, b"k\xff\0"))]), ({"redirect": {"port": 80}}, [put(port(80)), add("redir", (1, 1), (2, 1), (3, 2))]), ({"masquerade": {}}, [add("masq")]), ({"masquerade": None}, [add("masq")]), ({"notrack": None}, [add("notrack")]),
        ({"dnat": {"addr": "10.0.0.1"}}, [put(TEN), add("nat", (1, 1), (2, 2), (3, 1), (4, 1))]), ({"dnat": {"addr": "10.0.0.1", "port": 80}}, [put(TEN), put(port(80), 2), add("nat", (1, 1), (2, 2), (3, 1), (4, 1), (5, 2), (6, 2))]), ({"snat": {"addr": "10.0.0.1", "family": "ip"}}, [put(TEN), add("nat", (1, 0), (2, 2), (3, 1), (4, 1))]),
        ({"dnat": {"port": 80}}, [put(port(80), 2), add("nat", (1, 1), (2, 2), (5, 2), (6, 2))]), ({"snat": {}}, [add("nat", (1, 0), (2, 2))]), ({"dnat": {"addr": "::1", "family": "ip6"}}, [put(bytes(15) + b"\1"), add("nat", (1, 1), (2, 10), (3, 1), (4, 1))]),
        ({"tproxy": {"port": 9}}, [put(port(9)), add("tproxy", (1, 2), (3, 1))]), ({"tproxy": {"port": 9, "addr": "127.0.0.1"}}, [put(bytes((127, 0, 0, 1)), 2), put(port(9)), add("tproxy", (1, 2), (2, 2), (3, 1))]), ({"tproxy": {"port": 9, "addr": "::1", "family": "ip6"}}, [put(bytes(15) + b"\1", 2), put(port(9)), add("tproxy", (1, 10), (2, 2), (3, 1))]),
        ({"reject": None}, [add("reject", (1, 0), (2, b"\3"))]), ({"reject": {"type": "tcp reset"}}, [add("reject", (1, 1))]), ({"reject": {"type": "icmp", "expr": "host-unreachable"}}, [add("reject", (1, 0), (2, b"\1"))]), ({"reject": {"type": "icmpx", "expr": "admin-prohibited"}}, [add("reject", (1, 2), (2, b"\3"))]), ({"reject": {"type": "icmpx"}}, [add("reject", (1, 2), (2, b"\1"))]),
        ({"reject": {"expr": "admin-prohibited"}}, [add("reject", (1, 0), (2, b"\x0d"))]), ({"reject": {"type": "icmp", "expr": 7}}, [add("reject", (1, 0), (2, b"\7"))]), ({"reject": {"type": "icmpv6", "expr": "no-route"}}, [("limit_family", IPV6), add("reject", (1, 0), (2, b"\0"))]), ({"reject": {"type": "icmpv6"}}, [("limit_family", IPV6), add("reject", (1, 0), (2, b"\4"))]),
        (mangle(MARK, 5), [put(host(5)), ("store", False)]), (mangle(CT_MARK, "0x10"), [put(host(16)), ("store", True)]), (mangle(MARK, CT_MARK), [("load", "ct", 3), ("store", False)]), (mangle(CT_MARK, MARK), [LOAD_MARK, ("store", True)]), (mangle(MARK, {"&": [CT_MARK, 255]}), change(255, 0, source=("load", "ct", 3))),
        (mangle(MARK, {"|": [{"&": [MARK, 255]}, 256]}), change(255, 256)), (mangle(MARK, {"|": [MARK, 3]}), change(FULL_MASK - 3, 3)), (mangle(MARK, {"^": [MARK, 3]}), change(FULL_MASK, 3)), (mangle(MARK, {"&": [{"|": [MARK, 3]}, 2]}), change(0, 2)), (mangle(MARK, {"|": [{"^": [MARK, 3]}, 1]}), change(FULL_MASK - 1, 3)),
        (mangle(MARK, {"|": [MARK, 1, 2]}), change(FULL_MASK - 3, 3)), (mangle(MARK, {"&": [{"^": [MARK, 7]}, 12]}), change(12, 4)), (mangle(MARK, {"^": [{"|": [MARK, 6]}, 3]}), change(FULL_MASK - 6, 5)), (mangle(MARK, {"&": [MARK, FULL_MASK]}), [LOAD_MARK, ("store", False)]), (mangle(MARK, {"|": [1, 2]}), [put(host(3)), ("store", False)]), (mangle(MARK, {"^": [3, 1]}), [put(host(2)), ("store", False)]),
        (mangle(MARK, {"numgen": {"mode": "inc", "mod": 3}}), [add("numgen", (1, 1), (2, 3), (3, 0), (4, 0)), ("store", False)]), (mangle(CT_MARK, {"jhash": {"mod": 3, "offset": 2}}), [add("hash", (2, 1), (4, 3), (6, 2)), ("store", True)]), (mangle(MARK, {"symhash": {"mod": 3}}), [add("hash", (2, 1), (4, 3), (6, 0)), ("store", False)]),
        (mangle({"ct": {"key": "zone"}}, 5), [put(pack("=H", 5)), add("ct", (4, 1), (2, 17))]), (mangle({"ct": {"key": "zone", "dir": "original"}}, 5), [put(pack("=H", 5)), add("ct", (4, 1), (2, 17), (3, b"\0"))]), (mangle({"ct": {"key": "zone", "dir": "reply"}}, 5), [put(pack("=H", 5)), add("ct", (4, 1), (2, 17), (3, b"\1"))]),
        (mangle({"meta": {"key": "priority"}}, "x"), [put(bytes(4)), add("meta", (2, 2), (3, 1))]), (mangle({"meta": {"key": "nftrace"}}, 1), [put(bytes(4)), add("meta", (2, 12), (3, 1))]), (mangle({"tcp option": {"name": "maxseg", "field": "size"}}, {"rt": {"key": "mtu"}}), [add("exthdr", (7, 1))]),
        (mangle({"payload": {"protocol": "ip", "field": "ttl"}}, 64), [put(b"\x40"), add("payload", (2, 1), (3, 8), (4, 1), (5, 1))]), (mangle({"payload": {"protocol": "ip6", "field": "hoplimit"}}, 64), [put(b"\x40"), add("payload", (2, 1), (3, 7), (4, 1), (5, 1))]), (mangle({"payload": {"protocol": "ip", "field": "dscp"}}, "cs1"), [put(b"\0"), add("payload", (2, 1), (3, 1), (4, 1), (5, 1))]),
        (mangle({"payload": {"protocol": "ip6", "field": "ecn"}}, "ce"), [put(b"\0"), add("payload", (2, 1), (3, 0), (4, 1), (5, 1))]), (mangle(DPORT, 80), [*IS_TCP, put(port(80)), add("payload", (2, 2), (3, 2), (4, 2), (5, 1))]), (mangle(DADDR, "10.0.0.1"), [put(TEN), add("payload", (2, 1), (3, 16), (4, 4), (5, 1))]),
        (mangle(MARK, 1 << 31), [put(host(1 << 31)), ("store", False)]), (mangle(MARK, {"|": [MARK, 1 << 31]}), change((1 << 31) - 1, 1 << 31)),
        ({"queue": None}, [add("queue", (1, port(0)))]), ({"queue": {"num": 3}}, [add("queue", (1, port(3)))]), ({"queue": {"num": "3-5", "flags": []}}, [add("queue", (1, port(3)))]), ({"log": None}, [add("log")]), ({"log": {}}, [add("log")]), ({"log": {"prefix": "a\udcffb"}}, [add("log", (2, b"a\xffb\0"))]), ({"log": {"group": 3}}, [add("log", (1, port(3)))]),
        ({"log": {"group": 3, "prefix": "x"}}, [add("log", (2, b"x\0"), (1, port(3)))]), ({"log": {"level": "warn"}}, [add("log", (3, 0))]), ({"log": {"group": 3, "snaplen": 4}}, [add("log", (1, port(3)), (3, 0))]),
        ({"limit": {"rate": 5, "per": "second"}}, [add("limit", (1, pack(">Q", 5)), (2, pack(">Q", 1)), (3, 5), (4, 0), (5, 0))]), ({"limit": {"rate": 1, "per": "minute", "burst": 7, "inv": True}}, [add("limit", (1, pack(">Q", 1)), (2, pack(">Q", 60)), (3, 7), (4, 0), (5, 1))]), ({"limit": {"rate": 1, "per": "hour", "inv": False}}, [add("limit", (1, pack(">Q", 1)), (2, pack(">Q", 3600)), (3, 5), (4, 0), (5, 0))]),
        ({"limit": {"rate": 1, "per": "day", "rate_unit": "kbytes"}}, [add("limit", (1, pack(">Q", 1)), (2, pack(">Q", 86400)), (3, 5), (4, 1), (5, 0))]), ({"limit": {"rate": 1, "per": "week"}}, [add("limit", (1, pack(">Q", 1)), (2, pack(">Q", 604800)), (3, 5), (4, 0), (5, 0))]),
        ({"xt": {"type": "target", "name": "TEE"}}, [add("target", (1, b"TEE\0"), (2, FULL_MASK), (3, b""))]), ({"xt": {"type": "match", "name": "owner"}}, [add("match", (1, b"owner\0"), (2, FULL_MASK), (3, b""))]), ({"xt": None}, [add("target", (1, b"an extension of iptables that nft does not show\0"), (2, FULL_MASK), (3, b""))]),
        ({"xt": {"type": "match"}}, [add("target", (1, b"an extension of iptables that nft does not show\0"), (2, FULL_MASK), (3, b""))]), ({"xt": {"name": "owner"}}, [add("match", (1, b"owner\0"), (2, FULL_MASK), (3, b""))]),
        ({"dup": {"addr": "10.0.0.1"}}, [put(TEN), add("dup", (1, 1))]), ({"dup": {"addr": "::1", "dev": "lo"}}, [put(bytes(15) + b"\1"), add("dup", (1, 1))]), ({"dup": {"dev": "lo"}}, [add("dup")]), ({"dup": {"addr": {"map": {}}}}, [add("dup")]),
        ({"vmap": {"key": MARK, "data": "@m"}}, [LOAD_MARK, add("lookup", (1, b"m\0"), (2, 1), (3, 0))]), ({"vmap": {"key": BOTH, "data": "@m"}}, [*LOAD_BOTH, add("lookup", (1, b"m\0"), (2, 8), (3, 0))]),
    ],
)  # fmt: skip
def test_a_statement_is_what_the_kernel_does(statement, calls):
    calls = [("add", b"ct", (4, 1), (2, 3)) if call == ("store", True) else ("add", b"meta", (2, 3), (3, 1)) if call == ("store", False) else call for call in calls]
    assert encoded(statement) == (built(calls), ())
    assert encoded(statement, {"drop": None}) == (built([*calls, ("decide", 0)]), ())


@pytest.mark.parametrize(
    ("family", "statement", "calls"),
    [
        ("inet", {"dnat": {"addr": "10.0.0.1"}}, [put(TEN), add("nat", (1, 1), (2, 2), (3, 1), (4, 1))]), ("inet", {"dnat": {"addr": "::1"}}, [put(bytes(15) + b"\1"), add("nat", (1, 1), (2, 10), (3, 1), (4, 1))]), ("inet", {"dnat": {"port": 80, "family": "ip6"}}, [put(port(80), 2), add("nat", (1, 1), (2, 10), (5, 2), (6, 2))]),
        ("ip6", {"snat": {"addr": "::1"}}, [put(bytes(15) + b"\1"), add("nat", (1, 0), (2, 10), (3, 1), (4, 1))]), ("ip6", {"dnat": {"port": 80}}, [put(port(80), 2), add("nat", (1, 1), (2, 10), (5, 2), (6, 2))]),
        ("inet", {"tproxy": {"port": 9}}, [put(port(9)), add("tproxy", (1, 0), (3, 1))]), ("ip6", {"tproxy": {"port": 9}}, [put(port(9)), add("tproxy", (1, 10), (3, 1))]), ("inet", {"tproxy": {"port": 9, "family": "ip"}}, [put(port(9)), add("tproxy", (1, 2), (3, 1))]),
        ("inet", {"reject": None}, [add("reject", (1, 2), (2, b"\1"))]), ("ip6", {"reject": None}, [add("reject", (1, 0), (2, b"\4"))]), ("inet", {"reject": {"type": "icmp"}}, [("limit_family", IPV4), add("reject", (1, 0), (2, b"\3"))]), ("bridge", {"reject": {"expr": "no-route"}}, [add("reject", (1, 2), (2, b"\0"))]),
    ],
)  # fmt: skip
def test_a_statement_is_of_the_family_that_it_or_its_table_or_its_address_names(family, statement, calls):
    assert encoded(statement, family=family) == (built(calls, family), ())


@pytest.mark.parametrize(
    "statement",
    [
        {"redirect": {}}, {"redirect": None}, {"redirect": {"port": 65536}}, {"redirect": {"port": 80, "flags": "random"}}, {"redirect": {"port": {"range": [80, 90]}}}, {"dnat": {"addr": "10.0.0.1", "flags": "random"}}, {"dnat": {"addr": "x"}}, {"dnat": {"addr": "::1"}}, {"dnat": {"port": 65536}}, {"snat": None}, {"dnat": {"addr": "10.0.0.1", "port": "http"}},
        {"tproxy": {}}, {"tproxy": {"port": "x"}}, {"tproxy": {"port": 9, "addr": "x"}}, {"tproxy": None}, {"reject": {"type": "newer"}}, {"reject": {"type": "icmp", "expr": "newer"}}, {"reject": {"type": "icmp", "expr": 256}}, {"queue": {"num": "x"}}, {"queue": {"num": 65536}}, {"queue": {"num": "-1"}}, {"log": {"group": "x"}}, {"log": {"group": 65536}}, {"log": 5},
        {"limit": {"rate": 5}}, {"limit": {"per": "second"}}, {"limit": {"rate": 5, "per": "fortnight"}}, {"limit": None}, {"counter": 5}, {"counter": {"packets": "x"}}, {"jump": {}}, {"jump": None}, {"goto": "d"}, {"dup": None}, {"dup": {"addr": "x"}}, {"xt": 5},
        mangle(SADDR, {"range": ["10.0.0.1", "10.0.0.9"]}), mangle(MARK, 1 << 32), mangle(MARK, {"|": [MARK, 1 << 32]}), mangle(MARK, {"&": [MARK, 1 << 32]}), mangle({"meta": {"key": "mark"}, "ct": {"key": "mark"}}, 1),
        mangle(MARK, "x"), mangle(MARK, -1), mangle(MARK, {"+": [MARK, 1]}), mangle(MARK, {"&": [MARK, "x"]}), mangle(MARK, {"|": [1, MARK]}), mangle(MARK, {"meta": {"key": "priority"}}), mangle(MARK, {"ct": {"key": "state"}}), mangle(MARK, {}), mangle(MARK, {"&": []}), mangle(MARK, {"numgen": {"mode": "x", "mod": 3}}), mangle({"meta": {"key": "cpu"}}, 1), mangle({"ct": {"key": "state"}}, 1), mangle({"ct": {"key": "label"}}, 1),
        mangle({"ct": {"key": "priority"}}, 1), mangle({"ct": {"key": "zone"}}, 65536), mangle({"ct": {"key": "zone", "dir": "x"}}, 5), mangle({"meta": {"key": "zone"}}, 5), mangle({}, 1), mangle({"meta": {}}, 1), {"mangle": {"key": MARK}}, {"mangle": {"value": 1}}, {"mangle": None},
        mangle({"payload": {"protocol": "ip", "field": "id"}}, 1), mangle({"payload": {"protocol": "ip"}}, 1), mangle({"payload": {"protocol": "ip", "field": "ttl"}}, 256), mangle(DPORT, "x"), mangle({"payload": {"protocol": "ip6", "field": "ttl"}}, 64), mangle({"payload": {"protocol": "tcp", "field": "dscp"}}, 4),
        {"vmap": {"key": MARK}}, {"vmap": {"data": "@m"}}, {"vmap": {"key": {"meta": {"key": "cpu"}}, "data": "@m"}}, {"vmap": {"key": MARK, "data": "m"}}, {"vmap": {"key": MARK, "data": {"set": [1]}}}, {"vmap": {"key": MARK, "data": {"set": [[1, 2, 3]]}}}, {"vmap": {"key": MARK, "data": {"set": ["ab"]}}}, {"vmap": {"key": MARK, "data": {"set": [[1, {"newer": None}]]}}},
        {"vmap": {"key": MARK, "data": {"set": [[1, {"jump": {}}]]}}}, {"vmap": {"key": MARK, "data": {"set": [[1, {"jump": None}]]}}}, {"vmap": {"key": MARK, "data": {"set": [[1, {"jump": {"target": 5}}]]}}}, {"vmap": {"key": MARK, "data": {"set": [[1, {"newer": {"target": "d"}}]]}}}, {"vmap": {"key": MARK, "data": {"set": [[1, {}]]}}}, {"vmap": {"key": MARK, "data": {"set": [["x", {"drop": None}]]}}},
        {"newer": None}, {"set": {"op": "add"}}, {"flow": "x"},
    ],
)  # fmt: skip
def test_a_statement_of_which_anything_is_not_understood_is_kept_as_text_and_does_nothing(statement):
    assert is_kept_as_text(statement)
    assert encoded(statement)[1] == ()


def test_a_translation_without_a_family_in_a_table_of_both_is_not_understood():
    assert is_kept_as_text({"dnat": {"port": 80}}, "inet")
    assert is_kept_as_text({"snat": {"port": 80, "family": "newer"}}, "inet")


def test_operators_are_nested_as_deep_as_a_listing_may_have_them():
    value = MARK
    for depth in range(10):
        assert is_kept_as_text(mangle(MARK, value)) == (depth > 8), depth
        value = {"|": [value, 1]}


VERDICTS = {"accept": be32(1), "drop": be32(0), "return": be32(-5), "continue": be32(-1)}


def test_a_map_of_verdicts_of_a_rule_is_a_set_with_verdicts():
    verdicts = [{name: None} for name in VERDICTS] + [{"jump": {"target": "d"}}, {"goto": {"target": "e\udcff"}}]
    codes = [write_attribute(1, code) for code in VERDICTS.values()] + [write_attribute(1, be32(-3)) + write_attribute(2, b"d\0"), write_attribute(1, be32(-4)) + write_attribute(2, b"e\xff\0")]
    data = {"set": [[number, verdict] for number, verdict in enumerate(verdicts)]}
    elements = tuple([NftElement(key=host(number), verdict=code) for number, code in enumerate(codes)])
    made = NftSet(family=IP, table="t", name="__set0", flags=SET_ANONYMOUS | SET_MAP, key_length=4, elements=elements)
    assert encoded({"vmap": {"key": MARK, "data": data}}) == (built([LOAD_MARK, add("lookup", (1, b"__set0\0"), (2, 1), (3, 0))]), (made,))
    ranged = {"set": [[{"range": [80, 90]}, {"drop": None}]]}
    _, (found,) = encoded({"vmap": {"key": DPORT, "data": ranged}})
    assert (found.flags, found.key_length, found.elements) == (SET_ANONYMOUS | SET_MAP | SET_INTERVAL, 2, (NftElement(key=port(80), key_end=port(90), verdict=write_attribute(1, be32(0))),))
    block, (found,) = encoded({"vmap": {"key": BOTH, "data": {"set": [[{"elem": {"val": {"concat": ["10.0.0.1", 80]}, "comment": "x"}}, {"drop": None}]]}}})
    assert block == built([*LOAD_BOTH, add("lookup", (1, b"__set0\0"), (2, 8), (3, 0))])
    assert (found.key_length, [one.key for one in found.elements]) == (8, [TEN + port(80) + bytes(2)])


# ---- objects -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kinds", "flags"),
    [
        ({"type": "mark", "elem": [1]}, 4, 0), ({"type": ["mark"], "elem": [1]}, 4, 0), ({"type": "inet_proto", "elem": ["tcp"]}, 1, 0), ({"type": "ipv6_addr", "elem": ["::1"]}, 16, 0), ({"type": "gid", "elem": ["root"]}, 4, 0), ({"type": "nf_proto", "elem": ["ipv4"]}, 1, 0),
        ({"type": ["inet_service", "mark", "inet_proto"], "elem": [{"concat": [1, 2, 6]}]}, 12, 0), ({"type": ["ifname", "inet_service"], "elem": [{"concat": ["lo", 1]}]}, 20, 0), ({"type": "inet_service", "elem": [{"range": [1, 2]}]}, 2, SET_INTERVAL),
        ({"type": "mark", "elem": [1], "flags": ["dynamic"]}, 4, SET_DYNAMIC), ({"type": "mark", "elem": [1], "flags": ["interval", "timeout"]}, 4, 0), ({"type": "mark", "elem": [1], "flags": "dynamic"}, 4, 0),
    ],
)  # fmt: skip
def test_a_set_has_the_length_of_its_keys_and_the_flags_that_its_elements_show(body, kinds, flags):
    (found,) = read_objects([{"set": {"family": "ip", "table": "t", "name": "s", **body}}])[0].sets
    assert (found.name, found.key_length, found.flags, found.is_complete, len(found.elements)) == ("s", kinds, flags, True, 1)


@pytest.mark.parametrize(
    "body",
    [
        {"type": "ifname", "elem": {"unknown": "x"}}, {"type": "ifname", "elem": "lo"}, {"type": "mark", "elem": 5}, {"type": "mark", "map": "ipv4_addr", "elem": [1]}, {"type": "mark", "map": "verdict", "elem": [1]}, {"type": "mark", "elem": [1, "x"]}, {"type": [], "elem": [1]}, {"type": {}, "elem": [1]},
        {"type": None, "elem": [1]}, {"type": "ifname", "elem": ["lo*"]}, {"type": "mark", "elem": [{"elem": {"val": 1, "newer": 1}}]}, {"type": "mark", "elem": [{"elem": {}}]}, {"type": "mark", "elem": [[1, {"drop": None}]]}, {"type": ["mark", "mark"], "elem": [1]}, {"type": "mark", "elem": [{"concat": [1, 1]}]}, {"type": "mark", "map": "verdict", "elem": [[1, "drop"]]}, {"type": "mark", "map": "verdict", "elem": [[1, {"newer": None}]]}, {"type": ["mark", "newer"], "elem": []}, {"type": [[]], "elem": [1]},
    ],
)  # fmt: skip
def test_a_set_of_which_anything_is_not_understood_is_there_without_elements(body):
    (found,) = read_objects([{"map" if "map" in body else "set": {"family": "ip", "table": "t", "name": "s", "flags": ["dynamic"], **body}}])[0].sets
    assert found == NftSet(family=IP, table="t", name="s", flags=SET_DYNAMIC | (SET_MAP if "map" in body else 0), is_complete=False)


def test_a_chain_whose_priority_is_not_listed_has_none_added_to_it():
    (found,) = read_objects([{"chain": {"family": "ip", "table": "t", "name": "c", "hook": "input"}}])[0].chains
    assert (found.hook, found.priority, found.policy, found.kind) == (1, 0, 1, "")


@pytest.mark.parametrize("kind", ["set", "map"])
@pytest.mark.parametrize(("name", "is_filled"), [("@s", True), ("s", True), ("@other", False), (5, False), (None, False)])
def test_a_set_that_rules_add_to_is_dynamic_even_where_its_flags_are_not_listed(kind, name, is_filled):
    listed = {kind: {"family": "ip", "table": "t", "name": "s", "type": "mark", "elem": [1] if kind == "set" else [[1, {"drop": None}]], **({"map": "verdict"} if kind == "map" else {})}}
    for family, table in (("ip", "t"), ("ip6", "t"), ("ip", "u")):
        rule = {"rule": {"family": family, "table": table, "chain": "c", "expr": [{"counter": None}, {kind: {"op": "add", kind: name}}, "x"]}}
        (found,) = read_objects([listed, rule])[0].sets
        assert bool(found.flags & SET_DYNAMIC) == (is_filled and (family, table) == ("ip", "t"))
    for statements in (None, "x", {"a": 1}, [None], [{kind: None}], [{kind: "s"}]):
        if isinstance(statements, list):
            (found,) = read_objects([listed, {"rule": {"family": "ip", "table": "t", "chain": "c", "expr": statements}}])[0].sets
            assert not found.flags & SET_DYNAMIC


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"table": 1}, '{"table": 1} is no object of `nft -j list ruleset`'), ({"chain": {"family": "newer"}}, '{"chain": {"family": "newer"}} is no object of `nft -j list ruleset`'), ({"set": None}, '{"set": null} is no object of `nft -j list ruleset`'), ({"map": {}}, '{"map": {}} is no object of `nft -j list ruleset`'),
        ({"rule": {"family": "ip", "expr": {"a": 1}}}, '{"family": "ip", "expr": {"a": 1}} is no rule of `nft -j list ruleset`'), ({"rule": {"family": "ip", "expr": None}}, '{"family": "ip", "expr": null} is no rule of `nft -j list ruleset`'),
        ({"table": "x" * 200}, f'{{"table": "{"x" * 109}… is no object of `nft -j list ruleset`'), ({"rule": {"family": "ip", "expr": "x" * 200}}, f'{{"family": "ip", "expr": "{"x" * 94}… is no rule of `nft -j list ruleset`'),
    ],
)  # fmt: skip
def test_what_is_no_object_is_refused_and_shown_as_far_as_it_fits(item, message):
    with pytest.raises(ParseError) as error:
        read_objects([item])
    assert str(error.value) == message


@pytest.mark.parametrize("item", [5, "table", None, [], {}, {"metainfo": {"version": "1"}}, {"metainfo": None}, {"ct helper": {"family": "newer"}}, {"flowtable": 5}, {5: {}}])
def test_what_stands_beside_tables_chains_sets_and_rules_is_passed_over(item):
    snapshot, hidden = read_objects([item, {"table": {"family": "ip", "name": "t"}}, item])
    assert ([one.name for one in snapshot.tables], snapshot.chains, snapshot.rules, snapshot.sets, hidden) == (["t"], (), (), (), 0)


def test_a_rule_has_its_place_its_handle_and_its_comment_and_what_is_not_there_is_empty():
    snapshot, hidden = snapshot_of({"drop": None}, handle=7, comment="why")
    assert snapshot.rules == (NftRule(family=IP, table="t", chain="c", handle=7, expressions=built([("decide", 0)]), userdata=b"\0\4why\0"),)
    (bare,) = read_objects([{"rule": {"family": "ip", "expr": []}}])[0].rules
    assert bare == NftRule(family=IP, table="", chain="", handle=0, expressions=b"", userdata=b"")
    assert hidden == 0


@pytest.mark.parametrize(("comment", "kept"), [("x" * 254, b"x" * 254), ("x" * 255, b"x" * 254), ("ä", "ä".encode()), ("a\udcff", b"a\xff"), ("", b""), (5, b""), (None, b"")])
def test_a_comment_is_kept_as_nft_writes_it_into_the_kernel(comment, kept):
    snapshot, _ = snapshot_of({"drop": None}, comment=comment)
    data = bytes((0, len(kept) + 1)) + kept + b"\0" if kept else b""
    assert snapshot.rules[0].userdata == data
    (table,) = read_objects([{"table": {"family": "ip", "name": "t", "comment": comment}}])[0].tables
    assert table.userdata == data


def test_extensions_that_are_not_shown_are_counted():
    assert snapshot_of({"xt": None}, {"xt": {"name": "owner"}}, {"counter": None})[1] == 2


def test_as_many_elements_as_are_read_count_those_of_all_sets_and_of_the_rules(monkeypatch):
    monkeypatch.setattr(listing_objects, "MAX_ELEMENTS", 4)
    listed = {"set": {"family": "ip", "table": "t", "name": "s", "type": "mark", "elem": [1, 2]}}
    assert len(snapshot_of(match(MARK, {"set": [1, 2]}), more=[listed])[0].sets) == 2
    for statements in ([match(MARK, {"set": [1, 2, 3]})], [match(MARK, {"set": [1, 2]}), {"vmap": {"key": MARK, "data": {"set": [[1, {"drop": None}]]}}}]):
        with pytest.raises(ParseError, match=r"^its sets and maps have more than 4 elements; list the tables that matter alone$"):
            snapshot_of(*statements, more=[listed])


@pytest.mark.parametrize("number", range(len(numbers.STATES)))
def test_each_state_of_a_connection_has_its_bit(number):
    name, bit = numbers.STATES[number]
    assert encoded(match(STATE, name.lower(), "!")) == (built([LOAD_STATE, ("mask", host(bit)), ("compare", bytes(4))]), ())


LISTED = [
    {"table": {"family": "ip", "name": "t", "handle": 1, "flags": ["dormant"], "comment": "x"}},
    {"chain": {"family": "ip", "table": "t", "name": "c", "handle": 1, "type": "filter", "hook": "output", "prio": 0, "dev": ["lo"], "policy": "drop"}},
    {"set": {"family": "ip", "table": "t", "name": "s", "type": ["ipv4_addr", "inet_service"], "flags": ["interval"], "elem": [{"elem": {"val": {"concat": [{"prefix": {"addr": "10.0.0.0", "len": 8}}, {"range": [80, 90]}]}, "comment": "x"}}]}},
    {"map": {"family": "ip", "table": "t", "name": "m", "type": "mark", "map": "verdict", "elem": [[1, {"jump": {"target": "d"}}]]}},
]
STATEMENTS = [
    match(BOTH, {"set": [{"concat": [{"prefix": {"addr": "10.0.0.0", "len": 8}}, {"range": [80, 90]}]}]}, "in"), match({"&": [FLAGS, {"|": ["fin", "syn"]}]}, {"|": ["syn"]}), match(STATE, ["new"], "in"), match(IIFNAME, "eth*"), match({"socket": {"key": "wildcard"}}, 0), match(DPORT, 80, "<"),
    match({"numgen": {"mode": "inc", "mod": 3, "offset": 1}}, 2), match({"jhash": {"mod": 3, "offset": 1}}, 2), match({"fib": {"flags": ["saddr"], "result": "type"}}, "local"), match({"ct": {"key": "saddr", "dir": "original"}}, 1), match({"payload": {"protocol": "icmp", "field": "type"}}, "x"),
    {"vmap": {"key": MARK, "data": {"set": [[{"elem": {"val": 1}}, {"jump": {"target": "d"}}]]}}}, {"counter": {"packets": 1, "bytes": 2}}, {"redirect": {"port": 80}}, {"dnat": {"addr": "10.0.0.1", "port": 80, "family": "ip"}}, {"tproxy": {"port": 9, "addr": "127.0.0.1", "family": "ip"}},
    {"reject": {"type": "icmp", "expr": "host-unreachable"}}, mangle(MARK, {"|": [{"&": [MARK, 255]}, 256]}), mangle({"ct": {"key": "zone", "dir": "reply"}}, 5), mangle({"payload": {"protocol": "ip", "field": "ttl"}}, 64), mangle(MARK, {"numgen": {"mode": "inc", "mod": 3}}), mangle({"tcp option": {"name": "x"}}, 1),
    {"queue": {"num": "1-3", "flags": ["bypass"]}}, {"log": {"prefix": "x", "group": 1}}, {"limit": {"rate": 5, "per": "second", "burst": 7, "inv": True, "rate_unit": "bytes"}}, {"xt": {"type": "match", "name": "x"}}, {"dup": {"addr": "10.0.0.1", "dev": "lo"}}, {"jump": {"target": "d"}}, {"unknown": "x"},
]  # fmt: skip
OTHERS = (None, 5, -1, 1 << 70, 1.5, True, "", "x", "@", [], [[]], [None], {}, {"x": {}}, {"range": []}, {"elem": {}}, {"concat": []})


def others_of(whole):
    """The whole with each of its parts left out or replaced."""
    if isinstance(whole, dict):
        for key, part in whole.items():
            yield {name: value for name, value in whole.items() if name != key}
            yield from ({**whole, key: other} for other in (*OTHERS, *others_of(part)))
    elif isinstance(whole, list):
        for at, part in enumerate(whole):
            yield [*whole[:at], *whole[at + 1 :]]
            yield from ([*whole[:at], other, *whole[at + 1 :]] for other in (*OTHERS, *others_of(part)))


def test_no_statement_fails_whatever_is_in_it():
    """A dump is written by whatever version of nft, and perhaps edited."""
    changed = [other for statement in STATEMENTS for other in others_of(statement)]
    for family in ("ip", "inet"):
        rules = [{"rule": {"family": family, "table": "t", "chain": "c", "expr": [one, {"drop": None}]}} for one in changed]
        snapshot, _ = snapshot_of(family=family, more=rules)
        assert len(snapshot.rules) == len(rules) + 1
        assert [one.text for base in load_snapshot(snapshot).foreign[IPV4] for one in base.chain.rules]


def test_an_object_with_anything_else_in_it_is_read_or_refused():
    assert len(read_objects(LISTED)[0].sets) == 2
    for item in LISTED:
        for other in others_of(item):
            try:
                read_objects([other])
            except ParseError as error:
                assert str(error).endswith(("is no object of `nft -j list ruleset`", "is no priority of a chain"))


def test_a_priority_that_is_none_is_refused_with_its_hook():
    with pytest.raises(ParseError, match=r"^hook input: newer is no priority of a chain$"):
        read_objects([{"chain": {"family": "ip", "table": "t", "name": "c", "hook": "input", "prio": "newer"}}])
