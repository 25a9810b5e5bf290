"""Answers: what is translated back, in which zone a connection is found, and where an answer goes that does not arrive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import IPV4, IPV6, Packet, Surroundings, number_of, parse_listing
from netinit.base.net import FULL_MASK, Network
from netinit.rules.foreign_targets import WriteDestination
from netinit.rules.model import Rule
from netinit.simulate.answers import UNSENT, follow_answer, make_answer
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import HookedChain, LoadedChain, LoadedRule, Ruleset
from netinit.simulate.stand_ins import make_inbound
from netinit.simulate.trace import FORWARDED

POD = Surroundings(family=IPV4, addresses=(("lo", number_of("127.0.0.1")), ("eth0", number_of("192.0.2.10"))), forwards=True)
NAT = (
    "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n-A OUTPUT -p tcp -m owner ! --uid-owner 1337 -j REDIRECT --to-ports 15001\n"
    "-A PREROUTING -i eth0 -p tcp -j REDIRECT --to-ports 15006\n{more}COMMIT\n"
)


def out(to="198.51.100.7", **more):
    return make_outbound(POD, to, 80, **{"uid": 1000, "gid": 1000, **more})


def come_in(**more):
    return make_inbound(POD, "203.0.113.9", "", 8080, **more)


def answer(packet: Packet, tables: str, *, nat: str = "", around=POD, marks=()):
    ruleset = replace(load_listing(parse_listing(NAT.format(more=nat) + tables), IPV4), local_marks=frozenset(marks))
    return follow_answer(simulate(packet, ruleset, around), ruleset, around, owner=(1337, 1337))


def table(name, *rules):
    hooks = {"raw": ("PREROUTING", "OUTPUT"), "mangle": ("PREROUTING", "INPUT", "OUTPUT")}.get(name, ("INPUT", "FORWARD", "OUTPUT"))
    return "\n".join([f"*{name}", *[f":{hook} ACCEPT [0:0]" for hook in hooks], *rules, "COMMIT", ""])


@pytest.mark.parametrize("packet", [out(), come_in(), out(uid=1337), out("192.0.2.10")])
def test_an_answer_comes_back_from_where_the_connection_went(packet):
    found = answer(packet, "")
    assert (found.arrives, found.reason) == (True, "")
    assert (found.trace.last.source, found.trace.last.destination) == (packet.destination, packet.source)
    assert found.trace.last.source_port == packet.destination_port


@pytest.mark.parametrize("nat", ["-A POSTROUTING -j MASQUERADE\n", "-A POSTROUTING -j SNAT --to-source 192.0.2.99\n"])
def test_a_translated_source_is_translated_back_where_destinations_are(nat):
    dropped = table("filter", "-A OUTPUT -s 127.0.0.1/32 -d 192.0.2.99/32 -p tcp -j DROP")  # before that, at no hook
    both = POD.replace(addresses=(*POD.addresses, ("eth0", number_of("192.0.2.99"))))
    assert answer(out(), dropped, nat=nat, around=both).arrives is True
    assert answer(out(uid=1337), table("filter", "-A INPUT -d 192.0.2.10/32 -s 198.51.100.7/32 -j DROP"), nat=nat).arrives is False


@pytest.mark.parametrize(
    ("packet", "rule", "arrives"),
    [
        (out(), "-A INPUT -s 198.51.100.7/32 -j DROP", False),  # over lo, with the server's address
        (out(), "-A OUTPUT -s 198.51.100.7/32 -j DROP", True),  # which it does not have there yet
        (out(), "-A OUTPUT -s 127.0.0.1/32 -p tcp -m tcp --sport 15001 -j REJECT", False),
        (out(), "-A INPUT -p tcp -m tcp --sport 80 -j DROP", False),
        (come_in(), "-A OUTPUT -p tcp -m tcp --sport 15006 -j DROP", False),
        (come_in(), "-A OUTPUT -p tcp -m tcp --sport 8080 -j DROP", True),
        (come_in(), "-A OUTPUT -p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK -j DROP", False),
        (come_in(), "-A OUTPUT -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP", True),
        (come_in(), "-A OUTPUT -m owner --uid-owner 1337 -j DROP", False),
        (come_in(), "-A OUTPUT -m conntrack --ctstate INVALID -j DROP", True),
        (come_in(), "-A OUTPUT -m conntrack --ctdir REPLY -j DROP", False),
        (come_in(), "-A OUTPUT -m conntrack --ctstate DNAT -j DROP", False),
        (out(uid=1337), "-A INPUT -i eth0 -s 198.51.100.0/24 -j DROP", False),
    ],
)
def test_a_rule_drops_the_answer_that_it_matches_with_the_addresses_that_it_has_there(packet, rule, arrives):
    found = answer(packet, table("filter", rule))
    assert found.arrives is arrives, found
    assert bool(found.cause) is not arrives


@pytest.mark.parametrize(
    ("packet", "rules", "why"),
    [
        (come_in(), ("-A PREROUTING -j CT --zone 5",), "it is looked up in conntrack zone 0, and the connection is in zone 5"),
        (come_in(), ("-A OUTPUT -j CT --zone 5",), "it is looked up in conntrack zone 5, and the connection is in zone 0"),
        (come_in(), ("-A PREROUTING -j CT --zone-orig 5",), ""),
        (come_in(), ("-A PREROUTING -j CT --zone 5", "-A OUTPUT -j CT --zone 5"), ""),
        (out(), ("-A OUTPUT -j CT --zone 5",), ""),  # both directions pass OUTPUT
        (out(uid=1337), ("-A OUTPUT -j CT --zone 5",), ""),  # which is not translated, so that nobody minds
        (come_in(), ("-A OUTPUT -j CT --notrack",), "it is not tracked, so that its address is not translated back"),
    ],
)
def test_an_answer_is_translated_back_only_if_it_is_looked_up_in_the_zone_of_its_connection(packet, rules, why):
    found = answer(packet, table("raw", *rules))
    assert (found.reason, found.arrives) == (why, not why)


def test_an_answer_with_the_mark_of_its_connection_may_be_routed_to_the_pod():
    tables = table("mangle", "-A INPUT -j CONNMARK --set-xmark 0x539/0xffffffff", "-A OUTPUT -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff")
    found = answer(come_in(), tables, marks=[(1337, FULL_MASK)])
    assert (found.arrives, found.reason) == (False, "it is delivered to this pod: its mark 1337 is routed there by a policy rule")
    assert answer(come_in(), tables).arrives is True


def written(hook, address="", port=0, *, priority=-300):
    """A table of somebody else with a rule that writes a destination into packets, without NAT."""
    rule = LoadedRule(1, "", Rule(matches=(), target=WriteDestination(text="", address=address, port=port), comment="", origin=None))
    chain = LoadedChain("c", (rule,), "ACCEPT")
    return HookedChain("nft table ip x", chain, {"c": chain}, "raw", hook, priority)


BACK = "its address is not translated back"


@pytest.mark.parametrize("tables", [NAT.format(more=""), "*nat\n:OUTPUT ACCEPT [0:0]\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n", ""], ids=["captured", "tracked", "untracked"])
@pytest.mark.parametrize(
    ("packet", "hook", "to", "why"),
    [
        (out(), "OUTPUT", {"address": "203.0.113.50"}, BACK), (out(), "OUTPUT", {"port": 81}, BACK), (out(), "OUTPUT", {"address": "203.0.113.50", "port": 80}, BACK),
        (out(), "OUTPUT", {"address": "198.51.100.7", "port": 80}, ""), (out(), "OUTPUT", {}, ""),
        (come_in(), "PREROUTING", {"port": 8081}, BACK), (come_in(), "PREROUTING", {"port": 8080}, ""),
    ],
)  # fmt: skip
def test_an_answer_has_the_destination_that_a_rule_wrote_without_nat_and_nobody_waits_for_it(packet, hook, to, why, tables):
    """Connection tracking saw the packet with that destination, and NAT translates back to no other."""
    rules = load_listing(parse_listing(tables), IPV4) if tables else Ruleset(IPV4)
    asked = simulate(packet, replace(rules, foreign=(written(hook, **to),)), POD)
    found = follow_answer(asked, rules, POD, owner=(1337, 1337))
    assert (found.reason, found.arrives) == (why, not why), found


def test_a_forwarded_connection_is_answered_through_the_device_where_it_came_in():
    around = POD.replace(routes=(), addresses=(*POD.addresses, ("br0", number_of("10.9.0.1"))))
    packet = make_inbound(around, "10.9.0.2", "203.0.113.7", 53, protocol="udp", interface="br0")
    masquerade = "-A POSTROUTING -o eth0 -j MASQUERADE\n"
    found = answer(packet, "", nat=masquerade, around=around)
    assert (found.arrives, found.reason, found.trace.fate, found.trace.last.destination) == (True, "", FORWARDED, packet.source)
    assert answer(packet, table("raw", "-A PREROUTING -s 203.0.113.7/32 -j CT --zone 1"), nat=masquerade, around=around).reason.startswith(
        "it is looked up in conntrack zone 1, and the connection is in zone 0"
    )


@pytest.mark.parametrize(
    ("device", "usual", "reason"),
    [
        ("eth2", POD, "it leaves through eth2, and the connection comes in through eth0"), ("eth2", None, ""), ("eth0", POD, ""),
        ("eth2", POD.replace(routes=((Network.parse("203.0.113.0/24"), "eth2"),)), ""),
    ],
)  # fmt: skip
def test_an_answer_leaves_through_the_device_of_its_connection_or_that_of_the_usual_route(device, usual, reason):
    around, rules = POD.replace(routes=((Network.parse("203.0.113.0/24"), device),)), load_listing(parse_listing(NAT.format(more="")), IPV4)
    found = follow_answer(simulate(come_in(), rules, around), rules, around, owner=(1337, 1337), usual=usual)
    assert (found.arrives, found.reason) == (not reason, reason)


def asked(packet, *, around=POD, nat=""):
    return simulate(packet, load_listing(parse_listing(NAT.format(more=nat)), IPV4), around)


@pytest.mark.parametrize(
    ("packet", "owner", "changes"),
    [
        (out(), (1337, 1338), {"source": number_of("127.0.0.1"), "source_port": 15001, "uid": 1337, "gid": 1338}),
        (out(), None, {"source": number_of("127.0.0.1"), "source_port": 15001}),
        (come_in(), (1337, 1338), {"source": number_of("192.0.2.10"), "source_port": 15006, "destination": number_of("203.0.113.9"), "uid": 1337, "gid": 1338}),
        (out(uid=1337), (1337, 1338), {"source_port": 80, "in_interface": "eth0", "has_socket": False}),
        (out(protocol="udp"), (1, 1), {"protocol": "udp", "source_port": 80, "in_interface": "eth0", "has_socket": False, "flags": None}),
        (make_inbound(POD, "203.0.113.9", "203.0.113.7", 53, interface="br0", protocol="udp"), (1, 1),
         {"protocol": "udp", "source": number_of("203.0.113.7"), "source_port": 53, "destination": number_of("203.0.113.9"), "in_interface": "eth0", "has_socket": False,
          "socket": False, "flags": None}),
    ],
)  # fmt: skip
def test_an_answer_begins_where_the_packet_ended_and_goes_where_it_seemed_to_come_from(packet, owner, changes):
    expected = Packet(
        family=IPV4, protocol="tcp", source=number_of("198.51.100.7"), destination=number_of("192.0.2.10"), destination_port=40000, has_socket=True, socket=True,
        flags=("SYN", "ACK"),
    )  # fmt: skip
    assert make_answer(asked(packet), POD, owner) == expected.replace(**changes)


def test_the_answer_to_what_was_masqueraded_goes_to_the_address_of_the_device_through_which_it_left():
    around = POD.replace(addresses=(*POD.addresses, ("eth1", number_of("10.1.0.2"))), routes=((Network.parse("198.51.100.0/24"), "eth1"),))
    masquerade = "-A POSTROUTING -j MASQUERADE\n"
    for packet, address in ((out(uid=1337), "10.1.0.2"), (out("203.0.113.1", uid=1337), "192.0.2.10"), (out(), "192.0.2.10")):
        assert make_answer(asked(packet, around=around, nat=masquerade), around).destination == number_of(address)


@pytest.mark.parametrize("packet", [out().replace(flags=("ACK",)), out().replace(state="RELATED"), out().replace(flags=("SYN",), state="ESTABLISHED")])
def test_a_packet_of_a_known_connection_has_no_answer(packet):
    assert answer(packet, "") is None
    assert answer(out().replace(flags=("SYN",)), "").arrives is True


@pytest.mark.parametrize(("rule", "reason"), [
    ("-A INPUT -i lo -p tcp -m tcp --sport 80 -j DROP", "it is dropped, because rule 1 of filter INPUT, `-i lo -p tcp -m tcp --sport 80 -j DROP`"),
    ("-A INPUT -i lo -p tcp -m tcp --sport 80 -j REJECT", "it is refused, because rule 1 of filter INPUT, `-i lo -p tcp -m tcp --sport 80 -j REJECT`"),
])  # fmt: skip
def test_why_an_answer_does_not_arrive_is_the_rule_that_ends_it(rule, reason):
    found = answer(out(), table("filter", rule))
    assert (found.arrives, found.reason, found.cause) == (False, reason, found.trace.decider)


def test_an_answer_of_which_nothing_is_known_may_arrive():
    found = answer(out(), table("filter", "-A INPUT -p tcp -m tcp --sport 80 -m set --match-set x src -j DROP"))
    assert (found.arrives, found.cause, found.reason) == (None, None, found.trace.reason)


def test_an_answer_to_an_address_that_is_not_the_pod_s_leaves_it():
    found = answer(out("192.0.2.10", uid=1337, source="203.0.113.5"), "")
    assert (found.arrives, found.reason) == (False, "it leaves through eth0")


def test_an_answer_to_an_address_of_the_pod_s_own_that_came_in_from_outside_stays():
    found = answer(make_inbound(POD, "192.0.2.10", "", 8080, interface="eth0"), "")
    assert (found.arrives, found.reason) == (False, "it is delivered to this pod: it is routed there")


@pytest.mark.parametrize(("rule", "why"), [
    ("-A OUTPUT -j CT --notrack", "its connection is not tracked, so that its address is not translated back"), ("-A OUTPUT -p udp -j CT --notrack", "its address is not translated back"),
])  # fmt: skip
def test_an_answer_to_what_is_not_tracked_keeps_the_address_that_a_rule_wrote(rule, why):
    ruleset = load_listing(parse_listing(NAT.format(more="") + table("raw", rule)), IPV4)
    sent = simulate(out(uid=1337), replace(ruleset, foreign=(written("OUTPUT", "203.0.113.50"),)), POD)
    found = follow_answer(sent, ruleset, POD)
    assert (found.arrives, found.reason) == (False, why)


@pytest.mark.parametrize(("source", "unsent"), [("127.0.0.0", True), ("127.255.255.255", True), ("126.255.255.255", False), ("128.0.0.0", False)])
def test_all_loopback_addresses_and_no_others_are_sent_through_lo_alone(source, unsent):
    around = POD.replace(addresses=(*POD.addresses, ("lo", number_of("126.255.255.255")), ("lo", number_of("128.0.0.0"))))
    found = follow_answer(simulate(out(source, source="203.0.113.5", uid=1337), Ruleset(IPV4), around), Ruleset(IPV4), around)
    assert (found.arrives, found.reason == UNSENT) == (False, unsent)


@pytest.mark.parametrize("packet", [out().replace(protocol="icmp"), out().replace(state="ESTABLISHED"), out().replace(family=IPV6)])
def test_what_opens_no_connection_has_no_answer(packet):
    if packet.family is IPV6:
        dropped = table("filter", "-A OUTPUT -j DROP")
        assert answer(out(), dropped) is None
    else:
        assert answer(packet, "") is None


@pytest.mark.parametrize(("own", "to", "arrives"), [
    ((), "198.51.100.7", False), ((), "127.0.0.2", False), (("192.0.2.99",), "198.51.100.7", True), (("192.0.2.99",), "127.0.0.2", True),
])  # fmt: skip
def test_from_a_loopback_address_nothing_is_answered_whose_source_became_somebody_else_s(own, to, arrives):
    """The proxy, and what listens there, answer from 127.0.0.1 to the address that NAT wrote: for that the kernel has no route."""
    around = POD.replace(addresses=(*POD.addresses, *[("eth0", number_of(one)) for one in own]))
    found = answer(out(to, uid=1337 if to == "127.0.0.2" else 1000), "", nat="-A POSTROUTING -j SNAT --to-source 192.0.2.99\n", around=around)
    assert found.arrives is arrives
    assert ("nothing from 127.0.0.0/8" in found.reason) is not arrives


def test_ipv6_answers_from_its_loopback_address_wherever_it_is_routed():
    around = Surroundings(family=IPV6, addresses=(("lo", number_of("::1")), ("eth0", number_of("2001:db8::10"))))
    packet = make_outbound(around, "2001:db8:9::7", 80, uid=1000, gid=1000)
    tables = NAT.format(more="-A POSTROUTING -j SNAT --to-source 2001:db8::99\n")
    ruleset = load_listing(parse_listing(tables), IPV6)
    assert follow_answer(simulate(packet, ruleset, around), ruleset, around, owner=(1337, 1337)).arrives is True
