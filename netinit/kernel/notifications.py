"""Sockets that become readable when something in a network namespace changes that affects packets.

Messages only wake, so a buffer holds one, and dropped ones (ENOBUFS) do not matter. After a wake-up drain first, then take
a snapshot. The kernel reports no changes of legacy tables, BPF programs, route_localnet and accept_local. A socket keeps
its namespace alive: close it when the pod is deleted.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence

from netinit.base.system import LINUX, NEEDS_LINUX
from netinit.kernel.descriptors import receive_descriptors

_ROUTE, _XFRM, _NETFILTER = 0, 6, 12
# RTNLGRP_LINK, TC, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE, IPV4_NETCONF, IPV6_NETCONF, NEXTHOP
_ROUTE_GROUPS = (1, 4, 5, 7, 8, 9, 11, 19, 24, 25, 32)
_CONNECTIONS = (1, 3)  # NFNLGRP_CONNTRACK_NEW, NFNLGRP_CONNTRACK_DESTROY
CHANGES = {_NETFILTER: (7,), _ROUTE: _ROUTE_GROUPS, _XFRM: (4,)}  # NFNLGRP_NFTABLES, XFRMNLGRP_POLICY
CONNECTIONS = {_NETFILTER: _CONNECTIONS}
BOTH = {**CHANGES, _NETFILTER: (*CHANGES[_NETFILTER], *_CONNECTIONS)}
_OPTIONAL = {_XFRM: (errno.EPROTONOSUPPORT, errno.ENOENT), _ROUTE: (errno.EINVAL,)}  # no IPsec; a group newer than the kernel
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_ROOM = 1  # buffer size in bytes: the kernel raises it to its minimum (2 KiB), and accepts one message of any length
_MAX_MESSAGES = 64  # messages per drain: a socket that is still readable wakes its owner again
MAX_SOCKETS = len(CHANGES)


def subscribe(wanted: Mapping[int, Sequence[int]] = CHANGES) -> list[socket.socket]:
    """Return sockets that become readable when this thread's network namespace changes.

    `wanted`: CHANGES (what affects packets), CONNECTIONS (opened or ended), or BOTH. Raises OSError without NET_ADMIN.
    """
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    found: list[socket.socket] = []
    try:
        for protocol, groups in wanted.items():
            with _if_supported(protocol):
                made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
                found.append(made)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
                made.bind((0, 0))  # without a port id of its own it would count as the kernel's, which gets no notifications
                for group in groups:
                    with _if_supported(protocol):
                        made.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
    except BaseException:
        close(found)
        raise
    return found


@contextlib.contextmanager
def _if_supported(protocol: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _OPTIONAL.get(protocol, ()):
            raise


def drain(sockets: Iterable[socket.socket]) -> int:
    """Discard received messages; return how many sockets have dropped any."""
    return sum([_drain(one) for one in sockets])


def _drain(one: socket.socket) -> bool:
    dropped = False
    for _ in range(_MAX_MESSAGES):
        try:
            one.recv(1)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            dropped = True
    return dropped


def close(sockets: Iterable[socket.socket]) -> None:
    """Close the sockets."""
    for one in sockets:
        one.close()


def send_sockets(channel: int, sockets: list[socket.socket]) -> None:
    """Send the sockets through a Unix socket and close them here. Raises OSError."""
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    with contextlib.closing(socket.socket(fileno=channel)) as sending:
        socket.send_fds(sending, [b"."], [one.fileno() for one in sockets])
    close(sockets)


def receive_sockets(channel: socket.socket) -> list[socket.socket]:
    """Receive the sockets of `send_sockets`. Raises OSError if there are none yet."""
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    _, descriptors = receive_descriptors(channel, 1, MAX_SOCKETS)
    return [socket.socket(fileno=one) for one in descriptors]
