"""Compare planned with listed rules."""

from __future__ import annotations

from netinit.base.net import Family
from netinit.base.records import Record
from netinit.rules.iptables.keys import DOCKER_RULE, jumps_to_ours, target_of
from netinit.rules.iptables.parse import normalise, part_comment
from netinit.rules.iptables.write import Listing, Written, WrittenChain, miss_chain
from netinit.rules.model import BUILTIN_CHAINS, EXTRA, MISSING, MOVED, OWNED_CHAINS, SHADOWING, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netinit.rules.iptables.ownership import Owned

NO_CHAIN = WrittenChain(rules=())
HARMLESS_TARGETS = frozenset(
    ("", "LOG", "NFLOG", "MARK", "CONNMARK", "COUNTER", "CT", "NOTRACK", "TRACE", "TCPMSS", "DSCP", "TOS", "AUDIT")
)


class FamilyRules(Record):
    """The listed rules of one family and the plan as written; `owned`: which rules of built-in chains are ours."""

    family: Family
    written: Written
    listing: Listing
    owned: Owned

    @property
    def tables(self) -> list[str]:
        """The plan's tables, then the listing's others."""
        return [*dict.fromkeys((*self.written, *self.listing))]

    def live_chains(self, table: str) -> dict[str, list[str]]:
        """Return our listed rules of a table by chain."""
        return {
            chain: texts if chain in OWNED_CHAINS else [texts[index] for index in self.owned[table, chain]]
            for chain, texts in (self.listing[table].rules.items() if table in self.listing else ())
            if chain in OWNED_CHAINS or (table, chain) in self.owned
        }

    def is_planned(self, table: str) -> bool:
        """Whether our rules in a table equal the planned ones, in order."""
        live, planned = self.live_chains(table), self.written.get(table, {})
        return live.keys() == planned.keys() and all(self._are_equal(planned[chain].texts, live[chain]) for chain in planned)

    def _are_equal(self, planned: Sequence[str], live: Sequence[str]) -> bool:
        pairs = zip(planned, live, strict=False)
        return len(planned) == len(live) and all(a == b or normalise(a, self.family) == normalise(b, self.family) for a, b in pairs)

    def is_interrupted(self) -> bool:
        """Whether a first run was killed: the plan's first tables are complete, and there is nothing else of ours."""
        finished = True
        for table in self.tables:
            live = self.live_chains(table)
            if live and not (finished and self.is_planned(table)):
                return False
            finished = finished and bool(live)
        return True

    def find_differences(self) -> Iterator[Difference]:
        """Yield the differences, in the order of tables, chains and rules."""
        for table in [name for name in self.tables if not self.is_planned(name)]:
            planned, live = self.written.get(table, {}), self.live_chains(table)
            for chain in dict.fromkeys((*planned, *live)):
                if chain not in live:
                    yield from miss_chain(table, chain, planned[chain], self.family)
                    continue
                if chain not in planned and chain not in BUILTIN_CHAINS:
                    yield Difference(kind=EXTRA, where=self.family.name, table=table, chain=chain)
                yield from self._compare_chain(table, chain, planned.get(chain, NO_CHAIN), live[chain])

    def _compare_chain(self, table: str, chain: str, planned: WrittenChain, live: Sequence[str]) -> Iterator[Difference]:
        where, numbers = self.family.name, self.owned.get((table, chain), range(len(live)))
        missing: list[tuple[int, int | None]] = []
        extra: Sequence[int] = range(len(live))
        if planned.rules:  # otherwise no rule needs to be understood
            missing, extra = align(*[[normalise(text, self.family) for text in texts] for texts in (planned.texts, live)])
        for index, moved_from in missing:
            written = planned.rules[index]
            yield Difference(
                kind=MISSING if moved_from is None else MOVED, where=where, table=table, chain=chain,
                number=index + 1 if moved_from is None else numbers[moved_from] + 1, rule=written.text,
                purpose=written.rule.comment, origin=written.rule.origin_label,
            )  # fmt: skip
        for index in extra:
            rule, comment = part_comment(live[index])
            number = numbers[index] + 1
            yield Difference(kind=EXTRA, where=where, table=table, chain=chain, number=number, rule=rule, comment=comment)

    def find_shadows(self) -> Iterator[Difference]:
        """Yield foreign rules before ours that may decide about a packet first."""
        for (name, chain), indexes in self.owned.items():
            texts = self.listing[name].rules[chain]
            for index in range(indexes[-1]):
                harmless = target_of(normalise(texts[index], self.family)) in HARMLESS_TARGETS or texts[index] == DOCKER_RULE
                if index not in indexes and not harmless:
                    rule, comment = part_comment(texts[index])
                    yield Difference(
                        kind=SHADOWING, where=self.family.name, table=name, chain=chain, number=index + 1, rule=rule, comment=comment,
                        purpose="precedes netinit's rules and may decide first", origin="a foreign rule",
                    )  # fmt: skip

    def find_foreign_jumps(self) -> Iterator[tuple[str, str, str]]:
        """Yield rules in foreign chains that jump to ours (table, chain, rule), so that ours cannot be deleted."""
        for name, table in self.listing.items():
            for chain, texts in table.rules.items():
                if chain not in OWNED_CHAINS and chain not in BUILTIN_CHAINS:
                    yield from [(name, chain, text) for text in texts if jumps_to_ours(normalise(text, self.family))]


def align(planned: Sequence[object], live: Sequence[object]) -> tuple[list[tuple[int, int | None]], list[int]]:
    """Compare two sequences of hashable keys.

    Returns the planned positions without a counterpart, each with the live position that it moved from (None: missing),
    and the extra live positions.
    """
    from difflib import SequenceMatcher

    missing: list[int] = []
    extra: list[int] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, planned, live, autojunk=False).get_opcodes():
        if tag != "equal":
            missing += range(i1, i2)
            extra += range(j1, j2)
    found: list[tuple[int, int | None]] = []
    for index in missing:
        moved_from = next((place for place in extra if live[place] == planned[index]), None)
        if moved_from is not None:
            extra.remove(moved_from)
        found.append((index, moved_from))
    return found, extra
