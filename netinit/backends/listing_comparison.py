"""Compare listed rules with a plan, in iptables' syntax, and write the input that changes them. Not loaded on a first run."""

from __future__ import annotations

from netinit.backends import Change, Comparison, chains_of_iptables, filled
from netinit.backends.encoded_rules import nft_by_family
from netinit.base.errors import ApplyError
from netinit.base.net import Family
from netinit.base.sanitize import escape
from netinit.rules.iptables import ownership, transition
from netinit.rules.iptables.compare import FamilyRules
from netinit.rules.iptables.parse import quote_rule
from netinit.rules.iptables.write import Listing, write_plan
from netinit.rules.model import EMPTY_PLAN, Difference, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from netinit.backends.encoded_rules import EncodedNft
    from netinit.kernel.plain_namespace import KnownChains
    from netinit.rules.rule_patterns import LayoutPatterns


class XtablesComparison(Comparison):
    """The listings compared with the plan by family. `written`: the plan to write, if another."""

    state: Any  # an XtablesState, which makes these comparisons

    def __init__(self, plan: Plan, state: Any, listings: dict[Family, Listing], written: Plan | None = None) -> None:
        self.plan = plan
        self._written = written
        self.by_family = _pair(written or plan, listings, comments=state.comments)
        self.state = state.replace(foreign=_holds_foreign(self.by_family))

    def find_differences(self) -> tuple[Difference, ...]:
        return tuple([found for one in self.by_family for found in one.find_differences()])

    def known_chains(self) -> KnownChains | None:
        if self.state.ours and self.differences:
            return None
        return chains_of_iptables({one.family: one.written for one in self.by_family}) if self.state.of_nf_tables else {}

    def removed(self) -> dict[str, tuple[str, ...]]:
        return {
            f"{one.family.name} {name} {chain}": tuple(map(str, texts))
            for one in self.by_family
            for name in one.listing
            for chain, texts in one.live_chains(name).items()
        }

    def shadows(self) -> tuple[Difference, ...]:
        return tuple([found for one in self.by_family for found in one.find_shadows()])

    def resumable(self) -> bool:
        return all(one.is_interrupted() for one in self.by_family)

    def change(self, *, force: bool = False) -> Change:
        made: Change = self.state.writer.write_change(self, force=force)
        return made

    def with_encoded(self) -> list[tuple[FamilyRules, EncodedNft | None]]:
        """Return the rules of iptables-nft of each family as compared, and as read; None where there is no table."""
        held = nft_by_family(self.state.encoded)
        return [(one, held.get(one.family)) for one in self.by_family]

    def write_text(self, *, force: bool) -> Change:
        """Return the change as input of iptables-restore."""
        scripts = {}
        for one in self.by_family:
            skip = [] if force else [table for table in one.tables if one.is_planned(table)]
            scripts[one.family.name] = transition.write_transition(
                transition.target_from_plan(one.written), one.listing, one.owned, skip=skip, by_number=force
            )
        return Change(scripts=filled(scripts), before=self.state, plan=self.plan)

    def repeat(self, newer: Any) -> XtablesComparison:
        """Compare the same plan with a newer state."""
        return XtablesComparison(self.plan, newer, newer.listings, self._written)

    def removal(self) -> Change:
        owned = self.find_owned()
        scripts = {one.family.name: transition.write_transition({}, one.listing, owned[one.family]) for one in self.by_family}
        return Change(scripts=filled(scripts), before=self.state, plan=self.plan)

    def find_owned(self) -> dict[Family, ownership.Owned]:
        """Return where our rules are in the built-in chains. Raises ApplyError if foreign rules jump to our chains."""
        for one in self.by_family:
            for table, chain, rule in one.find_foreign_jumps():
                place = f"{one.family.name} {table} {escape(chain)}"
                raise ApplyError(f"{place}: a foreign rule jumps into netinit's chains ({quote_rule(rule)}); remove it first")
        return {one.family: one.owned for one in self.by_family}


def find_holders(listings: dict[Family, Listing]) -> tuple[bool, bool]:
    """Return whether rules of ours, and whether foreign ones, are listed."""
    by_family = _pair(EMPTY_PLAN, listings, comments=False)
    ours = any(one.owned or any(ownership.holds_ours(table) for table in one.listing.values()) for one in by_family)
    return ours, _holds_foreign(by_family)


def _holds_foreign(by_family: list[FamilyRules]) -> bool:
    return any(ownership.holds_foreign_rules(one.listing, one.owned) for one in by_family)


def write_return(
    now: XtablesComparison, before: XtablesComparison, families: tuple[Family, ...]
) -> tuple[dict[Family, str], list[str]]:
    """Return the input that restores these families from `now` to `before`, and the places of rules that are lost."""
    olds = {one.family: one for one in before.by_family}
    scripts = {}
    lost: list[str] = []
    for one in now.by_family:
        if one.family in families:
            old = olds[one.family]
            owned = ownership.keep_foreign_rules(one.owned, one.listing, old.listing, old.owned)
            target, missed = transition.target_from_listing(old)
            lost += [f"{one.family.name} {place}" for place in missed]
            scripts[one.family] = transition.write_transition(target, one.listing, owned)
    return scripts, lost


def _pair(plan: Plan, listings: dict[Family, Listing], *, comments: bool) -> list[FamilyRules]:
    by_family = []
    keys = {family: ownership.keys_of(listing, family) for family, listing in listings.items()}
    for family, listing in listings.items():
        written = write_plan(plan, family, comments=comments)
        owned = ownership.owned_rules(family, keys, written, _patterns)
        by_family.append(FamilyRules(family=family, written=written, listing=listing, owned=owned))
    return by_family


def _patterns() -> LayoutPatterns:
    from netinit.rules.rule_patterns import layout_patterns  # only for other rules beside those that jump to our chains

    return layout_patterns()
