"""The structs of matches that foreign rules have: written, and read back as the same."""

from __future__ import annotations

from ipaddress import ip_network
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.net import IPV4, IPV6, split_range
from netinit.rules.decoding.matches import decode_match
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.packet_inputs import Packet
from netinit.simulate.one_packet import OnePacket
from netinit.simulate.stand_ins import stand_in

RULES = [
    (IPV4, "-m iprange --src-range 10.0.0.5-10.2.3.4"), (IPV4, "-m iprange ! --dst-range 0.0.0.0-255.255.255.255"),
    (IPV6, "-m iprange ! --src-range fd00::1-fd00::ff"), (IPV6, "-m iprange --dst-range ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    (IPV4, "-m conntrack --ctorigsrc 10.0.0.0/8"), (IPV4, "-m conntrack ! --ctorigdst 192.0.2.2"), (IPV6, "-m conntrack --ctorigdst fd00::/64"),
    (IPV4, "-m conntrack --ctorigdstport 80:90"), (IPV6, "-m conntrack ! --ctorigsrcport 80"),
    (IPV4, "-p tcp -m multiport --ports 1,2"), (IPV6, "-p udp -m multiport ! --ports 53,1000:2000"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "text"), RULES)
def test_a_match_is_read_back_from_its_struct(family, text):
    match = parse_rule(f"{text} -j RETURN", family).matches[-1]
    name, revision, info = match.struct()
    assert decode_match(name, revision, info, getattr(match, "protocol", ""), family) == ([match], "")
    cut = decode_match(name, revision, info[:40], "tcp", family)[0]
    assert [isinstance(one, UnknownMatch) for one in cut] == [True]


def test_several_questions_about_a_connection_in_one_struct_are_read_apart():
    asked = ["--ctstate NEW", "--ctorigsrc 10.0.0.0/8", "! --ctorigdst 192.0.2.2", "--ctorigdstport 80"]
    each = [parse_rule(f"-m conntrack {one} -j RETURN", IPV4).matches[0] for one in asked]
    infos = [one.struct()[2] for one in each]
    both = bytes([first | second | third | fourth for first, second, third, fourth in zip(*infos, strict=True)])
    assert decode_match("conntrack", 3, both, "", IPV4)[0] == each
    for flag in (1 << 4, 1 << 7):  # XT_CONNTRACK_REPLSRC, _EXPIRES
        asked_more = both[:146] + (int.from_bytes(both[146:148], "little") | flag).to_bytes(2, "little") + both[148:]
        assert isinstance(decode_match("conntrack", 3, asked_more, "", IPV4)[0][0], UnknownMatch)
    assert isinstance(decode_match("conntrack", 3, infos[1], "", None)[0][0], UnknownMatch), "of which family the address is"
    masked = infos[1][:16] + b"\xff\x00\xff\x00" + infos[1][20:]
    assert isinstance(decode_match("conntrack", 3, masked, "", IPV4)[0][0], UnknownMatch), "a mask of no network"


@pytest.mark.parametrize("state", ["", "INVALID", "UNTRACKED"])
@pytest.mark.parametrize("asked", ["--ctorigdst 10.0.0.9", "! --ctorigdst 10.0.0.9", "! --ctorigsrcport 80"])
def test_a_packet_without_a_connection_has_no_ends_of_one_even_if_negated(asked, state):
    (match,) = parse_rule(f"-m conntrack {asked} -j RETURN", IPV4).matches
    packet = Packet(family=IPV4, protocol="tcp", source=1, source_port=2, destination=3, destination_port=4, state=state)
    assert match.choose(OnePacket(packet, stand_in(IPV4), "OUTPUT")).holds is False


def test_a_range_without_a_family_or_with_bits_that_nobody_knows_is_unknown():
    (match,) = parse_rule("-m iprange --src-range 10.0.0.5-10.2.3.4 -j RETURN", IPV4).matches
    name, revision, info = match.struct()
    for changed, family in ((info, None), (info[:64] + b"\x41" + info[65:], IPV4), (info[:64] + b"\x21" + info[65:], IPV4)):
        assert isinstance(decode_match(name, revision, changed, "", family)[0][0], UnknownMatch)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=2).map(sorted))
def test_a_range_is_split_into_networks_that_hold_its_addresses_and_no_other(ends):
    found = [ip_network(one.text) for one in split_range(*ends, IPV4)]
    assert int(found[0].network_address) == ends[0]
    assert int(found[-1].broadcast_address) == ends[1]
    assert all(int(one.broadcast_address) + 1 == int(other.network_address) for one, other in pairwise(found))
    assert len(found) <= 62
