"""Find the containers of a pod, and which of them an injection added."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.inject.deciding.annotations import STATUS

PROXY, INIT, VALIDATION, CORE_DUMP = "istio-proxy", "istio-init", "istio-validation", "enable-core-dump"
LISTS = ("containers", "initContainers")
TEMPLATE_LISTS = ("initContainers", "containers", "volumes", "imagePullSecrets")
"""The lists of a pod's spec that templates add to, in the status annotation's order."""


def named(items: Any) -> list[Tree]:
    """Return the items that are mappings; the API server rejects the others."""
    return [item for item in sequence(items) if isinstance(item, dict)]


def names(items: Any) -> list[str]:
    """The names of a list of containers, volumes or secrets, in order."""
    return [string(item.get("name")) for item in named(items)]


def find(items: Any, name: str) -> Tree | None:
    """The item of that name, or None."""
    return next((item for item in named(items) if item.get("name") == name), None)


def find_proxy(spec: Tree) -> Tree | None:
    """Return the pod's istio-proxy, from its containers or (as a native sidecar) its init containers."""
    return find(spec.get("containers"), PROXY) or find(spec.get("initContainers"), PROXY)


def all_containers(spec: Tree) -> list[Tree]:
    """Return the containers, then the init containers."""
    return [item for key in LISTS for item in named(spec.get(key))]


def security(container: Tree | None) -> Tree:
    """Return the container's security context; empty if it has none."""
    return mapping(mapping(container).get("securityContext"))


def effective_security(container: Tree, spec: Tree) -> Tree:
    """Return the container's security context with the pod's values for the fields that it leaves open."""
    own = {key: value for key, value in security(container).items() if value is not None}
    return {**mapping(spec.get("securityContext")), **own}


def read_status(pod: Tree) -> Mapping[str, Collection[str]] | None:
    """Return the names that an injection added to each list of the spec, by its annotation; None if there is none or a bad one.

    A forged annotation does no harm: only lists of strings are used.
    """
    try:
        tree = json.loads(strings(mapping(pod.get("metadata")).get("annotations")).get(STATUS) or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(tree, dict):
        return None
    return {key: [item for item in sequence(tree.get(key)) if isinstance(item, str)] for key in TEMPLATE_LISTS}
