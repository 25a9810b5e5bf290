"""Matches of iptables' extensions, read from their structs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import unpack_from

from netinit.rules.matches import Match
from netinit.rules.matches.context import (
    AddressType,
    ConnectionDirection,
    ConnectionState,
    Limit,
    Mark,
    Socket,
    TcpFlags,
    UnknownMatch,
)
from netinit.rules.matches.packet import MOST_MULTIPORTS, Owner, Port
from netinit.rules.xtables.names import ADDRESS_TYPES, TCP_FLAGS

MAX_PORT = 0xFFFF
STATE_BITS = (("INVALID", 1), ("NEW", 8), ("RELATED", 4), ("ESTABLISHED", 2))  # XT_CONNTRACK_STATE_BIT, as iptables lists them
CONNTRACK_BITS = (*STATE_BITS, ("UNTRACKED", 256), ("SNAT", 64), ("DNAT", 128))
DIRECTION = 1 << 12  # XT_CONNTRACK_DIRECTION: inverted, it is REPLY
STATE_ALIAS = 1 << 13  # XT_CONNTRACK_STATE_ALIAS: written as `-m state`
LIMIT_SCALE = 10_000  # XT_LIMIT_SCALE: a credit is a ten thousandth of a second
Ports = tuple[int, int]
Reader = Callable[[bytes, str], "list[Match] | None"]


def decode_match(name: str, revision: int, info: bytes, protocol: str) -> tuple[list[Match], str]:
    """The matches of an extension's struct, and what it says as a comment; `protocol` is the rule's, which multiport needs."""
    if name == "comment":
        return [], info.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    reader = _READERS.get((name, revision))
    try:
        found = reader(info, protocol) if reader else None
    except struct.error:  # shorter than the struct
        found = None
    return ([UnknownMatch(text=f"-m {name}")] if found is None else found), ""


def _ports(protocol: str, ends: Ports, *, source: bool, negated: bool) -> list[Match]:
    """A match on a range of ports; none where all ports are in it. An inverted one of all ports never holds."""
    low, high = ends
    if (low, high) == (0, MAX_PORT) and not negated:
        return []
    return [Port(protocol=protocol, ports=(low if low == high else (low, high),), source=source, negated=negated)]


def _read_tcp(info: bytes, _: str) -> list[Match] | None:
    first, last, low, high, option, mask, flags, inverted = unpack_from("=4H4B", info)
    if inverted & ~7 or option or flags & ~mask or mask & ~0x3F or first > last or low > high:
        return None
    found = _ports("tcp", (first, last), source=True, negated=bool(inverted & 1))
    found += _ports("tcp", (low, high), source=False, negated=bool(inverted & 2))
    if mask or inverted & 4:
        if not mask:
            return None
        names = [tuple([name for bit, name in enumerate(TCP_FLAGS) if bits >> bit & 1]) for bits in (mask, flags)]
        found.append(TcpFlags(mask=names[0], flags=names[1], negated=bool(inverted & 4)))
    return found


def _read_udp(info: bytes, _: str) -> list[Match] | None:
    first, last, low, high, inverted = unpack_from("=4HB", info)
    if inverted & ~3 or first > last or low > high:
        return None
    return [
        *_ports("udp", (first, last), source=True, negated=bool(inverted & 1)),
        *_ports("udp", (low, high), source=False, negated=bool(inverted & 2)),
    ]


def _read_multiport(info: bytes, protocol: str) -> list[Match] | None:
    side, count = unpack_from("=2B", info)
    numbers, flags = unpack_from("=15H", info, 2), unpack_from("=15B", info, 32)
    inverted = unpack_from("=B", info, 47)[0]
    if side > 1 or not 0 < count <= MOST_MULTIPORTS or protocol not in ("tcp", "udp"):
        return None
    ports: list[int | tuple[int, int]] = []
    at = 0
    while at < count:
        if flags[at]:  # the first port of a range
            if at + 1 == count:
                return None
            ports.append((numbers[at], numbers[at + 1]))
            at += 2
        else:
            ports.append(numbers[at])
            at += 1
    return [Port(protocol=protocol, ports=tuple(ports), source=side == 0, negated=bool(inverted))]


def _read_owner(info: bytes, _: str) -> list[Match] | None:
    first_user, last_user, first_group, last_group, asked, inverted = unpack_from("=4I2B", info)
    if asked & ~3 or inverted & ~asked:
        return None
    found: list[Match] = []
    for bit, kind, low, high in ((1, "uid", first_user, last_user), (2, "gid", first_group, last_group)):
        if asked & bit:
            last = None if low == high else high
            found.append(Owner(kind=kind, number=low, last=last, negated=bool(inverted & bit)))
    return found or None


def _read_mark(info: bytes, _: str) -> list[Match] | None:
    value, mask, inverted = unpack_from("=2IB", info)
    return [Mark(value=value, mask=mask, negated=bool(inverted))]


def _read_connmark(info: bytes, _: str) -> list[Match] | None:
    value, mask, inverted = unpack_from("=2IB", info)
    return [Mark(value=value, mask=mask, connection=True, negated=bool(inverted))]


def _read_conntrack(info: bytes, _: str) -> list[Match] | None:
    """Struct xt_conntrack_mtinfo2 and 3 where nothing but the state or the direction is asked."""
    asked, inverted, bits = unpack_from("=3H", info, 146)
    if asked == DIRECTION and not inverted & ~DIRECTION:
        return [ConnectionDirection(direction="REPLY" if inverted else "ORIGINAL")]
    if asked & ~STATE_ALIAS != 1 or inverted & ~1:
        return None
    states = _states(bits, CONNTRACK_BITS)
    module = "state" if asked & STATE_ALIAS else "conntrack"
    return [ConnectionState(states=states, module=module, negated=bool(inverted))] if states else None


def _read_state(info: bytes, _: str) -> list[Match] | None:
    states = _states(unpack_from("=I", info)[0], (*STATE_BITS, ("UNTRACKED", 64)))
    return [ConnectionState(states=states, module="state")] if states else None


def _states(bits: int, known: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """The names of the bits, in iptables' order; none where one of them is not known."""
    return () if bits & ~sum([bit for _, bit in known]) else tuple([name for name, bit in known if bits & bit])


def _read_socket(info: bytes, _: str) -> list[Match] | None:
    return None if info[:1].strip(b"\0") else [Socket()]  # flags narrow it down by what only the kernel knows


def _read_address_type(info: bytes, _: str) -> list[Match] | None:
    source, destination, flags = unpack_from("=2HI", info)
    if flags & ~3:  # limited to an interface
        return None
    found: list[Match] = []
    for side, bits, bit in (("source", source, 1), ("destination", destination, 2)):
        types = tuple([name for number, name in enumerate(ADDRESS_TYPES) if bits >> number & 1])
        if bits >> len(ADDRESS_TYPES):
            return None
        if types:
            found.append(AddressType(side=side, types=types, negated=bool(flags & bit)))
    return found or None


def _read_limit(info: bytes, _: str) -> list[Match] | None:
    """A limit that iptables lists by the second."""
    period, burst = unpack_from("=2I", info)
    for seconds in (3600, 60, 1):
        scale = LIMIT_SCALE * seconds
        if not period or period > scale or scale // period < scale % period:
            return None
    return [Limit(rate=LIMIT_SCALE // period, burst=burst)]


_READERS: dict[tuple[str, int], Reader] = {
    ("tcp", 0): _read_tcp,
    ("udp", 0): _read_udp,
    ("multiport", 1): _read_multiport,
    ("owner", 1): _read_owner,
    ("mark", 1): _read_mark,
    ("connmark", 1): _read_connmark,
    ("conntrack", 2): _read_conntrack,
    ("conntrack", 3): _read_conntrack,
    ("state", 0): _read_state,
    ("socket", 0): lambda _, __: [Socket()],
    ("socket", 1): _read_socket,
    ("socket", 2): _read_socket,
    ("socket", 3): _read_socket,
    ("addrtype", 1): _read_address_type,
    ("limit", 0): _read_limit,
}
