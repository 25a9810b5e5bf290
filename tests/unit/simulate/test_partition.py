"""Two partitions of all packets: which packets are treated differently."""

from __future__ import annotations

import pytest

from allpackets import around
from core import IPV4, parse_listing
from netinit.simulate.ruleset import load_listing
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.partition import compare
from netinit.simulate.symbolic.regions import marked
from netinit.simulate.symbolic.space import OUTBOUND

SETS_BIT_1 = "-j MARK --set-xmark 0x1/0x1"


def find_divergent(before, after):
    """The marks of outbound packets, of 0 and 1, that two lists of rules of mangle treat differently."""
    texts = ["\n".join(["*mangle", ":OUTPUT ACCEPT [0:0]", *[f"-A OUTPUT {rule}" for rule in rules], "COMMIT", ""]) for rules in (before, after)]
    first, second = ({IPV4: load_listing(parse_listing(text), IPV4)} for text in texts)
    (space,) = [one for one in make_spaces([first, second], {IPV4: around(IPV4)}, free=False) if one.direction == OUTBOUND]
    found = [one.region for one in compare(divide(space, first[IPV4]), divide(space, second[IPV4]))]
    return {mark for mark in (0, 1) if any(region & marked(space, "mark", mark, 1) for region in found)}


@pytest.mark.parametrize(
    ("before", "after", "marks"),
    [
        ([SETS_BIT_1], [SETS_BIT_1], set()),
        ([SETS_BIT_1], [], {0}),
        ([f"-m mark --mark 0x1/0x1 {SETS_BIT_1}"], [], set()),
        ([f"-m mark --mark 0x0/0x1 {SETS_BIT_1}"], [], {0}),
        (["-j MARK --set-xmark 0x0/0x1"], [], {1}),
        ([SETS_BIT_1], ["-j MARK --set-xmark 0x0/0x1"], {0, 1}),
    ],
)
def test_packets_differ_where_their_marks_end_differently(before, after, marks):
    assert find_divergent(before, after) == find_divergent(after, before) == marks
