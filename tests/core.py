"""The core's inner names that several tests need, imported in one place."""

from __future__ import annotations

from netinit.options import Options
from netinit.render import render_restore
from netinit.rules.diff import compare_listing, find_foreign_jumps, find_shadows, same_table
from netinit.rules.layouts import plan
from netinit.rules.network import FAMILIES, IPV4, IPV6, Family, Network
from netinit.rules.nft.writer import render_script
from netinit.rules.ownership import gather, holds_others, owned_rules, spare_others, target_of
from netinit.rules.packet import Packet, Surroundings
from netinit.rules.sets import render_preparation, use_sets
from netinit.rules.transition import (
    is_interrupted,
    target_from_listing,
    target_from_plan,
    unchanged_tables,
    write_transition,
)
from netinit.rules.xtables import parse_listing, write_plan, write_rule
from netinit.rules.xtparse import parse_rule
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
    "Packet",
    "Surroundings",
    "compare_listing",
    "find_foreign_jumps",
    "find_shadows",
    "gather",
    "holds_others",
    "is_interrupted",
    "load_plan",
    "make_inbound",
    "make_outbound",
    "number_of",
    "owned_rules",
    "parse_listing",
    "parse_rule",
    "plan",
    "render_preparation",
    "render_restore",
    "render_script",
    "same_table",
    "simulate",
    "spare_others",
    "target_from_listing",
    "target_from_plan",
    "target_of",
    "unchanged_tables",
    "use_sets",
    "write_plan",
    "write_rule",
    "write_transition",
]
