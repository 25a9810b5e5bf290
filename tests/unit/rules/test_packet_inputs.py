"""What a host knows of its own: groups, addresses of its devices, networks routed to it, marks, and where packets leave."""

from __future__ import annotations

from core import IPV4, IPV6, Network, Surroundings, number_of
from sweeps import together


def networks(*texts):
    return tuple([Network.parse(text) for text in texts])


HOST = Surroundings(
    family=IPV4, addresses=(("lo", number_of("127.0.0.1")), ("lo", number_of("10.9.9.9")), ("eth0", number_of("10.0.0.2")), ("eth1", number_of("10.1.0.2"))),
    broadcasts=(number_of("10.0.0.255"),), local_networks=networks("192.0.2.0/30"), doubtful=networks("198.51.100.0/30", "10.0.0.0/29"),
)  # fmt: skip
HOST6 = Surroundings(family=IPV6, addresses=(("lo", 1), ("eth0", number_of("fd00::2"))))


@together(("host", "protocol", "address", "delivers"), [
    *[(HOST, "udp", address, delivers) for address, delivers in (
        ("224.0.0.0", True), ("239.255.255.255", True), ("223.255.255.255", False), ("240.0.0.0", False), ("255.255.255.255", True), ("255.255.255.254", False), ("10.0.0.255", True),
        ("10.0.0.254", False), ("10.0.0.2", False),
    )],
    (HOST, "tcp", "224.0.0.1", False), (HOST, "icmp", "224.0.0.1", True), (HOST, "udp", None, False), (HOST6, "udp", "ff02::1", True), (HOST6, "udp", "fe80::1", False), (HOST6, "tcp", "ff02::1", False),
])  # fmt: skip
def test_packets_to_a_group_are_delivered_but_for_tcp(host, protocol, address, delivers):
    assert host.delivers_to_group(protocol, None if address is None else number_of(address)) is delivers


def test_groups_are_multicast_and_in_ipv4_everybody_and_the_networks_broadcast_addresses():
    assert HOST.group_addresses == networks("224.0.0.0/4", "255.255.255.255/32", "10.0.0.255/32")
    assert HOST6.group_addresses == networks("ff00::/8")


def test_masquerading_gives_an_address_of_a_device_and_in_ipv4_never_one_of_lo():
    assert HOST.own_sources == (number_of("10.0.0.2"), number_of("10.1.0.2"))
    assert HOST6.own_sources == (1, number_of("fd00::2"))
    assert Surroundings(family=IPV4).own_sources == ()


@together(("address", "doubtful"), [
    ("198.51.100.0", True), ("198.51.100.3", True), ("198.51.100.4", False), ("10.0.0.1", True), ("10.0.0.2", False), ("10.0.0.8", False), ("127.0.0.1", False), (None, False),
])  # fmt: skip
def test_it_is_doubtful_whether_an_address_is_the_host_s_where_routes_leave_it_open_and_it_has_it_not(address, doubtful):
    assert HOST.is_doubtful(None if address is None else number_of(address)) is doubtful


@together(("host", "address", "own", "local"), [
    (HOST, "192.0.2.0", False, True), (HOST, "192.0.2.3", False, True), (HOST, "192.0.2.4", False, False), (HOST, "10.9.9.9", True, True), (HOST, "127.0.0.2", True, True), (HOST, "10.0.0.3", False, False),
    (HOST6, "fd00::2", True, True), (HOST6, "fd00::3", False, False), (HOST6, "::1", True, True), (HOST6, "::", False, False), (HOST, None, None, None), (HOST6, None, None, None),
])  # fmt: skip
def test_an_address_is_of_the_type_local_if_the_host_has_it_or_routes_it_to_itself(host, address, own, local):
    number = None if address is None else number_of(address)
    assert (host.is_local(number), host.is_of_type_local(number)) == (own, local)


def test_an_address_of_ipv6_whose_first_bits_are_127_is_no_loopback():
    assert HOST6.is_local(127 << 24) is False


@together(("mark", "here"), [(0x10, True), (0x1F, False), (0xF10, True), (0x20, False), (0x7, True), (0x17, True), (0x107, False), (0, False)])
def test_a_mark_routes_to_the_host_if_its_bits_are_those_of_a_policy_rule(mark, here):
    host = HOST.replace(local_marks=frozenset({(0x10, 0xFF), (0x7, 0xFFFFFFEF)}))
    assert host.routes_here(mark) is here
    assert host.leaving_interface(number_of("1.2.3.4"), mark) == ("lo" if here else "eth0")


@together(("address", "device"), [("172.16.5.5", "c"), ("172.16.5.4", "b"), ("172.16.0.0", "b"), ("172.16.255.255", "b"), ("172.17.0.0", "a"), ("171.255.255.255", "eth0"), (None, "lo"), ("10.0.0.2", "lo")])
def test_packets_leave_by_the_longest_route_in_whatever_order_routes_stand(address, device):
    routes = ((Network.parse("172.16.0.0/16"), "b"), (Network.parse("172.16.5.5/32"), "c"), (Network.parse("172.0.0.0/8"), "a"))
    for given in (routes, routes[::-1], routes[1:] + routes[:1]):
        assert HOST.replace(routes=given).leaving_interface(None if address is None else number_of(address), 0) == device
