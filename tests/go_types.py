"""Write the data files of template data's types from what tests/conformance/go_types.go tells of Go's types.

    go run go_types.go | .venv/bin/python tests/go_types.py

go_types.go is built where istio.io/api and k8s.io/api are, such as in a checkout of Istio.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "netinit" / "data"
OF_EARLIER_RELEASES = {
    "ProxyConfig": {
        "drainDuration": ["parentShutdownDuration", "parent_shutdown_duration", "Duration"],
        "zipkinAddress": ["connectTimeout", "connect_timeout", "Duration"],
    }
}
"""Fields that istio.io/api had, by message and the field before it."""
_NUMBERS = ("int32", "uint32")


def lines(tree: dict[str, object]) -> str:
    """Write a mapping of mappings or lists as JSON, with one line for each of their entries."""
    parts = []
    for name, part in tree.items():
        if isinstance(part, dict):
            inner = ",\n".join(f"{json.dumps(key)}: {json.dumps(part[key])}" for key in sorted(part))
            parts.append(f"{json.dumps(name)}: {{\n{inner}\n}}")
        elif isinstance(part, list):
            parts.append(f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, part)) + "\n]")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(part)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def trimmed(field: list[object]) -> list[object]:
    """Drop empty values at the end of a field."""
    while not field[-1]:
        field = field[:-1]
    return field


def kubernetes(told: dict[str, dict[str, list[list[object]]]]) -> dict[str, object]:
    """Return the file of Kubernetes' types."""
    structs = {name: [trimmed(field) for field in fields] for name, fields in told["structs"].items()}
    return {
        "about": "Go's types of a Kubernetes pod (k8s.io/api 0.37). names: what a named type is made of. structs: for each field its name in "
        "JSON and in Go, its type, a mark and its number in protobuf. Marks: ! never left out of JSON, ~ left out where zero although a "
        "struct, + its fields are the struct's, in JSON too, @ its fields are the struct's, but not in JSON. have: which of the groups of "
        "methods a type has. methods: pointer: only of a pointer; takes and gives: types, T is the type itself.",
        "names": told["names"], "structs": structs, "have": told["have"], "methods": told["methods"],
    }  # fmt: skip


def mesh(told: dict[str, dict[str, list[list[str]]]]) -> dict[str, object]:
    """Return the file of the mesh configuration's messages."""
    messages = {}
    for name, fields in told["messages"].items():
        messages[name] = found = []
        for json_name, proto_name, kind, oneof in fields:
            is_port = kind in _NUMBERS and (json_name == "port" or json_name.endswith("Port"))
            found.append(trimmed([json_name, proto_name, kind, oneof, "port" if is_port else ""]))
            if earlier := OF_EARLIER_RELEASES.get(name, {}).get(json_name):
                found.append(earlier)
    return {
        "about": "The messages of Istio's mesh configuration (istio.io/api mesh/v1alpha1 1.31, and fields of earlier releases). messages: for "
        "each field its name in JSON and in the .proto file, its type, its oneof and its format. Types: scalars of protobuf, Duration, "
        "Struct, wrappers such as BoolValue, enum:NAME, another message; [] before a type for lists, map[string] for maps. A name without a "
        "package is of mesh/v1alpha1. Getters are not listed: each field has one. have, methods: as in kubernetes-types.json.",
        "messages": messages, "enums": told["enums"], "have": told["have"], "methods": told["methods"],
    }  # fmt: skip


def main() -> None:
    """Read the types from standard input and write both files."""
    told = json.load(sys.stdin)
    (DATA / "kubernetes-types.json").write_text(lines(kubernetes(told["kubernetes"])))
    (DATA / "mesh-messages.json").write_text(lines(mesh(told["mesh"])))


if __name__ == "__main__":
    main()
