"""Edits that make the rules of legacy tables, compared decoded, those of a plan. Not loaded on a first run."""

from __future__ import annotations

from netinit.backends.legacy_edits import LegacyChange, add_all, find_edits, make_change

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.encoded_rules import EncodedLegacy
    from netinit.backends.legacy_edits import Edits, Live, Number
    from netinit.backends.listing_comparison import XtablesComparison
    from netinit.base.net import Family


def write_change(comparison: XtablesComparison, *, force: bool) -> LegacyChange:
    """Return the change of compared rules to the plan; without `force` correct tables are left out."""

    def write(number: Number) -> dict[Family, Edits]:
        live = _live(comparison)
        edits = {}
        for one in comparison.by_family:
            skip = [] if force else [table for table in one.tables if one.is_planned(table)]
            edits[one.family] = find_edits(add_all(number(one.written), one.family), live[one.family], one.owned, skip)
        return edits

    return make_change(write, comparison.state, comparison.plan)


def write_removal(comparison: XtablesComparison) -> LegacyChange:
    """Return the deletion of our rules. Raises ApplyError if foreign rules jump to our chains."""
    live = _live(comparison)
    edits = {family: find_edits((), live[family], owned) for family, owned in comparison.find_owned().items()}
    return make_change(lambda _: edits, comparison.state, comparison.plan)


def _live(comparison: XtablesComparison) -> dict[Family, Live]:
    held: tuple[EncodedLegacy, ...] = comparison.state.encoded
    return {one.family: one.rules for one in held} or {one.family: {} for one in comparison.by_family}
