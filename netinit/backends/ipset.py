"""The iptables backends with long lists of networks in address sets, through the program ipset.

Loaded only where a list is long enough or an earlier run left sets. The sets are there before the rules that ask them,
and go after them. Where the kernel has no such sets the rules are written plainly; plain rules that are right stay.
"""

from __future__ import annotations

import time

from netinit.backends.base import Change, State
from netinit.backends.iptables import Seen, Side
from netinit.backends.restore import LegacyVariant, NftVariant, RestoreBackend
from netinit.base.errors import ApplyError, LockedError, NetinitError
from netinit.base.shown import escape
from netinit.kernel import detect, run
from netinit.rules.difference import Difference
from netinit.rules.iptables.sets import (
    MOST_ELEMENTS,
    AddressSet,
    Contents,
    compare_sets,
    parse_save,
    render_preparation,
    render_return,
    surplus,
    unread,
    use_sets,
)
from netinit.rules.model import OWNED_CHAINS, Plan

PREPARE, WANTED = "ipset", "ipset afterwards"  # keys of a change: input for ipset, names of the sets that stay
PROGRAM = "ipset"
PATIENCE = 200  # times 5 ms: nf_tables lets go of a set some time after its rule is gone
IN_USE = "in use"


def read_contents() -> Contents:
    """All sets of ours with their elements. ApplyError where ipset is missing though there are sets, or fails."""
    found: Contents = {}
    for name, size in detect.owned_sets().items():
        if size > MOST_ELEMENTS:
            found[name] = unread(f"it has {size:,}, and more than {MOST_ELEMENTS:,} are not read")
        else:
            found[name] = parse_save(_run(("save", name)), name, size)
    return found


class SeenWithSets(Seen):
    """The listings, and the owned sets with their elements."""

    sets: Contents


class SetsBackend(RestoreBackend):
    """A variant of iptables whose long lists are sets; `threshold` is the longest list that is not."""

    def __init__(self, *, threshold: int, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self._threshold = threshold
        self._rewritten: tuple[Plan, Plan, tuple[AddressSet, ...]] | None = None

    def observe(self) -> State:
        state = super().observe()
        sets = self._read_sets()
        seen = SeenWithSets(texts=state.seen.texts, listings=state.seen.listings, sets=sets)
        return state.replace(seen=seen, ours=state.ours or bool(sets))

    def compare(self, plan: Plan, state: State) -> tuple[Difference, ...]:
        _, wanted = self._rewrite(plan)
        found = super().compare(plan, state) + compare_sets(wanted, state.seen.sets)
        if found and wanted and state.ours and not state.seen.sets and not self._compare_plainly(plan, state):
            return ()  # the same rules without sets, which capture the same
        return found

    def resumable(self, plan: Plan, state: State) -> bool:
        _, wanted = self._rewrite(plan)
        live: Contents = state.seen.sets
        asked = [made for made in wanted if any(f"--match-set {made.name} " in text for text in state.seen.texts.values())]
        return super().resumable(plan, state) and all(live.get(made.name) == made.elements for made in asked)

    def change(self, plan: Plan, state: State, *, force: bool = False) -> Change:
        _, wanted = self._rewrite(plan)
        _refuse_foreign_questions(state, surplus(wanted, state.seen.sets))
        made = super().change(plan, state, force=force)
        scripts = {PREPARE: render_preparation(wanted, state.seen.sets, force=force)}
        return made.replace(scripts={**made.scripts, **scripts, WANTED: " ".join([each.name for each in wanted])})

    def removal(self, plan: Plan, state: State) -> Change:
        _refuse_foreign_questions(state, tuple(state.seen.sets))
        return super().removal(plan, state)

    def commit(self, change: Change) -> None:
        before: Contents = change.before.seen.sets
        kept = change.scripts.get(WANTED, "").split()
        try:
            self._feed_sets(change.scripts.get(PREPARE, ""))
            super().commit(change)
        except NetinitError as error:
            self._return_sets(before)
            if not kept or isinstance(error, LockedError):
                raise
            self._commit_plainly(change, error)
            kept = []
        self._destroy(tuple([name for name in self._names() if name not in kept]))

    def _commit_plainly(self, change: Change, error: NetinitError) -> None:
        """The change without sets, for a kernel that refused them; the first error where that fails as well."""
        threshold, self._threshold, self._rewritten = self._threshold, 0, None
        try:
            super().commit(super().change(change.plan, change.before))
        except NetinitError:
            raise error from None
        finally:
            self._threshold, self._rewritten = threshold, None

    def _compare_plainly(self, plan: Plan, state: State) -> tuple[Difference, ...]:
        threshold, self._threshold, self._rewritten = self._threshold, 0, None
        try:
            return super().compare(plan, state)
        finally:
            self._threshold, self._rewritten = threshold, None

    def _sides(self, plan: Plan, state: State) -> list[Side]:
        return super()._sides(self._rewrite(plan)[0], state)

    def _rewrite(self, plan: Plan) -> tuple[Plan, tuple[AddressSet, ...]]:
        """The plan with sets, and the sets; remembered, so that it is one and the same plan each time."""
        if self._rewritten is None or self._rewritten[0] is not plan:
            owner = f"netinit-{self.variant}"
            self._rewritten = (plan, *(use_sets(plan, owner, self._threshold) if self._threshold else (plan, ())))
        return self._rewritten[1:]

    def _names(self) -> tuple[str, ...]:
        return tuple([name for name in detect.owned_sets() if name.startswith(f"netinit-{self.variant}-")])

    def _read_sets(self) -> Contents:
        return {name: elements for name, elements in read_contents().items() if name in self._names()}

    def _feed_sets(self, script: str) -> None:
        if script:
            _run(("restore",), script)

    def _return_sets(self, before: Contents) -> None:
        script, made = render_return(before, self._read_sets())
        self._feed_sets(script)
        self._destroy(made)

    def _destroy(self, names: tuple[str, ...]) -> None:
        """Destroys sets that no rule of ours asks any more."""
        for name in names:
            for again in range(PATIENCE, -1, -1):
                try:
                    _run(("destroy", name))
                    break
                except ApplyError as error:
                    if IN_USE not in str(error):
                        raise
                    if not again:
                        raise ApplyError(f"{error}; a rule of somebody else asks the set {name}: remove it first") from None
                time.sleep(0.005)


def _run(arguments: tuple[str, ...], script: str = "") -> str:
    path = run.find(PROGRAM)
    if not path:  # never another backend beside rules that ask these sets
        raise ApplyError("address sets of an earlier run are here, but ipset is not installed: add the package ipset to the image")
    result = run.finish(run.start(path, arguments, stdin=script))
    if result.status:
        raise ApplyError(" ".join(result.errors.split()) or f"ipset ended with status {result.status}")
    return result.output


def _refuse_foreign_questions(state: State, names: tuple[str, ...]) -> None:
    """ApplyError where a rule of somebody else asks one of these sets, which could then not be destroyed."""
    for family, listing in state.seen.listings.items():
        for table, listed in listing.items():
            for chain, texts in listed.rules.items():
                for text in texts if chain not in OWNED_CHAINS else ():
                    if any(f"--match-set {name} " in text for name in names):
                        from netinit.rules.iptables.parse.quotation import quote_rule

                        place = f"{family.name} {table} {escape(chain)}"
                        raise ApplyError(
                            f"{place}: a rule of somebody else asks an address set of netinit ({quote_rule(text)}); remove it first"
                        )


class NftVariantWithSets(SetsBackend, NftVariant):
    """iptables on nf_tables, with sets."""


class LegacyVariantWithSets(SetsBackend, LegacyVariant):
    """iptables on the older kernel interface, with sets."""
