"""Go's time.Duration as text (45s, 1h0m0s, 500ms), and time.Time by layouts of Mon Jan 2 15:04:05 MST 2006.

The local time zone is UTC, as in an injector's container.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final, Self

from netinit.golang.template.literals import quote
from netinit.golang.template.values import Enum, Function, FunctionError, Int64, NamedInt, Struct

NANOSECONDS: Final = 1_000_000_000
"""Nanoseconds per second."""
_SMALL_UNITS: Final = ((1_000_000, "ms"), (1_000, "µs"))
_UNITS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": NANOSECONDS, "m": 60 * NANOSECONDS, "h": 3600 * NANOSECONDS,
}  # fmt: skip
_PART: Final = "([0-9]*)(?:\\.([0-9]*))?([^0-9.]+)"
_LIMIT: Final = 1 << 63
_MAX_LENGTH: Final = 256


def format_duration(nanoseconds: int) -> str:
    """Format nanoseconds like time.Duration.String."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    if rest < NANOSECONDS:
        for size, unit in _SMALL_UNITS:
            if rest >= size:
                return f"{sign}{_decimal(rest, size)}{unit}"
        return f"{sign}{rest}ns"
    minutes, rest = divmod(rest, 60 * NANOSECONDS)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, NANOSECONDS)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return sign + (f"{hours}h{text}" if hours else text)


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    fraction = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def parse_duration(text: str) -> int:
    """Parse a Go duration into nanoseconds. Raises FunctionError with Go's message."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total, at = 0, 0
    pattern = re.compile(_PART)
    while at < len(body) or not body:
        found = pattern.match(body, at)
        if len(text) > _MAX_LENGTH or found is None or not (found[1] or found[2]):
            missing = re.fullmatch(r"[0-9]+\.?[0-9]*", body[at:]) and len(text) <= _MAX_LENGTH
            raise FunctionError(f"time: {'missing unit in' if missing else 'invalid'} duration {quote(text)}")
        if found[3] not in _UNITS:
            raise FunctionError(f"time: unknown unit {quote(found[3])} in duration {quote(text)}")
        unit, digits = _UNITS[found[3]], found[2] or ""
        total += int(found[1] or 0) * unit + int(digits or 0) * unit // 10 ** len(digits)
        at = found.end()
    if total > _LIMIT - (text[:1] != "-"):
        raise FunctionError(f"time: invalid duration {quote(text)}")
    return -total if text[:1] == "-" else total


class Duration(NamedInt):
    """A time.Duration in nanoseconds."""

    basic = "int64"
    go_methods: Mapping[str, Callable[..., Any] | Function]

    def __new__(cls, nanoseconds: int) -> Self:
        """Create the duration."""
        self = super().__new__(cls, nanoseconds, DURATION)
        whole = functools.partial(_quotient, nanoseconds)
        self.go_methods = {
            "Abs": lambda: Duration(abs(nanoseconds)), "Hours": lambda: nanoseconds / (3600 * NANOSECONDS),
            "Microseconds": lambda: whole(1000), "Milliseconds": lambda: whole(1_000_000),
            "Minutes": lambda: nanoseconds / (60 * NANOSECONDS), "Nanoseconds": lambda: Int64(nanoseconds),
            "Round": Function(lambda unit: Duration(_rounded(nanoseconds, unit)), DURATION),
            "Seconds": lambda: nanoseconds / NANOSECONDS, "String": lambda: format_duration(nanoseconds),
            "Truncate": Function(lambda unit: Duration(whole(unit) * unit if unit > 0 else nanoseconds), DURATION),
        }  # fmt: skip
        return self


DURATION: Final = "time.Duration"
TIME: Final = "time.Time"


def _quotient(number: int, unit: int) -> Int64:
    """Divide, rounded towards zero."""
    return Int64(abs(number) // unit * (-1 if number < 0 else 1))


def _rounded(number: int, unit: int) -> int:
    """Round to a multiple of the unit, halves away from zero; unchanged without a unit."""
    if unit <= 0:
        return number
    return (abs(number) + unit // 2) // unit * unit * (-1 if number < 0 else 1)


_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ELEMENT: Final = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|2006|002|0[1-6]|__2|_2(?!006)|15|[1-5]|PM|pm"
    r"|[-Z]07(?:00(?:00)?|:00(?::00)?)?|[.,](?:0+|9+)(?![0-9])"
)
_OWN: Final = "2006-01-02 15:04:05.999999999 -0700 MST"
_IN_JSON: Final = "2006-01-02T15:04:05.999999999Z07:00"
_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Time(Struct):
    """A time: a datetime with a time zone, and the nanoseconds of its second."""

    def __init__(self, moment: datetime = _FIRST, nanoseconds: int = 0) -> None:
        self.moment = moment.replace(microsecond=0)
        self.nanoseconds = nanoseconds
        super().__init__(TIME, {})

    @functools.cached_property
    def go_methods(self) -> Mapping[str, Callable[..., Any] | Function]:  # type: ignore[override] # made when asked for
        """The methods of time.Time, but for those that encode it or ask for its place."""
        moment, nanoseconds = self.moment, self.nanoseconds
        return {
            "Add": Function(lambda span: self.moved(int(span)), DURATION), "AddDate": Function(self.on_date, "int", "int", "int"),
            "After": Function(lambda other: self.absolute > other.absolute, TIME),
            "Before": Function(lambda other: self.absolute < other.absolute, TIME),
            "Clock": Function(self.format, results=("int", "int", "int")),
            "Compare": Function(lambda other: (self.absolute > other.absolute) - (self.absolute < other.absolute), TIME),
            "Date": Function(self.format, results=("int", "time.Month", "int")), "Day": lambda: moment.day,
            "Equal": Function(lambda other: self.absolute == other.absolute, TIME), "Format": self.format,
            "Hour": lambda: moment.hour,
            "ISOWeek": Function(self.format, results=("int", "int")), "IsDST": lambda: bool(moment.dst()),
            "IsZero": lambda: not nanoseconds and moment == _FIRST, "Local": lambda: self.in_zone(UTC),
            "Minute": lambda: moment.minute,
            "Month": lambda: Enum(moment.month, _MONTHS[moment.month - 1], "time.Month"), "Nanosecond": lambda: nanoseconds,
            "Round": Function(lambda unit: self.moved(_rounded(self.absolute, unit) - self.absolute), DURATION),
            "Second": lambda: moment.second, "String": lambda: self.format(_OWN),
            "Sub": Function(lambda other: Duration(self.absolute - other.absolute), TIME),
            "Truncate": Function(lambda unit: self.moved(-(self.absolute % unit) if unit > 0 else 0), DURATION),
            "UTC": lambda: self.in_zone(UTC), "Unix": lambda: Int64(self.seconds),
            "UnixMicro": lambda: Int64(self.seconds * 1_000_000 + nanoseconds // 1000),
            "UnixMilli": lambda: Int64(self.seconds * 1000 + nanoseconds // 1_000_000),
            "UnixNano": lambda: Int64((self.seconds * NANOSECONDS + nanoseconds + _LIMIT) % (2 * _LIMIT) - _LIMIT),
            "Year": lambda: moment.year,
            "Weekday": lambda: Enum((moment.weekday() + 1) % 7, _DAYS[moment.weekday()], "time.Weekday"),
            "YearDay": lambda: moment.timetuple().tm_yday, "Zone": Function(self.format, results=("string", "int")),
            "ZoneBounds": Function(self.format, results=(TIME, TIME)),
        }  # fmt: skip

    def go_json(self) -> Any:
        """Return the time as text, as in JSON."""
        return self.format(_IN_JSON)

    @classmethod
    def at(cls, seconds: int) -> Time:
        """Return the time of a Unix timestamp. Raises FunctionError outside the years 1 to 9999."""
        return cls(_EPOCH).moved(seconds * NANOSECONDS)

    @property
    def seconds(self) -> int:
        """The Unix timestamp in seconds."""
        return round((self.moment - _EPOCH) / timedelta(seconds=1))

    @property
    def absolute(self) -> int:
        """The nanoseconds since the year 1."""
        return round((self.moment - _FIRST) / timedelta(seconds=1)) * NANOSECONDS + self.nanoseconds

    def on_date(self, years: int, months: int, days: int) -> Time:
        """Return this time so many years, months and days later. Raises FunctionError outside the years 1 to 9999."""
        years, month = divmod((self.moment.year + years) * 12 + self.moment.month - 1 + months, 12)
        try:
            begun = self.moment.replace(year=years, month=month + 1, day=1)
            return Time(begun + timedelta(days=self.moment.day - 1 + days), self.nanoseconds)
        except (OverflowError, ValueError):
            raise FunctionError("the time is outside the years 1 to 9999") from None

    def moved(self, nanoseconds: int) -> Time:
        """Add nanoseconds. Raises FunctionError outside the years 1 to 9999."""
        seconds, rest = divmod(self.nanoseconds + nanoseconds, NANOSECONDS)
        try:
            return Time(self.moment + timedelta(seconds=seconds), rest)
        except OverflowError:
            raise FunctionError("the time is outside the years 1 to 9999") from None

    def in_zone(self, place: tzinfo) -> Time:
        """Return this time in another time zone."""
        try:
            return Time(self.moment.astimezone(place), self.nanoseconds)
        except OverflowError:
            raise FunctionError("the time is outside the years 1 to 9999") from None

    def format(self, layout: str) -> str:
        """Format with a Go layout."""
        return _ELEMENT.sub(lambda found: self._element(found[0]), layout)

    def _element(self, element: str) -> str:
        if element[0] in ".,":
            digits = f"{self.nanoseconds:09}"[: len(element) - 1]
            digits = digits.rstrip("0") if element[1] == "9" else digits.ljust(len(element) - 1, "0")
            return element[0] + digits if digits else ""
        if element[0] in "-Z":
            return self._offset(element)
        return _WRITERS[element](self.moment)

    def _offset(self, element: str) -> str:
        offset = round((self.moment.utcoffset() or timedelta()).total_seconds())
        if element[0] == "Z" and not offset:
            return "Z"
        parts = (abs(offset) // 3600, abs(offset) // 60 % 60, abs(offset) % 60)
        count = len(re.findall("[0-9]{2}", element))
        return "+-"[offset < 0] + (":" if ":" in element else "").join(f"{part:02}" for part in parts[:count])


def _zone_name(moment: datetime) -> str:
    name = moment.tzname() or ""
    return name if name and not name.startswith("UTC+") and not name.startswith("UTC-") else moment.strftime("%z")


_WRITERS: Final[dict[str, Callable[[datetime], str]]] = {
    "2006": lambda at: f"{at.year:04}", "06": lambda at: f"{at.year % 100:02}",
    "January": lambda at: _MONTHS[at.month - 1], "Jan": lambda at: _MONTHS[at.month - 1][:3],
    "01": lambda at: f"{at.month:02}", "1": lambda at: str(at.month),
    "Monday": lambda at: _DAYS[at.weekday()], "Mon": lambda at: _DAYS[at.weekday()][:3],
    "02": lambda at: f"{at.day:02}", "_2": lambda at: f"{at.day:2}", "2": lambda at: str(at.day),
    "002": lambda at: f"{at.timetuple().tm_yday:03}", "__2": lambda at: f"{at.timetuple().tm_yday:3}",
    "15": lambda at: f"{at.hour:02}", "03": lambda at: f"{at.hour % 12 or 12:02}", "3": lambda at: str(at.hour % 12 or 12),
    "04": lambda at: f"{at.minute:02}", "4": lambda at: str(at.minute),
    "05": lambda at: f"{at.second:02}", "5": lambda at: str(at.second),
    "PM": lambda at: "PM" if at.hour >= 12 else "AM", "pm": lambda at: "pm" if at.hour >= 12 else "am",  # noqa: PLR2004 - noon
    "MST": _zone_name,
}  # fmt: skip

_TWO, _ONE_OR_TWO, _BLANK = "([0-9]{2})", "([0-9]{1,2})", "( ?[0-9]{1,2})"
_READERS: Final[dict[str, tuple[str, str]]] = {
    "2006": ("year", "([0-9]{4})"), "06": ("short year", _TWO), "01": ("month", _TWO), "1": ("month", _ONE_OR_TWO),
    "January": ("month name", f"({'|'.join(_MONTHS)})"), "Jan": ("month name", f"({'|'.join(name[:3] for name in _MONTHS)})"),
    "Monday": ("", f"({'|'.join(_DAYS)})"), "Mon": ("", f"({'|'.join(name[:3] for name in _DAYS)})"),
    "02": ("day", _TWO), "_2": ("day", _BLANK), "2": ("day", _BLANK), "15": ("hour", _ONE_OR_TWO), "03": ("hour", _TWO),
    "3": ("hour", _ONE_OR_TWO), "04": ("minute", _TWO), "4": ("minute", _ONE_OR_TWO), "05": ("second", _TWO),
    "5": ("second", _ONE_OR_TWO), "PM": ("half", "(AM|PM)"), "pm": ("half", "(am|pm)"), "MST": ("zone", "([A-Z]{3,4})"),
}  # fmt: skip
"""For each element of a layout, the value that it sets and its pattern."""
_RANGES: Final = {"month": (1, 12), "hour": (0, 23), "minute": (0, 59), "second": (0, 59)}
_CENTURY: Final = 69
"""Two-digit years from here on are in the twentieth century."""


def parse_time(layout: str, text: str) -> Time:
    """Parse a text with a Go layout. Raises FunctionError with Go's message."""
    found: dict[str, Any] = {}
    rest, at = text, 0
    for element in [*_ELEMENT.finditer(layout), None]:
        literal = layout[at : element.start() if element else len(layout)]
        if not rest.startswith(literal):
            raise _unreadable(layout, text, rest, literal)
        rest = rest[len(literal) :]
        if element is not None:
            rest = _take(found, element[0], rest, layout, text)
            at = element.end()
    if rest:
        raise FunctionError(f"parsing time {quote(text)}: extra text: {quote(rest)}")
    return _assembled(found, text)


def _unreadable(layout: str, text: str, rest: str, element: str) -> FunctionError:
    return FunctionError(
        f"parsing time {quote(text)} as {quote(layout)}: cannot parse {quote(rest)} as {quote(element)}"
    )


def _take(found: dict[str, Any], element: str, rest: str, layout: str, text: str) -> str:
    if element[0] in "-Z":
        digits = re.sub("[0-9]{2}", "[0-9]{2}", element[1:])
        name, pattern = "offset", "(Z)|" * (element[0] == "Z") + f"([+-]{digits})"
    elif element[0] in ".,":
        name, pattern = "fraction", f"[.,]([0-9]{{{len(element) - 1}}})" if element[1] == "0" else "(?:[.,]([0-9]+))?"
    elif element in ("002", "__2"):
        raise FunctionError("the day of the year cannot be read; write month and day")
    else:
        name, pattern = _READERS[element]
    match = re.match(pattern, rest, re.IGNORECASE if name == "month name" or not name else 0)
    if match is None:
        raise _unreadable(layout, text, rest, element)
    value = next((group for group in match.groups() if group is not None), "")
    found[name] = value
    if name in _RANGES and not _RANGES[name][0] <= int(value) <= _RANGES[name][1]:
        raise FunctionError(f"parsing time {quote(text)}: {name} out of range")
    rest = rest[match.end() :]
    if name == "second" and (fraction := re.match("[.,]([0-9]+)", rest)) and not re.search("[.,][09]+", layout):
        found["fraction"] = fraction[1]
        rest = rest[fraction.end() :]
    return rest


def _assembled(found: dict[str, Any], text: str) -> Time:
    year = int(found.get("year", 0))
    if "short year" in found:
        year = int(found["short year"])
        year += 1900 if year >= _CENTURY else 2000
    month = int(found.get("month", 1))
    if "month name" in found:
        month = next(
            place for place, name in enumerate(_MONTHS, 1) if name[:3].lower() == found["month name"][:3].lower()
        )
    hour = int(found.get("hour", 0))
    if "half" in found:
        hour = hour % 12 + (12 if found["half"] in ("PM", "pm") else 0)
    nanoseconds = int(found.get("fraction", "")[:9].ljust(9, "0"))
    if not year:
        raise FunctionError(f"parsing time {quote(text)}: the year 0 is not supported")
    try:
        moment = datetime(
            year, month, int(found.get("day", 1)), hour, int(found.get("minute", 0)), int(found.get("second", 0)),
            tzinfo=_read_zone(found),
        )  # fmt: skip
    except ValueError:
        raise FunctionError(f"parsing time {quote(text)}: day out of range") from None
    return Time(moment, nanoseconds)


def _read_zone(found: dict[str, Any]) -> tzinfo:
    digits = re.sub("[^0-9]", "", found.get("offset", ""))
    parts = [int(digits[place : place + 2]) for place in range(0, len(digits), 2)]
    offset = sum(part * size for part, size in zip(parts, (3600, 60, 1), strict=False))
    if offset:
        return timezone(timedelta(seconds=-offset if found["offset"][0] == "-" else offset))
    name = found.get("zone", "UTC")
    return UTC if name == "UTC" else timezone(timedelta(), name)


def zone(name: str) -> tzinfo:
    """Return the time zone of this name. Raises FunctionError if the system does not have it."""
    if name in ("", "UTC", "Local"):
        return UTC
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise FunctionError(f"time zone {quote(name)} is not known on this system") from None
