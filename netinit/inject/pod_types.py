"""Check rendered fields against the types of the Kubernetes API, before the API server does.

Unknown fields, quantities and times are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from netinit.base.tree import shown
from netinit.inject.kubernetes_types import is_struct, json_types

_POD: Mapping[str, str] = {"metadata": "v1.ObjectMeta", "spec": "v1.PodSpec"}
_MAP = "map[string]"
_RANGES = {"int32": 2**31, "int64": 2**63, "intstr.IntOrString": 2**31}
_SCALARS = frozenset(("string", "bool", *_RANGES))
_Path: TypeAlias = "tuple[()] | tuple[_Path, str | int]"
"""The key or position of a value, after the path of its holder: most values are valid and need no text of it."""


def misfits(tree: Any) -> list[str]:
    """Return a sentence for each value of a partial pod with the wrong type; null is always valid."""
    found: list[str] = []
    for field, go_type in _POD.items():
        _check(tree.get(field), go_type, ((), field), found)
    return found


def _check(tree: Any, go_type: str, path: _Path, found: list[str]) -> None:
    if tree is None or (go_type == "string" and tree.__class__ is str):  # what most values are
        return
    if go_type.startswith("[]"):
        if not isinstance(tree, list):
            found.append(f"{_format(path)} is {shown(tree)} and must be a list")
            return
        for position, item in enumerate(tree):
            _check(item, go_type[2:], (path, position), found)
    elif go_type in _SCALARS:
        if wanted := _expected(tree, go_type):
            found.append(f"{_format(path)} is {shown(tree)} and must be {wanted}")
    elif go_type.startswith(_MAP) or is_struct(go_type):
        if not isinstance(tree, dict):
            found.append(f"{_format(path)} is {shown(tree)} and must be a mapping")
            return
        known = dict.fromkeys(tree, go_type[len(_MAP) :]) if go_type.startswith(_MAP) else json_types(go_type)
        for key, item in tree.items():
            if key in known and not (item.__class__ is str and known[key] == "string"):
                _check(item, known[key], (path, key), found)


def _format(path: _Path) -> str:
    """Return the path of a value: its keys and positions."""
    if not path:
        return ""
    before, last = _format(path[0]), path[1]
    return f"{before}[{last}]" if isinstance(last, int) else f"{before}.{last}" if before else str(last)


def _expected(value: Any, go_type: str) -> str:
    """Return what a value of this scalar type must be, if this one is not; else ""."""
    if go_type == "string":
        return "" if isinstance(value, str) else "a text: put it in quotes"
    if go_type == "bool":
        return "" if isinstance(value, bool) else "true or false"
    if go_type == "intstr.IntOrString" and isinstance(value, str):
        return ""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    limit = _RANGES[go_type]
    if isinstance(number, int) and not isinstance(number, bool) and -limit <= number < limit:
        return ""
    return f"a whole number from {-limit} to {limit - 1}"
