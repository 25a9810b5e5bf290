"""Read a match in any notation, by the tables of `packet` and `context`; what is not understood is an UnknownMatch."""

from __future__ import annotations

import struct

from netinit.base.net import Family
from netinit.rules.decoding import context, packet
from netinit.rules.decoding.registers import META, Known, RegisterTest
from netinit.rules.matches import Match
from netinit.rules.matches.foreign import InSet, name_unread
from netinit.rules.numbers import META_SKGID, META_SKUID

# By module, its options in the order of listing, wherever they stand; None for those that are not understood
OPTIONS = packet.OPTIONS | context.OPTIONS
MAX_ALTERNATIVES = 1024  # of a lookup: a proof asks each
_STRUCTS = packet.STRUCTS | context.STRUCTS
_OPERANDS = packet.OPERANDS | context.OPERANDS


def read_module(name: str, words: list[str], protocol: str) -> list[Match] | None:
    """Return a match for each option of a module, in listing order; None if an option is not understood."""
    if name in context.WHOLE:
        return context.WHOLE[name](words)
    options = OPTIONS.get(name, {})
    found: list[tuple[int, Match]] = []
    at = 0
    while at < len(words):
        negated = words[at] == "!"
        at += negated
        end = at + 1
        while end < len(words) and words[end] != "!" and not words[end].startswith("--"):
            end += 1
        reader = options.get(words[at]) if at < len(words) else None
        match = reader(words[at + 1 : end], negated, protocol) if reader else None
        if match is None:
            return None
        found.append((list(options).index(words[at]), match))
        at = end
    return [match for _, match in sorted(found, key=lambda place: place[0])] or None


def decode_match(
    name: str, revision: int, info: bytes, protocol: str, family: Family | None
) -> tuple[list[Match], str]:
    """Return the matches of a struct, and its comment; `protocol` and `family` are the rule's."""
    if name == "comment":
        return [], info.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    reader = _STRUCTS.get((name, revision))
    try:
        found = reader(info, protocol, family) if reader else None
    except struct.error:  # shorter than the struct
        found = None
    return ([name_unread(f"-m {name}", (name, revision, info))] if found is None else found), ""


def decode_comparison(compared: RegisterTest, known: Known) -> list[Match]:
    """Return the matches for a comparison; an unknown one if it is not understood."""
    found = _read_comparison(compared, known)
    if found is None and 1 < len(compared.ranges) <= MAX_ALTERNATIVES and not _is_lost_if_negated(compared):
        each = [_read_comparison(compared.replace(ranges=(one,), negated=False), known) for one in compared.ranges]
        read = tuple([tuple(one) for one in each if one is not None])
        if len(read) == len(each):
            return [InSet(text=compared.text, alternatives=read, negated=compared.negated)]
    return compared.unknown() if found is None else found


def _read_comparison(compared: RegisterTest, known: Known) -> list[Match] | None:
    operand = compared.operand
    reader = _OPERANDS.get((operand.source, operand.key[0]))
    try:
        return reader(compared, known) if reader else None
    except (ValueError, IndexError, struct.error, OverflowError):  # a value of unexpected length
        return None


def _is_lost_if_negated(compared: RegisterTest) -> bool:
    """Whether a negated comparison may not hold although no value fits: without a socket there is no user (nft_meta.c)."""
    return compared.negated and compared.operand.source == META and compared.operand.key[0] in (META_SKUID, META_SKGID)
