"""Moves packet sets through chains: each rule takes the packets that it matches, and its target acts on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby, permutations

from netinit.base.errors import TooManyPartsError
from netinit.base.sanitize import MAX_RULE_LENGTH, shorten
from netinit.rules.model import NAT
from netinit.rules.packet_interfaces import Verdict
from netinit.rules.targets import ACCEPTED, BACK, GO_ON, Accept, Return, Target
from netinit.simulate.condition import OWN, Condition, InitialState, TargetEffects
from netinit.simulate.one_packet import MAX_ORDERED_CHAINS
from netinit.simulate.ruleset import ACCEPT, EARLY, HookedChain, HookStage, LoadedChain, LoadedRule, RuleHit
from netinit.simulate.symbolic.diagram import MAX_WORK
from netinit.simulate.symbolic.match_sets import Choice, choose, doubtful
from netinit.simulate.symbolic.partition import ENDS, Part, Path
from netinit.simulate.symbolic.regions import Region, nothing, unite
from netinit.simulate.symbolic.space import Space
from netinit.simulate.trace import DROPPED, UNKNOWN, explain_dispute

MAX_GROUPS = 20_000  # in transit at the same time; bounds time and memory
PASSED = ""  # the fate of packets in transit
STEPS_OF_A_RULE = 10  # what meeting one takes beside its sets
MAX_SOURCES = 8  # that packets are translated to and distinguished by
MAX_DOUBTS = 4  # uncertain rules on one path: at most 16 ends for each packet
Groups = dict[tuple[Condition, Path], Region]
Run = tuple[LoadedRule, ...]


@dataclass(frozen=True, slots=True)
class _ChainFrame:
    """A chain being traversed, and the chains that called it."""

    hooked: HookedChain
    chain: LoadedChain
    above: tuple[str, ...]


Results = dict[Verdict, Groups]
"""Packets that go on with the next rule, are back at the caller, or are accepted by the table."""


def _join(into: Results, more: Results) -> None:
    for verdict, groups in more.items():
        join_groups(into[verdict], groups)


def join_groups(into: Groups, more: Groups) -> None:
    """Merge packets with the same condition and path. Raises TooManyPartsError."""
    for key, region in more.items():
        add_group(into, key, region)


def add_group(into: Groups, key: tuple[Condition, Path], region: Region) -> None:
    """Add packets to those with the same condition and path. Raises TooManyPartsError."""
    known = into.get(key)
    into[key] = region if known is None else known | region
    if len(into) > MAX_GROUPS:
        raise TooManyPartsError(
            f"these rules send the traffic more than {MAX_GROUPS} ways at once; ask for single connections (netinit explain)"
        )


class Walker:
    """Traverses the chains of one ruleset; `ended` collects the packets whose path is over.

    Packets go both ways at a rule that may match, may end several times, and are in `doubts` with that rule. Without
    `keeps_paths` a path has doubtful rules alone, so that packets of one condition are one group, however they came there.
    """

    def __init__(
        self, space: Space, is_proxy: Callable[[int], bool], marks_for_nobody: Callable[[Target], bool], *, keeps_paths: bool
    ) -> None:
        self.ended: list[Part] = []
        self._keeps_paths = keeps_paths
        self.doubts: list[Part] = []
        self._space = space
        self._is_proxy = is_proxy
        self._marks_for_nobody = marks_for_nobody
        self._choices: dict[tuple[int, int, Condition], Choice] = {}  # by run, and the part of the condition that it can see
        self._passages: dict[tuple[str, int, int, bool], RuleHit] = {}
        self._splits: dict[RuleHit, int] = {}  # how often a rule has made two groups of one
        self._runs: dict[int, list[Run]] = {}  # by chain
        self._visible = cache(_visible)
        self._sources: set[int | InitialState | None] = set()  # that rules translate packets to

    def ask(self, stage: HookStage, groups: Groups) -> Groups:
        """Send packets through a stage's chains and return those that pass."""
        rounds = [[_ChainFrame(one, one.chain, ()) for one in chains] for chains in stage.rounds]
        steps = [(partial(self._ask_round, frames), stage.name == NAT) for frames in rounds]
        through: Groups = {}
        for (condition, path), region in groups.items():
            join_groups(through, _take_steps(steps, Part(region, PASSED, condition, path)))
        return through

    def _ask_round(self, frames: list[_ChainFrame], group: Part) -> Groups:
        """Send packets through chains of equal priority; return those that pass."""
        if len(frames) == 1 or not any(one.hooked.changes_packets for one in frames):
            return self._ask_each(frames, group)
        if len(frames) > MAX_ORDERED_CHAINS:
            raise TooManyPartsError(f"more than {MAX_ORDERED_CHAINS} chains of one priority change packets at {frames[0].hooked.hook}")
        return self._ask_in_any_order(frames, group)

    def _ask_in_any_order(self, frames: list[_ChainFrame], group: Part) -> Groups:
        """Try each order; packets whose fate depends on it are UNKNOWN."""
        first, *others = [self._try(order, group) for order in permutations(frames)]
        reason = explain_dispute([one.hooked.source or one.hooked.table for one in frames])
        through: Groups = {}
        disputed = empty = nothing(self._space)
        for one in first:
            agreed, path, condition, fate = one.region, one.path, one.condition, one.fate
            for outcomes in others if fate != UNKNOWN else ():
                agreed &= unite([empty, *[other.region for other in outcomes if _alike(other, one)]])
                if fate == PASSED:
                    changed = [other for other in outcomes if other.fate == PASSED and not _alike(other, one)]
                    path = next((other.path for other in changed if other.region & one.region), path)
            if fate != PASSED:
                self._finish(replace(one, region=agreed))
            elif agreed:
                add_group(through, (condition, one.path), agreed)
            disputed |= one.region if fate == UNKNOWN else one.region - agreed
            self._finish(Part(one.region - agreed, UNKNOWN, condition, path, reason))
        for one in [one for outcomes in others for one in outcomes]:  # of other orders only, as matches are uncertain
            extra = one.region - unite([empty, *[each.region for each in first if _alike(each, one)]]) - disputed
            disputed |= extra
            self._finish(Part(extra, UNKNOWN, one.condition, one.path, reason))
        return through

    def _finish(self, ended: Part) -> None:
        if ended.region:
            self.ended.append(ended)

    def _try(self, order: Sequence[_ChainFrame], group: Part) -> list[Part]:
        """The ended packets and those that pass if the chains run in this order."""
        before = len(self.ended)
        through = self._ask_each(order, group)
        ended, self.ended[before:] = self.ended[before:], []
        return ended + [Part(region, PASSED, condition, path) for (condition, path), region in through.items()]

    def _ask_each(self, frames: Sequence[_ChainFrame], group: Part) -> Groups:
        return _take_steps([(partial(self._ask_one, frame), frame.hooked.effect == NAT) for frame in frames], group)

    def _ask_one(self, frame: _ChainFrame, group: Part) -> Groups:
        through: Groups = {}
        place, now, region, path = frame.hooked.place, group.condition, group.region, group.path
        if frame.hooked.turn == EARLY:
            reason = f"the kernel does not show whether {frame.hooked.name} comes first at {frame.hooked.hook}"
            self.doubts.append(Part(region, UNKNOWN, now, path, reason))
            add_group(through, (now, path), region)
            now = now.replace(early=(*now.early, place))
        elif place in now.early:
            return {(now.replace(early=tuple([one for one in now.early if one != place])), path): region}
        results = self._walk(frame, Part(region, PASSED, now, path))
        join_groups(through, results[ACCEPTED])
        if frame.chain.policy == ACCEPT:
            join_groups(through, results[BACK])
            return through
        fate = DROPPED if frame.chain.policy == "DROP" else UNKNOWN
        for (now, so_far), left in results[BACK].items():
            self.ended.append(Part(left, fate, now, so_far, frame.hooked.policy_reason))
        return through

    def _walk(self, place: _ChainFrame, group: Part) -> Results:
        """Traverse a chain; packets that return from a called chain are merged."""
        whole = self._meet_each(place, self._split(place), group)
        join_groups(whole[BACK], whole[GO_ON])
        return whole

    def _meet_each(self, place: _ChainFrame, runs: Iterable[Run], group: Part) -> Results:
        whole = {GO_ON: {(group.condition, group.path): group.region}, BACK: {}, ACCEPTED: {}}
        for run in runs:
            groups, whole[GO_ON] = whole[GO_ON], {}
            for (now, so_far), left in groups.items():
                self._meet(place, run, Part(left, PASSED, now, so_far), whole)
        return whole

    def _split(self, place: _ChainFrame) -> list[Run]:
        """The rules that act, in order; neighbours that differ in matches alone form a run, if none changes what later ones see."""
        found = self._runs.get(id(place.chain))
        if found is None:
            found = self._runs[id(place.chain)] = []
            for _, rules in groupby(place.chain.rules, key=lambda one: (one.rule.target, one.purpose, one.origin, one.comment)):
                run = tuple(rules)
                if run[0].rule.target.only_observes or self._marks_for_nobody(run[0].rule.target):
                    continue
                found += [run] if len(run) > 1 and place.hooked.is_final(run[0].rule.target) else [(one,) for one in run]
        return found

    def _meet(self, place: _ChainFrame, run: Run, group: Part, results: Results) -> None:
        """Apply a run of rules, one by one if their matches are uncertain, and add to `results`."""
        self._count(place, run)
        choice, condition, path = self._choose(run, group.condition), group.condition, group.path
        if len(run) > 1 and not choice.is_exact:
            _join(results, self._meet_each(place, [(loaded,) for loaded in run], group))
            return
        taken, left = group.region.split(choice.certain)
        doubt = nothing(self._space) if choice.is_exact else group.region & (choice.possible - choice.certain)
        is_over = bool(doubt) and sum(one.doubtful for one in path) >= MAX_DOUBTS
        if stays := left - doubt if is_over else left:
            add_group(results[GO_ON], (condition, path), stays)
        if doubt:
            self._doubt(place, run, replace(group, region=doubt), results, is_over=is_over)
        if taken:
            hit = self._meeting(place, run)
            if left and not (run[0].rule.target.calls or place.hooked.is_final(run[0].rule.target)):
                self._splits[hit] = self._splits.get(hit, 0) + 1
            self._act(place, hit, Part(taken, PASSED, condition, (*path, hit) if self._keeps_paths else path), results)

    def _count(self, place: _ChainFrame, run: Run) -> None:
        """Bound the work of a proof, so that foreign rules cannot take hours. Raises TooManyPartsError."""
        diagram = self._space.diagram
        diagram.work += STEPS_OF_A_RULE
        if diagram.work > MAX_WORK:
            why = max(self._splits, key=lambda one: self._splits[one], default=self._meeting(place, run))
            end = "ask for single connections (netinit explain)"
            raise TooManyPartsError(f"the proof takes more than {MAX_WORK:,} steps, most of all because of {why}; {end}")

    def _meeting(self, place: _ChainFrame, rules: Run, *, doubtful: bool = False) -> RuleHit:
        return self._passages.setdefault(
            (place.hooked.hook, id(rules[0]), len(rules), doubtful),
            RuleHit(place.hooked.hook, place.hooked.table, place.chain.name, rules, place.hooked.source, doubtful),
        )

    def _doubt(self, place: _ChainFrame, rules: Run, group: Part, results: Results, *, is_over: bool) -> None:
        """Follow packets both ways at a rule that may match them; after MAX_DOUBTS such rules (`is_over`) they end as UNKNOWN."""
        hit, doubt = self._meeting(place, rules, doubtful=True), group.region
        unknown = [match.describe() for match in doubtful(self._space, group.condition, hit.matched, doubt)]
        reason = f"{hit}: it cannot be known here whether {shorten(' and '.join(unknown), MAX_RULE_LENGTH)}"
        undecided = Part(doubt, UNKNOWN, group.condition, (*group.path, hit), reason, by_rule=True)
        if is_over:
            self.ended.append(undecided)
            return
        self.doubts.append(undecided)
        # The rule is not on the path, so that packets let go and packets not matched merge again.
        path = group.path if isinstance(hit.matched.target, Accept | Return) else (*group.path, hit)
        self._act(place, hit, Part(doubt, PASSED, group.condition, path), results)

    def _act(self, place: _ChainFrame, hit: RuleHit, group: Part, results: Results) -> None:
        """Apply a target to the packets that its rules take, and add to `results`."""
        actor = TargetEffects(self._space.around, group.condition, place.hooked.effect, self._is_proxy)
        verdict = hit.matched.target.act(actor)
        now = self._keep_source(group.condition, actor.now)
        if actor.called:
            join_groups(results[verdict], self._call(place, actor.called, hit, group, results))
        elif actor.fate:
            reason = f"{hit}: {hit.matched.target.unfollowed}" if actor.fate == UNKNOWN else str(hit)
            self.ended.append(Part(group.region, actor.fate, now, group.path, reason, by_rule=True))
        else:
            add_group(results[verdict], (now, group.path), group.region)

    def _keep_source(self, before: Condition, now: Condition) -> Condition:
        """The condition; a source that it was translated to is unknown where there are many, which would split packets further."""
        if now.source in (before.source, OWN):
            return now
        self._sources.add(now.source)
        return now if len(self._sources) <= MAX_SOURCES else now.replace(source=None)

    def _call(self, place: _ChainFrame, chain: str, hit: RuleHit, group: Part, results: Results) -> Groups:
        """Send packets through the chain that a rule calls, and return those that come back."""
        called, why = place.hooked.find_called(chain, place.above)
        path = group.path
        if called is None:
            self.ended.append(Part(group.region, UNKNOWN, group.condition, path, f"{hit}: {why}", by_rule=True))
            return {}
        above = (*place.above, place.chain.name)
        done = self._walk(_ChainFrame(place.hooked, called, above), group)
        join_groups(results[ACCEPTED], done[ACCEPTED])
        back: Groups = {}
        before = path[:-1] if path and path[-1] is hit else path
        for (now, so_far), left in done[BACK].items():  # a chain without hits is not on the path
            add_group(back, (now, before if so_far == path and now == group.condition else so_far), left)
        return back

    def _choose(self, run: Run, condition: Condition) -> Choice:
        """Packets that any of the rules takes; those that two rules send to one chain come back alike from both calls."""
        key = (id(run[0]), len(run), self._visible(condition))
        found = self._choices.get(key)
        if found is None:
            each = [choose(self._space, condition, loaded.rule) for loaded in run]
            certain = unite([one.certain for one in each])
            found = Choice(certain, certain if all(one.is_exact for one in each) else unite([one.possible for one in each]))
            self._choices[key] = found
        return found


def _take_steps(steps: Iterable[tuple[Callable[[Part], Groups], bool]], group: Part) -> Groups:
    """Packets that pass each step, which may be of NAT: once it has translated them, they skip its other steps."""
    waiting: Groups = {(group.condition, group.path): group.region}
    translated: Groups = {}
    for step, is_nat in steps:
        came, waiting = waiting, {}
        for (condition, path), region in came.items():
            for (now, so_far), left in step(Part(region, PASSED, condition, path)).items():
                done = is_nat and now.translation != group.condition.translation
                add_group(translated if done else waiting, (now, so_far), left)
    join_groups(waiting, translated)
    return waiting


def _alike(one: Part, other: Part) -> bool:
    """Whether two outcomes of a round are equivalent; dropped and refused packets are gone."""
    fates = (one.fate, other.fate)
    if fates == (PASSED, PASSED):
        return one.condition == other.condition
    return fates[0] == fates[1] or all(fate in ENDS for fate in fates)


def _visible(condition: Condition) -> Condition:
    """The part of a condition that rules can see."""
    return condition.replace(
        connection=False, decided=False, source_decided=False, redirected=False, redirect_port=0,
        transparent=False, translated=False, policy_routed=False, zone=0, reply_zone=0, zone_decided=False, early=(),
    )  # fmt: skip
