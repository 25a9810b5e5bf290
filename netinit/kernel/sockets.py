"""Listening sockets, socket options for transparent proxying, and sockets of another user, which a child may become."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

from netinit.base.net import IPV4, IPV6, Family
from netinit.base.system import posix
from netinit.kernel import libc

IP_TRANSPARENT, IPV6_TRANSPARENT = 19, 75  # linux/in.h, linux/in6.h
_TRANSPARENT = {IPV4: (socket.SOL_IP, IP_TRANSPARENT), IPV6: (socket.IPPROTO_IPV6, IPV6_TRANSPARENT)}
SO_ORIGINAL_DST = 80  # linux/netfilter_ipv4.h; the number is the same for IPv6
_BACKLOG = 1024  # a SYN beyond it is dropped and sent again after a second


def listen(family: Family, port: int, *, transparent: bool = False) -> socket.socket:
    """Return a non-blocking socket that listens on a port, for this family alone. Raises OSError.

    `transparent`: as TPROXY requires.
    """
    made = socket.socket(family.number, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is IPV6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if transparent:
            made.setsockopt(*_TRANSPARENT[family], 1)
        made.bind((family.any_address, port))
        made.listen(_BACKLOG)
        made.setblocking(False)  # noqa: FBT003 - its signature
    except OSError:
        made.close()
        raise
    return made


def original_destination(connection: socket.socket, family: Family) -> tuple[str, int]:
    """Return a redirected connection's original destination (SO_ORIGINAL_DST). Raises OSError."""
    if family is IPV4:
        data = connection.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        return socket.inet_ntop(socket.AF_INET, data[4:8]), struct.unpack("!H", data[2:4])[0]
    data = connection.getsockopt(socket.IPPROTO_IPV6, SO_ORIGINAL_DST, 28)
    return socket.inet_ntop(socket.AF_INET6, data[8:24]), struct.unpack("!H", data[2:4])[0]


@contextlib.contextmanager
def creating_as(uid: int | None, gid: int | None) -> Iterator[None]:
    """Create sockets in the block as this user and group, with all capabilities.

    setfsuid(2) changes the identity that the kernel stores in new files, which the owner match compares. Unlike seteuid it
    keeps the network capabilities, so ports below 1024 and IP_TRANSPARENT work.
    """
    setfsuid, setfsgid = libc.function("setfsuid"), libc.function("setfsgid")
    old_gid = setfsgid(gid) if gid is not None else None
    old_uid = setfsuid(uid) if uid is not None else None
    try:
        yield
    finally:
        if old_uid is not None:
            setfsuid(old_uid)
        if old_gid is not None:
            setfsgid(old_gid)


def become(user: int) -> None:
    """Switch to this user and the group with its number for good, without supplementary groups."""
    posix.setgroups([])
    posix.setresgid(user, user, user)
    posix.setresuid(user, user, user)
