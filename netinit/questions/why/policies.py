"""The steps "network policy", "authorization" and "route": objects that may refuse a connection are named, and not judged.

Whether NetworkPolicies let a connection pass, the CNI decides; AuthorizationPolicies and VirtualServices depend on each request.
"""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.questions.why.exports import is_exported
from netinit.questions.why.objects import (
    AUTHORIZATION,
    MAX_LISTED,
    POLICY,
    ROUTE,
    ClusterObjects,
    complete_host,
    name_of,
    namespace_of,
    selects,
    spec_of,
)
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.sidecars import covers_host
from netinit.questions.why.steps import Step, count_unexamined, name_object, passed, unknown

NAME, AUTHORIZATION_STEP, ROUTE_STEP = "network policy", "authorization", "route"
INGRESS, EGRESS = "Ingress", "Egress"
_ALLOW, _AUDIT, _MESH = "ALLOW", "AUDIT", "mesh"


class _Named(Record):
    """Objects of a kind that may refuse a connection. `show`: what kubectl calls the kind; `place`: the option for where to look."""

    step: str
    kind: str
    title: str
    found: tuple[tuple[Tree, str], ...]
    none: str
    question: str
    show: str
    place: str = "-A"


def examine_policies(pod: PodInQuestion, direction: str, objects: ClusterObjects) -> Iterator[Step]:
    """Name the NetworkPolicies that may drop what a pod sends (EGRESS) or gets (INGRESS)."""
    there = [one for one in objects.list(POLICY, pod.namespace) if direction in _types(one)]
    found = [one for one in there if selects(spec_of(one).get("podSelector"), pod.labels) is not False]
    what = "sends" if direction == EGRESS else "gets"
    text = f"restricts what {pod.title} {what}: what it does not name is dropped, and the client sees a timeout"
    yield from _name_all(objects, _Named(
        step=NAME, kind=POLICY, title=pod.title, found=tuple([(one, text) for one in found]), none=f"none restricts what it {what}",
        question="whether one drops it", show="networkpolicy", place=f"-n {pod.namespace}",
    ))  # fmt: skip


def examine_authorization(server: PodInQuestion, objects: ClusterObjects) -> Iterator[Step]:
    """Name the AuthorizationPolicies by which a server's proxy may refuse a connection; nothing where there is no proxy."""
    if not server.in_mesh:
        return
    places = (server.namespace, objects.root_namespace)
    there = [one for one in objects.by_kind.get(AUTHORIZATION, ()) if namespace_of(one) in places]
    found = [(one, string(spec_of(one).get("action")) or _ALLOW) for one in there if _is_for_workload(one, server)]
    text = "decides who may connect to {}: what it refuses is reset, and HTTP gets 403 (RBAC: access denied)"
    yield from _name_all(objects, _Named(
        step=AUTHORIZATION_STEP, kind=AUTHORIZATION, title=server.title,
        found=tuple([(one, f"{action}: {text.format(server.title)}") for one, action in found if action != _AUDIT]),
        none="none restricts who may connect to it", question="whether one refuses it", show="authorizationpolicies.security.istio.io",
    ))  # fmt: skip


def _is_for_workload(policy: Tree, server: PodInQuestion) -> bool:
    """Whether a policy is for a workload's own proxy; one with targetRefs is for a waypoint or a gateway."""
    spec = spec_of(policy)
    labels = strings(mapping(spec.get("selector")).get("matchLabels"))
    return not (spec.get("targetRef") or spec.get("targetRefs")) and labels.items() <= server.labels.items()


def examine_routes(pod: PodInQuestion, host: str, objects: ClusterObjects) -> Iterator[Step]:
    """Name the VirtualServices by which a client's proxy may send what goes to a host elsewhere; nothing where there is no proxy."""
    if not pod.in_mesh:
        return
    found = find_routes(pod, host, objects)
    text, question = f"may send what goes to {host} elsewhere, or refuse it", f"whether one changes where {host} leads"
    yield from _name_all(objects, _Named(
        step=ROUTE_STEP, kind=ROUTE, title=pod.title, found=tuple([(one, text) for one in found]),
        none=f"none changes where {host} leads", question=question, show="virtualservices.networking.istio.io",
    ))  # fmt: skip


def find_routes(pod: PodInQuestion, host: str, objects: ClusterObjects) -> list[Tree]:
    """Return the VirtualServices of a host that a pod's proxy may have."""
    there = [one for one in objects.by_kind.get(ROUTE, ()) if is_exported(one, ROUTE, pod.namespace, objects) is not False]
    return [one for one in there if _is_for_sidecars(one) and _routes(one, host)]


def _is_for_sidecars(route: Tree) -> bool:
    gateways = sequence(spec_of(route).get("gateways"))
    return not gateways or _MESH in gateways


def _routes(route: Tree, host: str) -> bool:
    hosts = [string(one) for one in sequence(spec_of(route).get("hosts"))]
    return any(covers_host(complete_host(one, namespace_of(route)), host) for one in hosts)


def _name_all(objects: ClusterObjects, named: _Named) -> Iterator[Step]:
    """Name what was found; if nothing was, say so, or why that is not known."""
    for one, text in named.found[:MAX_LISTED]:
        show = f"kubectl describe {named.show} {name_of(one)} -n {namespace_of(one)}"
        yield unknown(named.step, text, name_object(named.kind, namespace_of(one), name_of(one)), shown_by=show)
    yield from count_unexamined(named.step, named.found, f"objects {named.kind}", named.title)
    if named.found:
        return
    if why := objects.why_unknown(named.kind):
        where = f"kubectl get {named.show} {named.place}"
        yield unknown(named.step, f"{named.question} is not known: {why}", named.title, shown_by=where)
    else:
        yield passed(named.step, named.none, named.title)


def _types(policy: Tree) -> list[object]:
    """The directions that a policy is about: as the API server completes them."""
    spec = spec_of(policy)
    return sequence(spec.get("policyTypes")) or [INGRESS, *([EGRESS] if spec.get("egress") else [])]
