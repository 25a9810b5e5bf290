"""Verifying: reads a namespace back and says in which way it is not as planned. Changes nothing."""

from __future__ import annotations

from netinit import backends
from netinit.base.errors import BackendUnavailableError
from netinit.base.records import Record
from netinit.kernel import detect, routes
from netinit.kernel.pods import inside
from netinit.options import AUTO, Options
from netinit.pods.inspect import Side, Survey, describe_leftover
from netinit.rules.difference import Difference
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import Plan


class Report(Record):
    """What was found: the backend whose rules were compared, the plan, and every difference; none means as planned."""

    backend: str
    plan: Plan
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...] = ()


def verify(options: Options) -> Report:
    """Compares the namespace that the options name (default: this process's) with their plan.

    Looks at rules in order, at jumps in built-in chains, at rules of others that stand before ours, at policy routes and
    at leftovers in the other dialect. NamespaceError; BackendUnavailableError when the rules cannot be read.
    """
    return inside(options, _verify_here)


def _verify_here(options: Options, warning: str) -> Report:
    settled = detect.settle(options)
    plan = plan_for(settled.options)
    survey = Survey(settled.options, settled.kernel_families)
    side = _side_to_compare(survey, options)
    differences = tuple(describe_leftover(other) for other in survey.others(side.backend))
    differences += side.backend.compare(plan, side.state)
    differences += routes.differences(routes.steps_towards(plan, settled.kernel_families))
    differences += side.backend.shadows(plan, side.state)
    warnings = ((warning,) if warning else ()) + settled.warnings + plan.warnings + side.state.notices
    return Report(backend=side.backend.name, plan=plan, differences=differences, warnings=warnings)


def _side_to_compare(survey: Survey, options: Options) -> Side:
    """The backend that holds our rules, unless the options name another; with none, the preferred one."""
    if backends.named(options) == AUTO and survey.holders():
        return survey.holders()[0]
    for side in survey.candidates():
        return side
    raise BackendUnavailableError(
        "\n".join(["the rules cannot be read:", *[f"  {failure}" for failure in survey.failures]])
    )
