"""Create and apply JSON patches (RFC 6902).

Invariant: apply_patch(before, json_patch(before, after)) == after. Operations are in the order of Istio's injector:
removals, init containers, containers, volumes, pull secrets, the rest, annotations and labels.
"""

from __future__ import annotations

import re
from typing import Any

from netinit.base.errors import ParseError
from netinit.base.tree import Tree, clone, same, shown

_FIRST = ("spec", "initContainers", "containers", "volumes", "imagePullSecrets")
_LAST = ("metadata", "labels", "annotations")
_RANKS = {key: (place, "") for places, keys in ((0, _FIRST), (100, _LAST)) for place, key in enumerate(keys, places)}


def json_patch(before: Tree, after: Tree) -> list[Tree]:
    """Return the operations (op, path, value) that turn `before` into `after`; empty if they are equal.

    Parts that both share are not compared, as an injected pod shares them with its original. Values are those of `after`.
    """
    operations: list[Tree] = []
    _compare("", before, after, operations)
    return operations


def _rank(key: str) -> tuple[int, str]:
    return _RANKS.get(key) or (50, key)


def _pointer(path: str, key: str | int) -> str:
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _compare(path: str, before: Any, after: Any, operations: list[Tree]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        gone = sorted(before.keys() - after.keys(), key=_rank)
        operations.extend({"op": "remove", "path": _pointer(path, key)} for key in gone)
        for key in sorted(after, key=_rank):
            if key not in before:
                operations.append({"op": "add", "path": _pointer(path, key), "value": after[key]})
            elif before[key] is not after[key]:
                _compare(_pointer(path, key), before[key], after[key], operations)
    elif isinstance(before, list) and isinstance(after, list):
        _compare_lists(path, before, after, operations)
    elif not same(before, after):
        operations.append({"op": "replace", "path": path, "value": after})


def _compare_lists(path: str, before: list[Any], after: list[Any], operations: list[Tree]) -> None:
    """Compare lists: remove from the end, then replace or add by position."""
    wanted = [_identity(item) for item in after]
    current = list(before)
    known = set(wanted)
    for position in range(len(current) - 1, -1, -1):
        if _identity(current[position]) not in known:
            operations.append({"op": "remove", "path": _pointer(path, position)})
            del current[position]
    for position, item in enumerate(after):
        if position < len(current) and _identity(current[position]) == wanted[position]:
            _compare(_pointer(path, position), current[position], item, operations)
        else:
            end = position == len(current)
            operations.append({"op": "add", "path": _pointer(path, "-" if end else position), "value": item})
            current.insert(position, item)
    surplus = range(len(current) - 1, len(after) - 1, -1)
    operations.extend({"op": "remove", "path": _pointer(path, position)} for position in surplus)


def _identity(item: Any) -> str:
    if isinstance(item, dict) and isinstance(item.get("name"), str):
        return f"name {item['name']}"
    return f"{type(item).__name__} {item!r}"


def apply_patch(document: Any, operations: list[Tree]) -> Any:
    """Return the document after `add`, `remove` and `replace` operations.

    Raises ParseError for an invalid patch, another operation, or a path that does not exist.
    """
    result = clone(document)
    for operation in _checked(operations):
        kind, path = operation["op"], operation.get("path")
        steps = _steps(path)
        if not steps:
            if kind == "remove":
                raise ParseError("JSON patch: remove of the whole document: nothing would be left")
            result = clone(operation["value"])
            continue
        *parents, last = steps
        try:
            target = result
            for step in parents:
                target = target[_index(step)] if isinstance(target, list) else target[step]
            if not isinstance(target, (dict, list)):
                raise TypeError(target)  # noqa: TRY301 - handled below like other bad paths
            _apply_one(target, last, kind, operation.get("value"))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ParseError(f"JSON patch: {kind} {shown(path)}: there is no such place") from error
    return result


_OPERATIONS = ("add", "remove", "replace")
_INDEX = r"(?:0|[1-9][0-9]{0,9})\Z"
_BAD_ESCAPE = r"~(?![01])"


def _checked(operations: Any) -> list[Tree]:
    if not isinstance(operations, list):
        raise ParseError(f"JSON patch: it must be a list of operations, not a {type(operations).__name__}")
    for operation in operations:
        if not isinstance(operation, dict):
            raise ParseError(f"JSON patch: an operation must be an object, not {shown(operation)}")
        if operation.get("op") not in _OPERATIONS:
            raise ParseError(
                f"JSON patch: the operation {shown(operation.get('op'))} is not one of {', '.join(_OPERATIONS)}"
            )
        if operation["op"] != "remove" and "value" not in operation:
            raise ParseError(f"JSON patch: {operation['op']} {shown(operation.get('path'))}: it has no value")
    return operations


def _steps(path: Any) -> list[str]:
    """Split a JSON pointer (RFC 6901) into keys; ~1 is a slash and ~0 a tilde."""
    if not isinstance(path, str) or (path and path[0] != "/") or re.search(_BAD_ESCAPE, path):
        raise ParseError(
            f"JSON patch: {shown(path)} is not a JSON pointer: steps begin with /, and ~ comes before 0 or 1 only"
        )
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _index(step: str) -> int:
    if not re.match(_INDEX, step):
        raise ValueError(step)
    return int(step)


def _apply_one(target: Any, last: str, kind: str, value: Any) -> None:
    key: Any = last if isinstance(target, dict) else len(target) if last == "-" else _index(last)
    if kind == "remove":
        del target[key]
    elif kind == "add" and isinstance(target, list):
        if key > len(target):
            raise IndexError(key)
        target.insert(key, clone(value))
    else:
        if kind == "replace" and isinstance(target, dict) and key not in target:
            raise KeyError(key)
        target[key] = clone(value)
