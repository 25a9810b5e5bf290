"""Layouts turn options into a plan: `current` is today's Istio for sidecars, `classic` 1.0 and 1.1, `ambient` without a sidecar."""

from __future__ import annotations

from netinit.options import AMBIENT, CLASSIC, SettledOptions
from netinit.rules.model import Plan


def plan(options: SettledOptions) -> Plan:
    """Return the plan for `options`; pure and deterministic. Raises TypeError for options that are not settled for a pod."""
    if not isinstance(options, SettledOptions):
        raise TypeError("the options are not settled for a pod: use options.settle(facts), or options.settle(offline()) without a pod")
    if options.layout == CLASSIC:
        from netinit.rules.layouts import classic

        return classic.plan(options).replace(made_from=options)
    if options.layout == AMBIENT:
        from netinit.rules.layouts import ambient

        return ambient.plan(options).replace(made_from=options)
    from netinit.rules.layouts import current

    return current.plan(options).replace(made_from=options)
