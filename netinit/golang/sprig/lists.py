"""Sprig's functions on lists. They make new ones and never change the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.sprig.numbers import to_int
from netinit.golang.sprig.reflection import deep_equal
from netinit.golang.sprig.text import text_of, texts_of
from netinit.golang.template.limits import check_size, measure, measure_all, size_of
from netinit.golang.template.values import (
    FLOAT,
    MAP,
    SLICE,
    Function,
    FunctionError,
    Struct,
    TypedList,
    kind_of,
    type_name,
    typed,
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
            if any(deep_equal(item, known) for known in trees):
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


def has(needle: Any, values: Any) -> bool:
    """Whether the list holds the value."""
    if values is None:
        return False
    return any(deep_equal(item, needle) for item in _items(values, "find has"))


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
    return [item for item in items if not any(deep_equal(item, bad) for bad in unwanted)]


def sort_alpha(values: Any) -> TypedList:
    """The elements as text, sorted."""
    texts = texts_of(values) if kind_of(values) == SLICE else [text_of(values)]
    return TypedList(sorted(texts), go_type="[]string")


def part(values: Any, *bounds: Any) -> Any:
    """The elements from the first bound up to the second."""
    if kind_of(values) != SLICE:
        raise FunctionError(f"list should be type of slice or array but {_kind_word(values)}")
    if not values:
        return None
    start = to_int(bounds[0]) if bounds else 0
    end = to_int(bounds[1]) if len(bounds) > 1 else len(values)
    if not 0 <= start <= end <= len(values):
        raise FunctionError("reflect.Value.Slice: slice index out of bounds")
    found = values[start:end]
    return TypedList(found, go_type=values.go_type) if isinstance(values, TypedList) else found


def chunk(size: int, values: Any) -> TypedList:
    """The elements in lists of that size."""
    if kind_of(values) != SLICE:
        raise FunctionError(f"Cannot chunk type {_kind_word(values)}")
    items = list(values)
    if size <= 0:
        raise FunctionError("chunk needs a size of 1 or more")
    parts = [items[at : at + size] for at in range(0, len(items), size)]
    return TypedList(parts, go_type="[][]interface {}")


_ANY: Final = "interface {}"

_WITH_MUST: Final[dict[str, Callable[..., Any] | Function]] = {
    "Append": append,
    "Chunk": typed(chunk, "int", _ANY),
    "Compact": typed(compact, _ANY, cost=size_of),
    "First": first,
    "Has": typed(has, _ANY, _ANY, cost=has_cost),
    "Initial": initial,
    "Last": last,
    "Prepend": prepend,
    "Push": append,
    "Rest": rest,
    "Reverse": reverse,
    "Slice": part,
    "Uniq": typed(uniq, _ANY, cost=uniq_cost),
    "Without": typed(without, _ANY, variadic=_ANY, cost=without_cost),
}
"""Functions that sprig has twice, also with must before the name: what fails fails in both with the same words."""

FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    **{name[0].lower() + name[1:]: call for name, call in _WITH_MUST.items()},
    **{f"must{name}": call for name, call in _WITH_MUST.items()},
    "concat": concat,
    "list": make_list,
    "sortAlpha": typed(sort_alpha, _ANY, cost=measure_all),
    "tuple": make_list,
}
