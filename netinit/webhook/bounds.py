"""Limits on pods: reject what no API server would store, before rendering a template for it. Pure."""

from __future__ import annotations

from netinit.base.tree import Tree, mapping, sequence

__all__ = ["LARGEST", "find_excess", "is_too_dense"]

LARGEST = 6 << 20
"""Maximum bytes of a review: twice the API server's request limit, since it holds the new and the old object."""
_LARGEST_POD = 3 << 20  # bytes: the API server's MaxRequestBodyBytes
_MAX_CONTAINERS = 1000  # per pod; a node runs about a hundred in total
_MAX_ANNOTATION_BYTES = 256 << 10  # per object: TotalAnnotationSizeLimitB in apimachinery's validation
_MAX_VALUES = 300_000  # twice what a pod of 1.5 MiB, etcd's limit, can hold
_LISTS = ("containers", "initContainers", "ephemeralContainers")


def is_too_dense(body: bytes | bytearray) -> bool:
    """Whether a body may hold more values than a pod can have, and would need too much memory to parse."""
    return body.count(b",") + body.count(b"{") + body.count(b"[") > _MAX_VALUES


def find_excess(pod: Tree, size: int) -> str:
    """Return which API server limit a pod of `size` bytes exceeds; empty if none."""
    if size > _LARGEST_POD:
        return f"its {size} bytes are more than the {_LARGEST_POD >> 20} MiB that the API server takes"
    spec = mapping(pod.get("spec"))
    containers = sum(len(sequence(spec.get(name))) for name in _LISTS)
    if containers > _MAX_CONTAINERS:
        return f"its {containers} containers are more than {_MAX_CONTAINERS}"
    annotations = mapping(mapping(pod.get("metadata")).get("annotations"))
    size = sum(len(key) + len(value) for key, value in annotations.items() if isinstance(value, str))
    if size > _MAX_ANNOTATION_BYTES:
        return f"its annotations have {size} characters, and the API server takes {_MAX_ANNOTATION_BYTES >> 10} KiB of them"
    return ""
