"""The backend with native nft tables, replaced over netlink in one transaction for both families.

A second run compares the kernel's tables with the plan byte by byte.
"""

from __future__ import annotations

from netinit.backends import Backend, Change, Comparison, State, chains_of_tables, of_kind
from netinit.base.errors import BackendUnavailableError
from netinit.base.net import FAMILIES, Family
from netinit.kernel import detect
from netinit.kernel.netlink import INET, OF_IPTABLES
from netinit.options import Interception, write_record
from netinit.rules.model import NAT, Difference, Plan
from netinit.rules.nft import DIALECT, TABLE_NAMES, Steps, model_name, plan_tables, render_tables, write_steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.nft_messages import Part
    from netinit.base.netlink_attributes import NftChain
    from netinit.base.snapshot import Snapshot
    from netinit.kernel.nf_tables import TableDump
    from netinit.kernel.plain_namespace import KnownChains
    from netinit.rules.promises import Unsupported


class NftState(State):
    """The existing tables of ours and their chains; their content is read on demand."""

    tables: tuple[str, ...]
    chains: tuple[NftChain, ...]
    snapshot: Snapshot | None = None  # which has the tables, `chains` then being empty; None: they are read when they are compared

    def compare(self, plan: Plan) -> NftComparison:
        return NftComparison(plan, self)

    def removal(self, plan: Plan) -> NftChange:
        return self.make_change(plan, self.tables, {}, {})

    def removed(self, plan: Plan) -> dict[str, tuple[str, ...]]:  # noqa: ARG002 - whatever the plan, the tables are ours
        from netinit.backends.nft_tables import list_rules

        return list_rules(self.tables) if self.tables else {}

    def list_chains(self) -> dict[Family, tuple[str, ...]]:
        found = [one for one in self.snapshot.chains if one.family == INET] if self.snapshot else self.chains
        names = tuple([model_name(one.name) for one in found if one.table in self.tables])
        return dict.fromkeys(FAMILIES, names)

    def describe(self) -> dict[str, str]:
        if not self.tables:
            return {}
        from netinit.backends.nft_tables import render_live

        return {DIALECT: render_live(self.tables)}

    def make_change(self, plan: Plan, deleted: tuple[str, ...], wanted: dict[str, Steps], records: dict[str, str]) -> NftChange:
        """Return the transaction that deletes tables, then adds the wanted ones; `records`: their comments."""
        from netinit.backends.nft_messages import delete_tables, write_tables

        parts = (*delete_tables(deleted), *write_tables(wanted, comments=self.comments, records=records))
        return NftChange(scripts={}, before=self, plan=plan, parts=parts)


class NftChange(Change):
    """A transaction: its messages, and the tables to roll back to."""

    before: NftState
    parts: tuple[Part, ...]
    saved: TableDump | None = None  # set by `keep`; None: no table existed, or `unread` says why it was not read
    unread: str = ""


class NftComparison(Comparison):
    """The tables compared with the plan."""

    state: NftState

    def __init__(self, plan: Plan, state: NftState) -> None:
        self.plan = plan
        self.state = state
        self.steps = plan_tables(plan)  # the planned chains, by table

    def find_differences(self) -> tuple[Difference, ...]:
        if not self.state.tables:
            from netinit.rules.nft import miss_all

            return miss_all(self.steps)
        from netinit.backends.nft_tables import compare_live  # not needed on a first run

        return compare_live(self.plan, self.steps, self.state.tables, self.state.chains, self.state.snapshot)

    def resumable(self) -> bool:
        return not self.state.ours

    def change(self, *, force: bool = False) -> NftChange:
        wrong = {difference.table for difference in self.differences}
        recording = self.plan.nft_prefix + NAT
        options = self.plan.made_from
        record = write_record(options) if isinstance(options, Interception) and (wrong or force) else ""
        if wrong and self.state.tables and recording not in wrong:
            from netinit.backends.nft_tables import list_comments

            wrong |= {recording} if list_comments(self.state.tables).get(recording, "") != record else set()
        wanted = {name: chains for name, chains in self.steps.items() if force or name in wrong}
        # Delete only what exists: a deletion makes the kernel wait for all readers, some 15 ms.
        deleted = tuple([name for name in self.state.tables if name in wanted or name not in self.steps])
        return self.state.make_change(self.plan, deleted, wanted, {recording: record})

    def committed(self) -> dict[str, str]:
        return {DIALECT: render_tables(write_steps(self.steps, comments=self.state.comments))}

    def known_chains(self) -> KnownChains | None:
        return None if self.state.ours and self.differences else chains_of_tables(self.steps)


class NftablesBackend(Backend):
    """Native nft tables, by netlink."""

    name = "nftables"

    def __init__(self, *, comments: bool = False, **_: object) -> None:
        """Other backends also take families (inet tables work without IPv6), a lock's timeout and its file: none is needed."""
        self._comments = comments

    def observe(self, snapshot: Snapshot | None = None) -> NftState:
        live = () if snapshot else detect.nft_chains()
        if live is None:
            raise BackendUnavailableError(
                "nf_tables cannot be asked: run with NET_ADMIN, on a kernel with nf_tables (module nf_tables)",
            )
        chains = snapshot.chains if snapshot else live
        inet = dict.fromkeys([chain.table for chain in chains if chain.family == INET])
        tables = tuple([table for table in inet if table in TABLE_NAMES])
        own = tuple([one for one in live if one.family == INET and one.table in tables])
        foreign = any(one.table not in tables if one.family == INET else one.family not in OF_IPTABLES for one in chains)
        return NftState(tables=tables, chains=own, comments=self._comments, ours=bool(tables), foreign=foreign, snapshot=snapshot)

    def keep(self, change: Change) -> NftChange:
        change = of_kind(change, NftChange)
        if not (change.parts and change.before.tables):
            return change
        from netinit.backends.nft_tables import keep

        saved, unread = keep(change.before.tables)
        return change.replace(saved=saved, unread=unread)

    def commit(self, change: Change) -> None:
        if parts := of_kind(change, NftChange).parts:
            _commit(parts)

    def roll_back(self, change: Change) -> None:
        from netinit.backends.nft_tables import restore

        change = of_kind(change, NftChange)
        if change.before.tables and not (change.saved or change.unread):
            return  # nothing was kept, for the last step of a run: the kernel makes all of it or nothing
        if parts := restore(self.observe().tables, change.saved, change.unread):
            _commit(parts)

    def find_unsupported(self, plan: Plan) -> Unsupported:
        from netinit.backends.nft_trial import try_each  # rarely needed

        return try_each(plan, self.check)

    def check(self, plan: Plan) -> None:
        """Let the kernel validate a plan's tables without creating them. Raises the errors of `commit`."""
        change = NftState(tables=(), chains=(), comments=self._comments, ours=False, foreign=False).compare(plan).change()
        if change.parts:
            _commit(change.parts, check=True)


def _commit(parts: tuple[Part, ...], *, check: bool = False) -> None:
    from netinit.kernel.nf_tables import NfTables

    try:
        with NfTables() as link:
            refusals = link.commit([(INET, message) for message, _ in parts], check=check)
    except OSError as error:
        from netinit.backends.nft_tables import explain_socket

        raise explain_socket(error) from None
    if refusals:
        from netinit.backends.nft_tables import explain

        raise explain(refusals[0], parts)
