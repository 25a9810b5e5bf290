"""`netinit watch`: how much of the traffic meets which fate, as it happens."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import click

from netinit.base.errors import BackendUnavailableError, NetinitError, ParseError
from netinit.base.output import answers_a_terminal, show_artefact, with_version
from netinit.base.sanitize import escape, lines
from netinit.base.tree import Tree
from netinit.cli.console import answer, answer_again, color_option, fit, note, warn
from netinit.cli.flags import ANY_NAMESPACE, SECONDS, STDIN, FlagCommand, until_input_option
from netinit.cli.rule_sources import RuleSource, find_ground
from netinit.kernel.run import Signals, await_input
from netinit.options import BACKENDS, Options
from netinit.simulate.counter_rates import CounterReading, CounterSnapshot, FateRate, RateCounter
from netinit.simulate.trace import CAPTURED
from netinit.simulate.verdict_counters import Fate, count_rules, find_fates

AUTO, TABLE, LINES, JSON = "auto", "table", "lines", "json"
REPLACED = "rules were replaced, or their counters set back: what was counted before stays counted"
MOST_FAILURES = 5  # looks one after the other that cannot be understood: rules that change meanwhile are no listing
_SLICE = 0.1  # seconds between two looks at the signals that have come
_LEFT_FREE = 2  # lines of the terminal that the table does not take


@click.command("watch", cls=FlagCommand, shows=ANY_NAMESPACE)
@click.option(
    "--interval", default=1.0, show_default=True, type=SECONDS, metavar="DURATION", help="How often to look."
)
@click.option("--count", default=0, type=click.IntRange(0), metavar="NUMBER", help="End after this many looks (default: on Ctrl-C).")
@click.option(
    "--format", "form", type=click.Choice((AUTO, TABLE, LINES, JSON)), default=AUTO, show_default=True,
    help="The format; auto is a table on a terminal, else lines.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also show what no packet has met yet.")
@until_input_option
@color_option
def command(options: Options, *, interval: float, count: int, form: str, everything: bool, until_input: bool) -> int:
    """Show how many connections of a pod are captured, bypass the proxy or are dropped, live.

    The figures are the counters of the live rules; nothing is sent and nothing changes. Rules of the table nat count
    connections, others count packets. On a terminal a table is updated; --format lines and json print a line for each fate.

    Exit codes: 0, also after Ctrl-C; 1 if the rules cannot be read.
    """
    where = f"pid {options.pid}" if options.pid else options.netns or "this namespace"
    writer = CounterSnapshotWriter(form, everything=everything)
    signals = Signals()
    signals.listen()  # a flag, not an exception: Python may discard what a handler raises
    try:
        for sight, head, said in _look(options, interval, count, signals, until_input=until_input):
            writer.show(sight, f"{where}, {head}", said=said)
        signals.hand_back()
    except KeyboardInterrupt:
        return 0
    except NetinitError:
        if not signals.heard:
            raise
    return 0


def _look(
    options: Options, interval: float, count: int, signals: Signals, *, until_input: bool
) -> Iterator[tuple[CounterSnapshot, str, bool]]:
    """Looks every `interval` seconds until a signal comes; the first look is for comparison.

    Each time what was seen, by which backends, and whether something had to be said since the last time.
    """
    noted: set[str] = set()
    meter = None
    looks = failures = 0
    due = time.monotonic()
    while (not count or looks < count) and not signals.heard:
        try:
            ground = find_ground(options, (), "", (), live=True)
        except (ParseError, BackendUnavailableError):
            failures += 1
            if meter is None or failures > MOST_FAILURES:
                raise
        else:
            failures = 0
            reading = take_reading(ground, time.monotonic())
            said = not noted.issuperset((*ground.notes, *ground.warnings))
            note([text for text in ground.notes if text not in noted])
            warn([text for text in ground.warnings if text not in noted])
            noted |= {*ground.notes, *ground.warnings}
            if meter is None:
                meter = RateCounter(reading)
            else:
                looks += 1
                yield meter.look(reading), ", ".join(ground.rulesets), said
        due = max(due + interval, time.monotonic())
        if not count or looks < count:
            if not until_input:
                while (left := due - time.monotonic()) > 0 and not signals.heard:
                    time.sleep(min(left, _SLICE))
            elif await_input(STDIN, int(due * 10**9)):
                return


def take_reading(ground: RuleSource, moment: float) -> CounterReading:
    """The counters of the rules, and what these decide."""
    shared = frozenset([name for name in ground.rulesets if not BACKENDS[name].variant])
    return CounterReading(moment, count_rules(ground.rulesets, shared), find_fates(ground.rulesets, shared, ground.origins))


def render_table(sight: CounterSnapshot, head: str, *, everything: bool) -> list[str]:
    """All rows, those that a packet has met unless `everything` is wanted; what captures is shown always."""
    rows = [row for row in sight.rows if everything or row.since or row.fate.verdict == CAPTURED]
    printed = [f"{head}: {sight.elapsed:.0f} s", f"{'fate':<8} {'way':<7} {'to':>5} {'per second':>12} {'since start':>12}  because"]
    printed += [_table_row(row) for row in rows]
    if not sight.rows:
        printed.append("no rule here decides anything")
    if hidden := len(sight.rows) - len(rows):
        printed.append(f"({hidden} more that no packet has met; --all shows them)")
    return [*printed, *([f"warning: {REPLACED}"] if sight.replaced else [])]


def _table_row(row: FateRate) -> str:
    fate = row.fate
    rate = "-" if row.per_second is None else f"{row.per_second:.1f}"
    unit = fate.unit[:4]
    since = "not counted" if row.since is None else str(row.since)
    return f"{fate.verdict:<8} {fate.direction:<7} {fate.port or '-':>5} {f'{rate} {unit}':>12} {since:>12}  {_because(row)}"


def render_lines(sight: CounterSnapshot, *, everything: bool) -> list[str]:
    """A line for each fate that was met since the last look, or one that says why there is none."""
    printed = [f"warning: {REPLACED}"] if sight.replaced else []
    rows = [row for row in sight.rows if row.added or everything]
    printed += [
        f"{row.fate.verdict} {row.fate.direction}{f' to {row.fate.port}' if row.fate.port else ''}: {_rate(row)}; {_because(row)}"
        for row in rows
    ]
    return printed or ["nothing was counted" if sight.rows else "no rules here: nothing can be counted until there are some"]


def _rate(row: FateRate) -> str:
    if row.added is None or row.per_second is None:
        return "not counted"
    return f"{row.added} {row.fate.unit}, {row.per_second:.1f} a second"


def _because(row: FateRate) -> str:
    return row.fate.because + (f" ({row.fate.option})" if row.fate.option else "")


def to_object(sight: CounterSnapshot, *, everything: bool) -> dict[str, Any]:
    """The look as netinit/data/watch.schema.json describes it."""
    return {
        "elapsed": round(sight.elapsed, 3),
        "seconds": round(sight.seconds, 3),
        "replaced": sight.replaced,
        "fates": [
            {
                "verdict": row.fate.verdict, "direction": row.fate.direction, "port": row.fate.port or None, "unit": row.fate.unit,
                "because": row.fate.because, "option": row.fate.option or None, "foreign": row.fate.foreign,
                "added": row.added, "since_start": row.since,
                "per_second": None if row.per_second is None else round(row.per_second, 3),
            }
            for row in sight.rows
            if everything or row.since or row.fate.verdict == CAPTURED
        ],
    }  # fmt: skip


def read_object(tree: Tree) -> CounterSnapshot:
    """A look that `to_object` wrote. ValueError, TypeError, KeyError where it is none."""
    rows = [
        FateRate(
            Fate(
                str(row["direction"]), str(row["verdict"]), int(row["port"] or 0), str(row["unit"]), str(row["because"]),
                str(row["option"] or ""), bool(row["foreign"]),
            ),
            None if row["added"] is None else int(row["added"]), None if row["since_start"] is None else int(row["since_start"]),
            None if row["per_second"] is None else float(row["per_second"]),
        )
        for row in tree["fates"]
    ]  # fmt: skip
    return CounterSnapshot(float(tree["elapsed"]), float(tree["seconds"]), tuple(rows), bool(tree["replaced"]))


class CounterSnapshotWriter:
    """Shows one look after the other in a format, a table in its place."""

    def __init__(self, form: str, *, everything: bool) -> None:
        self._form = form if form != AUTO else TABLE if answers_a_terminal() else LINES
        self._everything = everything
        self._shown = 0
        self._last: list[str] = []

    def show(self, sight: CounterSnapshot, head: str, *, said: bool = False) -> None:
        """`said`: something stands below the last table meanwhile."""
        if self._form == JSON:
            show_artefact(json.dumps(with_version(to_object(sight, everything=self._everything))) + "\n", now=True)
        elif self._form == LINES:
            found = render_lines(sight, everything=self._everything)
            if found != self._last or any(row.added for row in sight.rows):  # that nothing happens is said once
                answer(lines(found), now=True)
            self._last = found
        else:
            table = [escape(line) for line in render_table(sight, head, everything=self._everything)]
            self._shown = answer_again(_fit(table), 0 if said else self._shown)


def _fit(printed: list[str]) -> list[str]:
    """What has room on the terminal: long lines in several, and no more of them than it has."""
    width, height = shutil.get_terminal_size()
    room = max(1, height - _LEFT_FREE)
    fitted = [part for line in printed for part in fit(line, width - 1)]
    return fitted if len(fitted) <= room else [*fitted[: room - 1], f"({len(fitted) - room + 1} more lines have no room here)"]
