"""The interface of packets for targets. Types only, never loaded at a pod's start."""

from __future__ import annotations

from typing import Literal, Protocol

Verdict = Literal["go on", "back", "accepted", "ended"]


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

    def hand_over(self, port: int, mark: int) -> Verdict:
        """Deliver the packet to a transparent socket and set its mark."""

    def send_to(self, address: str, port: int) -> Verdict:
        """Change the connection's destination; empty and 0 leave it unchanged."""

    def write_destination(self, address: str, port: int) -> Verdict:
        """Write a destination into the packet, without NAT; empty and 0 leave it unchanged."""

    def replace_source(self, address: str) -> Verdict:
        """Replace the source; empty: by an address that only the kernel knows."""

    def set_mark(self, value: int, mask: int, *, connection: bool) -> Verdict:
        """Clear the bits in `mask`, then xor `value`."""

    def save_mark(self) -> Verdict:
        """Copy the packet's mark to its connection."""

    def restore_mark(self) -> Verdict:
        """Copy the connection's mark to the packet."""

    def track(self, zone: int | None) -> Verdict:
        """Track the connection in a conntrack zone; None: do not track it."""

    def give_up(self) -> Verdict:
        """End with the verdict UNKNOWN."""
