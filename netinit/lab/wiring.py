"""Creates links, addresses and routes of a pod and its surroundings by netlink."""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import time
from array import array
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

from netinit.base.errors import LabError
from netinit.base.system import fcntl
from netinit.kernel.isolated_namespace import IsolatedNamespace
from netinit.kernel.links import Links
from netinit.kernel.netlink import LOOPBACK_INDEX, NLMSG_HEADER, RT_TABLE_LOCAL, RTM_GETADDR, RTM_GETROUTE, RTN_LOCAL

_FIRST_NET = 77  # eth0 is in 10.77.0.0/24 and fd77::/64, the next interface in 10.78.0.0/24 and fd78::/64
_PREFIX = {4: 24, 6: 64}
_TENTATIVE = 0x40  # IFA_F_TENTATIVE
_ADDRESS_FLAGS = 2  # the place of the flags in struct ifaddrmsg
_ADDRESS_LINK = slice(4, 8)  # that of its interface
_ROUTE_TABLE, _ROUTE_TYPE = 4, 7  # the places of the table and the type in struct rtmsg
_ATTEMPTS, _DAD_ATTEMPTS = 5000, 100  # one per millisecond
_LO = struct.pack("I", LOOPBACK_INDEX)
_EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}
# Make pods independent of the machine's settings, which may be inherited, and silent.
SETTINGS = {
    "net/ipv4/ip_forward": 0,  # first, since writing it resets others
    "net/ipv4/conf/all/rp_filter": 0,
    "net/ipv4/conf/default/rp_filter": 0,
    "net/ipv6/conf/default/accept_dad": 0,
    "net/ipv6/conf/default/accept_ra": 0,
    "net/ipv6/conf/default/router_solicitations": 0,
}
_POD_SETTINGS = {"net/ipv4/ip_unprivileged_port_start": 0}  # as container runtimes do: any user may listen on port 80
_SIOCETHTOOL = 0x8946  # linux/sockios.h
_ETHTOOL_GLINK = 0x0A  # linux/ethtool.h


def find_obstacle() -> str:
    """Why no pods can be connected here, with the remedy; empty if they can."""
    return "" if find_spec("pyroute2") else "the Python package pyroute2 is not installed: pip install pyroute2"


def wire(
    pod: IsolatedNamespace, client: IsolatedNamespace, versions: Sequence[int], outside: Sequence[str], settings: Mapping[str, int]
) -> None:
    """Connect the pod's eth0 to the client, with addresses of these IP versions; `settings` are more of the pod's.

    Raises LabError if the kernel refuses a link, an address or a route.
    """
    try:
        with Side(pod, {**SETTINGS, **settings, **_POD_SETTINGS}) as inside, Side(client, SETTINGS) as beyond:
            join(inside, "eth0", beyond, 0, versions)
            add_routes(inside, 0, 1, versions)
            for address in map(ip_address, outside):  # on the client's `lo`, where every interface reaches them
                if address.version in versions:
                    beyond.add_address(LOOPBACK_INDEX, str(address), address.max_prefixlen)
            await_addresses(beyond)
    except OSError as error:
        raise LabError(
            f"the kernel refuses a link, an address or a route of the pod: {error}; "
            "pods need veth interfaces, and IPv6 unless they are made without"
        ) from error


class Side(Links):
    """A netlink socket of a namespace, usable from any thread, with `lo` up and the settings made."""

    def __init__(self, namespace: IsolatedNamespace, settings: Mapping[str, int]) -> None:
        self.namespace = namespace
        with namespace.entered():
            for name, value in settings.items():
                # Some containers have /proc/sys read-only. Addresses are usable at once even then, but the pod sends more packets.
                with contextlib.suppress(OSError):
                    Path("/proc/sys", name).write_text(f"{value}\n")
            super().__init__()
        self.set_up(LOOPBACK_INDEX)

    def add_route(self, network: str, gateway: str) -> None:
        """Add a route to a network through a gateway to the main table."""
        self.request(*_encode_route(network, gateway))


def join(ours: Side, name: str, theirs: Side, number: int, versions: Sequence[int]) -> None:
    """Create a veth pair, called eth0 on their side, and bring it up; in net `number`, our addresses end in 2 and theirs in 1."""
    ours.add_veth(name, "eth0", theirs.namespace.descriptor)
    for side, device, host in ((theirs, "eth0", 1), (ours, name, 2)):
        with side.namespace.entered():
            index = socket.if_nametoindex(device)
        for version in versions:
            side.add_address(index, _address(version, number, host), _PREFIX[version])
        side.set_up(index)
    _await_carrier(theirs.namespace, "eth0")
    _await_carrier(ours.namespace, name)
    for side in (theirs, ours):
        await_addresses(side)


def _await_carrier(namespace: IsolatedNamespace, name: str) -> None:
    """Wait until IPv6 works on the interface.

    The kernel handles a new carrier up to a second later; querying the link as ethtool does makes it catch up
    (linkwatch_sync_dev).
    """
    with namespace.entered():
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with asking:
        value = array("I", [_ETHTOOL_GLINK, 0])
        address, _ = value.buffer_info()
        fcntl.ioctl(asking, _SIOCETHTOOL, struct.pack("16sP16x", name.encode(), address))
    if not value[1]:
        raise LabError(f"the veth interface {name} of {namespace.name!r} has no carrier though both ends are up")


def await_addresses(links: Links) -> None:
    """Wait for the local routes of the IPv6 addresses, which the kernel adds a little later: until then, packets are lost.

    Wait less for duplicate address detection, which takes a second and is none on lo. TPROXY's routes in other tables are local, too.
    """
    for attempt in range(_ATTEMPTS):
        addresses = links.dump(RTM_GETADDR, struct.pack("B7x", socket.AF_INET6))
        routes = links.dump(RTM_GETROUTE, struct.pack("B11x", socket.AF_INET6))
        patient = attempt < _DAD_ATTEMPTS
        known = [one for one in addresses if patient or not one[_ADDRESS_FLAGS] & _TENTATIVE or one[_ADDRESS_LINK] == _LO]
        local = [one for one in routes if (one[_ROUTE_TABLE], one[_ROUTE_TYPE]) == (RT_TABLE_LOCAL, RTN_LOCAL)]
        if len(local) >= len(known):
            return
        time.sleep(0.001)


def add_routes(links: Side, number: int, host: int, versions: Sequence[int], target: int | None = None) -> None:
    """Add the route to the net `target`, or the default route, through a host of net `number`."""
    for version in versions:
        to = _EVERYWHERE[version] if target is None else f"{_address(version, target, 0)}/{_PREFIX[version]}"
        links.add_route(to, _address(version, number, host))


@functools.cache
def _encode_route(network: str, gateway: str) -> tuple[int, int, bytes]:
    """Kind, flags and body of the request of `ip route add`; pyroute2 takes far longer to encode one than the kernel to execute it."""
    with import_module("pyroute2").IPBatch() as batch:
        batch.route("add", dst=network, gateway=gateway)
        message = bytes(batch.batch)
    _, kind, flags = struct.unpack_from("=IHH", message)
    return kind, flags, message[NLMSG_HEADER:]


def _address(version: int, number: int, host: int) -> str:
    net = _FIRST_NET + number
    return f"10.{net}.0.{host}" if version == 4 else f"fd{net}::{host}"  # noqa: PLR2004 - the IP version
