"""Decides from a snapshot whether planned rules are in force, beyond comparing the rules themselves.

Tables and chains must be active and at the right hooks, lo must be the loopback device, and no foreign rule may divert
packets that the plan captures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from netinit.base.errors import DORMANT_BYPASS
from netinit.base.net import Family, Network, is_named, number_of
from netinit.base.snapshot import DORMANT, FAMILY_NAMES, IFF_LOOPBACK, INET, IP, Snapshot
from netinit.live import host, unfollowed
from netinit.live.snapshot_rules import SOURCES, load_snapshot
from netinit.options import BACKENDS, NF_TABLES, TABLES_OF_OUR_OWN
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.iptables.write import write_plan
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.model import (
    BUILTIN_CHAINS,
    DEVICES,
    ESCAPING,
    FOREIGN,
    FORWARD,
    INACTIVE,
    OWNED_CHAINS,
    Difference,
    Plan,
    Rule,
    expected_base,
    is_base_of,
)
from netinit.rules.packet_inputs import LOOPBACK_DEVICE
from netinit.simulate.ruleset import HookedChain, LoadedChain, Ruleset, list_reachable, load_plan, map_chains

if TYPE_CHECKING:
    from netinit.live.foreign_proof import Deviations, Way
    from netinit.live.lost_answers import LostAnswers

MAX_DORMANT = 4  # dormant tables that are judged: each takes as long as everything else


def find_deviations(
    snapshot: Snapshot, plan: Plan, backend: str, listed: Sequence[Difference], shadows: Sequence[Difference] = (),
    *, answers: LostAnswers | None = None,
) -> Deviations:  # fmt: skip
    """How the kernel's behaviour differs from the plan, without what is `listed` (from the rules of `backend`).

    `shadows`: foreign rules before ours in a chain. Each is a difference only if captured packets are treated otherwise
    because of it. `answers`: warn of lost ones too. Raises TooManyPartsError.
    """
    source = SOURCES.get(backend)
    if not source or not plan.families:
        return tuple(shadows), ()
    return ForceCheck(snapshot, plan, source, listed, shadows, answers=answers).check()


def find_dormant_bypasses(
    snapshot: Snapshot, plan: Plan, backend: str, found: Sequence[Difference], shadows: Sequence[Difference] = ()
) -> tuple[str, ...]:
    """Describe the foreign dormant tables through which captured packets would escape if one message woke them.

    `found`: the differences as it is; `shadows` as in find_deviations. The first MAX_DORMANT tables are judged, each alone;
    others are only named.
    """
    if not any(one.flags & DORMANT for one in snapshot.tables):
        return ()
    own = _list_own_tables(plan, backend)
    dormant = [one for one in snapshot.tables if one.flags & DORMANT and (one.family, one.name) not in own]
    usual = {one.describe() for one in found}
    lines = []
    for table in dormant[:MAX_DORMANT]:
        woken = table.replace(flags=table.flags & ~DORMANT)
        awake = snapshot.replace(tables=tuple([woken if one is table else one for one in snapshot.tables]))
        more = [one for one in find_deviations(awake, plan, backend, found, shadows)[0] if one.describe() not in usual]
        lines += [f"{DORMANT_BYPASS}: {more[0].describe()}"] if more else []
    if len(dormant) > MAX_DORMANT:
        lines.append(f"{DORMANT_BYPASS}, perhaps: {len(dormant)} tables are dormant, and {MAX_DORMANT} were judged")
    return tuple(lines)


class ForceCheck:
    """One plan beside a snapshot."""

    def __init__(
        self, snapshot: Snapshot, plan: Plan, source: str, listed: Sequence[Difference] = (), shadows: Sequence[Difference] = (),
        *, answers: LostAnswers | None = None,
    ) -> None:  # fmt: skip
        self._answers = answers
        self._snapshot = snapshot
        self._plan = plan
        self._source = source
        self._kernel = load_snapshot(snapshot, (plan,))
        self._planned = {family: load_plan(plan, family) for family in plan.families}
        self._listed = {(one.where, one.table, one.chain) for one in listed}
        self._shadows = {(one.where, one.table, one.chain, one.number): one for one in shadows}
        self._warnings: list[str] = []

    def check(self) -> Deviations:
        """Run all checks."""
        found = [*self._devices(), *self._excluded(), *self._inactive()]
        has_differences = bool(found or self._listed)  # other than what foreign rules do
        for family in self._plan.families:
            differences, warnings = self._prove(family, has_differences=has_differences)
            found += differences
            self._warnings += warnings
            self._warnings += self._answers.by_routes(self._snapshot, family) if self._answers else ()
        found += self._unfollowed()
        self._warnings += [*unfollowed.warn_of_hidden(self._snapshot), *self.losses()]
        return tuple(found), tuple(self._warnings)

    # ---- our rules ---------------------------------------------------------------------------------------------------

    def _devices(self) -> Iterator[Difference]:
        """Rules that name lo mean the loopback device, which every network namespace has first, and which must work."""
        fault, remedy = host.find_loopback_fault(self._snapshot, self._plan.families)
        if fault:
            yield Difference(
                kind=INACTIVE, where=DEVICES, rule=f"the loopback device {fault}",
                purpose=f"whatever is redirected to the proxy inside of the pod is dropped; {remedy}",
                origin="the container runtime, or its CNI plugin loopback",
            )  # fmt: skip
        for link in self._snapshot.links:
            if link.index == 1 and (link.name != LOOPBACK_DEVICE or not link.flags & IFF_LOOPBACK):
                yield Difference(
                    kind=INACTIVE, where=DEVICES, rule=f"the loopback device is called {link.name}",
                    purpose="rules for traffic inside of the pod name it lo", origin="ip link set ... name lo",
                )  # fmt: skip
            if link.index != 1 and link.name == LOOPBACK_DEVICE:
                yield Difference(
                    kind=ESCAPING, where=DEVICES, rule=f"device {link.index} is called lo",
                    purpose="rules for traffic inside of the pod accept what leaves there", origin="ip link set ... name",
                )  # fmt: skip

    def _excluded(self) -> Iterator[Difference]:
        """The plan excludes interfaces by name, which a process that may rename devices can exploit."""
        excluded = self._plan.excluded_interfaces()
        for family in self._plan.families if excluded else ():
            samples = map(number_of, host.SAMPLES[family.version])
            ways = {way for one in samples for way in host.find_devices_of_sockets(self._snapshot, family, one)}
            if taken := sorted(way for way in ways if is_named(way, excluded)):
                what = "the default route of" if len(taken) == len(ways) else "a policy rule, or one of several routes, of"
                yield Difference(
                    kind=ESCAPING, where=DEVICES, rule=f"{what} {family.name} leaves through {', '.join(taken)}",
                    purpose="which the plan excludes: no connection that leaves the pod there is captured", origin="the device's name",
                )  # fmt: skip

    def _inactive(self) -> Iterator[Difference]:
        """Tables whose chains the kernel skips, and built-in chains of iptables-nft at another hook or priority."""
        own = _list_own_tables(self._plan, self._source)
        for table in self._snapshot.tables:
            if table.flags & DORMANT and (table.family, table.name) in own:
                yield Difference(
                    kind=INACTIVE, where=FAMILY_NAMES[table.family], table=table.name, rule="flags dormant",
                    purpose="the kernel skips every chain of the table", origin="the table's flags",
                )  # fmt: skip
        for chain in self._snapshot.chains:
            is_planned = chain.name in BUILTIN_CHAINS and chain.name in own.get((chain.family, chain.table), ())
            if is_planned and not is_base_of(chain, chain.table, chain.name):
                kind, priority = expected_base(chain.table, chain.name)
                yield Difference(
                    kind=INACTIVE, where="IPv4" if chain.family == IP else "IPv6", table=chain.table, chain=chain.name,
                    rule=f"type {chain.kind or 'none'} hook {chain.hook} priority {chain.priority}",
                    purpose=f"packets do not reach the chain as type {kind} at priority {priority}", origin="the chain's hook",
                )  # fmt: skip

    def _unfollowed(self) -> Iterator[Difference]:
        """What may divert packets but cannot be simulated."""
        unreadable = [("kernel", place, "it cannot be read, and may decide otherwise") for place in self._kernel.unreadable]
        for where, what, effect in (*unfollowed.find_unfollowed(self._snapshot), *unreadable):
            purpose = f"netinit does not follow it: {effect}"
            yield Difference(kind=ESCAPING, where=where, rule=what, purpose=purpose, origin=FOREIGN)

    def losses(self) -> list[str]:
        """Routes and policy rules that drop captured packets."""
        found = []
        for family in self._plan.families:
            lost = [f"a policy rule of priority {one.priority}" for one in host.dropping_rules(self._snapshot, family)]
            lost += [host.describe_dropping(one, family) for one in host.dropping_routes(self._snapshot, family)]
            found += [f"{family.name}: {one} drops packets that the plan captures" for one in lost]
        return found

    # ---- foreign rules -----------------------------------------------------------------------------------------------

    def _prove(self, family: Family, *, has_differences: bool) -> Deviations:
        """What keeps the packets that the plan captures from the proxy, with everything that is in the kernel."""
        around = host.surroundings_of(self._snapshot, family)
        # Routes to lo that do not serve the host's own addresses, and foreign addresses on lo, are judged by the proof.
        added = host.addresses_on_loopback(self._snapshot, self._plan, family)
        around = around.replace(
            routes=tuple(one for one in around.routes if one[1] != LOOPBACK_DEVICE), doubtful=(), local_networks=(),
            addresses=tuple(one for one in around.addresses if one[1] not in added),
        )  # fmt: skip
        planned, live = self._planned[family], self._join(family)
        ways = tuple(self._list_ways(family, added))
        met = [hook for hook in planned.stages if hook != FORWARD]  # what is captured is not forwarded
        is_planned = planned.local_marks <= around.local_marks and all(_met_at(planned, hook) == _met_at(live, hook) for hook in met)
        if is_planned and not ways:
            return (), ()  # packets reach exactly the planned rules: nothing to prove
        from netinit.live.foreign_proof import ForeignProof  # loads the symbolic engine

        proof = ForeignProof(
            snapshot=self._snapshot, plan=self._plan, source=self._source, family=family, planned=planned, live=live,
            foreign=self._kernel.foreign[family], listed=self._listed, shadows=self._shadows, has_differences=has_differences,
            answers=self._answers,
        )  # fmt: skip
        return proof.find(around, ways, rules_are_planned=is_planned)

    def _list_ways(self, family: Family, added: Iterable[int]) -> Iterator[Way]:
        for address in added:
            network = Network((family.version, address, family.bits))
            yield network, f"address {network} dev lo", "a foreign address"
        for route in host.routes_that_stay(self._snapshot, family):
            network = Network((family.version, *route.destination))
            word = "local " if route.kind == host.DELIVERED_HERE else ""
            yield network, f"{word}{network} dev lo table {route.table}", "a foreign route"

    def _join(self, family: Family) -> Ruleset:
        """All rules that a family's packets reach; our chains with address sets count as planned if their listing matches."""
        own = self._kernel.rulesets.get(self._source, {}).get(family)
        if own is None:
            return self._kernel.join(family, self._source)
        planned = self._planned[family].tables

        def trust_listing(table: str, chain: LoadedChain) -> LoadedChain:
            matches = [match for loaded in chain.rules for match in loaded.rule.matches if isinstance(match, UnknownMatch)]
            has_sets = any(match.text.startswith("-m set") for match in matches)
            is_trusted = has_sets and chain.name in OWNED_CHAINS and (family.name, table, chain.name) not in self._listed
            return planned.get(table, {}).get(chain.name, chain) if is_trusted else chain

        rulesets = self._kernel.rulesets
        known = replace(own, tables=map_chains(own.tables, trust_listing))
        known_rulesets = {**rulesets, self._source: {**rulesets[self._source], family: known}}
        return replace(self._kernel, rulesets=known_rulesets).join(family, self._source)

def _list_own_tables(plan: Plan, backend: str) -> dict[tuple[int, str], Collection[str]]:
    """Return the chains of each nf_tables table of the plan, by family and name."""
    tables = BACKENDS[backend].tables
    if tables == TABLES_OF_OUR_OWN:
        return {(INET, f"{plan.nft_prefix}{table.name}"): () for table in plan.tables}
    found: dict[tuple[int, str], Collection[str]] = {}
    for family in plan.families if tables == NF_TABLES else ():
        found |= {(family.number, table): chains for table, chains in write_plan(plan, family).items()}
    return found


def _met_at(ruleset: Ruleset, hook: str) -> list[object]:
    """Everything packets may reach at a hook, in order."""
    return [
        (stage.name, [[(one.table, one.effect, one.turn, _rules_from(one)) for one in chains] for chains in stage.rounds])
        for stage in ruleset.stages[hook]
    ]


def _rules_from(hooked: HookedChain) -> dict[str, object]:
    """Policy and rules of a base chain and the chains it may call, by name."""
    chains = [hooked.chains[name] for name in list_reachable(hooked.chains, (hooked.chain.name,))]
    return {one.name: (one.policy, _normalise([loaded.rule for loaded in one.rules])) for one in chains}


def _normalise(rules: Sequence[Rule]) -> list[object]:
    """Rules in one form, without those that only nft needs: TPROXY of iptables drops by itself what has no socket."""
    pairs = zip((None, *rules), rules, strict=False)
    return [
        normalise_rule(rule)
        for before, rule in pairs
        if not (before and before.matches == rule.matches and rule.target in before.target.nft_targets()[1:])
    ]
