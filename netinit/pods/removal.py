"""Preview a removal; changes nothing."""

from __future__ import annotations

from netinit.backends.machine import HERE, Machine
from netinit.base.records import Record
from netinit.options import Options
from netinit.pods.apply import find_ours


class Removal(Record):
    """What a removal deletes: rules by place, routes and addresses as arguments of ip(8)."""

    rules: dict[str, tuple[str, ...]]
    routes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def find_removal(options: Options, machine: Machine = HERE) -> Removal:
    """Return what `remove` would delete in the namespace that the options name. Raises its errors."""

    def find(resolved: Options, warning: str) -> Removal:
        plan, holders, steps = find_ours(resolved, machine)
        rules = {
            f"{held.backend.name} {place}": texts
            for held in holders
            for place, texts in held.state.compare(plan).ours().items()
        }
        return Removal(rules=rules, routes=tuple([step.describe() for step in steps]), warnings=(warning,) if warning else ())

    return machine.inside(options, find)
