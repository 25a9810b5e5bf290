"""Single rules as nft expressions, forms of iptables-nft by version, and legacy tables put together from their chains."""

from __future__ import annotations

from struct import pack, pack_into, unpack_from

from netinit.base.net import IPV4, family_of, number_of
from netinit.base.snapshot import INET
from netinit.rules.expressions.compat import FORMS
from netinit.rules.foreign_targets import DestinationNat, Observe, Several, Untrack
from netinit.rules.numbers import NF_ACCEPT
from netinit.rules.rule_builder import RuleBuilder
from netinit.rules.targets import Tproxy
from netinit.rules.xtables.building import (
    ENTRY_FORMS,
    ERROR_TARGET,
    EXTENSION_HEADER,
    NEXT,
    TableEntry,
    extension,
    make_entry,
)

ERROR_NAME_SIZE = 32  # struct xt_error_target


def encode_rule(rule, family, sets):
    """A rule's expressions in a table of the family; sets that it looks into are appended. ValueError where nft has none."""
    writer = RuleBuilder(family, sets)
    if family == INET and len(rule.families) == 1:
        writer.limit_family(rule.families[0])
    for match in rule.matches:
        if match.nft_chain:
            raise ValueError(f"{type(match).__name__}: nft takes a chain of its own for it")
        match.express(writer)
    writer.count()
    express_target(rule.target, writer, rule.families[0])
    return writer.block()


def express_target(target, writer, family):
    """Append a target that nft has, also one that only foreign rules have."""
    if isinstance(target, Several):
        for one in target.targets:
            if isinstance(one, Tproxy):  # without the mark and the verdict, which are targets of their own
                _hand_over(one, writer, family)
            else:
                express_target(one, writer, family)
    elif isinstance(target, DestinationNat):
        _translate(target, writer)
    elif isinstance(target, Untrack):
        writer.add(b"notrack")
    elif isinstance(target, Tproxy):
        _hand_over(target.replace(mark=0), writer, family)
        writer.put(pack("=I", target.mark))
        writer.store_mark(connection=False)
        writer.decide(NF_ACCEPT)
    elif target != Observe(text=""):  # otherwise it only counts
        target.express(writer, family)


def _hand_over(target, writer, family):
    if target.mark:
        writer.add_struct(b"target", target.struct(family))
        return
    attributes = [(1, pack(">I", family.number))]
    if target.address:
        writer.put(number_of(target.address).to_bytes(family.bits // 8, "big"))
        attributes.append((2, pack(">I", 1)))
    register = 2 if target.address else 1
    writer.put(pack(">H", target.port), register)
    writer.add(b"tproxy", *attributes, (3, pack(">I", register)))


def _translate(target, writer):
    attributes = [(1, pack(">I", 1))]  # NFT_NAT_DNAT
    family = family_of(target.address) if target.address else IPV4
    if target.address:
        writer.put(number_of(target.address).to_bytes(family.bits // 8, "big"))
    attributes.append((2, pack(">I", family.number)))
    attributes += [(3, pack(">I", 1)), (4, pack(">I", 1))] if target.address else []
    if target.port:
        writer.put(pack(">H", target.port), 2)
        attributes += [(5, pack(">I", 2)), (6, pack(">I", 2))]
    writer.add(b"nat", *attributes, (7, pack(">I", 3 if target.port else 1)))


def form_of(version):
    """The form of a version of iptables-nft: that of the newest one compared which is not newer."""
    return FORMS[max([one for one in FORMS if one <= version] or [min(FORMS)])]


def join_table(table, chains):
    """The table with these chains, in their order, counters at zero. Its hooks are those of the chains."""
    form = ENTRY_FORMS[table.version]
    placed, starts = [], {}
    firsts = list(table.hook_entries)
    at = 0
    for chain in chains:
        if chain.hook < 0:
            head = _error_entry(chain.name, form)
            placed.append((at, head))
            at += len(head.data)
            starts[chain.name] = at
        else:
            firsts[chain.hook] = at
        for entry in chain.entries:
            placed.append((at, entry))
            at += len(entry.data)
    placed.append((at, _error_entry(ERROR_TARGET, form)))
    blob = b"".join(_place(entry, place, form, starts) for place, entry in placed)
    return table.replace(hook_entries=tuple(firsts), entries=blob)


def _place(entry, at, form, starts):
    if not entry.chain:
        return entry.data
    data = bytearray(entry.data)
    offset = unpack_from("=H", data, form.packet + 4)[0]
    pack_into("=i", data, offset + EXTENSION_HEADER, at + len(data) if entry.chain == NEXT else starts[entry.chain])
    return bytes(data)


def _error_entry(chain, form):
    name = chain.encode("utf-8", "surrogateescape").ljust(ERROR_NAME_SIZE, b"\0")
    return TableEntry(data=make_entry(form, bytes(form.packet), b"", extension(ERROR_TARGET, 0, name)))
