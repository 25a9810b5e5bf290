"""Sprig's functions on text. Lengths and positions are in bytes where sprig counts bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.limits import check_size, measure_all
from netinit.golang.template.literals import quote
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import (
    Function,
    FunctionError,
    Shaped,
    StringMap,
    TypedList,
    from_bytes,
    kind_of,
    to_bytes,
)


def text_of(value: Any) -> str:
    """Convert the value to text like sprig's strval."""
    if isinstance(value, bytes):
        return from_bytes(value)
    return value if type(value) is str else sprint(value)


def texts_of(values: Any) -> list[str]:
    """Convert the elements of a list to text, without nil; any other value counts as a list of itself."""
    if kind_of(values) == "slice" and not isinstance(values, bytes):
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


_TRIM_ALL: Final = Function(
    lambda cut, text: text.strip("".join(dict.fromkeys(cut))) if cut else text,
    *("string", "string"),
    cost=lambda cut, text: (len(cut) >> 4) + (len(set(cut)) * len(text) >> 8),  # each character with each of the set
)

FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "cat": lambda *values: _spaced(sprint, values),
    "contains": Function(lambda part, text: part in text, "string", "string"),
    "hasPrefix": Function(lambda prefix, text: text.startswith(prefix), "string", "string"),
    "hasSuffix": Function(lambda suffix, text: text.endswith(suffix), "string", "string"),
    "hello": lambda: "Hello!",
    "indent": Function(lambda spaces, text: _indent("", spaces, text), "int", "string"),
    "join": Function.of(join, cost=measure_all),
    "nindent": Function(lambda spaces, text: _indent("\n", spaces, text), "int", "string"),
    "quote": lambda *values: _spaced(lambda value: quote(text_of(value)), values),
    "repeat": repeat,
    "replace": replace,
    "split": Function(lambda separator, text: splitn(separator, -1, text), "string", "string"),
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
}
