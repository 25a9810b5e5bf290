"""Whether planned rules are in force, judged by a snapshot of the kernel: what the text of listings cannot show.

Four questions, in this order: are the rules in the kernel those that are listed; are their tables and chains active and hooked
in where packets meet them; is the device called lo the loopback; and does anything foreign take packets away that the plan
captures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netinit.base.net import Family, Network, number_of
from netinit.base.shown import MOST_OF_A_RULE, escape, shorten
from netinit.base.snapshot import DORMANT, FAMILY_NAMES, IFF_LOOPBACK, INET, Snapshot, TableRoute
from netinit.rules.base_chains import expected_base, is_of_iptables
from netinit.rules.iptables.compare import DOCKER_RULE
from netinit.rules.iptables.parse import normalise, normalise_rule
from netinit.rules.iptables.write import write_plan
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.model import BUILTIN_CHAINS, ESCAPING, HIDDEN, INACTIVE, OWNED_CHAINS, SHADOWING, Difference, Plan
from netinit.rules.packet import LOOPBACK_DEVICE
from netinit.rules.targets import Jump
from netinit.simulate.audit.subject import example_of
from netinit.simulate.endpoints import spell_packet
from netinit.simulate.hooks import TABLES_OF_THE_KERNEL
from netinit.simulate.host import LOCAL, MAIN, is_simple, surroundings_of
from netinit.simulate.loaded import BaseChain, LoadedChain, LoadedRule
from netinit.simulate.places import (
    IPTABLES_NFT,
    NFTABLES,
    NUMBERS,
    SOURCES,
    load_snapshot,
)
from netinit.simulate.ruleset import Ruleset, load_plan
from netinit.simulate.symbolic.chosen import local
from netinit.simulate.symbolic.partition import Part, divide, make_spaces
from netinit.simulate.symbolic.regions import Region, in_states, nothing, unite, within
from netinit.simulate.symbolic.space import DESTINATION, NEW, OUTBOUND, SOURCE, intervals_of
from netinit.simulate.symbolic.walk import Passage
from netinit.simulate.trace import CAPTURED, DROPPED, UNKNOWN

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
        self._has_differences = False  # beside what foreign rules do

    def judge(self) -> Departures:
        """All of it."""
        found = [*self._devices(), *self._dormant(), *self._bases(), *self._hidden(), *self._programs()]
        self._has_differences = bool(found or self._listed)
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
        """What becomes of the new connections that the plan captures, by all that is in the kernel: those that are not captured."""
        around = surroundings_of(self._snapshot, family)
        # Routes to lo beside the host's own addresses are judged below.
        around = around.replace(routes=tuple(one for one in around.routes if one[1] != LOOPBACK_DEVICE))
        planned, live = load_plan(self._plan, family), self._join(family)
        free = not is_simple(self._snapshot, family)
        for space in make_spaces([{family: planned}, {family: live}], {family: around}, free=free):
            likely = in_states(space, (NEW,))  # an ordinary socket sends from an address of its host
            if space.direction == OUTBOUND or not around.forwards:
                likely &= local(space, SOURCE if space.direction == OUTBOUND else DESTINATION)
            wanted: dict[tuple[int, bool], Region] = {}
            for part in divide(space, planned).parts:
                if part.verdict == CAPTURED:
                    key = (part.outcome.condition.redirect_port, part.outcome.condition.transparent)
                    wanted[key] = wanted.get(key, nothing(space)) | part.region & likely
            captured = unite([nothing(space), *wanted.values()])
            yield from self._judge_parts(family, divide(space, live).parts, wanted, captured)
            if space.direction == OUTBOUND:
                yield from self._diverted(family, captured, self._local_routes(family))

    def _judge_parts(
        self, family: Family, parts: Iterable[Part], wanted: Mapping[tuple[int, bool], Region], captured: Region
    ) -> Iterator[Difference]:
        found: dict[tuple[str, Passage | None, str], Region] = {}
        for part in parts:
            ended = part.outcome.condition
            region = captured & part.region
            if part.verdict == CAPTURED and (ended.redirect_port, ended.transparent) in wanted:
                region -= wanted[ended.redirect_port, ended.transparent]
            if region:
                culprit = self._find_culprit(part)
                verdict = DROPPED if part.outcome.at_worst_dropped else part.verdict
                key = (verdict, culprit, "" if culprit else part.outcome.reason)
                found[key] = found.get(key, nothing(region.space)) | region
        for (verdict, culprit, reason), region in found.items():
            yield from self._describe(family, verdict, culprit, reason, region)

    def _find_culprit(self, part: Part) -> Passage | None:
        """The foreign rule that ended the packets, or did the last thing to them."""
        foreign = [one for one in part.path if self._is_foreign(one)]
        if part.outcome.by_rule and part.path[-1:] == tuple(foreign[-1:]):
            return part.path[-1]
        acting = [one for one in foreign if not (isinstance(one.met.target, Jump) or one.met.target.only_observes)]
        last = acting or foreign
        return last[-1] if last and (part.outcome.by_rule or part.verdict != DROPPED) else None

    def _is_foreign(self, passage: Passage) -> bool:
        native = self._source == NFTABLES and passage.source in ("", NFTABLES) and passage.table in TABLES_OF_THE_KERNEL
        return not (native or _is_ours(passage.rules[0]))

    def _describe(self, family: Family, verdict: str, culprit: Passage | None, reason: str, region: Region) -> Iterator[Difference]:
        packet, _ = example_of(region)
        example = f"for example {spell_packet(packet)}"
        if culprit is None:
            if verdict == DROPPED:
                self._warnings.append(f"{family.name}: packets that the plan captures are dropped: {reason}, {example}")
            elif reason or not self._has_differences:
                purpose = f"{reason or 'no rule captures these packets'}, {example}"
                yield Difference(kind=ESCAPING, where=family.name, rule="", purpose=purpose, origin=FOREIGN)
            return
        rule = culprit.rules[0]
        chain = culprit.chain
        source = culprit.source or self._source
        base = next((one for one in self._places.foreign[family] if one.place == culprit.table), None)
        if base is None:
            if (family.name, culprit.table, chain, rule.number) in self._shadows or rule.bare_text == DOCKER_RULE:
                return
            if chain in OWNED_CHAINS and (family.name, culprit.table, chain) in self._listed:
                return
            handles = {(chain, rule.number): self._places.handles.get((source, family, culprit.table, chain, rule.number), 0)}
            base = BaseChain(f"{source} table {culprit.table}", chain, "", culprit.hook, 0, {}, handles)
        where, text = base.describe_rule(chain, rule.number), escape(shorten(rule.text, MOST_OF_A_RULE))
        if verdict == DROPPED:
            what = f"`{text}` drops" if text else "drops"
            self._warnings.append(f"{family.name}: {escape(where)} {what} packets that the plan captures, {example}")
            return
        doubt = "it may take away packets that the plan captures" if verdict == UNKNOWN else "captured packets escape there"
        yield Difference(
            kind=ESCAPING, where=family.name, table=base.place, chain=chain, number=rule.number, rule=rule.text,
            purpose=f"{where}: {doubt}, {example}", origin=FOREIGN,
        )  # fmt: skip

    def _join(self, family: Family) -> Ruleset:
        """Everything that packets of a family meet. Chains of ours that ask address sets count as planned where their listing is."""
        own = self._places.rulesets.get(self._source, {}).get(family)
        if own is None:
            return self._places.join(family, self._source)
        planned = load_plan(self._plan, family).tables
        tables = {
            table: {
                name: planned[table][name] if self._is_listed_as_planned(family, table, chain, planned) else chain
                for name, chain in chains.items()
            }
            for table, chains in own.tables.items()
        }
        rulesets = self._places.rulesets
        known = {**rulesets, self._source: {**rulesets[self._source], family: replace(own, tables=tables)}}
        return replace(self._places, rulesets=known).join(family, self._source)

    def _is_listed_as_planned(
        self, family: Family, table: str, chain: LoadedChain, planned: Mapping[str, Mapping[str, LoadedChain]]
    ) -> bool:
        asks_a_set = any(_asks_a_set(one) for one in chain.rules)
        return asks_a_set and chain.name in planned.get(table, {}) and (family.name, table, chain.name) not in self._listed

    # ---- routes ------------------------------------------------------------------------------------------------------

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

    def _diverted(self, family: Family, captured: Region, routes: Iterable[TableRoute]) -> Iterator[Difference]:
        for route in routes:
            network = Network((family.version, *route.destination))
            taken = captured & within(captured.space, DESTINATION, intervals_of([network]))
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
