"""Which rules in the kernel's own chains are ours, whatever options made them.

Rules in chains of our names are ours. In the built-in chains, which others use too, a rule is ours when it jumps to one
of our chains, when it is one that the plan has and our chains are there, or when it has the form that a layout gives
it and the values in it (interface, mark) are confirmed by other rules of ours. Everything else is left alone.
"""

from __future__ import annotations

from netinit.base.records import Record
from netinit.rules.iptables.write import ListedTable, Listing, Written, unquoted
from netinit.rules.model import BUILTIN_CHAINS, FILTER, ISTIO_OUTPUT, MANGLE, NAT, OUTPUT, OWNED_CHAINS, PREROUTING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

EXCLUDED, VIRTUAL, MARK, OTHER = "an excluded interface", "an interface of a VM", "the mark", "another value"  # in holes


class Form(Record):
    """A rule of ours in a built-in chain, with holes where options put their values: the text around them, and what is in each."""

    table: str
    chain: str
    parts: tuple[str, ...]
    holes: tuple[str, ...]

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


class Forms(Record):
    """The forms of all rules in built-in chains that do not jump to a chain of ours (netinit.rules.forms renders them).

    `runs` are those of a table without a chain of ours, which nothing else confirms: all of them, in order.
    """

    rules: tuple[Form, ...]
    runs: tuple[tuple[str, str, tuple[str, ...]], ...]  # table, chain, rules

    def of(self, table: str, chain: str, *holes: str) -> list[Form]:
        """The forms of a chain that have one of these holes."""
        own = [form for form in self.rules if (form.table, form.chain) == (table, chain)]
        return [form for form in own if not set(holes).isdisjoint(form.holes)]


class Evidence(Record):
    """Values that our rules in both families confirm."""

    virtual: frozenset[str]  # interfaces of VMs behind the pod
    excluded: frozenset[str]  # interfaces that are not captured
    marks: frozenset[str]  # hexadecimal, as listed


Owned = dict[tuple[str, str], list[int]]  # (table, built-in chain) -> indexes of our rules


def gather(listings: Iterable[Listing], forms: Callable[[], Forms]) -> Evidence:
    """What the listings of all families confirm. `forms` are asked for where there is something to compare with them."""
    virtual: set[str] = set()
    excluded: set[str] = set()
    marks: set[str] = set()
    for listing in listings:
        nat, mangle = listing.get(NAT), listing.get(MANGLE)
        if nat:
            prerouting, output = _plain_rules(nat, PREROUTING), _plain_rules(nat, OUTPUT)
            virtual |= {_word_after(text, "-i ") for text in prerouting if text.endswith("-j ISTIO_REDIRECT")}
            excluded |= _excluded(NAT, (OUTPUT, output), {ISTIO_OUTPUT}, (PREROUTING, prerouting), forms)
        if mangle:  # on its own, since a killed run may have changed one table and not the other
            prerouting, output = _plain_rules(mangle, PREROUTING), _plain_rules(mangle, OUTPUT)
            # Before any jump of ours: --drop-invalid has one that comes first.
            excluded |= _excluded(MANGLE, (PREROUTING, prerouting), OWNED_CHAINS, (OUTPUT, output), forms)
            for chain in OWNED_CHAINS & set(mangle.rules):
                marks |= {
                    _word_after(text, option)
                    for text in mangle.rules[chain]
                    for option in ("--set-xmark ", "--tproxy-mark ", "-m mark --mark ")
                }
    return Evidence(virtual=frozenset(virtual - {""}), excluded=frozenset(excluded), marks=frozenset(marks - {""}))


def owned_rules(listing: Listing, written: Written, evidence: Evidence, forms: Callable[[], Forms]) -> Owned:
    """The places of our rules in the built-in chains of one family. `forms` as in `gather`."""
    owned: Owned = {}
    for name, table in listing.items():
        present = holds_ours(table)
        for chain in BUILTIN_CHAINS:
            texts = _plain_rules(table, chain)
            if not texts:
                continue
            found = {index for index, text in enumerate(texts) if target_of(text) in OWNED_CHAINS}
            if present:
                wanted = _wanted(texts, written, name, chain, found)
                if len(found | wanted) < len(texts):  # else the plan explains them all, and forms need not be rendered
                    found |= _of_our_forms(name, chain, texts, evidence, forms())
                    wanted = _wanted(texts, written, name, chain, found)
                found |= wanted
            if not present and name == FILTER:
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
            elif chain not in OWNED_CHAINS:
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


def _excluded(
    table: str,
    jumping: tuple[str, list[str]],
    chains: AbstractSet[str],
    confirming: tuple[str, list[str]],
    forms: Callable[[], Forms],
) -> set[str]:
    """Interfaces that are excluded right before a jump to those chains of ours, and that the other chain excludes as well."""
    found: set[str] = set()
    chain, texts = jumping
    for index, text in enumerate(texts):
        if target_of(text) not in chains:
            continue
        for before in reversed(texts[:index]):
            names = [form.read(before) or ("",) for form in forms().of(table, chain, EXCLUDED)]
            (name,) = next((one for one in names if one != ("",)), ("",))
            if not name or not any(form.spell(name) in confirming[1] for form in forms().of(table, confirming[0], EXCLUDED)):
                break
            found.add(name)
    return found


def _of_our_forms(table: str, chain: str, texts: list[str], evidence: Evidence, forms: Forms) -> set[int]:
    """The rules of our forms with values that were confirmed.

    Of equal ones for an interface of a VM the first is ours, for an excluded interface the last, of others each.
    """
    found: set[int] = set()
    last = {text: index for index, text in enumerate(texts)}
    for form in forms.of(table, chain, VIRTUAL):
        found |= {texts.index(text) for text in [form.spell(name) for name in evidence.virtual] if text in last}
    for form in forms.of(table, chain, EXCLUDED):
        found |= {last[text] for text in [form.spell(name) for name in evidence.excluded] if text in last}
    for form in forms.of(table, chain, MARK, OTHER):
        for index, text in enumerate(texts):
            values = form.read(text)
            if values and all(hole != MARK or value in evidence.marks for hole, value in zip(form.holes, values, strict=True)):
                found.add(index)
    return found


def _wanted(texts: list[str], written: Written, table: str, chain: str, found: set[int]) -> set[int]:
    """Rules that the plan has and that stand there: the first ones for what it inserts, the last for what it appends."""
    wanted = written.get(table, {}).get(chain)
    more: set[int] = set()
    if wanted:
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
