"""Addresses, networks and ports: how they are read, written, merged and split."""

from __future__ import annotations

import os
import random
import re
import socket

import pytest

from core import Network
from netinit.base.net import (
    FAMILIES,
    IPV4,
    IPV6,
    PortRange,
    covers,
    family_of,
    join_host,
    lists_port,
    merge_ports,
    number_of,
    parse_address,
    read_addresses,
    split_range,
    text_of,
)
from netinit.questions.injection_advice import find_common_ports


@pytest.mark.parametrize(("wide", "narrow", "does"), [
    ("10.0.0.0/8", "10.1.0.0/16", True),
    ("10.0.0.0/8", "10.0.0.0/8", True),
    ("10.1.0.0/16", "10.0.0.0/8", False),
    ("10.0.0.0/8", "11.0.0.0/8", False),
    ("0.0.0.0/0", "fd00::1/128", False),
    ("::/0", "10.0.0.0/8", False),
])  # fmt: skip
def test_a_network_covers_those_of_its_family_that_lie_in_it(wide, narrow, does):
    assert covers(Network.parse(wide), Network.parse(narrow)) is does


def ports(*given):
    return tuple(one if isinstance(one, int) else PortRange(one) for one in given)


@pytest.mark.parametrize(("given", "merged"), [
    (ports(80, 443, 80), ports(80, 443)),
    (ports(80, (81, 90), 443), ports(80, (81, 90), 443)),
    (ports(443, (80, 90), 85, (91, 95), 80), ports(443, (80, 95))),
    (ports((10, 20), (5, 12), (22, 30), 21), ports((5, 20), (22, 30), 21)),
    ((), ()),
])  # fmt: skip
def test_ports_within_ranges_and_ranges_that_touch_are_merged_in_the_place_of_the_first(given, merged):
    assert merge_ports(given) == merged


def test_common_ports_are_those_of_both_lists_in_ascending_order():
    assert find_common_ports(ports(443, (80, 90), 8080), ports((85, 443), 22)) == list(ports((85, 90), 443))
    assert find_common_ports(ports(80), ports(81)) == []
    assert (lists_port(ports((80, 90), 443), 90), lists_port(ports((80, 90), 443), 91)) == (True, False)


@pytest.mark.parametrize(("first", "last", "texts"), [
    ("10.0.0.0", "10.0.0.255", ["10.0.0.0/24"]),
    ("10.0.0.1", "10.0.0.6", ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]),
    ("0.0.0.0", "255.255.255.255", ["0.0.0.0/0"]),
    ("0.0.0.0", "0.0.0.2", ["0.0.0.0/31", "0.0.0.2/32"]),
    ("fd00::", "fd00::3", ["fd00::/126"]),
])  # fmt: skip
def test_a_range_is_split_into_the_fewest_networks(first, last, texts):
    assert [str(one) for one in split_range(number_of(first), number_of(last), family_of(first))] == texts


@pytest.mark.parametrize(("text", "said"), [
    ("10.0.0.0", "has no prefix length; write it as a CIDR, for example 10.0.0.0/8"),
    ("10.0.0/8", "is not an IPv4 network"),
    ("fd00::x/8", "is not an IPv6 network"),
    ("10.0.0.0\0/8", "is not an IPv4 network"),
    ("10.0.0.0/33", "has a prefix length that is not a number from 0 to 32"),
    ("fd00::/129", "has a prefix length that is not a number from 0 to 128"),
    ("fd00::/1281", "has a prefix length that is not a number from 0 to 128"),
    ("10.0.0.0/", "has a prefix length that is not a number from 0 to 32"),
    ("10.0.0.0/٣", "has a prefix length that is not a number from 0 to 32"),
    ("10.0.0.0/08", "has a prefix length with a leading zero"),
])  # fmt: skip
def test_a_text_that_is_no_network_is_refused_in_these_words(text, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Network.parse(text)


def test_a_network_has_no_host_bits_and_its_ends_are_its_addresses():
    network = Network.parse("10.1.2.3/8")
    assert (str(network), repr(network), network.length) == ("10.0.0.0/8", "Network(10.0.0.0/8)", 8)
    assert (network.first, network.last) == (number_of("10.0.0.0"), number_of("10.255.255.255"))
    assert (network.family, Network.parse("::1/128").family) == (IPV4, IPV6)
    assert [str(one.loopback_network) for one in FAMILIES] == ["127.0.0.0/8", "::1/128"]
    assert [one.passthrough_address for one in FAMILIES] == ["127.0.0.6", "::6"]


def test_addresses_are_written_as_the_kernel_writes_them():
    assert list(read_addresses(["FD00:0::1", "x", "10.0.0.1", "1.2.3", "a\0b"])) == ["fd00::1", "10.0.0.1"]
    with pytest.raises(ValueError, match=r"^is not an IP address$"):
        parse_address("10.0.0.256")
    assert (join_host("10.0.0.1", 443), join_host("fd00::1", "443")) == ("10.0.0.1:443", "[fd00::1]:443")


TEXTS = int(os.environ.get("NETINIT_ADDRESSES", "20000"))
GROUPS = ("0", "0", "0", "00001", "g", "0x1", "-1", " 1", "1_0", "\u0661", "FfFf", "12345", "")
OCTETS = ("00", "01", "", "1e", "\u0661", "+1", "256", "1.", " 1")


def make_text(chance):
    """An address, or nearly one."""
    if chance.random() < 0.4:
        parts = [str(chance.randrange(256)) if chance.random() < 0.9 else chance.choice(OCTETS) for _ in range(chance.choice((4, 4, 4, 3, 5)))]
        return ".".join(parts) + chance.choice(("", "", "", "\n", "\0"))
    parts = [f"{chance.getrandbits(16):x}" if chance.random() < 0.7 else chance.choice(GROUPS[:3] if chance.random() < 0.8 else GROUPS) for _ in range(chance.choice((8, 8, 7, 6, 3, 9)))]
    text = ":".join(parts)
    if chance.random() < 0.5:
        at = chance.randrange(len(text) + 1)
        text = f"{text[:at]}::{text[at:]}"
    return f"{text}:{chance.choice(('1.2.3.4', '01.2.3.4', '1.2.3'))}" if chance.random() < 0.2 else text


def read_by_system(text):
    try:
        return int.from_bytes(socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text), "big")
    except (OSError, ValueError):
        return None


def read_here(text):
    try:
        return number_of(text)
    except ValueError:
        return None


def test_addresses_are_read_as_the_system_reads_them():
    chance = random.Random(51)
    for _ in range(TEXTS):
        text = make_text(chance)
        assert read_here(text) == read_by_system(text), repr(text)


def test_addresses_are_written_as_the_system_writes_them():
    chance = random.Random(51)
    for number in range(TEXTS):
        value = 0
        for _ in range(8):
            value = value << 16 | chance.choice((0, 0, 0, 0xFFFF, 1, chance.getrandbits(16)))
        value = value if number % 4 else value & 0xFFFFFFFF | (0xFFFF << 32) * (number % 8 == 0)
        assert text_of(value, IPV6) == socket.inet_ntop(socket.AF_INET6, value.to_bytes(16, "big"))
        assert text_of(value & 0xFFFFFFFF, IPV4) == socket.inet_ntop(socket.AF_INET, (value & 0xFFFFFFFF).to_bytes(4, "big"))
