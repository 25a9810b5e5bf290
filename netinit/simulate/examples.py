"""A typical packet of a set of packets, as an example for people."""

from __future__ import annotations

from netinit.base.net import number_of
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.endpoints import CLIENT_PORTS, DEFAULT_CALLER, ELSEWHERE, EPHEMERAL_PORT
from netinit.simulate.symbolic.regions import Region, within
from netinit.simulate.symbolic.space import INBOUND, Dim, packet_of

USUAL_PORTS = (8080, 443, 80, 53)
MAX_TRIED = 8  # intervals in which an example is searched
SOMEONE = 1000  # any user other than the proxy's


def example_of(region: Region) -> tuple[Packet, Surroundings]:
    """A typical packet of the region: an application calls a remote server, or a remote client the pod."""
    space = region.space
    version = space.family.version
    default = space.around.default_interface
    own = space.around.primary_address(default)
    names = space.dimension(Dim.INTERFACE).values
    existing = [name for name, _ in space.around.addresses]
    outside, inside = (number_of(DEFAULT_CALLER[version]), own or 0)
    preferred: dict[str, tuple[int, ...]] = {
        Dim.PROTOCOL: tuple(space.dimension(Dim.PROTOCOL).values.index(name) for name in ("tcp", "udp")),
        Dim.INTERFACE: tuple([names.index(name) for name in (default, *existing) if name in names]),
        Dim.DESTINATION: (number_of(ELSEWHERE[version]), inside, *_hosts(region, Dim.DESTINATION)), Dim.DESTINATION_PORT: USUAL_PORTS,
        Dim.SOURCE: (inside, *_hosts(region, Dim.SOURCE)), Dim.SOURCE_PORT: (EPHEMERAL_PORT,), Dim.SENDER: (1,),
        Dim.UID: (SOMEONE, 0), Dim.GID: (SOMEONE, 0),
    }  # fmt: skip
    if space.direction == INBOUND:
        preferred |= {Dim.DESTINATION: (inside,), Dim.SOURCE: (outside, *_hosts(region, Dim.SOURCE))}
    return packet_of(space, region.pick(preferred))


def needs_source_port(region: Region) -> bool:
    """Whether a port that clients get occurs in no packet of the region, or only in packets with other properties."""
    return bool((region.ignoring(Dim.SOURCE_PORT) - region) & within(region.space, Dim.SOURCE_PORT, [CLIENT_PORTS]))


def _hosts(region: Region, name: str) -> tuple[int, ...]:
    """Addresses in the region, but not the first of a network."""
    return tuple(low + 1 for low, high in region.reach(name)[:MAX_TRIED] if low < high)
