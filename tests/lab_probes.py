"""Send probes (connections or datagrams) and report where they arrived."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netinit.base.net import join_host
from netinit.kernel.sockets import creating_as

_REFUSED = {errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE}
_ANSWER_LIMIT = 4096
SECONDS = float(os.environ.get("NETINIT_PROBE_SECONDS", "1"))  # the kernel asks again for a neighbour's address after one
SLICES = 10  # of a probe's time: it is over when this process has waited so often, not while others have the processor
MOST = 50  # times as long a probe waits at most for servers that have something to do
SERVERS = set[int]()  # the processes of the laboratory's servers
ANSWER = ("name", "port", "original_destination", "local", "peer")  # fields of a server's answer


@dataclass(frozen=True, slots=True)
class Probe:
    """A connection to make, or a datagram to send, to a literal address, which determines the family.

    `source`: local address. `uid`, `gid`, `groups`: owner of the socket, root's by default. `timeout`: seconds
    until the answer. `mark`: firewall mark of its packets. `source_port`: 0 for any.
    """

    host: str
    port: int
    udp: bool = False
    source: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    timeout: float = SECONDS
    mark: int = 0
    source_port: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """The result of a probe, as reported by the server that it reached.

    `outcome`: `answered`, `refused` (a reset, or an ICMP error from a closed port), `unreachable` (no route, or the
    kernel refused to send) or `timeout`. `error`: the errno's name, or what came instead of an answer.
    `original_destination`: before REDIRECT or DNAT (SO_ORIGINAL_DST), None for untracked connections and UDP.
    `local`, `peer`: both ends as the server sees them; `source`: the probe's own. Addresses look like
    `10.77.0.2:80` and `[fd77::2]:80`.
    """

    outcome: str
    server: str | None = None
    port: int | None = None
    original_destination: str | None = None
    local: str | None = None
    peer: str | None = None
    source: str | None = None
    error: str | None = None

    def __str__(self) -> str:
        if self.outcome != "answered":
            return f"{self.outcome} ({self.error})" if self.error else self.outcome
        before = f", original destination {self.original_destination}" if self.original_destination else ""
        return f"answered by {self.server} on port {self.port} (from {self.peer} to {self.local}{before})"


def send_probes(probes: Sequence[Probe]) -> list[Arrival]:
    """Send all probes at once and return their results in order, within the longest timeout."""
    with contextlib.ExitStack() as sockets:
        opened = [sockets.enter_context(_open_socket(probe)) for probe in probes]

        async def send_all() -> list[Arrival]:
            return await asyncio.gather(*map(_send, probes, opened))

        return asyncio.run(send_all())


async def _send(probe: Probe, opened: socket.socket) -> Arrival:
    """Make the connection, or send the datagram, and wait for the answer."""
    loop = asyncio.get_running_loop()
    connected, data = False, b""

    async def converse() -> Arrival | None:
        nonlocal connected, data
        if probe.source is not None or probe.source_port:
            opened.bind((probe.source or "", probe.source_port))
        await loop.sock_connect(opened, (probe.host, probe.port))
        if probe.udp:
            opened.send(b"?\n")
        connected = not probe.udp
        while b"\n" not in data:
            piece = await loop.sock_recv(opened, _ANSWER_LIMIT)
            data += piece
            if not piece:
                return end("refused", "connected, but closed without an answer")
        return None

    def end(outcome: str, error: str | None = None, **more: Any) -> Arrival:
        return Arrival(outcome, source=render_address(opened.getsockname()), error=error, **more)

    try:
        if ended := await _wait(asyncio.create_task(converse()), probe.timeout):
            return ended
    except OSError as error:
        if isinstance(error, TimeoutError) and not error.errno:
            return end("timeout", "connected, but no answer came" if connected else None)
        outcome = "refused" if error.errno in _REFUSED else "timeout" if error.errno == errno.ETIMEDOUT else "unreachable"
        return end(outcome, errno.errorcode.get(error.errno or 0, str(error)))
    try:
        answer = json.loads(data.partition(b"\n")[0])
        return end("answered", server=answer["name"], **{name: answer[name] for name in ANSWER[1:]})
    except (ValueError, KeyError, TypeError):
        return end("refused", f"connected, but the answer is not of this laboratory: {data!r}")


async def _wait(task: asyncio.Task[Arrival | None], seconds: float) -> Arrival | None:
    """The result of a task. Raises TimeoutError, without an errno, after so many seconds, and when no server is at work on an answer."""
    for number in range(1, MOST * SLICES):
        is_last = number >= SLICES and not _are_busy()  # before it waits once more: what was answered by then arrives meanwhile
        done, _ = await asyncio.wait([task], timeout=seconds / SLICES)
        if done:
            return task.result()
        if is_last:
            break
    task.cancel()
    await asyncio.wait([task])
    raise TimeoutError


def _are_busy() -> bool:
    """Whether a server has something to do: with nothing it sleeps."""
    for pid in list(SERVERS):  # threads start and end them
        with contextlib.suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "RD":
                return True
    return False


def _open_socket(probe: Probe) -> socket.socket:
    """Open a socket with the probe's ids: the owner match reads those at its creation."""
    version = ipaddress.ip_address(probe.host).version
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    before = os.getgroups()
    if set(probe.groups) != set(before):  # of all threads
        os.setgroups(probe.groups)
    try:
        with creating_as(probe.uid, probe.gid):
            made = socket.socket(family, socket.SOCK_DGRAM if probe.udp else socket.SOCK_STREAM)
    finally:
        if set(probe.groups) != set(before):
            os.setgroups(before)
    if probe.mark:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, probe.mark)
    made.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return made


def render_address(address: Sequence[str | int]) -> str:
    """Format the socket module's address as `10.77.0.2:80` or `[fd77::2]:80`."""
    return join_host(str(address[0]), address[1])
