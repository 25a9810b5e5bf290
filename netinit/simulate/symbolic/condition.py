"""The state that all packets of a set share at one point of their path, relative to their initial one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property
from typing import Final

from netinit.base.net import FULL_MASK
from netinit.rules.model import OUTPUT
from netinit.simulate.symbolic.space import Dim


class InitialState(Enum):
    """A value that depends on the packet's initial state."""

    KEPT = "as it began"
    PRIMARY = "the first address of the interface that it came in through"

    __hash__ = object.__hash__  # members are singletons, and Enum's own hash is slow


KEPT: Final = InitialState.KEPT
PRIMARY: Final = InitialState.PRIMARY


@dataclass(frozen=True, slots=True)
class MarkBits:
    """A mark as a function of an initial one: keep the bits in `keep`, then xor `flip`."""

    source: str
    keep: int = FULL_MASK
    flip: int = 0

    def set(self, value: int, mask: int) -> MarkBits:
        """Clear the bits of `mask`, then xor with `value`."""
        return MarkBits(self.source, self.keep & ~mask, (self.flip & ~mask) ^ value)

    def apply(self, mark: int) -> int:
        """Compute the mark of one packet."""
        return (mark & self.keep) ^ self.flip


@dataclass(frozen=True)
class Condition:
    """The current state of all packets of a set. Unknown addresses are None.

    `tracked`: connection tracking has seen them; `connection`: they have a conntrack entry; `decided`: its
    destination NAT was decided earlier.
    """

    hook: str = OUTPUT
    destination: int | InitialState | None = KEPT
    destination_port: int | InitialState = KEPT
    source: InitialState | None = KEPT
    rewritten: bool = False  # without NAT
    in_interface: str | InitialState = ""
    out_interface: str | InitialState = ""
    sender: bool = False  # a sending socket, if any, is still attached
    mark: MarkBits = MarkBits(Dim.MARK)
    connection_mark: MarkBits = MarkBits(Dim.CONNECTION_MARK)
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
    unread: tuple[str, ...] = ()  # things that decided and cannot be read
    early: tuple[tuple[str, str], ...] = ()  # chains that ran early and share their priority with connection tracking or NAT
    has_vague_marks: bool = False  # their marks are unknown

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Cached, because groups are looked up by condition constantly."""
        return hash(tuple([getattr(self, field.name) for field in fields(self)]))


@dataclass(frozen=True, slots=True)
class Treatment:
    """Where the packets of a part end, as in Trace, why (`reason`), and their final condition."""

    fate: str
    condition: Condition
    reason: str = ""
    by_rule: bool = False  # ended by the last rule on the path
    at_worst_dropped: bool = False  # unknown, but every outcome is either captured or dropped

    @property
    def behaviour(self) -> tuple[object, ...]:
        """What makes two outcomes equal, except marks, which depend on the initial packet."""
        return (*self.behaviour_but_source, *(() if self.fate in ENDS else (self.condition.source,)))

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


ENDS = ("dropped", "refused")  # the packet is gone
