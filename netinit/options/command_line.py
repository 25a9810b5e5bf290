"""Command lines for people: a value of a command's own option, and options as a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TypeVar

from netinit.base.errors import OptionError
from netinit.base.sanitize import MAX_RULE_LENGTH, shorten
from netinit.options import Interception, Options
from netinit.options.kinds import quote_value

Kind = TypeVar("Kind")


def read_value(text: str, read: Callable[[str], Kind], label: str) -> Kind:
    """Parse the value of a command's own option with `read`. OptionError names option, value and problem."""
    try:
        return read(text)
    except ValueError as error:
        raise OptionError(f"{label}: {quote_value(text)} {error}") from None


def write_command(options: Options, always: Sequence[str] = ()) -> str:
    """The options as a command line of apply, with those in `always`, after variables for those without a flag."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in options.to_environ().items()]
    return " ".join([*variables, "netinit apply", *map(shlex.quote, options.to_argv(always))])


def format_options(options: Options) -> str:
    """Options, as given and not as settled here, as a command line of apply, truncated."""
    rules = Options(**{flag.field: getattr(options, flag.field) for flag in Interception.flags})
    return shorten(write_command(rules), MAX_RULE_LENGTH)


def names_rules(options: Options) -> bool:
    """Whether a flag or variable set any rule option to a value other than its default."""
    return bool(list_given(options))


def list_given(options: Options) -> dict[str, str]:
    """The rule options with a value other than their default: fields, with the flags as written."""
    plain = Options.from_argv(())
    return {flag.field: flag.label for flag in Interception.flags if getattr(options, flag.field) != getattr(plain, flag.field)}
