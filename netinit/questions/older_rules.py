"""What distinguishes the rules of an earlier release of Istio from today's: which packets are treated differently, if any. Pure."""

from __future__ import annotations

from netinit.base.errors import NOT_PROVED, TooManyPartsError
from netinit.options import SettledOptions
from netinit.options.command_line import format_options
from netinit.questions.audit.changes import FateChange, find_changes_of_fate
from netinit.questions.pod_rules import PodRules
from netinit.questions.release_comparison import ReleaseComparison
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import Plan
from netinit.simulate.ruleset import load_plan
from netinit.simulate.stand_ins import stand_in

PLAN = "plan"


def compare_release(releases: str, options: SettledOptions, made: Plan) -> ReleaseComparison:
    """Compare a release's plan with Istio's rules of today for `options`, on the host of an example."""
    current = plan_for(options.replace(istio_exact=True))
    families = tuple(dict.fromkeys([*current.families, *made.families]))
    hosts = {family: stand_in(family) for family in families}
    sides = [PodRules({PLAN: {family: load_plan(one, family) for family in families}}, hosts) for one in (current, made)]
    text = format_options(options.given)
    try:
        changes = [one for one in find_changes_of_fate(sides[0], sides[1]) if not one.unseen]
    except TooManyPartsError as error:
        return ReleaseComparison(releases=releases, options=text, doubt=f"{NOT_PROVED}: {error}")
    return ReleaseComparison(releases=releases, options=text, differences=tuple(dict.fromkeys(map(_describe, changes))))


def _describe(change: FateChange) -> str:
    return f"{'; '.join(change.who)}: {change.before}, and with these rules {change.after}"
