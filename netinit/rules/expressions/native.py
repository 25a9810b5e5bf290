"""Tables of nft as expressions: a plan's, and those of a snapshot in the same shape, so that they compare with `==`.

planned = encode_plan(plan)                            by table
live = encode_live(snapshot, name, planned[name].chains)
find_unequal(planned[name], live)                      the chains that are not byte for byte as planned
"""

from __future__ import annotations

from netinit.base.records import Record
from netinit.base.snapshot import INET, NftElement, NftSet, Snapshot
from netinit.rules.expressions.building import ANONYMOUS, settle
from netinit.rules.expressions.writing import NativeWriter
from netinit.rules.nft import plan_steps
from netinit.rules.targets import Jump, spell_chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from netinit.rules.model import Plan, Rule
    from netinit.rules.nft import NftStep


class EncodedRule(Record):
    """A rule's expressions, counters at zero, and the planned rule; `rule` is None for one of the kernel's."""

    expressions: bytes
    rule: Rule | None = None


class EncodedTable(Record):
    """A table: its chains' rules, and the anonymous sets in the order in which the rules name them (`__set0`, `__set1`, ...)."""

    chains: dict[str, tuple[EncodedRule, ...]]
    sets: tuple[NftSet, ...]


def encode_plan(plan: Plan, *, splits_ranges: bool = True) -> dict[str, EncodedTable]:
    """The plan's tables by name, as `nft -f -` programs them; nft 1.1 with `splits_ranges=False`, see RuleBuilder."""
    encoded = {}
    for table in plan.tables:
        name = plan.nft_prefix + table.name
        sets: list[NftSet] = []
        chains = {
            chain: tuple([_encode_step(step, name, sets, splits_ranges=splits_ranges) for step in steps])
            for chain, (_, steps) in plan_steps(table).items()
        }
        encoded[name] = EncodedTable(chains=chains, sets=tuple(sets))
    return encoded


def encode_live(snapshot: Snapshot, table: str, chains: Iterable[str], family: int = INET) -> EncodedTable:
    """A table of the snapshot: its chains' rules, those in `chains` first and in their order, anonymous sets numbered anew.

    Equal to the planned table's where its rules are, in every expression; hooks, policies and flags are not compared here.
    """
    held = {one.name: one for one in snapshot.sets if one.family == family and one.table == table}
    names = [one.name for one in snapshot.chains if one.family == family and one.table == table]
    rules: dict[str, list[bytes]] = {name: [] for name in [*[one for one in chains if one in names], *names]}
    for rule in snapshot.rules:
        if rule.family == family and rule.table == table:
            rules[rule.chain].append(rule.expressions)
    sets: list[NftSet] = []

    def rename(name: bytes) -> bytes:
        found = held.get(name.decode())
        if found is None:
            return name
        new = ANONYMOUS + str(len(sets)).encode()
        sets.append(found.replace(name=new.decode(), elements=tuple(sorted(found.elements, key=_by_key))))
        return new

    settled = {name: tuple([EncodedRule(expressions=settle(block, rename)) for block in blocks]) for name, blocks in rules.items()}
    return EncodedTable(chains=settled, sets=tuple(sets))


def find_unequal(planned: EncodedTable, live: EncodedTable) -> list[str]:
    """The chains whose rules are not byte for byte those of the plan; every chain where the sets differ."""
    if [one.replace(elements=tuple(sorted(one.elements, key=_by_key))) for one in planned.sets] != list(live.sets):
        return [*planned.chains]
    pairs = [(name, planned.chains.get(name, ()), live.chains.get(name)) for name in dict.fromkeys((*planned.chains, *live.chains))]
    return [
        name
        for name, wanted, found in pairs
        if found is None or [one.expressions for one in wanted] != [one.expressions for one in found] or name not in planned.chains
    ]


def _by_key(element: NftElement) -> tuple[bytes, int]:
    return element.key, -element.flags


def _encode_step(step: NftStep, table: str, sets: list[NftSet], *, splits_ranges: bool) -> EncodedRule:
    writer = NativeWriter(INET, table, sets, splits_ranges=splits_ranges)
    for condition in step.conditions:
        writer.write(condition)
    writer.count()
    target = step.target
    if isinstance(target, Jump):
        target = Jump(chain=spell_chain(target.chain), goto=target.goto)
    writer.finish(target, step.part, step.rule.families[0])
    return EncodedRule(expressions=writer.block(), rule=step.rule)


def encode_rule(rule: Rule, family: int, table: str, sets: list[NftSet]) -> bytes:
    """Any rule's expressions, in a table of the family; sets that it looks into are appended. ValueError where nft has none."""
    writer = NativeWriter(family, table, sets)
    if family == INET and len(rule.families) == 1:
        writer.write(rule.families[0])
    for match in rule.matches:
        if match.nft_chain:
            raise ValueError(f"{type(match).__name__}: nft takes a chain of its own for it")
        writer.write(match)
    writer.count()
    writer.finish(rule.target, 0, rule.families[0])
    return writer.block()
