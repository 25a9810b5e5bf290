"""Limits on client connections, in total and per client address.

A connection is *unfinished* until its first complete request, *busy* while that is answered, then *idle*. At the limit,
a new connection replaces the oldest unfinished one of the address with the most of them, or else an idle one; never a
busy one. So a client that opens many connections mostly replaces its own.

A connection closes with the first answer after its lifetime, so that new replicas get requests.
"""

from __future__ import annotations

import asyncio
import enum
import random
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterator
from typing import Any

_HANDSHAKE_SECONDS = 5  # for the first byte, and again for the handshake
_TLS_SHUTDOWN_SECONDS = 2
_LIFETIME_SECONDS = 60.0, 90.0  # random, so that clients do not reconnect at once
_GRACE_SECONDS = 0.5  # a handshake and request take milliseconds
_TLS_BUFFER = 32 << 10  # bytes, two TLS records; asyncio's 256 KiB would be 128 MiB for 512 connections


class Stage(enum.Enum):
    """The stage of a connection; the values are metric labels."""

    UNFINISHED = "unfinished"
    BUSY = "busy"
    IDLE = "idle"


class ClientConnection(asyncio.Protocol):
    """An accepted connection. `begin` creates the HTTP protocol, which runs over TLS if `context` is set."""

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
        self.expires = 0.0  # from then on, the next answer closes the connection
        self.shutdown: Callable[[], None] = self.abort  # HTTP replaces it with a graceful one
        self._table = table
        self._begin = begin
        self._context = context
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._aborted = self._ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout for the first byte."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a socket
        self._transport = transport
        if self._aborted:
            transport.abort()
            return
        self.limit(_HANDSHAKE_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Pass the transport and the first bytes to TLS or HTTP."""
        assert self._transport is not None  # noqa: S101 - asyncio's order of calls
        self.limit(None)
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
        """Remove the connection from the table."""
        self.limit(None)
        self._table.remove(self)
        self._transport, self.shutdown = None, lambda: None  # break the reference cycle

    def enter(self, stage: Stage) -> None:
        """Set the connection's stage."""
        self._table.move(self, stage)

    def end(self, now: float) -> None:
        """Shut down after the current request; leave a new connection time for its first one."""
        is_young = self.stage is Stage.UNFINISHED and now - self.since < _GRACE_SECONDS
        if not self._ending and not is_young:
            self._ending = True
            self.shutdown()

    def abort(self) -> None:
        """Close immediately."""
        self._aborted = True
        self._table.remove(self)
        self.limit(None)
        if self._transport is not None:
            self._transport.abort()

    def limit(self, seconds: float | None) -> None:
        """Abort the connection after `seconds`, which replace those of before; None: no limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort) if seconds is not None else None


class _TlsProtocol(sslproto.SSLProtocol):
    """asyncio's TLS protocol with smaller buffers."""

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
            ssl_shutdown_timeout=_TLS_SHUTDOWN_SECONDS,
        )
        self._connection = connection

    def connection_lost(self, exc: Any) -> None:
        super().connection_lost(exc)
        self._connection.connection_lost(exc)


_Peer = dict[Stage, dict[ClientConnection, None]]
"""The connections of one address by stage, the oldest first."""


class ClientTable:
    """The open connections of a listener: `max_connections` in total, half of them per address.

    `dropped` is called with the stage of each connection closed to make room, or with `refused`.
    """

    def __init__(self, max_connections: int, dropped: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._max_connections = max_connections
        self._max_per_peer = max(1, max_connections // 2)
        self._dropped = dropped
        self._clock = clock
        self._peers: dict[str, _Peer] = {}
        self._connections: set[ClientConnection] = set()

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(tuple(self._connections))

    def add(self, connection: ClientConnection) -> None:
        """Add an unfinished connection."""
        self._peers.setdefault(connection.peer, {stage: {} for stage in Stage})
        self._connections.add(connection)
        self.move(connection, Stage.UNFINISHED)
        connection.expires = connection.since + random.uniform(*_LIFETIME_SECONDS)  # noqa: S311 - not a secret

    def move(self, connection: ClientConnection, stage: Stage) -> None:
        """Set a connection's stage."""
        if connection not in self._connections:
            return
        peer = self._peers[connection.peer]
        peer[connection.stage].pop(connection, None)
        connection.stage, connection.since = stage, self._clock()
        peer[stage][connection] = None

    def remove(self, connection: ClientConnection) -> None:
        """Remove a connection."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        peer = self._peers[connection.peer]
        peer[connection.stage].pop(connection)
        if not any(peer.values()):
            del self._peers[connection.peer]

    def make_room(self, address: str) -> bool:
        """Return whether this address may open another connection, after closing one if necessary."""
        own = self._peers.get(address, {})
        count = _count(own)
        if count >= self._max_per_peer:
            victim = self._oldest(own) or next(iter(own[Stage.IDLE]), None)
        elif len(self._connections) >= self._max_connections:
            victim = self._choose_victim(count)
        else:
            return True
        self._dropped(victim.stage.value if victim else "refused")
        if victim is None:
            return False
        victim.abort()
        return True

    def _choose_victim(self, count: int) -> ClientConnection | None:
        """Return the connection to close for an address that has `count`."""
        peers = self._peers.values()
        busiest, idler = (max(peers, key=lambda peer: len(peer[stage])) for stage in (Stage.UNFINISHED, Stage.IDLE))
        is_crowd = _count(busiest) > 2 * count + 1
        victim = next(iter(busiest[Stage.UNFINISHED]), None) if is_crowd else self._oldest(busiest)
        return victim or (next(iter(idler[Stage.IDLE]), None) if _count(idler) > count else None)

    def _oldest(self, peer: _Peer) -> ClientConnection | None:
        oldest = next(iter(peer[Stage.UNFINISHED]), None)
        return oldest if oldest is not None and self._clock() - oldest.since >= _GRACE_SECONDS else None


def _count(peer: _Peer) -> int:
    return sum(map(len, peer.values()))
