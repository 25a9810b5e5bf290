"""Networks become intervals exactly: every address that was in one still is, and no other."""

from __future__ import annotations

import ipaddress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.net import IPV4, IPV6, Family, Network, format_intervals, merge_networks
from netinit.rules.matches.packet import Destination, InInterface, Port, Source

FAMILIES = st.sampled_from((IPV4, IPV6))


@st.composite
def crowded_networks(draw: st.DrawFn, family: Family) -> list[Network]:
    """Networks that touch, overlap and repeat, with host bits, at both ends of the address space too."""
    base = draw(st.sampled_from((0, 10 << family.bits - 8, (1 << family.bits) - 64)))
    made = []
    for _ in range(draw(st.integers(1, 12))):
        address = min(base + draw(st.integers(0, 63)), (1 << family.bits) - 1)
        length = draw(st.sampled_from((0, 1, *range(family.bits - 7, family.bits + 1), family.bits, family.bits)))
        made.append(Network.parse(f"{ipaddress.ip_address(address.to_bytes(family.bits // 8, 'big'))}/{length}"))
    return made


@given(st.data(), FAMILIES)
def test_merged_networks_hold_the_same_addresses_as_the_standard_library_says(data, family):
    networks = data.draw(crowded_networks(family))
    intervals = merge_networks(networks, family)
    expected = ipaddress.collapse_addresses([ipaddress.ip_network(network.text) for network in networks])
    assert sum(high - low + 1 for low, high in intervals) == sum(network.num_addresses for network in expected)
    for network in networks:
        assert any(low <= network.first and network.last <= high for low, high in intervals)
    for (_, high), (low, _) in pairwise(intervals):
        assert high + 1 < low, "intervals touch or are out of order"


@given(st.data(), FAMILIES)
def test_spelled_intervals_read_back_as_the_same_addresses(data, family):
    intervals = merge_networks(data.draw(crowded_networks(family)), family)
    for text, (low, high) in zip(format_intervals(intervals, family), intervals, strict=True):
        if "-" in text:
            first, last = (int(ipaddress.ip_address(end)) for end in text.split("-"))
        else:
            network = ipaddress.ip_network(text)
            first, last = int(network[0]), int(network[-1])
        assert (first, last) == (low, high)


@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        (("10.0.0.0/8",), "ip daddr 10.0.0.0/8"),
        (("10.1.2.3/32",), "ip daddr 10.1.2.3"),
        (("10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/8"), "ip daddr 10.0.0.0/8"),
        (("10.0.0.0/25", "10.0.0.128/25"), "ip daddr 10.0.0.0/24"),
        (("10.0.1.0/24", "10.0.2.0/24"), "ip daddr 10.0.1.0-10.0.2.255"),
        (("10.0.1.77/24", "9.0.0.1/32"), "ip daddr { 9.0.0.1, 10.0.1.0/24 }"),
        (("0.0.0.0/1", "128.0.0.0/1"), "ip daddr 0.0.0.0/0"),
        (("2001:db8::/32", "fd00::1/128"), "ip6 daddr { 2001:db8::/32, fd00::1 }"),
    ],
)
def test_a_list_of_networks_is_one_expression(networks, expected):
    assert Destination(networks=tuple(map(Network.parse, networks))).nft() == expected


def test_negated_and_source_networks_say_so():
    loopback = Network.parse("127.0.0.1/32")
    assert Destination(networks=(loopback,), negated=True).nft() == "ip daddr != 127.0.0.1"
    assert Source(networks=(Network.parse("::6/128"),)).nft() == "ip6 saddr ::6"


def test_ports_are_ordered_and_named_once():
    assert Port(protocol="tcp", ports=(443, 80, 443)).nft() == "tcp dport { 80, 443 }"
    assert Port(protocol="udp", ports=(53,), source=True).nft() == "udp sport 53"
    assert Port(protocol="tcp", ports=(15008, 53), negated=True).nft() == "tcp dport != { 53, 15008 }"


def test_interfaces_are_quoted_and_in_the_order_of_nfts_listing():
    names = ("not-istio-nic", "eth1", "zz9", "eth0", "b")
    assert InInterface(names=names).nft() == 'iifname { "b", "zz9", "eth0", "eth1", "not-istio-nic" }'


@pytest.mark.parametrize("length", ["33", "128"])
def test_a_prefix_length_of_ipv6_that_was_read_is_none_of_ipv4(length):
    assert Network.parse(f"::/{length}").length == int(length)
    with pytest.raises(ValueError, match="from 0 to 32"):
        Network.parse(f"0.0.0.0/{length}")
