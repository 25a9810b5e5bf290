"""Preview a removal; changes nothing."""

from __future__ import annotations

from netinit.backends import routes
from netinit.backends.machine import HERE, Machine
from netinit.base.records import Record
from netinit.options import Options
from netinit.pods.backend_choice import Survey
from netinit.pods.refusals import nothing_works
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import EMPTY_PLAN


class Removal(Record):
    """What a removal deletes: rules by place, routes and addresses as arguments of ip(8)."""

    rules: dict[str, tuple[str, ...]]
    routes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def find_removal(options: Options, machine: Machine = HERE) -> Removal:
    """Return what `remove` would delete in the namespace that the options name. Raises its errors."""
    return machine.inside(options, lambda meant, warning: _find_removal_here(meant, warning, machine))


def _find_removal_here(options: Options, warning: str, machine: Machine) -> Removal:
    settled = machine.settle(options)
    plan = plan_for(settled.options)
    survey = Survey(settled.options, settled.kernel_families, machine=machine)
    if survey.failures:
        raise nothing_works(survey.failures, machine)
    rules = {
        f"{held.backend.name} {place}": texts
        for held in survey.holders()
        for place, texts in held.state.compare(plan).ours().items()
    }
    steps = routes.steps_towards(EMPTY_PLAN, settled.kernel_families, hints=plan, link=machine.link)
    return Removal(rules=rules, routes=tuple([step.describe() for step in steps]), warnings=(warning,) if warning else ())
