"""Write rules as iptables-save lists them. Texts contain only addresses, ports, ids and validated names."""

from __future__ import annotations

from netinit.base.net import Family
from netinit.base.records import Record
from netinit.base.sanitize import quote_words
from netinit.rules.matches import PROTOCOL, Match
from netinit.rules.matches.packet import Protocol, drop_implied_protocols
from netinit.rules.model import BUILTIN_CHAINS, MISSING, TABLES, Difference, Plan, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    One = TypeVar("One")

KNOWN_TABLES = frozenset((*TABLES, "security"))


class WrittenRule(Record):
    """One rule of iptables: its matches, its comment, its text as in iptables-save without `-A CHAIN`, and the planned rule."""

    matches: tuple[Match, ...]
    comment: str
    text: str
    rule: Rule

    def listed(self, family: Family) -> Rule:
        """Return the rule as it is parsed from its text."""
        return Rule(matches=drop_implied_protocols(self.matches), target=self.rule.target, families=(family,))


class WrittenChain(Record):
    """A chain's rules in order. In built-in chains the first `inserted` come before foreign ones."""

    rules: tuple[WrittenRule, ...]
    inserted: int = 0

    @property
    def texts(self) -> list[str]:
        """The rules' texts."""
        return [written.text for written in self.rules]

    @property
    def placed(self) -> Placed:
        """The rules with their positions."""
        return [(number if number <= self.inserted else 0, one.text) for number, one in enumerate(self.rules, 1)]


Placed = list[tuple[int, str]]  # position in a chain (0: at its end) and rule
Written = dict[str, dict[str, WrittenChain]]  # table -> chain -> rules


class DecodedRule(str):
    """A rule in the kernel: its text, and its decoded meaning, which the text may not show completely."""

    __slots__ = ("rule",)
    rule: Rule

    def __new__(cls, text: str, rule: Rule) -> DecodedRule:  # noqa: PYI034 - not subclassed
        """Create the text with its decoded rule."""
        made = super().__new__(cls, text)
        made.rule = rule
        return made


class ListedTable(Record):
    """A table of a listing: chains in order, built-in ones with their policy (others: `-`)."""

    policies: dict[str, str]
    rules: dict[str, list[str]]


Listing = dict[str, ListedTable]  # table name -> table


def write_plan(plan: Plan, family: Family, *, comments: bool = False) -> Written:
    """Write a family's rules by table and chain, as iptables-save lists them."""
    written: Written = {}
    for table in plan.tables:
        chains: dict[str, WrittenChain] = {}
        for chain in table.chains:
            head, tail = (tuple(_write_rules(rules, family, comments)) for rules in (chain.inserted, chain.rules))
            chains[chain.name] = WrittenChain(rules=head + tail, inserted=len(head))
        called = {one.rule.target.calls for chain in chains.values() for one in chain.rules}
        if kept := {name: chain for name, chain in chains.items() if chain.rules or name in called}:
            written[table.name] = kept
    return written


def encode_each(written: Written, encode: Callable[[WrittenRule], One]) -> dict[tuple[str, str], tuple[One, ...]]:
    """Return what `encode` makes of each rule, by table and chain, without empty chains."""
    return {
        (table, name): tuple(map(encode, chain.rules))
        for table, chains in written.items()
        for name, chain in chains.items()
        if chain.rules
    }


def _write_rules(rules: Iterable[Rule], family: Family, comments: bool) -> Iterator[WrittenRule]:
    """Yield the rules of iptables in listing order; those of paired rules take turns."""
    waiting: list[list[WrittenRule]] = []  # of paired rules, until the one that closes the pair
    for rule in rules:
        if family not in rule.families:
            continue
        waiting.append(unfold_rule(rule, family, comments=comments))
        if not rule.paired:
            for alternatives in zip(*waiting, strict=True):
                yield from alternatives
            waiting = []


def write_rule(rule: Rule, family: Family) -> list[str]:
    """Return the texts of the rules of iptables that a rule stands for."""
    return [one.text for one in unfold_rule(rule, family)]


def unfold_rule(rule: Rule, family: Family, *, comments: bool = False) -> list[WrittenRule]:
    """Return the rules of iptables that a rule stands for: one for each combination of its lists' elements."""
    found: list[tuple[Match, ...]] = [()]
    for match in _order_matches(rule.matches):
        found = [(*before, one) if one else before for before in found for one in match.each()]
    target, comment = rule.target.xt(family), rule.comment if comments else ""
    ending = f"-m comment --comment {quote_words(comment)} " if comments else ""
    ending += f"{rule.target.option} {target}" if target else ""
    return [
        WrittenRule(matches=matches, comment=comment, text=(_write_matches(matches) + ending).rstrip(), rule=rule) for matches in found
    ]


def _write_matches(matches: tuple[Match, ...]) -> str:
    text = ""
    for match in matches:
        more = match.xt()
        if more.startswith("-m tcp ") and text.rpartition("-m ")[2].startswith("tcp "):  # options of one module follow one `-m`
            more = more.removeprefix("-m tcp ")
        text += f"{more} "
    return text


def _order_matches(matches: tuple[Match, ...]) -> list[Match]:
    """Return the matches, and the protocol that they imply, in iptables' order: extensions as they stand."""
    protocol = next((match.protocol for match in matches if match.protocol), "")
    implied = [Protocol(name=protocol)] if protocol and not any(match.place == PROTOCOL for match in matches) else []
    return sorted([*matches, *implied], key=lambda match: match.place)


def split_modules(matches: Iterable[Match]) -> Iterator[list[Match]]:
    """Yield the matches of each module, neighbours of tcp together; the protocol only where nothing else loads its module."""
    modules: list[list[Match]] = []
    joins = False
    for match in [one for one in matches if one.place >= PROTOCOL]:
        is_tcp = _is_tcp(match)
        if joins and is_tcp:
            modules[-1].append(match)
        else:
            modules.append([match])
        joins = is_tcp
    for module in modules:
        if asked := [one for one in module if not isinstance(one, Protocol)] or [one for one in module if getattr(one, "module", "")]:
            yield asked


def _is_tcp(match: Match) -> bool:
    if isinstance(match, Protocol):
        return match.module and match.name == "tcp"
    return match.protocol == "tcp" and match.header_fields is not None


def add_rules(chain: str, placed: Placed) -> list[str]:
    """Return the commands that add rules to a chain."""
    return [f"-I {chain} {position} {text}" if position else f"-A {chain} {text}" for position, text in placed]


def render_restore(written: Written) -> str:
    """Return input for iptables-restore --noflush, for a namespace without rules of ours."""
    return _render(written, lambda name, chain: add_rules(name, chain.placed))


def render_listing(written: Written) -> str:
    """Return the rules as iptables-save lists them, without policies of built-in chains."""
    return _render(written, lambda name, chain: [f"-A {name} {text}" for text in chain.texts])


def _render(written: Written, lines_of: Callable[[str, WrittenChain], list[str]]) -> str:
    lines = []
    for table, chains in written.items():
        lines += [f"*{table}", *[f":{chain} - [0:0]" for chain in chains if chain not in BUILTIN_CHAINS]]
        lines += [line for name, chain in chains.items() for line in lines_of(name, chain)]
        lines.append("COMMIT")
    return "".join([line + "\n" for line in lines])


def miss_all(written: Written, family: Family) -> Iterator[Difference]:
    """Yield the differences of a namespace without rules."""
    for table, chains in written.items():
        for chain, planned in chains.items():
            yield from miss_chain(table, chain, planned, family)


def miss_chain(table: str, chain: str, planned: WrittenChain, family: Family) -> Iterator[Difference]:
    """Yield the differences of a missing chain."""
    if chain not in BUILTIN_CHAINS:
        yield Difference(kind=MISSING, where=family.name, table=table, chain=chain)
    for number, written in enumerate(planned.rules, 1):
        yield Difference(
            kind=MISSING, where=family.name, table=table, chain=chain, number=number, rule=written.text,
            purpose=written.rule.comment, origin=written.rule.origin_label,
        )  # fmt: skip
