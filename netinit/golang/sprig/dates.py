"""Sprig's functions on dates and durations, for moments that the template names: the clock is not asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.durations import NANOSECONDS, format_duration, parse_duration
from netinit.golang.sprig.numbers import from_decimal
from netinit.golang.template.limits import text_cost
from netinit.golang.template.values import Function, FunctionError, Int32, Int64, kind_of, typed
from netinit.golang.times import Time, parse_time, zone

_ANY: Final = "interface {}"
_TEXT: Final = "string"
_TIME: Final = "time.Time"
_DAY: Final = "2006-01-02"
_SPANS: Final = ((24 * 365 * 3600, "y"), (24 * 30 * 3600, "mo"), (24 * 3600, "d"), (3600, "h"), (60, "m"), (1, "s"))
_WRAP: Final = 1 << 63


def date(layout: str, moment: Any) -> str:
    """The moment in that layout, in UTC."""
    return date_in_zone(layout, moment, "UTC")


def date_in_zone(layout: str, moment: Any, place: str) -> str:
    """The moment, a time or seconds since 1970, in that layout on the clocks of that zone."""
    if type(moment) in (int, Int64, Int32):
        moment = Time.at(moment)
    if not isinstance(moment, Time):
        raise FunctionError(
            "the value is neither a time nor whole seconds; the clock, which sprig asks then, differs for every pod"
        )
    return moment.in_zone(zone(place)).format(layout)


def modify(change: str, moment: Any) -> Any:
    """The moment so much later or earlier; itself where the duration is invalid."""
    try:
        return moment.moved(parse_duration(change))
    except FunctionError as error:
        if str(error).startswith("time: "):
            return moment
        raise


def must_modify(change: str, moment: Any) -> Any:
    """The moment so much later or earlier."""
    return moment.moved(parse_duration(change))


def duration(seconds: Any) -> str:
    """The duration of so many seconds, a text or an int64, in Go's words; of anything else, 0s."""
    number = from_decimal(seconds) if kind_of(seconds) == "string" else seconds if type(seconds) is Int64 else 0
    return format_duration((number * NANOSECONDS + _WRAP) % (2 * _WRAP) - _WRAP)


def rounded(span: Any) -> str:
    """The largest unit of the duration, a text or an int64 of nanoseconds, and how many of them it has."""
    if isinstance(span, Time):
        raise FunctionError("durationRound of a time depends on the time of day")
    nanoseconds = int(span) if type(span) is Int64 else 0
    if kind_of(span) == "string":
        try:
            nanoseconds = parse_duration(span)
        except FunctionError:
            nanoseconds = 0
    size = abs(nanoseconds)
    for seconds, unit in _SPANS:
        if size > seconds * NANOSECONDS:
            return f"{size // (seconds * NANOSECONDS)}{unit}"
    return "0s"


def to_date(layout: str, text: str) -> Time:
    """The moment that the text has in that layout, the beginning of the year 1 where it has none."""
    try:
        return parse_time(layout, text)
    except FunctionError:
        return Time()


_IN_ZONE: Final = typed(date_in_zone, _TEXT, _ANY, _TEXT, cost=text_cost)
_MODIFY: Final = typed(modify, _TEXT, _TIME)
_MUST_MODIFY: Final = typed(must_modify, _TEXT, _TIME)

FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "date": typed(date, _TEXT, _ANY, cost=text_cost),
    "dateInZone": _IN_ZONE,
    "dateModify": _MODIFY,
    "date_in_zone": _IN_ZONE,
    "date_modify": _MODIFY,
    "duration": duration,
    "durationRound": rounded,
    "htmlDate": lambda moment: date(_DAY, moment),
    "htmlDateInZone": typed(lambda moment, place: date_in_zone(_DAY, moment, place), _ANY, _TEXT),
    "mustDateModify": _MUST_MODIFY,
    "mustToDate": typed(parse_time, _TEXT, _TEXT, cost=text_cost),
    "must_date_modify": _MUST_MODIFY,
    "toDate": typed(to_date, _TEXT, _TEXT, cost=text_cost),
    "unixEpoch": typed(lambda moment: str(moment.seconds), _TIME),
}
