"""Proves whether foreign rules and routes leave the packets that a plan captures to the plan: loads the symbolic engine.

netinit.live.in_force asks only where packets meet more than the planned rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netinit.base.net import FULL_MASK, Family, Network
from netinit.base.sanitize import MAX_RULE_LENGTH, escape, shorten
from netinit.base.snapshot import Snapshot
from netinit.live import host
from netinit.live.copies import list_copied, stop_at_copies
from netinit.live.culprits import Judge, own_marks
from netinit.options import BACKENDS, TABLES_OF_OUR_OWN
from netinit.rules.foreign_targets import socket_target
from netinit.rules.iptables.keys import DOCKER_RULE
from netinit.rules.model import ESCAPING, FOREIGN, OWNED_CHAINS, ROUTING, Difference, Plan
from netinit.rules.packet_inputs import LOOPBACK_DEVICE, Surroundings
from netinit.rules.targets import Drop, Reject
from netinit.simulate.endpoints import format_example
from netinit.simulate.examples import example_of, needs_source_port
from netinit.simulate.hooks import TABLES_OF_THE_KERNEL
from netinit.simulate.ruleset import HookedChain, RuleHit, Ruleset, is_ours
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import local, make_spaces, martians, through_devices
from netinit.simulate.symbolic.partition import Part
from netinit.simulate.symbolic.regions import Region, in_states, marked, nothing, unite, unmarked, within
from netinit.simulate.symbolic.space import OUTBOUND, CtState, Dim, intervals_of
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED, UNKNOWN

if TYPE_CHECKING:
    from netinit.live.lost_answers import LostAnswers

NETKIT = "netkit"  # kind of a device
MAX_DEVICES = 32  # that a proof distinguishes by name
WORSE = (DROPPED, UNKNOWN, CAPTURED, DIRECT)  # ends of packets that a foreign rule diverts; CAPTURED: at another port
AT_WORST_DROPPED = "captured or dropped"  # of packets of which more is not known
EFFECTS = {  # of a foreign rule, by the verdict on packets that the plan captures
    UNKNOWN: "it may divert packets that the plan captures", DROPPED: "captured packets do not reach the proxy, and are dropped",
}  # fmt: skip

Place = tuple[str, str, str, int]  # of a rule: family, table, chain, number
Way = tuple[Network, str, str]  # of connections that stay in the pod: where they go, the route or address, and who made it
Deviations = tuple[tuple[Difference, ...], tuple[str, ...]]
"""What keeps a plan from being in force, and warnings."""


@dataclass(eq=False, kw_only=True)
class ForeignProof:
    """The packets of one family that a plan captures, under its rules alone (`planned`) and under everything (`live`).

    `listed`: places where the rules differ, which are reported already; `has_differences`: whether anything is. `shadows`: foreign
    rules before ours in a chain, by place. `foreign`: base chains of others. `answers`: warn of lost ones too.
    """

    snapshot: Snapshot
    plan: Plan
    source: str
    family: Family
    planned: Ruleset
    live: Ruleset
    foreign: Sequence[HookedChain]
    listed: Collection[tuple[str, str, str]]
    shadows: Mapping[Place, Difference]
    has_differences: bool
    answers: LostAnswers | None

    def __post_init__(self) -> None:
        self._judge = Judge(self.planned, self.live, self._is_foreign)
        self._effective: dict[Place, dict[str, Difference]] = {}  # shadows that have an effect, by the verdict on packets
        self._warnings: list[str] = []

    def find(self, around: Surroundings, ways: Sequence[Way], *, rules_are_planned: bool) -> Deviations:
        """Find what keeps captured packets from the proxy, and warnings; `ways` of connections stay in the pod by no rule of ours.

        Raises TooManyPartsError.
        """
        found: list[Difference] = []
        free = not host.is_simple(self.snapshot, self.family)
        copying = stop_at_copies(self.live)
        devices = frozenset([link.name for link in self.snapshot.links]) - {LOOPBACK_DEVICE}
        named = devices if len(devices) <= MAX_DEVICES else frozenset()
        targets = [one.rule.target for chain in self.planned.list_chains() for one in chain.rules]
        accepting = {one.port for one in map(socket_target, targets) if one}  # connections with both addresses, or redirected
        rulesets = [{self.family: self.planned}, {self.family: self.live}]
        for space in make_spaces(rulesets, {self.family: around}, free=free, interfaces=named):
            likely = in_states(space, (CtState.NEW,)) & through_devices(space, named) - martians(space)
            # an ordinary socket sends from an address of its host
            if space.direction == OUTBOUND or not around.forwards:
                likely &= local(space, Dim.SOURCE if space.direction == OUTBOUND else Dim.DESTINATION)
            # The kernel clears marks on entry to a network namespace (skb_scrub_packet), but netkit devices may keep them.
            keeps_marks = any(link.kind == NETKIT for link in self.snapshot.links)
            may_be_marked = space.direction == OUTBOUND or around.forwards or keeps_marks
            likely &= marked(space, Dim.CONNECTION_MARK, 0, FULL_MASK) if may_be_marked else unmarked(space)
            wanted: dict[tuple[int, bool], Region] = {}
            for part in divide(space, self.planned, likely, marks_matter=False).parts:
                port, transparent = part.condition.redirect_port, part.condition.transparent
                for key in {(port, transparent), (port, port in accepting)} if part.verdict == CAPTURED else ():
                    wanted[key] = wanted.get(key, nothing(space)) | part.region
            captured = unite([nothing(space), *wanted.values()])
            if not rules_are_planned:
                parts = divide(space, self.live, captured, marks_matter=False).parts
                found += self._check_parts(parts, wanted)
                if self.answers:
                    self._warn_of(self.answers.by_rules(self.plan, self.live, parts, likely - captured, self._is_foreign))
            if copying:
                self._warn_of(list_copied(divide(space, copying, captured).parts))
            if space.direction == OUTBOUND:
                found += self._diverted(captured, ways)
        found += [max(by_verdict.items(), key=lambda one: WORSE.index(one[0]))[1] for by_verdict in self._effective.values()]
        return tuple(found), tuple(self._warnings)

    def _check_parts(self, parts: Iterable[Part], wanted: Mapping[tuple[int, bool], Region]) -> Iterator[Difference]:
        found: dict[tuple[str, RuleHit | None, str], Region] = {}
        for part in parts:
            as_planned = wanted.get((part.condition.redirect_port, part.condition.transparent))
            region = part.region - as_planned if as_planned and part.verdict == CAPTURED else part.region
            if region:
                verdict = AT_WORST_DROPPED if part.at_worst_dropped else part.verdict
                for responsible, taken in self._judge.find_culprits(part, region):
                    key = (verdict, responsible, "" if responsible else part.reason)
                    found[key] = found.get(key, nothing(region.space)) | taken
        for (verdict, responsible, reason), region in found.items():
            others = region if verdict in (DROPPED, AT_WORST_DROPPED) else region - own_marks(self.plan, region.space)
            if others:
                yield from self._describe(verdict, responsible, reason, others)
            else:
                self._warn_of_marks(responsible, region)

    def _warn_of_marks(self, responsible: RuleHit | None, region: Region) -> None:
        place = escape(self._locate(responsible)[1]) if responsible else "routing"
        self._warnings.append(
            f"{self.family.name}: {place}: packets that begin with a mark of netinit's own escape there, {_give_example(region)}; "
            "only a process with CAP_NET_ADMIN or CAP_NET_RAW can send them"
        )

    def _warn_of(self, found: Iterable[tuple[RuleHit, str, Region]]) -> None:
        """Warn of what rules do to packets."""
        regions: dict[tuple[str, str, str], Region] = {}
        for hit, effect, region in found:
            key = (self._locate(hit)[1], escape(shorten(hit.rules[0].text, MAX_RULE_LENGTH)), effect)
            regions[key] = regions.get(key, nothing(region.space)) | region
        for (where, text, effect), region in regions.items():
            self._warnings.append(f"{self.family.name}: {escape(where)} `{text}` {effect}, {_give_example(region)}")

    def _locate(self, hit: RuleHit) -> tuple[str, str]:
        """The table of a rule, with its backend, and the whole place of the rule."""
        is_foreign = any(one.table == hit.table for one in self.foreign)
        place = hit.table if is_foreign else f"{hit.source or self.source} table {hit.table}"
        rule = hit.rules[0]
        last = f" or one of the next up to rule {hit.rules[-1].number}" if len(hit.rules) > 1 else ""
        return place, f"{place}, chain {hit.chain}, rule {rule.number}" + (f" (handle {rule.handle})" if rule.handle else "") + last

    def _is_foreign(self, hit: RuleHit) -> bool:
        is_native = BACKENDS[self.source].tables == TABLES_OF_OUR_OWN and hit.source in {"", self.source}
        return not ((is_native and hit.table in TABLES_OF_THE_KERNEL) or is_ours(hit.rules[0]))

    def _describe(self, verdict: str, responsible: RuleHit | None, reason: str, region: Region) -> Iterator[Difference]:
        example, may = _give_example(region), verdict == AT_WORST_DROPPED
        verdict = DROPPED if may else verdict
        if responsible is None:
            if verdict == DROPPED:
                what = "packets that the plan captures may be dropped" if may else "packets that the plan captures are dropped"
                self._warnings.append(f"{self.family.name}: {what}: {reason}, {example}")
            elif reason or not self.has_differences:
                purpose = f"{reason or 'no rule captures these packets'}, {example}"
                yield Difference(kind=ESCAPING, where=self.family.name, rule="", purpose=purpose, origin=FOREIGN)
            return
        rule = responsible.rules[0]
        chain = responsible.chain
        shadow = None
        if all(one.table != responsible.table for one in self.foreign):
            shadow = self.shadows.get((self.family.name, responsible.table, chain, rule.number))
            is_listed = chain in OWNED_CHAINS and (self.family.name, responsible.table, chain) in self.listed
            if rule.bare_text == DOCKER_RULE or is_listed:
                return
        place, where = self._locate(responsible)
        text = escape(shorten(rule.text, MAX_RULE_LENGTH))
        if verdict == DROPPED and (shadow is None or isinstance(rule.rule.target, Drop | Reject)):
            what = "may drop packets that the plan captures" if may else "drops packets that the plan captures"
            if not isinstance(rule.rule.target, Drop | Reject):
                what = f"{'may lead' if may else 'leads'} to the loss of packets that the plan captures"
            self._warnings.append(f"{self.family.name}: {escape(where)} `{text}` {what}, {example}")
            return
        effect = EFFECTS.get(verdict, "captured packets escape there")
        if shadow:
            found = self._effective.setdefault((self.family.name, responsible.table, chain, rule.number), {})
            found.setdefault(verdict, shadow.replace(purpose=f"precedes netinit's rules: {effect}, {example}"))
            return
        yield Difference(
            kind=ESCAPING, where=self.family.name, table=place, chain=chain, number=rule.number, rule=rule.text,
            purpose=f"{where}: {effect}, {example}", origin=FOREIGN,
        )  # fmt: skip

    def _diverted(self, captured: Region, ways: Iterable[Way]) -> Iterator[Difference]:
        for network, what, origin in ways:
            if taken := captured & within(captured.space, Dim.DESTINATION, intervals_of([network])):
                yield Difference(
                    kind=ESCAPING, where=self.family.name, table=ROUTING, rule=what, origin=origin,
                    purpose=f"connections there stay in the pod and are not captured, {_give_example(taken)}",
                )  # fmt: skip


def _give_example(region: Region) -> str:
    """A packet of the region, with everything that makes it one."""
    packet, around = example_of(region)
    return f"for example {format_example(packet, around, with_source_port=needs_source_port(region))}"
