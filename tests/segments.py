"""TCP segments made byte by byte, and a peer outside the pod that sends and reads them below its own kernel's TCP."""

from __future__ import annotations

import fcntl
import itertools
import select
import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import ip_address

from laboratory import NetworkNamespace, Pod

FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = (1 << bit for bit in range(8))
HOP_BY_HOP, ICMP, TCP, ROUTING, FRAGMENT, ICMPV6, DESTINATION = 0, 1, 6, 43, 44, 58, 60  # protocols and IPv6 next headers
MD5_OPTION = b"\x01\x01\x13\x12" + bytes(16)  # RFC 2385; a listener without keys silently drops a SYN that carries it
# The pod reaches these through the client's namespace, whose kernel does not own them and therefore never answers for them.
PEER = {4: "192.0.2.66", 6: "2001:db8:66::66"}
_ETHERTYPE = {4: 0x0800, 6: 0x86DD}
_ETH_P_ALL = 3
_SIOCGIFHWADDR = 0x8927
_identifications = itertools.count(1)


def make_checksum(data: bytes) -> int:
    """Returns the Internet checksum of RFC 1071."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def make_segment(
    source: str, target: str, ports: tuple[int, int], flags: int, *, seq: int = 0, ack: int = 0, options: bytes = b"", data: bytes = b""
) -> bytes:
    """Returns a TCP header with a valid checksum, followed by its data. Options are padded to whole words."""
    options += b"\0" * (-len(options) % 4)
    words = 5 + len(options) // 4
    header = struct.pack("!HHIIBBHHH", *ports, seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, words << 4, flags & 0xFF, 64240, 0, 0) + options
    length = len(header) + len(data)
    ends = ip_address(source).packed + ip_address(target).packed
    rest = struct.pack("!BBH", 0, TCP, length) if ip_address(source).version == 4 else struct.pack("!IHBB", length, 0, 0, TCP)
    return header[:16] + struct.pack("!H", make_checksum(ends + rest + header + data)) + header[18:] + data


def make_icmp_error(source: str, target: str, kind: int, code: int, quoted: bytes, *, field: int = 0) -> bytes:
    """Returns an ICMP or ICMPv6 error about a packet; `field` is the word behind the checksum: an MTU, a pointer, a gateway."""
    body = struct.pack("!BBHI", kind, code, 0, field) + quoted[:1200]
    ends = b""
    if ip_address(source).version == 6:
        ends = ip_address(source).packed + ip_address(target).packed + struct.pack("!IHBB", len(body), 0, 0, ICMPV6)
    body = body[:2] + struct.pack("!H", make_checksum(ends + body)) + body[4:]
    return make_packet(source, target, body, protocol=ICMPV6 if ends else ICMP)


def make_redirect(source: str, to: str, about: str, better: str, ports: tuple[int, int], seq: int) -> bytes:
    """Returns an ICMP or ICMPv6 redirect: `source`, the router that `to` uses, says that `better` is nearer to `about`.

    That of IPv4 is about a segment of a connection that is under way.
    """
    if ip_address(source).version == 4:
        quoted = make_packet(to, about, make_segment(to, about, ports, SYN, seq=seq))
        return make_icmp_error(source, to, 5, 1, quoted, field=int(ip_address(better)))
    body = ip_address(better).packed + ip_address(about).packed
    packet = make_icmp_error(source, to, 137, 0, body)
    return packet[:7] + b"\xff" + packet[8:]  # neighbours have a hop limit of 255


def make_packet(source: str, target: str, payload: bytes, *, protocol: int = TCP, options: bytes = b"", offset: int = 0, more: bool = False, number: int = 0) -> bytes:
    """Returns an IP packet. Fragment fields and options are IPv4's; for IPv6 they are extension headers in the payload."""
    if ip_address(source).version == 6:
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + ip_address(source).packed + ip_address(target).packed + payload
    words = 5 + len(options) // 4
    place = offset // 8 | (0x2000 if more else 0)
    header = struct.pack("!BBHHHBBH", 4 << 4 | words, 0, words * 4 + len(payload), number, place, 64, protocol, 0)
    header += ip_address(source).packed + ip_address(target).packed + options
    return header[:10] + struct.pack("!H", make_checksum(header)) + header[12:] + payload


def make_fragment(payload: bytes, *, protocol: int = TCP, offset: int = 0, more: bool = False, number: int = 0) -> bytes:
    """Returns an IPv6 fragment header and the fragment behind it."""
    return struct.pack("!BBHI", protocol, 0, offset | more, number) + payload


def next_identification() -> int:
    """Returns a fragment identification that this process has not used."""
    return next(_identifications)


@dataclass(frozen=True)
class Seen:
    """A segment that left the pod."""

    target: str
    ports: tuple[int, int]
    seq: int
    ack: int
    flags: int


class Peer:
    """An attacker outside the pod with packet sockets, as root in a pod of its own has them."""

    def __init__(self, pod: Pod) -> None:
        with pod.client.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
        self._socket.bind(("eth0", _ETH_P_ALL))
        self._hardware = find_hardware_address(pod, "eth0")

    def close(self) -> None:
        self._socket.close()

    def send(self, *packets: bytes) -> None:
        """Sends IP packets to the pod's eth0 as they are, whatever their addresses say."""
        for packet in packets:
            self._socket.sendto(packet, ("eth0", _ETHERTYPE[packet[0] >> 4], 0, 0, self._hardware))

    def send_segment(self, source: str, target: str, ports: tuple[int, int], flags: int, **more) -> None:
        self.send(make_packet(source, target, make_segment(source, target, ports, flags, **more)))

    def receive(self, own_port: int, flags: int | None = None, seconds: float = 0.0) -> Seen | None:
        """Returns the pod's next segment to this port of the peer's, with exactly these flags if given; None after `seconds`."""
        end = time.monotonic() + seconds
        while select.select([self._socket], [], [], max(end - time.monotonic(), 0))[0]:
            packet, (_, _, direction, *_) = self._socket.recvfrom(2048)
            seen = None if direction == socket.PACKET_OUTGOING else read_segment(packet)
            if seen and seen.ports[1] == own_port and flags in (None, seen.flags & ~(PSH | ECE | CWR)):
                return seen
        return None

    def find_syn(self, source_port: int) -> Seen | None:
        """Returns the last SYN from this port of the pod's among the packets that have not been received yet; receives them all."""
        found = None
        while select.select([self._socket], [], [], 0)[0]:
            packet, (_, _, direction, *_) = self._socket.recvfrom(2048)
            seen = None if direction == socket.PACKET_OUTGOING else read_segment(packet)
            if seen and seen.ports[0] == source_port and seen.flags & (SYN | ACK) == SYN:
                found = seen
        return found

    def shake_hands(self, source: str, target: str, ports: tuple[int, int], seq: int, seconds: float) -> Seen | None:
        """Completes the handshake of a SYN that had this number, and sends some data; None where no SYN/ACK came."""
        answer = self.receive(ports[0], SYN | ACK, seconds)
        if answer:
            self.send_segment(source, target, ports, ACK, seq=seq + 1, ack=answer.seq + 1)
            self.send_segment(source, target, ports, ACK | PSH, seq=seq + 1, ack=answer.seq + 1, data=b"?\n")
        return answer


def find_hardware_address(namespace: NetworkNamespace, interface: str) -> bytes:
    with namespace.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return fcntl.ioctl(asking, _SIOCGIFHWADDR, struct.pack("16s16x", interface.encode()))[18:24]


def read_segment(packet: bytes) -> Seen | None:
    """Returns what matters of a TCP packet without extension headers; None for every other packet."""
    if packet[0] >> 4 == 4:
        start, protocol, target = (packet[0] & 15) * 4, packet[9], packet[16:20]
    else:
        start, protocol, target = 40, packet[6], packet[24:40]
    if protocol != TCP or len(packet) < start + 20:
        return None
    source_port, target_port, seq, ack, _, flags = struct.unpack_from("!HHIIBB", packet, start)
    return Seen(str(ip_address(target)), (source_port, target_port), seq, ack, flags)
