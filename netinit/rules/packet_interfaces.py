"""What matches and targets ask of packets: the interfaces PacketSet and Traversal. Types only, never loaded at a pod's start."""

from __future__ import annotations

from typing import Literal, Protocol

from netinit.base.net import FULL_MASK, Network

Verdict = Literal["go on", "back", "accepted", "ended"]


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

    def began_with(self, networks: tuple[Network, ...], ports: tuple[tuple[int, int], ...], *, source: bool) -> Chosen:
        """Packets whose connection began with a packet for (or from) one of the networks, or of the ports if there are any."""

    def to_socket(self) -> Chosen:
        """Packets for which a socket is connected, or bound to exactly their address."""

    def local(self, *, source: bool) -> Chosen:
        """Packets whose source (or destination) is of the type LOCAL."""

    def unknown(self) -> Chosen:
        """All packets possibly, none certainly."""


class Traversal(Protocol):
    """The effects of targets on a packet; each method returns how processing continues."""

    def drop(self) -> Verdict:
        """Drop the packet."""

    def refuse(self) -> Verdict:
        """Reject the packet; its sender gets an error."""

    def call(self, chain: str) -> Verdict:
        """Process another chain."""

    def redirect(self, port: int) -> Verdict:
        """Redirect the connection to a port of this host."""

    def deliver_to_socket(self, port: int, mark: int, mask: int = FULL_MASK) -> Verdict:
        """Deliver the packet to a transparent socket and set the bits of its mark under a mask."""

    def send_to(self, address: str, port: int) -> Verdict:
        """Change the connection's destination; empty and 0 leave it unchanged."""

    def write_destination(self, address: str, port: int) -> Verdict:
        """Write a destination into the packet, without NAT; empty and 0 leave it unchanged."""

    def replace_source(self, address: str, *, own: bool = False) -> Verdict:
        """Replace the source; empty: by an address that only the kernel knows, `own`: one of the pod's."""

    def map_to(self, network: Network) -> Verdict:
        """Replace the network of the connection's destination, or behind routing of its source."""

    def set_mark(self, value: int, mask: int, *, connection: bool) -> Verdict:
        """Clear the bits in `mask`, then xor `value`."""

    def save_mark(self, nfmask: int, ctmask: int) -> Verdict:
        """Clear the bits in `ctmask` of the connection's mark, then xor the bits in `nfmask` of the packet's."""

    def restore_mark(self, nfmask: int, ctmask: int) -> Verdict:
        """Clear the bits in `nfmask` of the packet's mark, then xor the bits in `ctmask` of the connection's."""

    def track(self, zone: int | None, side: str = "") -> Verdict:
        """Track the connection, or one direction (`side`: orig, reply), in a conntrack zone; None: do not track it."""

    def give_up(self) -> Verdict:
        """End with the verdict UNKNOWN."""
