"""Lookups of iptables in foreign address sets (ipset(8)): which packets a set's contents match.

The kernel compares one field of the packet for each dimension of the set's type, from its source or its destination as the rule
says (ip_set_core.c, and the types' own files).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import unpack_from

from netinit.base.net import Family, Network
from netinit.base.snapshot import AddressSet
from netinit.rules.matches import Match
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port, Source
from netinit.rules.model import Rule

SET_MATCH, INVERTED, MAX_DIMENSIONS = "set", 1, 6
INFO = "=HBB"  # struct xt_set_info: number, dimensions, flags
MAX_ALTERNATIVES = 1024
ADDRESS, SECOND, PORT, DEVICE = "ip", "ip2", "port", "iface"
KINDS = {  # the dimensions of the types that are followed
    "hash:ip": (ADDRESS,), "hash:net": (ADDRESS,), "hash:ip,port": (ADDRESS, PORT), "hash:net,port": (ADDRESS, PORT),
    "hash:net,iface": (ADDRESS, DEVICE), "hash:net,net": (ADDRESS, SECOND), "hash:ip,port,ip": (ADDRESS, PORT, SECOND),
    "hash:ip,port,net": (ADDRESS, PORT, SECOND), "hash:net,port,net": (ADDRESS, PORT, SECOND),
}  # fmt: skip
LIST = "list:set"
PROTOCOLS = {6: "tcp", 17: "udp"}
Alternatives = list[tuple[Match, ...]]


def read_lookups(rule: Rule, sets: Mapping[int, AddressSet], family: Family) -> Rule:
    """Return the rule with what its lookups in sets match, where the sets were read."""
    return rule.replace(matches=tuple([_read(one, sets, family) for one in rule.matches])) if sets else rule


def _read(match: Match, sets: Mapping[int, AddressSet], family: Family) -> Match:
    kept = match.kept if isinstance(match, UnknownMatch) else None
    if not kept or kept[0] != SET_MATCH or not kept[1] or len(kept[2]) < 4 or kept[2][4:].strip(b"\0"):  # noqa: PLR2004
        return match
    number, dimensions, flags = unpack_from(INFO, kept[2])
    held = sets.get(number)
    if held is None or not 0 < dimensions <= MAX_DIMENSIONS or flags >> (dimensions + 1):
        return match
    sides = tuple([bool(flags >> at & 1) for at in range(1, dimensions + 1)])  # whether it is of the source
    found = _alternatives(held, sets, sides, family)
    if found is None or len(found) > MAX_ALTERNATIVES:
        return match
    words = ",".join(["src" if side else "dst" for side in sides])
    negated = bool(flags & INVERTED)
    text = f"-m set {'! ' if negated else ''}--match-set {held.name} {words}"
    return InSet(text=text, alternatives=tuple(found), negated=negated)


def _alternatives(held: AddressSet, sets: Mapping[int, AddressSet], sides: tuple[bool, ...], family: Family) -> Alternatives | None:
    """Return what matches a set, as alternatives; None if it is not understood."""
    if not held.is_complete:
        return None
    if held.kind == LIST:
        return _of_list(held, sets, sides, family)
    dimensions = KINDS.get(held.kind)
    if dimensions is None:
        return None
    if held.family != _AF[family.version] or len(sides) < len(dimensions):  # the kernel calls that no match
        return []
    by_rest: dict[tuple[Match, ...], list[Network]] = {}
    for element in held.elements:
        rest: list[Match] = []
        for dimension, of_source in zip(dimensions[1:], sides[1:], strict=False):
            if dimension == DEVICE:
                rest.append((InInterface if of_source else OutInterface)(names=(element.device,)))
            elif dimension == SECOND:
                network = _network(element.second, element.second_length, family)
                rest.append((Source if of_source else Destination)(networks=(network,)))
            elif element.protocol in PROTOCOLS:
                rest.append(Port(protocol=PROTOCOLS[element.protocol], ports=(element.port,), source=of_source))
            else:
                return None
        by_rest.setdefault(tuple(rest), []).append(_network(element.address, element.length, family))
    kind = Source if sides[0] else Destination
    return [(kind(networks=tuple(networks)), *rest) for rest, networks in by_rest.items()]


def _of_list(held: AddressSet, sets: Mapping[int, AddressSet], sides: tuple[bool, ...], family: Family) -> Alternatives | None:
    by_name = {one.name: one for one in sets.values()}
    found: Alternatives = []
    for element in held.elements:
        member = by_name.get(element.member)
        if member is None or member.kind == LIST:  # the kernel does not nest lists
            return None
        more = _alternatives(member, sets, sides, family)
        if more is None:
            return None
        found += more
    return found


_AF = {4: 2, 6: 10}


def _network(address: bytes, length: int, family: Family) -> Network:
    return Network((family.version, int.from_bytes(address, "big"), family.bits if length < 0 else length))
