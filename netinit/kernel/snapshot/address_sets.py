"""Read the contents of foreign address sets (ipset(8)), of which rules in iptables' syntax make decisions. Bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import pack, unpack

from netinit.base.netlink_attributes import MalformedError, attributes_of, name, split_attributes, write_attribute
from netinit.base.snapshot import AddressSet, AddressSetElement
from netinit.kernel.detect import (
    ATTR_DATA,
    ATTR_PROTOCOL,
    ATTR_SETNAME,
    CMD_LIST,
    OLDEST_PROTOCOL,
    OWNED,
    AddressSetHeader,
)
from netinit.kernel.netlink import NETFILTER_SIZE, NETLINK_NETFILTER, Netlink

MAX_SETS, MAX_ELEMENTS, MAX_BYTES = 256, 20_000, 1 << 22  # of all sets together: what proofs take is bounded besides
# linux/netfilter/ipset/ip_set.h: attributes of a set, of its header, and of elements
ATTR_TYPENAME, ATTR_FAMILY, ATTR_ADT = 3, 5, 8
ATTR_NETMASK, ATTR_BITMASK, ATTR_MARKMASK = 20, 12, 11
IP, CIDR, PORT, TIMEOUT, PROTO, MEMBER, IP2, CIDR2, IFACE = 1, 3, 4, 6, 7, 18, 20, 21, 23
WITHOUT_EFFECT = {TIMEOUT, 9, 24, 25, 26, 27, 28, 29}  # also line numbers, counters, comments, and what `--map-set` uses
KNOWN = {IP, CIDR, PORT, PROTO, MEMBER, IP2, CIDR2, IFACE, *WITHOUT_EFFECT}


def read_foreign_sets(headers: Iterable[AddressSetHeader]) -> Iterator[AddressSet]:
    """Yield each set that is not netinit's, with its elements if they can be read within the bounds."""
    left, size = MAX_ELEMENTS, MAX_BYTES
    foreign = [one for one in headers if one.number >= 0 and not one.name.startswith(OWNED)]
    for at, header in enumerate(foreign):
        unread = AddressSet(number=header.number, name=header.name, is_complete=False)
        if at >= MAX_SETS or header.size > left:
            yield unread
            continue
        try:
            messages = _list(header.name, size)
            found = _read(unread, messages)
        except (OSError, MalformedError, KeyError, IndexError, ValueError):
            yield unread
            continue
        left -= len(found.elements)
        size -= sum([len(body) for body in messages])
        yield found


def _list(set_name: str, most: int) -> list[bytes]:
    body = pack("=BBH", 0, 0, 0) + write_attribute(ATTR_PROTOCOL, bytes((OLDEST_PROTOCOL,)))
    body += write_attribute(ATTR_SETNAME, set_name.encode("utf-8", "surrogateescape") + b"\0")
    with Netlink(NETLINK_NETFILTER) as link:
        return link.dump(CMD_LIST, body, most)


def _read(empty: AddressSet, messages: list[bytes]) -> AddressSet:
    kind, family, elements, is_complete = "", 0, [], bool(messages)
    for body in messages:
        found = attributes_of(body, NETFILTER_SIZE)
        if name(found.get(ATTR_SETNAME, b"")) != empty.name:
            raise MalformedError("another set")
        if ATTR_DATA in found:
            kind, family = name(found[ATTR_TYPENAME]), found[ATTR_FAMILY][0]
            header = attributes_of(found[ATTR_DATA])
            is_complete = is_complete and not header.keys() & {ATTR_NETMASK, ATTR_BITMASK, ATTR_MARKMASK}
        for _, data in split_attributes(found.get(ATTR_ADT, b"")):
            element = attributes_of(data)
            is_complete = is_complete and element.keys() <= KNOWN  # others are conditions, such as `nomatch`
            elements.append(_read_element(element))
    return empty.replace(kind=kind, family=family, elements=tuple(elements), is_complete=is_complete and bool(kind))


def _read_element(found: dict[int, bytes]) -> AddressSetElement:
    return AddressSetElement(
        address=_address(found.get(IP, b"")), length=found[CIDR][0] if CIDR in found else -1,
        second=_address(found.get(IP2, b"")), second_length=found[CIDR2][0] if CIDR2 in found else -1,
        protocol=found[PROTO][0] if PROTO in found else 0, port=unpack(">H", found[PORT])[0] if PORT in found else 0,
        device=name(found.get(IFACE, b"")), member=name(found.get(MEMBER, b"")),
    )  # fmt: skip


def _address(data: bytes) -> bytes:
    return next((body for _, body in split_attributes(data)), b"")  # of either family
