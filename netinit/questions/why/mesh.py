"""The mesh's settings (MeshConfig, in the ConfigMap `istio`), as far as connections fail because of them."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.errors import ParseError
from netinit.base.findings import FindingKind
from netinit.base.net import Network, covers, family_of
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.inject.deciding import yaml_texts
from netinit.questions.why.asked import CLUSTER_DOMAIN, Endpoint
from netinit.questions.why.objects import (
    CONFIG_MAP,
    ROOT_NAMESPACE,
    SERVICE,
    SERVICE_ENTRY,
    SIDECAR,
    ClusterObjects,
    name_of,
    namespace_of,
    spec_of,
)
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.sidecars import covers_host, find_sidecar, imports, mode_of
from netinit.questions.why.steps import Step, failed, name_object, passed, unknown

NOT_REGISTERED = FindingKind(
    "NI334", "not-registered",
    "The proxy does not know the destination, which is no Service or one that the pod's Sidecar resource does not import, and "
    "passes on nothing else (outboundTrafficPolicy REGISTRY_ONLY): it resets the connection, and HTTP gets 502. Create a "
    "ServiceEntry of the host, import it in the Sidecar, or set the mode ALLOW_ANY there or in the mesh's settings.",
)

NAME = "registry"
MESH, REGISTRY_ONLY, ALLOW_ANY = "istio", "REGISTRY_ONLY", "ALLOW_ANY"


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


def examine_registry(pod: PodInQuestion, to: Endpoint, service: Tree | None, objects: ClusterObjects) -> Iterator[Step]:
    """Say whether the proxy lets a connection out: to what is no Service, or to a Service that its Sidecar does not import."""
    about, sidecar = f"to {quote(to.title)}", find_sidecar(pod, objects)
    what, registered = _describe(pod, to, service, sidecar, objects)
    if registered:
        yield from [passed(NAME, registered, about)] if service is None else []
        return
    mode, source = _find_mode(sidecar, objects)
    remedy = f"create a ServiceEntry of {to.host}, or set outboundTrafficPolicy: {{mode: ALLOW_ANY}}"
    if service is not None:
        remedy = f"add {quote(f'{namespace_of(service)}/*')} to the hosts of egress in the Sidecar"
    if not mode:
        text = f"{what}: the proxy resets it if outboundTrafficPolicy is {REGISTRY_ONLY}, which is not known"
        show = f"kubectl get configmap {MESH} -n {ROOT_NAMESPACE} -o yaml"
        yield unknown(NAME, text, about, shown_by=show, kind=NOT_REGISTERED)
    elif mode != REGISTRY_ONLY:
        unread = "" if sidecar else objects.why_unknown(SIDECAR)
        text = f"{what}, and the proxy passes it on as it is (outboundTrafficPolicy {mode})"
        yield unknown(NAME, f"{text}, unless a Sidecar says otherwise: {unread}", about) if unread else passed(NAME, text, about)
    else:
        text = f"{what}, and {source} has outboundTrafficPolicy {REGISTRY_ONLY}"
        show = f"istioctl proxy-config clusters {pod.kubectl_name} -n {pod.namespace}"
        yield _refuse(text, about, objects, by_address=bool(to.address), is_service=service is not None, remedy=remedy, show=show)


def _describe(
    pod: PodInQuestion, to: Endpoint, service: Tree | None, sidecar: Tree | None, objects: ClusterObjects
) -> tuple[str, str]:
    """What the proxy does not know of a destination, or as what it knows it."""
    if service is None:
        entries = [one for one in objects.by_kind.get(SERVICE_ENTRY, ()) if sidecar is None or _is_imported(one, sidecar, pod)]
        names = any(_names(one, to) for one in entries)
        return "it is no Service that is given", "a ServiceEntry names it" if names else ""
    host = f"{name_of(service)}.{namespace_of(service)}.svc.{CLUSTER_DOMAIN}"
    if sidecar is None or imports(sidecar, pod, namespace_of(service), host):
        return "", "it is a Service"
    return f"{name_object(SIDECAR, namespace_of(sidecar), name_of(sidecar))} does not import it", ""


def _find_mode(sidecar: Tree | None, objects: ClusterObjects) -> tuple[str, str]:
    """The mode of outboundTrafficPolicy, and what sets it; empty if it is not known."""
    if sidecar is not None and (own := mode_of(sidecar)):
        return own, name_object(SIDECAR, namespace_of(sidecar), name_of(sidecar))
    mesh = read_mesh(objects)
    return ("", "") if mesh is None else (string(mapping(mesh.get("outboundTrafficPolicy")).get("mode")) or ALLOW_ANY, "the mesh")


def _refuse(
    text: str, about: str, objects: ClusterObjects, *, by_address: bool, is_service: bool, remedy: str, show: str
) -> Step:
    """What REGISTRY_ONLY means, as far as it is known what is registered."""
    why = "" if is_service else objects.why_unknown(SERVICE_ENTRY) or (objects.why_unknown(SERVICE) if by_address else "")
    if why:
        return unknown(NAME, f"{text}: the proxy resets it unless it is registered ({why})", about, remedy=remedy, kind=NOT_REGISTERED)
    text = text if is_service else f"{text}, and no ServiceEntry names it"
    return failed(NAME, NOT_REGISTERED, f"{text}: the proxy resets it (BlackHoleCluster)", about, remedy=remedy, shown_by=show)


def _is_imported(entry: Tree, sidecar: Tree, pod: PodInQuestion) -> bool:
    hosts = map(string, sequence(spec_of(entry).get("hosts")))
    return any(imports(sidecar, pod, namespace_of(entry), host) for host in hosts)


def _names(entry: Tree, to: Endpoint) -> bool:
    """Whether a ServiceEntry is about a host, or an address."""
    spec = spec_of(entry)
    if to.address:
        return any(_covers(one, to.address) for one in _list_addresses(spec))
    return any(covers_host(one, to.host) for one in sequence(spec.get("hosts")) if isinstance(one, str))


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
