"""Rulesets in the dialect of iptables: a plan written as iptables-save lists it, and listings taken apart.

The kernel's spelling is the same for iptables-nft and iptables-legacy, so a plan written in it can be compared with a
listing line by line. Nothing in here comes from a user as text: addresses, ports, ids and checked names only.
"""

from __future__ import annotations

from netinit.base.errors import ParseError
from netinit.base.net import Family
from netinit.base.records import Record
from netinit.rules.matches import PROTOCOL, XtMatch
from netinit.rules.model import BUILTIN_CHAINS, Plan, Rule
from netinit.rules.targets import Jump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class WrittenRule(Record):
    """A rule as iptables-save lists it, without `-A CHAIN`, and the planned rule that it came from."""

    text: str
    rule: Rule


class WrittenChain(Record):
    """A chain's rules in the kernel's order. In built-in chains the first `inserted` stand before those of others."""

    rules: tuple[WrittenRule, ...]
    inserted: int = 0

    @property
    def texts(self) -> list[str]:
        """The rules' texts."""
        return [written.text for written in self.rules]


Written = dict[str, dict[str, WrittenChain]]  # table -> chain -> rules


class ListedTable(Record):
    """A table of a listing: chains in the listing's order, built-in ones with their policy (others: `-`)."""

    policies: dict[str, str]
    rules: dict[str, list[str]]


Listing = dict[str, ListedTable]  # table name -> table


def write_plan(plan: Plan, family: Family, *, comments: bool = False) -> Written:
    """The plan's rules of one family, table by table: what iptables-save must list once it is programmed."""
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
    waiting: list[tuple[Rule, list[str]]] = []  # paired rules, until the one that closes the pair
    for rule in rules:
        if family not in rule.families:
            continue
        waiting.append((rule, write_rule(rule, family, comments=comments)))
        if rule.paired:
            continue
        for alternatives in zip(*[texts for _, texts in waiting], strict=True):
            for (source, _), text in zip(waiting, alternatives, strict=True):
                yield WrittenRule(text=text, rule=source)
        waiting = []


def write_rule(rule: Rule, family: Family, *, comments: bool = False) -> list[str]:
    """The rule as iptables-save lists it, a text for every combination of its lists' elements."""
    words = sorted([match.xt() for match in rule.matches], key=_place)  # stable: extensions keep their order
    protocols = {word.protocol for word in words if word.protocol}
    if protocols and not any(word.place == PROTOCOL for word in words):
        words.append(XtMatch(place=PROTOCOL, alternatives=tuple([f"-p {protocol}" for protocol in protocols])))
        words.sort(key=_place)
    if comments:
        words.append(XtMatch(place=PROTOCOL + 1, alternatives=(f'-m comment --comment "{_escape(rule.comment)}"',)))
    texts = [""]
    for word in words:
        if len(texts) == 1:  # the common case, kept quick for lists of thousands
            texts = [f"{texts[0]}{alternative} " if alternative else texts[0] for alternative in word.alternatives]
        else:
            texts = [f"{text}{alternative} " if alternative else text for text in texts for alternative in word.alternatives]
    target = f"-j {rule.target.xt(family)}"
    return [text + target for text in texts]


def _escape(comment: str) -> str:
    """The comment as listings have it between double quotes."""
    return comment.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'")


def _place(word: XtMatch) -> int:
    return word.place


def parse_listing(text: str) -> Listing:
    """The tables of an iptables-save listing. ParseError where it is not one."""
    listing: Listing = {}
    table: ListedTable | None = None
    for line in text.splitlines():
        if line.startswith("-A ") and table is not None:
            chain, _, spec = line[3:].partition(" ")
            if chain not in table.rules:
                raise ParseError(f"listing of rules: {line!r} belongs to no declared chain")
            table.rules[chain].append(spec)
        elif line.startswith(":") and table is not None:
            chain, _, rest = line[1:].partition(" ")
            table.policies[chain] = rest.partition(" ")[0]
            table.rules[chain] = []
        elif line.startswith("*"):
            table = listing[line[1:]] = ListedTable(policies={}, rules={})
        elif line == "COMMIT":
            table = None
        elif line and not line.startswith("#"):
            raise ParseError(f"listing of rules: {line!r} is not understood")
    return listing


def render_restore(written: Written) -> str:
    """Input for iptables-restore --noflush that programs the rules in a namespace without any of ours."""
    lines = []
    for table, chains in written.items():
        lines.append(f"*{table}")
        lines += [f":{chain} - [0:0]" for chain in chains if chain not in BUILTIN_CHAINS]
        lines += [f"{command} {text}" for command, text in _commands(chains)]
        lines.append("COMMIT")
    return "".join([line + "\n" for line in lines])


def render_commands(written: Written, family: Family) -> list[str]:
    """The same as shell lines, for reading and for copying."""
    lines = []
    for table, chains in written.items():
        lines += [f"{family.program} -t {table} -N {chain}" for chain in chains if chain not in BUILTIN_CHAINS]
        lines += [f"{family.program} -t {table} {command} {text}" for command, text in _commands(chains)]
    return lines


def _commands(chains: dict[str, WrittenChain]) -> Iterator[tuple[str, str]]:
    for name, chain in chains.items():
        for position, written in enumerate(chain.rules, 1):
            yield (f"-I {name} {position}" if position <= chain.inserted else f"-A {name}"), written.text
