"""The host that packets travel through: its own addresses, and where others leave."""

from __future__ import annotations

import pytest

from core import IPV4, IPV6, Network, Surroundings, number_of
from netinit.base.net import FULL_MASK, is_named, names_more

POD = Surroundings(
    family=IPV4,
    addresses=(("eth0", number_of("10.0.0.2")), ("eth0", number_of("10.0.0.3")), ("eth1", number_of("10.1.0.2"))),
    routes=((Network.parse("10.0.0.0/8"), "eth1"), (Network.parse("10.5.0.0/16"), "eth2"), (Network.parse("10.5.5.5/32"), "eth3")),
    default_interface="eth9",
    local_marks=frozenset({(1337, FULL_MASK)}),
)
POD6 = Surroundings(family=IPV6, addresses=(("eth0", number_of("fd00::2")),))


@pytest.mark.parametrize(
    ("host", "address", "local"),
    [
        (POD, "127.0.0.1", True), (POD, "127.5.5.5", True), (POD, "126.0.0.1", False), (POD, "128.0.0.1", False), (POD, "10.0.0.3", True),
        (POD, "10.1.0.2", True), (POD, "10.0.0.4", False), (POD6, "::1", True), (POD6, "fd00::2", True), (POD6, "::7f00:1", False),
    ],
)  # fmt: skip
def test_addresses_of_the_host_are_its_loopback_s_and_its_interfaces(host, address, local):
    assert host.is_local(number_of(address)) is local
    assert host.leaving_interface(number_of(address), 0) == "lo" or not local


def test_of_an_unknown_address_nobody_knows_whether_it_is_the_host_s():
    assert POD.is_local(None) is None
    assert POD.leaving_interface(None, 0) == "lo"


def test_the_first_address_of_an_interface_is_its_primary_one():
    assert POD.primary_address("eth0") == number_of("10.0.0.2")
    assert POD.primary_address("eth1") == number_of("10.1.0.2")
    assert POD.primary_address("eth7") is None
    assert POD.primary_address("lo") == number_of("127.0.0.1")
    assert POD6.primary_address("lo") == number_of("::1")


@pytest.mark.parametrize(
    ("address", "mark", "interface"),
    [
        ("10.7.0.1", 0, "eth1"), ("10.5.0.1", 0, "eth2"), ("10.5.5.5", 0, "eth3"), ("10.255.255.255", 0, "eth1"), ("10.5.255.255", 0, "eth2"),
        ("10.5.0.0", 0, "eth2"), ("11.0.0.0", 0, "eth9"), ("9.255.255.255", 0, "eth9"), ("10.5.5.5", 1337, "lo"), ("10.5.5.5", 1338, "eth3"),
    ],
)  # fmt: skip
def test_a_packet_leaves_by_the_longest_route_or_stays_for_its_mark(address, mark, interface):
    assert POD.leaving_interface(number_of(address), mark) == interface


@pytest.mark.parametrize(("interface", "names", "is_one"), [
    ("eth0", ("eth0",), True), ("eth01", ("eth0",), False), ("eth0", ("lo", "eth0"), True), ("eth0", (), False),
    ("eth0", ("eth+",), True), ("eth", ("eth+",), True), ("et0", ("eth+",), False), ("eth+", ("eth",), False), ("x", ("+",), True), ("", ("eth+",), False),
])  # fmt: skip
def test_a_name_that_ends_with_a_plus_is_a_prefix(interface, names, is_one):
    assert is_named(interface, names) is is_one


@pytest.mark.parametrize(("wide", "narrow", "is_more"), [
    ("br-+", "br-0", True), ("br-+", "br-+", True), ("b+", "br-+", True), ("br-+", "b+", False), ("br-+", "br-", True), ("br-+", "br", False),
    ("br", "br", True), ("br", "br0", False), ("br", "br+", False),
])  # fmt: skip
def test_a_prefix_names_whatever_begins_with_it(wide, narrow, is_more):
    assert names_more(wide, narrow) is is_more
