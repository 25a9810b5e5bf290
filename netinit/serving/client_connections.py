"""Limits on client connections: how many are allowed, in total and per peer, and which is closed for a new one.

A connection costs only its socket until the first byte arrives; then it becomes TLS, or HTTP without TLS. It is
*unfinished* until a complete request has arrived, *busy* while that is answered, then *idle*. If a new connection finds
no room, the peer with the most unfinished connections loses its oldest one; without any, the peer with the most idle
ones. A busy connection is never closed; an unfinished one in its first half second only if its peer has more than twice
as many connections as the new peer, an idle one only if it has more. So a client that opens many connections competes
with itself.

A connection also has a lifetime, after which it is closed with the next answer: clients would keep connections for ever,
and a new replica would get no work.
"""

from __future__ import annotations

import asyncio
import enum
import random
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ClientConnection", "ClientTable", "Stage"]

_HANDSHAKE_SECONDS = 5  # for the first byte, and again for the rest of the handshake
_GOODBYE_SECONDS = 2
_LIFETIME = 60.0, 90.0  # seconds, chosen at random so that clients do not reconnect all at once
_GRACE = 0.5  # seconds: an honest handshake and request take milliseconds, also on a loaded machine
_TLS_BUFFER = 32 << 10  # bytes; asyncio's own 256 KiB would be 128 MiB for 512 connections, and a TLS record has 16 KiB


class Stage(enum.Enum):
    """The stage of a connection."""

    UNFINISHED = "unfinished"
    BUSY = "busy"
    IDLE = "idle"


class ClientConnection(asyncio.Protocol):
    """One accepted connection. `begin` creates the protocol that gets its bytes, with TLS if there is a context."""

    def __init__(
        self,
        table: ClientTable,
        peer: str,
        begin: Callable[[ClientConnection], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self.peer = peer
        self.stage = Stage.UNFINISHED
        self.since = 0.0
        self.ends = 0.0  # end of its lifetime
        self.shutdown: Callable[[], None] = self.abort  # HTTP replaces it with a graceful one
        self._table = table
        self._begin = begin
        self._context = context
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._aborted = self._ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first byte."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a socket
        self._transport = transport
        if self._aborted:
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(_HANDSHAKE_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        """Hand the transport over to TLS or HTTP, with the first bytes."""
        assert self._transport is not None  # noqa: S101 - asyncio's order of calls
        self._stop_timer()
        protocol = self._begin(self)
        if self._context is None:
            self._transport.set_protocol(protocol)
            protocol.connection_made(self._transport)
            protocol.data_received(data)
            return
        secured = _TlsProtocol(self, protocol, self._context())
        self._transport.set_protocol(secured)
        secured.connection_made(self._transport)
        while data and not self._transport.is_closing():
            buffer = secured.get_buffer(len(data))
            part, data = data[: len(buffer)], data[len(buffer) :]
            buffer[: len(part)] = part
            secured.buffer_updated(len(part))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Remove the connection from the table; the protocols that take over call it too."""
        self._stop_timer()
        self._table.remove(self)
        self._transport, self.shutdown = None, _do_nothing  # break the reference cycle, which would delay freeing memory

    def enter(self, stage: Stage) -> None:
        """Set the connection's stage."""
        self._table.move(self, stage)

    def is_old(self, now: float) -> bool:
        """Whether its lifetime is over: the next answer closes it."""
        return now >= self.ends

    def end(self, now: float) -> None:
        """Close after the current request, or after one that may already be on its way."""
        is_young = self.stage is Stage.UNFINISHED and now - self.since < _GRACE
        if not self._ending and not is_young:
            self._ending = True
            self.shutdown()

    def abort(self) -> None:
        """Close at once, and free its place at once."""
        self._aborted = True
        self._table.remove(self)
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _do_nothing() -> None:
    pass


class _TlsProtocol(sslproto.SSLProtocol):
    """asyncio's TLS with small buffers, for a transport whose first bytes have been read."""

    max_size = _TLS_BUFFER

    def __init__(self, connection: ClientConnection, protocol: asyncio.Protocol, context: ssl.SSLContext) -> None:
        waiter: Any = None  # nothing awaits the handshake
        super().__init__(
            asyncio.get_running_loop(),
            protocol,
            context,
            waiter,
            server_side=True,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_GOODBYE_SECONDS,
        )
        self._connection = connection

    def connection_lost(self, exc: Any) -> None:
        super().connection_lost(exc)
        self._connection.connection_lost(exc)


@dataclass(slots=True)
class _Peer:
    """The connections of one address; dictionaries serve as ordered sets, the oldest first."""

    count: int = 0
    unfinished: dict[ClientConnection, None] = field(default_factory=dict)
    idle: dict[ClientConnection, None] = field(default_factory=dict)

    def of(self, stage: Stage) -> dict[ClientConnection, None] | None:
        return {Stage.UNFINISHED: self.unfinished, Stage.IDLE: self.idle}.get(stage)


class ClientTable:
    """All connections of a listener: at most `most` in total, and half of that for one peer.

    `dropped` is called with the stage of each connection that is closed for another, or with `refused`.
    """

    def __init__(self, most: int, dropped: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._most = most
        self._most_of_peer = max(1, most // 2)
        self._dropped = dropped
        self._clock = clock
        self._peers: dict[str, _Peer] = {}
        self._there: set[ClientConnection] = set()

    def __len__(self) -> int:
        return len(self._there)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(tuple(self._there))

    def add(self, connection: ClientConnection) -> None:
        """Add a connection, as unfinished."""
        peer = self._peers.setdefault(connection.peer, _Peer())
        peer.count += 1
        self._there.add(connection)
        peer.unfinished[connection] = None
        connection.since = self._clock()
        connection.ends = connection.since + random.uniform(*_LIFETIME)  # noqa: S311 - not a secret

    def move(self, connection: ClientConnection, stage: Stage) -> None:
        """Record a connection's stage, and when it reached it."""
        if connection not in self._there:
            return
        peer = self._peers[connection.peer]
        if (before := peer.of(connection.stage)) is not None:
            before.pop(connection, None)
        connection.stage, connection.since = stage, self._clock()
        if (now := peer.of(stage)) is not None:
            now[connection] = None

    def remove(self, connection: ClientConnection) -> None:
        """Remove a connection."""
        if connection not in self._there:
            return
        self._there.discard(connection)
        peer = self._peers[connection.peer]
        peer.count -= 1
        peer.unfinished.pop(connection, None)
        peer.idle.pop(connection, None)
        if not peer.count:
            del self._peers[connection.peer]

    def make_room(self, newcomer: str) -> bool:
        """Whether there is room for another connection of this peer, after closing one if necessary."""
        own = self._peers.get(newcomer)
        count = own.count if own else 0
        if own is not None and count >= self._most_of_peer:
            victim = self._oldest(own) or next(iter(own.idle), None)
        elif len(self._there) >= self._most:
            victim = self._victim(count)
        else:
            return True
        self._dropped(victim.stage.value if victim else "refused")
        if victim is None:
            return False
        victim.abort()
        return True

    def _victim(self, count: int) -> ClientConnection | None:
        """Return the connection to close for a peer that has `count` connections."""
        peers = self._peers.values()
        crowd = max(peers, key=lambda peer: len(peer.unfinished))
        found = next(iter(crowd.unfinished), None) if crowd.count > 2 * count + 1 else self._oldest(crowd)
        if found is not None:
            return found
        resting = max(peers, key=lambda peer: len(peer.idle))
        return next(iter(resting.idle), None) if resting.count > count else None

    def _oldest(self, peer: _Peer) -> ClientConnection | None:
        """Return the peer's oldest unfinished connection, if it had enough time to finish."""
        oldest = next(iter(peer.unfinished), None)
        return oldest if oldest is not None and self._clock() - oldest.since >= _GRACE else None
