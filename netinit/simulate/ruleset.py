"""Rules of one family ready to be walked through, from a plan or from a listing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from netinit.base.net import Family
from netinit.base.shown import MOST_OF_A_RULE, escape, shorten
from netinit.rules.iptables.parse import normalise_rule, parse_rule
from netinit.rules.iptables.parse.quotation import part_comment, quote_rule
from netinit.rules.iptables.sets import Contents, resolve
from netinit.rules.iptables.write import Listing, write_plan
from netinit.rules.model import BUILTIN_CHAINS, Origin, Plan, Rule

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

    `tracked` is True where something else makes the kernel track connections.
    """

    family: Family
    tables: dict[str, dict[str, LoadedChain]] = field(default_factory=dict)
    local_marks: frozenset[int] = frozenset()
    routing_table: int = 0  # which table those marks are routed by
    tracked: bool = False

    @cached_property
    def tracks(self) -> bool:
        """Whether the kernel tracks connections: only when some rule asks for it (nf_ct_netns_get), the table nat does not."""
        return self.tracked or any(
            loaded.rule.target.tracks or any(match.tracks for match in loaded.rule.matches)
            for chains in self.tables.values()
            for chain in chains.values()
            for loaded in chain.rules
        )


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
        frozenset(rule.mark for rule in rules_of_family),
        rules_of_family[0].table if rules_of_family else 0,
    )


def load_listing(
    listing: Listing,
    family: Family,
    *,
    plan: Plan | None = None,
    local_marks: frozenset[int] = frozenset(),
    routing_table: int = 0,
) -> Ruleset:
    """The rules of a listing; one with counters has them too.

    Rules that `plan` would make have its purpose and origin, whatever their comments say. ParseError for a rule that is none.
    """
    known = _purposes(plan, family) if plan else {}
    tables: dict[str, dict[str, LoadedChain]] = {}
    for table, listed in listing.items():
        tables[table] = {}
        for name, specs in listed.rules.items():
            rules = []
            for number, spec in enumerate(specs, 1):
                packets, text = _split_counter(spec)
                rule = parse_rule(text, family)
                purpose, origin = known.get((table, name, normalise_rule(rule)), ("", None))
                comment = rule.comment if rule.comment != purpose else ""
                rules.append(LoadedRule(number, text, rule, purpose, origin, packets, comment))
            policy = listed.policies.get(name, "-")
            tables[table][name] = LoadedChain(name, tuple(rules), "" if policy == "-" else policy)
    return Ruleset(family, tables, local_marks, routing_table)


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


def _split_counter(spec: str) -> tuple[int | None, str]:
    """A rule's packet counter and the rule; None where the listing has no counters."""
    if not spec.startswith("["):
        return None, spec
    counters, _, text = spec.partition("] ")
    return int(counters[1:].partition(":")[0]), text
