"""Read matches of `rules.matches.packet`: on addresses, interfaces, protocols, ports and owners; and those with two sides."""

from __future__ import annotations

from _functools import partial  # type: ignore[import-not-found] # functools takes 2 ms of a removal
from struct import unpack_from
from sys import byteorder

from netinit.base.net import FULL_MASK, MAX_PORT, Family, Network, family_of, number_of, split_range
from netinit.rules import numbers, structs
from netinit.rules.decoding import read_number
from netinit.rules.decoding.registers import META, PAYLOAD, Known, RegisterTest
from netinit.rules.matches import Match, packet
from netinit.rules.matches.context import BARE_SYN, FLAGS, TcpFlags
from netinit.rules.matches.foreign import AddressRange, EitherPort
from netinit.rules.matches.packet import Destination, InterfaceMatch, Owner, Port, Protocol, Source
from netinit.rules.structs import protocol_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from netinit.rules.decoding.registers import ComparisonReader, OptionReader, StructReader

MAX_NETWORKS = 100_000

# ---- options of iptables -------------------------------------------------------------------------------------------------


def _read_port_range(text: str) -> tuple[int, int] | None:
    low, colon, high = text.partition(":")
    first = read_number(low) if low or not colon else 0
    last = (read_number(high) if high else MAX_PORT) if colon else first
    if first is None or last is None or not first <= last <= MAX_PORT:
        return None
    return first, last


def _port_option(values: list[str], negated: bool, protocol: str, *, source: bool = False, several: bool = False) -> Port | None:
    texts = values[0].split(",") if several and values else values
    known = tuple([found for found in map(_read_port_range, texts) if found is not None])
    if len(values) != 1 or len(known) != len(texts) or protocol not in ("tcp", "udp"):
        return None
    return Port(protocol=protocol, ports=_ports(*known), source=source, negated=negated)


def _either_port_option(values: list[str], negated: bool, protocol: str) -> Match | None:
    found = _port_option(values, negated, protocol, several=True)
    return EitherPort(protocol=protocol, ports=found.ports, negated=negated) if found else None


def _flags_option(values: list[str], negated: bool, _: str) -> Match | None:
    sets = [set(FLAGS if value == "ALL" else () if value == "NONE" else value.split(",")) for value in values]
    if len(sets) != 2 or not sets[0] | sets[1] <= set(FLAGS):  # noqa: PLR2004 - the mask, the flags
        return None
    mask, flags = (tuple([flag for flag in FLAGS if flag in words]) for words in sets)
    return TcpFlags(mask=mask, flags=flags, negated=negated)


def _address_range_option(values: list[str], negated: bool, _: str, *, source: bool) -> Match | None:
    low, dash, high = (values[0] if len(values) == 1 else "").partition("-")
    if not dash or family_of(low) is not family_of(high):
        return None
    try:
        first, last = number_of(low), number_of(high)
    except (OSError, ValueError):
        return None
    return AddressRange(family=family_of(low), first=first, last=last, source=source, negated=negated) if first <= last else None


def _owner_option(values: list[str], negated: bool, _: str, *, kind: str) -> Match | None:
    first, dash, last = (values[0] if len(values) == 1 else "").partition("-")
    low = read_number(first)
    high = read_number(last) if dash else low
    if low is None or high is None or low > high:
        return None  # a name, which another image may give another number
    return Owner(kind=kind, first=low, last=high, negated=negated)


_PORTS: dict[str, OptionReader | None] = {
    name: partial(_port_option, source=name.startswith("--s"))
    for name in ("--sport", "--source-port", "--dport", "--destination-port")
}
OPTIONS: dict[str, dict[str, OptionReader | None]] = {
    "tcp": {
        **_PORTS, "--tcp-flags": _flags_option,
        "--syn": lambda values, negated, _: None if values else BARE_SYN.replace(negated=negated), "--tcp-option": None,
    },
    "udp": _PORTS,
    "multiport": {
        **{
            name: partial(_port_option, source=name.startswith("--s"), several=True)
            for name in ("--sports", "--source-ports", "--dports", "--destination-ports")
        },
        "--ports": _either_port_option,
    },
    "iprange": {f"--{side}-range": partial(_address_range_option, source=side == "src") for side in ("src", "dst")},
    "owner": {
        **{f"--{kind}-owner": partial(_owner_option, kind=kind) for kind in ("uid", "gid")},
        "--socket-exists": lambda values, negated, _: None if values else _owner_of_any(negated=negated), "--suppl-groups": None,
    },
}  # fmt: skip


def _owner_of_any(*, negated: bool) -> Owner:
    return Owner(kind="uid", first=0, last=FULL_MASK, negated=negated)


# ---- structs of extensions -----------------------------------------------------------------------------------------------


def _read_tcp(info: bytes, _: str, __: Family | None, *, protocol: str) -> list[Match] | None:
    """Read struct xt_tcp or xt_udp: no match for all ports, unless inverted, which never matches."""
    first, last, low, high, *rest = unpack_from(structs.TCP if protocol == "tcp" else structs.UDP, info)
    option, mask, flags, inverted = rest if protocol == "tcp" else (0, 0, 0, *rest)
    if inverted & ~(7 if mask else 3) or option or flags & ~mask or mask & ~0x3F or first > last or low > high:
        return None
    found: list[Match] = [
        Port(protocol=protocol, ports=ports, source=source, negated=bool(inverted & bit))
        for ports, source, bit in (
            (_ports((first, last)), True, structs.SOURCE_INVERTED), (_ports((low, high)), False, structs.DESTINATION_INVERTED)
        )
        if ports != ((0, MAX_PORT),) or inverted & bit
    ]  # fmt: skip
    if mask:
        found.append(TcpFlags.from_bits(mask, flags, negated=bool(inverted & structs.FLAGS_INVERTED)))
    return found


def _ports(*ranges: tuple[int, int]) -> tuple[int | tuple[int, int], ...]:
    """Return ranges as a match has them: single ports as numbers."""
    return tuple([low if low == high else (low, high) for low, high in ranges])


def _read_multiport(info: bytes, protocol: str, _: Family | None) -> list[Match] | None:
    side, count = unpack_from(structs.MULTIPORT, info)
    numbers, flags = unpack_from("=15H", info, structs.MULTIPORT_NUMBERS), unpack_from("=15B", info, structs.MULTIPORT_RANGES)
    inverted = unpack_from("=B", info, structs.MULTIPORT_INVERTED)[0]
    if side > structs.MULTIPORT_EITHER or not 0 < count <= packet.MAX_MULTIPORTS or protocol not in ("tcp", "udp"):
        return None
    ports: list[int | tuple[int, int]] = []
    at = 0
    while at < count:
        is_range = bool(flags[at])  # of which it is the first port
        if at + is_range == count:
            return None
        ports.append((numbers[at], numbers[at + 1]) if is_range else numbers[at])
        at += 1 + is_range
    if side == structs.MULTIPORT_EITHER:
        return [EitherPort(protocol=protocol, ports=tuple(ports), negated=bool(inverted))]
    return [Port(protocol=protocol, ports=tuple(ports), source=structs.MULTIPORT_SIDES[side], negated=bool(inverted))]


def _read_address_range(info: bytes, _: str, family: Family | None) -> list[Match] | None:
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


def _read_owner(info: bytes, _: str, __: Family | None) -> list[Match] | None:
    first_user, last_user, first_group, last_group, asked, inverted = unpack_from(structs.OWNER, info)
    if asked & ~7 or inverted & ~asked:
        return None
    found: list[Match] = []
    if asked & structs.OWNER_SOCKET:  # whatever owner it has
        found.append(_owner_of_any(negated=bool(inverted & structs.OWNER_SOCKET)))
    for kind, low, high in (("uid", first_user, last_user), ("gid", first_group, last_group)):
        bit = structs.OWNER_BITS[kind]
        if asked & bit:
            found.append(Owner(kind=kind, first=low, last=high, negated=bool(inverted & bit)))
    return found or None


STRUCTS: dict[tuple[str, int], StructReader] = {
    ("tcp", 0): partial(_read_tcp, protocol="tcp"),
    ("udp", 0): partial(_read_tcp, protocol="udp"),
    ("multiport", 1): _read_multiport,
    ("iprange", 1): _read_address_range,
    ("owner", 1): _read_owner,
}

# ---- comparisons of nf_tables --------------------------------------------------------------------------------------------


def _payload(compared: RegisterTest, known: Known) -> list[Match] | None:
    operand = compared.operand
    base, offset = operand.key
    if operand.xor or operand.swapped:
        return None
    if base == numbers.NETWORK_HEADER and known.family:
        return _network_header(compared, int(offset), known, known.family)
    if base == numbers.TRANSPORT_HEADER and known.protocol in ("tcp", "udp"):
        return _transport_header(compared, int(offset), known)
    return None


def _network_header(compared: RegisterTest, offset: int, known: Known, family: Family) -> list[Match] | None:
    length = compared.operand.length
    if (offset, compared.operand.mask, compared.negated, compared.single) == (0, b"\xf0", False, bytes([family.version << 4])):
        return []  # the version, which the family has already said
    source, destination = numbers.ADDRESSES[family]
    fields = {numbers.PROTOCOL[family]: None, source: Source, destination: Destination}
    for (start, size), kind in fields.items():
        if start == offset and length <= size:
            return _address(compared, family, kind) if kind else _protocol(compared, known)
    return _split(compared, offset, list(fields), known)


def _split(compared: RegisterTest, offset: int, fields: list[tuple[int, int]], known: Known) -> list[Match] | None:
    """Decode fields that were loaded and compared together."""
    value = compared.single
    if value is None or compared.negated or len(value) != compared.operand.length:
        return None
    found: list[Match] = []
    at = offset
    while at < offset + len(value):
        size = next((size for start, size in fields if start == at), 0)
        piece = value[at - offset : at - offset + size]
        if not piece or len(piece) == compared.operand.length:
            return None
        operand = compared.operand.replace(
            key=(compared.operand.key[0], at), length=len(piece), mask=compared.operand.mask[at - offset : at - offset + size]
        )
        part = RegisterTest(operand=operand, ranges=((piece, piece),))
        decoded = _payload(part, known)
        found += part.unknown() if decoded is None else decoded
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


def _transport_header(compared: RegisterTest, offset: int, known: Known) -> list[Match] | None:
    operand, protocol = compared.operand, known.protocol
    if protocol == "tcp" and (offset, operand.length) == (numbers.TCP_FLAGS_AT, 1):
        return _tcp_flags(compared)
    for start, size, is_source in numbers.PORTS:
        if (offset, operand.length) == (start, size) and not operand.mask:
            ports = _ports(*[(int.from_bytes(low, "big"), int.from_bytes(high, "big")) for low, high in compared.ranges])
            return [Port(protocol=protocol, ports=ports, source=is_source, negated=compared.negated)]
    return None if operand.mask else _split(compared, offset, [(start, size) for start, size, _ in numbers.PORTS], known)


def _tcp_flags(compared: RegisterTest) -> list[Match] | None:
    value = compared.single
    mask = compared.operand.mask
    if value is None or not mask or mask[0] & ~0x3F or value[0] & ~mask[0]:
        return None
    if not value[0] and compared.negated and mask[0] & mask[0] - 1 == 0:  # nft's `tcp flags syn`: that flag is set
        return [TcpFlags.from_bits(mask[0], mask[0], negated=False)]
    return [TcpFlags.from_bits(mask[0], value[0], negated=compared.negated)]


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


def _owner(compared: RegisterTest, _: Known, *, kind: str) -> list[Match] | None:
    if compared.operand.mask or len(compared.ranges) != 1:
        return None
    low, high = compared.ranges[0]
    if low != high and not compared.operand.swapped:
        return None
    return [Owner(kind=kind, first=compared.number(low), last=compared.number(high), negated=compared.negated)]


def list_users(matches: Iterable[Match]) -> list[int]:
    """Return the users that matches name one by one, without ranges and negated matches."""
    owners = [one for one in matches if isinstance(one, Owner) and one.kind == "uid"]
    return [one.first for one in owners if one.first == one.last and not one.negated]


OPERANDS: dict[tuple[str, int | str], ComparisonReader] = {
    (PAYLOAD, numbers.NETWORK_HEADER): _payload,
    (PAYLOAD, numbers.TRANSPORT_HEADER): _payload,
    (META, numbers.META_L4PROTO): _protocol,
    (META, numbers.META_IIFNAME): partial(_interface, kind=packet.InInterface),
    (META, numbers.META_OIFNAME): partial(_interface, kind=packet.OutInterface),
    (META, numbers.META_IIF): partial(_device, kind=packet.InInterface),
    (META, numbers.META_OIF): partial(_device, kind=packet.OutInterface),
    (META, numbers.META_SKUID): partial(_owner, kind="uid"),
    (META, numbers.META_SKGID): partial(_owner, kind="gid"),
}
