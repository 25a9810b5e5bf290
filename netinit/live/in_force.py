"""Decides from a snapshot whether planned rules are in force, beyond comparing the rules themselves.

Tables and chains must be active and at the right hooks, lo must be the loopback device, and no foreign rule may divert
packets that the plan captures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from netinit.base.errors import DORMANT_BYPASS
from netinit.base.net import FULL_MASK, Family, Network, is_named, number_of
from netinit.base.sanitize import MAX_RULE_LENGTH, escape, shorten
from netinit.base.snapshot import DORMANT, FAMILY_NAMES, IFF_LOOPBACK, INET, IP, Snapshot, TableRoute
from netinit.live import host, unfollowed
from netinit.live.copies import list_copied, stop_at_copies
from netinit.live.culprits import Judge, marks_of
from netinit.live.snapshot_rules import SOURCES, load_snapshot
from netinit.options import BACKENDS, NF_TABLES, TABLES_OF_OUR_OWN
from netinit.rules.iptables.compare import DOCKER_RULE
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.iptables.write import write_plan
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.model import (
    BUILTIN_CHAINS,
    DEVICES,
    ESCAPING,
    INACTIVE,
    OWNED_CHAINS,
    Difference,
    Plan,
    Rule,
    expected_base,
    is_base_of,
)
from netinit.rules.packet_inputs import LOOPBACK_DEVICE
from netinit.rules.targets import Drop, Reject
from netinit.simulate.endpoints import format_example
from netinit.simulate.examples import example_of, is_restricted
from netinit.simulate.hooks import TABLES_OF_THE_KERNEL
from netinit.simulate.ruleset import (
    HookedChain,
    LoadedChain,
    RuleHit,
    Ruleset,
    is_ours,
    list_reachable,
    load_plan,
    map_chains,
)
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import local, make_spaces, through_devices
from netinit.simulate.symbolic.partition import Part
from netinit.simulate.symbolic.regions import Region, in_states, marked, nothing, unite, unmarked, within
from netinit.simulate.symbolic.space import OUTBOUND, CtState, Dim, Space, intervals_of
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED, UNKNOWN

if TYPE_CHECKING:
    from netinit.live.lost_answers import LostAnswers

NETKIT = "netkit"  # kind of a device
MAX_DEVICES = 32  # that a proof distinguishes by name
FOREIGN = "a foreign rule"
ROUTING = "routing"  # as the table of a difference
MAX_DORMANT = 4  # dormant tables that are judged: each takes as long as everything else
WORSE = (DROPPED, UNKNOWN, CAPTURED, DIRECT)  # ends of packets that a foreign rule diverts; CAPTURED: at another port
AT_WORST_DROPPED = "captured or dropped"  # of packets of which more is not known
EFFECTS = {  # of a foreign rule, by the verdict on packets that the plan captures
    UNKNOWN: "it may divert packets that the plan captures", DROPPED: "captured packets do not reach the proxy, and are dropped",
}  # fmt: skip


Place = tuple[str, str, str, int]  # of a rule: family, table, chain, number
Deviations = tuple[tuple[Difference, ...], tuple[str, ...]]
"""What keeps a plan from being in force, and warnings."""


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
        self._tables = BACKENDS[source].tables
        self._kernel = load_snapshot(snapshot, (plan,))
        self._planned = {family: load_plan(plan, family) for family in plan.families}
        self._listed = {(one.where, one.table, one.chain) for one in listed}
        self._shadows = {(one.where, one.table, one.chain, one.number): one for one in shadows}
        self._effective: dict[Place, dict[str, Difference]] = {}  # those that have an effect, by the verdict on packets
        self._warnings: list[str] = []
        self._has_differences = False  # other than what foreign rules do

    def check(self) -> Deviations:
        """Run all checks."""
        found = [*self._devices(), *self._excluded(), *self._inactive()]
        self._has_differences = bool(found or self._listed)
        for family in self._plan.families:
            found += self._foreign(family)
            self._warnings += self._answers.by_routes(self._snapshot, family) if self._answers else ()
        found += [max(by_verdict.items(), key=lambda one: WORSE.index(one[0]))[1] for by_verdict in self._effective.values()]
        found += self._unfollowed()
        self._warnings += [*unfollowed.warn_of_hidden(self._snapshot), *self.losses()]
        return tuple(found), tuple(self._warnings)

    # ---- our rules ---------------------------------------------------------------------------------------------------

    def _devices(self) -> Iterator[Difference]:
        """Rules that name lo mean the loopback device, which every network namespace has first, and which must be up."""
        if host.is_loopback_down(self._snapshot):
            yield Difference(
                kind=INACTIVE, where=DEVICES, rule="the loopback device is down",
                purpose="whatever is redirected to the proxy inside of the pod is dropped; bring it up: ip link set lo up",
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
            lost += [
                f"the route {host.DROPPING[one.kind]} {Network((family.version, *one.destination))} of table {one.table}"
                for one in host.dropping_routes(self._snapshot, family)
            ]
            found += [f"{family.name}: {one} drops packets that the plan captures" for one in lost]
        return found

    # ---- foreign rules -----------------------------------------------------------------------------------------------

    def _foreign(self, family: Family) -> Iterator[Difference]:
        """Connections that the plan captures, but the kernel with everything in it does not."""
        around = host.surroundings_of(self._snapshot, family)
        # Routes to lo that do not serve the host's own addresses, and foreign addresses on lo, are judged below.
        added = host.addresses_on_loopback(self._snapshot, self._plan, family)
        around = around.replace(
            routes=tuple(one for one in around.routes if one[1] != LOOPBACK_DEVICE), doubtful=(), local_networks=(),
            addresses=tuple(one for one in around.addresses if one[1] not in added),
        )  # fmt: skip
        planned, live = self._planned[family], self._join(family)
        staying = list(host.routes_that_stay(self._snapshot, family))
        rules_are_planned = all(_met_at(planned, hook) == _met_at(live, hook) for hook in planned.stages)
        is_planned = planned.local_marks <= around.local_marks and rules_are_planned
        if is_planned and not staying and not added:
            return  # packets reach exactly the planned rules: nothing to prove
        free = not host.is_simple(self._snapshot, family)
        copying = stop_at_copies(live)
        devices = frozenset([link.name for link in self._snapshot.links]) - {LOOPBACK_DEVICE}
        named = devices if len(devices) <= MAX_DEVICES else frozenset()
        judge = Judge(planned, live, self._is_foreign)
        for space in make_spaces([{family: planned}, {family: live}], {family: around}, free=free, interfaces=named):
            likely = in_states(space, (CtState.NEW,)) & through_devices(space, named)
            # an ordinary socket sends from an address of its host
            if space.direction == OUTBOUND or not around.forwards:
                likely &= local(space, Dim.SOURCE if space.direction == OUTBOUND else Dim.DESTINATION)
            # The kernel clears marks on entry to a network namespace (skb_scrub_packet), but netkit devices may keep them.
            keeps_marks = any(link.kind == NETKIT for link in self._snapshot.links)
            may_be_marked = space.direction == OUTBOUND or around.forwards or keeps_marks
            likely &= marked(space, Dim.CONNECTION_MARK, 0, FULL_MASK) if may_be_marked else unmarked(space)
            wanted: dict[tuple[int, bool], Region] = {}
            for part in divide(space, planned, likely, marks_matter=False).parts:
                if part.verdict == CAPTURED:
                    key = (part.condition.redirect_port, part.condition.transparent)
                    wanted[key] = wanted.get(key, nothing(space)) | part.region
            captured = unite([nothing(space), *wanted.values()])
            if not is_planned:
                parts = divide(space, live, captured, marks_matter=False).parts
                yield from self._check_parts(family, parts, wanted, judge)
                if self._answers:
                    self._warn_of(family, self._answers.by_rules(self._plan, live, parts, likely - captured, self._is_foreign))
            if copying:
                self._warn_of(family, list_copied(divide(space, copying, captured).parts))
            if space.direction == OUTBOUND:
                yield from self._diverted(family, captured, staying, added)

    def _check_parts(
        self, family: Family, parts: Iterable[Part], wanted: Mapping[tuple[int, bool], Region], judge: Judge
    ) -> Iterator[Difference]:
        found: dict[tuple[str, RuleHit | None, str], Region] = {}
        for part in parts:
            as_planned = wanted.get((part.condition.redirect_port, part.condition.transparent))
            region = part.region - as_planned if as_planned and part.verdict == CAPTURED else part.region
            if region:
                responsible = judge.find_culprit(part, region)
                verdict = AT_WORST_DROPPED if part.at_worst_dropped else part.verdict
                key = (verdict, responsible, "" if responsible else part.reason)
                found[key] = found.get(key, nothing(region.space)) | region
        for (verdict, responsible, reason), region in found.items():
            others = region if verdict in (DROPPED, AT_WORST_DROPPED) else region - self._own_marks(family, region.space)
            if others:
                yield from self._describe(family, verdict, responsible, reason, others)
            else:
                self._warn_of_marks(family, responsible, region)

    def _own_marks(self, family: Family, space: Space) -> Region:
        """Packets that begin with a mark that the plan gives or asks for."""
        found = [marked(space, Dim.MARK, value & mask, mask) for value, mask in marks_of(self._plan, family)]
        return unite([nothing(space), *found])

    def _warn_of_marks(self, family: Family, responsible: RuleHit | None, region: Region) -> None:
        place = escape(self._locate(family, responsible)[1]) if responsible else "routing"
        self._warnings.append(
            f"{family.name}: {place}: packets that begin with a mark of netinit's own escape there, {_give_example(region)}; "
            "only a process with CAP_NET_ADMIN or CAP_NET_RAW can send them"
        )

    def _warn_of(self, family: Family, found: Iterable[tuple[RuleHit, str, Region]]) -> None:
        """Warn of what rules do to packets."""
        regions: dict[tuple[str, str, str], Region] = {}
        for hit, effect, region in found:
            key = (self._locate(family, hit)[1], escape(shorten(hit.rules[0].text, MAX_RULE_LENGTH)), effect)
            regions[key] = regions.get(key, nothing(region.space)) | region
        for (where, text, effect), region in regions.items():
            self._warnings.append(f"{family.name}: {escape(where)} `{text}` {effect}, {_give_example(region)}")

    def _locate(self, family: Family, hit: RuleHit) -> tuple[str, str]:
        """The table of a rule, with its backend, and the whole place of the rule."""
        is_foreign = any(one.table == hit.table for one in self._kernel.foreign[family])
        place = hit.table if is_foreign else f"{hit.source or self._source} table {hit.table}"
        rule = hit.rules[0]
        return place, f"{place}, chain {hit.chain}, rule {rule.number}" + (f" (handle {rule.handle})" if rule.handle else "")

    def _is_foreign(self, hit: RuleHit) -> bool:
        native = self._tables == TABLES_OF_OUR_OWN and hit.source in ("", self._source) and hit.table in TABLES_OF_THE_KERNEL
        return not (native or is_ours(hit.rules[0]))

    def _describe(
        self, family: Family, verdict: str, responsible: RuleHit | None, reason: str, region: Region
    ) -> Iterator[Difference]:
        example, may = _give_example(region), verdict == AT_WORST_DROPPED
        verdict = DROPPED if may else verdict
        if responsible is None:
            if verdict == DROPPED:
                what = "packets that the plan captures may be dropped" if may else "packets that the plan captures are dropped"
                self._warnings.append(f"{family.name}: {what}: {reason}, {example}")
            elif reason or not self._has_differences:
                purpose = f"{reason or 'no rule captures these packets'}, {example}"
                yield Difference(kind=ESCAPING, where=family.name, rule="", purpose=purpose, origin=FOREIGN)
            return
        rule = responsible.rules[0]
        chain = responsible.chain
        shadow = None
        if all(one.table != responsible.table for one in self._kernel.foreign[family]):
            shadow = self._shadows.get((family.name, responsible.table, chain, rule.number))
            if rule.bare_text == DOCKER_RULE or (chain in OWNED_CHAINS and (family.name, responsible.table, chain) in self._listed):
                return
        place, where = self._locate(family, responsible)
        text = escape(shorten(rule.text, MAX_RULE_LENGTH))
        if verdict == DROPPED and (shadow is None or isinstance(rule.rule.target, Drop | Reject)):
            what = "may drop packets that the plan captures" if may else "drops packets that the plan captures"
            if not isinstance(rule.rule.target, Drop | Reject):
                what = f"{'may lead' if may else 'leads'} to the loss of packets that the plan captures"
            self._warnings.append(f"{family.name}: {escape(where)} `{text}` {what}, {example}")
            return
        effect = EFFECTS.get(verdict, "captured packets escape there")
        if shadow:
            found = self._effective.setdefault((family.name, responsible.table, chain, rule.number), {})
            found.setdefault(verdict, shadow.replace(purpose=f"precedes netinit's rules: {effect}, {example}"))
            return
        yield Difference(
            kind=ESCAPING, where=family.name, table=place, chain=chain, number=rule.number, rule=rule.text,
            purpose=f"{where}: {effect}, {example}", origin=FOREIGN,
        )  # fmt: skip

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

    # ---- routes ------------------------------------------------------------------------------------------------------

    def _diverted(self, family: Family, captured: Region, routes: Iterable[TableRoute], added: Iterable[int]) -> Iterator[Difference]:
        own = [Network((family.version, address, family.bits)) for address in added]
        ways = [(network, f"address {network} dev lo", "a foreign address") for network in own]
        for route in routes:
            network = Network((family.version, *route.destination))
            word = "local " if route.kind == host.DELIVERED_HERE else ""
            ways.append((network, f"{word}{network} dev lo table {route.table}", "a foreign route"))
        for network, what, origin in ways:
            if taken := captured & within(captured.space, Dim.DESTINATION, intervals_of([network])):
                yield Difference(
                    kind=ESCAPING, where=family.name, table=ROUTING, rule=what, origin=origin,
                    purpose=f"connections there stay in the pod and are not captured, {_give_example(taken)}",
                )  # fmt: skip


def _list_own_tables(plan: Plan, backend: str) -> dict[tuple[int, str], Collection[str]]:
    """Return the chains of each nf_tables table of the plan, by family and name."""
    tables = BACKENDS[backend].tables
    if tables == TABLES_OF_OUR_OWN:
        return {(INET, f"{plan.nft_prefix}{table.name}"): () for table in plan.tables}
    found: dict[tuple[int, str], Collection[str]] = {}
    for family in plan.families if tables == NF_TABLES else ():
        found |= {(family.number, table): chains for table, chains in write_plan(plan, family).items()}
    return found


def _give_example(region: Region) -> str:
    """A packet of the region, with everything that makes it one."""
    packet, around = example_of(region)
    return f"for example {format_example(packet, around, with_source_port=is_restricted(region, Dim.SOURCE_PORT))}"


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
