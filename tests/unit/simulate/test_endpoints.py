"""Packets in words, as answers and examples name them."""

from __future__ import annotations

import pytest

from core import IPV4, IPV6, Network, Packet, Surroundings, number_of
from netinit.base.errors import OptionError
from netinit.questions.connections import parse_endpoint
from netinit.simulate.endpoints import format_endpoint, format_example, format_packet, make_outbound
from netinit.simulate.stand_ins import make_inbound, stand_in

OPENING = Packet(
    family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), source_port=40000, destination=number_of("1.2.3.4"), destination_port=443, has_socket=True, uid=7, gid=8,
)  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), [
    ({}, ""),
    ({"state": "ESTABLISHED", "flags": ("ACK",)}, ", in the state ESTABLISHED"),
    ({"state": "INVALID", "flags": ("RST", "ACK")}, ", in the state INVALID, with FIN or RST"),
    ({"state": "ESTABLISHED", "flags": ("SYN",)}, ", a SYN on an old conntrack entry (ESTABLISHED)"),
    ({"mark": 7}, ", mark 7"),
    ({"connection_mark": 8}, ", connection mark 8"),
    ({"state": "NEW", "mark": 7, "connection_mark": 8}, ", in the state NEW, mark 7, connection mark 8"),
    ({"state": "INVALID", "flags": ("FIN",)}, ", in the state INVALID, with FIN or RST"),
    ({"state": "ESTABLISHED", "flags": ("ACK",), "is_answer": True, "destination_translated": True}, ", in the state ESTABLISHED, an answer, of a translated connection"),
])  # fmt: skip
def test_a_packet_that_opens_no_connection_says_in_which_state_it_is(changes, words):
    assert format_packet(OPENING.replace(**changes)) == f"TCP from 10.0.0.2 to 1.2.3.4:443, sent by uid 7, gid 8{words}"


@pytest.mark.parametrize(("changes", "words"), [
    ({"uid": 0}, "sent by uid 0, gid 8"),
    ({"has_socket": False}, "sent by no socket"),
    ({"in_interface": "eth0"}, "coming in through eth0"),
    ({"in_interface": "eth0", "socket": True}, "coming in through eth0 for an open socket"),
])  # fmt: skip
def test_a_packet_s_sender_is_a_socket_s_user_or_an_interface(changes, words):
    assert format_packet(OPENING.replace(**changes), source_port=99) == f"TCP from 10.0.0.2:99 to 1.2.3.4:443, {words}"


@pytest.mark.parametrize(("family", "address", "port", "text"), [
    (IPV4, "10.0.0.2", 80, "10.0.0.2:80"), (IPV4, "10.0.0.2", None, "10.0.0.2"), (IPV4, None, 80, "?:80"), (IPV4, None, None, "?"),
    (IPV6, "fd00::1", 443, "[fd00::1]:443"), (IPV6, "fd00::1", 0, "fd00::1"),
])  # fmt: skip
def test_an_end_of_a_connection_is_written_as_it_is_read(family, address, port, text):
    assert format_endpoint(family, number_of(address) if address else None, port) == text
    if address:
        assert parse_endpoint(text, "x") == (address, port or 0)


def test_an_address_in_brackets_needs_no_port():
    assert parse_endpoint("[fd00::1]", "x") == ("fd00::1", 0)
    assert parse_endpoint("[fd00::1]:", "x") == ("fd00::1", 0)


FORMS = "use 10.1.2.3:443 or [fd00::1]:443"
NAMES = "; rules know no names: give its address (netinit kubectl explain knows those of Services)"


@pytest.mark.parametrize(("text", "problem"), [
    ("[fd00::1", f"is not an endpoint: {FORMS}"),
    ("[fd00::1]443", f"is not an endpoint: {FORMS}"),
    ("300.1.2.3", f"is not an IP address; {FORMS}"),
    ("Web:80", f"is not an IP address; {FORMS}{NAMES}"),
    ("abcdef", f"is not an IP address; {FORMS}"),
    ("10.1.2.3:0", f"is not a port: use a decimal number from 1 to 65535; {FORMS}"),
])  # fmt: skip
def test_what_is_no_endpoint_is_named_with_both_forms(text, problem):
    with pytest.raises(OptionError) as caught:
        parse_endpoint(text, "--to")
    assert str(caught.value) == f"--to: {text!r} {problem}"


POD = Surroundings(
    family=IPV4, addresses=(("eth0", number_of("10.0.0.2")), ("eth1", number_of("10.1.0.2"))), routes=((Network.parse("10.1.0.0/16"), "eth1"),),
    local_networks=(Network.parse("198.51.100.0/24"),),
)  # fmt: skip


@pytest.mark.parametrize(("changes", "more"), [
    ({}, ""), ({"destination": number_of("10.1.0.9")}, ", leaving through eth1"), ({"destination": number_of("127.0.0.1")}, ""),
    ({"destination": number_of("10.1.0.9"), "in_interface": "eth0"}, ""),
])  # fmt: skip
def test_an_example_names_an_interface_that_is_not_the_usual_one(changes, more):
    packet = OPENING.replace(**changes)
    assert format_example(packet, POD) == format_packet(packet) + more
    assert format_example(packet.replace(source_port=53), POD) == format_packet(packet, source_port=53) + more


@pytest.mark.parametrize(("to", "source"), [
    ("1.2.3.4", "10.0.0.2"), ("10.1.0.9", "10.1.0.2"), ("10.1.0.2", "10.1.0.2"), ("127.0.0.2", "127.0.0.1"),
])  # fmt: skip
def test_the_kernel_chooses_the_source_address_by_the_route(to, source):
    expected = Packet(
        family=IPV4, protocol="tcp", source=number_of(source), source_port=40000, destination=number_of(to), destination_port=80,
        has_socket=True, uid=7, gid=8,
    )  # fmt: skip
    assert make_outbound(POD, to, 80, uid=7, gid=8) == expected
    asked = make_outbound(POD, to, 80, uid=7, gid=8, source="10.9.9.9", protocol="udp", mark=3, source_port=5)
    assert asked == expected.replace(source=number_of("10.9.9.9"), protocol="udp", mark=3, source_port=5)


@pytest.mark.parametrize(("source", "to", "interface", "expected"), [
    ("", "", "", ("192.0.2.1", "10.0.0.2", "eth0")),
    ("9.9.9.9", "", "eth1", ("9.9.9.9", "10.1.0.2", "eth1")),
    ("10.0.0.2", "10.1.0.2", "", ("10.0.0.2", "10.1.0.2", "lo")),
])  # fmt: skip
def test_a_connection_from_outside_comes_to_the_interface_s_own_address(source, to, interface, expected):
    start, end, name = expected
    packet = Packet(
        family=IPV4, protocol="tcp", source=number_of(start), source_port=40000, destination=number_of(end), destination_port=80,
        in_interface=name,
    )  # fmt: skip
    assert make_inbound(POD, source, to, 80, interface=interface) == packet
    asked = make_inbound(POD, source, to, 80, interface=interface, protocol="udp", source_port=5)
    assert asked == packet.replace(protocol="udp", source_port=5)


def test_a_pod_of_which_nothing_is_known_has_an_address_of_the_documentation():
    assert stand_in(IPV4).addresses == (("eth0", number_of("192.0.2.10")),)
    assert stand_in(IPV6).addresses == (("eth0", number_of("2001:db8::10")),)
    assert stand_in(IPV4, ("fd00::7", "10.0.0.7")).addresses == (("eth0", number_of("10.0.0.7")),)
    assert stand_in(IPV6, ("10.0.0.7",)).addresses == ()
