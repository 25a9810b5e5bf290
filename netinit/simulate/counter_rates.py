"""Traffic rates per verdict, from successive readings of rule counters."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.simulate.verdict_counters import Counters, Fate, Place


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
