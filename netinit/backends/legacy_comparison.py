"""Compare the rules of legacy tables with a plan, decoded, and find the edits that make them so. Not loaded on a first run."""

from __future__ import annotations

from netinit.backends import Change
from netinit.backends.legacy_edits import add_all, find_edits, make_change
from netinit.backends.listing_comparison import XtablesComparison

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.encoded_rules import EncodedLegacy
    from netinit.backends.legacy_edits import Live
    from netinit.base.net import Family


class LegacyComparison(XtablesComparison):
    """The rules of legacy tables compared with a plan."""

    def change(self, *, force: bool = False) -> Change:
        live = self._live()
        edits = {}
        for one in self.by_family:
            skip = [] if force else [table for table in one.tables if one.is_planned(table)]
            edits[one.family] = find_edits(add_all(one.written, one.family), live[one.family], one.owned, skip)
        return make_change(edits, self.state, self.plan)

    def removal(self) -> Change:
        live = self._live()
        edits = {family: find_edits((), live[family], owned) for family, owned in self.find_owned().items()}
        return make_change(edits, self.state, self.plan)

    def _live(self) -> dict[Family, Live]:
        held: tuple[EncodedLegacy, ...] = self.state.encoded
        return {one.family: one.rules for one in held} or {one.family: {} for one in self.by_family}
