"""Servers that answer every connection with where it arrived: one JSON object on one line.

    {"name": "proxy", "port": 15001, "original_destination": "203.0.113.7:80", "local": "127.0.0.1:15001",
     "peer": "10.77.0.2:40000"}

A connection is answered when accepted and again for everything it sends.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from netinit.base.errors import LabError, NetinitError
from netinit.base.net import IPV4, IPV6
from netinit.kernel import children, namespaces
from netinit.kernel.sockets import become, creating_as, listen, original_destination
from netinit.lab.probes import ANSWER, render_address

_READY_SECONDS = 10.0
_READ_SIZE = 2048


@dataclass(frozen=True, slots=True)
class Listener:
    """A TCP port to listen on, at all addresses of the `family`, 4 or 6."""

    port: int
    family: int = IPV4.version

    def open(self) -> socket.socket:
        """Return a listening socket in this thread's namespace. Raises LabError."""
        return self.listen()

    def listen(self, **how: Any) -> socket.socket:
        """Open the port; `how` are more arguments of `netinit.kernel.sockets.listen`. Raises LabError."""
        try:
            return listen(IPV4 if self.family == IPV4.version else IPV6, self.port, **how)
        except OSError as error:
            raise LabError(f"cannot listen on {self}: {error.strerror}") from error

    def handler(self, opened: ServerSocket) -> Callable[[socket.socket], None]:
        """Return what handles each connection that is ready to be accepted."""
        return opened.accept


class Server:
    """A child process in a namespace, with all its listeners."""

    def __init__(self, name: str, namespace: int, listeners: tuple[Listener, ...], uid: int | None, gid: int | None) -> None:
        self.name = name
        self._child = _begin(name, namespace, listeners, (uid, gid))
        self.pid = self._child.pid

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
            selector.register(made, selectors.EVENT_READ, listener.handler(ServerSocket(name, listener.port, selector)))
        become(*identity)
    except (LabError, OSError) as error:
        raise LabError(f"server {name!r} did not start: {error}") from None
    answer.give(None)
    while True:
        for key, _ in selector.select():
            with contextlib.suppress(BlockingIOError):
                key.data(key.fileobj)


@dataclass(slots=True)
class ServerSocket:
    """How a server handles one of its ports."""

    _name: str
    _port: int
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

    def _answer(self, connection: socket.socket) -> None:
        family = IPV4 if connection.family == socket.AF_INET else IPV6
        original = None
        with contextlib.suppress(OSError):  # ENOENT: not tracked; ENOPROTOOPT: connection tracking is not in use here
            original = render_address(original_destination(connection, family))
        try:
            local, peer = connection.getsockname(), connection.getpeername()
            connection.sendall(self.format_answer(local, peer, original))
        except OSError:  # the peer is gone
            self._forget(connection)

    def format_answer(self, local: tuple[Any, ...], peer: tuple[Any, ...], original: str | None) -> bytes:
        """Return the answer to a packet from `peer` to `local`, as the socket module has addresses."""
        answer = (self._name, self._port, original, render_address(local), render_address(peer))
        return json.dumps(dict(zip(ANSWER, answer, strict=True))).encode() + b"\n"

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
