"""What the iptables backends share: rules are read from the kernel, and changed for both families at once.

Here changes are written as input of iptables-restore, which libiptc takes; the others write what the kernel takes.
"""

from __future__ import annotations

from abc import abstractmethod

from netinit.backends import Backend, Change, Comparison, Lock, State, chains_of_iptables, filled, notice_size, of_kind
from netinit.base.errors import ApplyError, BackendUnavailableError, NetinitError
from netinit.base.net import FAMILIES, Family
from netinit.base.sanitize import escape
from netinit.kernel import detect
from netinit.options import Options
from netinit.rules.iptables.write import Listing, miss_all, render_listing, render_restore, write_plan
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS, Difference, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from netinit.backends.encoded_rules import EncodedFamilies
    from netinit.backends.kernel_support import Need
    from netinit.backends.listing_comparison import XtablesComparison
    from netinit.base.snapshot import Snapshot
    from netinit.kernel.plain_namespace import KnownChains
    from netinit.rules.promises import Unsupported

_LOCK_TIMEOUT: int = Options.flag("lock_timeout").default  # nanoseconds


class ChangeWriter:
    """How changes of a state are written: here as input of iptables-restore, by family."""

    def write_first(self, comparison: FirstComparison) -> Change:
        """Return the change of a namespace without rules to a plan."""
        scripts = {family.name: render_restore(written) for family, written in comparison.written.items()}
        return Change(scripts=filled(scripts), before=comparison.state, plan=comparison.plan)

    def write_change(self, comparison: XtablesComparison, *, force: bool) -> Change:
        """Return the change of compared rules to the plan; without `force` correct tables are left out."""
        return comparison.write_text(force=force)

    def write_removal(self, state: XtablesState, plan: Plan) -> Change:
        """Return the change that deletes our rules. Raises ApplyError if foreign rules jump to our chains."""
        return state.compare_rules(plan).removal()


TEXT = ChangeWriter()


class XtablesState(State):
    """The rules by family; `encoded` is empty if no table exists."""

    families: tuple[Family, ...]
    encoded: EncodedFamilies
    generation: int = 0  # of nf_tables, before the rules were read; 0: not known
    untouched: bool = False  # no rules, no chains but built-in ones, and every policy accepts
    writer: ChangeWriter = TEXT

    @property
    def listings(self) -> dict[Family, Listing]:
        """The rules in iptables syntax."""
        return {one.family: one.listing for one in self.encoded} or {family: {} for family in self.families}

    def compare(self, plan: Plan) -> Comparison:
        if self.untouched or not self.encoded:
            return FirstComparison(plan, self)
        if self.ours:
            planned = PlannedComparison(plan, self)
            if all(one.is_as_planned(planned.written[one.family]) for one in self.encoded):
                return planned
        return self.compare_rules(plan)

    def removal(self, plan: Plan) -> Change:
        return self.writer.write_removal(self, plan)

    def removed(self, plan: Plan) -> dict[str, tuple[str, ...]]:
        return self.compare_rules(plan).removed()

    def compare_rules(self, plan: Plan) -> XtablesComparison:
        """Compare rule by rule."""
        from netinit.backends.listing_comparison import XtablesComparison

        return XtablesComparison(plan, self, self.listings)

    def list_chains(self) -> dict[Family, tuple[str, ...]]:
        return {one.family: tuple([chain for _, chain in one.rules]) for one in self.encoded}

    def describe(self) -> dict[str, str]:
        return filled({family.name: show_listing(listing) for family, listing in self.listings.items()})


class FirstComparison(Comparison):
    """The comparison with a namespace without rules, whose tables may exist: everything is missing."""

    state: XtablesState

    def __init__(self, plan: Plan, state: XtablesState) -> None:
        self.plan = plan
        self.state = state
        self.written = {family: write_plan(plan, family, comments=state.comments) for family in state.families}

    def find_differences(self) -> tuple[Difference, ...]:
        return tuple(self._missing())

    def differs(self) -> bool:
        return next(self._missing(), None) is not None

    def _missing(self) -> Iterator[Difference]:
        return (one for family, written in self.written.items() for one in miss_all(written, family))

    def resumable(self) -> bool:
        return True

    def change(self, *, force: bool = False) -> Change:  # noqa: ARG002 - nothing is right already
        return self.state.writer.write_first(self)

    def renew(self, newer: XtablesState) -> Change:
        """Return the change to the same plan from a newer state, which may hold rules."""
        return newer.compare(self.plan).change()

    def committed(self) -> dict[str, str]:
        """Return the plan's rules: listing both families takes as long as programming them."""
        return filled({family.name: render_listing(written) for family, written in self.written.items()})

    def known_chains(self) -> KnownChains:
        return chains_of_iptables(self.written) if self.state.of_nf_tables else {}


class PlannedComparison(FirstComparison):
    """The comparison of rules that equal the plan byte for byte; decoded on demand."""

    def change(self, *, force: bool = False) -> Change:
        return self.state.compare_rules(self.plan).change(force=force)

    def _missing(self) -> Iterator[Difference]:
        return iter(())


class ReadingBackend(Backend):
    """A backend for tables of iptables, which it reads from the kernel."""

    of_nf_tables = False  # whether its rules are in nf_tables
    writer = TEXT

    def __init__(
        self,
        *,
        comments: bool = False,
        families: tuple[Family, ...] = FAMILIES,
        lock_timeout: int = _LOCK_TIMEOUT,
        own_files: bool = True,
    ) -> None:
        self._comments = comments
        self._families = families  # those the kernel has
        self._lock_timeout = lock_timeout  # nanoseconds
        self._own_files = own_files  # False: the host's file system, whose lock is not for this namespace
        self._lock: Lock | None = None  # one lock for the backend's life, since it may be held already when a commit needs it

    def _legacy_lock(self) -> Lock:
        from netinit.backends.lock import XtablesLock  # only backends for legacy tables need it

        if self._lock is None:
            self._lock = XtablesLock(self.name, self._lock_timeout, own_files=self._own_files)
        return self._lock

    @abstractmethod
    def refusal(self, error: OSError) -> NetinitError:
        """Return the error for a kernel that does not list its rules."""

    def read(self, families: tuple[Family, ...], snapshot: Snapshot | None = None) -> EncodedFamilies:
        """Return these families' rules, in a snapshot or read now; empty without tables.

        Raises BackendUnavailableError, ParseError.
        """
        if not any(detect.legacy_tables(family) != () for family in families):
            return ()
        from netinit.backends import encoded_rules  # not needed on a first run

        try:
            return encoded_rules.legacy_of_snapshot(snapshot or encoded_rules.read_legacy(families), families)
        except OSError as error:
            raise self.refusal(error) from None

    def observe(self, snapshot: Snapshot | None = None, families: tuple[Family, ...] | None = None) -> XtablesState:
        families = self._families if families is None else families
        encoded = self.read(families, snapshot)
        in_use = any(one.size or not one.accepts for one in encoded)
        chains = {place[1] for one in encoded for place in one.rules}
        untouched = not in_use and chains.issubset(BUILTIN_CHAINS)
        ours, foreign = any(chain in OWNED_CHAINS for chain in chains), False
        if not (ours or untouched):
            from netinit.backends.listing_comparison import find_holders

            ours, foreign = find_holders({one.family: one.listing for one in encoded})
        return XtablesState(
            families=families, encoded=encoded, comments=self._comments, of_nf_tables=self.of_nf_tables, writer=self.writer,
            in_use=in_use, untouched=untouched, ours=ours, foreign=foreign,
            notices=tuple([notice for one in encoded for notice in notice_size(one.size, one.family)]),
        )  # fmt: skip

    def missing_for(self, plan: Plan) -> str:
        """Return what the plan needs and the kernel lacks; empty if the kernel does not say."""
        from netinit.rules.promises import name_missing

        try:
            return name_missing(self.find_unsupported(plan))
        except (OSError, ValueError):
            return ""

    def find_unsupported(self, plan: Plan) -> Unsupported:
        from netinit.backends.kernel_support import find_unsupported  # rarely needed

        return find_unsupported(plan, tuple([family for family in plan.families if family in self._families]), self.has)

    @abstractmethod
    def has(self, family: Family, need: Need) -> bool:
        """Whether the kernel has what a rule needs. Raises OSError if it does not say."""


class XtablesBackend(ReadingBackend):
    """A backend that commits iptables-restore input."""

    @abstractmethod
    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        """Commit each family's input; return errors by family."""

    def commit(self, change: Change) -> None:
        scripts = {family: change.scripts[family.name] for family in self._families if family.name in change.scripts}
        errors = self.feed(scripts)
        if not errors:
            return
        from netinit.backends.failure_causes import explain_owners

        message = "; ".join([f"{family.name}: {error}" for family, error in errors.items()])
        if hint := explain_owners("".join([scripts[family] for family, error in errors.items() if type(error) is ApplyError])):
            message += f"; {hint}"
        raised = type(next(iter(errors.values())))
        if raised in (ApplyError, BackendUnavailableError) and (missing := self.missing_for(change.plan)):
            from netinit.backends.failure_causes import explain_missing

            raise explain_missing(message, missing)
        raise raised(message)

    def roll_back(self, change: Change) -> None:
        from netinit.backends.listing_comparison import write_return

        families = tuple([family for family in self._families if family.name in change.scripts])
        now = self.observe(families=families)
        before = of_kind(change.before, XtablesState)
        if all(now.listings[family] == before.listings[family] for family in families):
            return
        scripts, lost = write_return(now.compare_rules(change.plan), before.compare_rules(change.plan), families)
        for error in self.feed({family: script for family, script in scripts.items() if script}).values():
            raise error
        if lost:
            raise ApplyError(f"rules with control characters are lost ({', '.join(lost)})")


def show_listing(listing: Listing) -> str:
    """Format a listing for people, one line for each rule."""
    lines = []
    for name, table in listing.items():
        lines.append(f"*{name}")
        lines += [f":{chain} {table.policies.get(chain, '-')} [0:0]" for chain in table.rules]
        lines += [f"-A {chain} {text}".rstrip() for chain, texts in table.rules.items() for text in texts]
        lines.append("COMMIT")
    return "".join([escape(line) + "\n" for line in lines])
