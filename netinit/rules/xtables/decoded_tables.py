"""Decode legacy tables (linux/netfilter_ipv4/ip_tables.h) into chains of rules.

A user-defined chain begins with an entry whose target ERROR holds its name. Each chain ends with an entry that is no rule:
its policy, or a return.
"""

from __future__ import annotations

import struct
from struct import unpack, unpack_from

from netinit.base.net import Family, Network
from netinit.base.snapshot import LegacyTable
from netinit.rules import structs
from netinit.rules.decoding.matches import decode_match
from netinit.rules.decoding.targets import decode_target
from netinit.rules.foreign_targets import Observe, UnknownTarget
from netinit.rules.matches import Match, packet
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.packet import AddressMatch, InterfaceMatch, Protocol
from netinit.rules.model import LiveChain, LiveRule, Rule
from netinit.rules.structs import protocol_name
from netinit.rules.targets import VERDICTS, Jump, Target
from netinit.rules.xtables import building
from netinit.rules.xtables.building import ENTRY_FORMS, EntryForm, TableEntry, list_extensions, split_table, verdict_of

COUNTERS_SIZE = 16  # struct xt_counters
POLICIES = {structs.ACCEPTING: "ACCEPT", structs.DROPPING: "DROP"}


def decode_table(table: LegacyTable) -> tuple[LiveChain, ...]:
    """Return the chains of a table in the kernel's order. Raises ValueError if the blob is malformed."""
    form, chains = ENTRY_FORMS[table.version], []
    try:
        for chain in split_table(table):
            *entries, last = chain.entries
            policy = verdict_of(last, form) if chain.hook >= 0 else 0
            rules = tuple([LiveRule(rules=(decode_entry(one, form),), packets=one.packets) for one in entries])
            chains.append(LiveChain(name=chain.name, rules=rules, policy=POLICIES.get(policy, str(policy)) if policy else ""))
    except (struct.error, IndexError) as error:
        raise ValueError(f"legacy table {table.name}: its entries are not understood: {error!r}") from None
    return tuple(chains)


def decode_entry(entry: TableEntry, form: EntryForm) -> Rule:
    """Return an entry's rule. Raises IndexError, struct.error if it is malformed."""
    matches, protocol, flags = _read_head(entry.data[: form.packet], form)
    *asked, (name, revision, info) = list_extensions(entry, form)
    comment = ""
    for module, number, data in asked:
        more, text = decode_match(module, number, data, protocol, form.family)
        matches += more
        comment = text or comment
    target = decode_target(name, revision, info, form.family) if name else _read_verdict(entry, form, goto=bool(flags & form.goto))
    return Rule(matches=packet.drop_implied_protocols(matches), target=target, comment=comment, families=(form.family,))


def _read_verdict(entry: TableEntry, form: EntryForm, *, goto: bool) -> Target:
    if entry.chain:
        return Observe(text="") if entry.chain == building.NEXT else Jump(chain=entry.chain, goto=goto)
    verdict = verdict_of(entry, form)
    return VERDICTS.get(verdict) or UnknownTarget(text=f"verdict {verdict}")



def clear_counters(table: LegacyTable) -> LegacyTable:
    """Return the table with the counters of its entries at zero."""
    form = ENTRY_FORMS[table.version]
    entries = bytearray(table.entries)
    at, following = 0, form.header
    while following >= form.header and at + form.header <= len(entries):
        entries[at + form.counters : at + form.counters + COUNTERS_SIZE] = bytes(COUNTERS_SIZE)
        following = unpack_from("=H", entries, at + form.packet + 6)[0]
        at += following
    return table.replace(entries=bytes(entries))


def _read_head(head: bytes, form: EntryForm) -> tuple[list[Match], str, int]:
    """Return the matches of struct ipt_ip, the protocol, and the flags."""
    *values, protocol, flags, inverted = unpack(form.head, head)
    matches: list[Match] = []
    for kind, at, bit in building.HEAD:
        value, mask, negated = values[at], values[at + 2], bool(inverted & bit)
        if issubclass(kind, AddressMatch):
            matches += _read_network(kind, value, mask, form.family, negated=negated)
        else:
            matches += _read_device(kind, value, mask, negated=negated)
    if flags & ~form.allowed or inverted & ~(1 | 2 | 8 | 16 | 64):
        matches.append(UnknownMatch(text="-f"))  # fragments, and what iptables cannot write
    named = protocol_name(protocol) if protocol else ""
    if named or inverted & building.INVERTED_PROTOCOL:
        matches.append(Protocol(name=named or "all", negated=bool(inverted & building.INVERTED_PROTOCOL)))
    return matches, "" if inverted & building.INVERTED_PROTOCOL else named, flags


def _read_network(kind: type[AddressMatch], address: bytes, mask: bytes, family: Family, *, negated: bool) -> list[Match]:
    bits = int.from_bytes(mask, "big")
    if not bits and not negated:
        return []
    length = bits.bit_count()
    if bits != (1 << family.bits) - (1 << family.bits - length):
        return [UnknownMatch(text=f"{kind.option} under a mask that is not a prefix")]
    network = Network((family.version, int.from_bytes(address, "big") & bits, length))
    return [kind(networks=(network,), negated=negated)]


def _read_device(kind: type[InterfaceMatch], name: bytes, mask: bytes, *, negated: bool) -> list[Match]:
    """Read an interface by the bytes of its name that count: with the zero after it, or a prefix."""
    if not mask.strip(b"\0"):
        return [kind(names=("+",), negated=True)] if negated else []
    counted = len(mask.rstrip(b"\0"))
    known = name[:counted]
    if mask[:counted].strip(b"\xff") or b"\0" in known[:-1] or name[counted:].rstrip(b"\0") not in (b"", b"+"):
        return [UnknownMatch(text=f"{kind.option} under a mask that iptables does not write")]
    text = known.rstrip(b"\0").decode("utf-8", "surrogateescape")
    return [kind(names=(text if known.endswith(b"\0") else f"{text}+",), negated=negated)]
