"""The step "registry": whether the client's proxy knows the destination, and what it does with one that it does not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netinit.base.findings import FindingKind
from netinit.base.net import Network, covers, family_of
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.questions.why.asked import Endpoint
from netinit.questions.why.exports import ANNOTATION, DEFAULTS, FIELD, is_exported
from netinit.questions.why.objects import (
    CONFIG_MAP,
    MESH,
    ROOT_NAMESPACE,
    ROUTE,
    SERVICE,
    SERVICE_ENTRY,
    SIDECAR,
    ClusterObjects,
    ServicePort,
    full_name,
    name_of,
    namespace_of,
    spec_of,
)
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.policies import find_routes
from netinit.questions.why.protocols import DETECTED, HTTP, TCP, read_protocol
from netinit.questions.why.services import HEADLESS
from netinit.questions.why.sidecars import Import, covers_host, find_sidecar, imports
from netinit.questions.why.steps import Step, failed, name_first, name_object, passed, unknown

NOT_REGISTERED = FindingKind(
    "NI334", "not-registered",
    "The proxy does not know the destination, which is no Service, or one that the pod's Sidecar resource does not import or that "
    "is not exported to its namespace (exportTo), and passes on nothing else (outboundTrafficPolicy REGISTRY_ONLY): it resets the "
    "connection, and HTTP gets 502. Create a ServiceEntry of the host, import it in the Sidecar, or set the mode ALLOW_ANY there "
    "or in the mesh's settings.",
)

NAME = "registry"
REGISTRY_ONLY, ALLOW_ANY, DYNAMIC_DNS = "REGISTRY_ONLY", "ALLOW_ANY", "ALLOW_ANY_DYNAMIC_DNS"
_NUMBERS = {"": REGISTRY_ONLY, "0": REGISTRY_ONLY, "1": ALLOW_ANY, "3": DYNAMIC_DNS}  # the enum of the API; 0 where none is written
MAX_HOSTS = 256  # of a ServiceEntry, by its CRD
_SHOW = f"kubectl get configmap {MESH} -n {ROOT_NAMESPACE} -o yaml; kubectl get sidecars.networking.istio.io -A"


class Registration(Record):
    """Whether a client's proxy knows a destination, None if that is not known. `text`: as what, or why not, as a clause.

    `doubt`: what might be that was not given, and would have the proxy not know it. `remedy`: how the proxy gets to know it.
    """

    is_known: bool | None
    text: str
    doubt: str = ""
    remedy: str = ""


class Policy(Record):
    """The mode of outboundTrafficPolicy, and `source`, which sets it. `doubt`: why it may be another one."""

    mode: str
    source: str
    doubt: str = ""
    egress_proxy: str = ""


class _Asked(Record):
    """What a pod's proxy is to know: a host or an address, and a port, 0 if only its name is known.

    `sidecar`: the Sidecar of the pod; `why`: why it may be another one.
    """

    pod: PodInQuestion
    sidecar: Tree | None
    why: str
    host: str
    address: str
    port: int
    protocol: str


def examine_registry(
    pod: PodInQuestion, to: Endpoint, found: Registration, objects: ClusterObjects, *, is_service: bool
) -> Iterator[Step]:
    """Say whether a pod's proxy lets a connection out; nothing if the destination is a Service that it knows."""
    about, policy = f"to {quote(to.title)}", find_policy(pod, objects)
    show = f"istioctl proxy-config clusters {pod.kubectl_name} -n {pod.namespace}"
    fate = _describe_fate(policy, is_read=not (policy.doubt and is_service and found.is_known is None))
    if found.is_known and found.doubt:
        yield unknown(NAME, f"{found.text}, which the proxy knows unless {found.doubt}", about, shown_by=show)
    elif found.is_known:
        yield from [] if is_service else [passed(NAME, found.text, about)]
    elif policy.doubt or policy.egress_proxy:
        kind = None if policy.mode == ALLOW_ANY else NOT_REGISTERED
        yield unknown(NAME, f"{found.text}; {fate}", about, remedy=found.remedy, shown_by=_SHOW if policy.doubt else show, kind=kind)
    elif policy.mode == REGISTRY_ONLY and found.is_known is False:
        yield failed(NAME, NOT_REGISTERED, f"{found.text}; {fate}", about, remedy=found.remedy, shown_by=show)
    elif policy.mode == REGISTRY_ONLY or (found.is_known is None and is_service):
        yield unknown(NAME, f"{found.text}; {fate}", about, remedy=found.remedy, shown_by=show, kind=NOT_REGISTERED)
    else:
        yield passed(NAME, f"{found.text}; {fate}", about)


def _describe_fate(policy: Policy, *, is_read: bool) -> str:
    """What the proxy does with what it does not know. `is_read`: False where the Sidecar that decides could not be read at all."""
    if not is_read:
        return f"what it does not know, it passes on in plain text, or resets if outboundTrafficPolicy is {REGISTRY_ONLY}"
    if policy.doubt:
        return f"what it does not know, the proxy resets if outboundTrafficPolicy is {REGISTRY_ONLY}: {policy.doubt}"
    if policy.mode == REGISTRY_ONLY:
        return f"what it does not know, the proxy resets (BlackHoleCluster): {policy.source} has outboundTrafficPolicy {REGISTRY_ONLY}"
    if policy.egress_proxy:
        return f"what it does not know, the proxy sends to {quote(policy.egress_proxy)}, the egressProxy of {policy.source}"
    return f"what it does not know, the proxy passes on as it is (outboundTrafficPolicy {policy.mode})"


def find_policy(pod: PodInQuestion, objects: ClusterObjects) -> Policy:
    """The outboundTrafficPolicy of a pod's proxy: that of its Sidecar, even an empty one, replaces the mesh's."""
    sidecar = find_sidecar(pod, objects)
    own = mapping(spec_of(sidecar or {})).get("outboundTrafficPolicy")
    why = objects.why_undecided(SIDECAR, sidecar, pod.namespace)
    if not isinstance(own, dict) and objects.mesh is None:
        return Policy(mode="", source="", doubt=f"the mesh's settings are not known ({objects.why_unknown(CONFIG_MAP)})")
    source = _title_of(SIDECAR, sidecar) if sidecar and isinstance(own, dict) else "the mesh"
    given = own if isinstance(own, dict) else mapping(objects.mesh).get("outboundTrafficPolicy")
    mode = string(given.get("mode")) if isinstance(given, dict) else ALLOW_ANY
    mode = _NUMBERS.get(mode, mode)
    if mode not in _NUMBERS.values():
        return Policy(mode=mode, source=source, doubt=f"{source} has {quote(mode)}, which is none of its modes")
    if sidecar is None and mode != REGISTRY_ONLY:
        why = objects.why_unknown(SIDECAR)
    proxy = string(mapping(mapping(given).get("egressProxy")).get("host")) if mode == ALLOW_ANY else ""
    doubt = f"{source} has {mode}, unless a Sidecar says otherwise ({why})" if why else ""
    return Policy(mode=mode, source=source, doubt=doubt, egress_proxy=proxy)


def find_registration(
    pod: PodInQuestion, to: Endpoint, service: Tree | None, port: ServicePort | None, objects: ClusterObjects
) -> Registration:
    """Whether a pod's proxy knows where a connection goes: a Service (with the port of it that is meant), or a host or an address."""
    host = full_name(service) if service is not None else to.host
    number, protocol = (port.number, read_protocol(port)) if port else (to.number, DETECTED)
    sidecar = find_sidecar(pod, objects)
    why = objects.why_undecided(SIDECAR, sidecar, pod.namespace)
    asked = _Asked(pod=pod, sidecar=sidecar, why=why, host=host, address=to.address, port=number, protocol=protocol)
    found = _find_registered(asked, service, to, objects)
    return found if found.is_known is not False or protocol == TCP else _doubt_routes(found, asked, objects)


def _find_registered(asked: _Asked, service: Tree | None, to: Endpoint, objects: ClusterObjects) -> Registration:
    """Whether a Service or a ServiceEntry makes a proxy know what is asked."""
    own = _judge_service(service, asked, objects) if service is not None else None
    if own and own.is_known:
        return own
    entries = [_judge_entry(one, asked, objects) for one in objects.by_kind.get(SERVICE_ENTRY, ())]
    named = sorted([one for one in entries if one], key=_order)
    if named and (named[0].is_known or not own):
        return named[0] if named[0].is_known is not False else _doubt_entries(named[0], to, objects)
    return own or _doubt_entries(Registration(is_known=False, text="it is no Service that is given"), to, objects)


def _doubt_routes(found: Registration, asked: _Asked, objects: ClusterObjects) -> Registration:
    """What no registry has, as far as no VirtualService leads HTTP to its host elsewhere, which makes a proxy know the host."""
    routes = [one for one in find_routes(asked.pod, asked.host, objects) if asked.host and spec_of(one).get("http")]
    if not routes:
        return found
    return found.replace(is_known=None, text=f"{found.text}, and {_title_of(ROUTE, routes[0])} may have the proxy know it for HTTP")


def _order(one: Registration) -> int:
    """What sorts the best answer first: known, perhaps, not known."""
    return (True, None, False).index(one.is_known)


def _doubt_entries(found: Registration, to: Endpoint, objects: ClusterObjects) -> Registration:
    """What is not known, as far as it is known what is registered."""
    why = objects.why_unknown(SERVICE_ENTRY) or (objects.why_unknown(SERVICE) if to.address else "")
    remedy = found.remedy or f"create a ServiceEntry of {to.host}, or set outboundTrafficPolicy: {{mode: ALLOW_ANY}}"
    if why:
        text = f"{found.text}, and the proxy knows it only if it is registered ({why})"
        return Registration(is_known=None, text=text, remedy=remedy)
    text = found.text if found.remedy else f"{found.text}, and no ServiceEntry names it"
    return Registration(is_known=False, text=text, remedy=remedy)


def _judge_service(service: Tree, asked: _Asked, objects: ClusterObjects) -> Registration:
    found = _judge_scope(service, SERVICE, asked, objects)
    cluster_ip = string(spec_of(service).get("clusterIP"))
    if not asked.address or cluster_ip in (asked.address, HEADLESS) or found.is_known is False:
        return found
    text = "it is the address of an endpoint, which the proxy does not know as the Service's"
    is_known = None if asked.protocol == HTTP else False  # HTTP goes by its header Host
    return Registration(is_known=is_known, text=text, remedy=f"connect to {name_of(service)}.{namespace_of(service)}")


def _judge_scope(tree: Tree, kind: str, asked: _Asked, objects: ClusterObjects) -> Registration:
    """Whether what is registered is exported to the pod's namespace, and imported by its Sidecar."""
    home, exported = asked.pod.namespace, is_exported(tree, kind, asked.pod.namespace, objects)
    field = f"{ANNOTATION if kind == SERVICE else FIELD}, or {DEFAULTS[kind]} of the mesh"
    if exported is False:
        text = f"{_title_of(kind, tree)} is not exported to {quote(home)} ({field})"
        return Registration(is_known=False, text=text, remedy=f"export it to {quote(home)}")
    wanted = Import(host=asked.host, namespace=namespace_of(tree), port=asked.port, protocol=asked.protocol)
    imported = imports(asked.sidecar, asked.pod, wanted) if asked.sidecar is not None else True
    title = _title_of(SIDECAR, asked.sidecar) if asked.sidecar is not None else ""
    what = "it is a Service" if kind == SERVICE else f"{_title_of(kind, tree)} names it"
    remedy = f"add {quote(f'{namespace_of(tree)}/*')} to the hosts of egress in the Sidecar"
    if asked.why:
        text = f"{what}, which the proxy knows unless a Sidecar does not import it ({asked.why})"
        return Registration(is_known=None, text=text, remedy=remedy)
    if not imported:
        of_port = f" for port {asked.port}" if imported is None else ""
        unless = ", unless by the listener of egress without this port" if imported is None else ""
        name = "the Service" if kind == SERVICE else _title_of(kind, tree)
        return Registration(is_known=imported, text=f"{title} does not import {name}{of_port}{unless}", remedy=remedy)
    given = objects.why_unknown(SIDECAR) if asked.sidecar is None else ""
    doubts = [f"a Sidecar does not import it ({given})"] if given else []
    doubts += [f"it is not exported to {quote(home)} ({field}, which is not known)"] if exported is None else []
    return Registration(is_known=True, text=what, doubt=" or ".join(doubts), remedy=remedy)


def _title_of(kind: str, tree: Tree) -> str:
    return name_object(kind, namespace_of(tree), name_of(tree))


def _judge_entry(entry: Tree, asked: _Asked, objects: ClusterObjects) -> Registration | None:
    """What a ServiceEntry says of a host, or an address; None if it is about others."""
    spec, title = spec_of(entry), _title_of(SERVICE_ENTRY, entry)
    hosts = [one for one in sequence(spec.get("hosts"))[:MAX_HOSTS] if isinstance(one, str)]
    is_endpoint = False
    if not asked.address:
        hosts = [one for one in hosts if covers_host(one, asked.host)]
    elif not _hold(map(string, sequence(spec.get("addresses"))), asked.address):
        is_endpoint = _hold([string(mapping(one).get("address")) for one in sequence(spec.get("endpoints"))], asked.address)
        hosts = hosts if is_endpoint else []
    ports = {one.number: one for one in _list_ports(spec)}
    if not hosts:
        return None
    if asked.port and ports and asked.port not in ports:
        text = f"{title} names it, for port {name_first([one.title for one in ports.values()])} alone"
        return Registration(is_known=False, text=text, remedy=f"add port {asked.port} to the ServiceEntry")
    protocol = read_protocol(ports[asked.port]) if asked.port in ports else DETECTED
    found = min([_judge_scope(entry, SERVICE_ENTRY, asked.replace(host=one, protocol=protocol), objects) for one in hosts], key=_order)
    if is_endpoint and spec.get("addresses") and found.is_known:
        text = f"{title} has it as an endpoint alone, and the proxy listens for its addresses"
        return Registration(is_known=None, text=text, remedy="connect to one of its addresses, or to its host")
    return found


def _list_ports(spec: Tree) -> Iterator[ServicePort]:
    for one in map(mapping, sequence(spec.get("ports"))):
        if isinstance(number := one.get("number"), int):
            protocol = string(one.get("protocol")).lower()
            yield ServicePort(name=string(one.get("name")), number=number, target=str(number), protocol=TCP, app_protocol=protocol)


def _hold(listed: Iterable[str], address: str) -> bool:
    return any(_covers(one, address) for one in listed)


def _covers(text: str, address: str) -> bool:
    try:
        return covers(_read_network(text), _read_network(address))
    except ValueError:
        return False  # a host name


def _read_network(text: str) -> Network:
    """A network, or an address as one. Raises ValueError."""
    return Network.parse(text if "/" in text else f"{text}/{family_of(text).bits}")
