"""What the platform decides about a proxy: native sidecars by the nodes' kubelets, its user and group by OpenShift.

Native sidecars are used if every node supports them: istiod's ENABLE_NATIVE_SIDECARS=auto (1.31, DetectNativeSidecar).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from netinit.base.errors import InjectionError
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, shown, string, strings

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


UID_RANGE = "openshift.io/sa.scc.uid-range"
GROUPS_ANNOTATION = "openshift.io/sa.scc.supplemental-groups"
_BLOCK = r"([0-9]{1,10})([/-])([0-9]{1,10})\Z"


def proxy_ids(annotations: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the proxy's uid and gid: the last of the namespace's ranges, which applications rarely use.

    None without ranges (not OpenShift). A range is `start/size` or `first-last`; of several, the first is used. The
    group's default is the user's range. Raises InjectionError for an invalid range.
    """
    if UID_RANGE not in annotations:
        return None
    uid = _last(UID_RANGE, annotations[UID_RANGE])
    groups = annotations.get(GROUPS_ANNOTATION)
    return uid, _last(GROUPS_ANNOTATION, groups) if groups else uid


def _last(key: str, value: str) -> int:
    found = re.match(_BLOCK, value.partition(",")[0].strip())
    if not found:
        raise InjectionError(
            f"invalid value {shown(value)} for annotation {key!r} of the namespace: give start/size or a-b"
        )
    start, mark, end = int(found[1]), found[2], int(found[3])
    last = start + end - 1 if mark == "/" else end
    if last < start:
        raise InjectionError(
            f"invalid value {shown(value)} for annotation {key!r} of the namespace: the range is empty"
        )
    return last
