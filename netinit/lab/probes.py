"""Send probes (connections or datagrams) and report where they arrived."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import os
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netinit.base.net import join_host
from netinit.kernel.switch_user import creating_as

_REFUSED = {errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE}
_ANSWER_LIMIT = 4096
ANSWER = ("name", "port", "original_destination", "local", "peer")  # fields of a server's answer


@dataclass(frozen=True, slots=True)
class Probe:
    """A connection to make, or a datagram to send, to a literal address, which determines the family.

    `source`: local address. `uid`, `gid`, `groups`: owner of the socket, root's by default. `timeout`: seconds
    until the answer. `mark`: firewall mark of its packets.
    """

    host: str
    port: int
    udp: bool = False
    source: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    timeout: float = 1.0
    mark: int = 0


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
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as sockets:
        tries = [_Try(probe, sockets.enter_context(_open_socket(probe)), selector) for probe in probes]
        for one in tries:
            one.begin()
        while any(one.arrival is None for one in tries):
            left = min(one.deadline for one in tries if one.arrival is None) - time.monotonic()
            for key, _ in selector.select(max(left, 0.0)):
                key.data.proceed()
            now = time.monotonic()
            for one in tries:
                if one.arrival is None and one.deadline <= now:
                    one.finish("timeout", error=None if one.waiting else "connected, but no answer came")
    return [one.arrival for one in tries if one.arrival is not None]


class _Try:
    """A probe in progress; finished when `arrival` is set."""

    def __init__(self, probe: Probe, opened: socket.socket, selector: selectors.BaseSelector) -> None:
        self.arrival: Arrival | None = None
        self.waiting = True  # for the handshake; a datagram stays in this state until its answer
        self.deadline = time.monotonic() + probe.timeout
        self._selector = selector
        self._probe = probe
        self._data = b""
        self._socket = opened

    def begin(self) -> None:
        """Start the connection, or send the datagram."""
        try:
            self._send()
        except OSError as error:
            self._fail(error)

    def _send(self) -> None:
        probe = self._probe
        if probe.source is not None:
            self._socket.bind((probe.source, 0))
        if probe.udp:
            self._socket.connect((probe.host, probe.port))
            self._socket.send(b"?\n")
            self._selector.register(self._socket, selectors.EVENT_READ, self)
            return
        code = self._socket.connect_ex((probe.host, probe.port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        self._selector.register(self._socket, selectors.EVENT_WRITE, self)

    def proceed(self) -> None:
        """Continue, because the socket is ready."""
        try:
            if self.waiting and not self._probe.udp:
                code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))  # noqa: TRY301 - one place that reads errno values
                self.waiting = False
                self._selector.modify(self._socket, selectors.EVENT_READ, self)
                return
            piece = self._socket.recv(_ANSWER_LIMIT)
        except OSError as error:
            self._fail(error)
            return
        self._data += piece
        if b"\n" in self._data:
            self._read_answer()
        elif not piece:
            self.finish("refused", error="connected, but closed without an answer")

    def _read_answer(self) -> None:
        try:
            answer = json.loads(self._data.partition(b"\n")[0])
            self.finish("answered", server=answer["name"], **{name: answer[name] for name in ANSWER[1:]})
        except (ValueError, KeyError, TypeError):
            self.finish("refused", error=f"connected, but the answer is not of this laboratory: {self._data!r}")

    def _fail(self, error: OSError) -> None:
        name = errno.errorcode.get(error.errno or 0, str(error))
        outcome = "refused" if error.errno in _REFUSED else "timeout" if error.errno == errno.ETIMEDOUT else "unreachable"
        self.finish(outcome, error=name)

    def finish(self, outcome: str, **more: Any) -> None:
        """End the probe with an outcome and further fields of its Arrival, and close its socket."""
        self.arrival = Arrival(outcome, source=render_address(self._socket.getsockname()), **more)
        if self._socket in self._selector.get_map():
            self._selector.unregister(self._socket)
        self._socket.close()


def _open_socket(probe: Probe) -> socket.socket:
    """Open a socket with the probe's ids: the owner match reads those at its creation."""
    version = ipaddress.ip_address(probe.host).version
    family = socket.AF_INET if version == 4 else socket.AF_INET6  # noqa: PLR2004 - the IP version
    with creating_as(probe.uid, probe.gid, probe.groups):
        made = socket.socket(family, socket.SOCK_DGRAM if probe.udp else socket.SOCK_STREAM)
    if probe.mark:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, probe.mark)
    made.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return made


def needs_child(probe: Probe) -> bool:
    """Whether a probe needs other supplementary groups than this process, whose threads share them."""
    return set(probe.groups) != set(os.getgroups())


def render_address(address: Sequence[str | int]) -> str:
    """Format the socket module's address as `10.77.0.2:80` or `[fd77::2]:80`."""
    return join_host(str(address[0]), address[1])
