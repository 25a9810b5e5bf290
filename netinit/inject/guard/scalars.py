"""The scalars of an outline that have placeholders, and the values that a pod's parts give them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Never

import yaml

from netinit.base.errors import ParseError
from netinit.base.tree import same
from netinit.golang.gojson import to_json
from netinit.golang.goyaml import events
from netinit.golang.goyaml.scalars import MERGE, resolve
from netinit.golang.template.values import FunctionError
from netinit.inject.guard.outline import ForeignPart

__all__ = ["Context", "Entries", "Items", "Misfit", "OutlineScalar", "context_of", "parse_once"]

_LONGEST_KEPT = 1 << 10
"""Characters of the longest scalar that is kept parsed: with 256 of them the cache stays below a megabyte."""
_BLANKS = " \t\r\n\x85\u2028\u2029"
_NOT_IN_JSON = "[\x7f-\x9f\ufffe\uffff]"
"""Characters that JSON does not escape, and that YAML forbids or reads as a line break."""


class Misfit(Exception):  # noqa: N818 - a verdict
    """The parts of these numbers do not fit into the outline; the message says where."""

    def __init__(self, where: str, numbers: Iterable[int]) -> None:
        super().__init__(where)
        self.numbers = tuple(numbers)


class Entries(dict[str, Any]):
    """A written mapping whose entries belong to the mapping around it."""


class Items(list[Any]):
    """A written list whose items belong to the list around it."""


class Context(NamedTuple):
    """What is put around a scalar's source to parse it alone as in its place, and which of how many events is the scalar."""

    before: str
    after: str
    number: int
    total: int


def context_of(column: int, *, in_flow: bool, in_list: bool, is_key: bool) -> Context:
    """The context of a scalar whose collection begins at that column; -1 is the root of the document."""
    if column < 0:
        return Context("", "\n", 2, 5)
    indent = " " * column
    if in_list:
        return Context("[", "]", 3, 7) if in_flow else Context(f"{indent}- ", "\n", 3, 7)
    if is_key:
        return Context("{", ": x}", 3, 8) if in_flow else Context(indent, ": x\n", 3, 8)
    return Context("{k: ", "}", 4, 8) if in_flow else Context(f"{indent}k: ", "\n", 4, 8)


def _parse_alone(source: str, context: Context) -> Any:
    """The event of the scalar that the source is in that context; None where it is not one scalar and nothing else."""
    text = f"{context.before}{source}{context.after}"
    try:
        found = list(events.scan(text))
    except ParseError:
        return None
    event = found[context.number] if len(found) == context.total else None
    if event.__class__ is not yaml.ScalarEvent:
        return None
    first: Any = event.start_mark
    last: Any = event.end_mark
    start = len(context.before)
    if context.after == ": x\n" and first.index > start:  # a key of a block stands in the column of its mapping
        return None
    around = text[start : first.index] + text[last.index : start + len(source)]
    return None if around.strip(_BLANKS) else event


parse_once = functools.lru_cache(maxsize=256)(_parse_alone)


class OutlineScalar:
    """A scalar of the outline that has placeholders in it."""

    def __init__(self, event: Any, outline: str, mark: str, context: Context) -> None:
        begin = event.start_mark
        self.event, self.context, self.is_key = event, context, context.after.startswith(": ")
        self.where, self.column = f"line {begin.line + 1}, column {begin.column + 1}", begin.column
        self.source = outline[begin.index : event.end_mark.index]
        pieces = event.value.split(mark)
        self.literals = pieces[::2]
        self.numbers = tuple(map(int, pieces[1::2]))
        self.placeholder = rf"(- )?{mark}([0-9]+){mark}(: {mark}\2{mark})?"
        self.is_foreign = not any(self.literals)
        self.is_plain = not event.style
        self.is_whole = self.is_plain and self.is_foreign and len(self.numbers) == 1

    def refuse(self) -> Never:
        """Raise Misfit for the parts in this scalar."""
        raise Misfit(self.where, self.numbers)

    def value(self, parts: Sequence[ForeignPart]) -> Any:
        """The value with the parts put in. Raises Misfit where they are more, or something else, than this scalar."""
        if self.event.tag is None:
            part = parts[self.numbers[0]]
            if self.is_whole and part.quoted is not None:
                return part.quoted
            if self.is_whole and part.kind:
                return self._tree(part)
            if (text := self._joined(parts)) is not None:
                return resolve(text) if self.is_plain else text
        return self._parsed(parts)

    def _joined(self, parts: Sequence[ForeignPart]) -> str | None:
        """The text of the scalar if all parts are words, else None."""
        found = [self.literals[0]]
        for number, literal in zip(self.numbers, self.literals[1:], strict=True):
            word = parts[number].word
            if word is None:
                return None
            found += (word, literal)
        return "".join(found)

    def _parsed(self, parts: Sequence[ForeignPart]) -> Any:
        """The value that the scalar's source has with the parts put in."""
        source = re.sub(self.placeholder, lambda found: self._source(found, parts), self.source)
        parse = parse_once if len(source) <= _LONGEST_KEPT else _parse_alone
        event = parse(source, self.context)
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
        """What was printed for a placeholder, or for the entry or item that stands for a written mapping or list."""
        dash, number, entry = found.groups(default="")
        part = parts[int(number)]
        if (part.kind == "mapping" and not entry) or (part.kind == "list" and not dash):
            self.refuse()  # a half of what stands for it
        return part.source if part.kind == "list" else dash + part.source

    def _holds(self, value: str) -> bool:
        """Whether the author's words stand in the value as in the outline; blanks beside a part may be folded away."""
        first, last = self.literals[0].rstrip(_BLANKS), self.literals[-1].lstrip(_BLANKS)
        if not value.startswith(first) or not value.endswith(last):
            return False
        start, end = len(first), len(value) - len(last)
        between = zip(self.numbers[:-1], self.numbers[1:], self.literals[1:-1], strict=True)
        for literal in [words.strip(_BLANKS) for before, after, words in between if before != after]:
            start = value.find(literal, start, end)
            if start < 0:
                return False
            start += len(literal)
        return start <= end

    def _tree(self, part: ForeignPart) -> Any:
        """What a function wrote, if it is laid out here so that it reads as what it is.

        Entries of a mapping and items of a list are added to the collection in which they stand.
        """
        if part.kind == "json":
            if not part.text.isprintable() and re.search(_NOT_IN_JSON, part.text):
                self.refuse()
            return json.loads(part.text)
        if part.kind == "mapping" and not self.is_key:
            return Entries()  # this is the value of the entry that stands for all
        try:
            tree = json.loads(to_json(part.tree))
            if part.kind == "scalar":
                if "\n" in part.source and getattr(_parse_alone(part.source, self.context), "value", None) != tree:
                    self.refuse()
                return tree
            text = " " * (self.column - 2 * (part.kind == "list")) + part.text
            in_flow = self.context.before[:1] == "{"
            found = events.build(events.scan(f"{{{text}}}" if in_flow else text)).document()
        except (FunctionError, ParseError):
            self.refuse()
        if not same(found, tree):
            self.refuse()
        return Entries(tree) if part.kind == "mapping" else Items(tree)

    def key(self, value: Any) -> str:
        """The value of this scalar as a key."""
        if value is None or isinstance(value, dict | list):
            self.refuse()
        return str(events.as_key(value))
