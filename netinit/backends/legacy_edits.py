"""Edits of legacy tables: their change, how it is made in the kernel, and how it is undone.

Each table is read, edited and replaced (IPT_SO_SET_REPLACE), then its counters are put back (IPT_SO_SET_ADD_COUNTERS), as
libiptc does it. Foreign rules are copied as bytes (netinit.rules.xtables.editing).
"""

from __future__ import annotations

from netinit.backends import Change
from netinit.base.net import Family
from netinit.kernel import netlink
from netinit.kernel.snapshot.legacy_tables import EAGAIN, MAX_BYTES, read_whole
from netinit.kernel.table_replacement import IS_64_BIT, Replacement
from netinit.rules.model import BUILTIN_CHAINS, FILTER, OWNED_CHAINS
from netinit.rules.xtables.building import encode_plan
from netinit.rules.xtables.editing import EditedTable, TableEdit

__all__ = ["IS_64_BIT", "LegacyChange", "add_all", "find_edits", "make_change", "make_edit"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netinit.backends import State
    from netinit.rules.iptables.ownership import Owned
    from netinit.rules.iptables.write import Written
    from netinit.rules.model import Plan
    from netinit.rules.xtables.building import TableEntry

    Edits = tuple[TableEdit, ...]
    Number = Callable[[Written], Written]  # gives rules what is known only when they are written: the numbers of sets
    Live = Mapping[tuple[str, str], Sequence[TableEntry]]  # entries by table and chain

ENOPROTOOPT = 92  # no module has these socket options
ATTEMPTS = 20  # at a table that programs without the lock change all the time


class LegacyChange(Change):
    """A change of legacy tables. `write` returns edits by family, in order; `undo` gets what undoes each that is in the kernel."""

    write: Callable[[Number], dict[Family, Edits]]
    undo: list[tuple[Family, TableEdit]]


def make_change(write: Callable[[Number], dict[Family, Edits]], state: State, plan: Plan) -> LegacyChange:
    """Return the change by the edits that `write` returns."""
    return LegacyChange(scripts={}, before=state, plan=plan, write=write, undo=[])


def add_all(written: Written, family: Family) -> Edits:
    """Return the edits that add a plan's rules where none of ours are."""
    entries = encode_plan(written, family)
    found = []
    for table, chains in written.items():
        rules = {name: entries.get((table, name), ()) for name in chains}
        added = {
            name: [(at if at <= chains[name].inserted else 0, one) for at, one in enumerate(some, 1)]
            for name, some in rules.items()
            if name in BUILTIN_CHAINS
        }
        ours = {name: some for name, some in rules.items() if name not in BUILTIN_CHAINS}
        found.append(TableEdit(table=table, chains=ours, deleted={}, added=added, removed=()))
    return tuple(found)


def find_edits(target: Edits, live: Live, owned: Owned, skip: Sequence[str] = ()) -> tuple[TableEdit, ...]:
    """Return the edits that replace our rules of a family by those of the target; tables in `skip` match already."""
    from netinit.rules.iptables.table_order import REFUSING, order_tables  # not needed on a first run

    by_table = {edit.table: edit for edit in target}
    listed: dict[str, list[str]] = {}
    for table, chain in live:
        listed.setdefault(table, []).append(chain)
    planned = {name: (*edit.chains, *edit.added) for name, edit in by_table.items()}
    names, refuses = order_tables(planned, listed, skip)
    left = {place: [(index, live[place][index]) for index in indexes] for place, indexes in owned.items()}
    found = []
    if refuses:
        jumps = {
            chain: rules
            for chain in BUILTIN_CHAINS
            if (rules := [one for one in left.get((FILTER, chain), ()) if one[1].chain in REFUSING])
        }
        for chain, rules in jumps.items():
            left[FILTER, chain] = [one for one in left[FILTER, chain] if one not in rules]
        found = [TableEdit(table=FILTER, chains={}, deleted=jumps, added={}, removed=())] if jumps else []
    for name in names:
        ours = [chain for chain in listed.get(name, ()) if chain in OWNED_CHAINS]
        edit = by_table.get(name) or TableEdit(table=name, chains={}, deleted={}, added={}, removed=())
        deleted = {chain: rules for (table, chain), rules in left.items() if table == name and rules}
        edit = edit.replace(deleted=deleted, removed=tuple([chain for chain in ours if chain not in edit.chains]))
        if edit.chains or edit.deleted or edit.added or edit.removed:
            found.append(edit)
    return tuple(found)


def make_edit(family: Family, edit: TableEdit, undo: list[tuple[Family, TableEdit]]) -> int:
    """Edit one table in the kernel, add what undoes it to `undo`, and return how many rules the table had before.

    Raises OSError whose text says what failed; ValueError if the table's rules do not admit the edit.
    """
    for _ in range(ATTEMPTS):
        try:
            hooks, first, entries = _read(family, edit.table)
        except OSError as error:
            if error.errno == netlink.EFBIG:
                raise ValueError(f"it has more than {MAX_BYTES >> 20} MB of rules: remove those that are not needed") from None
            raise OSError(error.errno, f"unable to initialize table '{edit.table}': {error.strerror}") from None
        edited = EditedTable(family.version, hooks, first, entries)
        held = edited.rules
        inverse = edited.edit(edit)
        new = edited.write()
        with Replacement(family) as kernel:
            try:
                counters = kernel.replace(
                    edit.table, hooks, new.offsets, new.entries, size=len(new.sources), old_size=edited.size
                )
            except OSError as error:
                if error.errno == EAGAIN:  # it has another size than a moment ago
                    continue
                refused = f"the kernel refuses the new rules of legacy table {edit.table}: {error.strerror}"
                raise OSError(error.errno, refused) from None
            undo.append((family, inverse))
            counters = new.count(counters)
            if counters.strip(b"\0"):
                kernel.add_counters(edit.table, counters)
        return held
    raise OSError(EAGAIN, f"legacy table {edit.table} changes all the time")


def _read(family: Family, table: str) -> tuple[int, tuple[int, ...], bytes]:
    """Return a table, which reading creates, as `read_whole`; the module of legacy tables may have to be loaded first."""
    try:
        return read_whole(family, table)
    except OSError as error:
        if error.errno != ENOPROTOOPT:
            raise
        refusal = error
    from netinit.kernel.extensions import LOADERS  # once, on a node where nobody has used legacy tables

    for load in LOADERS:
        load(family)
        try:
            return read_whole(family, table)
        except OSError as error:
            if error.errno != ENOPROTOOPT:
                raise
    raise refusal
