"""Decide which rules in built-in chains are ours, whatever options created them.

A rule there is ours if it jumps to a chain of ours, if the plan has it and our chains exist, or if it has a layout's
pattern and other rules of ours confirm its values (interface, mark). All others are foreign and stay. The patterns
(netinit.rules.rule_patterns) are computed on demand.
"""

from __future__ import annotations

from netinit.rules.iptables.keys import jumps_to_ours
from netinit.rules.iptables.parse import normalise, normalise_rule
from netinit.rules.iptables.write import ListedTable, Listing, Written, WrittenChain
from netinit.rules.model import BUILTIN_CHAINS, FILTER, OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from netinit.base.net import Family
    from netinit.rules.iptables.keys import Key

    Keys = Mapping[tuple[str, str], Sequence[Key]]  # (table, chain) -> those of its rules; empty chains count too

Owned = dict[tuple[str, str], list[int]]  # (table, built-in chain) -> indexes of our rules


def owned_rules(family: Family, live: Mapping[Family, Keys], written: Written, patterns: Callable[[], Any]) -> Owned:
    """Return the positions of our rules in one family's built-in chains; `patterns` returns the LayoutPatterns, on demand."""
    owned: Owned = {}
    evidence: dict[str, set[object]] = {}
    with_ours = {table for table, chain in live[family] if chain in OWNED_CHAINS}
    for name in dict.fromkeys([table for table, _ in live[family]]):
        for chain in BUILTIN_CHAINS:
            keys = live[family].get((name, chain))
            if not keys:
                continue
            found = {index for index, key in enumerate(keys) if jumps_to_ours(key)}
            if name in with_ours and len(found) < len(keys):
                wanted = _wanted(keys, written.get(name, {}), chain, found, family)
                if len(found | wanted) < len(keys):
                    evidence = evidence or patterns().find_confirmed(live)
                    found |= patterns().match(name, chain, keys, evidence)
                    wanted = _wanted(keys, written.get(name, {}), chain, found, family)
                found |= wanted
            if name == FILTER and len(found) < len(keys):  # the only table in which a layout has rules but no chain
                for _, _, run in [one for one in patterns().runs if one[:2] == (name, chain)]:
                    found |= _find_run(keys, run)
            if found:
                owned[name, chain] = sorted(found)
    return owned


def keep_foreign_rules(owned: Owned, listing: Listing, before: Listing, owned_before: Owned) -> Owned:
    """Return `owned` without rules that were foreign before: as many foreign rules remain as there were."""
    left: Owned = {}
    for place, indexes in owned.items():
        name, chain = place
        texts = listing[name].rules[chain]
        earlier = before[name].rules.get(chain, []) if name in before else []
        others = [text for index, text in enumerate(earlier) if index not in owned_before.get(place, ())]
        kept = list(indexes)
        for index in indexes:
            unclaimed = [text for number, text in enumerate(texts) if number not in kept]
            if unclaimed.count(texts[index]) < others.count(texts[index]):
                kept.remove(index)
        if kept:
            left[place] = kept
    return left


def holds_ours(table: ListedTable) -> bool:
    """Whether a table contains a chain of ours."""
    return not OWNED_CHAINS.isdisjoint(table.rules)


def holds_foreign_rules(listing: Listing, owned: Owned) -> bool:
    """Whether the tables contain foreign rules; empty tables do not count."""
    for name, table in listing.items():
        for chain, texts in table.rules.items():
            if chain in BUILTIN_CHAINS:
                if len(texts) > len(owned.get((name, chain), ())) or table.policies[chain] != "ACCEPT":
                    return True
            elif texts and chain not in OWNED_CHAINS:
                return True
    return False


def keys_of(listing: Listing, family: Family) -> Keys:
    """Return the keys of the rules in built-in chains and in ours."""
    return {
        (name, chain): [normalise(text, family) for text in texts]
        for name, table in listing.items()
        for chain, texts in table.rules.items()
        if chain in BUILTIN_CHAINS or chain in OWNED_CHAINS
    }


def _wanted(keys: Sequence[Key], planned: dict[str, WrittenChain], chain: str, found: set[int], family: Family) -> set[int]:
    """Return the rules that the plan has here: the first ones that it inserts, the last that it appends."""
    wanted = planned.get(chain)
    more: set[int] = set()
    if wanted and not OWNED_CHAINS.isdisjoint(planned):
        for number, one in enumerate(wanted.rules):
            key = normalise_rule(one.listed(family))
            places = [index for index, listed in enumerate(keys) if listed == key and index not in more]
            if places and not any(place in found for place in places):
                more.add(places[0] if number < wanted.inserted else places[-1])
    return more


def _find_run(keys: Sequence[Key], run: tuple[Key, ...]) -> set[int]:
    for start in range(len(keys) - len(run) + 1):
        if tuple(keys[start : start + len(run)]) == run:
            return set(range(start, start + len(run)))
    return set()
