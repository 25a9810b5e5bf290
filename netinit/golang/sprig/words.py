"""Sprig's functions on words: their case, their initials, lines of a width. They count bytes where sprig does."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final

from netinit.golang.sprig.text import BLANKS
from netinit.golang.template.limits import check_size, text_cost
from netinit.golang.template.values import Function, from_bytes, to_bytes, typed

_TEXT: Final = "string"
_BYTE_BLANKS: Final = "\t\n\v\f\r \x85\xa0"
"""White space among the characters U+0000 to U+00FF, as which sprig reads single bytes in some functions."""
_MARK: Final = "..."
_NARROWEST, _NARROWEST_INSIDE = 4, 7


def one_letter(character: str, changed: str) -> str:
    """The changed character where it is still one, as Go changes letters."""
    return changed if len(changed) == 1 else character


def upper(text: str) -> str:
    """The text in upper case, letter by letter."""
    return text.upper() if text.isascii() else "".join(one_letter(c, c.upper()) for c in text)


def lower(text: str) -> str:
    """The text in lower case, letter by letter."""
    return text.lower() if text.isascii() else "".join(one_letter(c, c.lower()) for c in text)


def title(text: str) -> str:
    """The text with the first letter of every word in title case."""
    parts: list[str] = []
    inside = False
    for character in text:
        parts.append(character if inside else one_letter(character, character.title()))
        inside = character.isalnum() or character == "_" or not (character.isascii() or character in BLANKS)
    return "".join(parts)


def untitle(text: str) -> str:
    """The text with the first letter of every word in lower case."""
    parts: list[str] = []
    begins = True
    for character in text:
        is_blank = character in BLANKS
        parts.append(one_letter(character, character.lower()) if begins and not is_blank else character)
        begins = is_blank
    return "".join(parts)


def swapcase(text: str) -> str:
    """The text with upper and lower case exchanged."""
    parts: list[str] = []
    begins = True
    for character in text:
        if character.isupper() or character.istitle():
            parts.append(one_letter(character, character.lower()))
            begins = False
        elif character.islower():
            parts.append(one_letter(character, character.title() if begins else character.upper()))
            begins = False
        else:
            parts.append(character)
            begins = character in BLANKS
    return "".join(parts)


def initials(text: str) -> str:
    """The first byte of every word, as the character of that number."""
    parts: list[str] = []
    begins = True
    for character in to_bytes(text).decode("latin-1"):
        is_blank = character in _BYTE_BLANKS
        if begins and not is_blank:
            parts.append(character)
        begins = is_blank
    return "".join(parts)


def nospace(text: str) -> str:
    """The text without white space; where there is some, every other byte becomes the character of that number."""
    characters = to_bytes(text).decode("latin-1")
    kept = "".join(character for character in characters if character not in _BYTE_BLANKS)
    return text if len(kept) == len(characters) else kept


def _is_connector(character: str) -> bool:
    return character in "-_" or character in BLANKS


def camelcase(text: str) -> str:
    """The words, which blanks, underscores and hyphens separate, run together, each with a large first letter."""
    body = text.lstrip("-_" + BLANKS)
    if not body:
        return text + text[-1:]  # xstrings writes the last connector twice
    parts = [text[: len(text) - len(body)]]
    raised = True
    for place, character in enumerate(body):
        if _is_connector(character):
            # of several connectors the last one separates, and one at the end stays
            if place + 1 == len(body) or _is_connector(body[place + 1]):
                parts.append(character)
            raised = True
        else:
            parts.append(one_letter(character, character.upper()) if raised else character)
            raised = False
    return "".join(parts)


_UPPER, _LOWER, _NUMBER, _CONNECTOR, _PUNCTUATION, _OTHER = range(6)


def _category(character: str) -> int:
    if _is_connector(character):
        return _CONNECTOR
    name = unicodedata.category(character)
    if name[0] == "P":
        return _PUNCTUATION
    if name == "Lu":
        return _UPPER
    if name[0] == "L":
        return _LOWER
    return _NUMBER if name[0] == "N" else _OTHER


def _words(text: str) -> Iterator[tuple[int, str]]:
    """The runs of one category; a capital goes with the small letters behind it, and several capitals make a word."""
    kinds = [_category(character) for character in text]
    at = 0
    while at < len(text):
        kind, end = kinds[at], at + 1
        run = kind
        if kind == _UPPER and end < len(text) and kinds[end] == _LOWER:
            run = _LOWER
        while end < len(text) and kinds[end] == run:
            end += 1
        if kind == run == _UPPER and end < len(text) and kinds[end] == _LOWER and end - at > 1:
            end -= 1  # HTTPServer: the S begins the next word
        yield kind, text[at:end]
        at = end


def _joined(text: str, connector: str) -> str:
    """The words of the text in lower case with connectors between; a number belongs to the letters that follow it."""
    words = list(_words(text))
    parts: list[str] = []
    at = 0
    while at < len(words):
        kind, word = words[at]
        at += 1
        parts.append(connector * len(word) if kind == _CONNECTOR else lower(word) if kind == _UPPER else word)
        following = words[at][0] if at < len(words) else None
        if kind == _NUMBER:
            while at < len(words) and words[at][0] in (_LOWER, _NUMBER):
                parts.append(words[at][1])
                at += 1
            following = words[at][0] if at < len(words) else None
        elif kind in (_UPPER, _LOWER, _OTHER) and following == _NUMBER:
            after = words[at + 1][0] if at + 1 < len(words) else None
            if after != _LOWER:  # Bld4Floor: the number ends the word
                parts.append(words[at][1])
                at += 1
                following = after
        if kind not in (_CONNECTOR, _PUNCTUATION) and following not in (None, _CONNECTOR, _PUNCTUATION):
            parts.append(connector)
    return "".join(parts)


def snakecase(text: str) -> str:
    """The words in lower case with underscores between."""
    return _joined(text, "_")


def kebabcase(text: str) -> str:
    """The words in lower case with hyphens between."""
    return _joined(text, "-")


def abbreviate(width: int, text: str) -> str:
    """The text cut to so many bytes, of which the last three are points."""
    return text if width < _NARROWEST else from_bytes(_abbreviated(0, width, to_bytes(text)))


def abbreviate_both(left: int, width: int, text: str) -> str:
    """The text from there on cut to so many bytes, with points where something is missing."""
    if width < _NARROWEST or (left > 0 and width < _NARROWEST_INSIDE):
        return text
    return from_bytes(_abbreviated(left, width, to_bytes(text)))


def _abbreviated(left: int, width: int, raw: bytes) -> bytes:
    kept = width - len(_MARK)
    if len(raw) <= width:
        return raw
    left = min(left, len(raw))
    left = min(left, len(raw) - kept)
    if left <= len(_MARK) + 1:
        return raw[:kept] + _MARK.encode()
    if left + kept < len(raw):
        return _MARK.encode() + _abbreviated(0, kept, raw[left:])
    return _MARK.encode() + raw[len(raw) - kept :]


def wrap(width: int, text: str) -> str:
    """The text in lines of at most so many bytes; longer words are not broken."""
    return _wrapped(width, "\n", text, breaks=False)


def wrap_with(width: int, separator: str, text: str) -> str:
    """The text in lines of at most so many bytes with the separator between; longer words are broken."""
    return _wrapped(width, separator or "\n", text, breaks=True)


def _wrapped(width: int, separator: str, text: str, *, breaks: bool) -> str:
    raw, line = to_bytes(text), to_bytes(separator)
    width = max(width, 1)
    check_size(len(raw) + len(raw) // width * len(line))
    parts: list[bytes] = []
    at = 0
    while len(raw) - at > width:
        if raw[at : at + 1] == b" ":
            at += 1
            continue
        blank = raw.rfind(b" ", at, at + width + 1)
        if blank < 0:
            blank = at + width if breaks else raw.find(b" ", at + width)
            if blank < 0:
                break
            skipped = 0 if breaks else 1
        else:
            skipped = 1
        parts += [raw[at:blank], line]
        at = blank + skipped
    return from_bytes(b"".join([*parts, raw[at:]]))


def plural(one: str, many: str, count: int) -> str:
    """The first word for one thing, else the second."""
    return one if count == 1 else many


def substitute_cost(*arguments: Any) -> int:
    """The steps of functions that look at every character by itself."""
    return text_cost(*arguments) << 2


FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "abbrev": typed(abbreviate, "int", _TEXT),
    "abbrevboth": typed(abbreviate_both, "int", "int", _TEXT),
    "camelcase": typed(camelcase, _TEXT, cost=substitute_cost),
    "initials": typed(initials, _TEXT, cost=substitute_cost),
    "kebabcase": typed(kebabcase, _TEXT, cost=substitute_cost),
    "lower": typed(lower, _TEXT),
    "nospace": typed(nospace, _TEXT, cost=substitute_cost),
    "plural": typed(plural, _TEXT, _TEXT, "int"),
    "snakecase": typed(snakecase, _TEXT, cost=substitute_cost),
    "swapcase": typed(swapcase, _TEXT, cost=substitute_cost),
    "title": typed(title, _TEXT, cost=substitute_cost),
    "untitle": typed(untitle, _TEXT, cost=substitute_cost),
    "upper": typed(upper, _TEXT),
    "wrap": typed(wrap, "int", _TEXT, cost=lambda _width, text: text_cost(text)),
    "wrapWith": typed(wrap_with, "int", _TEXT, _TEXT, cost=lambda _width, _line, text: text_cost(text)),
}
