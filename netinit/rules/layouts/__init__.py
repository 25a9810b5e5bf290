"""Layouts turn options into a plan: `current` is today's Istio for sidecars, `classic` 1.0 and 1.1, `ambient` without a sidecar."""

from __future__ import annotations

from netinit.options import AMBIENT, CLASSIC, Interception
from netinit.rules.model import Plan


def plan(options: Interception) -> Plan:
    """Return the plan for `options`; pure and deterministic.

    `--ipv6 auto` counts as on, and missing `--dns-servers` as none. In a pod, call `Options.settle` first, which decides both.
    """
    if options.layout == CLASSIC:
        from netinit.rules.layouts import classic

        return classic.plan(options).replace(made_from=options)
    if options.layout == AMBIENT:
        from netinit.rules.layouts import ambient

        return ambient.plan(options).replace(made_from=options)
    from netinit.rules.layouts import current

    return current.plan(options).replace(made_from=options)
