"""The cluster's objects that are given: by kind, with those that could not be read. All values in them are untrusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from netinit.base.errors import ConfigError, ParseError
from netinit.base.net import MAX_PORT, read_addresses
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.manifests import Workload, workload
from netinit.inject.deciding.webhooks import Selector
from netinit.questions.why.asked import CLUSTER_DOMAIN

MAX_OBJECTS = 20_000  # a large namespace has some thousand
MAX_LISTED = 5  # of the same kind, in a sentence or as steps
DEFAULT_NAMESPACE, ROOT_NAMESPACE = "default", "istio-system"
SERVICE, SLICE, ENDPOINTS, POLICY = "Service", "EndpointSlice", "Endpoints", "NetworkPolicy"
MUTUAL, DESTINATION, SERVICE_ENTRY = "PeerAuthentication", "DestinationRule", "ServiceEntry"
SIDECAR, CONFIG_MAP = "Sidecar", "ConfigMap"
AUTHORIZATION, ROUTE = "AuthorizationPolicy", "VirtualService"
MESH = "istio"  # the ConfigMap that holds the MeshConfig
_GROUPS = {  # Knative has a Service too, Calico a NetworkPolicy
    SERVICE: "", ENDPOINTS: "", SLICE: "discovery.k8s.io", POLICY: "networking.k8s.io", MUTUAL: "security.istio.io",
    DESTINATION: "networking.istio.io", SERVICE_ENTRY: "networking.istio.io", SIDECAR: "networking.istio.io", CONFIG_MAP: "",
    AUTHORIZATION: "security.istio.io", ROUTE: "networking.istio.io",
    "Namespace": "", "MutatingWebhookConfiguration": "admissionregistration.k8s.io",
}  # fmt: skip
SERVICE_LABEL = "kubernetes.io/service-name"


def name_of(tree: Tree) -> str:
    """The object's name."""
    return string(mapping(tree.get("metadata")).get("name"))


def namespace_of(tree: Tree) -> str:
    """The object's namespace."""
    return string(mapping(tree.get("metadata")).get("namespace")) or DEFAULT_NAMESPACE


def age_of(tree: Tree) -> tuple[str, str, str]:
    """What sorts objects as Istio does: the older one first, of two from the same second by name and namespace."""
    return string(mapping(tree.get("metadata")).get("creationTimestamp")), name_of(tree), namespace_of(tree)


def spec_of(tree: Tree) -> Tree:
    """The object's spec."""
    return mapping(tree.get("spec"))


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """Objects by kind, and the workloads.

    `whole`: the kinds of which everything that matters is given, as from a cluster: what is not there does not exist.
    `unread`: kinds that could not be read, with the reason. `mesh`: the MeshConfig; None if it is not given, or cannot be read.
    """

    by_kind: Mapping[str, tuple[Tree, ...]] = field(default_factory=dict)
    workloads: tuple[Workload, ...] = ()
    whole: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    mesh: Tree | None = None

    @property
    def root_namespace(self) -> str:
        """The namespace whose Istio objects are the mesh's defaults."""
        return find_root_namespace(self.mesh)

    def list(self, kind: str, namespace: str) -> list[Tree]:
        """The objects of a kind in a namespace."""
        return [one for one in self.by_kind.get(kind, ()) if namespace_of(one) == namespace]

    def find(self, kind: str, namespace: str, name: str) -> Tree | None:
        """The object of this name, if it is given."""
        return next((one for one in self.list(kind, namespace) if name_of(one) == name), None)

    def why_unknown(self, kind: str) -> str:
        """Why it is not known which objects of a kind there are; empty if it is."""
        if kind in self.whole:
            return ""
        if kind in self.unread:
            return f"{kind} objects could not be read: {self.unread[kind]}"
        return f"other {kind} objects may not be given" if self.by_kind.get(kind) else f"no {kind} is given"

    def why_undecided(self, kind: str, found: Tree | None, namespace: str) -> str:
        """Why an object that could not be read may come before the one that was found for a pod of a namespace; empty if none can.

        A namespace's own objects come before those of the root namespace, and are read all or not at all.
        """
        is_own = found is not None and namespace_of(found) == namespace
        return self.why_unknown(kind) if kind in self.unread and not is_own else ""


def read_objects(trees: Iterable[object], *, whole: Iterable[str] = (), unread: Mapping[str, str] | None = None) -> ClusterObjects:
    """Sort objects by kind. Raises ParseError if there are more than MAX_OBJECTS, or a pod's spec is none."""
    by_kind: dict[str, list[Tree]] = {}
    found: list[Workload] = []
    for number, tree in enumerate(trees):
        if number == MAX_OBJECTS:
            raise ParseError(f"more than {MAX_OBJECTS} objects are given; give those of the namespaces in question")
        if not isinstance(tree, dict):
            continue
        kind, group = string(tree.get("kind")), string(tree.get("apiVersion")).rpartition("/")[0]
        if _GROUPS.get(kind) == group:
            by_kind.setdefault(kind, []).append(tree)
        elif (one := workload(tree)) is not None and not one.bare:
            found.append(one)
    mesh = read_mesh(by_kind.get(CONFIG_MAP, ()))
    return ClusterObjects({kind: tuple(some) for kind, some in by_kind.items()}, tuple(found), frozenset(whole), unread or {}, mesh)


def read_mesh(config_maps: Iterable[Tree]) -> Tree | None:
    """The MeshConfig of the ConfigMap `istio`; None if it is not among them, or cannot be read."""
    given = next((one for one in config_maps if (namespace_of(one), name_of(one)) == (ROOT_NAMESPACE, MESH)), None)
    text = mapping(mapping(given).get("data")).get("mesh")
    try:
        return mapping(next(iter(yaml_texts.load_all(text)), None)) if isinstance(text, str) else None
    except ParseError:
        return None


def find_root_namespace(mesh: Tree | None) -> str:
    """The namespace that a MeshConfig makes the root; Istio's default where it says nothing, or is not known."""
    return string(mapping(mesh).get("rootNamespace")) or ROOT_NAMESPACE


def labels_of(one: Workload) -> dict[str, str]:
    """The labels of a workload's pods."""
    return strings(mapping(one.created_pod()["metadata"]).get("labels"))


def selects(selector: object, labels: Mapping[str, str]) -> bool | None:
    """Whether a LabelSelector takes these labels, an empty one any; None if it cannot be read."""
    try:
        return Selector.parse(selector or {}).matches(labels)
    except ConfigError:
        return None


def full_name(service: Tree) -> str:
    """The host by which Istio knows a Service."""
    return f"{name_of(service)}.{namespace_of(service)}.svc.{CLUSTER_DOMAIN}"


def complete_host(host: str, namespace: str) -> str:
    """A host in an object of a namespace, as Istio completes it: one without a dot is that of a Service of the namespace."""
    is_short = host and "." not in host and host != "*"
    return f"{host}.{namespace}.svc.{CLUSTER_DOMAIN}" if is_short else host


class ServicePort(Record):
    """A port of a Service. `target`: the number or the name in the pods."""

    name: str
    number: int
    target: str
    protocol: str
    app_protocol: str = ""

    @property
    def target_number(self) -> int:
        """The target, if it is a number; 0 for a name."""
        return int(self.target) if self.target.isascii() and self.target.isdigit() and len(self.target) <= len(str(MAX_PORT)) else 0

    @property
    def title(self) -> str:
        """The port with its name."""
        return f"{self.number} ({self.name})" if self.name else str(self.number)


def list_ports(service: Tree) -> list[ServicePort]:
    """The ports of a Service."""
    found = []
    for one in map(mapping, sequence(spec_of(service).get("ports"))):
        number = one.get("port")
        if isinstance(number, int):
            target = string(one.get("targetPort")) or str(number)
            found.append(ServicePort(
                name=string(one.get("name")), number=number, target=target, protocol=string(one.get("protocol")).upper() or "TCP",
                app_protocol=string(one.get("appProtocol")),
            ))  # fmt: skip
    return found


def find_port(service: Tree, text: str) -> ServicePort | None:
    """The port of a Service by number or name."""
    return next((one for one in list_ports(service) if text in (str(one.number), one.name)), None)


class ServiceEndpoint(Record):
    """An address behind a Service."""

    address: str
    is_ready: bool


def list_endpoints(objects: ClusterObjects, namespace: str, name: str) -> list[ServiceEndpoint] | None:
    """The endpoints of a Service, by its slices or its Endpoints; None if they are not given."""
    slices = [
        one for one in objects.list(SLICE, namespace)
        if strings(mapping(one.get("metadata")).get("labels")).get(SERVICE_LABEL) == name
    ]  # fmt: skip
    if slices:
        return [one for tree in slices for one in _of_slice(tree)]
    older = objects.find(ENDPOINTS, namespace, name)
    if older is not None:
        return [one for subset in map(mapping, sequence(older.get("subsets"))) for one in _of_subset(subset)]
    return [] if SLICE in objects.whole else None


def find_service_of_endpoint(objects: ClusterObjects, address: str) -> tuple[str, str] | None:
    """Namespace and name of the Service whose slice has an address; None if none has."""
    for tree in objects.by_kind.get(SLICE, ()):
        name = strings(mapping(tree.get("metadata")).get("labels")).get(SERVICE_LABEL)
        if name and any(one.address == address for one in _of_slice(tree)):
            return namespace_of(tree), name
    return None


def _of_slice(tree: Tree) -> Iterator[ServiceEndpoint]:
    for one in map(mapping, sequence(tree.get("endpoints"))):
        is_ready = mapping(one.get("conditions")).get("ready") is not False
        for address in read_addresses(map(string, sequence(one.get("addresses")))):
            yield ServiceEndpoint(address=address, is_ready=is_ready)


def _of_subset(subset: Tree) -> Iterator[ServiceEndpoint]:
    for key, is_ready in (("addresses", True), ("notReadyAddresses", False)):
        listed = [string(mapping(one).get("ip")) for one in sequence(subset.get(key))]
        yield from [ServiceEndpoint(address=address, is_ready=is_ready) for address in read_addresses(listed)]
