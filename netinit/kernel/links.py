"""Create veth pairs, and give devices addresses, routes and neighbours: for the lab and the probes' peer.

pyroute2 encodes the requests, also on images without OpenSSL and SQLite: two of its modules import `ssl` and `sqlite3`
without using them here; if they are missing, empty modules replace them during the import. Encoded requests are cached:
pyroute2 takes far longer to encode one than the kernel to execute it.
"""

from __future__ import annotations

import functools
import struct
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from netinit.base.system import EMBEDDED
from netinit.kernel import netlink
from netinit.kernel.netlink import Netlink

UNUSED = {"ssl": "_ssl", "sqlite3": "_sqlite3"}  # a module, and the part of it that is built with a library
IFF_UP = 1  # linux/if.h
_NODAD = 0x02  # IFA_F_NODAD: the address is usable at once
_PERMANENT = 0x80  # NUD_PERMANENT


def find_obstacle() -> str:
    """Why no links can be created here, with the remedy; empty if they can."""
    if find_spec("pyroute2"):
        return ""
    where = "in this executable: install the package netinit" if EMBEDDED else "installed: pip install pyroute2"
    return f"the Python package pyroute2 is not {where}"


def load_pyroute2() -> Any:
    """Return the module pyroute2. Raises ImportError if it is not installed."""
    if "pyroute2" in sys.modules:
        return sys.modules["pyroute2"]
    missing = [name for name, built in UNUSED.items() if not (find_spec(name) and find_spec(built))]
    import_module("asyncio")  # which looks for ssl too, and does without
    sys.modules.update({name: ModuleType(name) for name in missing})
    try:
        return import_module("pyroute2")
    finally:
        for name in missing:
            del sys.modules[name]


class Links(Netlink):
    """A socket that changes the devices of the namespace in which it was made; methods raise OSError."""

    def __init__(self) -> None:
        super().__init__(netlink.NETLINK_ROUTE)

    def add_veth(self, name: str, peer: str, namespace: int, hardware: tuple[str, str] = ("", "")) -> None:
        """Create a veth pair: `name` here, `peer` in the namespace of that descriptor; without `hardware` the kernel picks it."""
        self.request(*_encode("link", "add", peer, namespace, hardware, ifname=name, kind="veth"))

    def add_address(self, index: int, address: str, length: int) -> None:
        """Add an address with this prefix length to a device; it is usable at once."""
        flags = _NODAD if ":" in address else 0
        self.request(*_encode("addr", "add", index=index, address=address, prefixlen=length, flags=flags))

    def add_route(self, network: str, gateway: str) -> None:
        """Add a route to a network through a gateway to the main table."""
        self.request(*_encode("route", "add", dst=network, gateway=gateway))

    def add_neighbour(self, index: int, address: str, hardware: str) -> None:
        """Add a permanent neighbour, for which the kernel sends no discovery."""
        self.request(*_encode("neigh", "add", ifindex=index, dst=address, lladdr=hardware, state=_PERMANENT))

    def set_up(self, index: int) -> None:
        """Bring a device up, without pyroute2."""
        self.request(netlink.RTM_NEWLINK, 0, struct.pack("=BxHiII", 0, 0, index, IFF_UP, IFF_UP))

    def delete_link(self, index: int) -> None:
        """Delete a device, and with a veth its other end, without pyroute2."""
        self.request(netlink.RTM_DELLINK, 0, struct.pack("=BxHiII", 0, 0, index, 0, 0))


@functools.cache
def _encode(
    subject: str, verb: str, peer: str = "", namespace: int = 0, hardware: tuple[str, str] = ("", ""), **fields: str | int
) -> tuple[int, int, bytes]:
    """Kind, flags and body of the request of `ip SUBJECT VERB`, with pyroute2's names of attributes."""
    ours, theirs = [{"address": address} if address else {} for address in hardware]
    more = {**ours, "peer": {"ifname": peer, "net_ns_fd": namespace, **theirs}} if peer else {}
    with load_pyroute2().IPBatch() as batch:
        getattr(batch, subject)(verb, **fields, **more)
        message = bytes(batch.batch)
    _, kind, flags = struct.unpack_from("=IHH", message)
    return kind, flags, message[netlink.NLMSG_HEADER :]
