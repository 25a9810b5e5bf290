"""A programmed pod under attack: its listeners, an application without privileges, and the verdict about each attempt.

Listeners are sockets of the test process, created in the pod as the user they belong to, so that an attempt decides itself
when a connection is accepted, reset or left waiting. The application is a thread with uid 1000 and no capability.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

from laboratory import Pod
from netinit.base.errors import NetinitError
from netinit.kernel import namespaces
from netinit.kernel.sockets import IP_TRANSPARENT, IPV6_TRANSPARENT, creating_as
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from netinit.options.interception import AMBIENT, NODE_PROXY_MARK
from programming import SIDECAR, apply_in
from segments import Peer, Seen, read_segment

CAPTURED = "captured by the proxy"
PAST = "past the proxy"
NOBODY = "nobody accepts it, nothing gets out"
LEAKED = "nobody accepts it, but its SYN gets out"
NOT_ALLOWED = "the kernel does not allow it"

PROXY, APP, OUTSIDE = "proxy", "app", "outside"
_USERS = {PROXY: PROXY_ID, APP: APP_ID, OUTSIDE: None}
POD = {4: "10.77.0.2", 6: "fd77::2"}
CLIENT = {4: "10.77.0.1", 6: "fd77::1"}
SERVER = {4: "203.0.113.7", 6: "2001:db8::7"}
APP_PORT, SERVER_PORT, OUTBOUND, INBOUND = 8080, 443, 15001, 15006
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST
_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
_TRANSPARENT = {4: (socket.SOL_IP, IP_TRANSPARENT), 6: (socket.IPPROTO_IPV6, IPV6_TRANSPARENT)}
_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_libc = ctypes.CDLL(None, use_errno=True)
# A connection that is expected is waited for as long as a busy machine may need; for one that is not, World.settle() is enough.
EXPECTING, NOT_EXPECTING, SETTLED = 2.0, 0.06, 0.0
_ECHO = bytes.fromhex("0800f7ff00000000")  # an ICMP echo request: type 8, its checksum
_ROUND_TRIPS = 3  # a handshake has three packets, each of which crosses the same queues as these
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables")
MODES = ("REDIRECT", "TPROXY")
OTHER_LAYOUTS = ("ambient", "classic REDIRECT", "classic TPROXY")
RULES = {
    "REDIRECT": (*SIDECAR, "-m", "REDIRECT"),
    "TPROXY": (*SIDECAR, "-m", "TPROXY"),
    "ambient": ("--layout", "ambient"),
    "classic REDIRECT": (*SIDECAR, "--layout", "classic", "-m", "REDIRECT"),
    "classic TPROXY": (*SIDECAR, "--layout", "classic", "-m", "TPROXY"),
}
_TRANSPARENT_PORTS = {"TPROXY": INBOUND, "classic TPROXY": OUTBOUND}
EXACT = "--istio-exact"  # Istio's own rules; the default ones let less past


def _knows_exact() -> bool:
    try:
        Options.from_argv([EXACT])
    except NetinitError:
        return False
    return True


DEFAULT_IS_EXACT = not _knows_exact()


@dataclass(frozen=True)
class Attempt:
    """One way to try. `run` returns the verdict, which must be one of `expected` in each mode and backend.

    `istio` has the verdict with Istio's own rules for each mode and IP version in which these let something past; with a backend
    behind them, that backend's.
    """

    what: str
    run: Callable[[World, int], str]
    expected: tuple[str, ...] = (CAPTURED,)
    versions: tuple[int, ...] = (4, 6)
    istio: Mapping[tuple[str, int] | tuple[str, int, str], str] = field(default_factory=dict)

    def with_istio(self, mode: str, version: int, backend: str) -> str:
        """The verdict with Istio's own rules, where they let something past."""
        return self.istio.get((mode, version, backend), self.istio[mode, version])


class World(contextlib.ExitStack):
    """One pod with one set of rules. `mode` is a key of RULES; without `rules` these are applied later."""

    def __init__(self, mode: str, backend: str, *arguments: str, interfaces: tuple[str, ...] = (), rules: bool = True) -> None:
        super().__init__()
        self._rules = rules
        self.mode, self.backend = mode, backend
        self.options = Options.from_argv([*RULES[mode], "--ipv6", "on", "--backend", backend, *arguments])
        self.pod = Pod(interfaces=interfaces)
        self.patience = EXPECTING
        self._listening: dict[tuple[str, int, int], socket.socket] = {}
        self._ports = itertools.count(20000)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.pod)
            self.peer = stack.enter_context(contextlib.closing(Peer(self.pod)))
            self._pings = stack.enter_context(_make_ping_socket(self.pod))
            stack.callback(lambda: [made.close() for made in self._listening.values()])
            self._app = stack.enter_context(ThreadPoolExecutor(1, initializer=_become_app, initargs=(self.pod.descriptor,)))
            for version in (4, 6):
                for who, port in ((PROXY, OUTBOUND), (PROXY, INBOUND), (APP, APP_PORT), (OUTSIDE, SERVER_PORT)):
                    self.listen(who, port, version)
            if self._rules:
                apply_in(self.pod, self.options)
            self.push(stack.pop_all())
        return self

    def port(self) -> int:
        """Returns a port that nothing in this world has used, below those that kernels choose by themselves."""
        return 1024 + next(self._ports) % 30000

    def listen(self, who: str, port: int, version: int, *, backlog: int = 64) -> None:
        """Opens a listener of the proxy, the application, or a server outside."""
        namespace = self.pod.client if who == OUTSIDE else self.pod
        made = self._listening[who, port, version] = self._proxy_socket(version) if who == PROXY else make_socket(namespace, version, _USERS[who])
        if who == PROXY:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # Envoy has a socket for each of its threads
        if port == _TRANSPARENT_PORTS.get(self.mode):
            made.setsockopt(*_TRANSPARENT[version], 1)
        try:
            made.bind(("", port))
            made.listen(backlog)
        except OSError:
            self.stop_listening(who, port, version)
            raise

    def is_listening(self, who: str, port: int, version: int) -> bool:
        return (who, port, version) in self._listening

    def accept_fast_open(self, who: str, port: int, version: int) -> None:
        """The listener gives cookies for TCP Fast Open, and accepts data in a SYN that carries one."""
        self._listening[who, port, version].setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)

    @property
    def excluded_port(self) -> int:
        """An inbound port that is not captured."""
        return 15008 if self.options.layout == AMBIENT else 15021

    def stop_listening(self, who: str, port: int, version: int) -> None:
        self._listening.pop((who, port, version)).close()

    def settle(self) -> None:
        """Waits until the kernel has worked off what was sent, with what this caused: a packet sent later has come back.

        Each processor has a queue for what arrives over veth and lo, and serves it in order (net/core/dev.c, backlog).
        """
        usual = os.sched_getaffinity(0)
        try:
            for processor in usual:
                os.sched_setaffinity(0, {processor})
                for _ in range(_ROUND_TRIPS):
                    self._pings.sendto(_ECHO, (POD[4], 0))
                    if not select.select([self._pings], [], [], EXPECTING)[0]:
                        raise AssertionError("the pod does not answer an echo request")
                    self._pings.recv(100)
        finally:
            os.sched_setaffinity(0, usual)

    @contextlib.contextmanager
    def listening_below(self, interface: str) -> Iterator[Callable[[], list[Seen]]]:
        """Yields what returns the TCP segments that an interface of the pod's has seen since the last call."""
        with self.pod.entered():
            made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        with made:
            made.bind((interface, 3))
            yield lambda: [seen for packet in iter(lambda: _receive(made), b"") if (seen := read_segment(packet))]

    def accept(self, seconds: float = 0.0) -> list[tuple[str, socket.socket]]:
        """Returns who was connected to since the last call, with the connections; waits `seconds` for the first."""
        found = []
        names = {made: key[0] for key, made in self._listening.items()}
        while ready := select.select(list(names), [], [], 0 if found else seconds)[0]:
            for made in ready:
                with contextlib.suppress(OSError):  # it was reset before it was accepted
                    found.append((names[made], made.accept()[0]))
        return found

    def verdict(self, seconds: float | None = None) -> str:
        """Closes all new connections and says where they ended: PAST where anybody but the proxy has one."""
        if seconds is None:
            self.settle()
        found = self.accept(self.patience if seconds is None else seconds)
        for _, connection in found:
            connection.close()
        who = {name for name, _ in found}
        return PAST if who - {PROXY} else CAPTURED if who else NOBODY

    def shake_hands(self, ends: tuple[str, str], ports: tuple[int, int], seq: int) -> str:
        """Completes the handshake of the peer's SYN with this number, if it is answered, and returns who has the connection."""
        self.settle()
        answered = self.peer.shake_hands(*ends, ports, seq, self.patience)
        return self.verdict(None if answered else 0)

    def reset(self) -> str | None:
        """Accepts the next connection and resets it, as a proxy does with a client it refuses; returns whose it was."""
        for who, connection in self.accept(EXPECTING):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()
            return who
        return None

    def as_app(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the function in the application's thread: in the pod, uid 1000, no capability."""
        return self._app.submit(function, *arguments).result()

    def app_socket(self, version: int, *options: tuple[int, int, int | bytes], protocol: int = 0) -> socket.socket:
        """Creates a socket of the application. Raises OSError for an option that the kernel refuses it."""

        def make() -> socket.socket:
            made = make_socket(None, version, APP_ID, protocol)
            try:
                for option in options:
                    made.setsockopt(*option)
            except OSError:
                made.close()
                raise
            return made

        return self.as_app(make)

    def dial(self, version: int, source: tuple[str, int] | None, target: tuple[str, int], *options, protocol: int = 0) -> str:
        """Returns the verdict about one connection that the application opens."""
        with self.app_socket(version, *options, protocol=protocol) as made:
            self.peer.find_syn(0)
            self.as_app(_connect, made, source, target)
            found = self.verdict()
            if found == NOBODY and is_connected(made):
                return PAST
            return LEAKED if found == NOBODY and self.peer.find_syn(made.getsockname()[1]) else found

    def proxy_socket(self, version: int, source: str | None = None, port: int = 0) -> socket.socket:
        """Creates a socket of the proxy, bound to this port or one that nothing has used."""
        made = self._proxy_socket(version)
        try:
            made.bind((source or POD[version], port or self.port()))
        except OSError:
            made.close()
            raise
        return made

    def _proxy_socket(self, version: int) -> socket.socket:
        """The proxy is known by its user, or in an ambient mesh by its mark."""
        if self.options.layout != AMBIENT:
            return make_socket(self.pod, version, PROXY_ID)
        made = make_socket(self.pod, version)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, NODE_PROXY_MARK)
        return made

    @contextlib.contextmanager
    def silent_server(self, version: int) -> Iterator[None]:
        """The server outside answers no SYN inside the block."""
        rule = ("INPUT", "-p", "tcp", "--dport", str(SERVER_PORT), "-j", "DROP")
        program = "iptables" if version == 4 else "ip6tables"
        self.pod.client.run([program, "-w", "-I", *rule], check=True)
        try:
            yield
        finally:
            self.pod.client.run([program, "-w", "-D", *rule], check=True)


def make_socket(namespace: Any, version: int, user: int | None = None, protocol: int = 0) -> socket.socket:
    """Creates a non-blocking TCP socket in the namespace (None: the thread's own) as this user, with SO_REUSEADDR."""
    with namespace.entered() if namespace else contextlib.nullcontext(), creating_as(user, user):
        made = socket.socket(_FAMILY[version], socket.SOCK_STREAM, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if version == 6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return made


def _make_ping_socket(pod: Pod) -> socket.socket:
    with pod.client.entered():
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def _receive(made: socket.socket) -> bytes:
    try:
        return made.recv(2048, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


def is_connected(made: socket.socket) -> bool:
    try:
        made.getpeername()
    except OSError:
        return False
    return True


def wait_for(condition: Callable[[], Any], seconds: float = EXPECTING) -> Any:
    """Returns what the condition says as soon as that is true, or at the end."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.001)
    return found


def _connect(made: socket.socket, source: tuple[str, int] | None, target: tuple[str, int]) -> None:
    if source:
        made.bind(source)
    made.connect_ex(target)


def _become_app(descriptor: int) -> None:
    """Enters the pod and drops privileges for this thread alone; libc's setresuid would change the whole process."""
    namespaces.enter(descriptor)
    _libc.setfsgid(APP_ID)
    _libc.setfsuid(APP_ID)
    if _libc.capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")
