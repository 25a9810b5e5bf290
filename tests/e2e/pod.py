"""An emulated pod as a mesh has it: an application (uid 1000), a real Envoy, the mesh's resolver, and a world outside."""

from __future__ import annotations

import contextlib
import functools
import http.client
import http.server
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from laboratory import Listener, NetworkNamespace, Pod
from names import ask, serve_names
from netinit.kernel import children, namespaces
from netinit.kernel.sockets import creating_as
from netinit.lab import APP_ID, PROXY_ID
from server_processes import become
from sidecar import STREAM_PORT, Envoy, start_envoy

__all__ = [
    "CLIENT",
    "EXCLUDED_PORT",
    "LOOPBACK",
    "OTHER",
    "POD",
    "WORLD",
    "Answer",
    "Member",
    "MeshPod",
    "Stream",
    "open_mesh_pod",
    "serve_pages",
]

POD = {4: "10.77.0.2", 6: "fd77::2"}
CLIENT = {4: "10.77.0.1", 6: "fd77::1"}
WORLD = {4: "203.0.113.7", 6: "2001:db8::7"}  # the web and name servers outside
OTHER = {4: "198.51.100.7", 6: "2001:db8::8"}  # the same servers under another address
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
WEB_PORT, EXCLUDED_PORT, DNS_PORT, RESOLVER_PORT = 80, 8080, 53, 15053
_SECONDS = 20.0
Life = Callable[[Sequence[socket.socket]], None]
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


@dataclass(frozen=True)
class Answer:
    """Who answered a request, and what it met on the way.

    `through` names the proxy's listeners that the answer went through, and `request_through` those of the request, as
    the server saw it; `peer` is the address from which the server was called, `user` the server's uid.
    """

    server: str
    user: int
    peer: str
    through: tuple[str, ...] = ()
    request_through: tuple[str, ...] = ()


@dataclass(frozen=True)
class Member:
    """Somebody who opens connections: where, and whose they are to the kernel."""

    namespace: NetworkNamespace
    uid: int = 0
    gid: int = 0

    def open(self, version: int, *, udp: bool = False) -> socket.socket:
        """A socket of theirs, not connected."""
        with self.namespace.entered(), creating_as(self.uid, self.gid):
            made = socket.socket(_FAMILIES[version], socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
        made.settimeout(_SECONDS)
        return made

    def fetch(self, host: str, port: int = WEB_PORT, **headers: str) -> Answer:
        """What GET / on a connection of its own brings. Raises OSError when there is no answer."""
        made = self.open(6 if ":" in host else 4)
        connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
        connection.sock = made
        with contextlib.closing(connection):
            made.connect((host, port))
            connection.request("GET", "/", headers=headers)
            response = connection.getresponse()
            body = response.read()
            if response.status != http.client.OK:
                raise ConnectionError(f"{response.status} {response.reason}: {body!r}")
            told = json.loads(body)
            through = tuple(response.headers.get_all("x-through", []))
        return Answer(told["server"], told["user"], told["peer"], through, tuple(told["through"]))

    def resolve(self, name: str, server: str, *, udp: bool) -> str:
        """The text that the name server, or who answers in its place, knows for the name."""
        return ask(self.open(6 if ":" in server else 4, udp=udp), (server, DNS_PORT), name)

    def dial(self, host: str, port: int = STREAM_PORT) -> Stream:
        """A connection that stays open."""
        made = self.open(6 if ":" in host else 4)
        try:
            made.connect((host, port))
        except OSError:
            made.close()
            raise
        return Stream(made)


class Stream:
    """A connection to a server of the laboratory, which says at the start, and whenever it hears something, who it is."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._lines = made.makefile("rb")
        self.greeting = self._listen()

    def echo(self) -> dict[str, str]:
        """What the other side says now. Raises OSError when the connection is broken."""
        self._socket.sendall(b"?")
        return self._listen()

    def close(self) -> None:
        """Nobody listens any more."""
        self._lines.close()
        self._socket.close()

    def _listen(self) -> dict[str, str]:
        line = self._lines.readline()
        if not line:
            raise ConnectionResetError("the connection was closed")
        told: dict[str, str] = json.loads(line)
        return told


@dataclass(frozen=True)
class MeshPod:
    """A pod of a mesh, without rules yet, and who opens connections there. `client` is outside."""

    pod: Pod
    envoy: Envoy
    app: Member
    proxy: Member
    client: Member

    @property
    def pid(self) -> int:
        """The pause process."""
        return self.pod.pid


@contextlib.contextmanager
def open_mesh_pod(*, transparent: bool = False) -> Iterator[MeshPod]:
    """The pod, all of whose players are ready; nothing of it is left after the block.

    With `transparent` the proxy and the resolver run as Istio's do for TPROXY: uid 0, gid 1337.
    """
    proxy_ids = (0 if transparent else PROXY_ID, PROXY_ID)
    app_ids = (APP_ID, APP_ID)
    with contextlib.ExitStack() as stack:
        pod = stack.enter_context(Pod())
        envoy = stack.enter_context(start_envoy(pod, transparent=transparent))

        def play(namespace: NetworkNamespace, listeners: list[Listener], life: Life, ids: tuple[int, int] = (0, 0)) -> None:
            stack.enter_context(_player(namespace, listeners, life, ids))

        web = [Listener(port, family) for port in (WEB_PORT, EXCLUDED_PORT) for family in (4, 6)]
        play(pod, web, functools.partial(_serve_web, "app"), app_ids)
        play(pod.client, web, functools.partial(_serve_web, "outside"))
        play(pod, _dns_listeners(RESOLVER_PORT, LOOPBACK), functools.partial(serve_names, _resolve), proxy_ids)
        play(pod.client, _dns_listeners(DNS_PORT, WORLD, OTHER), functools.partial(serve_names, _tell_name))
        streams = [Listener(STREAM_PORT, family) for family in (4, 6)]
        pod.serve("app", streams, uid=APP_ID, gid=APP_ID)
        pod.client.serve("outside", streams)
        envoy.wait()
        yield MeshPod(pod, envoy, Member(pod, *app_ids), Member(pod, *proxy_ids), Member(pod.client))


@contextlib.contextmanager
def serve_pages(
    namespace: NetworkNamespace, name: str, *, ids: tuple[int, int] = (0, 0), families: Sequence[int] = (4, 6), ports: Sequence[int] = (WEB_PORT,)
) -> Iterator[None]:
    """A web server there, at every address, until the block ends; each page tells of `name`, as an `Answer` has it."""
    listeners = [Listener(port, family) for family in families for port in ports]
    with _player(namespace, listeners, functools.partial(_serve_web, name), ids):
        yield


@contextlib.contextmanager
def _player(namespace: NetworkNamespace, listeners: list[Listener], life: Life, ids: tuple[int, int]) -> Iterator[None]:
    """A child process with these ids whose life it is to serve the listeners, until the block ends or this process does.

    They listen before it starts, so that nobody has to wait for it.
    """
    with contextlib.ExitStack() as stack:
        with namespace.entered(), creating_as(*ids):
            sockets = [stack.enter_context(listener.open()) for listener in listeners]
        descriptor = namespace.descriptor

        def act(answer: children.Answer) -> None:
            namespaces.enter(descriptor)
            become(*ids)
            answer.give(None)
            life(sockets)

        kept = (descriptor, *(made.fileno() for made in sockets))
        child = stack.enter_context(children.start(act, seconds=10, what="a player of the pod", kept=kept))
        child.receive()
        for made in sockets:
            made.close()
        yield


def _serve_web(name: str, sockets: Sequence[socket.socket]) -> None:
    """Answers each GET with who is asked and by whom; never returns."""

    class Desk(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _SECONDS

        def do_GET(self) -> None:
            through = self.headers.get_all("x-through", [])
            told = {"server": name, "user": os.getuid(), "peer": self.client_address[0], "through": through}
            body = json.dumps(told).encode()
            self.send_response(http.client.OK)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    def serve(listening: socket.socket) -> None:
        server = http.server.ThreadingHTTPServer(("", 0), Desk, bind_and_activate=False)
        server.socket.close()
        server.socket = listening
        server.handle_error = lambda *_: None  # a client that resets its connection knows
        server.serve_forever()

    threads = [threading.Thread(target=serve, args=(listening,)) for listening in sockets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _dns_listeners(port: int, *addresses: dict[int, str]) -> list[Listener]:
    """One for each address, so that datagrams are answered from the address that they were sent to."""
    places = [(family, address) for by_family in addresses for family, address in by_family.items()]
    return [Listener(port, family, kind=kind, address=address) for kind in ("udp", "tcp") for family, address in places]


def _tell_name(name: str, _: socket.socket) -> str:
    return f"the world knows {name}"


def _resolve(name: str, made: socket.socket) -> str:
    """The mesh's own names are known here, all others are asked for outside, in the same way as they were asked for here."""
    if name.endswith(".mesh"):
        return f"the mesh knows {name}"
    asking = socket.socket(made.family, made.type)
    version = 4 if made.family == socket.AF_INET else 6
    return "the resolver heard: " + ask(asking, (WORLD[version], DNS_PORT), name)
