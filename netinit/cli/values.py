"""The values of options and arguments that click parses, read by the kinds of the declared flags."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from netinit.options.kinds import OR_LEAVE_OUT, Kind, quote_value, read_duration, read_number

MIN_SECONDS, MAX_SECONDS = 0.1, 86400.0


class ValueType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """The type of a command's own option or argument: a kind of values, which reads as it does for declared flags."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a given text; the empty text, as a default, means that nothing is given."""
        by_default = ctx and param and param.name and ctx.get_parameter_source(param.name) is ParameterSource.DEFAULT
        if not isinstance(value, str) or (by_default and not value):
            return value
        try:
            return self.kind.parse(value)
        except ValueError as error:
            problem = str(error).removesuffix(OR_LEAVE_OUT) if param and param.required else str(error)
            return self.fail(f"{quote_value(value)} {problem}", param, ctx)


class OneOf(click.Choice):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.2
    """The type of a command's own option that takes one of a few words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            return self.fail(f"{quote_value(str(value))} is not one of {', '.join(map(str, self.choices))}", param, ctx)


def takes(kind: Kind | str, *, is_file: bool = False) -> dict[str, Any]:
    """The type and placeholder of an option or argument of click: a kind, or the placeholder of one that takes any text."""
    if isinstance(kind, Kind):
        return {"type": ValueType(kind), "metavar": kind.metavar}
    is_path = is_file or "FILE" in kind or "FOLDER" in kind
    return {"type": ValueType(Kind(metavar=kind.strip("[].") if kind[0] == "[" else kind, read=str, is_file=is_path)), "metavar": kind}


def numbers(low: int, high: int = 10**9) -> Kind:
    """The kind of a number from `low` to `high`."""
    return Kind(metavar="NUMBER", read=lambda text: read_number(text, low, high, "a number"))


def _read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = read_duration(text) / 10**9
        except ValueError:
            seconds = 0.0
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise ValueError("is not a time from 0.1 seconds to a day: use 5, 0.5, 5s or 1m30s")
    return seconds


SECONDS = Kind(metavar="DURATION", read=_read_seconds)
