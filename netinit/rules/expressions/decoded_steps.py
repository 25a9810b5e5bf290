"""Planned rules of our nft tables as they would be decoded from the kernel, and the elements of rules with lists."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from netinit.base.snapshot import INET, NftRule
from netinit.rules import nft
from netinit.rules.expressions.encoded_sets import in_snapshot
from netinit.rules.expressions.rule_reader import References, decode_rule
from netinit.rules.model import LiveRule
from netinit.rules.nft import NftStep, Steps


def decode_steps(table: str, chains: Steps) -> dict[str, list[tuple[NftStep, LiveRule]]]:
    """Return each planned rule of a table, by chain, with what the kernel's would be decoded to."""
    encoded = nft.encode_steps(chains)
    around = References(sets={(INET, table, one.name): in_snapshot(one, INET, table) for one in encoded.sets}, devices={})
    found: dict[str, list[tuple[NftStep, LiveRule]]] = {}
    for chain, (_, steps) in chains.items():
        rules = [NftRule(family=INET, table=table, chain=chain, expressions=one) for one in encoded.chains[chain]]
        found[chain] = [(step, decode_rule(rules[at], around)) for at, step in enumerate(steps)]
    return found


def each_element(matches: Iterable[object]) -> Iterable[tuple[object, ...]]:
    """Return a rule's matches for each element of its lists."""
    return product(*map(_elements, matches))


def _elements(match: Any) -> list[object]:
    """Return a match for each element of its list; a negated list is one match."""
    if not match.listed or match.negated:
        return [match]
    return [match.replace(**{match.listed: (element,)}) for element in getattr(match, match.listed)]
