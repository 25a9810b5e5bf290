"""Rules that no packet can reach: one before them takes everything that they would match, or no jump leads there."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.net import Family, Network, bounds_of, covers
from netinit.rules.layouts import untranslated
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port, Protocol, Source
from netinit.rules.model import BUILTIN_CHAINS, FILTER
from netinit.rules.targets import Accept, Drop, Jump, Redirect, Reject, Return, Tproxy
from netinit.simulate.lint.finding import UNREACHABLE, WARNING, Finding
from netinit.simulate.loaded import LoadedChain, LoadedRule
from netinit.simulate.ruleset import Ruleset

_FINAL = Accept | Drop | Reject | Return | Redirect | Tproxy
# Istio makes them whether they are used or not.
_CHAINS_WITHOUT_TRAFFIC = frozenset(("ISTIO_REDIRECT", "ISTIO_IN_REDIRECT", "ISTIO_INBOUND"))


def find_unreachable(rulesets: dict[Family, Ruleset]) -> Iterator[Finding]:
    """A finding for each rule or chain, whatever the number of families that have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for family, ruleset in rulesets.items():
        for table, chains in ruleset.tables.items():
            reached = _reached(chains)
            for name, chain in chains.items():
                if table == FILTER and name in untranslated.CHAINS:
                    continue  # derived from chains of nat, where it is found
                if name in reached:
                    for problem in _hidden_rules(chain, table):
                        found.setdefault(problem, []).append(family.name)
                elif name not in _CHAINS_WITHOUT_TRAFFIC:
                    origin = chain.rules[0].origin if chain.rules else None
                    problem = (origin.label if origin else table, f"the chain {name} of {table} has rules, but no rule leads there")
                    found.setdefault(problem, []).append(family.name)
    for (option, message), families in found.items():
        yield Finding(WARNING, UNREACHABLE, option, f"{message} ({' and '.join(families)})")


def _reached(chains: dict[str, LoadedChain]) -> set[str]:
    reached: set[str] = set()
    waiting = [name for name in chains if name in BUILTIN_CHAINS]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in chains:
            continue
        reached.add(name)
        waiting += [loaded.rule.target.chain for loaded in chains[name].rules if isinstance(loaded.rule.target, Jump)]
    return reached


def _hidden_rules(chain: LoadedChain, table: str) -> Iterator[tuple[str, str]]:
    """Rules behind one that ends the path of every packet that they could match: the option, and what is wrong.

    Lists of networks may be long: those rules are looked up by their prefixes, all others are few.
    """
    ending: list[LoadedRule] = []
    by_network: dict[tuple[int, int], LoadedRule] = {}
    for loaded in chain.rules:
        network = _only_network(loaded)
        before = next((one for one in ending if _implies(loaded.rule.matches, one.rule.matches)), None)
        if network and not before:
            before = _wider(by_network, network)
        if before and not _made_as_pair(before, loaded):
            yield (
                loaded.origin.label if loaded.origin else table,
                (
                    f"rule {loaded.number} of {table} {chain.name}, {loaded.quotation}, is never reached: "
                    f"rule {before.number}, {before.quotation}, takes all that it would match"
                ),
            )
        elif isinstance(loaded.rule.target, _FINAL):
            if network:
                by_network[network.first, network.length] = loaded
            else:
                ending.append(loaded)


def _made_as_pair(first: LoadedRule, second: LoadedRule) -> bool:
    """Whether one option made two rules with the same matches, as Istio does in ambient mode: it harms nobody."""
    return first.origin is not None and first.origin == second.origin and first.rule.matches == second.rule.matches


def _only_network(loaded: LoadedRule) -> Network | None:
    """The destination network of a rule that matches on nothing else."""
    matches = loaded.rule.matches
    if len(matches) == 1 and isinstance(matches[0], Destination) and not matches[0].negated:
        return matches[0].networks[0]
    return None


def _wider(known: dict[tuple[int, int], LoadedRule], network: Network) -> LoadedRule | None:
    bits = network.family.bits
    for length in range(network.length + 1):
        free = bits - length
        found = known.get((network.first >> free << free, length))
        if found:
            return found
    return None


def _implies(narrow: tuple[Match, ...], wide: tuple[Match, ...]) -> bool:
    """Whether every packet that meets all of `narrow` meets all of `wide`."""
    return all(any(_narrower(one, other) for one in narrow) for other in wide)


def _narrower(one: Match, other: Match) -> bool:
    if one == other:
        return True
    if isinstance(one, Port) and isinstance(other, Protocol):
        return one.protocol == other.name
    for kind in (Source, Destination):
        if isinstance(one, kind) and isinstance(other, kind) and not one.negated and not other.negated:
            return all(any(covers(wide, network) for wide in other.networks) for network in one.networks)
    if isinstance(one, InInterface | OutInterface) and type(one) is type(other):
        return False
    if isinstance(one, Port) and isinstance(other, Port):
        same = (one.protocol, one.source, one.negated) == (other.protocol, other.source, other.negated)
        wide = [bounds_of(port) for port in other.ports]
        inside = all(any(low <= a and b <= high for low, high in wide) for a, b in map(bounds_of, one.ports))
        return same and not one.negated and inside
    return False
