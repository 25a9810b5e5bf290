"""Attempts of an application and a server, or of a stranger, that send what no TCP of a kernel's would send by itself."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bypass_inbound import knock
from bypass_outbound import (
    ANY_SOURCE,
    IPV6,
    REDIRECT_ONLY,
    SAFE,
    TPROXY_ONLY,
    device,
    dial_from_port_of_reset_proxy,
    dial_from_port_of_unanswered_proxy,
    send_syn,
)
from bypass_world import (
    APP,
    APP_PORT,
    CAPTURED,
    CLIENT,
    EXPECTING,
    INBOUND,
    LEAKED,
    NOBODY,
    OUTBOUND,
    PAST,
    POD,
    PROXY,
    SERVER,
    SERVER_PORT,
    Attempt,
    World,
    is_connected,
    wait_for,
)
from segments import ACK, MD5_OPTION, PEER, PSH, RST, SYN, make_icmp_error, make_packet, make_segment

Run = Callable[[World, int], str]
SEQ = 5000
BOTH_IPV6 = dict.fromkeys(IPV6, PAST)
# Unreachable (net, host, protocol, port, too big, prohibited), quench, redirect, time exceeded, parameter problem: type, code,
# and the word behind the checksum (an MTU of 600, a gateway, a pointer).
ICMP_ERRORS = {
    4: [*[(3, code, 600 if code == 4 else 0) for code in (0, 1, 2, 3, 4, 10, 13)], (4, 0, 0), (5, 1, 0x0A4D0063), (11, 0, 0), (12, 0, 5 << 24)],
    6: [*[(1, code, 0) for code in range(7)], (2, 0, 1280), (3, 0, 0), (4, 0, 6), (4, 1, 6)],
}


def complete_call_in_the_servers_name(world: World, version: int) -> str:
    """The application calls itself over `lo` with the server's address; its listener's SYN/ACK goes out, and the server answers that."""
    own, port = world.port(), world.port()
    world.listen(APP, own, version)
    try:
        with world.app_socket(version, ANY_SOURCE[version]) as made:
            try:
                world.as_app(made.bind, (PEER[version], port))
            except OSError:
                return NOBODY
            world.as_app(made.connect_ex, (POD[version], own))
            world.settle()
            answer = world.peer.receive(port, SYN | ACK)
            if answer is None:
                return NOBODY
            world.peer.send_segment(PEER[version], POD[version], (port, own), ACK | PSH, seq=answer.ack, ack=answer.seq + 1, data=b"?")
            return world.verdict()
    finally:
        world.stop_listening(APP, own, version)


def answer_with_cookies_after_syn_over_lo(world: World, version: int) -> str:
    """All listeners send SYN cookies: an ACK that brings one completes a handshake whose SYN another socket answered."""
    own, port = world.port(), world.port()
    send_syn(world, version, (POD[version], own), (PEER[version], port), device("lo"))
    world.pod.set_sysctl("net/ipv4/tcp_syncookies", 2)
    world.listen(APP, own, version)
    try:
        with world.app_socket(version) as inner:  # the kernel takes a cookie only of a listener that has just sent one
            world.as_app(inner.connect_ex, (POD[version], own))
            wait_for(lambda: is_connected(inner))
            world.verdict()
        world.peer.send_segment(PEER[version], POD[version], (port, own), SYN, seq=SEQ)
        return world.shake_hands((PEER[version], POD[version]), (port, own), SEQ)
    finally:
        world.pod.set_sysctl("net/ipv4/tcp_syncookies", 1)
        world.stop_listening(APP, own, version)


@contextmanager
def waiting(world: World, version: int) -> Iterator[tuple[socket.socket, int, int]]:
    """A socket of the application's that waits for an answer: bound to eth0, so that its redirected SYN gets nowhere."""
    own, port = world.port(), world.port()
    world.peer.find_syn(0)
    with world.app_socket(version, device("eth0")) as made:
        world.as_app(made.bind, (POD[version], own))
        world.as_app(made.connect_ex, (PEER[version], port))
        yield made, own, port


def answer_redirected_syn(world: World, version: int) -> str:
    """The SYN leaves eth0 for a loopback address. Whoever sees its number answers in the server's name."""
    with waiting(world, version) as (made, own, port):
        world.settle()
        out = world.peer.find_syn(own)
        assert out, "the SYN leaves the pod"
        world.peer.send_segment(PEER[version], POD[version], (port, own), SYN | ACK, seq=SEQ, ack=out.seq + 1)
        world.settle()
        return PAST if is_connected(made) else LEAKED


def open_simultaneously(world: World, version: int) -> str:
    """The server's SYN crosses that of a waiting socket."""
    with waiting(world, version) as (made, own, port):
        world.peer.send_segment(PEER[version], POD[version], (port, own), SYN, seq=SEQ)
        found = world.shake_hands((PEER[version], POD[version]), (port, own), SEQ)
        return PAST if is_connected(made) else found


def open_simultaneously_behind_silent_proxy(world: World, version: int) -> str:
    """The proxy's listener has no room: the application waits, until the server calls the very port."""
    own, port = world.port(), world.port()
    world.stop_listening(PROXY, OUTBOUND, version)
    world.listen(PROXY, OUTBOUND, version, backlog=0)
    fillers = [world.app_socket(version) for _ in range(3)]
    try:
        for filler in fillers:
            world.as_app(filler.connect_ex, (SERVER[version], SERVER_PORT))
        world.settle()
        with world.app_socket(version) as made:
            world.as_app(made.bind, (POD[version], own))
            world.as_app(made.connect_ex, (PEER[version], port))
            world.settle()
            assert not is_connected(made), "the proxy's listener has no room"
            world.peer.send_segment(PEER[version], POD[version], (port, own), SYN, seq=SEQ)
            world.settle()
            world.peer.shake_hands(PEER[version], POD[version], (port, own), SEQ, 0)
            world.settle()
            return PAST if is_connected(made) else NOBODY
    finally:
        for filler in fillers:
            filler.close()
        world.stop_listening(PROXY, OUTBOUND, version)
        world.listen(PROXY, OUTBOUND, version)


def write_into_connection(*before: tuple[int, int], flags: int) -> Run:
    """A segment with data in the server's name, with the numbers of a connection between the application and the proxy.

    `before` are segments that make connection tracking expect other numbers: flags and distance.
    """

    def run(world: World, version: int) -> str:
        own, port = world.port(), world.port()
        ends, ports = (PEER[version], POD[version]), (port, own)
        with world.app_socket(version) as made, world.listening_below("lo") as within:
            world.as_app(made.bind, (POD[version], own))
            world.as_app(made.connect_ex, (PEER[version], port))
            accepted = world.accept(EXPECTING)
            assert [who for who, _ in accepted] == [PROXY]
            world.settle()
            last = [seen for seen in within() if seen.ports[0] == own][-1]
            for each, distance in before:
                world.peer.send_segment(*ends, ports, each, seq=last.ack + distance)
                world.settle()
            world.peer.send_segment(*ends, ports, flags, seq=last.ack, ack=last.seq, data=b"?")
            world.settle()
            try:
                read = world.as_app(made.recv, 1)
            except BlockingIOError:
                return CAPTURED
            except ConnectionResetError:
                return NOBODY
            finally:
                for _, connection in accepted:
                    connection.close()
            assert read == b"?"
            return PAST

    return run


@contextmanager
def without_proxy(world: World, version: int) -> Iterator[None]:
    """Nobody listens on the proxy's ports inside the block."""
    for port in (INBOUND, OUTBOUND):
        world.stop_listening(PROXY, port, version)
    try:
        yield
    finally:
        for port in (INBOUND, OUTBOUND):
            world.listen(PROXY, port, version)


def knock_without_proxy(world: World, version: int) -> str:
    with without_proxy(world, version):
        return knock(world, version, SYN)


def dial_without_proxy(world: World, version: int) -> str:
    with without_proxy(world, version):
        return world.dial(version, (POD[version], world.port()), (SERVER[version], SERVER_PORT))


def send_errors(world: World, version: int, source: str, target: str, ports: tuple[int, int], *, to: str) -> None:
    """ICMP errors of every kind about a segment, from a router on the way."""
    quoted = make_packet(source, target, make_segment(source, target, ports, SYN, seq=SEQ))
    errors = [make_icmp_error(CLIENT[version], to, kind, code, quoted, field=field) for kind, code, field in ICMP_ERRORS[version]]
    world.peer.send(*errors)
    world.settle()


def knock_after_errors(*steps: tuple[int, int], **more) -> Run:
    """Segments of the peer's, errors about them and about what answers them, then a SYN from the same port."""

    def run(world: World, version: int) -> str:
        port = world.port()
        for flags, distance in steps:
            world.peer.send_segment(PEER[version], POD[version], (port, APP_PORT), flags, seq=SEQ + distance, ack=7, **more)
            world.settle()
        for target_port in (APP_PORT, INBOUND):
            send_errors(world, version, PEER[version], POD[version], (port, target_port), to=POD[version])
            send_errors(world, version, POD[version], PEER[version], (target_port, port), to=POD[version])
        world.verdict(0)
        while world.peer.receive(port):
            pass
        return knock(world, version, SYN, port=port, seq=SEQ)

    return run


def dial_after_errors(first: Run) -> Run:
    """Errors about the connections that an attempt makes, from all ports that it is about to use, and the attempt after it."""

    def run(world: World, version: int) -> str:
        following = world.port()
        for number in range(1, 4):
            ports = (following + number, SERVER_PORT)
            send_errors(world, version, POD[version], SERVER[version], ports, to=POD[version])
            send_errors(world, version, SERVER[version], POD[version], (ports[1], ports[0]), to=POD[version])
        found = first(world, version)
        send_errors(world, version, POD[version], SERVER[version], (following + 1, SERVER_PORT), to=POD[version])
        again = world.dial(version, (POD[version], following + 1), (SERVER[version], SERVER_PORT))
        return PAST if PAST in (found, again) else again

    return run


ATTEMPTS = (
    Attempt("nobody listens on the proxy's inbound port", knock_without_proxy, (NOBODY,)),
    Attempt("nobody listens on the proxy's outbound port", dial_without_proxy, (NOBODY,)),
    Attempt("a call in the server's name that the server completes", complete_call_in_the_servers_name, SAFE, istio=BOTH_IPV6),
    Attempt("a call back with SYN cookies on an entry that a SYN over lo left", answer_with_cookies_after_syn_over_lo, SAFE, istio={**TPROXY_ONLY, ("REDIRECT", 4): PAST}),
    Attempt("an answer to a SYN that went astray", answer_redirected_syn, (*SAFE, LEAKED), istio=REDIRECT_ONLY),
    Attempt("a simultaneous open", open_simultaneously, SAFE),
    Attempt("a simultaneous open while the proxy is silent", open_simultaneously_behind_silent_proxy, SAFE),
    Attempt("data in the server's name", write_into_connection(flags=ACK | PSH), SAFE),
    Attempt("data in the server's name beside a connection of its own", write_into_connection((SYN, -(2**20)), flags=ACK | PSH), SAFE, istio=REDIRECT_ONLY),
    Attempt("SYN after ICMP errors about it", knock_after_errors()),
    Attempt("SYN after ICMP errors about a handshake", knock_after_errors((SYN, 0)), SAFE),
    Attempt("SYN after ICMP errors about an unanswered SYN", knock_after_errors((SYN, 0), options=MD5_OPTION), SAFE),
    Attempt("SYN after ICMP errors about a reset connection", knock_after_errors((SYN, 0), (RST, 1)), SAFE),
    Attempt("a connection of the proxy's that was reset, after ICMP errors", dial_after_errors(dial_from_port_of_reset_proxy), SAFE),
    Attempt("a connection of the proxy's without an answer, after ICMP errors", dial_after_errors(dial_from_port_of_unanswered_proxy), SAFE),
)
