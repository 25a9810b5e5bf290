"""Send first packets on a neighbour's way: from the other end of the pod's veth pair, through the pod's own device.

The other end is in the namespace of the node's programs, from which a run with --pid or --netns comes. The packets seem to come
from the pod's gateway, to which the answers go; a bridge inside the pod, policies of its own device and reverse path filtering
see what they see of any neighbour.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from netinit.base.net import IPV4, Family, Network, text_of
from netinit.kernel import netlink
from netinit.kernel.netlink import Netlink, native, read_attributes
from netinit.rules.packet_inputs import Surroundings

# linux/if_link.h, net_namespace.h, rtnetlink.h, if_packet.h, if_ether.h
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_LINK, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_LINK_NETNSID = 1, 3, 5, 10, 18, 37
_RTM_GETNSID, _NETNSA_NSID, _NETNSA_FD = 90, 1, 3
_RTA_GATEWAY, _RT_TABLE_MAIN = 5, 254
_SOL_PACKET, _PACKET_QDISC_BYPASS = 263, 20  # past the node's own filters, which are not the pod's rules
_ETHERTYPES = {4: 0x0800, 6: 0x86DD}
_HOPS = 64


@dataclass(frozen=True, slots=True)
class Way:
    """How a neighbour's packets reach an address: the pod's `device`, and what frames need at the other end, called `name`."""

    device: str
    name: str
    hardware: bytes  # of both ends: destination, source
    source: str
    sender: OuterEnds

    def send(self, family: Family, segment: bytes, destination: str) -> None:
        """Send a TCP segment, whose checksum is complete. Raises OSError."""
        ends = [socket.inet_pton(family.number, one) for one in (self.source, destination)]
        if family is IPV4:
            head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0x4000, _HOPS, socket.IPPROTO_TCP, 0)
            sum_of_head = checksum(head + b"".join(ends))
            head = head[:10] + struct.pack("!H", sum_of_head)
        else:
            head = struct.pack("!IHBB", 6 << 28, len(segment), socket.IPPROTO_TCP, _HOPS)
        frame = self.hardware + struct.pack("!H", _ETHERTYPES[family.version]) + head + b"".join(ends) + segment
        self.sender.send(frame, self.name)


@dataclass(slots=True)
class OuterEnds:
    """The other ends, in this namespace, of a pod's veth pairs: name and hardware address, by the index in the pod."""

    ends: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    _socket: socket.socket | None = None

    def open(self, namespace: int) -> tuple[int, ...]:
        """Find them for the pod's namespace; return the descriptor that must stay open in the pod."""
        try:
            with Netlink(netlink.NETLINK_ROUTE) as link:
                self.ends = _find_ends(link, namespace)
            if not self.ends:
                return ()
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        except OSError:  # as if there were none, which the caller reports
            self.ends = {}
            return ()
        return (self._socket.fileno(),)

    def close(self) -> None:
        """Close the socket."""
        if self._socket:
            self._socket.close()

    def send(self, frame: bytes, name: str) -> None:
        """Send a frame through the device of this name. Raises OSError."""
        if self._socket:
            self._socket.sendto(frame, (name, 0))

    def find_way(self, around: Surroundings) -> Way | None:
        """A neighbour's way to the pod's first address outside lo, called from inside; None if no end is known. Raises OSError."""
        device = around.default_interface
        own = around.primary_address(device)
        with Netlink(netlink.NETLINK_ROUTE) as link:
            links = _list_links(link)
            gateway = _find_gateway(link, around.family, socket.if_nametoindex(device)) if device in _names(links) else ""
        source = gateway or _find_neighbour(around, own)
        here = {index: found for index, found in links.items() if _name(found) == device}
        for index, found in here.items():
            ports = [index, *[port for port, one in links.items() if native(one.get(_IFLA_MASTER), 0) == index]]
            entry = next((port for port in ports if port in self.ends), None)
            if entry is not None and source:
                name, hardware = self.ends[entry]
                return Way(device, name, found[_IFLA_ADDRESS] + hardware, source, self)
        return None


def _name(found: Mapping[int, bytes]) -> str:
    return found.get(_IFLA_IFNAME, b"").rstrip(b"\0").decode("utf-8", "surrogateescape")


def _names(links: Mapping[int, Mapping[int, bytes]]) -> set[str]:
    return {_name(one) for one in links.values()}


def _list_links(link: Netlink) -> dict[int, dict[int, bytes]]:
    """The attributes of all devices, by index."""
    bodies = link.dump(netlink.RTM_GETLINK, bytes(netlink.LINK_SIZE))
    return {struct.unpack_from("=i", body, 4)[0]: read_attributes(body, netlink.LINK_SIZE) for body in bodies}


def _find_ends(link: Netlink, namespace: int) -> dict[int, tuple[str, bytes]]:
    """Devices here whose other end is in that namespace."""
    body = struct.pack("=BxxxHHI", 0, 8, _NETNSA_FD, namespace)
    answers = link.request(_RTM_GETNSID, 0, body)
    number = next((native(read_attributes(one, 4).get(_NETNSA_NSID)) for one in answers), None)
    found = {}
    for one in _list_links(link).values():
        kind = read_attributes(one.get(_IFLA_LINKINFO, b""), 0).get(1, b"").rstrip(b"\0")
        if kind == b"veth" and _IFLA_LINK_NETNSID in one and native(one[_IFLA_LINK_NETNSID]) == number:
            found[native(one.get(_IFLA_LINK))] = (_name(one), one[_IFLA_ADDRESS])
    return found


def _find_gateway(link: Netlink, family: Family, index: int) -> str:
    """The gateway of the main table's default route through a device; empty without one."""
    for body in link.dump(netlink.RTM_GETROUTE, struct.pack("=BBBBBBBBI", family.number, 0, 0, 0, 0, 0, 0, 0, 0)):
        found = read_attributes(body, netlink.ROUTE_SIZE)
        is_default = (body[0], body[1], body[4]) == (family.number, 0, _RT_TABLE_MAIN)
        gateway = found.get(_RTA_GATEWAY, b"")
        if is_default and native(found.get(netlink.RTA_OIF)) == index and len(gateway) * 8 == family.bits:
            return socket.inet_ntop(family.number, gateway)
    return ""


def _find_neighbour(around: Surroundings, own: int | None) -> str:
    """An address next to the pod's own, in a network of its device; empty without one."""
    if own is None:
        return ""
    near = own ^ 1 if own ^ 1 and (own ^ 1) & 0xFF not in (0, 255) else own ^ 2
    networks: list[Network] = [network for network, name in around.routes if name == around.default_interface]
    return text_of(near, around.family) if any(one.first <= near <= one.last for one in networks) else ""


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
