"""Which rules in the kernel's own chains are ours, whatever options made them.

Rules in chains of our names are ours. In the built-in chains, which others use too, a rule is ours when it jumps to one
of our chains, when it is one that the plan has and our chains are there, or when it has the form that a layout gives
it and the values in it (interface, mark) are confirmed by other rules of ours. Everything else is left alone.
"""

from __future__ import annotations

from netinit.base.records import Record
from netinit.rules.iptables.write import ListedTable, Listing, Written, unquoted
from netinit.rules.model import BUILTIN_CHAINS, FILTER, INPUT, MANGLE, NAT, OUTPUT, OWNED_CHAINS, PREROUTING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

LOOP_MARK = "0x53a"
FULL_MASKS = "--nfmask 0xffffffff --ctmask 0xffffffff"
REFUSAL_OF_IPV6 = [  # the classic layout's, see layouts/classic.py
    "-m state --state ESTABLISHED -j ACCEPT",
    "-d ::1/128 -i lo -j ACCEPT",
    "-j REJECT --reject-with icmp6-port-unreachable",
]


class Evidence(Record):
    """Values that our rules in both families confirm."""

    virtual: frozenset[str]  # interfaces of VMs behind the pod
    excluded: frozenset[str]  # interfaces that are not captured
    marks: frozenset[str]  # hexadecimal, as listed


Owned = dict[tuple[str, str], list[int]]  # (table, built-in chain) -> indexes of our rules


def gather(listings: Iterable[Listing]) -> Evidence:
    """What the listings of all families confirm."""
    virtual: set[str] = set()
    excluded: set[str] = set()
    marks: set[str] = set()
    for listing in listings:
        nat, mangle = listing.get(NAT), listing.get(MANGLE)
        if nat:
            prerouting, output = _plain_rules(nat, PREROUTING), _plain_rules(nat, OUTPUT)
            virtual |= {_word_after(text, "-i ") for text in prerouting if text.endswith("-j ISTIO_REDIRECT")}
            excluded |= _excluded(output, {"ISTIO_OUTPUT"}, "-o", prerouting, "-i")
        if mangle:  # on its own, since a killed run may have changed one table and not the other
            prerouting, output = _plain_rules(mangle, PREROUTING), _plain_rules(mangle, OUTPUT)
            excluded |= _excluded(prerouting, OWNED_CHAINS, "-i", output, "-o")  # --drop-invalid jumps there first
            for chain in OWNED_CHAINS & set(mangle.rules):
                marks |= {
                    _word_after(text, option)
                    for text in mangle.rules[chain]
                    for option in ("--set-xmark ", "--tproxy-mark ", "-m mark --mark ")
                }
    return Evidence(virtual=frozenset(virtual - {""}), excluded=frozenset(excluded), marks=frozenset(marks - {""}))


def owned_rules(listing: Listing, written: Written, evidence: Evidence) -> Owned:
    """The places of our rules in the built-in chains of one family."""
    owned: Owned = {}
    for name, table in listing.items():
        present = holds_ours(table)
        for chain in BUILTIN_CHAINS:
            texts = _plain_rules(table, chain)
            if not texts:
                continue
            found = {index for index, text in enumerate(texts) if target_of(text) in OWNED_CHAINS}
            if present:
                found |= _sparing(name, chain, texts, evidence)
                found |= {index for index, text in enumerate(texts) if _has_our_form(name, chain, text, evidence)}
                found |= _wanted(texts, written, name, chain, found)
            if name == FILTER and chain == INPUT:
                found |= _find_run(texts, REFUSAL_OF_IPV6)
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


def _excluded(jumping: list[str], chains: AbstractSet[str], option: str, confirming: list[str], other: str) -> set[str]:
    """Interfaces X of `OPTION X -j RETURN` right before a jump to those chains of ours that another chain excludes as well."""
    found = set()
    for index, text in enumerate(jumping):
        if target_of(text) not in chains:
            continue
        for before in reversed(jumping[:index]):
            name = _word_after(before, f"{option} ")
            if before != f"{option} {name} -j RETURN" or f"{other} {name} -j RETURN" not in confirming:
                break
            found.add(name)
    return found


def _sparing(table: str, chain: str, texts: list[str], evidence: Evidence) -> set[int]:
    """Our rules that exclude interfaces: virtual ones stand before equal foreign rules, excluded ones behind."""
    if table not in (NAT, MANGLE) or chain not in (PREROUTING, OUTPUT):
        return set()
    option = "-i" if chain == PREROUTING else "-o"
    excluded = [f"{option} {name} -j RETURN" for name in evidence.excluded]
    virtual = [f"-i {name} -j RETURN" for name in evidence.virtual] if (table, chain) == (NAT, PREROUTING) else []
    last = {text: index for index, text in enumerate(texts)}
    return {texts.index(text) for text in virtual if text in last} | {last[text] for text in excluded if text in last}


def _has_our_form(table: str, chain: str, text: str, evidence: Evidence) -> bool:
    if table != MANGLE or chain not in (PREROUTING, OUTPUT):
        return False
    if chain == OUTPUT and text.endswith(f" -j MARK --set-xmark {LOOP_MARK}/0xffffffff"):
        return " -o lo -p tcp -m owner --" in text and text.startswith("! -d ")
    return any(
        text == form
        for mark in evidence.marks
        for form in (
            f"-p tcp -m mark --mark {mark} -j CONNMARK --save-mark {FULL_MASKS}",
            f"-o lo -p tcp -m mark --mark {mark} -j RETURN",
            f"-p tcp -m connmark --mark {mark} -j CONNMARK --restore-mark {FULL_MASKS}",
        )
    )


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


def _find_run(texts: list[str], run: list[str]) -> set[int]:
    for start in range(len(texts) - len(run) + 1):
        if texts[start : start + len(run)] == run:
            return set(range(start, start + len(run)))
    return set()


def _word_after(text: str, option: str) -> str:
    before, found, rest = text.partition(option)
    if not found or (before and not before.endswith(" ")) or before.endswith("! "):
        return ""
    return rest.partition(" ")[0].partition("/")[0]
