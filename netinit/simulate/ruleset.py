"""Rules of one family ready to be walked through, from a plan or from a listing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from netinit.base.net import Family
from netinit.base.shown import MOST_OF_A_RULE, escape, shorten
from netinit.rules.iptables.parse import normalise_rule, parse_rule
from netinit.rules.iptables.parse.quotation import part_comment, quote_rule
from netinit.rules.iptables.sets import Contents, resolve
from netinit.rules.iptables.write import Listing, write_plan
from netinit.rules.model import BUILTIN_CHAINS, NAT, OWNED_CHAINS, Origin, Plan, Rule
from netinit.rules.nft import write_plan as write_nft
from netinit.rules.nft.reading import Tables
from netinit.rules.nft.statements import model_name, model_table
from netinit.rules.packet import LocalMarks
from netinit.rules.targets import Jump

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


ACCEPT = "ACCEPT"


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """One rule as the kernel has it: `number` counts from 1; purpose and origin are the plan's; foreign rules have none.

    `comment` is what the live rule's own comment says, where that is not its purpose: whoever made the rule wrote it.
    """

    number: int
    text: str
    rule: Rule
    purpose: str = ""
    origin: Origin | None = None
    packets: int | None = None  # the live counter
    comment: str = ""

    @property
    def bare_text(self) -> str:
        """The rule without its comment on one line, cut where it is longer than rules are."""
        return escape(shorten(part_comment(self.text)[0], MOST_OF_A_RULE))

    @property
    def quotation(self) -> str:
        """The rule as sentences name it."""
        return quote_rule(self.text) if self.comment else f"`{self.bare_text}`"


@dataclass(frozen=True, slots=True)
class LoadedChain:
    """A chain; `policy` is a built-in one's, empty for others."""

    name: str
    rules: tuple[LoadedRule, ...]
    policy: str = ""


@dataclass(frozen=True)
class Ruleset:
    """The tables of one family, and the marks that a policy rule routes to this host.

    `tracked` is True where something else makes the kernel track connections; `unread` names, by hook, the tables of
    others that look at packets there and that nobody here can read.

    `beside` are the rules of the other places of the same kernel that hold some, asked at the same hooks; then `source`
    names the place of each (iptables-nft and so on). Rules that stand alone have neither.
    """

    family: Family
    tables: dict[str, dict[str, LoadedChain]] = field(default_factory=dict)
    local_marks: LocalMarks = frozenset()
    routing_table: int = 0  # which table those marks are routed by
    tracked: bool = False
    unread: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: str = ""
    beside: tuple[Ruleset, ...] = ()

    @property
    def places(self) -> tuple[Ruleset, ...]:
        """Itself, and what stands beside it."""
        return (self, *self.beside)

    def find_chains(self, table: str, hook: str) -> list[tuple[Ruleset, LoadedChain]]:
        """The chains that decide something where a table is asked at a hook, each with its place."""
        found = [(place, place.tables.get(table, {}).get(hook)) for place in self.places]
        return [(place, chain) for place, chain in found if chain and (chain.rules or chain.policy != ACCEPT)]

    @property
    def translates(self) -> bool:
        """Whether a table of NAT is there."""
        return any(NAT in place.tables for place in self.places)

    def name_table(self, table: str) -> str:
        """A table as sentences name it: with its place where there are several."""
        return f"{self.source}'s {table}" if self.source else table

    @cached_property
    def tracks(self) -> bool:
        """Whether the kernel tracks connections: only when some rule asks for it (nf_ct_netns_get), the table nat does not."""
        return self.tracked or any(
            loaded.rule.target.tracks or any(match.tracks for match in loaded.rule.matches)
            for chains in self.tables.values()
            for chain in chains.values()
            for loaded in chain.rules
        ) or any(place.tracks for place in self.beside)


def stand_beside(places: Mapping[str, Ruleset], first: str = "") -> Ruleset:
    """The rules of all places of a kernel, by the places' names, as one; what stands alone stays as it is.

    `first` is the place whose rules are ours, where that is known.
    """
    rest = {name: ruleset for name, ruleset in places.items() if _decides(ruleset)} or dict(places)
    chosen = first if first in rest else next(iter(rest))
    main = rest.pop(chosen)
    if not rest:
        return main
    marks = main.local_marks.union(*[one.local_marks for one in rest.values()])
    return replace(
        main, source=chosen, beside=tuple(replace(one, source=name) for name, one in rest.items()), local_marks=marks
    )


def _decides(ruleset: Ruleset) -> bool:
    """Whether any chain has a rule, or a policy that is not to accept."""
    chains = [chain for table in ruleset.tables.values() for chain in table.values()]
    return any(chain.rules or chain.policy not in ("", ACCEPT) for chain in chains)


def load_plan(plan: Plan, family: Family) -> Ruleset:
    """The rules that the kernel of one family has once the plan is programmed."""
    tables: dict[str, dict[str, LoadedChain]] = {}
    for table, chains in write_plan(plan, family).items():
        tables[table] = {}
        for name, chain in chains.items():
            rules = tuple(
                LoadedRule(
                    number, written.text, parse_rule(written.text, family), written.rule.comment, written.rule.origin
                )
                for number, written in enumerate(chain.rules, 1)
            )
            tables[table][name] = LoadedChain(name, rules, ACCEPT if name in BUILTIN_CHAINS else "")
    routes = {route.table for route in plan.routes if route.family is family}
    rules_of_family = [rule for rule in plan.ip_rules if rule.family is family and rule.table in routes]
    return Ruleset(
        family,
        tables,
        frozenset((rule.mark, rule.mask) for rule in rules_of_family),
        rules_of_family[0].table if rules_of_family else 0,
    )


def load_listing(
    listing: Listing,
    family: Family,
    *,
    plans: Sequence[Plan] = (),
    local_marks: LocalMarks = frozenset(),
    routing_table: int = 0,
) -> Ruleset:
    """The rules of a listing; one with counters has them too.

    Rules that one of `plans` would make have its purpose and origin, the first one's, whatever their comments say.
    ParseError for a rule that is none.
    """
    known: dict[tuple[str, str, tuple[object, ...]], tuple[str, Origin | None]] = {}
    for plan in reversed(plans):
        known |= _purposes(plan, family)
    tables: dict[str, dict[str, LoadedChain]] = {}
    for table, listed in listing.items():
        tables[table] = {}
        for name, specs in listed.rules.items():
            rules = []
            for number, spec in enumerate(specs, 1):
                packets, text = split_counter(spec)
                rule = parse_rule(text, family)
                purpose, origin = known.get((table, name, normalise_rule(rule)), ("", None))
                comment = rule.comment if rule.comment != purpose else ""
                rules.append(LoadedRule(number, text, rule, purpose, origin, packets, comment))
            policy = listed.policies.get(name, "-")
            tables[table][name] = LoadedChain(name, tuple(rules), "" if policy == "-" else policy)
    return Ruleset(family, tables, local_marks, routing_table)


def load_tables(
    tables: Tables,
    family: Family,
    *,
    plans: Sequence[Plan] = (),
    local_marks: LocalMarks = frozenset(),
    routing_table: int = 0,
) -> Ruleset:
    """The rules of our own nft tables that packets of a family meet, with counters; purposes as for a listing.

    A rule keeps its number in the table, which both families share.
    """
    known: dict[tuple[str, str, str], tuple[str, Origin | None]] = {}
    for plan in reversed(plans):
        known |= {
            (model_table(table), model_name(name), written.text): (written.rule.comment, written.rule.origin)
            for table, chains in write_nft(plan).items()
            for name, chain in chains.items()
            for written in chain.rules
        }
    loaded: dict[str, dict[str, LoadedChain]] = {}
    for table, chains in tables.items():
        loaded[table] = {}
        for name, chain in chains.items():
            rules = []
            for read in chain.rules:
                if family in read.rule.families:
                    purpose, origin = known.get((table, name, read.text), ("", None))
                    comment = read.rule.comment if read.rule.comment != purpose else ""
                    rules.append(LoadedRule(read.number, read.text, read.rule, purpose, origin, read.packets, comment))
            loaded[table][name] = LoadedChain(name, tuple(rules), chain.policy)
    return Ruleset(family, loaded, local_marks, routing_table)


def with_plan(ruleset: Ruleset, plan: Plan) -> Ruleset:
    """The rules as they would be with this plan in the place of all rules of ours; foreign rules stay where they are."""
    if ruleset.beside:
        others = tuple(_without_ours(place) for place in ruleset.beside)
        return replace(with_plan(replace(ruleset, beside=()), plan), beside=others)
    family = ruleset.family
    planned = load_plan(plan, family)
    written = write_plan(plan, family)
    tables: dict[str, dict[str, LoadedChain]] = {}
    for table in dict.fromkeys([*ruleset.tables, *planned.tables]):
        live, wanted = ruleset.tables.get(table, {}), planned.tables.get(table, {})
        tables[table] = {name: chain for name, chain in live.items() if name not in OWNED_CHAINS} | wanted
        for name, chain in live.items():
            if name not in BUILTIN_CHAINS:
                continue
            own = wanted[name].rules if name in wanted else ()
            first = written[table][name].inserted if name in wanted else 0
            foreign = [rule for rule in chain.rules if not _is_ours(rule)]
            rules = tuple(replace(rule, number=at) for at, rule in enumerate([*own[:first], *foreign, *own[first:]], 1))
            tables[table][name] = LoadedChain(name, rules, chain.policy)
    return replace(
        ruleset, tables=tables, local_marks=planned.local_marks or ruleset.local_marks, routing_table=planned.routing_table
    )


def _without_ours(ruleset: Ruleset) -> Ruleset:
    """The foreign rules of a place alone."""
    tables = {
        table: {
            name: replace(chain, rules=tuple(rule for rule in chain.rules if name not in BUILTIN_CHAINS or not _is_ours(rule)))
            for name, chain in chains.items()
            if name not in OWNED_CHAINS
        }
        for table, chains in ruleset.tables.items()
    }
    return replace(ruleset, tables=tables)


def _is_ours(loaded: LoadedRule) -> bool:
    """Whether a rule in a built-in chain is of a plan of ours, or leads into our chains."""
    target = loaded.rule.target
    return bool(loaded.origin) or (isinstance(target, Jump) and target.chain in OWNED_CHAINS)


def resolve_sets(ruleset: Ruleset, contents: Contents) -> Ruleset:
    """The rules with the networks of the address sets that they ask, where these are known."""
    tables = {
        table: {
            name: replace(chain, rules=tuple(replace(each, rule=resolve(each.rule, contents)) for each in chain.rules))
            for name, chain in chains.items()
        }
        for table, chains in ruleset.tables.items()
    }
    return replace(ruleset, tables=tables) if contents else ruleset


def _purposes(plan: Plan, family: Family) -> dict[tuple[str, str, tuple[object, ...]], tuple[str, Origin | None]]:
    return {
        (table, name, normalise_rule(loaded.rule)): (loaded.purpose, loaded.origin)
        for table, chains in load_plan(plan, family).tables.items()
        for name, chain in chains.items()
        for loaded in chain.rules
    }


def split_counter(spec: str) -> tuple[int | None, str]:
    """A rule's packet counter and the rule; None where the listing has no counters."""
    if not spec.startswith("["):
        return None, spec
    counters, _, text = spec.partition("] ")
    return int(counters[1:].partition(":")[0]), text
