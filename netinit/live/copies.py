"""Rules that send copies of packets elsewhere (TEE, dup of nft), and which packets they copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from netinit.rules.targets import Drop
from netinit.simulate.ruleset import LoadedChain, LoadedRule, RuleHit, Ruleset, list_targets
from netinit.simulate.symbolic.partition import Part
from netinit.simulate.symbolic.regions import Region

_COPIED = "copied\0"  # as a comment, which no rule can have


def stop_at_copies(ruleset: Ruleset) -> Ruleset | None:
    """Return the rules, in which packets end where they are copied; None if no rule copies any.

    Only matches that all packets of a connection share count on the way to such a rule: `tcp flags ack dup` copies connections too.
    """
    if not any(loaded.rule.target.copies for chain in ruleset.list_chains() for loaded in chain.rules):
        return None
    foreign = []
    for base in ruleset.foreign:
        chains = _stop(base.chains)
        foreign.append(replace(base, chains=chains, chain=chains[base.chain.name]))
    others = tuple([replace(one, tables=_stop_tables(one)) for one in ruleset.others])
    return replace(ruleset, tables=_stop_tables(ruleset), others=others, foreign=tuple(foreign))


def list_copied(parts: tuple[Part, ...]) -> Iterator[tuple[RuleHit, str, Region]]:
    """Yield rules that copy packets, and which, from what becomes of them under `stop_at_copies`."""
    for part in parts:
        if part.path and part.path[-1].rules[0].comment == _COPIED:
            yield part.path[-1], "copies packets that the plan captures", part.region


def _stop_tables(ruleset: Ruleset) -> dict[str, dict[str, LoadedChain]]:
    return {table: _stop(chains) for table, chains in ruleset.tables.items()}


def _stop(chains: Mapping[str, LoadedChain]) -> dict[str, LoadedChain]:
    return {name: replace(chain, rules=tuple([_change(one, chains) for one in chain.rules])) for name, chain in chains.items()}


def _change(loaded: LoadedRule, chains: Mapping[str, LoadedChain]) -> LoadedRule:
    rule = loaded.rule
    if not any(one.copies for one in list_targets(chains, rule.target)):
        return loaded
    rule = rule.replace(matches=tuple([one for one in rule.matches if one.of_connection]))
    return replace(loaded, rule=rule.replace(target=Drop()), comment=_COPIED) if rule.target.copies else replace(loaded, rule=rule)
