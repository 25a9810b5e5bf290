"""What is proved of all packets at once: parts are disjoint and cover everything, and the packet simulator agrees with them."""

from __future__ import annotations

import os
from itertools import combinations, pairwise
from random import Random

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, number_of
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.condition import KEPT, PRIMARY, MarkBits
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import Ruleset, load_plan
from netinit.simulate.symbolic.boxes import Sides, list_boxes
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.partition import Part, Partition
from netinit.simulate.symbolic.space import BITS, Dim, Dimension, Point, Space, packet_of

POD = {IPV4: "192.0.2.10", IPV6: "2001:db8::10"}
MOST_BOXES = int(os.environ.get("NETINIT_BOXES", "2"))  # of a part, of which members are taken; `make prove` takes 12
MOST_COMPARED = 400  # boxes that are compared with each other


def around(family: Family, **more) -> Surroundings:
    """A pod with one address."""
    return Surroundings(family=family, addresses=(("eth0", number_of(POD[family])),), **more)


def divide_all(rulesets: dict[Family, Ruleset], surroundings=None, *, free=True) -> list[Partition]:
    """The partitions of both families and directions."""
    places = surroundings or {family: around(family) for family in FAMILIES}
    return [divide(space, rulesets.get(space.family)) for space in make_spaces([rulesets], places, free=free)]


def divide_plan(plan, surroundings=None, *, free=True):
    """The same of a plan, with its rules."""
    rulesets = {family: load_plan(plan, family) for family in FAMILIES}
    return rulesets, divide_all(rulesets, surroundings, free=free)


def measure(dimension: Dimension, side) -> int:
    """How many coordinates a side of a box has: counted here once more, from intervals and masks alone."""
    if dimension.levels == 1:
        assert all(first <= last for first, last in side)
        assert all(before[1] < after[0] for before, after in pairwise(side)), "intervals ascend"
        return sum(last - first + 1 for first, last in side)
    assert all(not meet_bits(one, other) for one, other in combinations(side, 2)), "masks are disjoint"
    return sum(2 ** (BITS - mask.bit_count()) for _, mask in side)


def meet_bits(one, other) -> bool:
    """Whether some mark fits both."""
    return not (one[0] ^ other[0]) & one[1] & other[1]


def meet(dimension: Dimension, one, other) -> bool:
    """Whether two sides have a coordinate in common."""
    if dimension.levels > 1:
        return any(meet_bits(a, b) for a in one for b in other)
    return any(a[0] <= b[1] and b[0] <= a[1] for a in one for b in other)


def check_cover(partition: Partition) -> int:
    """Parts are disjoint and together everything, by arithmetic on their boxes; how many boxes there are."""
    space = partition.space
    boxes: list[Sides] = [box for part in partition.parts for box in list_boxes(part.region)]
    everything = total = 0
    whole = 1
    for dimension in space.dimensions:
        whole *= 2**BITS if dimension.levels > 1 else dimension.last + 1
    for box in boxes:
        size = 1
        for dimension in space.dimensions:
            full = 2**BITS if dimension.levels > 1 else dimension.last + 1
            size *= measure(dimension, box[dimension.name]) if dimension.name in box else full
        total += size
    everything = whole
    assert total == everything, f"{space.direction} {space.family}: {total} of {everything} packets"
    if len(boxes) <= MOST_COMPARED:
        for one, other in combinations(boxes, 2):
            shared = all(
                meet(dimension, one[dimension.name], other[dimension.name])
                for dimension in space.dimensions
                if dimension.name in one and dimension.name in other
            )
            assert not shared, f"{one} and {other} have packets in common"
    return len(boxes)


def corner(space: Space, box: Sides, choose) -> Point:
    """One packet of a box: `choose` says which coordinate of each side."""
    point = {}
    for dimension in space.dimensions:
        side = box.get(dimension.name, dimension.everything)
        if dimension.levels == 1:
            point[dimension.name] = choose(side)
        else:
            value, mask = choose([(pair, pair) for pair in side])
            point[dimension.name] = value | (choose(((0, 2**BITS - 1),)) & ~mask)
    return point


def lowest(side):
    return side[0][0]


def highest(side):
    return side[-1][1]


def anywhere(random: Random):
    def choose(side):
        first, last = random.choice(list(side))
        return random.choice((first, last, random.randint(first, last))) if isinstance(first, int) else first

    return choose


def check_members(partition: Partition, ruleset: Ruleset, random: Random, members: int = 2) -> int:
    """The simulator says of members and corners of every part what the part says; how many were asked."""
    asked = 0
    for part in partition.parts:
        boxes = list(list_boxes(part.region))
        for box in boxes if len(boxes) <= MOST_BOXES else random.sample(boxes, MOST_BOXES):
            for choose in (lowest, highest, *[anywhere(random)] * members):
                compare(partition.space, part, corner(partition.space, box, choose), ruleset)
                asked += 1
    return asked


def mark_of(packet: Packet, mark: MarkBits) -> int:
    return (packet.mark & mark.packet) ^ (packet.connection_mark & mark.connection) ^ mark.flip


def compare(space: Space, part: Part, point: Point, ruleset: Ruleset) -> None:
    """One packet ends as its part says, and has met the rules that its part names."""
    packet, surroundings = packet_of(space, point)
    trace = simulate(packet, ruleset, surroundings)
    wanted, ended, last = part, part.condition, trace.last

    def told() -> str:
        return f"{packet}\npart: {wanted}\ntrace: {trace.fate} {trace.reason} {last}"

    assert trace.fate == wanted.fate, told()
    assert trace.verdict == part.verdict, told()
    hits = [step.rule for step in trace.steps if step.rule is not None and step.holds is not False]
    several = trace.disputed or any(step.holds is None and step.outcome == "whether it holds cannot be known" for step in trace.steps)
    for passage in () if several else part.path:  # of ways that end alike each names its own rules
        assert any(hit is rule for hit in hits for rule in passage.rules), f"{told()}\n{passage} was not met"
    if wanted.by_rule and not several:
        assert any(trace.decider.rule is rule for rule in part.path[-1].rules), told()
    if part.verdict in ("dropped", "unknown"):
        return
    address = {KEPT: packet.destination, PRIMARY: surroundings.primary_address(packet.in_interface)}.get(ended.destination, ended.destination)
    named = space.dimension(Dim.INTERFACE).values[point[Dim.INTERFACE]]
    expected = {
        "redirect_port": ended.redirect_port, "transparent": ended.transparent, "translated": ended.translated,
        "policy_routed": ended.policy_routed, "zone": ended.zone, "reply_zone": ended.reply_zone, "destination": address,
        "source": packet.source if ended.source is KEPT else None,
        "destination_port": packet.destination_port if ended.destination_port is KEPT else ended.destination_port,
        "mark": mark_of(packet, ended.mark), "connection_mark": mark_of(packet, ended.connection_mark),
        "in_interface": named if ended.in_interface is KEPT else ended.in_interface,
        "out_interface": named if ended.out_interface is KEPT else ended.out_interface,
    }  # fmt: skip
    fields = ("redirect_port", "transparent", "translated", "policy_routed", "zone", "reply_zone")
    actual = {name: getattr(trace if name in fields else last, name) for name in expected}
    assert actual == expected, told()
