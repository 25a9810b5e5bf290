"""What a rule's matches ask for, in the few words of a drawing: "not uid 1337, to lo"."""

from __future__ import annotations

from netinit.rules.matches import PROTOCOL, Match
from netinit.rules.matches.packet import drop_implied_protocols
from netinit.rules.model import Rule


def phrase_rule(rule: Rule) -> str:
    """What the rule asks for: protocol and port first, then who sends it, where it comes from and goes; empty if nothing."""
    return ", ".join([match.phrase() for match in sorted(drop_implied_protocols(rule.matches), key=_order)])


def _order(match: Match) -> tuple[bool, bool, bool, int]:
    return not match.protocol, match.place != PROTOCOL, not match.sender_ids, match.place
