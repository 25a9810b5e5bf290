"""The packet that stands for a set of packets, as people would choose it."""

from __future__ import annotations

import pytest

from core import IPV4, IPV6, Packet, Surroundings, number_of
from netinit.simulate.endpoints import CLIENT_PORTS
from netinit.simulate.examples import example_of, needs_source_port
from netinit.simulate.symbolic.regions import everything, marked, valued, within
from netinit.simulate.symbolic.space import INBOUND, OUTBOUND, Dim, make_space

POD = Surroundings(family=IPV4, addresses=(("lo", number_of("127.0.0.1")), ("net1", number_of("10.1.0.2")), ("eth0", number_of("10.0.0.2"))))
OUT, IN = (make_space(direction, POD, {"icmp"}, {"br0"}, free=False) for direction in (OUTBOUND, INBOUND))
SENT = Packet(
    family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), source_port=40000, destination=number_of("198.51.100.7"), destination_port=8080, has_socket=True, uid=1000,
    gid=1000, flags=("SYN",), destination_translated=False, is_answer=False,
)  # fmt: skip
RECEIVED = SENT.replace(source=number_of("192.0.2.1"), destination=number_of("10.0.0.2"), in_interface="eth0", has_socket=False, uid=None, gid=None)


def to(space, *networks, name=Dim.DESTINATION):
    return within(space, name, [(number_of(first), number_of(last)) for first, last in networks])


@pytest.mark.parametrize(("region", "changes"), [
    (everything(OUT), {}), (valued(OUT, Dim.PROTOCOL, "udp", "icmp"), {"protocol": "udp", "flags": None}),
    (valued(OUT, Dim.PROTOCOL, "icmp"), {"protocol": "icmp", "flags": None, "source_port": None, "destination_port": None}),
    (within(OUT, Dim.DESTINATION_PORT, [(50, 100), (443, 443)]), {"destination_port": 443}), (within(OUT, Dim.DESTINATION_PORT, [(50, 100)]), {"destination_port": 80}),
    (within(OUT, Dim.DESTINATION_PORT, [(60, 70)]), {"destination_port": 60}), (to(OUT, ("203.0.113.0", "203.0.113.255")), {"destination": number_of("203.0.113.1")}),
    (to(OUT, ("203.0.113.9", "203.0.113.9")), {"destination": number_of("203.0.113.9")}), (to(OUT, ("10.0.0.0", "10.0.0.9")), {"destination": number_of("10.0.0.2")}),
    (to(OUT, ("10.9.0.0", "10.9.0.9"), name=Dim.SOURCE), {"source": number_of("10.9.0.1")}), (within(OUT, Dim.UID, [(0, 7)]), {"uid": 0}), (within(OUT, Dim.UID, [(5, 7)]), {"uid": 5}),
    (within(OUT, Dim.GID, [(0, 7)]), {"gid": 0}), (within(OUT, Dim.SENDER, [(0, 0)]), {"has_socket": False, "uid": None, "gid": None}),
    (within(OUT, Dim.SOURCE_PORT, [(1, 9)]), {"source_port": 1}), (marked(OUT, Dim.MARK, 5, 7), {"mark": 5}),
])  # fmt: skip
def test_an_application_calls_a_server_elsewhere_where_that_is_possible(region, changes):
    assert example_of(region) == (SENT.replace(**changes), POD)


@pytest.mark.parametrize(("region", "changes"), [
    (everything(IN), {}), (valued(IN, Dim.INTERFACE, "br0", "net1"), {"in_interface": "net1"}), (valued(IN, Dim.INTERFACE, "br0"), {"in_interface": "br0"}),
    (to(IN, ("203.0.113.0", "203.0.113.255")), {"destination": number_of("203.0.113.0")}), (to(IN, ("10.9.0.0", "10.9.0.9"), name=Dim.SOURCE), {"source": number_of("10.9.0.1")}),
    (to(IN, ("192.0.2.0", "192.0.2.255"), name=Dim.SOURCE), {}), (within(IN, Dim.SOCKET, [(1, 1)]), {"socket": True}),
])  # fmt: skip
def test_a_client_elsewhere_calls_the_pod_where_that_is_possible(region, changes):
    assert example_of(region) == (RECEIVED.replace(**changes), POD)


def test_of_a_pod_without_a_known_address_an_example_has_the_lowest_one():
    nowhere = make_space(INBOUND, Surroundings(family=IPV6), set(), set(), free=False)
    packet, _ = example_of(everything(nowhere))
    assert (packet.source, packet.destination, packet.in_interface) == (number_of("2001:db8:ffff::1"), 0, "eth0")
    packet, _ = example_of(everything(make_space(OUTBOUND, Surroundings(family=IPV6), set(), set(), free=False)))
    assert (packet.source, packet.destination) == (0, number_of("2001:db8:ffff::7"))


def test_addresses_are_looked_for_in_the_first_intervals():
    networks = [(f"203.0.113.{at}", f"203.0.113.{at + (at == 36)}") for at in range(20, 40, 2)]
    assert example_of(to(OUT, *networks[:8]))[0].destination == number_of("203.0.113.20")
    assert example_of(to(OUT, *networks[1:9]))[0].destination == number_of("203.0.113.37"), "the eighth is the first with two addresses"
    assert example_of(to(OUT, *networks[:9]))[0].destination == number_of("203.0.113.20"), "the ninth is not looked at"


def test_the_first_address_of_a_network_is_no_example_though_another_network_ends_before_it():
    lone = valued(OUT, Dim.PROTOCOL, "udp") & to(OUT, ("203.0.113.5", "203.0.113.5"))
    for protocols in (("tcp",), ("tcp", "icmp")):
        region = lone | (valued(OUT, Dim.PROTOCOL, *protocols) & to(OUT, ("203.0.113.6", "203.0.113.9")))
        assert example_of(region)[0] == SENT.replace(destination=number_of("203.0.113.7"))


@pytest.mark.parametrize(("region", "needed"), [
    (everything(OUT), False), (within(OUT, Dim.SOURCE_PORT, [(7, 7)]), True), (within(OUT, Dim.SOURCE_PORT, [CLIENT_PORTS]), False),
    (within(OUT, Dim.SOURCE_PORT, [(1024, 65535)]), False), (within(OUT, Dim.SOURCE_PORT, [(CLIENT_PORTS[0] + 1, 65535)]), True),
    (within(OUT, Dim.SOURCE_PORT, [(1024, CLIENT_PORTS[1] - 1)]), True), (within(OUT, Dim.SOURCE_PORT, [(7, 7)]) | valued(OUT, Dim.PROTOCOL, "tcp"), True),
    (within(OUT, Dim.GID, [(7, 7)]), False), (valued(OUT, Dim.PROTOCOL, "tcp"), False),
])  # fmt: skip
def test_an_example_needs_its_source_port_where_not_every_port_of_clients_will_do(region, needed):
    assert needs_source_port(region) is needed
