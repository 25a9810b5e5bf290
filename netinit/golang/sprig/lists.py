"""Sprig's functions on lists. They return new lists and never modify the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.sprig.numbers import to_int
from netinit.golang.sprig.reflection import deep_equal
from netinit.golang.sprig.text import text_of, texts_of
from netinit.golang.template.limits import check_size, measure, measure_all, size_of
from netinit.golang.template.values import Function, FunctionError, Struct, TypedList, kind_of, type_name


def _items(values: Any, name: str) -> Any:
    if kind_of(values) != "slice":
        raise FunctionError(f"Cannot {name} on type {_kind_word(values)}")
    return values


def _kind_word(value: Any) -> str:
    kind = kind_of(value)
    return kind if kind in ("map", "slice") else type_name(value)


def _is_tree(item: Any) -> bool:
    return isinstance(item, list | tuple | dict | Struct)


def concat(*lists: Any) -> list[Any]:
    """Join the lists."""
    check_size(sum(len(values) for values in lists if kind_of(values) == "slice"))
    for values in lists:
        if kind_of(values) != "slice":
            raise FunctionError(f"Cannot concat type {_kind_word(values)} as list")
    return [item for values in lists for item in values]


def uniq(values: Any) -> list[Any]:
    """Keep the first of equal elements."""
    found: list[Any] = []
    trees: list[Any] = []
    seen: set[tuple[str, Any]] = set()
    for item in _items(values, "find uniq"):
        if _is_tree(item):
            if any(deep_equal(item, known) for known in trees):
                continue
            trees.append(item)
        elif (key := (type_name(item), item)) in seen:
            continue
        else:
            seen.add(key)
        found.append(item)
    return found


def _uniq_cost(values: Any) -> int:
    """Return the steps of `uniq`: each tree may be compared with every other one."""
    if kind_of(values) != "slice":
        return 1
    trees = [item for item in values if _is_tree(item)]
    return len(values) + measure(trees) * len(trees)


def has(needle: Any, values: Any) -> bool:
    """Whether the list contains the value."""
    return values is not None and any(deep_equal(item, needle) for item in _items(values, "find has"))


def without(values: Any, *unwanted: Any) -> list[Any]:
    """Remove these values from the list."""
    items = _items(values, "find without")
    return [item for item in items if not any(deep_equal(item, bad) for bad in unwanted)]


def _comparison_cost(values: Any, *wanted: Any) -> int:
    """Return the steps of comparing each element with each of these values; a comparison ends where either value does."""
    if kind_of(values) != "slice":
        return 1
    if any(map(_is_tree, wanted)):
        return measure(list(values)) * len(wanted) + measure(list(wanted))
    return len(values) * len(wanted)


def sort_alpha(values: Any) -> TypedList:
    """Sort the elements as text."""
    texts = texts_of(values) if kind_of(values) == "slice" else [text_of(values)]
    return TypedList(sorted(texts), go_type="[]string")


def part(values: Any, *bounds: Any) -> Any:
    """Return the elements from the first bound up to the second."""
    if kind_of(values) != "slice":
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
    """Split the list into lists of this size."""
    if kind_of(values) != "slice":
        raise FunctionError(f"Cannot chunk type {_kind_word(values)}")
    if size <= 0:
        raise FunctionError("chunk needs a size of 1 or more")
    items = list(values)
    parts = [items[at : at + size] for at in range(0, len(items), size)]
    return TypedList(parts, go_type="[][]interface {}")


_WITH_MUST: Final[dict[str, Callable[..., Any] | Function]] = {
    "Append": lambda values, item: [*_items(values, "push"), item],
    "Chunk": chunk,
    "Compact": Function.of(lambda values: [item for item in _items(values, "compact") if item], cost=size_of),
    "First": lambda values: next(iter(_items(values, "find first")), None),
    "Has": Function.of(has, cost=lambda needle, values: _comparison_cost(values, needle)),
    "Initial": lambda values: list(_items(values, "find initial"))[:-1],
    "Last": lambda values: next(iter(_items(values, "find last")[-1:]), None),
    "Prepend": lambda values, item: [item, *_items(values, "prepend")],
    "Push": lambda values, item: [*_items(values, "push"), item],
    "Rest": lambda values: list(_items(values, "find rest"))[1:],
    "Reverse": lambda values: list(_items(values, "find reverse"))[::-1],
    "Slice": part,
    "Uniq": Function.of(uniq, cost=_uniq_cost),
    "Without": Function.of(without, cost=_comparison_cost),
}
"""Functions that sprig also has with the prefix must; both fail with the same message."""

FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    **{name[0].lower() + name[1:]: call for name, call in _WITH_MUST.items()},
    **{f"must{name}": call for name, call in _WITH_MUST.items()},
    "concat": concat,
    "list": lambda *values: list(values),
    "sortAlpha": Function.of(sort_alpha, cost=measure_all),
    "tuple": lambda *values: list(values),
}
