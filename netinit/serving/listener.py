"""A server of HTTP on a socket that is there already: uvicorn's protocol, with bounds on what a client may hold up.

uvicorn bounds neither how long a request's head may take nor how long it may be, so the protocol here does: a connection
has a deadline for each head, a bound of its bytes, and a place among so many, which it loses to a new one where it is the
longest idle. HTTP/1.1 with keep-alive; uvicorn's HTTP/2 stands on a library that is not of age yet, and API servers speak
both.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

__all__ = ["HttpListener", "reply"]

_HEAD_SECONDS = 5.0
_HEAD_BYTES = 64 << 10
_HANDSHAKE_SECONDS = 5.0
_GOODBYE_SECONDS = 2.0
_IDLE_SECONDS = 120  # longer than API servers keep an idle connection, so that they close it and not we
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class _JoiningTransport:
    """A connection on which an answer's head waits for its body: one TLS record and one packet for both."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        """Sends it, after what waits; the head of a final answer waits itself."""
        if not self._head and data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self._transport.write(self._head + data)
        self._head = b""

    def close(self) -> None:
        """Ends the connection when all is sent."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def reply(
    send: Any, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", *, close: bool = False, more: Any = ()
) -> None:
    """Sends an answer, by ASGI's messages."""
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()), *more]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _BoundedProtocol(HttpToolsProtocol):
    """One connection. `has_room` says whether there may be one more; `idle_since` is None while there is a request."""

    def __init__(self, *args: Any, has_room: Callable[[], bool], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.idle_since: float | None = None
        self._has_room = has_room
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0
        self._in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = _JoiningTransport(transport)  # type: ignore[assignment]
        if not self._has_room():
            self.connections.discard(self)
            transport.abort()
            return
        self.idle_since = self.loop.time()
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > _HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_message_begin(self) -> None:
        self.idle_since = None
        super().on_message_begin()
        self._start_clock()

    def on_headers_complete(self) -> None:
        self._stop_clock()
        self._in_head = False
        state = self.scope["state"]
        state["arrived"] = self.loop.time()
        tls = self.transport.get_extra_info("ssl_object")
        state["certified"] = tls is not None and bool(tls.getpeercert(binary_form=True))
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.idle_since = None if self.pipeline else self.loop.time()
        super().on_response_complete()

    def give_way(self) -> None:
        """Ends, since nobody asks anything here."""
        self.idle_since = None
        self._stop_clock()
        self.transport.close()

    def _start_clock(self) -> None:
        self._stop_clock()
        self._timer = self.loop.call_later(_HEAD_SECONDS, self.transport.abort)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HttpListener:
    """Serves an ASGI application on a socket until `close`."""

    def __init__(self, application: Any, *, most_connections: int) -> None:
        self._config = Config(
            application,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_SECONDS,
        )
        self._config.load()
        self.state = ServerState()
        self._most = most_connections
        self._server: asyncio.Server | None = None

    @property
    def started(self) -> bool:
        """Whether connections are taken, or were until it was closed."""
        return self._server is not None

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self.state.connections)

    async def start(self, listening: socket.socket, context: ssl.SSLContext | None) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()

        def make() -> _BoundedProtocol:
            return _BoundedProtocol(self._config, self.state, {}, loop, has_room=self._make_room)

        self._server = await loop.create_server(
            make,
            sock=listening,
            ssl=context,
            backlog=2048,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS if context else None,
            ssl_shutdown_timeout=_GOODBYE_SECONDS if context else None,
        )

    def _make_room(self) -> bool:
        """Whether there may be one more: where there are too many, the one that has been idle the longest gives way."""
        if len(self.state.connections) <= self._most:
            return True
        connections: Any = self.state.connections
        idle = [one for one in connections if one.idle_since is not None]
        if not idle:
            return False
        min(idle, key=lambda one: one.idle_since).give_way()
        return True

    async def close(self, seconds: float) -> bool:
        """Takes no more connections, and ends those that are there after their requests; False where some were cut off."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.state.connections):
            connection.shutdown()
        end = asyncio.get_running_loop().time() + seconds
        while self.state.connections or self.state.tasks:
            if asyncio.get_running_loop().time() >= end:
                for task in list(self.state.tasks):
                    task.cancel()
                return False
            await asyncio.sleep(0.02)
        return True
