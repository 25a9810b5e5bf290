"""Send a connection's first packet as a chosen user, without needing an answer.

TCP: a SYN through a raw socket, which the owner match, connection tracking and NAT treat like any; the kernel resets an
answer, so no program notices. UDP: an empty datagram.
"""

from __future__ import annotations

import os
import random
import socket
import struct

from netinit.base.errors import NamespaceError
from netinit.base.net import IPV6
from netinit.kernel.switch_user import creating_as
from netinit.pods.probe.matrix import Ask

SYN = 0x02
HOPS = 1  # packets that leave the pod stop at the first router
CHECKSUM_OFFSET = 16
IPV6_CHECKSUM = 7  # linux/in6.h


class ProbeSocket:
    """A user's socket, ready to send the first packet of a connection; `source`, `source_port`: its own end.

    Raises OSError without a route; NamespaceError if it cannot switch to the user.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._is_tcp = ask.protocol == "tcp"
        kind = (socket.SOCK_RAW, socket.IPPROTO_TCP) if self._is_tcp else (socket.SOCK_DGRAM, socket.IPPROTO_UDP)
        with creating_as(ask.uid, ask.gid):
            self._sender = socket.socket(ask.family.number, *kind)
        self._reserved = socket.socket(ask.family.number, socket.SOCK_STREAM) if self._is_tcp else self._sender
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        ask, sender = self._ask, self._sender
        status = os.fstat(sender.fileno())
        if (status.st_uid, status.st_gid) != (ask.uid, ask.gid):
            raise NamespaceError(f"no connection can be made as uid {ask.uid}: run as root with SETUID and SETGID")
        if ask.family is IPV6:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, HOPS)
            if self._is_tcp:
                sender.setsockopt(socket.IPPROTO_IPV6, IPV6_CHECKSUM, CHECKSUM_OFFSET)
        else:
            sender.setsockopt(socket.SOL_IP, socket.IP_TTL, HOPS)
        if ask.source:
            sender.bind((ask.source, 0))
        sender.connect((ask.destination, 0 if self._is_tcp else ask.port))
        self.source = str(sender.getsockname()[0])
        if self._is_tcp:
            self._reserved.bind((self.source, 0))  # reserves the port while this socket is open
        self.source_port = int(self._reserved.getsockname()[1])

    @property
    def tuple(self) -> tuple[int, str, int, str, int]:
        """The connection as conntrack identifies it: protocol, source, port, destination, port."""
        protocol = socket.IPPROTO_TCP if self._is_tcp else socket.IPPROTO_UDP
        return protocol, self.source, self.source_port, self._ask.destination, self._ask.port

    def send(self) -> None:
        """Send the packet. Raises OSError."""
        self._sender.send(self._segment() if self._is_tcp else b"")

    def close(self) -> None:
        """Close the sockets."""
        self._reserved.close()
        self._sender.close()

    def _segment(self) -> bytes:
        segment = struct.pack("!HHIIBBH", self.source_port, self._ask.port, random.getrandbits(32), 0, 5 << 4, SYN, 64240)
        if self._ask.family is IPV6:  # the kernel fills in the checksum
            return segment + bytes(4)
        pseudo = socket.inet_aton(self.source) + socket.inet_aton(self._ask.destination) + struct.pack("!HH", socket.IPPROTO_TCP, 20)
        return segment + struct.pack("!HH", _checksum(pseudo + segment), 0)


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
