"""Which devices rules of a hook see, and which stages it has."""

from __future__ import annotations

import pytest

from netinit.simulate.hooks import (
    STAGES,
    TABLES_OF_THE_KERNEL,
    TRACKING,
    TRANSLATES_DESTINATION,
    priority_at,
    shows_interface,
)


@pytest.mark.parametrize(("hook", "arrival", "departure"), [
    ("PREROUTING", True, False), ("INPUT", True, False), ("FORWARD", True, True), ("OUTPUT", False, True), ("POSTROUTING", False, True),
])  # fmt: skip
def test_rules_see_the_device_of_arrival_before_routing_and_that_of_departure_after_it(hook, arrival, departure):
    assert (shows_interface(hook, inbound=True), shows_interface(hook, inbound=False)) == (arrival, departure)


def test_stages_of_a_hook_are_in_the_order_of_their_priorities():
    for hook, stages in STAGES.items():
        priorities = [priority_at(hook, stage) for stage in stages]
        assert priorities == sorted(priorities)
        assert (TRACKING in stages) is (hook in TRANSLATES_DESTINATION)
        assert {*stages} - {TRACKING} <= {*TABLES_OF_THE_KERNEL}
