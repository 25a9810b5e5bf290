"""The path of a simulated packet, its verdict, and the rule that decided it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from netinit.base.sanitize import shorten
from netinit.rules.foreign_targets import DestinationNat, MapNetwork, socket_target
from netinit.rules.matches.packet import Destination, Protocol
from netinit.rules.model import ISTIO_REFUSE_IN, ISTIO_REFUSE_OUT, MANGLE, NAT, OUTPUT, PREROUTING, Rule
from netinit.rules.packet_inputs import Packet
from netinit.rules.targets import Accept, Capture, Jump, Redirect, Return
from netinit.simulate.ruleset import LoadedRule, RuleHit

# Where a packet ends.
DELIVERED = "delivered"  # to a socket of this host
SENT = "sent"  # by this host, through an interface
FORWARDED = "forwarded"  # from one interface to another
DROPPED = "dropped"
REFUSED = "refused"  # dropped, and the sender is notified
UNKNOWN = "unknown"
VANISHED = "vanished"  # of an observed packet: its path was not seen to end, by a rule or otherwise
NOT_FORWARDED = "it is for another host, and this one does not forward"
ROUTED_OTHERWISE = "routing may deliver it to this host, or drop it: see ip rule and ip route"

# Verdicts in one word.
CAPTURED = "captured"
DIRECT = "direct"

MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of the path, in the kernel's order.

    `rule` is None for policies, tracking, translation and routing. `holds`: whether the rule matches; None if
    unknown or without a rule.
    """

    hook: str
    outcome: str
    table: str = ""
    chain: str = ""
    rule: LoadedRule | None = None
    holds: bool | None = None
    source: str = ""  # backend of the table, if several have rules
    number: int = 0  # of an observed rule in a table that netinit cannot read

    @property
    def place(self) -> tuple[str, str, str, int]:
        """The step's hook, table, chain and the number of the rule; 0 without a rule."""
        return (self.hook, self.table, self.chain, self.rule.number if self.rule else self.number)

    @property
    def matched(self) -> Rule:
        """The rule of a hit. Raises ValueError for a step without a rule."""
        if self.rule is None:
            raise ValueError(f"{self.outcome}: no rule did this")
        return self.rule.rule


@dataclass(frozen=True, slots=True)
class Trace:
    """The simulated or observed path of one packet; `reason` says why it was dropped, refused or is unknown.

    `redirect_port` is REDIRECT's or TPROXY's, `zone` and `reply_zone` are the conntrack zones of
    the original and the reply direction.
    """

    first: Packet  # as sent or received
    last: Packet  # at its end
    fate: str
    steps: tuple[TraceStep, ...]
    reason: str = ""
    redirect_port: int = 0
    transparent: bool = False
    translated: bool = False  # by a foreign DNAT
    rewritten: tuple[Any, Any] | None = None  # destination and port that a rule wrote without NAT: those that tracking sees
    policy_routed: bool = False
    zone: int = 0
    reply_zone: int = 0
    decider: TraceStep | None = None  # the rule that dropped or refused it or made its end unknown
    disputed: tuple[str, ...] = ()  # backends whose relative order decides but is not exposed
    routed: Packet | None = None  # as the kernel routed it when it came in, after PREROUTING
    is_mark_known: bool = True  # then: no rule that may have matched before can have changed it
    direct: tuple[Trace, ...] = ()  # of an unknown fate whose every outcome is direct: a way to each end
    dropped_by: str = ""  # of an unknown fate whose every outcome is captured or dropped: the rule or policy that may drop it

    @property
    def verdict(self) -> str:
        """captured, direct, dropped or unknown."""
        return verdict_of(self.fate, self.redirect_port)

    @property
    def cause(self) -> TraceStep | None:
        """The step of the rule that redirected or excluded the packet, or ended its path; None if no rule did."""
        if self.fate in (DROPPED, REFUSED, UNKNOWN):
            return self.decider
        if step := self.diverted:
            return step
        return cause_of(self.hits, captured=self.verdict == CAPTURED, transparent=self.transparent, translated=self.translated)

    @property
    def diverted(self) -> TraceStep | None:
        """The rule that hands a delivered packet to a transparent socket which is not the proxy's; None if none does."""
        if not self.transparent or self.redirect_port or self.fate != DELIVERED:
            return None
        handing = [hit for hit in self.hits if socket_target(hit.matched.target)]
        return handing[-1] if handing else None

    @property
    def end(self) -> tuple[object, ...]:
        """What makes two ends equal, except marks and the source of captured packets."""
        if self.verdict == DROPPED:
            return (DROPPED,)
        last = self.last
        return (
            self.fate, self.redirect_port, self.transparent, last.destination, last.destination_port, last.out_interface,
            self.policy_routed, self.zone, self.reply_zone, last.state == "UNTRACKED", self.redirect_port or last.source,
        )  # fmt: skip

    @property
    def hits(self) -> tuple[TraceStep, ...]:
        """Steps at rules that match, whose counters increase."""
        return tuple(step for step in self.steps if step.rule is not None and step.holds)


def verdict_of(fate: str, port: int) -> str:
    """The verdict on packets with this fate and proxy port (0: not redirected)."""
    if fate in (DROPPED, REFUSED):
        return DROPPED
    return UNKNOWN if fate in (UNKNOWN, VANISHED) else CAPTURED if port else DIRECT


def explain_dispute(places: Sequence[str]) -> str:
    """Why a verdict is UNKNOWN if backends treat a packet differently."""
    return f"{' and '.join(places)} both have rules for this connection, and the kernel does not show which it runs first"


def list_unread(tables: Sequence[str]) -> str:
    """Why a verdict is UNKNOWN if unreadable tables take part in it."""
    named = ", ".join([shorten(one) for one in tables[:MAX_NAMED]]) + (" and more" if len(tables) > MAX_NAMED else "")
    return f"foreign rules that netinit cannot read apply to it, and may drop it or send it elsewhere ({named})"


AnyHit = TypeVar("AnyHit", bound=RuleHit | TraceStep)


def cause_of(hits: Sequence[AnyHit], *, captured: bool, transparent: bool, translated: bool) -> AnyHit | None:
    """The rule that redirected, diverted or excluded a packet; None if no rule did."""
    if captured:
        targets = [hit.matched.target for hit in hits]
        places = [at for at, one in enumerate(targets) if isinstance(one, Capture) and one.transparent == transparent]
        return _leading_to(hits, places[-1]) if places else None
    if translated:
        return next((hit for hit in reversed(hits) if isinstance(hit.matched.target, DestinationNat | MapNetwork | Redirect)), None)
    for hit in reversed(hits):  # at a place of exclusions from capture or from rejection
        captures = hit.hook in (OUTPUT, PREROUTING) and hit.table in (NAT, MANGLE)
        if (captures or hit.chain in (ISTIO_REFUSE_IN, ISTIO_REFUSE_OUT)) and isinstance(hit.matched.target, Return | Accept):
            return hit
    return None


def _leading_to(hits: Sequence[AnyHit], place: int) -> AnyHit:
    """The rule itself, or the jump to its chain if the rule matches all TCP that comes there, or all but that to loopback."""
    hit = hits[place]
    if not all(isinstance(match, Protocol | Destination) for match in hit.matched.matches):
        return hit
    for before in reversed(hits[:place]):
        target = before.matched.target
        if isinstance(target, Jump) and target.chain == hit.chain and before.table == hit.table:
            return before
    return hit
