"""Marks that are copied through masks: all packets at once, one packet, and the kernel's arithmetic agree (xt_connmark.c)."""

from __future__ import annotations

from random import Random

import pytest

from allpackets import around, check_cover, check_members
from core import IPV4, parse_rule
from netinit.base.net import FULL_MASK
from netinit.rules.packet_inputs import Packet
from netinit.simulate.condition import INITIAL_MARKS, Condition
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import ACCEPT, LoadedChain, LoadedRule, Ruleset
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from randomness import SEED

MASKS = (0x1, 0x3, 0xC, 0x80, 0x83, FULL_MASK)
TARGETS = ("CONNMARK --save-mark --nfmask {} --ctmask {}", "CONNMARK --restore-mark --nfmask {} --ctmask {}")


def load(*texts):
    rules = tuple([LoadedRule(number, text, parse_rule(text, IPV4)) for number, text in enumerate(texts, 1)])
    return Ruleset(IPV4, {"mangle": {"OUTPUT": LoadedChain("OUTPUT", rules, ACCEPT)}})


def copy(kind, mark, connection, nfmask, ctmask):
    """What xt_connmark.c does."""
    if "save" in kind:
        return mark, connection & ~ctmask ^ mark & nfmask
    return mark & ~nfmask ^ connection & ctmask, connection


def test_a_copy_through_masks_is_the_kernels_for_one_packet():
    random = Random(SEED)
    for _ in range(200):
        steps = [(random.choice(TARGETS), random.choice(MASKS), random.choice(MASKS)) for _ in range(4)]
        mark, connection = random.choice(MASKS), random.choice(MASKS)
        packet = Packet(
            family=IPV4, protocol="tcp", source=1, destination=2, source_port=3, destination_port=4, mark=mark, connection_mark=connection,
            state="ESTABLISHED", has_socket=True, uid=0, gid=0,
        )  # fmt: skip
        last = simulate(packet, load(*[f"-j {text.format(*masks)}" for text, *masks in steps]), around(IPV4)).last
        for kind, nfmask, ctmask in steps:
            mark, connection = copy(kind, mark, connection, nfmask, ctmask)
        assert (last.mark, last.connection_mark) == (mark, connection), steps


@pytest.mark.parametrize("number", range(6))
def test_all_packets_at_once_have_the_marks_of_each_packet(number):
    random = Random(f"{SEED} {number}")
    texts = [f"-j {random.choice(TARGETS).format(random.choice(MASKS), random.choice(MASKS))}" for _ in range(3)]
    ruleset = load(*texts, "-m mark --mark 0x1/0x81 -j DROP", "-m connmark --mark 0x4/0xc -j DROP")
    for space in make_spaces([{IPV4: ruleset}], {IPV4: around(IPV4)}, free=True):
        partition = divide(space, ruleset)
        check_cover(partition)
        assert check_members(partition, ruleset, random), texts


def test_a_mark_that_is_copied_there_and_back_is_as_it_began():
    begun = Condition()
    there = begun.connection_mark.mix(begun.mark, FULL_MASK, FULL_MASK)
    assert begun.mark.mix(there, FULL_MASK, FULL_MASK) == INITIAL_MARKS["mark"]
