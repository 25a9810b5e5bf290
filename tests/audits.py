"""Sidecars to audit, from a command line."""

from __future__ import annotations

from allpackets import around
from core import FAMILIES, Options, load_plan, plan, settled
from netinit.questions.pod_rules import PodRules

SIDECAR = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -b * -d 15090,15021,15020"


def subject_of(line, families=FAMILIES, **more):
    options = settled(Options.from_argv(["--ipv6=on", *line.split()], {}))
    made = plan(options)
    rulesets = {"plan": {family: load_plan(made, family) for family in families}}
    return PodRules(rulesets, {family: around(family) for family in families}, {"plan": options}, **more)
