"""Derives verdicts and their packet counts from the counters of live rules.

A rule decides if it captures, drops, diverts, or ends the path to a capturing rule. nat sees connections' first
packets, other tables all. What enters a capturing chain and leaves it by no rule is direct; packets that reach no rule
are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from netinit.base.net import Family, covers
from netinit.rules.foreign_targets import DestinationNat, MapNetwork, Queue, UnknownTarget
from netinit.rules.matches import Match
from netinit.rules.matches.context import ConnectionState, Socket
from netinit.rules.matches.packet import Destination, InInterface, Port, Protocol, Source
from netinit.rules.model import BUILTIN_CHAINS, FILTER, INPUT, NAT, OUTPUT, PREROUTING
from netinit.rules.targets import Accept, Drop, Jump, Reject, Return
from netinit.simulate.hooks import FORWARD, STAGES
from netinit.simulate.ruleset import LoadedChain, RuleHit, Ruleset, list_targets
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED, UNKNOWN, cause_of

INBOUND, OUTBOUND, THROUGH = "in", "out", "through"
CONNECTIONS, PACKETS = "connections", "packets"
TCP = Protocol(name="tcp")
NOTHING_CAPTURES = "no rule captures it"
LOOPBACK_TOO = "or it comes back over lo"  # a rule of mangle at PREROUTING counts what NAT redirects at OUTPUT, too
_DIRECTIONS = {PREROUTING: INBOUND, INPUT: INBOUND, OUTPUT: OUTBOUND, FORWARD: THROUGH}
_ORDER = (CAPTURED, DIRECT, DROPPED, UNKNOWN)

Rulesets = Mapping[str, Mapping[Family, Ruleset]]
RulePath = tuple[RuleHit, ...]  # a rule behind the jumps that lead to it from a base chain


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A rule's position: backend, family (empty if shared), table, chain and number from 1."""

    source: str
    family: str
    table: str
    chain: str
    number: int


Counters = Mapping[Place, tuple[str, int | None]]


@dataclass(frozen=True, slots=True)
class Fate:
    """A verdict with its cause: `because` (a purpose, or a quoted foreign rule) and the `option` behind it.

    The count is the sum of the rules at `places` minus those at `less`. Fates are equal whichever rules count them.
    """

    direction: str
    verdict: str
    port: int  # the proxy's port, if captured
    unit: str
    because: str
    option: str = ""
    foreign: bool = False
    places: tuple[Place, ...] = field(default=(), compare=False)
    less: tuple[Place, ...] = field(default=(), compare=False)

    def count(self, counters: Counters) -> int | None:
        """Packets or connections in one reading; None if a rule has no counter."""
        found = [counters[place][1] for place in self.places]
        other = [counters[place][1] for place in self.less]
        if None in found or None in other:
            return None
        return sum(filter(None, found)) - sum(filter(None, other))


def count_rules(rulesets: Rulesets, shared: frozenset[str]) -> dict[Place, tuple[str, int | None]]:
    """Every rule's text and packet counter (None if it has none). `shared`: backends whose families share their rules."""
    return {
        Place(source, "" if source in shared else family.name, table, name, loaded.number): (loaded.text, loaded.packets)
        for source, families in rulesets.items()
        for family, ruleset in families.items()
        for table, chains in ruleset.tables.items()
        for name, chain in chains.items()
        for loaded in chain.rules
    }


def find_fates(rulesets: Rulesets, shared: frozenset[str], origins: Mapping[str, str] | None = None) -> tuple[Fate, ...]:
    """The fates that rules decide: captured, direct, dropped, unknown."""
    found: dict[Fate, tuple[dict[Place, None], dict[Place, None]]] = {}
    for source, families in rulesets.items():
        for family, ruleset in families.items():
            for fate in _Finder(ruleset, source, "" if source in shared else family.name, origins or {}).find():
                places, less = found.setdefault(fate, ({}, {}))
                places.update(dict.fromkeys(fate.places))  # rules shared by both families count once
                less.update(dict.fromkeys(fate.less))
    fates = [replace(fate, places=tuple(places), less=tuple(less)) for fate, (places, less) in found.items()]
    return tuple(sorted(fates, key=lambda fate: (_ORDER.index(fate.verdict), fate.direction)))


class _Finder:
    """Finds the fates that the rules of one family decide."""

    def __init__(self, ruleset: Ruleset, source: str, family: str, origins: Mapping[str, str]) -> None:
        self._tables = ruleset.tables
        self._source, self._family, self._origins = source, family, origins
        self._last = cache(self._find_last)
        self._entered: Counter[Place] = Counter()  # paths that lead over a jump

    def find(self) -> Iterator[Fate]:
        paths: dict[Place, list[RulePath]] = {}
        bases = [(hook, table, self._tables.get(table, {}).get(hook)) for hook in _DIRECTIONS for table in STAGES[hook]]
        for path in [path for hook, table, chain in bases if chain for path in self._walk(hook, table, chain, ())]:
            if self._verdict(path):
                paths.setdefault(self._place(path[-1]), []).append(path)
        leaving: dict[Place, list[tuple[RuleHit, Fate, bool]]] = {}
        refused: dict[str, list[Place]] = {}  # accepted by nat and dropped by filter, by hook
        for decided in paths.values():
            for counted, members, less in self._part(decided):
                fate = self._make(counted, members, less)
                entries = {self._place(path[0]): path[0] for path in members}
                for place, entry in entries.items():
                    leaving.setdefault(place, []).append((entry, fate, len(entries) == 1))
                if fate.verdict == DROPPED and _drops_datagrams(members[0]):
                    refused.setdefault(members[0][-1].hook, []).extend(fate.places)
                if not _of_known_connections(members[0]):
                    yield fate
        yield from self._find_uncaptured(leaving, refused)

    def _find_uncaptured(
        self, leaving: Mapping[Place, list[tuple[RuleHit, Fate, bool]]], refused: Mapping[str, list[Place]]
    ) -> Iterator[Fate]:
        """Traffic that enters a capturing chain, leaves it by no rule and is not rejected later."""
        for place, fates in leaving.items():
            entry = fates[0][0]
            captures = entry.matched.target.calls and self._last(entry.table, entry.chain) == place.number
            captures = captures and not self._leaves_only_loopback(entry)
            if captures and all(alone for _, _, alone in fates):
                comes_back = entry.table != NAT and entry.hook == PREROUTING
                because = f"{NOTHING_CAPTURES}, {LOOPBACK_TOO}" if comes_back else NOTHING_CAPTURES
                others = [] if entry.table != NAT or TCP in entry.matched.matches else refused.get(entry.hook, [])
                yield Fate(
                    _DIRECTIONS[entry.hook], DIRECT, 0, CONNECTIONS if entry.table == NAT else PACKETS, because,
                    places=(place, *[one for _, fate, _ in fates for one in fate.less]),
                    less=tuple([one for _, fate, _ in fates for one in fate.places] + others),
                )  # fmt: skip

    def _leaves_only_loopback(self, entry: RuleHit) -> bool:
        """Whether nothing from outside leaves the chain uncaptured: its last rule captures all but loopback addresses.

        What the application sends to them, or NAT redirects there, is counted where it begins.
        """
        if _DIRECTIONS[entry.hook] != INBOUND:
            return False
        chain, before = self._tables[entry.table].get(entry.matched.target.calls), [*entry.matched.matches]
        while chain and chain.rules:
            rule = chain.rules[-1].rule
            others = [match for match in rule.matches if match not in before]
            if rule.target.captures_at:
                return len(others) == 1 and _leaves_out_loopback(others[0])
            if others:
                return False
            chain = self._tables[entry.table].get(rule.target.calls)
        return False

    def _part(self, paths: list[RulePath]) -> list[tuple[RuleHit, list[RulePath], list[RuleHit]]]:
        """Split the paths to one rule into countable groups: (counting rule, paths, rules to subtract)."""
        sole = [one for one in paths if len(one) > 1 < len(paths) and self._is_counted_by_its_jump(one)]
        others = [path for path in paths if path not in sole]
        found: list[tuple[RuleHit, list[RulePath], list[RuleHit]]] = [(path[-2], [path], []) for path in sole]
        return [*found, (others[0][-1], others, [path[-2] for path in sole])] if others else found

    def _is_counted_by_its_jump(self, path: RulePath) -> bool:
        """Whether all that takes the jump to the last rule's chain meets that rule: nothing before it there ends a path."""
        jump, last = path[-2:]
        rules = self._tables[last.table][last.chain].rules
        before = [one.rule.target for one in rules if one.number < last.rules[0].number]
        leaves = any(target.is_final or target.calls or isinstance(target, Return | UnknownTarget) for target in before)
        return not leaves and self._entered[self._place(jump)] == 1 and _is_implied(path)

    def _place(self, hit: RuleHit) -> Place:
        return Place(self._source, self._family, hit.table, hit.chain, hit.rules[0].number)

    def _make(self, counted: RuleHit, members: list[RulePath], less: list[RuleHit]) -> Fate:
        """The fate of packets on these paths, counted by `counted` minus `less`."""
        decider, verdict = members[0][-1], self._verdict(members[0])
        causes = dict.fromkeys([self._describe(path) for path in members])
        because, option, foreign = next(iter(causes))
        if len(causes) > 1:
            because, option = "; ".join([words for words, _, _ in causes]), ""
        if verdict == DIRECT and all(map(_sees_what_comes_back, members)):
            because += f", {LOOPBACK_TOO}"
        direction = "+".join(sorted({_DIRECTIONS[path[0].hook] for path in members}))
        port = decider.matched.target.captures_at if verdict == CAPTURED else 0
        unit = CONNECTIONS if decider.table == NAT else PACKETS
        places, others = (self._place(counted),), tuple([self._place(one) for one in less])
        return Fate(direction, verdict, port, unit, because, option, foreign, places, others)

    def _describe(self, path: RulePath) -> tuple[str, str, bool]:
        """The cause, the option behind it, and whether the rule is foreign."""
        hit = path[-1]
        if self._verdict(path) == CAPTURED:
            hit = cause_of(path, captured=True, transparent=hit.table != NAT, translated=False) or hit
        loaded = hit.rules[0]
        because = loaded.purpose or f"{loaded.quotation} ({hit.table} {hit.chain}, rule {loaded.number})"
        return because, loaded.label(self._origins), not loaded.purpose

    def _walk(self, hook: str, table: str, chain: LoadedChain, above: RulePath) -> Iterator[RulePath]:
        """The paths to every reachable rule; a recursive chain is entered once."""
        for loaded in chain.rules:
            path = (*above, RuleHit(hook, table, chain.name, (loaded,)))
            called = self._tables[table].get(loaded.rule.target.calls)
            if called is None:
                yield path
            elif all(called.name != one.chain for one in path):
                self._entered[self._place(path[-1])] += 1
                yield from self._walk(hook, table, called, path)

    def _verdict(self, path: RulePath) -> str:
        """The verdict of a path's last rule; empty if it does not decide."""
        target = path[-1].matched.target
        if target.captures_at:
            return CAPTURED
        if isinstance(target, Drop | Reject):
            return DROPPED
        if isinstance(target, UnknownTarget | Queue):
            return UNKNOWN
        ends = isinstance(target, Return | Accept) and self._ends_path(path)
        return DIRECT if ends or isinstance(target, DestinationNat | MapNetwork) else ""

    def _ends_path(self, path: RulePath) -> bool:
        """Whether accepting here keeps packets from every rule that may capture them."""
        hit = path[-1]
        stages = STAGES[hit.hook]
        if any(self._last(later, hit.hook) for later in stages[stages.index(hit.table) + 1 :]):
            return False
        here = self._comes_before_a_capture(hit)
        callers = [one for one in path[:-1] if not (isinstance(one.matched.target, Jump) and one.matched.target.goto)]
        above = any(map(self._comes_before_a_capture, callers))
        if isinstance(hit.matched.target, Accept):
            return here or above
        return here and (not above or hit.chain in BUILTIN_CHAINS)

    def _comes_before_a_capture(self, hit: RuleHit) -> bool:
        return self._last(hit.table, hit.chain) > hit.rules[0].number

    def _find_last(self, table: str, name: str) -> int:
        """Number of a chain's last rule that captures or leads to a capture; 0 if none."""
        chains = self._tables.get(table, {})
        for loaded in reversed(chains[name].rules if name in chains else ()):
            if any(one.captures_at for one in list_targets(chains, loaded.rule.target)):
                return loaded.number
        return 0


def _leaves_out_loopback(match: Match) -> bool:
    """Whether a match leaves out addresses of the loopback network alone, which never come from outside."""
    if not (isinstance(match, Destination) and match.negated):
        return False
    return all(covers(one.family.loopback_network, one) for one in match.networks)


def _matches(path: RulePath) -> list[Match]:
    return [match for hit in path for match in hit.matched.matches]


def _sees_what_comes_back(path: RulePath) -> bool:
    """Whether the path is that of all packets over lo before nat: those, too, that nat has redirected at OUTPUT."""
    matches = _matches(path)
    over_lo = InInterface(names=("lo",)) in matches and not any(isinstance(match, Source) for match in matches)
    return over_lo and path[0].hook == PREROUTING and path[0].table != NAT


def _is_implied(path: RulePath) -> bool:
    """Whether everything on this path satisfies the last rule's matches."""
    before = _matches(path[:-1])
    protocols = {match.protocol for match in before if isinstance(match, Port)}
    return all(
        match in before or (isinstance(match, Protocol) and not match.negated and match.name in protocols)
        for match in path[-1].matched.matches
    )


def _drops_datagrams(path: RulePath) -> bool:
    """Whether a filter rule drops UDP in every state: no entry is confirmed, so nat counts every packet."""
    matches = _matches(path)
    udp = any(isinstance(match, Port) and match.protocol == "udp" for match in matches)
    return path[-1].table == FILTER and udp and not any(isinstance(match, ConnectionState) for match in matches)


def _of_known_connections(path: RulePath) -> bool:
    """Whether the rule sees only packets of connections that were decided before."""
    return any(
        isinstance(match, Socket) or (isinstance(match, ConnectionState) and not match.negated and "NEW" not in match.states)
        for match in _matches(path)
    )


@dataclass(frozen=True, slots=True)
class FateRate:
    """One fate's packets or connections: `added` since the last reading, `since_start` since the first; None without a counter."""

    fate: Fate
    added: int | None
    since_start: int | None
    per_second: float | None


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """An evaluation of the counters: seconds since the first (`elapsed`) and the last reading, and rates.

    `replaced`: rules or counters were reset in between.
    """

    elapsed: float
    seconds: float
    rows: tuple[FateRate, ...]
    replaced: bool


class RateCounter:
    """Turns counter readings into rates. Totals keep what deleted rules counted; new rules start at 0.

    A rule replaced between two readings is not noticed if it already counts as much as the old one.
    """

    def __init__(self, moment: float, counters: Counters) -> None:
        self._first = self._last = moment  # seconds of a monotonic clock
        self._counters = counters
        self._counted: dict[Fate, int] = {}

    def evaluate(self, moment: float, counters: Counters, fates: Iterable[Fate]) -> CounterSnapshot:
        """Evaluate a new reading of all counters against the last one."""
        before, replaced = _before(self._counters, counters)
        seconds = moment - self._last
        rows = tuple([self._make_row(fate, counters, before, seconds) for fate in fates])
        self._last, self._counters = moment, counters
        return CounterSnapshot(moment - self._first, seconds, rows, replaced)

    def _make_row(self, fate: Fate, now: Counters, before: Counters, seconds: float) -> FateRate:
        counted, earlier = fate.count(now), fate.count(before)
        if counted is None or earlier is None:
            return FateRate(fate, None, None, None)
        # Rules are not read atomically, so a difference of several counters can briefly decrease.
        since = self._counted[fate] = self._counted.get(fate, 0) + counted - earlier
        added = max(0, counted - earlier)
        return FateRate(fate, added, max(0, since), added / seconds if seconds > 0 else None)


def _before(last: Counters, now: Counters) -> tuple[Counters, bool]:
    """Each rule's count at the last reading (0 if new), and whether rules were added, deleted or reset.

    Rules are identified by their text, not their position.
    """
    known: dict[tuple[str, ...], list[int | None]] = {}
    for place, (text, count) in last.items():
        known.setdefault((place.source, place.family, place.table, place.chain, text), []).append(count)
    found: dict[Place, tuple[str, int | None]] = {}
    replaced = len(last) != len(now)
    for place, (text, count) in now.items():
        earlier = known.get((place.source, place.family, place.table, place.chain, text))
        value = earlier.pop(0) if earlier else None
        if value is None or value > (count or 0):
            replaced = replaced or value is not None or count is not None
            value = None if count is None else 0
        found[place] = (text, value)
    return found, replaced
