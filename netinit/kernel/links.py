"""Create veth pairs, and give devices addresses, routes and neighbours over rtnetlink(7): for the lab and the probes' peer."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from socket import AF_INET, AF_INET6
from struct import pack

from netinit.kernel import netlink
from netinit.kernel.netlink import IFA_ADDRESS, IFA_LOCAL, Netlink, attribute

# linux/rtnetlink.h, if_link.h, veth.h, neighbour.h
RTM_NEWLINK, RTM_DELLINK, RTM_NEWNEIGH = 16, 17, 28
IFLA_ADDRESS, IFLA_IFNAME, IFLA_LINKINFO, IFLA_NET_NS_FD = 1, 3, 18, 28
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
RTA_DST, RTA_GATEWAY, NDA_DST, NDA_LLADDR = 1, 5, 1, 2
RT_TABLE_MAIN, RTPROT_STATIC, RTN_UNICAST = 254, 4, 1
IFF_UP = 1
_NODAD = 0x02  # IFA_F_NODAD: the address is usable at once
_PERMANENT = 0x80  # NUD_PERMANENT
_NEW = netlink.NLM_F_CREATE | netlink.NLM_F_EXCL
_FAMILY = {4: AF_INET, 6: AF_INET6}


class Links(Netlink):
    """A socket that changes the devices of the namespace in which it was made; methods raise OSError."""

    def __init__(self) -> None:
        super().__init__(netlink.NETLINK_ROUTE)

    def add_veth(self, name: str, peer: str, namespace: int, hardware: tuple[bytes, bytes] = (b"", b"")) -> None:
        """Create a veth pair: `name` here, `peer` in the namespace of that descriptor; without `hardware` the kernel picks it."""
        ours, theirs = [
            _link(0) + attribute(IFLA_IFNAME, end.encode() + b"\0") + (attribute(IFLA_ADDRESS, own) if own else b"")
            for end, own in zip((name, peer), hardware, strict=True)
        ]
        theirs += attribute(IFLA_NET_NS_FD, pack("=I", namespace))
        kind = attribute(IFLA_INFO_KIND, b"veth") + attribute(IFLA_INFO_DATA, attribute(VETH_INFO_PEER, theirs))
        self.request(RTM_NEWLINK, _NEW, ours + attribute(IFLA_LINKINFO, kind))

    def delete_link(self, index: int) -> None:
        """Delete a device, and with a veth its other end."""
        self.request(RTM_DELLINK, 0, _link(index))

    def set_up(self, index: int) -> None:
        """Bring a device up."""
        self.request(RTM_NEWLINK, 0, _link(index, IFF_UP))

    def add_address(self, index: int, address: str, length: int) -> None:
        """Add an address with this prefix length to a device; it is usable at once."""
        one = ip_address(address)
        body = pack("=BBBBI", _FAMILY[one.version], length, _NODAD if one.version == 6 else 0, 0, index)  # noqa: PLR2004
        self.request(netlink.RTM_NEWADDR, _NEW, body + attribute(IFA_LOCAL, one.packed) + attribute(IFA_ADDRESS, one.packed))

    def add_route(self, network: str, gateway: str) -> None:
        """Add a route to a network through a gateway to the main table."""
        to = ip_network(network)
        body = pack("=BBBBBBBBI", _FAMILY[to.version], to.prefixlen, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_UNICAST, 0)
        body += attribute(RTA_DST, to.network_address.packed) + attribute(RTA_GATEWAY, ip_address(gateway).packed)
        self.request(netlink.RTM_NEWROUTE, _NEW, body)

    def add_neighbour(self, index: int, address: str, hardware: bytes) -> None:
        """Add a permanent neighbour, for whom the kernel sends no discovery."""
        one = ip_address(address)
        body = pack("=BxxxiHBB", _FAMILY[one.version], index, _PERMANENT, 0, 0)
        self.request(RTM_NEWNEIGH, _NEW, body + attribute(NDA_DST, one.packed) + attribute(NDA_LLADDR, hardware))


def _link(index: int, flags: int = 0) -> bytes:
    """Return a struct ifinfomsg that sets these flags."""
    return pack("=BxHiII", 0, 0, index, flags, flags)
