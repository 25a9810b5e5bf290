"""Tables of nft as expressions: a plan's, and the kernel's in the same form, so that both compare with `==`."""

from __future__ import annotations

from netinit.base.net import Family
from netinit.base.records import Record
from netinit.rules.rule_builder import ANONYMOUS, EncodedSet, RuleBuilder, settle
from netinit.rules.targets import Jump, format_chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from netinit.base.snapshot import NftSet
    from netinit.rules.nft import NftStep, Steps

INET = 1  # NFPROTO_INET of linux/netfilter.h


class EncodedTable(Record):
    """The expressions of a table's rules by chain, with counters at zero; its anonymous sets in order of use (`__set0`, ...)."""

    chains: dict[str, tuple[bytes, ...]]
    sets: tuple[EncodedSet, ...]

    def held_sets(self, table: str) -> tuple[NftSet, ...]:
        """Return the sets as a snapshot has them."""
        return tuple([one.held(INET, table) for one in self.sets])


def encode_steps(chains: Steps, *, splits_ranges: bool = True) -> EncodedTable:
    """Return the table with these chains, as nft programs it; see RuleBuilder for `splits_ranges`."""
    sets: list[EncodedSet] = []
    encoded = {
        chain: tuple([_encode_step(step, sets, splits_ranges=splits_ranges) for step in steps])
        for chain, (_, steps) in chains.items()
    }
    return EncodedTable(chains=encoded, sets=tuple(sets))


def arrange(
    rules: Iterable[tuple[str, bytes]], sets: Mapping[bytes, EncodedSet], chains: Iterable[str]
) -> EncodedTable:
    """Return a table of the kernel in the form of a planned one.

    `rules`: chain and expressions of each; `chains`: the planned order. Hooks, policies and flags are not included.
    """
    blocks: dict[str, list[bytes]] = {chain: [] for chain in chains}
    for chain, block in rules:
        blocks.setdefault(chain, []).append(block)
    named: list[EncodedSet] = []

    def rename(old: bytes) -> bytes:
        found = sets.get(old)
        if found is None:
            return old
        new = ANONYMOUS + str(len(named)).encode()
        named.append(found.replace(name=new.decode()))
        return new

    settled = {chain: tuple([settle(one, rename) for one in own]) for chain, own in blocks.items()}
    return EncodedTable(chains=settled, sets=tuple(named))


def are_equal(planned: EncodedTable, live: EncodedTable) -> bool:
    """Whether two tables have the same rules, and the same elements of sets in any order."""
    sets, others = ([one.replace(elements=tuple(sorted(one.elements))) for one in table.sets] for table in (planned, live))
    return sets == others and planned.chains == live.chains


def _encode_step(step: NftStep, sets: list[EncodedSet], *, splits_ranges: bool) -> bytes:
    writer = RuleBuilder(INET, sets, splits_ranges=splits_ranges)
    for condition in step.conditions:
        if isinstance(condition, Family):
            writer.limit_family(condition)
        else:
            condition.express(writer)
    writer.count()
    target = step.target
    if isinstance(target, Jump):
        target = Jump(chain=format_chain(target.chain), goto=target.goto)
    target.express(writer, step.rule.families[0])
    return writer.block()
