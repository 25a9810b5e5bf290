"""A pod in question, or at the other end: its manifest as given, and as it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from netinit.base.errors import NetinitError
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.inject.deciding.containers import PROXY, find, find_proxy, named
from netinit.inject.deciding.manifests import Workload
from netinit.inject.deciding.podfile import NOT_KNOWN, Foresee, FuturePod, PodFacts, is_as_created, read_facts
from netinit.options import Options
from netinit.questions.why.objects import DEFAULT_NAMESPACE, labels_of

AS_CREATED = "as created"


class PodInQuestion(Record):
    """A pod. `runs`: as it runs, after injection; `outlook`: AS_CREATED, or what becomes of it, because of `reason`.

    `facts`: None if the pod cannot be judged, because of `problem`.
    """

    workload: Workload
    runs: Tree
    outlook: str
    reason: str = ""
    facts: PodFacts | None = None
    problem: str = ""

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        return self.workload.title

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.workload.namespace or DEFAULT_NAMESPACE

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the pod, or of those that the workload makes."""
        return labels_of(self.workload)

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of the pod as it runs."""
        return strings(mapping(self.runs.get("metadata")).get("annotations"))

    @property
    def given_annotations(self) -> Mapping[str, str]:
        """The annotations that the pod's author wrote."""
        return strings(mapping(self.workload.created_pod()["metadata"]).get("annotations"))

    @property
    def spec(self) -> Tree:
        """The spec as it runs."""
        return mapping(self.runs.get("spec"))

    @property
    def status(self) -> Tree:
        """The status; empty but for a live pod."""
        return mapping(self.workload.tree.get("status")) if self.workload.kind == "Pod" else {}

    @property
    def host_network(self) -> bool:
        """Whether it uses its node's network."""
        return self.spec.get("hostNetwork") is True

    @property
    def in_mesh(self) -> bool | None:
        """Whether a proxy takes its traffic; None if that is not known."""
        if self.facts is None or self.facts.in_doubt or self.outlook == NOT_KNOWN:
            return None
        return (self.facts.intercepted or self.is_gateway) and not self.host_network

    @property
    def is_gateway(self) -> bool:
        """Whether its proxy is no sidecar, and makes the pod's connections itself."""
        return self.facts is not None and bool(self.facts.other_proxy)

    @property
    def proxy(self) -> Tree | None:
        """The proxy's container."""
        return find_proxy(self.spec)

    @property
    def has_native_sidecar(self) -> bool:
        """Whether the proxy is an init container that goes on."""
        return find(self.spec.get("initContainers"), PROXY) is not None

    @property
    def applications(self) -> list[Tree]:
        """The containers of the application."""
        return [one for one in named(self.spec.get("containers")) if one.get("name") != PROXY]

    @property
    def kubectl_name(self) -> str:
        """What kubectl and istioctl take: a pod, or KIND/NAME."""
        name = self.workload.name or "POD"
        return name if self.workload.kind == "Pod" else f"{self.workload.kind.lower()}/{name}"

    @property
    def addresses(self) -> list[str]:
        """The pod's own addresses."""
        return addresses_of(self.workload)


def addresses_of(one: Workload) -> list[str]:
    """The addresses of a live pod; none of a manifest."""
    status = mapping(one.tree.get("status")) if one.kind == "Pod" else {}
    listed = [string(mapping(item).get("ip")) for item in sequence(status.get("podIPs"))]
    return [address for address in (*listed, string(status.get("podIP"))) if address]


def read_pod(one: Workload, foresee: Foresee | None = None, base: Options | None = None) -> PodInQuestion:
    """Read a pod. `foresee`: what becomes of one that is not injected yet. What cannot be read is its `problem`."""
    pod = one.created_pod()
    try:
        future = foresee(one) if foresee and not is_as_created(pod) else None
        facts = read_facts(one, base or Options(), (lambda _: future) if future else None)
    except NetinitError as error:
        return PodInQuestion(workload=one, runs=pod, outlook=AS_CREATED, problem=str(error))
    if future is None:
        return PodInQuestion(workload=one, runs=pod, outlook=AS_CREATED, facts=facts)
    return PodInQuestion(workload=one, runs=_as_it_runs(future), outlook=future.outlook, reason=future.reason, facts=facts)


def _as_it_runs(future: FuturePod) -> Tree:
    return {"metadata": future.pod.get("metadata"), "spec": future.pod.get("spec")}


def read_json_list(text: str) -> list[Tree]:
    """The objects of a JSON list in an annotation; none if it is another text."""
    try:
        return named(json.loads(text))
    except (ValueError, RecursionError):
        return []
