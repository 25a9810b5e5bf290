"""Check rendered fields against the types of the Kubernetes API, so that an error is reported here instead of by the server.

Fields that the table of types does not have, quantities and times are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netinit.base.tree import shown
from netinit.inject.kubernetes_types import is_struct, json_types

_POD: Mapping[str, str] = {"metadata": "v1.ObjectMeta", "spec": "v1.PodSpec"}
_MAP = "map[string]"
_RANGES = {"int32": 2**31, "int64": 2**63, "intstr.IntOrString": 2**31}
_SCALARS = frozenset(("string", "bool", *_RANGES))


def misfits(tree: Any) -> Iterator[str]:
    """Yield a sentence for each value of a partial pod with the wrong type; null is always valid."""
    for field, go_type in _POD.items():
        yield from _misfits(tree.get(field), go_type, field)


def _misfits(tree: Any, go_type: str, path: str) -> Iterator[str]:
    if tree is None:
        return
    if go_type.startswith("[]"):
        if not isinstance(tree, list):
            yield f"{path} is {shown(tree)} and must be a list"
            return
        of_items = go_type[2:]
        for position, item in enumerate(tree):
            if of_items not in _SCALARS or _expected(item, of_items):  # most are valid; do not compute their paths
                yield from _misfits(item, of_items, f"{path}[{position}]")
    elif go_type in _SCALARS:
        if wanted := _expected(tree, go_type):
            yield f"{path} is {shown(tree)} and must be {wanted}"
    elif go_type.startswith(_MAP) or is_struct(go_type):
        if not isinstance(tree, dict):
            yield f"{path} is {shown(tree)} and must be a mapping"
            return
        known = dict.fromkeys(tree, go_type[len(_MAP) :]) if go_type.startswith(_MAP) else json_types(go_type)
        for key, item in tree.items():
            if key in known and ((field := known[key]) not in _SCALARS or _expected(item, field)):
                yield from _misfits(item, field, f"{path}.{key}")


def _expected(value: Any, go_type: str) -> str:
    """Return what a value of this scalar type must be, if this one is not; otherwise empty."""
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
