"""Change a legacy table: entries of ours are added and deleted, all others are copied byte for byte.

A table is one blob (linux/netfilter_ipv4/ip_tables.h). Its built-in chains come first, then the user-defined ones, which
iptables sorts by name; each of these begins with an entry whose target ERROR holds its name. A chain ends with an entry for
its policy, or with a return, and the table with one more ERROR. A jump is the offset of the first entry of its chain. So a
change of any entry moves those behind it: jumps, hook entries and underflows are numbered anew.

The kernel takes no counters with a table: each entry of the new one says which entry of the old one has its counters.

The structs are those of 64-bit processes, in the machine's byte order: 32-bit ones align them otherwise.
"""

from __future__ import annotations

from _struct import error, pack_into, unpack_from  # type: ignore[attr-defined]

from netinit.base.records import Record
from netinit.rules.model import BUILTIN_CHAINS
from netinit.rules.xtables.building import (
    ENTRY_FORMS,
    ERROR_TARGET,
    EXTENSION_HEADER,
    NEXT,
    EntryForm,
    TableEntry,
    cut,
    extension,
    find_chains,
    make_entry,
    make_return,
    settle,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from netinit.rules.xtables.building import FoundChain

    Placed = tuple[int, TableEntry]  # an index or a position in a chain, and the entry

ERROR_NAME = 32  # bytes of a chain's name in struct xt_error_target, with padding
COUNTERS = 16  # struct xt_counters
HOOKS = len(BUILTIN_CHAINS)
ADDED = -1  # instead of the number of an old entry


class TableEdit(Record):
    """A change of one table.

    `chains`: user-defined chains with all of their rules, created if missing. `deleted`: index and entry of rules in built-in
    chains; what has moved meanwhile is found by its bytes. `added`: positions in built-in chains (0: at the end) and entries.
    `removed`: user-defined chains to delete with their rules.
    """

    table: str
    chains: Mapping[str, Sequence[TableEntry]]
    deleted: Mapping[str, Sequence[Placed]]
    added: Mapping[str, Sequence[Placed]]
    removed: tuple[str, ...]


class NewTable(Record):
    """A table for the kernel.

    `offsets`: of the hooks' first entries, then of the entries with their policies. `sources`: for each entry the number of
    the old one that has its counters; ADDED: it brings its own along.
    """

    form: EntryForm
    offsets: tuple[int, ...]
    entries: bytes
    sources: tuple[int, ...]

    def count(self, old: bytes) -> bytes:
        """Return the entries' counters (struct xt_counters): those of the `old` table, or what an entry brings along."""
        found, at = [], 0
        for source in self.sources:
            where, start = (old, source * COUNTERS) if source >= 0 else (self.entries, at + self.form.counters)
            found.append(where[start : start + COUNTERS])
            at += unpack_from("=H", self.entries, at + self.form.packet + 6)[0]
        return b"".join(found)


class HeldEntry:
    """An entry with the chain that it jumps to (or NEXT, or empty) and the number of the old one that has its counters."""

    __slots__ = ("chain", "data", "source")

    def __init__(self, data: bytes, chain: str, source: int = ADDED) -> None:
        self.data, self.chain, self.source = data, chain, source


class HeldChain:
    """A chain: its hook (-1: user-defined), the entry with its name, if any, its rules, and the entry that ends it."""

    __slots__ = ("head", "hook", "last", "name", "rules")

    def __init__(self, name: str, hook: int, head: HeldEntry | None, rules: list[HeldEntry], last: HeldEntry) -> None:
        self.name, self.hook, self.head, self.rules, self.last = name, hook, head, rules, last


class EditedTable:
    """The chains of a kernel's table, which edits change. Raises ValueError for a table that iptables does not make."""

    def __init__(self, version: int, valid_hooks: int, hook_entries: Sequence[int], entries: bytes) -> None:
        self._form = ENTRY_FORMS[version]
        try:
            found, starts = find_chains(version, valid_hooks, hook_entries, entries)
            self._read(found, starts, entries)
        except (error, IndexError) as problem:
            raise ValueError(f"its entries are not understood: {problem!r}") from None
        if [chain.hook for chain in self._chains.values() if chain.hook >= 0] != [at for at in range(HOOKS) if valid_hooks >> at & 1]:
            raise ValueError("its hooks share an entry, or are not in their order")

    def _read(self, found: Sequence[FoundChain], starts: Mapping[int, str], entries: bytes) -> None:
        form = self._form
        self._chains: dict[str, HeldChain] = {}
        number = at = 0
        for name, hook, start, places in found:
            if name in self._chains:
                raise IndexError(f"two chains are named {name!r}")
            if not places:
                raise IndexError(f"the chain {name!r} has no end")
            held = []
            for at in places if hook >= 0 else (start, *places):
                held.append(HeldEntry(*cut(entries, at, form, starts), number))
                number += 1
            at += len(held[-1].data)
            head = None if hook >= 0 else held.pop(0)
            last = held.pop()
            self._chains[name] = HeldChain(name, hook, head, held, last)
        self._end = HeldEntry(entries[at:], "", number)
        self.size = number + 1  # entries in the kernel

    @property
    def rules(self) -> int:
        """The number of rules."""
        return sum([len(chain.rules) for chain in self._chains.values()])

    def edit(self, change: TableEdit) -> TableEdit:
        """Change the chains; return the edit that undoes it.

        Raises ValueError for a rule that is not there, and a chain to which foreign rules jump.
        """
        before: dict[str, tuple[TableEntry, ...]] = {}
        created: list[str] = []
        for name in dict.fromkeys((*change.chains, *change.removed)):
            if name in self._chains:
                before[name] = tuple([TableEntry(data=one.data, chain=one.chain) for one in self._chains[name].rules])
            else:
                created.append(name)
                self._create(name)
            chain = self._chains[name]
            chain.rules = [HeldEntry(one.data, one.chain) for one in change.chains.get(name, ())]
            chain.last = HeldEntry(make_return(self._form), "")
        returned = {name: self._delete(name, placed) for name, placed in change.deleted.items()}
        deleted = {name: self._add(name, placed) for name, placed in change.added.items()}
        for name in change.removed:
            self._remove(name)
        return TableEdit(table=change.table, chains=before, deleted=deleted, added=returned, removed=tuple(created))

    def _create(self, name: str) -> None:
        """Add an empty chain where iptables sorts it."""
        bare = name.encode("utf-8", "surrogateescape")
        later = [one for one in self._chains.values() if one.hook < 0 and one.name.encode("utf-8", "surrogateescape") >= bare]
        head = make_entry(self._form, bytes(self._form.packet), b"", extension(ERROR_TARGET, 0, bare.ljust(ERROR_NAME, b"\0")))
        made = HeldChain(name, -1, HeldEntry(head, ""), [], self._end)
        order = [*self._chains.values()]
        order.insert(order.index(later[0]) if later else len(order), made)
        self._chains = {one.name: one for one in order}

    def _delete(self, name: str, placed: Sequence[Placed]) -> tuple[Placed, ...]:
        """Delete rules of a built-in chain; return them with their positions."""
        rules = self._chains[name].rules if name in self._chains else []
        found: dict[int, TableEntry] = {}
        for index, wanted in placed:
            bare = settle(wanted.data, self._form, wanted.chain)
            places = (at for at in _nearest(index, len(rules)) if at not in found)
            place = next((at for at in places if self._is(rules[at], wanted.chain, bare)), None)
            if place is None:
                raise ValueError(f"rule {index + 1} of {name} has changed meanwhile")
            found[place] = TableEntry(data=rules[place].data, chain=wanted.chain)
        for place in sorted(found, reverse=True):
            del rules[place]
        return tuple([(place + 1, found[place]) for place in sorted(found)])

    def _is(self, held: HeldEntry, chain: str, bare: bytes) -> bool:
        return held.chain == chain and len(held.data) == len(bare) and settle(held.data, self._form, chain) == bare

    def _add(self, name: str, placed: Sequence[Placed]) -> tuple[Placed, ...]:
        """Add rules to a built-in chain; return them with their indexes."""
        if placed and name not in self._chains:
            raise ValueError(f"it has no chain {name}")
        rules = self._chains[name].rules if placed else []
        for position, one in placed:
            rules.insert(position - 1 if position else len(rules), HeldEntry(one.data, one.chain, ADDED))
        return tuple([(at, TableEntry(data=one.data, chain=one.chain)) for at, one in enumerate(rules) if one.source == ADDED])

    def _remove(self, name: str) -> None:
        for chain in self._chains.values():
            for number, one in enumerate(chain.rules, 1):
                if one.chain == name and chain.name != name:
                    raise ValueError(f"rule {number} of {chain.name} jumps to {name}")
        del self._chains[name]

    def write(self) -> NewTable:
        """Return the table as the kernel takes it. Raises ValueError for a jump to a chain that is not there."""
        hooks, ends, starts = [0] * HOOKS, [0] * HOOKS, {}
        held: list[HeldEntry] = []
        at = 0
        for chain in self._chains.values():
            if chain.head:
                held.append(chain.head)
                at += len(chain.head.data)
                starts[chain.name] = at
            else:
                hooks[chain.hook] = at
            held += chain.rules
            at += sum([len(one.data) for one in chain.rules])
            if chain.hook >= 0:
                ends[chain.hook] = at
            held.append(chain.last)
            at += len(chain.last.data)
        held.append(self._end)
        entries = b"".join(self._place(held, starts))
        return NewTable(form=self._form, offsets=(*hooks, *ends), entries=entries, sources=tuple([one.source for one in held]))

    def _place(self, held: Sequence[HeldEntry], starts: Mapping[str, int]) -> Iterator[bytes]:
        at = 0
        for one in held:
            data = one.data
            at += len(data)
            if one.chain:
                if one.chain != NEXT and one.chain not in starts:
                    raise ValueError(f"a rule jumps to {one.chain}, which is not there")
                moved = bytearray(data)
                offset = unpack_from("=H", data, self._form.packet + 4)[0]
                pack_into("=i", moved, offset + EXTENSION_HEADER, at if one.chain == NEXT else starts[one.chain])
                data = bytes(moved)
            yield data


def _nearest(index: int, size: int) -> Iterator[int]:
    """Yield the places of a chain, those next to an index first."""
    if index < size:  # where it mostly is
        yield index
    yield from sorted(range(size), key=lambda at: abs(at - index))
