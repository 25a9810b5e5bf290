"""Attempts of an application without privileges to reach a server without the proxy.

In some the server cooperates: it may answer, stay silent, reset or call as it likes.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
from collections.abc import Callable

from bypass_world import (
    APP,
    APP_PORT,
    CAPTURED,
    LEAKED,
    NOBODY,
    NOT_ALLOWED,
    PAST,
    POD,
    SERVER,
    SERVER_PORT,
    Attempt,
    World,
    is_connected,
    wait_for,
)
from segments import ACK, MD5_OPTION, PEER, RST, SYN

Run = Callable[[World, int], str]
SAFE = (CAPTURED, NOBODY)
IP_FREEBIND, IPV6_FREEBIND, IPV6_RTHDR, IPPROTO_MPTCP = 15, 78, 57, 262  # linux/in.h, linux/in6.h
TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE = 30, 34  # linux/tcp.h
ANY_SOURCE = {4: (socket.SOL_IP, IP_FREEBIND, 1), 6: (socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)}
EVERYWHERE = {(mode, version): PAST for mode in ("REDIRECT", "TPROXY") for version in (4, 6)}
IPV4 = {(mode, 4): PAST for mode in ("REDIRECT", "TPROXY")}
REDIRECT_ONLY = {("REDIRECT", version): PAST for version in (4, 6)}
TPROXY_ONLY = {("TPROXY", version): PAST for version in (4, 6)}
# The proxy's address replaces the server's, but the packet still leaves over the socket's device, to the next hop.
MISROUTED = dict.fromkeys(EVERYWHERE, LEAKED)
# Istio's native rules have no drop behind tproxy: without a socket of the proxy's, the packet reaches the application's.
NATIVE_TPROXY = {("TPROXY", version, "nftables"): PAST for version in (4, 6)}
IPV6 = {("REDIRECT", 6): PAST, ("TPROXY", 6): LEAKED, **NATIVE_TPROXY}


def device(name: str) -> tuple[int, int, bytes]:
    """The option that binds a socket to a device; since Linux 5.7 anybody may bind one that is not bound yet."""
    return (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode())


def dial(*options: tuple[int, int, int | bytes], source: str | None = None, protocol: int = 0) -> Run:
    """One connection from a socket with these options."""

    def run(world: World, version: int) -> str:
        try:
            return world.dial(version, (source or POD[version], world.port()), (SERVER[version], SERVER_PORT), *options, protocol=protocol)
        except OSError as error:
            return f"{NOT_ALLOWED}: {error.strerror}"

    return run


def dial_itself(target: dict[int, str]) -> Run:
    def run(world: World, version: int) -> str:
        return world.dial(version, None, (target[version], APP_PORT))

    return run


def send_syn(world: World, version: int, source: tuple[str, int], target: tuple[str, int], *options) -> None:
    """Sends a SYN and gives up."""
    with world.app_socket(version, *options) as made:
        world.as_app(made.bind, source)
        world.as_app(made.connect_ex, target)


def dial_after_syn_over(name: str) -> Run:
    """A SYN over a device where nothing is captured makes an entry that serves the next connection with the same addresses."""

    def run(world: World, version: int) -> str:
        own, target = (POD[version], world.port()), (SERVER[version], SERVER_PORT)
        send_syn(world, version, own, target, device(name))
        return world.dial(version, own, target)

    return run


def answer_after_syn_over_lo(world: World, version: int) -> str:
    """The same entry lets a server in that calls the port back."""
    own, port = world.port(), world.port()
    send_syn(world, version, (POD[version], own), (PEER[version], port), device("lo"))
    return answer_call(world, version, own, port)


def answer_call(world: World, version: int, own: int, port: int) -> str:
    """The application listens, and the server calls from its own port. Returns who has the connection."""
    world.listen(APP, own, version)
    try:
        world.peer.send_segment(PEER[version], POD[version], (port, own), SYN, seq=5000)
        return world.shake_hands((PEER[version], POD[version]), (port, own), 5000)
    finally:
        world.stop_listening(APP, own, version)


def dial_after_call_in_the_servers_name(*, answered: bool) -> Run:
    """A SYN over `lo` with the server's address as its source makes the mirrored entry of the connection that follows.

    Where the listener does not answer (its backlog is full) the entry stays in SYN_SENT; where it does, the server resets what
    it did not ask for.
    """

    def run(world: World, version: int) -> str:
        own, server = (POD[version], world.port()), (SERVER[version], SERVER_PORT)
        world.listen(APP, own[1], version, backlog=8 if answered else 0)
        fillers = [] if answered else [world.app_socket(version) for _ in range(3)]
        for filler in fillers:
            world.as_app(filler.connect_ex, own)
        try:
            send_syn_in_the_servers_name(world, version, server, own)
        except OSError:
            return NOBODY  # IPv4: there is no route for a source that is not the pod's
        finally:
            for made in fillers:
                made.close()
            world.stop_listening(APP, own[1], version)
        return world.dial(version, own, server)

    return run


def send_syn_in_the_servers_name(world: World, version: int, server: tuple[str, int], own: tuple[str, int]) -> None:
    with world.app_socket(version, ANY_SOURCE[version]) as made:
        world.as_app(made.bind, server)
        code = world.as_app(made.connect_ex, own)
        if not wait_for(lambda: code != 115, 0.02) and code != 115:  # EINPROGRESS; the server's RST needs a moment
            raise OSError(code, os.strerror(code))


def dial_from_port_of_reset_proxy(world: World, version: int) -> str:
    """The server resets a connection of the proxy's, whose entry stays in CLOSE for 10 s."""
    server = (SERVER[version], SERVER_PORT)
    with world.proxy_socket(version) as upstream:
        own = upstream.getsockname()[:2]
        upstream.connect_ex(server)
        world.reset()
        wait_for(lambda: not is_connected(upstream))
    return world.dial(version, own, server)


def dial_from_port_of_unanswered_proxy(world: World, version: int) -> str:
    """The server does not answer the proxy, whose entry stays in SYN_SENT for 120 s, in the state NEW."""
    server = (SERVER[version], SERVER_PORT)
    with world.silent_server(version), world.proxy_socket(version) as upstream:
        own = upstream.getsockname()[:2]
        upstream.connect_ex(server)
    return world.dial(version, own, server)


def dial_from_port_of_closed_proxy(world: World, version: int) -> str:
    """Both ends close a connection of the proxy's in order."""
    server = (SERVER[version], SERVER_PORT)
    with world.proxy_socket(version) as upstream:
        own = upstream.getsockname()[:2]
        upstream.connect_ex(server)
        found = world.accept(1)
    for _, connection in found:
        connection.close()
    return world.dial(version, own, server)


def answer_on_port_of_reset_proxy(world: World, version: int) -> str:
    """The server resets the proxy's connection and calls back, where the application now listens."""
    port = world.port()
    with world.proxy_socket(version) as upstream:
        own = upstream.getsockname()[1]
        upstream.connect_ex((PEER[version], port))
        first = world.peer.receive(port, SYN, 1)
        world.peer.send_segment(PEER[version], POD[version], (port, own), SYN | ACK, seq=99, ack=first.seq + 1)
        world.peer.receive(port, ACK, 1)
        world.peer.send_segment(PEER[version], POD[version], (port, own), RST, seq=100)
    return answer_call(world, version, own, port)


def answer_on_port_of_unanswered_proxy(world: World, version: int) -> str:
    """The server does not answer the proxy but calls back, where the application now listens."""
    port = world.port()
    with world.proxy_socket(version) as upstream:
        own = upstream.getsockname()[1]
        upstream.connect_ex((PEER[version], port))
        world.peer.receive(port, SYN, 1)
    return answer_call(world, version, own, port)


def answer_at_own_address_on_port_of_unanswered_proxy(*, cookies: bool) -> Run:
    """The same for a listener at the pod's own address, which a socket match finds, and for one that sends SYN cookies."""

    def run(world: World, version: int) -> str:
        port = world.port()
        with world.proxy_socket(version) as upstream:
            own = upstream.getsockname()[1]
            upstream.connect_ex((PEER[version], port))
            world.peer.receive(port, SYN, 1)
        world.pod.set_sysctl("net/ipv4/tcp_syncookies", 2 if cookies else 1)
        try:
            with world.app_socket(version) as listening:
                world.as_app(listening.bind, (POD[version], own))
                world.as_app(listening.listen)
                world.peer.send_segment(PEER[version], POD[version], (port, own), SYN, seq=5000)
                world.settle()
                world.peer.shake_hands(PEER[version], POD[version], (port, own), 5000, 0)
                world.settle()
                return PAST if select.select([listening], [], [], 0)[0] else NOBODY
        finally:
            world.pod.set_sysctl("net/ipv4/tcp_syncookies", 1)

    return run


def dial_after_call_of_the_server(flags: int, *, then: int = 0, options: bytes = b"") -> Run:
    """The server sends this to a port of the pod's, from where the application then dials the server's port."""

    def run(world: World, version: int) -> str:
        own, port = world.port(), world.port()
        ends, ports = (PEER[version], POD[version]), (port, own)
        for number, each in enumerate((flags, then)):
            if each:
                world.peer.send_segment(*ends, ports, each, seq=777 + number, ack=1, options=options)
                world.settle()
        while world.peer.receive(port):
            pass
        with world.app_socket(version) as made:
            world.as_app(made.bind, (POD[version], own))
            world.as_app(made.connect_ex, (PEER[version], port))
            world.settle()
            out = world.peer.receive(port, SYN)
            if out is None:
                return world.verdict()
            world.peer.send_segment(*ends, ports, SYN | ACK, seq=778, ack=out.seq + 1)
            world.settle()
            return PAST if is_connected(made) else LEAKED

    return run


def dial_again_after_reset(world: World, version: int) -> str:
    """The proxy resets a connection of the application's, which dials again from the same port."""
    own, server = (POD[version], world.port()), (SERVER[version], SERVER_PORT)
    with world.app_socket(version) as made:
        world.as_app(made.bind, own)
        world.as_app(made.connect_ex, server)
        world.reset()
    return world.dial(version, own, server)


def dial_with_data_in_the_syn(world: World, version: int) -> str:
    with world.app_socket(version, (socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1), (socket.IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 1)) as made:
        world.as_app(made.connect_ex, (SERVER[version], SERVER_PORT))
        world.as_app(made.send, b"data")
        return world.verdict()


def disconnect_and_dial(world: World, version: int) -> str:
    """connect() with AF_UNSPEC ends the connection and keeps the socket, which dials again."""
    with world.app_socket(version) as made:
        world.as_app(made.bind, (POD[version], world.port()))
        world.as_app(made.connect_ex, (SERVER[version], SERVER_PORT))
        world.verdict()
        world.as_app(ctypes.CDLL(None).connect, made.fileno(), bytes(16), 16)
        world.as_app(made.connect_ex, (SERVER[version], SERVER_PORT))
        return world.verdict()


MARK = (socket.SOL_SOCKET, socket.SO_MARK, 1337)
LOOSE_ROUTE = (socket.SOL_IP, socket.IP_OPTIONS, b"\x83\7\4\x0a\x4d\0\2\0")
# Type 4, one segment left: first to the pod itself, then to the server.
SEGMENTS = bytes([0, 4, 4, 1, 1, 0, 0, 0]) + socket.inet_pton(socket.AF_INET6, SERVER[6]) + socket.inet_pton(socket.AF_INET6, POD[6])
REFUSED = (f"{NOT_ALLOWED}: Operation not permitted",)

ATTEMPTS = (
    Attempt("an ordinary connection", dial()),
    Attempt("a connection to itself", dial_itself(POD), (PAST,)),
    Attempt("a connection to another of its addresses", dial_itself({4: "127.0.0.2", 6: "::6"}), (PAST,)),
    Attempt("a connection to the unspecified address, which is itself", dial_itself({4: "0.0.0.0", 6: "::"}), (PAST,)),
    # Its SYN leaves the interface it is bound to, for the loopback address that REDIRECT gave it: every host drops that.
    Attempt("a socket bound to the pod's interface", dial(device("eth0")), (*SAFE, LEAKED), istio=MISROUTED),
    Attempt("a socket bound to lo", dial(device("lo")), SAFE),
    Attempt("an entry that a SYN over lo left", dial_after_syn_over("lo"), SAFE, istio=IPV4),
    Attempt("a call back on an entry that a SYN over lo left", answer_after_syn_over_lo, SAFE, istio=IPV4),
    Attempt("an entry from an unanswered call in the server's name", dial_after_call_in_the_servers_name(answered=False), SAFE, istio=IPV6),
    Attempt("an entry from an answered call in the server's name", dial_after_call_in_the_servers_name(answered=True), SAFE, istio=IPV6),
    Attempt("the port of a proxy's connection that the server reset", dial_from_port_of_reset_proxy, SAFE, istio=EVERYWHERE),
    Attempt("the port of a proxy's connection that the server did not answer", dial_from_port_of_unanswered_proxy, SAFE, istio=EVERYWHERE),
    Attempt("the port of a proxy's connection that both closed", dial_from_port_of_closed_proxy),
    Attempt("a call back to the port of a proxy's reset connection", answer_on_port_of_reset_proxy, SAFE, istio=REDIRECT_ONLY),
    Attempt("a call back to the port of a proxy's unanswered connection", answer_on_port_of_unanswered_proxy, SAFE, istio=EVERYWHERE),
    Attempt("the same where the application listens at the pod's address", answer_at_own_address_on_port_of_unanswered_proxy(cookies=False), SAFE, istio=EVERYWHERE),
    Attempt("the same where it sends SYN cookies", answer_at_own_address_on_port_of_unanswered_proxy(cookies=True), SAFE, istio=EVERYWHERE),
    Attempt("an entry from a SYN of the server that nobody answers", dial_after_call_of_the_server(SYN, options=MD5_OPTION), SAFE, istio=TPROXY_ONLY),
    Attempt("an entry from a SYN of the server that it resets", dial_after_call_of_the_server(SYN, then=RST), SAFE, istio={("TPROXY", 4): LEAKED, ("TPROXY", 6): LEAKED, **NATIVE_TPROXY}),
    Attempt("an entry from an ACK of the server", dial_after_call_of_the_server(ACK), SAFE),
    Attempt("an entry from a SYN and ACK of the server", dial_after_call_of_the_server(SYN | ACK), SAFE),
    Attempt("the port of a connection that the proxy reset", dial_again_after_reset),
    Attempt("data in the SYN", dial_with_data_in_the_syn),
    Attempt("Multipath TCP", dial(protocol=IPPROTO_MPTCP)),
    Attempt("a socket that is disconnected and connected again", disconnect_and_dial),
    Attempt("the proxy's pass-through address as the source", dial(source="127.0.0.6"), SAFE, (4,)),
    Attempt("the IPv6 pass-through address as the source", dial(source="::6"), SAFE, (6,)),
    Attempt("the pass-through address as the source over lo", dial(device("lo"), source="127.0.0.6"), SAFE, (4,)),
    Attempt("the IPv6 pass-through address as the source over lo", dial(device("lo"), source="::6"), SAFE, (6,)),
    Attempt("a routing header over the pod itself", dial((socket.IPPROTO_IPV6, IPV6_RTHDR, SEGMENTS)), SAFE, (6,)),
    Attempt("the proxy's mark", dial(MARK), REFUSED),
    Attempt("a loose source route", dial(LOOSE_ROUTE), REFUSED, (4,)),
)
