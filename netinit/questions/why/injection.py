"""The step "injection": whether a proxy takes the pod's traffic, and whether the pod has a network of its own."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.findings import FindingKind
from netinit.inject.deciding.annotations import INTERCEPTION_MODE
from netinit.inject.deciding.podfile import BY_AGENT, INJECTED, LEFT_OUT, describe_other_proxy
from netinit.inject.deciding.warnings import HOST_NETWORK, NOT_PROGRAMMED
from netinit.inject.deciding.webhooks import INJECT
from netinit.questions.why.pods import AS_CREATED, PodInQuestion
from netinit.questions.why.steps import Step, failed, passed, unknown

NOT_INJECTED = FindingKind(
    "NI310", "not-injected",
    "The pod is not in the mesh: no proxy takes its traffic, so it sends plain text, and servers with STRICT mutual "
    "TLS refuse it. `netinit check-inject` shows what decides. Set the label on the pod template or on the "
    "Namespace, and recreate the pods.",
)

NAME = "injection"


def examine_injection(pod: PodInQuestion) -> Iterator[Step]:
    """Say whether the pod is in the mesh, and what decides that."""
    if pod.facts is None:
        yield unknown(NAME, "it is not known: the pod's options cannot be read", pod.title)
    elif pod.host_network:
        text = "hostNetwork: true: the pod uses its node's network, where nothing is captured; what it sends is plain text"
        yield unknown(NAME, text, pod.title, remedy="remove hostNetwork: true if it is to be in the mesh", kind=HOST_NETWORK)
    elif pod.in_mesh is None:
        yield unknown(NAME, pod.facts.notes[0], pod.title, shown_by=_ask_cluster(pod), kind=NOT_PROGRAMMED)
    elif pod.is_gateway:
        yield passed(NAME, describe_other_proxy(pod.facts.other_proxy), pod.title)
    elif pod.in_mesh:
        of_outlook = {AS_CREATED: f"its traffic is captured ({pod.facts.programmed_by})", BY_AGENT: pod.facts.notes[0]}
        by = of_outlook.get(pod.outlook, f"injected: {pod.reason}")
        yield passed(NAME, by, pod.title)
    elif pod.outlook == INJECTED:
        yield failed(
            NAME, NOT_INJECTED, f"no proxy takes its traffic: {pod.facts.notes[0]}", pod.title,
            remedy=f'annotation {INTERCEPTION_MODE}: "REDIRECT"; without rules, its servers must accept plain text',
        )  # fmt: skip
    else:
        yield failed(
            NAME, NOT_INJECTED, f"no proxy takes its traffic: {_describe_why(pod)}", pod.title,
            remedy=f'set the label {INJECT}: "true" on the pod template, or istio-injection: enabled on the Namespace, and recreate'
            " the pods; without the mesh, its servers must accept plain text",
            shown_by=_ask_cluster(pod),
        )  # fmt: skip


def _describe_why(pod: PodInQuestion) -> str:
    if pod.outlook == LEFT_OUT:
        return pod.reason
    return pod.reason or "it has neither a proxy nor an init container of a mesh"


def _ask_cluster(pod: PodInQuestion) -> str:
    return f"kubectl get {pod.workload.kind.lower()} {pod.workload.name} -n {pod.namespace} -o yaml | netinit check-inject -f -"
