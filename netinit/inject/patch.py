"""JSON patch (RFC 6902): the difference of two objects as an admission webhook answers it, and its application.

Law: apply_patch(before, json_patch(before, after)) == after. The operations come in the order in which injectors have
always sent them: removals, then init containers, containers, volumes and pull secrets, then the rest, annotations and
labels last.
"""

from __future__ import annotations

from typing import Any

from netinit.base.errors import ParseError
from netinit.golang.tree import Tree, clone

__all__ = ["apply_patch", "json_patch"]

_FIRST = ("spec", "initContainers", "containers", "volumes", "imagePullSecrets")
_LAST = ("metadata", "labels", "annotations")


def json_patch(before: Tree, after: Tree) -> list[Tree]:
    """The operations (op, path, value) that turn `before` into `after`; empty when they are equal."""
    operations: list[Tree] = []
    _compare("", before, after, operations)
    return operations


def _rank(key: str) -> tuple[int, str]:
    if key in _FIRST:
        return _FIRST.index(key), ""
    return (100 + _LAST.index(key), "") if key in _LAST else (50, key)


def _pointer(path: str, key: str | int) -> str:
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _same(left: Any, right: Any) -> bool:
    """Equality of JSON values: unlike Python's, true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and bool(left == right)


def _compare(path: str, before: Any, after: Any, operations: list[Tree]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        gone = sorted(before.keys() - after.keys(), key=_rank)
        operations.extend({"op": "remove", "path": _pointer(path, key)} for key in gone)
        for key in sorted(after, key=_rank):
            if key in before:
                _compare(_pointer(path, key), before[key], after[key], operations)
            else:
                operations.append({"op": "add", "path": _pointer(path, key), "value": clone(after[key])})
    elif isinstance(before, list) and isinstance(after, list):
        _compare_lists(path, before, after, operations)
    elif not _same(before, after):
        operations.append({"op": "replace", "path": path, "value": clone(after)})


def _compare_lists(path: str, before: list[Any], after: list[Any], operations: list[Tree]) -> None:
    """Removals from the end, then each place of the new list: the same item, the same name changed, or a new item."""
    wanted = [_identity(item) for item in after]
    current = list(before)
    for position in range(len(current) - 1, -1, -1):
        if _identity(current[position]) not in wanted:
            operations.append({"op": "remove", "path": _pointer(path, position)})
            del current[position]
    for position, item in enumerate(after):
        if position < len(current) and _identity(current[position]) == wanted[position]:
            _compare(_pointer(path, position), current[position], item, operations)
        else:
            end = position == len(current)
            operations.append({"op": "add", "path": _pointer(path, "-" if end else position), "value": clone(item)})
            current.insert(position, item)
    surplus = range(len(current) - 1, len(after) - 1, -1)
    operations.extend({"op": "remove", "path": _pointer(path, position)} for position in surplus)


def _identity(item: Any) -> str:
    """What makes an item the same one after a change: its name, else its whole value."""
    if isinstance(item, dict) and isinstance(item.get("name"), str):
        return f"name {item['name']}"
    return f"{type(item).__name__} {item!r}"


def apply_patch(document: Any, operations: list[Tree]) -> Any:
    """The document after add, remove and replace operations. Raises ParseError where a path leads nowhere."""
    result = clone(document)
    for operation in operations:
        path = operation["path"]
        if path == "":
            result = clone(operation["value"])
            continue
        *parents, last = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
        try:
            target = result
            for step in parents:
                target = target[int(step)] if isinstance(target, list) else target[step]
            _apply_one(target, last, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ParseError(f"JSON patch: {operation['op']} {path}: there is no such place") from error
    return result


def _apply_one(target: Any, last: str, operation: Tree) -> None:
    kind = operation["op"]
    if isinstance(target, list):
        position = len(target) if last == "-" else int(last)
        if kind == "add":
            if position > len(target):
                raise IndexError(position)
            target.insert(position, clone(operation["value"]))
        elif kind == "remove":
            del target[position]
        else:
            target[position] = clone(operation["value"])
    elif kind == "remove":
        del target[last]
    else:
        if kind == "replace" and last not in target:
            raise KeyError(last)
        target[last] = clone(operation["value"])
