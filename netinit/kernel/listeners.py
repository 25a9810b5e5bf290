"""List who listens in this network namespace: sock_diag(7), linux/inet_diag.h. The kernel may load a module for it.

Sockets that belong to one connection are not asked for, so that an answer is as long as there are listeners, however busy the pod.
"""

from __future__ import annotations

from _struct import pack, unpack_from

from netinit.base.listeners import Listener, Listeners
from netinit.base.system import posix
from netinit.kernel.netlink import Netlink, read_attributes
from netinit.kernel.tcp_sockets import (
    AF_INET,
    AF_INET6,
    EBADMSG,
    ENOENT,
    INET_DIAG_SOCKOPT,
    LISTEN,
    NETLINK_SOCK_DIAG,
    SOCK_DIAG_BY_FAMILY,
    TRANSPARENT,
    address_of,
)

INET_DIAG_SKV6ONLY = 11
UNCONNECTED = 7  # TCP_CLOSE, of a UDP socket without a peer
PROTOCOLS = {"tcp": (6, LISTEN), "udp": (17, UNCONNECTED)}
MAX_BYTES = 1 << 20  # of an answer: some 8,000 sockets; a pod has dozens
EFBIG = 27
# struct inet_diag_msg: family, state, ports (big-endian), addresses of 16 bytes, interface, cookie, times, queues, uid, inode
_PORT, _ADDRESS, _INTERFACE, _QUEUES, _SIZE = 4, 8, 40, 56, 72


def read_listeners() -> Listeners:
    """Read all listening TCP and unconnected UDP sockets; what the kernel refuses, or too many of a protocol, are `unread`."""
    found: list[Listener] = []
    unread: list[tuple[str, str]] = []
    for protocol in PROTOCOLS:
        try:
            found += _list(protocol)
        except OSError as error:
            unread.append((protocol, _explain(error)))
    return Listeners(sockets=tuple(found), unread=tuple(unread))


def _explain(error: OSError) -> str:
    if error.errno == EFBIG:
        return "more sockets listen than netinit reads"
    return f"the kernel does not list sockets (sock_diag: {error.strerror or error})"


def _list(protocol: str) -> list[Listener]:
    number, state = PROTOCOLS[protocol]
    found: list[Listener] = []
    with Netlink(NETLINK_SOCK_DIAG) as link:
        for family in (AF_INET, AF_INET6):
            request = pack("=BBBBI48x", family, number, 0, 0, 1 << state)
            try:
                found += [_read(protocol, body) for body in link.dump(SOCK_DIAG_BY_FAMILY, request, MAX_BYTES)]
            except OSError as error:
                if family == AF_INET or error.errno != ENOENT:  # a kernel without IPv6
                    raise
    return [one for one in found if one.port]  # a UDP socket that has not sent yet has none


def _read(protocol: str, body: bytes) -> Listener:
    if len(body) < _SIZE:
        raise OSError(EBADMSG, posix.strerror(EBADMSG))
    waiting, backlog, uid = unpack_from("=III", body, _QUEUES)
    attributes = read_attributes(body, _SIZE)
    flags, v6only = attributes.get(INET_DIAG_SOCKOPT, b""), attributes.get(INET_DIAG_SKV6ONLY, b"")
    return Listener(
        protocol=protocol, family=body[0], address=address_of(body[0], body[_ADDRESS : _ADDRESS + 16]),
        port=unpack_from(">H", body, _PORT)[0], uid=uid, device=unpack_from("=I", body, _INTERFACE)[0],
        v6only=bool(v6only[0]) if v6only else None, transparent=bool(flags[0] & TRANSPARENT) if flags else None,
        waiting=waiting, backlog=backlog,
    )  # fmt: skip
