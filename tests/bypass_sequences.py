"""Random sequences of what a peer, a proxy and an application may do with one pair of ports, and whether anybody gets past."""

from __future__ import annotations

import contextlib
import socket
from random import Random

from bypass_cooperation import send_errors
from bypass_outbound import ANY_SOURCE, device
from bypass_world import APP, APP_PORT, PAST, POD, PROXY, RESET, World, is_connected
from segments import ACK, FIN, MD5_OPTION, PEER, PSH, RST, SYN, Seen

SEQ = 1_000_000
# What a peer may send: flags, distance from its first number, and the rest.
SEGMENTS = {
    "SYN": (SYN, 0, {}), "SYN higher": (SYN, 2**20, {}), "SYN lower": (SYN, -(2**20), {}), "SYN unanswered": (SYN, 0, {"options": MD5_OPTION}),
    "SYN ACK": (SYN | ACK, 0, {}), "ACK": (ACK, 1, {}), "data": (ACK | PSH, 1, {"data": b"?"}), "FIN": (FIN | ACK, 1, {}),
    "FIN far": (FIN | ACK, 2**24, {}), "RST": (RST, 0, {}), "RST next": (RST, 1, {}), "RST ACK": (RST | ACK, 1, {}), "none": (0, 0, {}),
    "SYN FIN": (SYN | FIN, 0, {}),
}  # fmt: skip
ERRORS = "ICMP errors"  # of every kind, about a SYN in either direction
LISTENER_ACTS = ("accept", "reset", "close")
APP_ACTS = ("dial over lo", "dial and give up", "call in the server's name", "listen", "stop listening", "wait over eth0")
PROXY_ACTS = ("proxy dials", "proxy resets", "proxy closes")


class Sequence:
    """One sequence: a pod's port, a peer's port, and the sockets that are open between them."""

    def __init__(self, world: World, version: int, own: int, port: int) -> None:
        self.world, self.version = world, version
        self.ends, self.ports = (PEER[version], POD[version]), (port, own)
        self.heard: Seen | None = None
        self.accepted: list[tuple[str, socket.socket]] = []
        self.upstream: list[socket.socket] = []
        self.listening = False
        self.waiting: list[socket.socket] = []  # of the application's, for an answer

    def act(self, what: str) -> None:
        if what in SEGMENTS:
            flags, distance, more = SEGMENTS[what]
            self.send(flags, SEQ + distance, **more)
        elif what == ERRORS:
            for (source, target), ports in ((self.ends, self.ports), (self.ends[::-1], self.ports[::-1])):
                send_errors(self.world, self.version, source, target, ports, to=self.ends[1])
        elif what in LISTENER_ACTS:
            self.accepted += self.world.accept()
            if what != "accept":
                self.close(self.accepted, reset=what == "reset")
        elif what in PROXY_ACTS:
            self.act_as_proxy(what)
        else:
            with contextlib.suppress(OSError):  # the address is in use, or has no route
                self.act_as_app(what)
        self.receive()

    def act_as_proxy(self, what: str) -> None:
        if what != "proxy dials":
            self.close([(PROXY, made) for made in self.upstream], reset=what == "proxy resets")
            self.upstream = []
            return
        with contextlib.suppress(OSError):
            made = self.world.proxy_socket(self.version, port=self.ports[1])
            self.upstream.append(made)
            made.connect_ex((self.ends[0], self.ports[0]))

    def act_as_app(self, what: str) -> None:
        world, own, server = self.world, (self.ends[1], self.ports[1]), (self.ends[0], self.ports[0])
        if what == "listen" and not self.listening:
            world.listen(APP, own[1], self.version)
            self.listening = True
        elif what == "stop listening" and self.listening:
            self.stop_listening()
        elif what == "call in the server's name":
            self.send_syn(server, own, ANY_SOURCE[self.version])
        elif what == "wait over eth0":
            self.waiting.append(world.app_socket(self.version, device("eth0")))
            world.as_app(self.waiting[-1].bind, own)
            world.as_app(self.waiting[-1].connect_ex, server)
        elif what == "dial over lo":
            self.send_syn(own, server, device("lo"))
        elif what == "dial and give up":
            self.send_syn(own, server)

    def send_syn(self, source: tuple[str, int], target: tuple[str, int], *options) -> None:
        with self.world.app_socket(self.version, *options) as made:
            self.world.as_app(made.bind, source)
            self.world.as_app(made.connect_ex, target)

    def send(self, flags: int, seq: int, **more) -> None:
        self.world.peer.send_segment(*self.ends, self.ports, flags, seq=seq, ack=self.heard.seq + 1 if self.heard else 7, **more)

    def receive(self) -> None:
        while seen := self.world.peer.receive(self.ports[0]):
            if seen.flags & SYN:
                self.heard = seen

    def close(self, sockets: list[tuple[str, socket.socket]], *, reset: bool) -> None:
        for _, made in sockets:
            if reset:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            made.close()
        sockets.clear()

    def stop_listening(self) -> None:
        self.world.stop_listening(APP, self.ports[1], self.version)
        self.listening = False

    def is_answered(self) -> bool:
        """Whether a socket that waited got its connection."""
        return any(is_connected(made) for made in self.waiting)

    def end(self) -> None:
        for made in self.waiting:
            made.close()
        self.waiting.clear()
        self.close(self.accepted, reset=True)
        self.act_as_proxy("proxy resets")
        if self.listening:
            self.stop_listening()
        self.receive()

    def call(self) -> bool:
        """The peer calls, with numbers that fit and others. Whether anybody but the proxy has the connection."""
        for distance in (0, 2**20, -(2**20), 2**22):
            self.heard = None
            self.send(SYN, SEQ + distance)
            self.receive()
            if self.heard:
                self.send(ACK, SEQ + distance + 1)
                self.send(ACK | PSH, SEQ + distance + 1, data=b"?")
            if self.world.verdict(0) == PAST:
                return True
        return False

    def dial(self) -> bool:
        """The application dials, and the peer answers. Whether the SYN came out."""
        self.heard = None
        with self.world.app_socket(self.version) as made:
            try:
                self.world.as_app(made.bind, (self.ends[1], self.ports[1]))
                self.world.as_app(made.connect_ex, (self.ends[0], self.ports[0]))
            except OSError:
                return False
            self.receive()
            return self.heard is not None or (self.world.verdict(0) != PAST and is_connected(made) and self.world.verdict(0) == PAST)


def run_inbound(world: World, random: Random) -> str | None:
    """A random sequence of a peer and the proxy, then calls of the peer. Returns it if somebody gets past."""
    version = random.choice((4, 6))
    acts = random.choices((*SEGMENTS, ERRORS, *LISTENER_ACTS), k=random.randint(1, 7))
    sequence = Sequence(world, version, APP_PORT, world.port())
    for what in acts:
        sequence.act(what)
    past = any(who != PROXY for who, _ in sequence.accepted) or sequence.call()
    sequence.end()
    return f"IPv{version}: {', '.join(acts)}; then the peer calls" if past else None


def run_outbound(world: World, random: Random) -> str | None:
    """A random sequence of the application, the proxy and a server; then the application dials, or listens and is called."""
    version, called = random.choice((4, 6)), random.random() < 0.5
    acts = random.choices((*SEGMENTS, ERRORS, *LISTENER_ACTS, *(APP_ACTS + PROXY_ACTS) * 3), k=random.randint(1, 7))
    sequence = Sequence(world, version, world.port(), world.port())
    for what in acts:
        sequence.act(what)
    past = sequence.is_answered() or any(who != PROXY for who, _ in sequence.accepted)
    sequence.end()
    world.verdict(0)
    if called and not past:
        sequence.act("listen")
        past = sequence.call()
        sequence.end()
    elif not past:
        past = sequence.dial()
    return f"IPv{version}: {', '.join(acts)}; then {'the server calls' if called else 'the application dials'}" if past else None
