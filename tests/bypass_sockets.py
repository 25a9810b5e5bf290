"""Attempts with what sockets offer to anybody: other ways to make one, other options, other hands, other ports."""

from __future__ import annotations

import array
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Iterator

import io_uring
from bypass_inbound import knock
from bypass_outbound import EVERYWHERE, MISROUTED, REFUSED, SAFE, TPROXY_ONLY, device, dial
from bypass_world import (
    APP,
    APP_PORT,
    CAPTURED,
    CLIENT,
    EXPECTING,
    INBOUND,
    NOBODY,
    NOT_ALLOWED,
    OUTBOUND,
    OUTSIDE,
    PAST,
    POD,
    PROXY,
    SERVER,
    SERVER_PORT,
    Attempt,
    World,
    is_connected,
    make_socket,
    wait_for,
)
from segments import PEER, SYN, find_hardware_address, make_redirect

Run = Callable[[World, int], str]
LOOP = {4: "127.0.0.1", 6: "::1"}
IP_TRANSPARENT, IPV6_TRANSPARENT, IP_UNICAST_IF, IPV6_UNICAST_IF, IP_LOCAL_PORT_RANGE = 19, 75, 50, 76, 51  # linux/in.h, linux/in6.h
TCP_REPAIR, TCP_FASTOPEN_CONNECT = 19, 30  # linux/tcp.h
FAST = (socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
LOOPBACK_INDEX = socket.htonl(1)
IP_SOURCE_GROUP = socket.inet_aton("232.1.1.1") + socket.inet_aton(POD[4]) + socket.inet_aton(SERVER[4])


def option(name4: int, name6: int, value: int | bytes = 1) -> Run:
    """One connection from a socket with an option of the IP version."""

    def run(world: World, version: int) -> str:
        level, name = {4: (socket.SOL_IP, name4), 6: (socket.IPPROTO_IPV6, name6)}[version]
        return dial((level, name, value))(world, version)

    return run


def dial_mapped(world: World, version: int) -> str:
    """An IPv6 socket to a mapped IPv4 address: IPv4 on the wire."""
    with world.app_socket(6, (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)) as made:
        world.as_app(made.connect_ex, (f"::ffff:{SERVER[version]}", SERVER_PORT))
        return world.verdict()


def dial_with_ring(flags: int) -> Run:
    """The socket and its connection are made by io_uring; with SQPOLL a thread of the kernel's does it."""

    def make(version: int) -> tuple[int, int]:
        address = struct.pack("!H", SERVER_PORT) + {4: socket.inet_aton(SERVER[4]) + bytes(8), 6: bytes(4) + socket.inet_pton(socket.AF_INET6, SERVER[6]) + bytes(4)}[version]
        family = {4: socket.AF_INET, 6: socket.AF_INET6}[version]
        with contextlib.closing(io_uring.Ring(flags)) as ring:
            made = ring.socket(family)
            assert made >= 0, made
            return made, ring.connect(made, struct.pack("H", family) + address)

    def run(world: World, version: int) -> str:
        descriptor, code = world.as_app(make, version)
        with socket.socket(fileno=descriptor):
            assert code == 0, code
            return world.verdict()

    return run


def dial_with_handed_socket(who: int) -> Run:
    """Another user of the pod hands an open socket over (SCM_RIGHTS), which the application connects."""

    def run(world: World, version: int) -> str:
        ours, theirs = socket.socketpair()
        with ours, theirs, make_socket(world.pod, version, who) as made:
            ours.sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))])
            data = world.as_app(theirs.recvmsg, 1, socket.CMSG_SPACE(4))[1][0][2]
            with socket.socket(fileno=array.array("i", data)[0]) as received:
                world.as_app(received.connect_ex, (SERVER[version], SERVER_PORT))
                return world.verdict()

    return run


def dial_from_one_port_twice(world: World, version: int) -> str:
    """Two servers, one source port: the second connection needs an entry that differs from the first."""
    own = (POD[version], world.port())
    with world.app_socket(version) as first:
        world.as_app(first.bind, own)
        world.as_app(first.connect_ex, (PEER[version], SERVER_PORT))
        accepted = world.accept(EXPECTING)
        try:
            return world.dial(version, own, (SERVER[version], SERVER_PORT))
        finally:
            for _, connection in accepted:
                connection.close()


def dial_with_cookie(*, after_reset: bool) -> Run:
    """TCP Fast Open with a cookie that the server gave to a connection of the proxy's: the SYN carries data that a server delivers."""

    def run(world: World, version: int) -> str:
        server = (SERVER[version], SERVER_PORT)
        world.pod.client.set_sysctl("net/ipv4/tcp_fastopen", 3)
        world.accept_fast_open(OUTSIDE, SERVER_PORT, version)
        with world.proxy_socket(version) as upstream:
            upstream.setsockopt(*FAST)
            own = upstream.getsockname()[:2]
            upstream.connect_ex(server)
            with contextlib.suppress(BlockingIOError):
                upstream.send(b"?")
            assert world.reset() == OUTSIDE
            wait_for(lambda: not is_connected(upstream))
        with world.app_socket(version, FAST) as made:
            world.as_app(made.bind, own if after_reset else (POD[version], world.port()))
            world.as_app(made.connect_ex, server)
            with contextlib.suppress(OSError):
                world.as_app(made.send, b"data")
            return world.verdict()

    return run


def call_with_cookie(*, after_reset: bool) -> Run:
    """A client has a Fast Open cookie of the application's, from a port that is not captured; all listeners of a pod give the same."""

    def run(world: World, version: int) -> str:
        port, excluded = world.port(), world.excluded_port
        world.pod.set_sysctl("net/ipv4/tcp_fastopen", 3)
        world.accept_fast_open(APP, APP_PORT, version)
        world.listen(APP, excluded, version)
        world.accept_fast_open(APP, excluded, version)
        try:
            with call_fast(world, version, world.port(), excluded):
                assert world.verdict(EXPECTING) == PAST
            if after_reset:
                with call_fast(world, version, port, APP_PORT):
                    assert world.reset() == PROXY
            with call_fast(world, version, port, APP_PORT):
                return world.verdict()
        finally:
            world.stop_listening(APP, excluded, version)

    return run


def call_fast(world: World, version: int, own: int, port: int) -> socket.socket:
    made = make_socket(world.pod.client, version)
    made.setsockopt(*FAST)
    made.bind((CLIENT[version], own))
    made.connect_ex((POD[version], port))
    with contextlib.suppress(BlockingIOError):
        made.send(b"GET /")
    return made


def take_port(port: int, address: dict[int, str], *options: tuple[int, int, int | bytes]) -> Run:
    """The application listens where the proxy does."""

    def run(world: World, version: int) -> str:
        try:
            with world.app_socket(version, (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1), *options) as made:
                world.as_app(made.bind, (address[version], port))
                world.as_app(made.listen, 5)
                found = {knock(world, version, SYN) for _ in range(8)}
                with contextlib.suppress(BlockingIOError):
                    made.accept()[0].close()
                    return PAST
                return PAST if PAST in found else CAPTURED
        except OSError as error:
            return f"{NOT_ALLOWED}: {error.strerror}"

    return run


@contextlib.contextmanager
def bound_before_proxy(world: World, version: int, port: int) -> Iterator[socket.socket]:
    """A socket of the application's that has the proxy's port, since it was there first; the proxy listens all the same."""
    world.stop_listening(PROXY, port, version)
    with world.app_socket(version) as made:
        world.as_app(made.bind, (POD[version], port))
        try:
            world.listen(PROXY, port, version)
            yield made
        finally:
            if not world.is_listening(PROXY, port, version):
                made.close()
                world.listen(PROXY, port, version)


def dial_from_port_of_proxy(port: int) -> Run:
    def run(world: World, version: int) -> str:
        with bound_before_proxy(world, version, port) as made:
            world.as_app(made.connect_ex, (SERVER[version], SERVER_PORT))
            return world.verdict()

    return run


def dial_target(target: dict[int, str], *options: tuple[int, int, int | bytes], port: int = SERVER_PORT) -> Run:
    def run(world: World, version: int) -> str:
        try:
            return world.dial(version, None, (target[version], port), *options)
        except OSError as error:
            return f"{NOT_ALLOWED}: {error.strerror}"

    return run


def write_urgent(world: World, version: int) -> str:
    with world.app_socket(version) as made:
        world.as_app(made.connect_ex, (SERVER[version], SERVER_PORT))
        wait_for(lambda: is_connected(made))
        world.as_app(made.send, b"!", socket.MSG_OOB)
        return world.verdict()


def dial_after_redirect(world: World, version: int) -> str:
    """The router says that another host is nearer to the server; one of IPv6 is known by its link-local address."""
    router, better = CLIENT[version], {4: "10.77.0.99", 6: PEER[6]}[version]
    if version == 6:
        addresses = json.loads(world.pod.client.run(["ip", "-j", "-6", "address", "show", "dev", "eth0", "scope", "link"], check=True).stdout)[0]["addr_info"]
        router = next(one["local"] for one in addresses if one)
        world.pod.run(["ip", "-6", "route", "replace", "default", "via", router, "dev", "eth0"], check=True)
    hardware = find_hardware_address(world.pod.client, "eth0").hex(":")
    world.pod.run(["ip", "neighbour", "replace", better, "lladdr", hardware, "dev", "eth0"], check=True)
    world.peer.find_syn(0)
    with world.proxy_socket(version) as upstream:
        upstream.connect_ex((PEER[version], SERVER_PORT))
        world.settle()
        ports = (upstream.getsockname()[1], SERVER_PORT)
        world.peer.send(make_redirect(router, POD[version], PEER[version], better, ports, world.peer.find_syn(ports[0]).seq))
        world.settle()
    route = json.loads(world.pod.run(["ip", "-j", f"-{version}", "route", "get", PEER[version]], check=True).stdout)[0]
    assert route.get("gateway", PEER[version]) == better, "the redirect counts"
    try:
        return world.dial(version, None, (PEER[version], SERVER_PORT))
    finally:
        world.pod.run(["ip", f"-{version}", "route", "flush", "cache"], check=True)


ATTEMPTS = (
    Attempt("an IPv6 socket to a mapped address", dial_mapped, versions=(4,)),
    Attempt("io_uring", dial_with_ring(0)),
    Attempt("io_uring with a thread of the kernel's", dial_with_ring(io_uring.SQPOLL)),
    Attempt("a socket that another user handed over", dial_with_handed_socket(0)),
    Attempt("one source port for two servers", dial_from_one_port_twice),
    Attempt("a Fast Open cookie of the server's", dial_with_cookie(after_reset=False)),
    Attempt("a Fast Open cookie, from the port of a proxy's connection that the server reset", dial_with_cookie(after_reset=True), SAFE, istio=EVERYWHERE),
    Attempt("a call with a Fast Open cookie", call_with_cookie(after_reset=False)),
    Attempt("a call with a Fast Open cookie after the proxy's reset", call_with_cookie(after_reset=True), SAFE, istio=TPROXY_ONLY),
    Attempt("urgent data", write_urgent),
    Attempt("a route that a redirect made", dial_after_redirect),
    Attempt("the proxy's inbound port, shared", take_port(INBOUND, {4: "", 6: ""}), (f"{NOT_ALLOWED}: Address already in use",)),
    Attempt("the proxy's inbound port at the pod's address, shared", take_port(INBOUND, POD), (f"{NOT_ALLOWED}: Address already in use",)),
    Attempt("the proxy's inbound port at eth0, shared", take_port(INBOUND, POD, device("eth0")), (f"{NOT_ALLOWED}: Address already in use",)),
    Attempt("the proxy's outbound port, shared", take_port(OUTBOUND, LOOP), (f"{NOT_ALLOWED}: Address already in use",)),
    Attempt("the proxy's outbound port as the source", dial_from_port_of_proxy(OUTBOUND)),
    Attempt("the proxy's inbound port as the source", dial_from_port_of_proxy(INBOUND), SAFE),
    Attempt("the loopback address over the pod's interface", dial_target(LOOP, device("eth0")), SAFE, istio=MISROUTED),
    Attempt("a broadcast address", dial_target({4: "10.77.0.255"}, (socket.SOL_SOCKET, socket.SO_BROADCAST, 1)), SAFE, (4,)),
    Attempt("a multicast address", dial_target({4: "224.0.0.1", 6: "ff02::1"}, device("eth0")), SAFE),
    Attempt("an interface for what is sent: lo", option(IP_UNICAST_IF, IPV6_UNICAST_IF, LOOPBACK_INDEX)),
    Attempt("a group with a source", dial((socket.SOL_IP, 39, IP_SOURCE_GROUP)), versions=(4,)),
    Attempt("a range of one local port: the proxy's", option(IP_LOCAL_PORT_RANGE, IP_LOCAL_PORT_RANGE, INBOUND << 16 | INBOUND), (CAPTURED, NOBODY), (4,)),
    Attempt("a transparent socket", option(IP_TRANSPARENT, IPV6_TRANSPARENT), REFUSED),
    Attempt("a socket in repair mode", dial((socket.IPPROTO_TCP, TCP_REPAIR, 1)), REFUSED),
)
