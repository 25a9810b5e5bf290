"""Matches on addresses, interfaces, protocols, ports and senders: as nft's expressions, as iptables' structs, as one alternative each."""

from __future__ import annotations

from struct import pack

import pytest

from core import IPV4, IPV6, Network, parse_rule
from netinit.rules.matches import packet
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.rule_builder import RuleBuilder
from shown_expressions import show_match
from sweeps import together

ANY = (0, 65535)
TCP, UDP = "meta 2=16 1=1 | cmp 1=1 2=0 3.1=06 | ", "meta 2=16 1=1 | cmp 1=1 2=0 3.1=11 | "


def listed(text, family=IPV4):
    """The last match of a rule as iptables lists it."""
    return parse_rule(f"{text} -j RETURN", family).matches[-1]


@together(("family", "text", "expressions"), [
    ("ip", "-s 10.0.0.0/8", "payload 1=1 2=1 3=12 4=1 | cmp 1=1 2=0 3.1=0a"),
    ("inet", "! -d 10.128.0.0/9", "meta 2=15 1=1 | cmp 1=1 2=0 3.1=02 | payload 1=1 2=1 3=16 4=4 | bitwise 1=1 2=1 3=4 6=0 4.1=ff800000 5.1=00000000 | cmp 1=1 2=1 3.1=0a800000"),
    ("ip", "-d 1.2.3.4/32", "payload 1=1 2=1 3=16 4=4 | cmp 1=1 2=0 3.1=01020304"),
    ("ip", "! -s 10.32.0.0/11", "payload 1=1 2=1 3=12 4=4 | bitwise 1=1 2=1 3=4 6=0 4.1=ffe00000 5.1=00000000 | cmp 1=1 2=1 3.1=0a200000"),
    ("ip", "-s 0.0.0.0/0", "payload 1=1 2=1 3=12 4=4 | bitwise 1=1 2=1 3=4 6=0 4.1=00000000 5.1=00000000 | cmp 1=1 2=0 3.1=00000000"),
    ("ip6", "-s 2001:db8::/32", "payload 1=1 2=1 3=8 4=4 | cmp 1=1 2=0 3.1=20010db8"),
    ("ip6", "-d fd00::/7", f"payload 1=1 2=1 3=24 4=16 | bitwise 1=1 2=1 3=16 6=0 4.1=fe{'00' * 15} 5.1={'00' * 16} | cmp 1=1 2=0 3.1=fc{'00' * 15}"),
    ("ip", "-i eth0", f"meta 2=6 1=1 | cmp 1=1 2=0 3.1=65746830{'00' * 12}"),
    ("inet", "! -o lo", f"meta 2=7 1=1 | cmp 1=1 2=1 3.1=6c6f{'00' * 14}"),
    ("ip", "-o eth+", "meta 2=7 1=1 | cmp 1=1 2=0 3.1=657468"),
    ("ip", "! -i veth+", "meta 2=6 1=1 | cmp 1=1 2=1 3.1=76657468"),
    ("ip", "-p tcp", "meta 2=16 1=1 | cmp 1=1 2=0 3.1=06"),
    ("ip", "! -p udp", "meta 2=16 1=1 | cmp 1=1 2=1 3.1=11"),
    ("inet", "-p sctp", "meta 2=16 1=1 | cmp 1=1 2=0 3.1=84"),
    ("ip", "-p tcp -m tcp --dport 60001", f"{TCP}payload 1=1 2=2 3=2 4=2 | cmp 1=1 2=0 3.1=ea61"),
    ("ip", "-p udp -m udp ! --sport 53", f"{UDP}payload 1=1 2=2 3=0 4=2 | cmp 1=1 2=1 3.1=0035"),
    ("ip", "-p tcp -m tcp --dport 80:60001", f"{TCP}payload 1=1 2=2 3=2 4=2 | cmp 1=1 2=5 3.1=0050 | cmp 1=1 2=3 3.1=ea61"),
    ("ip", "-p tcp -m tcp ! --sport 80:90", f"{TCP}payload 1=1 2=2 3=0 4=2 | range 1=1 2=1 3.1=0050 4.1=005a"),
    ("ip", "-p tcp -m multiport --dports 22,60001", f"{TCP}payload 1=1 2=2 3=2 4=2 | lookup 1=5f5f7365743000 2=1 5=0 | __set0: flags 3, type 13, 2 bytes: 0016 ea61"),
    (
        "ip", "-p udp -m multiport ! --sports 22,80:90",
        f"{UDP}payload 1=1 2=2 3=0 4=2 | lookup 1=5f5f7365743000 2=1 5=1 | __set0: flags 7, type 13, 2 bytes: 0000* 0016 0017* 0050 005b*",
    ),
    ("ip", "-m owner --uid-owner 4000000000", "meta 2=10 1=1 | cmp 1=1 2=0 3.1=00286bee"),
    ("ip", "-m owner ! --gid-owner 1337", "meta 2=11 1=1 | cmp 1=1 2=1 3.1=39050000"),
    ("ip", "-m owner --uid-owner 5-4000000000", "meta 2=10 1=1 | byteorder 1=1 2=1 3=1 4=4 5=4 | cmp 1=1 2=5 3.1=00000005 | cmp 1=1 2=3 3.1=ee6b2800"),
    ("ip", "-m owner ! --uid-owner 4000000000-4000000001", "meta 2=10 1=1 | byteorder 1=1 2=1 3=1 4=4 5=4 | range 1=1 2=1 3.1=ee6b2800 4.1=ee6b2801"),
    ("ip", "-m owner ! --gid-owner 5-9", "meta 2=11 1=1 | byteorder 1=1 2=1 3=1 4=4 5=4 | range 1=1 2=1 3.1=00000005 4.1=00000009"),
])  # fmt: skip
def test_the_expressions_of_a_match_are_those_that_nft_writes(family, text, expressions):
    match = listed(text, IPV6 if family == "ip6" else IPV4)
    assert " | ".join(show_match(match, family)) == expressions


def networks(*texts):
    return tuple([Network.parse(text) for text in texts])


NAMES = ("eth0", "cali+", "lo", "cali7", "eth0")


@together(("match", "family", "expressions"), [
    (Source(networks=networks("10.0.0.0/8", "192.0.2.1/32")), "ip", "payload 1=1 2=1 3=12 4=4 | lookup 1=5f5f7365743000 2=1 5=0 | __set0: flags 7, type 7, 4 bytes: 00000000* 0a000000 0b000000* c0000201 c0000202*"),
    (Destination(networks=networks("192.0.2.1/32", "10.0.0.9/32"), negated=True), "ip", "payload 1=1 2=1 3=16 4=4 | lookup 1=5f5f7365743000 2=1 5=1 | __set0: flags 3, type 7, 4 bytes: 0a000009 c0000201"),
    (Destination(networks=networks("fd00::1/128", "fd00::9/128")), "ip6", f"payload 1=1 2=1 3=24 4=16 | lookup 1=5f5f7365743000 2=1 5=0 | __set0: flags 3, type 8, 16 bytes: fd{'00' * 14}01 fd{'00' * 14}09"),
    # Two halves of a network are that network, and three quarters of it are a range that is no network
    (Source(networks=networks("10.0.0.0/9", "10.128.0.0/9")), "ip", "payload 1=1 2=1 3=12 4=1 | cmp 1=1 2=0 3.1=0a"),
    (Source(networks=networks("10.0.0.0/9", "10.128.0.0/10")), "ip", "payload 1=1 2=1 3=12 4=4 | cmp 1=1 2=5 3.1=0a000000 | cmp 1=1 2=3 3.1=0abfffff"),
    (Source(networks=networks("10.64.0.0/10", "10.128.0.0/10")), "ip", "payload 1=1 2=1 3=12 4=4 | cmp 1=1 2=5 3.1=0a400000 | cmp 1=1 2=3 3.1=0abfffff"),
    (InInterface(names=("eth0", "lo")), "ip", f"meta 2=6 1=1 | lookup 1=5f5f7365743000 2=1 5=0 | __set0: flags 3, type 41, 16 bytes: 65746830{'00' * 12} 6c6f{'00' * 14}"),
    (
        OutInterface(names=NAMES, negated=True), "ip",
        (
            f"meta 2=7 1=1 | lookup 1=5f5f7365743000 2=1 5=1 | __set0: flags 7, type 41, 16 bytes: {'00' * 16}* 63616c69{'00' * 12} 63616c6a{'00' * 12}*"
            f" 65746830{'00' * 12} 65746830{'00' * 11}01* 6c6f{'00' * 14} 6c6f{'00' * 13}01*"
        ),
    ),
    (InInterface(names=("cali7", "cali+")), "ip", "meta 2=6 1=1 | cmp 1=1 2=0 3.1=63616c69"),
    (Port(protocol="tcp", ports=(80, (70, 79), (81, 90))), "ip", f"{TCP}payload 1=1 2=2 3=2 4=2 | cmp 1=1 2=5 3.1=0046 | cmp 1=1 2=3 3.1=005a"),
])  # fmt: skip
def test_several_values_of_a_match_are_looked_up_in_a_set_without_overlaps(match, family, expressions):
    assert " | ".join(show_match(match, family)) == expressions


def test_the_family_and_the_protocol_are_asked_once_in_a_rule():
    builder = RuleBuilder(1, [])
    for match in (listed("-s 10.0.0.0/8"), listed("-d 10.0.0.0/8"), listed("-p tcp"), listed("-p tcp -m tcp --sport 1"), listed("-p tcp -m tcp --dport 2")):
        match.express(builder)
    assert [builder.block().count(name) for name in (b"meta\0", b"payload\0")] == [2, 4]


@together(("text", "name", "info"), [
    ("-p tcp", ("tcp", 0), pack("=4H4B", *ANY, *ANY, 0, 0, 0, 0)),
    ("-p udp", ("udp", 0), pack("=4HB", *ANY, *ANY, 0)),
    ("-p tcp -m tcp --sport 80", ("tcp", 0), pack("=4H4B", 80, 80, *ANY, 0, 0, 0, 0)),
    ("-p tcp -m tcp ! --sport 80:60001", ("tcp", 0), pack("=4H4B", 80, 60001, *ANY, 0, 0, 0, 1)),
    ("-p tcp -m tcp --dport 60001", ("tcp", 0), pack("=4H4B", *ANY, 60001, 60001, 0, 0, 0, 0)),
    ("-p tcp -m tcp ! --dport 80:90", ("tcp", 0), pack("=4H4B", *ANY, 80, 90, 0, 0, 0, 2)),
    ("-p udp -m udp ! --sport 53", ("udp", 0), pack("=4HB", 53, 53, *ANY, 1)),
    ("-p udp -m udp ! --dport 53", ("udp", 0), pack("=4HB", *ANY, 53, 53, 2)),
    ("-p tcp -m multiport --sports 1,60001", ("multiport", 1), pack("=2B15H15BB", 0, 2, 1, 60001, *[0] * 13, *[0] * 15, 0)),
    ("-p udp -m multiport ! --dports 1,5:60001,7", ("multiport", 1), pack("=2B15H15BB", 1, 4, 1, 5, 60001, 7, *[0] * 11, 0, 1, 0, 0, *[0] * 11, 1)),
    ("-m owner --uid-owner 5-4000000000", ("owner", 1), pack("=4I2B", 5, 4000000000, 0, 0, 1, 0)),
    ("-m owner ! --uid-owner 5", ("owner", 1), pack("=4I2B", 5, 5, 0, 0, 1, 1)),
    ("-m owner --gid-owner 5", ("owner", 1), pack("=4I2B", 0, 0, 5, 5, 2, 0)),
    ("-m owner ! --gid-owner 5-4000000000", ("owner", 1), pack("=4I2B", 0, 0, 5, 4000000000, 2, 2)),
    ("-m owner --socket-exists", ("owner", 1), pack("=4I2B", 0, 0, 0, 0, 4, 0)),
    ("-m owner ! --socket-exists", ("owner", 1), pack("=4I2B", 0, 0, 0, 0, 4, 4)),
])  # fmt: skip
def test_the_struct_of_a_match_has_its_values_in_the_fields_of_the_kernel_s_and_nothing_else(text, name, info):
    size = {"tcp": 16, "udp": 16, "multiport": 48, "owner": 24}[name[0]]
    assert listed(text).struct() == (*name, info.ljust(size, b"\0"))


def test_what_a_module_is_asked_together_is_in_one_struct():
    matches = parse_rule("-p tcp -m tcp ! --sport 60001 ! --dport 80:90 ! --tcp-flags FIN,URG URG -j RETURN", IPV4).matches
    for first, *others in (matches, matches[::-1], matches[1:] + matches[:1]):
        assert first.struct(*others) == ("tcp", 0, pack("=4H4B", 60001, 60001, 80, 90, 0, 0x21, 0x20, 7).ljust(16, b"\0"))
    sport, dport = parse_rule("-p udp -m udp --sport 1 ! --dport 2 -j RETURN", IPV4).matches
    assert dport.struct(sport) == ("udp", 0, pack("=4HB", 1, 1, 2, 2, 2).ljust(16, b"\0"))


def test_each_network_is_an_alternative_and_the_whole_of_a_family_is_one_without_a_match():
    several = networks("10.0.0.0/8", "0.0.0.0/0", "1.2.3.4/32")
    assert Source(networks=several).each() == (Source(networks=several[:1]), None, Source(networks=several[2:]))
    assert Destination(networks=several, negated=True).each() == tuple([Destination(networks=(one,), negated=True) for one in several])
    alone = Destination(networks=several[:1])
    assert alone.each() == (alone,)


def test_each_interface_and_each_port_is_an_alternative():
    assert OutInterface(names=("a", "b"), negated=True).each() == (OutInterface(names=("a",), negated=True), OutInterface(names=("b",), negated=True))
    assert InInterface(names=("a",)).each() == (InInterface(names=("a",)),)
    ports = Port(protocol="udp", ports=(1, 2), source=True)
    assert ports.each() == (ports.replace(ports=(1,)), ports.replace(ports=(2,)))
    assert ports.replace(negated=True).each() == (ports.replace(negated=True),)


@together(("ports", "sizes"), [
    (((1, 2), *range(10, 23)), [14]), (((1, 2), *range(10, 24)), [14, 1]), ((*range(10, 24), (1, 2)), [14, 1]), ((*range(10, 23), (1, 2)), [14]),
    ((*range(10, 40), (1, 2)), [15, 15, 1]), (tuple([(at, at + 1) for at in range(10, 40, 2)]), [7, 7, 1]), (((1, 1), *range(10, 24)), [15]),
])  # fmt: skip
def test_a_list_with_ranges_is_as_few_lists_as_multiport_takes_where_a_range_counts_as_two(ports, sizes):
    each = Port(protocol="tcp", ports=ports).each()
    assert [len(one.ports) for one in each] == sizes
    assert sum([one.ports for one in each], ()) == ports


@together(("ports", "nft", "xt"), [
    ((90, 80, 90), "tcp dport { 80, 90 }", "-m multiport --dports 90,80,90"), ((80, 81), "tcp dport { 80, 81 }", "-m multiport --dports 80,81"),
    (((85, 95), (80, 90), 70), "tcp dport { 70, 80-95 }", "-m multiport --dports 85:95,80:90,70"), (((80, 81),), "tcp dport 80-81", "-m tcp --dport 80:81"),
    ((80, (81, 82)), "tcp dport 80-82", "-m multiport --dports 80,81:82"), (((7, 7),), "tcp dport 7", "-m tcp --dport 7"),
])  # fmt: skip
def test_ports_are_listed_as_given_by_iptables_and_in_order_by_nft_which_joins_ranges(ports, nft, xt):
    match = Port(protocol="tcp", ports=ports)
    assert (match.nft(), match.xt()) == (nft, xt)
    assert match.replace(source=True, negated=True).nft() == nft.replace("dport", "sport !=")
    assert match.replace(source=True, negated=True).xt() == xt.replace("--dport", "! --sport")


@together(("names", "nft"), [
    (("eth0",), 'iifname "eth0"'), (("cali+", "cali0", "cali"), 'iifname "cali*"'), (("b", "a", "b"), 'iifname { "a", "b" }'),
    (("ab", "b", "ba"), 'iifname { "b", "ba", "ab" }'),  # by the last byte first, as a little-endian number
    (("c+", "cali+"), 'iifname "c*"'), (("a+", "a+"), 'iifname "a*"'), (("x*", "y+"), 'iifname { "x\\*", "y*" }'), (("\udcff",), 'iifname "\udcff"'),
])  # fmt: skip
def test_interfaces_are_listed_in_nft_s_order_and_each_once(names, nft):
    assert InInterface(names=names).nft() == nft
    assert OutInterface(names=names, negated=True).nft() == nft.replace("iifname", "oifname !=")


@together("names", [("+",), ("lo", "+")])
def test_any_interface_has_no_expression(names):
    for write in (InInterface(names=names).nft, lambda: show_match(InInterface(names=names))):
        with pytest.raises(ValueError, match=r"^any interface: nft has no expression for it$"):
            write()


def test_a_name_that_is_no_text_is_compared_by_its_bytes():
    assert show_match(InInterface(names=("\udcff\udcfe",)))[1] == f"cmp 1=1 2=0 3.1=fffe{'00' * 14}"
    assert show_match(InInterface(names=("\udcff+",)))[1] == "cmp 1=1 2=0 3.1=ff"


def test_a_protocol_is_the_same_with_or_without_its_module_which_is_listed():
    plain, loaded = Protocol(name="tcp"), Protocol(name="tcp", module=True)
    assert (plain.xt(), loaded.xt(), loaded.replace(negated=True).xt()) == ("-p tcp", "-p tcp -m tcp", "! -p tcp -m tcp")
    assert plain == loaded != loaded.replace(negated=True) != plain.replace(name="udp")


def test_only_the_protocol_that_is_implied_is_dropped():
    port, other, same = Port(protocol="tcp", ports=(80,)), Protocol(name="udp"), Protocol(name="tcp")
    flags = parse_rule("-p tcp -m tcp --tcp-flags SYN SYN -j RETURN", IPV4).matches[-1]
    assert packet.drop_implied_protocols((other, same, flags)) == (other, flags)
    assert packet.drop_implied_protocols((same, port)) == (port,)
    assert packet.drop_implied_protocols((same.replace(negated=True), flags)) == (same.replace(negated=True), flags)
    assert packet.drop_implied_protocols((same,)) == (same,)


@together(("text", "xt", "words", "phrase"), [
    ("-m owner --uid-owner 0-4294967295", "-m owner --socket-exists", "its socket's uid is from 0 to 4294967295", "uid 0 to 4294967295"),
    ("-m owner ! --uid-owner 0-4294967295", "-m owner ! --socket-exists", "its socket's uid is not from 0 to 4294967295", "not uid 0 to 4294967295"),
    ("-m owner --uid-owner 1-4294967295", "-m owner --uid-owner 1-4294967295", "its socket's uid is from 1 to 4294967295", "uid 1 to 4294967295"),
    ("-m owner --gid-owner 0-4294967295", "-m owner --gid-owner 0-4294967295", "its socket's gid is from 0 to 4294967295", "gid 0 to 4294967295"),
    ("-m owner --uid-owner 0-4294967294", "-m owner --uid-owner 0-4294967294", "its socket's uid is from 0 to 4294967294", "uid 0 to 4294967294"),
])  # fmt: skip
def test_any_user_is_a_socket_s_existence(text, xt, words, phrase):
    match = listed(text)
    assert (match.xt(), match.describe(), match.phrase()) == (xt, words, phrase)
    assert isinstance(match, Owner)


@together(("match", "phrase"), [
    (Destination(networks=networks("10.0.0.9/32", "192.0.2.0/24"), negated=True), "not to 10.0.0.9 or 192.0.2.0/24"), (Source(networks=networks("fd00::9/128", "fd00::/32")), "from fd00::9 or fd00::/32"),
    (InInterface(names=("eth0", "lo")), "from eth0 or lo"), (OutInterface(names=("a", "b", "c"), negated=True), "not to a or b or c"),
    (Port(protocol="tcp", ports=(80, (90, 99)), source=True, negated=True), "TCP from but not port 80 or 90 to 99"), (Owner(kind="gid", first=5, last=5, negated=True), "not gid 5"),
])  # fmt: skip
def test_the_values_of_a_phrase_are_joined_by_or_and_an_address_has_no_length(match, phrase):
    assert match.phrase() == phrase


@together("prefix", ["vethX", "0", "x" * 14])
def test_a_prefix_of_names_is_compared_to_its_last_byte(prefix):
    assert show_match(OutInterface(names=(f"{prefix}+",)))[1] == f"cmp 1=1 2=0 3.1={prefix.encode().hex()}"
