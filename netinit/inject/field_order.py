"""JSON as Go writes Kubernetes' types: the fields of structs in the order in which the types declare them.

Annotations and environment variables that injectors write hold such JSON, and tools compare it as text.
"""

from __future__ import annotations

from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.tree import Tree, mapping
from netinit.golang import gojson
from netinit.golang.template import FunctionError
from netinit.inject.kubernetes_types import json_of

__all__ = ["encode", "ordered_container", "ordered_handler"]


def encode(value: Any) -> str:
    """The value as Go's JSON, its keys in the order that they have. Raises InjectionError for what JSON cannot hold."""
    try:
        return gojson.encode(value)
    except FunctionError as problem:
        raise InjectionError(f"the pod holds a value that JSON cannot: {problem}; write another one") from None


def ordered_container(container: Tree) -> Tree:
    """A container in the order of its Go struct; `resources`, which Go never omits, is always there."""
    return mapping(json_of("v1.Container", container))


def ordered_handler(handler: Tree) -> Tree:
    """A probe's action (httpGet, tcpSocket or grpc) in the order of its Go struct, empty fields left out."""
    return mapping(json_of("v1.ProbeHandler", handler))
