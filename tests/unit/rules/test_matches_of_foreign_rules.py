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

RULES = [
    (IPV4, "-m iprange --src-range 10.0.0.5-10.2.3.4"), (IPV4, "-m iprange ! --dst-range 0.0.0.0-255.255.255.255"),
    (IPV6, "-m iprange ! --src-range fd00::1-fd00::ff"), (IPV6, "-m iprange --dst-range ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    (IPV4, "-p tcp -m multiport --ports 1,2"), (IPV6, "-p udp -m multiport ! --ports 53,1000:2000"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "text"), RULES)
def test_a_match_is_read_back_from_its_struct(family, text):
    match = parse_rule(f"{text} -j RETURN", family).matches[-1]
    name, revision, info = match.struct()
    assert decode_match(name, revision, info, getattr(match, "protocol", ""), family) == ([match], "")
    cut = decode_match(name, revision, info[:40], "tcp", family)[0]
    assert [type(one) for one in cut] == [UnknownMatch]


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
