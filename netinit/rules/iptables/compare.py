"""Compare planned with listed rules."""

from __future__ import annotations

from netinit.base.net import Family
from netinit.rules.iptables.ownership import Owned, jumps_to_ours, target_of
from netinit.rules.iptables.parse import normalise, part_comment
from netinit.rules.iptables.write import ListedTable, Listing, Written, WrittenChain, miss_chain
from netinit.rules.model import BUILTIN_CHAINS, EXTRA, MISSING, MOVED, OWNED_CHAINS, SHADOWING, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DOCKER_RULE = "-d 127.0.0.11/32 -j DOCKER_OUTPUT"  # Docker's resolver; the rules for DNS come before it
NO_CHAIN = WrittenChain(rules=())
HARMLESS_TARGETS = frozenset(
    ("", "LOG", "NFLOG", "MARK", "CONNMARK", "COUNTER", "CT", "NOTRACK", "TRACE", "TCPMSS", "DSCP", "TOS", "AUDIT")
)


def compare_listing(written: Written, listing: Listing, owned: Owned, family: Family) -> tuple[Difference, ...]:
    """Return the differences of one family, in the order of tables, chains and rules."""
    found: list[Difference] = []
    for name in table_names(written, listing):
        if not same_table(name, written, listing, owned, family):
            found += _compare_table(name, written.get(name, {}), listing.get(name), owned, family)
    return tuple(found)


def same_table(name: str, written: Written, listing: Listing, owned: Owned, family: Family) -> bool:
    """Whether our rules in a table equal the planned ones, in order."""
    live = live_chains(name, listing.get(name), owned)
    planned = written.get(name, {})
    if set(live) != set(planned):
        return False
    return all(_same(planned[chain].texts, live[chain], family) for chain in planned)


def live_chains(name: str, table: ListedTable | None, owned: Owned) -> dict[str, list[str]]:
    """Return our rules of a listed table by chain."""
    if table is None:
        return {}
    return {
        chain: texts if chain in OWNED_CHAINS else [texts[index] for index in owned[name, chain]]
        for chain, texts in table.rules.items()
        if chain in OWNED_CHAINS or (name, chain) in owned
    }


def table_names(written: Written, listing: Listing) -> list[str]:
    """Return the plan's tables, then the listing's others."""
    return [*written, *[name for name in listing if name not in written]]


def find_shadows(listing: Listing, owned: Owned, family: Family) -> Iterator[Difference]:
    """Yield foreign rules before ours that may decide about a packet first."""
    for (name, chain), indexes in owned.items():
        texts = listing[name].rules[chain]
        for index in range(indexes[-1]):
            harmless = target_of(normalise(texts[index], family)) in HARMLESS_TARGETS or texts[index] == DOCKER_RULE
            if index not in indexes and not harmless:
                rule, comment = part_comment(texts[index])
                yield Difference(
                    kind=SHADOWING, where=family.name, table=name, chain=chain, number=index + 1, rule=rule, comment=comment,
                    purpose="stands before netinit's rules and may decide first", origin="a foreign rule",
                )  # fmt: skip


def find_foreign_jumps(listing: Listing, family: Family) -> Iterator[tuple[str, str, str]]:
    """Yield rules in foreign chains that jump to ours (table, chain, rule), so that ours cannot be deleted."""
    for name, table in listing.items():
        for chain, texts in table.rules.items():
            if chain not in OWNED_CHAINS and chain not in BUILTIN_CHAINS:
                for text in texts:
                    if jumps_to_ours(normalise(text, family)):
                        yield name, chain, text


def _same(planned: Sequence[str], live: Sequence[str], family: Family) -> bool:
    pairs = zip(planned, live, strict=False)
    return len(planned) == len(live) and all(a == b or normalise(a, family) == normalise(b, family) for a, b in pairs)


def _compare_table(
    name: str,
    planned: dict[str, WrittenChain],
    table: ListedTable | None,
    owned: Owned,
    family: Family,
) -> Iterator[Difference]:
    live = live_chains(name, table, owned)
    for chain in [*planned, *[chain for chain in live if chain not in planned]]:
        texts = live.get(chain)
        numbers = owned.get((name, chain), range(len(texts or ())))
        if texts is None:
            yield from miss_chain(name, chain, planned[chain], family)
            continue
        if chain not in planned and chain not in BUILTIN_CHAINS:
            yield Difference(kind=EXTRA, where=family.name, table=name, chain=chain)
        yield from _compare_chain(name, chain, planned.get(chain, NO_CHAIN), texts, numbers, family)


def _compare_chain(  # noqa: PLR0917 - what its caller has found out
    table: str,
    chain: str,
    planned: WrittenChain,
    live: Sequence[str],
    numbers: Sequence[int],
    family: Family,
) -> Iterator[Difference]:
    missing: list[tuple[int, int | None]] = []
    extra: Sequence[int] = range(len(live))
    if planned.rules:  # otherwise no rule needs to be understood
        keys = [normalise(written.text, family) for written in planned.rules]
        missing, extra = align(keys, [normalise(text, family) for text in live])
    for index, moved_from in missing:
        written = planned.rules[index]
        yield Difference(
            kind=MISSING if moved_from is None else MOVED, where=family.name, table=table, chain=chain,
            number=index + 1 if moved_from is None else numbers[moved_from] + 1, rule=written.text,
            purpose=written.rule.comment, origin=written.rule.origin_label,
        )  # fmt: skip
    for index in extra:
        rule, comment = part_comment(live[index])
        number = numbers[index] + 1
        yield Difference(kind=EXTRA, where=family.name, table=table, chain=chain, number=number, rule=rule, comment=comment)


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
