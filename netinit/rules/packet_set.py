"""The interface of packet sets for matches. Types only, never loaded at a pod's start."""

from __future__ import annotations

from typing import Protocol

from netinit.base.net import Network


class Chosen(Protocol):
    """The packets for which a condition is certainly true, and those for which it may be."""

    def negated_if(self, negated: bool) -> Chosen:
        """Return the complement if `negated`; unknown stays unknown."""

    def __and__(self, other: Chosen) -> Chosen:
        """Both conditions are true."""

    def __or__(self, other: Chosen) -> Chosen:
        """At least one condition is true."""


class PacketSet(Protocol):
    """A set of packets at one point of their path. Each method returns those for which a condition is true."""

    def of_protocol(self, name: str) -> Chosen:
        """Packets of a transport protocol."""

    def in_networks(self, networks: tuple[Network, ...], *, source: bool) -> Chosen:
        """Packets whose destination (or source) is in one of the networks."""

    def with_port(self, ranges: tuple[tuple[int, int], ...], *, source: bool) -> Chosen:
        """Packets whose destination (or source) port is in one of the ranges."""

    def through_interfaces(self, names: tuple[str, ...], *, inbound: bool) -> Chosen:
        """Packets received on (or sent through) one of the interfaces; `+` at the end of a name: a prefix."""

    def owned_by(self, kind: str, low: int, high: int) -> Chosen:
        """Packets sent by a socket of one of these users (uid) or groups (gid)."""

    def with_mark(self, value: int, mask: int, *, connection: bool) -> Chosen:
        """Packets whose mark, or whose connection's mark, equals `value` under `mask`."""

    def in_state(self, states: tuple[str, ...]) -> Chosen:
        """Packets whose connection is in one of the states."""

    def with_flags(self, mask: tuple[str, ...], flags: tuple[str, ...]) -> Chosen:
        """TCP packets with exactly `flags` of the flags in `mask`."""

    def with_translated_destination(self) -> Chosen:
        """Packets of connections with conntrack status DNAT."""

    def in_reply_direction(self) -> Chosen:
        """Packets in the reply direction of their connection."""

    def to_socket(self) -> Chosen:
        """Packets for which a socket is connected, or bound to exactly their address."""

    def local(self, *, source: bool) -> Chosen:
        """Packets whose source (or destination) is of the type LOCAL."""

    def unknown(self) -> Chosen:
        """All packets possibly, none certainly."""
