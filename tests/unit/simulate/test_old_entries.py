"""Connections on a conntrack entry that another connection left behind."""

from __future__ import annotations

import pytest

from core import IPV4, Surroundings, make_outbound, number_of, parse_listing
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.old_entries import simulate_on_old_entries
from netinit.simulate.trace import DELIVERED, DROPPED, SENT

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
NAT = "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p tcp -j REDIRECT --to-ports 15001\nCOMMIT\n"


def follow(rule, **changes):
    text = f"{NAT}*filter\n:OUTPUT ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n-A OUTPUT {rule}\nCOMMIT\n"
    packet = make_outbound(POD, "1.2.3.4", 80, uid=1, gid=1).replace(**changes)
    return simulate_on_old_entries(packet, load_listing(parse_listing(text), IPV4), POD)


def test_a_syn_on_an_old_entry_is_new_established_or_invalid_and_is_not_translated():
    traces = follow("-j ACCEPT")
    assert [(one.last.state, one.fate, one.redirect_port) for one in traces] == [("NEW", SENT, 0), ("ESTABLISHED", SENT, 0), ("INVALID", SENT, 0)]
    for one in traces:
        assert (one.first.flags, one.last.destination_translated, one.last.is_answer) == (("SYN",), False, False)


@pytest.mark.parametrize(("rule", "dropped"), [
    ("-m conntrack --ctstate NEW -j DROP", [0]), ("-m conntrack --ctstate ESTABLISHED -j DROP", [1]), ("-m conntrack --ctstate INVALID -j DROP", [2]),
    ("-p tcp --syn -j DROP", [0, 1, 2]), ("-m conntrack --ctstate DNAT -j DROP", []), ("-m conntrack --ctdir REPLY -j DROP", []),
])  # fmt: skip
def test_rules_see_each_of_its_states(rule, dropped):
    for changes in ({}, {"flags": ("ACK",)}, {"destination_translated": True, "is_answer": True}):
        assert [one.fate for one in follow(rule, **changes)] == [DROPPED if at in dropped else SENT for at in range(3)]


def test_other_protocols_have_none():
    assert follow("-j ACCEPT", protocol="udp") == []
    assert DELIVERED not in {one.fate for one in follow("-j ACCEPT")}
