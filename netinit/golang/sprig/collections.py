"""Sprig's functions on lists and maps. They make new ones and never change the data."""

from __future__ import annotations

from typing import Any

from netinit.golang.gojson import from_json, to_json
from netinit.golang.sprig.text import text_of, texts_of
from netinit.golang.template.limits import check_size, measure
from netinit.golang.template.values import (
    FLOAT,
    MAP,
    NO_VALUE,
    SLICE,
    FunctionError,
    Shaped,
    Struct,
    TypedList,
    kind_of,
    type_name,
)


def _items(values: Any, name: str) -> list[Any]:
    return list(values) if _is_list(values, name) else []


def _is_list(values: Any, name: str) -> bool:
    if kind_of(values) != SLICE:
        raise FunctionError(f"Cannot {name} on type {_kind_word(values)}")
    return True


def _kind_word(value: Any) -> str:
    return {MAP: "map", SLICE: "slice", FLOAT: "float64"}.get(kind_of(value), type_name(value))


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
    for values in lists:
        if kind_of(values) != SLICE:
            raise FunctionError(f"Cannot concat type {_kind_word(values)} as list")
    return [item for values in lists for item in values]


def first(values: Any) -> Any:
    """The first element, or nil."""
    return values[0] if _is_list(values, "find first") and values else None


def last(values: Any) -> Any:
    """The last element, or nil."""
    return values[-1] if _is_list(values, "find last") and values else None


def rest(values: Any) -> list[Any]:
    """All elements but the first."""
    return _items(values, "find rest")[1:]


def initial(values: Any) -> list[Any]:
    """All elements but the last."""
    return _items(values, "find initial")[:-1]


def reverse(values: Any) -> list[Any]:
    """A new list in the opposite order."""
    return _items(values, "find reverse")[::-1]


def compact(values: Any) -> list[Any]:
    """A new list without the empty elements."""
    return [item for item in _items(values, "compact") if item]


def uniq(values: Any) -> list[Any]:
    """A new list in which every element stands once."""
    found: list[Any] = []
    trees: list[Any] = []
    seen: set[tuple[str, Any]] = set()
    for item in _items(values, "find uniq"):
        if isinstance(item, list | tuple | dict | Struct):
            if any(_equal(item, known) for known in trees):
                continue
            trees.append(item)
        elif (key := (type_name(item), item)) in seen:
            continue
        else:
            seen.add(key)
        found.append(item)
    return found


def uniq_cost(values: Any) -> int:
    """The steps of uniq: every tree among the elements may be compared with every other one."""
    if kind_of(values) != SLICE:
        return 1
    trees = [item for item in values if isinstance(item, list | tuple | dict | Struct)]
    return len(values) + measure(trees) * len(trees)


def _equal(left: Any, right: Any) -> bool:
    return type_name(left) == type_name(right) and bool(left == right)


def has(needle: Any, values: Any) -> bool:
    """Whether the list holds the value."""
    if values is None:
        return False
    return any(_equal(item, needle) for item in _items(values, "find has"))


def has_cost(needle: Any, values: Any) -> int:
    """The steps of has: every element is compared, and no further than the needle goes."""
    return _comparisons(values, needle)


def without_cost(values: Any, *unwanted: Any) -> int:
    """The steps of without."""
    return _comparisons(values, *unwanted)


def _comparisons(values: Any, *wanted: Any) -> int:
    if kind_of(values) != SLICE:
        return 1
    if any(isinstance(item, list | tuple | dict | Struct) for item in wanted):
        return measure(list(values)) * len(wanted) + measure(list(wanted))
    return len(values) * len(wanted)


def without(values: Any, *unwanted: Any) -> list[Any]:
    """A new list without these elements."""
    items = _items(values, "find without")
    return [item for item in items if not any(_equal(item, bad) for bad in unwanted)]


def sort_alpha(values: Any) -> TypedList:
    """The elements as text, sorted."""
    texts = texts_of(values) if kind_of(values) == SLICE else [text_of(values)]
    return TypedList(sorted(texts), go_type="[]string")


def to_strings(values: Any) -> TypedList:
    """The elements as text."""
    return TypedList(texts_of(values), go_type="[]string")


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


def keys_cost(*mappings: dict[str, Any]) -> int:
    """The steps of sorting the keys."""
    return sum(map(len, mappings))


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


def compact_json(value: Any) -> str:
    """The value as JSON."""
    return Shaped(to_json(value), form="json", tree=value)


def pretty_json(value: Any) -> str:
    """The value as JSON, an element a line."""
    return Shaped(to_json(value, indent="  "), form="json", tree=value)
