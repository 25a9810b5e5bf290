"""The state of packets at one point of their path, and the effects of rule targets on it.

One packet has plain values; all packets of a set share a state that may be relative to their initial one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from netinit.base.net import FULL_MASK, Network, number_of
from netinit.rules.foreign_targets import is_of_other_family
from netinit.rules.model import NAT, OUTPUT, RAW
from netinit.rules.packet_inputs import Surroundings
from netinit.rules.targets import ACCEPTED, ENDED, GO_ON
from netinit.simulate.hooks import TRANSLATES_DESTINATION
from netinit.simulate.trace import DROPPED, REFUSED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.rules.packet_interfaces import Verdict

MARK, CONNECTION_MARK = "mark", "connection mark"
UNTRACKED = "UNTRACKED"


class InitialState(Enum):
    """A value that depends on the packet's initial state."""

    KEPT = "as it began"
    PRIMARY = "the first address of the interface that it came in through"
    OWN = "one of the pod's own addresses"

    __hash__ = object.__hash__  # members are singletons, and Enum's own hash is slow


KEPT: Final = InitialState.KEPT
PRIMARY: Final = InitialState.PRIMARY
OWN: Final = InitialState.OWN


@dataclass(frozen=True, slots=True)
class MarkBits:
    """A mark as a function of the initial ones: the packet's bits in `packet`, xor its connection's in `connection`, xor `flip`."""

    packet: int = 0
    connection: int = 0
    flip: int = 0

    def set(self, value: int, mask: int) -> MarkBits:
        """Clear the bits of `mask`, then xor with `value`."""
        return self.mix(MarkBits(flip=value), mask, FULL_MASK)

    def mix(self, other: MarkBits, mask: int, taken: int) -> MarkBits:
        """Clear the bits of `mask`, then xor with the bits in `taken` of another mark."""
        mine, others = (self.packet, self.connection, self.flip), (other.packet, other.connection, other.flip)
        return MarkBits(*[(one & ~mask) ^ (two & taken) for one, two in zip(mine, others, strict=True)])


INITIAL_MARKS: Final = {MARK: MarkBits(packet=FULL_MASK), CONNECTION_MARK: MarkBits(connection=FULL_MASK)}


@dataclass(frozen=True)
class Condition:
    """The current state of one packet or of all packets of a set. Unknown addresses and ports are None.

    `tracked`: connection tracking has seen them; `connection`: they have a conntrack entry; `decided`: its
    destination NAT was decided earlier. `asked`: they answer other packets, whose ends in turn are what is KEPT.
    """

    hook: str = OUTPUT
    destination: int | InitialState | None = KEPT
    destination_port: int | InitialState | None = KEPT
    source: int | InitialState | None = KEPT
    source_port: int | InitialState | None = KEPT
    asked: Any = None  # None, or symbolic.answer_walk.Asked
    rewritten: tuple[int | InitialState | None, int | InitialState | None] | None = None  # destination and port, without NAT
    in_interface: str | InitialState = ""
    out_interface: str | InitialState = ""
    sender: bool = False  # a sending socket, if any, is still attached
    mark: MarkBits = INITIAL_MARKS[MARK]
    connection_mark: MarkBits = INITIAL_MARKS[CONNECTION_MARK]
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
    zone: int = 0  # of the original direction
    reply_zone: int = 0
    zone_decided: bool = False  # by a rule of CT, before connection tracking
    early: tuple[tuple[str, str], ...] = ()  # chains that ran early and share their priority with connection tracking or NAT
    has_vague_marks: bool = False  # their marks are unknown

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Cached, because groups are looked up by condition constantly."""
        return hash(tuple(self.__dict__.values()))  # in the order of the fields, since nothing else sets them

    def replace(self, **changes: Any) -> Condition:
        """A copy with new values; dataclasses.replace takes eight times as long."""
        made = object.__new__(Condition)
        made.__dict__.update(self.__dict__, **changes)
        made.__dict__.pop("_hash", None)
        return made

    @property
    def translation(self) -> tuple[object, ...]:
        """What NAT has done to the packets."""
        return (self.destination, self.destination_port, self.source, self.redirected, self.translated)


class TargetEffects:
    """Applies a target to one packet, or to packets of one condition (rules.packet_interfaces.Traversal).

    Afterwards `now` is their condition, `called` the chain they enter next, and `fate` where they end.
    """

    def __init__(self, around: Surroundings, condition: Condition, table: str, is_proxy: Callable[[int], bool]) -> None:
        self.now = condition
        self.called = ""
        self.fate = ""
        self._around = around
        self._table = table
        self._is_proxy = is_proxy

    def drop(self) -> Verdict:
        return self._end(DROPPED)

    def refuse(self) -> Verdict:
        return self._end(REFUSED)

    def give_up(self) -> Verdict:
        return self._end(UNKNOWN)

    def call(self, chain: str) -> Verdict:
        self.called = chain
        return GO_ON

    def redirect(self, port: int) -> Verdict:
        now = self.now
        if self._table != NAT:
            return self.give_up()
        if now.connection:
            known = self._is_proxy(port)
            taken = now.redirect_port if now.transparent or not known else port  # the socket that TPROXY assigned still gets them
            self.now = now.replace(redirected=True, redirect_port=taken, translated=now.translated or not known)
            self._translate(self._own_address(), port)
        return ACCEPTED

    def _own_address(self) -> int | InitialState | None:
        if self.now.hook == OUTPUT:
            return Network.parse(self._around.family.loopback).first
        interface = self.now.in_interface
        return PRIMARY if interface is KEPT else self._around.primary_address(str(interface))

    def deliver_to_socket(self, port: int, mark: int, mask: int = FULL_MASK) -> Verdict:
        taken = port if self._is_proxy(port) else 0
        self.now = self.now.replace(mark=self.now.mark.set(mark, mask), redirect_port=taken, transparent=True)
        return ACCEPTED

    def send_to(self, address: str, port: int) -> Verdict:
        if is_of_other_family(address, self._around.family):
            return GO_ON
        if self._table != NAT or not self.now.connection:
            return self.give_up()
        self.now = self.now.replace(translated=True)
        self._translate(number_of(address) if address else self.now.destination, port or self.now.destination_port)
        return ACCEPTED

    def _translate(self, address: int | InitialState | None, port: int | InitialState | None) -> None:
        if self.now.hook in TRANSLATES_DESTINATION:
            self.now = self.now.replace(destination=address, destination_port=port)

    def write_destination(self, address: str, port: int) -> Verdict:
        """Unknown after connection tracking, where NAT may overwrite it."""
        now = self.now
        if now.hook not in TRANSLATES_DESTINATION or now.connection or now.redirect_port:
            return self.give_up()
        written = (number_of(address) if address else now.destination, port or now.destination_port)
        self.now = now.replace(rewritten=written)
        self._translate(*written)
        return GO_ON

    def replace_source(self, address: str, *, own: bool = False) -> Verdict:
        if self._table != NAT:
            return self.give_up()
        self.now = self.now.replace(source=OWN if own else number_of(address) if address else None)
        return ACCEPTED

    def map_to(self, network: Network) -> Verdict:
        towards, host = self.now.hook in TRANSLATES_DESTINATION, network.last - network.first
        kept = self.now.destination if towards else self.now.source
        address = network.first if not host else network.first | kept & host if isinstance(kept, int) else None
        if self._table != NAT or not self.now.connection:
            return self.give_up()
        if towards:
            self.now = self.now.replace(translated=True)
            self._translate(address, self.now.destination_port)
        else:
            self.now = self.now.replace(source=address)
        return ACCEPTED

    def set_mark(self, value: int, mask: int, *, connection: bool) -> Verdict:
        now = self.now
        if not connection:
            self.now = now.replace(mark=now.mark.set(value, mask))
        elif now.connection:
            self.now = now.replace(connection_mark=now.connection_mark.set(value, mask))
        return GO_ON

    def save_mark(self, nfmask: int, ctmask: int) -> Verdict:
        if self.now.connection:
            self.now = self.now.replace(connection_mark=self.now.connection_mark.mix(self.now.mark, ctmask, nfmask))
        return GO_ON

    def restore_mark(self, nfmask: int, ctmask: int) -> Verdict:
        if self.now.connection:
            self.now = self.now.replace(mark=self.now.mark.mix(self.now.connection_mark, nfmask, ctmask))
        return GO_ON

    def track(self, zone: int | None, side: str = "") -> Verdict:
        """The first such rule wins, and tracked packets keep theirs (xt_CT); `side`: the direction that the zone is of."""
        if self._table != RAW:
            return self.give_up()
        now = self.now.replace(zone_decided=True)
        if now.connection or self.now.zone_decided:
            return GO_ON
        if zone is None:
            self.now = now.replace(state=UNTRACKED)
        else:
            self.now = now.replace(zone=0 if side == "reply" else zone, reply_zone=0 if side == "orig" else zone)
        return GO_ON

    def _end(self, fate: str) -> Verdict:
        self.fate = fate
        return ENDED
