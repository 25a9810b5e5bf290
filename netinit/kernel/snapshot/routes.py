"""Read policy rules and the routes of all tables over rtnetlink(7)."""

from __future__ import annotations

import struct
from _socket import inet_ntop
from struct import pack, unpack_from

from netinit.base.net import FAMILIES, FULL_MASK
from netinit.base.netlink_attributes import MalformedError, attributes_of, name
from netinit.base.snapshot import Hop, RoutingRule, TableRoute, Unknown
from netinit.kernel.netlink import Netlink, native

RTM_NEWROUTE, RTM_GETROUTE, RTM_NEWRULE, RTM_GETRULE = 24, 26, 32, 34
_HEADER, _SIZE = "=BBBBBBBBI", 12  # struct rtmsg, struct fib_rule_hdr
FRA_DST, FRA_SRC, FRA_IIFNAME, FRA_GOTO, FRA_PRIORITY, FRA_FWMARK, FRA_FLOW = 1, 2, 3, 4, 6, 10, 11
FRA_SUPPRESS_PREFIXLEN, FRA_TABLE, FRA_FWMASK, FRA_OIFNAME, FRA_PAD = 14, 15, 16, 17, 18
FRA_L3MDEV, FRA_UID_RANGE, FRA_PROTOCOL, FRA_IP_PROTO, FRA_SPORT_RANGE, FRA_DPORT_RANGE = 19, 20, 21, 22, 23, 24
_KNOWN_OF_RULES = frozenset((
    FRA_DST, FRA_SRC, FRA_IIFNAME, FRA_GOTO, FRA_PRIORITY, FRA_FWMARK, FRA_FLOW, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE, FRA_FWMASK,
    FRA_OIFNAME, FRA_PAD, FRA_L3MDEV, FRA_UID_RANGE, FRA_PROTOCOL, FRA_IP_PROTO, FRA_SPORT_RANGE, FRA_DPORT_RANGE,
))  # fmt: skip
FIB_RULE_INVERT = 2
RTA_DST, RTA_SRC, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH = 1, 2, 4, 5, 6, 7, 8, 9
RTA_FLOW, RTA_CACHEINFO, RTA_TABLE, RTA_VIA, RTA_PREF, RTA_NH_ID = 11, 12, 15, 18, 20, 30
_KNOWN_OF_ROUTES = frozenset((
    RTA_DST, RTA_SRC, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH, RTA_FLOW, RTA_CACHEINFO,
    RTA_TABLE, RTA_VIA, RTA_PREF, RTA_NH_ID,
))  # fmt: skip
RTM_F_CLONED = 0x200
MAX_BYTES = 1 << 26  # some 500,000 routes


def read_rules(link: Netlink, unknown: list[Unknown]) -> tuple[RoutingRule, ...]:
    """Return the policy rules of both families in the kernel's order. Raises OSError."""
    return tuple(_read(link, RTM_GETRULE, RTM_NEWRULE, "policy rule", _read_rule, unknown))


def read_routes(link: Netlink, unknown: list[Unknown]) -> tuple[TableRoute, ...]:
    """Return the routes of all tables. Raises OSError."""
    return tuple(_read(link, RTM_GETROUTE, RTM_NEWROUTE, "route", _read_route, unknown))


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    Read = TypeVar("Read")


def _read(  # noqa: PLR0917 - a dump and its reader
    link: Netlink, kind: int, wanted: int, what: str, reader: Callable[[bytes, dict[int, bytes]], Read | None], unknown: list[Unknown]
) -> Iterator[Read]:
    for family in FAMILIES:
        for got, body in link.dump(kind, pack(_HEADER, family.number, 0, 0, 0, 0, 0, 0, 0, 0), MAX_BYTES):
            if got != wanted or not body or body[0] != family.number:  # a kernel without IPv6 answers with all families
                continue
            try:
                found = reader(body, attributes_of(body, _SIZE))
            except (MalformedError, struct.error) as error:
                unknown.append(
                    Unknown(place=f"a {what} of {family.name}", reason=f"the kernel's message is not understood: {error}")
                )
            else:
                if found is not None:
                    yield found


def _read_rule(body: bytes, found: dict[int, bytes]) -> RoutingRule:
    family, to_length, from_length, tos, table, _, _, action, flags = unpack_from(_HEADER, body)
    mark = native(found.get(FRA_FWMARK))
    return RoutingRule(
        family=family, priority=native(found.get(FRA_PRIORITY)), action=action, table=native(found.get(FRA_TABLE), table),
        source=_prefix(found.get(FRA_SRC), from_length), destination=_prefix(found.get(FRA_DST), to_length), tos=tos, mark=mark,
        mask=native(found.get(FRA_FWMASK), FULL_MASK if mark else 0),
        in_interface=name(found.get(FRA_IIFNAME, b"")), out_interface=name(found.get(FRA_OIFNAME, b"")),
        users=_pair(found.get(FRA_UID_RANGE), "=II"), is_inverted=bool(flags & FIB_RULE_INVERT),
        is_l3mdev=bool(found.get(FRA_L3MDEV, b"\0")[0]), goes_to=native(found.get(FRA_GOTO)),
        suppresses_length=_signed(found.get(FRA_SUPPRESS_PREFIXLEN)), protocol=found.get(FRA_PROTOCOL, b"\0")[0],
        ip_protocol=found.get(FRA_IP_PROTO, b"\0")[0], source_ports=_pair(found.get(FRA_SPORT_RANGE), "=HH"),
        destination_ports=_pair(found.get(FRA_DPORT_RANGE), "=HH"), others=tuple(sorted(set(found) - _KNOWN_OF_RULES)),
    )  # fmt: skip


def _read_route(body: bytes, found: dict[int, bytes]) -> TableRoute | None:
    family, to_length, from_length, tos, table, protocol, scope, kind, flags = unpack_from(_HEADER, body)
    if flags & RTM_F_CLONED:  # an entry of a cache
        return None
    hops = _read_hops(found[RTA_MULTIPATH]) if RTA_MULTIPATH in found else ()
    if RTA_OIF in found:
        hops = (Hop(index=native(found[RTA_OIF])), *hops)
    preferred = found.get(RTA_PREFSRC)
    return TableRoute(
        family=family, table=native(found.get(RTA_TABLE), table), kind=kind,
        destination=_prefix(found.get(RTA_DST), to_length) or (0, to_length),
        source=_prefix(found.get(RTA_SRC), from_length) or (0, from_length), tos=tos, scope=scope, protocol=protocol,
        metric=native(found.get(RTA_PRIORITY)), hops=hops, preferred_source=inet_ntop(family, preferred) if preferred else "",
        others=tuple(sorted(set(found) - _KNOWN_OF_ROUTES)),
    )  # fmt: skip


def _read_hops(data: bytes) -> tuple[Hop, ...]:
    hops = []
    offset = 0
    while offset < len(data):
        length, _, weight, index = unpack_from("=HBBi", data.ljust(offset + 8, b"\0"), offset)
        if length < 8 or offset + length > len(data):  # noqa: PLR2004 - of the struct itself
            raise MalformedError("a multipath route's way is cut off")
        hops.append(Hop(index=index, weight=weight + 1))
        offset += length + 3 & ~3
    return tuple(hops)


def _prefix(value: bytes | None, length: int) -> tuple[int, int] | None:
    return (int.from_bytes(value, "big"), length) if value is not None else None


def _pair(value: bytes | None, form: str) -> tuple[int, int] | None:
    if value is None:
        return None
    first, last = unpack_from(form, value)
    return first, last


def _signed(value: bytes | None) -> int:
    return unpack_from("=i", value)[0] if value else -1
