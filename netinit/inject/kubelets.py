"""Use native sidecars if every node supports them: istiod's ENABLE_NATIVE_SIDECARS=auto (1.31, DetectNativeSidecar)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, string

_MINOR = 33  # of Kubernetes 1.33, in which native sidecars are stable
_VERSION = re.compile(r"v?[0-9]{1,9}\.([0-9]{1,9})(?![0-9])")


def runs_native_sidecars(node: Tree) -> bool:
    """Whether a node's kubelet supports native sidecars; False if its version is unreadable."""
    version = string(mapping(mapping(node.get("status")).get("nodeInfo")).get("kubeletVersion"))
    found = _VERSION.match(version)
    return found is not None and int(found[1]) >= _MINOR


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
