"""How many rules and chains the kernel has, by its own account: what listings are held against (rules/census.py).

nf_tables is asked by netlink. The older interface hands out its table as one piece (IPT_SO_GET_ENTRIES of
linux/netfilter_ipv4/ip_tables.h, IP6T_SO_GET_ENTRIES for IPv6), of which only the frame is read here.
"""

from __future__ import annotations

from _struct import unpack_from

from netinit.base.errors import ParseError
from netinit.base.net import IPV4, Family
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import (
    NFTA_BITWISE_DREG,
    NFTA_BITWISE_SREG,
    NFTA_CMP_DATA,
    NFTA_CMP_SREG,
    NFTA_DATA_VALUE,
    NFTA_META_DREG,
    NFTA_META_KEY,
    NFTA_RULE_CHAIN,
    NFTA_RULE_EXPRESSIONS,
    NFTA_RULE_TABLE,
    big,
    read_expressions,
)
from netinit.kernel.snapshot import legacy_tables
from netinit.rules.census import MOST_BYTES, TableCount, check_size
from netinit.rules.iptables.write import KNOWN_TABLES, UNSAFE
from netinit.rules.model import TABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from netinit.rules.census import Census

NUMBERS = {"ip": 2, "ip6": 10}  # of the families of nf_tables
_CHANGED = 11  # EAGAIN: the table is not as large any more as it was a moment ago
# linux/netfilter/nf_tables.h: an attribute of payload, ct and immediate, and what meta may load
NFTA_DREG = 1
IIF, OIF, IIFNAME, OIFNAME = 4, 5, 6, 7
# How an expression of an extension of iptables begins in a message: its name, then its data, which begins with another
_EXTENSIONS = (b"\x0a\0\1\0match\0\0\0", b"\x0b\0\1\0target\0\0")
# How a message loads the name or the number of a device: NFTA_META_KEY
_IIF, _OIF, _IIFNAME, _OIFNAME = [b"\x08\0\2\0\0\0\0" + bytes((key,)) for key in (IIF, OIF, IIFNAME, OIFNAME)]
_TO_NAME = 8  # the headers of the data and of the extension's name

HOOK_NAMES = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
EXTENSION_HEADER = 32  # struct xt_entry_match, xt_entry_target
CHAIN_NAME = 30
ERROR_TARGET = "ERROR"  # the target that begins a chain of others than the kernel's, and that ends a table


def count_nft_families(families: tuple[Family, ...], chains: tuple[netlink.NftChain, ...]) -> dict[Family, Census]:
    """The tables that iptables-nft may list; a family is left out where the kernel does not say. ParseError."""

    def count(family: Family) -> Census:
        return count_nft(NUMBERS[family.nft], chains)

    return _ask_each(families, count)


def count_legacy_families(families: tuple[Family, ...]) -> dict[Family, Census]:
    """The tables of the older interface; a family is left out where the kernel does not say. ParseError.

    Asking for a table creates it, so that those are asked for that exist, or that a listing asks for anyhow.
    """

    def count(family: Family) -> Census:
        names = detect.legacy_tables(family)
        return count_legacy(family, TABLES if names is None else names)

    return _ask_each(families, count)


def _ask_each(families: tuple[Family, ...], count: Callable[[Family], Census]) -> dict[Family, Census]:
    found = {}
    for family in families:
        for _ in range(netlink.DUMP_ATTEMPTS):
            try:
                found[family] = count(family)
            except OSError as error:
                if error.errno == _CHANGED:
                    continue
            else:
                check_size(found[family], family.name)
            break
    return found


def count_nft(family: int, chains: tuple[netlink.NftChain, ...]) -> Census:
    """The tables of iptables in a family of nf_tables (2 IPv4, 10 IPv6) that have one of these chains. OSError, ParseError."""
    known = [chain for chain in chains if chain.family == family and chain.table in KNOWN_TABLES]
    counts: dict[str, dict[str, int]] = {}
    for chain in known:
        counts.setdefault(chain.table, {})[chain.name] = 0
    extensions: dict[str, set[str]] = {name: set() for name in counts}
    bare: dict[str, set[str]] = {name: set() for name in counts}
    for place, messages in _by_place(_rules(family) if known else []).items():
        attributes = netlink.read_attributes(place, 0)
        table, chain_name = [netlink.read_name(attributes[kind]) for kind in (NFTA_RULE_TABLE, NFTA_RULE_CHAIN)]
        if table not in counts:
            continue
        counts[table][chain_name] = len(messages)
        for message in messages:
            for beginning in _EXTENSIONS:
                if beginning in message:
                    for piece in message.split(beginning)[1:]:
                        extensions[table].add(_decode(piece[_TO_NAME : piece.find(b"\0", _TO_NAME)]))
            if _IIFNAME in message or _OIFNAME in message or _IIF in message or _OIF in message:
                names, indexed = _interfaces(netlink.read_attributes(message, netlink.NETFILTER_SIZE).get(NFTA_RULE_EXPRESSIONS, b""))
                bare[table] |= names
                if indexed:  # iptables prints the device's own name for its number
                    extensions[table].add("a device by its number")
    return {
        name: TableCount(
            chains=counts[name],
            hooked=frozenset([chain.name for chain in known if chain.hooked and chain.table == name]),
            extensions=frozenset(extensions[name]),
            bare=frozenset(bare[name]),
        )
        for name in counts
    }


def _by_place(messages: list[bytes]) -> dict[bytes, list[bytes]]:
    """The rules of each chain, by their first two attributes: the table's and the chain's name."""
    found: dict[bytes, list[bytes]] = {}
    for message in messages:
        second = 4 + (unpack_from("=H", message, 4)[0] + 3 & ~3)
        place = message[4 : second + unpack_from("=H", message, second)[0]]
        if place in found:
            found[place].append(message)
        else:
            found[place] = [message]
    return found


def _rules(family: int) -> list[bytes]:
    try:
        return netlink.list_nft_rules(family)
    except OSError as error:
        if error.errno == netlink.EFBIG:
            raise _too_large() from None
        raise


def _too_large() -> ParseError:
    return ParseError(f"{UNSAFE}the rules are more than {MOST_BYTES >> 20} MB; remove those that nobody needs")


def _interfaces(expressions: bytes) -> tuple[set[str], bool]:
    """The interface names that a rule compares with, and whether it compares with a device's number."""
    holders: set[int] = set()  # registers that hold a name
    names: set[str] = set()
    indexed = False
    for name, data in read_expressions(expressions):
        if name == b"meta":
            key = big(data.get(NFTA_META_KEY))
            indexed = indexed or key in (IIF, OIF)
            (holders.add if key in (IIFNAME, OIFNAME) else holders.discard)(big(data.get(NFTA_META_DREG)))
        elif name == b"cmp" and big(data.get(NFTA_CMP_SREG)) in holders:
            value = netlink.read_attributes(data[NFTA_CMP_DATA], 0)[NFTA_DATA_VALUE]
            names.add(_decode(value.replace(b"\0", b"")))
        elif name == b"bitwise" and big(data.get(NFTA_BITWISE_SREG)) in holders:
            holders.add(big(data.get(NFTA_BITWISE_DREG)))
        elif name in (b"payload", b"ct", b"immediate"):
            holders.discard(big(data.get(NFTA_DREG)))
    return names, indexed


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def count_legacy(family: Family, tables: tuple[str, ...]) -> Census:
    """These tables of the older interface; they must exist, since asking for one creates it. OSError, ParseError."""
    return {name: _count_entries(*_read_table(family, name), family) for name in tables if name in KNOWN_TABLES}


def _read_table(family: Family, name: str) -> tuple[bytes, bytes]:
    """What the kernel gives of a table, and its entries."""
    try:
        return legacy_tables.read_bytes(family, name)
    except OSError as error:
        if error.errno == netlink.EFBIG:
            raise _too_large() from None
        raise


def _count_entries(info: bytes, entries: bytes, family: Family) -> TableCount:
    """Rules by chain. Each chain ends with an entry that is no rule: its policy, or the return of the others."""
    packet, header, name_at = (84, 112, 16) if family is IPV4 else (136, 168, 64)
    hooks = {unpack_from("=I", info, 36 + 4 * n)[0]: n for n in range(5) if unpack_from("=I", info, 32)[0] >> n & 1}
    counts: dict[str, int] = {}
    extensions: set[str] = set()
    bare: set[str] = set()
    at, chain = 0, ""
    while at < len(entries):
        target, following = unpack_from("=HH", entries, at + packet + 4)
        if at in hooks:
            chain = HOOK_NAMES[hooks[at]]
            counts[chain] = -1
        name = _name_at(entries, at + target)
        if name == ERROR_TARGET:
            raw = entries[at + target + EXTENSION_HEADER :][:CHAIN_NAME]
            chain = _decode(raw.partition(b"\0")[0])
            counts[chain] = counts.get(chain, 0) - 1
        else:
            counts[chain] += 1
            extensions |= {name, *_matches(entries, at + header, at + target)} - {""}
            for place in (at + name_at, at + name_at + 16):
                bare.add(_decode(entries[place : place + 16].replace(b"\0", b"")))
        at += following
    del counts[ERROR_TARGET]  # the entry that ends the table
    return TableCount(chains=counts, extensions=frozenset(extensions), bare=frozenset(bare - {""}))


def _matches(entries: bytes, at: int, end: int) -> Iterator[str]:
    while at < end:
        yield _name_at(entries, at)
        at += unpack_from("=H", entries, at)[0]


def _name_at(entries: bytes, at: int) -> str:
    """The name of the match or target at a place, which its size stands before."""
    return _decode(entries[at + 2 : at + 2 + 29].partition(b"\0")[0])
