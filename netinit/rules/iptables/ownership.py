"""Decide which rules in built-in chains are ours, whatever options created them.

A rule there is ours if it jumps to a chain of ours, if the plan has it and our chains exist, or if it has a layout's
pattern and other rules of ours confirm its values (interface, mark). All others are foreign and stay. The patterns
(netinit.rules.rule_patterns) are computed on demand.
"""

from __future__ import annotations

from netinit.base.records import Record
from netinit.rules.iptables.write import ListedTable, Listing, Written, unquoted
from netinit.rules.model import BUILTIN_CHAINS, FILTER, OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

EXCLUDED, VIRTUAL, MARK, OTHER = "an excluded interface", "an interface of a VM", "the mark", "another value"  # kinds of placeholders


class RulePattern(Record):
    """The pattern of a rule of ours in a built-in chain: its text around placeholders, and each placeholder's kind."""

    table: str
    chain: str
    parts: tuple[str, ...]
    placeholders: tuple[str, ...]
    inserted: bool = False  # before foreign rules; False: after them

    def read(self, text: str) -> tuple[str, ...] | None:
        """Return the placeholders' values, one word each; None if the text does not match."""
        if not text.startswith(self.parts[0]):
            return None
        values = []
        rest = text[len(self.parts[0]) :]
        for part in self.parts[1:]:
            value, found, rest = rest.partition(part) if part else (rest, "nothing behind it", "")
            if not found or not value or " " in value:
                return None
            values.append(value)
        return None if rest else tuple(values)

    def format(self, value: str) -> str:
        """Return the rule with this value in its placeholders."""
        return value.join(self.parts)


class ValuePlace(Record):
    """Where a rule that is certainly ours has a value: after this option, in rules with this target."""

    table: str
    chain: str
    target: str
    option: str
    placeholder: str


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
    runs: tuple[tuple[str, str, tuple[str, ...]], ...]  # table, chain, rules
    value_places: tuple[ValuePlace, ...]
    anchors: tuple[Anchor, ...]

    def excluding(self, table: str, chain: str) -> list[RulePattern]:
        """Return a chain's patterns for excluded interfaces."""
        return [one for one in self.rules if (one.table, one.chain) == (table, chain) and EXCLUDED in one.placeholders]


Evidence = dict[str, set[str]]  # kind of placeholder -> values that our rules in both families confirm
Owned = dict[tuple[str, str], list[int]]  # (table, built-in chain) -> indexes of our rules


def find_confirmed(listings: Collection[Listing], patterns: LayoutPatterns) -> Evidence:
    """Return the values that the listings of all families confirm."""
    found: Evidence = {VIRTUAL: set(), EXCLUDED: set(), MARK: set()}
    for listing in listings:  # each table separately: a killed run may have changed only one of them
        for place in patterns.value_places:
            if place.table in listing:
                texts = _plain_rules(listing[place.table], place.chain)
                found[place.placeholder] |= {_word_after(text, place.option) for text in texts if target_of(text) == place.target}
        for anchor in patterns.anchors:
            if anchor.table in listing:
                found[EXCLUDED] |= _excluded(listing[anchor.table], anchor, patterns)
    return found


def owned_rules(listing: Listing, written: Written, listings: Collection[Listing], patterns: Callable[[], LayoutPatterns]) -> Owned:
    """Return the positions of our rules in one family's built-in chains; `listings`: all families; `patterns`: on demand."""
    owned: Owned = {}
    evidence: Evidence = {}
    for name, table in listing.items():
        present = holds_ours(table)
        for chain in BUILTIN_CHAINS:
            texts = _plain_rules(table, chain)
            if not texts:
                continue
            found = {index for index, text in enumerate(texts) if target_of(text) in OWNED_CHAINS}
            if present:
                wanted = _wanted(texts, written, name, chain, found)
                if len(found | wanted) < len(texts):
                    evidence = evidence or find_confirmed(listings, patterns())
                    found |= _match_patterns(name, chain, texts, evidence, patterns())
                    wanted = _wanted(texts, written, name, chain, found)
                found |= wanted
            if name == FILTER and len(found) < len(texts):  # the only table in which a layout has rules but no chain
                for _, _, run in [one for one in patterns().runs if one[:2] == (name, chain)]:
                    found |= _find_run(texts, run)
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


def target_of(text: str) -> str:
    """Return the chain or target of a listed rule; empty if it has none."""
    if '"' in text:  # quoted text is no option
        text = unquoted(text)
    for option in (" -j ", " -g "):
        _, found, rest = f" {text}".rpartition(option)
        if found:
            return rest.partition(" ")[0]
    return ""


def _plain_rules(table: ListedTable, chain: str) -> list[str]:
    return [without_comment(text) for text in table.rules.get(chain, ())]


def without_comment(text: str) -> str:
    """Return the rule without its comment."""
    before, found, rest = text.partition("-m comment --comment ")
    if not found:
        return text
    if rest.startswith('"'):
        end = 1
        while end < len(rest) and rest[end] != '"':
            end += 2 if rest[end] == "\\" else 1
        return before + rest[end + 2 :]
    return before + rest.partition(" ")[2]


def _excluded(table: ListedTable, anchor: Anchor, patterns: LayoutPatterns) -> set[str]:
    """Return interfaces excluded right before such a jump, and also in another chain."""
    found: set[str] = set()
    texts = _plain_rules(table, anchor.chain)
    ours = patterns.excluding(anchor.table, anchor.chain)
    elsewhere = [
        (pattern, frozenset(_plain_rules(table, pattern.chain)))
        for pattern in patterns.rules
        if pattern.table == anchor.table and pattern.chain != anchor.chain and EXCLUDED in pattern.placeholders
    ]
    for index, text in enumerate(texts):
        if target_of(text) not in anchor.chains:
            continue
        for before in reversed(texts[:index]):
            name = next((value for pattern in ours for value in pattern.read(before) or ()), "")
            if not name or not any(pattern.format(name) in confirming for pattern, confirming in elsewhere):
                break
            found.add(name)
    return found


def _match_patterns(table: str, chain: str, texts: list[str], evidence: Evidence, patterns: LayoutPatterns) -> set[int]:
    """Return the rules with a pattern and confirmed values; of equal ones for an interface, the first inserted or last appended."""
    found: set[int] = set()
    last = {text: index for index, text in enumerate(texts)}
    for pattern in [one for one in patterns.rules if (one.table, one.chain) == (table, chain)]:
        for index, text in enumerate(texts):
            values = pattern.read(text)
            if values and all(
                kind == OTHER or value in evidence[kind] for kind, value in zip(pattern.placeholders, values, strict=True)
            ):
                once = not {VIRTUAL, EXCLUDED}.isdisjoint(pattern.placeholders)
                found.add(index if not once else texts.index(text) if pattern.inserted else last[text])
    return found


def _wanted(texts: list[str], written: Written, table: str, chain: str, found: set[int]) -> set[int]:
    """Return the rules that the plan has here: the first ones that it inserts, the last that it appends."""
    planned = written.get(table, {})
    wanted = planned.get(chain)
    more: set[int] = set()
    if wanted and not OWNED_CHAINS.isdisjoint(planned):
        for number, text in enumerate(wanted.texts):
            places = [i for i, listed in enumerate(texts) if listed == without_comment(text) and i not in more]
            if places and not any(place in found for place in places):
                more.add(places[0] if number < wanted.inserted else places[-1])
    return more


def _find_run(texts: list[str], run: tuple[str, ...]) -> set[int]:
    for start in range(len(texts) - len(run) + 1):
        if tuple(texts[start : start + len(run)]) == run:
            return set(range(start, start + len(run)))
    return set()


def _word_after(text: str, option: str) -> str:
    before, found, rest = text.partition(option)
    if not found or (before and not before.endswith(" ")) or before.endswith("! "):
        return ""
    return rest.partition(" ")[0].partition("/")[0]
