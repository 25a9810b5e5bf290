"""Make connections, and report where they arrived; the servers that answer them are in this process too."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from netinit.base.net import IPV4, IPV6, join_host
from netinit.kernel.sockets import creating_as, original_destination

_REFUSED = {errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE}


@dataclass(frozen=True, slots=True)
class Probe:
    """A connection to make, to a literal address, which determines the family.

    `source`: local address. `uid`, `gid`: owner of the socket, root's by default. `timeout`: seconds until the answer.
    """

    host: str
    port: int
    source: str | None = None
    uid: int | None = None
    gid: int | None = None
    timeout: float = 1.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """The result of a probe: the server that it reached, and at which port, as the server reports.

    `outcome`: `answered`, `refused` (a reset), `unreachable` (no route, or the kernel refused to send) or `timeout`; `error`:
    the errno's name. `original_destination`: before REDIRECT or DNAT (SO_ORIGINAL_DST), None for untracked connections.
    `local`: the server's end. Addresses look like `10.77.0.2:80` and `[fd77::2]:80`.
    """

    outcome: str
    server: str | None = None
    port: int | None = None
    original_destination: str | None = None
    local: str | None = None
    error: str = ""

    def __str__(self) -> str:
        return f"{self.outcome} ({self.error})" if self.error else self.outcome


@dataclass(frozen=True, slots=True)
class Server:
    """A port that listens in this process; its connections are answered while probes are sent."""

    name: str
    port: int
    listening: socket.socket

    async def answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Report to a connection where it arrived, in a line of JSON, and close it."""
        connection = writer.get_extra_info("socket")
        original = None
        with contextlib.suppress(OSError):  # ENOENT: not tracked; ENOPROTOOPT: connection tracking is not in use here
            original = join_host(*original_destination(connection, IPV4 if connection.family == socket.AF_INET else IPV6))
        local = join_host(*writer.get_extra_info("sockname")[:2])
        writer.write(json.dumps(["answered", self.name, self.port, original, local]).encode() + b"\n")
        writer.close()


def send_probes(probes: Sequence[Probe], servers: Sequence[Server]) -> list[Arrival]:
    """Send all probes at once and return their results in order, within the longest timeout; meanwhile the servers answer."""
    with contextlib.ExitStack() as sockets:
        opened = [sockets.enter_context(_open_socket(probe)) for probe in probes]

        async def send_all() -> list[Arrival]:
            async with contextlib.AsyncExitStack() as serving:
                for one in servers:
                    await serving.enter_async_context(await asyncio.start_server(one.answer, sock=one.listening.dup()))
                return await asyncio.gather(*map(_send, probes, opened))

        return asyncio.run(send_all())


async def _send(probe: Probe, opened: socket.socket) -> Arrival:
    """Make the connection, and wait for the answer."""
    loop = asyncio.get_running_loop()
    answer = b""
    try:
        async with asyncio.timeout(probe.timeout):
            if probe.source is not None:
                opened.bind((probe.source, 0))
            await loop.sock_connect(opened, (probe.host, probe.port))
            while piece := await loop.sock_recv(opened, 4096):
                answer += piece
    except OSError as error:
        if isinstance(error, TimeoutError) and not error.errno:
            return Arrival("timeout")
        outcome = "refused" if error.errno in _REFUSED else "timeout" if error.errno == errno.ETIMEDOUT else "unreachable"
        return Arrival(outcome, error=errno.errorcode.get(error.errno or 0, str(error)))
    return Arrival(*json.loads(answer)) if answer else Arrival("refused", error="connected, but closed without an answer")


def _open_socket(probe: Probe) -> socket.socket:
    """Open a socket with the probe's ids: the owner match reads those at its creation."""
    family = IPV4 if ipaddress.ip_address(probe.host).version == IPV4.version else IPV6
    with creating_as(probe.uid, probe.gid):
        made = socket.socket(family.number, socket.SOCK_STREAM)
    made.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return made
