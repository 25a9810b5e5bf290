"""Convert comparisons of registers to matches."""

from __future__ import annotations

import struct
from _functools import partial  # type: ignore[import-not-found] # functools takes 2 ms of a removal
from collections.abc import Callable
from sys import byteorder

from netinit.base.net import FAMILIES, FULL_MASK, Family, Network, split_range
from netinit.base.records import Record
from netinit.rules import numbers
from netinit.rules.expressions.registers import CT, FIB, META, PAYLOAD, Operand
from netinit.rules.matches import Match
from netinit.rules.matches.context import (
    AddressType,
    ConnectionDirection,
    ConnectionState,
    Mark,
    TcpFlags,
    UnknownMatch,
)
from netinit.rules.matches.packet import (
    Destination,
    InInterface,
    InterfaceMatch,
    OutInterface,
    Owner,
    Port,
    Protocol,
    Source,
)
from netinit.rules.structs import ADDRESS_TYPES, protocol_name

MAX_NETWORKS = 100_000
Range = tuple[bytes, bytes]


class RegisterTest(Record):
    """A comparison: the operand is in one of the ranges (both ends included), or if negated in none."""

    operand: Operand
    ranges: tuple[Range, ...]
    negated: bool = False

    @property
    def single(self) -> bytes | None:
        """The only value; None if there are several."""
        return self.ranges[0][0] if len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1] else None

    def unknown(self) -> list[Match]:
        """Return the comparison as an unknown match."""
        values = ", ".join([low.hex() if low == high else f"{low.hex()}-{high.hex()}" for low, high in self.ranges[:3]])
        mask = f" & {self.operand.mask.hex()}" if self.operand.mask else ""
        return [UnknownMatch(text=f"{self.operand}{mask} {'!=' if self.negated else '=='} {values}")]


class Known(Record):
    """What earlier comparisons of the rule determine: the possible families, and the protocol; and device names by index."""

    families: tuple[Family, ...]
    protocol: str = ""
    devices: dict[int, str]

    @property
    def family(self) -> Family | None:
        """The only family; None for both."""
        return self.families[0] if len(self.families) == 1 else None


def decode_comparison(compared: RegisterTest, known: Known) -> list[Match]:
    """Return the matches for a comparison; an unknown one if it is not understood."""
    operand = compared.operand
    reader = _READERS.get((operand.source, operand.key[0]))
    try:
        found = reader(compared, known) if reader else None
    except (ValueError, IndexError, struct.error, OverflowError):  # a value of unexpected length
        found = None
    return compared.unknown() if found is None else found


def families_of(compared: RegisterTest) -> tuple[Family, ...] | None:
    """Return the families that a comparison accepts; None if it is not about families."""
    operand, value = compared.operand, compared.single
    if operand.source != META or operand.mask or value is None:
        return None
    number = int.from_bytes(value, "big")
    chosen = None
    if operand.key == (numbers.META_NFPROTO,) and len(value) == 1:
        chosen = next((one for one in FAMILIES if one.number == number), None)
    elif operand.key == (numbers.META_PROTOCOL,) and len(value) == 2:  # noqa: PLR2004 - an ethertype's
        chosen = numbers.ETHERTYPES.get(number)
    if chosen is None:
        return None
    return tuple([one for one in FAMILIES if (one is chosen) is not compared.negated])


def _payload(compared: RegisterTest, known: Known) -> list[Match] | None:
    operand = compared.operand
    base, offset = operand.key
    if operand.xor.strip(b"\0") or operand.swapped:
        return None
    if base == numbers.NETWORK_HEADER and known.family:
        return _network_header(compared, int(offset), known.family)
    if base == numbers.TRANSPORT_HEADER and known.protocol in ("tcp", "udp"):
        return _transport_header(compared, int(offset), known.protocol)
    return None


def _network_header(compared: RegisterTest, offset: int, family: Family) -> list[Match] | None:
    length = compared.operand.length
    if (offset, compared.operand.mask, compared.negated, compared.single) == (0, b"\xf0", False, bytes([family.version << 4])):
        return []  # the version, which the family has already said
    fields = [numbers.PROTOCOL[family], *numbers.ADDRESSES[family]]
    for (start, size), kind in zip(fields, (None, Source, Destination), strict=True):
        if start == offset and length <= size:
            return _address(compared, family, kind) if kind else _protocol(compared, Known(families=(family,), devices={}))
    return _split(compared, offset, fields, family)


def _split(
    compared: RegisterTest, offset: int, fields: list[tuple[int, int]], family: Family | None, protocol: str = ""
) -> list[Match] | None:
    """Decode fields that were loaded and compared together."""
    value = compared.single
    if value is None or compared.negated or len(value) != compared.operand.length:
        return None
    found: list[Match] = []
    at = offset
    known = Known(families=(family,) if family else (), protocol=protocol, devices={})
    while at < offset + len(value):
        size = next((size for start, size in sorted(fields) if start == at), 0)
        piece = value[at - offset : at - offset + size]
        if not piece or len(piece) == compared.operand.length:
            return None
        operand = compared.operand.replace(
            key=(compared.operand.key[0], at), length=len(piece), mask=compared.operand.mask[at - offset : at - offset + size]
        )
        found += decode_comparison(RegisterTest(operand=operand, ranges=((piece, piece),)), known)
        at += size
    return found


def _address(compared: RegisterTest, family: Family, kind: type[Source | Destination]) -> list[Match] | None:
    size = family.bits // 8
    mask = compared.operand.mask
    networks: list[Network] = []
    for low, high in compared.ranges:
        if max(len(low), len(high)) > size or (mask and low != high):
            return None
        first, last = (int.from_bytes(end.ljust(size, pad), "big") for end, pad in ((low, b"\0"), (high, b"\xff")))
        if mask:
            bits = int.from_bytes(mask.ljust(size, b"\0"), "big")
            length = bits.bit_count()
            if bits != (1 << family.bits) - (1 << family.bits - length) or first & ~bits:
                return None
            networks.append(Network((family.version, first, length)))
        else:
            networks += split_range(first, last, family)
            if len(networks) > MAX_NETWORKS:
                return None
    return [kind(networks=tuple(networks), negated=compared.negated)] if networks else None


def _transport_header(compared: RegisterTest, offset: int, protocol: str) -> list[Match] | None:
    operand = compared.operand
    if protocol == "tcp" and (offset, operand.length) == (numbers.TCP_FLAGS_AT, 1):
        return _tcp_flags(compared)
    for start, size, is_source in numbers.PORTS:
        if (offset, operand.length) == (start, size) and not operand.mask:
            ports = tuple([
                low if low == high else (low, high)
                for low, high in ((int.from_bytes(low, "big"), int.from_bytes(high, "big")) for low, high in compared.ranges)
            ])
            return [Port(protocol=protocol, ports=ports, source=is_source, negated=compared.negated)]
    return None if operand.mask else _split(compared, offset, [(start, size) for start, size, _ in numbers.PORTS], None, protocol)


def _tcp_flags(compared: RegisterTest) -> list[Match] | None:
    value = compared.single
    mask = compared.operand.mask[0] if compared.operand.mask else 0xFF
    if value is None or mask & ~0x3F or value[0] & ~mask:
        return None
    if not value[0] and compared.negated and mask & mask - 1 == 0:  # nft's `tcp flags syn`: that flag is set
        return [TcpFlags.from_bits(mask, mask, negated=False)]
    return [TcpFlags.from_bits(mask, value[0], negated=compared.negated)]


def _protocol(compared: RegisterTest, _: Known) -> list[Match] | None:
    value = compared.single
    if value is None or compared.operand.mask or len(value) != 1:
        return None
    return [Protocol(name=protocol_name(value[0]), negated=compared.negated)]


def _interface(compared: RegisterTest, _: Known, *, kind: type[InterfaceMatch]) -> list[Match] | None:
    names = []
    for low, high in compared.ranges:
        name = low.rstrip(b"\0").decode("utf-8", "surrogateescape")
        if compared.operand.mask or not name or b"\0" in low.rstrip(b"\0"):
            return None
        if low == high and len(low) < numbers.INTERFACE_NAME and not low.endswith(b"\0"):  # only a prefix is compared
            name = f"{name}+"
        elif low != high:
            if low.rstrip(b"\0") != high.rstrip(b"\xff") or len(low) != numbers.INTERFACE_NAME:
                return None
            name = f"{name}+"
        names.append(name)
    return [kind(names=tuple(names), negated=compared.negated)]


def _device(compared: RegisterTest, known: Known, *, kind: type[InterfaceMatch]) -> list[Match] | None:
    indexes = [int.from_bytes(low, byteorder) for low, high in compared.ranges if low == high]
    if compared.operand.mask or len(indexes) < len(compared.ranges) or not known.devices.keys() >= set(indexes):
        return None
    return [kind(names=tuple([known.devices[index] for index in indexes]), negated=compared.negated)]


def _number(compared: RegisterTest, value: bytes) -> int:
    return int.from_bytes(value, "big" if compared.operand.swapped else byteorder)


def _mark(compared: RegisterTest, _: Known, *, connection: bool) -> list[Match] | None:
    value = compared.single
    if value is None or compared.operand.xor.strip(b"\0"):
        return None
    mask = int.from_bytes(compared.operand.mask, byteorder) if compared.operand.mask else FULL_MASK
    return [Mark(value=_number(compared, value), mask=mask, connection=connection, negated=compared.negated)]


def _owner(compared: RegisterTest, _: Known, *, kind: str) -> list[Match] | None:
    if compared.operand.mask or len(compared.ranges) != 1:
        return None
    low, high = compared.ranges[0]
    if low != high and not compared.operand.swapped:
        return None
    first, last = _number(compared, low), _number(compared, high)
    return [Owner(kind=kind, number=first, last=None if first == last else last, negated=compared.negated)]


def _bits(compared: RegisterTest) -> tuple[int, bool] | None:
    """Return the bits of which one must be set, and whether negated; None for any other test."""
    value = compared.single
    if value is None or compared.operand.swapped or compared.operand.xor.strip(b"\0"):
        return None
    number = int.from_bytes(value, byteorder)
    if compared.operand.mask:
        mask = int.from_bytes(compared.operand.mask, byteorder)
        return None if number else (mask, not compared.negated)
    return (number, compared.negated) if number and number & number - 1 == 0 else None


def _state(compared: RegisterTest, _: Known) -> list[Match] | None:
    by_bit = {bit: name for name, bit in numbers.STATES}
    if not compared.operand.mask and len(compared.ranges) > 1:  # a connection has one state
        bits = 0
        for low, high in compared.ranges:
            if low != high or int.from_bytes(low, byteorder) not in by_bit:
                return None
            bits |= int.from_bytes(low, byteorder)
        asked: tuple[int, bool] | None = (bits, compared.negated)
    else:
        asked = _bits(compared)
    if asked is None or asked[0] & ~sum(by_bit):
        return None
    return [ConnectionState(states=tuple([name for name, bit in numbers.STATES if asked[0] & bit]), negated=asked[1])]


def _status(compared: RegisterTest, _: Known) -> list[Match] | None:
    asked = _bits(compared) if compared.operand.mask else None
    if asked is None or asked[0] & ~sum([bit for _, bit in numbers.STATUSES]):
        return None
    return [ConnectionState(states=tuple([name for name, bit in numbers.STATUSES if asked[0] & bit]), negated=asked[1])]


def _direction(compared: RegisterTest, _: Known) -> list[Match] | None:
    if compared.operand.mask or compared.negated or compared.single not in (b"\0", b"\1"):
        return None
    return [ConnectionDirection(direction="REPLY" if compared.single == b"\1" else "ORIGINAL")]


def _fib(compared: RegisterTest, _: Known) -> list[Match] | None:
    side = {numbers.FIB_SADDR: "source", numbers.FIB_DADDR: "destination"}.get(int(compared.operand.key[1]))
    if side is None or compared.operand.mask:
        return None
    codes = [int.from_bytes(low, byteorder) for low, high in compared.ranges if low == high]
    if len(codes) < len(compared.ranges) or any(number >= len(ADDRESS_TYPES) for number in codes):
        return None
    types = tuple([name for number, name in enumerate(ADDRESS_TYPES) if number in codes])
    return [AddressType(side=side, types=types, negated=compared.negated)]


_READERS: dict[tuple[str, int | str], Callable[[RegisterTest, Known], list[Match] | None]] = {
    (PAYLOAD, numbers.NETWORK_HEADER): _payload,
    (PAYLOAD, numbers.TRANSPORT_HEADER): _payload,
    (META, numbers.META_L4PROTO): _protocol,
    (META, numbers.META_IIFNAME): partial(_interface, kind=InInterface),
    (META, numbers.META_OIFNAME): partial(_interface, kind=OutInterface),
    (META, numbers.META_IIF): partial(_device, kind=InInterface),
    (META, numbers.META_OIF): partial(_device, kind=OutInterface),
    (META, numbers.META_MARK): partial(_mark, connection=False),
    (META, numbers.META_SKUID): partial(_owner, kind="uid"),
    (META, numbers.META_SKGID): partial(_owner, kind="gid"),
    (CT, numbers.CT_STATE): _state,
    (CT, numbers.CT_DIRECTION): _direction,
    (CT, numbers.CT_STATUS): _status,
    (CT, numbers.CT_MARK): partial(_mark, connection=True),
    (FIB, numbers.FIB_ADDRTYPE): _fib,
}
