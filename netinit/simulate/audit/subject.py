"""The audited rules, their host and options, and the partition of all packets under them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from netinit.base.net import FAMILIES, IPV6, Family, number_of
from netinit.options import SettledOptions
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.endpoints import DEFAULT_CALLER, EPHEMERAL_PORT
from netinit.simulate.explain import Explanation, explain
from netinit.simulate.ruleset import Ruleset, combine_backends
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.partition import Part, Partition
from netinit.simulate.symbolic.regions import Region
from netinit.simulate.symbolic.space import INBOUND, Dim, Space, packet_of
from netinit.simulate.trace import CAPTURED

ELSEWHERE = {4: "198.51.100.7", 6: "2001:db8:ffff::7"}  # a server outside the pod, from the documentation ranges (RFC 5737, RFC 3849)
USUAL_PORTS = (8080, 443, 80, 53)
MAX_TRIED = 8  # intervals in which an example is searched
SOMEONE = 1000  # any user other than the proxy's


@dataclass(frozen=True)
class AuditSubject:
    """The rules to audit, by backend and family, with their host.

    `options`: those inferred, by backend; `wanted`: those that should apply; `origins`: where an option was set if
    not by a flag. `free`: the host's routes are unknown. `has_tunnel`: the pod's proxy listens on the HBONE port.
    `shared_owners`: containers with the proxy's identity, as (name, `uid N` or `gid N`). `ipv4_first`: the rules
    for a pod whose first address is IPv4, if --ipv6 auto decides differently for it.
    """

    name: str
    rulesets: Mapping[str, Mapping[Family, Ruleset]]
    surroundings: Mapping[Family, Surroundings]
    options: Mapping[str, SettledOptions] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    wanted: SettledOptions | None = None
    free: bool = True
    has_tunnel: bool = False
    shared_owners: tuple[tuple[str, str], ...] = ()
    families: tuple[Family, ...] = FAMILIES
    ipv4_first: AuditSubject | None = None
    interfaces: frozenset[str] = frozenset()  # asked about, in addition to those in rules

    @property
    def hosts(self) -> Mapping[Family, Surroundings]:
        """The surroundings of the audited families."""
        return {family: one for family, one in self.surroundings.items() if family in self.families}

    @cached_property
    def is_of_another_mesh(self) -> bool:
        """Whether foreign rules capture traffic and no netinit rule exists."""
        foreign = all(ruleset.is_foreign for found in self.rulesets.values() for ruleset in found.values())
        return foreign and any(part.verdict == CAPTURED for partition in self.partitions for part in partition.parts)

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The partition of all packets, for both families and directions."""
        spaces = make_spaces(tuple(self.rulesets.values()), self.hosts, free=self.free, interfaces=self.interfaces)
        return tuple(self.divide(space) for space in spaces)

    def divide(self, space: Space) -> Partition:
        """Partition the packets of one space."""
        return divide(space, self.join(space.family))

    def join(self, family: Family) -> Ruleset | None:
        """The rules of a family from all backends, ours first; None if there are none."""
        places = {source: found[family] for source, found in self.rulesets.items() if family in found}
        return combine_backends(places, next(iter(self.options), "")) if places else None

    def options_of(self, part: Part) -> SettledOptions | None:
        """The options behind the rules that decide a part, or else our own."""
        source = part.source or next(iter(self.options), "")
        return self.options.get(source)

    def explain(self, region: Region) -> Explanation:
        """Explain a typical packet of the region, and what would change its verdict."""
        packet, around = example_of(region)
        ruleset = self.join(packet.family) or Ruleset(packet.family)
        made = next(iter(self.options.values()), None)
        found = explain(packet, ruleset, around, options=made, wanted=self.wanted, origins=self.origins)
        if self.ipv4_first and packet.family is IPV6:
            return found.unless_ipv4_is_first(self.ipv4_first.explain(region))
        return found

    def on_host(self, surroundings: Mapping[Family, Surroundings], *, free: bool) -> AuditSubject:
        """The same rules on another host."""
        other = self.ipv4_first.on_host(surroundings, free=free) if self.ipv4_first else None
        return replace(self, surroundings=surroundings, free=free, ipv4_first=other)


def example_of(region: Region) -> tuple[Packet, Surroundings]:
    """A typical packet of the region: an application calls a remote server, or a remote client the pod."""
    space = region.space
    version = space.family.version
    default = space.around.default_interface
    own = space.around.primary_address(default)
    names = space.dimension(Dim.INTERFACE).values
    outside, inside = (number_of(DEFAULT_CALLER[version]), own or 0)
    wishes: dict[str, tuple[int, ...]] = {
        Dim.PROTOCOL: tuple(space.dimension(Dim.PROTOCOL).values.index(name) for name in ("tcp", "udp")),
        Dim.INTERFACE: (names.index(default),) if default in names else (),
        Dim.DESTINATION: (number_of(ELSEWHERE[version]), inside, *_hosts(region, Dim.DESTINATION)), Dim.DESTINATION_PORT: USUAL_PORTS,
        Dim.SOURCE: (inside, *_hosts(region, Dim.SOURCE)), Dim.SOURCE_PORT: (EPHEMERAL_PORT,), Dim.SENDER: (1,),
        Dim.UID: (SOMEONE, 0), Dim.GID: (SOMEONE, 0),
    }  # fmt: skip
    if space.direction == INBOUND:
        wishes |= {Dim.DESTINATION: (inside,), Dim.SOURCE: (outside,)}
    return packet_of(space, region.pick(wishes))


def _hosts(region: Region, name: str) -> tuple[int, ...]:
    """Addresses in the region, but not the first of a network."""
    return tuple(low + 1 for low, high in region.reach(name)[:MAX_TRIED] if low < high)


def is_on(subject: AuditSubject, family: Family) -> bool:
    """Whether a family has any rule."""
    return any(chain.rules for found in subject.rulesets.values() if family in found for chain in found[family].chains)

