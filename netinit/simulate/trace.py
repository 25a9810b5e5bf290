"""The path of a simulated packet: what it met, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netinit.base.sanitize import shorten
from netinit.rules.model import Rule
from netinit.rules.packet import Packet
from netinit.simulate.loaded_rules import LoadedRule

# Where a packet ends.
DELIVERED = "delivered"  # to this host's sockets
SENT = "sent"  # made here, left through an interface
FORWARDED = "forwarded"  # from one interface to another
DROPPED = "dropped"
REFUSED = "refused"  # dropped, and the sender is informed
UNKNOWN = "unknown"
ROUTED_OTHERWISE = "routing may deliver it to this host, or drop it: see ip rule and ip route"

# How an answer is called in one word.
CAPTURED = "captured"
DIRECT = "direct"

MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One thing that happened, or was looked at, in the kernel's order.

    `rule` is None for what the kernel does without a rule: a policy, tracking, translating, routing. `holds` says
    whether the rule's matches hold: None where that cannot be known, and for steps without a rule.
    """

    hook: str
    outcome: str
    table: str = ""
    chain: str = ""
    rule: LoadedRule | None = None
    holds: bool | None = None
    source: str = ""  # the place of the table, where several hold rules

    @property
    def met(self) -> Rule:
        """The rule of a hit. ValueError for a step without one."""
        if self.rule is None:
            raise ValueError(f"{self.outcome}: no rule did this")
        return self.rule.rule


@dataclass(frozen=True, slots=True)
class Trace:
    """The path of one packet. `reason` says why, where it was dropped, refused or cannot be known.

    `redirect_port` is where REDIRECT or TPROXY sent it; `zone` the connection's tracking zone. `unread` are the tables
    of others that looked at it: what they do is not known, and not part of its fate.
    """

    first: Packet  # as it was sent or came in
    last: Packet  # as it ended
    fate: str
    steps: tuple[TraceStep, ...]
    reason: str = ""
    redirect_port: int = 0
    transparent: bool = False
    translated: bool = False  # by a foreign DNAT
    policy_routed: bool = False
    zone: int = 0
    decider: TraceStep | None = None  # the rule that dropped or refused it, or because of which its end is not known
    unread: tuple[str, ...] = ()
    disputed: tuple[str, ...] = ()  # the places whose order decides, which the kernel does not show

    @property
    def verdict(self) -> str:
        """captured, direct, dropped or unknown."""
        if self.fate in (DROPPED, REFUSED):
            return DROPPED
        if self.fate == UNKNOWN:
            return UNKNOWN
        return CAPTURED if self.redirect_port else DIRECT

    @property
    def end(self) -> tuple[object, ...]:
        """All that two paths must have in common to end alike, but for marks, and the source of what is captured."""
        if self.verdict == DROPPED:
            return (DROPPED,)
        last = self.last
        return (
            self.fate, self.redirect_port, self.transparent, last.destination, last.destination_port, last.out_interface,
            self.policy_routed, self.zone, last.state == "UNTRACKED", self.redirect_port or last.source,
        )  # fmt: skip

    @property
    def hits(self) -> tuple[TraceStep, ...]:
        """The steps at rules that hold: those whose counters rise."""
        return tuple(step for step in self.steps if step.rule is not None and step.holds)


def tell_dispute(places: Sequence[str]) -> str:
    """Why nobody knows what becomes of a packet that several places treat, each in its own way."""
    return f"{' and '.join(places)} both have rules for this connection, and the kernel does not show which it runs first"


def list_unread(tables: Sequence[str]) -> str:
    """Who decides, too, without being read."""
    named = ", ".join([shorten(one) for one in tables[:MOST_NAMED]]) + (" and more" if len(tables) > MOST_NAMED else "")
    return f"foreign rules that netinit cannot read look at it, and may drop it or send it elsewhere ({named})"
