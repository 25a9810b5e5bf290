"""What the rules of a layout tell of its options."""

from __future__ import annotations

import pytest

from core import Network, Options, plan
from listings import from_listings, listing_of, make_listing

USERS = ("-u", "7", "-g", "7", "--ipv6", "on")


def inferred(*words):
    """What the rules tell of their options."""
    made = plan(Options.from_argv([*USERS, *words], {}))
    listings = {family: make_listing(listing_of(made, family)) for family in made.families}
    return from_listings(listings, {rule.mark: rule.table for rule in made.ip_rules})


@pytest.mark.parametrize("layout", ["current", "classic"])
@pytest.mark.parametrize(
    ("words", "networks"),
    [
        (("-i", "*"), "*"), (("-i", "10.0.0.0/8"), (Network.parse("10.0.0.0/8"),)), ((), ()),
        (("-i", "10.0.0.0/8,fd00::/8"), (Network.parse("10.0.0.0/8"), Network.parse("fd00::/8"))),
    ],
)  # fmt: skip
def test_all_networks_are_told_from_some_and_from_none(layout, words, networks):
    found = inferred("-b", "80", *words, "--layout", layout)
    assert found.options.outbound_cidrs == networks
    assert (found.options.layout, found.unread) == (layout, ())


@pytest.mark.parametrize(("words", "port"), [((), 15008), (("-e", "4190"), 4190), (("-e", "0"), 0), (("-e", "53"), 53), (("-e", "0", "--redirect-dns", "--capture-all-dns"), 0)])
def test_the_tunnel_s_port_is_told_beside_that_of_dns(words, port):
    assert inferred("-b", "*", "-i", "*", *words).options.tunnel_port == port


@pytest.mark.parametrize("ipv6", ["on", "off"])
@pytest.mark.parametrize("layout", ["current", "classic", "ambient"])
def test_whether_ipv6_is_captured_is_told_by_the_rules_for_it(layout, ipv6):
    everything = () if layout == "ambient" else ("-b", "*", "-i", "*")
    assert inferred(*everything, "--layout", layout, "--ipv6", ipv6).options.ipv6 == ipv6
