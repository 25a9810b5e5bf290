"""What no API server would store, which is refused before a template is rendered for it. Pure."""

from __future__ import annotations

from netinit.base.tree import Tree, mapping, sequence

__all__ = ["LARGEST", "find_excess", "is_too_dense"]

LARGEST = 6 << 20
"""Bytes of a request: two objects (new and old) of as many bytes as the API server takes."""
_LARGEST_POD = 3 << 20  # bytes of a request to the API server (its MaxRequestBodyBytes)
_MOST_CONTAINERS = 1000  # of one pod; a node runs some hundred in all
_MOST_ANNOTATION_BYTES = 256 << 10  # of one object: TotalAnnotationSizeLimitB in apimachinery's validation
_MOST_VALUES = 300_000  # etcd stores 1.5 MiB, in which a pod has half as many
_LISTS = ("containers", "initContainers", "ephemeralContainers")


def is_too_dense(body: bytes | bytearray) -> bool:
    """Whether a body may hold more values than a pod can have, which would take memory as they are parsed."""
    return body.count(b",") + body.count(b"{") + body.count(b"[") > _MOST_VALUES


def find_excess(pod: Tree, size: int) -> str:
    """What is beyond the API server's limits in a pod that came in `size` bytes; empty where nothing is."""
    if size > _LARGEST_POD:
        return f"its {size} bytes are more than the {_LARGEST_POD >> 20} MiB that the API server takes"
    spec = mapping(pod.get("spec"))
    containers = sum(len(sequence(spec.get(name))) for name in _LISTS)
    if containers > _MOST_CONTAINERS:
        return f"its {containers} containers are more than {_MOST_CONTAINERS}"
    annotations = mapping(mapping(pod.get("metadata")).get("annotations"))
    size = sum(len(key) + len(value) for key, value in annotations.items() if isinstance(value, str))
    if size > _MOST_ANNOTATION_BYTES:
        return f"its annotations have {size} characters, and the API server takes {_MOST_ANNOTATION_BYTES >> 10} KiB of them"
    return ""
