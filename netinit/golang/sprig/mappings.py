"""Sprig's functions on maps. They modify only maps that the template made: its data may be shared by threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.sprig.text import text_of
from netinit.golang.template.limits import measure, measure_all
from netinit.golang.template.values import Function, FunctionError, OwnMap, TypedList, TypedMap, kind_of, type_name

_MAP: Final = "map[string]interface {}"


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


def values_of(mapping: dict[str, Any] | None) -> list[Any]:
    """Return the values in the order of their keys; sprig's have no order."""
    return [item for _, item in sorted((mapping or {}).items(), key=lambda entry: entry[0])]


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
        return TypedMap({key: _copy(item) for key, item in value.items()}, go_type=value.go_type, zero=value.zero)
    if isinstance(value, dict):
        return OwnMap((key, _copy(item)) for key, item in value.items())
    if isinstance(value, TypedList):
        return TypedList(map(_copy, value), go_type=value.go_type)
    if kind_of(value) == "slice" and not isinstance(value, bytes):
        return [_copy(item) for item in value]
    return value


_ONCE: Final[dict[str, Callable[..., Any] | Function]] = {
    "dict": make_dict,
    "dig": dig,
    "get": Function(lambda mapping, key: (mapping or {}).get(key, ""), _MAP, "string"),
    "hasKey": Function(lambda mapping, key: key in (mapping or {}), _MAP, "string"),
    "keys": Function.of(keys, cost=_keys_cost),
    "omit": omit,
    "pick": pick,
    "pluck": Function(lambda key, *maps: [one[key] for one in maps if one and key in one], "string", variadic=_MAP),
    "set": Function.of(
        set_key, cost=lambda _mapping, _key, value: measure(value) >> 2
    ),  # looks for the map in the value
    "unset": unset,
    "values": Function.of(values_of, cost=_keys_cost),
}
_WITH_MUST: Final = {
    "DeepCopy": Function.of(deep_copy, cost=measure_all),
    "Merge": _merge("merge", overwrite=False),
    "MergeOverwrite": _merge("mergeOverwrite", overwrite=True),
}
"""Functions that sprig also has with the prefix must; both fail with the same message."""

FUNCTIONS: Final = {
    **_ONCE,
    **{name[0].lower() + name[1:]: call for name, call in _WITH_MUST.items()},
    **{f"must{name}": call for name, call in _WITH_MUST.items()},
}
