"""Our nft tables as the kernel itself holds them, beside a plan: nft lists nothing where they are as planned."""

from __future__ import annotations

from netinit.backends import Change, Comparison, State
from netinit.backends.known_chains import of_own_tables
from netinit.base.snapshot import SET_ANONYMOUS, Snapshot
from netinit.kernel.netlink import INET
from netinit.kernel.plain_namespace import KnownChain, Place
from netinit.kernel.snapshot import nf_tables_dump
from netinit.rules.expressions.native import encode_live, encode_plan, find_unequal
from netinit.rules.nft import DIALECT, render_tables, write_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.base.snapshot import Unknown
    from netinit.kernel.netlink import NftChain
    from netinit.rules.model import Difference, Plan
    from netinit.rules.nft import Written

MOST_USES = 5_000  # rules and jumps: nft lists more of them more quickly


def read_snapshot(chains: tuple[NftChain, ...], tables: tuple[str, ...]) -> Snapshot | None:
    """nf_tables; None where it is too large or not understood, or where our tables hold more than chains and rules. OSError."""
    own = [chain for chain in chains if chain.family == INET and chain.table in tables]
    if sum([chain.uses for chain in chains]) > MOST_USES or not all(chain.accepts for chain in own):
        return None
    unknown: list[Unknown] = []
    snapshot = Snapshot(**nf_tables_dump.read(unknown))
    named = [(one.family, one.table) for one in snapshot.sets if not one.flags & SET_ANONYMOUS]
    named += [(one.family, one.table) for one in snapshot.objects]
    others = any(family == INET and table in tables for family, table in named)
    flagged = any(one.flags for one in snapshot.tables if one.family == INET and one.name in tables)
    return None if unknown or others or flagged else snapshot


class HeldTablesState(State):
    """Our tables, as the kernel holds them. `list_all` has nft list them; its state answers what they do not."""

    snapshot: Snapshot
    chains: tuple[NftChain, ...]
    tables: tuple[str, ...]
    list_all: Callable[[], State]

    def compare(self, plan: Plan) -> Comparison:
        written = write_plan(plan)
        known = of_own_tables(written)
        if self._is_hooked(known) and self._is_as_planned(plan):
            return HeldTablesComparison(plan, self, written, known)
        return self.list_all().compare(plan)

    def describe(self) -> dict[str, str]:
        return self.list_all().describe()

    def _is_hooked(self, known: dict[Place, KnownChain]) -> bool:
        """Whether the chains are the plan's, each entered from where it should be."""
        return known == {
            (one.family, one.table, one.name): KnownChain(uses=one.uses, hook=one.hook, kind=one.kind, priority=one.priority)
            for one in self.chains
            if one.family == INET and one.table in self.tables
        }

    def _is_as_planned(self, plan: Plan) -> bool:
        """Whether the rules are the plan's, byte for byte as a release of nft programs them."""
        for splits_ranges in (True, False):
            planned = encode_plan(plan, splits_ranges=splits_ranges)
            if all(not find_unequal(table, encode_live(self.snapshot, name, table.chains)) for name, table in planned.items()):
                return True
        return False


class HeldTablesComparison(Comparison):
    """Tables that are as planned, each rule of them."""

    state: HeldTablesState
    differences: tuple[Difference, ...] = ()

    def __init__(self, plan: Plan, state: HeldTablesState, written: Written, known: dict[Place, KnownChain]) -> None:
        self.plan = plan
        self.state = state
        self._written = written
        self._known = known

    def known_chains(self) -> dict[Place, KnownChain]:
        return self._known

    def ours(self) -> dict[str, tuple[str, ...]]:
        return self._listed().ours()

    def shadows(self) -> tuple[Difference, ...]:
        """None: no foreign rule can stand in tables of our own."""
        return ()

    def resumable(self) -> bool:
        return False

    def change(self, *, force: bool = False) -> Change:
        return self._listed().change(force=force)

    def removal(self) -> Change:
        return self._listed().removal()

    def committed(self) -> dict[str, str]:
        return {DIALECT: render_tables(self._written)}

    def _listed(self) -> Comparison:
        return self.state.list_all().compare(self.plan)
