"""Reading rules in iptables' dialect."""

from __future__ import annotations

import pytest

from netinit.base.errors import ParseError
from netinit.base.net import IPV4, IPV6, Network
from netinit.rules.iptables.parse import normalise, normalise_rule, parse_rule
from netinit.rules.matches import AddressType, Destination, Mark, Owner, Port, Protocol, UnknownMatch
from netinit.rules.targets import (
    Accept,
    DestinationNat,
    Jump,
    Observe,
    Redirect,
    Reject,
    Return,
    SetMark,
    Tproxy,
    UnknownTarget,
)

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


@pytest.mark.parametrize(("listed", "written"), SPELLINGS)
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
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
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
    ('-j LOG --log-prefix "a b"', (), Observe(text='LOG --log-prefix "a b"')),
    ("-j REJECT --reject-with tcp-reset", (), Reject(message="tcp-reset")),
    ("-j NFQUEUE --queue-num 0", (), UnknownTarget(text="NFQUEUE --queue-num 0")),
    ("-j REDIRECT --to-ports 1-9", (), UnknownTarget(text="REDIRECT --to-ports 1-9")),
    ("-j REDIRECT", (), UnknownTarget(text="REDIRECT")),
    ("-m owner --uid-owner istio-proxy -j RETURN", (UnknownMatch(text="-m owner --uid-owner istio-proxy"),), Return()),
    ("-m owner --uid-owner 5 --suppl-groups -j RETURN", (UnknownMatch(text="-m owner --uid-owner 5 --suppl-groups"),), Return()),
    ("-m owner --uid-owner 5 ! --gid-owner 6 -j RETURN", (Owner(kind="uid", number=5), Owner(kind="gid", number=6, negated=True)), Return()),
    ("-d db.example -j RETURN", (UnknownMatch(text="-d db.example"),), Return()),
    ("-d 1.2.3.4/255.0.255.0 -j RETURN", (UnknownMatch(text="-d 1.2.3.4/255.0.255.0"),), Return()),
    ('-m string --string "a -j DROP" ! --algo bm -d 10.0.0.1 -j RETURN',
     (Destination(networks=(Network.parse("10.0.0.1/32"),)), UnknownMatch(text='-m string --string "a -j DROP" ! --algo bm')), Return()),
    ("-m set --match-set x src -p tcp --dport 80 -j RETURN",
     (UnknownMatch(text="-m set --match-set x src"), Port(protocol="tcp", ports=(80,))), Return()),
    ("-p tcp --dport http -j RETURN", (Protocol(name="tcp"), UnknownMatch(text="-m tcp --dport http")), Return()),
    ("-f -j DROP2", (UnknownMatch(text="-f"),), Jump(chain="DROP2")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "matches", "target"), READ, ids=[text for text, _, _ in READ])
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
