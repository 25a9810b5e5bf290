"""Read matches of `rules.matches.context`: on marks, states and directions of connections, types of addresses, sockets, rates."""

from __future__ import annotations

from _functools import partial  # type: ignore[import-not-found] # functools takes 2 ms of a removal
from struct import unpack_from
from sys import byteorder

from netinit.base.net import FULL_MASK, Family, Network, family_of, number_of, text_of
from netinit.rules import numbers, structs
from netinit.rules.decoding import read_masked, read_number
from netinit.rules.decoding.registers import CT, FIB, META, Known, RegisterTest
from netinit.rules.matches import Match
from netinit.rules.matches.context import AddressType, ConnectionDirection, ConnectionState, Limit, Mark, Socket
from netinit.rules.matches.foreign import OriginalEnd, name_unread
from netinit.rules.structs import ADDRESS_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.decoding.registers import ComparisonReader, OptionReader, StructReader

_STATES = tuple([name for name, _ in structs.CONNTRACK_BITS])  # as iptables lists them

# ---- options of iptables -------------------------------------------------------------------------------------------------


def _mark_option(values: list[str], negated: bool, _: str, *, connection: bool) -> Match | None:
    found = read_masked(values[0]) if len(values) == 1 else None
    return None if found is None else Mark(value=found[0], mask=found[1], connection=connection, negated=negated)


def _states_option(values: list[str], negated: bool, _: str, *, module: str) -> Match | None:
    words = values[0].split(",") if len(values) == 1 else []
    if not words or not set(words) <= set(_STATES):
        return None
    return ConnectionState(states=tuple([state for state in _STATES if state in words]), module=module, negated=negated)


def _direction_option(values: list[str], negated: bool, _: str) -> Match | None:
    return ConnectionDirection(direction=values[0]) if values in (["ORIGINAL"], ["REPLY"]) and not negated else None


def _address_type_option(values: list[str], negated: bool, _: str, *, side: str) -> Match | None:
    return AddressType(side=side, types=tuple(values[0].split(",")), negated=negated) if len(values) == 1 else None


_ORIGINAL = ("--ctorigsrc", "--ctorigdst", "--ctorigsrcport", "--ctorigdstport")


def _original_option(values: list[str], negated: bool, _: str, *, source: bool) -> Match | None:
    if len(values) != 1:
        return None
    if "." in values[0] or values[0].count(":") > 1:
        address, _, mask = values[0].partition("/")
        family = family_of(address)
        if "." in mask:  # as older iptables lists it
            mask = str(number_of(mask).bit_count())
        try:
            networks = (Network.parse(f"{address}/{mask or family.bits}"),)
        except ValueError:
            return None
        return OriginalEnd(source=source, networks=networks, negated=negated)
    first, _, last = values[0].partition(":")
    low, high = read_number(first), read_number(last or first)
    return None if low is None or high is None else OriginalEnd(source=source, ports=((low, high),), negated=negated)


OPTIONS: dict[str, dict[str, OptionReader | None]] = {
    "mark": {"--mark": partial(_mark_option, connection=False)},
    "connmark": {"--mark": partial(_mark_option, connection=True)},
    "conntrack": {
        "--ctstate": partial(_states_option, module="conntrack"),
        "--ctproto": None, **{option: partial(_original_option, source="src" in option) for option in _ORIGINAL},
        **dict.fromkeys(("--ctreplsrc", "--ctrepldst", "--ctreplsrcport", "--ctrepldstport", "--ctstatus", "--ctexpire")),
        "--ctdir": _direction_option,
    },
    "state": {"--state": partial(_states_option, module="state")},
    "socket": dict.fromkeys(("--transparent", "--nowildcard", "--restore-skmark")),
    "addrtype": {
        "--src-type": partial(_address_type_option, side="source"), "--dst-type": partial(_address_type_option, side="destination"),
        "--limit-iface-in": None, "--limit-iface-out": None,
    },
    "limit": {"--limit": None, "--limit-burst": None},
    "comment": {"--comment": None},
}  # fmt: skip


def _read_limit_options(words: list[str]) -> list[Match] | None:
    """Return the limit per second; None for other units."""
    if len(words) != 4 or (words[0], words[2]) != ("--limit", "--limit-burst"):  # noqa: PLR2004
        return None
    rate, burst = read_number(words[1].partition("/")[0]), read_number(words[3])
    per_second = words[1].partition("/")[2] == "sec"  # as it is listed
    return [Limit(rate=rate, burst=burst)] if rate and burst and per_second else None


def _read_socket_options(words: list[str]) -> list[Match] | None:
    return None if words else [Socket()]  # options narrow it down by what only the kernel knows


WHOLE = {"limit": _read_limit_options, "socket": _read_socket_options}  # modules whose options are read together

# ---- structs of extensions -----------------------------------------------------------------------------------------------


def _read_mark(info: bytes, _: str, __: Family | None, *, connection: bool) -> list[Match]:
    value, mask, inverted = unpack_from(structs.MARK, info)
    return [Mark(value=value, mask=mask, connection=connection, negated=bool(inverted))]


def _read_conntrack(info: bytes, _: str, family: Family | None) -> list[Match] | None:
    """Read struct xt_conntrack_mtinfo2 and 3 that asks for a state, a direction, ends of the first packet, or several of these."""
    asked, inverted, bits = unpack_from(structs.CONNTRACK, info, structs.CONNTRACK_AT)
    found: list[Match] = []
    if inverted & ~asked:
        return None
    if asked & structs.STATE:
        module = "state" if asked & structs.STATE_ALIAS else "conntrack"
        if not (states := _states(bits, structs.CONNTRACK_BITS)):
            return None
        found.append(ConnectionState(states=states, module=module, negated=bool(inverted & structs.STATE)))
        asked &= ~(structs.STATE | structs.STATE_ALIAS)
    for source in (True, False):
        bit, at = structs.ORIGINAL_ADDRESSES[source], structs.ORIGINAL_ADDRESSES_AT[source]
        network = _read_network(info[at:], family) if asked & bit and family else None
        if network:
            found.append(OriginalEnd(source=source, networks=(network,), negated=bool(inverted & bit)))
            asked &= ~bit
    for source in (True, False):
        bit, ends = structs.ORIGINAL_PORTS[source], structs.ORIGINAL_PORTS_AT[source]
        if asked & bit:
            low, high = (unpack_from("=H", info, at)[0] for at in ends)
            found.append(OriginalEnd(source=source, ports=((low, high),), negated=bool(inverted & bit)))
            asked &= ~bit
    if asked & structs.DIRECTION:
        found.append(ConnectionDirection(direction="REPLY" if inverted & structs.DIRECTION else "ORIGINAL"))
    return None if asked & ~structs.DIRECTION else found or None


def _read_network(packed: bytes, family: Family) -> Network | None:
    """Read an address and its mask, each as union nf_inet_addr; None for masks that are none of a network."""
    address, mask = (int.from_bytes(packed[at : at + family.bits // 8], "big") for at in (0, 16))
    length = mask.bit_count()
    contiguous = mask == (1 << family.bits) - (1 << family.bits - length)
    return Network.parse(f"{text_of(address, family)}/{length}") if contiguous else None


def _read_state(info: bytes, _: str, __: Family | None) -> list[Match] | None:
    states = _states(unpack_from("=I", info)[0], numbers.STATES)
    return [ConnectionState(states=states, module="state")] if states else None


def _states(bits: int, known: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Return the names of the bits; none if one is unknown."""
    return () if bits & ~sum([bit for _, bit in known]) else tuple([name for name, bit in known if bits & bit])


def _read_socket(info: bytes, _: str, __: Family | None) -> list[Match] | None:
    return None if any(info[:1]) else [Socket()]  # flags narrow it down by what only the kernel knows


def _read_address_type(info: bytes, _: str, __: Family | None) -> list[Match] | None:
    *asked, flags = unpack_from(structs.ADDRESS_TYPE, info)
    if flags & ~3:  # limited to an interface
        return None
    found: list[Match] = []
    for at, (side, bit) in enumerate(structs.SIDES):
        types = tuple([name for number, name in enumerate(ADDRESS_TYPES) if asked[at] >> number & 1])
        if asked[at] >> len(ADDRESS_TYPES):
            return None
        if types:
            found.append(AddressType(side=side, types=types, negated=bool(flags & bit)))
    return found or None


def _read_limit(info: bytes, _: str, __: Family | None) -> list[Match] | None:
    """Read a limit that iptables lists per second."""
    period, burst = unpack_from(structs.LIMIT, info)
    rate, rest = divmod(structs.LIMIT_SCALE, period) if period else (0, 0)
    return [Limit(rate=rate, burst=burst)] if rate and rate >= rest else None  # in another unit where it is more exact


def _read_lifetime(info: bytes, _: str, __: Family | None, *, name: str) -> list[Match] | None:
    """Read struct ipt_ttl_info or ip6t_hl_info: how it is compared, and with what."""
    mode, number = unpack_from("=2B", info)
    options = (f"--{name}-eq", f"! --{name}-eq", f"--{name}-lt", f"--{name}-gt")  # IPT_TTL_EQ, _NE, _LT, _GT
    return [name_unread(f"-m {name} {options[mode]} {number}", (name, 0, info))] if mode < len(options) else None


STRUCTS: dict[tuple[str, int], StructReader] = {
    ("mark", 1): partial(_read_mark, connection=False),
    ("connmark", 1): partial(_read_mark, connection=True),
    **dict.fromkeys((("conntrack", 2), ("conntrack", 3)), _read_conntrack),
    ("state", 0): _read_state,
    ("socket", 0): lambda *_: [Socket()],
    **dict.fromkeys((("socket", 1), ("socket", 2), ("socket", 3)), _read_socket),
    ("addrtype", 1): _read_address_type,
    ("limit", 0): _read_limit,
    **{(name, 0): partial(_read_lifetime, name=name) for name in ("ttl", "hl")},
}

# ---- comparisons of nf_tables --------------------------------------------------------------------------------------------


def _mark(compared: RegisterTest, _: Known, *, connection: bool) -> list[Match] | None:
    value = compared.single
    if value is None or compared.operand.xor:
        return None
    mask = int.from_bytes(compared.operand.mask, byteorder) if compared.operand.mask else FULL_MASK
    return [Mark(value=compared.number(value), mask=mask, connection=connection, negated=compared.negated)]


def _state(compared: RegisterTest, _: Known, *, known: tuple[tuple[str, int], ...]) -> list[Match] | None:
    by_bit = {bit: name for name, bit in known}
    if compared.operand.mask:  # whether one of these bits is set
        if compared.single is None or any(compared.single) or compared.operand.swapped or compared.operand.xor:
            return None
        asked, negated = int.from_bytes(compared.operand.mask, byteorder), not compared.negated
    else:
        asked, negated = sum({compared.number(low) for low, _ in compared.ranges}), compared.negated
        single = all(low == high and compared.number(low) in by_bit for low, high in compared.ranges)
        if not single or known is numbers.STATUSES:  # of which a connection may have several; it has one state
            return None
    if not asked or asked & ~sum(by_bit):
        return None
    return [ConnectionState(states=tuple([name for name, bit in known if asked & bit]), negated=negated)]


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


OPERANDS: dict[tuple[str, int | str], ComparisonReader] = {
    (META, numbers.META_MARK): partial(_mark, connection=False),
    (CT, numbers.CT_STATE): partial(_state, known=numbers.STATES),
    (CT, numbers.CT_DIRECTION): _direction,
    (CT, numbers.CT_STATUS): partial(_state, known=numbers.STATUSES),
    (CT, numbers.CT_MARK): partial(_mark, connection=True),
    (FIB, numbers.FIB_ADDRTYPE): _fib,
}
