"""Options read back from the rules that they made: the same plan, or the name of what cannot be read."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from core import plan, write_nft
from listings import from_listings
from netinit.base.net import FAMILIES
from netinit.options import Options
from netinit.rules.infer_options import InferredOptions, from_chains
from netinit.rules.iptables.write import ListedTable, Listing, write_plan
from netinit.rules.model import BUILTIN_CHAINS, Plan
from netinit.rules.nft import render_tables
from netinit.rules.render import render_commands
from plan_snapshot import live_chains
from randomness import some
from strategies import made_any_options

ANY = made_any_options()
MANY = settings(max_examples=some(75), suppress_health_check=list(HealthCheck))


def routing_of(made: Plan) -> dict[int, int]:
    return {rule.mark: rule.table for rule in made.ip_rules}


def listings_of(made: Plan) -> dict:
    """What iptables-save lists once the plan is programmed."""
    listings: dict = {}
    for family in FAMILIES:
        listing: Listing = {}
        for table, chains in write_plan(made, family).items():
            listing[table] = ListedTable(
                policies={name: "ACCEPT" if name in BUILTIN_CHAINS else "-" for name in chains},
                rules={name: [rule.text for rule in chain.rules] for name, chain in chains.items()},
            )
        listings[family] = listing
    return listings


def unnamed(found: InferredOptions, options: Options) -> str:
    """What is wrong with options that were read back to another plan; empty where what they lack is named."""
    if found.options is None:
        return f"nothing was read: {found.unread}"
    lacking = {text.partition(":")[0] for text in found.unread}
    for flag in Options.flags:
        if getattr(found.options, flag.field, None) != getattr(options, flag.field) and flag.label in lacking:
            return ""
    return f"{found}"


@MANY
@given(options=ANY)
def test_what_iptables_lists_tells_the_options_that_made_it(options):
    made = plan(options)
    found = from_listings(listings_of(made), routing_of(made))
    again = plan(found.options) if found.options else Plan(layout="", families=(), tables=())
    if render_commands(again) != render_commands(made):
        assert not unnamed(found, options), unnamed(found, options)


@MANY
@given(options=ANY)
def test_what_nft_lists_tells_the_options_that_made_it(options):
    made = plan(options)
    found = from_chains(live_chains(made), routing_of(made))
    again = plan(found.options) if found.options else Plan(layout="", families=(), tables=())
    if render_tables(write_nft(again)) != render_tables(write_nft(made)):
        assert not unnamed(found, options), unnamed(found, options)
