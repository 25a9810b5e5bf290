"""Read matches from structs of iptables' extensions."""

from __future__ import annotations

from struct import error, unpack_from

from netinit.base.net import FULL_MASK, MAX_PORT, Family
from netinit.rules import structs
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
from netinit.rules.matches.foreign import AddressRange, EitherPort
from netinit.rules.matches.packet import MAX_MULTIPORTS, Owner, Port
from netinit.rules.structs import ADDRESS_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[bytes, str], list[Match] | None]


def decode_match(name: str, revision: int, info: bytes, protocol: str, family: Family | None) -> tuple[list[Match], str]:
    """Return the matches of a struct, and its comment; `protocol` and `family` are the rule's."""
    if name == "comment":
        return [], info.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    reader = _READERS.get((name, revision))
    try:
        if (name, revision) == ("iprange", 1):
            found = _read_address_range(info, family)
        else:
            found = reader(info, protocol) if reader else None
    except error:  # shorter than the struct
        found = None
    return ([UnknownMatch(text=f"-m {name}", kept=(name, revision, info))] if found is None else found), ""


def _read_ports(protocol: str, ranges: tuple[tuple[int, int], tuple[int, int]], inverted: int) -> list[Match]:
    """Return the matches on ports; none for all ports, unless inverted: that never matches."""
    return [
        Port(protocol=protocol, ports=(low if low == high else (low, high),), source=source, negated=bool(inverted & bit))
        for (low, high), source, bit in zip(
            ranges, (True, False), (structs.SOURCE_INVERTED, structs.DESTINATION_INVERTED), strict=True
        )
        if (low, high) != (0, MAX_PORT) or inverted & bit
    ]


def _read_tcp(info: bytes, _: str) -> list[Match] | None:
    first, last, low, high, option, mask, flags, inverted = unpack_from(structs.TCP, info)
    if inverted & ~7 or option or flags & ~mask or mask & ~0x3F or first > last or low > high:
        return None
    found = _read_ports("tcp", ((first, last), (low, high)), inverted)
    if mask or inverted & structs.FLAGS_INVERTED:
        if not mask:
            return None
        found.append(TcpFlags.from_bits(mask, flags, negated=bool(inverted & structs.FLAGS_INVERTED)))
    return found


def _read_udp(info: bytes, _: str) -> list[Match] | None:
    first, last, low, high, inverted = unpack_from(structs.UDP, info)
    if inverted & ~3 or first > last or low > high:
        return None
    return _read_ports("udp", ((first, last), (low, high)), inverted)


def _read_multiport(info: bytes, protocol: str) -> list[Match] | None:
    side, count = unpack_from(structs.MULTIPORT, info)
    numbers, flags = unpack_from("=15H", info, structs.MULTIPORT_NUMBERS), unpack_from("=15B", info, structs.MULTIPORT_RANGES)
    inverted = unpack_from("=B", info, structs.MULTIPORT_INVERTED)[0]
    if side > structs.MULTIPORT_EITHER or not 0 < count <= MAX_MULTIPORTS or protocol not in ("tcp", "udp"):
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
    if side == structs.MULTIPORT_EITHER:
        return [EitherPort(protocol=protocol, ports=tuple(ports), negated=bool(inverted))]
    return [Port(protocol=protocol, ports=tuple(ports), source=structs.MULTIPORT_SIDES[side], negated=bool(inverted))]


def _read_address_range(info: bytes, family: Family | None) -> list[Match] | None:
    """Read struct xt_iprange_mtinfo."""
    *ends, flags = unpack_from(structs.ADDRESS_RANGE, info)
    known = sum([bit | bit << structs.RANGE_INVERTED for _, bit in structs.SIDES])
    if family is None or flags & ~known or flags >> structs.RANGE_INVERTED & ~flags:
        return None
    found: list[Match] = []
    for at, (side, bit) in enumerate(structs.SIDES):
        first, last = (int.from_bytes(end[: family.bits // 8], "big") for end in ends[2 * at : 2 * at + 2])
        negated = bool(flags >> structs.RANGE_INVERTED & bit)
        if flags & bit and first > last:
            return None
        if flags & bit:
            found.append(AddressRange(family=family, first=first, last=last, source=side == "source", negated=negated))
    return found or None


def _read_owner(info: bytes, _: str) -> list[Match] | None:
    first_user, last_user, first_group, last_group, asked, inverted = unpack_from(structs.OWNER, info)
    if asked & ~7 or inverted & ~asked:
        return None
    found: list[Match] = []
    if asked & structs.OWNER_SOCKET:  # whatever owner it has
        found.append(Owner(kind="uid", number=0, last=FULL_MASK, negated=bool(inverted & structs.OWNER_SOCKET)))
    for kind, low, high in (("uid", first_user, last_user), ("gid", first_group, last_group)):
        bit = structs.OWNER_BITS[kind]
        if asked & bit:
            last = None if low == high else high
            found.append(Owner(kind=kind, number=low, last=last, negated=bool(inverted & bit)))
    return found or None


def _read_mark(info: bytes, *, connection: bool) -> list[Match]:
    value, mask, inverted = unpack_from(structs.MARK, info)
    return [Mark(value=value, mask=mask, connection=connection, negated=bool(inverted))]


def _read_conntrack(info: bytes, _: str) -> list[Match] | None:
    """Read struct xt_conntrack_mtinfo2 and 3 with only a state or a direction."""
    asked, inverted, bits = unpack_from(structs.CONNTRACK, info, structs.CONNTRACK_AT)
    if asked == structs.DIRECTION and not inverted & ~structs.DIRECTION:
        return [ConnectionDirection(direction="REPLY" if inverted else "ORIGINAL")]
    if asked & ~structs.STATE_ALIAS != structs.STATE or inverted & ~structs.STATE:
        return None
    states = _states(bits, structs.CONNTRACK_BITS)
    module = "state" if asked & structs.STATE_ALIAS else "conntrack"
    return [ConnectionState(states=states, module=module, negated=bool(inverted))] if states else None


def _read_state(info: bytes, _: str) -> list[Match] | None:
    states = _states(unpack_from("=I", info)[0], (*structs.STATE_BITS, ("UNTRACKED", 64)))
    return [ConnectionState(states=states, module="state")] if states else None


def _states(bits: int, known: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Return the names of the bits; none if one is unknown."""
    return () if bits & ~sum([bit for _, bit in known]) else tuple([name for name, bit in known if bits & bit])


def _read_socket(info: bytes, _: str) -> list[Match] | None:
    return None if info[:1].strip(b"\0") else [Socket()]  # flags narrow it down by what only the kernel knows


def _read_address_type(info: bytes, _: str) -> list[Match] | None:
    source, destination, flags = unpack_from(structs.ADDRESS_TYPE, info)
    if flags & ~3:  # limited to an interface
        return None
    found: list[Match] = []
    for (side, bit), bits in zip(structs.SIDES, (source, destination), strict=True):
        types = tuple([name for number, name in enumerate(ADDRESS_TYPES) if bits >> number & 1])
        if bits >> len(ADDRESS_TYPES):
            return None
        if types:
            found.append(AddressType(side=side, types=types, negated=bool(flags & bit)))
    return found or None


def _read_limit(info: bytes, _: str) -> list[Match] | None:
    """Read a limit that iptables lists per second."""
    period, burst = unpack_from(structs.LIMIT, info)
    for seconds in (3600, 60, 1):
        scale = structs.LIMIT_SCALE * seconds
        if not period or period > scale or scale // period < scale % period:
            return None
    return [Limit(rate=structs.LIMIT_SCALE // period, burst=burst)]


_READERS: dict[tuple[str, int], Reader] = {
    ("tcp", 0): _read_tcp,
    ("udp", 0): _read_udp,
    ("multiport", 1): _read_multiport,
    ("owner", 1): _read_owner,
    ("mark", 1): lambda info, _: _read_mark(info, connection=False),
    ("connmark", 1): lambda info, _: _read_mark(info, connection=True),
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
