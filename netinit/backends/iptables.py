"""What the backends in the dialect of iptables share: state as listings, changes as iptables-restore input."""

from __future__ import annotations

from abc import abstractmethod

from netinit.backends import MANY_RULES, Backend, Change, Comparison, Lock, State, filled
from netinit.base.errors import ApplyError, NetinitError, ParseError
from netinit.base.net import FAMILIES, Family
from netinit.base.shown import escape
from netinit.rules.iptables.write import (
    UNSAFE,
    Listing,
    logical_lines,
    miss_all,
    parse_listing,
    render_listing,
    render_restore,
    write_plan,
)
from netinit.rules.model import Difference, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from netinit.backends.comparing import XtablesComparison
    from netinit.backends.held import Held
    from netinit.kernel.plain_namespace import KnownChain, Place
    from netinit.rules.census import Census

ATTEMPTS = 5  # to find listing and kernel the same while others change rules
REMEDY = (
    "look at the rules with `nft list ruleset` or `iptables-legacy -S`, delete what is not yours by its number"
    " (`nft -a list ruleset`, `nft delete rule ... handle N`), or start anew with an empty network namespace"
)


class XtablesState(State):
    """The listings by family: as text, and parsed."""

    texts: dict[Family, str]
    listings: dict[Family, Listing]
    comments: bool  # those of rules are written

    def compare(self, plan: Plan) -> Comparison:
        return self.compare_rules(plan) if any(self.listings.values()) else FirstComparison(plan, self)

    def compare_rules(self, plan: Plan) -> XtablesComparison:
        """The same where rules may be there."""
        from netinit.backends.comparing import XtablesComparison

        return XtablesComparison(plan, self, self.listings, comments=self.comments)

    def describe(self) -> dict[str, str]:
        return {family.name: _show(text) for family, text in self.texts.items() if text}


class FirstComparison(Comparison):
    """The plan beside a namespace in which nothing is listed: all of it is missing."""

    is_first = is_whole = True

    def __init__(self, plan: Plan, state: XtablesState) -> None:
        self.plan = plan
        self.state = state
        self.written = {family: write_plan(plan, family, comments=state.comments) for family in state.listings}

    @property
    def differences(self) -> tuple[Difference, ...]:  # type: ignore[override] # seldom asked for: every rule is one
        """All of the plan."""
        return tuple(self._missing())

    def differs(self) -> bool:
        return next(self._missing(), None) is not None

    def _missing(self) -> Iterator[Difference]:
        return (one for family, written in self.written.items() for one in miss_all(written, family))

    def ours(self) -> dict[str, tuple[str, ...]]:
        return {}

    def shadows(self) -> tuple[Difference, ...]:
        return ()

    def resumable(self) -> bool:
        return True

    def change(self, *, force: bool = False) -> Change:  # noqa: ARG002 - nothing is right already
        scripts = {family.name: render_restore(written) for family, written in self.written.items()}
        return Change(scripts=filled(scripts), before=self.state, plan=self.plan)

    def committed(self) -> dict[str, str]:
        """All of it: each table is one transaction, and to list both families takes as long as to program them."""
        return filled({family.name: render_listing(written) for family, written in self.written.items()})

    def removal(self) -> Change:
        return Change(scripts={}, before=self.state, plan=self.plan)

    def known_chains(self) -> dict[Place, KnownChain]:
        if not self.state.of_nf_tables:
            return {}
        from netinit.backends.known_chains import of_iptables

        return of_iptables(self.written)


class XtablesBackend(Backend):
    """A backend whose kernel one is listed by iptables-save and changed by iptables-restore's input."""

    counts = True  # False: it lists rules without their counters
    of_nf_tables = False  # True: its rules are in nf_tables

    def __init__(
        self,
        *,
        comments: bool = False,
        families: tuple[Family, ...] = FAMILIES,
        lock_timeout: int = 10 * 10**9,
        own_files: bool = True,
    ) -> None:
        self._comments = comments
        self._families = families  # those the kernel has
        self._lock_timeout = lock_timeout  # nanoseconds
        self._own_files = own_files  # False: the host's file system, whose lock is not about this namespace
        self._lock: Lock | None = None  # one for the backend's life, since it may be held when a commit needs it

    @abstractmethod
    def read(self, families: tuple[Family, ...], *, counted: bool = False) -> dict[Family, str]:
        """The listings of these families, as iptables-save prints them (-c with `counted`); empty without tables."""

    @abstractmethod
    def count(self, families: tuple[Family, ...]) -> dict[Family, Census]:
        """What the kernel itself counts in these families' tables. BackendUnavailableError, ParseError."""

    @abstractmethod
    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        """Commits each family's input; returns the errors by family, empty when all went well."""

    def observe(self) -> State:
        held = self._read_held()
        if not held:
            return self.list_state()
        from netinit.backends.held import HeldState  # not on a first run

        return HeldState(
            ours=True, foreign=False, in_use=any(one.in_use for one in held), of_nf_tables=self.of_nf_tables, held=held,
            list_all=self.list_state, comments=self._comments,
        )  # fmt: skip

    def list_state(self) -> XtablesState:
        """The live rules as listed by the backend's program."""
        return self._state(*self.look(self._families))

    def _read_held(self) -> Held:
        """The rules as the kernel holds them, where some are ours; nothing where they had better be listed."""
        return ()

    def commit(self, change: Change) -> None:
        scripts = {family: change.scripts[family.name] for family in self._families if family.name in change.scripts}
        errors = self.feed(scripts)
        if not errors:
            return
        from netinit.backends.errors import explain_owners

        message = "; ".join([f"{family.name}: {error}" for family, error in errors.items()])
        if hint := explain_owners("".join([scripts[family] for family, error in errors.items() if type(error) is ApplyError])):
            message += f"; {hint}"
        raise type(next(iter(errors.values())))(message)

    def put_back(self, change: Change) -> None:
        lost = self._return_to(change, tuple([family for family in self._families if family.name in change.scripts]))
        if lost:
            raise ApplyError(f"rules with control characters are lost ({', '.join(lost)})")

    def list_rules(self) -> dict[str, str]:
        return {family.name: _show(text) for family, text in self.read(self._families).items() if text}

    def look(
        self, families: tuple[Family, ...], *, counted: bool = False
    ) -> tuple[dict[Family, str], dict[Family, Listing]]:
        """The listings as text and parsed, once the kernel's own count says the same. ParseError otherwise."""
        problem = ""
        for _ in range(ATTEMPTS):
            texts, censuses = self.read_and_count(families, counted=counted)
            try:
                listings = {family: parse_listing(text, counted=counted) for family, text in texts.items()}
            except ParseError as error:
                raise ParseError(f"{self.name}: {error}; {REMEDY}") from None
            problem = _contradiction(listings, censuses) if any(texts.values()) or any(censuses.values()) else ""
            if not problem:
                return texts, listings
        raise ParseError(f"{self.name}: {UNSAFE}{problem}; {REMEDY}")

    def read_and_count(
        self, families: tuple[Family, ...], *, counted: bool
    ) -> tuple[dict[Family, str], dict[Family, Census]]:
        """The listings and what the kernel counts."""
        censuses = self.count(families)
        return self.read(families, counted=counted), censuses

    def _state(self, texts: dict[Family, str], listings: dict[Family, Listing]) -> XtablesState:
        ours = foreign = in_use = False
        if any(listings.values()):
            from netinit.backends.comparing import find_holders

            ours, foreign = find_holders(listings)
            in_use = any(table.holds_rules for listing in listings.values() for table in listing.values())
        return XtablesState(
            texts=texts,
            listings=listings,
            comments=self._comments,
            of_nf_tables=self.of_nf_tables,
            in_use=in_use,
            ours=ours,
            foreign=foreign,
            notices=tuple([notice for family, listing in listings.items() for notice in notice_size(listing, family)]),
        )

    def _as_observed(self, state: XtablesState) -> XtablesState:
        """The state of some families as a backend's own kind."""
        return state

    def _return_to(self, change: Change, families: tuple[Family, ...]) -> list[str]:
        """Brings the families back to what they were before the change, from whatever they are now.

        Returns the places of rules that could not be put back.
        """
        from netinit.backends.comparing import write_return

        now = self._as_observed(self._state(*self.look(families)))
        before = change.before
        if not isinstance(before, XtablesState):
            raise TypeError(f"the state of another dialect: {type(before).__name__}")
        if all(now.listings[family] == before.listings[family] for family in families):
            return []
        scripts, lost = write_return(now.compare_rules(change.plan), before.compare_rules(change.plan), families)
        for error in self.feed({family: script for family, script in scripts.items() if script}).values():
            raise error
        return lost


def _contradiction(listings: dict[Family, Listing], censuses: dict[Family, Census]) -> str:
    from netinit.rules.census import find_contradiction  # only where there are rules

    for family, listing in listings.items():
        if listing and family not in censuses:
            return f"{family.name}: the kernel does not say how many rules it has"
        problem = find_contradiction(listing, censuses.get(family, {}), family.name)
        if problem:
            return problem
    return ""


def notice_size(listing: Listing, family: Family) -> Iterator[str]:
    """What the operator should know of a listing's length."""
    rules = sum([len(texts) for table in listing.values() for texts in table.rules.values()])
    if rules > MANY_RULES:
        yield f"{family.name}: {rules:,} rules are here: every look at them takes seconds"


def _show(text: str) -> str:
    """A listing for people, a rule a line: whatever stands between a rule's quotes is no line of its own."""
    if '"' not in text:
        return text
    return "".join([escape(line) + "\n" for line in logical_lines(text)])
