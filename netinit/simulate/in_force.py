"""Whether planned rules are in force, judged by a snapshot of the kernel: what the text of listings cannot show.

Four questions, in this order: are the rules in the kernel those that are listed; are their tables and chains active and hooked
in where packets meet them; is the device called lo the loopback; and does anything foreign take packets away that the plan
captures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from netinit.base.net import FULL_MASK, Family, Network, number_of
from netinit.base.shown import MOST_OF_A_RULE, escape, shorten
from netinit.base.snapshot import DORMANT, FAMILY_NAMES, IFF_LOOPBACK, INET, Snapshot, TableRoute
from netinit.rules.base_chains import expected_base, is_of_iptables
from netinit.rules.iptables.compare import DOCKER_RULE
from netinit.rules.iptables.parse import normalise, normalise_rule
from netinit.rules.iptables.write import write_plan
from netinit.rules.matches.context import Mark, UnknownMatch
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS, SHADOWING, Difference, Plan
from netinit.rules.packet import LOOPBACK_DEVICE
from netinit.rules.targets import Jump
from netinit.simulate.audit.subject import example_of
from netinit.simulate.endpoints import spell_packet
from netinit.simulate.host import LOCAL, MAIN, surroundings_of
from netinit.simulate.places import (
    IPTABLES_LEGACY,
    IPTABLES_NFT,
    NFTABLES,
    NUMBERS,
    SOURCES,
    BaseChain,
    load_snapshot,
)
from netinit.simulate.ruleset import ACCEPT, LoadedChain, LoadedRule, Ruleset, load_plan
from netinit.simulate.symbolic.detours import DOUBTFUL, VANISHES, Detour, find_detours
from netinit.simulate.symbolic.partition import Partition, divide, make_spaces
from netinit.simulate.symbolic.regions import nothing, within
from netinit.simulate.symbolic.space import DESTINATION, OUTBOUND, Space, intervals_of
from netinit.simulate.trace import CAPTURED

INACTIVE, HIDDEN, ESCAPING = "inactive", "hidden", "escaping"  # kinds of a Difference, beside those of the model
ROUTE_LOCAL, ROUTE_UNICAST = 2, 1  # RTN_LOCAL, RTN_UNICAST
SOCKET_LOOKUP = "sk_lookup"
FOREIGN = "a foreign rule"


@dataclass(frozen=True, slots=True)
class Departures:
    """What keeps the plan from being in force, and what is worth knowing beside."""

    differences: tuple[Difference, ...] = ()
    warnings: tuple[str, ...] = ()


def find_departures(snapshot: Snapshot, plan: Plan, backend: str, listed: Sequence[Difference]) -> Departures:
    """How what the kernel does differs from the plan, where the listings of `backend` do not say so already (`listed`)."""
    source = SOURCES.get(backend)
    if source is None or not plan.families:
        return Departures()
    return _Judge(snapshot, plan, source, listed).judge()


class _Judge:
    def __init__(self, snapshot: Snapshot, plan: Plan, source: str, listed: Sequence[Difference]) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._source = source
        self._places = load_snapshot(snapshot, (plan,))
        self._listed = {(one.where, one.table, one.chain) for one in listed}
        self._shadows = {(one.where, one.table, one.chain, one.number) for one in listed if one.kind == SHADOWING}
        self._warnings: list[str] = []

    def judge(self) -> Departures:
        """All of it."""
        found = [*self._devices(), *self._dormant(), *self._bases(), *self._hidden(), *self._programs()]
        for family in self._plan.families:
            found += self._foreign(family)
        self._warnings += [f"{place}: cannot be read" for place in self._places.unreadable]
        self._warnings += [f"{one.place} is not read: {one.reason}" for one in self._snapshot.unknown]
        if self._snapshot.transforms:
            count = self._snapshot.transforms
            self._warnings.append(f"{count} policies of IPsec (ip xfrm policy) are here; netinit does not follow them")
        return Departures(tuple(found), tuple(self._warnings))

    # ---- our rules ---------------------------------------------------------------------------------------------------

    def _devices(self) -> Iterator[Difference]:
        """Rules say lo and mean the loopback device, which is the first of every network namespace."""
        for link in self._snapshot.links:
            if link.index == 1 and (link.name != LOOPBACK_DEVICE or not link.flags & IFF_LOOPBACK):
                yield Difference(
                    kind=INACTIVE, where="devices", rule=f"the loopback device is called {link.name}",
                    purpose="rules for traffic inside of the pod name it lo", origin="ip link set ... name lo",
                )  # fmt: skip
            if link.index != 1 and link.name == LOOPBACK_DEVICE:
                yield Difference(
                    kind=ESCAPING, where="devices", rule=f"device {link.index} is called lo",
                    purpose="rules for traffic inside of the pod let through what leaves there", origin="ip link set ... name",
                )  # fmt: skip

    def _dormant(self) -> Iterator[Difference]:
        """The kernel asks no chain of a dormant table."""
        for table in self._snapshot.tables:
            if table.flags & DORMANT and self._is_own_table(table.family, table.name):
                yield Difference(
                    kind=INACTIVE, where=FAMILY_NAMES[table.family], table=table.name, rule="flags dormant",
                    purpose="the kernel skips every chain of the table", origin="the table's flags",
                )  # fmt: skip

    def _is_own_table(self, family: int, name: str) -> bool:
        if self._source == IPTABLES_NFT:
            tables = {table for one in self._plan.families if NUMBERS[one] == family for table in write_plan(self._plan, one)}
            return name in tables
        own = {f"{self._plan.nft_prefix}{table.name}" for table in self._plan.tables}
        return self._source == NFTABLES and family == INET and name in own

    def _bases(self) -> Iterator[Difference]:
        """Built-in chains of iptables-nft must be hooked in where iptables' rules belong; a name alone proves nothing."""
        if self._source != IPTABLES_NFT:
            return
        live = {(chain.family, chain.table, chain.name): chain for chain in self._snapshot.chains}
        for family in self._plan.families:
            for table, chains in write_plan(self._plan, family).items():
                for name in chains:
                    chain = live.get((NUMBERS[family], table, name))
                    if name in BUILTIN_CHAINS and chain and not is_of_iptables(chain):
                        kind, priority = expected_base(table, name)
                        yield Difference(
                            kind=INACTIVE, where=family.name, table=table, chain=name,
                            rule=f"type {chain.kind or 'none'} hook {chain.hook} priority {chain.priority}",
                            purpose=f"packets do not meet the chain as type {kind} at priority {priority}", origin="the chain's hook",
                        )  # fmt: skip

    def _hidden(self) -> Iterator[Difference]:
        """Rules that iptables lists as planned, while the kernel has others."""
        rulesets = self._places.rulesets.get(self._source, {})
        if self._source == NFTABLES:  # its listing is JSON of every expression
            return
        for family in self._plan.families:
            live = rulesets.get(family) or Ruleset(family)
            for table, chains in write_plan(self._plan, family).items():
                for name, chain in chains.items():
                    if (family.name, table, name) not in self._listed:
                        wanted = [(normalise(written.text, family), written.rule) for written in chain.rules]
                        yield from self._hidden_in(family, table, live.tables.get(table, {}).get(name), wanted)

    def _hidden_in(
        self, family: Family, table: str, live: LoadedChain | None, wanted: Sequence[tuple[tuple[object, ...], object]]
    ) -> Iterator[Difference]:
        """Planned rules of a chain that do not decode as planned. Rules with address sets are compared by their listing."""
        if live is None or any(_asks_a_set(one) for one in live.rules):
            return
        keys = [normalise_rule(one.rule) for one in live.rules]
        at = 0
        for key, planned in wanted:
            if key in keys[at:]:
                at += keys[at:].index(key) + 1
                continue
            other = live.rules[min(at, len(live.rules) - 1)] if live.rules else None
            handle = self._places.handles.get((self._source, family, table, live.name, other.number)) if other else None
            comment = getattr(planned, "comment", "")
            yield Difference(
                kind=HIDDEN, where=family.name, table=table, chain=live.name, number=other.number if other else 0,
                rule=(other.text if other else "") or "a rule that does something else",
                purpose=f"the kernel has this{f' (handle {handle})' if handle else ''} where iptables lists: {comment}",
                origin="what the listing does not print",
            )  # fmt: skip
            return

    def _programs(self) -> Iterator[Difference]:
        for program in self._snapshot.programs:
            if program.where.startswith(SOCKET_LOOKUP):
                yield Difference(
                    kind=ESCAPING, where="BPF", rule=f"{program.where}, program {program.number}",
                    purpose="it chooses the socket of inbound connections, also of captured ones", origin="a foreign program",
                )  # fmt: skip
            else:
                what = f"BPF program {program.number} ({escape(program.where)})"
                self._warnings.append(f"{what} may redirect packets; netinit does not follow it")
        filters = {one.index for one in self._snapshot.traffic_control if one.what == "filter"}
        for index in sorted(filters):
            name = escape(self._snapshot.name_of(index))
            self._warnings.append(f"tc filters on {name} may redirect packets; netinit does not follow them")

    # ---- foreign rules -----------------------------------------------------------------------------------------------

    def _foreign(self, family: Family) -> Iterator[Difference]:
        """What foreign chains and routes take away of the packets that the plan captures."""
        around = surroundings_of(self._snapshot, family)
        planned = load_plan(self._plan, family)
        chains = [*self._places.foreign[family], *self._other_chains(family)]
        named = [Ruleset(family, {chain.place: chain.chains}) for chain in chains]
        spaces: list[Space] = []
        if named:
            together = Ruleset(family, planned.tables, beside=tuple(named))
            spaces += make_spaces([{family: together}], {family: around}, free=False)
        else:
            spaces += make_spaces([{family: planned}], {family: around}, free=False)
        marks = [*_marks_of(planned), *planned.local_marks, *self._routed_marks(family)]
        for space in spaces:
            for detour in find_detours(space, planned, chains, marks):
                yield from self._describe(family, detour)
            if space.direction == OUTBOUND and (routes := [*self._local_routes(family)]):
                yield from self._diverted(family, divide(space, planned), routes)

    def _describe(self, family: Family, detour: Detour) -> Iterator[Difference]:
        packet, _ = example_of(detour.region)
        example = f"for example {spell_packet(packet)}"
        text = escape(shorten(detour.text, MOST_OF_A_RULE))
        if detour.effect == VANISHES:
            what = f"`{text}` drops" if text else "drops"
            self._warnings.append(f"{family.name}: {escape(detour.where)} {what} packets that the plan captures, {example}")
            return
        doubt = "it may take away packets that the plan captures" if detour.effect == DOUBTFUL else "captured packets escape there"
        yield Difference(
            kind=ESCAPING, where=family.name, table=detour.chain.place, chain=(detour.rule or (detour.chain.name,))[0],
            number=detour.rule[1] if detour.rule else 0, rule=detour.text or "the policy",
            purpose=f"{detour.where}: {doubt}, {example}", origin=FOREIGN,
        )  # fmt: skip

    def _other_chains(self, family: Family) -> Iterator[BaseChain]:
        """The built-in chains of iptables, of either kind, without the rules that are the plan's."""
        for source in (IPTABLES_NFT, IPTABLES_LEGACY):
            ruleset = self._places.rulesets.get(source, {}).get(family)
            for table, chains in ruleset.tables.items() if ruleset else ():
                handles = self._handles_of(source, family, table)
                for name in BUILTIN_CHAINS:
                    chain = chains.get(name)
                    rules = self._foreign_rules(source, family, table, chain) if chain else ()
                    if chain and (rules or chain.policy != ACCEPT):
                        kind, priority = expected_base(table, name)
                        own = {**chains, name: LoadedChain(name, rules, chain.policy)}
                        yield BaseChain(f"{source} table {table}", name, kind, name, priority, own, handles)

    def _foreign_rules(self, source: str, family: Family, table: str, chain: LoadedChain) -> tuple[LoadedRule, ...]:
        """Foreign rules; where ours stand in the same chain, those before the last of ours that are not named already."""
        ours = [at for at, one in enumerate(chain.rules) if _is_ours(one)] if source == self._source else []
        rules = chain.rules[: ours[-1]] if ours else chain.rules
        return tuple(
            one
            for one in rules
            if not _is_ours(one)
            and not (ours and (one.bare_text == DOCKER_RULE or (family.name, table, chain.name, one.number) in self._shadows))
        )

    def _handles_of(self, source: str, family: Family, table: str) -> dict[tuple[str, int], int]:
        return {
            (chain, number): handle
            for (where, of, name, chain, number), handle in self._places.handles.items()
            if (where, of, name) == (source, family, table)
        }

    # ---- routes ------------------------------------------------------------------------------------------------------

    def _routed_marks(self, family: Family) -> Iterator[tuple[int, int]]:
        for rule in self._snapshot.routing_rules:
            if rule.family == family.number and rule.mark:
                yield rule.mark, rule.mask or FULL_MASK

    def _local_routes(self, family: Family) -> Iterator[TableRoute]:
        """Routes that deliver to this host, or to lo, what is not this host's own, whatever the packet's mark is."""
        reached = {rule.table for rule in self._snapshot.routing_rules if rule.family == family.number and not rule.mark}
        own = {number_of(one.address) for one in self._snapshot.addresses if one.family == family.number}
        loopback = Network.parse("127.0.0.0/8" if family.version == 4 else "::1/128")  # noqa: PLR2004 - the version
        for route in self._snapshot.routes:
            first, length = route.destination
            network = Network((family.version, first, length)) if route.family == family.number else loopback
            is_own = network.first in own and length == family.bits
            within_loopback = loopback.first <= network.first and network.last <= loopback.last
            leads_here = route.kind == ROUTE_LOCAL or (route.kind == ROUTE_UNICAST and any(hop.index == 1 for hop in route.hops))
            if leads_here and not (is_own or within_loopback) and route.table in {*reached, MAIN, LOCAL}:
                yield route

    def _diverted(self, family: Family, partition: Partition, routes: Iterable[TableRoute]) -> Iterator[Difference]:
        captured = nothing(partition.space)
        for part in partition.parts:
            if part.verdict == CAPTURED:
                captured |= part.region
        for route in routes:
            network = Network((family.version, *route.destination))
            taken = captured & within(partition.space, DESTINATION, intervals_of([network]))
            if taken:
                packet, _ = example_of(taken)
                word = "local " if route.kind == ROUTE_LOCAL else ""
                yield Difference(
                    kind=ESCAPING, where=family.name, table="routing", rule=f"{word}{network} dev lo table {route.table}",
                    purpose=f"connections there stay in the pod and are not captured, for example {spell_packet(packet)}",
                    origin="a foreign route",
                )  # fmt: skip


def _is_ours(loaded: LoadedRule) -> bool:
    target = loaded.rule.target
    return bool(loaded.origin) or (isinstance(target, Jump) and target.chain in OWNED_CHAINS)


def _asks_a_set(loaded: LoadedRule) -> bool:
    return any(isinstance(match, UnknownMatch) and match.text == "-m set" for match in loaded.rule.matches)


def _marks_of(planned: Ruleset) -> Iterator[tuple[int, int]]:
    for chains in planned.tables.values():
        for chain in chains.values():
            for loaded in chain.rules:
                for match in loaded.rule.matches:
                    if isinstance(match, Mark):
                        yield match.value, match.mask

