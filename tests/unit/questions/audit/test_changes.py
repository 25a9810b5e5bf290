"""What becomes of packets, as a difference says it: beside where they end, all that rules changed of them."""

from __future__ import annotations

import pytest

from netinit.base.net import FULL_MASK, number_of
from netinit.questions.audit.changes import _left
from netinit.simulate.condition import CONNECTION_MARK, INITIAL_MARKS, MARK, OWN, PRIMARY, UNTRACKED, Condition
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED, FORWARDED, SENT

MARKS, OF_CONNECTION = INITIAL_MARKS[MARK], INITIAL_MARKS[CONNECTION_MARK]


@pytest.mark.parametrize(
    ("changes", "verdict", "fate", "said"),
    [
        ({}, DIRECT, SENT, []), ({}, CAPTURED, SENT, []), ({"transparent": True}, CAPTURED, SENT, ["both addresses kept"]), ({"state": UNTRACKED}, DIRECT, SENT, ["untracked"]),
        ({"destination": number_of("10.0.0.9")}, DIRECT, SENT, ["to 10.0.0.9"]), ({"destination": number_of("fd00::9"), "destination_port": 8}, DIRECT, SENT, ["to fd00::9 port 8"]),
        ({"destination": PRIMARY, "destination_port": 8}, DIRECT, SENT, ["to the interface's address port 8"]), ({"destination_port": 8}, DIRECT, SENT, ["to the same address port 8"]),
        ({"destination": None}, DIRECT, SENT, ["to an unknown address"]), ({"destination": None}, CAPTURED, SENT, []), ({"destination": None}, DROPPED, SENT, []),
        ({"source": OWN}, DIRECT, SENT, ["with another source"]), ({"policy_routed": True}, DIRECT, SENT, ["routed to this host by its mark"]),
        ({"out_interface": "eth1"}, DIRECT, FORWARDED, ["forwarded through eth1"]), ({"out_interface": "eth1"}, DIRECT, SENT, []),
        ({"mark": MARKS.set(7, FULL_MASK)}, DIRECT, SENT, ["mark 7"]), ({"mark": MARKS.set(1, 1)}, DIRECT, SENT, ["mark of its mark & 0xfffffffe ^ 0x1"]),
        ({"connection_mark": MARKS}, DIRECT, SENT, ["connection mark of its mark"]), ({"mark": OF_CONNECTION}, DIRECT, SENT, ["mark of its connection mark"]),
        ({"mark": MARKS.mix(OF_CONNECTION, 0xFF, 0xFF)}, DIRECT, SENT, ["mark of its mark & 0xffffff00 ^ its connection mark & 0xff"]),
        ({"zone": 3, "reply_zone": 3}, DIRECT, SENT, ["zone 3"]), ({"zone": 3}, DIRECT, SENT, ["zone 3 in the original direction"]),
        ({"reply_zone": 3}, DIRECT, SENT, ["zone 3 in the reply direction"]),
        ({"transparent": True, "source": None, "mark": MARKS.set(7, FULL_MASK), "zone": 1, "state": UNTRACKED}, CAPTURED, SENT,
         ["both addresses kept", "with another source", "mark 7", "zone 1 in the original direction", "untracked"]),
    ],
)  # fmt: skip
def test_all_that_rules_changed_of_packets_is_said_in_order(changes, verdict, fate, said):
    assert list(_left(Condition().replace(**changes), verdict, fate)) == said
