"""Reads YAML as Go does, for who asks about netinit's inputs: a text that cannot be read is netinit's ParseError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from netinit.base.errors import ParseError
from netinit.golang import errors, goyaml

Read = TypeVar("Read")


def load_all(text: str) -> list[Any]:
    """Parse all documents of a stream. Raises ParseError with line and column."""
    return _read(goyaml.load_all, text)


def load(text: str) -> Any:
    """Parse a single document; None for an empty text. Raises ParseError, also for a second document."""
    return _read(goyaml.load, text)


def load_reporting(text: str) -> tuple[Any, tuple[str, ...]]:
    """Parse a single document; also return a sentence for each duplicate key. Raises ParseError."""
    return _read(goyaml.load_reporting, text)


def _read(read: Callable[[str], Read], text: str) -> Read:
    try:
        return read(text)
    except errors.YamlError as error:
        raise ParseError(str(error)) from None
