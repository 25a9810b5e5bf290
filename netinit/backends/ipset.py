"""The iptables backends with long lists of networks in address sets.

Loaded only for a long list or existing sets. Sets are created before the rules that use them and destroyed after them. On a
kernel without sets plain rules are written; correct plain rules stay.
"""

from __future__ import annotations

import time
from _socket import AF_INET, AF_INET6

from netinit.backends import Change, Comparison, of_kind, owner_of_sets
from netinit.backends.iptables import FirstComparison, ReadingBackend, XtablesState
from netinit.backends.iptables_nft import NftVariant
from netinit.backends.legacy import LegacyBackend
from netinit.backends.set_contents import read_contents
from netinit.base.errors import ApplyError, LockedError, NetinitError
from netinit.kernel.detect import loaded_sets, owned_sets
from netinit.rules.iptables import set_changes
from netinit.rules.iptables import sets as set_rules
from netinit.rules.iptables.write import WrittenRule
from netinit.rules.model import Difference, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from netinit.backends.compat_messages import CompatChange, Part
    from netinit.backends.legacy_edits import Edits, LegacyChange
    from netinit.backends.listing_comparison import XtablesComparison
    from netinit.backends.set_comparison import SetsComparison
    from netinit.base.net import Family
    from netinit.base.snapshot import Snapshot
    from netinit.kernel.address_sets import AddressSets
    from netinit.rules.iptables.sets import SetStep, Steps
    from netinit.rules.iptables.write import Written

TRIES = 200  # times 5 ms: nf_tables releases a set some time after its rule is deleted


class SetInUseError(ApplyError):
    """A rule uses the set, so it cannot be destroyed."""


class SetsState(XtablesState):
    """The rules and our sets; lists longer than `threshold` become sets."""

    sets: set_rules.Contents
    numbers: dict[str, int]  # the kernel's, of these sets, which its rules have
    owner: str  # prefix of the backend's set names
    threshold: int

    def compare(self, plan: Plan) -> Comparison:
        if not self.sets and (self.untouched or not self.encoded):
            return FirstSetsComparison(plan, self)
        return self.compare_rules(plan)

    def compare_rules(self, plan: Plan) -> SetsComparison:
        from netinit.backends.set_comparison import SetsComparison  # not needed on a first run

        return SetsComparison(plan, self)

    def compare_plainly(self, plan: Plan) -> XtablesComparison:
        """Compare with rules that use no sets."""
        from netinit.backends.listing_comparison import XtablesComparison

        return XtablesComparison(plan, self, self.listings)

    def use_sets(self, plan: Plan) -> tuple[Plan, tuple[set_rules.PlannedSet, ...]]:
        """Return the plan with sets for its long lists, and these sets."""
        return set_rules.use_sets(plan, self.owner, self.threshold) if self.threshold else (plan, ())

    def make_change(self, plan: Plan, rules: Change, wanted: tuple[set_rules.PlannedSet, ...], *, force: bool = False) -> SetsChange:
        """Return the change of rules with that of the sets that they use."""
        return SetsChange(
            scripts={}, before=self, plan=plan, rules=rules, preparation=set_changes.find_preparation(wanted, self.sets, force=force),
            kept=tuple([made.name for made in wanted]), begun=[],
        )  # fmt: skip

    def removal(self, plan: Plan) -> SetsChange:
        from netinit.backends.set_comparison import refuse_foreign_questions

        refuse_foreign_questions(self, tuple(self.sets))
        return SetsChange(scripts={}, before=self, plan=plan, rules=super().removal(plan), preparation=(), kept=(), begun=[])


class SetsChange(Change):
    """A change of rules with steps that prepare sets before it, and the names of the sets to keep after it."""

    before: SetsState
    rules: Change
    preparation: set_rules.Steps
    kept: tuple[str, ...]
    begun: list[Change]  # the changes of rules that may be in the kernel: with sets, then without them


class FirstSetsComparison(FirstComparison):
    """The comparison with a namespace without rules and sets: everything is missing."""

    state: SetsState

    def __init__(self, plan: Plan, state: SetsState) -> None:
        rewritten, self.wanted = state.use_sets(plan)
        super().__init__(rewritten, state)
        self.plan = plan

    def find_differences(self) -> tuple[Difference, ...]:
        return super().find_differences() + set_changes.compare_sets(self.wanted, {})

    def change(self, *, force: bool = False) -> SetsChange:  # noqa: ARG002 - as in FirstComparison
        return self.state.make_change(self.plan, super().change(), self.wanted)

    def renew(self, newer: SetsState) -> Change:  # type: ignore[override] # as in SetsState
        return newer.compare_rules(self.plan).change_rules()

    def committed(self) -> dict[str, str]:
        names = owned_sets()
        as_planned = all(made.name in names for made in self.wanted)  # otherwise plain rules were committed
        return super().committed() if as_planned else FirstComparison(self.plan, self.state).committed()


class SetsBackend(ReadingBackend):
    """A variant of iptables with sets for lists longer than `threshold`."""

    variant: str

    def __init__(self, *, threshold: int, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self._threshold = threshold

    def observe(self, snapshot: Snapshot | None = None, families: tuple[Family, ...] | None = None) -> SetsState:
        state = super().observe(snapshot, families)
        sets = self._read_sets()
        fields: dict[str, Any] = {**state.__getstate__(), "ours": state.ours or bool(sets), "beside": sets}
        numbers = {name: number for name, number in _numbers().items() if name in sets}
        return SetsState(**fields, sets=sets, numbers=numbers, owner=owner_of_sets(self.variant), threshold=self._threshold)

    def commit(self, change: Change) -> None:
        change = of_kind(change, SetsChange)
        kept = change.kept
        try:
            change_sets(change.preparation)
            self._commit_rules(change, change.rules)
        except NetinitError as error:
            if not kept or isinstance(error, LockedError):
                raise
            self._commit_plainly(change, error)
            kept = ()
        self._destroy(tuple([name for name in self._names() if name not in kept]))

    def _commit_rules(self, change: SetsChange, rules: Change) -> None:
        change.begun.append(rules)
        super().commit(rules)  # type: ignore[safe-super] # the variant's

    def roll_back(self, change: Change) -> None:
        """Restore sets before the rules that use them; destroy new ones after the rules."""
        change = of_kind(change, SetsChange)
        before = change.before.sets
        change_sets(set_changes.find_return(before, self._read_sets()))
        for rules in reversed(change.begun):
            super().roll_back(rules)  # type: ignore[safe-super] # the variant's
        change.begun.clear()
        self._destroy(tuple([name for name in self._names() if name not in before]))
        numbers = _numbers()
        moved = [name for name, number in change.before.numbers.items() if numbers.get(name) != number]  # restored rules have the old
        lost = sorted({*moved, *[name for name, elements in self._read_sets().items() if elements != before.get(name)]})
        if lost:
            raise ApplyError(f"address sets are not as before: {', '.join(lost)}")

    def _commit_plainly(self, change: SetsChange, error: NetinitError) -> None:
        """Commit the change without sets; if that fails too, raise the first error."""
        try:
            self.roll_back(change)  # the plain rules start from the observed state
            self._commit_rules(change, change.before.compare_plainly(change.plan).change())
        except NetinitError:
            raise error from None

    def _names(self) -> tuple[str, ...]:
        return tuple([name for name in owned_sets() if name.startswith(f"{owner_of_sets(self.variant)}-")])

    def _read_sets(self) -> set_rules.Contents:
        ours = self._names()
        return {name: elements for name, elements in read_contents().items() if name in ours}

    def _destroy(self, names: tuple[str, ...]) -> None:
        for name in names:
            for again in range(TRIES, -1, -1):
                try:
                    change_sets((set_rules.SetStep(kind=set_rules.DESTROY, name=name),))
                    break
                except SetInUseError as error:
                    if not again:
                        raise ApplyError(f"{error}; a foreign rule references it: remove that first") from None
                time.sleep(0.005)


def _numbers() -> dict[str, int]:
    return {one.name: one.number for one in loaded_sets()}


class NftVariantWithSets(SetsBackend, NftVariant):
    """iptables on nf_tables, with sets, whose numbers the kernel's rules have."""

    def write(self, change: CompatChange) -> list[tuple[Family, Part]]:
        numbers = _numbers()
        families = [
            one.replace(target={
                table: {
                    chain: [
                        (place, set_changes.number_sets(rule, numbers) if isinstance(rule, WrittenRule) else rule)
                        for place, rule in placed
                    ]
                    for chain, placed in chains.items()
                }
                for table, chains in one.target.items()
            })
            for one in change.families
        ]  # fmt: skip
        return super().write(change.replace(families=tuple(families)))


class LegacyVariantWithSets(SetsBackend, LegacyBackend):
    """iptables on the older kernel interface, with sets, whose numbers the kernel's rules have."""

    def write(self, change: LegacyChange) -> dict[Family, Edits]:
        numbers = _numbers()

        def number(written: Written) -> Written:
            return {
                table: {
                    chain: planned.replace(rules=tuple([set_changes.number_sets(rule, numbers) for rule in planned.rules]))
                    for chain, planned in chains.items()
                }
                for table, chains in written.items()
            }

        return change.write(number)


def change_sets(steps: Steps) -> None:
    """Make these changes in order. Raises ApplyError; SetInUseError for a set that a rule uses."""
    if not steps:
        return
    from netinit.kernel.address_sets import IN_USE, AddressSets

    with AddressSets() as link:
        for step in steps:
            try:
                _make(link, step)
            except OSError as error:
                kind = SetInUseError if error.errno == IN_USE else ApplyError
                raise kind(f"address set {error.strerror}") from None


def _make(link: AddressSets, step: SetStep) -> None:
    if step.kind == set_rules.FILL:
        link.create(
            step.name, sorted(step.elements), family=AF_INET6 if step.is_ipv6 else AF_INET, hash_size=step.hash_size,
            most=step.most_elements,
        )  # fmt: skip
    elif step.kind == set_rules.SWAP:
        link.swap(step.name, step.other)
    else:
        link.destroy(step.name)
