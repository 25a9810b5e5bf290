"""Sidecar resources: what of the mesh a pod's proxy knows, and what it does with the rest (networking.istio.io, Sidecar)."""

from __future__ import annotations

from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.questions.why.objects import ROOT_NAMESPACE, SIDECAR, ClusterObjects, age_of, namespace_of, spec_of
from netinit.questions.why.pods import PodInQuestion

_ANY, _OWN = "*", "."


def find_sidecar(pod: PodInQuestion, objects: ClusterObjects) -> Tree | None:
    """The Sidecar of a pod's proxy: one that selects the pod, else that of its namespace, else of the root namespace; the oldest."""
    by_age = sorted(objects.by_kind.get(SIDECAR, ()), key=age_of)
    here = [one for one in by_age if namespace_of(one) == pod.namespace]
    of_workload = [one for one in here if (asked := _selector_of(one)) and asked.items() <= pod.labels.items()]
    of_namespace = [one for one in here if not _selector_of(one)]
    of_root = [one for one in by_age if namespace_of(one) == ROOT_NAMESPACE and not _selector_of(one)]
    return next(iter((*of_workload, *of_namespace, *of_root)), None)


def _selector_of(sidecar: Tree) -> dict[str, str]:
    return strings(mapping(spec_of(sidecar).get("workloadSelector")).get("labels"))


def mode_of(sidecar: Tree | None) -> str:
    """The mode of a Sidecar's outboundTrafficPolicy; empty where the mesh's counts."""
    return string(mapping(spec_of(sidecar or {}).get("outboundTrafficPolicy")).get("mode"))


def imports(sidecar: Tree, pod: PodInQuestion, namespace: str, host: str) -> bool:
    """Whether the proxy knows a host of a namespace: NAMESPACE/HOST of `egress` names it (~/* none), or there is no such list."""
    listeners = [mapping(one) for one in sequence(spec_of(sidecar).get("egress"))]
    wanted = [entry.partition("/") for one in listeners for entry in map(string, sequence(one.get("hosts")))]
    return not listeners or any(_takes(place, pod, namespace) and covers_host(name or _ANY, host) for place, _, name in wanted)


def _takes(place: str, pod: PodInQuestion, namespace: str) -> bool:
    return place == _ANY or namespace == (pod.namespace if place == _OWN else place)


def covers_host(pattern: str, host: str) -> bool:
    """Whether a host of a list is this one: `*` and `*.example.com` stand at its beginning."""
    pattern, host = pattern.lower(), host.removesuffix(".").lower()
    return host.endswith(pattern[1:]) if pattern.startswith(_ANY) else host == pattern
