"""What the guard compares: foreign parts, and the events that their text must have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never, TypeAlias

import yaml

from netinit.base.errors import NetinitError
from netinit.golang.goyaml import events
from netinit.golang.template.nodes import Action

__all__ = ["BreakOut", "Foreign", "Mismatch", "Signature", "Want", "refuse", "signature_of", "wants"]


class Foreign:
    """A part of the text that a foreign action printed: which part it is, its text, and the action.

    In the text that is looked at it begins at `start`; `trusted` is one that is shown by its token there.
    """

    __slots__ = ("action", "place", "start", "text", "trusted")

    def __init__(self, place: int, text: str, action: Action, start: int = 0, *, trusted: bool = False) -> None:
        self.place, self.text, self.action = place, text, action
        self.start, self.trusted = start, trusted


class BreakOut(NetinitError):  # noqa: N818 - a verdict
    """Foreign parts changed more than their own scalars; the message says where that shows.

    `culprits` are the parts that do so alone, or else all that may do so together.
    """

    def __init__(self, culprits: Sequence[Foreign], where: str) -> None:
        super().__init__(where)
        self.culprits = culprits


class Mismatch(Exception):  # noqa: N818 - a verdict
    """The text does not fit its outline: where, and by which part, if it is known."""

    def __init__(self, where: str, culprit: Foreign | None = None) -> None:
        super().__init__(where)
        self.culprit = culprit


def refuse(event: Any, culprit: Foreign | None = None) -> Never:
    """Raise Mismatch where the event stands."""
    mark = event.start_mark
    raise Mismatch(f"line {mark.line + 1}, column {mark.column + 1}", culprit)


class Want:
    """What an event must be: its signature, and the tokens in it with the literal text around them.

    `whole` is a plain scalar that is one token and nothing else.
    """

    __slots__ = ("literals", "signature", "tokens", "whole")

    def __init__(self, event: Any, mark: str) -> None:
        self.signature = signature_of(event)
        self.tokens: tuple[int, ...] = ()
        self.literals: tuple[str, ...] = ()
        self.whole = False
        if event.__class__ is yaml.ScalarEvent and mark in event.value:
            pieces = event.value.split(mark)
            self.tokens = tuple(map(int, pieces[1::2]))
            self.literals = tuple(pieces[::2])
            self.whole = not event.style and self.literals == ("", "")


def wants(outline: str, mark: str) -> tuple[Want, ...]:
    """What the events of a text must be whose outline that is; `mark` stands around the numbers of tokens."""
    return tuple([Want(event, mark) for event in events.scan(outline)])


Signature: TypeAlias = "tuple[Any, ...]"


def signature_of(event: Any) -> Signature:
    """Everything of an event that must not change: kind, value, style, anchor and tag."""
    kind = event.__class__
    if kind is yaml.ScalarEvent:
        return (kind, event.anchor, event.tag, event.value, event.style or "")
    if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
        return (kind, event.anchor, event.tag)
    if kind is yaml.AliasEvent:
        return (kind, event.anchor)
    if kind is yaml.DocumentStartEvent:
        return (kind, event.explicit, event.version, event.tags)
    return (kind,)
