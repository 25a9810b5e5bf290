"""Write rules as iptables-save lists them. Texts contain only addresses, ports, ids and validated names."""

from __future__ import annotations

from netinit.base.net import Family
from netinit.base.records import Record
from netinit.base.sanitize import escape, quote_words
from netinit.rules.matches import PROTOCOL, Match
from netinit.rules.matches.packet import Protocol, drop_implied_protocols
from netinit.rules.model import BUILTIN_CHAINS, MISSING, TABLES, Difference, Plan, Rule
from netinit.rules.targets import Jump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    One = TypeVar("One")

KNOWN_TABLES = frozenset((*TABLES, "security"))


class WrittenRule(Record):
    """A rule as iptables-save lists it, without `-A CHAIN`, and its planned rule."""

    text: str
    rule: Rule


class WrittenChain(Record):
    """A chain's rules in order. In built-in chains the first `inserted` come before foreign ones."""

    rules: tuple[WrittenRule, ...]
    inserted: int = 0

    @property
    def texts(self) -> list[str]:
        """The rules' texts."""
        return [written.text for written in self.rules]


Written = dict[str, dict[str, WrittenChain]]  # table -> chain -> rules


class HeldRule(str):
    """A rule in the kernel: its text, and its decoded meaning, which the text may not show completely."""

    __slots__ = ("packets", "rule")
    rule: Rule
    packets: int | None

    def __new__(cls, text: str, rule: Rule, packets: int | None) -> HeldRule:  # noqa: PYI034 - not subclassed
        """Create the text with its decoded rule."""
        made = super().__new__(cls, text)
        made.rule, made.packets = rule, packets
        return made


class ListedTable(Record):
    """A table of a listing: chains in order, built-in ones with their policy (others: `-`)."""

    policies: dict[str, str]
    rules: dict[str, list[str]]

    @property
    def holds_rules(self) -> bool:
        """Whether it has a rule, or a policy other than ACCEPT."""
        return any(self.rules.values()) or not {"ACCEPT", "-"}.issuperset(self.policies.values())


Listing = dict[str, ListedTable]  # table name -> table


def write_plan(plan: Plan, family: Family, *, comments: bool = False) -> Written:
    """Write a family's rules by table and chain, as iptables-save lists them."""
    written: Written = {}
    for table in plan.tables:
        chains: dict[str, WrittenChain] = {}
        jumped_to: dict[str, None] = {}
        for chain in table.chains:
            head = list(_write_rules(chain.inserted, family, comments))
            tail = list(_write_rules(chain.rules, family, comments))
            jumped_to.update({w.rule.target.chain: None for w in head + tail if isinstance(w.rule.target, Jump)})
            chains[chain.name] = WrittenChain(rules=tuple(head + tail), inserted=len(head))
        kept = {name: chain for name, chain in chains.items() if chain.rules or name in jumped_to}
        if kept:
            written[table.name] = kept
    return written


def _write_rules(rules: Iterable[Rule], family: Family, comments: bool) -> Iterator[WrittenRule]:
    for text, rule in _expand(rules, family, lambda rule: write_rule(rule, family, comments=comments)):
        yield WrittenRule(text=text, rule=rule)


def _expand(rules: Iterable[Rule], family: Family, each: Callable[[Rule], list[One]]) -> Iterator[tuple[One, Rule]]:
    """Yield `each` rule's results in listing order; paired rules take turns."""
    waiting: list[tuple[Rule, list[One]]] = []  # paired rules, until the one that closes the pair
    for rule in rules:
        if family not in rule.families:
            continue
        waiting.append((rule, each(rule)))
        if rule.paired:
            continue
        for alternatives in zip(*[found for _, found in waiting], strict=True):
            for (source, _), one in zip(waiting, alternatives, strict=True):
                yield one, source
        waiting = []


def write_rule(rule: Rule, family: Family, *, comments: bool = False) -> list[str]:
    """Write a rule: one text for each combination of its lists' elements."""
    words = [match.xt() for match in _order_matches(rule.matches)]
    if comments:
        words.append((f"-m comment --comment {quote_words(rule.comment)}",))
    texts = [""]
    for alternatives in words:
        if len(texts) == 1 and len(alternatives) > 1:  # fast path for lists of thousands
            texts = [f"{texts[0]}{alternative} " if alternative else texts[0] for alternative in alternatives]
        else:
            texts = [_append(text, alternative) for text in texts for alternative in alternatives]
    target = rule.target.xt(family)
    if not target:
        return [text.rstrip() for text in texts]
    ending = f"{rule.target.option} {target}"
    return [text + ending for text in texts]


def encode_each(
    plan: Plan, family: Family, encode: Callable[[tuple[Match, ...], Rule], One]
) -> dict[str, dict[str, tuple[One, ...]]]:
    """Return, by table and chain, what `encode` makes of each iptables rule's matches and planned rule."""
    return {
        table.name: {
            chain.name: tuple([
                encode(matches, rule) for matches, rule in _expand((*chain.inserted, *chain.rules), family, unfold_rule)
            ])
            for chain in table.chains
        }
        for table in plan.tables
    }


def list_rules(plan: Plan, family: Family) -> dict[str, dict[str, tuple[Rule, ...]]]:
    """Return a family's rules by table and chain, as they are parsed from `write_plan`."""
    return encode_each(
        plan, family, lambda matches, rule: Rule(matches=drop_implied_protocols(matches), target=rule.target, families=(family,))
    )


def unfold_rule(rule: Rule) -> list[tuple[Match, ...]]:
    """Return the matches of each iptables rule that a rule stands for, in the order of listing."""
    found: list[tuple[Match, ...]] = [()]
    for match in _order_matches(rule.matches):
        found = [(*before, one) if one else before for before in found for one in match.each()]
    return found


def _order_matches(matches: tuple[Match, ...]) -> list[Match]:
    """Return the matches, and the protocol that they imply, in iptables' order: extensions as they stand."""
    protocol = next((match.protocol for match in matches if match.protocol), "")
    implied = [Protocol(name=protocol)] if protocol and not any(match.place == PROTOCOL for match in matches) else []
    return sorted([*matches, *implied], key=lambda match: match.place)


def take_module(rest: list[Match]) -> list[Match]:
    """Remove and return the next match, with those after it that belong to the same module tcp."""
    taken = [rest.pop(0)]
    while rest and _is_tcp(taken[-1]) and _is_tcp(rest[0]):
        taken.append(rest.pop(0))
    return taken


def _is_tcp(match: Match) -> bool:
    if isinstance(match, Protocol):
        return match.module and match.name == "tcp"
    return match.protocol == "tcp" and match.header_fields is not None


def _append(text: str, alternative: str) -> str:
    """Append a match; options of one module follow one `-m`."""
    if alternative.startswith("-m tcp ") and text.rpartition("-m ")[2].startswith("tcp "):
        alternative = alternative.removeprefix("-m tcp ")
    return f"{text}{alternative} " if alternative else text


def render_restore(written: Written) -> str:
    """Return input for iptables-restore --noflush, for a namespace without rules of ours."""
    return _render(written, _commands)


def _render(written: Written, commands: Callable[[dict[str, WrittenChain]], Iterable[tuple[str, str]]]) -> str:
    lines = []
    for table, chains in written.items():
        lines += [f"*{table}", *[f":{chain} - [0:0]" for chain in chains if chain not in BUILTIN_CHAINS]]
        lines += [f"{command} {text}" for command, text in commands(chains)]
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


def render_listing(written: Written) -> str:
    """Return the rules as iptables-save lists them, without policies of built-in chains."""
    return _render(written, lambda chains: [(f"-A {name}", text) for name, chain in chains.items() for text in chain.texts])


def show_listing(listing: Listing) -> str:
    """Format a listing for people, one line for each rule."""
    lines = []
    for name, table in listing.items():
        lines.append(f"*{name}")
        lines += [f":{chain} {table.policies.get(chain, '-')} [0:0]" for chain in table.rules]
        lines += [f"-A {chain} {text}".rstrip() for chain, texts in table.rules.items() for text in texts]
        lines.append("COMMIT")
    return "".join([escape(line) + "\n" for line in lines])


def render_commands(written: Written, family: Family) -> list[str]:
    """Return the rules as shell commands."""
    lines = []
    for table, chains in written.items():
        lines += [f"{family.program} -t {table} -N {chain}" for chain in chains if chain not in BUILTIN_CHAINS]
        lines += [f"{family.program} -t {table} {command} {text}" for command, text in _commands(chains)]
    return lines


def _commands(chains: dict[str, WrittenChain]) -> Iterator[tuple[str, str]]:
    for name, chain in chains.items():
        for position, written in enumerate(chain.rules, 1):
            yield (f"-I {name} {position}" if position <= chain.inserted else f"-A {name}"), written.text
