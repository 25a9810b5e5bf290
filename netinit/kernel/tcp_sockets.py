"""List and close TCP sockets of this network namespace: sock_diag(7), linux/inet_diag.h.

A dump walks the machine's whole connection table once for each family: 0.2 ms for 262,144 buckets.
"""

from __future__ import annotations

from _struct import pack, unpack_from

from netinit.base.records import Record
from netinit.base.system import posix
from netinit.kernel.netlink import Netlink, read_attributes

AF_INET, AF_INET6, IPPROTO_TCP = 2, 10, 6
ENOENT, EBADMSG = 2, 74
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY, SOCK_DESTROY = 20, 21
INET_DIAG_MARK, INET_DIAG_SOCKOPT = 15, 22
ESTABLISHED, SYN_SENT, SYN_RECEIVED, FIN_WAIT_1, FIN_WAIT_2, CLOSE_WAIT, LISTEN, NEW_SYN_RECEIVED = 1, 2, 3, 4, 5, 8, 10, 12
CONNECTED = frozenset((ESTABLISHED, SYN_SENT, SYN_RECEIVED, FIN_WAIT_1, FIN_WAIT_2, CLOSE_WAIT, NEW_SYN_RECEIVED))
_STATES = sum([1 << state for state in (*CONNECTED, LISTEN)])
TRANSPARENT = 0x20  # in the first byte of struct inet_diag_sockopt
# struct inet_diag_sockid: ports, addresses of 16 bytes, interface, cookie; in struct inet_diag_msg it follows four bytes, the
# first two family and state
_ID, _ID_SIZE, _MESSAGE_SIZE = 4, 48, 72
_MAPPED = b"\0" * 10 + b"\xff" * 2  # the prefix of an IPv4 address on an IPv6 socket
MAX_BYTES = 1 << 26  # of a dump: some 500,000 sockets


class TcpSocket(Record):
    """A socket; `local` and `remote` are packed addresses with ports, `identity` names it to the kernel.

    `uid` and `inode` are 0 while no program has it, `mark` if the kernel does not show it.
    """

    state: int
    local: tuple[bytes, int]
    remote: tuple[bytes, int]
    uid: int
    inode: int
    mark: int
    transparent: bool
    identity: bytes

    @property
    def is_open(self) -> bool:
        """Whether it has a remote end, and a program here that would notice its end."""
        return self.state in CONNECTED and (bool(self.inode) or self.state not in (FIN_WAIT_1, FIN_WAIT_2))


def list_tcp() -> tuple[TcpSocket, ...]:
    """Return the TCP sockets that listen or have a remote end. Raises OSError."""
    found: list[TcpSocket] = []
    with Netlink(NETLINK_SOCK_DIAG) as link:
        for family in (AF_INET, AF_INET6):
            request = pack("=BBBBI48x", family, IPPROTO_TCP, 0, 0, _STATES)
            try:
                found += map(_read, link.dump(SOCK_DIAG_BY_FAMILY, request, MAX_BYTES))
            except OSError as error:
                if family == AF_INET or error.errno != ENOENT:  # a kernel without IPv6
                    raise
    return tuple(found)


def _read(body: bytes) -> TcpSocket:
    if len(body) < _MESSAGE_SIZE:
        raise OSError(EBADMSG, posix.strerror(EBADMSG))
    family, state = body[0], body[1]
    local_port, remote_port = unpack_from(">HH", body, _ID)
    uid, inode = unpack_from("=II", body, _MESSAGE_SIZE - 8)
    attributes = read_attributes(body, _MESSAGE_SIZE)
    mark, flags = attributes.get(INET_DIAG_MARK, b""), attributes.get(INET_DIAG_SOCKOPT, b"")
    return TcpSocket(
        state=state,
        local=(address_of(family, body[_ID + 4 : _ID + 20]), local_port),
        remote=(address_of(family, body[_ID + 20 : _ID + 36]), remote_port), uid=uid, inode=inode,
        mark=unpack_from("=I", mark)[0] if len(mark) >= 4 else 0,  # noqa: PLR2004 - a u32's bytes
        transparent=bool(flags and flags[0] & TRANSPARENT),
        identity=bytes((family,)) + body[_ID : _ID + _ID_SIZE],
    )  # fmt: skip


def address_of(family: int, field: bytes) -> bytes:
    """Return the packed address in a field of 16 bytes; that of an IPv6 socket may be of IPv4."""
    if family == AF_INET:
        return field[:4]
    return field[12:] if field[:12] == _MAPPED else field


def destroy(link: Netlink, found: TcpSocket) -> None:
    """Close a connection: its program gets ECONNABORTED, the remote end a reset.

    A socket that is closed already is no error. Raises OSError: EOPNOTSUPP without CONFIG_INET_DIAG_DESTROY.
    """
    request = pack("=BBBBI", found.identity[0], IPPROTO_TCP, 0, 0, 1 << found.state) + found.identity[1:]
    link.request(SOCK_DESTROY, 0, request, may_lack=True)
