"""Rules, chains and base chains ready to be walked through, and the stages in which packets meet them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from netinit.base.sanitize import MOST_OF_A_RULE, escape, shorten
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


@dataclass(frozen=True, slots=True)
class BaseChain:
    """A base chain of nf_tables that is no backend's, with the chains that it may jump to, for one address family.

    `handles` has the kernel's number of each rule, by chain and place.
    """

    place: str  # the table, as sentences name it
    name: str
    kind: str
    hook: str
    priority: int
    chains: dict[str, LoadedChain]
    handles: dict[tuple[str, int], int] = field(default_factory=dict)

    def describe_rule(self, chain: str, number: int) -> str:
        """A rule of the chain, or of one that it calls, as sentences name it."""
        handle = self.handles.get((chain, number))
        return f"{self.place}, chain {chain}, rule {number}" + (f" (handle {handle})" if handle else "")


@dataclass(frozen=True, slots=True)
class Station:
    """A base chain as packets meet it at a hook, and `chains`, which it may call.

    `effect` is the table of iptables whose targets its rules may have. A chain with the very priority of connection tracking or
    NAT is asked before or after that, which the kernel does not show: it has a `turn` before, and one after it.
    """

    table: str
    chain: LoadedChain
    chains: Mapping[str, LoadedChain]
    effect: str
    source: str = ""
    turn: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Where the chain stands."""
        return (self.table, self.chain.name)

    @property
    def name(self) -> str:
        """The table as sentences name it: with its place where there are several."""
        return f"{self.source}'s {self.table}" if self.source else self.table

    @property
    def changes_packets(self) -> bool:
        """Whether a rule that packets may come to here does more than to report, to let go on or to end them."""
        return any(
            not (isinstance(target, Accept | Return | Jump | Drop | Reject) or target.only_observes)
            for name, chain in self.chains.items()
            if name == self.chain.name or not chain.policy
            for loaded in chain.rules
            for target in each_of(loaded.rule.target)
        )


@dataclass(frozen=True, slots=True)
class HookStage:
    """What the kernel comes to at one priority of a hook; `name` is that of connection tracking, NAT, or the table of iptables there.

    Each of `rounds` are chains of one priority: those of NAT are all asked within its own.
    """

    name: str
    rounds: tuple[tuple[Station, ...], ...] = ()


def each_of(target: Target) -> tuple[Target, ...]:
    """The single targets of a rule that has several."""
    return target.targets if isinstance(target, Several) else (target,)
