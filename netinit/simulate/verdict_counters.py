"""Derives verdicts and their packet counts from the counters of live rules.

A rule decides if it captures, drops, diverts, or ends the path to a capturing rule. nat sees connections' first
packets, other tables all. What enters a capturing chain and leaves it by no rule is direct; packets that meet no rule
are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from netinit.base.net import Family
from netinit.rules.foreign_targets import DestinationNat, UnknownTarget
from netinit.rules.matches.context import ConnectionState, Socket
from netinit.rules.matches.packet import Port, Protocol
from netinit.rules.model import BUILTIN_CHAINS, FILTER, INPUT, NAT, OUTPUT, PREROUTING
from netinit.rules.targets import Accept, Drop, Jump, Reject, Return
from netinit.simulate.hooks import FORWARD, STAGES
from netinit.simulate.loaded_rules import LoadedChain, LoadedRule, label_of
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED, UNKNOWN, TraceStep, cause_of

INBOUND, OUTBOUND, THROUGH = "in", "out", "through"
CONNECTIONS, PACKETS = "connections", "packets"
TCP = Protocol(name="tcp")
NOTHING_CAPTURES = "no rule captures it"
_DIRECTIONS = {PREROUTING: INBOUND, INPUT: INBOUND, OUTPUT: OUTBOUND, FORWARD: THROUGH}
_ORDER = (CAPTURED, DIRECT, DROPPED, UNKNOWN)

Rulesets = Mapping[str, Mapping[Family, Ruleset]]
Spot = tuple[str, str, int]  # table, chain, number


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

    The count is the sum of the rules at `places` minus those at `less`.
    """

    direction: str
    verdict: str
    port: int  # the proxy's port, if captured
    unit: str
    because: str
    option: str = ""
    foreign: bool = False
    places: tuple[Place, ...] = ()
    less: tuple[Place, ...] = ()

    def count(self, counters: Counters) -> int | None:
        """Packets or connections in one reading; None if a rule has no counter."""
        found = [counters[place][1] for place in self.places]
        other = [counters[place][1] for place in self.less]
        if None in found or None in other:
            return None
        return sum(filter(None, found)) - sum(filter(None, other))

    @property
    def identity(self) -> tuple[object, ...]:
        """Key of what the reader sees as one fate, whichever rules count it."""
        return (self.direction, self.verdict, self.port, self.unit, self.because, self.option, self.foreign)


@dataclass(frozen=True, slots=True)
class _PathRule:
    """A rule on a path from a hook; `above` are the calling rules."""

    hook: str
    table: str
    chain: LoadedChain
    index: int
    above: tuple[_PathRule, ...]

    @property
    def rule(self) -> LoadedRule:
        return self.chain.rules[self.index]

    @property
    def spot(self) -> Spot:
        """The rule's position."""
        return (self.table, self.chain.name, self.rule.number)

    @property
    def entry(self) -> _PathRule:
        """The base chain's rule that the path began with."""
        return self.above[0] if self.above else self

    @property
    def step(self) -> TraceStep:
        return TraceStep(self.hook, "", self.table, self.chain.name, self.rule, holds=True)


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
    found: dict[tuple[object, ...], tuple[Fate, dict[Place, None], dict[Place, None]]] = {}
    for source, families in rulesets.items():
        for family, ruleset in families.items():
            for fate in _Finder(ruleset, source, "" if source in shared else family.name, origins or {}).find():
                _, places, less = found.setdefault(fate.identity, (fate, {}, {}))
                places.update(dict.fromkeys(fate.places))  # rules shared by both families count once
                less.update(dict.fromkeys(fate.less))
    fates = [replace(fate, places=tuple(places), less=tuple(less)) for fate, places, less in found.values()]
    return tuple(sorted(fates, key=lambda fate: (_ORDER.index(fate.verdict), fate.direction)))


class _Finder:
    """Finds the fates that the rules of one family decide."""

    def __init__(self, ruleset: Ruleset, source: str, family: str, origins: Mapping[str, str]) -> None:
        self._tables = ruleset.tables
        self._source, self._family, self._origins = source, family, origins
        self._last: dict[tuple[str, str], int] = {}  # last rule that leads to a capture, by table and chain

    def find(self) -> Iterator[Fate]:
        paths: dict[Spot, list[_PathRule]] = {}
        jumps: dict[Spot, set[tuple[Spot, ...]]] = {}  # the paths to each rule
        for at in self._list_ways():
            if at.above:
                jumps.setdefault(at.above[-1].spot, set()).add(tuple([one.spot for one in at.above]))
            if self._verdict(at):
                paths.setdefault(at.spot, []).append(at)
        leaving: dict[Spot, list[tuple[Fate, bool]]] = {}
        refused: dict[str, list[Place]] = {}  # accepted by nat and dropped by filter, by hook
        for decided in paths.values():
            for counted, members, less in _part(decided, jumps):
                fate = self._make(counted, members, less)
                entries = {at.entry.spot for at in members}
                for spot in entries:
                    leaving.setdefault(spot, []).append((fate, len(entries) == 1))
                if fate.verdict == DROPPED and _drops_datagrams(members[0]):
                    refused.setdefault(members[0].hook, []).extend(fate.places)
                if not _of_known_connections(members[0]):
                    yield fate
        yield from self._find_rests(leaving, refused)

    def _find_rests(self, leaving: Mapping[Spot, list[tuple[Fate, bool]]], refused: Mapping[str, list[Place]]) -> Iterator[Fate]:
        """Traffic that enters a capturing chain, leaves it by no rule and is not rejected later."""
        for (table, hook, number), fates in leaving.items():
            chain = self._tables[table][hook]
            index = next(index for index, loaded in enumerate(chain.rules) if loaded.number == number)
            if hook not in _DIRECTIONS or not chain.rules[index].rule.target.calls or self._find_last(table, hook) != index:
                continue
            if all(alone for _, alone in fates):
                others = [] if table != NAT or TCP in chain.rules[index].rule.matches else refused.get(hook, [])
                yield Fate(
                    _DIRECTIONS[hook], DIRECT, 0, _unit(table), NOTHING_CAPTURES,
                    places=(self._place(_PathRule(hook, table, chain, index, ())), *[one for fate, _ in fates for one in fate.less]),
                    less=tuple([one for fate, _ in fates for one in fate.places] + others),
                )  # fmt: skip

    def _place(self, at: _PathRule) -> Place:
        return Place(self._source, self._family, *at.spot)

    def _make(self, counted: _PathRule, members: list[_PathRule], less: list[_PathRule]) -> Fate:
        """The fate of packets on these paths, counted by `counted` minus `less`."""
        at = members[0]
        verdict = self._verdict(at)
        causes = dict.fromkeys([self._describe(one) for one in members])
        because, option, foreign = next(iter(causes))
        if len(causes) > 1:
            because, option = "; ".join([words for words, _, _ in causes]), ""
        return Fate(
            "+".join(sorted({_DIRECTIONS[one.hook] for one in members})), verdict,
            at.rule.rule.target.captures_at if verdict == CAPTURED else 0, _unit(at.table), because, option, foreign,
            (self._place(counted),), tuple([self._place(one) for one in less]),
        )  # fmt: skip

    def _describe(self, at: _PathRule) -> tuple[str, str, bool]:
        """The cause, the option behind it, and whether the rule is foreign."""
        step: TraceStep | None = at.step
        if self._verdict(at) == CAPTURED:
            hits = [*[one.step for one in at.above], at.step]
            step = cause_of(hits, captured=True, transparent=at.table != NAT, translated=False)
        loaded = step.rule if step and step.rule else at.rule
        place = f"{at.table} {step.chain if step else at.chain.name}, rule {loaded.number}"
        return loaded.purpose or f"{loaded.quotation} ({place})", label_of(loaded.origin, self._origins), not loaded.purpose

    def _list_ways(self) -> Iterator[_PathRule]:
        for hook in _DIRECTIONS:
            for table in STAGES[hook]:
                if chain := self._tables.get(table, {}).get(hook):
                    yield from self._walk(hook, table, chain, ())

    def _walk(self, hook: str, table: str, chain: LoadedChain, above: tuple[_PathRule, ...]) -> Iterator[_PathRule]:
        """Every reachable rule on each path; a recursive chain is entered once."""
        for index, loaded in enumerate(chain.rules):
            at = _PathRule(hook, table, chain, index, above)
            called = self._tables[table].get(loaded.rule.target.calls)
            if called is None:
                yield at
            elif called is not chain and all(called is not one.chain for one in above):
                yield from self._walk(hook, table, called, (*above, at))

    def _verdict(self, at: _PathRule) -> str:
        """The verdict of a rule; empty if it does not decide."""
        target = at.rule.rule.target
        if target.captures_at:
            return CAPTURED
        if isinstance(target, Drop | Reject):
            return DROPPED
        if isinstance(target, UnknownTarget):
            return UNKNOWN
        ends = isinstance(target, Return | Accept) and self._ends_the_way(at)
        return DIRECT if ends or isinstance(target, DestinationNat) else ""

    def _ends_the_way(self, at: _PathRule) -> bool:
        """Whether accepting here keeps packets from every rule that may capture them."""
        stages = STAGES[at.hook]
        for later in stages[stages.index(at.table) + 1 :]:
            if self._find_last(later, at.hook) >= 0:
                return False
        here = self._find_last(at.table, at.chain.name) > at.index
        callers = [one for one in at.above if not (isinstance(one.rule.rule.target, Jump) and one.rule.rule.target.goto)]
        above = any(self._find_last(one.table, one.chain.name) > one.index for one in callers)
        if isinstance(at.rule.rule.target, Accept):
            return here or above
        return here and (not above or at.chain.name in BUILTIN_CHAINS)

    def _find_last(self, table: str, name: str) -> int:
        """Index of a chain's last rule that captures or leads to a capture; -1 if none."""
        known = self._last.get((table, name))
        if known is None:
            self._last[table, name] = -1  # guards against recursion
            chain = self._tables.get(table, {}).get(name)
            places = [index for index, loaded in enumerate(chain.rules) if self._leads(table, loaded)] if chain else []
            known = self._last[table, name] = places[-1] if places else -1
        return known

    def _leads(self, table: str, loaded: LoadedRule) -> bool:
        target = loaded.rule.target
        return bool(target.captures_at) or (bool(target.calls) and self._find_last(table, target.calls) >= 0)


def _unit(table: str) -> str:
    return CONNECTIONS if table == NAT else PACKETS


def _part(
    paths: list[_PathRule], jumps: Mapping[Spot, set[tuple[Spot, ...]]]
) -> list[tuple[_PathRule, list[_PathRule], list[_PathRule]]]:
    """Split the paths to one rule into countable groups: (counting rule, paths, rules to subtract)."""
    alone = [at for at in paths if at.above and len(jumps[at.above[-1].spot]) == 1 and _is_implied(at)] if len(paths) > 1 else []
    others = [at for at in paths if at not in alone]
    found: list[tuple[_PathRule, list[_PathRule], list[_PathRule]]] = [(at.above[-1], [at], []) for at in alone]
    return [*found, (others[0], others, [at.above[-1] for at in alone])] if others else found


def _is_implied(at: _PathRule) -> bool:
    """Whether everything on this path satisfies the last rule's matches."""
    before = [match for one in at.above for match in one.rule.rule.matches]
    protocols = {match.protocol for match in before if isinstance(match, Port)}
    return all(
        match in before or (isinstance(match, Protocol) and not match.negated and match.name in protocols)
        for match in at.rule.rule.matches
    )


def _drops_datagrams(at: _PathRule) -> bool:
    """Whether a filter rule drops UDP in every state: no entry is confirmed, so nat counts every packet."""
    matches = [match for one in (*at.above, at) for match in one.rule.rule.matches]
    udp = any(isinstance(match, Port) and match.protocol == "udp" for match in matches)
    return at.table == FILTER and udp and not any(isinstance(match, ConnectionState) for match in matches)


def _of_known_connections(at: _PathRule) -> bool:
    """Whether the rule sees only packets of connections that were decided before."""
    matches = [match for one in (*at.above, at) for match in one.rule.rule.matches]
    return any(
        isinstance(match, Socket) or (isinstance(match, ConnectionState) and not match.negated and "NEW" not in match.states)
        for match in matches
    )


@dataclass(frozen=True, slots=True)
class CounterReading:
    """The counters of all rules at one moment (seconds of a monotonic clock), and the fates they count."""

    moment: float
    counters: Counters
    fates: tuple[Fate, ...]


@dataclass(frozen=True, slots=True)
class FateRate:
    """One fate's packets or connections: `added` since the last reading, `since` the first; None without a counter."""

    fate: Fate
    added: int | None
    since: int | None
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

    def __init__(self, first: CounterReading) -> None:
        self._first = self._last = first
        self._counted: dict[tuple[object, ...], int] = {}

    def look(self, now: CounterReading) -> CounterSnapshot:
        """Evaluate a new reading against the last one."""
        before, replaced = _before(self._last.counters, now.counters)
        seconds = now.moment - self._last.moment
        rows = tuple([self._make_row(fate, now.counters, before, seconds) for fate in now.fates])
        self._last = now
        return CounterSnapshot(now.moment - self._first.moment, seconds, rows, replaced)

    def _make_row(self, fate: Fate, now: Counters, before: Counters, seconds: float) -> FateRate:
        counted, earlier = fate.count(now), fate.count(before)
        if counted is None or earlier is None:
            return FateRate(fate, None, None, None)
        # Rules are not read atomically, so a difference of several counters can briefly decrease.
        since = self._counted[fate.identity] = self._counted.get(fate.identity, 0) + counted - earlier
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
