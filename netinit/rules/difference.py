"""One difference between what is planned and what is live, in the terms of every dialect."""

from __future__ import annotations

from netinit.base.records import Record
from netinit.base.shown import MOST_OF_A_RULE, escape, quote, shorten

MISSING, EXTRA, MOVED, SHADOWING, LEFTOVER = "missing", "extra", "moved", "shadowing", "leftover"


class Difference(Record):
    """One place where the live rules are not as planned.

    `kind`: missing, extra, moved, shadowing (a foreign rule that stands before ours and may decide first) or leftover (of
    ours, in another dialect). `number` counts from 1 in the chain (live for what is there, planned for what is missing).
    """

    kind: str
    where: str  # IPv4, IPv6, or the dialect
    table: str = ""
    chain: str = ""
    number: int = 0
    rule: str = ""  # as listed, without its comment; empty for a whole chain
    comment: str = ""  # of a live rule: whoever made it wrote it
    purpose: str = ""
    origin: str = ""

    def describe(self) -> str:
        """The difference on one line."""
        place = " ".join(
            [
                word
                for word in (self.where, self.table, self.chain, f"rule {self.number}" if self.number else "")
                if word
            ]
        )
        why = f"  ({self.purpose}; {self.origin})" if self.purpose else ""
        return escape(f"{self.kind}: {place}: {self._spell() if self.rule else 'the chain itself'}{why}")

    def _spell(self) -> str:
        rule = shorten(self.rule, MOST_OF_A_RULE)
        return f"`{rule}` with comment {quote(self.comment)}" if self.comment else rule
