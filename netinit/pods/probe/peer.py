"""A temporary peer: an unnamed namespace connected to the pod, deleted with the block or this process."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from netinit.base.errors import LabError
from netinit.base.net import IPV4, Family
from netinit.kernel import detect
from netinit.kernel.isolated_namespace import IsolatedNamespace
from netinit.kernel.links import Links
from netinit.kernel.sockets import listen
from netinit.kernel.tcp_sockets import LISTEN, list_tcp

PREFIX_LENGTH = {4: 30, 6: 126}
POD_END = {4: "192.0.2.202", 6: "2001:db8:ffff::2"}
PEER_END = {4: "192.0.2.201", 6: "2001:db8:ffff::1"}
POD_HARDWARE, PEER_HARDWARE = "02:6e:65:74:69:6e", "02:6e:65:74:69:70"  # locally administered


class Peer(IsolatedNamespace):
    """A namespace connected by a veth pair whose end in the pod is called NAME, with the addresses `here` by family.

    Raises LabError, OSError.
    """

    NAME: ClassVar[str] = "netinit-probe"

    def __init__(self, families: Sequence[Family]) -> None:
        super().__init__("peer")
        self._families = [family for family in families if family is IPV4 or Path("/proc/net/if_inet6").exists()]
        self.here = {family: POD_END[family.version] for family in families}

    def _open(self) -> None:
        super()._open()
        with self.entered():
            there = self._stack.enter_context(Links())
        here = self._stack.enter_context(Links())
        try:
            here.add_veth(self.NAME, "eth0", self.descriptor, (POD_HARDWARE, PEER_HARDWARE))
            index = socket.if_nametoindex(self.NAME)
            self._stack.callback(_delete_link, here, index)
            with self.entered():
                its_index = socket.if_nametoindex("eth0")
            for links, device, addresses, others, hardware in (
                (here, index, POD_END, PEER_END, PEER_HARDWARE),
                (there, its_index, PEER_END, POD_END, POD_HARDWARE),
            ):
                for family in self._families:
                    links.add_address(device, addresses[family.version], PREFIX_LENGTH[family.version])
                links.set_up(device)
                for family in self._families:  # the pod's rules might drop neighbour discovery
                    links.add_neighbour(device, others[family.version], hardware)
        except OSError as error:
            raise LabError(f"the kernel refuses a veth pair: {error.strerror}") from None


def _delete_link(links: Links, index: int) -> None:
    with contextlib.suppress(OSError):  # another program has deleted it
        links.delete_link(index)


def can_make_peers() -> str:
    """Return why no peer can be created here; empty if one can."""
    if not detect.has_capability(detect.CAP_SYS_ADMIN):
        return "a peer needs SYS_ADMIN; run from the node (--pid, --netns) or in a privileged debug container"
    return ""


def listening_ports(family: Family) -> frozenset[int]:
    """Return the TCP ports with a listener; IPv6 sockets may accept IPv4 too. Raises OSError if the kernel does not list them."""
    listening = [one for one in list_tcp() if one.state == LISTEN]
    return frozenset(one.local[1] for one in listening if family is IPV4 or len(one.local[0]) * 8 == family.bits)


def open_transparent(family: Family, port: int) -> contextlib.AbstractContextManager[object]:
    """Keep a transparent socket on the port for TPROXY: the proxy's if it listens, else our own."""
    try:
        return listen(family, port, transparent=True)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
    return contextlib.nullcontext()
