"""Find who else is in the cluster: other releases, other meshes' agents, other CNI lists, runtimes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from netinit.base.documentation import address_of
from netinit.base.tree import Tree, string, strings
from netinit.inject.adding.settings import node_info, parse_version
from netinit.installation import linting
from netinit.installation.linting import (
    ERROR,
    HOOKS,
    WARNING,
    ByKind,
    InstallationFinding,
    labels_of,
    metadata_of,
    name_of,
    subject_of,
)

_AGENT = "netinit-node"  # the chart's label app.kubernetes.io/name
_NAME, _RELEASE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
_HELM = ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
_TESTED_RUNTIME, _OLDEST_TESTED = "containerd", (1, 6)  # the page on nodes
_MESH_AGENTS = (  # the name of a DaemonSet with a CNI plugin of its own, and whose it is
    (re.compile("istio-cni"), "Istio"),
    (re.compile("linkerd.*-cni"), "Linkerd"),
    (re.compile("kuma-cni|kong-mesh-cni"), "Kuma"),
    (re.compile("consul.*-cni"), "Consul"),
)
_OF_OPENSHIFT = "DaemonSet openshift-multus/multus"  # whose node.platform says what to set
_CILIUM, _MULTUS = re.compile("cilium"), re.compile("multus")


def find_neighbours(planned: Sequence[Tree], cluster: ByKind) -> Iterator[InstallationFinding]:
    """Yield what in the cluster gets in the way of the planned release, and what to set."""
    yield from _check_names(planned, cluster)
    for agent in [tree for tree in planned if tree.get("kind") == "DaemonSet"]:
        for other in cluster.get("DaemonSet", []):
            yield from check_agent(agent, other)
        yield from _check_runtimes(cluster)


def _check_names(planned: Sequence[Tree], cluster: ByKind) -> Iterator[InstallationFinding]:
    """Report webhook configurations that a release of the same name in another namespace has."""
    ours = {name_of(tree): tree for tree in planned if tree.get("kind") == HOOKS}
    namespaces = {string(metadata_of(tree).get("namespace")) for tree in planned} - {""}
    for tree in cluster.get(HOOKS, []):
        namespace, release = (strings(metadata_of(tree).get("annotations")).get(one, "") for one in _HELM)
        if name_of(tree) in ours and namespace and namespace not in namespaces:
            yield InstallationFinding(
                ERROR, "name-taken", f"{HOOKS} {name_of(tree)}",
                f"it belongs to the release {release} in {namespace}, so that Helm refuses another one of this name",
                f"choose another name for the release, or: helm uninstall {release} -n {namespace}",
            )  # fmt: skip


def check_agent(agent: Tree, other: Tree) -> Iterator[InstallationFinding]:
    """Yield how another DaemonSet gets in the way of an agent's."""
    subject, name = subject_of("DaemonSet", other), name_of(other)
    own_list = "--ownList" in linting.arguments_of(agent)
    if labels_of(other).get(_NAME) == _AGENT and subject != subject_of("DaemonSet", agent):
        release, namespace = labels_of(other).get(_RELEASE, ""), metadata_of(other).get("namespace")
        yield InstallationFinding(
            ERROR, "another-agent", subject,
            f"the release {release} has the node's agent and the plugin already: this release's agents would not start",
            f"set node.enabled=false, or: helm uninstall {release} -n {namespace}",
            address_of("node", "several-releases"),
        )  # fmt: skip
    elif mesh := next((mesh for pattern, mesh in _MESH_AGENTS if pattern.search(name)), ""):
        yield InstallationFinding(
            WARNING, "other-mesh-agent", subject,
            f"it is {mesh}'s CNI agent: both plugins run for each new pod, and each programs the pods that it takes for its own",
            "remove it when netinit's agents are ready on all nodes" + ("; until then set node.ownList=false" if own_list else ""),
            address_of("node", "change-over-from-istio-cni-or-linkerd-cni"),
        )  # fmt: skip
    elif own_list and _CILIUM.fullmatch(name):
        yield InstallationFinding(
            WARNING, "cilium-exclusive", subject,
            "with cni.exclusive, Cilium's default, it renames other lists, and the agent is not ready with a list of its own",
            "set cni.exclusive=false in Cilium's values, or node.ownList=false",
            address_of("node", "installers-that-rewrite-the-list"),
        )  # fmt: skip
    elif _MULTUS.search(name) and subject != _OF_OPENSHIFT and "--standalone" not in linting.arguments_of(agent):
        is_named = any(word.startswith("--cniConfName=") for word in linting.arguments_of(agent))
        instead = ", and node.ownList=false" if own_list else ""
        if own_list or not is_named:
            yield InstallationFinding(
                WARNING, "multus", subject,
                "Multus' list is the first of the folder, and pods get the networks that it delegates to",
                f"set node.confName to the file of the network that Multus delegates to{instead}",
                address_of("node", "installers-that-rewrite-the-list"),
            )  # fmt: skip


def is_mesh_agent(daemon_set: Tree) -> bool:
    """Whether a DaemonSet is the CNI agent of another mesh, by its name."""
    return any(pattern.search(name_of(daemon_set)) for pattern, _ in _MESH_AGENTS)


def _check_runtimes(cluster: ByKind) -> Iterator[InstallationFinding]:
    """Warn about runtimes that the plugin was not tried under."""
    found: dict[str, list[str]] = {}
    for tree in cluster.get("Node", []):
        runtime = node_info(tree).get("containerRuntimeVersion", "")
        name, _, version = runtime.partition("://")
        is_tested = name == _TESTED_RUNTIME and (parse_version(version) or _OLDEST_TESTED) >= _OLDEST_TESTED
        if name and not is_tested and node_info(tree).get("operatingSystem", "linux") == "linux":
            found.setdefault(f"{name} {version}", []).append(name_of(tree))
    for runtime, nodes in found.items():
        yield InstallationFinding(
            WARNING, "untested-runtime", f"runtime {runtime}",
            f"the plugin is tested under containerd from 1.6 on, and runs here on {linting.join_some(nodes, 3)}",
            "try one node first (node.affinity), and check it with netinit node status and kubectl netinit check",
        )  # fmt: skip
