"""Compare two injectors: build reviews, apply the returned patches, find differences. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, NamedTuple

from netinit.base.errors import ParseError
from netinit.base.tree import Tree, clone, explain_json_error, mapping, same, sequence, string
from netinit.inject.adding.kubernetes_types import json_of
from netinit.inject.adding.patch import apply_patch
from netinit.inject.adding.settings import RANGES
from netinit.inject.deciding.annotations import NATIVE_SIDECAR
from netinit.inject.deciding.manifests import Workload, workloads

ANSWER = "the answer"
"""The path of a difference when one side denies the pod or its answer is invalid."""

_MAX_DEPTH = 200  # levels, as for YAML documents: comparing recurses
_MAX_EXAMPLES = 3  # per group
_HASH = "5c6f7d8b9"  # a sample pod-template-hash
_MINUTES = "28000000"  # a sample scheduled time, in a Job's name


class Review(NamedTuple):
    """An AdmissionReview, and a title for messages."""

    title: str
    tree: Tree

    @property
    def pod(self) -> Tree:
        """The pod before injection."""
        return mapping(mapping(self.tree.get("request")).get("object"))


class ReviewOutcome(NamedTuple):
    """The pod, the webhook's refusal, or why the answer is invalid."""

    pod: Tree | None = None
    refusal: str = ""
    failure: str = ""

    @property
    def summary(self) -> str:
        """The outcome without the pod."""
        return self.failure or (f"refused: {self.refusal}" if self.pod is None else "allowed")


# ---- reviews ----------------------------------------------------------------------------------------------------------


def make_reviews(tree: Any, namespace: str, takes: Callable[[Workload], bool] = lambda _: True) -> Iterator[Review]:
    """Yield the dry-run reviews of a document: a recorded AdmissionReview, or one per workload that `takes` accepts.

    `namespace`: for workloads without one. Raises ParseError if an AdmissionReview contains no pod.
    """
    if isinstance(tree, dict) and tree.get("kind") == "AdmissionReview":
        yield _recorded(tree)
        return
    for one in workloads(tree):
        if not one.bare and takes(one):
            yield _of_workload(one, one.namespace or namespace)


def _recorded(tree: Tree) -> Review:
    request = tree.get("request")
    pod = mapping(request).get("object")
    if not isinstance(request, dict) or not isinstance(pod, dict) or not isinstance(request.get("uid"), str):
        raise ParseError("the AdmissionReview has no request with a uid and a pod in its object; record what the API server sends")
    metadata = mapping(pod.get("metadata"))
    name = string(metadata.get("name")) or string(metadata.get("generateName")) or string(request.get("name"))
    review = {key: tree[key] for key in ("kind", "apiVersion") if key in tree} | {"request": {**request, "dryRun": True}}
    return Review(f"Pod {string(request.get('namespace'))}/{name}", review)


def _of_workload(one: Workload, namespace: str) -> Review:
    title = f"{one.kind} {namespace}/{one.name}"
    request = {
        "uid": hashlib.sha256(title.encode("utf-8", "surrogatepass")).hexdigest(),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {},
        "object": _created_pod(one, namespace),
        "oldObject": None,
        "dryRun": True,
        "options": None,
    }
    return Review(title, {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


def _created_pod(one: Workload, namespace: str) -> Tree:
    pod = {"kind": "Pod", "apiVersion": "v1", **one.created_pod()}
    metadata = pod["metadata"]
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"):
        metadata.pop(key, None)  # set when a pod is created
    if one.kind == "Pod":
        pod["spec"].pop("nodeName", None)
        return {**pod, "metadata": {**metadata, "namespace": namespace}}
    kind, version, name = one.kind, string(one.tree.get("apiVersion")), one.name
    if kind == "Deployment":
        kind, name = "ReplicaSet", f"{name}-{_HASH}"
        metadata["labels"] = {**mapping(metadata.get("labels")), "pod-template-hash": _HASH}
    elif kind == "CronJob":
        kind, name = "Job", f"{name}-{_MINUTES}"
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": "0", "controller": True, "blockOwnerDeletion": True}
    return {**pod, "metadata": {**metadata, "namespace": namespace, "generateName": f"{name}-", "ownerReferences": [owner]}}


# ---- answers ----------------------------------------------------------------------------------------------------------


def read_outcome(review: Review, body: bytes) -> ReviewOutcome:
    """Apply the patch of a webhook's answer. Raises ParseError if it is invalid or for another review."""
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"the answer is not JSON: {explain_json_error(error)}") from error
    response = mapping(mapping(tree).get("response"))
    uid = review.tree["request"]["uid"]
    if mapping(tree).get("kind") != "AdmissionReview" or response.get("uid") != uid:
        raise ParseError("the answer is not an AdmissionReview with a response to this uid")
    if response.get("allowed") is not True:
        return ReviewOutcome(refusal=string(mapping(response.get("status")).get("message")) or "without a message")
    if not response.get("patch"):
        return ReviewOutcome(pod=review.pod)
    if response.get("patchType") != "JSONPatch":
        raise ParseError(f"the answer's patchType is {string(response.get('patchType'))!r}; an API server only takes JSONPatch")
    try:
        operations = json.loads(base64.b64decode(string(response["patch"]), validate=True))
    except (ValueError, RecursionError) as error:
        raise ParseError(f"the answer's patch cannot be read: {explain_json_error(error)}") from error
    pod = None if _is_too_deep(operations) else apply_patch(review.pod, operations)
    if not isinstance(pod, dict) or _is_too_deep(pod):
        raise ParseError(f"the answer's patch leaves no pod of at most {_MAX_DEPTH} levels")
    return ReviewOutcome(pod=pod)


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else sequence(one))]
        if not level:
            return False
    return True


# ---- differences ------------------------------------------------------------------------------------------------------


class PodDifference(NamedTuple):
    """A path at which two pods differ, and both values; None if missing."""

    path: str
    left: Any
    right: Any


def find_differences(pod: Tree, left: ReviewOutcome, right: ReviewOutcome) -> list[PodDifference]:
    """Return the differences between two outcomes for a pod.

    Two denials are equal; an invalid answer always differs.
    """
    if left.failure or right.failure or (left.pod is None) != (right.pod is None):
        return [PodDifference(ANSWER, left.summary, right.summary)]
    if left.pod is None or right.pod is None:
        return []
    return list(_walk("", _canonical(pod), _canonical(left.pod), _canonical(right.pod)))


def _canonical(pod: Tree) -> Tree:
    """Return the pod as the API server decodes it."""
    read = {"metadata": json_of("v1.ObjectMeta", pod.get("metadata")), "spec": json_of("v1.PodSpec", pod.get("spec"))}
    return {**{key: value for key, value in pod.items() if value is not None}, **read}


def _walk(path: str, before: Any, left: Any, right: Any) -> Iterator[PodDifference]:
    if same(left, right):
        return
    left, right = _parsed(left, right)
    if same(left, right):
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            yield from _walk(_step(path, key), mapping(before).get(key), left.get(key), right.get(key))
        return
    named = [_by_name(value) for value in (left, right)]
    ours, theirs = named
    if ours is None or theirs is None:
        yield PodDifference(path, left, right)
        return
    own = _by_name(before) or {}
    for name in sorted(ours.keys() | theirs.keys()):
        label = "*" if name in own else name  # group the differences of original items, whose names vary
        yield from _walk(f"{path}[{label}]", own.get(name), ours.get(name), theirs.get(name))
    order = [[name for name in names if name in ours and name in theirs] for names in named if names is not None]
    if order[0] != order[1]:
        yield PodDifference(f"{path} (order)", *order)


def _parsed(left: Any, right: Any) -> tuple[Any, Any]:
    """Decode two texts that are both JSON objects, such as the status annotation."""
    if isinstance(left, str) and isinstance(right, str) and left.startswith("{") and right.startswith("{"):
        try:
            parsed = json.loads(left), json.loads(right)
        except (ValueError, RecursionError):
            return left, right
        return (left, right) if any(map(_is_too_deep, parsed)) else parsed
    return left, right


def _step(path: str, key: str) -> str:
    return f"{path}[{key}]" if "." in key or "/" in key else f"{path}.{key}".lstrip(".")


def _by_name(value: Any) -> dict[str, Any] | None:
    """Map items by `mountPath` or `name`; None if neither is unique."""
    items = sequence(value)
    if not isinstance(value, list | None) or not all(isinstance(item, dict) for item in items):
        return None
    for key in ("mountPath", "name"):
        names = [item.get(key) for item in items]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return dict(zip(names, items, strict=True))
    return None


# ---- groups -----------------------------------------------------------------------------------------------------------


class Documented(NamedTuple):
    """A difference listed on the page of differences from Istio: section, row, and how to recognize it."""

    section: str
    row: str
    applies: Callable[[Tree, PodDifference], bool]


def _annotation(pod: Tree, name: str) -> str:
    return string(mapping(mapping(pod.get("metadata")).get("annotations")).get(name))


def _is_of_proxy(one: PodDifference) -> bool:
    places = [f"spec.{key}[{name}]" for key in ("containers", "initContainers") for name in ("istio-proxy", "*")]
    return one.path.startswith(tuple(places))


def _has_text(one: PodDifference, text: str) -> bool:
    return any(text in str(value) for value in (one.left, one.right))


def _probes_undeclared_port(pod: Tree) -> bool:
    containers = [mapping(one) for one in sequence(mapping(pod.get("spec")).get("containers"))]
    declared = {mapping(port).get("name") for one in containers for port in sequence(one.get("ports"))}
    probes = [mapping(one.get(key)) for one in containers for key in ("livenessProbe", "readinessProbe", "startupProbe")]
    probed = [mapping(probe.get(kind)).get("port") for probe in probes for kind in ("httpGet", "tcpSocket")]
    return any(isinstance(port, str) and not port.isdigit() and port not in declared for port in probed)


_INPUTS = "values-and-templates"
DOCUMENTED = tuple(starmap(Documented, (
    ("the-port-of-the-tunnel", "netinit's `sidecar`",
     lambda _, one: one.path.startswith("spec.initContainers[istio-") and _has_text(one, "--inbound-tunnel-port")),
    (_INPUTS, "`traffic.sidecar.istio.io/includeOutboundPorts`",
     lambda pod, one: one.path == ANSWER and bool(_annotation(pod, "traffic.sidecar.istio.io/includeOutboundPorts"))
     and _has_text(one, "includeOutboundPorts")),
    (_INPUTS, "`statusPort` in `proxy.istio.io/config`",
     lambda pod, one: "statusPort" in _annotation(pod, "proxy.istio.io/config")
     and (one.path == "metadata.annotations[prometheus.io/port]" or "Probe" in one.path)),
    (_INPUTS, '`status.sidecar.istio.io/port: " 80"`',
     lambda pod, one: (text := _annotation(pod, "status.sidecar.istio.io/port")) != text.strip() and one.path != ANSWER),
    (_INPUTS, "a probe that names a port no container declares",
     lambda pod, one: "Probe" in one.path and _probes_undeclared_port(pod)),
    (_INPUTS, '`sidecar.istio.io/nativeSidecar: "yes"`',
     lambda pod, one: _annotation(pod, NATIVE_SIDECAR) not in {"", "true", "false"} and _is_of_proxy(one)),
    (_INPUTS, "`connectTimeout`, `parentShutdownDuration` in a proxy's configuration",
     lambda _, one: "[PROXY_CONFIG]" in one.path and one.path.endswith((".connectTimeout", ".parentShutdownDuration"))),
    (_INPUTS, "second injection of a pod whose owner changed `istio-proxy`",
     lambda pod, one: bool(_annotation(pod, "sidecar.istio.io/status")) and _is_of_proxy(one)),
    (_INPUTS, "overrides in the annotation",
     lambda pod, one: bool(_annotation(pod, "proxy.istio.io/overrides")) and one.path.startswith("spec.initContainers[istio-init]")),
    (_INPUTS, "a range of OpenShift's (`sa.scc.uid-range`, `sa.scc.supplemental-groups`)",
     lambda _, one: one.path == ANSWER and any(_has_text(one, key) for key in RANGES)),
)))  # fmt: skip


@dataclass(slots=True)
class Group:
    """The pods that differ at one path; `examples` have distinct values."""

    path: str
    documented: Documented | None
    pods: int = 0
    examples: list[tuple[str, PodDifference]] = field(default_factory=list)


class PodComparison:
    """The differences of many pods, grouped by path and documented difference."""

    def __init__(self) -> None:
        self.pods = 0
        self.different = 0
        self.undocumented = 0  # pods with a difference that is not documented
        self._groups: dict[tuple[str, str], Group] = {}

    def add(self, review: Review, left: ReviewOutcome, right: ReviewOutcome) -> None:
        """Compare the two outcomes of a review."""
        found = [
            (one, next((reason for reason in DOCUMENTED if reason.applies(review.pod, one)), None))
            for one in find_differences(review.pod, left, right)
        ]
        self.pods += 1
        self.different += bool(found)
        self.undocumented += any(reason is None for _, reason in found)
        by_group: dict[tuple[str, str], tuple[PodDifference, Documented | None]] = {}
        for one, reason in found:  # containers of one pod can differ in the same way
            by_group.setdefault((one.path, reason.row if reason else ""), (one, reason))
        for key, (one, reason) in by_group.items():
            group = self._groups.setdefault(key, Group(one.path, reason))
            group.pods += 1
            known = any(same([one.left, one.right], [seen.left, seen.right]) for _, seen in group.examples)
            if len(group.examples) < _MAX_EXAMPLES and not known:
                group.examples.append((review.title, PodDifference(one.path, clone(one.left), clone(one.right))))

    def groups(self) -> list[Group]:
        """Return the groups: undocumented ones and frequent ones first."""
        return sorted(self._groups.values(), key=lambda group: (group.documented is not None, -group.pods, group.path))
