"""Sprig's functions on words and lines: case, abbreviation, wrapping. Widths are in bytes, as in sprig."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final

from netinit.golang.sprig.text import BLANKS
from netinit.golang.template.limits import check_size, text_cost
from netinit.golang.template.values import Function, from_bytes, to_bytes

_BYTE_BLANKS: Final = "\t\n\v\f\r \x85\xa0"
"""White space among U+0000 to U+00FF: some of sprig's functions read each byte as a character."""
_FIRST: Final = f"(?<![^{BLANKS}])[^{BLANKS}]"
_FIRST_BYTE: Final = f"(?<![^{_BYTE_BLANKS}])[^{_BYTE_BLANKS}]"
_AFTER_WORD: Final = rf"(?s)(?<![A-Za-z0-9_])(?<![^\x00-\x7f{BLANKS}])."
"""A character after white space, and one that begins a word to strings.Title."""
_MARK: Final = "..."
_MIN_WIDTH, _MIN_WIDTH_INSIDE = 4, 7


def _one_letter(character: str, changed: str) -> str:
    """Return the changed character if it is still one character: Go maps letters one by one."""
    return changed if len(changed) == 1 else character


def _mapped(text: str, change: Callable[[str], str]) -> str:
    return change(text) if text.isascii() else "".join([_one_letter(character, change(character)) for character in text])


def upper(text: str) -> str:
    """Convert to upper case, letter by letter."""
    return _mapped(text, str.upper)


def lower(text: str) -> str:
    """Convert to lower case, letter by letter."""
    return _mapped(text, str.lower)


def title(text: str) -> str:
    """Convert the first letter of each word to title case."""
    return re.sub(_AFTER_WORD, lambda found: _one_letter(found[0], found[0].title()), text)


def swapcase(text: str) -> str:
    """Exchange upper and lower case."""
    parts: list[str] = []
    begins = True
    for character in text:
        if character.isupper() or character.istitle():
            parts.append(_one_letter(character, character.lower()))
            begins = False
        elif character.islower():
            parts.append(_one_letter(character, character.title() if begins else character.upper()))
            begins = False
        else:
            parts.append(character)
            begins = character in BLANKS
    return "".join(parts)


def nospace(text: str) -> str:
    """Remove white space; if there is any, each other byte becomes the character with this number, as in sprig."""
    characters = to_bytes(text).decode("latin-1")
    kept = re.sub(f"[{_BYTE_BLANKS}]", "", characters)
    return text if len(kept) == len(characters) else kept


def _is_connector(character: str) -> bool:
    return character in "-_" or character in BLANKS


def camelcase(text: str) -> str:
    """Join words separated by spaces, underscores and hyphens, each with a capital letter."""
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
            parts.append(_one_letter(character, character.upper()) if raised else character)
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
    """Yield runs of one category, with it; a capital belongs to the small letters after it, capitals in a row are one word."""
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


def abbreviate(left: int, width: int, text: str) -> str:
    """Cut the text to this width from position `left` on, with points where text is missing."""
    if width < _MIN_WIDTH or (left > 0 and width < _MIN_WIDTH_INSIDE):
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


def _wrapped(width: int, separator: str, text: str, *, breaks: bool) -> str:
    """Split the text into lines of at most this width; `breaks`: also within words that are longer."""
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


_CASES: Final = {
    "camelcase": camelcase,
    "initials": lambda text: "".join(re.findall(_FIRST_BYTE, to_bytes(text).decode("latin-1"))),  # of bytes as characters
    "kebabcase": lambda text: _joined(text, "-"),
    "nospace": nospace,
    "snakecase": lambda text: _joined(text, "_"),
    "swapcase": swapcase,
    "title": title,
    "untitle": lambda text: re.sub(_FIRST, lambda found: _one_letter(found[0], found[0].lower()), text),
}
FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    **{name: Function(call, "string", cost=lambda text: text_cost(text) << 2) for name, call in _CASES.items()},
    "abbrev": Function(lambda width, text: abbreviate(0, width, text), "int", "string"),
    "abbrevboth": abbreviate,
    "lower": lower,
    "plural": Function(lambda one, many, count: one if count == 1 else many, "string", "string", "int"),
    "upper": upper,
    "wrap": Function(
        lambda width, text: _wrapped(width, "\n", text, breaks=False),
        "int",
        "string",
        cost=lambda _, text: text_cost(text),
    ),
    "wrapWith": Function(
        lambda width, separator, text: _wrapped(width, separator or "\n", text, breaks=True),
        *("int", "string", "string"),
        cost=lambda _width, _separator, text: text_cost(text),
    ),
}
