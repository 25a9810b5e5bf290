"""Kinds of values that peers write differently; readers return our own types."""

from __future__ import annotations

from typing import Any

from netinit.base.net import MAX_PORT, Network, PortRange, Ports, bounds_of, family_of, merge_ports
from netinit.options import kinds, user_ports
from netinit.options.kinds import Kind

SECOND = 10**9


def read_port_with_colons(text: str) -> Ports:
    """Read a port, or a range in iptables syntax (`8080:9000`, `:1023`, `1024:`)."""
    low, colon, high = text.partition(":")
    if colon:
        return kinds.read_ports(f"{low or 0}-{high or MAX_PORT}")
    if not text.isdigit():
        raise ValueError("is no number: names of services are not looked up here; write the port")
    return kinds.read_ports(text)


def read_addresses_or_networks(text: str) -> tuple[Network, ...]:
    """Read a comma list of CIDRs and addresses; an address is a network with one address."""
    items = kinds.split_list(text)
    return kinds.read_networks(",".join([one if "/" in one else f"{one}/{family_of(one).bits}" for one in items]))


def read_owner(text: str) -> int:
    """Read a user or a group; 0, -1 and other negative numbers mean none."""
    return 0 if text[:1] == "-" and text[1:].isdigit() else kinds.read_number(text, 0, kinds.MAX_ID, "a user or group id")


def read_seconds(text: str) -> int:
    """Read whole seconds, as nanoseconds."""
    return kinds.read_number(text, 0, 3600, "a number of seconds") * SECOND


def read_exceptions(text: str) -> tuple[Any, ...]:
    """Read ports of users in Kuma's format: several protocols, separated by commas."""
    protocols, colon, rest = text.partition(":")
    if rest.count(":") != 1 or "," not in protocols:
        return user_ports.read(text, kinds.read_uid)
    return user_ports.read(";".join([f"{one}{colon}{rest}" for one in kinds.split_list(protocols)]), kinds.read_uid)


def exceptions_of(protocol: str) -> Kind:
    """Return the kind of `PORTS:UIDS` (22,80:1000-2000; UIDS alone: all ports) of a protocol. It raises ValueError."""

    def read(text: str) -> tuple[Any, ...]:
        if text.count(":") > 1:
            raise ValueError("has more than two parts: write ports:users, such as 22,80:1000-2000")
        return user_ports.read(f"{protocol}:{text if ':' in text else f'*:{text}'}", kinds.read_uid)

    return Kind(metavar="PORTS:UIDS", read=read, write=kinds.write_joined)


def read_virtual_network(text: str) -> tuple[str, Network]:
    """Read an interface, or a prefix of names with + at the end, and its network."""
    name, colon, network = text.partition(":")
    if not colon or not name:
        raise ValueError("is not interface:CIDR, such as docker0:172.17.0.0/16")
    kinds.read_interface(name.removesuffix("+"))
    return name, Network.parse(network)


def all_ports_of(user: int) -> user_ports.PortsOfUsers:
    """Return all TCP ports of one user."""
    return user_ports.PortsOfUsers(protocol="tcp", ports=(), first=user, last=user)


def without(ports: Ports, others: Ports) -> Ports:
    """Return the ports that are not among the others."""
    left: list[tuple[int, int]] = [bounds_of(port) for port in ports]
    for low, high in map(bounds_of, others):
        parts = [part for first, last in left for part in ((first, min(last, low - 1)), (max(first, high + 1), last))]
        left = [part for part in parts if part[0] <= part[1]]
    return merge_ports(tuple([PortRange(part) if part[0] < part[1] else part[0] for part in left]))


COLON_PORTS = Kind(metavar="PORT|FIRST:LAST", read=read_port_with_colons, write=kinds.write_list)
NETWORKS = Kind(metavar="ADDRESSES|CIDRS", read=read_addresses_or_networks, write=kinds.write_list)
OWNER = Kind(metavar="ID", read=read_owner)
SECONDS = Kind(metavar="SECONDS", read=read_seconds, write=lambda value: str(value // SECOND))
EXCEPTIONS = Kind(metavar="PROTOCOL:PORTS:UIDS", read=read_exceptions, write=kinds.write_joined)
VIRTUAL_NETWORK = Kind(metavar="INTERFACE:CIDR", read=read_virtual_network, write=lambda pair: f"{pair[0]}:{pair[1]}")
USER = Kind(metavar="USER", read=kinds.read_uid)
TEXT = Kind(metavar="TEXT", read=kinds.read_path)
