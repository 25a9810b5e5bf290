"""Layouts turn options into a plan: `current` is today's Istio for sidecars, `classic` 1.0 and 1.1, `ambient` without a sidecar."""

from __future__ import annotations

from netinit.options import SettledOptions
from netinit.rules.model import Plan


def plan(options: SettledOptions) -> Plan:
    """Return the plan for `options`; pure and deterministic. Raises TypeError for options that are not settled for a pod."""
    if not isinstance(options, SettledOptions):
        raise TypeError("the options are not settled for a pod: use options.settle(facts), or options.settle(offline()) without a pod")
    made: Plan = __import__(f"{__name__}.{options.layout}", fromlist=["plan"]).plan(options)
    return made.replace(made_from=options)
