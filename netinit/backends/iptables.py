"""What the backends in the dialect of iptables share: state as listings, changes as iptables-restore input."""

from __future__ import annotations

from abc import abstractmethod

from netinit.backends import MANY_RULES
from netinit.backends.base import Backend, Change, Comparison, Lock, State
from netinit.base.errors import ApplyError, NetinitError, ParseError
from netinit.base.net import FAMILIES, Family
from netinit.base.records import Record
from netinit.base.shown import escape
from netinit.rules.iptables.compare import compare_listing, find_foreign_jumps, find_shadows, live_chains
from netinit.rules.iptables.ownership import (
    Forms,
    Owned,
    gather,
    holds_foreign_rules,
    holds_ours,
    keep_foreign_rules,
    owned_rules,
)
from netinit.rules.iptables.transition import (
    is_interrupted,
    target_from_listing,
    target_from_plan,
    unchanged_tables,
    write_transition,
)
from netinit.rules.iptables.write import UNSAFE, Listing, Written, logical_lines, parse_listing, write_plan
from netinit.rules.model import EMPTY_PLAN, Difference, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from netinit.rules.census import Census

ATTEMPTS = 5  # to find listing and kernel the same while others change rules
REMEDY = (
    "look at the rules with `nft list ruleset` or `iptables-legacy -S`, delete what is not yours by its number"
    " (`nft -a list ruleset`, `nft delete rule ... handle N`), or start anew with an empty network namespace"
)


class FamilyState(Record):
    """One family of a plan beside what is live."""

    family: Family
    written: Written
    listing: Listing
    owned: Owned


class XtablesState(State):
    """The listings by family: as text, and parsed."""

    texts: dict[Family, str]
    listings: dict[Family, Listing]
    families: tuple[Family, ...]  # those the kernel has
    comments: bool  # those of rules are written

    def compare(self, plan: Plan) -> XtablesComparison:
        return XtablesComparison(plan, self)

    def describe(self) -> dict[str, str]:
        return {family.name: _show(text) for family, text in self.texts.items() if text}


class XtablesComparison(Comparison):
    """The listings beside the plan as written, family by family. `written` is the plan where it is written differently."""

    def __init__(self, plan: Plan, state: XtablesState, written: Plan | None = None) -> None:
        self.plan = plan
        self.state = state
        self.by_family = _pair(written or plan, state.listings, state.families, comments=state.comments)
        found: tuple[Difference, ...] = ()
        for one in self.by_family:
            found += compare_listing(one.written, one.listing, one.owned, one.family)
        self.differences = found

    def ours(self) -> dict[str, tuple[str, ...]]:
        return {
            f"{one.family.name} {name} {chain}": tuple(texts)
            for one in self.by_family
            for name, table in one.listing.items()
            for chain, texts in live_chains(name, table, one.owned).items()
        }

    def shadows(self) -> tuple[Difference, ...]:
        found: list[Difference] = []
        for one in self.by_family:
            found += find_shadows(one.listing, one.owned, one.family)
        return tuple(found)

    def resumable(self) -> bool:
        return all(is_interrupted(one.written, one.listing, one.owned, one.family) for one in self.by_family)

    def change(self, *, force: bool = False) -> Change:
        scripts = {}
        for one in self.by_family:
            skip = () if force else unchanged_tables(one.written, one.listing, one.owned, one.family)
            scripts[one.family.name] = write_transition(
                target_from_plan(one.written), one.listing, one.owned, skip=skip
            )
        return Change(scripts=_filled(scripts), before=self.state, plan=self.plan)

    def removal(self) -> Change:
        scripts = {}
        for one in self.by_family:
            for table, chain, rule in find_foreign_jumps(one.listing):
                from netinit.rules.iptables.parse.quotation import quote_rule

                place = f"{one.family.name} {table} {escape(chain)}"
                raise ApplyError(
                    f"{place}: a foreign rule jumps into netinit's chains ({quote_rule(rule)}); remove it first"
                )
            scripts[one.family.name] = write_transition({}, one.listing, one.owned)
        return Change(scripts=_filled(scripts), before=self.state, plan=self.plan)


class XtablesBackend(Backend):
    """A backend whose kernel one is listed by iptables-save and changed by iptables-restore's input."""

    counts = True  # False: it lists rules without their counters

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

    def observe(self) -> XtablesState:
        return self._state(*self.look(self._families))

    def commit(self, change: Change) -> None:
        scripts = {family: change.scripts[family.name] for family in self._families if family.name in change.scripts}
        errors = self.feed(scripts)
        if not errors:
            return
        message = "; ".join([f"{family.name}: {error}" for family, error in errors.items()])
        try:
            XtablesBackend.put_back(self, change)  # the rules alone, whatever else a backend puts back
        except NetinitError as error:
            message += f"; putting back what was before failed too: {error}"
        raise type(next(iter(errors.values())))(message)

    def put_back(self, change: Change) -> None:
        lost = self._return_to(change, tuple([family for family in self._families if family.name in change.scripts]))
        if lost:
            raise ApplyError(f"rules with control characters are lost ({', '.join(lost)})")

    def list_rules(self, comparison: Comparison) -> dict[str, str]:  # noqa: ARG002 - the kernel is read
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
        by_family = _pair(EMPTY_PLAN, listings, self._families, comments=False)
        return XtablesState(
            texts=texts,
            listings=listings,
            families=self._families,
            comments=self._comments,
            ours=any(one.owned or any(holds_ours(table) for table in one.listing.values()) for one in by_family),
            foreign=any(holds_foreign_rules(one.listing, one.owned) for one in by_family),
            notices=tuple([notice for family, listing in listings.items() for notice in notice_size(listing, family)]),
        )

    def _as_observed(self, state: XtablesState) -> XtablesState:
        """The state of some families as a backend's own kind."""
        return state

    def _return_to(self, change: Change, families: tuple[Family, ...]) -> list[str]:
        """Brings the families back to what they were before the change, from whatever they are now.

        Returns the places of rules that could not be put back.
        """
        now = self._state(*self.look(families))
        before = {one.family: one for one in _comparison(change.before, change.plan).by_family}
        scripts = {}
        lost: list[str] = []
        for one in _comparison(self._as_observed(now), change.plan).by_family:
            if one.family in families:
                old = before[one.family]
                owned = keep_foreign_rules(one.owned, one.listing, old.listing, old.owned)
                target, missed = target_from_listing(old.listing, old.owned)
                lost += [f"{one.family.name} {place}" for place in missed]
                script = write_transition(target, one.listing, owned)
                if script:
                    scripts[one.family] = script
        for error in self.feed(scripts).values():
            raise error
        return lost


def _comparison(state: State, plan: Plan) -> XtablesComparison:
    comparison = state.compare(plan)
    if not isinstance(comparison, XtablesComparison):
        raise TypeError(f"the state of another dialect: {type(state).__name__}")
    return comparison


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


def _pair(plan: Plan, listings: dict[Family, Listing], families: tuple[Family, ...], *, comments: bool) -> list[FamilyState]:
    evidence = gather(listings.values(), _forms)
    by_family = []
    for family in families:
        listing = listings.get(family, {})
        written = write_plan(plan, family, comments=comments)
        by_family.append(
            FamilyState(family=family, written=written, listing=listing, owned=owned_rules(listing, written, evidence, _forms))
        )
    return by_family


def _forms() -> Forms:
    from netinit.rules.forms import layout_forms  # only where other rules stand beside those that jump to our chains

    return layout_forms()


def _filled(scripts: dict[str, str]) -> dict[str, str]:
    return {name: script for name, script in scripts.items() if script}
