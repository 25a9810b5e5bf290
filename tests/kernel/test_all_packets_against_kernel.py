"""What the parts of all packets say is what the kernel does: one real connection out of each part that can be made.

A connection can be made when a process with that uid and gid, in the pod or beside it, can send its first packet: to an
address that somebody has, without a mark, as a new connection. NETINIT_PLANS sets how many random option sets are
programmed beside all goldens and Istio's cases, in each dialect; without it, a few of each.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest
from attempts import (
    APP,
    CLIENT,
    LOOP_SOURCES,
    NEIGHBOUR,
    OUTSIDE,
    OWN,
    PORTS,
    SEED,
    Attempt,
    disagree,
    disagree_each_time,
    report,
    surroundings,
)
from hypothesis import HealthCheck, Phase, given, seed, settings

from allpackets import check_cover, compare
from core import plan
from goldens import BEHAVIOURS, options_of
from netinit.base.net import FAMILIES, IPV4
from netinit.rules.packet_inputs import Packet
from netinit.simulate.ruleset import load_plan
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.regions import Region, everything, marked, within
from netinit.simulate.symbolic.space import INBOUND, Dim
from rules_data import read_cases, read_options
from strategies import made_options

pytestmark = [pytest.mark.netns, pytest.mark.timeout(3600)]
PLANS = int(os.environ.get("NETINIT_PLANS", "0"))
SHOWN = {
    "iptables-nft": ("everything-at-once",),
    "iptables-legacy": ("sidecar-captures-everything",),
    "nftables": ("owner-groups-captured-alone", "inbound-tproxy-with-port-list"),
}
NOBODY = 2**32 - 1  # no uid: setuid(2) leaves it as it is


def attempts_of(family):
    """Every way to make a connection, but for its port and its user."""
    outside = [host for host in OUTSIDE if (":" in host) == (family is not IPV4)] + [CLIENT[family]]
    for protocol in ("tcp", "udp"):
        for host in (*outside, *OWN[family]):
            sources = ("", *LOOP_SOURCES[family]) if host in OWN[family] else ("",)
            for source in sources:
                if not (source == "::1" and host.startswith("fd")):
                    yield Attempt("pod", family, protocol, host, 80, APP, APP, source)
        for host in OWN[family][:2]:
            yield Attempt("client", family, protocol, host, 80)
            yield Attempt(NEIGHBOUR, family, protocol, host, 80)
        for host in outside:
            yield Attempt(NEIGHBOUR, family, protocol, host, 80)


def region_of(space, packet: Packet) -> Region:
    """The packets that differ from one only in what a test may choose: the port, the user, the port of the sender."""
    found = everything(space)
    values = {Dim.PROTOCOL: packet.protocol, Dim.STATE: "NEW"}
    if space.direction == INBOUND:
        values[Dim.INTERFACE] = packet.in_interface
    for name, value in values.items():
        at = space.dimension(name).values.index(value)
        found &= within(space, name, [(at, at)])
    numbers = {Dim.DESTINATION: packet.destination, Dim.SOURCE: packet.source, Dim.SOCKET: 0}
    if space.direction != INBOUND:
        numbers[Dim.SENDER] = 1
        found &= within(space, Dim.UID, [(0, NOBODY - 1)]) & within(space, Dim.GID, [(0, NOBODY - 1)])
    for name, number in numbers.items():
        found &= within(space, name, [(number, number)])
    found &= within(space, Dim.DESTINATION_PORT, [(1, 65535)]) & within(space, Dim.SOURCE_PORT, [(32768, 60999)])
    return found & marked(space, Dim.MARK, 0, 2**32 - 1) & marked(space, Dim.CONNECTION_MARK, 0, 2**32 - 1)


def connections_out_of(wanted, random, counted):
    """A connection out of each part that can be made; the simulator says of it what its part says."""
    rulesets = {family: load_plan(wanted, family) for family in FAMILIES}
    places = {family: surroundings(wanted, family) for family in FAMILIES}
    for space in make_spaces([rulesets], places, free=False):
        partition = divide(space, rulesets[space.family])
        check_cover(partition)
        ways = [
            (one, region_of(space, one.packet(space.around, 0)))
            for one in attempts_of(space.family)
            if (one.start != "pod") == (space.direction == INBOUND) and (wanted.addresses or "::6" not in (one.host, one.source))
        ]
        for part in partition.parts:
            counted["parts"] += 1
            possible = [(one, region) for one, way in ways if (region := part.region & way)]
            if not possible:
                continue
            one, region = random.choice(possible)
            ports = random.sample(PORTS, len(PORTS))
            point = region.pick({Dim.DESTINATION_PORT: tuple(ports), Dim.UID: (APP, 0), Dim.GID: (APP, 0), Dim.SOURCE_PORT: (40000,)})
            compare(space, part, point, rulesets[space.family])
            uid, gid = point.get(Dim.UID, 0), point.get(Dim.GID, 0)
            yield Attempt(one.start, one.family, one.protocol, one.host, point[Dim.DESTINATION_PORT], uid, gid, one.source)


def check(pod, dialect, options, counted):
    wanted = plan(options)
    attempts = list(connections_out_of(wanted, Random(SEED), counted))
    counted["plans"] += 1
    counted["connections"] += len(attempts)
    if disagree(pod, dialect, wanted, attempts):  # a late packet, a port taken twice: what is real shows again
        assert disagree_each_time(pod, dialect, wanted, attempts) == [], report(pod, dialect, options, wanted, attempts)


def test_a_connection_out_of_each_part_of_the_goldens_ends_where_the_part_says(pod, dialect, capsys):
    counted = Counter()
    for behaviour in BEHAVIOURS if PLANS else SHOWN[dialect]:
        check(pod, dialect, options_of(behaviour), counted)
    with capsys.disabled():
        print(f"\n{dialect}, goldens: {dict(counted)}")


def test_a_connection_out_of_each_part_of_istios_cases_ends_where_the_part_says(pod, dialect, conformance, capsys):
    counted = Counter()
    cases = list(read_cases(conformance))
    assert cases
    for case in cases if PLANS else cases[:1]:
        for exact in (False, True):
            check(pod, dialect, read_options(case, istio_exact=exact), counted)
    with capsys.disabled():
        print(f"\n{dialect}, Istio's cases: {dict(counted)}")


def test_a_connection_out_of_each_part_of_random_options_ends_where_the_part_says(pod, dialect, capsys):
    counted = Counter()

    @seed(SEED)
    @settings(
        max_examples=PLANS or 1, database=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )  # fmt: skip
    @given(made_options(interfaces=(NEIGHBOUR,)))
    def hold(options):
        check(pod, dialect, options, counted)

    hold()
    with capsys.disabled():
        print(f"\n{dialect}, random options: {dict(counted)}, seed {SEED}")


