"""Find the containers of a pod, and which of them an injection added."""

from __future__ import annotations

from typing import Any

from netinit.base.tree import Tree, mapping, sequence, string

PROXY, INIT, VALIDATION, CORE_DUMP = "istio-proxy", "istio-init", "istio-validation", "enable-core-dump"
LISTS = ("containers", "initContainers")
SIDECAR = "sidecar"  # the kind of proxy that a pod's rules redirect to
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


def other_kind(arguments: Any) -> str:
    """Return what a proxy with these arguments is if it is no sidecar, such as `router` (a gateway), `waypoint` or `ztunnel`.

    Such a proxy makes the pod's connections itself, and no agent programs its pod (istio cni/pkg/plugin/plugin.go, ProxyType).
    """
    words = [string(word) for word in sequence(arguments)[:2]]
    return words[1] if len(words) > 1 and words[0] == "proxy" and words[1] != SIDECAR else ""


def find_sidecar(spec: Tree) -> Tree | None:
    """Return the pod's proxy, unless it is of another kind than a sidecar."""
    proxy = find_proxy(spec)
    return None if proxy is None or other_kind(proxy.get("args")) else proxy


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
