"""Check before an installation whether the cluster can run it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from netinit.base.documentation import address_of
from netinit.base.tree import Tree, string
from netinit.inject.adding.settings import node_info, parse_version
from netinit.inject.deciding.webhooks import Webhook, parse_webhooks
from netinit.installation import linting
from netinit.installation.linting import (
    ERROR,
    HOOKS,
    WARNING,
    ByKind,
    InstallationFinding,
    labels_of,
    name_of,
    sort_findings,
)
from netinit.installation.neighbours import find_neighbours
from netinit.options import BACKENDS

NATIVE_SIDECARS = (1, 29)  # SidecarContainers is on by default
OLDEST_TESTED_KERNEL = (6, 1)  # the page on kernels
NETWORKS, PLUGIN = "NetworkAttachmentDefinition", "netinit-cni"  # Multus' kind, and the name of the network that runs the plugin
OPENSHIFT_GROUP = "security.openshift.io"  # of SecurityContextConstraints, which MicroShift and OKD have too
_ENFORCE = "pod-security.kubernetes.io/enforce"
_STRICT = {"baseline", "restricted"}
_PLATFORMS = (  # the chart's node.platform, field of nodeInfo, pattern
    ("k3s", "kubeletVersion", re.compile(r"\+k3s")),
    ("gke", "kubeletVersion", re.compile(r"-gke\.")),
    ("openshift", "osImage", re.compile("Red Hat Enterprise Linux CoreOS")),
    ("talos", "osImage", re.compile(r"^Talos")),
)


def preflight(
    planned: Sequence[Tree], cluster: ByKind, namespace: str, *, version: str, groups: Collection[str] = ()
) -> tuple[InstallationFinding, ...]:
    """Return the problems of installing the `planned` objects into `namespace`, errors first.

    `cluster`: its objects by kind; unreadable kinds are absent. `version`: the API server's. `groups`: its groups of APIs.
    """
    hooks = [hook for tree in _of_kind(planned, HOOKS) for hook in parse_webhooks(tree)]
    cluster_objects = {kind: cluster[kind] for kind in ("ConfigMap", "Namespace") if kind in cluster}
    return sort_findings([
        *linting.lint(planned, now=0.0, whole=False),
        *_check_versions(planned, cluster, version),
        *_check_pod_security(hooks, cluster, namespace, has_agent=bool(_of_kind(planned, "DaemonSet"))),
        *_check_injectors(planned, cluster),
        *find_neighbours(planned, cluster),
        *_check_kernels(planned, cluster),
        *_check_networks(planned, hooks, cluster),
        *(_check_constraints(planned) if OPENSHIFT_GROUP in groups else ()),
        *linting.find_missing(cluster_objects, hooks, whole="Namespace" in cluster_objects),
    ])  # fmt: skip


def name_resource(tree: Tree) -> str:
    """Return an object's resource as in `kubectl auth can-i`: `networkpolicies.networking.k8s.io`."""
    kind, (group, _, version) = string(tree.get("kind")).lower(), string(tree.get("apiVersion")).partition("/")
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"{plural}.{group}" if version else plural


def detect_platforms(nodes: Sequence[Tree], groups: Collection[str] = ()) -> dict[str, str]:
    """Return the Kubernetes platforms of these nodes, each with one node's name, or what else it is known by."""
    found = {"openshift": "the API server"} if OPENSHIFT_GROUP in groups else {}
    for tree in nodes:
        info = node_info(tree)
        for platform, field, pattern in _PLATFORMS:
            if pattern.search(info.get(field, "")):
                found.setdefault(platform, name_of(tree))
        if "microk8s.io/cluster" in labels_of(tree):
            found.setdefault("microk8s", name_of(tree))
    return found


def _check_versions(planned: Sequence[Tree], cluster: ByKind, version: str) -> Iterator[InstallationFinding]:
    if "--native-sidecars=true" not in _arguments(planned, "Deployment"):
        return
    versions = {"the API server": version}
    versions |= {f"the kubelet of node {name_of(tree)}": node_info(tree).get("kubeletVersion", "") for tree in _nodes(cluster)}
    old = [f"{name} is {text}" for name, text in versions.items() if (number := parse_version(text)) and number < NATIVE_SIDECARS]
    if old:
        yield InstallationFinding(
            ERROR, "native-sidecars", "Kubernetes",
            f"native sidecars exist since 1.29, and {linting.join_some(old, 3)}",
            "set injection.nativeSidecars=false",
        )  # fmt: skip


def _check_pod_security(
    hooks: Sequence[Webhook], cluster: ByKind, namespace: str, *, has_agent: bool
) -> Iterator[InstallationFinding]:
    for tree in cluster.get("Namespace", []):
        labels, name = labels_of(tree), name_of(tree)
        level = labels.get(_ENFORCE, "")
        if level not in _STRICT:
            continue
        label = f"kubectl label --overwrite namespace {name} {_ENFORCE}=privileged"
        if has_agent and name == namespace:
            agent = "the node's agent, which has host paths and capabilities"
            yield InstallationFinding(
                ERROR, "pod-security", f"Namespace {name}",
                f"its PodSecurity level {level} refuses {agent}",
                label,
            )  # fmt: skip
        if not has_agent and any(hook.matches(labels, {}) for hook in hooks):
            pods = "injected pods: their init container has NET_ADMIN"
            yield InstallationFinding(
                ERROR, "pod-security", f"Namespace {name}",
                f"its PodSecurity level {level} refuses {pods}",
                f"set node.enabled=true, or: {label}",
            )  # fmt: skip


def _check_constraints(planned: Sequence[Tree]) -> Iterator[InstallationFinding]:
    """Report what OpenShift's security context constraints stop: they give each namespace user ids, and refuse added capabilities."""
    page = address_of("kubernetes", "openshift")
    if _of_kind(planned, "Deployment") and "--watchNamespaces=true" not in _arguments(planned, "Deployment"):
        yield InstallationFinding(
            ERROR, "constraints", "the API server",
            "OpenShift's constraints give a namespace its user ids, and the webhook does not read the proxy's from there",
            "set openshift=true", page,
        )  # fmt: skip
    if not _of_kind(planned, "DaemonSet"):
        yield InstallationFinding(
            WARNING, "constraints", "injected pods",
            "OpenShift's default constraint, restricted-v2, refuses their init container, which has NET_ADMIN",
            "set node.enabled=true and node.platform=openshift, or let the pods' accounts use a constraint that allows it", page,
        )  # fmt: skip


def _check_networks(planned: Sequence[Tree], hooks: Sequence[Webhook], cluster: ByKind) -> Iterator[InstallationFinding]:
    """Report namespaces of the mesh without the network by which Multus runs the plugin for their pods."""
    if NETWORKS not in cluster or "--standalone" not in _arguments(planned, "DaemonSet"):
        return
    if missing := linting.find_namespaces_without(NETWORKS, PLUGIN, cluster, hooks):
        yield InstallationFinding(
            WARNING, "no-network", f"namespace {linting.join_some(missing, 5)}",
            f"there is no {NETWORKS} {PLUGIN}, so Multus does not run the plugin for their pods, and istio-validation stops them",
            f"create one of that name in each, and give the pods the annotation k8s.v1.cni.cncf.io/networks: {PLUGIN}",
            address_of("node", "install"),
        )  # fmt: skip


def _check_injectors(planned: Sequence[Tree], cluster: ByKind) -> Iterator[InstallationFinding]:
    """Report other injectors that match the same pods."""
    ours = _of_kind(planned, HOOKS)
    names = {name_of(tree) for tree in ours}
    others = [{**tree, "kind": HOOKS} for tree in cluster.get(HOOKS, []) if name_of(tree) not in names]
    found = linting.lint([*ours, *others], now=0.0, whole=False) if others else ()
    return (one for one in found if one.kind == "two-injectors" and one.subject.partition(",")[0] in names)


def _check_kernels(planned: Sequence[Tree], cluster: ByKind) -> Iterator[InstallationFinding]:
    texts = {name_of(tree): node_info(tree).get("kernelVersion", "") for tree in _nodes(cluster)}
    kernels = {f"node {name}: {text}": number for name, text in texts.items() if (number := parse_version(text))}
    arguments = _arguments(planned, "DaemonSet")
    for backend in [one for name, one in BACKENDS.items() if f"--backend={name}" in arguments]:
        if too_old := [name for name, number in kernels.items() if number < backend.oldest_kernel]:
            needed = ".".join(map(str, backend.oldest_kernel))
            yield InstallationFinding(
                ERROR, "old-kernel", "Linux",
                f"the backend {backend.name} needs Linux {needed}: {linting.join_some(too_old, 3)}",
                "set node.backend=auto",
            )  # fmt: skip
    if untested := [name for name, number in kernels.items() if number < OLDEST_TESTED_KERNEL]:
        yield InstallationFinding(
            WARNING, "untested-kernel", "Linux",
            f"older than 6.1, the oldest kernel that netinit is tested on: {linting.join_some(untested, 3)}",
            "run netinit doctor on such a node: it tries what pods need",
        )  # fmt: skip


def _nodes(cluster: ByKind) -> list[Tree]:
    """Return the Linux nodes."""
    return [tree for tree in cluster.get("Node", []) if node_info(tree).get("operatingSystem", "linux") == "linux"]


def _of_kind(planned: Sequence[Tree], kind: str) -> list[Tree]:
    return [tree for tree in planned if tree.get("kind") == kind]


def _arguments(planned: Sequence[Tree], kind: str) -> list[str]:
    return [word for tree in _of_kind(planned, kind) for word in linting.arguments_of(tree)]
