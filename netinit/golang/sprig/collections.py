"""Sprig's functions on lists, on maps, and on any value: types and kinds, Go's deep equality, defaults, and fail.

They modify only maps that the template made: its data may be shared by threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.sprig.numbers import to_int64
from netinit.golang.sprig.text import text_of, texts_of
from netinit.golang.template.limits import check_size, measure, measure_all
from netinit.golang.template.values import (
    ANY,
    NO_VALUE,
    Function,
    FunctionError,
    OwnMap,
    Pointer,
    Struct,
    TypedList,
    TypedMap,
    kind_of,
    type_name,
)

_MAP: Final = "map[string]interface {}"


def deep_equal(left: Any, right: Any) -> bool:
    """Whether both values have the same type and equal content (reflect.DeepEqual)."""
    if type_name(left) != type_name(right):
        return False
    kind = kind_of(left)
    if kind == "map":
        return left.keys() == right.keys() and all(deep_equal(item, right[key]) for key, item in left.items())
    if kind == "slice":
        return len(left) == len(right) and all(map(deep_equal, left, right))
    if isinstance(left, Pointer):
        return left.nil == right.nil and deep_equal(left.target, right.target)
    if isinstance(left, Struct):
        return left is right or (left.nil == right.nil and deep_equal(dict(left.fields), dict(right.fields)))
    return bool(left == right)


def go_kind(value: Any) -> str:
    """Return the Go kind of the value, as reflect.Kind prints it."""
    if value is None or value is NO_VALUE:
        return "invalid"
    kind = kind_of(value)
    named = {"map": "map", "slice": "slice", "struct": "struct", "pointer": "ptr", "func": "func", "string": "string"}
    return named.get(kind) or getattr(value, "basic", None) or type_name(value)


def _type_of(value: Any) -> str:
    return "<nil>" if value is None else type_name(value)


def fail(message: str) -> Any:
    """Raise FunctionError with the message, which stops the template."""
    raise FunctionError(message)


def _items(values: Any, name: str, problem: str = "Cannot {} on type {}") -> Any:
    """Return the list. Raises FunctionError with the problem, of which the function's name and the type are part."""
    kind = kind_of(values)
    if kind != "slice":
        raise FunctionError(problem.format(name, kind if kind in ("map", "string") else type_name(values)))
    return values


def _is_tree(item: Any) -> bool:
    return isinstance(item, list | tuple | dict | Struct)


def concat(*lists: Any) -> list[Any]:
    """Join the lists."""
    check_size(sum(len(values) for values in lists if kind_of(values) == "slice"))
    return [item for values in lists for item in _items(values, "concat", "Cannot {} type {} as list")]


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


def part(values: Any, *bounds: Any) -> Any:
    """Return the elements from the first bound up to the second."""
    if not _items(values, "list", "{} should be type of slice or array but {}"):
        return None
    start = int(to_int64(bounds[0])) if bounds else 0
    end = int(to_int64(bounds[1])) if len(bounds) > 1 else len(values)
    if not 0 <= start <= end <= len(values):
        raise FunctionError("reflect.Value.Slice: slice index out of bounds")
    found = values[start:end]
    return TypedList(found, go_type=values.go_type) if isinstance(values, TypedList) else found


def chunk(size: int, values: Any) -> TypedList:
    """Split the list into lists of this size."""
    items = list(_items(values, "chunk", "Cannot {} type {}"))
    if size <= 0:
        raise FunctionError("chunk needs a size of 1 or more")
    parts = [items[at : at + size] for at in range(0, len(items), size)]
    return TypedList(parts, go_type="[][]interface {}")


def make_dict(*pairs: Any) -> OwnMap:
    """Make a map of alternating keys and values; the value of the last key may be missing and is then ""."""
    values = [*pairs[1::2], *([""] if len(pairs) % 2 else [])]
    return OwnMap((text_of(key), value) for key, value in zip(pairs[::2], values, strict=True))


def set_key(mapping: dict[str, Any] | None, key: str, value: Any) -> Any:
    """Set a key and return the map. Raises FunctionError if the template did not make it."""
    own = _own(mapping, "set")
    _put(own, key, value)
    return own


def unset(mapping: dict[str, Any] | None, key: str) -> Any:
    """Remove a key and return the map. Raises FunctionError if the template did not make it."""
    own = _own(mapping, "unset")
    own.pop(key, None)
    return own


def _own(mapping: dict[str, Any] | None, name: str) -> OwnMap:
    if not isinstance(mapping, OwnMap):
        raise FunctionError(f"{name} would change the template's data; change a copy of it, made by deepCopy")
    return mapping


def _put(mapping: OwnMap, key: str, value: Any) -> None:
    if _contains(value, mapping):
        raise FunctionError("a map cannot hold itself")
    mapping[key] = value


def _contains(tree: Any, wanted: dict[str, Any]) -> bool:
    todo = [tree]
    while todo:
        item = todo.pop()
        if item is wanted:
            return True
        if isinstance(item, dict):
            todo += item.values()
        elif isinstance(item, list | tuple):
            todo += item
    return False


def _keys_cost(*mappings: dict[str, Any] | None) -> int:
    return sum(len(mapping or {}) for mapping in mappings)


def keys(*mappings: dict[str, Any] | None) -> TypedList:
    """Return the keys, sorted within each map; sprig's have no order."""
    return TypedList([key for mapping in mappings for key in sorted(mapping or {})], go_type="[]string")


def pick(mapping: dict[str, Any] | None, *names: str) -> OwnMap:
    """Copy only these keys."""
    return OwnMap((name, mapping[name]) for name in names if mapping and name in mapping)


def omit(mapping: dict[str, Any] | None, *names: str) -> OwnMap:
    """Copy all but these keys."""
    unwanted = set(names)
    return OwnMap((name, value) for name, value in (mapping or {}).items() if name not in unwanted)


def dig(*path: Any) -> Any:
    """Follow a path of keys. Arguments: the keys, the default for a missing key, the map."""
    if len(path) < 3:  # noqa: PLR2004 - key, default and map
        raise FunctionError("dig needs at least three arguments")
    *names, fallback, found = path
    _assert_type(found, _MAP)
    for name in names:
        _assert_type(name, "string")
    for name in names:
        if name not in _assert_type(found, _MAP):
            return fallback
        found = found[name]
    return found


def _assert_type(value: Any, go_type: str) -> Any:
    actual = "nil" if value is None else type_name(value)
    if actual != go_type:
        raise FunctionError(f"interface conversion: interface {{}} is {actual}, not {go_type}")
    return value


def _merge(name: str, *, overwrite: bool) -> Function:
    """Return sprig's `merge` or `mergeOverwrite`, which merge nested maps into the first map and return it."""

    def merge(target: dict[str, Any] | None, *sources: dict[str, Any] | None) -> Any:
        own = _own(target, name)
        for source in sources:
            _merge_into(own, source or {}, overwrite=overwrite)
        return own

    return Function.of(merge, cost=measure_all)


def _merge_into(target: OwnMap, source: dict[str, Any], *, overwrite: bool) -> None:
    for key, value in list(source.items()):
        present = target.get(key)
        if value is None:
            if overwrite:
                target[key] = None
        elif kind_of(value) == "map" and kind_of(present) == "map" and present:
            if isinstance(present, TypedMap):
                raise FunctionError(f"a {type_name(present)} cannot be merged with other maps")
            if not isinstance(present, OwnMap):
                target[key] = present = OwnMap(present)
            _merge_into(present, value, overwrite=overwrite)
        elif overwrite or not present:
            _put(target, key, value)


def deep_copy(value: Any) -> Any:
    """Copy the value with all maps and lists in it. Raises FunctionError for nil."""
    if value is None:
        raise FunctionError("reflect: call of reflect.Value.Type on zero Value")
    return _copy(value)


def _copy(value: Any) -> Any:
    if isinstance(value, TypedMap):
        copied = {key: _copy(item) for key, item in value.items()}
        return TypedMap(copied, go_type=value.go_type, zero=value.zero, key_type=value.key_type)
    if isinstance(value, dict):
        return OwnMap((key, _copy(item)) for key, item in value.items())
    if isinstance(value, TypedList):
        return TypedList(map(_copy, value), go_type=value.go_type)
    if kind_of(value) == "slice" and not isinstance(value, bytes):
        return [_copy(item) for item in value]
    return value


_WITH_MUST: Final[dict[str, Callable[..., Any] | Function]] = {
    "Append": lambda values, item: [*_items(values, "push"), item],
    "Chunk": chunk,
    "Compact": Function.of(
        lambda values: [item for item in _items(values, "compact") if item],
        cost=lambda values: len(values) >> 4 if kind_of(values) == "slice" else 1,
    ),
    "DeepCopy": Function.of(deep_copy, cost=measure_all),
    "First": lambda values: next(iter(_items(values, "find first")), None),
    "Has": Function.of(has, cost=lambda needle, values: _comparison_cost(values, needle)),
    "Initial": lambda values: list(_items(values, "find initial"))[:-1],
    "Last": lambda values: next(iter(_items(values, "find last")[-1:]), None),
    "Merge": _merge("merge", overwrite=False),
    "MergeOverwrite": _merge("mergeOverwrite", overwrite=True),
    "Prepend": lambda values, item: [item, *_items(values, "prepend")],
    "Push": lambda values, item: [*_items(values, "push"), item],
    "Rest": lambda values: list(_items(values, "find rest"))[1:],
    "Reverse": lambda values: list(_items(values, "find reverse"))[::-1],
    "Slice": part,
    "Uniq": Function.of(uniq, cost=_uniq_cost),
    "Without": Function.of(without, cost=_comparison_cost),
}
"""Functions that sprig also has with the prefix must; both fail with the same message."""

# "Empty" means nil, false, 0, "", or a map or list without elements: Python's falsehood.
FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    **{name[0].lower() + name[1:]: call for name, call in _WITH_MUST.items()},
    **{f"must{name}": call for name, call in _WITH_MUST.items()},
    "all": lambda *values: all(values),
    "any": lambda *values: any(values),
    "coalesce": lambda *values: next(filter(None, values), None),
    "concat": concat,
    "deepEqual": Function.of(deep_equal, cost=measure_all),
    "default": lambda fallback, *given: given[0] if given and given[0] else fallback,
    "dict": make_dict,
    "dig": dig,
    "empty": lambda value: not value,
    "fail": fail,
    "get": Function(lambda mapping, key: (mapping or {}).get(key, ""), _MAP, "string"),
    "hasKey": Function(lambda mapping, key: key in (mapping or {}), _MAP, "string"),
    "keys": Function.of(keys, cost=_keys_cost),
    "kindIs": Function(lambda kind, value: go_kind(value) == kind, "string", ANY),
    "kindOf": go_kind,
    "list": lambda *values: list(values),
    "omit": omit,
    "pick": pick,
    "pluck": Function(lambda key, *maps: [one[key] for one in maps if one and key in one], "string", variadic=_MAP),
    "set": Function.of(set_key, cost=lambda _mapping, _key, value: measure(value) >> 2),  # looks for the map in the value
    "sortAlpha": Function.of(
        lambda values: TypedList(sorted([text_of(None)] if values is None else texts_of(values)), go_type="[]string"),
        cost=measure_all,
    ),
    "ternary": Function(lambda yes, no, test: yes if test else no, ANY, ANY, "bool"),
    "tuple": lambda *values: list(values),
    "typeIs": Function(lambda name, value: _type_of(value) == name, "string", ANY),
    "typeIsLike": Function(lambda name, value: _type_of(value) in (name, f"*{name}"), "string", ANY),
    "typeOf": _type_of,
    "unset": unset,
    "values": Function(lambda mapping: [mapping[key] for key in sorted(mapping or {})], _MAP, cost=_keys_cost),  # as `keys`
}
