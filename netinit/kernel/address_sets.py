"""List address sets (ipset(8)) without their elements: linux/netfilter/ipset/ip_set.h."""

from __future__ import annotations

from _struct import pack, unpack

from netinit.base.records import Record
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import attribute, big, read_attributes, read_name

OWNED = "netinit-"  # prefix of our sets
CMD_LIST = 6 << 8 | 7
ATTR_PROTOCOL, ATTR_SETNAME, ATTR_FLAGS, ATTR_DATA, ATTR_INDEX, ATTR_ELEMENTS = 1, 2, 6, 7, 11, 24
FLAG_LIST_HEADER = 4
NEWEST_PROTOCOL, OLDEST_PROTOCOL = 7, 6  # 7 since Linux 4.20; only it reports ids


class AddressSetHeader(Record):
    """A set's name, number of elements and id, which rules use; -1 if the kernel does not report it."""

    name: str
    size: int
    number: int = -1


def list_address_sets() -> tuple[AddressSetHeader, ...]:
    """Return all sets. Raises OSError without NET_ADMIN or without kernel support."""
    try:
        found = _dump(NEWEST_PROTOCOL)
    except OSError:
        found = _dump(OLDEST_PROTOCOL)
    return tuple([_read(body) for body in found])


def _dump(protocol: int) -> list[bytes]:
    body = pack("=BBH", 0, 0, 0) + attribute(ATTR_PROTOCOL, bytes((protocol,)))
    body += attribute(ATTR_FLAGS | netlink.NLA_F_NET_BYTEORDER, pack(">I", FLAG_LIST_HEADER))
    return [found for _, found in netlink.dump(netlink.NETLINK_NETFILTER, CMD_LIST, body)]


def _read(body: bytes) -> AddressSetHeader:
    attributes = read_attributes(body, netlink.NETFILTER_SIZE)
    size = big(read_attributes(attributes.get(ATTR_DATA, b""), 0).get(ATTR_ELEMENTS))
    number = unpack(">H", attributes[ATTR_INDEX])[0] if ATTR_INDEX in attributes else -1
    return AddressSetHeader(name=read_name(attributes[ATTR_SETNAME]), size=size, number=number)


def loaded_sets() -> tuple[AddressSetHeader, ...]:
    """Return all sets; empty if ipset is not loaded (a query would load it) or does not answer."""
    try:
        return list_address_sets() if detect.has_address_sets() else ()
    except OSError:
        return ()


def owned_sets() -> dict[str, int]:
    """Return our sets with their sizes. A name with characters that netinit does not use is foreign."""
    return {one.name: one.size for one in loaded_sets() if one.name.startswith(OWNED) and _is_plain(one.name)}


def set_names() -> dict[int, str]:
    """Return the names of all sets by id."""
    return {one.number: one.name for one in loaded_sets() if one.number >= 0}


def _is_plain(name: str) -> bool:
    return name.isascii() and name.replace("-", "").isalnum()
