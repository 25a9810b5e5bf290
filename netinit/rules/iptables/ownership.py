"""Decide which rules in built-in chains are ours, whatever options created them.

A rule there is ours if it jumps to a chain of ours, if the plan has it and our chains exist, or if it has a layout's
pattern and other rules of ours confirm its values (interface, mark). All others are foreign and stay. The patterns
(netinit.rules.rule_patterns) are computed on demand.
"""

from __future__ import annotations

from netinit.base.net import IPV4, Network
from netinit.base.records import Record
from netinit.rules.iptables.parse import normalise
from netinit.rules.iptables.write import ListedTable, Listing, Written, WrittenChain
from netinit.rules.model import BUILTIN_CHAINS, FILTER, OWNED_CHAINS
from netinit.rules.targets import Jump, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from netinit.base.net import Family

    Key = tuple[object, ...]  # of a rule, see `normalise`: its matches and its target
    Values = tuple[tuple[str, object], ...]  # of placeholders, with their kinds

EXCLUDED, VIRTUAL, MARK, OTHER = "an excluded interface", "an interface of a VM", "the mark", "another value"  # kinds of placeholders
TPROXY_MARK, UID, GID, EXCLUDED_NAME, VIRTUAL_NAME = 0x7E57AB1E, 4200000011, 4200000013, "excluded0", "virtual0"
LOOPBACK = Network.parse("127.199.0.0/16")
PLACEHOLDERS: dict[object, str] = {
    TPROXY_MARK: MARK, UID: OTHER, GID: OTHER, EXCLUDED_NAME: EXCLUDED, VIRTUAL_NAME: VIRTUAL, LOOPBACK: OTHER,
}  # fmt: skip


class RulePattern(Record):
    """The pattern of a rule of ours in a built-in chain: its key with placeholders, and their kinds."""

    table: str
    chain: str
    key: Key
    placeholders: tuple[str, ...]
    inserted: bool = False  # before foreign rules; False: after them


class ValuePlace(Record):
    """Where a rule that is certainly ours has a value: in this field of a match or target, in rules with this target."""

    table: str
    chain: str
    target: str
    part: type[object]
    field: str
    placeholder: str

    def read(self, key: Key) -> Iterator[object]:
        """Yield the values of a rule."""
        for part in key if target_of(key) == self.target else ():
            if type(part) is self.part and not getattr(part, "negated", False):
                value = getattr(part, self.field)
                yield from value if type(value) is tuple else (value,)


class Anchor(Record):
    """A built-in chain where rules for excluded interfaces always precede a jump to a chain of ours."""

    table: str
    chain: str
    chains: frozenset[str]  # the possible targets of the jump


class LayoutPatterns(Record):
    """The patterns of all rules in built-in chains that do not jump to a chain of ours.

    `runs`: sequences of rules in tables without a chain of ours. `value_places` and `anchors`: which values are confirmed.
    """

    rules: tuple[RulePattern, ...]
    runs: tuple[tuple[str, str, tuple[Key, ...]], ...]  # table, chain, rules
    value_places: tuple[ValuePlace, ...]
    anchors: tuple[Anchor, ...]

    def excluding(self, table: str, chain: str) -> list[RulePattern]:
        """Return a chain's patterns for excluded interfaces."""
        return [one for one in self.rules if (one.table, one.chain) == (table, chain) and EXCLUDED in one.placeholders]


Evidence = dict[str, set[object]]  # kind of placeholder -> values that our rules in both families confirm
Owned = dict[tuple[str, str], list[int]]  # (table, built-in chain) -> indexes of our rules


def read_values(pattern: Any, found: Any) -> Values | None:
    """Return what a rule, or a part of it, has in the place of placeholders; None if it differs elsewhere."""
    if type(pattern) is not type(found):
        return None
    if kind := PLACEHOLDERS.get(pattern):
        return ((kind, found),)
    if isinstance(pattern, Record):
        pattern, found = pattern._values(), found._values()  # noqa: SLF001 - what counts for equality
    if not isinstance(pattern, tuple) or len(pattern) != len(found):
        return () if pattern == found else None
    values: Values = ()
    for one, other in zip(pattern, found, strict=True):
        more = read_values(one, other)
        if more is None:
            return None
        values += more
    return values


def find_confirmed(listings: Mapping[Family, Listing], patterns: LayoutPatterns) -> Evidence:
    """Return the values that the listings confirm."""
    found: Evidence = {VIRTUAL: set(), EXCLUDED: set(), MARK: set()}
    for family, listing in listings.items():  # each table separately: a killed run may have changed only one of them
        for place in patterns.value_places:
            for key in _keys(listing.get(place.table), place.chain, family):
                found[place.placeholder].update(place.read(key))
        for anchor in patterns.anchors:
            found[EXCLUDED] |= _excluded(listing.get(anchor.table), anchor, patterns, family)
    return found


def owned_rules(family: Family, listings: Mapping[Family, Listing], written: Written, patterns: Callable[[], LayoutPatterns]) -> Owned:
    """Return the positions of our rules in one family's built-in chains; `patterns`: on demand."""
    owned: Owned = {}
    evidence: Evidence = {}
    for name, table in listings[family].items():
        present = holds_ours(table)
        for chain in BUILTIN_CHAINS:
            keys = _keys(table, chain, family)
            if not keys:
                continue
            found = {index for index, key in enumerate(keys) if jumps_to_ours(key)}
            if present and len(found) < len(keys):
                wanted = _wanted(keys, written.get(name, {}), chain, found, family)
                if len(found | wanted) < len(keys):
                    evidence = evidence or find_confirmed(listings, patterns())
                    found |= _match_patterns(name, chain, keys, evidence, patterns())
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


def target_of(key: Key) -> str:
    """Return the chain that a rule jumps to, or its target's name; empty if it has none."""
    target = key[-1]
    if isinstance(target, Jump) or not isinstance(target, Target):
        return getattr(target, "chain", "")
    text = target.xt(IPV4)
    return text.partition(" ")[0] if not hasattr(target, "targets") else f"[{text}]"


def jumps_to_ours(key: Key) -> bool:
    """Whether a rule jumps to a chain of ours."""
    return isinstance(key[-1], Jump) and key[-1].chain in OWNED_CHAINS


def _keys(table: ListedTable | None, chain: str, family: Family) -> list[Key]:
    return [normalise(text, family) for text in table.rules.get(chain, ())] if table else []


def _excluded(table: ListedTable | None, anchor: Anchor, patterns: LayoutPatterns, family: Family) -> set[object]:
    """Return interfaces excluded right before such a jump, and also in another chain."""
    found: set[object] = set()
    keys = _keys(table, anchor.chain, family)
    ours = patterns.excluding(anchor.table, anchor.chain)
    elsewhere = {
        value
        for pattern in patterns.rules
        if pattern.table == anchor.table and pattern.chain != anchor.chain and EXCLUDED in pattern.placeholders
        for key in _keys(table, pattern.chain, family)
        for _, value in read_values(pattern.key, key) or ()
    }
    for index, key in enumerate(keys):
        if target_of(key) in anchor.chains:
            for before in reversed(keys[:index]):
                name = next((value for pattern in ours for _, value in read_values(pattern.key, before) or ()), None)
                if name not in elsewhere:
                    break
                found.add(name)
    return found


def _match_patterns(table: str, chain: str, keys: list[Key], evidence: Evidence, patterns: LayoutPatterns) -> set[int]:
    """Return the rules with a pattern and confirmed values; of equal ones for an interface, the first inserted or last appended."""
    found: set[int] = set()
    last = {key: index for index, key in enumerate(keys)}
    for pattern in [one for one in patterns.rules if (one.table, one.chain) == (table, chain)]:
        for index, key in enumerate(keys):
            values = read_values(pattern.key, key)
            if values and all(kind == OTHER or value in evidence[kind] for kind, value in values):
                once = not {VIRTUAL, EXCLUDED}.isdisjoint(pattern.placeholders)
                found.add(index if not once else keys.index(key) if pattern.inserted else last[key])
    return found


def _wanted(keys: list[Key], planned: dict[str, WrittenChain], chain: str, found: set[int], family: Family) -> set[int]:
    """Return the rules that the plan has here: the first ones that it inserts, the last that it appends."""
    wanted = planned.get(chain)
    more: set[int] = set()
    if wanted and not OWNED_CHAINS.isdisjoint(planned):
        for number, text in enumerate(wanted.texts):
            key = normalise(text, family)
            places = [index for index, listed in enumerate(keys) if listed == key and index not in more]
            if places and not any(place in found for place in places):
                more.add(places[0] if number < wanted.inserted else places[-1])
    return more


def _find_run(keys: list[Key], run: tuple[Key, ...]) -> set[int]:
    for start in range(len(keys) - len(run) + 1):
        if tuple(keys[start : start + len(run)]) == run:
            return set(range(start, start + len(run)))
    return set()
