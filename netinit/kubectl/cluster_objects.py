"""Reads, with get and list alone, what may be why a pod's connection fails: Services, endpoints, policies, the other end's pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from netinit.base.errors import ClusterError, NetinitError, ParseError
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.kubectl.objects import KINDS, POD, check_name, write_selector
from netinit.kubectl.program import Kubectl
from netinit.questions.why.asked import WhyQuestion, read_service_name
from netinit.questions.why.objects import (
    AUTHORIZATION,
    CONFIG_MAP,
    DESTINATION,
    MAX_LISTED,
    MESH,
    MUTUAL,
    POLICY,
    ROOT_NAMESPACE,
    ROUTE,
    SERVICE,
    SERVICE_ENTRY,
    SERVICE_LABEL,
    SIDECAR,
    SLICE,
    find_root_namespace,
    read_mesh,
)
from netinit.questions.why.services import PODS

RESOURCES = {  # kind -> what kubectl calls it, with its version, because kubectl may have cached an older one
    SLICE: "endpointslices.v1.discovery.k8s.io", POLICY: "networkpolicies.v1.networking.k8s.io",
    MUTUAL: "peerauthentications.security.istio.io", DESTINATION: "destinationrules.networking.istio.io",
    SERVICE_ENTRY: "serviceentries.networking.istio.io", SIDECAR: "sidecars.networking.istio.io",
    AUTHORIZATION: "authorizationpolicies.security.istio.io", ROUTE: "virtualservices.networking.istio.io",
}  # fmt: skip
WEBHOOKS = "mutatingwebhookconfigurations"
NOT_INSTALLED = "doesn't have a resource type"  # kubectl's words where a CRD is missing: then there are no such objects
_WORKLOADS = (POD, *dict.fromkeys(kind for kind in KINDS.values() if kind != POD))
MAX_REASON = 160  # characters of kubectl's error that are shown


@dataclass
class ClusterReader:
    """Reads objects and remembers of which kinds it could not."""

    kubectl: Kubectl
    chosen: Tree  # the pod in question, or what makes it
    found: dict[tuple[str, str, str], Tree] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def get(self, kind: str, *words: str) -> list[Tree]:
        """The object or the objects of a list that `kubectl get WORDS` gives; none if it may not be read, or is not there."""
        try:
            tree = self.kubectl.get(*words)
        except ClusterError as error:
            if NOT_INSTALLED not in str(error):
                self.unread.setdefault(kind, shorten(str(error), MAX_REASON))
            else:
                self.read.add(kind)
            return []
        self.read.add(kind)
        found = [one for one in sequence(tree.get("items")) if isinstance(one, dict)] if "items" in tree else [tree] if tree else []
        for one in found:
            self.found.setdefault(_identify(one), one)
        return found

    @property
    def trees(self) -> list[Tree]:
        """What was read, each object once, the one in question first."""
        return [self.chosen, *[one for key, one in self.found.items() if key != _identify(self.chosen)]]

    @property
    def whole(self) -> frozenset[str]:
        """The kinds of which everything was read that matters."""
        return frozenset(self.read - self.unread.keys())

    def read_around(self, pod: Tree, asked: WhyQuestion, *, is_injected: bool) -> None:
        """Read what a question about a pod needs."""
        home = string(mapping(pod.get("metadata")).get("namespace"))
        self.get("Namespace", "namespace", home)
        if not is_injected:
            self.get("MutatingWebhookConfiguration", WEBHOOKS)
        namespaces = {home}
        if asked.to or asked.name:
            namespaces |= self._read_destination(asked, home)
        if asked.client:
            namespaces |= self._read_client(asked.client, home)
            self.get(SERVICE, "services", "-n", home)
            self._read_slices(home)
        if asked.is_start or asked.name:
            return
        for namespace in sorted(namespaces):
            for kind in (POLICY, MUTUAL, DESTINATION, AUTHORIZATION):
                self.get(kind, RESOURCES[kind], "-n", namespace)
        given = self.get(CONFIG_MAP, "configmap", MESH, "-n", ROOT_NAMESPACE)
        root = check_name(find_root_namespace(read_mesh(given)), "rootNamespace")
        if root not in namespaces:
            for kind in (MUTUAL, DESTINATION, AUTHORIZATION):
                self.get(kind, RESOURCES[kind], "-n", root)
        if asked.to:
            for kind in (SERVICE_ENTRY, ROUTE):
                self.get(kind, RESOURCES[kind], "-A")
        for place in sorted({home, root} if asked.to else {*namespaces, root} if asked.client else ()):
            self.get(SIDECAR, RESOURCES[SIDECAR], "-n", place)

    def _read_destination(self, asked: WhyQuestion, home: str) -> set[str]:
        """Read the Service at the other end, with its endpoints and pods; return its namespace."""
        host = asked.to.host if asked.to else asked.name
        if asked.to and asked.to.address:
            return self._read_by_address(asked.to.address)
        name = read_service_name(host, home)
        if name is None:
            return set()
        if name.namespace != home and host.count(".") == 1 and not self.get("Namespace", "namespace", name.namespace):
            return set()  # a host such as example.com
        found = self.get(SERVICE, "service", name.name, "-n", name.namespace)
        if not found:
            self.get(SERVICE, "services", "-A", f"--field-selector=metadata.name={name.name}")
            return set()
        self._read_behind(found[0], name.namespace)
        return {name.namespace}

    def _read_by_address(self, address: str) -> set[str]:
        services = self.get(SERVICE, "services", "-A")
        own = [one for one in services if string(mapping(one.get("spec")).get("clusterIP")) == address]
        if not own:
            return set()
        home = check_name(mapping(own[0].get("metadata")).get("namespace"), "namespace")
        self._read_behind(own[0], home)
        return {home}

    def _read_behind(self, service: Tree, namespace: str) -> None:
        """Read the endpoints and the pods of a Service."""
        name = check_name(mapping(service.get("metadata")).get("name"), "service")
        self.get(SLICE, RESOURCES[SLICE], "-n", namespace, "-l", f"{SERVICE_LABEL}={name}")
        selector = strings(mapping(service.get("spec")).get("selector"))
        if not selector:
            return
        words = write_selector({"spec": {"selector": {"matchLabels": selector}}})
        if not self.get(PODS, "pods", "-n", namespace, "-l", words):
            self.get(PODS, "deployment", name, "-n", namespace)  # the one that the selector probably means

    def _read_slices(self, namespace: str) -> None:
        self.get(SLICE, RESOURCES[SLICE], "-n", namespace)

    def _read_client(self, client: str, home: str) -> set[str]:
        """Read the client's pod, or the workload that makes it; return its namespace."""
        namespace, _, name = client.rpartition("/")
        if not any(letter.isalpha() for letter in name) or ":" in name:
            found = self.get(PODS, "pods", "-A", f"--field-selector=status.podIP={name}")
            return {check_name(mapping(one.get("metadata")).get("namespace"), "namespace") for one in found[:MAX_LISTED]}
        namespace = namespace or home
        for kind in _WORKLOADS:
            if self.get(f"client {kind}", kind, name, "-n", namespace):
                self.get("Namespace", "namespace", namespace)
                return {namespace}
        return set()


def _identify(tree: Tree) -> tuple[str, str, str]:
    metadata = mapping(tree.get("metadata"))
    return string(tree.get("kind")), string(metadata.get("namespace")), string(metadata.get("name"))


def read_pods_of(kubectl: Kubectl, kind: str, tree: Tree) -> list[Tree]:
    """The pods of a workload, those first that are not ready; none if it has none, or they may not be read."""
    home = check_name(mapping(tree.get("metadata")).get("namespace"), "namespace")
    if kind == POD:
        return [tree]
    try:
        listed = sequence(kubectl.get("pods", "-n", home, "-l", write_selector(tree)).get("items"))
    except (ClusterError, ParseError):
        return []
    return sorted([one for one in listed if isinstance(one, dict)], key=is_ready)[:MAX_LISTED]


def is_ready(pod: Tree) -> bool:
    """Whether a pod's conditions say that it is ready."""
    conditions: Iterable[Tree] = map(mapping, sequence(mapping(pod.get("status")).get("conditions")))
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def find_object(kubectl: Kubectl, kind: str, name: str, namespace: str) -> Tree:
    """The object of this kind and name. Raises NetinitError if there is none."""
    where = ("-n", namespace) if namespace else ()
    tree = kubectl.get(kind, name, *where)
    if not tree:
        raise NetinitError(f"there is no {kind} {name}{f' in the namespace {namespace}' if namespace else ''}")
    return tree
