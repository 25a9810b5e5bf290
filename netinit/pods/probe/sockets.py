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
from netinit.base.net import IPV6, Family
from netinit.kernel.switch_user import creating_as

SYN = 0x02
HOPS = 1  # packets that leave the pod stop at the first router
CHECKSUM_OFFSET = 16
IPV6_CHECKSUM = 7  # linux/in6.h


class ProbeSocket:
    """A user's socket, ready to send a first packet to one address; `source`, `source_port`: its own end.

    Raises OSError without a route; NamespaceError if it cannot switch to the user.
    """

    def __init__(self, family: Family, protocol: str, destination: str, port: int, *, uid: int, gid: int, source: str = "") -> None:
        self._family = family
        self._destination, self._port = destination, port
        self.is_tcp = protocol == "tcp"
        self._reserved = socket.socket(family.number, socket.SOCK_STREAM if self.is_tcp else socket.SOCK_DGRAM)
        self._raw: socket.socket | None = None
        try:
            if self.is_tcp:
                with creating_as(uid, gid):
                    self._raw = socket.socket(family.number, socket.SOCK_RAW, socket.IPPROTO_TCP)
            else:
                self._reserved.close()
                with creating_as(uid, gid):
                    self._reserved = socket.socket(family.number, socket.SOCK_DGRAM)
            self._prepare(source, uid, gid)
        except BaseException:
            self.close()
            raise

    def _prepare(self, source: str, uid: int, gid: int) -> None:
        sender = self._raw or self._reserved
        status = os.fstat(sender.fileno())
        if (status.st_uid, status.st_gid) != (uid, gid):
            raise NamespaceError(f"no connection can be made as uid {uid}: run as root with SETUID and SETGID")
        if self._family is IPV6:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, HOPS)
            if self._raw:
                sender.setsockopt(socket.IPPROTO_IPV6, IPV6_CHECKSUM, CHECKSUM_OFFSET)
        else:
            sender.setsockopt(socket.SOL_IP, socket.IP_TTL, HOPS)
        if self._raw:
            if source:
                self._raw.bind((source, 0))
            self._raw.connect((self._destination, 0))
            self.source = str(self._raw.getsockname()[0])
            self._reserved.bind((self.source, 0))  # reserves the port while this socket is open
        else:
            if source:
                self._reserved.bind((source, 0))
            self._reserved.connect((self._destination, self._port))
            self.source = str(self._reserved.getsockname()[0])
        self.source_port = int(self._reserved.getsockname()[1])

    @property
    def tuple(self) -> tuple[int, str, int, str, int]:
        """The connection as conntrack identifies it: protocol, source, port, destination, port."""
        protocol = socket.IPPROTO_TCP if self.is_tcp else socket.IPPROTO_UDP
        return protocol, self.source, self.source_port, self._destination, self._port

    def send(self) -> None:
        """Send the packet. Raises OSError."""
        if self._raw:
            self._raw.send(self._segment())
        else:
            self._reserved.send(b"")

    def close(self) -> None:
        """Close the sockets."""
        self._reserved.close()
        if self._raw:
            self._raw.close()

    def _segment(self) -> bytes:
        ends = struct.pack("!HH", self.source_port, self._port)
        number = random.getrandbits(32)
        rest = struct.pack("!BBH", 5 << 4, SYN, 64240)
        segment = ends + struct.pack("!II", number, 0) + rest
        if self._family is IPV6:  # the kernel fills in the checksum
            return segment + bytes(4)
        pseudo = socket.inet_aton(self.source) + socket.inet_aton(self._destination) + struct.pack("!HH", socket.IPPROTO_TCP, 20)
        return segment + struct.pack("!HH", _checksum(pseudo + segment), 0)


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
