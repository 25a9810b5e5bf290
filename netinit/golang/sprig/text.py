"""Sprig's functions on text. What sprig counts in bytes is counted in bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.limits import check_size, measure_all
from netinit.golang.template.literals import quote as quote_text
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import (
    SLICE,
    Function,
    FunctionError,
    Shaped,
    StringMap,
    TypedList,
    from_bytes,
    kind_of,
    to_bytes,
    typed,
)


def text_of(value: Any) -> str:
    """The value as text, as sprig's strval makes it."""
    if isinstance(value, bytes):
        return from_bytes(value)
    return value if type(value) is str else sprint(value)


def texts_of(values: Any) -> list[str]:
    """The values of a list as text, without the nil ones; a single value is a list of itself."""
    if kind_of(values) == SLICE and not isinstance(values, bytes):
        return [text_of(value) for value in values if value is not None]
    return [] if values is None else [text_of(values)]


def to_strings(values: Any) -> TypedList:
    """The elements as text."""
    return TypedList(texts_of(values), go_type="[]string")


def quote(*values: Any) -> str:
    """Each value that is not nil as a Go string literal, with blanks between."""
    return " ".join(quote_text(text_of(value)) for value in values if value is not None)


def squote(*values: Any) -> str:
    """Each value that is not nil in single quotes, with blanks between."""
    return " ".join(f"'{sprint(value)}'" for value in values if value is not None)


def cat(*values: Any) -> str:
    """The values that are not nil with blanks between."""
    return " ".join(sprint(value) for value in values if value is not None)


def indent(spaces: int, text: str) -> str:
    """The text with every line pushed to the right."""
    return _pushed(spaces, text, "")


def nindent(spaces: int, text: str) -> str:
    """A line feed, then the text with every line pushed to the right."""
    return _pushed(spaces, text, "\n")


def _pushed(spaces: int, text: str, before: str) -> str:
    check_size(max(spaces, 0) * (text.count("\n") + 1) + len(text))
    pad = " " * _not_negative(spaces)
    known = text if isinstance(text, Shaped) else Shaped("")
    lead = before + pad + known.lead.replace("\n", "\n" + pad)
    return Shaped(before + pad + text.replace("\n", "\n" + pad), lead=lead, form=known.form, tree=known.tree)


def repeat(count: int, text: str) -> str:
    """The text, that many times."""
    check_size(max(count, 0) * len(text))
    return text * _not_negative(count)


def _not_negative(count: int) -> int:
    if count < 0:
        raise FunctionError("strings: negative Repeat count")
    return count


def replace(old: str, new: str, text: str) -> str:
    """The text with every occurrence replaced."""
    check_size(len(text) + (text.count(old) if old else len(text) + 1) * max(len(new) - len(old), 0))
    return text.replace(old, new)


def trunc(count: int, text: str) -> str:
    """The first bytes of the text, or with a negative count the last ones."""
    raw = to_bytes(text)
    if count < 0 and len(raw) + count > 0:
        return from_bytes(raw[len(raw) + count :])
    return from_bytes(raw[:count]) if 0 <= count < len(raw) else text


def substr(start: int, end: int, text: str) -> str:
    """The bytes from start to end; a negative start is the beginning, a negative end the end."""
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
    """The values that are not nil as text with the separator between."""
    texts = texts_of(values)
    check_size(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def split_list(separator: str, text: str) -> TypedList:
    """The parts of the text."""
    parts = text.split(separator) if separator else list(text)
    check_size(len(parts))
    return TypedList(parts, go_type="[]string")


def split(separator: str, text: str) -> StringMap:
    """The parts of the text as a map of _0, _1 and so on."""
    return StringMap({f"_{number}": part for number, part in enumerate(split_list(separator, text))})


def splitn(separator: str, count: int, text: str) -> StringMap:
    """At most so many parts of the text as a map of _0, _1 and so on."""
    if count == 0:
        return StringMap()
    parts = split_list(separator, text) if count < 0 or not separator else text.split(separator, count - 1)
    if 0 < count < len(parts):
        parts[count - 1 :] = [separator.join(parts[count - 1 :])]
    return StringMap({f"_{number}": part for number, part in enumerate(parts)})


BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""What Go takes for white space."""


def trim(text: str) -> str:
    """The text without the white space around it."""
    trimmed = text.strip(BLANKS)
    return Shaped(trimmed, form=text.form, tree=text.tree) if isinstance(text, Shaped) else trimmed


def trim_all(cut: str, text: str) -> str:
    """The text without these characters around it."""
    return text.strip("".join(dict.fromkeys(cut))) if cut else text


def trim_all_cost(cut: str, text: str) -> int:
    """The steps of trimAll: every character of the text may be compared with every one of the set."""
    return (len(cut) >> 4) + (len(set(cut)) * len(text) >> 8)


def trim_suffix(suffix: str, text: str) -> str:
    """The text without that ending."""
    trimmed = text.removesuffix(suffix)
    if isinstance(text, Shaped) and not suffix.strip(BLANKS):
        return Shaped(trimmed, lead=text.lead, form=text.form, tree=text.tree)
    return trimmed


_ANY: Final = "interface {}"
_TEXT: Final = "string"
_TRIM_ALL: Final = typed(trim_all, _TEXT, _TEXT, cost=trim_all_cost)

FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "cat": cat,
    "contains": typed(lambda needle, text: needle in text, _TEXT, _TEXT),
    "hasPrefix": typed(lambda prefix, text: text.startswith(prefix), _TEXT, _TEXT),
    "hasSuffix": typed(lambda suffix, text: text.endswith(suffix), _TEXT, _TEXT),
    "hello": lambda: "Hello!",
    "indent": typed(indent, "int", _TEXT),
    "join": typed(join, _TEXT, _ANY, cost=measure_all),
    "nindent": typed(nindent, "int", _TEXT),
    "quote": quote,
    "repeat": typed(repeat, "int", _TEXT),
    "replace": typed(replace, _TEXT, _TEXT, _TEXT),
    "split": typed(split, _TEXT, _TEXT),
    "splitList": typed(split_list, _TEXT, _TEXT),
    "splitn": typed(splitn, _TEXT, "int", _TEXT),
    "squote": squote,
    "substr": typed(substr, "int", "int", _TEXT),
    "toString": text_of,
    "toStrings": typed(to_strings, _ANY, cost=measure_all),
    "trim": typed(trim, _TEXT),
    "trimAll": _TRIM_ALL,
    "trimPrefix": typed(lambda prefix, text: text.removeprefix(prefix), _TEXT, _TEXT),
    "trimSuffix": typed(trim_suffix, _TEXT, _TEXT),
    "trimall": _TRIM_ALL,
    "trunc": typed(trunc, "int", _TEXT),
}
