"""What a target does to packets of one condition, by the simulator's own effects."""

from __future__ import annotations

from netinit.base.net import IPV4
from netinit.rules.packet_inputs import Surroundings
from netinit.simulate.condition import Condition, TargetEffects

PROXY_PORT = 15001


def apply_target(target, table="nat", **condition):
    """The verdict, what it changed of the condition, where the packets end, and which chain they enter."""
    condition = {"hook": "PREROUTING", "connection": True, **condition}
    actor = TargetEffects(Surroundings(family=IPV4), Condition(**condition), table, lambda port: port == PROXY_PORT)
    before = Condition(**condition)
    verdict = target.act(actor)
    changed = {name: value for name, value in actor.now.__dict__.items() if name != "_hash" and value != before.__dict__[name]}
    return verdict, changed, actor.fate or actor.called
