"""Load the rules of a listing as iptables-save prints it."""

from __future__ import annotations

from netinit.base.net import Family
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.write import Listing
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset, Tables


def load_listing(listing: Listing, family: Family) -> Ruleset:
    """Load the rules of a listing, with counters if it has them. Raises ParseError."""
    tables: Tables = {}
    for table, listed in listing.items():
        tables[table] = {}
        for name, specs in listed.rules.items():
            rules = []
            for number, spec in enumerate(specs, 1):
                counters, _, text = spec.partition("] ") if spec.startswith("[") else ("", "", spec)
                rule = parse_rule(text, family)
                packets = int(counters[1:].partition(":")[0]) if counters else None
                rules.append(LoadedRule(number, text, rule, packets=packets, comment=rule.comment))
            policy = listed.policies.get(name, "-")
            tables[table][name] = LoadedChain(name, tuple(rules), "" if policy == "-" else policy)
    return Ruleset(family, tables)
