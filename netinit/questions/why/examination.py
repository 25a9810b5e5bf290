"""Which steps a question takes, in which order: those of the pod, then those along the way of the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from netinit.base.net import join_host, parse_address
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, string
from netinit.inject.deciding.manifests import Workload
from netinit.options.kinds import ALL
from netinit.questions.connections import Question
from netinit.questions.why.asked import Endpoint, ServiceName, WhyQuestion, read_service_name
from netinit.questions.why.connection import RULES, ConnectionAnswer, Explain, ask, examine_answers
from netinit.questions.why.injection import examine_injection
from netinit.questions.why.interfaces import examine_interfaces
from netinit.questions.why.manifest import examine_manifest
from netinit.questions.why.mutual_tls import ClientTls, Ends, examine_mutual_tls, find_rule
from netinit.questions.why.names import MAX_SERVERS, examine_name
from netinit.questions.why.names import NAME as DNS
from netinit.questions.why.objects import (
    DEFAULT_NAMESPACE,
    MAX_LISTED,
    SERVICE,
    ClusterObjects,
    find_service_of_endpoint,
    full_name,
    list_ports,
    name_of,
    namespace_of,
    spec_of,
)
from netinit.questions.why.pods import PodInQuestion, addresses_of
from netinit.questions.why.policies import EGRESS, INGRESS, examine_authorization, examine_policies, examine_routes
from netinit.questions.why.probes import examine_probes
from netinit.questions.why.protocols import examine_protocol, find_detection_limit
from netinit.questions.why.registry import REGISTRY_ONLY, Registration, examine_registry, find_policy, find_registration
from netinit.questions.why.services import (
    ServiceDestination,
    examine_missing,
    examine_service,
    find_destination,
    is_selected,
    target_numbers,
    title_of,
)
from netinit.questions.why.start_up import (
    examine_init_containers,
    examine_job,
    examine_order,
    examine_ports,
    examine_state,
)
from netinit.questions.why.steps import (
    FAILED,
    UNKNOWN,
    Step,
    WhyReport,
    collect,
    count_unexamined,
    name_first,
    passed,
    unknown,
)
from netinit.questions.why.users import examine_users
from netinit.simulate.trace import CAPTURED, DIRECT

CLIENT, SERVER, SERVICE_STEP = "client", "server", "service"
STAND_IN = "198.51.100.1"  # for a Service whose address is not given, where rules treat all addresses alike; of documentation
_SCRAPED = "prometheus.io/port"
_MERGED = 'or scrape the agent on 15020, which injection writes into prometheus.io/port (prometheus.istio.io/merge-metrics: "true")'
ReadPod = Callable[[Workload], PodInQuestion]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an examination knows. `read`: makes a pod of a workload; `explain`: answers questions about the pod's rules."""

    objects: ClusterObjects
    read: ReadPod
    explain: Explain
    sources: tuple[str, ...] = ()


def examine(asked: WhyQuestion, pod: PodInQuestion, known: Evidence) -> WhyReport:
    """Take the steps that a question needs. Raises nothing for what the objects hold."""
    return WhyReport(asked.words, pod.title, collect(_take_steps(asked, pod, known)), known.sources)


def _take_steps(asked: WhyQuestion, pod: PodInQuestion, known: Evidence) -> Iterator[Step]:
    yield from examine_manifest(pod)
    yield from examine_injection(pod)
    yield from examine_users(pod)
    yield from examine_init_containers(pod, asked)
    if asked.is_start:
        yield from examine_job(pod)
        yield from examine_ports(pod)
        yield from examine_order(pod)
    yield from examine_state(pod)
    if not asked.client:
        yield from examine_interfaces(pod, ())
    if asked.to:
        yield from _follow_out(asked, asked.to, pod, known)
    elif asked.client:
        yield from _follow_in(asked, pod, known)
    elif asked.probe:
        yield from examine_probes(pod, known.objects, known.explain)
    elif asked.name:
        yield from examine_name(pod, asked.name, known.objects, asked)
        yield from _find_by_name(asked.name, pod, known)[1]
        yield from _ask_resolver(pod, known)


# --- to a destination ---


def _follow_out(asked: WhyQuestion, to: Endpoint, pod: PodInQuestion, known: Evidence) -> Iterator[Step]:
    service, missing = _find_service(to, pod, known)
    if not to.address:
        yield from examine_name(pod, to.host, known.objects, asked)
    yield from missing
    if any(one.outcome == FAILED for one in missing):
        return  # there is nothing to connect to
    found = find_destination(service, to, known.objects) if service else None
    if service is not None:
        yield from examine_service(service, to, found, known.objects)
    if found:
        limit = find_detection_limit(known.objects)
        show = f"istioctl proxy-config listeners {pod.kubectl_name} -n {pod.namespace} --port {found.port.number}"
        yield from examine_protocol(found.port, found.about, show, asked_udp=asked.udp, limit=limit)
    answers: list[ConnectionAnswer] = []
    targets, problem = _list_targets(to, found, pod)
    if pod.facts and not pod.host_network:
        yield from _ask_out(asked, targets, pod, known, answers)
        yield from [unknown(RULES, problem, pod.title)] if problem else []
    registration = find_registration(pod, to, service, found.port if found else None, known.objects)
    refused: list[Step] = []
    if not any(one.outcome == UNKNOWN for one in missing) and any(one.verdict == CAPTURED for one in answers):
        steps = [*examine_registry(pod, to, registration, known.objects, is_service=service is not None)]
        yield from steps
        refused = [one for one in steps if one.outcome == FAILED]
        if not refused and not asked.udp and (service is not None or not to.address):
            yield from examine_routes(pod, full_name(service) if service is not None else to.host, known.objects)
    is_past = any(one.verdict == DIRECT and one.change for one in answers) or bool(pod.facts and pod.facts.shared_owners)
    if found and not asked.udp:
        doubt = "" if answers else problem or "what the rules do with the connection is not known"
        ends = Ends(
            client=pod, name="", server=pod, rule=find_rule(found.service, found.port.number, pod, known.objects), is_past=is_past,
            registration=registration, doubt=doubt,
        )  # fmt: skip
        yield from _examine_servers(found, known, None if refused else ends)
    yield from examine_policies(pod, EGRESS, known.objects)


def _find_service(to: Endpoint, pod: PodInQuestion, known: Evidence) -> tuple[Tree | None, list[Step]]:
    """The Service that a connection goes to, and what is to be said if there is none."""
    return (_find_by_address(to.address, known.objects), []) if to.address else _find_by_name(to.host, pod, known)


def _find_by_name(host: str, pod: PodInQuestion, known: Evidence) -> tuple[Tree | None, list[Step]]:
    """The Service of a name, and what is to be said if there is none."""
    name = read_service_name(host, pod.namespace)
    if name is None:
        return None, []
    if (service := known.objects.find(SERVICE, name.namespace, name.name)) is not None:
        return service, []
    if _may_be_outside(host, name, pod, known.objects):
        text = "is taken for a host outside: no namespace of that name is given"
        return None, [passed(SERVICE_STEP, text, f"the name {quote(host)}")]
    return None, [examine_missing(name, host, known.objects)]


def _may_be_outside(host: str, name: ServiceName, pod: PodInQuestion, objects: ClusterObjects) -> bool:
    """Whether a name of two parts, such as example.com, is more likely none of a Service."""
    given = {namespace_of(one) for some in objects.by_kind.values() for one in some}
    given |= {one.namespace or DEFAULT_NAMESPACE for one in objects.workloads}
    given |= {name_of(one) for one in objects.by_kind.get("Namespace", ())}
    return host.count(".") == 1 and name.namespace not in given | {pod.namespace}


def _find_by_address(address: str, objects: ClusterObjects) -> Tree | None:
    """The Service that has an address, or an endpoint of it."""
    services = objects.by_kind.get(SERVICE, ())
    own = next((one for one in services if string(spec_of(one).get("clusterIP")) == address), None)
    if own is not None:
        return own
    behind = find_service_of_endpoint(objects, address)
    return objects.find(SERVICE, *behind) if behind else None


class _Target(Record):
    """An address to ask about; `title`: what it stands for, if it is only an example."""

    endpoint: str
    address: str
    title: str = ""


def _list_targets(to: Endpoint, found: ServiceDestination | None, pod: PodInQuestion) -> tuple[list[_Target], str]:
    """What to ask the rules about, and why nothing."""
    number = to.number or (found.port.number if found else 0)
    addresses = [to.address] if to.address else [*found.addresses] if found else []
    if not number:
        return [], f"the number of port {quote(to.port)} is not known"
    if addresses:
        return [_Target(endpoint=join_host(one, number), address=one) for one in addresses], ""
    options = pod.facts.options if pod.facts else None
    if options is None or (options.outbound_cidrs == ALL and not options.exclude_outbound_cidrs):
        return [_Target(endpoint=join_host(STAND_IN, number), address=STAND_IN, title=to.host)], ""
    return [], f"the address of {quote(to.host)} is not known, and the pod's rules distinguish addresses; ask with --to ADDRESS:PORT"


def _ask_out(
    asked: WhyQuestion, targets: list[_Target], pod: PodInQuestion, known: Evidence, answers: list[ConnectionAnswer]
) -> Iterator[Step]:
    """What the rules do with the connection to each address; `answers` gets what explain said."""
    for target in targets[:MAX_LISTED]:
        given, problem = ask(known.explain, Question("outbound", to=target.endpoint, udp=asked.udp, uid=asked.uid))
        if target.title:
            given = tuple([_rename(one, target) for one in given])
        answers += given
        if problem:
            yield unknown(RULES, problem, f"to {target.endpoint}")
        yield from examine_answers(pod, given, udp=asked.udp)
    yield from count_unexamined(RULES, targets, "addresses", pod.title)


def _rename(one: ConnectionAnswer, target: _Target) -> ConnectionAnswer:
    """An answer about an example's address, with the name that it stands for."""
    return one.replace(
        sentence=one.sentence.replace(target.address, target.title), destination=one.destination.replace(target.address, target.title),
        changes=tuple([(change, verdict) for change, verdict in one.changes if target.address not in change]),
    )


def _examine_servers(found: ServiceDestination, known: Evidence, ends: Ends | None) -> Iterator[Step]:
    """What matters at the other end. `ends`: with any server in place of this one; None if nothing gets there."""
    for one in found.workloads[:MAX_LISTED]:
        server = known.read(one)
        yield from _examine_other(server, SERVER)
        if ends:
            yield from examine_mutual_tls(ends.replace(server=server, ports=tuple(target_numbers(found, server.spec))), known.objects)
            yield from examine_authorization(server, known.objects)
        yield from examine_policies(server, INGRESS, known.objects)
    yield from count_unexamined(SERVER, found.workloads, "workloads", title_of(found.service))
    if not found.workloads and spec_of(found.service).get("selector"):
        yield unknown(SERVER, "its pods are not given, so neither their proxy nor mutual TLS is known", title_of(found.service))


def _examine_other(other: PodInQuestion, name: str) -> Iterator[Step]:
    """What of the steps of a pod matters at the other end."""
    yield from [one.replace(name=f"{name}: {one.name}") for one in (*examine_users(other), *examine_state(other))]


# --- from a client ---


def _follow_in(asked: WhyQuestion, pod: PodInQuestion, known: Evidence) -> Iterator[Step]:
    client, steps = _find_client(asked, pod, known)
    yield from steps
    services = [one for one in known.objects.list(SERVICE, pod.namespace) if is_selected(one, pod.labels)]
    found, numbers = _find_ports(asked, pod, services, known)
    limit = find_detection_limit(known.objects)
    for one in found[:MAX_LISTED]:
        show = f"istioctl proxy-config listeners {pod.kubectl_name} -n {pod.namespace} --port 15006"
        endpoint = Endpoint(host=name_of(one.service), port=str(one.port.number))
        yield from examine_service(one.service, endpoint, one, known.objects)
        yield from examine_protocol(one.port, one.about, show, asked_udp=asked.udp, limit=limit)
    yield from count_unexamined(SERVICE_STEP, found, "ports of Services", pod.title)
    if not numbers:
        yield unknown("port", "which port of the pod is meant is not known", pod.title, remedy="name it with --port")
    yield from _ask_in(asked, numbers, pod, client, known)
    if not asked.udp:
        leading = [one for one in found if numbers and numbers[0] in target_numbers(one, pod.spec)]
        ends = Ends(client=client, name=asked.client, server=pod, ports=tuple(numbers))
        ends = _complete_ends(ends, client, leading, known.objects) if client and client.in_mesh else ends
        refused = [*_examine_client_registry(ends, leading, known.objects)]
        yield from refused
        given = examine_mutual_tls(ends, known.objects) if not refused else ()
        yield from [_advise_scraping(one, pod, numbers) for one in given]
        yield from examine_authorization(pod, known.objects) if not refused else ()
    yield from examine_policies(pod, INGRESS, known.objects)
    if client:
        yield from examine_policies(client, EGRESS, known.objects)


def _complete_ends(ends: Ends, client: PodInQuestion, leading: list[ServiceDestination], objects: ClusterObjects) -> Ends:
    """Both ends with what the client's proxy makes of the Services that lead to the pod."""
    if client.facts and client.facts.shared_owners:
        return ends.replace(is_past=True)
    ends = ends.replace(doubt=_find_exclusions(client))
    if not leading:
        text = "no Service leads to this port, and what goes to a pod's own address is plain text"
        why = objects.why_unknown(SERVICE)
        text, is_known = (f"{text} ({why})", None) if why else (text, False)
        return ends.replace(registration=Registration(is_known=is_known, text=text, remedy="connect to a Service that has this port"))
    to = [(one, Endpoint(host=full_name(one.service), port=str(one.port.number))) for one in leading]
    registrations = dict.fromkeys([find_registration(client, endpoint, one.service, one.port, objects) for one, endpoint in to])
    rules = dict.fromkeys([find_rule(one.service, one.port.number, client, objects) for one in leading])
    first, *others = registrations
    if others:
        first = Registration(is_known=None, text=f"{first.text}, of one of the Services that lead here", remedy=first.remedy)
    rule = next(iter(rules)) if len(rules) == 1 else ClientTls(doubt="the DestinationRules of the Services that lead here differ")
    return ends.replace(registration=first, rule=rule)


def _find_exclusions(client: PodInQuestion) -> str:
    """Why it is not known that a client's proxy gets what it sends; its rules are not asked."""
    text = f"options of {client.title} let some connections pass its proxy"
    if client.facts is None or client.facts.options.outbound_cidrs != ALL:
        return text
    options = client.facts.options
    owners = (*options.exclude_outbound_for_uids, *options.exclude_outbound_for_gids, *options.exclude_owner_groups)
    return text if options.exclude_outbound_cidrs or options.exclude_outbound_ports or owners else ""


def _examine_client_registry(ends: Ends, leading: list[ServiceDestination], objects: ClusterObjects) -> Iterator[Step]:
    """Say that a client's proxy resets what goes to each Service of the pod; nothing if it does not, or may not."""
    client = ends.client
    if client is None or ends.registration.is_known is not False or find_policy(client, objects).mode != REGISTRY_ONLY:
        return
    host = full_name(leading[0].service) if leading else ends.server.title
    port = str(next(iter(ends.ports), 0))
    for one in examine_registry(client, Endpoint(host=host, port=port), ends.registration, objects, is_service=True):
        step = one.replace(name=f"{CLIENT}: {one.name}", about=client.title)
        yield step.replace(outcome=UNKNOWN, text=f"{step.text}; not certain: {ends.doubt}") if ends.doubt else step


def _ask_in(
    asked: WhyQuestion, numbers: list[int], pod: PodInQuestion, client: PodInQuestion | None, known: Evidence
) -> Iterator[Step]:
    """What the rules do with the connection to each port, and where it comes in."""
    source, steps, arrivals = _address_of(asked, client), list[Step](), {asked.interface}
    for number in numbers[:MAX_LISTED] if pod.facts and not pod.host_network else []:
        question = Question("inbound", source=source, to_port=str(number), interface=asked.interface, udp=asked.udp)
        answers, problem = ask(known.explain, question)
        steps += [unknown(RULES, problem, f"port {number}")] if problem else []
        steps += examine_answers(pod, answers, udp=asked.udp, client_in_mesh=client.in_mesh if client else False)
        arrivals |= {one.interface for one in answers if source}
    steps += count_unexamined(RULES, numbers, "ports", pod.title) if pod.facts and not pod.host_network else ()
    yield from examine_interfaces(pod, arrivals)
    yield from steps


def _find_client(asked: WhyQuestion, pod: PodInQuestion, known: Evidence) -> tuple[PodInQuestion | None, list[Step]]:
    """The client's pod, if it is given, and what is to be said of it."""
    namespace, _, name = asked.client.rpartition("/")
    address = _read_address(asked.client)
    for one in known.objects.workloads:
        home = one.namespace or DEFAULT_NAMESPACE
        is_named = one.name == name and home == (namespace or home)
        if one is not pod.workload and (address in addresses_of(one) if address else is_named):
            client = known.read(one)
            return client, [_describe_client(client), *_examine_other(client, CLIENT)]
    if address:
        return None, []
    text = "no such pod is given, so whether it is in the mesh is not known"
    return None, [unknown(CLIENT, text, quote(asked.client), remedy="give its manifest too, or its address")]


def _describe_client(client: PodInQuestion) -> Step:
    if client.in_mesh is None:
        return unknown(CLIENT, "it is not known whether it is in the mesh", client.title)
    node = ", on its node's network" if client.host_network else ""
    return passed(CLIENT, f"{'' if client.in_mesh else 'not '}in the mesh{node}", client.title)


def _read_address(text: str) -> str:
    try:
        return parse_address(text)
    except ValueError:
        return ""


def _address_of(asked: WhyQuestion, client: PodInQuestion | None) -> str:
    """The client's address; empty for an example."""
    return _read_address(asked.client) or next(iter(client.addresses if client else ()), "")


def _find_ports(
    asked: WhyQuestion, pod: PodInQuestion, services: list[Tree], known: Evidence
) -> tuple[list[ServiceDestination], list[int]]:
    """The ports of Services that lead to the pod's port that is asked for (any, if none is), and the pod's ports."""
    found = []
    for service in services:
        for port in list_ports(service):
            one = find_destination(service, Endpoint(host="", port=str(port.number)), known.objects)
            targets = map(str, target_numbers(one, pod.spec)) if one else ()
            if one and (not asked.port or asked.port in (str(port.number), port.name, port.target, *targets)):
                found.append(one)
    numbers = dict.fromkeys([number for one in found for number in target_numbers(one, pod.spec)])
    named = [int(asked.port)] if asked.port.isdigit() else []
    return found, [*numbers] or named


def _advise_scraping(step: Step, pod: PodInQuestion, numbers: list[int]) -> Step:
    """A step whose remedy names the other way, where the port is that of metrics."""
    scraped = pod.given_annotations.get(_SCRAPED, "")
    if step.outcome == FAILED and scraped in map(str, numbers):
        return step.replace(remedy=f"{step.remedy}; {_MERGED}")
    return step


# --- a name ---


def _ask_resolver(pod: PodInQuestion, known: Evidence) -> Iterator[Step]:
    """What becomes of a query, if a name server is known and DNS is captured."""
    if pod.facts is None or not pod.in_mesh or not pod.facts.options.redirect_dns:
        return
    servers = [*dict.fromkeys([str(one) for one in (*pod.facts.options.dns_servers, *pod.facts.name_servers)])]
    if left := servers[MAX_SERVERS:]:
        yield passed(DNS, f"{name_first(left)}: never asked, since a resolver takes the first {MAX_SERVERS} name servers", pod.title)
    for server in servers[:MAX_SERVERS]:
        answers, problem = ask(known.explain, Question("outbound", to=join_host(server, 53), udp=True))
        if problem:
            yield unknown(RULES, problem, f"to {server}")
        yield from examine_answers(pod, answers, udp=True)
