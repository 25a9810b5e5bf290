"""The core's inner names that several tests need, imported in one place."""

from __future__ import annotations

from hosts import Host
from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, number_of
from netinit.options import Options, SettledOptions, offline
from netinit.rules import layouts
from netinit.rules.iptables import ownership
from netinit.rules.iptables.compare import FamilyRules
from netinit.rules.iptables.keys import target_of
from netinit.rules.iptables.ownership import holds_foreign_rules, keep_foreign_rules, keys_of
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.iptables.set_changes import find_preparation
from netinit.rules.iptables.sets import use_sets
from netinit.rules.iptables.transition import target_from_listing, target_from_plan, write_transition
from netinit.rules.iptables.write import write_plan, write_rule
from netinit.rules.model import Plan
from netinit.rules.nft import Written, plan_tables, render_script, write_steps
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.rules.render import describe_plan, render_restore
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import load_plan
from netinit.simulate.stand_ins import make_inbound

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
    "describe_plan",
    "family_rules",
    "find_preparation",
    "holds_foreign_rules",
    "keep_foreign_rules",
    "load_plan",
    "make_inbound",
    "make_outbound",
    "number_of",
    "owned_rules",
    "parse_listing",
    "parse_rule",
    "plan",
    "render_restore",
    "render_script",
    "settled",
    "simulate",
    "target_from_listing",
    "target_from_plan",
    "target_of",
    "use_sets",
    "write_nft",
    "write_plan",
    "write_rule",
    "write_transition",
]


def settled(options: Options) -> SettledOptions:
    """The options settled for a pod that cannot be asked, unless they are settled for one."""
    return options if isinstance(options, SettledOptions) else options.settle(offline())


def plan(options: Options) -> Plan:
    """The plan of options, settled or not."""
    return layouts.plan(settled(options))


def family_rules(listing, owned, written=None, family=IPV4) -> FamilyRules:
    """One family's listed rules beside those that are written."""
    return FamilyRules(family=family, written=written or {}, listing=listing, owned=owned)


def owned_rules(family, listings, written, patterns) -> ownership.Owned:
    """Which rules of listings are ours."""
    return ownership.owned_rules(family, {one: keys_of(listing, one) for one, listing in listings.items()}, written, patterns)


def write_nft(made: Plan, *, comments: bool = False) -> Written:
    """A plan's tables as nft lists them."""
    return write_steps(plan_tables(made), comments=comments)
