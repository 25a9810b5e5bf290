"""Entries of legacy tables as bytes: of planned rules, and of the kernel's, so that both compare with `==`.

What the kernel or the place decides (counters, hooks, offsets of jumps) is not in a TableEntry.
"""

from __future__ import annotations

from _struct import error, pack, pack_into, unpack_from  # type: ignore[attr-defined]

from netinit.base.net import IPV4, IPV6, Family
from netinit.base.records import Record
from netinit.rules import structs
from netinit.rules.iptables.write import encode_each, split_modules
from netinit.rules.matches import packet
from netinit.rules.model import BUILTIN_CHAINS
from netinit.rules.structs import protocol_number
from netinit.rules.targets import Jump, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from netinit.base.snapshot import LegacyTable
    from netinit.rules.iptables.write import Written
    from netinit.rules.matches import Match

    FoundChain = tuple[str, int, int, list[int]]  # name, hook (-1: none), where it begins (with its name), its entries

NAME = slice(2, 31)
ERROR_TARGET = "ERROR"
INVERTED_PROTOCOL = 64  # IPT_INV_PROTO
EXTENSION_HEADER = 32  # struct xt_entry_match, xt_entry_target: size, name, revision
NEXT = "\0next"  # where a rule without a target goes: no chain is called so


class EntryForm(Record):
    """The layout of a family's entry."""

    family: Family
    head: str  # struct ipt_ip, ip6t_ip6: see HEAD; then the protocol, the flags, and which fields are inverted
    packet: int  # its size
    header: int  # size of struct ipt_entry, ip6t_entry
    counters: int
    goto: int  # the flag of -g
    allowed: int  # flags that are understood


ENTRY_FORMS = {
    4: EntryForm(family=IPV4, head="=4s4s4s4s16s16s16s16sHBB", packet=84, header=112, counters=96, goto=2, allowed=2),
    6: EntryForm(family=IPV6, head="=16s16s16s16s16s16s16s16sHxBB3x", packet=136, header=168, counters=152, goto=4, allowed=5),
}
# The fields of a head with matches of iptables itself: the place of the value, behind which the mask is the next but one, and the
# bit of an inverted one (IPT_INV_*)
HEAD: tuple[tuple[type[packet.AddressMatch | packet.InterfaceMatch], int, int], ...] = (
    (packet.Source, 0, 8), (packet.Destination, 1, 16), (packet.InInterface, 4, 1), (packet.OutInterface, 5, 2),
)  # fmt: skip
HEAD_PLACES: dict[type[Match], tuple[int, int]] = {kind: (at, bit) for kind, at, bit in HEAD}
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


def make_return(form: EntryForm) -> bytes:
    """Return the entry that ends a user-defined chain."""
    return make_entry(form, bytes(form.packet), b"", extension("", 0, pack("=ii", structs.RETURNING, 0)))


def extension(name: str, revision: int, info: bytes) -> bytes:
    """Return struct xt_entry_match or xt_entry_target."""
    return pack("=H29sB", EXTENSION_HEADER + len(info), name.encode(), revision) + info


def _write_head(matches: Sequence[Match], target: Target, form: EntryForm) -> bytes:
    """Return struct ipt_ip: addresses, interfaces, protocol, and which are inverted."""
    values = [b""] * 8
    protocol = inverted = 0
    flags = form.goto if isinstance(target, Jump) and target.goto else 0
    for match in matches:
        at, bit = HEAD_PLACES.get(type(match), (0, INVERTED_PROTOCOL))
        if isinstance(match, packet.AddressMatch):
            network, bits = match.networks[0], form.family.bits
            ends = network.first, (1 << bits) - (1 << bits - network.length)
            values[at], values[at + 2] = [end.to_bytes(bits // 8, "big") for end in ends]
        elif isinstance(match, packet.InterfaceMatch):
            name = match.names[0].encode("utf-8", "surrogateescape")
            values[at], values[at + 2] = name, b"\xff" * (len(name) - 1 if name.endswith(b"+") else len(name) + 1)
        elif isinstance(match, packet.Protocol):
            protocol = protocol_number(match.name)
            flags |= PROTOCOL_GIVEN[form.family.version]
        else:
            continue
        inverted |= bit if match.negated else 0
    return pack(form.head, *values, protocol, flags, inverted)


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
        found, starts = find_chains(table.version, table.valid_hooks, table.hook_entries, table.entries)
        chains = [
            EntryChain(name=chain, hook=hook, entries=tuple([_take(table.entries, at, form, starts) for at in places]))
            for chain, hook, _, places in found
        ]
    except (error, IndexError) as problem:
        raise ValueError(f"legacy table {table.name}: its entries are not understood: {problem!r}") from None
    end = make_return(form)
    for chain in [one for one in chains if one.hook < 0]:
        if not chain.entries or chain.entries[-1].data != end:  # the kernel takes other verdicts too, which iptables does not list
            raise ValueError(f"legacy table {table.name}: the chain {chain.name!r} does not end with a return, as iptables ends it")
    return tuple(chains)


def find_chains(
    version: int, valid_hooks: int, hook_entries: Sequence[int], entries: bytes
) -> tuple[list[FoundChain], dict[int, str]]:
    """Return the chains of a table, and names by the offset of a jump to them. Raises IndexError, struct.error."""
    form = ENTRY_FORMS[version]
    hooks = {hook_entries[hook]: hook for hook in range(len(BUILTIN_CHAINS)) if valid_hooks >> hook & 1}
    found: list[FoundChain] = []
    starts: dict[int, str] = {}
    at = 0
    while True:
        offset, size = unpack_from("=HH", entries, at + form.packet + 4)
        if offset < form.header or size < offset + EXTENSION_HEADER or at + size > len(entries):
            raise IndexError(f"an entry of {size} bytes at {at}")
        if at in hooks:
            found.append((BUILTIN_CHAINS[hooks[at]], hooks[at], at, []))
        if name_at(entries, at + offset) == ERROR_TARGET:
            if at + size == len(entries):
                return found, starts
            named = at + offset + EXTENSION_HEADER
            chain = entries[named : named + 30].partition(b"\0")[0].decode("utf-8", "surrogateescape")
            starts[at + size] = chain
            found.append((chain, -1, at, []))
        else:
            found[-1][3].append(at)
        at += size


def _take(entries: bytes, at: int, form: EntryForm, starts: Mapping[int, str]) -> TableEntry:
    """Return the entry at an offset. Raises IndexError for a jump to where no chain begins."""
    data, chain = cut(entries, at, form, starts)
    return TableEntry(data=settle(data, form, chain), chain=chain, packets=unpack_from("=Q", data, form.counters)[0])


def cut(entries: bytes, at: int, form: EntryForm, starts: Mapping[int, str]) -> tuple[bytes, str]:
    """Return an entry as the kernel holds it, and the chain that it jumps to. Raises IndexError as above."""
    offset, size = unpack_from("=HH", entries, at + form.packet + 4)
    if not name_at(entries, at + offset):
        verdict = unpack_from("=i", entries, at + offset + EXTENSION_HEADER)[0]
        if verdict >= 0:
            if verdict != at + size and verdict not in starts:
                raise IndexError(f"a jump to {verdict}, where no chain begins")
            return entries[at : at + size], starts.get(verdict, NEXT)
    return entries[at : at + size], ""


def settle(data: bytes, form: EntryForm, chain: str) -> bytes:
    """Return an entry with zeros for what the kernel or the place decides."""
    settled = bytearray(data)
    settled[form.packet : form.packet + 4] = bytes(4)  # the cache, and the hooks and counters behind the sizes
    settled[form.packet + 8 : form.header] = bytes(form.header - form.packet - 8)
    if chain:
        pack_into("=i", settled, unpack_from("=H", data, form.packet + 4)[0] + EXTENSION_HEADER, 0)
    return bytes(settled)


def verdict_of(entry: TableEntry, form: EntryForm) -> int:
    """Return the verdict of an entry whose target is one."""
    verdict: int = unpack_from("=i", entry.data, unpack_from("=H", entry.data, form.packet + 4)[0] + EXTENSION_HEADER)[0]
    return verdict


def name_at(entries: bytes, at: int) -> str:
    """Return the extension's name at an offset."""
    return entries[at : at + EXTENSION_HEADER][NAME].partition(b"\0")[0].decode("utf-8", "surrogateescape")
