"""A plan in the dialect of nft: tables of its own that are replaced whole, one rule a list, both families at once.

The text is what `nft --stateless list table` prints for the rules (nft 1.0.6), so that the input for the kernel and
the expected listing are one and the same, and a second run compares two texts. Tables and chains have the names that
Istio gives them in its native mode.

Where a word of nft means something else than the one of iptables, the rules say more than Istio's:

- An `inet` chain sees both families. A rule for one family alone that names no address says so (meta nfproto), unless
  its chain can only be entered by that family.
- TPROXY drops a packet for which no transparent socket is open; nft's tproxy lets it pass by. A rule that drops
  follows, else connections would bypass a proxy that is not listening.
- `-m socket` holds for every socket but one bound to all addresses. nft's `socket wildcard` knows nothing of sockets
  that are not fully open or not fully closed, so the match takes a chain of two rules.

One difference stays: packets that have no socket with a file (sent by the kernel itself, or for a socket that its
process closed) match `! --uid-owner` in iptables, and never match `skuid !=` in nft. Only the first packet of a
connection is looked at in the nat table, and that has its socket unless the connection is older than the rules.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, Family
from netinit.base.records import Record
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Source
from netinit.rules.model import (
    BUILTIN_CHAINS,
    FILTER,
    FORWARD,
    INPUT,
    ISTIO_PRERT,
    MANGLE,
    MISSING,
    NAT,
    NFT_AMBIENT,
    NFT_SIDECAR,
    OUTPUT,
    PREROUTING,
    RAW,
    TABLES,
    Difference,
    Plan,
    Rule,
    Table,
)
from netinit.rules.targets import Jump, Return, Target, format_chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Protocol, TypeAlias

    Condition: TypeAlias = "Match | Family | Unless"

    class RuleText(Protocol):
        """A rule with the text that nft has for it."""

        @property
        def text(self) -> str:
            """As nft lists it."""

    class ChainText(Protocol):
        """A chain: where it is hooked in (empty: only jumps lead to it), and its rules."""

        @property
        def hook(self) -> str:
            """Type, hook, priority and policy, as nft lists them."""

        @property
        def rules(self) -> Sequence[RuleText]:
            """Its rules, in order."""

DIALECT = "nft"
PREFIXES = (NFT_SIDECAR, NFT_AMBIENT)
TABLE_NAMES = tuple([prefix + name for prefix in PREFIXES for name in TABLES])
HOOKS = {
    # iptables' priorities (linux/netfilter_ipv4.h); nft lists them by name where the hook is the name's usual one.
    (NAT, PREROUTING): "type nat hook prerouting priority dstnat; policy accept;",
    (NAT, OUTPUT): "type nat hook output priority -100; policy accept;",
    (MANGLE, PREROUTING): "type filter hook prerouting priority mangle; policy accept;",
    # "route": a packet whose mark was changed is routed again, as iptables' mangle table does.
    (MANGLE, OUTPUT): "type route hook output priority mangle; policy accept;",
    (RAW, PREROUTING): "type filter hook prerouting priority raw; policy accept;",
    (RAW, OUTPUT): "type filter hook output priority raw; policy accept;",
    (FILTER, INPUT): "type filter hook input priority filter; policy accept;",
    (FILTER, FORWARD): "type filter hook forward priority filter; policy accept;",
    (FILTER, OUTPUT): "type filter hook output priority filter; policy accept;",
}


class Unless(Record):
    """One of the expressions under which a match does not hold, see Match.nft_unless."""

    match: Match
    part: int

    def nft(self) -> str:
        """The expression."""
        return self.match.nft_unless()[self.part]


def format_rule(rule: Rule, *, counter: bool = True) -> str:
    """A rule that was read from the kernel as nft would list it; what nft writes as several rules is one."""
    conditions = [one.nft() for one in rule.matches if isinstance(one, (InInterface, OutInterface))]
    if len(rule.families) == 1 and not any(isinstance(one, (Source, Destination)) for one in rule.matches):
        conditions.append(f"meta nfproto {rule.families[0].name.lower()}")
    conditions += [one.nft() for one in rule.matches if not isinstance(one, (InInterface, OutInterface))]
    return " ".join([word for word in (*conditions, "counter" if counter else "", rule.target.nft(rule.families[0])[0]) if word])


class NftStep(Record):
    """One rule of nft: its conditions in order (a family: its packets alone), then what it does. `rule` is the planned one."""

    conditions: tuple[Condition, ...]
    target: Target
    part: int = 0  # which of the rules that the target takes, see Target.nft
    rule: Rule

    def text(self, *, comments: bool = False) -> str:
        """The rule as nft lists it."""
        words = [f"meta nfproto {one.name.lower()} " if isinstance(one, Family) else f"{one.nft()} " for one in self.conditions]
        comment = f' comment "{self.rule.comment}"' if comments else ""
        return f"{''.join(words)}counter {self.target.nft(self.rule.families[0])[self.part]}{comment}"


class WrittenNftRule(Record):
    """A rule as nft lists it without counter values, and the planned rule that it came from."""

    text: str
    rule: Rule


class WrittenNftChain(Record):
    """A chain: where it is hooked in (empty: only jumps lead to it) and its rules."""

    hook: str
    rules: tuple[WrittenNftRule, ...]


Written = dict[str, dict[str, WrittenNftChain]]  # table -> chain -> rules
Steps = dict[str, tuple[str, list[NftStep]]]  # chain -> where it is hooked in, and its rules


def write_plan(plan: Plan, *, comments: bool = False) -> Written:
    """The plan table by table: what nft must list once it is programmed, ours being the only rules in these tables."""
    return write_steps({plan.nft_prefix + table.name: plan_steps(table) for table in plan.tables}, comments=comments)


def write_steps(tables: dict[str, Steps], *, comments: bool = False) -> Written:
    """The same of the steps of each table."""
    return {name: _write_chains(steps, comments) for name, steps in tables.items()}


def _write_chains(planned: Steps, comments: bool) -> dict[str, WrittenNftChain]:
    chains = {}
    for name, (hook, steps) in planned.items():
        rules = [WrittenNftRule(text=step.text(comments=comments), rule=step.rule) for step in steps]
        chains[name] = WrittenNftChain(hook=hook, rules=tuple(rules))
    return chains


def plan_steps(table: Table) -> Steps:
    """The chains of a table as nft has them: where each is hooked in, and its rules."""
    entering = _families_entering(table)
    chains: Steps = {}
    for chain in table.chains:
        steps: list[NftStep] = []
        for rule in (*chain.inserted, *chain.rules):
            conditions = _plan_conditions(rule, entering[chain.name])
            last = next((match for match in rule.matches if match.nft_chain), None)
            if last:
                name, finish = _plan_chain_of(last, rule)
                chains[name] = "", finish
                steps.append(NftStep(conditions=conditions, target=Jump(chain=name), rule=rule))
            else:
                count = len(rule.target.nft(rule.families[0]))
                steps += [NftStep(conditions=conditions, target=rule.target, part=part, rule=rule) for part in range(count)]
        chains[format_chain(chain.name)] = _hook(table.name, chain.name), steps
    return chains


def _plan_conditions(rule: Rule, entering: frozenset[Family]) -> tuple[Condition, ...]:
    """The rule's conditions but that of a chain of its own; the interface first, as Istio has it."""
    interfaces = [match for match in rule.matches if isinstance(match, (InInterface, OutInterface))]
    others: list[Condition] = [
        match for match in rule.matches if not (isinstance(match, (InInterface, OutInterface)) or match.nft_chain)
    ]
    limited = rule.target.nft_spells_family or not entering <= set(rule.families)
    if limited and not any(isinstance(match, (Source, Destination)) for match in rule.matches):
        others.insert(0, rule.families[0])
    return (*interfaces, *others)


def _plan_chain_of(last: Match, rule: Rule) -> tuple[str, list[NftStep]]:
    """The name of the chain in which a rule is finished whose `last` match is tested there, and that chain's rules."""
    (target,) = rule.target.nft(rule.families[0])
    exceptions = [Unless(match=last, part=part) for part in range(len(last.nft_unless()))]
    steps = [NftStep(conditions=(unless,), target=Return(), rule=rule) for unless in exceptions]
    steps.append(NftStep(conditions=(last,), target=rule.target, rule=rule))
    return f"{target.rpartition(' ')[2]}-{last.nft_chain}", steps


def _families_entering(table: Table) -> dict[str, frozenset[Family]]:
    """The families whose packets can come to each chain: both in a hook, elsewhere those of the jumps there."""
    entering = {chain.name: frozenset(FAMILIES if chain.builtin else ()) for chain in table.chains}
    jumps = [
        (chain.name, rule.target.chain, frozenset(rule.families))
        for chain in table.chains
        for rule in (*chain.inserted, *chain.rules)
        if isinstance(rule.target, Jump)
    ]
    for _ in table.chains:  # a path through all chains has fewer jumps than there are chains
        for source, target, families in jumps:
            entering[target] |= entering[source] & families
    return entering


def _hook(table: str, chain: str) -> str:
    return HOOKS[table, chain] if chain in BUILTIN_CHAINS else ""


def model_table(name: str) -> str:
    """The name that a table of ours has in the model."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def model_name(chain: str) -> str:
    """The name that a chain of ours has in the model."""
    if chain == format_chain(ISTIO_PRERT):
        return ISTIO_PRERT
    upper = chain.upper()
    return upper if upper in BUILTIN_CHAINS else upper.replace("-", "_")


def render_table(name: str, chains: Mapping[str, ChainText]) -> str:
    """A table in nft's own format: input that adds it, and what `nft --stateless list table` prints."""
    blocks = []
    for chain, written in chains.items():
        lines = [f"\tchain {chain} {{"]
        if written.hook:
            lines.append(f"\t\t{written.hook}")
        lines += [f"\t\t{rule.text}" for rule in written.rules]
        blocks.append("\n".join(lines) + "\n\t}\n")
    return f"table inet {name} {{\n" + "\n".join(blocks) + "}\n"


def render_tables(written: Mapping[str, Mapping[str, ChainText]]) -> str:
    """All tables, one after the other."""
    return "".join([render_table(name, chains) for name, chains in written.items()])


def render_replacement(tables: str, names: Iterable[str]) -> str:
    """One transaction that puts `tables` in the place of the owned tables called `names`, wherever those exist.

    Adding a table before it is deleted makes the deletion succeed whether or not it was there; the kernel commits all
    of it at once or nothing.
    """
    return "".join([f"add table inet {name}\ndelete table inet {name}\n" for name in names]) + tables


def render_script(plan: Plan, *, comments: bool = False) -> str:
    """The plan as input for `nft -f -`, whatever of its kind is there: all tables of the prefix are replaced, wanted or not."""
    names = [name for name in TABLE_NAMES if name.startswith(plan.nft_prefix)]
    return render_replacement(render_tables(write_plan(plan, comments=comments)), names)


def miss_all(tables: Iterable[str]) -> tuple[Difference, ...]:
    """The differences of a namespace in which none of the tables exists."""
    return tuple([Difference(kind=MISSING, where=DIALECT, table=table, rule="the whole table") for table in tables])
