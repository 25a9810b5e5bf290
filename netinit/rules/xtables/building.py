"""Entries of legacy tables as bytes: of planned rules, and of the kernel's, so that both compare with `==`.

What the kernel or the place decides (counters, hooks, offsets of jumps) is not in a TableEntry.
"""

from __future__ import annotations

from struct import error, pack, pack_into, unpack_from

from netinit.base.net import IPV4, IPV6, Family
from netinit.base.records import Record
from netinit.base.snapshot import LegacyTable
from netinit.rules import structs
from netinit.rules.iptables.write import encode_each, split_modules
from netinit.rules.matches.packet import AddressMatch, InterfaceMatch, Protocol
from netinit.rules.model import BUILTIN_CHAINS
from netinit.rules.structs import protocol_number
from netinit.rules.targets import Jump, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from netinit.rules.iptables.write import Written
    from netinit.rules.matches import Match

NAME = slice(2, 31)
ERROR_TARGET = "ERROR"
INVERTED_IN, INVERTED_OUT, INVERTED_SOURCE, INVERTED_DESTINATION, INVERTED_PROTOCOL = 1, 2, 8, 16, 64  # IPT_INV_*
EXTENSION_HEADER = 32  # struct xt_entry_match, xt_entry_target: size, name, revision
INTERFACE_NAME = 16
NEXT = "\0next"  # where a rule without a target goes: no chain is called so


class EntryForm(Record):
    """The layout of a family's entry."""

    family: Family
    address: int  # bytes of an address
    packet: int  # size of struct ipt_ip, ip6t_ip6
    header: int  # size of struct ipt_entry, ip6t_entry
    counters: int
    flags: int  # offset of the flags; the inversion flags follow
    goto: int  # the flag of -g
    allowed: int  # flags that are understood


ENTRY_FORMS = {
    4: EntryForm(family=IPV4, address=4, packet=84, header=112, counters=96, flags=82, goto=2, allowed=2),
    6: EntryForm(family=IPV6, address=16, packet=136, header=168, counters=152, flags=131, goto=4, allowed=5),
}
PROTOCOL_GIVEN = {4: 0, 6: 1}  # IP6T_F_PROTO, set where a protocol is asked


class TableEntry(Record):
    """A rule's bytes, with zeros for what it does not decide; the chain that it jumps to; its counter, not compared."""

    data: bytes
    chain: str = ""
    packets: int = 0

    def _values(self) -> tuple[object, ...]:
        return self.data, self.chain


class EntryChain(Record):
    """A chain's entries, with its policy or end; `hook`: -1 if user-defined."""

    name: str
    hook: int
    entries: tuple[TableEntry, ...]


def encode_plan(written: Written, family: Family) -> dict[tuple[str, str], tuple[TableEntry, ...]]:
    """Return the entries of a family's rules by table and chain, without empty chains."""
    return encode_each(written, lambda one: encode_rule(one.matches, one.rule.target, family, one.comment))


def encode_rule(matches: Sequence[Match], target: Target, family: Family, comment: str = "") -> TableEntry:
    """Return the entry of one rule. Raises ValueError if iptables has no match or target for it."""
    form = ENTRY_FORMS[family.version]
    head = _write_head(matches, target, form)
    extensions = b"".join([extension(*first.struct(*more)) for first, *more in split_modules(matches)])
    if comment:
        extensions += extension(*structs.pad_comment(comment))
    if target.verdict or target.calls or not target.xt(family):
        end = extension("", 0, pack("=ii", target.verdict, 0))
        chain = "" if target.verdict else target.calls or NEXT
    else:
        end, chain = extension(*target.struct(family)), ""
    return TableEntry(data=make_entry(form, head, extensions, end), chain=chain)


def make_entry(form: EntryForm, head: bytes, extensions: bytes, end: bytes) -> bytes:
    """Return struct ipt_entry with its matches and target."""
    offset = form.header + len(extensions)
    return (head + pack("=IHH", 0, offset, offset + len(end))).ljust(form.header, b"\0") + extensions + end


def extension(name: str, revision: int, info: bytes) -> bytes:
    """Return struct xt_entry_match or xt_entry_target."""
    return pack("=H29sB", EXTENSION_HEADER + len(info), name.encode(), revision) + info


def _write_head(matches: Sequence[Match], target: Target, form: EntryForm) -> bytes:
    """Return struct ipt_ip: addresses, interfaces, protocol, and which are inverted."""
    size = form.address
    head = bytearray(form.packet)
    names = 4 * size
    inverted = flags = 0
    for match in matches:
        if isinstance(match, AddressMatch):
            at, bit = (0, INVERTED_SOURCE) if match.source else (size, INVERTED_DESTINATION)
            network = match.networks[0]
            free = (1 << form.family.bits - network.length) - 1
            head[at : at + size] = network.first.to_bytes(size, "big")
            head[at + 2 * size : at + 3 * size] = ((1 << form.family.bits) - 1 - free).to_bytes(size, "big")
        elif isinstance(match, InterfaceMatch):
            at, bit = (names, INVERTED_IN) if match.inbound else (names + INTERFACE_NAME, INVERTED_OUT)
            name = match.names[0].encode("utf-8", "surrogateescape")
            counted = len(name) - 1 if name.endswith(b"+") else len(name) + 1
            head[at : at + INTERFACE_NAME] = name.ljust(INTERFACE_NAME, b"\0")
            head[at + 2 * INTERFACE_NAME : at + 3 * INTERFACE_NAME] = (b"\xff" * counted).ljust(INTERFACE_NAME, b"\0")
        elif isinstance(match, Protocol):
            bit = INVERTED_PROTOCOL
            pack_into("=H", head, names + 64, protocol_number(match.name))
            flags |= PROTOCOL_GIVEN[form.family.version]
        else:
            continue
        inverted |= bit if match.negated else 0
    if isinstance(target, Jump) and target.goto:
        flags |= form.goto
    head[form.flags], head[form.flags + 1] = flags, inverted
    return bytes(head)


def list_extensions(entry: TableEntry, form: EntryForm) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, revision and struct of an entry's matches, last of its target, which has no name if it is a verdict.

    Raises IndexError, struct.error.
    """
    data = entry.data
    at, (target, end) = form.header, unpack_from("=HH", data, form.packet + 4)
    while at < target:
        size = unpack_from("=H", data, at)[0]
        if size < EXTENSION_HEADER or at + size > target:
            raise IndexError(f"a match of {size} bytes at {at}")
        yield name_at(data, at), data[at + NAME.stop], data[at + EXTENSION_HEADER : at + size]
        at += size
    yield name_at(data, target), data[target + NAME.stop], data[target + EXTENSION_HEADER : end]


# ---- whole tables --------------------------------------------------------------------------------------------------------


def split_table(table: LegacyTable) -> tuple[EntryChain, ...]:
    """Return the chains of a kernel's table, in its order. Raises ValueError if the blob is malformed."""
    form = ENTRY_FORMS[table.version]
    try:
        found, starts = _find_chains(table)
        return tuple([
            EntryChain(name=chain, hook=hook, entries=tuple([_take(table.entries, at, form, starts) for at in places]))
            for chain, hook, places in found
        ])  # fmt: skip
    except (error, IndexError) as problem:
        raise ValueError(f"legacy table {table.name}: its entries are not understood: {problem!r}") from None


def _find_chains(table: LegacyTable) -> tuple[list[tuple[str, int, list[int]]], dict[int, str]]:
    """Return each chain's name, hook (-1: none) and offsets; and names by jump offset. Raises IndexError, struct.error."""
    form, entries = ENTRY_FORMS[table.version], table.entries
    hooks = {table.hook_entries[hook]: hook for hook in range(len(BUILTIN_CHAINS)) if table.valid_hooks >> hook & 1}
    found: list[tuple[str, int, list[int]]] = []
    starts: dict[int, str] = {}
    at = 0
    while True:
        offset, size = unpack_from("=HH", entries, at + form.packet + 4)
        if offset < form.header or size < offset + EXTENSION_HEADER or at + size > len(entries):
            raise IndexError(f"an entry of {size} bytes at {at}")
        if at in hooks:
            found.append((BUILTIN_CHAINS[hooks[at]], hooks[at], []))
        if name_at(entries, at + offset) == ERROR_TARGET:
            if at + size == len(entries):
                return found, starts
            chain = entries[at + offset + EXTENSION_HEADER :][:30].partition(b"\0")[0].decode("utf-8", "surrogateescape")
            starts[at + size] = chain
            found.append((chain, -1, []))
        else:
            found[-1][2].append(at)
        at += size


def _take(entries: bytes, at: int, form: EntryForm, starts: Mapping[int, str]) -> TableEntry:
    """Return the entry at an offset. Raises IndexError for a jump to where no chain begins."""
    offset, size = unpack_from("=HH", entries, at + form.packet + 4)
    data = bytearray(entries[at : at + size])
    packets = unpack_from("=Q", data, form.counters)[0]
    data[form.packet : form.packet + 4] = bytes(4)  # the cache, and the hooks and counters behind the sizes
    data[form.packet + 8 : form.header] = bytes(form.header - form.packet - 8)
    chain = ""
    if not name_at(entries, at + offset):
        verdict = unpack_from("=i", data, offset + EXTENSION_HEADER)[0]
        if verdict >= 0:
            if verdict != at + size and verdict not in starts:
                raise IndexError(f"a jump to {verdict}, where no chain begins")
            chain = starts.get(verdict, NEXT)
            pack_into("=i", data, offset + EXTENSION_HEADER, 0)
    return TableEntry(data=bytes(data), chain=chain, packets=packets)


def verdict_of(entry: TableEntry, form: EntryForm) -> int:
    """Return the verdict of an entry whose target is one."""
    verdict: int = unpack_from("=i", entry.data, unpack_from("=H", entry.data, form.packet + 4)[0] + EXTENSION_HEADER)[0]
    return verdict


def name_at(entries: bytes, at: int) -> str:
    """Return the extension's name at an offset."""
    return entries[at : at + EXTENSION_HEADER][NAME].partition(b"\0")[0].decode("utf-8", "surrogateescape")
