"""What a question about one connection means, and questions that are none, each with the option, what is wrong and what to do."""

from __future__ import annotations

import pytest

from netinit.base.errors import OptionError
from netinit.base.net import IPV4, IPV6, number_of
from netinit.questions.connections import Question, make_packet, parse_endpoint
from netinit.rules.packet_inputs import Surroundings

OWN = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.1.1.1")), ("net1", number_of("10.2.2.2"))))
OWN6 = Surroundings(family=IPV6, addresses=(("eth0", number_of("fd00::1")),))


def packet(direction="", around=(OWN, OWN6), **given):
    return make_packet(Question(direction, **given), {one.family: one for one in around})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"to": "10.9.9.9:80", "to_port": "81"}, "--to-port: '81' contradicts --to '10.9.9.9:80'; give one port"),
        ({}, "--to: the destination is missing; give --to ADDRESS:PORT, or --from for an inbound connection"),
        ({"to": "10.9.9.9"}, "--to-port: the port is missing; give --to ADDRESS:PORT or --to-port PORT"),
        ({"to": "fd00::2:80"}, "--to-port: the port is missing; give --to ADDRESS:PORT or --to-port PORT; is 80 the port? write [fd00::2]:80"),
        ({"source": "10.9.9.9"}, "--to-port: the port is missing; give --to ADDRESS:PORT or --to-port PORT"),
        ({"to": "10.1.1.1:80", "source": "fd00::9"}, "--from: 'fd00::9' is not of the address family of '10.1.1.1'"),
        ({"to": "[fd00::2]:80", "around": (OWN,)}, "--to: IPv6 is off in this namespace"),
        ({"source": "fd00::9", "to_port": "80", "around": (OWN, OWN6.replace(addresses=()))}, "--to: the pod has no IPv6 address on eth0; give --to or --pod-ip"),
        ({"direction": "inbound", "to_port": "80", "uid": "7"}, "--uid: a connection that comes in has no sender in the pod; remove it, or give outbound"),
        ({"direction": "inbound", "to_port": "80", "gid": "7"}, "--gid: a connection that comes in has no sender in the pod; remove it, or give outbound"),
        ({"to": "10.9.9.9:80", "interface": "eth0"}, "--interface: is where a connection comes in; remove it, or give inbound"),
        ({"to": "10.9.9.9:80", "to_port": "x"}, "--to-port: 'x' is not a port: use a decimal number from 1 to 65535"),
        ({"source": "x", "to_port": "80"}, "--from: 'x' is not an IP address"),
    ],
    ids=str,
)  # fmt: skip
def test_a_question_that_is_none_is_refused_with_what_to_give(given, message):
    with pytest.raises(OptionError) as raised:
        packet(**given)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fd00::1", "--to: '[fd00::1' is not an endpoint: use 10.1.2.3:443 or [fd00::1]:443"),
        ("[fd00::1]80", "--to: '[fd00::1]80' is not an endpoint: use 10.1.2.3:443 or [fd00::1]:443"),
        ("10.1.2.3:x", "--to: '10.1.2.3:x' is not a port: use a decimal number from 1 to 65535; use 10.1.2.3:443 or [fd00::1]:443"),
        ("db.shop:80", "--to: 'db.shop:80' is not an IP address; use 10.1.2.3:443 or [fd00::1]:443; rules know no names: give its address (netinit kubectl explain knows those of Services)"),
        ("[x]:80", "--to: '[x]' is not an address in brackets; write [fd00::1]:443, or a name without brackets"),
        ("[fe80::1%eth0]:80", "--to: '[fe80::1%eth0]' is not an address in brackets; write [fd00::1]:443, or a name without brackets; an address has no zone here, leave out what begins with %"),
        ("300.1.1.1:80", "--to: '300.1.1.1:80' is not an IP address; use 10.1.2.3:443 or [fd00::1]:443"),
    ],
)  # fmt: skip
def test_what_is_no_endpoint_is_refused_and_a_name_with_where_names_are_known(text, message):
    with pytest.raises(OptionError) as raised:
        parse_endpoint(text, "--to")
    assert str(raised.value) == message


def test_a_connection_goes_out_as_the_application_unless_another_sender_is_named():
    def tell(**given):
        one = packet(to="10.9.9.9:80", **given)
        assert (one.in_interface, one.destination_port, one.protocol) == ("", 80, "udp" if given.get("udp") else "tcp")
        return one.uid, one.gid, one.source, one.mark

    own = number_of("10.1.1.1")
    assert [tell(), tell(uid="7"), tell(uid="7", gid="8"), tell(gid="8"), tell(udp=True, mark=9)] == [
        (1000, 1000, own, 0), (7, 7, own, 0), (7, 8, own, 0), (1000, 8, own, 0), (1000, 1000, own, 9)]  # fmt: skip
    assert tell(source="10.2.2.2", uid="7")[2] == number_of("10.2.2.2"), "with a user, --from is the pod's own address"


def test_a_connection_comes_in_where_a_source_without_a_user_or_the_direction_says_so():
    def tell(**given):
        one = packet(to_port="80", **given)
        assert one.uid is None
        return one.in_interface, one.source, one.destination, one.mark

    peer, own = number_of("10.9.9.9"), number_of("10.1.1.1")
    assert tell(source="10.9.9.9") == ("eth0", peer, own, 0)
    assert tell(source="10.9.9.9", interface="net1", mark=3) == ("net1", peer, number_of("10.2.2.2"), 3)
    assert tell(direction="inbound")[0::2] == ("eth0", own)
    assert tell(source="fd00::9")[2] == number_of("fd00::1")
