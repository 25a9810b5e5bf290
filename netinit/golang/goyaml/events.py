"""Build trees from the events of PyYAML's parser, within limits. libyaml, if PyYAML has it, is ten times as fast."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from netinit.golang.errors import YamlError
from netinit.golang.goyaml import syntax_errors
from netinit.golang.goyaml.scalars import MERGE, key_of, resolve, resolve_as
from netinit.golang.goyaml.syntax_errors import error_at
from netinit.golang.template.literals import format_float

MAX_DEPTH = 200
"""Levels of a document. Real ones have less than 40; the deepest CustomResourceDefinitions have about 60."""
TOO_DEEP = "exceeded maximum nesting depth"  # libyaml since 0.2.6, in PyYAML since 6.0.4
MAX_NODES = 2_000_000
"""Nodes of a stream, about 60 MB of YAML."""
_MAX_SHOWN = 120  # characters of a text in a message
MAX_ALIASED_NODES = 100_000
"""Nodes that aliases may add to a document."""

_Reader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
BLANKS = " \t\r\n\x85\u2028\u2029"
"""Spaces, and YAML's line breaks."""
_YAML_TAG = "tag:yaml.org,2002:"
_BARE_TAG = r"(?:^|[\s,\[{])!\s"
_WITH_BARE_TAG = r"(?:&\S+\s+)?!\s"


def _tagged(tag: str, text: str, mark: Any) -> Any:
    if not tag.startswith(_YAML_TAG):
        return text
    try:
        return resolve_as(tag.removeprefix(_YAML_TAG), text)
    except ValueError as error:
        raise error_at(mark, str(error)) from None


def value_of(event: Any) -> Any:
    """Return the value of a scalar event; MERGE for a plain `<<`. Raises YamlError if it does not fit its tag."""
    if event.implicit[0] and not event.style:
        return resolve(event.value)
    if event.tag is None or event.implicit[1] or event.tag == "!":
        return event.value
    return _tagged(event.tag, event.value, event.start_mark)


class _Frame:
    def __init__(self, value: Any, event: Any, start: int) -> None:
        self.value, self.event, self.start = value, event, start
        self.keyed = False
        self.key: Any = None
        self.has_merge = False
        self.merged: set[str] = set()  # keys that a merge wrote, which may come again


_UNFINISHED = object()


class TreeBuilder:
    """Builds the trees of a stream from parser events, without recursion. `duplicates`: an error for each duplicate key."""

    def __init__(self, text: str) -> None:
        self.documents: list[Any] = []
        self.duplicates: list[YamlError] = []
        self.nodes = 0
        self.aliased = 0
        self._bare_tags = text if re.search(_BARE_TAG, text) else ""
        self._stack: list[_Frame] = []
        self._anchors: dict[str, Any] = {}
        handlers: dict[type, Callable[[Any], None]] = {
            yaml.DocumentStartEvent: self._begin,
            yaml.ScalarEvent: self._scalar,
            yaml.AliasEvent: self._alias,
            **dict.fromkeys((yaml.MappingStartEvent, yaml.SequenceStartEvent), self._open),
            **dict.fromkeys((yaml.MappingEndEvent, yaml.SequenceEndEvent), self._close),
        }
        for event in scan(text):
            if (handle := handlers.get(event.__class__)) is not None:
                handle(event)

    def document(self) -> Any:
        """Return the tree of the only document; None without one. Raises YamlError for a second one."""
        if len(self.documents) > 1:
            raise YamlError(f"{len(self.documents)} documents where one is expected; separate them by lines of ---")
        return self.documents[0] if self.documents else None

    def _begin(self, _event: Any) -> None:
        self._anchors = {}
        self.aliased = 0

    def _scalar(self, event: Any) -> None:
        self._count(event)
        value = event.value if self._bare_tags and self._has_bare_tag(event) else value_of(event)
        if value is MERGE and not self._expects_key():
            value = "<<"
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, event)

    def _has_bare_tag(self, event: Any) -> bool:
        """Whether the scalar has the tag `!`, which makes a text of it; the event does not say so."""
        return re.match(_WITH_BARE_TAG, self._bare_tags[event.start_mark.index : event.end_mark.index]) is not None

    def _open(self, event: Any) -> None:
        self._count(event)
        if len(self._stack) >= MAX_DEPTH:
            raise error_at(event.start_mark, f"nested deeper than {MAX_DEPTH} levels")
        if self._expects_key():
            raise error_at(event.start_mark, "a key must be a scalar, not a mapping or a list")
        if event.anchor:
            self._anchors[event.anchor] = _UNFINISHED
        self._stack.append(_Frame({} if event.__class__ is yaml.MappingStartEvent else [], event, self.nodes))

    def _close(self, _event: Any) -> None:
        frame = self._stack.pop()
        if anchor := frame.event.anchor:
            self._anchors[anchor] = (frame.value, self.nodes - frame.start + 1)
        self._add(frame.value, frame.event)

    def _alias(self, event: Any) -> None:
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            raise error_at(event.start_mark, f"the alias *{event.anchor[:40]} names no anchor before it")
        if anchor is _UNFINISHED:
            raise error_at(event.start_mark, f"the alias *{event.anchor[:40]} lies inside its own anchor")
        value, size = anchor
        self.aliased += size
        self.nodes += size
        if self.aliased > MAX_ALIASED_NODES:
            raise error_at(event.start_mark, f"aliases expand to more than {MAX_ALIASED_NODES} nodes; write the values out")
        self._add(_clone(value), event)

    def _count(self, event: Any) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise error_at(event.start_mark, f"more than {MAX_NODES} nodes")

    def _expects_key(self) -> bool:
        if not self._stack:
            return False
        top = self._stack[-1]
        return not top.keyed and top.value.__class__ is dict

    def _add(self, value: Any, event: Any) -> None:
        if value.__class__ is float and not math.isfinite(value) and not self._expects_key():
            raise error_at(event.start_mark, f"unsupported value: {format_float(value, 'g')}")  # JSON has none
        if not self._stack:
            self.documents.append(value)
            return
        top = self._stack[-1]
        if top.value.__class__ is list:
            top.value.append(value)
        elif not top.keyed:
            if value is None or isinstance(value, (dict, list)):
                raise error_at(event.start_mark, f"a key must be a string, not {json.dumps(value)[:40]}")
            top.key = key_of(value)
            top.keyed = True
        else:
            top.keyed = False
            if top.key is MERGE:
                sources = value if isinstance(value, list) else [value]
                if not all(isinstance(source, dict) for source in sources):
                    raise error_at(event.start_mark, "<< must name a mapping or a list of mappings")
                top.has_merge = True
                for source in reversed(sources):  # of several, the first wins; what comes later in the mapping wins over all
                    top.merged |= source.keys()
                    top.value |= _clone(source)
            else:
                if top.key in top.value and top.key not in top.merged:
                    self.duplicates.append(error_at(event.start_mark, f"the key {_shown(top.key)} occurs twice in one mapping"))
                top.value[top.key] = value


def scan(text: str) -> Iterator[Any]:
    """Yield the parser's events; scanner errors become YamlError with their position."""
    reader = None
    try:
        reader = _Reader(text)
        while (event := reader.get_event()) is not None:
            yield event
    except yaml.MarkedYAMLError as error:
        if error.problem == TOO_DEEP:  # libyaml reads ahead and refuses 1,000 levels before their events arrive
            raise error_at(error.problem_mark, f"nested deeper than {MAX_DEPTH} levels") from None
        raise syntax_errors.describe(error, text) from None
    except yaml.reader.ReaderError as error:
        raise syntax_errors.describe_character(chr(error.character), text) from None
    except UnicodeEncodeError as error:
        raise syntax_errors.describe_character(text[error.start], text) from None
    finally:
        if reader is not None:
            reader.dispose()


def parse_alone(source: str, before: str, after: str) -> Any:
    """Parse a scalar's source as a key (`after` has a colon), a value or an item between these texts; return its event.

    Raises YamlError if the source is anything but one whole scalar.
    """
    text, start = f"{before}{source}{after}", len(before)
    found = list(scan(text))
    number, total = (3, 7) if before == "[" or before.endswith("- ") else (3 if ":" in after else 4, 8)
    event = found[number] if len(found) == total else None
    if isinstance(event, yaml.ScalarEvent) and event.start_mark and event.end_mark:
        first, last = event.start_mark.index, event.end_mark.index
        around = text[start:first] + text[last : start + len(source)]
        is_moved = not before.strip() and first > start  # a key of a block is in the column of its mapping
        if not is_moved and not around.strip(BLANKS):
            return event
    raise YamlError("not one scalar")


def _clone(value: Any) -> Any:
    """Return a deep copy; five times as fast as copy.deepcopy on trees."""
    if isinstance(value, dict):
        return {key: _clone(item) for key, item in value.items()}
    return [_clone(item) for item in value] if isinstance(value, list) else value


def _shown(value: object) -> str:
    """Return the value in Python's notation for an error message, cut if long."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
