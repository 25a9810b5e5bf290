"""The backend of legacy tables, by getsockopt(2) and setsockopt(2); no program is started.

Edits are found by comparing (netinit.backends.legacy_comparison) or, where our rules are deleted, without decoding foreign
ones (netinit.backends.legacy_removal). They are made in the tables as they are under iptables' lock, so nothing of what other
programs changed in between is lost.

The kernel makes the matches of foreign rules anew, as it does whenever iptables changes a table.
"""

from __future__ import annotations

from netinit.backends import Change, Lock, of_kind
from netinit.backends.iptables import ChangeWriter, ReadingBackend, XtablesState
from netinit.base.errors import ApplyError, BackendUnavailableError, KernelFeatureError, NetinitError
from netinit.base.net import IPV4, Family
from netinit.base.system import posix
from netinit.kernel import detect
from netinit.options import IPTABLES_LEGACY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.iptables import FirstComparison
    from netinit.backends.kernel_support import Need
    from netinit.backends.legacy_edits import Edits, LegacyChange
    from netinit.backends.listing_comparison import XtablesComparison
    from netinit.rules.model import Plan


class EditsWriter(ChangeWriter):
    """Writes changes as edits of tables. What does so is loaded only where something changes."""

    def write_first(self, comparison: FirstComparison) -> LegacyChange:
        from netinit.backends.legacy_edits import add_all, make_change

        return make_change(
            lambda number: {family: add_all(number(written), family) for family, written in comparison.written.items()},
            comparison.state, comparison.plan,
        )  # fmt: skip

    def write_change(self, comparison: XtablesComparison, *, force: bool) -> LegacyChange:
        from netinit.backends.legacy_comparison import write_change  # not needed on a first run

        return write_change(comparison, force=force)

    def write_removal(self, state: XtablesState, plan: Plan) -> Change:
        from netinit.backends.legacy_removal import find_removal  # only where rules are deleted

        def decode() -> Change:
            from netinit.backends.legacy_comparison import write_removal  # rarely needed

            return write_removal(state.compare_rules(plan))

        return find_removal(state, state.encoded, plan, decode)  # type: ignore[arg-type]


class LegacyBackend(ReadingBackend):
    """Legacy tables, under the lock of iptables, which is one for the whole file system."""

    name = IPTABLES_LEGACY
    variant = detect.LEGACY
    writer = EditsWriter()

    def has(self, family: Family, need: Need) -> bool:
        from netinit.backends.kernel_support import has_exactly

        return has_exactly(family, need)

    def lock(self) -> Lock:
        return self._legacy_lock()

    def commit(self, change: Change) -> None:
        from netinit.backends.legacy_edits import IS_64_BIT, LegacyChange, make_edit

        change = of_kind(change, LegacyChange)
        if not IS_64_BIT:
            raise BackendUnavailableError(f"{self.name}: legacy tables are written by 64-bit processes only: choose another --backend")
        with self.lock():
            for family, edits in self.write(change).items():
                before = _count_rules(of_kind(change.before, XtablesState), family)
                expected = dict.fromkeys([edit.table for edit in edits], 0) | before
                for edit in edits:
                    try:
                        held = make_edit(family, edit, change.undo)
                    except OSError as error:
                        raise self._explain_refusal(error, family, change.plan) from None
                    except ValueError as error:
                        raise _refuse(family, edit.table, error) from None
                    self.met_others |= held != expected.pop(edit.table, held)  # at a table's first edit

    def write(self, change: LegacyChange) -> dict[Family, Edits]:
        """Return the edits of a change by family."""
        return change.write(lambda written: written)

    def roll_back(self, change: Change) -> None:
        from netinit.backends.legacy_edits import LegacyChange, make_edit

        change = of_kind(change, LegacyChange)
        with self.lock():
            while change.undo:
                family, edit = change.undo[-1]
                try:
                    make_edit(family, edit, [])
                except OSError as error:
                    raise ApplyError(f"{family.name}: {error.strerror}") from None
                except ValueError as error:
                    raise _refuse(family, edit.table, error) from None
                change.undo.pop()

    def refusal(self, error: OSError) -> NetinitError:
        why = posix.strerror(error.errno or 0)
        return self._explain(why, f"{self.name}: the kernel does not list its rules: {why}", IPV4)

    def _explain(self, output: str, message: str, family: Family) -> NetinitError:
        from netinit.backends.failure_causes import explain_iptables

        modules, privileged = f"{self.variant} {family.name}", detect.has_capability(detect.CAP_NET_ADMIN)
        return explain_iptables(output, message, modules, privileged=privileged)

    def _explain_refusal(self, error: OSError, family: Family, plan: Plan) -> NetinitError:
        """Return the error for tables that the kernel does not read or replace."""
        from netinit.backends.failure_causes import explain_missing, explain_owners
        from netinit.rules.iptables.write import render_restore, write_plan

        message = f"{family.name}: {error.strerror}"
        found = self._explain(f"{posix.strerror(error.errno or 0)}: {message}", message, family)
        if type(found) is ApplyError and (hint := explain_owners(render_restore(write_plan(plan, family)))):
            message += f"; {hint}"
            found = ApplyError(message)
        if type(found) in (ApplyError, KernelFeatureError) and (missing := self.missing_for(plan)):
            return explain_missing(message, missing)
        return found


def _count_rules(state: XtablesState, family: Family) -> dict[str, int]:
    """Return how many rules of a family were read, by table."""
    found: dict[str, int] = {}
    for one in state.encoded:
        for (table, _), rules in one.rules.items() if one.family == family else ():
            found[table] = found.get(table, 0) + len(rules)
    return found


def _refuse(family: Family, table: str, error: ValueError) -> ApplyError:
    return ApplyError(f"{family.name} legacy table {table}: {error}")
