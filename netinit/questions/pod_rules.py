"""A pod's rules, their host and options, and the partition of all packets under them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from netinit.base.net import FAMILIES, IPV6, Family
from netinit.base.snapshot import Snapshot
from netinit.options import SettledOptions
from netinit.options.interception import PROXY_PORTS
from netinit.questions.explain import Explanation, explain
from netinit.questions.option_names import translate
from netinit.rules.infer_options import InferredOptions
from netinit.rules.model import Rule
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Packet, Surroundings
from netinit.simulate.ruleset import Ruleset, join_backends
from netinit.simulate.trace import CAPTURED

if TYPE_CHECKING:
    from netinit.simulate.symbolic.partition import Part, Partition
    from netinit.simulate.symbolic.space import Space

CHAINS_OF_MESHES = {"CONSUL_PROXY_": "Consul", "KUMA_MESH_": "Kuma", "PROXY_INIT_": "Linkerd"}  # how their chains begin


@dataclass(frozen=True)
class PodRules:
    """A pod's rules, planned or live, by backend (planned: `plan`) and family, with the host that they are on.

    `options`: what made each backend's rules, as far as known, ours first; `wanted`: what should have; `origins`: where an
    option was set if not by a flag; `names`: what the pod's author calls options that are no flags to them. `has_tunnel`: the
    pod's proxy listens on the HBONE port. `shared_owners`: containers with the proxy's identity, as (name, `uid N` or `gid N`).
    `proxy_ports`: where the proxy serves health and metrics, and no application. `outside`: why a pod of a manifest has no rules;
    `is_gateway`: because its proxy is no sidecar, and makes the connections itself.
    `may_mark`: another container than the proxy's may set firewall marks, as far as is known.
    `ipv4_first`: the rules for a pod whose first address is IPv4, if --ipv6 auto decides differently for it.
    """

    rulesets: Mapping[str, Mapping[Family, Ruleset]]
    surroundings: Mapping[Family, Surroundings]
    options: Mapping[str, SettledOptions] = field(default_factory=dict)
    wanted: SettledOptions | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    routes_known: bool = False  # the destination alone determines the outgoing interface
    snapshot: Snapshot | None = None  # what live rules were read from
    has_tunnel: bool = False
    shared_owners: tuple[tuple[str, str], ...] = ()
    proxy_ports: tuple[int, ...] = PROXY_PORTS
    outside: str = ""
    is_gateway: bool = False
    may_mark: bool = True
    ipv4_first: PodRules | None = None
    families: tuple[Family, ...] = FAMILIES  # that the partitions are of
    older: InferredOptions | None = None  # what our rules show, if they are those of an earlier release of Istio
    interfaces: frozenset[str] = frozenset()  # asked about, in addition to those in rules

    @property
    def place(self) -> str:
        """The backend of our rules, or else the first one; empty without any."""
        return next(iter((*self.options, *self.rulesets)), "")

    @property
    def made_by(self) -> SettledOptions | None:
        """The options behind our rules; None if unknown."""
        return next(iter(self.options.values()), None)

    @cached_property
    def hosts(self) -> Mapping[Family, Surroundings]:
        """The surroundings of the families in which the pod has an address, or else of all."""
        addressed = {
            family: one for family, one in self.surroundings.items() if any(name != LOOPBACK_DEVICE for name, _ in one.addresses)
        }
        return addressed or self.surroundings

    @property
    def audited(self) -> Mapping[Family, Surroundings]:
        """Those of the families that the partitions are of."""
        return {family: one for family, one in self.hosts.items() if family in self.families}

    def has_rules(self, *families: Family) -> bool:
        """Whether a chain of these families (default: any) has a rule."""
        chosen = [found[one] for found in self.rulesets.values() for one in families or FAMILIES if one in found]
        return any(chain.rules for ruleset in chosen for chain in ruleset.chains)

    @cached_property
    def is_of_another_mesh(self) -> bool:
        """Whether foreign rules capture traffic and no netinit rule exists."""
        foreign = all(ruleset.is_foreign for found in self.rulesets.values() for ruleset in found.values())
        return foreign and any(part.verdict == CAPTURED for partition in self.partitions for part in partition.parts)

    @property
    def other_mesh(self) -> str:
        """The mesh that rules are of by the names of their chains, if it is not Istio; empty if none is."""
        chains = [chain.name for found in self.rulesets.values() for ruleset in found.values() for chain in ruleset.chains]
        return next((mesh for begin, mesh in CHAINS_OF_MESHES.items() if any(name.startswith(begin) for name in chains)), "")

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The partition of all packets, for both families and directions."""
        return _divide_all(_SameRules(self))

    def divide_all(self) -> tuple[Partition, ...]:
        """Divide all packets."""
        from netinit.simulate.symbolic.hook_walk import divide
        from netinit.simulate.symbolic.match_sets import make_spaces

        audited = {family: self.join(family).place_on(one) for family, one in self.audited.items()}
        spaces = make_spaces(tuple(self.rulesets.values()), audited, free=not self.routes_known, interfaces=self.interfaces)
        return tuple(divide(space, self.join(space.family), marks_matter=False) for space in spaces)

    def divide(self, space: Space) -> Partition:
        """Partition the packets of one space."""
        from netinit.simulate.symbolic.hook_walk import divide

        return divide(space, self.join(space.family))

    def join(self, family: Family) -> Ruleset:
        """The rules of a family from all backends, ours first."""
        return join_backends(self.rulesets, family, next(iter(self.options), ""))

    def options_of(self, part: Part) -> SettledOptions | None:
        """The options behind the rules that decide a part, or else our own."""
        return self.options.get(part.source) if part.source else self.made_by

    def explain(self, packet: Packet, around: Surroundings) -> Explanation:
        """Explain what happens to a packet, and what would change it."""
        ruleset = self.join(packet.family)
        found = explain(packet, ruleset, around, options=self.made_by, wanted=self.wanted, origins=self.origins)
        found = replace(found, changes=tuple([(translate(change, self.names), verdict) for change, verdict in found.changes]))
        if self.ipv4_first and packet.family is IPV6:
            return found.unless_ipv4_is_first(self.ipv4_first.explain(packet, around))
        return found

    def without_doubt(self) -> PodRules:
        """The same rules, as if it were known that they will be there."""
        known = {
            place: {family: replace(one, doubt="") for family, one in found.items()} for place, found in self.rulesets.items()
        }
        return replace(self, rulesets=known, ipv4_first=self.ipv4_first and self.ipv4_first.without_doubt())

    def on_host(self, surroundings: Mapping[Family, Surroundings], *, routes_known: bool) -> PodRules:
        """The same rules on another host."""
        other = self.ipv4_first and self.ipv4_first.on_host(surroundings, routes_known=routes_known)
        return replace(self, surroundings=surroundings, routes_known=routes_known, ipv4_first=other)


class _SameRules:
    """Rules as a key: equal if nothing that divides packets differs, as for pods whose authors only name things differently."""

    def __init__(self, rules: PodRules) -> None:
        self.rules = rules
        self._values = (rules.place, rules.routes_known, rules.families, rules.interfaces)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _SameRules):
            return NotImplemented
        mine, others = self.rules, other.rules
        same = mine.rulesets is others.rulesets and mine.surroundings is others.surroundings
        return same and self._values == other._values

    def __hash__(self) -> int:
        return hash((id(self.rules.rulesets), id(self.rules.surroundings)))


@lru_cache(maxsize=16)
def _divide_all(key: _SameRules) -> tuple[Partition, ...]:
    return key.rules.divide_all()


@dataclass(frozen=True, slots=True)
class LiveRules:
    """The rules of a namespace, of the backends whose tables may hold any, and what else was read.

    `inferred`: what created each backend's rules, as far as they show it. `ipset_threshold`: the length of lists above which they
    are address sets, as they are now.
    """

    rules: PodRules
    inferred: dict[str, InferredOptions]
    warnings: tuple[str, ...]
    ipset_threshold: int = 0


def chains_of(rulesets: dict[Family, Ruleset]) -> dict[Family, dict[tuple[str, str], list[Rule]]]:
    """The rules of each non-empty chain, by family."""
    return {
        family: {
            (table, name): [loaded.rule for loaded in chain.rules]
            for table, chains in ruleset.tables.items()
            for name, chain in chains.items()
            if chain.rules
        }
        for family, ruleset in rulesets.items()
    }
