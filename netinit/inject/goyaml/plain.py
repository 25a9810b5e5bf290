"""The YAML that manifests, configurations and rendered templates are written in, read without PyYAML.

Read are one document of block mappings and block lists with plain keys, scalars on one line (plain, or quoted without
escapes), `|` and `|-` blocks, comments, and flow lists and mappings of simple words. What is read is read as libyaml
would; at anything else, at every doubt and at every error the whole text is `UNREAD` and libyaml's. That goes for
anchors, tags, merge keys, tabs, scalars over several lines, keys that stand twice and keys that are no strings.
"""

from __future__ import annotations

import re

from netinit.inject.goyaml.scalars import MERGE, resolve
from netinit.patterns import pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

__all__ = ["UNREAD", "read"]

UNREAD: Final = object()
"""What `read` gives for a text that is not its own."""

_LONGEST = 1_000_000  # characters; the limit of nodes is beyond
_DEEPEST = 50
_MOST_LINES = 50  # of one list or mapping in brackets
_KEY = pattern(r"""(?:([A-Za-z0-9_][A-Za-z0-9_./-]{0,250})|"([^"\\]{0,250})"|'([^']{0,250})'):(?: +|\Z)""")
_QUOTED = pattern(r"""(?:"([^"\\]*)"|'((?:[^']|'')*)')(?: *| +\#.*)\Z""")
_FLOW = pattern(
    r"""[ \n]*(?:([][{},])|"([^"\\\n]{0,250})"|'([^'\n]{0,250})'|([A-Za-z0-9_$/.+~][A-Za-z0-9_$/.+~-]{0,250}))"""
    r"""(:(?=[ \n]))?"""
)
_AFTER_FLOW = pattern(r" *(?: \#.*)?$", re.MULTILINE)
_NO_SCALAR = frozenset(",[]{}#&*!|>%@`?:")


class _NotPlainError(Exception):
    """Here is something for libyaml."""


def read(text: str) -> Any:
    """The tree of the text's only document, or `UNREAD`."""
    if len(text) > _LONGEST or not text.replace("\n", "").isprintable():
        return UNREAD
    try:
        return _Reader(text).document()
    except _NotPlainError:
        return UNREAD


class _Reader:
    """The lines, and the one with content that comes next: its number, its indentation and what stands behind that."""

    __slots__ = ("at", "indent", "lines", "rest")

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.go_to(0)

    def go_to(self, at: int) -> None:
        """Stop at the first line from here on that is neither blank nor a comment; indentation -1 is the end."""
        lines = self.lines
        for number in range(at, len(lines)):
            line = lines[number]
            rest = line.lstrip(" ")
            if rest and rest[0] != "#":
                self.at, self.indent, self.rest = number, len(line) - len(rest), rest
                return
        self.at, self.indent, self.rest = len(lines), -1, ""

    def document(self) -> Any:
        if self.indent == 0 and (self.rest.rstrip(" ") == "---" or self.rest.startswith("--- #")):
            self.go_to(self.at + 1)
        if self.indent < 0:
            raise _NotPlainError
        tree = self.block(self.indent, 0)
        if self.indent >= 0:
            raise _NotPlainError
        return tree

    def block(self, indent: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _NotPlainError
        if self.rest[0] in "[{":
            return self.flow(self.rest)
        return self.sequence(indent, depth) if self.at_item() else self.mapping(indent, depth)

    def at_item(self) -> bool:
        return self.rest.startswith("- ") or self.rest == "-"

    def mapping(self, indent: int, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while self.indent == indent:
            found = _KEY.match(self.rest)
            if found is None:
                raise _NotPlainError
            key = _key_of(found[1], found[2], found[3])
            if key in result:
                raise _NotPlainError
            result[key] = self.value(self.rest[found.end() :], indent, depth, in_mapping=True)
            if self.indent > indent:
                raise _NotPlainError
        return result

    def sequence(self, indent: int, depth: int) -> list[Any]:
        result: list[Any] = []
        while self.indent == indent and self.at_item():
            rest = self.rest[1:].lstrip(" ")
            if _KEY.match(rest) or rest.startswith("- ") or rest == "-":
                # a mapping or list that begins on the line of its item
                self.indent, self.rest = indent + len(self.rest) - len(rest), rest
                result.append(self.block(self.indent, depth + 1))
            else:
                result.append(self.value(rest, indent, depth, in_mapping=False))
            if self.indent > indent:
                raise _NotPlainError
        return result

    def value(self, text: str, indent: int, depth: int, *, in_mapping: bool) -> Any:
        """The value that begins with this text behind its key or dash, or on the next lines where that is empty."""
        if text[:1] == "|":
            return self.literal(text.rstrip(" "), indent)
        if text[:1] in {"[", "{"}:
            return self.flow(text)
        if text and text[0] != "#":
            value = _scalar(text)
            self.go_to(self.at + 1)
            return value
        self.go_to(self.at + 1)
        if self.indent > indent:
            return self.block(self.indent, depth + 1)
        if in_mapping and self.indent == indent and self.at_item():
            return self.sequence(indent, depth + 1)
        return None

    def flow(self, text: str) -> Any:
        """The list or mapping in brackets that begins with this text, and may go on on the next lines."""
        if text[-1] not in "]}":
            text = "\n".join((text, *self.lines[self.at + 1 : self.at + _MOST_LINES]))
        value, end = _flow(text, 0, 0)
        if _AFTER_FLOW.match(text, end) is None:
            raise _NotPlainError
        self.go_to(self.at + 1 + text.count("\n", 0, end))
        return value

    def literal(self, header: str, indent: int) -> str:
        """The text of the block behind `|` or `|-`."""
        lines, start = self.lines, self.at + 1
        first = lines[start] if start < len(lines) else ""
        width = len(first) - len(first.lstrip(" "))
        if header not in {"|", "|-"} or width <= indent or width == len(first):
            raise _NotPlainError
        margin = " " * width
        end = start
        while end < len(lines) and (lines[end].startswith(margin) or not lines[end].strip(" ")):
            end += 1
        open_ended = end == len(lines) and lines[-1] != ""  # no line feed behind the last line, so none in the text
        if open_ended and lines[-1][-1] == " ":
            raise _NotPlainError
        self.go_to(end)
        text = "\n".join([line[width:] for line in lines[start:end]]).rstrip("\n")
        return text if header == "|-" or open_ended else text + "\n"


def _key_of(plain: str | None, double: str | None, single: str | None) -> str:
    if plain is None:
        return single if double is None else double  # type: ignore[return-value] # one of the three has matched
    if resolve(plain).__class__ is not str:
        raise _NotPlainError
    return plain


def _scalar(text: str) -> Any:
    """The value of a scalar on one line, a comment behind it left out."""
    first = text[0]
    if first in "\"'":
        found = _QUOTED.match(text)
        if found is None:
            raise _NotPlainError
        return found[2].replace("''", "'") if found[1] is None else found[1]
    comment = text.find(" #")
    text = (text if comment < 0 else text[:comment]).rstrip(" ")
    if first in _NO_SCALAR or (first == "-" and text[1:2] in {"", " "}) or ": " in text or text[-1] == ":":
        raise _NotPlainError
    return _resolved(text)


def _resolved(text: str) -> Any:
    value = resolve(text)
    if value is MERGE:
        raise _NotPlainError
    return value


def _flow(text: str, at: int, depth: int) -> tuple[Any, int]:
    """The value that begins there inside of brackets or is them, and where it ends."""
    found = _next(text, at)
    if depth > _DEEPEST or found[5]:
        raise _NotPlainError
    bracket = found[1]
    if bracket == "[":
        return _flow_list(text, found.end(), depth)
    if bracket == "{":
        return _flow_mapping(text, found.end(), depth)
    if bracket:
        raise _NotPlainError
    return _resolved(found[4]) if found[4] is not None else _key_of(None, found[2], found[3]), found.end()


def _flow_list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    result: list[Any] = []
    while (end := _closed(text, at, "]")) is None:
        value, at = _flow(text, at, depth + 1)
        result.append(value)
        at = _behind_comma(text, at, "]")
    return result, end


def _flow_mapping(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    result: dict[str, Any] = {}
    while (end := _closed(text, at, "}")) is None:
        found = _next(text, at)
        if found[1] or not found[5]:
            raise _NotPlainError
        key = _key_of(found[4], found[2], found[3])
        if key in result:
            raise _NotPlainError
        result[key], at = _flow(text, found.end(), depth + 1)
        at = _behind_comma(text, at, "}")
    return result, end


def _next(text: str, at: int) -> re.Match[str]:
    """The next bracket, comma or scalar."""
    found = _FLOW.match(text, at)
    if found is None:
        raise _NotPlainError
    return found


def _closed(text: str, at: int, bracket: str) -> int | None:
    """Where the text goes on behind the bracket, if that comes next."""
    found = _next(text, at)
    return found.end() if found[1] == bracket and not found[5] else None


def _behind_comma(text: str, at: int, bracket: str) -> int:
    """Where the next item is: behind a comma, or at the bracket."""
    found = _next(text, at)
    if found[5] or found[1] not in {",", bracket}:
        raise _NotPlainError
    return at if found[1] == bracket else found.end()
