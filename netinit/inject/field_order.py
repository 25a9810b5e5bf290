"""JSON with fields in the order of Kubernetes' Go structs: tools compare annotations and variables as text."""

from __future__ import annotations

from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.tree import Tree, mapping
from netinit.golang import gojson
from netinit.golang.template import FunctionError
from netinit.inject.kubernetes_types import json_of


def encode(value: Any) -> str:
    """Encode the value as Go's JSON, keys in their order. Raises InjectionError if JSON cannot represent it."""
    try:
        return gojson.encode(value)
    except FunctionError as problem:
        raise InjectionError(f"the pod holds a value that JSON cannot: {problem}; write another one") from None


def ordered_container(container: Tree) -> Tree:
    """Sort a container's fields like its Go struct, with `resources`, which Go never omits."""
    return mapping(json_of("v1.Container", container))


def ordered_handler(handler: Tree) -> Tree:
    """Sort the fields of a probe's action like its Go struct, without empty ones."""
    return mapping(json_of("v1.ProbeHandler", handler))
