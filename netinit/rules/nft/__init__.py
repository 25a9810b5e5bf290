"""Write a plan as tables of nft, replaced as a whole: one rule for each list, both families at once; as text and as expressions.

The text is what `nft --stateless list table` prints (nft 1.0.6). Tables and chains have Istio's names in native mode.

Where nft differs from iptables, there is more than in Istio's rules:

- A rule for one family that names no address has `meta nfproto`, unless only that family can reach its chain.
- TPROXY drops a packet without a transparent socket; nft's tproxy continues. A drop rule follows.
- `-m socket` matches every socket except one bound to all addresses; nft's `socket wildcard` misses half-open ones. The match
takes a chain of two rules.

One difference remains: packets of no socket with a file (from the kernel, or a closed socket) match `! --uid-owner` in
iptables, but never `skuid !=` in nft. Only connections older than the rules are affected.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, Family
from netinit.base.records import Record
from netinit.rules import model
from netinit.rules.matches import Match
from netinit.rules.matches.packet import AddressMatch, InterfaceMatch
from netinit.rules.model import NAT, PREROUTING, PRIORITIES, TABLES, Plan, Rule, Table, expected_base
from netinit.rules.rule_builder import ANONYMOUS, EncodedSet, RuleBuilder, settle
from netinit.rules.targets import Jump, Return, Target, format_chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

    Condition: TypeAlias = "Match | Family"

DIALECT = "nft"
INET = 1  # NFPROTO_INET of linux/netfilter.h
TABLE_NAMES = tuple([prefix + name for prefix in model.NFT_PREFIXES for name in TABLES])
PRIORITY_NAMES = {PRIORITIES[table]: table for table in (model.RAW, model.MANGLE, model.FILTER)}


def format_hook(hook: str, kind: str, priority: int, *, accepts: bool = True) -> str:
    """Return the hook, type and policy of a base chain as nft lists them, which has a name for a priority where it is usual."""
    usual = "dstnat" if (hook, priority) == (PREROUTING, PRIORITIES[NAT]) else PRIORITY_NAMES.get(priority, priority)
    return f"type {kind} hook {hook.lower()} priority {usual}; policy {'accept' if accepts else 'drop'};"


def format_rule(rule: Rule, *, counter: bool = True) -> str:
    """Format a rule of the kernel as nft lists it, as one rule even if nft writes several."""
    conditions = _order_conditions(rule.matches, rule.families[0] if len(rule.families) == 1 else None)
    words = (*map(_format_condition, conditions), "counter" if counter else "", rule.target.nft(rule.families[0]))
    return " ".join([word for word in words if word])


def _order_conditions(matches: Sequence[Match], family: Family | None) -> tuple[Condition, ...]:
    """Return the conditions of a rule of one family or both: interfaces first, as in Istio; an address shows the family."""
    interfaces = [one for one in matches if isinstance(one, InterfaceMatch)]
    others: list[Condition] = [one for one in matches if not isinstance(one, InterfaceMatch)]
    if family and not any(isinstance(one, AddressMatch) for one in matches):
        others.insert(0, family)
    return (*interfaces, *others)


def _format_condition(condition: Condition) -> str:
    return f"meta nfproto {condition.name.lower()}" if isinstance(condition, Family) else condition.nft()


class NftStep(Record):
    """One nft rule: its conditions (a family: only its packets), its action, and the planned rule."""

    conditions: tuple[Condition, ...]
    target: Target
    rule: Rule

    def text(self, *, comments: bool = False) -> str:
        """Return the rule as nft lists it."""
        words = [*map(_format_condition, self.conditions), "counter", self.target.nft(self.rule.families[0])]
        return " ".join([*words, f'comment "{self.rule.comment}"'] if comments else words)

    def encode(self, sets: list[EncodedSet], *, splits_ranges: bool) -> bytes:
        """Return the rule's expressions; its anonymous sets are added to `sets`. See RuleBuilder for `splits_ranges`."""
        writer = RuleBuilder(INET, sets, splits_ranges=splits_ranges)
        for condition in self.conditions:
            if isinstance(condition, Family):
                writer.limit_family(condition)
            else:
                condition.express(writer)
        writer.count()
        target = self.target
        if isinstance(target, Jump):
            target = Jump(chain=format_chain(target.chain), goto=target.goto)
        target.express(writer, self.rule.families[0])
        return writer.block()


Steps = dict[str, tuple[str, list[NftStep]]]  # chain -> its hook (empty: only jumps lead to it), and its rules
Written = dict[str, dict[str, tuple[str, list[str]]]]  # table -> chain -> its hook, and its rules as nft lists them


def write_steps(tables: dict[str, Steps], *, comments: bool = False) -> Written:
    """Write each table's steps, as nft lists them."""
    return {
        name: {chain: (hook, [step.text(comments=comments) for step in steps]) for chain, (hook, steps) in chains.items()}
        for name, chains in tables.items()
    }


def plan_tables(plan: Plan) -> dict[str, Steps]:
    """Return a plan's tables by their names in nft."""
    return {plan.nft_prefix + table.name: plan_steps(table) for table in plan.tables}


def plan_steps(table: Table) -> Steps:
    """Return hook and rules of each chain of a table."""
    entering = _families_entering(table)
    chains: Steps = {}
    for chain in table.chains:
        steps: list[NftStep] = []
        for rule in chain.all_rules:
            limited = rule.target.nft_lists_family or not entering[chain.name] <= set(rule.families)
            matches = [match for match in rule.matches if not match.nft_chain]
            conditions = _order_conditions(matches, rule.families[0] if limited else None)
            last = next((match for match in rule.matches if match.nft_chain), None)
            if last:
                name, finish = _plan_chain_of(last, rule)
                chains[name] = "", finish
                steps.append(NftStep(conditions=conditions, target=Jump(chain=name), rule=rule))
            else:
                steps += [NftStep(conditions=conditions, target=target, rule=rule) for target in rule.target.nft_targets()]
        hook = format_hook(chain.name, *expected_base(table.name, chain.name)) if chain.builtin else ""
        chains[format_chain(chain.name)] = hook, steps
    return chains


def _plan_chain_of(last: Match, rule: Rule) -> tuple[str, list[NftStep]]:
    """Return name and rules of the chain that tests `last`."""
    unless = last.nft_unless()
    steps = [NftStep(conditions=(unless,), target=Return(), rule=rule)] if unless else []
    steps.append(NftStep(conditions=(last,), target=rule.target, rule=rule))
    return f"{format_chain(rule.target.calls)}-{last.nft_chain}", steps


def _families_entering(table: Table) -> dict[str, frozenset[Family]]:
    """Return the families whose packets can reach each chain."""
    entering = {chain.name: frozenset(FAMILIES if chain.builtin else ()) for chain in table.chains}
    jumps = [
        (chain.name, rule.target.chain, frozenset(rule.families))
        for chain in table.chains
        for rule in chain.all_rules
        if isinstance(rule.target, Jump)
    ]
    for _ in table.chains:  # a path through all chains has fewer jumps than there are chains
        for source, target, families in jumps:
            entering[target] |= entering[source] & families
    return entering


def model_table(name: str) -> str:
    """Return the model's name for a table of ours."""
    for prefix in model.NFT_PREFIXES:
        name = name.removeprefix(prefix)
    return name


def model_name(chain: str) -> str:
    """Return the model's name for a chain of ours."""
    if chain == format_chain(model.ISTIO_PRERT):
        return model.ISTIO_PRERT
    return chain.upper().replace("-", "_")


def render_tables(written: Written) -> str:
    """Format tables as nft does: input that adds them, and the output of `nft --stateless list table`."""
    tables = []
    for name, chains in written.items():
        blocks = []
        for chain, (hook, rules) in chains.items():
            lines = [hook, *rules] if hook else rules
            blocks.append(f"\tchain {chain} {{\n" + "".join([f"\t\t{line}\n" for line in lines]) + "\t}\n")
        tables.append(f"table inet {name} {{\n" + "\n".join(blocks) + "}\n")
    return "".join(tables)


def render_script(plan: Plan, *, comments: bool = False) -> str:
    """Return input for `nft -f -`: one transaction that replaces, or adds, the tables with the plan's prefix."""
    names = [name for name in TABLE_NAMES if name.startswith(plan.nft_prefix)]
    deletions = "".join([f"add table inet {name}\ndelete table inet {name}\n" for name in names])
    return deletions + render_tables(write_steps(plan_tables(plan), comments=comments))


def miss_all(tables: Iterable[str]) -> tuple[model.Difference, ...]:
    """Return the differences of a namespace without these tables."""
    return tuple([model.Difference(kind=model.MISSING, where=DIALECT, table=table, rule="the whole table") for table in tables])


# ---- expressions ---------------------------------------------------------------------------------------------------------


class EncodedTable(Record):
    """The expressions of a table's rules by chain, and the anonymous sets that they look up."""

    chains: Mapping[str, Sequence[bytes]]
    sets: tuple[EncodedSet, ...]


def encode_steps(chains: Steps, *, splits_ranges: bool = True) -> EncodedTable:
    """Return the table with these chains, as nft programs it; see RuleBuilder for `splits_ranges`."""
    sets: list[EncodedSet] = []
    encoded = {
        chain: tuple([step.encode(sets, splits_ranges=splits_ranges) for step in steps])
        for chain, (_, steps) in chains.items()
    }
    return EncodedTable(chains=encoded, sets=tuple(sets))


def are_equal(one: EncodedTable, other: EncodedTable) -> bool:
    """Whether two tables have the same rules, and the same elements of sets in any order."""
    names: dict[EncodedSet, bytes] = {}
    return _settle_chains(one, names) == _settle_chains(other, names)


def _settle_chains(table: EncodedTable, names: dict[EncodedSet, bytes]) -> dict[str, list[bytes]]:
    """Return the rules of the chains that have any; their sets get `names` by content, numbered as they are met."""
    contents = [(one.name, one.replace(name="", elements=tuple(sorted(one.elements)))) for one in table.sets]
    sets = {name.encode("utf-8", "surrogateescape"): content for name, content in contents}

    def rename(old: bytes) -> bytes:
        return names.setdefault(sets[old], ANONYMOUS + b"%d" % len(names)) if old in sets else old

    return {chain: [settle(one, rename) for one in rules] for chain, rules in table.chains.items() if rules}
