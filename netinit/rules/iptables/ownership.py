"""Which rules in the kernel's own chains are ours, whatever options made them.

Rules in chains of our names are ours. In the built-in chains, which others use too, a rule is ours when it jumps to one
of our chains, when it is one that the plan has and our chains are there, or when it has the form that a layout gives
it and the values in it (interface, mark) are confirmed by other rules of ours. Everything else is left alone.

What the layouts' rules look like is not said here: it is read off them as they are rendered (netinit.rules.rule_patterns), where a
rule stands that neither jumps to our chains nor is in the plan.
"""

from __future__ import annotations

from netinit.base.records import Record
from netinit.rules.iptables.write import ListedTable, Listing, Written, unquoted
from netinit.rules.model import BUILTIN_CHAINS, FILTER, OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

EXCLUDED, VIRTUAL, MARK, OTHER = "an excluded interface", "an interface of a VM", "the mark", "another value"  # in holes


class Form(Record):
    """A rule of ours in a built-in chain, with holes where options put their values: the text around them, and what is in each."""

    table: str
    chain: str
    parts: tuple[str, ...]
    holes: tuple[str, ...]
    inserted: bool = False  # before foreign rules; else behind them

    def read(self, text: str) -> tuple[str, ...] | None:
        """The values that stand in the holes, a word each; None for a text of another form."""
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

    def spell(self, value: str) -> str:
        """The rule with this value in its holes."""
        return value.join(self.parts)


class Sign(Record):
    """Where a rule that is ours by its chain or by its jump names a value: behind this option, in rules with this target."""

    table: str
    chain: str
    target: str
    option: str
    hole: str


class Anchor(Record):
    """A built-in chain in which, whatever the options, the rules for excluded interfaces stand right before a jump of ours."""

    table: str
    chain: str
    chains: frozenset[str]  # of ours, to one of which the jump goes


class Forms(Record):
    """The forms of all rules in built-in chains that do not jump to a chain of ours (netinit.rules.rule_patterns renders them).

    `runs` are those of a table without a chain of ours, which nothing else confirms: all of them, in order. `signs` and
    `anchors` say which values are confirmed.
    """

    rules: tuple[Form, ...]
    runs: tuple[tuple[str, str, tuple[str, ...]], ...]  # table, chain, rules
    signs: tuple[Sign, ...]
    anchors: tuple[Anchor, ...]

    def excluding(self, table: str, chain: str) -> list[Form]:
        """The forms of a chain for excluded interfaces."""
        return [one for one in self.rules if (one.table, one.chain) == (table, chain) and EXCLUDED in one.holes]


Evidence = dict[str, set[str]]  # what is in a hole -> the values that our rules in both families confirm
Owned = dict[tuple[str, str], list[int]]  # (table, built-in chain) -> indexes of our rules


def gather(listings: Collection[Listing], forms: Forms) -> Evidence:
    """What the listings of all families confirm. An empty value, of a sign without its option, stands in no hole."""
    found: Evidence = {VIRTUAL: set(), EXCLUDED: set(), MARK: set()}
    for listing in listings:  # a table on its own, since a killed run may have changed one and not the other
        for sign in forms.signs:
            if sign.table in listing:
                texts = _plain_rules(listing[sign.table], sign.chain)
                found[sign.hole] |= {_word_after(text, sign.option) for text in texts if target_of(text) == sign.target}
        for anchor in forms.anchors:
            if anchor.table in listing:
                found[EXCLUDED] |= _excluded(listing[anchor.table], anchor, forms)
    return found


def owned_rules(listing: Listing, written: Written, listings: Collection[Listing], forms: Callable[[], Forms]) -> Owned:
    """The places of our rules in the built-in chains of one family; `listings` are those of all families, this one among them.

    `forms` are asked for where a rule stands that neither jumps to our chains nor is in the plan.
    """
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
                    evidence = evidence or gather(listings, forms())
                    found |= _of_our_forms(name, chain, texts, evidence, forms())
                    wanted = _wanted(texts, written, name, chain, found)
                found |= wanted
            if name == FILTER and len(found) < len(texts):  # the one table in which a layout has rules and no chain
                for _, _, run in [one for one in forms().runs if one[:2] == (name, chain)]:
                    found |= _find_run(texts, run)
            if found:
                owned[name, chain] = sorted(found)
    return owned


def keep_foreign_rules(owned: Owned, listing: Listing, before: Listing, owned_before: Owned) -> Owned:
    """`owned` without what was foreign before: foreign rules that equal ours stay as many as they were."""
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
    """Whether a table holds a chain of ours."""
    return not OWNED_CHAINS.isdisjoint(table.rules)


def holds_foreign_rules(listing: Listing, owned: Owned) -> bool:
    """Whether foreign rules are in the tables; empty tables are nobody's."""
    for name, table in listing.items():
        for chain, texts in table.rules.items():
            if chain in BUILTIN_CHAINS:
                if len(texts) > len(owned.get((name, chain), ())) or table.policies[chain] != "ACCEPT":
                    return True
            elif texts and chain not in OWNED_CHAINS:
                return True
    return False


def target_of(text: str) -> str:
    """The chain or target that a listed rule jumps or goes to; empty when it has none."""
    if '"' in text:  # what stands in quotes is no option
        text = unquoted(text)
    for option in (" -j ", " -g "):
        _, found, rest = f" {text}".rpartition(option)
        if found:
            return rest.partition(" ")[0]
    return ""


def _plain_rules(table: ListedTable, chain: str) -> list[str]:
    return [without_comment(text) for text in table.rules.get(chain, ())]


def without_comment(text: str) -> str:
    """The rule without its comment: comments change nothing that a rule does."""
    before, found, rest = text.partition("-m comment --comment ")
    if not found:
        return text
    if rest.startswith('"'):
        end = 1
        while end < len(rest) and rest[end] != '"':
            end += 2 if rest[end] == "\\" else 1
        return before + rest[end + 2 :]
    return before + rest.partition(" ")[2]


def _excluded(table: ListedTable, anchor: Anchor, forms: Forms) -> set[str]:
    """Interfaces that are excluded right before such a jump, and in another chain as well."""
    found: set[str] = set()
    texts = _plain_rules(table, anchor.chain)
    ours = forms.excluding(anchor.table, anchor.chain)
    elsewhere = [
        (form, frozenset(_plain_rules(table, form.chain)))
        for form in forms.rules
        if form.table == anchor.table and form.chain != anchor.chain and EXCLUDED in form.holes
    ]
    for index, text in enumerate(texts):
        if target_of(text) not in anchor.chains:
            continue
        for before in reversed(texts[:index]):
            name = next((value for form in ours for value in form.read(before) or ()), "")
            if not name or not any(form.spell(name) in confirming for form, confirming in elsewhere):
                break
            found.add(name)
    return found


def _of_our_forms(table: str, chain: str, texts: list[str], evidence: Evidence, forms: Forms) -> set[int]:
    """The rules of our forms with values that were confirmed.

    Of equal ones for an interface the first is ours where a layout inserts it, else the last; of others each.
    """
    found: set[int] = set()
    last = {text: index for index, text in enumerate(texts)}
    for form in [one for one in forms.rules if (one.table, one.chain) == (table, chain)]:
        for index, text in enumerate(texts):
            values = form.read(text)
            if values and all(hole == OTHER or value in evidence[hole] for hole, value in zip(form.holes, values, strict=True)):
                once = not {VIRTUAL, EXCLUDED}.isdisjoint(form.holes)
                found.add(index if not once else texts.index(text) if form.inserted else last[text])
    return found


def _wanted(texts: list[str], written: Written, table: str, chain: str, found: set[int]) -> set[int]:
    """Rules that the plan has and that stand there: the first ones for what it inserts, the last for what it appends.

    A plan that has no chain in the table does not confirm single rules by the chains that are there, which are another plan's.
    """
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
