"""Strategic merge patch for pods, as in Kubernetes' apimachinery.

The lists of MERGE_KEYS are merged by key, others are replaced; null deletes. The directives `$patch: replace`, `$patch:
delete`, `$retainKeys`, `$deleteFromPrimitiveList` and `$setElementOrder` are supported. A merged list has the patch's
order; an item of the original precedes a patch's item only if both were in the original in this order.
"""

from __future__ import annotations

from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.tree import Tree, mapping, shown

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}
"""Fields of a pod whose lists are merged, and the key that identifies an item."""
_MERGED_SCALARS = frozenset(("finalizers",))
_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_SCALARS = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_DIRECTIVES = (_DIRECTIVE, _RETAIN)


def merge(original: Tree, patch: Tree) -> Tree:
    """Apply the patch to the original; neither is modified, and the result may share parts with both.

    Raises InjectionError if an item of a merged list has no key, or for an unknown directive.
    """
    directives = "$" in "".join(patch)
    if directives and (directive := patch.get(_DIRECTIVE)) is not None:
        if directive not in {"replace", "delete"}:
            raise InjectionError(f"{_DIRECTIVE}: {shown(directive)} is neither replace nor delete")
        replacement: Tree = _without_directives(patch) if directive == "replace" else {}
        return replacement
    result = _apply_deletions(original, patch) if directives else dict(original)
    for key, value in patch.items():
        if directives and (key == _RETAIN or key.startswith((_DELETE_SCALARS, _ORDER))):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(key, result.get(key), value, patch.get(_ORDER + key) if directives else None)
    for key, order in patch.items() if directives else ():
        field = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and field not in patch and isinstance(result.get(field), list):
            result[field] = _merge_list(field, result[field], [], order)
    return result


def only_names(patch: Tree) -> Tree:
    """Reduce the patch to the spec's lists that are merged by name, and their items to names and directives."""
    result = {key: value for key, value in patch.items() if "$" in key or key == "spec"}
    if isinstance(spec := result.get("spec"), dict):
        result["spec"] = kept = {key: value for key, value in spec.items() if "$" in key or MERGE_KEYS.get(key) == "name"}
        for key, items in kept.items():
            if isinstance(items, list):
                kept[key] = [
                    {name: value for name, value in item.items() if name == "name" or "$" in name} if isinstance(item, dict) else item
                    for item in items
                ]
    return result


def _apply_deletions(original: Tree, patch: Tree) -> Tree:
    result = dict(original)
    for key, value in patch.items():
        if key == _RETAIN:
            result = {name: item for name, item in result.items() if name in value}
        elif key.startswith(_DELETE_SCALARS):
            field = key.removeprefix(_DELETE_SCALARS)
            if isinstance(result.get(field), list):
                result[field] = [item for item in result[field] if item not in value]
    return result


def _merged(key: str, before: Any, value: Any, order: Any) -> Any:
    if isinstance(value, dict) and (isinstance(before, dict) or _DIRECTIVE in value):
        return merge(before if isinstance(before, dict) else {}, value)
    if isinstance(value, list) and key in MERGE_KEYS:
        if isinstance(before, list):
            return _merge_list(key, before, value, order)
        _split_directives(key, value)  # only to raise its errors
    if isinstance(value, list) and key in _MERGED_SCALARS and isinstance(before, list):
        return before + [item for item in value if item not in before]
    return _without_directives(value)  # nothing to merge with: copy


def _merge_list(field: str, before: list[Any], patch: list[Any], order: Any) -> list[Any]:
    name = MERGE_KEYS[field]
    wanted, gone, replacing = _split_directives(field, patch)
    if replacing or not all(isinstance(item, dict) for item in before):
        before = []
    positions = {_identity(item, name): position for position, item in reversed(list(enumerate(before)))}
    items: dict[Any, list[Tree]] = {}
    """The merged items, each with the original's others of the same key, such as a port for TCP and UDP."""
    for item in wanted:
        identity = item[name]
        base = items[identity][0] if identity in items else before[positions[identity]] if identity in positions else None
        items[identity] = [_without_directives(item) if base is None else merge(base, item)]
    rest = []
    for place, item in enumerate(before):
        identity = _identity(item, name)
        if identity in items and place != positions[identity]:
            items[identity].append(item)
        elif identity not in items and identity not in gone:
            rest.append(item)
    if isinstance(order, list):
        return _sort_by_directive(name, rest, items, order)
    return _interleaved(name, rest, items, positions)


def _identity(item: Tree, name: str) -> Any:
    """Return the value of the item's key; None if it has no usable one."""
    value = item.get(name)
    return value if isinstance(value, (str, int, float)) else None


def _split_directives(field: str, patch: list[Any]) -> tuple[list[Tree], set[Any], bool]:
    """Return the items without directives, the keys to delete, and whether the list is replaced."""
    name = MERGE_KEYS[field]
    wanted: list[Tree] = []
    gone: set[Any] = set()
    replacing = False
    for item in patch:
        if not isinstance(item, dict):
            raise InjectionError(f"{field}: every item must be a mapping with {name}, not {shown(item)}")
        directive = item.get(_DIRECTIVE)
        if directive == "replace":
            replacing = True
            continue
        if _identity(item, name) is None:
            raise InjectionError(f"{field}: an item has no {name}, by which it is merged: {shown(item)}")
        if directive == "delete":
            gone.add(item[name])
        elif directive is None:
            wanted.append(item)
        else:
            raise InjectionError(f"{field}: {_DIRECTIVE}: {shown(directive)} is neither replace nor delete")
    return wanted, gone, replacing


def _interleaved(name: str, rest: list[Any], items: dict[Any, list[Tree]], positions: dict[Any, int]) -> list[Any]:
    """Return the items in the patch's order, preceded by those of the original where its order allows it."""
    result: list[Any] = []
    waiting = iter(rest)
    other = next(waiting, None)
    for identity, merged in items.items():
        while other is not None and identity in positions and positions[_identity(other, name)] < positions[identity]:
            result.append(other)
            other = next(waiting, None)
        result += merged
    if other is not None:
        result += [other, *waiting]
    return result


def _sort_by_directive(name: str, rest: list[Any], items: dict[Any, list[Tree]], order: list[Any]) -> list[Any]:
    wanted = [_identity(entry, name) if isinstance(entry, dict) else entry for entry in order]
    everything = {**{_identity(item, name): [item] for item in rest}, **items}
    identities = [identity for identity in wanted if identity in everything]
    identities += [identity for identity in everything if identity not in wanted]
    return [item for identity in identities for item in everything[identity]]


def _without_directives(value: Any) -> Any:
    """Copy a value without directives and nulls."""
    if isinstance(value, dict):
        return {
            key: _without_directives(item) if isinstance(item, (dict, list)) else item
            for key, item in value.items()
            if item is not None and not ("$" in key and (key in _DIRECTIVES or key.startswith((_DELETE_SCALARS, _ORDER))))
        }
    if isinstance(value, list):
        kept = [item for item in value if item != {_DIRECTIVE: "replace"} and mapping(item).get(_DIRECTIVE) != "delete"]
        return [_without_directives(item) if isinstance(item, (dict, list)) else item for item in kept]
    return value


