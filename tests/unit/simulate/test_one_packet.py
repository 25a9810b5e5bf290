"""What one packet answers to a match, and what it cannot know."""

from __future__ import annotations

from itertools import product

import pytest

from core import IPV4, IPV6, Packet, Surroundings, number_of
from netinit.base.net import FULL_MASK, Network
from netinit.simulate.one_packet import TRUTHS, OnePacket, Truth

POD = Surroundings(family=IPV4, addresses=(("lo", number_of("127.0.0.1")), ("eth0", number_of("10.0.0.2")), ("eth1", number_of("10.1.0.2"))))
PACKET = Packet(
    family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), source_port=40000, destination=number_of("203.0.113.7"), destination_port=443,
    in_interface="eth0", out_interface="eth1", has_socket=True, uid=1000, gid=2000, mark=0x15, connection_mark=0x2A, state="NEW", socket=True,
    flags=("SYN",), destination_translated=True, is_answer=False,
)  # fmt: skip
TEN, ALL_TEN, OTHER = Network.parse("10.0.0.0/24"), Network.parse("10.0.0.0/8"), Network.parse("192.0.2.0/24")


def test_what_is_unknown_decides_only_where_the_other_does_not():
    for one, two in product((True, False, None), repeat=2):
        both = False if False in (one, two) else None if None in (one, two) else True
        either = True if True in (one, two) else None if None in (one, two) else False
        assert (TRUTHS[one] & TRUTHS[two], TRUTHS[one] | TRUTHS[two]) == (Truth(both), Truth(either))
    for holds, opposite in ((True, False), (False, True), (None, None)):
        assert TRUTHS[holds].negated_if(negated=True).holds is opposite
        assert TRUTHS[holds].negated_if(negated=False).holds is holds


def seen(hook="OUTPUT", *, masqueraded=False, around=POD, **changes):
    return OnePacket(PACKET.replace(**changes), around, hook, masqueraded=masqueraded)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (seen().of_protocol("tcp"), True), (seen().of_protocol("udp"), False),
        (seen().in_networks((TEN,), source=True), True), (seen().in_networks((OTHER,), source=True), False),
        (seen().in_networks((OTHER, TEN), source=True), True), (seen().in_networks((TEN,), source=False), False),
        (seen(destination=None).in_networks((TEN,), source=False), None), (seen(source=None).in_networks((TEN,), source=True), None),
        (seen(source=TEN.first).in_networks((TEN,), source=True), True), (seen(source=TEN.last).in_networks((TEN,), source=True), True),
        (seen(source=TEN.first - 1).in_networks((TEN,), source=True), False), (seen(source=TEN.last + 1).in_networks((TEN,), source=True), False),
        (seen().with_port(((40000, 40000),), source=True), True), (seen().with_port(((40000, 40000),), source=False), False),
        (seen().with_port(((1, 442), (444, 500)), source=False), False), (seen().with_port(((1, 2), (443, 500)), source=False), True),
        (seen(destination_port=None).with_port(((1, 2),), source=False), None), (seen(source_port=None).with_port(((1, 2),), source=True), None),
        (seen("PREROUTING").through_interfaces(("eth0",), inbound=True), True), (seen("OUTPUT").through_interfaces(("eth0",), inbound=True), False),
        (seen("OUTPUT").through_interfaces(("eth1",), inbound=False), True), (seen("INPUT").through_interfaces(("eth1",), inbound=False), False),
        (seen("FORWARD").through_interfaces(("eth+",), inbound=True), True), (seen("FORWARD").through_interfaces(("eth+",), inbound=False), True),
        (seen().owned_by("uid", 1000, 1000), True), (seen().owned_by("uid", 1001, 3000), False), (seen().owned_by("gid", 2000, 2000), True),
        (seen().owned_by("gid", 1000, 1999), False), (seen(uid=None).owned_by("uid", 1, 2), None), (seen(uid=None).owned_by("uid", 0, FULL_MASK), True),
        (seen(uid=None).owned_by("uid", 0, FULL_MASK - 1), None), (seen(uid=None).owned_by("gid", 2000, 2000), True),
        (seen(has_socket=False).owned_by("uid", 1000, 1000), False), (seen(has_socket=False, uid=None).owned_by("uid", 0, FULL_MASK), False),
        (seen().with_mark(0x15, 0xFF, connection=False), True), (seen().with_mark(0x5, 0xF, connection=False), True),
        (seen().with_mark(0x2A, 0xFF, connection=False), False), (seen().with_mark(0x2A, 0xFF, connection=True), True),
        (seen().in_state(("NEW",)), True), (seen().in_state(("INVALID",)), False), (seen(state="").in_state(("NEW", "INVALID")), True),
        (seen(state="").in_state(("NEW",)), False), (seen(state="INVALID").in_state(("INVALID",)), True),
        (seen().with_flags(("SYN", "ACK"), ("SYN",)), True), (seen(flags=("SYN", "ACK")).with_flags(("SYN", "ACK"), ("SYN",)), False),
        (seen(flags=("SYN", "PSH")).with_flags(("SYN", "ACK"), ("SYN",)), True), (seen(flags=None).with_flags(("SYN",), ("SYN",)), None),
        (seen(flags=()).with_flags(("SYN",), ()), True),
        (seen().with_translated_destination(), True), (seen(destination_translated=None).with_translated_destination(), None),
        *[(seen(state=state).with_translated_destination(), False) for state in ("", "INVALID", "UNTRACKED")],
        (seen().in_reply_direction(), False), (seen(is_answer=None).in_reply_direction(), None), (seen(is_answer=True).in_reply_direction(), True),
        (seen().to_socket(), True), (seen(socket=None).to_socket(), None),
        (seen().local(source=True), True), (seen().local(source=False), False), (seen(destination=None).local(source=False), None),
        (seen().unknown(), None),
    ],
)  # fmt: skip
def test_a_packet_holds_what_it_shows_at_its_hook_and_does_not_know_the_rest(asked, expected):
    assert asked.holds is expected


@pytest.mark.parametrize(("networks", "expected"), [((ALL_TEN,), True), ((TEN,), None), ((OTHER,), False), ((TEN, Network.parse("10.1.0.0/24")), True)])
def test_a_masqueraded_source_is_one_of_the_pod_s_own_addresses(networks, expected):
    hidden = seen("POSTROUTING", masqueraded=True, source=None)
    assert hidden.in_networks(networks, source=True).holds is expected
    assert hidden.local(source=True).holds is True
    assert hidden.in_networks((Network.parse("203.0.113.0/24"),), source=False).holds is True, "its destination stays what it was"
    assert hidden.local(source=False).holds is False
    nowhere = seen("POSTROUTING", masqueraded=True, source=None, around=Surroundings(family=IPV4))
    assert (nowhere.in_networks(networks, source=True).holds, nowhere.local(source=True).holds) == (None, None)


def test_masquerading_never_gives_an_address_of_lo_in_ipv4():
    loopback = Network.parse("127.0.0.0/8")
    assert seen("POSTROUTING", masqueraded=True, source=None).in_networks((loopback,), source=True).holds is False
    around = Surroundings(family=IPV6, addresses=(("lo", number_of("::1")), ("eth0", number_of("fd00::2"))))
    assert seen("POSTROUTING", masqueraded=True, source=None, around=around).in_networks((Network.parse("::1/128"),), source=True).holds is None


@pytest.mark.parametrize(("began", "asked", "expected"), [
    (None, ((TEN,), (), True), None), (None, ((), ((1, 2),), False), None), (((7, 80), (TEN.first, 9)), ((OTHER, TEN), (), True), True), (((7, 80), (TEN.last + 1, 9)), ((TEN,), (), True), False),
    (((7, 80), (TEN.first, 9)), ((TEN,), (), False), False), (((TEN.last, 80), (7, 9)), ((TEN,), (), False), True), (((7, 80), (8, 9)), ((), ((1, 2), (80, 81)), False), True),
    (((7, 80), (8, 9)), ((), ((1, 2), (80, 81)), True), False), (((7, 80), (8, 9)), ((), ((9, 9),), True), True), (((None, 80), (8, 9)), ((TEN,), (), False), None),
    (((7, None), (8, 9)), ((), ((1, 2),), False), None), (((7, None), (8, 9)), ((OTHER,), (), False), False),
])  # fmt: skip
def test_the_ends_with_which_its_connection_began_are_asked_by_address_or_by_port(began, asked, expected):
    networks, ports, source = asked
    assert OnePacket(PACKET, POD, "OUTPUT", began=began).began_with(networks, ports, source=source).holds is expected
