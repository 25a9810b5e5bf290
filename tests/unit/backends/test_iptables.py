"""Listings of iptables: how the backend shows them."""

from __future__ import annotations

from netinit.backends.iptables import show_listing
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.iptables.write import ListedTable


def test_a_listing_is_shown_as_it_can_be_read_again_with_what_a_terminal_would_obey_escaped():
    nat = ListedTable(policies={"OUTPUT": "DROP"}, rules={"OUTPUT": ["-p tcp -j X", ""], "X": ["-j RETURN"]})
    listing = {"nat": nat, "filter": ListedTable(policies={"INPUT": "ACCEPT"}, rules={"INPUT": []})}
    text = show_listing(listing)
    assert text.splitlines() == ["*nat", ":OUTPUT DROP [0:0]", ":X - [0:0]", "-A OUTPUT -p tcp -j X", "-A OUTPUT", "-A X -j RETURN", "COMMIT", "*filter", ":INPUT ACCEPT [0:0]", "COMMIT"]
    again = parse_listing(text)
    assert {name: {chain: [*rules] for chain, rules in table.rules.items()} for name, table in again.items()} == {name: table.rules for name, table in listing.items()}
    assert again["nat"].policies["OUTPUT"] == "DROP"
    assert show_listing({"nat": ListedTable(policies={}, rules={"X": ["-j \x1b[2J"]})}).splitlines()[2] == "-A X -j \\x1b[2J"
