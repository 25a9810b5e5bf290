"""A small netlink client: addresses, policy rules and routes (rtnetlink(7)), and which nft chains and address sets there are.

What an init container needs of netlink are ten messages; pyroute2 knows them all, but takes 140 ms to import, ten times
the rest of the job. Attributes and messages are those of linux/rtnetlink.h, fib_rules.h, netfilter/nf_tables.h and ipset/ip_set.h.
"""

from __future__ import annotations

import posix
from _socket import AF_INET6, SOCK_RAW, inet_ntop, inet_pton, socket
from _struct import pack, unpack_from

from netinit.base.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

AF_NETLINK, AF_UNSPEC = 16, 0
NETLINK_ROUTE, NETLINK_NETFILTER = 0, 12
REQUEST, ACK, DUMP, EXCLUSIVE, CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
ERROR, DONE = 2, 3
DUMP_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR: something changed while the kernel told, so that parts may be missing
DUMP_ATTEMPTS = 20
INTERRUPTED, TOO_LARGE = 4, 27  # EINTR, EFBIG
NEW_ADDRESS, DELETE_ADDRESS, GET_ADDRESS = 20, 21, 22
NEW_ROUTE, DELETE_ROUTE, GET_ROUTE = 24, 25, 26
NEW_RULE, DELETE_RULE, GET_RULE = 32, 33, 34
GET_NFT_CHAIN, GET_NFT_RULE, GET_NFT_SET, GET_NFT_ELEMENTS = [10 << 8 | kind for kind in (4, 7, 10, 13)]
CHAIN_HOOK = 4
LIST_SETS = 6 << 8 | 7
SET_PROTOCOL = 6  # the oldest still spoken by kernels
HEADERS_ONLY = 4  # IPSET_FLAG_LIST_HEADER
NETWORK_ORDER = 0x4000  # of a number in an attribute
LOOPBACK_INDEX = 1  # lo is the first device of every network namespace
LOCAL = 2  # RTN_LOCAL
SCOPE_HOST = 254
TO_TABLE = 1  # FR_ACT_TO_TBL
ROUTE_TABLE_UNSPEC = 0
RECEIVE_SIZE = 1 << 17
MOST_BYTES = 1 << 28  # of one answer: some 500,000 rules


class InterfaceAddress(Record):
    """An address of an interface: AF_INET or AF_INET6, its spelling, prefix length and the interface's index."""

    family: int
    address: str
    length: int
    index: int


class PolicyRule(Record):
    """A policy rule (ip rule) that looks up `table` for packets with `mark`; `protocol` says who made it."""

    family: int
    priority: int
    mark: int
    mask: int
    table: int
    protocol: int
    plain: bool  # nothing else is matched on


class LocalRoute(Record):
    """A default route in `table` that delivers every address to this host through the loopback device."""

    family: int
    table: int
    protocol: int


class NftChain(Record):
    """A chain of nf_tables: the family's number (1 inet, 2 IPv4, 10 IPv6), table and name.

    `uses` are its rules and the jumps to it, which the kernel tells without its rules.
    """

    family: int
    table: str
    name: str
    hooked: bool  # a base chain
    uses: int = 0


class Netlink:
    """A netlink socket of this network namespace; OSError carries the kernel's refusals."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket(AF_NETLINK, SOCK_RAW, protocol)
        self._sequence = 0
        self._interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def dump(self, kind: int, body: bytes, most: int = MOST_BYTES) -> list[tuple[int, bytes]]:
        """Every object of a kind, as (message type, payload); asked again where something changed meanwhile.

        OSError: EINTR where it never stands still, EFBIG where it is more than `most` bytes.
        """
        for _ in range(DUMP_ATTEMPTS):
            self._interrupted = False
            self._send(kind, REQUEST | DUMP, body)
            found, size = [], 0
            for message in self._receive():
                found.append(message)
                size += len(message[1])
                if size > most:
                    raise OSError(TOO_LARGE, posix.strerror(TOO_LARGE))
            if not self._interrupted:
                return found
        raise OSError(INTERRUPTED, posix.strerror(INTERRUPTED))

    def request(self, kind: int, flags: int, body: bytes) -> None:
        """A change, acknowledged by the kernel."""
        self._send(kind, REQUEST | ACK | flags, body)
        for _ in self._receive():
            pass

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        self._socket.send(pack("=IHHII", 16 + len(body), kind, flags, self._sequence, 0) + body)

    def _receive(self) -> Iterator[tuple[int, bytes]]:
        while True:
            data = self._socket.recv(RECEIVE_SIZE)
            offset = 0
            while offset + 16 <= len(data):
                length, kind, flags, sequence, _ = unpack_from("=IHHII", data, offset)
                body = data[offset + 16 : offset + length]
                offset += length + 3 & ~3
                if sequence != self._sequence:
                    continue
                self._interrupted |= bool(flags & DUMP_INTERRUPTED)
                if kind in (ERROR, DONE):
                    code = -unpack_from("=i", body)[0] if len(body) >= 4 else 0  # noqa: PLR2004
                    if code:
                        raise OSError(code, posix.strerror(code))
                    return
                yield kind, body


def list_addresses() -> tuple[InterfaceAddress, ...]:
    """All addresses of the namespace, in the kernel's order: IPv4's first, as Go's net.InterfaceAddrs has them."""
    found = []
    with Netlink(NETLINK_ROUTE) as link:
        for kind, body in link.dump(GET_ADDRESS, pack("=BBBBI", AF_UNSPEC, 0, 0, 0, 0)):
            family, length, _, _, index = unpack_from("=BBBBI", body)
            attributes = read_attributes(body, 8)
            packed = attributes.get(2) or attributes.get(1)  # IFA_LOCAL, else IFA_ADDRESS
            if kind == NEW_ADDRESS and packed:
                found.append(
                    InterfaceAddress(family=family, address=inet_ntop(family, packed), length=length, index=index)
                )
    return tuple(found)


def change_loopback_address(address: str, *, add: bool) -> None:
    """Adds an IPv6 address to the loopback device, or removes it."""
    packed = inet_pton(AF_INET6, address)
    body = pack("=BBBBI", AF_INET6, 128, 0, SCOPE_HOST, LOOPBACK_INDEX) + _attribute(2, packed) + _attribute(1, packed)
    with Netlink(NETLINK_ROUTE) as link:
        link.request(NEW_ADDRESS if add else DELETE_ADDRESS, CREATE | EXCLUSIVE if add else 0, body)


def list_mark_rules(family: int) -> tuple[PolicyRule, ...]:
    """The policy rules of a family that match a firewall mark and look up a table."""
    found = []
    with Netlink(NETLINK_ROUTE) as link:
        for kind, body in link.dump(GET_RULE, pack("=BBBBBBBBI", family, 0, 0, 0, 0, 0, 0, 0, 0)):
            # struct fib_rule_hdr; FRA_PRIORITY 6, FWMARK 10, TABLE 15, FWMASK 16, PROTOCOL 21
            got, to, source, tos, table, _, _, action, _ = unpack_from("=BBBBBBBBI", body)
            attributes = read_attributes(body, 12)
            if kind != NEW_RULE or got != family or action != TO_TABLE or 10 not in attributes:  # noqa: PLR2004 - see above
                continue
            known = {6, 10, 14, 15, 16, 21}  # 14: SUPPRESS_PREFIXLEN, -1 when unused
            found.append(
                PolicyRule(
                    family=family,
                    priority=_number(attributes.get(6)),
                    mark=_number(attributes[10]),
                    mask=_number(attributes.get(16), 0xFFFFFFFF),
                    table=_number(attributes.get(15), table),
                    protocol=attributes.get(21, b"\0")[0],
                    plain=not (to or source or tos) and not set(attributes) - known,
                ),
            )
    return tuple(found)


def change_mark_rule(rule: PolicyRule, *, add: bool) -> None:
    """Adds a policy rule, or removes exactly that one.

    Priority 0 lets the kernel choose the place, as for `ip rule add`, and leaves open in a removal which it was given.
    """
    body = pack("=BBBBBBBBI", rule.family, 0, 0, 0, ROUTE_TABLE_UNSPEC, 0, 0, TO_TABLE, 0)
    body += (
        _attribute(10, pack("=I", rule.mark))
        + _attribute(16, pack("=I", rule.mask))
        + _attribute(15, pack("=I", rule.table))
    )
    body += _attribute(21, bytes((rule.protocol,)))
    if rule.priority:
        body += _attribute(6, pack("=I", rule.priority))
    with Netlink(NETLINK_ROUTE) as link:
        link.request(NEW_RULE if add else DELETE_RULE, CREATE | EXCLUSIVE if add else 0, body)


def list_local_routes(family: int) -> tuple[LocalRoute, ...]:
    """The default routes of a family that deliver to this host, in whatever table."""
    found = []
    with Netlink(NETLINK_ROUTE) as link:
        for kind, body in link.dump(GET_ROUTE, pack("=BBBBBBBBI", family, 0, 0, 0, 0, 0, 0, 0, 0)):
            # struct rtmsg; RTA_OIF 4, RTA_TABLE 15
            got, length, _, _, table, protocol, _, route_type, _ = unpack_from("=BBBBBBBBI", body)
            attributes = read_attributes(body, 12)
            if (
                kind == NEW_ROUTE
                and got == family
                and length == 0
                and route_type == LOCAL
                and _number(attributes.get(4)) == LOOPBACK_INDEX
            ):
                found.append(LocalRoute(family=family, table=_number(attributes.get(15), table), protocol=protocol))
    return tuple(found)


def change_local_route(route: LocalRoute, *, add: bool) -> None:
    """Adds `local default dev lo` to a table, or removes it."""
    scope = SCOPE_HOST if route.family != AF_INET6 else 0
    body = pack("=BBBBBBBBI", route.family, 0, 0, 0, ROUTE_TABLE_UNSPEC, route.protocol, scope, LOCAL, 0)
    body += _attribute(15, pack("=I", route.table)) + _attribute(4, pack("=I", LOOPBACK_INDEX))
    with Netlink(NETLINK_ROUTE) as link:
        link.request(NEW_ROUTE if add else DELETE_ROUTE, CREATE | EXCLUSIVE if add else 0, body)


def list_nft_chains() -> tuple[NftChain, ...]:
    """All chains of nf_tables in the namespace. OSError without NET_ADMIN or without kernel support."""
    found = []
    with Netlink(NETLINK_NETFILTER) as link:
        for _, body in link.dump(GET_NFT_CHAIN, pack("=BBH", AF_UNSPEC, 0, 0)):
            attributes = read_attributes(body, 4)  # NFTA_CHAIN_TABLE 1, NFTA_CHAIN_NAME 3, NFTA_CHAIN_USE 6
            uses = int.from_bytes(attributes.get(6, b""), "big")
            table, name = read_name(attributes[1]), read_name(attributes[3])
            found.append(NftChain(family=body[0], table=table, name=name, hooked=CHAIN_HOOK in attributes, uses=uses))
    return tuple(found)


def list_address_sets() -> dict[str, int]:
    """All address sets (ipset(8)) in the namespace, by name with the number of their elements, which are not read.

    OSError without NET_ADMIN or without kernel support.
    """
    body = pack("=BBH", AF_UNSPEC, 0, 0) + _attribute(1, bytes((SET_PROTOCOL,)))
    body += _attribute(6 | NETWORK_ORDER, pack(">I", HEADERS_ONLY))  # IPSET_ATTR_FLAGS
    with Netlink(NETLINK_NETFILTER) as link:
        found = [read_attributes(message, 4) for _, message in link.dump(LIST_SETS, body)]
    sizes = {}
    for attributes in found:  # IPSET_ATTR_SETNAME 2, IPSET_ATTR_DATA 7, therein IPSET_ATTR_ELEMENTS 24
        size = read_attributes(attributes.get(7, b""), 0).get(24, b"")
        sizes[read_name(attributes[2])] = int.from_bytes(size, "big")
    return sizes


def list_nft_rules(family: int) -> list[bytes]:
    """All rules of a family of nf_tables as the kernel tells them: attributes behind four bytes, see nf_tables.h. OSError."""
    with Netlink(NETLINK_NETFILTER) as link:
        return [body for _, body in link.dump(GET_NFT_RULE, pack("=BBH", family, 0, 0))]


def list_nft_sets(family: int) -> list[tuple[str, str, bool]]:
    """The sets and maps of a family of nf_tables as (table, name, whether it stands inside of a rule). OSError."""
    with Netlink(NETLINK_NETFILTER) as link:
        found = [read_attributes(body, 4) for _, body in link.dump(GET_NFT_SET, pack("=BBH", family, 0, 0))]
    # NFTA_SET_TABLE 1, NAME 2, FLAGS 3, of which NFT_SET_ANONYMOUS is the first
    return [(read_name(one[1]), read_name(one[2]), bool(one.get(3, b"\0")[-1] & 1)) for one in found]


def measure_nft_set(family: int, table: str, name: str, most: int) -> int:
    """How many bytes the kernel tells of a set's elements. OSError: EFBIG where they are more than `most`."""
    body = pack("=BBH", family, 0, 0)
    for kind, text in ((1, table), (2, name)):  # NFTA_SET_ELEM_LIST_TABLE, NFTA_SET_ELEM_LIST_SET
        body += _attribute(kind, text.encode("utf-8", "surrogateescape") + b"\0")
    with Netlink(NETLINK_NETFILTER) as link:
        return sum([len(message) for _, message in link.dump(GET_NFT_ELEMENTS, body, most)])


def _attribute(kind: int, value: bytes) -> bytes:
    return pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def read_attributes(body: bytes, offset: int) -> dict[int, bytes]:
    """The attributes in a message from an offset on, by their kind; of several of one kind the last."""
    found = {}
    while offset + 4 <= len(body):
        length, kind = unpack_from("=HH", body, offset)
        if length < 4:  # noqa: PLR2004 - shorter than its own header: nothing sensible follows
            break
        found[kind & 0x3FFF] = body[offset + 4 : offset + length]
        offset += length + 3 & ~3
    return found


def _number(value: bytes | None, default: int = 0) -> int:
    return unpack_from("=I", value)[0] if value else default


def read_name(value: bytes) -> str:
    """A name as the kernel holds it; bytes that are no UTF-8 become lone surrogates."""
    return value.rstrip(b"\0").decode("utf-8", "surrogateescape")
