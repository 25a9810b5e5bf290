"""The step "mutual TLS": what the client sends, and what the server's proxy accepts: PeerAuthentication and DestinationRule."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.findings import FindingKind
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.questions.why.asked import CLUSTER_DOMAIN, read_service_name
from netinit.questions.why.objects import (
    DESTINATION,
    MUTUAL,
    ROOT_NAMESPACE,
    ClusterObjects,
    age_of,
    name_of,
    namespace_of,
    selects,
    spec_of,
)
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.steps import Step, failed, name_object, passed, unknown

PLAIN_TEXT_REFUSED = FindingKind(
    "NI327", "plain-text-refused",
    "The server takes mutual TLS alone (PeerAuthentication STRICT), and the client sends plain text: it is not in "
    "the mesh, on its node's network, or its connection goes past its proxy. The connection is reset. Inject the "
    "client, or make the port PERMISSIVE.",
)
TLS_MISMATCH = FindingKind(
    "NI328", "tls-mismatch",
    "A DestinationRule has the client's proxy send another kind of TLS than the server takes: mutual TLS of the mesh "
    "to a server without a proxy, or plain text or TLS of its own to one with STRICT. Leave out trafficPolicy.tls: "
    "the proxy decides for each endpoint.",
)

NAME = "mutual TLS"
STRICT, PERMISSIVE, DISABLE, UNSET = "STRICT", "PERMISSIVE", "DISABLE", "UNSET"
ISTIO_MUTUAL, SIMPLE, MUTUAL_TLS = "ISTIO_MUTUAL", "SIMPLE", "MUTUAL"


def find_mode(server: PodInQuestion, port: int, objects: ClusterObjects) -> tuple[str, str]:
    """The mode of a pod's port, and the object that sets it; PERMISSIVE if none does.

    As in Istio: that of the workload comes before that of its namespace, and this before that of the root namespace; of several, the
    oldest. A port's mode (portLevelMtls) is by the pod's port, and only where the workload is selected.
    """
    by_age = sorted(objects.by_kind.get(MUTUAL, ()), key=age_of)
    here = [one for one in by_age if namespace_of(one) == server.namespace]
    of_workload = [one for one in here if spec_of(one).get("selector") and selects(spec_of(one)["selector"], server.labels)]
    of_namespace = [one for one in here if not spec_of(one).get("selector")]
    of_root = [one for one in by_age if namespace_of(one) == ROOT_NAMESPACE and not spec_of(one).get("selector")]
    for one in (*of_workload[:1], *of_namespace[:1], *of_root[:1]):
        spec = spec_of(one)
        by_port = mapping(mapping(spec.get("portLevelMtls")).get(str(port))) if one in of_workload else {}
        mode = string(by_port.get("mode")) or string(mapping(spec.get("mtls")).get("mode"))
        if mode and mode != UNSET:
            return mode, name_object(MUTUAL, namespace_of(one), name_of(one))
    return PERMISSIVE, ""


def is_mode_known(objects: ClusterObjects) -> bool:
    """Whether all objects that could set a mode are given."""
    return not objects.why_unknown(MUTUAL)


def find_rule(service: Tree, port: int, namespace: str, objects: ClusterObjects) -> tuple[str, str]:
    """The TLS mode that a DestinationRule gives to connections from a namespace to a Service, and the rule; empty without one."""
    home = namespace_of(service)
    for place in dict.fromkeys((namespace, home, ROOT_NAMESPACE)):
        for one in objects.list(DESTINATION, place):
            if _is_for(string(spec_of(one).get("host")), place, service) and (mode := _tls_mode(one, port)):
                return mode, name_object(DESTINATION, place, name_of(one))
    return "", ""


def _is_for(host: str, place: str, service: Tree) -> bool:
    """Whether the host of a rule in a namespace is a Service; a short name is completed with the rule's namespace."""
    full = f"{name_of(service)}.{namespace_of(service)}.svc.{CLUSTER_DOMAIN}"
    if host.startswith("*"):
        return full.endswith(host[1:])
    name = read_service_name(host, place) if host else None
    return name is not None and f"{name.name}.{name.namespace}.svc.{CLUSTER_DOMAIN}" == full


def _tls_mode(rule: Tree, port: int) -> str:
    policy = mapping(spec_of(rule).get("trafficPolicy"))
    ports = [mapping(item) for item in sequence(policy.get("portLevelSettings"))]
    own = next((item for item in ports if mapping(item.get("port")).get("number") == port), {})
    return string(mapping(mapping(own).get("tls")).get("mode")) or string(mapping(policy.get("tls")).get("mode"))


class Ends(Record):
    """A connection within the mesh: a client (None: outside of the pods that are given; `name` says which) and a server.

    `ports`: the server's. `rule`: the TLS mode of a DestinationRule, and the rule. `is_past`: it goes past the client's proxy.
    """

    client: PodInQuestion | None
    name: str
    server: PodInQuestion
    ports: tuple[int, ...] = ()
    rule: tuple[str, str] = ("", "")
    is_past: bool = False

    @property
    def sends_plain(self) -> bool:
        """Whether plain text arrives at the server."""
        return self.client is None or self.client.in_mesh is False or self.is_past or self.rule[0] == DISABLE

    @property
    def why_plain(self) -> str:
        """Why it does, as a clause."""
        if self.client is None:
            return f"{quote(self.name)} is no pod that is given: if it is outside of the mesh, it sends plain text"
        if self.client.host_network:
            return f"{self.client.title} is on its node's network (hostNetwork: true), so it sends plain text"
        if self.client.in_mesh is False:
            return f"{self.client.title} is not in the mesh, so it sends plain text"
        if self.rule[0] == DISABLE:
            return f"{self.rule[1]} has the client's proxy send plain text (DISABLE)"
        return f"{self.client.title} sends plain text, past its proxy"

    @property
    def remedy(self) -> str:
        """How the client gets to send mutual TLS."""
        if self.client and self.client.host_network:
            return "remove hostNetwork: true of the client and inject it, or make the port PERMISSIVE (portLevelMtls)"
        if self.client and self.client.in_mesh and self.rule[0] == DISABLE:
            return "set trafficPolicy.tls.mode: ISTIO_MUTUAL in the DestinationRule, or leave tls out"
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
    of_rule, rule = ends.rule
    if of_rule == ISTIO_MUTUAL and not ends.sends_plain:
        text = f"{rule} has the client's proxy send mutual TLS, and {ends.server.title} has no proxy that understands it"
        remedy = "leave out trafficPolicy.tls, so that the proxy decides for each endpoint"
        return failed(NAME, TLS_MISMATCH, text, ends.server.title, remedy=remedy)
    return passed(NAME, "the server is not in the mesh, and takes plain text", ends.server.title)


def _judge_mode(ends: Ends, objects: ClusterObjects) -> Step:
    server, (of_rule, rule) = ends.server, ends.rule
    mode, by = find_mode(server, next(iter(ends.ports), 0), objects)
    show = f"istioctl x describe pod {server.workload.name} -n {server.namespace}"
    if mode == STRICT and ends.sends_plain:
        text = f"{by} is STRICT, and {ends.why_plain}: its connection is reset"
        return failed(NAME, PLAIN_TEXT_REFUSED, text, server.title, remedy=ends.remedy, shown_by=show)
    if mode == STRICT and of_rule in (SIMPLE, MUTUAL_TLS):
        text = f"{rule} has the client's proxy send TLS of its own ({of_rule}), and {by} wants the mesh's (STRICT)"
        remedy = "set trafficPolicy.tls.mode: ISTIO_MUTUAL, or leave tls out"
        return failed(NAME, TLS_MISMATCH, text, server.title, remedy=remedy, shown_by=show)
    if ends.sends_plain and not is_mode_known(objects) and not by:
        text = f"{ends.why_plain}: it is reset if mutual TLS is STRICT ({objects.why_unknown(MUTUAL)})"
        return unknown(NAME, text, server.title, shown_by=show, kind=PLAIN_TEXT_REFUSED)
    what = "plain text" if ends.sends_plain else "mutual TLS"
    return passed(NAME, f"{what} is sent, and taken ({f'{by}: {mode}' if by else PERMISSIVE})", server.title)


def is_strict(server: PodInQuestion, port: int, objects: ClusterObjects) -> tuple[bool | None, str]:
    """Whether a port takes mutual TLS alone, and by which object; None if it is not known."""
    mode, by = find_mode(server, port, objects)
    if mode == STRICT:
        return True, by
    return (False, by) if by or is_mode_known(objects) else (None, "")
