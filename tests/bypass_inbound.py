"""Attempts of a peer outside to reach the application without the proxy. The peer sends any packet it likes."""

from __future__ import annotations

import socket
from collections.abc import Callable

from bypass_world import (
    APP_PORT,
    CAPTURED,
    CLIENT,
    NOBODY,
    PAST,
    POD,
    PROXY,
    Attempt,
    World,
    is_connected,
    make_socket,
    wait_for,
)
from segments import (
    ACK,
    CWR,
    DESTINATION,
    ECE,
    FIN,
    FRAGMENT,
    HOP_BY_HOP,
    MD5_OPTION,
    PEER,
    PSH,
    ROUTING,
    RST,
    SYN,
    TCP,
    URG,
    make_fragment,
    make_packet,
    make_segment,
    next_identification,
)  # fmt: skip

Run = Callable[[World, int], str]
SAFE = (CAPTURED, NOBODY)
FAST_OPEN = b"\x22\x02"  # asks for a cookie, RFC 7413
MULTIPATH = b"\x1e\x04\x01\x01"  # MP_CAPABLE, RFC 8684
PADDING = b"\x01\x04" + bytes(4)  # PadN: the body of a hop-by-hop or destination options header of 8 bytes
SEQ = 1_000_000
TPROXY_ONLY = {("TPROXY", version): PAST for version in (4, 6)}


def call(world: World, version: int, port: int) -> socket.socket:
    """Opens an ordinary connection from the client's own address and this port."""
    made = make_socket(world.pod.client, version)
    made.bind((CLIENT[version], port))
    made.connect_ex((POD[version], APP_PORT))
    return made


def knock(world: World, version: int, flags: int, *, source: str | None = None, target: str | None = None, port: int = 0, seq: int = SEQ, **more) -> str:
    """Sends a segment with these flags, completes the handshake if it is answered, and returns who has the connection."""
    source, target, ports = source or PEER[version], target or POD[version], (port or world.port(), APP_PORT)
    world.peer.send_segment(source, target, ports, flags, seq=seq, **more)
    return world.shake_hands((source, target), ports, seq)


def syn(flags: int = SYN, *, source: dict[int, str] | None = None, target: dict[int, str] | None = None, **more) -> Run:
    """One segment to begin with."""

    def run(world: World, version: int) -> str:
        return knock(world, version, flags, source=source and source[version], target=target and target[version], **more)

    return run


def call_again_after_reset(world: World, version: int) -> str:
    """An ordinary client's port again after the proxy reset its connection: the entry stays in CLOSE for 10 s."""
    port = world.port()
    with call(world, version, port):
        assert world.reset() == PROXY
    with call(world, version, port):
        return world.verdict()


def knock_after_reset(flags: int, **more) -> Run:
    """Like `call_again_after_reset`, with a crafted second segment."""

    def run(world: World, version: int) -> str:
        ports = (world.port(), APP_PORT)
        world.peer.send_segment(PEER[version], POD[version], ports, SYN, seq=SEQ)
        world.peer.shake_hands(PEER[version], POD[version], ports, SEQ, 1)
        assert world.reset() == PROXY
        world.peer.receive(ports[0], RST | ACK, 1)
        return knock(world, version, flags, port=ports[0], seq=SEQ + 100_000, **more)

    return run


def syn_after(*steps: tuple[int, int], **more) -> Run:
    """Segments with these flags and distances from the SYN's number, then the SYN from the same port."""

    def run(world: World, version: int) -> str:
        port = world.port()
        for flags, distance in steps:
            world.peer.send_segment(PEER[version], POD[version], (port, APP_PORT), flags, seq=SEQ + distance, ack=7, **more)
        world.settle()
        world.verdict(0)
        while world.peer.receive(port):
            pass
        return knock(world, version, SYN, port=port)

    return run


def syn_in_pieces(*sizes: int, reverse: bool = False) -> Run:
    """A SYN in fragments of these sizes and one of the rest."""

    def run(world: World, version: int) -> str:
        source, target, ports, number = PEER[version], POD[version], (world.port(), APP_PORT), next_identification()
        segment = make_segment(source, target, ports, SYN, seq=SEQ, data=bytes(60))
        packets, offset = [], 0
        for size in (*sizes, len(segment)):
            piece, last = segment[offset : offset + size], offset + size >= len(segment)
            if version == 4:
                packets.append(make_packet(source, target, piece, offset=offset, more=not last, number=number))
            else:
                packets.append(make_packet(source, target, make_fragment(piece, offset=offset, more=not last, number=number), protocol=FRAGMENT))
            offset += size
        world.peer.send(*(reversed(packets) if reverse else packets))
        return world.shake_hands((source, target), ports, SEQ)

    return run


def pieces_in_pieces(size: int) -> Run:
    """A SYN in two fragments, each of which is itself sent in two: connection tracking reassembles only the outer ones."""

    def run(world: World, version: int) -> str:
        source, target, ports, inner = PEER[version], POD[version], (world.port(), APP_PORT), next_identification()
        segment = make_segment(source, target, ports, SYN, seq=SEQ, data=bytes(60))
        for offset, piece in ((0, segment[:size]), (size, segment[size:])):
            body, number = make_fragment(piece, offset=offset, more=offset == 0, number=inner), next_identification()
            for start, half in ((0, body[:8]), (8, body[8:])):
                outer = make_fragment(half, protocol=FRAGMENT, offset=start, more=start == 0, number=number)
                world.peer.send(make_packet(source, target, outer, protocol=FRAGMENT))
        return world.shake_hands((source, target), ports, SEQ)

    return run


def syn_behind(*headers: tuple[int, bytes]) -> Run:
    """A SYN behind these IPv6 extension headers: the number and the body after the first two bytes."""

    def run(world: World, version: int) -> str:
        source, target, ports = PEER[version], POD[version], (world.port(), APP_PORT)
        body, following = make_segment(source, target, ports, SYN, seq=SEQ), TCP
        for number, content in reversed(headers):
            if number == FRAGMENT:
                body = make_fragment(body, protocol=following, number=next_identification())
            else:
                body = bytes([following, (len(content) + 2) // 8 - 1]) + content + body
            following = number
        world.peer.send(make_packet(source, target, body, protocol=following))
        return world.shake_hands((source, target), ports, SEQ)

    return run


def syn_with_ip_options(options: bytes) -> Run:
    def run(world: World, version: int) -> str:
        source, target, ports = PEER[version], POD[version], (world.port(), APP_PORT)
        world.peer.send(make_packet(source, target, make_segment(source, target, ports, SYN, seq=SEQ), options=options))
        return world.shake_hands((source, target), ports, SEQ)

    return run


def call_with_syn_cookies(world: World, version: int) -> str:
    """Listeners always answer with SYN cookies, which no socket remembers, and the application has just done so over `lo`.

    net.ipv4.tcp_syncookies is one of the sysctls that Kubernetes lets every pod set.
    """
    world.pod.set_sysctl("net/ipv4/tcp_syncookies", 2)
    try:
        with world.app_socket(version) as own:
            world.as_app(own.connect_ex, (POD[version], APP_PORT))
            wait_for(lambda: is_connected(own))
            world.verdict()
        with call(world, version, world.port()):
            return world.verdict()
    finally:
        world.pod.set_sysctl("net/ipv4/tcp_syncookies", 1)


ATTEMPTS = (
    Attempt("a SYN", syn()),
    Attempt("the port of a connection that the proxy reset", call_again_after_reset, istio=TPROXY_ONLY),
    Attempt("the port of a reset connection, SYN with URG and PSH", knock_after_reset(SYN | URG | PSH), istio=TPROXY_ONLY),
    Attempt("the port of a reset connection, SYN with ECE and CWR", knock_after_reset(SYN | ECE | CWR), istio=TPROXY_ONLY),
    Attempt("the port of a reset connection, SYN with FIN", knock_after_reset(SYN | FIN), SAFE),
    Attempt("the port of a reset connection, SYN with ACK", knock_after_reset(SYN | ACK, ack=5), SAFE),
    Attempt("the port of a reset connection, ACK alone", knock_after_reset(ACK, ack=5), SAFE),
    Attempt("every listener sends SYN cookies", call_with_syn_cookies, istio=TPROXY_ONLY),
    Attempt("SYN and FIN", syn(SYN | FIN), SAFE),
    Attempt("SYN and RST", syn(SYN | RST), SAFE),
    Attempt("SYN and ACK", syn(SYN | ACK, ack=3), SAFE),
    Attempt("SYN with URG and PSH", syn(SYN | URG | PSH)),
    Attempt("SYN with ECE and CWR", syn(SYN | ECE | CWR)),
    Attempt("SYN with data and TCP Fast Open", syn(options=FAST_OPEN, data=b"GET /")),
    Attempt("SYN with Multipath TCP", syn(options=MULTIPATH)),
    Attempt("SYN after ACK", syn_after((ACK, 0))),
    Attempt("SYN after FIN", syn_after((FIN | ACK, 0))),
    Attempt("SYN after RST", syn_after((RST, 0))),
    Attempt("SYN after SYN and ACK", syn_after((SYN | ACK, 0))),
    Attempt("SYN after SYN and RST", syn_after((SYN, 0), (RST, 1))),
    Attempt("SYN after an unanswered SYN and RST", syn_after((SYN, 0), (RST, 1), options=MD5_OPTION)),
    Attempt("SYN after a SYN with a higher number", syn_after((SYN, 2**20)), SAFE),
    Attempt("SYN after an unanswered SYN with a higher number", syn_after((SYN, 2**30), options=MD5_OPTION), SAFE),
    Attempt("SYN after a segment without flags", syn_after((0, 0))),
    Attempt("SYN in fragments, of which the first has 8 bytes", syn_in_pieces(8), SAFE),
    Attempt("SYN in fragments, the last one first", syn_in_pieces(24, reverse=True)),
    Attempt("SYN in one fragment", syn_in_pieces()),
    Attempt("SYN in fragments of fragments", pieces_in_pieces(24), SAFE, (6,)),
    Attempt("SYN in fragments of fragments, of which the first has 8 bytes", pieces_in_pieces(8), SAFE, (6,)),
    Attempt("SYN behind two fragment headers", syn_behind((FRAGMENT, b""), (FRAGMENT, b"")), SAFE, (6,)),
    Attempt("SYN behind hop-by-hop options", syn_behind((HOP_BY_HOP, PADDING)), versions=(6,)),
    Attempt("SYN behind seven destination options", syn_behind(*[(DESTINATION, PADDING)] * 7), versions=(6,)),
    Attempt("SYN behind fragment and destination headers", syn_behind((FRAGMENT, b""), (DESTINATION, PADDING)), versions=(6,)),
    Attempt("SYN behind a used-up routing header", syn_behind((ROUTING, bytes(6))), versions=(6,)),
    Attempt("SYN behind a segment routing header", syn_behind((ROUTING, b"\4" + bytes(5))), SAFE, (6,)),
    Attempt("SYN with a record route option", syn_with_ip_options(b"\7\7\4\0\0\0\0\0"), versions=(4,)),
    Attempt("SYN with a loose source route", syn_with_ip_options(b"\x83\7\4\x0a\x4d\0\2\0"), SAFE, (4,)),
    Attempt("SYN to the loopback address", syn(target={4: "127.0.0.1", 6: "::1"}), SAFE),
    Attempt("SYN to the proxy's pass-through address", syn(target={4: "127.0.0.6", 6: "::6"}), SAFE),
    Attempt("SYN to a broadcast or multicast address", syn(target={4: "10.77.0.255", 6: "ff02::1"}), SAFE),
    Attempt("SYN to the unspecified address", syn(target={4: "0.0.0.0", 6: "::"}), SAFE),
    Attempt("SYN to an IPv4-mapped address", syn(target={6: "::ffff:10.77.0.2"}), SAFE, (6,)),
    Attempt("SYN from the loopback address", syn(source={4: "127.0.0.1", 6: "::1"}), SAFE),
    Attempt("SYN from the proxy's pass-through address", syn(source={4: "127.0.0.6", 6: "::6"}), SAFE),
    Attempt("SYN from the pod's own address", syn(source=POD), SAFE),
)
