"""The step "service": whether the Service exists, has this port, selects pods, and has ready endpoints there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from netinit.base.findings import FindingKind
from netinit.base.net import parse_address
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, string, strings
from netinit.inject.deciding.containers import all_containers, named
from netinit.inject.deciding.manifests import Workload
from netinit.questions.why.asked import Endpoint, ServiceName
from netinit.questions.why.objects import (
    DEFAULT_NAMESPACE,
    MAX_LISTED,
    SERVICE,
    ClusterObjects,
    ServicePort,
    find_port,
    labels_of,
    list_endpoints,
    list_ports,
    name_of,
    namespace_of,
    spec_of,
)
from netinit.questions.why.steps import Step, count_unexamined, failed, name_first, name_object, passed, unknown

NO_SUCH_SERVICE = FindingKind(
    "NI318", "no-such-service",
    "There is no Service of this name in this namespace: a short name is completed with the client's own namespace "
    "alone (NXDOMAIN). Write NAME.NAMESPACE.",
)
NO_SUCH_PORT = FindingKind(
    "NI319", "no-such-port",
    "The Service has no such port. A connection to a port that is not listed is sent nowhere, and times out or is "
    "refused.",
)
NO_ENDPOINTS = FindingKind(
    "NI320", "no-endpoints",
    "The Service has no ready endpoint: its selector matches no pod, or the pods' readiness probes fail. A proxy "
    "answers 503 (UH), and without one the connection is refused or times out.",
)
NO_TARGET_PORT = FindingKind(
    "NI321", "no-target-port",
    "targetPort is the name of no containerPort of the pods that the Service selects, so that the Service has no "
    "endpoint for this port.",
)
HEADLESS_PORT = FindingKind(
    "NI322", "headless-port",
    "A headless Service (clusterIP: None) translates no ports: clients get the pods' addresses and connect to the "
    "port that they were told. Connect to targetPort, or use a Service with an address.",
)
ONLY_A_NAME = FindingKind(
    "NI323", "external-name",
    "A Service of type ExternalName is another name in DNS and nothing else: its ports mean nothing, an address is "
    "no name, and the other host sees the name that the client asked for.",
)

NAME = "service"
EXTERNAL_NAME, HEADLESS = "ExternalName", "None"
PODS = "Pod"


class ServiceDestination(Record):
    """Where a connection to a Service goes: its port, the addresses that a client sees, and the workloads behind it."""

    service: Tree
    port: ServicePort
    addresses: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] = ()

    @property
    def about(self) -> str:
        """The Service in words."""
        return title_of(self.service)


def title_of(service: Tree) -> str:
    """The Service in words."""
    return name_object(SERVICE, namespace_of(service), name_of(service))


def examine_missing(name: ServiceName, host: str, objects: ClusterObjects) -> Step:
    """Say that there is no Service of this name, and where there is one."""
    about = name_object(SERVICE, name.namespace, name.name)
    elsewhere = [namespace_of(one) for one in objects.by_kind.get(SERVICE, ()) if name_of(one) == name.name]
    if elsewhere and not objects.find(SERVICE, name.namespace, name.name):
        home = elsewhere[0]
        text = f"does not exist, but one in the namespace {quote(home)} does: {quote(host)} does not resolve here (NXDOMAIN)"
        return failed(NAME, NO_SUCH_SERVICE, text, about, remedy=f"write {name.name}.{home}")
    why = objects.why_unknown(SERVICE)
    if why:
        text = f"it is not known whether it exists: {why}"
        return unknown(NAME, text, about, remedy="give its manifest too", kind=NO_SUCH_SERVICE)
    return failed(
        NAME, NO_SUCH_SERVICE, f"does not exist, so {quote(host)} does not resolve (NXDOMAIN)", about,
        remedy="correct the name, as NAME.NAMESPACE, or create the Service",
    )  # fmt: skip


def find_destination(service: Tree, asked: Endpoint, objects: ClusterObjects) -> ServiceDestination | None:
    """Find the port that is asked for, and what is behind it; None if the Service has no such port."""
    cluster_ip = string(spec_of(service).get("clusterIP"))
    of_pods = list_ports(service) if asked.address and asked.address != cluster_ip else []
    port = next((one for one in of_pods if one.target_number == asked.number), None) or find_port(service, asked.port)
    if port is None:
        return None
    endpoints = list_endpoints(objects, namespace_of(service), name_of(service)) or []
    addresses = [cluster_ip] if _is_address(cluster_ip) else [one.address for one in endpoints if one.is_ready]
    return ServiceDestination(service=service, port=port, addresses=tuple(addresses), workloads=tuple(list_selected(service, objects)))


def list_selected(service: Tree, objects: ClusterObjects) -> list[Workload]:
    """The workloads that a Service selects."""
    home = namespace_of(service)
    here = [one for one in objects.workloads if (one.namespace or DEFAULT_NAMESPACE) == home]
    return [one for one in here if is_selected(service, labels_of(one))]


def is_selected(service: Tree, labels: Mapping[str, str]) -> bool:
    """Whether a Service selects pods with these labels; one without a selector selects none."""
    selector = strings(spec_of(service).get("selector"))
    return bool(selector) and selector.items() <= labels.items()


def examine_service(service: Tree, asked: Endpoint, found: ServiceDestination | None, objects: ClusterObjects) -> Iterator[Step]:
    """Say what is wrong with a Service for this port; one step passed if nothing is."""
    about = title_of(service)
    if string(spec_of(service).get("type")) == EXTERNAL_NAME:
        yield _judge_external(service, about)
        return
    if found is None:
        known = name_first([one.title for one in list_ports(service)])
        text = f"has no port {quote(asked.port)}; it has {known or 'none'}"
        remedy = f"use one of its ports: {known}" if known else "add the port to the Service"
        yield failed(NAME, NO_SUCH_PORT, text, about, remedy=remedy)
        return
    is_target = bool(asked.address) and asked.number == found.port.target_number
    problems = [*_judge_selection(service, found, objects), *([] if is_target else _judge_target(found))]
    yield from problems
    if not problems:
        yield passed(NAME, f"exists, with port {found.port.title} to {found.port.target} of its pods", about)


def _judge_external(service: Tree, about: str) -> Step:
    target = string(spec_of(service).get("externalName"))
    if _is_address(target):
        text = f"type ExternalName with the address {quote(target)}: DNS answers with it as if it were a name, which no resolver knows"
        remedy = "make it a Service without selector, with an EndpointSlice of the address"
        return failed(NAME, ONLY_A_NAME, text, about, remedy=remedy)
    text = f"is another name of {quote(target)} (ExternalName): the client asks for the first one, by HTTP's Host and TLS's SNI too"
    remedy = f"ask with --to {target}:PORT, and use that name in the client; or declare it by a ServiceEntry"
    return unknown(NAME, text, about, remedy=remedy, kind=ONLY_A_NAME)


def _judge_selection(service: Tree, found: ServiceDestination, objects: ClusterObjects) -> Iterator[Step]:
    """What keeps the Service from having endpoints."""
    about, spec = found.about, spec_of(service)
    selector = strings(spec.get("selector"))
    endpoints = list_endpoints(objects, namespace_of(service), name_of(service))
    ready = [one for one in endpoints or () if one.is_ready]
    written = ", ".join([f"{key}={value}" for key, value in selector.items()])
    if endpoints is not None and not ready and endpoints:
        text = f"has {len(endpoints)} endpoints, and none is ready: nothing answers, and the name of a headless one does not resolve"
        yield failed(NAME, NO_ENDPOINTS, text, about, remedy="ask why the pods' probes fail: --probe of one of them")
    elif selector and not found.workloads and not ready:
        near = _find_nearest(service, objects)
        if near:
            text = f"selects no pod ({quote(written)}); {near.title} has {quote(_write(labels_of(near), selector))}"
            yield failed(NAME, NO_ENDPOINTS, text, about, remedy="let the selector name labels that the pods have")
        elif endpoints == [] or PODS in objects.whole:
            yield failed(
                NAME, NO_ENDPOINTS, f"has no endpoints: no pod has the labels {quote(written)}", about,
                remedy="let the selector name labels that the pods have, or start the pods",
            )  # fmt: skip
        else:
            text = f"its pods are not known: none with the labels {quote(written)} is given"
            yield unknown(NAME, text, about, remedy="give their manifests too", kind=NO_ENDPOINTS)
    elif endpoints == []:
        yield failed(NAME, NO_ENDPOINTS, "has no endpoints", about, remedy="start its pods, or create its EndpointSlice")


def _write(labels: Mapping[str, str], keys: Mapping[str, str]) -> str:
    return ", ".join([f"{key}={labels[key]}" if key in labels else f"no label {key}" for key in keys])


def _find_nearest(service: Tree, objects: ClusterObjects) -> Workload | None:
    """A workload that the selector probably means: of the Service's name, or with a part of its labels."""
    selector, home = strings(spec_of(service).get("selector")), namespace_of(service)
    here = [one for one in objects.workloads if (one.namespace or DEFAULT_NAMESPACE) == home]
    same = [one for one in here if one.name == name_of(service)]
    partly = [one for one in here if selector.items() & labels_of(one).items()]
    return next(iter((*same, *partly)), None)


def _judge_target(found: ServiceDestination) -> Iterator[Step]:
    """What is wrong with the port behind the Service's port."""
    port, headless = found.port, spec_of(found.service).get("clusterIP") == HEADLESS
    if not port.target_number:
        for one in found.workloads[:MAX_LISTED]:
            spec = mapping(one.created_pod()["spec"])
            numbers = _numbers_of(spec, port.target)
            if not numbers:
                text = f"targetPort {quote(port.target)} is the name of no port of {one.title}: no endpoint for port {port.number}"
                remedy = f"name a containerPort {port.target}, or give targetPort a number"
                yield failed(NAME, NO_TARGET_PORT, text, found.about, remedy=remedy)
            elif headless and port.number not in numbers:
                yield _headless(found, str(numbers[0]))
        yield from count_unexamined(NAME, found.workloads, "workloads that it selects", found.about)
    elif headless and port.target_number != port.number:
        yield _headless(found, port.target)


def _headless(found: ServiceDestination, target: str) -> Step:
    text = (
        f"is headless (clusterIP: None): clients connect to the pods themselves, nothing translates port {found.port.number} to"
        f" {target}, and nothing listens on {found.port.number} there"
    )
    return failed(NAME, HEADLESS_PORT, text, found.about, remedy=f"connect to port {target}, or leave out clusterIP: None")


def _numbers_of(spec: Tree, name: str) -> Sequence[int]:
    ports = [port for one in all_containers(spec) for port in named(one.get("ports")) if port.get("name") == name]
    return [port["containerPort"] for port in ports if isinstance(port.get("containerPort"), int)]


def target_numbers(found: ServiceDestination, spec: Tree) -> Sequence[int]:
    """The pod's ports that a Service's port leads to."""
    return [found.port.target_number] if found.port.target_number else _numbers_of(spec, found.port.target)


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True
