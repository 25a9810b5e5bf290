"""What a target can do to a packet on its path: the face that the simulator shows to it. Types alone, never loaded at a start."""

from __future__ import annotations

from typing import Literal, Protocol

Verdict = Literal["go on", "back", "accepted", "ended"]


class Traversal(Protocol):
    """What a target can do to a packet on its path; the simulator is one. Each answers with how it goes on."""

    def drop(self) -> Verdict:
        """It vanishes."""

    def refuse(self) -> Verdict:
        """Its sender learns that it was refused."""

    def call(self, chain: str) -> Verdict:
        """It goes through another chain."""

    def redirect(self, port: int) -> Verdict:
        """Its connection goes to a port of this host."""

    def hand_over(self, port: int, mark: int) -> Verdict:
        """A transparent socket gets it, and it has a mark."""

    def send_to(self, address: str, port: int) -> Verdict:
        """Its connection goes elsewhere; empty and 0 leave as they are."""

    def replace_source(self) -> Verdict:
        """Its source becomes what only the kernel knows."""

    def set_mark(self, value: int, mask: int, *, connection: bool) -> Verdict:
        """The bits of `mask` are cleared in its mark or its connection's, then `value` is xored in."""

    def save_mark(self) -> Verdict:
        """Its connection gets its mark."""

    def restore_mark(self) -> Verdict:
        """It gets its connection's mark."""

    def track(self, zone: int | None) -> Verdict:
        """Its connection is tracked in a zone; None: not at all."""

    def give_up(self) -> Verdict:
        """Nobody knows what becomes of it."""
