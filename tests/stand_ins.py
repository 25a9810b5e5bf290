"""Stand-ins for what surrounds a pod in a mesh: a proxy, servers, and a name server, on an event loop in a thread of their own."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from laboratory import NetworkNamespace
from netinit.kernel.sockets import creating_as
from netinit.lab import APP_ID, PROXY_ID

SEALED = b"\x16\x03\x01mesh"  # in place of mutual TLS: how a proxy's connection begins; \x16 is TLS's handshake
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PASSTHROUGH = "127.0.0.6"  # from where Istio's proxy connects to the application
SO_ORIGINAL_DST = 80
ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset
PIECE = 4096
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class StandIns:
    """Servers in any namespace; all end with the block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._opened: list[asyncio.Server | asyncio.DatagramTransport] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for one in self._opened:
            one.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # a turn, in which transports close their sockets

    def serve(self, place: NetworkNamespace, port: int, handler: Handler, *, host: str = "0.0.0.0", uid: int = APP_ID) -> None:
        """Listen in a namespace, as this user; return when connections are accepted."""
        with place.entered(), creating_as(uid, uid):
            made = socket.create_server((host, port))

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer), contextlib.suppress(OSError):
                await handler(reader, writer)
                await writer.drain()

        self._opened.append(asyncio.run_coroutine_threadsafe(asyncio.start_server(handle, sock=made), self._loop).result(10))

    def answer_names(self, place: NetworkNamespace, host: str, known: Mapping[str, str], *, lose: int = 0) -> NameServer:
        """Answer DNS over UDP on port 53 of an address; the first `lose` queries are counted, and get no answer."""
        with place.entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((host, 53))
        server = NameServer(known, lose)
        opening = self._loop.create_datagram_endpoint(lambda: server, sock=made)
        self._opened.append(asyncio.run_coroutine_threadsafe(opening, self._loop).result(10)[0])
        return server


def greet(text: bytes) -> Handler:
    """A server that speaks first, as MySQL's does."""

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)

    return handle


def answer(text: bytes) -> Handler:
    """A server that answers plain text, and resets what is sealed: an application does not understand TLS."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(PIECE)
        if first.startswith(SEALED[:1]):
            reset(writer)
        writer.write(text)

    return handle


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    writer.transport.abort()


@dataclass
class Proxy:
    """What a mesh's proxy does with captured connections, as far as clients notice: connects to the original destination as user 1337.

    `detects`: waits for the client's first bytes. `http`: resets what is no request. `seals`: begins as mutual TLS does. `strict`: resets
    what is not sealed. `registered`: resets what goes to another destination, if there is a list, or `passes` it on as it is. `inbound`: connects from 127.0.0.6.
    `seen`: the original destinations.
    """

    place: NetworkNamespace
    detects: bool = False
    http: bool = False
    seals: bool = False
    strict: bool = False
    registered: Collection[str] | None = None
    passes: bool = False
    inbound: bool = False
    seen: list[str] = field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle a connection."""
        packed = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        port, address = struct.unpack("!2xH4s8x", packed)
        host = socket.inet_ntoa(address)
        self.seen.append(f"{host}:{port}")
        is_unknown = self.registered is not None and self.seen[-1] not in self.registered
        if is_unknown and not self.passes:
            reset(writer)
            return
        first = b""
        if self.detects or self.http or self.strict:
            first = await reader.read(PIECE)
        if (self.http and not first.startswith(b"GET ")) or (self.strict and not first.startswith(SEALED)):
            reset(writer)
            return
        first = first.removeprefix(SEALED) if self.inbound else (SEALED if self.seals and not is_unknown else b"") + first
        await self._forward(reader, writer, (host, port), first)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: tuple[str, int], first: bytes) -> None:
        with self.place.entered(), creating_as(PROXY_ID, PROXY_ID):
            made = socket.socket()
        made.setblocking(False)  # noqa: FBT003 - the standard library's signature
        if self.inbound:
            made.bind((PASSTHROUGH, 0))
        try:
            await asyncio.get_running_loop().sock_connect(made, end)
        except OSError:
            made.close()
            reset(writer)
            return
        up, down = await asyncio.open_connection(sock=made)
        down.write(first)
        with contextlib.closing(down):
            try:
                await asyncio.gather(pump(reader, down), pump(up, writer))
            except ConnectionError:
                reset(writer)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass bytes on until the source ends."""
    while piece := await source.read(PIECE):
        sink.write(piece)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


class NameServer(asyncio.DatagramProtocol):
    """A name server that knows some names, by A; all others do not exist. `asked`: the names of all queries."""

    def __init__(self, known: Mapping[str, str], lose: int) -> None:
        self.known, self.lose = known, lose
        self.asked: list[str] = []

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Keep the socket."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer a query."""
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        question, kind = data[12 : at + 5], data[at + 2]
        name = ".".join(labels)
        self.asked.append(name)
        if len(self.asked) <= self.lose:
            return
        found = self.known.get(name)
        record = b""
        if found and kind == 1:
            record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04" + ipaddress.ip_address(found).packed
        head = data[:2] + (b"\x81\x80" if found else b"\x81\x83") + struct.pack("!4H", 1, bool(record), 0, 0)
        self._transport.sendto(head + question + record, addr)


def talk(place: NetworkNamespace, host: str, port: int, *, first: bytes = b"", uid: int = 1000, seconds: float = 10) -> str:
    """What a client gets that sends these bytes: an answer, "refused", "reset", or "timeout"."""
    with place.entered(), creating_as(uid, uid), socket.socket() as made:
        made.settimeout(seconds)
        try:
            made.connect((host, port))
            made.sendall(first)
            return made.recv(PIECE).decode() or "closed"
        except ConnectionRefusedError:
            return "refused"
        except (ConnectionResetError, BrokenPipeError):
            return "reset"
        except TimeoutError:
            return "timeout"
