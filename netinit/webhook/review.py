"""Answer an admission review: request bytes in, response bytes out. Pure.

Invalid requests get an HTTP error; pods that cannot be injected are denied with the reason.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from netinit.base.errors import ConfigError, NetinitError
from netinit.base.sanitize import escape, shorten
from netinit.base.tree import Tree, explain_json_error, mapping, sequence, string
from netinit.inject.adding.patch import json_patch
from netinit.inject.adding.pod import inject_pod
from netinit.inject.adding.settings import Namespace
from netinit.inject.deciding.decision import decide
from netinit.inject.deciding.manifests import PodOwner
from netinit.inject.deciding.option_findings import PROXY_OWNER
from netinit.inject.deciding.warnings import PodFinding
from netinit.questions.canary_rules import refuses_to_start
from netinit.questions.injection_advice import advise
from netinit.webhook.configuration import Served
from netinit.webhook.pod_events import SHARED_USER, PodEvent, find_involved

VERSIONS = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
MAX_REVIEW_BYTES = 6 << 20
"""Twice the API server's request limit, since a review holds the new and the old object."""
_MAX_POD_BYTES = 3 << 20  # the API server's MaxRequestBodyBytes
_MAX_CONTAINERS = 1000  # a node runs about a hundred
_MAX_ANNOTATION_BYTES = 256 << 10  # TotalAnnotationSizeLimitB in apimachinery
_MAX_VALUES = 300_000  # twice those of a pod of 1.5 MiB, etcd's limit
_LISTS = ("containers", "initContainers", "ephemeralContainers")
_MAX_VARIABLES = 32
_MAX_PATH = 4096
_MAX_UID = 256
_MAX_WARNINGS, _MAX_WARNING = 10, 250  # kubectl shows 256 characters of each, 4096 in total
_MAX_MESSAGE = 2000
_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)  # JSON and YAML have no cycles
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_.-]{0,127}\Z")
_KEYS = {"cluster": "ISTIO_META_CLUSTER_ID", "net": "ISTIO_META_NETWORK"}
_OLDER_PAIR = ":ENV:"


class Interruption(BaseException):
    """A review exceeds its limits. A BaseException, so that no error handler catches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAnswer:
    """The HTTP response, and what is logged and counted.

    `outcome`: injected, unchanged, skipped, denied or refused (an HTTP error). `reason`: a metric label. `detail`: a
    traceback. `event`: about the pod, for its author; none of a dry run.
    """

    status: int
    body: bytes
    outcome: str
    reason: str
    message: str = ""
    uid: str = ""
    namespace: str = ""
    pod: str = ""
    owner: str = ""
    dry_run: bool = False
    detail: str = ""
    content_type: str = "application/json"
    event: PodEvent | None = None


class Fault(Exception):  # noqa: N818 - it becomes an HTTP response
    """An invalid request: HTTP status, metric label and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(slots=True)
class _Review:
    """The review being answered."""

    api_version: str
    uid: str
    request: Tree
    namespace: str = ""
    pod: str = ""
    owner: str = ""
    warnings: list[str] = field(default_factory=list)
    audit: dict[str, str] = field(default_factory=dict)
    event: PodEvent | None = None

    def respond(self, outcome: str, reason: str, message: str = "", *, patch: list[Tree] | None = None) -> ReviewAnswer:
        denied = outcome == "denied"
        response: Tree = {"uid": self.uid, "allowed": not denied}
        if denied:
            response["status"] = {"status": "Failure", "message": message, "reason": "BadRequest", "code": 400}
        if patch:
            text = _JSON.encode(patch)
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(text.encode()).decode("ascii")}
        if self.warnings:
            response["warnings"] = [escape(shorten(text, _MAX_WARNING - 1)) for text in self.warnings[:_MAX_WARNINGS]]
        if reason not in _NOT_A_NEW_POD:
            decision = f"{outcome}: {message}" if message else outcome
            response["auditAnnotations"] = {**self.audit, "decision": escape(shorten(decision, _MAX_MESSAGE))}
        review = {"kind": "AdmissionReview", "apiVersion": self.api_version, "response": response}
        return ReviewAnswer(
            status=200, body=_JSON.encode(review).encode(), outcome=outcome, reason=reason, message=message, uid=self.uid,
            namespace=self.namespace, pod=self.pod, owner=self.owner, dry_run=self.request.get("dryRun") is True,
            event=self.event,
        )  # fmt: skip


_NOT_A_NEW_POD = ("other-kind", "other-operation")


def answer(
    body: bytes | bytearray,
    served: Served,
    *,
    environment: Mapping[str, str] | None = None,
    namespace: Callable[[str], Namespace] = lambda name: Namespace(name=name),
) -> ReviewAnswer:
    """Return the answer to a request body. Raises only Interruption.

    `environment`: proxy variables from the path (`environment_of`). `namespace`: looks a namespace up by name.
    """
    review = None
    try:
        review = _read(body)
        return _answer(review, served, environment or {}, namespace, len(body))
    except Fault as fault:
        return refuse(fault)
    except (RecursionError, MemoryError):
        return _deny(review, "too-large", "it is nested too deeply, or too large, to be injected")
    except Exception as error:  # noqa: BLE001 - our bug must not block a cluster silently
        import traceback

        kind = type(error).__name__
        denied = _deny(review, "internal", f"internal error ({kind}); the injector's log has details under this review's uid")
        return replace(denied, detail=traceback.format_exc())


def refuse(fault: Fault) -> ReviewAnswer:
    """Return the HTTP error for an invalid request."""
    text = escape(shorten(str(fault), _MAX_MESSAGE))
    return ReviewAnswer(
        status=fault.status,
        body=(text + "\n").encode(),
        outcome="refused",
        reason=fault.reason,
        message=text,
        content_type="text/plain; charset=utf-8",
    )


def _deny(review: _Review | None, reason: str, why: str) -> ReviewAnswer:
    if review is None:
        return refuse(Fault(400, reason, f"the body: {why}"))
    title = f"pod {escape(shorten(review.namespace))}/{escape(shorten(review.pod or 'without a name'))}"
    return review.respond("denied", reason, f"{title}: {why}")


# ---- reading ----------------------------------------------------------------------------------------------------------


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _read(body: bytes | bytearray) -> _Review:
    """Parse the review. Raises Fault."""
    if not body.strip():
        raise Fault(400, "empty", "the body is empty: an AdmissionReview is expected")
    if len(body) > MAX_REVIEW_BYTES:
        raise Fault(413, "too-large", f"the body is longer than {MAX_REVIEW_BYTES >> 20} MiB")
    if body.count(b",") + body.count(b"{") + body.count(b"[") > _MAX_VALUES:  # too expensive to parse
        raise Fault(413, "too-large", "the body holds more values than a pod can have")
    try:
        tree = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise Fault(400, "too-large", "the body is nested too deeply") from None
    except ValueError as error:
        raise Fault(400, "not-json", f"the body is not JSON: {explain_json_error(error)}") from None
    if not isinstance(tree, dict) or tree.get("kind") != "AdmissionReview":
        raise Fault(400, "no-review", "the body is not an AdmissionReview")
    version = tree.get("apiVersion")
    if version not in VERSIONS:
        raise Fault(400, "no-review", f"the AdmissionReview must be of {' or '.join(VERSIONS)}")
    request = tree.get("request")
    uid = mapping(request).get("uid")
    if not isinstance(request, dict) or not isinstance(uid, str) or not 0 < len(uid) <= _MAX_UID:
        raise Fault(400, "no-review", f"the AdmissionReview has no request with a uid of at most {_MAX_UID} characters")
    return _Review(api_version=version, uid=uid, request=request)


def _answer(
    review: _Review, served: Served, environment: Mapping[str, str], namespace: Callable[[str], Namespace], size: int
) -> ReviewAnswer:
    request = review.request
    review.namespace = string(request.get("namespace"))
    kind = mapping(request.get("kind"))
    resource = mapping(request.get("resource"))
    is_pod = kind.get("kind") == "Pod" and string(kind.get("group")) == "" and resource.get("resource", "pods") == "pods"
    if not is_pod or request.get("subResource"):
        return review.respond("skipped", "other-kind", "only pods themselves are injected")
    if request.get("operation", "CREATE") != "CREATE":
        return review.respond("skipped", "other-operation", "pods are injected when they are created")
    pod = request.get("object")
    if not isinstance(pod, dict):
        return review.respond("denied", "no-pod", "the review holds no pod")
    metadata = mapping(pod.get("metadata"))
    review.namespace = review.namespace or string(metadata.get("namespace"))
    review.pod = string(metadata.get("name")) or string(metadata.get("generateName")) or string(request.get("name"))
    review.audit["template-version"] = served.version
    if excess := find_excess(pod, size):
        return _deny(review, "too-large", excess)
    return _decide(review, pod, served, environment, namespace(review.namespace))


def _decide(review: _Review, pod: Tree, served: Served, environment: Mapping[str, str], namespace: Namespace) -> ReviewAnswer:
    decision = decide(pod, review.namespace, served.config)
    review.warnings += decision.warnings
    if not decision.inject:
        return review.respond("skipped", decision.step.value, decision.reason)
    owner = PodOwner.of_pod(pod, review.namespace)
    review.owner = f"{owner.kind}/{owner.name}"
    settings = served.settings
    if environment:
        settings = settings.replace(environment={**settings.environment, **environment})
    try:
        injected = inject_pod(pod, served.config, namespace=namespace, settings=settings, owner=owner)
    except NetinitError as error:
        reason = "template" if isinstance(error, ConfigError) else "pod"
        return _deny(review, reason, escape(shorten("; ".join(str(error).splitlines()), _MAX_MESSAGE)))
    if unreadable := refuses_to_start(injected):
        return _deny(review, "pod", escape(shorten("; ".join(unreadable), _MAX_MESSAGE)))
    found = advise(pod, injected, served.config)
    review.warnings += map(str, found)
    shared = [str(one) for one in found if isinstance(one, PodFinding) and one.kind == PROXY_OWNER]
    if shared and review.request.get("dryRun") is not True:
        message = escape(shorten("; ".join(shared), _MAX_MESSAGE))
        review.event = PodEvent(find_involved(pod, review.namespace), SHARED_USER, message)
    patch = json_patch(pod, injected)
    if not patch:
        return review.respond("unchanged", "injected-before", "the pod is complete already")
    return review.respond("injected", decision.step.value, decision.reason, patch=patch)


# ---- size limits, checked before templates are rendered ------------------------------------------------------------------


def find_excess(pod: Tree, size: int) -> str:
    """Return which API server limit a pod of `size` bytes exceeds; empty if none."""
    if size > _MAX_POD_BYTES:
        return f"its {size} bytes are more than the {_MAX_POD_BYTES >> 20} MiB that the API server takes"
    spec = mapping(pod.get("spec"))
    containers = sum(len(sequence(spec.get(name))) for name in _LISTS)
    if containers > _MAX_CONTAINERS:
        return f"its {containers} containers are more than {_MAX_CONTAINERS}"
    annotations = mapping(mapping(pod.get("metadata")).get("annotations"))
    size = sum(len(key) + len(value) for key, value in annotations.items() if isinstance(value, str))
    if size > _MAX_ANNOTATION_BYTES:
        return f"its annotations have {size} characters, and the API server takes {_MAX_ANNOTATION_BYTES >> 10} KiB of them"
    return ""


# ---- the path ---------------------------------------------------------------------------------------------------------


def environment_of(path: str) -> dict[str, str]:
    """Return the proxy variables in a percent-encoded path, `/inject/cluster/c1/net/n1`. Raises Fault.

    As in Istio, `--slash--` is a slash, keys other than `cluster` and `net` are upper-cased, and a key without a value
    is ignored. `/inject/:ENV:cluster=c1:ENV:net=n1` is the older way to write it.
    """
    head, _, rest = unquote(path).strip("/").partition("/")
    if head != "inject":
        raise Fault(404, "no-path", "nothing is at this path; reviews are answered at /inject")
    pairs = _read_pairs(rest)
    if len(path) > _MAX_PATH or len(pairs) > _MAX_VARIABLES:
        raise Fault(414, "no-path", f"the path is too long: {_MAX_VARIABLES} variables at most")
    found = {}
    for key, value in pairs:
        name = _KEYS.get(key, key.upper())
        if not _VARIABLE.match(name):
            raise Fault(400, "no-path", f"{escape(shorten(key))} in the path is not a variable's name")
        if not value.isprintable():
            raise Fault(400, "no-path", f"the value of {name} in the path has unprintable characters")
        found[name] = value
    return found


def _read_pairs(words: str) -> list[tuple[str, str]]:
    """Return the keys and values behind `/inject/`, with which Istio's `parseInjectEnvs` starts."""
    if words.startswith(_OLDER_PAIR):
        split = (pair.partition("=") for pair in words.split(_OLDER_PAIR))
        return [(key, value) for key, equals, value in split if key and equals]
    keys_and_values = words.split("/")
    return [(key, value.replace("--slash--", "/")) for key, value in zip(keys_and_values[::2], keys_and_values[1::2], strict=False)]
