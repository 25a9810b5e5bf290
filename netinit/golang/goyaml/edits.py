"""Change the text of a document where its tree was changed; everything else stays as it was written, comments and order included."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from netinit.golang.errors import YamlError
from netinit.golang.goyaml.events import TreeBuilder
from netinit.golang.goyaml.places import TextPlace, read_places
from netinit.golang.goyaml.writer import dump, write_scalar

_Texts: TypeAlias = tuple[str, str]
"""Lines, and their outline."""
_NOTHING: _Texts = ("", "")
_HEAD = r"\A(?:[ \t]*(?:#[^\n]*)?\r?\n)+"


def rewrite(text: str, before: Any, after: Any) -> str:
    """Return the text of a document with the tree `before`, changed so that it has the tree `after`.

    What cannot be changed in place is rewritten: alone a value in flow style and a list of which no item stays; the whole
    document, behind the comments at its head, where an anchor stands in the changed part or the text would not give `after`.
    """
    try:
        return _rewrite(text, before, after)
    except (YamlError, _CannotEditError):
        head = re.match(_HEAD, text) if text.lstrip().startswith("#") else None
        return (head[0].replace("\r\n", "\n") if head else "") + dump(after)


def _rewrite(text: str, before: Any, after: Any) -> str:
    documents = read_places(text)
    if len(documents) != 1:
        raise _CannotEditError
    edits = _Edits(text)
    outline = edits.value(documents[0], before, after)
    if not _same(TreeBuilder(edits.done(_OUTLINE)).document(), outline):
        raise _CannotEditError
    return edits.done(_WHOLE)


class _CannotEditError(Exception):
    pass


_WHOLE, _OUTLINE = 0, 1


class _Edits:
    """The pieces of a text that are replaced, in any order.

    Each piece has an outline too, with null for the values of new mappings and lists. Whether all pieces stand in the right place
    is tried with the outlines: what `dump` writes reads back as it was, wherever it stands, and is most of an injected manifest.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.pieces: list[tuple[int, int, _Texts]] = []  # from, to, and what stands there instead

    def done(self, which: int) -> str:
        """The text with all pieces replaced, by the whole ones or by their outlines."""
        parts, at = [], 0
        for start, end, texts in sorted(self.pieces, key=lambda one: one[:2]):
            if start < at:
                raise _CannotEditError
            parts += [self.text[at:start], texts[which].replace("\n", self.newline)]
            at = end
        return "".join([*parts, self.text[at:]])

    def value(self, place: TextPlace, before: Any, after: Any) -> Any:
        """Change a value whose place is known; return the tree of its outline."""
        if before == after and _same(before, after):  # Python's equality is fast, and ends most unequal comparisons
            return after
        if place.is_block and isinstance(before, dict) and isinstance(after, dict) and before.keys() & after.keys():
            return self._mapping(place, before, after)
        if place.is_block and isinstance(before, list) and isinstance(after, list) and (pairs := _match(before, after)):
            return self._sequence(place, before, after, pairs)
        return self._replace(place, after)

    def _mapping(self, place: TextPlace, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
        if before.keys() != place.below.keys():
            raise _CannotEditError
        column = next(iter(place.below.values())).column - 1
        last: TextPlace | None = None  # the pair behind which new ones stand
        new: dict[str, Any] = {}
        outline: dict[str, Any] = {}
        for key, value in after.items():
            if key in before:
                outline |= self._insert(last, place, column, new)
                new = {}
                last = place.below[key]
                outline[key] = self.value(last, before[key], value)
            else:
                new[key] = value
        outline |= self._insert(last, place, column, new)
        below = [*place.below.values()]
        for key, one in place.below.items():
            if key not in after:
                self._delete(one, next((other for other in below if other.start > one.start), None))
        return outline

    def _sequence(self, place: TextPlace, before: list[Any], after: list[Any], pairs: dict[int, int]) -> list[Any]:
        column = place.value - self._line_start(place.value)
        last: TextPlace | None = None
        new: list[Any] = []
        outline: list[Any] = []
        for number, item in enumerate(after):
            if number in pairs:
                outline += self._insert(last, place, column, new)
                new = []
                last = place.below[pairs[number]]
                outline.append(self.value(last, before[pairs[number]], item))
            else:
                new.append(item)
        outline += self._insert(last, place, column, new)
        for number in set(range(len(before))) - set(pairs.values()):
            one = place.below[number]
            dash = self._line_start(one.start) + column
            if self.text[dash] != "-" or self.text[dash - column : dash].strip(" "):
                raise _CannotEditError
            self.pieces.append((dash - column, self._next_line(one.end), _NOTHING))
        return outline

    def _insert(self, last: TextPlace | None, inside: TextPlace, column: int, new: dict[str, Any] | list[Any]) -> Any:
        """Write new pairs or items behind a pair or an item, or in front of all that stand inside a block; return their outline."""
        if not new:
            return new
        texts, outline = _written(new, " " * column)
        first = inside.value
        start = self._line_start(first)
        if last:
            start = self._next_line(last.end)
            if self.text[start - 1] != "\n":
                texts = _each(texts, lambda text: f"\n{text}")
        elif self.text[start:first].strip(" "):  # the first pair of an item, behind its dash
            start, texts = first, _each(texts, lambda text: text[column:] + " " * column)
        else:
            while (above := self._line_start(start - 1)) > inside.start and self.text[above:start].startswith(" " * column + "#"):
                start = above
        self.pieces.append((start, start, texts))
        return outline

    def _delete(self, one: TextPlace, following: TextPlace | None) -> None:
        start = self._line_start(one.start)
        if not self.text[start : one.start].strip(" "):
            self.pieces.append((start, self._next_line(one.end), _NOTHING))
        elif following:  # the first pair of an item, behind its dash
            self.pieces.append((one.start, following.start, _NOTHING))
        else:
            raise _CannotEditError

    def _replace(self, place: TextPlace, after: Any) -> Any:
        """Rewrite a value, behind its key or its dash; return the tree of its outline."""
        column = place.start - self._line_start(place.start)
        is_item = place.start == place.value
        if not isinstance(after, (dict, list)) or not after:
            text = ("" if is_item else " ") + write_scalar(after, " " * (column + 2))
            self._write(place, place.end, (text, text))
            return after
        shift = column if is_item or isinstance(after, list) else column + 2
        texts, outline = _written(after, " " * shift)
        line_end = self._line_end(place.end)
        comment = self.text[place.end : line_end].rstrip()  # stays in the line of its key or dash
        if is_item and not comment:
            texts = _each(texts, lambda text: text.rstrip("\n")[shift:])
        else:
            head = comment.lstrip() if is_item else comment
            texts = _each(texts, lambda text: f"{head}\n{text}".rstrip("\n"))
        self._write(place, line_end if comment else place.end, texts)
        return outline

    def _write(self, place: TextPlace, end: int, texts: _Texts) -> None:
        start = place.value
        while start > place.start and self.text[start - 1] == " ":
            start -= 1
        self.pieces.append((place.value if place.start == place.value else start, end, texts))

    def _line_end(self, index: int) -> int:
        end = self.text.find("\n", index)
        return len(self.text) if end < 0 else end

    def _line_start(self, index: int) -> int:
        return self.text.rfind("\n", 0, max(index, 0)) + 1

    def _next_line(self, index: int) -> int:
        """The start of the line behind a place, which may be the end of a line already; the text's end behind the last line."""
        if index and self.text[index - 1] == "\n":
            return index
        return self.text.find("\n", index) + 1 or len(self.text)


def _match(before: list[Any], after: list[Any]) -> dict[int, int]:
    """The position in `before` of the items of `after` that were there, in one order; the others are new."""
    positions: dict[tuple[str, object], list[int]] = {}
    for number in range(len(before) - 1, -1, -1):
        positions.setdefault(_identity(before[number]), []).append(number)  # the first one is at the end
    found: dict[int, int] = {}
    free = 0  # the first position that no item has yet
    for number, item in enumerate(after):
        places = positions.get(_identity(item), [])
        while places and places[-1] < free:
            places.pop()
        if places:
            found[number] = places.pop()
            free = found[number] + 1
    return found


def _identity(item: Any) -> tuple[str, object]:
    if isinstance(item, dict) and isinstance(item.get("name"), str):
        return "name", item["name"]
    return type(item).__name__, repr(item)


def _written(new: dict[str, Any] | list[Any], indent: str) -> tuple[_Texts, Any]:
    """Write a mapping or a list as block lines, whole and in outline; also return the tree of the outline.

    What follows a block scalar may become a part of it: lines that end in one are their own outline.
    """
    whole = _indent(dump(new), indent)
    last: Any = new
    while isinstance(last, (dict, list)) and last:
        last = next(reversed(last.values())) if isinstance(last, dict) else last[-1]
    if isinstance(last, str) and "\n" in last:
        return (whole, whole), new
    outline: Any = dict.fromkeys(new) if isinstance(new, dict) else [None] * len(new)
    return (whole, _indent(dump(outline), indent)), outline


def _each(texts: _Texts, change: Callable[[str], str]) -> _Texts:
    return change(texts[_WHOLE]), change(texts[_OUTLINE])


def _indent(text: str, indent: str) -> str:
    """Indent each line that is not empty: one of blanks, which Unicode has many of, is a line of a block scalar."""
    return re.sub(r"(?m)^(?=[^\r\n])", indent, text)


def _same(left: Any, right: Any) -> bool:
    """Whether two trees are equal: unlike Python's equality, true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and bool(left == right)
