"""Which methods of the Go types of template data templates have, and which not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netinit.inject.adding import kubernetes_types, mesh_messages
from netinit.inject.adding.schema import Missing, read_types


def one_of_each_type() -> Iterator[Any]:
    """Yield a value of each type that has methods."""
    for name in read_types("kubernetes-types.json")["have"]:
        if name in kubernetes_types._structs() or (name in kubernetes_types._SPECIAL and name != "time.Time") or name == "v1.ResourceList":
            yield kubernetes_types._value(name, {})
    messages = read_types("mesh-messages.json")
    for kind in (*messages["messages"], *(f"enum:{name}" for name in messages["enums"]), "Duration", "BoolValue", "UInt64Value", "Struct"):
        yield mesh_messages._value(kind, {} if kind in messages["messages"] else None)


def missing_methods() -> list[str]:
    """Return the names of the methods that return something to a template in Go, and fail here; with its type what others have."""
    missing: dict[str, set[str]] = {}
    present = set()
    for value in one_of_each_type():
        for name, method in value.go_methods.items():
            if not isinstance(method.call, Missing):
                present.add(name)
            elif len(method.results) == 1 or method.results[1:] == ("error",):
                missing.setdefault(name, set()).add(value.go_type.lstrip("*"))
    found = (f"{go_type}.{name}" if name in present else name for name, types in missing.items() for go_type in types)
    return sorted(set(found))
