"""Read connection tracking: entries, events and translated destinations (linux/netfilter/nfnetlink_conntrack.h).

An entry has two tuples: of the first packet and of the expected replies. If they are not mirror images, NAT has translated
the connection.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from netinit.base.netlink_attributes import NLA_F_NESTED
from netinit.kernel import netlink
from netinit.kernel.netlink import Netlink, attribute, big, read_attributes, split_messages

ALL_GROUPS = 0b111  # NFNLGRP_CONNTRACK_NEW, _UPDATE and _DESTROY
SUBSYSTEM = 1 << 8
NEW, GET, DELETE = SUBSYSTEM | 0, SUBSYSTEM | 1, SUBSYSTEM | 2
ORIGINAL, REPLY, STATUS, ZONE = 1, 2, 3, 18  # CTA_*
CTA_TUPLE_IP, CTA_TUPLE_PROTO = 1, 2
CTA_IP_V4_SRC, CTA_IP_V4_DST, CTA_IP_V6_SRC, CTA_IP_V6_DST = 1, 2, 3, 4
CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT = 1, 2, 3
SEEN_REPLY = 1 << 1
RECEIVE_SIZE = 1 << 17
BUFFER = 1 << 22


@dataclass(frozen=True, slots=True)
class Event:
    """A connection was created, changed or deleted. Tuples are (protocol, source, port, destination, port)."""

    destroyed: bool
    answered: bool
    original: tuple[int, str, int, str, int]
    reply: tuple[int, str, int, str, int]
    handle: bytes  # identifies the entry to the kernel: the body of a request with its original tuple and zone

    @property
    def translated(self) -> bool:
        """Whether NAT has changed the connection's destination."""
        protocol, source, source_port, destination, destination_port = self.original
        return self.reply != (protocol, destination, destination_port, source, source_port)


class EventSocket(Netlink):
    """A netfilter socket with a buffer of 4 MiB, which hears these multicast groups (a bit mask). Raises OSError."""

    def __init__(self, groups: int = 0) -> None:
        super().__init__(netlink.NETLINK_NETFILTER)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            self._socket.bind((0, groups))
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the socket's descriptor, for poll(2)."""
        return self._socket.fileno()

    def receive(self, flags: int = 0) -> list[tuple[int, bytes]]:
        """Return the next messages as (type, payload). Raises OSError: ENOBUFS if the kernel dropped some; see recv(2)."""
        return [(kind, body) for kind, body, *_ in split_messages(self._socket.recv(RECEIVE_SIZE, flags))]


class Watch(EventSocket):
    """Events of this network namespace. Raises OSError: EPERM without NET_ADMIN."""

    def __init__(self) -> None:
        super().__init__(ALL_GROUPS)

    def read(self, seconds: float) -> Iterator[Event]:
        """Yield the next events; none if none arrives in `seconds`. Raises the errors of `receive`."""
        self._socket.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            for kind, body in self.receive():
                if kind in (NEW, DELETE) and (event := _read(body, destroyed=kind == DELETE)):
                    yield event


def find_entry(link: Netlink, protocol: int, source: tuple[bytes, int], destination: tuple[bytes, int]) -> Event | None:
    """Return the entry for a connection between two ends (packed address, port); None if the default zone has none.

    Raises OSError if the kernel does not answer.
    """
    family = socket.AF_INET if len(source[0]) == 4 else socket.AF_INET6  # noqa: PLR2004 - bytes of IPv4
    kinds = (CTA_IP_V4_SRC, CTA_IP_V4_DST) if family == socket.AF_INET else (CTA_IP_V6_SRC, CTA_IP_V6_DST)
    ends = attribute(kinds[0], source[0]) + attribute(kinds[1], destination[0])
    ports = attribute(CTA_PROTO_NUM, bytes((protocol,))) + attribute(CTA_PROTO_SRC_PORT, struct.pack(">H", source[1]))
    ports += attribute(CTA_PROTO_DST_PORT, struct.pack(">H", destination[1]))
    nested = attribute(CTA_TUPLE_IP | NLA_F_NESTED, ends) + attribute(CTA_TUPLE_PROTO | NLA_F_NESTED, ports)
    body = struct.pack("=BBH", family, 0, 0) + attribute(ORIGINAL | NLA_F_NESTED, nested)
    return next(filter(None, map(_read, link.request(GET, 0, body, may_lack=True))), None)


def list_entries(link: Netlink) -> list[Event]:
    """Return the entries of all connections with ports. Raises OSError."""
    return [*filter(None, map(_read, link.dump(GET, bytes(netlink.NETFILTER_SIZE))))]


def _read(body: bytes, *, destroyed: bool = False) -> Event | None:
    attributes = read_attributes(body, netlink.NETFILTER_SIZE)
    original, reply = _tuple(attributes.get(ORIGINAL)), _tuple(attributes.get(REPLY))
    if not (original and reply):
        return None
    handle = struct.pack("=BBH", body[0], 0, 0) + attribute(ORIGINAL | NLA_F_NESTED, attributes[ORIGINAL])
    handle += attribute(ZONE, attributes[ZONE][:2]) if ZONE in attributes else b""
    answered = bool(big(attributes.get(STATUS)) & SEEN_REPLY)
    return Event(destroyed=destroyed, answered=answered, original=original, reply=reply, handle=handle)


def delete_entry(link: Netlink, event: Event) -> None:
    """Delete a connection's entry, if it still exists. Raises OSError."""
    link.request(DELETE, 0, event.handle, may_lack=True)


def _tuple(data: bytes | None) -> tuple[int, str, int, str, int] | None:
    parts = read_attributes(data or b"", 0)
    ends, protocol = [read_attributes(parts.get(kind, b""), 0) for kind in (CTA_TUPLE_IP, CTA_TUPLE_PROTO)]
    kinds = ((CTA_IP_V4_SRC, CTA_IP_V6_SRC), (CTA_IP_V4_DST, CTA_IP_V6_DST))
    packed = [ends.get(four) or ends.get(six) for four, six in kinds]
    ports = [protocol.get(kind) for kind in (CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT)]
    if not all(packed) or not all(ports):
        return None
    source, destination = [
        socket.inet_ntop(socket.AF_INET if len(one) == 4 else socket.AF_INET6, one)  # noqa: PLR2004 - bytes of IPv4
        for one in packed
        if one
    ]
    source_port, destination_port = [int.from_bytes(one, "big") for one in ports if one]
    return protocol[CTA_PROTO_NUM][0], source, source_port, destination, destination_port
