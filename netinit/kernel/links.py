"""Create veth pairs, and give devices addresses and neighbours: for the lab and the probes' peer.

The structs and attributes are those of linux/rtnetlink.h, if_addr.h, if_link.h, neighbour.h and veth.h.
"""

from __future__ import annotations

import struct
from ipaddress import ip_address

from netinit.kernel import netlink
from netinit.kernel.netlink import Netlink, attribute

NEW = netlink.NLM_F_CREATE | netlink.NLM_F_EXCL
RTM_NEWNEIGH, NDA_DST, NDA_LLADDR, NUD_PERMANENT = 28, 1, 2, 0x80
IFF_UP = 1
IFLA_ADDRESS, IFLA_IFNAME, IFLA_LINKINFO, IFLA_NET_NS_FD, IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 3, 18, 28, 1, 2, 1
IFA_F_NODAD = 0x02  # the address is usable at once
FAMILIES = {4: 2, 6: 10}  # AF_INET, AF_INET6 by the version of an address
LINK, NEIGHBOUR = "=BxHiII", "=BxxxiHBB"  # struct ifinfomsg, ndmsg


class Links(Netlink):
    """A socket that changes the devices of the namespace in which it was made; methods raise OSError."""

    def __init__(self) -> None:
        super().__init__(netlink.NETLINK_ROUTE)

    def add_veth(self, name: str, peer: str, namespace: int, hardware: tuple[str, str] = ("", "")) -> None:
        """Create a veth pair: `name` here, `peer` in the namespace of that descriptor; without `hardware` the kernel picks it."""
        ours, theirs = hardware
        beyond = _link(peer, theirs) + attribute(IFLA_NET_NS_FD, struct.pack("=I", namespace))
        data = attribute(VETH_INFO_PEER, beyond)
        kind = attribute(IFLA_INFO_KIND, b"veth\0") + attribute(IFLA_INFO_DATA, data)
        self.request(netlink.RTM_NEWLINK, NEW, _link(name, ours) + attribute(IFLA_LINKINFO, kind))

    def add_address(self, index: int, address: str, length: int) -> None:
        """Add an address with this prefix length to a device; it is usable at once."""
        read = ip_address(address)
        flags = IFA_F_NODAD if read.version == 6 else 0  # noqa: PLR2004 - the IP version
        body = struct.pack(netlink.ADDRESS, FAMILIES[read.version], length, flags, netlink.RT_SCOPE_UNIVERSE, index)
        body += attribute(netlink.IFA_LOCAL, read.packed) + attribute(netlink.IFA_ADDRESS, read.packed)
        self.request(netlink.RTM_NEWADDR, NEW, body)

    def add_neighbour(self, index: int, address: str, hardware: str) -> None:
        """Add a permanent neighbour, for which the kernel sends no discovery."""
        read = ip_address(address)
        body = struct.pack(NEIGHBOUR, FAMILIES[read.version], index, NUD_PERMANENT, 0, 0)
        body += attribute(NDA_DST, read.packed) + attribute(NDA_LLADDR, _bytes_of(hardware))
        self.request(RTM_NEWNEIGH, NEW, body)

    def set_up(self, index: int) -> None:
        """Bring a device up."""
        self.request(netlink.RTM_NEWLINK, 0, struct.pack(LINK, 0, 0, index, IFF_UP, IFF_UP))

    def delete_link(self, index: int) -> None:
        """Delete a device, and with a veth its other end."""
        self.request(netlink.RTM_DELLINK, 0, struct.pack(LINK, 0, 0, index, 0, 0))


def _link(name: str, hardware: str) -> bytes:
    """A new device's message: its name, and its hardware address if it is given."""
    more = attribute(IFLA_ADDRESS, _bytes_of(hardware)) if hardware else b""
    return struct.pack(LINK, 0, 0, 0, 0, 0) + attribute(IFLA_IFNAME, name.encode() + b"\0") + more


def _bytes_of(hardware: str) -> bytes:
    return bytes.fromhex(hardware.replace(":", ""))
