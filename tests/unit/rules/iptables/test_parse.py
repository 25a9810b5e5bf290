"""Reading rules in iptables' dialect."""

from __future__ import annotations

import pytest

from netinit.base.errors import ParseError
from netinit.base.net import IPV4, IPV6, Network
from netinit.rules.decoding import read_masked, read_number
from netinit.rules.foreign_targets import DestinationNat, Observe, Queue, SourceNat, UnknownTarget, Untrack
from netinit.rules.iptables.parse import normalise, normalise_rule, parse_rule, part_comment, read_networks, split_words
from netinit.rules.iptables.write import DecodedRule, write_rule
from netinit.rules.marking_targets import LogTarget, RestoreMark, SaveMark, SetMark, TrackZone
from netinit.rules.matches.context import (
    AddressType,
    ConnectionDirection,
    ConnectionState,
    Limit,
    Mark,
    Socket,
    TcpFlags,
    UnknownMatch,
)
from netinit.rules.matches.foreign import AddressRange, EitherPort, OriginalEnd, Undecided
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.targets import Accept, Drop, Jump, Redirect, Reject, Return, Tproxy
from sweeps import together

SPELLINGS = [
    ("-p tcp -m tcp --dport 80 -j REDIRECT --to-ports 15001", "-p tcp --dport 80 -j REDIRECT --to-port 15001"),
    ("-p tcp -m tcp --dport 80 -j ACCEPT", "--protocol 6 --destination-port 0x50 --jump ACCEPT"),
    ("-j MARK --set-xmark 0x539/0xffffffff", "-j MARK --set-mark 1337"),
    ("-j MARK --set-xmark 0x4/0x4", "-j MARK --or-mark 4"),
    ("-p tcp -m mark --mark 0x539 -j RETURN", "-p tcp -m mark --mark 1337/0xffffffff -j RETURN"),
    ("-d 127.0.0.1/32 -j RETURN", "-d 127.0.0.1 -j RETURN"),
    ("-d 10.0.0.0/8 -j RETURN", "-d 10.1.2.3/255.0.0.0 -j RETURN"),
    ("! -d 127.0.0.1/32 -o lo -p tcp -j ISTIO_REDIRECT", "-o lo ! --dst 127.0.0.1/32 -p tcp -j ISTIO_REDIRECT"),
    ("-j ISTIO_REDIRECT", "-d 0.0.0.0/0 -s 0/0 -j ISTIO_REDIRECT"),
    ("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"),
    ("-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff", "-j CONNMARK --save-mark"),
    ("-p tcp -j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff", "-p tcp -j TPROXY --tproxy-mark 1337 --on-port 15006"),
    ("-j REJECT --reject-with icmp-port-unreachable", "-j REJECT"),
    ("-p tcp -m tcp --sport 1 --dport 2 -j ACCEPT", "-p tcp --dport 2 --sport 1 -j ACCEPT"),
    ("-p tcp -m tcp --dport 80 -j ACCEPT", "-p tcp -m tcp -m comment --comment \"it's -j DROP\" --dport 80 -j ACCEPT"),
    ("-p tcp -m multiport --dports 53,80 -j RETURN", "-p tcp -m multiport --dports 80,53 -j RETURN"),
]  # fmt: skip


@together(("listed", "written"), SPELLINGS)
def test_two_spellings_of_one_rule_are_the_same_rule(listed, written):
    assert normalise(listed, IPV4) == normalise(written, IPV4)
    assert normalise_rule(parse_rule(listed, IPV4)) == normalise_rule(parse_rule(written, IPV4))


DIFFERENT = [
    ("-p tcp --dport 80 -j ACCEPT", "-p udp --dport 80 -j ACCEPT"),
    ("-p tcp --dport 80 -j ACCEPT", "-p tcp --sport 80 -j ACCEPT"),
    ("-p tcp --dport 80 -j ACCEPT", "-p tcp ! --dport 80 -j ACCEPT"),
    ("-p tcp -j ACCEPT", "! -p tcp -j ACCEPT"),
    ("-j ISTIO_OUTPUT", "-g ISTIO_OUTPUT"),
    ("-d 127.0.0.1 -j RETURN", "! -d 127.0.0.1 -j RETURN"),
    ("-m owner --uid-owner 1337 -j RETURN", "-m owner --gid-owner 1337 -j RETURN"),
    ("-m limit --limit 5/min -j RETURN", "-j RETURN"),
    ("-m mark --mark 1 -j RETURN", "-m mark --mark 1/1 -j RETURN"),
    ("! -s 0.0.0.0/0 -j RETURN", "-j RETURN"),
    ("-j MARK --set-mark 1", "-j CONNMARK --set-mark 1"),
    ("-j LOG --log-prefix a", "-j LOG --log-prefix b"),
    ("-p tcp -m multiport --dports 1,2 -j RETURN", "-p tcp -m multiport --dports 3,4 -j RETURN"),
    ("-d 10.0.0.0/8,9.0.0.0/8 -j RETURN", "-d 10.0.0.0/8,7.0.0.0/8 -j RETURN"),
]


@together(("one", "other"), DIFFERENT)
def test_different_rules_are_different(one, other):
    assert normalise(one, IPV4) != normalise(other, IPV4)


READ = [
    ("-p tcp --dport 80:90 -j ACCEPT", (Port(protocol="tcp", ports=((80, 90),)),), Accept()),
    ("-p udp -m multiport --sports 1,5:7", (Port(protocol="udp", ports=(1, (5, 7)), source=True),), Observe(text="")),
    ("! -p icmp -g X", (Protocol(name="icmp", negated=True),), Jump(chain="X", goto=True)),
    ("-m mark --mark 5/7 -j MARK --set-mark 1/2", (Mark(value=5, mask=7),), SetMark(value=1, mask=3)),
    ("-m addrtype --dst-type LOCAL -j Docker", (AddressType(side="destination", types=("LOCAL",)),), Jump(chain="Docker")),
    ("-p tcp -j DNAT --to-destination 10.0.0.9:81", (Protocol(name="tcp"),), DestinationNat(address="10.0.0.9", port=81)),
    ("-j DNAT --to-destination 10.0.0.9", (), DestinationNat(address="10.0.0.9", port=0)),
    ("-j DNAT --to-destination 10.0.0.1-10.0.0.9", (), UnknownTarget(text="DNAT --to-destination 10.0.0.1-10.0.0.9")),
    ('-j LOG --log-prefix "a b"', (), LogTarget(prefix="a b")),
    ('-j LOG --log-prefix "a b" --log-level 7', (), Observe(text='LOG --log-prefix "a b" --log-level 7')),
    ('-j NFLOG --nflog-prefix "a b" --nflog-group 5', (), LogTarget(prefix="a b", group=5)),
    ("-m limit --limit 10/sec --limit-burst 20 -j DROP", (Limit(rate=10, burst=20),), Drop()),
    ("-m limit --limit 10/min --limit-burst 20 -j DROP", (Undecided(text="-m limit --limit 10/min --limit-burst 20", about="how many came before it"),), Drop()),
    ("-j REJECT --reject-with tcp-reset", (), Reject(message="tcp-reset")),
    ("-j NFQUEUE --queue-num 0", (), Queue(text="NFQUEUE --queue-num 0")),
    ("-j REDIRECT --to-ports 1-9", (), UnknownTarget(text="REDIRECT --to-ports 1-9")),
    ("-j REDIRECT", (), UnknownTarget(text="REDIRECT")),
    ("-m owner --uid-owner istio-proxy -j RETURN", (UnknownMatch(text="-m owner --uid-owner istio-proxy"),), Return()),
    ("-m owner --uid-owner 5 --suppl-groups -j RETURN", (UnknownMatch(text="-m owner --uid-owner 5 --suppl-groups"),), Return()),
    ("-m owner --uid-owner 5 ! --gid-owner 6 -j RETURN", (Owner(kind="uid", first=5, last=5), Owner(kind="gid", first=6, last=6, negated=True)), Return()),
    ("-d db.example -j RETURN", (UnknownMatch(text="-d db.example"),), Return()),
    ("-d 1.2.3.4/255.0.255.0 -j RETURN", (UnknownMatch(text="-d 1.2.3.4/255.0.255.0"),), Return()),
    ('-m string --string "a -j DROP" ! --algo bm -d 10.0.0.1 -j RETURN',
     (Destination(networks=(Network.parse("10.0.0.1/32"),)), Undecided(text='-m string --string "a -j DROP" ! --algo bm', about="its content")), Return()),
    ("-m set --match-set x src -p tcp --dport 80 -j RETURN",
     (UnknownMatch(text="-m set --match-set x src"), Port(protocol="tcp", ports=(80,))), Return()),
    ("-p tcp --dport http -j RETURN", (Protocol(name="tcp"), UnknownMatch(text="-m tcp --dport http")), Return()),
    ("-f -j DROP2", (UnknownMatch(text="-f"),), Jump(chain="DROP2")),
]  # fmt: skip


@together(("text", "matches", "target"), READ, ids=[text for text, _, _ in READ])
def test_rules_of_others_are_read_or_kept_to_the_letter(text, matches, target):
    rule = parse_rule(text, IPV4)
    assert (rule.matches, rule.target) == (matches, target)


def test_a_comment_with_quotes_and_options_in_it_is_a_comment():
    rule = parse_rule(r'-m comment --comment "say \"-j DROP\" \\ twice" -j RETURN', IPV4)
    assert (rule.comment, rule.matches, rule.target) == (r'say "-j DROP" \ twice', (), Return())


def test_ipv6_has_its_own_defaults():
    assert parse_rule("-d ::1 -j REJECT", IPV6).matches == (Destination(networks=(Network.parse("::1/128"),)),)
    assert parse_rule("-j REJECT --reject-with icmp6-port-unreachable", IPV6).target == Reject()
    assert parse_rule("-j DNAT --to-destination [fd00::1]:80", IPV6).target == DestinationNat(
        address="fd00::1", port=80
    )
    assert parse_rule("-j DNAT --to-destination fd00::1", IPV6).target == DestinationNat(address="fd00::1", port=0)
    assert parse_rule("-j TPROXY --on-port 1 --on-ip :: --tproxy-mark 0x2/0xffffffff", IPV6).target == Tproxy(
        port=1, mark=2
    )


@pytest.mark.parametrize("text", ['-m comment --comment "open', "-p", "!", "tcp -j ACCEPT", "-g"])
def test_what_is_no_rule_is_refused_with_its_text(text):
    with pytest.raises(ParseError, match="rule "):
        parse_rule(text, IPV4)


def test_marks_are_numbers_whatever_their_spelling():
    assert parse_rule("-j MARK --set-mark 0x539", IPV4).target == SetMark(value=1337)
    assert parse_rule("-j REDIRECT --to-port 15001", IPV4).target == Redirect(port=15001)


# --- words, numbers, networks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  a \t b ", [("a", "a", False), ("b", "b", False)]),
        ('"a b"', [("a b", '"a b"', True)]),
        ("'a b' c", [("a b", "'a b'", True), ("c", "c", False)]),
        (r'"a\"b\\"', [('a"b\\', r'"a\"b\\"', True)]),
        (r"'a\'", [("a\\", r"'a\'", True)]),  # as in a shell: nothing is protected here
        (r"a\b", [(r"a\b", r"a\b", False)]),
        ("x'y z'", [("xy z", "x'y z'", True)]),
        ("\"it's\"", [("it's", "\"it's\"", True)]),
        ("''", [("", "''", True)]),
    ],
)
def test_words_end_at_blanks_outside_of_quotes(text, words):
    assert [(word.text, word.raw, word.quoted) for word in split_words(text)] == words


@pytest.mark.parametrize("text", ['"a', "'a", 'a "b\\"', '"a\\'])
def test_a_quote_that_does_not_close_is_an_error_that_shows_the_rule(text):
    with pytest.raises(ParseError) as refusal:
        split_words(text)
    assert str(refusal.value) == f"rule {text!r}: a quote is not closed"


@together(
    ("text", "number"),
    [
        ("0", 0), ("7", 7), ("010", 8), ("0x1F", 31), ("0Xff", 255), ("4294967295", 0xFFFFFFFF), ("0xffffffff", 0xFFFFFFFF),
        ("4294967296", None), ("", None), ("0x", None), ("08", None), ("1a", None), ("0xg", None), ("-1", None), ("+1", None),
        (" 1", None), ("1_0", None), ("٣", None),
    ],
)  # fmt: skip
def test_numbers_are_read_as_the_c_library_reads_them(text, number):
    assert read_number(text) == number


def test_a_mask_stands_behind_a_slash_and_is_all_bits_where_there_is_none():
    assert [read_masked(text) for text in ("5", "5/7", "0x5/0", "5/", "/5", "x/1", "1/x")] == [
        (5, 0xFFFFFFFF), (5, 7), (5, 0), None, None, None, None,
    ]  # fmt: skip


@together(
    ("text", "family", "networks"),
    [
        ("10.1.2.3/8", IPV4, "10.0.0.0/8"),
        ("10.1.2.3", IPV4, "10.1.2.3/32"),
        ("10.0.0.0/255.255.0.0,192.0.2.1", IPV4, "10.0.0.0/16 192.0.2.1/32"),
        ("0/0", IPV4, "0.0.0.0/0"),
        ("10.0.0.0/0.0.0.0", IPV4, "0.0.0.0/0"),
        ("fd00::/ff00::", IPV6, "fd00::/8"),
        ("fd00::1", IPV6, "fd00::1/128"),
        ("0/0", IPV6, None),
        ("fd00::1", IPV4, None),
        ("10.0.0.1", IPV6, None),
        ("10.0.0.0/255.0.255.0", IPV4, None),
        ("10.0.0.0/0.0.0.255", IPV4, None),
        ("10.0.0.0/1.2", IPV4, None),
        ("10.0.0.0/33", IPV4, None),
        ("10.0.0.0,db.example", IPV4, None),
    ],
)
def test_networks_are_read_with_a_length_a_mask_or_neither(text, family, networks):
    found = read_networks(text, family)
    assert (found and " ".join(map(str, found))) == networks


# --- options ----------------------------------------------------------------------------------------------------------

ALL_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG")
MATCHED = [
    ("-s 10.0.0.0/8", Source(networks=(Network.parse("10.0.0.0/8"),))),
    ("--source 10.0.0.0/8", Source(networks=(Network.parse("10.0.0.0/8"),))),
    ("! --src 10.0.0.0/8", Source(networks=(Network.parse("10.0.0.0/8"),), negated=True)),
    ("-m conntrack --ctorigdst 1.2.3.4", OriginalEnd(networks=(Network.parse("1.2.3.4/32"),))),
    ("-m conntrack ! --ctorigsrc 10.0.0.0/255.0.0.0", OriginalEnd(source=True, networks=(Network.parse("10.0.0.0/8"),), negated=True)),
    ("-m conntrack --ctorigdstport 80", OriginalEnd(ports=((80, 80),))),
    ("-m conntrack ! --ctorigsrcport 80:90", OriginalEnd(source=True, ports=((80, 90),), negated=True)),
    ("-m hashlimit --hashlimit-name a", Undecided(text="-m hashlimit --hashlimit-name a", about="how many came before it")),
    ("-m conntrack --ctreplsrc 1.2.3.4", Undecided(text="-m conntrack --ctreplsrc 1.2.3.4", about="the entry of its connection")),
    ("--destination 1.2.3.4", Destination(networks=(Network.parse("1.2.3.4/32"),))),
    ("--in-interface eth0", InInterface(names=("eth0",))),
    ("! -i eth+", InInterface(names=("eth+",), negated=True)),
    ("--out-interface eth0", OutInterface(names=("eth0",))),
    ("! -o lo", OutInterface(names=("lo",), negated=True)),
    ("--proto TCP", Protocol(name="tcp")),
    ("-p 17", Protocol(name="udp")),
    ("-p 1", Protocol(name="icmp")),
    ("-p 58", Protocol(name="ipv6-icmp")),
    ("-p icmpv6", Protocol(name="ipv6-icmp")),
    ("-p 132", Protocol(name="sctp")),
    ("-p 47", Protocol(name="gre")),
    ("-p 4", Protocol(name="ipencap")),
    ("-p 143", Protocol(name="143")),
    ("-p udp --sport 53", Port(protocol="udp", ports=(53,), source=True)),
    ("-p udp --source-port :53", Port(protocol="udp", ports=((0, 53),), source=True)),
    ("-p tcp --destination-port 53:", Port(protocol="tcp", ports=((53, 65535),))),
    ("-p tcp --dport 65535", Port(protocol="tcp", ports=(65535,))),
    ("-p tcp --dport 80:80", Port(protocol="tcp", ports=(80,))),
    ("-p tcp -m multiport --source-ports 1", Port(protocol="tcp", ports=(1,), source=True)),
    ("-p tcp -m multiport ! --destination-ports 1,2", Port(protocol="tcp", ports=(1, 2), negated=True)),
    ("-p tcp ! --syn", TcpFlags(mask=("FIN", "SYN", "RST", "ACK"), flags=("SYN",), negated=True)),
    ("-p tcp --tcp-flags ALL NONE", TcpFlags(mask=ALL_FLAGS, flags=())),
    ("-p tcp --tcp-flags ACK,SYN ACK", TcpFlags(mask=("SYN", "ACK"), flags=("ACK",))),
    ("-p udp -m multiport ! --ports 1,5:7", EitherPort(protocol="udp", ports=(1, (5, 7)), negated=True)),
    ("-m conntrack --ctdir REPLY", ConnectionDirection(direction="REPLY")),
    ("-m iprange --src-range 1.2.3.4-1.2.3.9", AddressRange(family=IPV4, first=0x01020304, last=0x01020309, source=True)),
    ("-m iprange ! --dst-range 0.0.0.0-1.2.3.9", AddressRange(family=IPV4, first=0, last=0x01020309, negated=True)),
    ("-m owner --gid-owner 5-7", Owner(kind="gid", first=5, last=7)),
    ("-m owner --uid-owner 5-5", Owner(kind="uid", first=5, last=5)),
    ("-m mark ! --mark 0x5/7", Mark(value=5, mask=7, negated=True)),
    ("-m connmark ! --mark 5", Mark(value=5, connection=True, negated=True)),
    ("-m conntrack ! --ctstate DNAT,INVALID,SNAT", ConnectionState(states=("INVALID", "SNAT", "DNAT"), negated=True)),
    ("-m state --state UNTRACKED,NEW", ConnectionState(states=("NEW", "UNTRACKED"), module="state")),
    ("-m socket", Socket()),
    ("-m addrtype --src-type LOCAL,UNICAST", AddressType(side="source", types=("LOCAL", "UNICAST"))),
    ("-m addrtype ! --dst-type LOCAL", AddressType(side="destination", types=("LOCAL",), negated=True)),
]  # fmt: skip


@together(("text", "match"), MATCHED)
def test_an_option_is_read_as_the_match_it_means(text, match):
    *before, found = parse_rule(f"{text} -j RETURN", IPV4).matches
    assert found == match
    assert all(isinstance(one, Protocol) for one in before)


UNREAD = [
    "-m tcp --tcp-option 5", "-m tcp --syn now", "-m tcp --tcp-flags SYN", "-m tcp --tcp-flags SYN,XXX SYN", "-m tcp --tcp-flags SYN ECE",
    "-m tcp --dport 80 90", "-m tcp --dport 90:80", "-m tcp --dport 65536", "-m tcp --dport 1:65536", "-m tcp --dport x:1", "-m tcp --dport 1:x",
    "-m tcp --sport 1,2", "-m iprange --dst-range 1.2.3.4", "-m iprange --dst-range 1.2.3.4-1.2.3.3", "-m iprange --src-range 1.2.3.4-::1", "-m iprange --src-range 1-x", "-m multiport --dports 1,,2", "-m multiport --dports 1 2", "-m multiport --dports 1,x",
    "-m owner --uid-owner 7-5", "-m owner --uid-owner 5-", "-m owner --uid-owner -5", "-m owner --uid-owner 5 6",
    "-m mark --mark x", "-m mark --mark 1 2", "-m mark --mark 1/x", "-m connmark --mark x",
    "-m conntrack --ctstate NEW,OTHER", "-m conntrack --ctstate NEW OLD", "-m conntrack --ctdir OTHER", "-m state --state SOME",
    "-m socket --transparent", "-m addrtype --limit-iface-in", "-m addrtype --dst-type LOCAL UNICAST", "-m addrtype --src-type",
    "-m owner --uid-owner 5 !", "-m limit --limit 5/min", "-m owner", "-m mark",
]  # fmt: skip


@together("text", UNREAD)
def test_an_option_that_is_not_understood_keeps_the_letters_of_its_module(text):
    if text.endswith("!"):
        with pytest.raises(ParseError, match=r"ends with !$"):
            parse_rule(f"-p tcp {text}", IPV4)
        return
    rule = parse_rule(f"-p tcp {text} -j RETURN", IPV4)
    assert rule.matches[0] == Protocol(name="tcp")
    assert [(isinstance(one, UnknownMatch), one.text) for one in rule.matches[1:]] == [(True, text)]
    assert rule.target == Return()


def test_ports_of_a_protocol_without_ports_are_not_read():
    assert parse_rule("-p sctp -m multiport --dports 1,2 -j RETURN", IPV4).matches == (
        Protocol(name="sctp"), UnknownMatch(text="-m multiport --dports 1,2"),
    )  # fmt: skip


def test_the_options_of_a_module_come_in_the_order_of_a_listing():
    ports = parse_rule("-p tcp --dport 2 --sport 1 --syn -j RETURN", IPV4).matches
    assert ports == (
        Port(protocol="tcp", ports=(1,), source=True), Port(protocol="tcp", ports=(2,)),
        TcpFlags(mask=("FIN", "SYN", "RST", "ACK"), flags=("SYN",)),
    )  # fmt: skip


def test_what_iptables_lists_first_comes_first_and_extensions_in_their_order():
    rule = parse_rule("-m mark --mark 1 -p icmp -o b -i a -m owner --uid-owner 1 -d 1.2.3.4 -s 4.3.2.1 -f -j RETURN", IPV4)
    assert [type(match).__name__ for match in rule.matches] == [
        "Source", "Destination", "InInterface", "OutInterface", "Protocol", "Mark", "Owner", "UnknownMatch",
    ]  # fmt: skip


def test_counters_of_a_rule_are_passed_over_and_all_protocols_are_none():
    assert parse_rule("-c 5 300 -p all -j RETURN", IPV4).matches == ()
    assert parse_rule("--set-counters 5 300 -p 0 -j RETURN", IPV4).matches == ()


def test_the_flags_of_tcp_bring_their_protocol_with_them():
    flags = TcpFlags(mask=("SYN", "ACK"), flags=("SYN",))
    assert flags.protocol == "tcp"
    rule = parse_rule("-p tcp -m tcp --tcp-flags SYN,ACK SYN -j RETURN", IPV4)
    assert write_rule(rule.replace(matches=(flags,)), IPV4) == ["-p tcp -m tcp --tcp-flags SYN,ACK SYN -j RETURN"]


def test_a_comment_without_words_is_none():
    assert parse_rule("-m comment -j RETURN", IPV4) == parse_rule("-j RETURN", IPV4)


def test_an_option_goes_to_the_last_module_that_knows_it():
    rule = parse_rule("-m mark --mark 1 -m connmark --mark 2 -j RETURN", IPV4)
    assert rule.matches == (Mark(value=1), Mark(value=2, connection=True))
    rule = parse_rule("-p tcp -m limit --limit 1/s --limit-burst 5 --dport 80 -j RETURN", IPV4)
    assert rule.matches == (Undecided(text="-m limit --limit 1/s --limit-burst 5", about="how many came before it"), Port(protocol="tcp", ports=(80,)))
    assert parse_rule("--limit 5 -j RETURN", IPV4).matches == (UnknownMatch(text="--limit 5"),)


def test_a_value_may_begin_with_a_dash_and_a_digit_or_stand_in_quotes():
    rule = parse_rule('-m time --timestart -5 --x - "--jump" -j RETURN', IPV4)
    assert rule.matches == (Undecided(text='-m time --timestart -5 --x - "--jump"', about="the time"),)
    assert rule.target == Return()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("-s", "-s has no value"),
        ("-p tcp -i", "-i has no value"),
        ("-p tcp !", "ends with !"),
        ("-p tcp http -j RETURN", "http belongs to no option"),
        ('"-p" tcp', '"-p" belongs to no option'),
        ("-g", "-g names one chain, and nothing else"),
        ("-g THEIRS more", "-g names one chain, and nothing else"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said_with_its_text(text, what):
    with pytest.raises(ParseError) as refusal:
        parse_rule(text, IPV4)
    assert str(refusal.value) == f"rule {text!r}: {what}"


# --- targets ----------------------------------------------------------------------------------------------------------

TARGETS = [
    ("-j ACCEPT --x", UnknownTarget(text="ACCEPT --x")),
    ("-j TRACE", Observe(text="TRACE")),
    ("-j Their-Chain", Jump(chain="Their-Chain")),
    ("-j THEIRS --x 1", UnknownTarget(text="THEIRS --x 1")),
    ("--goto THEIRS", Jump(chain="THEIRS", goto=True)),
    ("-j REDIRECT --to-ports 0", UnknownTarget(text="REDIRECT --to-ports 0")),
    ("-j REDIRECT --to-ports 1 --random", UnknownTarget(text="REDIRECT --to-ports 1 --random")),
    ("-j REDIRECT --to-ports 1 2", UnknownTarget(text="REDIRECT --to-ports 1 2")),
    ("-j REDIRECT --to-ports 1 --to-ports 2", UnknownTarget(text="REDIRECT --to-ports 1 --to-ports 2")),
    ("-j TPROXY --on-port 1 --tproxy-mark 2/3", Tproxy(port=1, mark=2, mask=3)),
    ("-j TPROXY --on-port 1", UnknownTarget(text="TPROXY --on-port 1")),
    ("-j TPROXY --tproxy-mark 1", UnknownTarget(text="TPROXY --tproxy-mark 1")),
    ("-j TPROXY --on-port 1 --tproxy-mark 2 --x", UnknownTarget(text="TPROXY --on-port 1 --tproxy-mark 2 --x")),
    ("-j TPROXY --on-port 1 --tproxy-mark 2 --on-ip 127.0.0.1", Tproxy(port=1, mark=2, address="127.0.0.1")),
    ("-j TPROXY --on-port 1 --tproxy-mark 2 --on-ip nowhere", UnknownTarget(text="TPROXY --on-port 1 --tproxy-mark 2 --on-ip nowhere")),
    ("-j REJECT --reject-with port-unreach", Reject()),
    ("-j REJECT --reject-with port-unreachable", Reject()),
    ("-j REJECT --reject-with icmp-host-unreachable", Reject(message="icmp-host-unreachable")),
    ("-j REJECT --reject-with icmp6-port-unreach", Reject(message="icmp6-port-unreachable")),
    ("-j REJECT --x", UnknownTarget(text="REJECT --x")),
    ("-j REJECT --reject-with tcp-reset --x", UnknownTarget(text="REJECT --reject-with tcp-reset --x")),
    ("-j MARK --set-mark 5/2", SetMark(value=5, mask=7)),
    ("-j MARK --set-xmark 5/2", SetMark(value=5, mask=2)),
    ("-j MARK --and-mark 0xff", SetMark(value=0, mask=0xFFFFFF00)),
    ("-j MARK --or-mark 6", SetMark(value=6, mask=6)),
    ("-j MARK --xor-mark 6", SetMark(value=6, mask=0)),
    ("-j MARK --nand-mark 6", UnknownTarget(text="MARK --nand-mark 6")),
    ("-j MARK --set-mark x", UnknownTarget(text="MARK --set-mark x")),
    ("-j MARK --or-mark x", UnknownTarget(text="MARK --or-mark x")),
    ("-j MARK --set-mark 1 --or-mark 2", UnknownTarget(text="MARK --set-mark 1 --or-mark 2")),
    ("-j CONNMARK --or-mark 6", SetMark(value=6, mask=6, connection=True)),
    ("-j CONNMARK --nothing 6", UnknownTarget(text="CONNMARK --nothing 6")),
    ("-j CONNMARK --save-mark --mask 0xffffffff", SaveMark()),
    ("-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", RestoreMark()),
    ("-j CONNMARK --restore-mark", RestoreMark()),
    ("-j CONNMARK --save-mark --nfmask 0xff", SaveMark(nfmask=0xFF)),
    ("-j CONNMARK --save-mark --mask 0xff", SaveMark(nfmask=0xFF, ctmask=0xFF)),
    ("-j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80", RestoreMark(nfmask=0x80, ctmask=0x80)),
    ("-j CONNMARK --restore-mark --nfmask x", UnknownTarget(text="CONNMARK --restore-mark --nfmask x")),
    ("-j CONNMARK --save-mark --other 0xffffffff", UnknownTarget(text="CONNMARK --save-mark --other 0xffffffff")),
    ("-j CT --zone 0", TrackZone(zone=0)),
    ("-j CT --zone-orig 4", TrackZone(zone=4, side="orig")),
    ("-j CT --zone-reply 4", TrackZone(zone=4, side="reply")),
    ("-j CT --zone-orig 4 --zone-reply 5", UnknownTarget(text="CT --zone-orig 4 --zone-reply 5")),
    ("-j CT --notrack", Untrack()),
    ("-j CT --zone x", UnknownTarget(text="CT --zone x")),
    ("-j CT --helper ftp", Observe(text="CT --helper ftp", is_of_ct=True)),
    ("-j CT --ctevents new,destroy --timeout slow", Observe(text="CT --ctevents new,destroy --timeout slow", is_of_ct=True)),
    ("-j CT --helper ftp --zone 1", UnknownTarget(text="CT --helper ftp --zone 1")),
    ("-j CT --zone 1 --helper ftp", UnknownTarget(text="CT --zone 1 --helper ftp")),
    ("-j NFLOG --nflog-prefix a --nflog-group 7", LogTarget(prefix="a", group=7)),
    ("-j NFLOG --nflog-prefix a --nflog-group 0", Observe(text="NFLOG --nflog-prefix a --nflog-group 0")),
    ("-j NFLOG --nflog-prefix a --nflog-group x", Observe(text="NFLOG --nflog-prefix a --nflog-group x")),
    ("-j NOTRACK", Untrack()),
    ("-j NOTRACK --x", UnknownTarget(text="NOTRACK --x")),
    ("-j SNAT --to-source 1.2.3.4", SourceNat(text="SNAT --to-source 1.2.3.4", address="1.2.3.4")),
    ("-j MASQUERADE", SourceNat(text="MASQUERADE")),
    ("-j DNAT", UnknownTarget(text="DNAT")),
    ("-j DNAT --to-destination :80", DestinationNat(address="", port=80)),
    ("-j DNAT --to-destination 1.2.3.4:x", UnknownTarget(text="DNAT --to-destination 1.2.3.4:x")),
    ("-j DNAT --to-destination 1.2.3.4 --random", UnknownTarget(text="DNAT --to-destination 1.2.3.4 --random")),
    ("-j DNAT --to-destination [fd00::1]", UnknownTarget(text="DNAT --to-destination [fd00::1]")),
    ("-j TTL x", UnknownTarget(text="TTL x")),
]  # fmt: skip


@together(("text", "target"), TARGETS)
def test_a_target_is_read_or_kept_to_the_letter(text, target):
    assert parse_rule(f"-p tcp {text}", IPV4).target == target


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("-i + -j RETURN", "-j RETURN", True),
        ("-o + -j RETURN", "-j RETURN", True),
        ("! -i + -j RETURN", "-j RETURN", False),
        ("-i a+ -j RETURN", "-j RETURN", False),
        ("-d 0.0.0.0/0 -j RETURN", "-j RETURN", True),
        ("! -d 0/0 -j RETURN", "-j RETURN", False),
        ("-s 10.0.0.0/8,9.0.0.0/8 -j RETURN", "-s 9.0.0.0/8,10.0.0.0/8 -j RETURN", True),
        ("-p tcp -m multiport --dports 1:2,1,1 -j RETURN", "-p tcp -m multiport --dports 1,1:2 -j RETURN", True),
        ("-p tcp -j RETURN", "-p tcp -m tcp -j RETURN", True),
        ("-p tcp -j RETURN", "-p tcp -m udp -j RETURN", False),
    ],
)
def test_what_always_holds_and_the_order_of_lists_make_no_difference(one, other, same):
    assert (normalise(one, IPV4) == normalise(other, IPV4)) is same


# --- whole rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [IPV4, IPV6], ids=str)
def test_a_rule_is_of_the_family_in_which_it_is_read(family):
    assert parse_rule("-p tcp -j RETURN", family).families == (family,)


@pytest.mark.parametrize("text", ["a\x0bb", "a\nb", "a\rb", "a\u00a0b", "a\x1fb\u2003c"])
def test_only_blanks_and_tabs_part_words(text):
    assert [word.text for word in split_words(f"x\t{text} \ty")] == ["x", text, "y"]
    assert [word.raw for word in split_words(f'x\t{text} \ty\t"z"')] == ["x", text, "y", '"z"']


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("! -f -p tcp", ["-p tcp", "! -f"]), ("-f", ["-f"]), ("--fragment -i a", ["-i a", "--fragment"]), ("-s db -d 10.0.0.1 ! -d other.example", ["-d 10.0.0.1/32", "-s db", "! -d other.example"]),
        ("-i a -c 1 2 -o b", ["-i a", "-o b"]), ("--foo a b c -i a", ["-i a", "--foo a b c"]), ("! --foo -p udp", ["-p udp", "! --foo"]), ("-m x -m y --foo - -5 a --bar", ["-m x", "-m y --foo - -5 a --bar"]),
        ("-m x --foo a -p tcp --bar", ["-p tcp", "-m x --foo a --bar"]), ("-p tcp --dport 1 -m mark ! --mark 1 --sport 2", ["-m tcp --sport 2", "-m tcp --dport 1", "-m mark ! --mark 0x1"]),
        ("-p all -m x", ["-m x"]), ("-p 256", ["-p 256"]), ("-p 255", ["-p 255"]), ("! -p 0", []), ("-p ALL", []), ("-p ICMPV6", ["-p ipv6-icmp"]), ("-m tcp -p tcp", ["-p tcp -m tcp"]), ("-i a -s 10.0.0.1 -p tcp -m tcp", ["-s 10.0.0.1/32", "-i a", "-p tcp -m tcp"]), ("-p tcp -m udp", ["-p tcp", "-m udp"]),
        ('-m x --foo "a b" --bar "!"', ['-m x --foo "a b" --bar "!"']), ("-m comment --comment -x -i a", ["-i a"]), ('-m comment --comment "a" b -i a', ["-i a"]),
        ("-m comment --comment a -m comment --comment b -i a", ["-i a"]),
    ],
)  # fmt: skip
def test_matches_are_those_of_iptables_then_those_of_modules_then_what_belongs_to_none(text, matches):
    rule = parse_rule(f"{text} -j RETURN", IPV4)
    assert [match.xt() for match in rule.matches] == matches
    assert rule.target == Return()


@pytest.mark.parametrize(
    ("text", "comment"),
    [
        ("-m comment --comment a", "a"), ("-m comment --comment -x", "-x"), ("-m comment --comment a -m comment --comment b", "b"), ("-m comment --comment '' -p tcp", ""), ("-p tcp", ""), ("-m comment", ""),
        ("-m comment --comment", ""), ('-m comment --comment "!" -p tcp', "!"),
    ],
)  # fmt: skip
def test_a_rule_has_its_last_comment(text, comment):
    assert parse_rule(text, IPV4).comment == comment


@pytest.mark.parametrize(("text", "module"), [("-p tcp", False), ("-p tcp -m tcp", True), ("-p tcp -m comment --comment tcp", False), ("-p udp -m udp", True), ("! -p tcp -m tcp", True)])
def test_a_bare_module_of_the_protocol_is_kept_with_it(text, module):
    (protocol,) = parse_rule(f"{text} -j RETURN", IPV4).matches
    assert protocol.module is module
    assert write_rule(parse_rule(f"{text} -j RETURN", IPV4), IPV4) == [f"{text.partition(' -m comment')[0]} -j RETURN"]


def test_the_text_alone_of_a_rule_of_the_kernel_is_parted_and_its_meaning_is_what_was_decoded():
    meant = parse_rule("-p udp -j DROP", IPV4)
    spec = DecodedRule("-p tcp -j RETURN", meant)
    assert parse_rule(spec, IPV4) is meant
    assert normalise(spec, IPV4) == normalise("-p udp -j DROP", IPV4)
    assert part_comment(spec) == ("-p tcp -j RETURN", "")
    assert type(part_comment(spec)[0]) is str
