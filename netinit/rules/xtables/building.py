"""Entries of the older interface as bytes: rules as iptables-legacy programs them, and a table's blob split into its chains.

    encode_plan(plan, family, comments=...)    by table and chain: the entry of each rule
    split_table(table)                         the same of the kernel's table, so that both compare with `==`
    join_table(...)                            chains of entries as one table again

What the kernel or a place in the table chooses (counters, the hooks that lead to an entry, offsets of jumps) is not in a TableEntry.
"""

from __future__ import annotations

from _struct import pack, pack_into, unpack_from
from struct import error as struct_error

from netinit.base.net import Family
from netinit.base.records import Record
from netinit.base.snapshot import LegacyTable
from netinit.rules.iptables.modules import take_module
from netinit.rules.iptables.write import unfold
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Protocol, Source
from netinit.rules.targets import Accept, Drop, Jump, Return, Target
from netinit.rules.xtables import structs
from netinit.rules.xtables.encoding import encode_comment, encode_match, encode_target
from netinit.rules.xtables.names import protocol_number
from netinit.rules.xtables.structs import EntryForm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from netinit.rules.matches import Match
    from netinit.rules.model import Plan, Rule

VERDICTS: dict[type[Target], int] = {Accept: structs.ACCEPTING, Drop: structs.DROPPING, Return: structs.RETURNING}
STANDARD_SIZE, ERROR_SIZE = 40, 64  # struct xt_standard_target, xt_error_target
INTERFACE_NAME = 16
NEXT = "\0next"  # where a rule without a target goes: no chain is called so


class TableEntry(Record):
    """A rule of a chain: its bytes, with zeros for what it does not decide, and the chain that it jumps to."""

    data: bytes
    chain: str = ""


class EntryChain(Record):
    """A chain's entries, policy or end included; `hook` is a built-in chain's, -1 for others."""

    name: str
    hook: int
    entries: tuple[TableEntry, ...]


def encode_plan(plan: Plan, family: Family, *, comments: bool = False) -> dict[str, dict[str, tuple[tuple[TableEntry, Rule], ...]]]:
    """The plan's rules of one family, by table and chain, each with the planned rule."""
    return {
        table.name: {
            chain.name: tuple([
                (encode_rule(matches, rule.target, family, rule.comment if comments else ""), rule)
                for matches, rule in unfold((*chain.inserted, *chain.rules), family)
            ])
            for chain in table.chains
        }
        for table in plan.tables
    }  # fmt: skip


def encode_rule(matches: Iterable[Match], target: Target, family: Family, comment: str = "") -> TableEntry:
    """One rule of iptables. ValueError where it has no match or target for it."""
    form = structs.ENTRY_FORMS[family.version]
    rest = list(matches)
    head = _write_head(rest, target, form)
    rest = [one for one in rest if not isinstance(one, Source | Destination | InInterface | OutInterface)]
    extensions = b""
    while rest:
        module = take_module(rest)
        asked = [one for one in module if not isinstance(one, Protocol)]
        if asked or any(isinstance(one, Protocol) and one.module for one in module):
            extensions += _extension(*encode_match(asked or module, family))
    if comment:
        extensions += _extension(*encode_comment(comment))
    if isinstance(target, Jump):
        end, chain = _standard(0), target.chain
    elif type(target) in VERDICTS:
        end, chain = _standard(VERDICTS[type(target)]), ""
    elif target.xt(family):
        end, chain = _extension(*encode_target(target, family)), ""
    else:
        end, chain = _standard(0), NEXT
    return TableEntry(data=_entry(form, head, extensions, end), chain=chain)


def _entry(form: EntryForm, head: bytes, extensions: bytes, end: bytes) -> bytes:
    offset = form.header + len(extensions)
    return (head + pack("=IHH", 0, offset, offset + len(end))).ljust(form.header, b"\0") + extensions + end


def _extension(name: str, revision: int, info: bytes) -> bytes:
    return pack("=H29sB", structs.EXTENSION_HEADER + len(info), name.encode(), revision) + info


def _standard(verdict: int) -> bytes:
    return _extension("", 0, pack("=ii", verdict, 0))


def _write_head(matches: list[Match], target: Target, form: EntryForm) -> bytes:
    """What every entry has room for: addresses, interfaces and the protocol, each with what is inverted."""
    size = form.address
    head = bytearray(form.packet)
    names = 4 * size
    inverted = flags = 0
    for match in matches:
        if isinstance(match, Source | Destination):
            at, bit = (0, structs.INVERTED_SOURCE) if isinstance(match, Source) else (size, structs.INVERTED_DESTINATION)
            network = match.networks[0]
            free = (1 << form.family.bits - network.length) - 1
            head[at : at + size] = network.first.to_bytes(size, "big")
            head[at + 2 * size : at + 3 * size] = ((1 << form.family.bits) - 1 - free).to_bytes(size, "big")
        elif isinstance(match, InInterface | OutInterface):
            at, bit = (names, structs.INVERTED_IN) if isinstance(match, InInterface) else (names + INTERFACE_NAME, structs.INVERTED_OUT)
            name = match.names[0].encode("utf-8", "surrogateescape")
            counted = len(name) - 1 if name.endswith(b"+") else len(name) + 1
            head[at : at + INTERFACE_NAME] = name.ljust(INTERFACE_NAME, b"\0")
            head[at + 2 * INTERFACE_NAME : at + 3 * INTERFACE_NAME] = (b"\xff" * counted).ljust(INTERFACE_NAME, b"\0")
        elif isinstance(match, Protocol):
            bit = structs.INVERTED_PROTOCOL
            pack_into("=H", head, names + 64, protocol_number(match.name))
            flags |= structs.PROTOCOL_GIVEN[form.family.version]
        else:
            continue
        inverted |= bit if match.negated else 0
    if isinstance(target, Jump) and target.goto:
        flags |= form.goto
    head[form.flags], head[form.flags + 1] = flags, inverted
    return bytes(head)


# ---- whole tables --------------------------------------------------------------------------------------------------------


def split_table(table: LegacyTable) -> tuple[EntryChain, ...]:
    """The table's chains. ValueError where the blob is not one of its own."""
    try:
        return _split(table)
    except (struct_error, IndexError) as error:
        raise ValueError(f"legacy table {table.name}: its entries are not understood: {error!r}") from None


def _split(table: LegacyTable) -> tuple[EntryChain, ...]:
    form = structs.ENTRY_FORMS[table.version]
    hooks = {table.hook_entries[hook]: hook for hook in range(len(structs.HOOK_NAMES)) if table.valid_hooks >> hook & 1}
    found: list[tuple[str, int, list[int]]] = []
    starts: dict[int, str] = {}
    at = 0
    while True:
        offset, size = unpack_from("=HH", table.entries, at + form.packet + 4)
        if offset < form.header or size < offset + structs.EXTENSION_HEADER or at + size > len(table.entries):
            raise ValueError(f"legacy table {table.name}: an entry of {size} bytes at {at}")
        name = _name_at(table.entries, at + offset)
        if at in hooks:
            found.append((structs.HOOK_NAMES[hooks[at]], hooks[at], []))
        if name == structs.ERROR_TARGET:
            if at + size == len(table.entries):
                break
            chain = table.entries[at + offset + structs.EXTENSION_HEADER :][:30].partition(b"\0")[0].decode("utf-8", "surrogateescape")
            starts[at + size] = chain
            found.append((chain, -1, []))
        else:
            found[-1][2].append(at)
        at += size
    return tuple([
        EntryChain(name=chain, hook=hook, entries=tuple([_take(table.entries, at, form, starts) for at in places]))
        for chain, hook, places in found
    ])  # fmt: skip


def _take(entries: bytes, at: int, form: EntryForm, starts: Mapping[int, str]) -> TableEntry:
    """The entry at an offset, without what it does not decide. ValueError for a jump to where no chain begins."""
    offset, size = unpack_from("=HH", entries, at + form.packet + 4)
    data = bytearray(entries[at : at + size])
    data[form.packet : form.packet + 4] = bytes(4)  # the cache, and the hooks and counters behind the sizes
    data[form.packet + 8 : form.header] = bytes(form.header - form.packet - 8)
    chain = ""
    if not _name_at(entries, at + offset):
        verdict = unpack_from("=i", data, offset + structs.EXTENSION_HEADER)[0]
        if verdict >= 0:
            goes_on = verdict == at + size and verdict not in starts
            if not goes_on and verdict not in starts:
                raise ValueError(f"a jump to {verdict}, where no chain begins")
            chain = NEXT if goes_on else starts[verdict]
            pack_into("=i", data, offset + structs.EXTENSION_HEADER, 0)
    return TableEntry(data=bytes(data), chain=chain)


def join_table(table: LegacyTable, chains: Iterable[EntryChain]) -> LegacyTable:
    """The table with these chains, in their order, counters at zero. Its hooks are those of the chains."""
    form = structs.ENTRY_FORMS[table.version]
    placed: list[tuple[int, TableEntry]] = []
    starts: dict[str, int] = {}
    firsts, lasts = list(table.hook_entries), list(table.underflows)
    at = 0
    for chain in chains:
        if chain.hook < 0:
            head = _entry(form, bytes(form.packet), b"", _error(chain.name))
            placed.append((at, TableEntry(data=head)))
            at += len(head)
            starts[chain.name] = at
        else:
            firsts[chain.hook] = at
        for entry in chain.entries:
            placed.append((at, entry))
            if chain.hook >= 0:
                lasts[chain.hook] = at
            at += len(entry.data)
    placed.append((at, TableEntry(data=_entry(form, bytes(form.packet), b"", _error(structs.ERROR_TARGET)))))
    blob = b"".join([_place(entry, place, form, starts) for place, entry in placed])
    return table.replace(hook_entries=tuple(firsts), underflows=tuple(lasts), entries=blob)


def _place(entry: TableEntry, at: int, form: EntryForm, starts: Mapping[str, int]) -> bytes:
    if not entry.chain:
        return entry.data
    data = bytearray(entry.data)
    offset = unpack_from("=H", data, form.packet + 4)[0]
    pack_into("=i", data, offset + structs.EXTENSION_HEADER, at + len(data) if entry.chain == NEXT else starts[entry.chain])
    return bytes(data)


def _error(chain: str) -> bytes:
    name = chain.encode("utf-8", "surrogateescape")
    return _extension(structs.ERROR_TARGET, 0, name.ljust(ERROR_SIZE - structs.EXTENSION_HEADER, b"\0"))


def _name_at(entries: bytes, at: int) -> str:
    return entries[at : at + structs.EXTENSION_HEADER][structs.NAME].partition(b"\0")[0].decode("utf-8", "surrogateescape")


def settle(table: LegacyTable) -> LegacyTable:
    """The table without what no rule decides: what `join_table` makes of what `split_table` gives."""
    return join_table(table, split_table(table))


