"""Write the kernel's rules as iptables lists them.

The pod chooses names of interfaces, chains and sets: a name that could be mistaken is quoted. What is not understood is
in brackets, so that it never equals a planned rule.
"""

from __future__ import annotations

from struct import unpack_from

from netinit.base.sanitize import quote_words
from netinit.rules.foreign_targets import ForeignTarget, Several
from netinit.rules.iptables.write import KNOWN_TABLES, DecodedRule, ListedTable, unfold_rule
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.rules.matches.packet import InterfaceMatch
from netinit.rules.model import BUILTIN_CHAINS, LiveChain, LiveRule, Rule
from netinit.rules.targets import Jump
from netinit.rules.xtables.decoded_tables import decode_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from netinit.base.net import Family
    from netinit.base.snapshot import Snapshot
    from netinit.rules.iptables.write import Listing
    from netinit.rules.matches import Match
    from netinit.rules.targets import Target

SET_MATCH, SET_INVERTED, MAX_DIMENSIONS = "set", 1, 6  # struct xt_set_info_match_v1 and later
PLAIN_MARKS = frozenset("+-_.:/@")
OF_TARGET = frozenset("_-")


def decode_tables(snapshot: Snapshot, family: Family, *, legacy: bool) -> dict[str, tuple[LiveChain, ...]]:
    """Return a snapshot's iptables tables, of nf_tables or legacy. Raises ValueError for invalid legacy tables."""
    if legacy:
        return {table.name: decode_table(table) for table in snapshot.legacy if table.version == family.version}
    from netinit.rules.expressions.rule_reader import LiveTables  # not for legacy tables

    live = LiveTables(snapshot)
    return {name: live.chains(family.number, name) for name in live.names(family.number) if name in KNOWN_TABLES}


def list_snapshot(snapshot: Snapshot, family: Family, *, legacy: bool) -> Listing:
    """Return a snapshot's iptables tables in the words of iptables. Raises ValueError for invalid legacy tables."""
    sets = dict(snapshot.address_sets)
    return {
        name: ListedTable(
            policies={one.name: one.policy if one.policy and one.name in BUILTIN_CHAINS else "-" for one in chains},
            rules={one.name: [_write(rule, family, sets) for rule in one.rules] for one in chains},
        )
        for name, chains in decode_tables(snapshot, family, legacy=legacy).items()
    }


def _write(live: LiveRule, family: Family, sets: Mapping[int, str]) -> DecodedRule:
    texts = [write_live(name_sets(rule, sets), family) for rule in live.rules]
    return texts[0] if len(texts) == 1 else _join(texts, family)


def write_live(rule: Rule, family: Family) -> DecodedRule:
    """Write a decoded rule in iptables syntax."""
    shown = rule.replace(matches=tuple([_show_match(one) for one in rule.matches]), target=_show_target(rule.target))
    first, *more = unfold_rule(shown, family, comments=bool(rule.comment))
    # nf_tables has lists where iptables has single values
    return DecodedRule(_join_alternatives(shown, family) if more else first.text, rule)


def _join_alternatives(rule: Rule, family: Family) -> str:
    words: list[str] = []
    for match in rule.matches:
        protocol = f"-p {match.protocol}"
        words += [protocol] if match.protocol and protocol not in words else []
        joint = " " if getattr(match, "negated", False) else " | "  # of a negated list each has to hold
        words.append(joint.join([one.xt() if one else "" for one in match.each()]))
    target = rule.target.xt(family)
    return " ".join([word for word in (*words, f"{rule.target.option} {target}" if target else "") if word])


def name_sets(rule: Rule, sets: Mapping[int, str]) -> Rule:
    """Return the rule with the names of its address sets; the kernel stores ids."""
    return rule.replace(matches=tuple([_name_set(one, sets) for one in rule.matches])) if sets else rule


def _name_set(match: Match, sets: Mapping[int, str]) -> Match:
    if not (isinstance(match, UnknownMatch) and match.kept):
        return match
    module, revision, info = match.kept
    if module != SET_MATCH or not revision or len(info) < 4:  # noqa: PLR2004 - struct xt_set_info
        return match
    number, dimensions, flags = unpack_from("=HBB", info)
    if number not in sets or not 0 < dimensions <= MAX_DIMENSIONS or info[4:].strip(b"\0"):
        return match
    sides = ",".join(["src" if flags >> one & 1 else "dst" for one in range(1, dimensions + 1)])
    negation = "! " if flags & SET_INVERTED else ""
    return UnknownMatch(text=f"-m set {negation}--match-set {_quote_name(sets[number])} {sides}")


def _show_match(match: Match) -> Match:
    if isinstance(match, UnknownMatch | InSet):
        if not match.kept and match.text.startswith("-m set "):
            return match
        return UnknownMatch(text=f"{_bare(match.text)} [...]" if match.kept else f"[{_bare(match.text)}]")
    if isinstance(match, InterfaceMatch):
        return match.replace(names=tuple([_quote_name(one) for one in match.names]))
    return match


def _show_target(target: Target) -> Target:
    if isinstance(target, Jump):
        return target.replace(chain=_quote_name(target.chain))
    if isinstance(target, ForeignTarget) and target.text:
        plain = all(letter.isalnum() or letter in OF_TARGET for letter in target.text)
        return target.replace(text=f"{target.text} [...]" if plain else f"[{_bare(target.text)}]")
    if isinstance(target, Several):
        return target.replace(targets=tuple([_show_target(one) for one in target.targets]))
    return target


def _quote_name(name: str) -> str:
    """Quote a name that could be mistaken for syntax."""
    plain = name and name.isascii() and all(letter.isalnum() or letter in PLAIN_MARKS for letter in name) and name[0] != "-"
    return name if plain else quote_words(name)


def _bare(text: str) -> str:
    """Replace characters that could end the text."""
    return "".join([letter if letter.isprintable() and letter not in "\"'\\" else "?" for letter in text])


def _join(rules: list[DecodedRule], family: Family) -> DecodedRule:
    """Write an nf_tables rule that is several iptables rules, or none of this family."""
    text = f"[{'; '.join(map(_bare, rules)) or 'never'}]"
    targets = tuple(dict.fromkeys([one.rule.target for one in rules]))
    rule = Rule(matches=(UnknownMatch(text=text),), target=Several(targets=targets), families=(family,))
    return DecodedRule(text, rule)
