"""An HTTP/1.1 listener: uvicorn's protocol with limits of time and size for heads, which it lacks; answers about health and metrics.

HTTP/2 is not offered: it depends on an unstable library, and API servers support both.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from netinit.serving.client_connections import ClientConnection, ClientTable, Stage

_HEAD_SECONDS = 5.0
_HEAD_BYTES = 16 << 10  # as in h11; an API server sends 300 bytes
_ANSWER_SECONDS = 45.0  # from the head to the end of the response; reviews take up to 30 s
_IDLE_SECONDS = 120  # longer than an API server's own, so that it closes first
_ACCEPTS = 64  # per turn of the event loop
_ACCEPT_PAUSE_SECONDS = 0.1  # after `accept` failed, for example without free descriptors
_HEAD_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_log = logging.getLogger(__name__)

ReportCallback = Callable[[bool], tuple[bool, str]]
"""Returns whether the server is ready, and the text of /readyz, with details if the argument is true."""


class _JoiningTransport:
    """Sends a response's head and body in one TLS record."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if not self._head and data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self._transport.write(self._head + data)
        self._head = b""

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def reply(
    send: Any, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", *, close: bool = False, more: Any = ()
) -> None:
    """Send a response as ASGI messages. `more`: further headers; `close`: close the connection."""
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()), *more]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def reply_health(scope: Any, send: Any, report: ReportCallback, *, readiness: str = "/readyz", close: bool = False) -> bool:
    """Answer a health request; return False for other paths."""
    if scope["path"] in {"/livez", "/healthz"}:
        await reply(send, 200, b"ok\n", close=close)
    elif scope["path"] == readiness:
        is_ready, text = report(b"verbose" in scope["query_string"])
        await reply(send, 200 if is_ready else 503, text.encode(), close=close)
    else:
        return False
    return True


async def reply_monitoring(
    scope: Any, _: Any, send: Any, *, metrics: Callable[[], bytes], report: ReportCallback, readiness: str = "/readyz",
    closes: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Answer a request to the port without TLS: metrics and health. `closes`: whether the answer closes the connection."""
    if scope["path"] == "/metrics":
        await reply(send, 200, metrics(), _METRICS_TYPE)
    elif not await reply_health(scope, send, report, readiness=readiness, close=closes()):
        await reply(send, 404, b"there are /metrics, /livez and /readyz\n")


class _BoundedProtocol(HttpToolsProtocol):
    """The requests of a connection, with deadlines for head and response."""

    def __init__(self, *args: Any, connection: ClientConnection, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connection = connection
        self._head = 0  # received bytes of the head; `_parsed`: of those, parsed
        self._parsed = 0
        self._in_head = self._in_message = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = _JoiningTransport(transport)  # type: ignore[assignment]
        self._in_head = True
        self._connection.shutdown = self.shutdown
        self._connection.enter(Stage.UNFINISHED)
        self._connection.limit(_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connection.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > _HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def send_400_response(self, msg: str) -> None:
        if self._parsed > _HEAD_BYTES:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        self.transport.write(_HEAD_TOO_LONG)
        self.transport.close()

    def on_message_begin(self) -> None:
        self._in_message = True
        self._parsed = 0
        if not self._is_answering():
            self._connection.enter(Stage.UNFINISHED)
        super().on_message_begin()
        self._connection.limit(_HEAD_SECONDS)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        """Count bytes of the head; the exception stops the parser."""
        self._parsed += size
        if self._parsed > _HEAD_BYTES:
            raise ValueError("the request's head is too long")

    def on_headers_complete(self) -> None:
        self._connection.limit(_ANSWER_SECONDS)
        self._in_head = False
        state = self.scope["state"]
        state["arrived"] = now = self.loop.time()
        state["last"] = now >= self._connection.expires
        tls = self.transport.get_extra_info("ssl_object")
        state["certified"] = tls is not None and bool(tls.getpeercert(binary_form=True))
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._in_message = True, False
        self._head = 0
        super().on_message_complete()
        if self._is_answering():
            self._connection.enter(Stage.BUSY)

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self._connection.enter(Stage.UNFINISHED if self._in_message else Stage.IDLE)
            if not self._in_message:
                self._connection.limit(None)
        super().on_response_complete()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete


class HttpListener:
    """Serves an ASGI application on a socket; `context` returns the TLS context for each connection, if any.

    `dropped` is called as in `ClientTable`.
    """

    def __init__(
        self, application: Any, listening: socket.socket, *, context: Callable[[], ssl.SSLContext] | None = None,
        max_connections: int, dropped: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
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
        self._state = ServerState()
        self._table = ClientTable(max_connections, dropped, time.monotonic)  # the event loop's clock
        self._listening = listening
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop keeps only weak references

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._table)

    def start(self) -> None:
        """Start accepting connections, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._listen()

    def _listen(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("connections cannot be accepted: %s; the next try is in %.1f s", error.strerror, _ACCEPT_PAUSE_SECONDS)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._listen)
                return
            self._add(accepted, address[0])

    def _add(self, accepted: socket.socket, peer: str) -> None:
        if not self._table.make_room(peer):
            accepted.close()
            return
        connection = ClientConnection(self._table, peer, self._begin, self._context)
        self._table.add(connection)
        task = self._loop.create_task(self._attach(connection, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attach(self, connection: ClientConnection, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError as error:
            _log.error("a connection cannot be served: %s", error)
            connection.abort()
            accepted.close()

    def _begin(self, connection: ClientConnection) -> asyncio.Protocol:
        return _BoundedProtocol(self._config, self._state, {}, self._loop, connection=connection)

    async def close(self, seconds: float) -> bool:
        """Stop accepting and finish open requests within `seconds`. Return False if some were cut off."""
        if self._listening.fileno() < 0:
            return True
        self._accept()  # otherwise clients in the kernel's queue are reset
        self._loop.remove_reader(self._listening)
        self._listening.close()
        end = self._loop.time() + seconds
        while len(self._table) or self._state.tasks:
            now = self._loop.time()
            if now >= end:
                for task in self._state.tasks.copy():
                    task.cancel()
                return False
            for connection in self._table:
                connection.end(now)
            await asyncio.sleep(0.02)
        return True
