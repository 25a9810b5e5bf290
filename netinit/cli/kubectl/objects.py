"""Objects as kubectl prints them. Pure; names are checked, for they become words of command lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.net import parse_address
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string, strings

KINDS = {  # as people write it -> as kubectl is asked
    "pod": "pod", "pods": "pod", "po": "pod",
    "deployment": "deployment", "deployments": "deployment", "deploy": "deployment", "deployment.apps": "deployment",
    "statefulset": "statefulset", "statefulsets": "statefulset", "sts": "statefulset",
    "daemonset": "daemonset", "daemonsets": "daemonset", "ds": "daemonset",
    "replicaset": "replicaset", "replicasets": "replicaset", "rs": "replicaset",
}  # fmt: skip
POD = "pod"
_MIRROR = "kubernetes.io/config.mirror"  # on the API's copy of a static pod
RUNNING = "Running"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS subdomain, RFC 1123
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._/]{0,315}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class ClusterPod:
    """A pod of the cluster; `tree` is the whole object."""

    namespace: str
    name: str
    node: str
    phase: str
    addresses: tuple[str, ...]
    tree: Tree

    @property
    def title(self) -> str:
        """Its namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def uids(self) -> tuple[str, ...]:
        """Its uid, and that of a static pod, by which the runtime knows it."""
        metadata = mapping(self.tree.get("metadata"))
        found = (string(metadata.get("uid")), strings(metadata.get("annotations")).get(_MIRROR, ""))
        return tuple(uid for uid in found if _LABEL.fullmatch(uid))

    @property
    def ended(self) -> bool:
        """Whether its containers have ended, and its network with them."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def host_network(self) -> bool:
        """Whether it has its node's network."""
        return mapping(self.tree.get("spec")).get("hostNetwork") is True


def check_name(value: Any, what: str) -> str:
    """The name of an object. ParseError where no API server would have let it in."""
    text = string(value)
    if not _NAME.fullmatch(text):
        raise ParseError(f"kubectl's answer: {quote(text)} is no name of a {what}")
    return text


def read_pod(tree: Any) -> ClusterPod:
    """One pod. ParseError."""
    metadata, spec, status = (mapping(mapping(tree).get(part)) for part in ("metadata", "spec", "status"))
    node = string(spec.get("nodeName"))
    listed = [mapping(item).get("ip") for item in sequence(status.get("podIPs"))] or [status.get("podIP")]
    return ClusterPod(
        namespace=check_name(metadata.get("namespace"), "namespace"),
        name=check_name(metadata.get("name"), "pod"),
        node=check_name(node, "node") if node else "",
        phase=string(status.get("phase")),
        addresses=tuple(read_addresses(listed)),
        tree=mapping(tree),
    )


def read_pods(tree: Tree) -> list[ClusterPod]:
    """The pods of a List. ParseError."""
    return [read_pod(item) for item in sequence(tree.get("items"))]


def read_addresses(items: list[Any]) -> Iterator[str]:
    """Those of the items that are addresses."""
    for item in items:
        try:
            yield parse_address(string(item))
        except ValueError:
            continue


def split_object(text: str) -> tuple[str, str]:
    """The kind, as kubectl is asked for it, and the name of `NAME` or `KIND/NAME`. OptionError."""
    kind, slash, name = text.rpartition("/")
    if slash and kind not in KINDS:
        known = "pod, deploy, sts, ds and rs"
        raise OptionError(f"{quote(kind)} is not a kind that has pods; give a pod's name or KIND/NAME, with KIND one of {known}")
    if not _NAME.fullmatch(name):
        raise OptionError(f"{quote(name)} is not a name of Kubernetes")
    return KINDS[kind] if slash else POD, name


def write_selector(tree: Tree) -> str:
    """The label selector of a Deployment and its like, as `kubectl get -l` takes it. ParseError."""
    selector = mapping(mapping(tree.get("spec")).get("selector"))
    parts = [f"{_label(key)}={_label(value, empty=True)}" for key, value in strings(selector.get("matchLabels")).items()]
    for one in map(mapping, sequence(selector.get("matchExpressions"))):
        key, operator = _label(one.get("key")), one.get("operator")
        values = ",".join(_label(value, empty=True) for value in sequence(one.get("values")))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
        if operator not in forms:
            raise ParseError(f"kubectl's answer: {quote(string(operator))} is no operator of a selector")
        parts.append(forms[operator])
    if not parts:
        raise ParseError("kubectl's answer: the selector is empty, so its pods are not known")
    return ",".join(parts)


def _label(value: Any, *, empty: bool = False) -> str:
    text = string(value)
    if not (empty and not text) and not _LABEL.fullmatch(text):
        raise ParseError(f"kubectl's answer: {quote(text)} is no label")
    return text
