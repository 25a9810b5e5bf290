"""The Unix socket for the plugin: access control, timeouts and size limits; one request per connection.

The socket has mode 0600, and the peer must have this process's user id (SO_PEERCRED): runtimes run as root. An invalid
request gets a CNI error. A peer that is slow, sends too much or disconnects affects only itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from netinit.base.errors import CniError, ConfigError
from netinit.kernel.descriptors import receive_descriptors
from netinit.kernel.open_pod import FOLDER
from netinit.node.protocol import GREETING, MAX_HEAD_BYTES, CniCode, Request, encode_error, parse_head, parse_request
from netinit.serving.server_process import wait_readable

_BACKLOG = 1024
_SECONDS_TO_ASK = 5.0  # for a request to arrive
_MAX_DISCARDED = 4 << 20  # bytes
_MARGIN = 0.9  # fraction of the plugin's timeout to use, so that the answer arrives in time
_CREDENTIALS = struct.Struct("=iII")

Answering = Callable[[Request, int, float], Awaitable[bytes]]
"""Answers a request; gets the namespace's descriptor (-1 if there is none), which the caller closes, and a deadline."""


def open_socket(path: str) -> socket.socket:
    """Return the listening socket, replacing one that a killed agent left. Raises ConfigError."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = f"{path}.{os.getpid()}"
    try:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if str(Path(path).parent) == FOLDER:  # kubelets create it for a hostPath, with mode 0755
            Path(path).parent.chmod(0o700)
        Path(new).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listening.bind(new)
        finally:
            os.umask(before)
        listening.listen(_BACKLOG)
        Path(new).rename(path)  # a client finds the old socket or the new one, never none
    except OSError as error:
        listening.close()
        raise ConfigError(f"--socket: {path} cannot be listened on: {error.strerror}") from error
    listening.setblocking(False)  # noqa: FBT003 - its signature
    return listening


class PluginServer:
    """Accepts connections and answers each request by `answer`, with a limit on concurrent requests."""

    def __init__(self, listening: socket.socket, answer: Answering, *, most: int) -> None:
        self._listening = listening
        self._answer = answer
        self._most = most
        self.conversations: set[asyncio.Task[None]] = set()
        self._user = os.geteuid()

    async def run(self) -> None:
        """Accept connections until cancelled; existing ones continue."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(self._listening)
            except OSError:  # out of descriptors: some may be closed by the next attempt
                await asyncio.sleep(0.05)
                continue
            task = asyncio.create_task(self._serve_connection(peer))
            self.conversations.add(task)
            task.add_done_callback(self.conversations.discard)

    async def close(self, seconds: float) -> bool:
        """Complete the requests in progress; return False if some were not done in time."""
        if self.conversations:
            _, left = await asyncio.wait(self.conversations, timeout=seconds)
            for task in left:
                task.cancel()
            return not left
        return True

    async def _serve_connection(self, peer: socket.socket) -> None:
        arrived = time.monotonic()
        descriptors: list[int] = []
        with peer:
            try:
                data = await self._answer_request(peer, descriptors, arrived)
                async with asyncio.timeout(_SECONDS_TO_ASK):
                    await asyncio.get_running_loop().sock_sendall(peer, data)
                    await _discard(peer)
            except (OSError, TimeoutError):  # the peer disconnected, or does not read
                return
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    async def _answer_request(self, peer: socket.socket, descriptors: list[int], arrived: float) -> bytes:
        """Return the answer to the peer's request. Raises OSError if it disconnects without one."""
        try:
            self._check_peer(peer)
            async with asyncio.timeout(_SECONDS_TO_ASK):
                (variables, given, milliseconds), rest = await _read_head(peer, descriptors)
                data = await _read_exactly(peer, rest, variables + given)
            request = parse_request(data[:variables], data[variables:])
        except TimeoutError:
            return encode_error(CniError("the request did not arrive in time", CniCode.IO))
        except CniError as error:
            return encode_error(error)
        deadline = arrived + milliseconds * _MARGIN / 1000
        return await self._answer(request, descriptors[0] if descriptors else -1, deadline)

    def _check_peer(self, peer: socket.socket) -> None:
        _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if user != self._user:
            raise CniError(f"only requests from user {self._user} are accepted", CniCode.ENVIRONMENT)
        if len(self.conversations) > self._most:
            raise CniError(f"{self._most} requests are being answered already; try again", CniCode.LATER)


async def _discard(peer: socket.socket) -> None:
    """Read until the peer disconnects: closing with unread data would discard the answer."""
    peer.shutdown(socket.SHUT_WR)
    left = _MAX_DISCARDED
    while left > 0 and (part := await asyncio.get_running_loop().sock_recv(peer, 1 << 18)):
        left -= len(part)


async def _read_head(peer: socket.socket, descriptors: list[int]) -> tuple[tuple[int, int, int], bytes]:
    """Read the first line, with the namespace's descriptor, and the bytes after it."""
    data = b""
    while b"\n" not in data:
        if len(data) >= MAX_HEAD_BYTES or not GREETING.startswith(data[: len(GREETING)]):
            raise CniError("this is not a request of netinit's plugin", CniCode.DECODING)
        await wait_readable(peer)
        with contextlib.suppress(BlockingIOError):
            part, found = receive_descriptors(peer, MAX_HEAD_BYTES, 1)
            descriptors += found
            if not part and not data:
                raise ConnectionResetError
            if not part:
                raise CniError("the request is cut off", CniCode.DECODING)
            data += part
    line, _, rest = data.partition(b"\n")
    return parse_head(line), rest


async def _read_exactly(peer: socket.socket, data: bytes, size: int) -> bytes:
    parts, left = [data], size - len(data)
    while left > 0:
        part = await asyncio.get_running_loop().sock_recv(peer, min(left, 1 << 18))
        if not part:
            raise CniError("the request is cut off", CniCode.DECODING)
        parts.append(part)
        left -= len(part)
    if left < 0:
        raise CniError("the request is longer than its first line says", CniCode.DECODING)
    return b"".join(parts)
