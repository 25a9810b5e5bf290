"""Long lists cost what they are long: ten times the networks are ten times the intervals, and the same few parts."""

from __future__ import annotations

import pytest

from allpackets import check_cover, divide_plan
from core import IPV4, Network, Options, plan
from netinit.simulate.condition import Condition
from sweeps import choose

PORTS = tuple(range(2000, 2100, 2))
NAMES = ("exclude_outbound_cidrs", "outbound_cidrs")


def test_a_condition_that_is_changed_is_found_where_an_equal_one_is():
    changed = Condition(sender=True, zone=7)
    first = Condition(sender=True)
    assert {first: 1}[Condition(sender=True)] == 1
    assert {first.replace(zone=7): 2}[changed] == 2


def networks(count):
    """Networks that do not touch each other."""
    return tuple(Network((4, (11 << 24) + (at << 13), 24)) for at in range(count))


def intervals(name, count):
    others = {"outbound_cidrs": "*"} if name != "outbound_cidrs" else {}
    options = Options(
        inbound_ports="*", exclude_inbound_ports=PORTS, exclude_outbound_ports=PORTS, ipv6="off", **{name: networks(count)}, **others
    )
    _, partitions = divide_plan(plan(options))
    outbound = next(one for one in partitions if one.space.family is IPV4 and one.space.direction == "outbound")
    check_cover(outbound)
    return outbound.space.diagram._intervals, len(outbound.parts)


@pytest.mark.parametrize("name", choose(NAMES[:1], NAMES))
def test_ten_times_the_networks_are_ten_times_the_intervals_and_as_many_parts(name):
    few, parts = intervals(name, 100)
    many, same = intervals(name, 1000)
    assert many / few < 20  # halves are joined first, so the logarithm of the number is a factor
    assert same == parts
