"""Let the kernel trace packets of one connection in this network namespace, and read what it reports.

nf_tables, and with it iptables-nft, reports each rule that a traced packet reaches (NFT_MSG_TRACE of
linux/netfilter/nf_tables.h); legacy iptables reports them as texts (trace_packet of net/ipv4/netfilter/ip_tables.c), which
nfnetlink_log delivers. An NFLOG group reports each packet's sender.

An nf_tables table starts the trace, and decides nothing about packets. One rule, before all others, marks the connection's
first packets for tracing and reports their sender; chains after all others show where a path ends. The kernel deletes the
table when the socket that owns it is closed (NFT_TABLE_F_OWNER, Linux 5.12). Before 5.12, the next run deletes a leftover.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import pack, unpack_from
from typing import Self

from netinit.base.errors import BackendUnavailableError, LockedError
from netinit.base.net import Family
from netinit.base.snapshot import OWNED
from netinit.kernel import detect, netlink, nf_tables
from netinit.kernel.capabilities import advise
from netinit.kernel.conntrack import EventSocket
from netinit.kernel.netlink import attribute, big, list_nft_chains, read_attributes, read_name
from netinit.kernel.nf_tables import Message, NfTables, create_chain, name, raise_first

TABLE = "netinit-trace"
BEFORE_ALL, BEHIND_ALL = -350, 0x7FFFFFFE  # after defragmentation (-400), before raw (-300)
ENDS = {"end-of-input": 1, "end-of-postrouting": 4}  # chains after all others, and their hooks
BEGINNING = "beginning"
_LOGGER_CHAIN = "logger-"  # prefix of the chain that stores a logger's name
ENOENT = 2
NO_OWNERS = (22, 95)  # EINVAL, EOPNOTSUPP: errors of kernels that do not know the flag
GROUP = 28265  # NFLOG group of our reports; the process that has it is the only one tracing here
OF_THE_OLDER = 0  # NFLOG group of legacy iptables' texts
NFNLGRP_NFTRACE = 9
NFT_MSG_TRACE = 10 << 8 | 17
NFULNL_MSG_PACKET, NFULNL_MSG_CONFIG = 4 << 8, 4 << 8 | 1
BIND, COPY_PACKET = 1, 2
# Attributes of linux/netfilter/nfnetlink_log.h, and of a trace
NFULA_CFG_CMD, NFULA_CFG_MODE, NFULA_CFG_QTHRESH = 1, 2, 5
NFULA_PACKET_HDR, NFULA_MARK, NFULA_IFINDEX_INDEV, NFULA_IFINDEX_OUTDEV, NFULA_PAYLOAD, NFULA_PREFIX = 1, 2, 4, 5, 9, 10
NFULA_UID, NFULA_GID = 11, 14
NFTA_TRACE_TABLE, NFTA_TRACE_CHAIN, NFTA_TRACE_RULE_HANDLE, NFTA_TRACE_TYPE, NFTA_TRACE_VERDICT, NFTA_TRACE_ID = 1, 2, 3, 4, 5, 6
NFTA_TRACE_NETWORK_HEADER, NFTA_TRACE_TRANSPORT_HEADER, NFTA_TRACE_OIF, NFTA_TRACE_POLICY = 8, 9, 12, 16
NFTA_VERDICT_CODE, NFTA_VERDICT_CHAIN = 1, 2
RULE, POLICY = 3, 1  # enum nft_trace_types
NF_DROP, NFT_JUMP, NFT_GOTO = 0, -3, -4
HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
MAX_PACKET_BYTES = 128  # reported of each packet: its headers
TAKEN = (1, 16)  # EPERM, EBUSY: another socket has the group; NET_ADMIN was checked before
ENOBUFS = 105
_LOGGERS = Path("/proc/sys/net/netfilter/nf_log")
_OLDER = "TRACE: "
_LOGGER = "nfnetlink_log"


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of a packet; `sequence` is TCP's sequence number or a datagram's length."""

    protocol: int
    source: int
    destination: int
    source_port: int
    destination_port: int
    sequence: int

    @property
    def key(self) -> tuple[int, int, int]:
        """The fields that NAT of addresses does not change."""
        return (self.protocol, self.source_port, self.sequence)


@dataclass(frozen=True, slots=True)
class PacketStart:
    """A packet whose trace starts: its sender if a socket sends it, its mark and device index."""

    headers: Headers
    uid: int | None
    gid: int | None
    mark: int
    device: int


@dataclass(frozen=True, slots=True)
class RuleEvent:
    """A rule of nf_tables that a packet reached (by handle), or with `policy` the end of a base chain.

    `headers` are reported once for each base chain. `code`: the verdict (linux/netfilter.h, nf_tables.h).
    """

    packet: int  # the kernel's id of the packet, which is reused
    family: int
    table: str
    chain: str
    handle: int
    policy: bool
    code: int
    target: str  # the chain that the rule jumps to
    headers: Headers | None
    out_device: int


@dataclass(frozen=True, slots=True)
class LegacyRuleEvent:
    """A rule of legacy iptables that a packet reached, by its number from 1; after the last rule, the chain's end."""

    headers: Headers
    hook: str
    table: str
    chain: str
    number: int


Event = PacketStart | RuleEvent | LegacyRuleEvent


def require_admin() -> None:
    """Raise BackendUnavailableError without NET_ADMIN."""
    if not detect.has_capability(detect.CAP_NET_ADMIN):
        raise BackendUnavailableError(f"packets cannot be traced: NET_ADMIN is missing: {advise('NET_ADMIN')}")


class Tracer:
    """Traces the packets for which a rule with these expressions sets nftrace and reports them to GROUP; a context manager.

    `older`: also through the rules of iptables-legacy. Raises LockedError while another process traces here;
    BackendUnavailableError.
    """

    def __init__(self, rule: bytes, family: Family, *, inbound: bool, older: bool) -> None:
        self.lost = False  # some events did not fit into the buffer
        self._rule, self._family, self._inbound, self._older = rule, family, inbound, older
        self._reports: EventSocket
        self._traces: EventSocket
        self._before = ""  # the previous logger: number of its family, name
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self._open(opened)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def read(self, seconds: float) -> list[Event]:
        """Return the next events, starts of packets first; empty after `seconds` without any."""
        poller = select.poll()
        poller.register(self._reports, select.POLLIN)
        poller.register(self._traces, select.POLLIN)
        if not poller.poll(seconds * 1000):
            return []
        traces = list(self._drain(self._traces))
        reports = list(self._drain(self._reports))  # afterwards: the start of a packet is reported before its first rule
        found: list[Event] = [event for kind, body in reports if kind == NFULNL_MSG_PACKET and (event := _read_report(body))]
        found.sort(key=lambda event: not isinstance(event, PacketStart))
        return found + [_read_trace(body) for kind, body in traces if kind == NFT_MSG_TRACE]

    def _open(self, opened: contextlib.ExitStack) -> None:
        require_admin()
        self._reports = opened.enter_context(EventSocket())
        try:
            _bind(self._reports, GROUP)
        except OSError as error:
            if error.errno in TAKEN:
                raise LockedError("this pod is being traced already: wait until that run ends, or end it") from None
            raise _unavailable("reports of packets (nfnetlink_log)", error) from None
        try:
            self._traces = opened.enter_context(EventSocket(1 << NFNLGRP_NFTRACE - 1))
            _remove_leftover()
            before = ""  # as `_restore_logger` takes it
            if self._older:
                number = str(self._family.number)
                before = f"{number}-{(_LOGGERS / number).read_text(encoding='ascii').strip()}"
                _bind(self._reports, OF_THE_OLDER)
            opened.callback(lambda: _restore_logger(self._before))
            link = opened.enter_context(NfTables())
            self._create_table(link, before)
            opened.callback(_delete_table, link)
            if before:
                _write_logger(self._family, _LOGGER)
                self._before = before
        except OSError as error:
            if error.errno in TAKEN:
                raise BackendUnavailableError(
                    "the rules of iptables-legacy are traced through group 0 of nfnetlink_log, which another program reads"
                    " (ulogd?): end that while you trace"
                ) from None
            raise _unavailable("the trace of nf_tables", error) from None

    def _create_table(self, link: NfTables, logger: str) -> None:
        """Create the table, which the socket owns and in which the name `logger`, if any, is stored. Raises OSError."""
        messages = [create_chain(TABLE, BEGINNING, ("filter", 0 if self._inbound else 3, BEFORE_ALL))]
        messages += [create_chain(TABLE, end, ("filter", hook, BEHIND_ALL)) for end, hook in ENDS.items()]
        messages += [create_chain(TABLE, _LOGGER_CHAIN + logger, None)] if logger else []
        rule = nf_tables.rule_place(TABLE, BEGINNING) + attribute(netlink.NFTA_RULE_EXPRESSIONS, self._rule)
        messages.append((nf_tables.NFT_MSG_NEWRULE, netlink.NLM_F_CREATE, rule))
        for flags in (0,) if logger else (OWNED, 0):
            try:
                _commit(link, [_write_table(flags), *messages])
            except OSError as error:
                if not flags or error.errno not in NO_OWNERS:
                    raise
            else:
                return

    def _drain(self, sock: EventSocket) -> Iterator[tuple[int, bytes]]:
        while True:
            try:
                yield from sock.receive(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != ENOBUFS:
                    raise
                self.lost = True


def _bind(sock: EventSocket, group: int) -> None:
    """Bind the socket to an NFLOG group that reports each packet's first bytes at once. Raises OSError: EBUSY if taken."""
    mode = attribute(NFULA_CFG_MODE, pack(">IBB", MAX_PACKET_BYTES, COPY_PACKET, 0)) + attribute(NFULA_CFG_QTHRESH, pack(">I", 1))
    for attributes in (attribute(NFULA_CFG_CMD, bytes((BIND,))), mode):
        sock.request(NFULNL_MSG_CONFIG, 0, pack(">BBH", 0, 0, group) + attributes)


def _read_report(body: bytes) -> PacketStart | LegacyRuleEvent | None:
    attributes = read_attributes(body, netlink.NETFILTER_SIZE)
    payload = attributes.get(NFULA_PAYLOAD, b"")
    if not payload:
        return None
    size = (payload[0] & 15) * 4 if payload[0] >> 4 == 4 else 40  # noqa: PLR2004 - IP's version
    headers = read_headers(payload[:size], payload[size:])
    if headers is None:
        return None
    prefix = read_name(attributes.get(NFULA_PREFIX, b""))
    if not prefix.startswith(_OLDER):
        uid, gid = [big(attributes[kind]) if kind in attributes else None for kind in (NFULA_UID, NFULA_GID)]
        device = big(attributes.get(NFULA_IFINDEX_INDEV)) or big(attributes.get(NFULA_IFINDEX_OUTDEV))
        return PacketStart(headers, uid, gid, big(attributes.get(NFULA_MARK)), device)
    table, _, rest = prefix.removeprefix(_OLDER).partition(":")
    chain, _, number = rest.strip().rpartition(":")
    hook = attributes.get(NFULA_PACKET_HDR, b"\0\0\xff\0")[2]
    if hook >= len(HOOKS) or not number.isdecimal():
        return None
    return LegacyRuleEvent(headers, HOOKS[hook], table, chain.rpartition(":")[0], int(number))


def _read_trace(body: bytes) -> RuleEvent:
    attributes = read_attributes(body, netlink.NETFILTER_SIZE)
    verdict = read_attributes(attributes.get(NFTA_TRACE_VERDICT, b""), 0)
    event = big(attributes.get(NFTA_TRACE_TYPE))
    verdict_code = int.from_bytes(verdict.get(NFTA_VERDICT_CODE, b"\xff\xff\xff\xff"), "big", signed=True)
    headers = [attributes.get(kind, b"") for kind in (NFTA_TRACE_NETWORK_HEADER, NFTA_TRACE_TRANSPORT_HEADER)]
    return RuleEvent(
        packet=big(attributes.get(NFTA_TRACE_ID)), family=body[0], table=read_name(attributes.get(NFTA_TRACE_TABLE, b"")),
        chain=read_name(attributes.get(NFTA_TRACE_CHAIN, b"")), policy=event == POLICY,
        handle=big(attributes.get(NFTA_TRACE_RULE_HANDLE)) if event == RULE else 0,
        code=big(attributes.get(NFTA_TRACE_POLICY)) if event == POLICY else verdict_code,
        target=read_name(verdict.get(NFTA_VERDICT_CHAIN, b"")), headers=read_headers(*headers),
        out_device=big(attributes.get(NFTA_TRACE_OIF)),
    )  # fmt: skip


def read_headers(network: bytes, transport: bytes) -> Headers | None:
    """Read the headers of a TCP segment or UDP datagram; None for anything else."""
    if len(network) < 20 or len(transport) < 8:  # noqa: PLR2004 - the shortest of both
        return None
    if network[0] >> 4 == 4:  # noqa: PLR2004
        protocol, source, destination = network[9], network[12:16], network[16:20]
    elif len(network) >= 40:  # noqa: PLR2004
        protocol, source, destination = network[6], network[8:24], network[24:40]
    else:
        return None
    if protocol not in (6, 17):
        return None
    ports = unpack_from(">HH", transport)
    sequence = big(transport[4:8] if protocol == 6 else transport[4:6])  # noqa: PLR2004
    return Headers(protocol, big(source), big(destination), ports[0], ports[1], sequence)


def _commit(link: NfTables, messages: list[Message]) -> None:
    raise_first(link.commit([(netlink.INET, one) for one in messages]))


def _write_table(flags: int) -> Message:
    body = attribute(netlink.NFTA_TABLE_NAME, name(TABLE)) + attribute(netlink.NFTA_TABLE_FLAGS, pack(">I", flags))
    return nf_tables.NFT_MSG_NEWTABLE, netlink.NLM_F_CREATE | netlink.NLM_F_EXCL, body


def _delete_table(link: NfTables) -> None:
    """Delete the table, if it exists. Raises OSError: EPERM if another socket owns it."""
    try:
        _commit(link, [(nf_tables.NFT_MSG_DELTABLE, 0, attribute(netlink.NFTA_TABLE_NAME, name(TABLE)))])
    except OSError as error:
        if error.errno != ENOENT:
            raise


def _remove_leftover() -> None:
    """Delete the table of a killed run and restore the logger that it stores. Raises OSError; LockedError while that run is alive."""
    chains = [chain.name for chain in list_nft_chains() if (chain.family, chain.table) == (netlink.INET, TABLE)]
    try:
        with NfTables() as link:
            _delete_table(link)
    except PermissionError:
        raise LockedError("a table netinit-trace is here that belongs to another program, which is still alive: end it") from None
    _restore_logger(next((chain.removeprefix(_LOGGER_CHAIN) for chain in chains if chain.startswith(_LOGGER_CHAIN)), ""))


def _write_logger(family: Family, logger: str) -> None:
    try:
        (_LOGGERS / str(family.number)).write_text(logger, encoding="ascii")
    except OSError as error:
        raise BackendUnavailableError(
            f"the rules of iptables-legacy cannot be traced here: {error.filename} cannot be written: {error.strerror};"
            " trace from the node (--pid), where /proc/sys is not read-only"
        ) from None


def _restore_logger(logger: str) -> None:
    """Restore a saved logger; an invalid name, which a foreign table may hold, is ignored."""
    if found := re.fullmatch(r"(2|10)-([A-Za-z0-9_]{1,64})", logger):
        (_LOGGERS / found[1]).write_text(found[2], encoding="ascii")


def _unavailable(what: str, error: OSError) -> BackendUnavailableError:
    return BackendUnavailableError(
        f"{what} cannot be opened: {error.strerror}; tracing needs NET_ADMIN and a kernel with nf_tables, nft_log and nfnetlink_log"
    )
