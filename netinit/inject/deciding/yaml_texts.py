"""Reads YAML as Go does, for who asks about netinit's inputs: a text that cannot be read is netinit's ParseError."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from netinit.base.errors import ParseError
from netinit.golang import errors, goyaml

_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+")
Read = TypeVar("Read")


def load_all(text: str) -> list[Any]:
    """Parse all documents of a stream. Raises ParseError with line and column."""
    return _read(goyaml.load_all, text)


def load(text: str) -> Any:
    """Parse a single document; None for an empty text. Raises ParseError, also for a second document."""
    return _read(goyaml.load, text)


def load_reporting(text: str, lines_before: int = 0) -> tuple[Any, tuple[ParseError, ...]]:
    """Parse a single document, which has so many lines before it; also return an error for each duplicate key. Raises ParseError."""
    try:
        tree, duplicates = goyaml.load_reporting(text)
    except errors.YamlError as error:
        raise _translate(error, lines_before) from None
    return tree, tuple([_translate(one, lines_before) for one in duplicates])


def find_octal_numbers(text: str) -> Iterator[ParseError]:
    """Yield an error for each number of a text that can be parsed which YAML reads as octal: 010 is 8."""
    from netinit.golang.goyaml.events import scan, value_of

    for event in scan(text):
        value = value_of(event) if event.__class__.__name__ == "ScalarEvent" else None
        if value.__class__ is int and _LEADING_ZERO.fullmatch(event.value):
            problem = f"{event.value} is the number {value} in YAML: write it without the leading zero"
            yield ParseError(problem, event.start_mark.line + 1, event.start_mark.column + 1)


def _read(read: Callable[[str], Read], text: str) -> Read:
    try:
        return read(text)
    except errors.YamlError as error:
        raise _translate(error) from None


def _translate(error: errors.YamlError, lines_before: int = 0) -> ParseError:
    return ParseError(error.problem, error.line + lines_before if error.line else 0, error.column)
