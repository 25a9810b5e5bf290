"""Rules, chains and base chains in a form to simulate, and the stages of a hook. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from netinit.base.sanitize import MAX_RULE_LENGTH, escape, shorten
from netinit.rules.foreign_targets import Several
from netinit.rules.iptables.parse.quotation import part_comment, quote_rule
from netinit.rules.model import Origin, Rule
from netinit.rules.targets import Accept, Drop, Jump, Reject, Return, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCEPT = "ACCEPT"
EARLY, LATE = "early", "late"


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """A rule in the kernel: `number` counts from 1; purpose and origin come from the plan and are empty for foreign rules.

    `comment` is the live rule's own comment if it is not its purpose: written by the rule's owner and untrusted. `handle` is
    the kernel's number of an nf_tables rule.
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


@dataclass(frozen=True, slots=True)
class LoadedChain:
    """A chain; `policy` is empty unless it is a built-in chain."""

    name: str
    rules: tuple[LoadedRule, ...]
    policy: str = ""


@dataclass(frozen=True, slots=True)
class BaseChain:
    """A base chain of a foreign nf_tables table, with the chains it may jump to, for one address family."""

    place: str  # the table, as sentences name it
    name: str
    kind: str
    hook: str
    priority: int
    chains: dict[str, LoadedChain]


@dataclass(frozen=True, slots=True)
class HookedChain:
    """A base chain as packets meet it at a hook, with the `chains` it may call.

    `effect` is the iptables table whose targets its rules may use. A foreign chain with exactly the priority of
    connection tracking or NAT may run before or after it, which the kernel does not expose; it is listed twice,
    distinguished by `turn`.
    """

    table: str
    chain: LoadedChain
    chains: Mapping[str, LoadedChain]
    effect: str
    source: str = ""
    turn: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """The table and the name of the chain."""
        return (self.table, self.chain.name)

    @property
    def name(self) -> str:
        """The table's name in sentences, qualified by its place if there are several."""
        return f"{self.source}'s {self.table}" if self.source else self.table

    @property
    def changes_packets(self) -> bool:
        """Whether a reachable rule does more than log, accept or end packets."""
        return any(
            not (isinstance(target, Accept | Return | Jump | Drop | Reject) or target.only_observes)
            for name, chain in self.chains.items()
            if name == self.chain.name or not chain.policy
            for loaded in chain.rules
            for target in each_of(loaded.rule.target)
        )


@dataclass(frozen=True, slots=True)
class HookStage:
    """What runs at one priority of a hook: connection tracking, NAT or an iptables table (`name`).

    Each of `rounds` holds the chains of one priority; NAT's chains all run within its own stage.
    """

    name: str
    rounds: tuple[tuple[HookedChain, ...], ...] = ()


def label_of(origin: Origin | None, origins: Mapping[str, str]) -> str:
    """The option behind a rule, as the user set it according to `origins`; empty for rules that no option makes."""
    return origins.get(origin.option, origin.label) if origin and origin.option else ""


def each_of(target: Target) -> tuple[Target, ...]:
    """The single targets of a rule that has several."""
    return target.targets if isinstance(target, Several) else (target,)
