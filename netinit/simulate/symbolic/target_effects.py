"""Effects of rule targets on packets that share one condition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from netinit.base.net import FULL_MASK, Network, number_of
from netinit.rules.foreign_targets import is_of_other_family
from netinit.rules.model import NAT, OUTPUT, RAW
from netinit.rules.targets import ACCEPTED, ENDED, GO_ON
from netinit.rules.traversal import Verdict
from netinit.simulate.hooks import TRANSLATES_DESTINATION
from netinit.simulate.symbolic.condition import KEPT, PRIMARY, Condition, InitialState
from netinit.simulate.symbolic.space import CtState, Space
from netinit.simulate.trace import DROPPED, REFUSED, UNKNOWN


class TargetEffects:
    """Applies a target to packets of one condition (rules.traversal.Traversal).

    Afterwards `now` is their condition, `called` the chain they enter next, and `fate` where they end.
    """

    def __init__(self, space: Space, condition: Condition, table: str, is_proxy: Callable[[int], bool]) -> None:
        self.now = condition
        self.called = ""
        self.fate = ""
        self._space = space
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
            self.now = replace(now, redirected=True, redirect_port=taken, translated=now.translated or not known)
            self._translate(self._own_address(), port)
        return ACCEPTED

    def _own_address(self) -> int | InitialState | None:
        if self.now.hook == OUTPUT:
            return Network.parse(self._space.family.loopback).first
        interface = self.now.in_interface
        return PRIMARY if interface is KEPT else self._space.around.primary_address(str(interface))

    def hand_over(self, port: int, mark: int) -> Verdict:
        taken = port if self._is_proxy(port) else 0
        self.now = replace(self.now, mark=self.now.mark.set(mark, FULL_MASK), redirect_port=taken, transparent=True)
        return ACCEPTED

    def send_to(self, address: str, port: int) -> Verdict:
        if is_of_other_family(address, self._space.family):
            return GO_ON
        if self._table != NAT or not self.now.connection:
            return self.give_up()
        self.now = replace(self.now, translated=True)
        self._translate(number_of(address) if address else self.now.destination, port or self.now.destination_port)
        return ACCEPTED

    def _translate(self, address: int | InitialState | None, port: int | InitialState) -> None:
        if self.now.hook in TRANSLATES_DESTINATION:
            self.now = replace(self.now, destination=address, destination_port=port)

    def write_destination(self, address: str, port: int) -> Verdict:
        """Unknown after connection tracking, where NAT may overwrite it."""
        now = self.now
        if now.hook not in TRANSLATES_DESTINATION or now.connection or now.redirect_port:
            return self.give_up()
        self.now = replace(now, rewritten=True)
        self._translate(number_of(address) if address else now.destination, port or now.destination_port)
        return GO_ON

    def replace_source(self, address: str) -> Verdict:  # noqa: ARG002 - nothing depends on a source that was translated
        if self._table != NAT:
            return self.give_up()
        self.now = replace(self.now, source=None)
        return ACCEPTED

    def set_mark(self, value: int, mask: int, *, connection: bool) -> Verdict:
        now = self.now
        if not connection:
            self.now = replace(now, mark=now.mark.set(value, mask))
        elif now.connection:
            self.now = replace(now, connection_mark=now.connection_mark.set(value, mask))
        return GO_ON

    def save_mark(self) -> Verdict:
        if self.now.connection:
            self.now = replace(self.now, connection_mark=self.now.mark)
        return GO_ON

    def restore_mark(self) -> Verdict:
        if self.now.connection:
            self.now = replace(self.now, mark=self.now.connection_mark)
        return GO_ON

    def track(self, zone: int | None) -> Verdict:
        """The first such rule wins, and tracked packets keep theirs (xt_CT)."""
        if self._table != RAW:
            return self.give_up()
        now = self.now
        if not now.connection and not now.zone:
            self.now = replace(now, state=CtState.UNTRACKED) if zone is None else replace(now, zone=zone)
        return GO_ON

    def _end(self, fate: str) -> Verdict:
        self.fate = fate
        return ENDED
