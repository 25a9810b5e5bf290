"""A small netlink client: addresses, policy rules and routes (rtnetlink(7)), nf_tables chains and address sets.

pyroute2 takes 140 ms to import, ten times as long as an init container's whole job. Messages and attributes are those of
linux/rtnetlink.h, fib_rules.h and netfilter/nf_tables.h.
"""

from __future__ import annotations

from _socket import AF_INET6, SOCK_RAW, inet_ntop, inet_pton, socket
from _struct import pack, unpack_from

from netinit.base.net import FULL_MASK, HostAddress
from netinit.base.netlink_attributes import HEADER, TYPE_MASK, NftChain, name, number, read_hook, write_attribute
from netinit.base.records import Record
from netinit.base.system import LINUX, NEEDS_LINUX, posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Self, TypeVar

    Result = TypeVar("Result")
    Fields = Mapping[int, tuple[str, Callable[[bytes], Any]]]  # by an attribute's number: the record's field, and what reads it

AF_NETLINK, AF_UNSPEC = 16, 0
NETLINK_ROUTE, NETLINK_NETFILTER = 0, 12
MSG_TRUNC = 0x20
# linux/netlink.h: flags and types of messages, and the headers of messages and attributes
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_DUMP, NLM_F_EXCL, NLM_F_CREATE = 0x1, 0x4, 0x10, 0x300, 0x200, 0x400
NLMSG_NOOP, NLMSG_ERROR, NLMSG_DONE = 1, 2, 3
NLMSG_HEADER = 16
# linux/rtnetlink.h, if_addr.h, if_link.h, pkt_sched.h, fib_rules.h
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_GETQDISC = 16, 17, 18, 38
IFLA_XDP, TCA_KIND = 43, 1
WITHOUT_FILTERS = ("noqueue", "noop", "mq", "pfifo_fast")  # default qdiscs: no filter can be attached
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34
IFA_ADDRESS, IFA_LOCAL = 1, 2
RTA_DST, RTA_OIF, RTA_PRIORITY, RTA_MULTIPATH, RTA_CACHEINFO, RTA_TABLE, RTA_PREF = 1, 4, 6, 9, 12, 15, 20
RTN_LOCAL, RT_SCOPE_UNIVERSE, RT_SCOPE_HOST, RT_TABLE_UNSPEC, RT_TABLE_LOCAL = 2, 0, 254, 0, 255
FR_ACT_TO_TBL = 1
FRA_PRIORITY, FRA_FWMARK, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE, FRA_FWMASK, FRA_PROTOCOL = 6, 10, 14, 15, 16, 21
_PLAIN = {FRA_PRIORITY, FRA_FWMARK, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE, FRA_FWMASK, FRA_PROTOCOL}  # prefix length: -1, unused
_PLAIN_ROUTE = {RTA_OIF, RTA_PRIORITY, RTA_CACHEINFO, RTA_TABLE, RTA_PREF}
_USUAL_METRIC = {2: 0, 10: 1024}  # default RTA_PRIORITY by family
INET, OF_IPTABLES = 1, (2, 10)  # families of nf_tables; iptables-nft keeps its rules in the last two
# linux/netfilter/nf_tables.h: the subsystem's number, then the message's
NFT_MSG_GETTABLE, NFT_MSG_GETCHAIN, NFT_MSG_GETRULE = 10 << 8 | 1, 10 << 8 | 4, 10 << 8 | 7
NFTA_TABLE_NAME, NFTA_TABLE_FLAGS, NFT_TABLE_F_DORMANT = 1, 2, 1
NFT_MSG_GETGEN, NFTA_GEN_ID = 10 << 8 | 16, 1
NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME, NFTA_CHAIN_HOOK, NFTA_CHAIN_POLICY, NFTA_CHAIN_TYPE = 1, 3, 4, 5, 7
NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY = 1, 2
NFTA_EXPR_NAME, NFTA_EXPR_DATA = 1, 2
NFTA_RULE_TABLE, NFTA_RULE_CHAIN, NFTA_RULE_HANDLE, NFTA_RULE_EXPRESSIONS = 1, 2, 3, 4
NF_ACCEPT = 1  # linux/netfilter.h
# Headers by kind of message: struct ifaddrmsg, rtmsg and fib_rule_hdr (same layout), nfgenmsg, ifinfomsg, tcmsg
ADDRESS, ROUTE, NETFILTER = "=BBBBI", "=BBBBBBBBI", "=BBH"
ADDRESS_SIZE, ROUTE_SIZE, NETFILTER_SIZE, LINK_SIZE, CONTROL_SIZE = 8, 12, 4, 16, 20

EINTR, EFBIG = 4, 27
LOOPBACK_INDEX = 1  # lo is the first device of every network namespace
DUMP_ATTEMPTS, READ_ATTEMPTS = 20, 10  # of one dump, and of several that must show the same generation
RECEIVE_SIZE = 1 << 16  # the kernel sends 32 KiB at once at most; longer messages are requested again with a larger buffer
MAX_BYTES = 1 << 28  # of one answer: some 500,000 rules
attribute, big, read_name = write_attribute, number, name
OF_CHAINS: Fields = {  # NFTA_CHAIN_*
    1: ("table", name), 2: ("handle", number), 3: ("name", name), 4: ("", read_hook), 5: ("policy", number), 6: ("uses", number),
    7: ("kind", name), 10: ("flags", number),
}  # fmt: skip


class PolicyRule(Record):
    """A policy rule (ip rule) that looks up `table` for packets with `mark`; `protocol` says who made it."""

    family: int
    priority: int
    mark: int
    mask: int
    table: int
    protocol: int
    plain: bool  # no other condition


class LocalRoute(Record):
    """A default route in `table` that delivers every address to this host, through `lo`."""

    family: int
    table: int
    protocol: int
    plain: bool = True  # no other attributes: no metric, no source


class Netlink:
    """A netlink socket of this network namespace; methods raise the kernel's errors as OSError."""

    _is_small = False  # whether the kernel sends 3.7 KiB at most, as until it has seen how much is read

    def __init__(self, protocol: int) -> None:
        self._socket = socket(AF_NETLINK, SOCK_RAW, protocol)
        self._sequence = 0
        self._size = RECEIVE_SIZE
        self._is_small = protocol == NETLINK_NETFILTER
        self._interrupted = self._truncated = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the kernel deletes what it owns."""
        self._socket.close()

    def dump(self, kind: int, body: bytes, most: int = MAX_BYTES) -> list[bytes]:
        """Return the payload for every object of a kind; repeat if something changed meanwhile (NLM_F_DUMP_INTR).

        Raises OSError: EINTR if it keeps changing, EFBIG above `most` bytes.
        """
        if self._is_small:  # it ends a dump without an error where one object is longer
            self.request(NLMSG_NOOP, 0, b"")
        for _ in range(DUMP_ATTEMPTS):
            self._interrupted = self._truncated = False
            self._socket.send(self._write(kind, NLM_F_DUMP, body))
            found, size = [], 0
            for part in self._receive():
                found.append(part)
                size += len(part)
                if size > most:
                    raise OSError(EFBIG, posix.strerror(EFBIG))
            if not (self._interrupted or self._truncated):
                return found
        raise OSError(EINTR, posix.strerror(EINTR))

    def request(self, kind: int, flags: int, body: bytes, *, may_lack: bool = False) -> list[bytes]:
        """Send a change or query and wait for its acknowledgement; return the payloads of other messages.

        `may_lack`: that the object does not exist is no error.
        """
        self._socket.send(self._write(kind, NLM_F_ACK | flags, body))
        self._truncated = False
        try:
            found = [*self._receive()]
        except FileNotFoundError:
            if not may_lack:
                raise
            return []
        if self._truncated:
            raise OSError(EFBIG, posix.strerror(EFBIG))
        return found

    def _write(self, kind: int, flags: int, body: bytes) -> bytes:
        """Return a request with its header and the next sequence number."""
        self._sequence += 1
        head = pack("=IHHII", NLMSG_HEADER + len(body), kind, NLM_F_REQUEST | flags, self._sequence, 0)
        return head + body + b"\0" * (-len(body) % 4)

    def refusal(self, code: int, body: bytes) -> OSError:  # noqa: ARG002 - the kernel's whole answer, for subclasses
        """Return the error for a refused request."""
        return OSError(code, posix.strerror(code))

    def _receive(self) -> Iterator[bytes]:
        """Yield the payloads of an answer; after a truncated one the next receive has a larger buffer."""
        if not LINUX:
            raise OSError(NEEDS_LINUX)
        while True:
            data, _, how, _ = self._socket.recvmsg(self._size)
            self._is_small = False
            if how & MSG_TRUNC:
                self._truncated = True
                self._size *= 2
                return  # the remaining messages have this request's sequence number, so the next one ignores them
            for kind, body, flags, sequence in split_messages(data):
                if sequence != self._sequence:
                    continue
                self._interrupted |= bool(flags & NLM_F_DUMP_INTR)
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    code = -unpack_from("=i", body)[0] if len(body) >= 4 else 0  # noqa: PLR2004 - an int's
                    if code:
                        raise self.refusal(code, body)
                    return
                yield body


def list_addresses(link: Netlink | None = None) -> tuple[HostAddress, ...]:
    """Return all addresses in the kernel's order: IPv4 first, as in Go's net.InterfaceAddrs."""
    found = []
    request = RTM_GETADDR, pack(ADDRESS, AF_UNSPEC, 0, 0, 0, 0)
    for body in link.dump(*request) if link else dump(NETLINK_ROUTE, *request):
        family, length, _, scope, index = unpack_from(ADDRESS, body)
        attributes = read_attributes(body, ADDRESS_SIZE)
        packed = attributes.get(IFA_LOCAL) or attributes.get(IFA_ADDRESS)
        if packed and family in OF_IPTABLES:  # others, such as MCTP's, are none of IP
            address = inet_ntop(family, packed)
            found.append(HostAddress(family=family, address=address, length=length, index=index, scope=scope))
    return tuple(found)


def change_loopback_address(address: str, *, add: bool) -> None:
    """Add an IPv6 address to the loopback device, or delete it."""
    packed = inet_pton(AF_INET6, address)
    body = pack(ADDRESS, AF_INET6, 128, 0, RT_SCOPE_HOST, LOOPBACK_INDEX)
    body += attribute(IFA_LOCAL, packed) + attribute(IFA_ADDRESS, packed)
    _change(RTM_NEWADDR, RTM_DELADDR, body, add=add)


def list_mark_rules(family: int) -> tuple[PolicyRule, ...]:
    """Return a family's policy rules that match a firewall mark and look up a table."""
    found = []
    for body in dump(NETLINK_ROUTE, RTM_GETRULE, _header(family)):
        got, to, source, tos, table, _, _, action, _ = unpack_from(ROUTE, body)
        attributes = read_attributes(body, ROUTE_SIZE)
        if got == family and action == FR_ACT_TO_TBL and FRA_FWMARK in attributes:
            found.append(
                PolicyRule(
                    family=family, priority=native(attributes.get(FRA_PRIORITY)), mark=native(attributes[FRA_FWMARK]),
                    mask=native(attributes.get(FRA_FWMASK), FULL_MASK), table=native(attributes.get(FRA_TABLE), table),
                    protocol=attributes.get(FRA_PROTOCOL, b"\0")[0],
                    plain=not (to or source or tos) and not set(attributes) - _PLAIN,
                )
            )  # fmt: skip
    return tuple(found)


def change_mark_rule(rule: PolicyRule, *, add: bool) -> None:
    """Add a policy rule, or delete it.

    Priority 0: when adding the kernel chooses it, when deleting any matches.
    """
    body = _header(rule.family, kind=FR_ACT_TO_TBL)
    for kind, value in ((FRA_FWMARK, rule.mark), (FRA_FWMASK, rule.mask), (FRA_TABLE, rule.table)):
        body += attribute(kind, pack("=I", value))
    body += attribute(FRA_PROTOCOL, bytes((rule.protocol,)))
    if rule.priority:
        body += attribute(FRA_PRIORITY, pack("=I", rule.priority))
    _change(RTM_NEWRULE, RTM_DELRULE, body, add=add)


def list_local_routes(family: int) -> tuple[LocalRoute, ...]:
    """Return a family's default routes that deliver to this host, in any table."""
    found = []
    for body in dump(NETLINK_ROUTE, RTM_GETROUTE, _header(family)):
        got, length, _, _, table, protocol, _, route_type, _ = unpack_from(ROUTE, body)
        attributes = read_attributes(body, ROUTE_SIZE)
        to_lo = native(attributes.get(RTA_OIF)) == LOOPBACK_INDEX
        if (got, length, route_type) == (family, 0, RTN_LOCAL) and to_lo:
            plain = not set(attributes) - _PLAIN_ROUTE and native(attributes.get(RTA_PRIORITY)) == _USUAL_METRIC[family]
            named = native(attributes.get(RTA_TABLE), table)
            found.append(LocalRoute(family=family, table=named, protocol=protocol, plain=plain))
    return tuple(found)


def change_local_route(route: LocalRoute, *, add: bool) -> None:
    """Add `local default dev lo` to a table, or delete it."""
    scope = RT_SCOPE_UNIVERSE if route.family == AF_INET6 else RT_SCOPE_HOST
    body = _header(route.family, protocol=route.protocol, scope=scope, kind=RTN_LOCAL)
    body += attribute(RTA_TABLE, pack("=I", route.table)) + attribute(RTA_OIF, pack("=I", LOOPBACK_INDEX))
    _change(RTM_NEWROUTE, RTM_DELROUTE, body, add=add)


def list_nft_chains() -> tuple[NftChain, ...]:
    """Return all nf_tables chains. Raises OSError without NET_ADMIN or nf_tables."""
    found = dump(NETLINK_NETFILTER, NFT_MSG_GETCHAIN, bytes(NETFILTER_SIZE))
    return tuple([NftChain(family=body[0], **fields_of(read_attributes(body, NETFILTER_SIZE), OF_CHAINS)) for body in found])


def list_dormant_tables() -> tuple[tuple[int, str], ...]:
    """Return family and name of dormant nf_tables tables. Raises OSError without NET_ADMIN or nf_tables."""
    found = []
    for body in dump(NETLINK_NETFILTER, NFT_MSG_GETTABLE, bytes(NETFILTER_SIZE)):
        attributes = read_attributes(body, NETFILTER_SIZE)
        if big(attributes.get(NFTA_TABLE_FLAGS)) & NFT_TABLE_F_DORMANT:
            found.append((body[0], read_name(attributes[NFTA_TABLE_NAME])))
    return tuple(found)


def read_nft_generation() -> int:
    """Return the generation id of nf_tables, which differs after each change. Raises OSError."""
    with Netlink(NETLINK_NETFILTER) as link:
        (body,) = link.request(NFT_MSG_GETGEN, 0, bytes(NETFILTER_SIZE))
    return big(read_attributes(body, NETFILTER_SIZE)[NFTA_GEN_ID])


def read_unchanged(read: Callable[[], Result]) -> tuple[int, Result]:
    """Return the generation of nf_tables and what `read` returns while it stays the same.

    Raises OSError: EINTR if nf_tables keeps changing.
    """
    generation = read_nft_generation()
    for _ in range(READ_ATTEMPTS):
        found = read()
        before, generation = generation, read_nft_generation()
        if before == generation:
            return generation, found
    raise OSError(EINTR, "nf_tables changes all the time")


def list_nft_rules(family: int) -> list[bytes]:
    """Return all rules of an nf_tables family: four bytes of header, then attributes. Raises OSError."""
    return dump(NETLINK_NETFILTER, NFT_MSG_GETRULE, pack(NETFILTER, family, 0, 0))


def dump(protocol: int, kind: int, body: bytes, most: int = MAX_BYTES) -> list[bytes]:
    """Return every object of a kind through a new socket: see `Netlink.dump`. Raises OSError."""
    with Netlink(protocol) as link:
        return link.dump(kind, body, most)


def _change(new: int, delete: int, body: bytes, *, add: bool) -> None:
    with Netlink(NETLINK_ROUTE) as link:
        link.request(new if add else delete, NLM_F_CREATE | NLM_F_EXCL if add else 0, body)


def _header(family: int, *, protocol: int = 0, scope: int = 0, kind: int = 0) -> bytes:
    """Return a struct rtmsg, or a struct fib_rule_hdr, whose action is where the former has its type (`kind`)."""
    return pack(ROUTE, family, 0, 0, 0, RT_TABLE_UNSPEC, protocol, scope, kind, 0)


def split_messages(data: bytes) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield the received messages as (type, payload, flags, sequence number)."""
    offset = 0
    while offset + NLMSG_HEADER <= len(data):
        length, kind, flags, sequence = unpack_from("=IHHI", data, offset)
        yield kind, data[offset + NLMSG_HEADER : offset + length], flags, sequence
        offset += max(NLMSG_HEADER, length + 3 & ~3)


def read_attributes(body: bytes, offset: int) -> dict[int, bytes]:
    """Return the attributes from an offset on, by type; the last one if there are several of a type."""
    found = {}
    while offset + HEADER <= len(body):
        length, kind = unpack_from("=HH", body, offset)
        if length < HEADER:  # shorter than its own header: the rest is invalid
            break
        found[kind & TYPE_MASK] = body[offset + HEADER : offset + length]
        offset += length + 3 & ~3
    return found


def fields_of(found: Mapping[int, bytes], fields: Fields) -> dict[str, Any]:
    """Return the fields of a record by its attributes, as far as they are there; what is read without a name is several fields."""
    values: dict[str, Any] = {}
    for kind, (field, read) in fields.items():
        if kind not in found:
            continue
        if field:
            values[field] = read(found[kind])
        else:
            values.update(read(found[kind]))
    return values


def native(value: bytes | None, default: int = 0) -> int:
    """Decode an unsigned number in the machine's byte order, as in rtnetlink."""
    return unpack_from("=I", value)[0] if value else default
