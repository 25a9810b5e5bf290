"""What a match can ask of a set of packets: the face that the symbolic engine shows to it. Types alone, never loaded at a start."""

from __future__ import annotations

from typing import Protocol

from netinit.base.net import Network


class Chosen(Protocol):
    """Which packets of a set a condition holds for: some for certain, of some nobody knows, the others not."""

    def turned(self, negated: bool) -> Chosen:
        """The same, or its opposite; what is not known stays so."""

    def __and__(self, other: Chosen) -> Chosen:
        """Both hold."""

    def __or__(self, other: Chosen) -> Chosen:
        """One of the two holds."""


class PacketSet(Protocol):
    """A set of packets at one point of their path. Each method chooses those of which something is true there."""

    def of_protocol(self, name: str) -> Chosen:
        """Those of a transport protocol."""

    def from_networks(self, networks: tuple[Network, ...]) -> Chosen:
        """Those whose source lies in one of the networks."""

    def to_networks(self, networks: tuple[Network, ...]) -> Chosen:
        """Those whose destination lies in one of the networks."""

    def with_port(self, ranges: tuple[tuple[int, int], ...], *, source: bool) -> Chosen:
        """Those whose port lies in one of the ranges."""

    def coming_through(self, names: tuple[str, ...]) -> Chosen:
        """Those that came in through one of the interfaces; a name that ends in `+` means any ending."""

    def leaving_through(self, names: tuple[str, ...]) -> Chosen:
        """The same of the interface that they leave through."""

    def owned_by(self, kind: str, low: int, high: int) -> Chosen:
        """Those that a socket of one of these users (uid) or groups (gid) sends."""

    def with_mark(self, value: int, mask: int, *, connection: bool) -> Chosen:
        """Those whose mark, or their connection's, is `value` under the mask."""

    def in_state(self, states: tuple[str, ...]) -> Chosen:
        """Those whose connection is in one of the states."""

    def with_flags(self, mask: tuple[str, ...], flags: tuple[str, ...]) -> Chosen:
        """Those of TCP that have exactly `flags` of the flags in `mask`."""

    def with_translated_destination(self) -> Chosen:
        """Those whose connection's destination NAT has replaced (conntrack's status DNAT)."""

    def in_answers(self) -> Chosen:
        """Those that travel in the direction of the answers in their connection."""

    def to_socket(self) -> Chosen:
        """Those for which a socket is connected, or bound to the very address."""

    def local(self, *, source: bool) -> Chosen:
        """Those whose address this host has."""

    def nobody_knows(self) -> Chosen:
        """None for certain, and perhaps all."""
