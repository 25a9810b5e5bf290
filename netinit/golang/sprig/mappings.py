"""Sprig's functions on maps. Only a map that the template itself made can be changed: its data may be shared by threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.sprig.text import text_of
from netinit.golang.template.limits import measure, measure_all
from netinit.golang.template.values import (
    MAP,
    SLICE,
    Function,
    FunctionError,
    OwnMap,
    TypedList,
    TypedMap,
    kind_of,
    type_name,
    typed,
)

_ANY: Final = "interface {}"
_TEXT: Final = "string"
_MAP: Final = "map[string]interface {}"


def make_dict(*pairs: Any) -> OwnMap:
    """A map of the keys and values that follow each other; a key without a value has ""."""
    values = [*pairs[1::2], *([""] if len(pairs) % 2 else [])]
    return OwnMap((text_of(key), value) for key, value in zip(pairs[::2], values, strict=True))


def get(mapping: dict[str, Any] | None, key: str) -> Any:
    """The value of the key, or ""."""
    return (mapping or {}).get(key, "")


def has_key(mapping: dict[str, Any] | None, key: str) -> bool:
    """Whether the key is there."""
    return key in (mapping or {})


def set_key(mapping: dict[str, Any] | None, key: str, value: Any) -> Any:
    """The map itself, with the value under the key. Raises FunctionError where the map is not the template's own."""
    own = _own(mapping, "set")
    _put(own, key, value)
    return own


def unset(mapping: dict[str, Any] | None, key: str) -> Any:
    """The map itself, without the key. Raises FunctionError where the map is not the template's own."""
    own = _own(mapping, "unset")
    own.pop(key, None)
    return own


def _own(mapping: dict[str, Any] | None, name: str) -> OwnMap:
    if not isinstance(mapping, OwnMap):
        raise FunctionError(f"{name} would change the template's data; change a copy of it, made by deepCopy")
    return mapping


def _put(mapping: OwnMap, key: str, value: Any) -> None:
    if _holds(value, mapping):
        raise FunctionError("a map cannot hold itself")
    mapping[key] = value


def _holds(tree: Any, wanted: dict[str, Any]) -> bool:
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


def set_cost(_mapping: Any, _key: str, value: Any) -> int:
    """The steps of set, which looks for the map in the value."""
    return measure(value) >> 2


def pluck(key: str, *mappings: dict[str, Any] | None) -> list[Any]:
    """The key's values in the maps that have it."""
    return [mapping[key] for mapping in mappings if mapping and key in mapping]


def keys(*mappings: dict[str, Any] | None) -> TypedList:
    """The keys of the maps, sorted (sprig gives them in no order)."""
    return TypedList([key for mapping in mappings for key in sorted(mapping or {})], go_type="[]string")


def keys_cost(*mappings: dict[str, Any] | None) -> int:
    """The steps of sorting the keys."""
    return sum(len(mapping or {}) for mapping in mappings)


def values_of(mapping: dict[str, Any] | None) -> list[Any]:
    """The values in the order of their keys (sprig gives them in no order)."""
    return [item for _, item in sorted((mapping or {}).items(), key=lambda entry: entry[0])]


def pick(mapping: dict[str, Any] | None, *names: str) -> OwnMap:
    """A map of these keys alone."""
    return OwnMap((name, mapping[name]) for name in names if mapping and name in mapping)


def omit(mapping: dict[str, Any] | None, *names: str) -> OwnMap:
    """A map without these keys."""
    unwanted = set(names)
    return OwnMap((name, value) for name, value in (mapping or {}).items() if name not in unwanted)


def dig(*path: Any) -> Any:
    """The value at the path of keys in the map, which comes last; the default, which comes before it, if missing."""
    if len(path) < 3:  # noqa: PLR2004 - key, default and map
        raise FunctionError("dig needs at least three arguments")
    *names, fallback, found = path
    _converted(found, _MAP)
    for name in names:
        _converted(name, _TEXT)
    for name in names:
        if name not in _converted(found, _MAP):
            return fallback
        found = found[name]
    return found


def _converted(value: Any, go_type: str) -> Any:
    """The value, which must have the type, as an assertion of Go's."""
    actual = "nil" if value is None else type_name(value)
    if actual != go_type:
        raise FunctionError(f"interface conversion: interface {{}} is {actual}, not {go_type}")
    return value


def merge(target: dict[str, Any] | None, *sources: dict[str, Any] | None) -> Any:
    """The first map itself, with what the others have and it lacks; maps inside are merged."""
    return _merged("merge", target, sources, overwrite=False)


def merge_overwrite(target: dict[str, Any] | None, *sources: dict[str, Any] | None) -> Any:
    """The first map itself, with all that the others have; maps inside are merged."""
    return _merged("mergeOverwrite", target, sources, overwrite=True)


def _merged(
    name: str, target: dict[str, Any] | None, sources: tuple[dict[str, Any] | None, ...], *, overwrite: bool
) -> Any:
    own = _own(target, name)
    for source in sources:
        _merge_into(own, source or {}, overwrite=overwrite)
    return own


def _merge_into(target: OwnMap, source: dict[str, Any], *, overwrite: bool) -> None:
    for key, value in list(source.items()):
        present = target.get(key)
        if value is None:
            if overwrite:
                target[key] = None
        elif kind_of(value) == MAP and kind_of(present) == MAP and present:
            if isinstance(present, TypedMap):
                raise FunctionError(f"a {type_name(present)} cannot be merged with other maps")
            if not isinstance(present, OwnMap):
                target[key] = present = OwnMap(present)
            _merge_into(present, value, overwrite=overwrite)
        elif overwrite or not present:
            _put(target, key, value)


def deep_copy(value: Any) -> Any:
    """The value with copies of all maps and lists in it."""
    if isinstance(value, TypedMap):
        return TypedMap({key: deep_copy(item) for key, item in value.items()}, go_type=value.go_type, zero=value.zero)
    if isinstance(value, dict):
        return OwnMap((key, deep_copy(item)) for key, item in value.items())
    if isinstance(value, TypedList):
        return TypedList(map(deep_copy, value), go_type=value.go_type)
    if kind_of(value) == SLICE and not isinstance(value, bytes):
        return [deep_copy(item) for item in value]
    return value


def deep_copy_present(value: Any) -> Any:
    """The value with copies of all maps and lists in it. Raises FunctionError for nil."""
    if value is None:
        raise FunctionError("reflect: call of reflect.Value.Type on zero Value")
    return deep_copy(value)


_MERGE: Final = typed(merge, _MAP, variadic=_MAP, cost=measure_all)
_OVERWRITE: Final = typed(merge_overwrite, _MAP, variadic=_MAP, cost=measure_all)
_COPY: Final = typed(deep_copy_present, _ANY, cost=measure_all)

FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "deepCopy": _COPY,
    "dict": make_dict,
    "dig": dig,
    "get": typed(get, _MAP, _TEXT),
    "hasKey": typed(has_key, _MAP, _TEXT),
    "keys": typed(keys, variadic=_MAP, cost=keys_cost),
    "merge": _MERGE,
    "mergeOverwrite": _OVERWRITE,
    "mustDeepCopy": _COPY,
    "mustMerge": _MERGE,
    "mustMergeOverwrite": _OVERWRITE,
    "omit": typed(omit, _MAP, variadic=_TEXT),
    "pick": typed(pick, _MAP, variadic=_TEXT),
    "pluck": typed(pluck, _TEXT, variadic=_MAP),
    "set": typed(set_key, _MAP, _TEXT, _ANY, cost=set_cost),
    "unset": typed(unset, _MAP, _TEXT),
    "values": typed(values_of, _MAP, cost=keys_cost),
}
