"""Parse the options of iptables' match modules."""

from __future__ import annotations

from netinit.base.net import FULL_MASK, MAX_PORT, family_of, number_of
from netinit.rules.matches import Match
from netinit.rules.matches.context import (
    BARE_SYN,
    FLAGS,
    AddressType,
    ConnectionDirection,
    ConnectionState,
    Limit,
    Mark,
    Socket,
    TcpFlags,
)
from netinit.rules.matches.foreign import AddressRange, EitherPort
from netinit.rules.matches.packet import Owner, Port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_STATES = ("INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT")  # as iptables lists them
_PORT_OPTIONS = ("--sport", "--source-port", "--dport", "--destination-port")

# Which options belong to a module, wherever they stand, in the order of listing; only modules that are understood.
KNOWN_OPTIONS: dict[str, tuple[str, ...]] = {
    "tcp": (*_PORT_OPTIONS, "--tcp-flags", "--syn", "--tcp-option"),
    "udp": _PORT_OPTIONS,
    "multiport": ("--sports", "--source-ports", "--dports", "--destination-ports", "--ports"),
    "iprange": ("--src-range", "--dst-range"),
    "owner": ("--uid-owner", "--gid-owner", "--socket-exists", "--suppl-groups"),
    "mark": ("--mark",),
    "connmark": ("--mark",),
    "conntrack": ("--ctstate", "--ctproto", "--ctorigsrc", "--ctorigdst", "--ctreplsrc", "--ctrepldst", "--ctorigsrcport",
                  "--ctorigdstport", "--ctreplsrcport", "--ctrepldstport", "--ctstatus", "--ctexpire", "--ctdir"),
    "state": ("--state",),
    "socket": ("--transparent", "--nowildcard", "--restore-skmark"),
    "addrtype": ("--src-type", "--dst-type", "--limit-iface-in", "--limit-iface-out"),
    "limit": ("--limit", "--limit-burst"),
    "comment": ("--comment",),
}  # fmt: skip


def read_module(name: str, words: list[str], protocol: str) -> list[Match] | None:
    """Return a match for each option of a module, in listing order; None if an option is not understood."""
    reader = _READERS.get(name)
    if name == "limit":
        return _read_limit(words)
    if reader is None:
        return None
    found: list[tuple[int, Match]] = []
    at = 0
    while at < len(words):
        negated = words[at] == "!"
        at += negated
        end = at + 1
        while end < len(words) and words[end] != "!" and not words[end].startswith("--"):
            end += 1
        match = reader(words[at], words[at + 1 : end], negated, protocol) if at < len(words) else None
        if match is None:
            return None
        found.append((KNOWN_OPTIONS[name].index(words[at]), match))
        at = end
    if not words and name == "socket":
        return [Socket()]
    return [match for _, match in sorted(found, key=lambda place: place[0])] or None


def _read_limit(words: list[str]) -> list[Match] | None:
    """Return the limit per second; None for other units."""
    if len(words) != 4 or (words[0], words[2]) != ("--limit", "--limit-burst"):  # noqa: PLR2004
        return None
    rate, burst = read_number(words[1].partition("/")[0]), read_number(words[3])
    per_second = words[1].partition("/")[2] == "sec"  # as it is listed
    return [Limit(rate=rate, burst=burst)] if rate and burst and per_second else None


def read_number(text: str) -> int | None:
    """Parse a number as C's strtoul with base 0 does; None for anything else."""
    digits, base = text, 10
    if text[:2] in ("0x", "0X"):
        digits, base = text[2:], 16
    elif len(text) > 1 and text[0] == "0":
        digits, base = text[1:], 8
    allowed = "0123456789abcdefABCDEF" if base == 16 else "0123456789"[:base]  # noqa: PLR2004
    if not digits or digits.strip(allowed):
        return None
    number = int(digits, base)
    return number if number <= FULL_MASK else None


def read_masked(text: str) -> tuple[int, int] | None:
    """Parse a number and the mask after its slash; without one, all bits."""
    value, slash, mask = text.partition("/")
    number = read_number(value)
    limit = read_number(mask) if slash else FULL_MASK
    return None if number is None or limit is None else (number, limit)


def _read_port_range(text: str) -> tuple[int, int] | None:
    low, colon, high = text.partition(":")
    first = read_number(low) if low or not colon else 0
    last = (read_number(high) if high else MAX_PORT) if colon else first
    if first is None or last is None or not first <= last <= MAX_PORT:
        return None
    return first, last


def _make_ports(protocol: str, texts: list[str], source: bool, negated: bool) -> Port | None:
    ranges = [_read_port_range(text) for text in texts]
    known = tuple([found for found in ranges if found is not None])
    if len(known) != len(texts) or not known or protocol not in ("tcp", "udp"):
        return None
    ports = tuple([low if low == high else (low, high) for low, high in known])
    return Port(protocol=protocol, ports=ports, source=source, negated=negated)


def _read_tcp(option: str, values: list[str], negated: bool, protocol: str) -> Match | None:
    if option == "--syn" and not values:
        return BARE_SYN.replace(negated=negated)
    if option == "--tcp-flags" and len(values) == 2:  # noqa: PLR2004
        mask, flags = (_read_flags(value) for value in values)
        return None if mask is None or flags is None else TcpFlags(mask=mask, flags=flags, negated=negated)
    return _read_port(option, values, negated, protocol)


def _read_flags(text: str) -> tuple[str, ...] | None:
    if text == "NONE":
        return ()
    words = list(FLAGS) if text == "ALL" else text.split(",")
    return tuple([flag for flag in FLAGS if flag in words]) if set(words) <= set(FLAGS) else None


def _read_port(option: str, values: list[str], negated: bool, protocol: str) -> Match | None:
    return _make_ports(protocol, values, option.startswith("--s"), negated) if option in _PORT_OPTIONS and len(values) == 1 else None


def _read_multiport(option: str, values: list[str], negated: bool, protocol: str) -> Match | None:
    known = option in KNOWN_OPTIONS["multiport"] and len(values) == 1
    found = _make_ports(protocol, values[0].split(","), option.startswith("--s"), negated) if known else None
    return EitherPort(protocol=protocol, ports=found.ports, negated=negated) if found and option == "--ports" else found


def _read_address_range(option: str, values: list[str], negated: bool, _: str) -> Match | None:
    low, dash, high = values[0].partition("-") if len(values) == 1 else ("", "", "")
    if option not in KNOWN_OPTIONS["iprange"] or not dash or family_of(low) is not family_of(high):
        return None
    try:
        first, last = number_of(low), number_of(high)
    except (OSError, ValueError):
        return None
    source = option == "--src-range"
    return AddressRange(family=family_of(low), first=first, last=last, source=source, negated=negated) if first <= last else None


def _read_owner(option: str, values: list[str], negated: bool, _: str) -> Match | None:
    if option == "--socket-exists" and not values:
        return Owner(kind="uid", number=0, last=FULL_MASK, negated=negated)
    if option not in ("--uid-owner", "--gid-owner") or len(values) != 1:
        return None
    kind = option[2:5]
    first, dash, last = values[0].partition("-")
    low = read_number(first)
    high = read_number(last) if dash else low
    if low is None or high is None or low > high:
        return None  # a name, which another image may give another number
    return Owner(kind=kind, number=low, last=None if low == high else high, negated=negated)


def _read_mark(option: str, values: list[str], negated: bool, _: str, *, connection: bool = False) -> Match | None:
    found = read_masked(values[0]) if option == "--mark" and len(values) == 1 else None
    return None if found is None else Mark(value=found[0], mask=found[1], connection=connection, negated=negated)


def _read_states(module: str, option: str, wanted: str, values: list[str], negated: bool) -> Match | None:
    words = values[0].split(",") if option == wanted and len(values) == 1 else []
    if not words or not set(words) <= set(_STATES):
        return None
    states = tuple([state for state in _STATES if state in words])
    return ConnectionState(states=states, module=module, negated=negated)


def _read_conntrack(option: str, values: list[str], negated: bool, _: str) -> Match | None:
    if option == "--ctdir" and values in (["ORIGINAL"], ["REPLY"]) and not negated:
        return ConnectionDirection(direction=values[0])
    return _read_states("conntrack", option, "--ctstate", values, negated)


def _read_address_type(option: str, values: list[str], negated: bool, _: str) -> Match | None:
    if option not in ("--src-type", "--dst-type") or len(values) != 1:
        return None
    return AddressType(
        side="source" if option == "--src-type" else "destination", types=tuple(values[0].split(",")), negated=negated
    )


_READERS: dict[str, Callable[[str, list[str], bool, str], Match | None]] = {
    "tcp": _read_tcp,
    "udp": _read_port,
    "multiport": _read_multiport,
    "iprange": _read_address_range,
    "owner": _read_owner,
    "mark": _read_mark,
    "connmark": lambda *words: _read_mark(*words, connection=True),
    "conntrack": _read_conntrack,
    "state": lambda option, values, negated, _: _read_states("state", option, "--state", values, negated),
    "socket": lambda *_: None,  # its options narrow it down by what only the kernel knows
    "addrtype": _read_address_type,
}
