"""Servers, each a process, that answer every connection with where it arrived: one JSON object on one line.

    {"name": "proxy", "port": 15001, "original_destination": "203.0.113.7:80", "local": "127.0.0.1:15001",
     "peer": "10.77.0.2:40000"}

A TCP connection is answered when accepted and again for everything it sends; a datagram, from the address it was sent
to.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from lab_probes import ANSWER, SERVERS, render_address
from netinit.base.errors import LabError, NetinitError
from netinit.base.net import IPV4, IPV6, Family
from netinit.kernel import children, namespaces
from netinit.kernel.sockets import IP_TRANSPARENT, IPV6_TRANSPARENT, creating_as, listen, original_destination

IP_PKTINFO = 8  # linux/in.h
_READY_SECONDS = 240.0
_READ_SIZE = 2048
_PACKET_INFO = {IPV4: (socket.SOL_IP, IP_PKTINFO), IPV6: (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO)}
_IPV4, _IPV6 = IPV4.version, IPV6.version


@dataclass(frozen=True, slots=True)
class Listener:
    """A port to listen on. `family` is 4 or 6, `kind` tcp or udp; `address` defaults to all of the family.

    `transparent` sets IP_TRANSPARENT, which TPROXY requires.
    """

    port: int
    family: int = _IPV4
    kind: str = "tcp"
    transparent: bool = False
    address: str | None = None

    def __post_init__(self) -> None:
        if self.family not in (_IPV4, _IPV6) or self.kind not in ("tcp", "udp"):
            raise LabError(f"a listener is of family 4 or 6 and of kind tcp or udp, not {self.family} {self.kind!r}")

    def open(self) -> socket.socket:
        """Return a listening socket in this thread's namespace."""
        family, udp = IPV4 if self.family == _IPV4 else IPV6, self.kind == "udp"
        try:
            made = open_port(family, self.port, address=self.address or "", udp=udp, transparent=self.transparent)
        except OSError as error:
            raise LabError(f"cannot listen on {self}: {error.strerror}") from error
        if udp:
            made.setsockopt(*_PACKET_INFO[family], 1)
        return made


def open_port(family: Family, port: int, *, address: str, udp: bool, transparent: bool) -> socket.socket:
    """As netinit.kernel.sockets.listen, at one address and for datagrams too."""
    if not (address or udp):
        return listen(family, port, transparent=transparent)
    made = socket.socket(family.number, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
    try:
        if not udp:  # which would let two sockets share the port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is IPV6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if transparent:
            made.setsockopt(*((socket.SOL_IP, IP_TRANSPARENT) if family is IPV4 else (socket.IPPROTO_IPV6, IPV6_TRANSPARENT)), 1)
        made.bind((address or family.any_address, port))
        if not udp:
            made.listen()
        made.setblocking(False)  # noqa: FBT003 - its signature
    except OSError:
        made.close()
        raise
    return made


def become(uid: int | None, gid: int | None, groups: Sequence[int] = ()) -> None:
    """Switch to these ids for good; None keeps one. Supplementary groups are always set."""
    os.setgroups(list(groups))
    if gid is not None:
        os.setresgid(gid, gid, gid)
    if uid is not None:
        os.setresuid(uid, uid, uid)


class Server:
    """A child process in a namespace, with all its listeners."""

    def __init__(self, name: str, namespace: int, listeners: tuple[Listener, ...], uid: int | None, gid: int | None) -> None:
        self.name = name
        self._child = _begin(name, namespace, listeners, (uid, gid))
        self.pid = self._child.pid
        SERVERS.add(self.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Wait until every listener is open. Raises LabError if one cannot be opened."""
        try:
            self._child.receive()
        except (NetinitError, OSError) as error:
            self.close()
            raise LabError(str(error)) from None

    def close(self) -> None:
        """Kill the process, which closes its sockets; closing twice has no effect."""
        SERVERS.discard(self.pid)
        self._child.end()


def _begin(name: str, namespace: int, listeners: tuple[Listener, ...], identity: tuple[int | None, int | None]) -> children.Child:
    """Fork a server, which may not be listening yet."""
    act = partial(_serve_forever, name=name, namespace=namespace, listeners=listeners, identity=identity)
    return children.start(act, seconds=_READY_SECONDS, what=f"server {name!r} did not start", kept=(namespace,))


def _serve_forever(
    answer: children.Answer, name: str, namespace: int, listeners: tuple[Listener, ...], identity: tuple[int | None, int | None]
) -> None:
    """In the child: open listeners, drop privileges, report, and answer until killed. Only the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)  # otherwise readers of the parent's pipes would never see their end
    for stream in (0, 1):
        os.dup2(null, stream)
    selector = selectors.DefaultSelector()
    namespaces.enter(namespace)
    os.close(namespace)
    try:
        for listener in listeners:
            with creating_as(*identity):
                made = listener.open()
            desk = _ServerSocket(name, listener, selector)
            react = desk.accept if listener.kind == "tcp" else desk.answer_datagram
            selector.register(made, selectors.EVENT_READ, react)
        become(*identity)
    except (LabError, OSError) as error:
        raise LabError(f"server {name!r} did not start: {error}") from None
    answer.give(None)
    while True:
        for key, _ in selector.select():
            with contextlib.suppress(BlockingIOError):
                key.data(key.fileobj)


@dataclass(slots=True)
class _ServerSocket:
    """How a server handles one of its listeners."""

    _name: str
    _listener: Listener
    _selector: selectors.BaseSelector

    def accept(self, listening: socket.socket) -> None:
        """Answer and watch a new connection."""
        try:
            connection, _ = listening.accept()
        except ConnectionError:  # it was reset before it was accepted
            return
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._selector.register(connection, selectors.EVENT_READ, self.answer_stream)
        self._answer(connection)

    def answer_stream(self, connection: socket.socket) -> None:
        """Answer a connection that sent something; forget one that ended."""
        try:
            data = connection.recv(_READ_SIZE)
        except ConnectionError:
            data = b""
        if data:
            self._answer(connection)
        else:
            self._forget(connection)

    def answer_datagram(self, listening: socket.socket) -> None:
        """Answer from the address that the datagram was sent to, as connection tracking requires."""
        _, ancillary, _, peer = listening.recvmsg(_READ_SIZE, 256)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_IP, IP_PKTINFO):
                index, _, address = struct.unpack("=I4s4s", data)
                local = socket.inet_ntop(socket.AF_INET, address)
                back = struct.pack("=I4s4s", 0, address, bytes(4))
            elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
                address, index = struct.unpack("=16sI", data)
                local = socket.inet_ntop(socket.AF_INET6, address)
                back = struct.pack("=16sI", address, index if local.startswith("fe80:") else 0)
            else:
                continue
            text = self._text(render_address((local, self._listener.port)), render_address(peer), None)
            # An error of an earlier peer that is gone may show here. An answer that rules drop fails with EPERM.
            with contextlib.suppress(ConnectionError, PermissionError):
                listening.sendmsg([text], [(level, kind, back)], 0, peer)

    def _answer(self, connection: socket.socket) -> None:
        family = IPV4 if connection.family == socket.AF_INET else IPV6
        original = None
        with contextlib.suppress(OSError):  # ENOENT: not tracked; ENOPROTOOPT: connection tracking is not in use here
            original = render_address(original_destination(connection, family))
        try:
            local, peer = connection.getsockname(), connection.getpeername()
            connection.sendall(self._text(render_address(local), render_address(peer), original))
        except OSError:  # the peer is gone
            self._forget(connection)

    def _text(self, local: str, peer: str, original: str | None) -> bytes:
        answer = (self._name, self._listener.port, original, local, peer)
        return json.dumps(dict(zip(ANSWER, answer, strict=True))).encode() + b"\n"

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
