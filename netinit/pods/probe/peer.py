"""A temporary peer: an unnamed namespace connected to the pod, deleted with the block or this process."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from netinit.base.errors import LabError
from netinit.base.net import IPV4, IPV6, Family
from netinit.kernel import detect, route_library
from netinit.kernel.isolated_namespace import IsolatedNamespace
from netinit.kernel.sockets import IP_TRANSPARENT, IPV6_TRANSPARENT
from netinit.pods.probe.matrix import Ask
from netinit.pods.probe.sockets import ProbeSocket

NO_DAD = 0x02  # IFA_F_NODAD: usable at once
LISTENING = "0A"  # TCP_LISTEN as /proc/net/tcp has it
PREFIX_LENGTH = {4: 30, 6: 126}
POD_END = {4: "192.0.2.202", 6: "2001:db8:ffff::2"}
PEER_END = {4: "192.0.2.201", 6: "2001:db8:ffff::1"}
NEVER_ASLEEP = 0x80  # NUD_PERMANENT


class Peer:
    """A namespace connected by a veth pair whose end in the pod is called NAME, with the addresses `here` by family.

    Raises LabError, OSError.
    """

    NAME: ClassVar[str] = "netinit-probe"

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = [family for family in families if family is IPV4 or Path("/proc/net/if_inet6").exists()]
        self.here = {family: POD_END[family.version] for family in families}
        self._stack = contextlib.ExitStack()
        self._there: IsolatedNamespace = IsolatedNamespace("peer")

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self._there)
            self._wire()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(self, ask: Ask) -> ProbeSocket:
        """Open a socket of the peer to probe the pod with."""
        with self._there.entered():
            return ProbeSocket(ask.family, ask.protocol, ask.destination, ask.port, uid=0, gid=0)

    def _wire(self) -> None:
        library = route_library.load()
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            here = self._stack.enter_context(library.IPRoute())
            with self._there.entered():
                there = self._stack.enter_context(library.IPRoute())
            peer = {"ifname": "eth0", "net_ns_fd": self._there.descriptor}
            here.link("add", ifname=self.NAME, kind="veth", peer=peer)
            self._stack.callback(_unplug, here, self.NAME)
            ends = [(here, _find(here, self.NAME), POD_END), (there, _find(there, "eth0"), PEER_END)]
            for link, device, addresses in ends:
                _address(link, device["index"], addresses, self._families)
            for (link, device, _), (_, other, addresses) in zip(ends, reversed(ends), strict=True):
                _introduce(link, device["index"], other.get_attr("IFLA_ADDRESS"), addresses, self._families)
        except NetlinkError as error:
            raise LabError(f"the kernel refuses a veth pair: {error}") from None


def _find(link: Any, name: str) -> Any:
    return link.get_links(link.link_lookup(ifname=name)[0])[0]


def _address(link: Any, index: int, addresses: dict[int, str], families: Sequence[Family]) -> None:
    for family in families:
        flags = NO_DAD if family is IPV6 else 0
        link.addr("add", index=index, address=addresses[family.version], prefixlen=PREFIX_LENGTH[family.version], flags=flags)
    link.link("set", index=index, state="up")


def _introduce(link: Any, index: int, hardware: str, addresses: dict[int, str], families: Sequence[Family]) -> None:
    """Add permanent neighbour entries: the pod's rules might drop neighbour discovery."""
    for family in families:
        link.neigh("replace", dst=addresses[family.version], lladdr=hardware, ifindex=index, state=NEVER_ASLEEP)


def _unplug(link: Any, name: str) -> None:
    for index in link.link_lookup(ifname=name):
        link.link("delete", index=index)


def can_make_peers() -> str:
    """Return why no peer can be created here; empty if one can."""
    if not detect.has_capability(detect.CAP_SYS_ADMIN):
        return "a peer needs SYS_ADMIN; run from the node (--pid, --netns) or in a privileged debug container"
    if importlib.util.find_spec("pyroute2") is None:
        return "a peer needs the Python package pyroute2"
    return ""


def listening_ports(family: Family) -> frozenset[int]:
    """Return the TCP ports with a listener; IPv6 sockets may accept IPv4 too."""
    found = set()
    for name in ("tcp", "tcp6") if family is IPV4 else ("tcp6",):
        path = Path("/proc/thread-self/net") / name
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            if words[3] == LISTENING:
                found.add(int(words[1].rpartition(":")[2], 16))
    return frozenset(found)


@contextlib.contextmanager
def open_transparent(family: Family, port: int) -> Iterator[None]:
    """Keep a transparent socket on the port for TPROXY: the proxy's if it listens, else our own."""
    with socket.socket(family.number, socket.SOCK_STREAM) as listener:
        if family is IPV6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setsockopt(socket.IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
        else:
            listener.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
        try:
            listener.bind((family.any_address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            listener.listen()
        yield
