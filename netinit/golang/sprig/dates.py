"""Sprig's functions on dates and durations that the template names; none reads the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.sprig.numbers import from_decimal
from netinit.golang.sprig.text import unless
from netinit.golang.template.limits import text_cost
from netinit.golang.template.values import ANY, Function, FunctionError, Int32, Int64, kind_of
from netinit.golang.times import NANOSECONDS, Time, format_duration, parse_duration, parse_time, zone

_TIME: Final = "time.Time"
_DAY: Final = "2006-01-02"
_SPANS: Final = ((24 * 365 * 3600, "y"), (24 * 30 * 3600, "mo"), (24 * 3600, "d"), (3600, "h"), (60, "m"), (1, "s"))
_WRAP: Final = 1 << 63


def date_in_zone(layout: str, moment: Any, place: str) -> str:
    """Format a time, or a Unix timestamp in seconds, in a time zone."""
    if type(moment) in (int, Int64, Int32):
        moment = Time.at(moment)
    if not isinstance(moment, Time):
        raise FunctionError(
            "the value is neither a time nor whole seconds; the clock, which sprig asks then, differs for every pod"
        )
    return moment.in_zone(zone(place)).format(layout)


def duration(seconds: Any) -> str:
    """Format seconds, a text or an int64, as a Go duration; anything else is 0s."""
    number = from_decimal(seconds) if kind_of(seconds) == "string" else seconds if type(seconds) is Int64 else 0
    return format_duration((number * NANOSECONDS + _WRAP) % (2 * _WRAP) - _WRAP)


def rounded(span: Any) -> str:
    """Format a duration, a text or an int64 of nanoseconds, in whole units of the largest kind that it exceeds."""
    if isinstance(span, Time):
        raise FunctionError("durationRound of a time depends on the time of day")
    nanoseconds = int(span) if type(span) is Int64 else 0
    if kind_of(span) == "string":
        nanoseconds = unless("time: ", 0, parse_duration, span)
    size = abs(nanoseconds)
    for seconds, unit in _SPANS:
        if size > seconds * NANOSECONDS:
            return f"{size // (seconds * NANOSECONDS)}{unit}"
    return "0s"


_IN_ZONE: Final = Function.of(date_in_zone, cost=text_cost)
_MUST_MODIFY: Final = Function(lambda change, moment: moment.moved(parse_duration(change)), "string", _TIME)
_MODIFY: Final = Function(
    lambda change, moment: unless("time: ", moment, _MUST_MODIFY.call, change, moment), "string", _TIME
)

FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "date": Function(lambda layout, moment: date_in_zone(layout, moment, "UTC"), "string", ANY, cost=text_cost),
    "dateInZone": _IN_ZONE,
    "dateModify": _MODIFY,
    "date_in_zone": _IN_ZONE,
    "date_modify": _MODIFY,
    "duration": duration,
    "durationRound": rounded,
    "htmlDate": lambda moment: date_in_zone(_DAY, moment, "UTC"),
    "htmlDateInZone": Function(lambda moment, place: date_in_zone(_DAY, moment, place), ANY, "string"),
    "mustDateModify": _MUST_MODIFY,
    "mustToDate": Function.of(parse_time, cost=text_cost),
    "must_date_modify": _MUST_MODIFY,
    "toDate": Function(
        lambda layout, text: unless("", Time(), parse_time, layout, text), "string", "string", cost=text_cost
    ),
    "unixEpoch": Function(lambda moment: str(moment.seconds), _TIME),
}
