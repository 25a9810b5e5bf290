"""The core's inner names that several tests need, imported in one place."""

from __future__ import annotations

from netinit.options import Options
from netinit.render import render_restore
from netinit.rules.layouts import plan
from netinit.rules.network import FAMILIES, IPV4, IPV6, Family, Network
from netinit.rules.nft.writer import render_script
from netinit.rules.packet import Surroundings
from netinit.rules.sets import render_preparation, use_sets
from netinit.simulate.engine import Host, simulate
from netinit.simulate.packet import make_inbound, make_outbound, number_of
from netinit.simulate.ruleset import load_plan

__all__ = [
    "FAMILIES",
    "IPV4",
    "IPV6",
    "Family",
    "Host",
    "Network",
    "Options",
    "Surroundings",
    "load_plan",
    "make_inbound",
    "make_outbound",
    "number_of",
    "plan",
    "render_preparation",
    "render_restore",
    "render_script",
    "simulate",
    "use_sets",
]
