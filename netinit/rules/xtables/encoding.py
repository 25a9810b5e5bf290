"""Matches and targets written as the structs of iptables' extensions: what `matches` and `targets` read."""

from __future__ import annotations

from _struct import pack

from netinit.base.net import FULL_MASK, IPV4, MAX_PORT, Family, bounds_of, number_of
from netinit.rules.foreign_targets import AsWritten, DestinationNat, Untrack
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
from netinit.rules.matches.packet import Owner, Port, Protocol
from netinit.rules.targets import LogTarget, Redirect, Reject, RestoreMark, SaveMark, SetMark, Target, Tproxy, TrackZone
from netinit.rules.xtables import structs
from netinit.rules.xtables.names import ADDRESS_TYPES, UNREACHABLE, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netinit.rules.matches import Match

    Struct = tuple[str, int, bytes]  # the extension's name, its revision, its struct


def encode_match(matches: Sequence[Match], family: Family = IPV4) -> Struct:
    """One match of iptables; several only where they are one of the module tcp's. ValueError where there is none."""
    if isinstance(matches[0], UnknownMatch) and isinstance(matches[0].kept, tuple):
        return matches[0].kept
    writer = _MATCHES.get(type(matches[0]))
    if writer is None:
        raise ValueError(f"{type(matches[0]).__name__}: iptables has no module for it")
    return _padded(writer(*matches), family)


def encode_target(target: Target, family: Family) -> Struct:
    """A target that is an extension. ValueError for others."""
    if isinstance(target, AsWritten) and isinstance(target.kept, tuple):
        return target.kept
    writer = _TARGETS.get(type(target))
    if writer is None:
        raise ValueError(f"{type(target).__name__}: iptables has no extension for it")
    return _padded(writer(target, family), family)


def encode_comment(text: str) -> Struct:
    """A comment, which iptables has as a match that always holds."""
    return _padded(("comment", 0, text.encode("utf-8", "surrogateescape")), IPV4)


def _padded(struct: Struct, family: Family) -> Struct:
    name, revision, info = struct
    return name, revision, info.ljust(structs.size_of(name, revision, family), b"\0")


def _write_protocol(match: Protocol) -> Struct:
    """The module of the protocol, which asks nothing more."""
    return _write_tcp() if match.name == "tcp" else _write_udp()


def _write_port(match: Port, *more: Match) -> Struct:
    if len(match.ports) == 1:
        return _write_tcp(match, *more) if match.protocol == "tcp" else _write_udp(match)
    return _write_multiport(match, structs.MULTIPORT_SIDES.index(match.source))


def _write_multiport(match: Port | EitherPort, side: int) -> Struct:
    numbers, ranges = [], []
    for low, high in map(bounds_of, match.ports):
        numbers += [low, high] if low < high else [low]
        ranges += [1, 0] if low < high else [0]
    rest = 15 - len(numbers)
    packed = pack("=2B15H15BB", side, len(numbers), *numbers, *[0] * rest, *ranges, *[0] * rest, match.negated)
    return "multiport", 1, packed


def _write_address_range(match: AddressRange) -> Struct:
    ends = [end.to_bytes(match.family.bits // 8, "big") for end in (match.first, match.last)]
    bit = dict(structs.SIDES)["source" if match.source else "destination"]
    flags = bit | (bit << structs.RANGE_INVERTED if match.negated else 0)
    nothing = [b"", b""]
    return "iprange", 1, pack(structs.ADDRESS_RANGE, *(ends + nothing if match.source else nothing + ends), flags)


def _write_tcp(*matches: Match) -> Struct:
    ends, mask, flags, inverted = [0, MAX_PORT, 0, MAX_PORT], 0, 0, 0
    for match in matches:
        if isinstance(match, Port):
            at = 0 if match.source else 2
            ends[at : at + 2] = bounds_of(match.ports[0])
            bit = structs.SOURCE_INVERTED if match.source else structs.DESTINATION_INVERTED
            inverted |= bit if match.negated else 0
        elif isinstance(match, TcpFlags):
            mask, flags = match.bits
            inverted |= structs.FLAGS_INVERTED if match.negated else 0
    return "tcp", 0, pack(structs.TCP, *ends, 0, mask, flags, inverted)


def _write_udp(*matches: Port) -> Struct:
    _, __, info = _write_tcp(*matches)
    return "udp", 0, info[:8] + info[-1:]


def _write_owner(match: Owner) -> Struct:
    ends = match.bounds
    bit = structs.OWNER_BITS[match.kind]
    numbers = [*ends, 0, 0] if match.kind == "uid" else [0, 0, *ends]
    return "owner", 1, pack(structs.OWNER, *numbers, bit, bit if match.negated else 0)


def _write_mark(match: Mark) -> Struct:
    return "connmark" if match.connection else "mark", 1, pack(structs.MARK, match.value, match.mask, match.negated)


def _write_state(match: ConnectionState) -> Struct:
    bits = sum([bit for name, bit in structs.CONNTRACK_BITS if name in match.states])
    asked = structs.STATE | (structs.STATE_ALIAS if match.module == "state" else 0)
    return _conntrack(asked, structs.STATE if match.negated else 0, bits)


def _write_direction(match: ConnectionDirection) -> Struct:
    return _conntrack(structs.DIRECTION, structs.DIRECTION if match.direction == "REPLY" else 0, 0)


def _conntrack(asked: int, inverted: int, bits: int) -> Struct:
    return "conntrack", 3, bytes(structs.CONNTRACK_AT) + pack(structs.CONNTRACK, asked, inverted, bits)


def _write_address_type(match: AddressType) -> Struct:
    types = sum([1 << ADDRESS_TYPES.index(name) for name in match.types])
    bit = dict(structs.SIDES)[match.side]
    sides = (types, 0) if match.side == "source" else (0, types)
    return "addrtype", 1, pack(structs.ADDRESS_TYPE, *sides, bit if match.negated else 0)


def _write_limit(match: Limit) -> Struct:
    return "limit", 0, pack(structs.LIMIT, structs.LIMIT_SCALE // match.rate, match.burst)


_MATCHES: dict[type, Callable[..., Struct]] = {
    Protocol: _write_protocol, Port: _write_port, TcpFlags: _write_tcp, Owner: _write_owner, Mark: _write_mark,
    ConnectionState: _write_state, ConnectionDirection: _write_direction, Socket: lambda _: ("socket", 3, b""),
    AddressType: _write_address_type, Limit: _write_limit, AddressRange: _write_address_range,
    EitherPort: lambda match: _write_multiport(match, structs.MULTIPORT_EITHER),
}  # fmt: skip


def _write_redirect(target: Redirect, family: Family) -> Struct:
    ports = pack(structs.PORTS, target.port, target.port)
    if family is IPV4:
        return "REDIRECT", 0, pack(structs.MULTI_RANGE, 1, structs.MAP_PORTS, b"", b"") + ports
    return "REDIRECT", 0, pack(structs.RANGE, structs.MAP_PORTS, b"", b"") + ports


def _write_dnat(target: DestinationNat, family: Family) -> Struct:
    flags = (structs.MAP_ADDRESSES if target.address else 0) | (structs.MAP_PORTS if target.port else 0)
    address = number_of(target.address).to_bytes(family.bits // 8, "big") if target.address else b""
    ports = pack(structs.PORTS, target.port, target.port)
    return "DNAT", 2, pack(structs.RANGE, flags, address, address) + ports


def _write_set_mark(target: SetMark, _: Family) -> Struct:
    if target.connection:
        return _connmark(target.value, target.mask, structs.CONNMARK_SET)
    return "MARK", 2, pack(structs.SET_MARK, target.value, target.mask)


def _connmark(value: int, mask: int, mode: int) -> Struct:
    return "CONNMARK", 2, pack(structs.CONNMARK_SHIFTED, value, mask, FULL_MASK, 0, 0, mode)


def _write_tproxy(target: Tproxy, family: Family) -> Struct:
    address = number_of(target.address).to_bytes(family.bits // 8, "big") if target.address else b""
    info = pack(structs.TPROXY, FULL_MASK, target.mark) + address.ljust(16, b"\0") + pack(">H", target.port)
    return "TPROXY", 1, info


def _write_reject(target: Reject, family: Family) -> Struct:
    """ValueError for a message that the family does not have."""
    names = structs.REJECTIONS[family.version]
    return "REJECT", 0, pack(structs.REJECT, names.index(target.message) if target.message else UNREACHABLE[family.version])


def _write_log(target: LogTarget, _: Family) -> Struct:
    prefix = target.prefix.encode("utf-8", "surrogateescape")
    if target.group:
        return "NFLOG", 0, pack(structs.NFLOG, 0, target.group, 0, 0, 0, prefix)
    return "LOG", 0, pack(structs.LOG, WARNING, 0, prefix)


_TARGETS: dict[type, Callable[..., Struct]] = {
    Redirect: _write_redirect, SetMark: _write_set_mark,
    SaveMark: lambda _, __: _connmark(0, FULL_MASK, structs.CONNMARK_SAVE),
    RestoreMark: lambda _, __: _connmark(0, FULL_MASK, structs.CONNMARK_RESTORE),
    TrackZone: lambda target, _: ("CT", 2, pack(structs.CT, 0, target.zone, 0, 0)), Tproxy: _write_tproxy, Reject: _write_reject,
    LogTarget: _write_log, DestinationNat: _write_dnat, Untrack: lambda _, __: ("CT", 2, pack(structs.CT, 1, 0, 0, 0)),
}  # fmt: skip
