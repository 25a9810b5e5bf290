"""Tables of nft as expressions: a plan's, and those of the kernel in the same shape, so that they compare with `==`.

planned = encode_plan(plan)                            by table
live = arrange(rules, sets, planned[name].chains)
find_unequal(planned[name], live)                      the chains that are not byte for byte as planned
"""

from __future__ import annotations

from netinit.base.records import Record
from netinit.rules.expressions.building import ANONYMOUS, EncodedSet, settle
from netinit.rules.expressions.writing import NativeWriter
from netinit.rules.nft import plan_steps
from netinit.rules.targets import Jump, format_chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from netinit.base.snapshot import NftSet
    from netinit.rules.model import Plan, Rule
    from netinit.rules.nft import NftStep, Steps

INET = 1  # NFPROTO_INET of linux/netfilter.h


class EncodedRule(Record):
    """A rule's expressions, counters at zero, and the planned rule; `rule` is None for one of the kernel's."""

    expressions: bytes
    rule: Rule | None = None


class EncodedTable(Record):
    """A table: its chains' rules, and the anonymous sets in the order in which the rules name them (`__set0`, `__set1`, ...)."""

    chains: dict[str, tuple[EncodedRule, ...]]
    sets: tuple[EncodedSet, ...]

    def held_sets(self, table: str) -> tuple[NftSet, ...]:
        """The sets as a snapshot has them."""
        return tuple([one.held(INET, table) for one in self.sets])


def encode_plan(plan: Plan, *, splits_ranges: bool = True) -> dict[str, EncodedTable]:
    """The plan's tables by name, as `nft -f -` programs them; nft 1.1 with `splits_ranges=False`, see RuleBuilder."""
    return {
        plan.nft_prefix + table.name: encode_steps(plan_steps(table), splits_ranges=splits_ranges) for table in plan.tables
    }


def encode_steps(chains: Steps, *, splits_ranges: bool = True) -> EncodedTable:
    """The rules of a table's chains, which are those of `plan_steps`."""
    sets: list[EncodedSet] = []
    encoded = {
        chain: tuple([_encode_step(step, sets, splits_ranges=splits_ranges) for step in steps])
        for chain, (_, steps) in chains.items()
    }
    return EncodedTable(chains=encoded, sets=tuple(sets))


def arrange(
    rules: Iterable[tuple[str, bytes]], sets: Mapping[bytes, EncodedSet], chains: Iterable[str]
) -> EncodedTable:
    """A table of the kernel: its rules by chain, those of `chains` first and in their order, anonymous sets numbered anew.

    Equal to the planned table's where its rules are, in every expression; hooks, policies and flags are not compared here.
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

    settled = {chain: tuple([EncodedRule(expressions=settle(one, rename)) for one in own]) for chain, own in blocks.items()}
    return EncodedTable(chains=settled, sets=tuple(named))


def find_unequal(planned: EncodedTable, live: EncodedTable) -> list[str]:
    """The chains whose rules are not byte for byte those of the plan; every chain where the sets differ."""
    if [_in_order(one) for one in planned.sets] != [_in_order(one) for one in live.sets]:
        return [*planned.chains]
    pairs = [(name, planned.chains.get(name, ()), live.chains.get(name)) for name in dict.fromkeys((*planned.chains, *live.chains))]
    return [
        name
        for name, wanted, found in pairs
        if found is None or [one.expressions for one in wanted] != [one.expressions for one in found] or name not in planned.chains
    ]


def _in_order(one: EncodedSet) -> EncodedSet:
    return one.replace(elements=tuple(sorted(one.elements)))


def _encode_step(step: NftStep, sets: list[EncodedSet], *, splits_ranges: bool) -> EncodedRule:
    writer = NativeWriter(INET, sets, splits_ranges=splits_ranges)
    for condition in step.conditions:
        writer.write(condition)
    writer.count()
    target = step.target
    if isinstance(target, Jump):
        target = Jump(chain=format_chain(target.chain), goto=target.goto)
    writer.finish(target, step.part, step.rule.families[0])
    return EncodedRule(expressions=writer.block(), rule=step.rule)
