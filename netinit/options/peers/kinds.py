"""Kinds of values that peers spell otherwise than we do. What they read is of our own types."""

from __future__ import annotations

from typing import Any

from netinit.base.net import MAX_PORT, Network, PortRange, Ports, bounds_of, family_of, merge_ports
from netinit.options import kinds, user_ports
from netinit.options.kinds import Kind

SECOND = 10**9


def read_port_with_colons(text: str) -> Ports:
    """A port, or a range as iptables spells it (`8080:9000`, `:1023`, `1024:`)."""
    low, colon, high = text.partition(":")
    if colon:
        return kinds.read_ports(f"{low or 0}-{high or MAX_PORT}")
    if not text.isdigit():
        raise ValueError("is no number: names of services are not looked up here; write the port")
    return kinds.read_ports(text)


def read_addresses_or_networks(text: str) -> tuple[Network, ...]:
    """A comma list of CIDRs and of addresses, which are networks of one."""
    items = kinds.split_list(text)
    return kinds.read_networks(",".join([one if "/" in one else f"{one}/{family_of(one).bits}" for one in items]))


def read_owner(text: str) -> int:
    """A user or a group; 0, -1 and other negative numbers are none."""
    return 0 if text[:1] == "-" and text[1:].isdigit() else kinds.read_number(text, 0, kinds.MAX_ID, "a user or group id")


def read_seconds(text: str) -> int:
    """Whole seconds, as nanoseconds."""
    return kinds.read_number(text, 0, 3600, "a number of seconds") * SECOND


def read_exceptions(text: str) -> tuple[Any, ...]:
    """Ports of users in Kuma's form: several protocols may stand with commas."""
    protocols, colon, rest = text.partition(":")
    if rest.count(":") != 1 or "," not in protocols:
        return kinds.read_ports_of_uids(text)
    return kinds.read_ports_of_uids(";".join([f"{one}{colon}{rest}" for one in kinds.split_list(protocols)]))


def exceptions_of(protocol: str) -> Kind:
    """The kind of value that names ports and users of one protocol."""

    def read(text: str) -> tuple[Any, ...]:
        if text.count(":") > 1:
            raise ValueError("has more than two parts: write ports:users, such as 22,80:1000-2000")
        return kinds.read_ports_of_uids(f"{protocol}:{text if ':' in text else f'*:{text}'}")

    return Kind(metavar="PORTS:UIDS", read=read, write=kinds.write_joined)


def read_virtual_network(text: str) -> tuple[str, Network]:
    """An interface, or the beginning of several with + behind, and its network."""
    name, colon, network = text.partition(":")
    if not colon or not name:
        raise ValueError("is not interface:CIDR, such as docker0:172.17.0.0/16")
    kinds.read_interface(name.removesuffix("+"))
    return name, Network.parse(network)


def all_ports_of(user: int, protocol: str = "tcp") -> user_ports.PortsOfUsers:
    """All ports of one user."""
    return user_ports.PortsOfUsers(protocol=protocol, ports=(), first=user, last=user)


def without(ports: Ports, others: Ports) -> Ports:
    """The ports that are not among the others."""
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
