"""An injector's inputs beside its configuration: its settings, the pod's namespace, and the platform's decisions.

Native sidecars are used if every node's kubelet supports them: istiod's ENABLE_NATIVE_SIDECARS=auto (1.31,
DetectNativeSidecar). OpenShift decides about the proxy's user and group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from netinit.base.errors import InjectionError
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, shown, string, strings
from netinit.inject.adding.meshconfig import ProxyConfigs

_STABLE = (1, 33)  # the Kubernetes version in which native sidecars are
_VERSION = re.compile(r"v?([0-9]{1,9})\.([0-9]{1,9})(?![0-9])")


def parse_version(text: str) -> tuple[int, int] | None:
    """Parse major and minor version of `v1.29.3+k3s1` or `6.1.0-18-amd64`; None if it is unreadable."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found else None


def node_info(node: Tree) -> dict[str, str]:
    """Return what a node says of itself: versions of kubelet and kernel, operating system."""
    return strings(mapping(mapping(node.get("status")).get("nodeInfo")))


def runs_native_sidecars(node: Tree) -> bool:
    """Whether a node's kubelet supports native sidecars; False if its version is unreadable."""
    return (parse_version(node_info(node).get("kubeletVersion", "")) or (0, 0)) >= _STABLE


class Kubelets(Record):
    """Support for native sidecars by node name."""

    by_node: Mapping[str, bool] = {}

    @classmethod
    def of(cls, nodes: Iterable[Tree]) -> Kubelets:
        """Read the support of these nodes."""
        return cls(by_node={string(mapping(node.get("metadata")).get("name")): runs_native_sidecars(node) for node in nodes})

    def run_native_sidecars(self, node: str = "") -> bool:
        """Whether a pod may get a native sidecar: if its node supports it, or, without a known node, all do."""
        known = self.by_node.get(node)
        return all(self.by_node.values()) if known is None else known


class Namespace(Record):
    """The pod's namespace: its name, labels (None: unknown, and taken as none), and annotations as far as known."""

    name: str = ""
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] = {}


class Settings(Record):
    """An injector's settings besides its configuration.

    `environment`: variables for the proxy. `proxy_metadata`: defaults for the mesh's. `native_sidecars`: for all pods, or as
    their nodes' kubelets support them. `refuse_shared_user`: refuse pods with an application that runs as the proxy's user or
    group.
    """

    revision: str = ""
    native_sidecars: bool | Kubelets = True
    proxy_configs: ProxyConfigs = ProxyConfigs()
    compliance_policy: str = ""
    environment: Mapping[str, str] = {}
    proxy_metadata: Mapping[str, str] = {}
    refuse_shared_user: bool = False

    def uses_native_sidecar(self, spec: Tree) -> bool:
        """Whether the proxy of a pod with this spec is a native sidecar, without an annotation."""
        native = self.native_sidecars
        return native if isinstance(native, bool) else native.run_native_sidecars(string(spec.get("nodeName")))


DEFAULT_ID = 1337  # the proxy's user and group
UID_RANGE = "openshift.io/sa.scc.uid-range"
GROUPS_ANNOTATION = "openshift.io/sa.scc.supplemental-groups"
RANGES = (UID_RANGE, GROUPS_ANNOTATION)
_BLOCK = re.compile(r"[^\S\n]*([0-9]{1,20})([/-])[^\S\n]*([0-9]{1,20})")
_MAX_ID = 2**31 - 1  # Kubernetes takes no higher user or group


def proxy_ids(annotations: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the proxy's uid and gid: the last of the namespace's ranges, which applications rarely use.

    None without ranges (not OpenShift). A range is `start/size` or `first-last`, and what follows it is ignored, as OpenShift
    reads it (library-go, pkg/security/uid/uid.go, by Sscanf). There may be several of groups, of which the first is used; their
    default is the user's. Raises InjectionError for an invalid range.
    """
    users = annotations.get(UID_RANGE)
    uid = DEFAULT_ID if users is None else _last(UID_RANGE, users, users)
    key = GROUPS_ANNOTATION if GROUPS_ANNOTATION in annotations else UID_RANGE
    groups = annotations.get(key)
    if groups is None:
        return None
    first, *_ = [_last(key, groups, block) for block in groups.split(",")]
    return uid, first


def _last(key: str, value: str, block: str) -> int:
    problem = "give start/size or a-b"
    found = _BLOCK.match(block)
    if found and found[2] == ("/" if "/" in block else "-"):
        start, end = int(found[1]), int(found[3])
        last = start + end - 1 if found[2] == "/" else end
        if start <= last <= _MAX_ID:
            return last
        too_high = f"its last id, {last}, is above {_MAX_ID}, the highest that Kubernetes takes"
        problem = "the range is empty" if last < start else too_high
    raise InjectionError(f"invalid value {shown(value)} for annotation {key!r} of the namespace: {problem}")
