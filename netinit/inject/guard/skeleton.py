"""The tree of an outline, and the insertion of each pod's parts into its scalars."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Never

import yaml

from netinit.base.errors import ParseError
from netinit.base.tree import clone, same
from netinit.golang.gojson import to_json
from netinit.golang.goyaml import events
from netinit.golang.goyaml.scalars import MERGE, resolve
from netinit.golang.template.values import FunctionError
from netinit.inject.guard.outline import ForeignPart

_MAX_SCALAR = 1 << 10
"""Characters of a scalar that is cached: 256 of them stay below a megabyte."""
_MAX_OUTLINE = 1 << 16
"""Characters of an outline whose skeleton is cached; real ones have 5,000 to 20,000."""
_BLANKS = " \t\r\n\x85\u2028\u2029"
_NOT_IN_JSON = "[\x7f-\x9f\ufffe\uffff]"
"""Characters that JSON does not escape, and that YAML forbids or reads as a line break."""
_NOT_IN_COMMENTS = "[^\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""Line breaks, which end a comment, and characters that YAML forbids."""


class Misfit(Exception):  # noqa: N818 - a verdict
    """The parts with these numbers do not fit into the outline; the message says where."""

    def __init__(self, where: str, numbers: Iterable[int]) -> None:
        super().__init__(where)
        self.numbers = tuple(numbers)


class _Entries(dict[str, Any]):
    """A written mapping, to be merged into the surrounding mapping."""


class _Items(list[Any]):
    """A written list, to be inserted into the surrounding list."""


class _Context(NamedTuple):
    """The text that, around a scalar's source, makes it parse as in its place, and the index of its event."""

    before: str
    after: str
    number: int
    total: int

    @classmethod
    def of(cls, start: Any, *, is_key: bool) -> _Context:
        """Return the context of a scalar in the collection that this event starts; None at the root."""
        if start is None:
            return cls("", "\n", 2, 5)
        indent = "" if start.anchor or start.tag else " " * start.start_mark.column  # a name stands before the mapping itself
        if start.__class__ is yaml.SequenceStartEvent:
            return cls("[", "]", 3, 7) if start.flow_style else cls(f"{indent}- ", "\n", 3, 7)
        if is_key:
            return cls("{", ": x}", 3, 8) if start.flow_style else cls(indent, ": x\n", 3, 8)
        return cls("{k: ", "}", 4, 8) if start.flow_style else cls(f"{indent}k: ", "\n", 4, 8)


def _parse_alone(source: str, context: _Context) -> Any:
    """Parse the source in the context and return its event; None if it is not exactly one scalar."""
    text = f"{context.before}{source}{context.after}"
    try:
        found = list(events.scan(text))
    except ParseError:
        return None
    event = found[context.number] if len(found) == context.total else None
    if event.__class__ is not yaml.ScalarEvent:
        return None
    begin: Any = event.start_mark
    end: Any = event.end_mark
    first, last, start = begin.index, end.index, len(context.before)
    if context.after == ": x\n" and first > start:  # a key of a block stands in the column of its mapping
        return None
    around = text[start:first] + text[last : start + len(source)]
    return None if around.strip(_BLANKS) else event


_parse_once = functools.lru_cache(maxsize=256)(_parse_alone)


class _Slot:
    """A scalar of the outline that contains placeholders."""

    def __init__(self, event: Any, outline: str, mark: str, context: _Context) -> None:
        begin = event.start_mark
        self.event, self.context, self.is_key = event, context, context.after.startswith(": ")
        self.where, self.column = f"line {begin.line + 1}, column {begin.column + 1}", begin.column
        self.source = outline[begin.index : event.end_mark.index]
        pieces = event.value.split(mark)
        self.literals = pieces[::2]
        self.form = "%s".join([literal.replace("%", "%%") for literal in self.literals])
        self.numbers = tuple(map(int, pieces[1::2]))
        self.placeholder = rf"(- )?{mark}([0-9]+){mark}(: {mark}\2{mark})?"
        self.is_foreign = not any(self.literals)
        self.is_plain = not event.style
        self.is_whole = self.is_plain and self.is_foreign and len(self.numbers) == 1

    def refuse(self) -> Never:
        """Raise Misfit for the parts in this scalar."""
        raise Misfit(self.where, self.numbers)

    def value(self, parts: Sequence[ForeignPart]) -> Any:
        """Return the value with the parts inserted. Raises Misfit if they would leave this scalar."""
        if self.event.tag is None:
            part = parts[self.numbers[0]]
            if self.is_whole and part.quoted is not None:
                return part.quoted
            if self.is_whole and part.kind:
                return self._tree(part)
            words = tuple([parts[number].word for number in self.numbers])
            if None not in words:
                text = self.form % words
                return resolve(text) if self.is_plain else text
        return self._parsed(parts)

    def _parsed(self, parts: Sequence[ForeignPart]) -> Any:
        source = re.sub(self.placeholder, lambda found: self._source(found, parts), self.source)
        event = (_parse_once if len(source) <= _MAX_SCALAR else _parse_alone)(source, self.context)
        if event is None or (event.anchor, event.tag) != (self.event.anchor, self.event.tag):
            self.refuse()
        style = event.style or ""
        fits = style not in {"|", ">"} if self.is_whole else style == (self.event.style or "") and self._holds(event.value)
        try:
            value = events.value_of(event)
        except ParseError:
            self.refuse()
        if not fits or value is MERGE:
            self.refuse()
        return value

    def _source(self, found: re.Match[str], parts: Sequence[ForeignPart]) -> str:
        """Return the output for a placeholder, or for the first entry or item of a written mapping or list."""
        dash, number, entry = found.groups(default="")
        part = parts[int(number)]
        if (part.kind == "mapping" and not entry) or (part.kind == "list" and not dash):
            self.refuse()  # a half of what stands for it
        return part.source if part.kind == "list" else dash + part.source

    def _holds(self, value: str) -> bool:
        """Whether the value contains the author's words; spaces next to a part may be folded."""
        first, last = self.literals[0].rstrip(_BLANKS), self.literals[-1].lstrip(_BLANKS)
        start, end = len(first), len(value) - len(last)
        between = zip(self.numbers, self.numbers[1:], self.literals[1:-1], strict=False)
        for literal in [words.strip(_BLANKS) for before, after, words in between if before != after]:
            if (start := value.find(literal, start, end)) < 0:
                return False
            start += len(literal)
        return value.startswith(first) and value.endswith(last) and start <= end

    def _tree(self, part: ForeignPart) -> Any:
        """Return the tree that a function wrote, if its layout is correct here."""
        if part.kind == "json":
            if re.search(_NOT_IN_JSON, part.text):
                self.refuse()
            return json.loads(part.text)
        if part.kind == "mapping" and not self.is_key:
            return _Entries()  # this is the value of the entry that stands for all
        try:
            found = tree = json.loads(to_json(part.tree))
            if part.kind != "scalar":
                text = " " * (self.column - 2 * (part.kind == "list")) + part.text
                found = events.build(events.scan(f"{{{text}}}" if self.context.before[:1] == "{" else text)).document()
            elif "\n" in part.source:
                found = getattr(_parse_alone(part.source, self.context), "value", None)
        except (FunctionError, ParseError):
            self.refuse()
        if not same(found, tree):
            self.refuse()
        return {"mapping": _Entries, "list": _Items}[part.kind](tree) if part.kind != "scalar" else tree

    def key(self, value: Any) -> str:
        """Return the value of this scalar as a key."""
        if value is None or isinstance(value, dict | list):
            self.refuse()
        return str(events.as_key(value))


class _Builder(events.TreeBuilder):
    """Builds an outline's tree; a scalar with placeholders becomes a text that identifies its slot."""

    def __init__(self, outline: str, mark: str) -> None:
        super().__init__()
        self.outline, self.mark = outline, mark
        self.slots: dict[str, _Slot] = {}
        self.starts: list[Any] = [None]

    def _open(self, value: Any, event: Any) -> None:
        super()._open(value, event)
        self.starts.append(event)

    def _scalar(self, event: Any) -> None:
        if self.mark in event.value:
            name = f"{self.mark}{len(self.slots)}"
            context = _Context.of(self.starts[-1], is_key=self._expects_key())
            self.slots[name] = _Slot(event, self.outline, self.mark, context)
            event = yaml.ScalarEvent(event.anchor, None, (False, True), name, event.start_mark, event.end_mark, '"')
        super()._scalar(event)

    def _close(self, event: Any) -> None:
        self.starts.pop()
        frame = self._stack[-1]
        if frame.merges and (foreign := [key for key in frame.value if key in self.slots]):
            self.slots[foreign[0]].refuse()
        super()._close(event)


class Skeleton:
    """The tree of an outline, and its slots by the texts that identify them."""

    def __init__(self, outline: str, mark: str) -> None:
        builder = _Builder(outline, mark)
        for event in events.scan(outline):
            builder.feed(event)
        self.tree, self.slots = builder.document(), builder.slots
        seen = {number for slot in self.slots.values() for number in slot.numbers}
        self.unseen = {int(number) for number in outline.split(mark)[1::2]} - seen
        """Numbers of the parts in comments."""
        self.is_aliased = bool(builder.aliased)
        self.keys = {name for name, slot in self.slots.items() if slot.is_key}

    def filled(self, parts: Sequence[ForeignPart]) -> Any:
        """Return the tree with these parts in place of the placeholders. Raises Misfit."""
        for number in self.unseen:
            if re.search(_NOT_IN_COMMENTS, parts[number].text):
                raise Misfit("a comment", [number])
        tree = self._fill(self.tree, {name: slot.value(parts) for name, slot in self.slots.items()})
        return clone(tree) if self.is_aliased else tree

    def _fill(self, node: Any, values: Mapping[str, Any]) -> Any:
        """Copy the node with its values; written mappings and lists are merged into the surrounding ones."""
        if node.__class__ is dict:
            if self.keys and not self.keys.isdisjoint(node):
                return self._fill_mapping(node, values)
            return {  # texts, which most items are, without a call of their own
                key: values.get(item, item) if item.__class__ is str else self._fill(item, values)
                for key, item in node.items()
            }
        if node.__class__ is not list:
            return values.get(node, node) if node.__class__ is str else node
        found = [values.get(item, item) if item.__class__ is str else self._fill(item, values) for item in node]
        if _Items not in map(type, found):
            return found
        return [one for item in found for one in (item if item.__class__ is _Items else (item,))]

    def _fill_mapping(self, node: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Copy a mapping with foreign keys, which must not replace values of the template."""
        found: dict[str, Any] = {}
        owners: dict[str, tuple[_Slot | None, bool]] = {}
        """For each key, its slot if it is foreign, and whether all of its value is foreign."""
        for key, item in node.items():
            slot = self.slots.get(key)
            of_item = self.slots.get(item) if isinstance(item, str) else None
            is_foreign = of_item is not None and of_item.is_foreign
            entries = values.get(key)
            if slot is None:
                entries = {key: self._fill(item, values)}
            elif not isinstance(entries, _Entries):
                entries = {slot.key(entries): self._fill(item, values)}
            elif of_item is None or not of_item.is_whole or of_item.numbers != slot.numbers:
                slot.refuse()
            for name in entries.keys() & found.keys():
                before, was_foreign = owners[name]
                if (culprit := slot or before) and not (was_foreign and is_foreign):
                    culprit.refuse()
            found.update(entries)
            owners.update(dict.fromkeys(entries, (slot, is_foreign)))
        return found


def skeleton_of(outline: str, mark: str) -> Skeleton:
    """Return the cached skeleton of an outline. Raises ParseError, and Misfit for a key next to `<<`."""
    return _kept(outline, mark) if len(outline) <= _MAX_OUTLINE else Skeleton(outline, mark)


_kept = functools.lru_cache(maxsize=32)(Skeleton)


def forget() -> None:
    """Clear the caches, whose skeletons a new configuration does not use."""
    _kept.cache_clear()
    _parse_once.cache_clear()
