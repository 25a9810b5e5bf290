"""`netinit watch`: live rates of captured, bypassing and dropped traffic."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import click

from netinit.base.errors import BackendUnavailableError, NetinitError, ParseError
from netinit.base.output import answers_a_terminal, show_object
from netinit.base.sanitize import escape, lines
from netinit.base.tree import Tree
from netinit.cli.console import answer, answer_again, color_option, fit, note, warn
from netinit.cli.flags import ANY_NAMESPACE, STDIN, FlagCommand, until_input_option
from netinit.cli.values import SECONDS, OneOf, numbers, takes
from netinit.kernel.run import Signals, await_input
from netinit.library.rule_reading import LIVE, find_rule_source
from netinit.live.verdict_counters import CounterSnapshot, Fate, FateRate, RateCounter, count_rules, find_fates
from netinit.options import BACKENDS, Options
from netinit.questions.rule_sources import name_namespace
from netinit.simulate.trace import CAPTURED

AUTO, TABLE, LINES, JSON = "auto", "table", "lines", "json"
REPLACED = "rules were replaced, or their counters set back: what was counted before stays counted"
MAX_FAILURES = 5  # consecutive failures: rules being changed cannot always be read
_SLICE = 0.1  # seconds between checks for signals
_LEFT_FREE = 2  # lines of the terminal left free by the table
# The fields in JSON, in which null means none.
_OF_FATE = {"verdict": str, "direction": str, "port": int, "unit": str, "because": str, "option": str, "foreign": bool}
_COUNTED = {"added": int, "since_start": int, "per_second": float}


@click.command("watch", cls=FlagCommand, shows=ANY_NAMESPACE)
@click.option("--interval", default=1.0, show_default=True, **takes(SECONDS), help="The interval between readings.")
@click.option("--count", default=0, **takes(numbers(0)), help="End after this many readings (default: Ctrl-C).")
@click.option(
    "--format", "form", type=OneOf((AUTO, TABLE, LINES, JSON)), default=AUTO, show_default=True,
    help="The format; auto is a table on a terminal, else lines.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also show what no packet has reached yet.")
@until_input_option
@color_option
def command(options: Options, *, interval: float, count: int, form: str, everything: bool, until_input: bool) -> int:
    """Show how many connections of a pod are captured, bypass the proxy or are dropped, live.

    The figures are the counters of the live rules; nothing is sent and nothing changes. Rules of the table nat count
    connections, others count packets. On a terminal a table is updated; --format lines and json print a line for each fate.

    Exit codes: 0, also after Ctrl-C; 1 if the rules cannot be read.
    """
    writer = CounterSnapshotWriter(form, everything=everything)
    signals = Signals()
    signals.listen()  # a flag, because Python may discard an exception from a handler
    try:
        for snapshot, head, interrupted in _look(options, interval, count, signals, until_input=until_input):
            writer.show(snapshot, f"{name_namespace(options)}, {head}", interrupted=interrupted)
        signals.restore_and_resend()
    except KeyboardInterrupt:
        return 0
    except NetinitError:
        if not signals.pending:
            raise
    return 0


def _look(
    options: Options, interval: float, count: int, signals: Signals, *, until_input: bool
) -> Iterator[tuple[CounterSnapshot, str, bool]]:
    """Yield the rates, the backends, and whether warnings were printed, every `interval` seconds until a signal."""
    noted: set[str] = set()
    meter = None
    readings = failures = 0
    due = time.monotonic()
    while (not count or readings < count) and not signals.pending:
        try:
            rule_source = find_rule_source(options, LIVE)
            rules = rule_source.rules
        except (ParseError, BackendUnavailableError):
            failures += 1
            if meter is None or failures > MAX_FAILURES:
                raise
        else:
            failures = 0
            shared = frozenset([name for name in rules.rulesets if not BACKENDS[name].variant])
            fates = find_fates(rules.rulesets, shared, rules.origins)
            reading = (time.monotonic(), count_rules(rules.rulesets, shared))
            interrupted = not noted.issuperset((*rule_source.notes, *rule_source.warnings))
            note([text for text in rule_source.notes if text not in noted])
            warn([text for text in rule_source.warnings if text not in noted])
            noted |= {*rule_source.notes, *rule_source.warnings}
            if meter is None:
                meter = RateCounter(*reading)
            else:
                readings += 1
                yield meter.evaluate(*reading, fates), ", ".join(rules.rulesets), interrupted
        due = max(due + interval, time.monotonic())
        if not count or readings < count:
            if not until_input:
                while (left := due - time.monotonic()) > 0 and not signals.pending:
                    time.sleep(min(left, _SLICE))
            elif await_input(STDIN, int(due * 10**9)):
                return


def _choose_rows(snapshot: CounterSnapshot, *, everything: bool) -> list[FateRate]:
    return [row for row in snapshot.rows if everything or row.since_start or row.fate.verdict == CAPTURED]


def render_table(snapshot: CounterSnapshot, head: str, *, everything: bool) -> list[str]:
    """Format the rows with traffic, or with `everything` all rows; capturing rows are always shown."""
    rows = _choose_rows(snapshot, everything=everything)
    printed = [f"{head}: {snapshot.elapsed:.0f} s"]
    printed += [f"{'fate':<8} {'dir':<7} {'to':>5} {'per second':>12} {'since start':>12}  because"]
    for row in rows:
        rate = f"{'-' if row.per_second is None else f'{row.per_second:.1f}'} {row.fate.unit[:4]}"
        since = "not counted" if row.since_start is None else str(row.since_start)
        prefix = f"{row.fate.verdict:<8} {row.fate.direction:<7} {row.fate.port or '-':>5}"
        printed.append(f"{prefix} {rate:>12} {since:>12}  {_because(row)}")
    if not snapshot.rows:
        printed.append("no rule here decides anything")
    if hidden := len(snapshot.rows) - len(rows):
        printed.append(f"({hidden} more that no packet has reached; --all shows them)")
    return [*printed, *([f"warning: {REPLACED}"] if snapshot.replaced else [])]


def render_lines(snapshot: CounterSnapshot, *, everything: bool) -> list[str]:
    """A line for each fate with traffic since the last reading, or one explaining why there is none."""
    printed = [f"warning: {REPLACED}"] if snapshot.replaced else []
    rows = [row for row in snapshot.rows if row.added or everything]
    for row in rows:
        known = row.added is not None and row.per_second is not None
        rate = f"{row.added} {row.fate.unit}, {row.per_second:.1f} a second" if known else "not counted"
        to = f" to {row.fate.port}" if row.fate.port else ""
        printed.append(f"{row.fate.verdict} {row.fate.direction}{to}: {rate}; {_because(row)}")
    return printed or ["nothing was counted" if snapshot.rows else "no rules here: nothing can be counted until there are some"]


def _because(row: FateRate) -> str:
    return row.fate.because + (f" ({row.fate.option})" if row.fate.option else "")


def to_object(snapshot: CounterSnapshot, *, everything: bool) -> dict[str, Any]:
    """A reading in the form of netinit/data/watch.schema.json."""
    return {
        "elapsed": round(snapshot.elapsed, 3),
        "seconds": round(snapshot.seconds, 3),
        "replaced": snapshot.replaced,
        "fates": [
            {name: getattr(row.fate, name) or (False if kind is bool else None) for name, kind in _OF_FATE.items()}
            | {name: (value := getattr(row, name)) and round(value, 3) for name in _COUNTED}
            for row in _choose_rows(snapshot, everything=everything)
        ],
    }


def read_object(tree: Tree) -> CounterSnapshot:
    """Parse the result of `to_object`. Raises ValueError, TypeError or KeyError."""
    rows = []
    for row in tree["fates"]:
        fate = Fate(**{name: kind(row[name] or kind()) for name, kind in _OF_FATE.items()})
        rows.append(FateRate(fate, *[None if row[name] is None else kind(row[name]) for name, kind in _COUNTED.items()]))
    return CounterSnapshot(float(tree["elapsed"]), float(tree["seconds"]), tuple(rows), bool(tree["replaced"]))


class CounterSnapshotWriter:
    """Prints successive readings in a format, updating a table in place."""

    def __init__(self, form: str, *, everything: bool) -> None:
        self._form = form if form != AUTO else TABLE if answers_a_terminal() else LINES
        self._everything = everything
        self._shown = 0
        self._last: list[str] = []

    def show(self, snapshot: CounterSnapshot, head: str, *, interrupted: bool = False) -> None:
        """Print a reading. `interrupted`: other output follows the last table, so it is not overwritten."""
        if self._form == JSON:
            show_object(to_object(snapshot, everything=self._everything), now=True)
        elif self._form == LINES:
            found = render_lines(snapshot, everything=self._everything)
            if found != self._last or any(row.added for row in snapshot.rows):  # inactivity is reported once
                answer(lines(found), now=True)
            self._last = found
        else:
            width, height = shutil.get_terminal_size()
            room = max(1, height - _LEFT_FREE)
            table = render_table(snapshot, head, everything=self._everything)
            fitted = [part for line in table for part in fit(escape(line), width - 1)]
            if len(fitted) > room:
                fitted[room - 1 :] = [f"({len(fitted) - room + 1} more lines do not fit)"]
            self._shown = answer_again(fitted, 0 if interrupted else self._shown)
