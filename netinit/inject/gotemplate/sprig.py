"""The functions of the sprig library that charts and injection templates use.

Arguments stand in sprig's order (the subject last, for pipelines), and every count of characters that sprig does on
bytes is done on bytes here. What a function may build is limited. The functions that change their argument (set, merge)
are left out: templates never change the data, which several threads may share.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections.abc import Callable
from typing import Any, Final

from .gojson import from_json, to_json
from .limits import check_size
from .literals import quote as quote_text
from .printing import sprint
from .values import (
    FLOAT,
    INT,
    MAP,
    NO_VALUE,
    SLICE,
    STRING,
    UINT,
    Function,
    FunctionError,
    Int64,
    StringMap,
    TypedList,
    from_bytes,
    kind_of,
    to_bytes,
    type_name,
)

__all__ = ["FUNCTIONS", "default", "text_of"]


def text_of(value: Any) -> str:
    """The value as text, as sprig's strval makes it."""
    if isinstance(value, bytes):
        return from_bytes(value)
    return value if type(value) is str else sprint(value)


def _texts(values: Any) -> list[str]:
    """The values of a list as text, without the nil ones; a single value is a list of itself."""
    if kind_of(values) == SLICE and not isinstance(values, bytes):
        return [text_of(value) for value in values if value is not None]
    return [] if values is None else [text_of(values)]


def _items(values: Any, name: str) -> list[Any]:
    if kind_of(values) != SLICE:
        raise FunctionError(f"Cannot {name} on type {_kind_word(values)}")
    return list(values)


def _kind_word(value: Any) -> str:
    return {MAP: "map", SLICE: "slice", FLOAT: "float64"}.get(kind_of(value), type_name(value))


# --- defaults ---


def default(fallback: Any, *given: Any) -> Any:
    """The given value, or the fallback where it is empty: nil, false, 0, "", or a map or list without elements."""
    return given[0] if given and given[0] else fallback


def empty(value: Any) -> bool:
    """Whether the value is nil, false, 0, "", or a map or list without elements."""
    return not value


def coalesce(*values: Any) -> Any:
    """The first value that is not empty, or nil."""
    return next((value for value in values if value), None)


def all_given(*values: Any) -> bool:
    """Whether no value is empty."""
    return all(bool(value) for value in values)


def any_given(*values: Any) -> bool:
    """Whether one value at least is not empty."""
    return any(bool(value) for value in values)


def ternary(yes: Any, no: Any, test: bool) -> Any:
    """The first value where the test holds, else the second."""
    return yes if test else no


def fail(message: str) -> Any:
    """Never returns: the template fails with the message."""
    raise FunctionError(message)


# --- text ---


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
    check_size(max(spaces, 0) * (text.count("\n") + 1) + len(text))
    pad = " " * _not_negative(spaces)
    return pad + text.replace("\n", "\n" + pad)


def nindent(spaces: int, text: str) -> str:
    """A line feed, then the text with every line pushed to the right."""
    return "\n" + indent(spaces, text)


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
        raise FunctionError(f"runtime error: slice bounds out of range [:{bound}] with length {len(raw)}")
    return bound


def join(separator: str, values: Any) -> str:
    """The values that are not nil as text with the separator between."""
    texts = _texts(values)
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
    parts = split_list(separator, text)
    if 0 < count < len(parts):
        parts[count - 1 :] = [separator.join(parts[count - 1 :])]
    return StringMap({f"_{number}": part for number, part in enumerate(parts)})


_BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def title(text: str) -> str:
    """The text with the first letter of every word in title case."""
    parts: list[str] = []
    inside = False
    for character in text:
        parts.append(character if inside else _title_letter(character))
        inside = character.isalnum() or character == "_" or (inside and character in "'")
    return "".join(parts)


def _title_letter(character: str) -> str:
    titled = character.title()
    return titled if len(titled) == 1 else character


def upper(text: str) -> str:
    """The text in upper case, letter by letter."""
    return text.upper() if text.isascii() else "".join(_one(c, c.upper()) for c in text)


def lower(text: str) -> str:
    """The text in lower case, letter by letter."""
    return text.lower() if text.isascii() else "".join(_one(c, c.lower()) for c in text)


def _one(character: str, changed: str) -> str:
    return changed if len(changed) == 1 else character


def untitle(text: str) -> str:
    """The text with the first letter of every blank-separated word in lower case."""
    parts = ["" if not part else part[0].lower() + part[1:] for part in text.split(" ")]
    return " ".join(parts)


def encode_base64(text: str) -> str:
    """The text in base64."""
    return base64.b64encode(to_bytes(text)).decode()


def decode_base64(text: str) -> str:
    """What the base64 text says; where it is none, the text of Go's complaint."""
    raw = text.replace("\r", "").replace("\n", "")
    try:
        return from_bytes(base64.b64decode(raw, validate=True))
    except (binascii.Error, ValueError):
        return f"illegal base64 data at input byte {_first_bad_byte(raw)}"


_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _first_bad_byte(raw: str) -> int:
    good = next((place for place, character in enumerate(raw) if character not in _BASE64), len(raw))
    return good if good < len(raw) else len(raw) - len(raw) % 4


def sha1sum(text: str) -> str:
    """The SHA-1 of the text in hexadecimal."""
    return hashlib.sha1(to_bytes(text), usedforsecurity=False).hexdigest()


def sha256sum(text: str) -> str:
    """The SHA-256 of the text in hexadecimal."""
    return hashlib.sha256(to_bytes(text)).hexdigest()


# --- numbers ---


def to_int64(value: Any) -> Int64:
    """The value as an int64, 0 where it is none."""
    kind = kind_of(value)
    if kind in (INT, UINT):
        return Int64(_wrapped(int(value)))
    if kind == FLOAT:
        return Int64(_wrapped(int(value)) if math.isfinite(value) else -(1 << 63))
    if kind == STRING:
        return Int64(_parse_int(value))
    return Int64(1 if value is True else 0)


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _parse_int(text: str) -> int:
    digits = text.lstrip("0") or "0"
    try:
        number = int(digits) if text.isascii() and "_" not in text and len(text) < len(str(1 << 64)) else 0
    except ValueError:
        return 0
    return number if text == text.strip() and number < 1 << 63 else 0


def to_int(value: Any) -> int:
    """The value as an int, 0 where it is none."""
    return int(to_int64(value))


def to_float64(value: Any) -> float:
    """The value as a float64, 0 where it is none."""
    if kind_of(value) in (INT, UINT, FLOAT):
        return float(value)
    try:
        return float(value) if kind_of(value) == STRING and value == value.strip() else 1.0 if value is True else 0.0
    except ValueError:
        return 0.0


def add(*values: Any) -> Int64:
    """The sum."""
    return Int64(_wrapped(sum(to_int64(value) for value in values)))


def add1(value: Any) -> Int64:
    """The value and one."""
    return Int64(_wrapped(to_int64(value) + 1))


def sub(left: Any, right: Any) -> Int64:
    """The difference."""
    return Int64(_wrapped(to_int64(left) - to_int64(right)))


def mul(first: Any, *others: Any) -> Int64:
    """The product."""
    product = int(to_int64(first))
    for other in others:
        product = _wrapped(product * to_int64(other))
    return Int64(product)


def div(left: Any, right: Any) -> Int64:
    """The quotient, towards zero."""
    return Int64(_divide(to_int64(left), to_int64(right))[0])


def mod(left: Any, right: Any) -> Int64:
    """The remainder, with the sign of the dividend."""
    return Int64(_divide(to_int64(left), to_int64(right))[1])


def _divide(left: int, right: int) -> tuple[int, int]:
    if right == 0:
        raise FunctionError("runtime error: integer divide by zero")
    quotient = abs(left) // abs(right)
    quotient = quotient if (left < 0) == (right < 0) else -quotient
    return _wrapped(quotient), left - quotient * right


def largest(first: Any, *others: Any) -> Int64:
    """The largest number."""
    return max(map(to_int64, (first, *others)))


def smallest(first: Any, *others: Any) -> Int64:
    """The smallest number."""
    return min(map(to_int64, (first, *others)))


def floor(value: Any) -> float:
    """The largest whole number that is not larger."""
    return float(math.floor(to_float64(value)))


def ceil(value: Any) -> float:
    """The smallest whole number that is not smaller."""
    return float(math.ceil(to_float64(value)))


def until(count: int) -> TypedList:
    """The numbers from 0 up to the count."""
    check_size(abs(count))
    return TypedList(range(0, count, 1 if count >= 0 else -1), go_type="[]int")


# --- lists ---


def make_list(*values: Any) -> list[Any]:
    """The values as a list."""
    return list(values)


def append(values: Any, item: Any) -> list[Any]:
    """A new list with the item at the end."""
    return [*_items(values, "push"), item]


def prepend(values: Any, item: Any) -> list[Any]:
    """A new list with the item at the beginning."""
    return [item, *_items(values, "prepend")]


def concat(*lists: Any) -> list[Any]:
    """A new list of the elements of all."""
    check_size(sum(len(values) for values in lists if kind_of(values) == SLICE))
    return [item for values in lists for item in _items(values, "concat")]


def first(values: Any) -> Any:
    """The first element, or nil."""
    items = _items(values, "find first")
    return items[0] if items else None


def last(values: Any) -> Any:
    """The last element, or nil."""
    items = _items(values, "find last")
    return items[-1] if items else None


def rest(values: Any) -> list[Any] | None:
    """All elements but the first; nil of an empty list."""
    items = _items(values, "find rest")
    return items[1:] if items else None


def initial(values: Any) -> list[Any] | None:
    """All elements but the last; nil of an empty list."""
    items = _items(values, "find initial")
    return items[:-1] if items else None


def reverse(values: Any) -> list[Any]:
    """A new list in the opposite order."""
    return _items(values, "find reverse")[::-1]


def compact(values: Any) -> list[Any]:
    """A new list without the empty elements."""
    return [item for item in _items(values, "compact") if item]


def uniq(values: Any) -> list[Any]:
    """A new list in which every element stands once."""
    found: list[Any] = []
    for item in _items(values, "find uniq"):
        if not any(type(item) is type(known) and item == known for known in found):
            found.append(item)
    return found


def has(needle: Any, values: Any) -> bool:
    """Whether the list holds the value."""
    if values is None:
        return False
    return any(type(item) is type(needle) and item == needle for item in _items(values, "find has"))


def without(values: Any, *unwanted: Any) -> list[Any]:
    """A new list without these elements."""
    items = _items(values, "find without")
    return [item for item in items if not any(type(item) is type(bad) and item == bad for bad in unwanted)]


def sort_alpha(values: Any) -> TypedList:
    """The elements as text, sorted."""
    return TypedList(sorted(_texts(values)), go_type="[]string")


def to_strings(values: Any) -> TypedList:
    """The elements as text."""
    return TypedList(_texts(values), go_type="[]string")


# --- maps ---


def make_dict(*pairs: Any) -> dict[str, Any]:
    """A map of the keys and values that follow each other; a key without a value has ""."""
    values = [*pairs[1::2], *([""] if len(pairs) % 2 else [])]
    return {text_of(key): value for key, value in zip(pairs[::2], values, strict=True)}


def get(mapping: dict[str, Any], key: str) -> Any:
    """The value of the key, or ""."""
    return mapping.get(key, "")


def has_key(mapping: dict[str, Any], key: str) -> bool:
    """Whether the key is there."""
    return key in mapping


def keys(*mappings: dict[str, Any]) -> TypedList:
    """The keys of the maps, sorted (sprig gives them in no order)."""
    return TypedList([key for mapping in mappings for key in sorted(mapping)], go_type="[]string")


def values_of(mapping: dict[str, Any]) -> list[Any]:
    """The values in the order of their keys (sprig gives them in no order)."""
    return [mapping[key] for key in sorted(mapping)]


def pick(mapping: dict[str, Any], *names: str) -> dict[str, Any]:
    """A map of these keys alone."""
    return {name: mapping[name] for name in names if name in mapping}


def omit(mapping: dict[str, Any], *names: str) -> dict[str, Any]:
    """A map without these keys."""
    return {name: value for name, value in mapping.items() if name not in names}


def dig(*path: Any) -> Any:
    """The value at the path of keys in the map, which comes last; the default, which comes before it, if missing."""
    if len(path) < 3:  # noqa: PLR2004 - key, default and map
        raise FunctionError("dig needs at least three arguments")
    *names, fallback, found = path
    for name in names:
        if not isinstance(found, dict) or name not in found:
            return fallback
        found = found[name]
    return found


def kind_is(kind: str, value: Any) -> bool:
    """Whether the value is of that Go kind."""
    return go_kind(value) == kind


def go_kind(value: Any) -> str:
    """The Go kind of the value."""
    if value is None or value is NO_VALUE:
        return "invalid"
    kind = kind_of(value)
    named = {MAP: "map", SLICE: "slice", "struct": "struct", "pointer": "ptr", "func": "func"}
    return named.get(kind, type_name(value))


def type_of(value: Any) -> str:
    """The Go type of the value."""
    return "<nil>" if value is None else type_name(value)


def parse_json(text: str) -> Any:
    """The value of the JSON text."""
    try:
        return from_json(text)
    except ValueError:
        return None


def pretty_json(value: Any) -> str:
    """The value as JSON, an element a line."""
    return to_json(value, indent="  ")


def _typed(call: Callable[..., Any], *params: str, variadic: str | None = None) -> Function:
    return Function(call, params, variadic)


_TEXT: Final = "string"
_MAP: Final = "map[string]interface {}"

FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "add": add,
    "add1": add1,
    "all": all_given,
    "any": any_given,
    "append": append,
    "b64dec": _typed(decode_base64, _TEXT),
    "b64enc": _typed(encode_base64, _TEXT),
    "cat": cat,
    "ceil": ceil,
    "coalesce": coalesce,
    "compact": compact,
    "concat": concat,
    "contains": _typed(lambda needle, text: needle in text, _TEXT, _TEXT),
    "default": default,
    "dict": make_dict,
    "dig": dig,
    "div": div,
    "empty": empty,
    "fail": _typed(fail, _TEXT),
    "first": first,
    "float64": to_float64,
    "floor": floor,
    "fromJson": _typed(parse_json, _TEXT),
    "get": _typed(get, _MAP, _TEXT),
    "has": has,
    "hasKey": _typed(has_key, _MAP, _TEXT),
    "hasPrefix": _typed(lambda prefix, text: text.startswith(prefix), _TEXT, _TEXT),
    "hasSuffix": _typed(lambda suffix, text: text.endswith(suffix), _TEXT, _TEXT),
    "indent": _typed(indent, "int", _TEXT),
    "initial": initial,
    "int": to_int,
    "int64": to_int64,
    "join": _typed(join, _TEXT, "interface {}"),
    "keys": _typed(keys, variadic=_MAP),
    "kindIs": _typed(kind_is, _TEXT, "interface {}"),
    "kindOf": go_kind,
    "last": last,
    "list": make_list,
    "lower": _typed(lower, _TEXT),
    "max": largest,
    "min": smallest,
    "mod": mod,
    "mul": mul,
    "nindent": _typed(nindent, "int", _TEXT),
    "nospace": _typed(lambda text: "".join(c for c in text if c not in _BLANKS), _TEXT),
    "omit": _typed(omit, _MAP, variadic=_TEXT),
    "pick": _typed(pick, _MAP, variadic=_TEXT),
    "prepend": prepend,
    "push": append,
    "quote": quote,
    "repeat": _typed(repeat, "int", _TEXT),
    "replace": _typed(replace, _TEXT, _TEXT, _TEXT),
    "rest": rest,
    "reverse": reverse,
    "sha1sum": _typed(sha1sum, _TEXT),
    "sha256sum": _typed(sha256sum, _TEXT),
    "sortAlpha": sort_alpha,
    "split": _typed(split, _TEXT, _TEXT),
    "splitList": _typed(split_list, _TEXT, _TEXT),
    "splitn": _typed(splitn, _TEXT, "int", _TEXT),
    "squote": squote,
    "sub": sub,
    "substr": _typed(substr, "int", "int", _TEXT),
    "ternary": _typed(ternary, "interface {}", "interface {}", "bool"),
    "title": _typed(title, _TEXT),
    "toJson": to_json,
    "toPrettyJson": pretty_json,
    "toString": text_of,
    "toStrings": to_strings,
    "trim": _typed(lambda text: text.strip(_BLANKS), _TEXT),
    "trimAll": _typed(lambda cut, text: text.strip(cut) if cut else text, _TEXT, _TEXT),
    "trimPrefix": _typed(lambda prefix, text: text.removeprefix(prefix), _TEXT, _TEXT),
    "trimSuffix": _typed(lambda suffix, text: text.removesuffix(suffix), _TEXT, _TEXT),
    "trunc": _typed(trunc, "int", _TEXT),
    "typeOf": type_of,
    "uniq": uniq,
    "until": _typed(until, "int"),
    "untitle": _typed(untitle, _TEXT),
    "upper": _typed(upper, _TEXT),
    "values": _typed(values_of, _MAP),
    "without": without,
}
"""sprig's functions by name."""
