"""Parses objects printed by kubectl. Pure; names are validated because they become command line arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.net import read_addresses
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string, strings

KINDS = {  # user's spelling -> kubectl resource
    "pod": "pod", "pods": "pod", "po": "pod",
    "deployment": "deployment", "deployments": "deployment", "deploy": "deployment", "deployment.apps": "deployment",
    "statefulset": "statefulset", "statefulsets": "statefulset", "sts": "statefulset",
    "daemonset": "daemonset", "daemonsets": "daemonset", "ds": "daemonset",
    "replicaset": "replicaset", "replicasets": "replicaset", "rs": "replicaset",
}  # fmt: skip
POD = "pod"
_MIRROR = "kubernetes.io/config.mirror"  # marks the API's copy of a static pod
RUNNING = "Running"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS subdomain, RFC 1123
_KIND = re.compile(r"[A-Za-z0-9]{1,63}")
_SHORT_KINDS = {"Deployment": "deploy", "StatefulSet": "sts", "DaemonSet": "ds", "ReplicaSet": "rs"}
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._/]{0,315}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class ClusterPod:
    """A pod in the cluster; `tree` is the complete object.

    `uids`: its UID and, for a static pod, the UID under which the runtime knows it. `account`: its service account.
    `is_of_a_daemonset`: anyone can set a label, but the API server checks the owner.
    """

    namespace: str
    name: str
    node: str
    phase: str
    addresses: tuple[str, ...]
    uids: tuple[str, ...]
    account: str
    host_network: bool
    is_of_a_daemonset: bool
    tree: Tree

    @property
    def title(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Whether its containers, and thus its network, have terminated."""
        return self.phase in {"Succeeded", "Failed"}


    @property
    def workload(self) -> str:
        """What made the pod, as `deploy/web`; the pod itself, `pod/web-1`, if nothing did or its name cannot be shown."""
        metadata = mapping(self.tree.get("metadata"))
        owner = next((one for one in map(mapping, sequence(metadata.get("ownerReferences"))) if one.get("controller") is True), {})
        kind, name = string(owner.get("kind")), string(owner.get("name"))
        of_template = "-" + strings(metadata.get("labels")).get("pod-template-hash", "")
        if kind == "ReplicaSet" and len(of_template) > 1 and name.endswith(of_template):
            kind, name = "Deployment", name.removesuffix(of_template)
        if not _KIND.fullmatch(kind) or not _NAME.fullmatch(name):
            return f"pod/{self.name}"
        return f"{_SHORT_KINDS.get(kind, kind.lower())}/{name}"

    @property
    def is_starting(self) -> bool:
        """Whether the pod is on its way to start: no container of it has failed yet."""
        listed = [mapping(one) for one in sequence(mapping(self.tree.get("status")).get("initContainerStatuses"))]
        states = [mapping(mapping(one.get(key)).get("terminated")) for one in listed for key in ("state", "lastState")]
        return self.phase == "Pending" and not any(one.get("exitCode") for one in states)


def check_name(value: Any, what: str) -> str:
    """Validate an object's name. Raises ParseError for one that no API server accepts."""
    text = string(value)
    if not _NAME.fullmatch(text):
        raise ParseError(f"kubectl's answer: {quote(text)} is not a name of a {what}")
    return text


def read_pod(tree: Any) -> ClusterPod:
    """Parse a pod. Raises ParseError."""
    metadata, spec, status = (mapping(mapping(tree).get(part)) for part in ("metadata", "spec", "status"))
    node = string(spec.get("nodeName"))
    listed = [mapping(item).get("ip") for item in sequence(status.get("podIPs"))] or [status.get("podIP")]
    uids = (string(metadata.get("uid")), strings(metadata.get("annotations")).get(_MIRROR, ""))
    owners = [mapping(owner) for owner in sequence(metadata.get("ownerReferences"))]
    return ClusterPod(
        namespace=check_name(metadata.get("namespace"), "namespace"), name=check_name(metadata.get("name"), "pod"),
        node=check_name(node, "node") if node else "", phase=string(status.get("phase")),
        addresses=tuple(read_addresses(map(string, listed))), uids=tuple(uid for uid in uids if _LABEL.fullmatch(uid)),
        account=string(spec.get("serviceAccountName")), host_network=spec.get("hostNetwork") is True,
        is_of_a_daemonset=any(one.get("kind") == "DaemonSet" and one.get("controller") is True for one in owners), tree=mapping(tree),
    )  # fmt: skip


def read_pods(tree: Tree) -> list[ClusterPod]:
    """Parse the pods of a List. Raises ParseError."""
    return [read_pod(item) for item in sequence(tree.get("items"))]


def split_object(text: str) -> tuple[str, str]:
    """Parse `NAME` or `KIND/NAME` into kubectl's resource and the name. Raises OptionError."""
    kind, slash, name = text.rpartition("/")
    if slash and kind not in KINDS:
        known = "pod, deploy, sts, ds and rs"
        raise OptionError(f"{quote(kind)} is not a kind that has pods; give a pod's name or KIND/NAME, with KIND one of {known}")
    if not _NAME.fullmatch(name):
        raise OptionError(f"{quote(name)} is not a name of Kubernetes")
    return KINDS[kind] if slash else POD, name


def write_selector(tree: Tree) -> str:
    """A workload's label selector in the syntax of `kubectl get -l`. Raises ParseError."""
    selector = mapping(mapping(tree.get("spec")).get("selector"))
    parts = [f"{_label(key)}={_label(value, empty=True)}" for key, value in strings(selector.get("matchLabels")).items()]
    for one in map(mapping, sequence(selector.get("matchExpressions"))):
        key, operator = _label(one.get("key")), one.get("operator")
        values = ",".join(_label(value, empty=True) for value in sequence(one.get("values")))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
        if operator not in forms:
            raise ParseError(f"kubectl's answer: {quote(string(operator))} is not a selector operator")
        parts.append(forms[operator])
    if not parts:
        raise ParseError("kubectl's answer: the selector is empty, so its pods are not known")
    return ",".join(parts)


def _label(value: Any, *, empty: bool = False) -> str:
    text = string(value)
    if not (empty and not text) and not _LABEL.fullmatch(text):
        raise ParseError(f"kubectl's answer: {quote(text)} is not a label")
    return text
