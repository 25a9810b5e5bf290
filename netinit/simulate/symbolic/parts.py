"""All packets of a space, divided into parts that are treated alike, with their end and the rules on their path."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.simulate.condition import Condition
from netinit.simulate.loaded_rules import RuleHit
from netinit.simulate.symbolic.regions import Region
from netinit.simulate.symbolic.space import Space
from netinit.simulate.trace import CAPTURED, DROPPED, REFUSED, UNKNOWN, cause_of, verdict_of

ENDS = (DROPPED, REFUSED)  # fates of packets that are gone
Path = tuple[RuleHit, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Packets that are treated alike: where they end, as in Trace, their condition then, and why (`reason`)."""

    region: Region
    fate: str
    condition: Condition
    path: Path
    reason: str = ""
    by_rule: bool = False  # ended by the last rule on the path
    at_worst_dropped: bool = False  # unknown, but every outcome is either captured or dropped

    @property
    def verdict(self) -> str:
        """captured, direct, dropped or unknown."""
        return verdict_of(self.fate, self.condition.redirect_port)

    @property
    def source(self) -> str:
        """The backend whose rule decided; empty if none did, or only one has rules."""
        return self.cause.source if self.cause else ""

    @property
    def cause(self) -> RuleHit | None:
        """The deciding rule, or None."""
        if self.verdict in (DROPPED, UNKNOWN):
            return self.path[-1] if self.by_rule else None
        ended = self.condition
        return cause_of(self.path, captured=self.verdict == CAPTURED, transparent=ended.transparent, translated=ended.translated)

    @property
    def behaviour_but_source(self) -> tuple[object, ...]:
        """What makes two outcomes equal, except marks and the source of captured packets."""
        ended = self.condition
        if self.fate in ENDS:
            return (self.fate,)
        source = () if ended.redirect_port else (ended.source,)
        return (
            self.fate, ended.redirect_port, ended.transparent, ended.destination, ended.destination_port,
            ended.out_interface, ended.policy_routed, ended.zone, ended.state, *source,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Partition:
    """All packets of a space, each in exactly one part."""

    space: Space
    parts: tuple[Part, ...]
