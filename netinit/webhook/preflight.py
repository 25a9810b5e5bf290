"""Check before an installation whether the cluster can run it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netinit.base.tree import Tree, mapping, string, strings
from netinit.inject.webhooks import parse_webhooks
from netinit.options import BACKENDS
from netinit.webhook.installation_findings import ERROR, WARNING, InstallationFinding
from netinit.webhook.linting import arguments_of, lint
from netinit.webhook.prerequisites import find_missing, join_some

NATIVE_SIDECARS = (1, 29)  # SidecarContainers is on by default
OLDEST_TESTED_KERNEL = (6, 1)  # docs/kernels.md
_ENFORCE = "pod-security.kubernetes.io/enforce"
_STRICT = {"baseline", "restricted"}
_HOOKS = "MutatingWebhookConfiguration"
_PLATFORMS = (  # the chart's node.platform, field of nodeInfo, pattern
    ("k3s", "kubeletVersion", re.compile(r"\+k3s")),
    ("gke", "kubeletVersion", re.compile(r"-gke\.")),
    ("openshift", "osImage", re.compile("Red Hat Enterprise Linux CoreOS")),
    ("talos", "osImage", re.compile(r"^Talos")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The API server's version, and the cluster's objects by kind; unreadable kinds are absent."""

    version: str
    by_kind: Mapping[str, list[Tree]]


def preflight(planned: Sequence[Tree], cluster: ClusterState, namespace: str) -> tuple[InstallationFinding, ...]:
    """Return the problems of installing the `planned` objects into `namespace`, errors first."""
    found = [
        *lint(planned, now=0.0, whole=False),
        *_check_versions(planned, cluster),
        *_check_pod_security(planned, cluster, namespace),
        *_check_injectors(planned, cluster),
        *_check_kernels(planned, cluster),
    ]
    hooks = [hook for tree in planned if tree.get("kind") == _HOOKS for hook in parse_webhooks(tree)]
    cluster_objects = {kind: cluster.by_kind[kind] for kind in ("ConfigMap", "Namespace") if kind in cluster.by_kind}
    missing = find_missing(cluster_objects, hooks, whole="Namespace" in cluster_objects)
    found += [InstallationFinding(WARNING, *parts) for parts in missing]
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: finding.severity != ERROR))


def name_resource(tree: Tree) -> str:
    """Return an object's resource as in `kubectl auth can-i`: `networkpolicies.networking.k8s.io`."""
    kind, (group, _, version) = string(tree.get("kind")).lower(), string(tree.get("apiVersion")).partition("/")
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"{plural}.{group}" if version else plural


def find_pods(planned: Sequence[Tree], kind: str) -> list[Tree]:
    """Return the pod specs in the templates of all objects of a kind."""
    templates = [mapping(mapping(tree.get("spec")).get("template")) for tree in planned if tree.get("kind") == kind]
    return [mapping(template.get("spec")) for template in templates]


def detect_platforms(nodes: Sequence[Tree]) -> dict[str, str]:
    """Return the Kubernetes platforms of these nodes, each with one node's name."""
    found: dict[str, str] = {}
    for tree in nodes:
        info = _node_info(tree)
        for platform, field, pattern in _PLATFORMS:
            if pattern.search(info.get(field, "")):
                found.setdefault(platform, _name(tree))
        if "microk8s.io/cluster" in strings(mapping(tree.get("metadata")).get("labels")):
            found.setdefault("microk8s", _name(tree))
    return found


def _check_versions(planned: Sequence[Tree], cluster: ClusterState) -> Iterator[InstallationFinding]:
    if "--native-sidecars=true" not in _arguments(planned, "Deployment"):
        return
    versions = {"the API server": cluster.version}
    versions |= {f"the kubelet of node {_name(tree)}": _node_info(tree).get("kubeletVersion", "") for tree in _nodes(cluster)}
    old = [f"{name} is {text}" for name, text in versions.items() if (number := _parse_version(text)) and number < NATIVE_SIDECARS]
    if old:
        yield InstallationFinding(
            ERROR, "native-sidecars", "Kubernetes", f"native sidecars are there since 1.29, and {join_some(old, 3)}",
            "set injection.nativeSidecars=false",
        )  # fmt: skip


def _check_pod_security(planned: Sequence[Tree], cluster: ClusterState, namespace: str) -> Iterator[InstallationFinding]:
    has_agent = any(tree.get("kind") == "DaemonSet" for tree in planned)
    hooks = [hook for tree in planned if tree.get("kind") == _HOOKS for hook in parse_webhooks(tree)]
    for tree in cluster.by_kind.get("Namespace", []):
        labels = strings(mapping(tree.get("metadata")).get("labels"))
        level = labels.get(_ENFORCE, "")
        if level not in _STRICT:
            continue
        label = f"kubectl label --overwrite namespace {_name(tree)} {_ENFORCE}=privileged"
        if has_agent and _name(tree) == namespace:
            message = f"its PodSecurity level {level} refuses the node's agent, which has host paths and capabilities"
            yield InstallationFinding(ERROR, "pod-security", f"Namespace {namespace}", message, label)
        if not has_agent and any(hook.matches(labels, {}) for hook in hooks):
            message = f"its PodSecurity level {level} refuses injected pods: their init container has NET_ADMIN"
            remedy = f"set node.enabled=true, or: {label}"
            yield InstallationFinding(ERROR, "pod-security", f"Namespace {_name(tree)}", message, remedy)


def _check_injectors(planned: Sequence[Tree], cluster: ClusterState) -> Iterator[InstallationFinding]:
    """Report other injectors that match the same pods."""
    ours = [tree for tree in planned if tree.get("kind") == _HOOKS]
    names = {_name(tree) for tree in ours}
    others = [{**tree, "kind": _HOOKS} for tree in cluster.by_kind.get(_HOOKS, []) if _name(tree) not in names]
    for finding in lint([*ours, *others], now=0.0, whole=False) if others else ():
        if finding.kind == "two-injectors" and (finding.subject.partition(",")[0] in names):
            yield finding


def _check_kernels(planned: Sequence[Tree], cluster: ClusterState) -> Iterator[InstallationFinding]:
    texts = {_name(tree): _node_info(tree).get("kernelVersion", "") for tree in _nodes(cluster)}
    kernels = {f"node {name}: {text}": number for name, text in texts.items() if (number := _parse_version(text))}
    arguments = _arguments(planned, "DaemonSet")
    for backend in [one for name, one in BACKENDS.items() if f"--backend={name}" in arguments]:
        too_old = [name for name, number in kernels.items() if number < backend.oldest_kernel]
        if not too_old:
            continue
        needed = ".".join(map(str, backend.oldest_kernel))
        message = f"the backend {backend.name} needs Linux {needed}: {join_some(too_old, 3)}"
        yield InstallationFinding(ERROR, "old-kernel", "Linux", message, "set node.backend=auto")
    if untested := [name for name, number in kernels.items() if number < OLDEST_TESTED_KERNEL]:
        message = f"older than 6.1, the oldest kernel that netinit is tested on: {join_some(untested, 3)}"
        remedy = "run netinit doctor on such a node: it tries what pods need"
        yield InstallationFinding(WARNING, "untested-kernel", "Linux", message, remedy)


def _nodes(cluster: ClusterState) -> list[Tree]:
    """Return the Linux nodes."""
    return [tree for tree in cluster.by_kind.get("Node", []) if _node_info(tree).get("operatingSystem", "linux") == "linux"]


def _node_info(tree: Tree) -> dict[str, str]:
    return strings(mapping(mapping(tree.get("status")).get("nodeInfo")))


def _name(tree: Tree) -> str:
    return string(mapping(tree.get("metadata")).get("name"))


def _parse_version(version: str) -> tuple[int, int] | None:
    """Parse major and minor version of `v1.29.3+k3s1` or `6.1.0-18-amd64`."""
    found = re.match(r"v?(\d{1,9})\.(\d{1,9})", version)
    return (int(found[1]), int(found[2])) if found else None


def _arguments(planned: Sequence[Tree], kind: str) -> list[str]:
    return [word for tree in planned if tree.get("kind") == kind for word in arguments_of(tree)]
