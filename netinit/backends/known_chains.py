"""The chains of a plan as nf_tables holds them once they are programmed."""

from __future__ import annotations

from netinit.kernel.netlink import INET
from netinit.kernel.plain_namespace import KnownChain, Place
from netinit.rules.model import BUILTIN_CHAINS, expected_base
from netinit.rules.targets import Jump, format_chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from netinit.base.net import Family
    from netinit.rules import nft
    from netinit.rules.iptables.write import Written


def of_iptables(written: dict[Family, Written]) -> dict[Place, KnownChain]:
    """Return the chains of iptables-nft."""
    known = {}
    for family, tables in written.items():
        for table, chains in tables.items():
            targets = [one.rule.target for chain in chains.values() for one in chain.rules]
            jumps = [target.chain for target in targets if isinstance(target, Jump)]
            uses = _count({name: len(chain.rules) for name, chain in chains.items()}, jumps)
            for name in chains:
                known[family.number, table, name] = _known(table, name, uses[name])
    return known


def of_own_tables(tables: dict[str, nft.Steps]) -> dict[Place, KnownChain]:
    """Return the chains of our nft tables."""
    known = {}
    for table, chains in tables.items():
        targets = [step.target for _, steps in chains.values() for step in steps]
        jumps = [format_chain(target.chain) for target in targets if isinstance(target, Jump)]
        uses = _count({name: len(steps) for name, (_, steps) in chains.items()}, jumps)
        for name, (hook, _) in chains.items():
            known[INET, table, name] = _known(table.rpartition("-")[2], name.upper() if hook else name, uses[name])
    return known


def _count(rules: dict[str, int], jumps: Iterable[str]) -> dict[str, int]:
    for name in jumps:
        rules[name] += 1
    return rules


def _known(table: str, name: str, uses: int) -> KnownChain:
    if name not in BUILTIN_CHAINS:
        return KnownChain(uses=uses)
    kind, priority = expected_base(table, name)
    return KnownChain(uses=uses, hook=BUILTIN_CHAINS.index(name), kind=kind, priority=priority)
