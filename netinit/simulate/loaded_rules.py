"""Rules, chains and base chains in a form to simulate, and the stages of hooks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from netinit.base.sanitize import MAX_RULE_LENGTH, escape, shorten
from netinit.rules.foreign_targets import Several
from netinit.rules.iptables.parse import part_comment, quote_rule
from netinit.rules.model import Origin, Rule
from netinit.rules.targets import Accept, Drop, Jump, Reject, Return

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ACCEPT = "ACCEPT"
EARLY, LATE = "early", "late"


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """A rule in the kernel: `number` from 1; `purpose` and `origin` from the plan, empty for foreign rules.

    `comment` is the rule's own if it is not its purpose, and untrusted. `packets` is its counter, `handle` its
    handle in nf_tables.
    """

    number: int
    text: str
    rule: Rule
    purpose: str = ""
    origin: Origin | None = None
    packets: int | None = None  # the live counter
    comment: str = ""
    handle: int = 0

    @property
    def bare_text(self) -> str:
        """The rule without its comment, on one line and truncated."""
        return escape(shorten(part_comment(self.text)[0], MAX_RULE_LENGTH))

    @property
    def quotation(self) -> str:
        """The rule as quoted in sentences."""
        return quote_rule(self.text) if self.comment else f"`{self.bare_text}`"


@dataclass(frozen=True, slots=True, eq=False)
class RuleHit:
    """A rule that took packets, or several equivalent neighbours of which each packet met one.

    Compared by identity, because there may be thousands; a rule has one object per hook.
    """

    hook: str
    table: str
    chain: str
    rules: tuple[LoadedRule, ...]
    source: str = ""  # backend of the table, if several have rules
    doubtful: bool = False  # unknown whether they took the packets

    @property
    def met(self) -> Rule:
        """The first of the rules."""
        return self.rules[0].rule

    def __str__(self) -> str:
        first, last = self.rules[0].number, self.rules[-1].number
        table = f"{self.source}'s {self.table}" if self.source else self.table
        if first == last:
            return f"rule {first} of {table} {self.chain}, {self.rules[0].quotation}"
        return f"rules {first} to {last} of {table} {self.chain}, the first of which is {self.rules[0].quotation}"


@dataclass(frozen=True, slots=True)
class LoadedChain:
    """A chain; `policy` is empty unless it is a built-in chain."""

    name: str
    rules: tuple[LoadedRule, ...]
    policy: str = ""


Tables = dict[str, dict[str, LoadedChain]]  # by the names of table and chain


@dataclass(frozen=True, slots=True)
class HookedChain:
    """A base chain at a hook, with the `chains` it may call; `effect` is the iptables table whose targets it may use.

    `hook` and `priority` are told of foreign chains alone: of others, `table` and the chain's name imply them.
    The kernel does not expose whether a foreign chain with the priority of connection tracking or NAT runs before
    or after it: such a chain is listed twice, distinguished by `turn`.
    """

    table: str
    chain: LoadedChain
    chains: Mapping[str, LoadedChain]
    effect: str
    source: str = ""
    turn: str = ""
    hook: str = ""
    priority: int = 0

    @property
    def place(self) -> tuple[str, str]:
        """The table and the name of the chain."""
        return (self.table, self.chain.name)

    @property
    def name(self) -> str:
        """The table's name in sentences, with its backend if there are several."""
        return f"{self.source}'s {self.table}" if self.source else self.table

    @property
    def policy_reason(self) -> str:
        """Why the chain's policy ends a packet."""
        unknown = "" if self.chain.policy in (ACCEPT, "DROP") else ", which netinit does not know"
        return f"the policy of {self.name} {self.chain.name} is {self.chain.policy}{unknown}"

    def find_called(self, name: str, above: Sequence[str]) -> tuple[LoadedChain | None, str]:
        """The chain that a rule calls, or why it cannot be followed; `above` are the chains that called the rule's."""
        called = self.chains.get(name)
        if called is None or called.policy:
            return None, f"nothing is known of {name}"
        return (None, f"the chain {name} calls itself") if name in above else (called, "")

    @property
    def changes_packets(self) -> bool:
        """Whether a reachable rule does more than log, accept or end packets."""
        return any(
            not (isinstance(target, Accept | Return | Jump | Drop | Reject) or target.only_observes)
            for name, chain in self.chains.items()
            if name == self.chain.name or not chain.policy
            for loaded in chain.rules
            for target in (loaded.rule.target.targets if isinstance(loaded.rule.target, Several) else (loaded.rule.target,))
        )


@dataclass(frozen=True, slots=True)
class HookStage:
    """What runs at one priority of a hook: connection tracking, NAT or an iptables table (`name`).

    Each of `rounds` has chains of one priority; all of NAT's run in its stage.
    """

    name: str
    rounds: tuple[tuple[HookedChain, ...], ...] = ()


def map_chains(tables: Tables, change: Callable[[str, LoadedChain], LoadedChain]) -> Tables:
    """The tables with every chain changed; `change` gets the table's name and the chain."""
    return {table: {name: change(table, chain) for name, chain in chains.items()} for table, chains in tables.items()}


def list_reachable(chains: Mapping[str, LoadedChain], roots: Iterable[str]) -> list[str]:
    """The chains of a table that `roots` may call, directly or not, with themselves; depth first."""
    found: dict[str, None] = {}
    waiting = [*roots][::-1]
    while waiting:
        name = waiting.pop()
        if name in chains and name not in found:
            found[name] = None
            waiting += [loaded.rule.target.calls for loaded in reversed(chains[name].rules)]
    return list(found)


def label_of(origin: Origin | None, origins: Mapping[str, str]) -> str:
    """The option behind a rule, as the user set it (`origins`); empty for rules that no option makes."""
    return origins.get(origin.option, origin.label) if origin and origin.option else ""
