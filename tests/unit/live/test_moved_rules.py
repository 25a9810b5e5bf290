"""Rules in another order than planned: whether any packet is treated otherwise for that. tests/netns has them in a kernel."""

from __future__ import annotations

import pytest

from core import plan
from netinit.base.errors import TooManyPartsError
from netinit.base.net import HostAddress
from netinit.base.snapshot import Device, LegacyTable, RoutingRule, TableRoute
from netinit.live.moved_rules import only_order_differs
from netinit.options import Options
from netinit.rules.model import MISSING, MOVED, Difference
from netinit.simulate.symbolic import hook_walk
from plan_snapshot import snapshot_of

HOST = {
    "links": (Device(index=1, name="lo", flags=9), Device(index=2, name="eth0", flags=1)),
    "addresses": (HostAddress(family=2, address="127.0.0.1", length=8, index=1), HostAddress(family=2, address="10.7.0.2", length=24, index=2)),
    "routes": (TableRoute(family=2, table=254, kind=1, destination=(0, 0), hops=(2,)),),
    "routing_rules": tuple([RoutingRule(family=2, priority=at, action=1, table=table) for at, table in ((0, 255), (32766, 254), (32767, 253))]),
}
INBOUND = ("istio-proxy-nat", "istio-inbound")
MOVES = Difference(kind=MOVED, where="inet", table=INBOUND[0], chain=INBOUND[1], number=1, rule="…")


def made(*words):
    return plan(Options.from_argv(["-b", "*", "-i", "*", "-d", "80", "-u", "1337", "--ipv6", "off", *words]))


def held(planned, first, second, place=INBOUND):
    """The plan's tables with two rules of a chain (the first is 0) in each other's place."""
    snapshot = snapshot_of(planned).replace(**HOST)
    rules = [*snapshot.rules]
    at = [number for number, one in enumerate(rules) if (one.table, one.chain) == place]
    rules[at[first]], rules[at[second]] = rules[at[second]], rules[at[first]]
    return snapshot.replace(rules=tuple(rules))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [(0, 1, True), (1, 2, False), (0, 2, False), (1, 1, True)],
    ids=["two exclusions", "an exclusion behind the capture", "the tunnel's behind the capture", "none"],
)
def test_rules_that_moved_differ_in_order_alone_if_no_packet_is_treated_otherwise(first, second, same):
    planned = made()
    assert only_order_differs(held(planned, first, second), planned, "nftables", [MOVES]) is same


@pytest.mark.parametrize("differences", [[], [MOVES.replace(kind=MISSING)], [MOVES, MOVES.replace(kind=MISSING)]])
def test_other_differences_are_not_of_order_alone(differences):
    planned = made()
    assert only_order_differs(held(planned, 0, 1), planned, "nftables", differences) is False


@pytest.mark.parametrize(("chain", "same"), [("istio-inbound", True), ("istio-in-redirect", False), ("istio-log", False)])
def test_in_a_chain_that_logs_order_matters(chain, same):
    planned = made("--log-rules")
    assert only_order_differs(held(planned, 0, 1), planned, "nftables", [MOVES, MOVES.replace(chain=chain)]) is same


def test_what_cannot_be_read_or_proved_is_not_the_same(monkeypatch):
    planned = made()
    snapshot = held(planned, 0, 1)
    broken = LegacyTable(version=4, name="nat", valid_hooks=0, hook_entries=(0,) * 5, entries=b"x")
    assert only_order_differs(snapshot.replace(legacy=(broken,)), planned, "nftables", [MOVES]) is False

    def give_up(*_, **__):
        raise TooManyPartsError("x")

    monkeypatch.setattr(hook_walk, "divide", give_up)
    assert only_order_differs(snapshot, planned, "nftables", [MOVES]) is False
