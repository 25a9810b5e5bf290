"""Evaluates matches for one packet, by the same `choose` as for sets of packets; what does not decide is None, UNKNOWN."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.base.net import Network
from netinit.rules.matches.packet import is_named
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.rules.packet_set import Chosen

_WITHOUT_CONNECTION = ("", "INVALID", "UNTRACKED")


@dataclass(frozen=True, slots=True)
class Truth:
    """Whether a condition holds; None: unknown."""

    holds: bool | None

    def negated_if(self, negated: bool) -> Truth:
        """The opposite if `negated`; unknown stays unknown."""
        return self if self.holds is None or not negated else TRUTHS[not self.holds]

    def __and__(self, other: Chosen) -> Truth:
        """Whether both hold."""
        assert isinstance(other, Truth)  # noqa: S101 - made by the same OnePacket
        if self.holds is False or other.holds:
            return self
        return other if self.holds or other.holds is False else self

    def __or__(self, other: Chosen) -> Truth:
        """Whether at least one holds."""
        assert isinstance(other, Truth)  # noqa: S101
        if self.holds or other.holds is False:
            return self
        return other if self.holds is False or other.holds else self


TRUTHS = {holds: Truth(holds) for holds in (True, False, None)}  # made once: a simulation needs thousands


class OnePacket:
    """A packet at one point of its path (rules.packet_set.PacketSet)."""

    def __init__(self, packet: Packet, surroundings: Surroundings) -> None:
        self._packet = packet
        self._around = surroundings

    def of_protocol(self, name: str) -> Truth:
        return TRUTHS[self._packet.protocol == name]

    def in_networks(self, networks: tuple[Network, ...], *, source: bool) -> Truth:
        address = self._packet.source if source else self._packet.destination
        return TRUTHS[None if address is None else any(one.first <= address <= one.last for one in networks)]

    def with_port(self, ranges: tuple[tuple[int, int], ...], *, source: bool) -> Truth:
        port = self._packet.source_port if source else self._packet.destination_port
        return TRUTHS[None if port is None else any(low <= port <= high for low, high in ranges)]

    def through_interfaces(self, names: tuple[str, ...], *, inbound: bool) -> Truth:
        return TRUTHS[is_named(self._packet.in_interface if inbound else self._packet.out_interface, names)]

    def owned_by(self, kind: str, low: int, high: int) -> Truth:
        """Without a socket, xt_owner is true for every negated match."""
        owner = self._packet.uid if kind == "uid" else self._packet.gid
        return TRUTHS[self._packet.has_socket and (None if owner is None else low <= owner <= high)]

    def with_mark(self, value: int, mask: int, *, connection: bool) -> Truth:
        return TRUTHS[(self._packet.connection_mark if connection else self._packet.mark) & mask == value]

    def in_state(self, states: tuple[str, ...]) -> Truth:
        """Before it is tracked the kernel calls a packet INVALID (nft_ct.c, xt_conntrack.c)."""
        state = self._packet.state
        return TRUTHS[state in states or (not state and "INVALID" in states)]

    def with_flags(self, mask: tuple[str, ...], flags: tuple[str, ...]) -> Truth:
        known = self._packet.flags
        return TRUTHS[None if known is None else {flag for flag in known if flag in mask} == set(flags)]

    def with_translated_destination(self) -> Truth:
        return TRUTHS[False if self._packet.state in _WITHOUT_CONNECTION else self._packet.destination_translated]

    def in_reply_direction(self) -> Truth:
        return TRUTHS[self._packet.is_answer]

    def to_socket(self) -> Truth:
        return TRUTHS[self._packet.socket]

    def local(self, *, source: bool) -> Truth:
        return TRUTHS[self._around.is_of_type_local(self._packet.source if source else self._packet.destination)]

    def unknown(self) -> Truth:
        return TRUTHS[None]
