"""Compare listed rules and address sets with a plan whose long lists are sets. Not loaded on a first run."""

from __future__ import annotations

from netinit.backends.listing_comparison import XtablesComparison
from netinit.base.errors import ApplyError
from netinit.base.sanitize import escape
from netinit.rules.iptables import set_changes
from netinit.rules.iptables.parse import quote_rule
from netinit.rules.model import OWNED_CHAINS, Difference, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from netinit.backends import Change


class SetsComparison(XtablesComparison):
    """The rules and sets compared with a plan whose long lists are sets."""

    state: Any  # a SetsState, which makes these comparisons

    def __init__(self, plan: Plan, state: Any) -> None:
        rewritten, self.wanted = state.use_sets(plan)
        super().__init__(plan, state, state.listings, rewritten)

    def find_differences(self) -> tuple[Difference, ...]:
        state = self.state
        found = super().find_differences() + set_changes.compare_sets(self.wanted, state.sets)
        plainly = found and self.wanted and state.ours and not state.sets
        if plainly and not state.compare_plainly(self.plan).differences:
            return ()  # plain rules without sets capture the same
        return found

    def resumable(self) -> bool:
        live = self.state.sets
        asked = [made for made in self.wanted if any(f"--match-set {made.name} " in text for _, __, text in _rules_of(self.state))]
        return super().resumable() and all(live.get(made.name) == made.elements for made in asked)

    def change(self, *, force: bool = False) -> Change:
        refuse_foreign_questions(self.state, set_changes.surplus(self.wanted, self.state.sets))
        made: Change = self.state.make_change(self.plan, self.change_rules(force=force), self.wanted, force=force)
        return made

    def change_rules(self, *, force: bool = False) -> Change:
        """Return the change of the rules alone."""
        return super().change(force=force)


def refuse_foreign_questions(state: Any, names: tuple[str, ...]) -> None:
    """Raise ApplyError if a foreign rule uses one of these sets."""
    for place, chain, text in _rules_of(state):
        if chain not in OWNED_CHAINS and any(f"--match-set {name} " in text for name in names):
            raise ApplyError(
                f"{place} {escape(chain)}: a foreign rule references an address set of netinit ({quote_rule(text)}); remove it first"
            )


def _rules_of(state: Any) -> Iterator[tuple[str, str, str]]:
    for family, listing in state.listings.items():
        for table, listed in listing.items():
            for chain, texts in listed.rules.items():
                for text in texts:
                    yield f"{family.name} {table}", chain, text
