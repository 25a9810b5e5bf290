"""Layouts turn options into a plan: `current` is today's Istio for sidecars, `classic` 1.0 and 1.1, `ambient` without a sidecar."""

from __future__ import annotations

from netinit.options import Interception
from netinit.rules.model import Plan


def plan(options: Interception) -> Plan:
    """Return the plan for `options`; pure and deterministic.

    `--ipv6 auto` counts as on, and missing `--dns-servers` as none. In a pod, call `Options.settle` first, which decides both.
    """
    made: Plan = __import__(f"{__name__}.{options.layout}", fromlist=["plan"]).plan(options)
    return made.replace(made_from=options)
