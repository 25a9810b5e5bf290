"""The backend that feeds nft: tables of its own, replaced in one transaction for both families.

The kernel is asked over netlink which of our tables are there, and what they hold: a first run starts one program, `nft -f -`, and
a second run that has nothing to do starts none. nft lists the tables only before they are changed, to be written back if that fails.
"""

from __future__ import annotations

from netinit.backends import Backend, Change, Comparison, State
from netinit.base.errors import ApplyError, BackendUnavailableError
from netinit.base.net import FAMILIES, Family
from netinit.kernel import detect, run
from netinit.kernel.netlink import INET, IPV4_TABLES, IPV6_TABLES
from netinit.rules.model import Difference, Plan
from netinit.rules.nft import DIALECT, TABLE_NAMES, miss_all, render_replacement, render_tables, write_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.nft_tables import HeldTables, Listed
    from netinit.kernel.netlink import NftChain
    from netinit.kernel.plain_namespace import KnownChain, Place

FROM_INPUT = ("-f", "-")
NOT_INSTALLED = "nft is not installed: add the package nftables to the image"


class NftState(State):
    """The owned tables that exist, as the kernel holds them; None where there are none."""

    held: HeldTables | None
    comments: bool  # those of rules are written
    listed: Listed | None = None  # by nft, in a state that a change can be put back to

    def compare(self, plan: Plan) -> NftComparison:
        return NftComparison(plan, self)

    def describe(self) -> dict[str, str]:
        listed = self.with_listing().listed
        return {DIALECT: listed.text} if listed and listed.text else {}

    def with_listing(self) -> NftState:
        """The same with the tables as nft lists them."""
        if not self.held or self.listed:
            return self
        from netinit.backends.nft_tables import read_listed

        return self.replace(listed=read_listed(self.held))


class NftComparison(Comparison):
    """The tables beside the plan."""

    state: NftState

    def __init__(self, plan: Plan, state: NftState) -> None:
        self.plan = plan
        self.state = state
        self.written = write_plan(plan, comments=state.comments)
        if not state.held:
            self.differences = miss_all(self.written)
        else:
            from netinit.backends.nft_tables import compare_held

            self.differences = compare_held(plan, self.written, state.held)

    def ours(self) -> dict[str, tuple[str, ...]]:
        listed = self.state.with_listing().listed
        if not listed:
            return {}
        from netinit.backends.nft_tables import rules_of

        return {f"{DIALECT} {name}": tuple(rules_of(listed.text, name)) for name in listed.tables}

    def shadows(self) -> tuple[Difference, ...]:
        """Nothing: no foreign rule can stand in tables of our own."""
        return ()

    def resumable(self) -> bool:
        """Only where nothing is there: a transaction is never half made."""
        return not self.state.ours

    def change(self, *, force: bool = False) -> Change:
        wrong = {difference.table for difference in self.differences}
        wanted = {name: chains for name, chains in self.written.items() if force or name in wrong}
        # Only what is there is deleted: a deletion makes the kernel wait for all its readers, some 15 ms.
        replaced = [name for name in self._tables() if name in wanted or name not in self.written]
        return self._make_change(render_replacement(render_tables(wanted), replaced))

    def committed(self) -> dict[str, str]:
        """All of it: the transaction was committed whole; nft would take 40 ms to list 10,000 networks."""
        return {DIALECT: render_tables(self.written)}

    def removal(self) -> Change:
        return self._make_change(render_replacement("", self._tables()))

    @property
    def is_first(self) -> bool:  # type: ignore[override] # computed here
        """None of our tables was there."""
        return not self.state.ours

    def known_chains(self) -> dict[Place, KnownChain] | None:
        if self.state.ours and self.differences:
            return None
        from netinit.backends.known_chains import of_own_tables

        return of_own_tables(self.written)

    def _tables(self) -> tuple[str, ...]:
        return self.state.held.tables if self.state.held else ()

    def _make_change(self, script: str) -> Change:
        return Change(scripts={DIALECT: script} if script else {}, before=self.state.with_listing(), plan=self.plan)


class NftablesBackend(Backend):
    """Rules in native nft tables, through the program nft."""

    name = "nftables"

    def __init__(
        self,
        *,
        comments: bool = False,
        families: tuple[Family, ...] = FAMILIES,  # noqa: ARG002 - inet tables take a kernel without IPv6 as it is
        lock_timeout: int = 0,  # noqa: ARG002 - the kernel's transactions need no lock
        own_files: bool = True,  # noqa: ARG002 - no file is used
    ) -> None:
        self._comments = comments
        self._prepared: run.Running | None = None

    def observe(self) -> NftState:
        chains, tables = self._find_tables()
        held = None
        if tables:
            from netinit.backends.nft_tables import read_held  # not on a first run

            held = read_held(chains, tables)
        return NftState(held=held, comments=self._comments, ours=bool(tables), foreign=_are_foreign(chains, tables))

    def _find_tables(self) -> tuple[tuple[NftChain, ...], tuple[str, ...]]:
        """All chains, and our tables that exist."""
        chains = detect.nft_chains()
        if chains is None:
            raise BackendUnavailableError(
                "nf_tables cannot be asked: run with NET_ADMIN, on a kernel with nf_tables (module nf_tables)",
            )
        inet = dict.fromkeys([chain.table for chain in chains if chain.family == INET])
        tables = tuple([table for table in inet if table in TABLE_NAMES])
        if tables and not run.find("nft"):  # another backend beside these rules would capture everything twice
            raise ApplyError(f"rules in nft tables ({', '.join(tables)}) are here, but {NOT_INSTALLED}")
        return chains, tables

    def prepare(self) -> None:
        path = run.find("nft")
        if path and not self._prepared:
            self._prepared = run.prepare(path, FROM_INPUT)

    def release(self) -> None:
        if self._prepared:
            run.kill(self._prepared)
            self._prepared = None

    def commit(self, change: Change) -> None:
        script = change.scripts.get(DIALECT)
        if not script:
            return
        if self._prepared:
            prepared, self._prepared = self._prepared, None
            _finish(run.feed(prepared, script), run.find("nft"))
        else:
            self._run(FROM_INPUT, script)

    def put_back(self, change: Change) -> None:
        before = change.before
        if not isinstance(before, NftState):
            raise TypeError("the change of another backend")
        now = self.observe().with_listing().listed
        if now == before.listed:  # nft was refused, or ended before its transaction
            return
        text = ""
        if before.listed:
            from netinit.backends.nft_tables import reads_files

            text = before.listed.text
            if before.listed.unread:
                raise ApplyError(f"the nft tables of before could not be read: {before.listed.unread}")
            if reads_files(text):
                raise ApplyError("the nft tables of before name files to be read, and are not written back")
        self._run(FROM_INPUT, render_replacement(text, now.tables if now else ()))
        if self.list_rules() != before.describe():
            named = ", ".join(before.listed.tables) if before.listed else "none"
            raise ApplyError(f"nft lists other tables than before ({named})")

    def check(self, script: str) -> None:
        """Lets nft and the kernel check a script without making its rules; errors as for `commit`."""
        self._run(("-c", *FROM_INPUT), script)

    def list_rules(self) -> dict[str, str]:
        return self.observe().describe()

    def _run(self, arguments: tuple[str, ...], script: str = "") -> str:
        path = run.find("nft")
        if not path:
            raise BackendUnavailableError(NOT_INSTALLED)
        return _finish(run.start(path, arguments, stdin=script), path)


def _are_foreign(chains: tuple[NftChain, ...], tables: tuple[str, ...]) -> bool:
    """Whether chains are there that neither iptables nor we have made."""
    return any(
        chain.table not in tables if chain.family == INET else chain.family not in (IPV4_TABLES, IPV6_TABLES) for chain in chains
    )


def _finish(running: run.Running, path: str) -> str:
    """What nft printed; the error where it failed."""
    result = run.finish(running)
    if result.status:
        from netinit.backends.nft_tables import explain

        raise explain(result, path)
    return result.output
