"""Size limits of reviews, checked before templates are rendered. Pure."""

from __future__ import annotations

from netinit.base.tree import Tree, mapping, sequence

MAX_REVIEW_BYTES = 6 << 20
"""Twice the API server's request limit, since a review holds the new and the old object."""
_MAX_POD_BYTES = 3 << 20  # the API server's MaxRequestBodyBytes
_MAX_CONTAINERS = 1000  # a node runs about a hundred
_MAX_ANNOTATION_BYTES = 256 << 10  # TotalAnnotationSizeLimitB in apimachinery
_MAX_VALUES = 300_000  # twice those of a pod of 1.5 MiB, etcd's limit
_LISTS = ("containers", "initContainers", "ephemeralContainers")


def is_too_dense(body: bytes | bytearray) -> bool:
    """Whether a body may hold more JSON values than any stored pod, and so be too expensive to parse."""
    return body.count(b",") + body.count(b"{") + body.count(b"[") > _MAX_VALUES


def find_excess(pod: Tree, size: int) -> str:
    """Return which API server limit a pod of `size` bytes exceeds; empty if none."""
    if size > _MAX_POD_BYTES:
        return f"its {size} bytes are more than the {_MAX_POD_BYTES >> 20} MiB that the API server takes"
    spec = mapping(pod.get("spec"))
    containers = sum(len(sequence(spec.get(name))) for name in _LISTS)
    if containers > _MAX_CONTAINERS:
        return f"its {containers} containers are more than {_MAX_CONTAINERS}"
    annotations = mapping(mapping(pod.get("metadata")).get("annotations"))
    size = sum(len(key) + len(value) for key, value in annotations.items() if isinstance(value, str))
    if size > _MAX_ANNOTATION_BYTES:
        return f"its annotations have {size} characters, and the API server takes {_MAX_ANNOTATION_BYTES >> 10} KiB of them"
    return ""
