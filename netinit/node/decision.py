"""Decide which pods are programmed and with which options, in Istio's order and by its annotations. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from netinit.base.errors import CniError, OptionError
from netinit.base.records import Record
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree, mapping, string, strings
from netinit.inject.deciding.annotations import STATUS, go_bool
from netinit.inject.deciding.containers import (
    INIT,
    PROXY,
    VALIDATION,
    all_containers,
    find_proxy,
    named,
    other_kind,
    security,
)
from netinit.inject.deciding.pod_options import PREFIXES, VARIABLES, find_invalid_annotations, make_cni_options
from netinit.inject.deciding.webhooks import INJECT
from netinit.node.protocol import CniCode
from netinit.options import Options, offline

_MIRROR = "kubernetes.io/config.mirror"  # on the API's copy of a static pod: the uid that kubelet and runtime use
# Annotations and labels to keep, by prefix.
_KEPT = (*PREFIXES, "cni.istio.io/")
_DISABLED = "DISABLE_ENVOY"  # in the proxy's environment
_SUFFIX = 5  # random characters after a DaemonSet's name and a dash
UNCAPTURED = 126  # istio-validation's exit code where the rules are missing


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """The facts about a pod that are remembered: only what decisions and repairs read."""

    namespace: str
    name: str
    uid: str
    static_uid: str = ""  # of a static pod: the uid that the runtime uses
    version: str = ""  # metadata.resourceVersion
    annotations: dict[str, str]
    labels: dict[str, str]
    containers: tuple[str, ...]  # names, of init containers too
    proxy: bool = False
    other_kind: str = ""  # of a proxy that is no sidecar
    environment: dict[str, str]  # the variables of the proxy that are read
    uid_of_proxy: int | None = None
    gid_of_proxy: int | None = None
    host_network: bool = False
    ended: bool = False  # it has finished, or is being deleted
    addresses: tuple[str, ...] = ()
    exit_code: int | None = None  # of istio-validation, if it has finished

    @property
    def label(self) -> str:
        """Namespace and name, for messages."""
        return f"{self.namespace}/{self.name}"


def matches_uid(pod: NodePod, uid: str) -> bool:
    """Whether the uid from the runtime is this pod's, or empty (the runtime passes none)."""
    return uid in {"", pod.uid} or uid == pod.static_uid


class NodeDecision(Record):
    """The options to program a pod with; None if it is left alone, and the reason."""

    options: Options | None = None
    reason: str = ""


def read_pod(tree: Tree) -> NodePod:
    """Read the facts of a pod from the API's object. Never fails: a field of the wrong type counts as absent."""
    metadata, spec, status = (mapping(tree.get(key)) for key in ("metadata", "spec", "status"))
    proxy = find_proxy(spec) or {}
    context = security(proxy)
    variables = {string(item.get("name")): string(item.get("value")) for item in named(proxy.get("env"))}
    return NodePod(
        namespace=string(metadata.get("namespace")),
        name=string(metadata.get("name")),
        uid=string(metadata.get("uid")),
        static_uid=strings(metadata.get("annotations")).get(_MIRROR, ""),
        version=string(metadata.get("resourceVersion")),
        annotations=_kept(metadata.get("annotations")),
        labels=_kept(metadata.get("labels")),
        containers=tuple(string(item.get("name")) for item in all_containers(spec)),
        proxy=bool(proxy),
        other_kind=other_kind(proxy.get("args")),
        environment={name: variables[name] for name in (_DISABLED, *VARIABLES) if name in variables},
        uid_of_proxy=_number(context.get("runAsUser")),
        gid_of_proxy=_number(context.get("runAsGroup")),
        host_network=spec.get("hostNetwork") is True,
        ended=string(status.get("phase")) in {"Succeeded", "Failed"} or bool(metadata.get("deletionTimestamp")),
        addresses=tuple(string(item.get("ip")) for item in named(status.get("podIPs")) if item.get("ip")),
        exit_code=_exit_code(status),
    )


def _kept(value: object) -> dict[str, str]:
    return {key: text for key, text in strings(value).items() if key.startswith(_KEPT)}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _exit_code(status: Tree) -> int | None:
    """Return istio-validation's exit code, of the current or the last run."""
    found = [item for item in named(status.get("initContainerStatuses")) if item.get("name") == VALIDATION]
    states = [mapping(item.get(key)) for item in found for key in ("state", "lastState")]
    codes = [_number(mapping(state.get("terminated")).get("exitCode")) for state in states]
    return next((code for code in codes if code is not None), None)


def is_own_pod(namespace: str, name: str, own_namespace: str, daemon_set: str) -> bool:
    """Whether the pod belongs to the agent's DaemonSet: its name, a dash, and five letters and digits."""
    suffix = name.removeprefix(f"{daemon_set}-")
    plain = suffix.isascii() and suffix.isalnum() and suffix.islower() | suffix.isdigit()
    return bool(daemon_set) and namespace == own_namespace and suffix != name and plain and len(suffix) == _SUFFIX


def decide(pod: NodePod, base: Options, addresses: tuple[str, ...] = ()) -> NodeDecision:
    """Decide by the first of Istio's conditions that applies. Raises CniError with a line for each invalid value.

    Conditions that need no pod (no name, an excluded namespace, the agent's own pod) were checked before. `base`: the
    options that the node's configuration gives every pod. `addresses`: those of the pod.
    """
    if INIT in pod.containers:
        return NodeDecision(reason=f"it has the container {INIT}, which programs the rules itself")
    if go_bool(pod.environment.get(_DISABLED, "")):
        return NodeDecision(reason=f"{_DISABLED} is true")
    if not pod.proxy:
        return NodeDecision(reason=f"it has no container {PROXY}")
    if pod.other_kind:
        return NodeDecision(reason=f"its proxy is a {shorten(pod.other_kind)}, not a sidecar")
    if go_bool(pod.labels.get(INJECT, pod.annotations.get(INJECT, ""))) is False:
        return NodeDecision(reason=f"{INJECT} is false")
    if STATUS not in pod.annotations:
        return NodeDecision(reason=f"it has no annotation {STATUS}: it was not injected")
    annotations = pod.annotations
    wrong = [f"annotation {key}: {shorten(annotations[key])!r}: {problem}" for key, problem in find_invalid_annotations(annotations)]
    if wrong:
        raise CniError("\n".join(wrong), CniCode.BAD_POD)
    try:
        made = make_cni_options(annotations, pod.environment, base, uid=pod.uid_of_proxy, gid=pod.gid_of_proxy)
        return NodeDecision(options=made.replace(ipv6=made.settle(offline(addresses)).ipv6) if addresses else made)
    except OptionError as error:
        raise CniError(str(error), CniCode.BAD_POD) from None
