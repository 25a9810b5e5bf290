"""Sockets that accept connections or datagrams, as part of a snapshot, which netinit.kernel.listeners reads."""

from __future__ import annotations

from netinit.base.net import IPV4, Family
from netinit.base.records import Record


class Listener(Record):
    """A TCP socket that listens, or a UDP socket that takes datagrams of anybody.

    `family`: AF_*, of the socket; `address`: packed, of 4 bytes for an IPv4 address on an IPv6 socket too. `device`: the index of
    the one that it is bound to, or 0. `waiting`, `backlog`: the length of the accept queue, and the length from which on it takes
    no more. None: the kernel does not say.
    """

    protocol: str
    family: int
    address: bytes
    port: int
    uid: int = 0
    device: int = 0
    v6only: bool | None = None
    transparent: bool | None = None
    waiting: int = 0
    backlog: int = 0

    @property
    def is_wildcard(self) -> bool:
        """Whether it takes what is sent to any address."""
        return not any(self.address)

    @property
    def is_full(self) -> bool:
        """Whether the kernel discards new connections (sk_acceptq_is_full of include/net/sock.h)."""
        return self.protocol == "tcp" and self.waiting > self.backlog

    def takes(self, family: Family) -> bool | None:
        """Whether it takes packets of an address family, by its own family and IPV6_V6ONLY; None if the kernel does not say."""
        if len(self.address) * 8 == family.bits:
            return True
        if family.version != IPV4.version or not self.is_wildcard:
            return False
        return None if self.v6only is None else not self.v6only


class Listeners(Record):
    """All that listens in a network namespace. `unread`: of which protocols that is not known, and why."""

    sockets: tuple[Listener, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()

    def why_unread(self, protocol: str) -> str:
        """Why it is not known who takes a protocol; empty if it is."""
        return dict(self.unread).get(protocol, "")
