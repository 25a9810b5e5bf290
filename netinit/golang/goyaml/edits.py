"""Change the text of a document where its tree was changed; everything else stays as it was written, comments and order included."""

from __future__ import annotations

import re
from typing import Any

from netinit.golang.errors import YamlError
from netinit.golang.goyaml.events import TreeBuilder
from netinit.golang.goyaml.places import TextPlace, read_places
from netinit.golang.goyaml.writer import dump, write_scalar

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
    edits.value(documents[0], before, after)
    changed = edits.done()
    if not _same(TreeBuilder(changed).document(), after):
        raise _CannotEditError
    return changed


class _CannotEditError(Exception):
    pass


class _Edits:
    """The pieces of a text that are replaced, in any order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.pieces: list[tuple[int, int, str]] = []  # from, to, and what stands there instead

    def done(self) -> str:
        """The text with all pieces replaced."""
        parts, at = [], 0
        for start, end, piece in sorted(self.pieces, key=lambda one: one[:2]):
            if start < at:
                raise _CannotEditError
            parts += [self.text[at:start], piece.replace("\n", self.newline)]
            at = end
        return "".join([*parts, self.text[at:]])

    def value(self, place: TextPlace, before: Any, after: Any) -> None:
        """Change a value whose place is known."""
        if place.is_block and isinstance(before, dict) and isinstance(after, dict) and before.keys() & after.keys():
            self._mapping(place, before, after)
        elif place.is_block and isinstance(before, list) and isinstance(after, list) and (pairs := _match(before, after)):
            self._sequence(place, before, after, pairs)
        elif not _same(before, after):
            self._replace(place, after)

    def _mapping(self, place: TextPlace, before: dict[str, Any], after: dict[str, Any]) -> None:
        if before.keys() != place.below.keys():
            raise _CannotEditError
        column = next(iter(place.below.values())).column - 1
        last: TextPlace | None = None  # the pair behind which new ones stand
        new: dict[str, Any] = {}
        for key, value in after.items():
            if key in before:
                if new:
                    self._insert(last, place, column, dump(new))
                    new = {}
                last = place.below[key]
                self.value(last, before[key], value)
            else:
                new[key] = value
        if new:
            self._insert(last, place, column, dump(new))
        below = [*place.below.values()]
        for key, one in place.below.items():
            if key not in after:
                self._delete(one, next((other for other in below if other.start > one.start), None))

    def _sequence(self, place: TextPlace, before: list[Any], after: list[Any], pairs: dict[int, int]) -> None:
        column = place.value - self._line_start(place.value)
        last: TextPlace | None = None
        new: list[Any] = []
        for number, item in enumerate(after):
            if number in pairs:
                if new:
                    self._insert(last, place, column, dump(new))
                    new = []
                last = place.below[pairs[number]]
                self.value(last, before[pairs[number]], item)
            else:
                new.append(item)
        if new:
            self._insert(last, place, column, dump(new))
        for number in set(range(len(before))) - set(pairs.values()):
            one = place.below[number]
            dash = self._line_start(one.start) + column
            if self.text[dash] != "-" or self.text[dash - column : dash].strip(" "):
                raise _CannotEditError
            self.pieces.append((dash - column, self._next_line(one.end), ""))

    def _insert(self, last: TextPlace | None, inside: TextPlace, column: int, text: str) -> None:
        """Write block lines behind a pair or an item, or in front of all that stand inside a block."""
        lines = _indent(text, " " * column)
        if last:
            at = self._next_line(last.end)
            lead = "" if self.text[at - 1] == "\n" else "\n"
            self.pieces.append((at, at, lead + lines))
            return
        first = inside.value
        start = self._line_start(first)
        if self.text[start:first].strip(" "):  # the first pair of an item, behind its dash
            self.pieces.append((first, first, lines[column:] + " " * column))
            return
        while (above := self._line_start(start - 1)) > inside.start and self.text[above:start].startswith(" " * column + "#"):
            start = above
        self.pieces.append((start, start, lines))

    def _delete(self, one: TextPlace, following: TextPlace | None) -> None:
        start = self._line_start(one.start)
        if not self.text[start : one.start].strip(" "):
            self.pieces.append((start, self._next_line(one.end), ""))
        elif following:  # the first pair of an item, behind its dash
            self.pieces.append((one.start, following.start, ""))
        else:
            raise _CannotEditError

    def _replace(self, place: TextPlace, after: Any) -> None:
        """Rewrite a value, behind its key or its dash."""
        column = place.start - self._line_start(place.start)
        is_item = place.start == place.value
        if not isinstance(after, (dict, list)) or not after:
            self._write(place, ("" if is_item else " ") + write_scalar(after, " " * (column + 2)))
            return
        shift = column if is_item or isinstance(after, list) else column + 2
        lines = _indent(dump(after), " " * shift).rstrip("\n")
        line_end = self._line_end(place.end)
        comment = self.text[place.end : line_end].rstrip()  # stays in the line of its key or dash
        if is_item:
            self._write(place, f"{comment.lstrip()}\n{lines}" if comment else lines[shift:], line_end if comment else place.end)
        else:
            self._write(place, f"{comment}\n{lines}", line_end if comment else place.end)

    def _write(self, place: TextPlace, text: str, end: int = 0) -> None:
        start = place.value
        while start > place.start and self.text[start - 1] == " ":
            start -= 1
        self.pieces.append((place.value if place.start == place.value else start, end or place.end, text))

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
    found: dict[int, int] = {}
    names, taken = [_identity(item) for item in before], 0
    for number, name in enumerate(map(_identity, after)):
        if name in names[taken:]:
            found[number] = names.index(name, taken)
            taken = found[number] + 1
    return found


def _identity(item: Any) -> tuple[str, object]:
    if isinstance(item, dict) and isinstance(item.get("name"), str):
        return "name", item["name"]
    return type(item).__name__, repr(item)


def _indent(text: str, indent: str) -> str:
    return "".join([indent + line if line.strip() else line for line in text.splitlines(keepends=True)])


def _same(left: Any, right: Any) -> bool:
    """Whether two trees are equal: unlike Python's equality, true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and bool(left == right)
