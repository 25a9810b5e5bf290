"""Sprig's functions on words and lines: case, abbreviation, wrapping. Widths are in bytes, as in sprig."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any, Final

from netinit.golang.sprig.text import BLANKS
from netinit.golang.template.limits import check_size, text_cost
from netinit.golang.template.values import Function, from_bytes, to_bytes

_BYTE_BLANKS: Final = "\t\n\v\f\r \x85\xa0"
"""White space among U+0000 to U+00FF: some of sprig's functions read each byte as a character."""
_CONNECTORS: Final = f"-_{BLANKS}"
_FIRST_OF_WORD: Final = rf"(?s)(?:\A|[{_CONNECTORS}])([^{_CONNECTORS}])"
_FIRST: Final = f"(?<![^{BLANKS}])[^{BLANKS}]"
_FIRST_BYTE: Final = f"(?<![^{_BYTE_BLANKS}])[^{_BYTE_BLANKS}]"
_AFTER_WORD: Final = rf"(?s)(?<![A-Za-z0-9_])(?<![^\x00-\x7f{BLANKS}])."
"""A character after white space, and one that begins a word to strings.Title."""
_MARK: Final = "..."
_MIN_WIDTH, _MIN_WIDTH_INSIDE = 4, 7


def _letter(character: str, change: Callable[[str], str]) -> str:
    """Return the changed character if it is still one character: Go maps letters one by one."""
    changed = change(character)
    return changed if len(changed) == 1 else character


def _mapped(text: str, change: Callable[[str], str]) -> str:
    return change(text) if text.isascii() else "".join([_letter(character, change) for character in text])


def upper(text: str) -> str:
    """Convert to upper case, letter by letter."""
    return _mapped(text, str.upper)


def lower(text: str) -> str:
    """Convert to lower case, letter by letter."""
    return _mapped(text, str.lower)


def title(text: str) -> str:
    """Convert the first letter of each word to title case."""
    return re.sub(_AFTER_WORD, lambda found: _letter(found[0], str.title), text)


def swapcase(text: str) -> str:
    """Exchange upper and lower case; a small letter after white space gets title case."""

    def swap(character: str, before: str) -> str:
        if character.isupper() or character.istitle():
            return _letter(character, str.lower)
        return _letter(character, str.title if before in BLANKS else str.upper) if character.islower() else character

    return "".join(map(swap, text, f" {text}"))


def nospace(text: str) -> str:
    """Remove white space; if there is any, each other byte becomes the character with this number, as in sprig."""
    characters = to_bytes(text).decode("latin-1")
    kept = re.sub(f"[{_BYTE_BLANKS}]", "", characters)
    return text if len(kept) == len(characters) else kept


def camelcase(text: str) -> str:
    """Join words separated by spaces, underscores and hyphens, each with a capital letter."""
    body = text.lstrip(_CONNECTORS)
    if not body:
        return text + text[-1:]  # xstrings writes the last connector twice
    # of several connectors the last one separates, and one at the end stays
    joined = re.sub(_FIRST_OF_WORD, lambda found: _letter(found[1], str.upper), body)
    return text[: len(text) - len(body)] + joined


def _category(character: str) -> str:
    """Return U (upper case), L (other letter), N (number), C (connector), P (punctuation) or O (other)."""
    if character in _CONNECTORS:
        return "C"
    name = unicodedata.category(character)
    return "U" if name == "Lu" else name[0] if name[0] in "LNP" else "O"


_WORD: Final = r"(?P<word>UL+|U+(?=UL)|U+|L+|O+)(?:N+(?![LN]))?|N[LN]*|C+|P+"
"""A word in categories: of several capitals before a small letter the last begins the next word (HTTPServer), and so does a
number before a small letter (Bld4Floor)."""


def _joined(text: str, connector: str) -> str:
    """Join the words of the text, with small letters, by connectors, each of which replaces one in the text, too."""
    categories = "".join(map(_category, text))
    parts: list[str] = []
    for found in re.finditer(_WORD, categories):
        start, end = found.span()
        kind, following = categories[start], categories[end : end + 1]
        if kind == "C":
            parts.append(connector * (end - start))
        elif kind == "U":
            parts += [lower(text[start : found.end("word")]), text[found.end("word") : end]]
        else:
            parts.append(text[start:end])
        if kind not in "CP" and following not in ("", "C", "P"):
            parts.append(connector)
    return "".join(parts)


def abbreviate(left: int, width: int, text: str) -> str:
    """Cut the text to this width from position `left` on, with points where text is missing."""
    raw, kept = to_bytes(text), width - len(_MARK)
    if len(raw) <= width or width < _MIN_WIDTH or (left > 0 and width < _MIN_WIDTH_INSIDE):
        return text
    left = min(left, len(raw) - kept)
    if left <= len(_MARK) + 1:
        return from_bytes(raw[:kept]) + _MARK
    if left + kept < len(raw):
        return _MARK + from_bytes(raw[left : left + kept - len(_MARK)]) + _MARK
    return _MARK + from_bytes(raw[-kept:])


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
        parts += [raw[at:blank], line]
        at = blank + (raw[blank : blank + 1] == b" ")
    return from_bytes(b"".join([*parts, raw[at:]]))


_CASES: Final = {
    "camelcase": camelcase,
    "initials": lambda text: "".join(re.findall(_FIRST_BYTE, to_bytes(text).decode("latin-1"))),  # of bytes as characters
    "kebabcase": lambda text: _joined(text, "-"),
    "nospace": nospace,
    "snakecase": lambda text: _joined(text, "_"),
    "swapcase": swapcase,
    "title": title,
    "untitle": lambda text: re.sub(_FIRST, lambda found: _letter(found[0], str.lower), text),
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
