"""What is true of all packets of a set at one point of their path, beside how each of them began."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property
from typing import Final

from netinit.base.net import FULL_MASK
from netinit.rules.model import OUTPUT
from netinit.simulate.symbolic.space import CONNECTION_MARK, MARK


class InitialState(Enum):
    """What follows from how a packet began."""

    KEPT = "as it began"
    PRIMARY = "the first address of the interface that it came in through"

    __hash__ = object.__hash__  # there is one of each; Enum's own costs a call


KEPT: Final = InitialState.KEPT
PRIMARY: Final = InitialState.PRIMARY


@dataclass(frozen=True, slots=True)
class MarkBits:
    """A mark as it comes of one that the packet began with: the bits of `keep` are left of it, then `flip` is xored in."""

    source: str
    keep: int = FULL_MASK
    flip: int = 0

    def set(self, value: int, mask: int) -> MarkBits:
        """With the bits of `mask` cleared, then `value` xored in."""
        return MarkBits(self.source, self.keep & ~mask, (self.flip & ~mask) ^ value)

    def apply(self, mark: int) -> int:
        """What becomes of one mark."""
        return (mark & self.keep) ^ self.flip


@dataclass(frozen=True)
class Condition:
    """How all packets of a set are now.

    None is an address that nobody can know. `tracked`: connection tracking has seen them; `connection`: it keeps
    one for them; `decided`: the destination of that was decided before.
    """

    hook: str = OUTPUT
    destination: int | InitialState | None = KEPT
    destination_port: int | InitialState = KEPT
    source: InitialState | None = KEPT
    rewritten: bool = False  # the destination was, without NAT
    in_interface: str | InitialState = ""
    out_interface: str | InitialState = ""
    sender: bool = False  # whether the socket that sends, if there is one, still belongs to them
    mark: MarkBits = MarkBits(MARK)
    connection_mark: MarkBits = MarkBits(CONNECTION_MARK)
    state: str | InitialState = KEPT
    tracked: bool = False
    connection: bool = False
    decided: bool = False
    source_decided: bool = False
    redirected: bool = False
    redirect_port: int = 0
    transparent: bool = False
    translated: bool = False
    policy_routed: bool = False
    zone: int = 0
    unread: tuple[str, ...] = ()  # what decided about them and cannot be read
    early: tuple[tuple[str, str], ...] = ()  # chains that may be asked before or after what has their priority, and were
    has_vague_marks: bool = False  # nobody knows their marks

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: groups of packets are looked up by their condition again and again."""
        return hash(tuple([getattr(self, field.name) for field in fields(self)]))


@dataclass(frozen=True, slots=True)
class Treatment:
    """What becomes of all packets of a part: where they end, as a Trace says it, and what is left on them.

    `reason` says why they are dropped, refused or unknown.
    """

    fate: str
    condition: Condition
    reason: str = ""
    by_rule: bool = False  # the last rule on the path ended it
    at_worst_dropped: bool = False  # unknown, but no way ends elsewhere than where one way captures

    @property
    def behaviour(self) -> tuple[object, ...]:
        """All that two outcomes must have in common to be the same, but for marks, which hang on how a packet began."""
        return (*self.behaviour_but_source, *(() if self.fate in ENDS else (self.condition.source,)))

    @property
    def behaviour_but_source(self) -> tuple[object, ...]:
        """The same of packets that are captured in any case, whatever their source address becomes."""
        ended = self.condition
        if self.fate in ENDS:
            return (self.fate,)
        source = () if ended.redirect_port else (ended.source,)
        return (
            self.fate, ended.redirect_port, ended.transparent, ended.destination, ended.destination_port,
            ended.out_interface, ended.policy_routed, ended.zone, ended.state, *source,
        )  # fmt: skip


ENDS = ("dropped", "refused")  # nothing is left of the packet
