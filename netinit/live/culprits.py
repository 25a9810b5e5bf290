"""Which foreign rule keeps packets from the proxy: the one without which they are captured.

A path has many foreign rules, most of which do nothing about it: they mark, masquerade or let go. So an example packet is
simulated again with each of them left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from netinit.base.net import FULL_MASK, Family
from netinit.rules.foreign_targets import Several
from netinit.rules.marking_targets import RestoreMark, SaveMark, SetMark
from netinit.rules.matches.context import Mark
from netinit.rules.model import Plan
from netinit.rules.packet_inputs import LocalMarks, Packet, Surroundings
from netinit.rules.targets import Accept, Drop, Jump, Reject, Return, Target
from netinit.simulate.condition import KEPT
from netinit.simulate.engine import list_met, simulate
from netinit.simulate.examples import example_of
from netinit.simulate.ruleset import HookedChain, LoadedChain, RuleHit, Ruleset, map_chains
from netinit.simulate.symbolic.match_sets import MAX_NAMED, choose, split_by_rule
from netinit.simulate.symbolic.partition import Part
from netinit.simulate.symbolic.regions import Region, marked, nothing, unite
from netinit.simulate.symbolic.space import Dim, Space
from netinit.simulate.trace import CAPTURED, DROPPED, Trace

MAX_SEARCHES = 200  # of one proof: a search simulates some ten packets, which takes 5 ms
MAX_TRIED = 24  # rules that are left out for one packet
RANKS: tuple[tuple[type[Target], ...], ...] = ((Accept, Return), (Drop, Reject), (SetMark, SaveMark, RestoreMark))
"""What is suspected last, in this order; first comes what acts otherwise: it rewrites, redirects or changes tracking."""


class Judge:
    """Names the foreign rule that is to blame for a part of the packets; `is_foreign` tells foreign rules."""

    def __init__(self, planned: Ruleset, live: Ruleset, is_foreign: Callable[[RuleHit], bool]) -> None:
        self._planned = planned
        self._live = live
        self._is_foreign = is_foreign
        self._searches = 0
        self._hits: dict[tuple[object, ...], RuleHit] = {}  # by place: equal ones are one object
        self._known: dict[tuple[object, ...], RuleHit | None] = {}

    def find_culprits(self, part: Part, region: Region) -> Iterator[tuple[RuleHit | None, Region]]:
        """Yield the foreign rules that ended the packets, or without which they are captured as planned, each with its packets.

        None: no rule is to blame.
        """
        culprit = self._find_culprit(part, region)
        if culprit and len(culprit.rules) > 1 and culprit is part.path[-1] and part.by_rule:
            for hit, taken in split_by_rule(culprit, part.condition, region):
                place = (hit.hook, hit.table, hit.chain, hit.rules[0].number, hit.source, len(hit.rules))
                yield self._hits.setdefault(place, hit), taken
            return
        met = next((one for one in part.path if culprit and culprit.rules[0] in one.rules), culprit)
        before = part.condition.replace(destination=KEPT, destination_port=KEPT, source=KEPT, source_port=KEPT)
        for _ in range(MAX_NAMED if met and len(met.rules) > 1 else 0):
            taken = region & choose(region.space, before, culprit.matched).possible if culprit else region
            following = self._search([], left, proved=True) if taken and (left := region - taken) else None
            if following is None:
                break
            yield culprit, taken
            culprit, region = following, left
        yield culprit, region

    def _find_culprit(self, part: Part, region: Region) -> RuleHit | None:
        foreign = [one for one in part.path if self._is_foreign(one) and one.rules[0].number]  # 0: the device of a chain
        is_certain = not any(one.doubtful for one in part.path)
        if part.by_rule and is_certain and foreign and part.path[-1] is foreign[-1]:
            return part.path[-1]
        key = (part.path, part.verdict, part.at_worst_dropped, part.reason)
        if key not in self._known:
            lost = part.verdict == DROPPED and not part.by_rule  # by a policy, or as there is no way
            self._known[key] = self._search([] if lost else foreign, region, proved=lost)
        return self._known[key]

    def _search(self, foreign: Sequence[RuleHit], region: Region, *, proved: bool) -> RuleHit | None:
        """The culprit; if none is `proved` to be it, the first suspect where that is enough."""
        self._searches += 1
        suspects: list[RuleHit] = []
        if self._searches <= MAX_SEARCHES:
            packet, around = example_of(region)
            wanted = _end_of(simulate(packet, self._planned, around))
            suspects = self._list_suspects(packet, around)
            for one in suspects[:MAX_TRIED]:
                if _end_of(simulate(packet, leave_out(self._live, one), around)) == wanted:
                    return one
            suspects = [] if proved else suspects
        acting = [one for one in foreign if _acts(one)]
        return next(iter((*suspects, *reversed(acting or foreign))), None)

    def _list_suspects(self, packet: Packet, around: Surroundings) -> list[RuleHit]:
        """Foreign rules that the packet meets, or may meet: what rewrites first, of equal ones the later first."""
        found: dict[RuleHit, None] = {}
        for step in list_met(packet, self._live, around):
            if step.rule and step.rule.number:
                hit = RuleHit(step.hook, step.table, step.chain, (step.rule,), step.source)
                hit = self._hits.setdefault((*step.place, step.source), hit)
                if self._is_foreign(hit) and _acts(hit):
                    found[hit] = None
        later_first = [*found][::-1]
        return sorted(later_first, key=lambda one: _rank(one.matched.target))


def _acts(hit: RuleHit) -> bool:
    return not (isinstance(hit.matched.target, Jump) or hit.matched.target.only_observes)


def _end_of(trace: Trace) -> tuple[object, ...]:
    return (trace.verdict, trace.redirect_port, trace.transparent) if trace.verdict == CAPTURED else (trace.verdict,)


def _rank(target: Target) -> int:
    parts = target.targets if isinstance(target, Several) else (target,)
    return min([next((at for at, kinds in enumerate(RANKS, 1) if isinstance(one, kinds)), 0) for one in parts])


def leave_out(ruleset: Ruleset, culprit: RuleHit) -> Ruleset:
    """The rules without one of them, which may be several of the simulation's, such as one with a verdict map."""
    gone = culprit.rules[0]

    def without(_: str, chain: LoadedChain) -> LoadedChain:
        if all(one is not gone for one in chain.rules):
            return chain
        return replace(chain, rules=tuple([one for one in chain.rules if (one.number, one.handle) != (gone.number, gone.handle)]))

    def without_in(hooked: HookedChain) -> HookedChain:
        chains = {name: without(name, chain) for name, chain in hooked.chains.items()}
        return replace(hooked, chain=without("", hooked.chain), chains=chains)

    others = tuple([replace(one, tables=map_chains(one.tables, without)) for one in ruleset.others])
    foreign = tuple([without_in(one) for one in ruleset.foreign])
    return replace(ruleset, tables=map_chains(ruleset.tables, without), others=others, foreign=foreign)


def own_marks(plan: Plan, space: Space) -> Region:
    """Packets that begin with a mark that the plan gives packets or asks for; only a process that may set marks sends one."""
    return unite([nothing(space), *[marked(space, Dim.MARK, value & mask, mask) for value, mask in marks_of(plan, space.family)]])


def marks_of(plan: Plan, family: Family) -> LocalMarks:
    """The marks that a plan gives packets or asks for, with their masks."""
    found = {(one.mark, one.mask) for one in plan.ip_rules if one.family is family}
    for _, _, rule in plan.walk():
        found |= {(one.value, one.mask) for one in rule.matches if isinstance(one, Mark) and not one.connection}
        if rule.target.whole_mark > 0:
            found.add((rule.target.whole_mark, FULL_MASK))
    return frozenset([(value, mask) for value, mask in found if value])
