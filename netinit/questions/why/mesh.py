"""The mesh's settings (MeshConfig, in the ConfigMap `istio`), as far as connections fail because of them."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.errors import ParseError
from netinit.base.findings import FindingKind
from netinit.base.net import Network, covers, family_of
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.inject.deciding import yaml_texts
from netinit.questions.why.asked import Endpoint
from netinit.questions.why.objects import (
    CONFIG_MAP,
    ROOT_NAMESPACE,
    SERVICE,
    SERVICE_ENTRY,
    ClusterObjects,
    name_of,
    spec_of,
)
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.steps import Step, failed, passed, unknown

NOT_REGISTERED = FindingKind(
    "NI334", "not-registered",
    "The destination is no Service, and the mesh's proxies pass on only what is registered (outboundTrafficPolicy "
    "REGISTRY_ONLY): the proxy resets the connection, and HTTP gets 502. Create a ServiceEntry of the host, or set the "
    "mode ALLOW_ANY, in the mesh's settings or in a Sidecar.",
)

NAME = "registry"
MESH, REGISTRY_ONLY = "istio", "REGISTRY_ONLY"


def read_mesh(objects: ClusterObjects) -> Tree | None:
    """The MeshConfig among the objects; None if it is not given, or cannot be read."""
    given = [mapping(one.get("data")).get("mesh") for one in objects.list(CONFIG_MAP, ROOT_NAMESPACE) if name_of(one) == MESH]
    try:
        trees = [tree for text in given[:1] for tree in yaml_texts.load_all(string(text))]
    except ParseError:
        return None
    return mapping(trees[0]) if trees else None


def find_detection_limit(objects: ClusterObjects) -> str:
    """How long a proxy waits for the client's first bytes, as the mesh's settings say it; empty for ever, Istio's default."""
    text = string(mapping(read_mesh(objects)).get("protocolDetectionTimeout"))
    return text if any(one in "123456789" for one in text) else ""


def examine_registry(pod: PodInQuestion, to: Endpoint, objects: ClusterObjects) -> Step:
    """Say whether the proxy lets a connection out to what is no Service."""
    about, mesh = f"to {quote(to.title)}", read_mesh(objects)
    show = f"istioctl proxy-config clusters {pod.kubectl_name} -n {pod.namespace}"
    remedy = f"create a ServiceEntry of {to.host}, or set outboundTrafficPolicy: {{mode: ALLOW_ANY}}"
    if any(_names(one, to) for one in objects.by_kind.get(SERVICE_ENTRY, ())):
        return passed(NAME, "a ServiceEntry names it", about)
    if mesh is None:
        text = f"it is no Service that is given: the proxy resets it if outboundTrafficPolicy is {REGISTRY_ONLY}, which is not known"
        show = f"kubectl get configmap {MESH} -n {ROOT_NAMESPACE} -o yaml"
        return unknown(NAME, text, about, shown_by=show, kind=NOT_REGISTERED)
    if string(mapping(mesh.get("outboundTrafficPolicy")).get("mode")) != REGISTRY_ONLY:
        return passed(NAME, "it is no Service, and the proxy passes it on (outboundTrafficPolicy ALLOW_ANY)", about)
    text = f"it is no Service, and the mesh's outboundTrafficPolicy is {REGISTRY_ONLY}"
    why = objects.why_unknown(SERVICE_ENTRY) or (objects.why_unknown(SERVICE) if to.address else "")
    if why:
        text = f"{text}: the proxy resets it unless it is registered ({why})"
        return unknown(NAME, text, about, remedy=remedy, kind=NOT_REGISTERED)
    text = f"{text}, and no ServiceEntry names it: the proxy resets it (BlackHoleCluster)"
    return failed(NAME, NOT_REGISTERED, text, about, remedy=remedy, shown_by=show)


def _names(entry: Tree, to: Endpoint) -> bool:
    """Whether a ServiceEntry is about a host, or an address."""
    spec = spec_of(entry)
    if to.address:
        return any(_covers(one, to.address) for one in _list_addresses(spec))
    hosts = [one for one in sequence(spec.get("hosts")) if isinstance(one, str)]
    host = to.host.removesuffix(".")
    return any(host.endswith(one[1:]) if one.startswith("*") else host == one.lower() for one in hosts)


def _list_addresses(spec: Tree) -> Iterator[str]:
    yield from map(string, sequence(spec.get("addresses")))
    yield from [string(mapping(one).get("address")) for one in sequence(spec.get("endpoints"))]


def _covers(text: str, address: str) -> bool:
    try:
        return covers(_read_network(text), _read_network(address))
    except ValueError:
        return False  # a host name


def _read_network(text: str) -> Network:
    """A network, or an address as one. Raises ValueError."""
    return Network.parse(text if "/" in text else f"{text}/{family_of(text).bits}")
