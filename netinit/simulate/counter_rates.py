"""How quickly packets meet their fates: readings of counters, one after the other, and what has come in between."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.simulate.verdict_counters import Counters, Fate, Place


@dataclass(frozen=True, slots=True)
class CounterReading:
    """The counters of all rules at one moment (seconds of a clock that never goes back), and what the rules decide."""

    moment: float
    counters: Counters
    fates: tuple[Fate, ...]


@dataclass(frozen=True, slots=True)
class FateRate:
    """A fate: how many packets or connections since the last reading and since the first; None where a rule has no counter."""

    fate: Fate
    added: int | None
    since: int | None
    per_second: float | None


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """One look: seconds since the first and since the last one, and whether rules or counters began anew in between."""

    elapsed: float
    seconds: float
    rows: tuple[FateRate, ...]
    replaced: bool


class RateCounter:
    """Turns readings into rates. What was counted by rules that are gone stays counted; those that are new begin with 0.

    A rule that was replaced between two looks, and has counted as much again, cannot be told from one that stayed.
    """

    def __init__(self, first: CounterReading) -> None:
        self._first = self._last = first
        self._counted: dict[tuple[object, ...], int] = {}

    def look(self, now: CounterReading) -> CounterSnapshot:
        """What has come since the last reading."""
        before, replaced = _before(self._last.counters, now.counters)
        seconds = now.moment - self._last.moment
        rows = tuple([self._make_row(fate, now.counters, before, seconds) for fate in now.fates])
        self._last = now
        return CounterSnapshot(now.moment - self._first.moment, seconds, rows, replaced)

    def _make_row(self, fate: Fate, now: Counters, before: Counters, seconds: float) -> FateRate:
        counted, earlier = fate.count(now), fate.count(before)
        if counted is None or earlier is None:
            return FateRate(fate, None, None, None)
        # What is reckoned from several rules, which are not read at one moment, may seem to go back for once.
        since = self._counted[fate.identity] = self._counted.get(fate.identity, 0) + counted - earlier
        added = max(0, counted - earlier)
        return FateRate(fate, added, max(0, since), added / seconds if seconds > 0 else None)


def _before(last: Counters, now: Counters) -> tuple[Counters, bool]:
    """What each rule of now had counted at the last reading, 0 where it is new; and whether any is new, gone or set back.

    A rule is the same where its text is, wherever in its chain it stands.
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
