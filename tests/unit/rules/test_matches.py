"""The faces of every match: how it is listed, what nft calls it, its words, and of which packets it is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core import IPV4, IPV6, Packet, Surroundings, number_of, parse_rule, write_rule
from netinit.rules.matches import Match, context, foreign, packet
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.simulate.one_packet import OnePacket
from recorded import FOREIGN
from sweeps import together

MODULES = {context.__name__, foreign.__name__, packet.__name__}
POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
SYN = Packet(
    family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), source_port=40000,
    destination=number_of("1.2.3.4"), destination_port=80,
    in_interface="", out_interface="eth0", has_socket=True, uid=1000, gid=1000, state="NEW", flags=("SYN",),
)  # fmt: skip


def test_what_a_set_holds_is_said_with_the_lookup_and_that_it_is_empty():
    port, state = listed("-p tcp -m tcp --dport 80"), listed("-m conntrack --ctstate NEW")
    held = InSet(text="@ports", alternatives=((port,), (port, state)))
    assert (held.describe(), InSet(text="@ports", alternatives=()).describe()) == ("`@ports` holds", "`@ports` holds, and the set is empty")
    assert (held.parts, held.tracks, InSet(text="@ports", alternatives=((port,),)).tracks) == ((port, port, state), state.tracks, port.tracks)
    assert [one.choose(OnePacket(SYN, POD, "OUTPUT")).holds for one in (held, InSet(text="", alternatives=()), InSet(text="", alternatives=(), negated=True))] == [True, False, True]
    with pytest.raises(ValueError, match="@ports: netinit writes no lookup in a foreign set"):
        held.struct(port)


def listed(text, family=IPV4):
    """The only match of a rule as iptables lists it."""
    (match,) = parse_rule(f"{text} -j RETURN", family).matches
    return match


FACES = [
    ("-s 10.0.0.0/8", "ip saddr 10.0.0.0/8", "it comes from 10.0.0.0/8"),
    ("! -s 10.0.0.0/8", "ip saddr != 10.0.0.0/8", "it comes not from 10.0.0.0/8"),
    ("-d 1.2.3.4/32", "ip daddr 1.2.3.4", "it goes to 1.2.3.4/32"),
    ("! -d 127.0.0.1/32", "ip daddr != 127.0.0.1", "it goes not to 127.0.0.1/32"),
    ("-i eth0", 'iifname "eth0"', "it came in through eth0"),
    ("! -i eth0", 'iifname != "eth0"', "it came in not through eth0"),
    ("-o lo", 'oifname "lo"', "it leaves through lo"),
    ("! -o lo", 'oifname != "lo"', "it leaves not through lo"),
    ("-p tcp", "meta l4proto tcp", "it is TCP"),
    ("! -p tcp", "meta l4proto != tcp", "it is not TCP"),
    ("-p tcp -m tcp --dport 80", "tcp dport 80", "it is TCP and its destination port is 80"),
    ("-p tcp -m tcp ! --dport 80", "tcp dport != 80", "it is TCP and its destination port is not 80"),
    ("-p udp -m udp --sport 53", "udp sport 53", "it is UDP and its source port is 53"),
    ("-p tcp -m multiport ! --dports 15008,53", "tcp dport != { 53, 15008 }", "it is TCP and its destination port is not 15008, 53"),
    ("-p tcp -m tcp --dport 1:1024", "tcp dport 1-1024", "it is TCP and its destination port is 1 to 1024"),
    ("-m owner --uid-owner 1337", "meta skuid 1337", "its socket's uid is 1337"),
    ("-m owner ! --uid-owner 1337", "meta skuid != 1337", "its socket's uid is not 1337"),
    ("-m owner --gid-owner 1337", "meta skgid 1337", "its socket's gid is 1337"),
    ("-m owner ! --gid-owner 1337", "meta skgid != 1337", "its socket's gid is not 1337"),
    ("-m owner --uid-owner 1000-1010", "meta skuid 1000-1010", "its socket's uid is from 1000 to 1010"),
    ("-m mark --mark 0x539", "meta mark 0x00000539", "its mark is 1337"),
    ("-m mark ! --mark 0x53a", "meta mark != 0x0000053a", "its mark is not 1338"),
    ("-m mark --mark 0x1/0x1", "meta mark & 0x00000001 == 0x00000001", "its mark under the mask 0x1 is 0x1"),
    ("-m connmark --mark 0x539", "ct mark 0x00000539", "its connection's mark is 1337"),
    ("-m conntrack --ctstate INVALID", "ct state invalid", "its connection is INVALID"),
    ("-m conntrack --ctstate RELATED,ESTABLISHED", "ct state established,related", "its connection is RELATED or ESTABLISHED"),
    ("-m state --state ESTABLISHED", "ct state established", "its connection is ESTABLISHED"),
    ("-m socket", "socket transparent <= 1", "a socket is open for it"),
    ("-p udp -m multiport --dports 22,80:90", "udp dport { 22, 80-90 }", "it is UDP and its destination port is 22, 80 to 90"),
    ("-p tcp -m multiport ! --sports 1,5:7", "tcp sport != { 1, 5-7 }", "it is TCP and its source port is not 1, 5 to 7"),
    ("-m owner ! --gid-owner 0-5", "meta skgid != 0-5", "its socket's gid is not from 0 to 5"),
    ("-m mark ! --mark 0x1/0x3", "meta mark & 0x00000003 != 0x00000001", "its mark under the mask 0x3 is not 0x1"),
    ("-m connmark ! --mark 0x2/0x3", "ct mark & 0x00000003 != 0x00000002", "its connection's mark under the mask 0x3 is not 0x2"),
    ("-m conntrack ! --ctstate INVALID,NEW", "ct state ! invalid,new", "its connection is not INVALID or NEW"),
    ("-m addrtype --dst-type LOCAL", "fib daddr type local", "its destination address is of the type LOCAL"),
    ("-m addrtype ! --src-type LOCAL,BROADCAST", "fib saddr type != { local, broadcast }", "its source address is not of the type LOCAL or BROADCAST"),
    ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", "tcp flags syn / fin,syn,rst,ack", "it opens a connection (SYN without ACK)"),
    ("-p tcp -m tcp ! --tcp-flags FIN,SYN NONE", "tcp flags & (fin | syn) != 0x0", "of its TCP flags FIN, SYN not just none are set"),
    ("-p tcp -m tcp --tcp-flags FIN,SYN,ACK SYN,ACK", "tcp flags syn,ack / fin,syn,ack", "of its TCP flags FIN, SYN, ACK just SYN, ACK are set"),
    ("-o eth+", 'oifname "eth*"', "it leaves through eth+"),
    ("! -i et+", 'iifname != "et*"', "it came in not through et+"),
    ("-i eth*", 'iifname "eth\\*"', "it came in through eth*"),
    ("-m conntrack --ctstate DNAT", "ct status dnat", "its connection is DNAT"),
    ("-m conntrack ! --ctstate SNAT,DNAT", "ct status ! snat,dnat", "its connection is not SNAT or DNAT"),
    ("-m conntrack ! --ctstate NEW,DNAT", "ct state ! new ct status ! dnat", "its connection is not NEW or DNAT"),
    ("-m conntrack --ctdir REPLY", "ct direction reply", "it is an answer in its connection"),
    ("-m iprange ! --dst-range 1.2.3.4-1.2.3.9", "ip daddr != 1.2.3.4-1.2.3.9", "its destination is not from 1.2.3.4 to 1.2.3.9"),
    ("-m limit --limit 5/sec --limit-burst 10", "limit rate 5/second burst 10 packets", "no more than 5 a second came before it"),
    ("-m conntrack --ctorigdst 192.0.2.2", "ct original ip daddr 192.0.2.2", "the first packet of its connection was for 192.0.2.2"),
    ("-m conntrack ! --ctorigsrc 10.0.0.0/8", "ct original ip saddr != 10.0.0.0/8", "the first packet of its connection came not from 10.0.0.0/8"),
    ("-m conntrack --ctorigdstport 80:90", "ct original proto-dst 80-90", "the first packet of its connection was for port 80 to 90"),
    ("-m conntrack ! --ctorigsrcport 80", "ct original proto-src != 80", "the first packet of its connection came not from port 80"),
    ("-m ttl --ttl-eq 1", "-m ttl --ttl-eq 1", "`-m ttl --ttl-eq 1` holds, which depends on its time to live"),
    ("-m statistic --mode random --probability 0.5", "-m statistic --mode random --probability 0.5", "`-m statistic --mode random --probability 0.5` holds, which depends on chance, or its turn"),
    ("-m set --match-set banned dst", "-m set --match-set banned dst", "`-m set --match-set banned dst` (not known to netinit) holds"),
]  # fmt: skip
WITHOUT_NFT = [
    ("-m conntrack --ctstate NEW,DNAT", "ct state new or ct status dnat: nft has no one expression for both"),
    ("-i +", "any interface: nft has no expression for it"),
    ("-p tcp -m multiport --ports 53", "either port: nft has no expression for it"),
]


@together(("text", "nft", "words"), FACES)
def test_a_match_says_the_same_in_each_dialect_and_in_words(text, nft, words):
    rule = parse_rule(f"{text} -j RETURN", IPV4)
    assert write_rule(rule, IPV4) == [f"{text} -j RETURN"]
    assert rule.matches[-1].nft() == nft  # before it may stand the protocol
    assert rule.matches[-1].describe() == words


def kinds_of(one=Match):
    return {one.__name__} if one.__module__ in MODULES and not one.__subclasses__() else set().union(*map(kinds_of, one.__subclasses__()))


def test_every_match_is_in_the_tables_that_try_its_notations_its_words_and_its_struct():
    kinds = kinds_of() - {UnknownMatch.__name__, InSet.__name__}  # InSet: no words make it, but what a set holds
    assert len(kinds) >= 15, kinds
    tables = {
        "FACES or WITHOUT_NFT here": {type(one).__name__ for text, *_ in (*FACES, *WITHOUT_NFT) for one in parse_rule(f"{text} -j RETURN", IPV4).matches},
        "MATCHED in iptables/test_parse.py": set(re.findall(r"\w+", (Path(__file__).parent / "iptables" / "test_parse.py").read_text())),
        "FOREIGN in tests/recorded.py": {
            type(one).__name__ for rules in FOREIGN.values() for rule in rules for one in parse_rule(rule.split(maxsplit=2)[2], IPV4).matches
        },
    }
    lacking = [f"{table} has no {kind}" for table, held in tables.items() for kind in sorted(kinds - held)]
    assert not lacking, "\n".join(lacking)


@pytest.mark.parametrize(("text", "problem"), WITHOUT_NFT)
def test_what_nft_cannot_say_is_not_said_otherwise(text, problem):
    with pytest.raises(ValueError, match=problem):
        listed(text).nft()


@pytest.mark.parametrize(
    ("text", "tracks"),
    [
        ("-p tcp", False),
        ("-m mark --mark 0x1", False),
        ("-m connmark --mark 0x1", True),
        ("-m conntrack --ctstate NEW", True),
        ("-m state --state NEW", True),
        ("-m socket", False),
        ("-m set --match-set banned dst", True),  # it may
    ],
)
def test_matches_on_connections_make_the_kernel_track_them(text, tracks):
    assert listed(text).tracks is tracks


def test_addresses_of_ipv6_have_ipv6_s_words():
    for text, nft in (("-s ::6/128", "ip6 saddr ::6"), ("! -d ::1/128", "ip6 daddr != ::1"), ("-d fd00::/8", "ip6 daddr fd00::/8")):
        match = listed(text, IPV6)
        assert match.nft() == nft
        assert write_rule(parse_rule(f"{text} -j RETURN", IPV6), IPV6) == [f"{text} -j RETURN"]


TRUTHS = [
    # the match, the packet, and whether the match holds; None: it cannot be known
    ("-s 10.0.0.0/31", {"source": number_of("10.0.0.1")}, True),
    ("-s 10.0.0.0/31", {}, False),
    ("! -s 10.0.0.0/31", {}, True),
    ("-s 10.0.0.0/31", {"source": None}, None),
    ("! -s 10.0.0.0/31", {"source": None}, None),
    ("-d 1.2.3.4/30", {"destination": number_of("1.2.3.4")}, True),
    ("-d 1.2.3.4/30", {"destination": number_of("1.2.3.7")}, True),
    ("-d 1.2.3.4/30", {"destination": number_of("1.2.3.8")}, False),
    ("-d 1.2.3.4/30", {"destination": number_of("1.2.3.3")}, False),
    ("! -d 1.2.3.4/30", {"destination": number_of("1.2.3.8")}, True),
    ("-d 1.2.3.4/30", {"destination": None}, None),
    ("-i eth0", {"in_interface": "eth0"}, True),
    ("-i eth0", {"in_interface": "eth01"}, False),
    ("-i eth0", {"in_interface": ""}, False),
    ("! -i eth0", {"in_interface": "eth1"}, True),
    ("! -i eth0", {"in_interface": "eth0"}, False),
    ("-o eth+", {"out_interface": "eth7"}, True),
    ("-o eth+", {"out_interface": "lo"}, False),
    ("! -o eth+", {"out_interface": "lo"}, True),
    ("-p tcp", {"protocol": "udp"}, False),
    ("! -p tcp", {"protocol": "udp"}, True),
    ("! -p tcp", {}, False),
    ("-p tcp -m tcp --dport 80", {}, True),
    ("-p tcp -m tcp --dport 80", {"destination_port": 81}, False),
    ("-p tcp -m tcp ! --dport 80", {"destination_port": 81}, True),
    ("-p tcp -m tcp ! --dport 80", {}, False),
    ("-p tcp -m tcp --dport 80", {"destination_port": None}, None),
    ("-p tcp -m tcp ! --dport 80", {"destination_port": None}, None),
    ("-p tcp -m tcp --dport 80", {"protocol": "udp"}, False),
    ("-p tcp -m tcp ! --dport 80", {"protocol": "udp"}, False),  # the protocol is asked, too
    ("-p tcp -m tcp --sport 80", {}, False),
    ("-p tcp -m tcp --sport 40000", {}, True),
    ("-p tcp -m multiport ! --dports 53,80", {}, False),
    ("-p tcp -m multiport ! --dports 53,80", {"destination_port": 81}, True),
    ("-p tcp -m tcp --dport 80:90", {}, True),
    ("-p tcp -m tcp --dport 80:90", {"destination_port": 90}, True),
    ("-p tcp -m tcp --dport 80:90", {"destination_port": 91}, False),
    ("-p tcp -m tcp --dport 80:90", {"destination_port": 79}, False),
    ("-p tcp -m tcp ! --dport 80:90", {"destination_port": 79}, True),
    ("-p tcp -m tcp --dport 80:90", {"destination_port": None}, None),
    ("-p tcp -m tcp --sport 40000:40001", {}, True),
    ("-p tcp -m tcp --dport 80:90", {"protocol": "udp"}, False),
    ("-p tcp -m multiport --dports 22,80:90", {"destination_port": 22}, True),
    ("-p tcp -m multiport --dports 22,80:90", {"destination_port": 23}, False),
    ("-m owner --uid-owner 1000", {"gid": 7}, True),
    ("-m owner --uid-owner 1000", {"uid": 7}, False),
    ("-m owner --gid-owner 1000", {"uid": 7}, True),
    ("-m owner --gid-owner 1000", {"gid": 7}, False),
    ("-m owner ! --uid-owner 1000", {"uid": 7}, True),
    ("-m owner ! --uid-owner 1000", {}, False),
    ("-m owner --uid-owner 1000", {"uid": None}, None),
    ("-m owner ! --gid-owner 1000", {"gid": None}, None),
    ("-m owner --uid-owner 1000", {"has_socket": False}, False),  # a packet without a socket
    ("-m owner ! --uid-owner 1000", {"has_socket": False}, True),
    ("-m owner --uid-owner 1000-1010", {}, True),
    ("-m owner --uid-owner 1000-1010", {"uid": 1010}, True),
    ("-m owner --uid-owner 1000-1010", {"uid": 1011}, False),
    ("-m owner --uid-owner 1000-1010", {"uid": 999}, False),
    ("-m owner ! --uid-owner 1000-1010", {"uid": 999}, True),
    ("-m owner --gid-owner 1000-1010", {"uid": 999}, True),
    ("-m owner --uid-owner 1000-1010", {"uid": None}, None),
    ("-m owner ! --uid-owner 1000-1010", {"has_socket": False}, True),
    ("-m owner --uid-owner 1000-1010", {"has_socket": False}, False),
    ("-m mark --mark 0x539", {"mark": 1337}, True),
    ("-m mark --mark 0x539", {}, False),
    ("-m mark ! --mark 0x539", {}, True),
    ("-m mark ! --mark 0x539", {"mark": 1337}, False),
    ("-m mark --mark 0x1/0x3", {"mark": 0x15}, True),
    ("-m mark --mark 0x1/0x3", {"mark": 0x17}, False),
    ("-m mark ! --mark 0x1/0x3", {"mark": 0x17}, True),
    ("-m connmark --mark 0x539", {"connection_mark": 1337}, True),
    ("-m connmark --mark 0x539", {"connection_mark": 1337, "state": "ESTABLISHED"}, True),
    ("-m connmark --mark 0x539", {"mark": 1337}, False),
    ("-m connmark --mark 0x539", {"connection_mark": 1337, "state": ""}, False),
    ("-m connmark --mark 0x539", {"connection_mark": 1337, "state": "INVALID"}, False),
    ("-m connmark --mark 0x539", {"connection_mark": 1337, "state": "UNTRACKED"}, False),
    ("-m connmark ! --mark 0x1/0x3", {}, True),
    ("-m connmark ! --mark 0x1/0x3", {"connection_mark": 5}, False),
    ("-m connmark ! --mark 0x1/0x3", {"state": "INVALID"}, False),  # no connection: no, negated or not
    ("-m connmark ! --mark 0x1/0x3", {"state": ""}, False),
    ("-m conntrack --ctstate RELATED,ESTABLISHED", {"state": "RELATED"}, True),
    ("-m conntrack --ctstate RELATED,ESTABLISHED", {"state": "ESTABLISHED"}, True),
    ("-m conntrack --ctstate RELATED,ESTABLISHED", {}, False),
    ("-m conntrack --ctstate RELATED,ESTABLISHED", {"state": ""}, False),
    ("-m conntrack ! --ctstate NEW", {}, False),
    ("-m conntrack ! --ctstate NEW", {"state": "ESTABLISHED"}, True),
    ("-m conntrack ! --ctstate NEW", {"state": ""}, True),
    ("-m conntrack --ctstate INVALID", {"state": ""}, True),
    ("-m conntrack --ctstate NEW,DNAT", {}, True),
    ("-m conntrack --ctstate NEW,DNAT", {"state": "ESTABLISHED"}, None),  # whether it was translated is not a state
    ("-m conntrack ! --ctstate NEW,SNAT", {"state": "ESTABLISHED"}, None),
    ("-m conntrack ! --ctstate NEW,SNAT", {}, False),
    ("-m socket", {"socket": True}, True),
    ("-m socket", {"socket": False}, False),
    ("-m socket", {"socket": None}, None),
    ("-m addrtype --dst-type LOCAL", {"destination": number_of("10.0.0.2")}, True),
    ("-m addrtype --dst-type LOCAL", {}, False),
    ("-m addrtype ! --dst-type LOCAL", {}, True),
    ("-m addrtype --src-type LOCAL", {}, True),
    ("-m addrtype --dst-type LOCAL", {"destination": None}, None),
    ("-m addrtype --dst-type LOCAL,BROADCAST", {"destination": number_of("10.0.0.2")}, True),
    ("-m addrtype --dst-type LOCAL,BROADCAST", {}, None),
    ("-m addrtype --dst-type BROADCAST", {}, None),
    ("-m set --match-set banned dst", {}, None),
]  # fmt: skip


@together(("text", "changes", "truth"), TRUTHS)
def test_a_match_is_true_of_these_packets(text, changes, truth):
    assert listed(text).choose(OnePacket(SYN.replace(**changes), POD, "FORWARD")).holds is truth


@pytest.mark.parametrize(
    ("flags", "truth"),
    [(("SYN",), True), (("SYN", "ACK"), False), (("SYN", "PSH"), True), ((), False), (None, None)],
)
def test_tcp_flags_are_compared_under_their_mask(flags, truth):
    (match,) = parse_rule("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP", IPV4).matches
    assert match.choose(OnePacket(SYN.replace(flags=flags), POD, "FORWARD")).holds is truth
    (negated,) = parse_rule("-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j DROP", IPV4).matches
    assert negated.choose(OnePacket(SYN.replace(flags=flags), POD, "FORWARD")).holds is (None if truth is None else not truth)
    assert match.choose(OnePacket(SYN.replace(protocol="udp", flags=None), POD, "FORWARD")).holds is False


def test_a_list_of_networks_is_one_of_them():
    first, second = listed("-d 10.0.0.0/8"), listed("-d 1.2.3.0/24")
    match = first.replace(networks=first.networks + second.networks)
    assert [one.xt() for one in match.each()] == ["-d 10.0.0.0/8", "-d 1.2.3.0/24"]
    assert match.nft() == "ip daddr { 1.2.3.0/24, 10.0.0.0/8 }"
    assert match.describe() == "it goes to 10.0.0.0/8, 1.2.3.0/24"
    assert match.choose(OnePacket(SYN, POD, "FORWARD")).holds is True
    assert match.choose(OnePacket(SYN.replace(destination=number_of("1.2.4.1")), POD, "FORWARD")).holds is False
    assert match.replace(negated=True).choose(OnePacket(SYN, POD, "FORWARD")).holds is False


def test_lists_of_interfaces_and_ports_are_one_of_them():
    interfaces = listed("-i tap1").replace(names=("tap1", "tap0"))
    assert [one.xt() for one in interfaces.each()] == ["-i tap1", "-i tap0"]
    assert interfaces.nft() == 'iifname { "tap0", "tap1" }'
    assert interfaces.choose(OnePacket(SYN.replace(in_interface="tap0"), POD, "FORWARD")).holds is True
    ports = listed("-p tcp -m tcp --dport 80").replace(ports=(443, 80, 443))
    assert ports.nft() == "tcp dport { 80, 443 }"
    assert [one.xt() for one in ports.each()] == ["-m tcp --dport 443", "-m tcp --dport 80", "-m tcp --dport 443"]


def test_the_whole_of_a_family_is_listed_as_no_match_but_its_negation_is_listed():
    everything = listed("-d 10.0.0.0/8").replace(networks=(listed("! -d 0.0.0.0/0").networks[0],))
    assert everything.each() == (None,)
    assert everything.replace(negated=True).xt() == "! -d 0.0.0.0/0"


def test_the_order_of_matches_is_that_of_a_listing():
    text = "! -s 10.0.0.0/8 -d 1.2.3.4/32 -o lo -p tcp -m tcp --dport 80 -m owner --uid-owner 5 -j RETURN"
    rule = parse_rule(text, IPV4)
    assert write_rule(rule.replace(matches=rule.matches[::-1]), IPV4) == [
        "! -s 10.0.0.0/8 -d 1.2.3.4/32 -o lo -p tcp -m owner --uid-owner 5 -m tcp --dport 80 -j RETURN"
    ]
    assert write_rule(rule, IPV4) == [text]


def test_what_is_not_known_stands_behind_what_iptables_lists_first():
    rule = parse_rule("-p tcp -m set --match-set banned dst -m addrtype --dst-type LOCAL -m tcp --syn -j RETURN", IPV4)
    assert write_rule(rule.replace(matches=rule.matches[::-1]), IPV4) == [
        "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m addrtype --dst-type LOCAL -m set --match-set banned dst -j RETURN"
    ]


def test_a_match_without_a_text_is_refused_and_is_never_written_as_every_packet():
    class Silent(Match):
        """A match whose texts somebody forgot."""

    for write in (Silent().xt, Silent().nft, Silent().describe):
        with pytest.raises(NotImplementedError, match="Silent has no text"):
            write()


@pytest.mark.parametrize(("text", "phrase"), [
    ("-p tcp", "TCP"), ("! -p udp", "not UDP"), ("-p tcp -m tcp --dport 80", "TCP port 80"),
    ("-p tcp -m tcp ! --sport 80", "TCP from but not port 80"), ("-p udp -m multiport --dports 22,80:90", "UDP port 22 or 80 to 90"),
    ("-p tcp -m multiport ! --ports 53", "source or destination port is not 53"), ("-s 10.0.0.0/8", "from 10.0.0.0/8"),
    ("! -d 10.0.0.0/8", "not to 10.0.0.0/8"), ("-i eth0", "from eth0"), ("! -o lo", "not to lo"), ("-m owner --uid-owner 5", "uid 5"),
    ("-m owner ! --gid-owner 5-9", "not gid 5 to 9"), ("-m mark --mark 0x1/0x3", "mark under the mask 0x3 is 0x1"),
    ("-m mark ! --mark 1", "mark is not 1"), ("-m connmark --mark 7", "connection's mark is 7"),
    ("-m conntrack --ctstate NEW,ESTABLISHED", "connection is NEW or ESTABLISHED"), ("-m conntrack ! --ctstate DNAT", "connection is not DNAT"),
    ("-m conntrack --ctdir REPLY", "an answer in its connection"), ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", "TCP with SYN"),
    ("-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN", "TCP but not with SYN"), ("-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK", "TCP with SYN/ACK"),
    ("-p tcp -m tcp ! --tcp-flags FIN,RST NONE", "TCP but not with none of FIN/RST"),
    ("-p tcp -m tcp --tcp-flags FIN,SYN,ACK SYN,ACK", "TCP with SYN/ACK of FIN/SYN/ACK"), ("-m socket", "a socket is open for it"),
    ("-m addrtype --dst-type LOCAL", "destination address is of the type LOCAL"),
    ("-m addrtype ! --src-type LOCAL,BROADCAST", "source address is not of the type LOCAL or BROADCAST"),
    ("-m limit --limit 5/sec --limit-burst 7", "no more than 5 a second came before it"),
    ("-m iprange --src-range 10.0.0.5-10.2.3.4", "source is from 10.0.0.5 to 10.2.3.4"),
    ("-m iprange ! --dst-range 10.0.0.5-10.2.3.4", "destination is not from 10.0.0.5 to 10.2.3.4"),
])  # fmt: skip
def test_a_match_has_a_phrase_for_a_table_of_traffic(text, phrase):
    """The protocol of a port is in the port's."""
    assert [match.phrase() for match in parse_rule(f"{text} -j RETURN", IPV4).matches] == [phrase]
