"""What the backends in the dialect of iptables share: state as listings, changes as iptables-restore input."""

from __future__ import annotations

from abc import abstractmethod

from netinit.backends.base import Backend, Change, State
from netinit.base.errors import ApplyError, NetinitError
from netinit.base.net import FAMILIES, Family
from netinit.base.records import Record
from netinit.base.shown import escape
from netinit.rules.difference import Difference
from netinit.rules.iptables.compare import compare_listing, find_foreign_jumps, find_shadows
from netinit.rules.iptables.ownership import Owned, gather, holds_others, holds_ours, owned_rules, spare_others
from netinit.rules.iptables.transition import (
    is_interrupted,
    target_from_listing,
    target_from_plan,
    unchanged_tables,
    write_transition,
)
from netinit.rules.iptables.write import Listing, Written, parse_listing, write_plan
from netinit.rules.model import EMPTY_PLAN, Plan


class Seen(Record):
    """The listings by family: as printed, and taken apart."""

    texts: dict[Family, str]
    listings: dict[Family, Listing]


class Side(Record):
    """One family of a plan beside what is live."""

    family: Family
    written: Written
    listing: Listing
    owned: Owned


class XtablesBackend(Backend):
    """A backend whose kernel side is listed by iptables-save and changed by iptables-restore's input."""

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
        self._last: tuple[Plan, State, list[Side]] | None = None

    @abstractmethod
    def read(self, families: tuple[Family, ...]) -> dict[Family, str]:
        """The listings of these families, as iptables-save prints them; empty text where there are no tables."""

    @abstractmethod
    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        """Commits each family's input; returns the errors by family, empty when all went well."""

    def observe(self) -> State:
        return self._state(self.read(self._families))

    def compare(self, plan: Plan, state: State) -> tuple[Difference, ...]:
        found: tuple[Difference, ...] = ()
        for side in self._sides(plan, state):
            found += compare_listing(side.written, side.listing, side.owned, side.family)
        return found

    def shadows(self, plan: Plan, state: State) -> tuple[Difference, ...]:
        found: list[Difference] = []
        for side in self._sides(plan, state):
            found += find_shadows(side.listing, side.owned, side.family)
        return tuple(found)

    def resumable(self, plan: Plan, state: State) -> bool:
        return all(
            is_interrupted(side.written, side.listing, side.owned, side.family) for side in self._sides(plan, state)
        )

    def change(self, plan: Plan, state: State, *, force: bool = False) -> Change:
        scripts = {}
        for side in self._sides(plan, state):
            skip = () if force else unchanged_tables(side.written, side.listing, side.owned, side.family)
            scripts[side.family.name] = write_transition(
                target_from_plan(side.written), side.listing, side.owned, skip=skip
            )
        return Change(scripts=_filled(scripts), before=state, plan=plan)

    def removal(self, plan: Plan, state: State) -> Change:
        scripts = {}
        for side in self._sides(plan, state):
            for table, chain, rule in find_foreign_jumps(side.listing):
                from netinit.rules.iptables.parse.quotation import quote_rule

                place = f"{side.family.name} {table} {escape(chain)}"
                raise ApplyError(
                    f"{place}: a rule of somebody else jumps into netinit's chains ({quote_rule(rule)}); remove it first"
                )
            scripts[side.family.name] = write_transition({}, side.listing, side.owned)
        return Change(scripts=_filled(scripts), before=state, plan=plan)

    def commit(self, change: Change) -> None:
        scripts = {family: change.scripts[family.name] for family in self._families if family.name in change.scripts}
        errors = self.feed(scripts)
        if not errors:
            return
        message = "; ".join([f"{family.name}: {error}" for family, error in errors.items()])
        try:
            self._return_to(change, tuple(scripts))
        except NetinitError as error:
            message += f"; putting back what was before failed too: {error}"
        raise type(next(iter(errors.values())))(message)

    def describe(self, state: State) -> dict[str, str]:
        return {family.name: text for family, text in state.seen.texts.items() if text}

    def list_rules(self) -> dict[str, str]:
        return {family.name: text for family, text in self.read(self._families).items() if text}

    def _state(self, texts: dict[Family, str]) -> State:
        listings = {family: parse_listing(text) for family, text in texts.items()}
        sides = _pair(EMPTY_PLAN, listings, self._families, comments=False)
        return State(
            seen=Seen(texts=texts, listings=listings),
            ours=any(side.owned or any(holds_ours(table) for table in side.listing.values()) for side in sides),
            others=any(holds_others(side.listing, side.owned) for side in sides),
        )

    def _sides(self, plan: Plan, state: State) -> list[Side]:
        """The plan beside the state; remembered, since every question about the two needs it."""
        if self._last is None or self._last[0] is not plan or self._last[1] is not state:
            self._last = (plan, state, _pair(plan, state.seen.listings, self._families, comments=self._comments))
        return self._last[2]

    def _return_to(self, change: Change, families: tuple[Family, ...]) -> None:
        """Brings the families back to what they were before the change, from whatever they are now."""
        now = self._state(self.read(families))
        before = {side.family: side for side in self._sides(change.plan, change.before)}
        scripts = {}
        for side in self._sides(change.plan, now):
            if side.family in families:
                old = before[side.family]
                owned = spare_others(side.owned, side.listing, old.listing, old.owned)
                script = write_transition(target_from_listing(old.listing, old.owned), side.listing, owned)
                if script:
                    scripts[side.family] = script
        for error in self.feed(scripts).values():
            raise error


def _pair(plan: Plan, listings: dict[Family, Listing], families: tuple[Family, ...], *, comments: bool) -> list[Side]:
    evidence = gather(listings.values())
    sides = []
    for family in families:
        listing = listings.get(family, {})
        written = write_plan(plan, family, comments=comments)
        sides.append(
            Side(family=family, written=written, listing=listing, owned=owned_rules(listing, written, evidence))
        )
    return sides


def _filled(scripts: dict[str, str]) -> dict[str, str]:
    return {name: script for name, script in scripts.items() if script}
