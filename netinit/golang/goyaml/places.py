"""Where the keys and items of a text stand, for messages about trees that were read from it, and for changing the text in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from netinit.golang.goyaml.events import scan, value_of
from netinit.golang.goyaml.scalars import MERGE, key_of

_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class TextPlace:
    """The line and column, both from 1, of a key, an item or a document, and the places `below` it by key or index.

    `start` is the index of the same character; the value's text is from `value` to `end`, without a comment behind it. `is_block`:
    the value is a mapping or a list in block style.
    """

    __slots__ = ("below", "column", "end", "is_block", "line", "start", "value")

    def __init__(self, mark: Any, event: Any) -> None:
        self.line, self.column = mark.line + 1, mark.column + 1
        self.start, self.value, self.end = mark.index, event.start_mark.index, event.end_mark.index
        self.is_block = isinstance(event, _OPENING) and not event.flow_style
        self.below: dict[Any, TextPlace] = {}

    def find(self, path: Sequence[str | int]) -> tuple[TextPlace, int]:
        """Return the place of the last step of a path that is there, and the number of steps to it."""
        place = self
        for number, step in enumerate(path):
            if (below := place.below.get(step)) is None:
                return place, number
            place = below
        return place, len(path)


class _OpenPlace:
    def __init__(self, place: TextPlace, *, is_mapping: bool) -> None:
        self.place, self.is_mapping = place, is_mapping
        self.key: Any = None  # of a mapping: the pair of a key and its mark, until its value comes
        self.merged: list[TextPlace] = []


class _PlaceReader:
    def __init__(self, text: str) -> None:
        self.documents: list[TextPlace] = []
        self._stack: list[_OpenPlace] = []
        self._anchors: dict[str, TextPlace] = {}
        self._end = 0  # of the last scalar
        for event in scan(text):
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
            elif isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent, *_OPENING)):
                self._read(event)
            elif isinstance(event, _CLOSING):
                self._close(event)

    def _read(self, event: Any) -> None:
        top = self._stack[-1] if self._stack else None
        if top and top.is_mapping and top.key is None:
            key = value_of(event) if isinstance(event, yaml.ScalarEvent) else None  # an alias as a key is not looked for
            top.key = (key if key is MERGE else key_of(key), event.start_mark)
            return
        place = TextPlace(top.key[1] if top and top.is_mapping else event.start_mark, event)
        self._add(top, place)
        self._end = place.end
        if isinstance(event, yaml.AliasEvent):
            place.below = self._anchors[str(event.anchor)].below
            return
        if event.anchor:
            self._anchors[event.anchor] = place
        if isinstance(event, _OPENING):
            self._stack.append(_OpenPlace(place, is_mapping=isinstance(event, yaml.MappingStartEvent)))

    def _add(self, top: _OpenPlace | None, place: TextPlace) -> None:
        if top is None:
            self.documents.append(place)
        elif not top.is_mapping:
            top.place.below[len(top.place.below)] = place
        else:
            (key, _), top.key = top.key, None
            if key is MERGE:
                top.merged.append(place)
            else:
                top.place.below[key] = place

    def _close(self, event: Any) -> None:
        frame = self._stack.pop()
        if not frame.place.is_block:  # the end that a block is given is where the next thing begins
            self._end = event.end_mark.index
        frame.place.end = self._end
        for merged in frame.merged:
            is_list = all(isinstance(key, int) for key in merged.below)
            for source in merged.below.values() if is_list else (merged,):
                for key, place in source.below.items():
                    frame.place.below.setdefault(key, place)


def read_places(text: str) -> list[TextPlace]:
    """Return the place of each document of a text that can be read. Raises YamlError for any other."""
    return _PlaceReader(text).documents
