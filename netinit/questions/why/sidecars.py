"""Sidecar resources: what of the mesh a pod's proxy knows, and what it does with the rest (networking.istio.io, Sidecar).

As Istio reads them (pilot/pkg/model/sidecar.go, and buildSidecarOutboundListeners in pilot/pkg/networking/core/listener.go).
"""

from __future__ import annotations

from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.questions.why.objects import SIDECAR, ClusterObjects, age_of, namespace_of, spec_of
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.protocols import DETECTED, HTTP

_ANY, _OWN, _EXCLUDED = "*", ".", "~"
_NO_CAPTURE, _PROXY_PROTOCOL = "NONE", "HTTP_PROXY"


def find_sidecar(pod: PodInQuestion, objects: ClusterObjects) -> Tree | None:
    """The Sidecar of a pod's proxy: one that selects the pod, else that of its namespace, else of the root namespace; the oldest."""
    by_age = sorted(objects.by_kind.get(SIDECAR, ()), key=age_of)
    here = [one for one in by_age if namespace_of(one) == pod.namespace]
    of_workload = [one for one in here if (asked := _selector_of(one)) is not None and asked.items() <= pod.labels.items()]
    of_namespace = [one for one in here if _selector_of(one) is None]
    of_root = [one for one in by_age if namespace_of(one) == objects.root_namespace and _selector_of(one) is None]
    return next(iter((*of_workload, *of_namespace, *of_root)), None)


def _selector_of(sidecar: Tree) -> dict[str, str] | None:
    """The labels of workloadSelector; None without one. One without labels selects every pod of its namespace."""
    selector = spec_of(sidecar).get("workloadSelector")
    return strings(selector.get("labels")) if isinstance(selector, dict) else None


class Import(Record):
    """A host of a namespace, as a Sidecar may import it. `port`: 0 if it is not known; `protocol`: what Istio takes the port for."""

    host: str
    namespace: str
    port: int
    protocol: str


def imports(sidecar: Tree, pod: PodInQuestion, asked: Import) -> bool | None:
    """Whether a pod's proxy knows a host because of `egress`, which imports all if it is empty; None if that is not known.

    A listener with a port is about this port alone, and is the only one for HTTP there. TCP to a Service that only the listener
    without a port imports works on this port too; of a detected protocol it depends on the client's first bytes.
    """
    listeners = [mapping(one) for one in sequence(spec_of(sidecar).get("egress"))]
    of_port = [one for one in listeners if asked.port and mapping(one.get("port")).get("number") == asked.port]
    others = [one for one in listeners if one.get("port") is None or not asked.port]
    here, there = ([one for one in some if _takes(one, pod, asked)] for some in (of_port, others))
    if not listeners or not (here or there):
        return not listeners
    if not asked.port or not all(map(_is_for_captured, here or there)):
        return None
    if here or not of_port:
        return True
    return None if asked.protocol == DETECTED else asked.protocol != HTTP


def _is_for_captured(listener: Tree) -> bool:
    """Whether a listener gets captured connections; one with an address of its own waits for clients that connect to it."""
    is_captured = not listener.get("bind") and string(listener.get("captureMode")) != _NO_CAPTURE
    return is_captured and string(mapping(listener.get("port")).get("protocol")).upper() != _PROXY_PROTOCOL


def _takes(listener: Tree, pod: PodInQuestion, asked: Import) -> bool:
    """Whether NAMESPACE/HOST of a listener's hosts names a host, and ~NAMESPACE/HOST does not exclude it; ~ alone is any namespace."""
    is_named = False
    for entry in map(string, sequence(listener.get("hosts"))):
        place, slash, name = entry.partition("/")
        bare = place.removeprefix(_EXCLUDED) or _ANY
        home = pod.namespace if bare == _OWN else bare
        if place and slash and home in (_ANY, asked.namespace) and covers_host(name, asked.host):
            if place.startswith(_EXCLUDED):
                return False
            is_named = True
    return is_named


def covers_host(pattern: str, host: str) -> bool:
    """Whether a host of a list is this one: `*` and `*.example.com` stand at its beginning."""
    pattern, host = pattern.lower(), host.removesuffix(".").lower()
    return host.endswith(pattern[1:]) if pattern.startswith(_ANY) else host == pattern
