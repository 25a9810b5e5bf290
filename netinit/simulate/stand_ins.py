"""Pods of which little is known, and the packets that reach them: examples from the documentation ranges stand in."""

from __future__ import annotations

from collections.abc import Iterable

from netinit.base.net import Family, family_of, number_of
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.simulate.endpoints import DEFAULT_CALLER, EPHEMERAL_PORT

EXAMPLE_POD = {4: "192.0.2.10", 6: "2001:db8::10"}  # RFC 5737, RFC 3849


def stand_in(family: Family, addresses: Iterable[str] = ()) -> Surroundings:
    """Surroundings of a pod of which at most the addresses are known; what a plan adds is of its ruleset (`place_on`)."""
    own = [number_of(address) for address in addresses or EXAMPLE_POD.values() if family_of(address) is family]
    return Surroundings(family=family, addresses=tuple([("eth0", address) for address in own]))


def make_inbound(
    surroundings: Surroundings, source: str, destination: str, port: int, *, protocol: str = "tcp", interface: str = "",
    source_port: int = EPHEMERAL_PORT,
) -> Packet:  # fmt: skip
    """The first packet of a connection from `source` (empty: an example), by default to the interface's own address."""
    source = source or DEFAULT_CALLER[surroundings.family.version]
    interface = interface or (LOOPBACK_DEVICE if surroundings.is_local(number_of(source)) else surroundings.default_interface)
    target = number_of(destination) if destination else surroundings.primary_address(interface)
    return Packet(
        family=surroundings.family, protocol=protocol, source=number_of(source), source_port=source_port,
        destination=target, destination_port=port, in_interface=interface,
    )  # fmt: skip
