"""The real text, event by event beside its outline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from netinit.base.errors import ParseError
from netinit.base.tree import same
from netinit.golang.gojson import to_json
from netinit.golang.goyaml import events
from netinit.golang.goyaml.values import to_yaml
from netinit.golang.template.values import FunctionError, Shaped
from netinit.inject.guard.keys import Keys
from netinit.inject.guard.parts import Foreign, Mismatch, Signature, Want, refuse, signature_of

__all__ = ["Reading"]

_BLANKS = " \t\r\n\x85\u2028\u2029"
_BREAKS = "[\r\n\x85\u2028\u2029]"


class Reading:
    """The events of a text, which must be those that are wanted."""

    def __init__(self, text: str, wanted: tuple[Want, ...], foreign: Sequence[Foreign]) -> None:
        self.events = list(events.scan(text))
        self.wanted = wanted
        self.foreign = foreign
        self.at = 0
        self.touched: dict[int, Foreign] = {}
        self.owners: dict[int, Foreign] = {}
        """By number of the event: a foreign part that had a hand in it, and the one that alone made it."""
        self.unseen = set(range(len(foreign)))

    def tree(self) -> Any:
        """The tree of the text. Raises Mismatch or ParseError."""
        wanted, found, total = iter(self.wanted), self.events, len(self.events)
        for want in wanted:
            event = found[self.at] if self.at < total else self.event()
            if not want.tokens:
                if signature_of(event) != want.signature:
                    refuse(event)
                self.at += 1
                continue
            part = self.foreign[want.tokens[0]]
            if want.whole and isinstance(part.text, Shaped) and part.text.form and not part.trusted:
                self.written(want, part, part.text, wanted)
            else:
                self.scalar(want, event)
                self.at += 1
            self.unseen.difference_update(want.tokens)
        if self.at < len(self.events):
            refuse(self.event())
        self.comments()
        builder = events.build(self.events)
        if builder.duplicates or builder.merges:
            Keys(self.events, self.touched, self.owners).check()
        return builder.document()

    def event(self) -> Any:
        """The event that is to be compared next."""
        if self.at == len(self.events):
            refuse(self.events[-1])
        return self.events[self.at]

    def scalar(self, want: Want, event: Any) -> None:
        """A scalar with tokens in it."""
        if event.__class__ is not yaml.ScalarEvent or signature_of(event)[:3] != want.signature[:3]:
            refuse(event)
        style = event.style or ""
        if want.whole:
            if style in "|>" and style:
                refuse(event)
            if not style and event.value == "<<":
                refuse(event, self.foreign[want.tokens[0]])
        elif style != want.signature[4] or not _holds(event.value, want):
            refuse(event)
        self.touched[self.at] = self.foreign[want.tokens[0]]
        if not any(want.literals):
            self.owners[self.at] = self.foreign[want.tokens[0]]
        first, last = _extent(event)
        for number in want.tokens:
            part = self.foreign[number]
            text = part.text.rstrip(_BLANKS)
            start = part.start + len(text) - len(text.lstrip(_BLANKS))
            inside = first <= start and part.start + len(text) <= last
            if text and not inside and not part.trusted:
                refuse(event, part)

    def written(self, want: Want, part: Foreign, text: Shaped, wanted: Iterator[Want]) -> None:
        """A tree that a function wrote: the events are its own, and all of them lie in the part."""
        nodes, entries = _nodes_of(text)
        end = part.start + len(text)
        for number, node in enumerate(nodes):
            event = self.event()
            if signature_of(event) != (node if number else (node[0], want.signature[1], *node[2:])):
                refuse(event, part)
            if len(node) > 1 and not part.start <= event.start_mark.index <= end:
                refuse(event, part)
            self.touched[self.at] = self.owners[self.at] = part
            self.at += 1
        if entries:
            follower = next(wanted)
            if not follower.whole or follower.tokens != want.tokens:
                refuse(self.events[self.at - 1], part)

    def comments(self) -> None:
        """Refuse parts that stand in no scalar and have line breaks: a comment of the author's would end there."""
        for number in self.unseen:
            if re.search(_BREAKS, self.foreign[number].text):
                raise Mismatch("a comment", self.foreign[number])


def _extent(event: Any) -> tuple[int, int]:
    """Where the event's text begins and ends."""
    return event.start_mark.index, event.end_mark.index


def _holds(value: str, want: Want) -> bool:
    """Whether the author's words stand in the value as in the outline; blanks beside a token may be folded away."""
    first, last = want.literals[0].rstrip(_BLANKS), want.literals[-1].lstrip(_BLANKS)
    if not value.startswith(first) or not value.endswith(last):
        return False
    start, end = len(first), len(value) - len(last)
    between = zip(want.tokens[:-1], want.tokens[1:], want.literals[1:-1], strict=True)
    for literal in [words.strip(_BLANKS) for before, after, words in between if before != after]:
        start = value.find(literal, start, end)
        if start < 0:
            return False
        start += len(literal)
    return start <= end


def _nodes_of(text: Shaped) -> tuple[list[Signature], bool]:
    """The events of a written tree, and whether they are the bare entries of a mapping, which may have others beside.

    Raises Mismatch where the text does not read back as the tree: then it proves nothing.
    """
    try:
        alone = to_yaml(text.tree) if text.form == "yaml" else text.strip()
        found = list(events.scan(alone))
        right = same(events.build(found).document(), json.loads(to_json(text.tree)))
    except (FunctionError, ParseError, RecursionError, ValueError):
        right = False
    if not right:
        raise Mismatch("a tree that YAML cannot hold")
    nodes = [signature_of(event) for event in found[2:-2]]
    if text.form == "yaml" and len(nodes) > 2:  # noqa: PLR2004 - the start and the end of a collection
        return nodes[1:-1], nodes[0][0] is yaml.MappingStartEvent
    return nodes, False
