"""The table of nf_tables by which the kernel traces packets of one connection: made, recognised, removed.

It decides about no packet. One rule, before all others, marks the first packets of the connection in question for the
kernel's trace and reports who sent them; chains behind all others show where a packet's path ends. The table belongs to the
socket that made it (NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h, Linux 5.12): the kernel removes it when that is closed,
however its process ends. Where the kernel has no owners, the next run removes what is left.
"""

from __future__ import annotations

import os
from _struct import pack, unpack_from

from netinit.base.net import IPV4, Family
from netinit.base.records import Record
from netinit.kernel.netlink import (
    LOOPBACK_INDEX,
    NETFILTER_SIZE,
    NETLINK_NETFILTER,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REQUEST,
    NLMSG_ERROR,
    NLMSG_HEADER,
    Netlink,
    list_nft_chains,
    list_nft_rules,
    read_attributes,
    read_name,
)

TABLE = "netinit-trace"
INET = 1
BEFORE_ALL, BEHIND_ALL = -350, 0x7FFFFFFE  # behind the assembly of fragments (-400), before raw (-300)
ENDS = {"end-of-input": 1, "end-of-postrouting": 4}  # chains that nothing is behind, and their hooks
BEGINNING = "beginning"
_BEGINNINGS = {True: 0, False: 3}  # the hook of what comes in, and of what is made here
_LOGGER = "logger"
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_SUBSYSTEM = 10
_NEWTABLE, _DELTABLE, _NEWCHAIN, _NEWRULE = [_SUBSYSTEM << 8 | kind for kind in (0, 2, 3, 6)]
_OWNER = 2  # NFT_TABLE_F_OWNER
_NESTED = 0x8000
_SECONDS = 5.0
# Attributes of linux/netfilter/nf_tables.h, and what meta knows
_META_LENGTHS = {"l4proto": (16, 1), "nfproto": (15, 1), "skuid": (10, 4), "skgid": (11, 4)}
_NFTRACE, _IIF = 12, 4
_HARMLESS = frozenset((b"meta", b"cmp", b"payload", b"bitwise", b"limit", b"immediate", b"log"))
_SYN_ALONE = (13, 0x17, 0x02)  # the byte of TCP's flags; FIN, SYN, RST and ACK; SYN
_NETWORK, _TRANSPORT = 1, 2
ENOENT = 2
NO_OWNERS = (22, 95)  # EINVAL, EOPNOTSUPP: what kernels say of a flag that they do not know


class Wanted(Record):
    """Which packets are meant: those of new connections to a port. None: whoever."""

    family: Family
    protocol: str
    inbound: bool
    port: int
    source: int | None = None
    destination: int | None = None
    uid: int | None = None
    gid: int | None = None


class TraceTable:
    """The table, made by a socket that stays open. OSError carries the kernel's refusals."""

    def __init__(self, wanted: Wanted, *, group: int, rate: int, loggers: tuple[str, ...] = ()) -> None:
        """At most `rate` packets a second, reported to a `group`; `loggers` are names to be remembered in the table."""
        self._link = _Transaction(NETLINK_NETFILTER)
        messages = [*_make_chains(wanted, loggers), _rule(wanted, group, rate)]
        try:
            try:
                self._link.commit([_table(0 if loggers else _OWNER), *messages])
            except OSError as error:
                if error.errno not in NO_OWNERS or loggers:
                    raise
                self._link.close()
                self._link = _Transaction(NETLINK_NETFILTER)
                self._link.commit([_table(0), *messages])
        except BaseException:
            self._link.close()
            raise

    def remove(self) -> None:
        """The table is gone."""
        try:
            self._link.commit([(_DELTABLE, 0, _attribute(1, _name(TABLE)))])
        except OSError as error:
            if error.errno != ENOENT:
                raise
        finally:
            self._link.close()


def remove_leftover() -> tuple[str, ...]:
    """Removes the table of a run that was killed; the loggers that it remembered. OSError: EPERM where its run is alive."""
    loggers = tuple([
        chain.name.removeprefix(f"{_LOGGER}-")
        for chain in list_nft_chains()
        if (chain.family, chain.table) == (INET, TABLE) and chain.name.startswith(f"{_LOGGER}-")
    ])  # fmt: skip
    with _Transaction(NETLINK_NETFILTER) as link:
        try:
            link.commit([(_DELTABLE, 0, _attribute(1, _name(TABLE)))])
        except OSError as error:
            if error.errno != ENOENT:
                raise
    return loggers


def is_harmless() -> bool:
    """Whether the table of that name decides about no packet, as ours; False for one that somebody gave its name."""
    try:
        chains = [chain for chain in list_nft_chains() if (chain.family, chain.table) == (INET, TABLE)]
        rules = [read_attributes(body, NETFILTER_SIZE) for body in list_nft_rules(INET)]
    except OSError:
        return False
    own = [rule.get(4, b"") for rule in rules if read_name(rule[1]) == TABLE]
    return all(chain.accepts for chain in chains) and all(_only_looks(expressions) for expressions in own)


def _only_looks(expressions: bytes) -> bool:
    """Whether a rule does nothing but compare, mark for tracing and report."""
    for name, data in read_expressions(expressions):
        if name not in _HARMLESS:
            return False
        changes = (name == b"payload" and 5 in data) or (name == b"meta" and 3 in data and _big(data.get(2)) != _NFTRACE)  # noqa: PLR2004
        decides = name == b"immediate" and _big(data.get(1)) == 0  # NFT_REG_VERDICT
        if changes or decides:
            return False
    return True


def read_expressions(block: bytes) -> list[tuple[bytes, dict[int, bytes]]]:
    """The expressions of a rule: name, and attributes."""
    found = []
    offset = 0
    while offset + 4 <= len(block):
        length = unpack_from("=H", block, offset)[0]
        if length < 4:  # noqa: PLR2004 - shorter than its own header
            break
        attributes = read_attributes(block[offset + 4 : offset + length], 0)
        found.append((attributes.get(1, b"").rstrip(b"\0"), read_attributes(attributes.get(2, b""), 0)))
        offset += length + 3 & ~3
    return found


class _Transaction(Netlink):
    """Several changes at once, or none of them."""

    def close(self) -> None:
        """What this socket owns goes with it."""
        self._socket.close()

    def commit(self, messages: list[tuple[int, int, bytes]]) -> None:
        """All of these (type, flags, attributes), each acknowledged. OSError: the first refusal."""
        edge = pack(">BBH", 0, 0, _SUBSYSTEM)
        data = self._spell(_BATCH_BEGIN, 0, edge)
        for kind, flags, body in messages:
            data += self._spell(kind, flags | NLM_F_ACK, pack(">BBH", INET, 0, 0) + body)
        data += self._spell(_BATCH_END, 0, edge)
        self._socket.settimeout(_SECONDS)
        self._socket.send(data)
        left = len(messages)
        while left:
            answer = self._socket.recv(1 << 16)
            offset = 0
            while offset + NLMSG_HEADER <= len(answer):
                length, kind = unpack_from("=IH", answer, offset)
                if kind == NLMSG_ERROR:
                    left -= 1
                    if code := -unpack_from("=i", answer, offset + NLMSG_HEADER)[0]:
                        raise OSError(code, os.strerror(code))
                offset += max(NLMSG_HEADER, length + 3 & ~3)

    def _spell(self, kind: int, flags: int, body: bytes) -> bytes:
        self._sequence += 1
        body += b"\0" * (-len(body) % 4)
        return pack("=IHHII", NLMSG_HEADER + len(body), kind, NLM_F_REQUEST | flags, self._sequence, 0) + body


def _table(flags: int) -> tuple[int, int, bytes]:
    return _NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, _attribute(1, _name(TABLE)) + _attribute(2, pack(">I", flags))


def _make_chains(wanted: Wanted, loggers: tuple[str, ...]) -> list[tuple[int, int, bytes]]:
    chains = [_chain(BEGINNING, _BEGINNINGS[wanted.inbound], BEFORE_ALL)]
    chains += [_chain(name, hook, BEHIND_ALL) for name, hook in ENDS.items()]
    return chains + [_chain(f"{_LOGGER}-{name}", None, 0) for name in loggers]


def _chain(name: str, hook: int | None, priority: int) -> tuple[int, int, bytes]:
    body = _attribute(1, _name(TABLE)) + _attribute(3, _name(name))
    if hook is not None:
        place = _attribute(1, pack(">I", hook)) + _attribute(2, pack(">i", priority))
        body += _attribute(4 | _NESTED, place) + _attribute(5, pack(">I", 1)) + _attribute(7, _name("filter"))
    return _NEWCHAIN, NLM_F_CREATE, body


def _rule(wanted: Wanted, group: int, rate: int) -> tuple[int, int, bytes]:
    """What is meant, no more than the rate, is marked and reported."""
    protocol = {"tcp": 6, "udp": 17}[wanted.protocol]
    parts = _meta_is("nfproto", bytes((wanted.family.number,))) + _meta_is("l4proto", bytes((protocol,)))
    source, destination, size = (12, 16, 4) if wanted.family is IPV4 else (8, 24, 16)
    for address, offset in ((wanted.source, source), (wanted.destination, destination)):
        if address is not None:
            parts += _load(_NETWORK, offset, size) + _compare(address.to_bytes(size, "big"))
    parts += _load(_TRANSPORT, 2, 2) + _compare(pack(">H", wanted.port))
    if wanted.inbound:  # what this host sends to itself is asked about where it is made
        parts += _expression("meta", _attribute(2, pack(">I", _IIF)) + _attribute(1, pack(">I", 1)))
        parts += _compare(pack("=I", LOOPBACK_INDEX), equal=False)
    if wanted.protocol == "tcp":
        offset, mask, value = _SYN_ALONE
        parts += _load(_TRANSPORT, offset, 1) + _mask(bytes((mask,))) + _compare(bytes((value,)))
    for name, number in (("skuid", wanted.uid), ("skgid", wanted.gid)):
        if number is not None:
            parts += _meta_is(name, pack("=I", number))
    parts += _expression("limit", _attribute(1, pack(">Q", rate)) + _attribute(2, pack(">Q", 1)) + _attribute(3, pack(">I", rate)))
    parts += _expression("immediate", _attribute(1, pack(">I", 1)) + _attribute(2 | _NESTED, _attribute(1, b"\1")))
    parts += _expression("meta", _attribute(2, pack(">I", _NFTRACE)) + _attribute(3, pack(">I", 1)))
    parts += _expression("log", _attribute(1, pack(">H", group)) + _attribute(4, pack(">H", 1)))
    body = _attribute(1, _name(TABLE)) + _attribute(2, _name(BEGINNING)) + _attribute(4 | _NESTED, parts)
    return _NEWRULE, NLM_F_CREATE, body


def _meta_is(name: str, value: bytes) -> bytes:
    key, size = _META_LENGTHS[name]
    return _expression("meta", _attribute(2, pack(">I", key)) + _attribute(1, pack(">I", 1))) + _compare(value[:size])


def _load(base: int, offset: int, size: int) -> bytes:
    numbers = zip((1, 2, 3, 4), (1, base, offset, size), strict=True)
    return _expression("payload", b"".join([_attribute(kind, pack(">I", number)) for kind, number in numbers]))


def _mask(mask: bytes) -> bytes:
    registers = b"".join([_attribute(kind, pack(">I", number)) for kind, number in ((1, 1), (2, 1), (3, len(mask)))])
    values = _attribute(4 | _NESTED, _attribute(1, mask)) + _attribute(5 | _NESTED, _attribute(1, bytes(len(mask))))
    return _expression("bitwise", registers + values)


def _compare(value: bytes, *, equal: bool = True) -> bytes:
    data = _attribute(3 | _NESTED, _attribute(1, value))
    return _expression("cmp", _attribute(1, pack(">I", 1)) + _attribute(2, pack(">I", not equal)) + data)


def _expression(name: str, data: bytes) -> bytes:
    return _attribute(1 | _NESTED, _attribute(1, _name(name)) + _attribute(2 | _NESTED, data))


def _attribute(kind: int, value: bytes) -> bytes:
    return pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _name(text: str) -> bytes:
    return text.encode() + b"\0"


def _big(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "big")
