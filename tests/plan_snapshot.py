"""A plan's nft tables as the kernel has them once it is programmed, made without a kernel."""

from __future__ import annotations

from netinit.base.net import Family
from netinit.base.snapshot import INET, NftChain, NftRule, NftTable, Snapshot
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import NFTABLES
from netinit.questions.pod_rules import chains_of
from netinit.rules.expressions.encoded_sets import in_snapshot
from netinit.rules.model import BUILTIN_CHAINS, Plan, Rule, expected_base
from netinit.rules.nft import EncodedTable, encode_steps, model_name, model_table, plan_tables
from netinit.rules.rule_builder import EncodedSet
from rule_encodings import encode_rule


def encode_plan(plan: Plan) -> dict[str, EncodedTable]:
    """The plan's tables by name, as nft programs them."""
    return {name: encode_steps(steps) for name, steps in plan_tables(plan).items()}


def snapshot_of(plan: Plan) -> Snapshot:
    """A snapshot that holds nothing but the plan's tables. Sets of different tables may have one name, as in the kernel."""
    tables = encode_plan(plan)
    rules = [
        NftRule(family=INET, table=name, chain=chain, handle=number, expressions=rule)
        for name, table in tables.items() for chain, rules in table.chains.items() for number, rule in enumerate(rules)
    ]  # fmt: skip
    return Snapshot(
        tables=tuple(NftTable(family=INET, name=name) for name in tables),
        chains=tuple(chain_of(name, chain) for name, table in tables.items() for chain in table.chains),
        rules=tuple(rules),
        sets=tuple(in_snapshot(one, INET, name) for name, table in tables.items() for one in table.sets),
    )


def chain_of(table: str, name: str) -> NftChain:
    """A chain of a table of ours: hooked in where it belongs if it has the name of a built-in one."""
    builtin = model_name(name)
    if builtin not in BUILTIN_CHAINS:
        return NftChain(family=INET, table=table, name=name)
    kind, priority = expected_base(model_table(table), builtin)
    return NftChain(family=INET, table=table, name=name, kind=kind, hook=BUILTIN_CHAINS.index(builtin), priority=priority)


def table_of(table: str, chains: dict[str, list[Rule]]) -> Snapshot:
    """A snapshot with one table, whose chains hold these rules."""
    sets: list[EncodedSet] = []
    rules = [
        NftRule(family=INET, table=table, chain=name, handle=number, expressions=encode_rule(rule, INET, sets))
        for name, own in chains.items() for number, rule in enumerate(own)
    ]  # fmt: skip
    return Snapshot(
        tables=(NftTable(family=INET, name=table),), chains=tuple(chain_of(table, name) for name in chains), rules=tuple(rules),
        sets=tuple(in_snapshot(one, INET, table) for one in sets),
    )


def live_chains(plan: Plan) -> dict[Family, dict[tuple[str, str], list[Rule]]]:
    """The rules that each chain of the plan's tables has once they were programmed and read back."""
    return chains_of(load_snapshot(snapshot_of(plan)).rulesets[NFTABLES])
