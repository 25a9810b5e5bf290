"""Sprig's functions on text, words and lines. Lengths, positions and widths are in bytes where sprig counts bytes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.limits import character_cost, check_size, measure_all, text_cost
from netinit.golang.template.literals import quote
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import (
    ANY,
    Function,
    FunctionError,
    Shaped,
    StringMap,
    TypedList,
    from_bytes,
    kind_of,
    to_bytes,
    valid,
)


def text_of(value: Any) -> str:
    """Convert the value to text like sprig's strval."""
    if isinstance(value, bytes):
        return from_bytes(value)
    return value if type(value) is str else sprint(value)


def texts_of(values: Any) -> list[str]:
    """Convert the elements of a list to text, without nil; any other value counts as a list of itself."""
    if kind_of(values) == "slice":  # bytes are a list of numbers
        return [text_of(value) for value in values if value is not None]
    return [] if values is None else [text_of(values)]


def unless(failure: str, otherwise: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function whose form with `must` reports an error; return `otherwise` if it fails with this message."""
    try:
        return call(*arguments)
    except FunctionError as error:
        if str(error).startswith(failure):
            return otherwise
        raise


def _spaced(convert: Callable[[Any], str], values: tuple[Any, ...]) -> str:
    return " ".join(convert(value) for value in values if value is not None)


def indent_lines(front: str, spaces: int, text: str) -> str:
    """Indent every line but the first, and put `front` before it."""
    check_size(max(spaces, 0) * (text.count("\n") + 1) + len(text))
    pad = "\n" + " " * spaces
    known = text if isinstance(text, Shaped) else Shaped("")
    return Shaped(front + text.replace("\n", pad), lead=front + known.lead.replace("\n", pad), form=known.form, tree=known.tree)


def _indent(before: str, spaces: int, text: str) -> str:
    check_size(max(spaces, 0))
    return indent_lines(before + " " * _not_negative(spaces), spaces, text)


def repeat(count: int, text: str) -> str:
    """Repeat the text."""
    check_size(max(count, 0) * len(text))
    return text * _not_negative(count)


def _not_negative(count: int) -> int:
    if count < 0:
        raise FunctionError("strings: negative Repeat count")
    return count


def replace(old: str, new: str, text: str) -> str:
    """Replace every occurrence."""
    check_size(len(text) + (text.count(old) if old else len(text) + 1) * max(len(new) - len(old), 0))
    return text.replace(old, new)


def trunc(count: int, text: str) -> str:
    """Return the first bytes of the text, or with a negative count the last ones."""
    raw = to_bytes(text)
    if count < 0 and len(raw) + count > 0:
        return from_bytes(raw[len(raw) + count :])
    return from_bytes(raw[:count]) if 0 <= count < len(raw) else text


def substr(start: int, end: int, text: str) -> str:
    """Return the bytes from start to end; a negative start is the beginning, a negative end the end."""
    raw = to_bytes(text)
    if start < 0:
        return from_bytes(raw[: _within(end, raw)])
    if end < 0 or end > len(raw):
        return from_bytes(raw[_within(start, raw) :])
    if start > end:
        raise FunctionError(f"runtime error: slice bounds out of range [{start}:{end}]")
    return from_bytes(raw[start:end])


def _within(bound: int, raw: bytes) -> int:
    if not 0 <= bound <= len(raw):
        length = f" with length {len(raw)}" if bound >= 0 else ""
        raise FunctionError(f"runtime error: slice bounds out of range [:{bound}]{length}")
    return bound


def join(separator: str, values: Any) -> str:
    """Join the values that are not nil."""
    texts = texts_of(values)
    check_size(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def split_list(separator: str, text: str) -> TypedList:
    """Split the text; into characters if the separator is empty."""
    parts = text.split(separator) if separator else list(text)
    check_size(len(parts))
    return TypedList(parts, go_type="[]string")


def splitn(separator: str, count: int, text: str) -> StringMap:
    """Split the text into at most so many parts (-1: all), as a map with the keys _0, _1 and so on."""
    if count == 0:
        return StringMap()
    parts = split_list(separator, text) if count < 0 or not separator else text.split(separator, count - 1)
    if 0 < count < len(parts):
        parts[count - 1 :] = [separator.join(parts[count - 1 :])]
    return StringMap({f"_{number}": part for number, part in enumerate(parts)})


BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Go's white space (unicode.IsSpace)."""


def trim(text: str) -> str:
    """Remove white space at both ends."""
    trimmed = text.strip(BLANKS)
    return Shaped(trimmed, form=text.form, tree=text.tree) if isinstance(text, Shaped) else trimmed


def trim_suffix(suffix: str, text: str) -> str:
    """Remove the suffix once."""
    trimmed = text.removesuffix(suffix)
    if isinstance(text, Shaped) and not suffix.strip(BLANKS):
        return Shaped(trimmed, lead=text.lead, form=text.form, tree=text.tree)
    return trimmed


# --- words and lines ---

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
    """Return the changed character: Go maps letters one by one, by Unicode's simple mappings."""
    changed = change(character)
    if len(changed) == 1:
        return changed
    simple = changed[0] if change is str.lower else character.title()
    return simple if len(simple) == 1 else character


def _mapped(text: str, change: Callable[[str], str]) -> str:
    return change(text) if text.isascii() else "".join([_letter(character, change) for character in valid(text)])


def upper(text: str) -> str:
    """Convert to upper case, letter by letter."""
    return _mapped(text, str.upper)


def lower(text: str) -> str:
    """Convert to lower case, letter by letter."""
    return _mapped(text, str.lower)


def title(text: str) -> str:
    """Convert the first letter of each word to title case."""
    return re.sub(_AFTER_WORD, lambda found: _letter(found[0], str.title), valid(text))


def swapcase(text: str) -> str:
    """Exchange upper and lower case; a small letter after white space gets title case."""

    def swap(character: str, before: str) -> str:
        if character.isupper() or character.istitle():
            return _letter(character, str.lower)
        return _letter(character, str.title if before in BLANKS else str.upper) if character.islower() else character

    text = valid(text)
    return "".join(map(swap, text, f" {text}"))


def nospace(text: str) -> str:
    """Remove white space; if there is any, each other byte becomes the character with this number, as in sprig."""
    characters = to_bytes(text).decode("latin-1")
    kept = re.sub(f"[{_BYTE_BLANKS}]", "", characters)
    return text if len(kept) == len(characters) else kept


def camelcase(text: str) -> str:
    """Join words separated by spaces, underscores and hyphens, each with a capital letter."""
    text = valid(text)
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
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8
        return "L"
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


_TRIM_ALL: Final = Function(
    lambda cut, text: text.strip("".join(dict.fromkeys(cut))) if cut else text,
    *("string", "string"),
    cost=lambda cut, text: (len(cut) >> 4) + (len(set(cut)) * len(text) >> 8),  # each character with each of the set
)
_CASES: Final = {
    "camelcase": camelcase,
    "initials": lambda text: "".join(re.findall(_FIRST_BYTE, to_bytes(text).decode("latin-1"))),  # of bytes as characters
    "kebabcase": lambda text: _joined(text, "-"),
    "nospace": nospace,
    "snakecase": lambda text: _joined(text, "_"),
    "swapcase": swapcase,
    "title": title,
    "untitle": lambda text: re.sub(_FIRST, lambda found: _letter(found[0], str.lower), valid(text)),
}
FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    **{name: Function(call, "string", cost=lambda text: text_cost(text) << 2) for name, call in _CASES.items()},
    "abbrev": Function(lambda width, text: abbreviate(0, width, text), "int", "string"),
    "abbrevboth": abbreviate,
    "cat": lambda *values: _spaced(sprint, values),
    "contains": Function(lambda part, text: part in text, "string", "string"),
    "hasPrefix": Function(lambda prefix, text: text.startswith(prefix), "string", "string"),
    "hasSuffix": Function(lambda suffix, text: text.endswith(suffix), "string", "string"),
    "hello": lambda: "Hello!",
    "indent": Function(lambda spaces, text: _indent("", spaces, text), "int", "string"),
    "join": Function.of(join, cost=measure_all),
    "lower": Function(lower, "string", cost=character_cost),
    "nindent": Function(lambda spaces, text: _indent("\n", spaces, text), "int", "string"),
    "plural": Function(lambda one, many, count: one if count == 1 else many, "string", "string", "int"),
    "quote": Function(lambda *values: _spaced(lambda value: quote(text_of(value)), values), variadic=ANY, cost=character_cost),
    "repeat": repeat,
    "replace": replace,
    "split": Function(lambda separator, text: splitn(separator, -1, text), "string", "string", cost=text_cost),
    "splitList": split_list,
    "splitn": splitn,
    "squote": lambda *values: _spaced(lambda value: f"'{sprint(value)}'", values),
    "substr": substr,
    "toString": text_of,
    "toStrings": Function.of(lambda values: TypedList(texts_of(values), go_type="[]string"), cost=measure_all),
    "trim": trim,
    "trimAll": _TRIM_ALL,
    "trimPrefix": Function(lambda prefix, text: text.removeprefix(prefix), "string", "string"),
    "trimSuffix": trim_suffix,
    "trimall": _TRIM_ALL,
    "trunc": trunc,
    "upper": Function(upper, "string", cost=character_cost),
    "wrap": Function(lambda width, text: _wrapped(width, "\n", text, breaks=False), "int", "string", cost=text_cost),
    "wrapWith": Function(
        lambda width, separator, text: _wrapped(width, separator or "\n", text, breaks=True),
        *("int", "string", "string"),
        cost=text_cost,
    ),
}
