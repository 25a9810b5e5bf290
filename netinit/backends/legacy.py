"""The backend of legacy tables, by getsockopt(2) and setsockopt(2); no program is started.

Edits are found by comparing (netinit.backends.legacy_comparison) or, where our rules are deleted, without decoding foreign
ones (netinit.backends.legacy_removal). They are made in the tables as they are under iptables' lock, so nothing of what other
programs changed in between is lost.

The kernel makes the matches of foreign rules anew, as it does whenever iptables changes a table.
"""

from __future__ import annotations

from netinit.backends import Change, Comparison, Lock, of_kind
from netinit.backends.iptables import FirstComparison, ReadingBackend, XtablesState
from netinit.base.errors import ApplyError, BackendUnavailableError, KernelFeatureError, NetinitError
from netinit.base.net import IPV4, Family
from netinit.base.system import posix
from netinit.kernel import detect
from netinit.options import IPTABLES_LEGACY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.kernel_support import Need
    from netinit.backends.listing_comparison import XtablesComparison
    from netinit.base.snapshot import Snapshot
    from netinit.rules.model import Plan


class LegacyState(XtablesState):
    """The rules of legacy tables."""

    def compare(self, plan: Plan) -> Comparison:
        return super().compare(plan) if self.encoded else FirstLegacyComparison(plan, self)

    def compare_rules(self, plan: Plan) -> XtablesComparison:
        from netinit.backends.legacy_comparison import LegacyComparison  # rarely needed

        return LegacyComparison(plan, self, self.listings)

    def removal(self, plan: Plan) -> Change:
        from netinit.backends.legacy_removal import find_removal  # only where rules are deleted

        return find_removal(self, self.encoded, plan, lambda: self.compare_rules(plan).removal())  # type: ignore[arg-type]


class FirstLegacyComparison(FirstComparison):
    """The comparison with a namespace without legacy tables."""

    def change(self, *, force: bool = False) -> Change:  # noqa: ARG002 - nothing is right already
        from netinit.backends.legacy_edits import add_all, make_change

        edits = {family: add_all(written, family) for family, written in self.written.items()}
        return make_change(edits, self.state, self.plan)


class LegacyBackend(ReadingBackend):
    """Legacy tables, under the lock of iptables, which is one for the whole file system."""

    name = IPTABLES_LEGACY
    variant = detect.LEGACY

    def has(self, family: Family, need: Need) -> bool:
        from netinit.backends.kernel_support import has_exactly

        return has_exactly(family, need)

    def lock(self) -> Lock:
        return self._legacy_lock()

    def observe(self, snapshot: Snapshot | None = None, families: tuple[Family, ...] | None = None) -> LegacyState:
        return LegacyState(**super().observe(snapshot, families).__getstate__())  # type: ignore[arg-type]

    def commit(self, change: Change) -> None:
        from netinit.backends.legacy_edits import IS_64_BIT, LegacyChange, make_edit

        change = of_kind(change, LegacyChange)
        if not IS_64_BIT:
            raise BackendUnavailableError(f"{self.name}: legacy tables are written by 64-bit processes only: choose another --backend")
        with self.lock():
            for family, edits in change.edits.items():
                for edit in edits:
                    try:
                        make_edit(family, edit, change.undo)
                    except OSError as error:
                        raise self._explain_refusal(error, family, change.plan) from None
                    except ValueError as error:
                        raise _refuse(family, edit.table, error) from None

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
        return explain_iptables(output, message, modules, locked=False, privileged=privileged)

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


def _refuse(family: Family, table: str, error: ValueError) -> ApplyError:
    return ApplyError(f"{family.name} legacy table {table}: {error}")
