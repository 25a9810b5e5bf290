"""Confine a pod's values to the scalars of a template's output in which the template prints them.

A template prints annotations, labels and names into YAML without quoting, so a value could end its scalar and add
fields (`privileged: true`). Therefore the text with the values is never parsed, only its *outline*: the text with a
placeholder for each output of a foreign action (one whose output may depend on the pod, see `golang.template.origins`).

- The outline depends on the template and the branches taken, not on a value, so its tree is the template author's. This
  tree, the *skeleton*, is cached for all pods with the same branches.
- Words are inserted into a scalar as they are. With any other text, the scalar's source alone is parsed, and must be
  exactly one scalar of the same style, with the author's words unchanged. A scalar that is only a placeholder may have
  its own quotes.
- A tree that a function wrote (toYaml, toJson) becomes a value, or entries of the surrounding mapping or list, if its
  indentation is correct.
- A foreign key must only replace foreign values, must not be `<<`, and must not be next to an author's `<<`.
- In a comment, a value must not contain a line break or a character that YAML forbids.

The types of plain scalars (`80`, `true`, `~`) follow from the value, as in Istio.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Never

import yaml

from netinit.base.errors import NetinitError
from netinit.base.tree import clone, same
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.golang.gojson import to_json
from netinit.golang.goyaml import events
from netinit.golang.goyaml.scalars import MERGE, key_of, resolve
from netinit.golang.goyaml.syntax_errors import place_of
from netinit.golang.goyaml.values import pairs_of, to_yaml
from netinit.golang.template import Rendering
from netinit.golang.template.values import FunctionError, Shaped

_MARKS = {chr(code): f"{code:x}" for code in range(0xE000, 0xE010)}
"""Candidates for the mark: private-use characters, which texts rarely contain, with their code in an escape."""
WORD = r"[A-Za-z0-9_/$(](?:[A-Za-z0-9_./%+=$()~@-]|:(?=[A-Za-z0-9/])){0,255}"
"""A text that YAML reads literally in any scalar; short, as YAML limits keys."""
_LITERAL = re.compile(rf'({WORD})|"([ !#-\[\]-~]{{0,254}})"')
"""A word, or text in double quotes without escapes."""
_COLON = re.compile(r"[ \t]*:")
"""What follows a key on its line, if no `? ` announces it."""
_MAX_CACHED = 1 << 10
"""Characters of a part or a scalar that is cached."""
_MAX_OUTLINE = 1 << 16
"""Characters of an outline whose skeleton is cached; real ones have 5,000 to 20,000."""
_NOT_ON_A_LINE = "[^\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""Line breaks, and characters that YAML forbids."""


class BreakOut(NetinitError):  # noqa: N818 - a verdict
    """Foreign outputs would change more than their scalars. The message says where.

    `numbers`: the outputs that may be the cause, as positions in the rendering's `marks`.
    """

    def __init__(self, where: str, numbers: Sequence[int]) -> None:
        super().__init__(where)
        self.numbers = numbers


def read(rendering: Rendering) -> Any:
    """Return the tree of a rendered text; None for an empty one.

    Raises YamlError if the template itself renders invalid YAML, and BreakOut.
    """
    text = rendering.text.lower()
    mark = next((mark for mark, escaped in _MARKS.items() if mark not in text and escaped not in text), "")
    if not mark:
        raise YamlError("the characters U+E000 to U+E00F, reserved for placeholders, all occur in the rendered text")
    pieces, parts = list(rendering.parts), []
    for number, (place, _) in enumerate(rendering.marks):
        printed = pieces[place]
        part = (_part if len(printed) <= _MAX_CACHED and printed.__class__ is str else _Part)(printed)
        parts.append(part)
        pieces[place] = part.outline.replace("\0", f"{mark}{number}{mark}")
    outline = "".join(pieces)
    try:
        skeleton = (_kept if len(outline) <= _MAX_OUTLINE else Skeleton)(outline, mark)
        if text.isascii() or "".join(rendering.parts) == rendering.text:
            return skeleton.filled(parts)
    except YamlError:
        goyaml.load(rendering.text)
        raise BreakOut("the lines around it", range(len(parts))) from None
    raise BreakOut("a character that was cut in two", range(len(parts)))


class _Part:
    """The output of a foreign action.

    `text`: without the indentation of an indenting function, and the lines' end. `form`: "json", "mapping" or "list" if a
    function wrote all of it as JSON or YAML, from `tree`; else "". `stand_in`: what replaces it, a placeholder (here
    NUL), or an entry or item of placeholders; `outline`: with indentation and end. `word`: the text, if YAML reads it
    literally in any scalar. `quoted`: the content of its double quotes.
    """

    def __init__(self, printed: str) -> None:
        shape = printed if isinstance(printed, Shaped) else Shaped(printed)
        self.text, self.form, self.tree, tail = str(printed[len(shape.lead) :]), "", shape.tree, ""
        if shape.form == "yaml":
            self.text, tail, _ = re.split(r"((?:\n *)?\Z)", self.text, maxsplit=1)
            self.form = "mapping" if pairs_of(shape.tree) else "list" if isinstance(shape.tree, list | tuple) else ""
        if shape.form == "json" or (shape is printed and self.text in {"{}", "[]"}):
            self.form = "json"
        self.stand_in = {"mapping": "\0: \0", "list": "- \0"}.get(self.form, "\0")
        self.outline = shape.lead + (self.stand_in + tail if self.text or tail else "")
        words = _LITERAL.fullmatch(self.text)
        self.word: str | None = words and words[1]
        self.quoted: str | None = words and words[2]


class _Slot:
    """A scalar of the outline that contains placeholders; `start`: the event that starts its mapping or list."""

    def __init__(self, event: Any, outline: str, mark: str, start: Any, *, is_key: bool) -> None:
        self.event, self.mark, self.is_key, self.is_in_flow = event, mark, is_key, bool(start and start.flow_style)
        self.source = outline[event.start_mark.index : event.end_mark.index]
        pieces = event.value.split(mark)
        self.literals = pieces[::2]
        self.form = "%s".join([literal.replace("%", "%%") for literal in self.literals])
        self.numbers = tuple(map(int, pieces[1::2]))
        self.is_plain = not event.style
        self.is_whole = self.is_plain and not any(self.literals) and len(self.numbers) == 1
        # the name of an anchor or a tag stands before the mapping itself
        indent = "" if start is None or start.anchor or start.tag else " " * start.start_mark.column
        before, after = ("{", "}") if self.is_in_flow else (indent, "\n")
        colon = _COLON.match(outline, event.end_mark.index)
        self.context = (before + "k: ", after)
        if is_key:
            self.context = (before, f"{colon[0]} x{after}") if colon else (before + "? ", f"\n{indent}: x{after}")
        elif start.__class__ is yaml.SequenceStartEvent:
            self.context = ("[", "]") if self.is_in_flow else (before + "- ", after)  # nothing is no item in brackets

    def refuse(self) -> Never:
        """Raise BreakOut for the parts in this scalar."""
        raise BreakOut(place_of(self.event.start_mark), self.numbers)

    def value(self, parts: Sequence[_Part]) -> Any:
        """Return the value with the parts inserted. Raises BreakOut if they would leave this scalar."""
        part, is_tagged = parts[self.numbers[0]], self.event.tag is not None
        if not is_tagged:
            if self.is_whole and part.quoted is not None:
                return part.quoted
            words = tuple([parts[number].word for number in self.numbers])
            if None not in words:
                text = self.form % words
                return resolve(text) if self.is_plain else text
        try:
            return self._tree(part) if self.is_whole and part.form and not is_tagged else self._parsed(parts)
        except (FunctionError, YamlError):
            self.refuse()

    def _parsed(self, parts: Sequence[_Part]) -> Any:
        source = self.source
        for number in self.numbers:
            placeholder = f"{self.mark}{number}{self.mark}"
            source = source.replace(parts[number].stand_in.replace("\0", placeholder), parts[number].text)
        if self.mark in source:  # half of what stands for an entry or item
            self.refuse()
        event = (_parse_once if len(source) <= _MAX_CACHED else events.parse_alone)(source, *self.context)
        value, style = events.value_of(event), event.style or ""
        if self.is_whole:
            fits = style not in {"|", ">"}
        else:
            fits = style == (self.event.style or "") and self._author.fullmatch(event.value) is not None
        if value is MERGE and not self.is_key:
            value = "<<"  # it only means something as a key
        if not fits or value is MERGE or (event.anchor, event.tag) != (self.event.anchor, self.event.tag):
            self.refuse()
        return value

    @functools.cached_property
    def _author(self) -> re.Pattern[str]:
        """The pattern of a value that contains the author's words; spaces next to a part may be folded."""
        first, *between, last = self.literals
        middles = zip(self.numbers, self.numbers[1:], between, strict=False)
        found = [f"(?>.*?{re.escape(words.strip(events.BLANKS))})" for before, after, words in middles if before != after]
        ends = [re.escape(words) for words in (first.rstrip(events.BLANKS), last.lstrip(events.BLANKS))]
        return re.compile(f"{ends[0]}{''.join(found)}.*{ends[1]}", re.DOTALL)

    def _tree(self, part: _Part) -> Any:
        """Return the tree that a function wrote, if it is written as this place demands."""
        if part.form == "json":
            if re.search(_NOT_ON_A_LINE, part.text.replace("\n", "")):
                self.refuse()
            return json.loads(part.text)
        if part.form == "mapping" and not self.is_key:
            return None  # the key of this entry stands for all
        tree = json.loads(to_json(part.tree))
        if self.is_in_flow:
            fits = same(goyaml.load(f"{{{part.text}}}"), tree)
        else:
            margin = "\n" + " " * (self.event.start_mark.column - 2 * (part.form == "list"))
            fits = part.text == to_yaml(part.tree)[:-1].replace("\n", margin)
        if not fits:
            self.refuse()
        return tree if part.form == "mapping" else tuple(tree)  # which no other value is


class Skeleton(events.TreeBuilder):
    """The tree of an outline, in which a scalar with placeholders is a text that identifies its slot.

    Raises YamlError, and BreakOut for a foreign key next to `<<`.
    """

    def __init__(self, outline: str, mark: str) -> None:
        self.outline, self.mark = outline, mark
        self.slots: dict[str, _Slot] = {}
        super().__init__(outline)
        self.tree = self.document()
        seen = {number for slot in self.slots.values() for number in slot.numbers}
        self.unseen = {int(number) for number in outline.split(mark)[1::2]} - seen
        """Numbers of the parts in comments."""

    def _scalar(self, event: Any) -> None:
        if self.mark in event.value:
            name = f"{self.mark}{len(self.slots)}"
            start = self._stack[-1].event if self._stack else None
            self.slots[name] = _Slot(event, self.outline, self.mark, start, is_key=self._expects_key())
            event = yaml.ScalarEvent(event.anchor, None, (False, True), name, event.start_mark, event.end_mark, '"')
        super()._scalar(event)

    def _close(self, event: Any) -> None:
        frame = self._stack[-1]
        if frame.has_merge and (foreign := [key for key in frame.value if key in self.slots]):
            self.slots[foreign[0]].refuse()
        super()._close(event)

    def filled(self, parts: Sequence[_Part]) -> Any:
        """Return the tree with these parts in place of the placeholders. Raises BreakOut."""
        for number in self.unseen:
            if re.search(_NOT_ON_A_LINE, parts[number].text):
                raise BreakOut("a comment", [number])
        tree = self._fill(self.tree, {name: slot.value(parts) for name, slot in self.slots.items()})
        return clone(tree) if self.aliased else tree

    def _fill(self, node: Any, values: Mapping[str, Any]) -> Any:
        """Copy the node with its values; written mappings and lists are merged into the surrounding ones."""
        if node.__class__ is dict:
            if not self.slots.keys().isdisjoint(node):
                return self._fill_mapping(node, values)
            return {  # texts, which most items are, without a call of their own
                key: values.get(item, item) if item.__class__ is str else self._fill(item, values)
                for key, item in node.items()
            }
        if node.__class__ is not list:
            return values.get(node, node) if node.__class__ is str else node
        found: list[Any] = []
        for item in node:
            value = self._fill(item, values)
            found += value if value.__class__ is tuple else (value,)
        return found

    def _fill_mapping(self, node: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Copy a mapping with foreign keys, which must not replace values of the template."""
        found: dict[str, tuple[Any, _Slot | None, bool]] = {}
        """For each key, its value, its slot if it is foreign, and whether all of the value is foreign."""
        for key, item in node.items():
            slot, of_item = self.slots.get(key), self.slots.get(item) if isinstance(item, str) else None
            entries = values.get(key, key)
            if not (slot and of_item and slot.numbers == of_item.numbers):  # these are a written mapping's
                if slot and not isinstance(entries, str | int | float):
                    slot.refuse()
                entries = {key_of(entries): self._fill(item, values)}
            is_foreign = of_item is not None and not any(of_item.literals)
            for name, value in entries.items():
                _, before, was_foreign = found.get(name, (None, None, True))
                if name in found and (culprit := slot or before) and not (was_foreign and is_foreign):
                    culprit.refuse()
                found[name] = value, slot, is_foreign
        return {name: value for name, (value, _, _) in found.items()}


_part = functools.lru_cache(maxsize=1024)(_Part)
_parse_once = functools.lru_cache(maxsize=256)(events.parse_alone)
_kept = functools.lru_cache(maxsize=32)(Skeleton)


def forget() -> None:
    """Clear the caches, whose skeletons a new configuration does not use."""
    _kept.cache_clear()
    _parse_once.cache_clear()
