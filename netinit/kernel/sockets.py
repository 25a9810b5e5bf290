"""Socket options for transparent proxying."""

from __future__ import annotations

import socket
import struct

from netinit.base.net import IPV4, Family

IP_TRANSPARENT, IPV6_TRANSPARENT = 19, 75  # linux/in.h, linux/in6.h
SO_ORIGINAL_DST = 80  # linux/netfilter_ipv4.h; the number is the same for IPv6


def original_destination(connection: socket.socket, family: Family) -> tuple[str, int]:
    """Return a redirected connection's original destination (SO_ORIGINAL_DST). Raises OSError."""
    if family is IPV4:
        data = connection.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        return socket.inet_ntop(socket.AF_INET, data[4:8]), struct.unpack("!H", data[2:4])[0]
    data = connection.getsockopt(socket.IPPROTO_IPV6, SO_ORIGINAL_DST, 28)
    return socket.inet_ntop(socket.AF_INET6, data[8:24]), struct.unpack("!H", data[2:4])[0]
