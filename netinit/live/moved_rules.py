"""Whether rules that are in another order than planned treat every packet as the plan does: effect decides, not position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from netinit.base.errors import TooManyPartsError
from netinit.base.snapshot import Snapshot
from netinit.live import host
from netinit.live.snapshot_rules import SOURCES, load_snapshot
from netinit.rules.iptables.sets import Contents
from netinit.rules.model import MOVED, Difference, Plan
from netinit.rules.nft import model_name, model_table
from netinit.simulate.ruleset import resolve_sets, with_plan


def only_order_differs(
    snapshot: Snapshot, plan: Plan, backend: str, differences: Sequence[Difference],
    read_sets: Callable[[], Contents] = dict,
) -> bool:  # fmt: skip
    """Whether all differences are rules that moved, and provably no packet is treated differently for that.

    `read_sets` returns the address sets of ipset with their networks, in which the kernel keeps no order.
    False too where it is not known. Log rules only report, which the proof does not see: in their chains, order matters.
    """
    if not differences or any(one.kind != MOVED for one in differences):
        return False
    reporting = {(table, chain) for table, chain, rule in plan.walk() if rule.target.only_observes}
    if reporting & {(model_table(one.table), model_name(one.chain)) for one in differences}:
        return False
    from netinit.simulate.symbolic.hook_walk import divide
    from netinit.simulate.symbolic.match_sets import make_spaces
    from netinit.simulate.symbolic.partition import compare

    kernel, contents = load_snapshot(snapshot, (plan,)), read_sets()
    if kernel.unreadable:
        return False
    try:
        for family in plan.families:
            live = resolve_sets(kernel.join(family, SOURCES[backend]), contents)
            # What the plan adds beside its rules is compared elsewhere: here both sides are on the same host.
            planned = replace(with_plan(live, plan), addresses=live.addresses, local_marks=live.local_marks)
            around = {family: host.surroundings_of(snapshot, family)}
            spaces = make_spaces([{family: planned}, {family: live}], around, free=not host.is_simple(snapshot, family))
            if any(any(compare(*[divide(space, one, keeps_paths=False) for one in (planned, live)])) for space in spaces):
                return False
    except TooManyPartsError:
        return False
    return True
