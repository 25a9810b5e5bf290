"""The chains of a plan as nf_tables holds them once they are programmed."""

from __future__ import annotations

from netinit.kernel.netlink import INET
from netinit.kernel.plain_namespace import KnownChain, Place
from netinit.rules.model import BUILTIN_CHAINS, expected_base
from netinit.rules.targets import format_chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.base.net import Family
    from netinit.rules import nft
    from netinit.rules.iptables.write import Written


def of_iptables(written: dict[Family, Written]) -> dict[Place, KnownChain]:
    """Return the chains of iptables-nft."""
    known = {}
    for family, tables in written.items():
        for table, chains in tables.items():
            targets = {name: [one.rule.target for one in chain.rules] for name, chain in chains.items()}
            jumps = [target.calls for own in targets.values() for target in own]
            for name, own in targets.items():
                known[family.number, table, name] = _known(table, name, len(own) + jumps.count(name))
    return known


def of_own_tables(tables: dict[str, nft.Steps]) -> dict[Place, KnownChain]:
    """Return the chains of our nft tables."""
    known = {}
    for table, chains in tables.items():
        jumps = [format_chain(step.target.calls) for _, steps in chains.values() for step in steps if step.target.calls]
        for name, (hook, steps) in chains.items():
            known[INET, table, name] = _known(table.rpartition("-")[2], name.upper() if hook else name, len(steps) + jumps.count(name))
    return known


def _known(table: str, name: str, uses: int) -> KnownChain:
    if name not in BUILTIN_CHAINS:
        return KnownChain(uses=uses)
    kind, priority = expected_base(table, name)
    return KnownChain(uses=uses, hook=BUILTIN_CHAINS.index(name), kind=kind, priority=priority)
