"""The step "mutual TLS": what the client sends, and what the server's proxy accepts: PeerAuthentication and DestinationRule."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.findings import FindingKind
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.questions.why.exports import is_exported
from netinit.questions.why.objects import (
    DESTINATION,
    MUTUAL,
    ClusterObjects,
    age_of,
    complete_host,
    full_name,
    name_of,
    namespace_of,
    selects,
    spec_of,
)
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.registry import Registration
from netinit.questions.why.sidecars import covers_host
from netinit.questions.why.steps import UNKNOWN, Step, failed, name_object, passed, unknown

PLAIN_TEXT_REFUSED = FindingKind(
    "NI327", "plain-text-refused",
    "The server takes mutual TLS alone (PeerAuthentication STRICT), and the client sends plain text: it is not in "
    "the mesh, on its node's network, its connection goes past its proxy, or that proxy does not know the Service, because its "
    "Sidecar does not import it or the Service is not exported to its namespace. The connection is reset. Inject the client, "
    "import the Service, or make the port PERMISSIVE.",
)
TLS_MISMATCH = FindingKind(
    "NI328", "tls-mismatch",
    "A DestinationRule has the client's proxy send another kind of TLS than the server takes: mutual TLS of the mesh "
    "to a server without a proxy or with DISABLE, or plain text or TLS of its own to one with STRICT. Leave out trafficPolicy.tls: "
    "the proxy decides for each endpoint.",
)

NAME = "mutual TLS"
STRICT, PERMISSIVE, DISABLE, UNSET = "STRICT", "PERMISSIVE", "DISABLE", "UNSET"
ISTIO_MUTUAL = "ISTIO_MUTUAL"
OF_ITS_OWN = ("SIMPLE", "MUTUAL")  # TLS that the application at the other end has to take


class Mode(Record):
    """The mode of a server's port, and the object that sets it; `doubt`: why another object may set it."""

    mode: str
    by: str = ""
    doubt: str = ""


def find_mode(server: PodInQuestion, port: int, objects: ClusterObjects) -> Mode:
    """The mode of a pod's port; PERMISSIVE if nothing sets one.

    As in Istio: that of the workload comes before that of its namespace, and this before that of the root namespace; of several, the
    oldest. A port's mode (portLevelMtls) is by the pod's port, and only where the workload is selected.
    """
    by_age = sorted(objects.by_kind.get(MUTUAL, ()), key=age_of)
    here = [one for one in by_age if namespace_of(one) == server.namespace]
    of_workload = [one for one in here if _is_selective(one) and selects(spec_of(one)["selector"], server.labels)]
    of_namespace = [one for one in here if not _is_selective(one)]
    of_root = [one for one in by_age if namespace_of(one) == objects.root_namespace and not _is_selective(one)]
    for one in (*of_workload[:1], *of_namespace[:1], *of_root[:1]):
        spec = spec_of(one)
        by_port = mapping(mapping(spec.get("portLevelMtls")).get(str(port))) if one in of_workload else {}
        mode = string(by_port.get("mode")) or string(mapping(spec.get("mtls")).get("mode"))
        if mode and mode != UNSET:
            by = name_object(MUTUAL, namespace_of(one), name_of(one))
            return Mode(mode=mode, by=by, doubt=objects.why_undecided(MUTUAL, one, server.namespace))
    return Mode(mode=PERMISSIVE, doubt=objects.why_unknown(MUTUAL))


def _is_selective(one: Tree) -> bool:
    """Whether a PeerAuthentication selects workloads; one without labels is about all of its namespace."""
    return bool(mapping(mapping(spec_of(one).get("selector")).get("matchLabels")))


class ClientTls(Record):
    """The TLS mode that a DestinationRule gives to connections, and the rule; empty without one. `doubt`: why another may count."""

    mode: str = ""
    title: str = ""
    doubt: str = ""


def find_rule(service: Tree, port: int, client: PodInQuestion, objects: ClusterObjects) -> ClientTls:
    """What a DestinationRule has a client's proxy send to a port of a Service.

    As in Istio: the rules of the first of three namespaces that has any for the host (the client's, the Service's, the root
    namespace), of the most specific host, those that select the client before the others; of several, the oldest with a policy.
    """
    for place in dict.fromkeys((client.namespace, namespace_of(service), objects.root_namespace)):
        there = [one for one in sorted(objects.list(DESTINATION, place), key=age_of) if _is_for_client(one, client, objects)]
        there = [one for one in there if covers_host(_full_host(one), full_name(service))]
        if there:
            best = max(map(_full_host, there), key=lambda host: (not host.startswith("*"), len(host)))
            found = _read_tls([one for one in there if _full_host(one) == best], port, client)
            return found.replace(doubt=objects.why_undecided(DESTINATION, there[0], client.namespace))
    return ClientTls(doubt=objects.why_unknown(DESTINATION))


def _full_host(rule: Tree) -> str:
    return complete_host(string(spec_of(rule).get("host")), namespace_of(rule))


def _is_for_client(rule: Tree, client: PodInQuestion, objects: ClusterObjects) -> bool:
    """Whether a rule is exported to the client's namespace; one that selects workloads stays in its own."""
    if spec_of(rule).get("workloadSelector") and namespace_of(rule) != client.namespace:
        return False
    return is_exported(rule, DESTINATION, client.namespace, objects) is not False


def _read_tls(rules: list[Tree], port: int, client: PodInQuestion) -> ClientTls:
    own = [one for one in rules if (selector := spec_of(one).get("workloadSelector")) and selects(selector, client.labels)]
    others = [one for one in rules if not spec_of(one).get("workloadSelector")]
    rule = next((one for one in own or others if isinstance(spec_of(one).get("trafficPolicy"), dict)), {})
    policy = mapping(spec_of(rule).get("trafficPolicy"))
    ports = [mapping(item) for item in sequence(policy.get("portLevelSettings"))]
    settings = next((item for item in ports if mapping(item.get("port")).get("number") == port), policy)  # these inherit nothing
    tls = settings.get("tls")
    if not isinstance(tls, dict):
        return ClientTls()
    return ClientTls(mode=string(tls.get("mode")) or DISABLE, title=name_object(DESTINATION, namespace_of(rule), name_of(rule)))


class Ends(Record):
    """A connection within the mesh: a client (None: outside of the pods that are given; `name` says which) and a server.

    `ports`: the server's. `rule`: what a DestinationRule has the client's proxy send. `is_past`: the connection goes past that proxy.
    `registration`: whether that proxy knows the Service. `doubt`: why it is not known that the proxy gets the connection.
    """

    client: PodInQuestion | None
    name: str
    server: PodInQuestion
    ports: tuple[int, ...] = ()
    rule: ClientTls = ClientTls()
    is_past: bool = False
    registration: Registration = Registration(is_known=True, text="")
    doubt: str = ""

    @property
    def is_direct(self) -> bool:
        """Whether plain text arrives at the server, whatever a DestinationRule says."""
        return self.client is None or self.client.in_mesh is False or self.is_past or self.registration.is_known is False

    @property
    def mode(self) -> str:
        """The TLS mode of the DestinationRule, which counts only where the client's proxy knows the Service."""
        return "" if self.is_direct else self.rule.mode

    @property
    def sends_plain(self) -> bool:
        """Whether plain text arrives at the server."""
        return self.is_direct or self.mode == DISABLE

    @property
    def doubts(self) -> str:
        """What could not be read and decides what the client sends; empty if nothing."""
        unread = self.registration.text if self.registration.is_known is None else ""
        return "" if self.is_direct else _join(unread, self.rule.doubt if self.rule.title else "", self.doubt)

    @property
    def rule_doubt(self) -> str:
        """Why another DestinationRule may count; empty where none does."""
        return "" if self.is_direct else self.rule.doubt

    @property
    def all_doubts(self) -> str:
        """What is not known of what the client sends, for want of an object too; empty if all is."""
        if self.is_direct or self.mode == DISABLE:
            return self.rule_doubt
        found = self.registration
        unless = f"unless {found.doubt}" if found.is_known and found.doubt else found.text if found.is_known is None else ""
        return _join(unless, self.rule.doubt, self.doubt)

    @property
    def why_plain(self) -> str:
        """Why it does, as a clause."""
        if self.client is None:
            return f"{quote(self.name)} is no pod that is given: if it is outside of the mesh, it sends plain text"
        if self.client.host_network:
            return f"{self.client.title} is on its node's network (hostNetwork: true), so it sends plain text"
        if self.client.in_mesh is False:
            return f"{self.client.title} is not in the mesh, so it sends plain text"
        if self.mode == DISABLE:
            return f"{self.rule.title} has the client's proxy send plain text (DISABLE)"
        if not self.is_past:
            return f"the proxy of {self.client.title} sends plain text, because {self.registration.text}"
        return f"{self.client.title} sends plain text, past its proxy"

    @property
    def remedy(self) -> str:
        """How the client gets to send mutual TLS."""
        if self.client and self.client.host_network:
            return "remove hostNetwork: true of the client and inject it, or make the port PERMISSIVE (portLevelMtls)"
        if self.client and self.client.in_mesh and self.mode == DISABLE:
            return "set trafficPolicy.tls.mode: ISTIO_MUTUAL in the DestinationRule, or leave tls out"
        if self.client and self.client.in_mesh and not self.is_past:
            return self.registration.remedy
        if self.client and self.client.in_mesh:
            return "let the client's proxy capture it"
        return "inject the client, or make the port PERMISSIVE (portLevelMtls of a PeerAuthentication)"


def examine_mutual_tls(ends: Ends, objects: ClusterObjects) -> Iterator[Step]:
    """Say whether the server's proxy takes what the client sends."""
    server = ends.server
    doubtful = next((one for one in (server, ends.client) if one and one.in_mesh is None), None)
    if doubtful:
        yield unknown(NAME, f"it is not known whether {doubtful.title} is in the mesh", server.title)
    elif not server.in_mesh:
        yield _judge_server_outside(ends)
    else:
        yield _judge_mode(ends, objects)


def _judge_server_outside(ends: Ends) -> Step:
    title = ends.server.title
    if ends.mode == ISTIO_MUTUAL:
        text = f"{ends.rule.title} has the client's proxy send mutual TLS, and {title} has no proxy that understands it"
        remedy = "leave out trafficPolicy.tls, so that the proxy decides for each endpoint"
        return _doubt(failed(NAME, TLS_MISMATCH, text, title, remedy=remedy), ends.doubts)
    if ends.mode in OF_ITS_OWN:
        return _describe_own_tls(ends)
    return _doubt(passed(NAME, "the server is not in the mesh, and takes plain text", title), ends.rule_doubt)


def _describe_own_tls(ends: Ends) -> Step:
    text = f"{ends.rule.title} has the client's proxy send TLS of its own ({ends.mode}), which the application has to take"
    return unknown(NAME, text, ends.server.title, kind=TLS_MISMATCH)


def _join(*doubts: str) -> str:
    return "; ".join([one for one in doubts if one])


def _doubt(step: Step, doubts: str) -> Step:
    """A step as it is if nothing is in doubt, else unknown."""
    return step.replace(outcome=UNKNOWN, text=f"{step.text}; not certain: {doubts}") if doubts else step


def _judge_mode(ends: Ends, objects: ClusterObjects) -> Step:
    server = ends.server
    found = find_mode(server, next(iter(ends.ports), 0), objects)
    show = f"istioctl x describe pod {server.workload.name} -n {server.namespace}"
    if found.mode == STRICT and ends.sends_plain:
        text = f"{found.by} is STRICT, and {ends.why_plain}: its connection is reset"
        step = failed(NAME, PLAIN_TEXT_REFUSED, text, server.title, remedy=ends.remedy, shown_by=show)
        return _doubt(step, _join(found.doubt, ends.rule_doubt))
    if found.mode == STRICT and ends.mode in OF_ITS_OWN:
        text = f"{ends.rule.title} has the client's proxy send TLS of its own ({ends.mode}), and {found.by} wants the mesh's (STRICT)"
        remedy = "set trafficPolicy.tls.mode: ISTIO_MUTUAL, or leave tls out"
        step = failed(NAME, TLS_MISMATCH, text, server.title, remedy=remedy, shown_by=show)
        return _doubt(step, _join(found.doubt, ends.rule_doubt))
    if ends.mode in OF_ITS_OWN:
        return _describe_own_tls(ends)
    if ends.sends_plain and found.doubt:
        text = f"{ends.why_plain}: it is reset if mutual TLS is STRICT ({found.doubt})"
        return unknown(NAME, text, server.title, shown_by=show, kind=PLAIN_TEXT_REFUSED)
    if found.mode == DISABLE and ends.mode == ISTIO_MUTUAL:
        text = f"{ends.rule.title} has the client's proxy send mutual TLS, and {found.by} takes plain text alone (DISABLE)"
        step = failed(NAME, TLS_MISMATCH, text, server.title, remedy="leave out trafficPolicy.tls", shown_by=show)
        return _doubt(step, _join(found.doubt, ends.doubts))
    what = "plain text" if ends.sends_plain or found.mode == DISABLE else "mutual TLS"
    takes_both = found.mode == PERMISSIVE and not found.doubt and not ends.rule_doubt
    step = passed(NAME, f"{what} is sent, and taken ({f'{found.by}: {found.mode}' if found.by else PERMISSIVE})", server.title)
    return _doubt(step, "" if takes_both else ends.all_doubts)


def is_strict(server: PodInQuestion, port: int, objects: ClusterObjects) -> tuple[bool | None, str]:
    """Whether a port takes mutual TLS alone, and by which object; None if it is not known."""
    found = find_mode(server, port, objects)
    return (None, "") if found.doubt else (found.mode == STRICT, found.by)
