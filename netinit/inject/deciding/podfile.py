"""Read from a pod's manifest how it is intercepted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.net import parse_address
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree, mapping, string, strings
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.annotations import ACCEPTED, CHECKS, PROXY_CONFIG, STATUS_PORT, known_keys, read_accepted
from netinit.inject.deciding.containers import PROXY, all_containers, find_proxy, find_sidecar, named, other_kind
from netinit.inject.deciding.init_container import find_init, is_ambient, options_of
from netinit.inject.deciding.injection_status import read_status
from netinit.inject.deciding.manifests import Workload, workloads
from netinit.inject.deciding.metadata_findings import annotation_findings, request_findings
from netinit.inject.deciding.pod_options import (
    ANNOTATIONS,
    REDIRECTION,
    find_annotation,
    make_ambient_options,
    make_cni_options,
)
from netinit.inject.deciding.rights import RuleChanger
from netinit.inject.deciding.rules_program import NETINIT, RulesProgram, find_program, list_unread
from netinit.inject.deciding.warnings import (
    NOT_PROGRAMMED,
    PodFinding,
    applications_of,
    find_rule_changers,
    find_unnamed_proxy,
    may_set_marks,
    only_validates,
    pod_findings,
    shared_owners,
    user_of,
    uses_host_network,
)
from netinit.options import Options
from netinit.options.interception import PROXY_PORTS
from netinit.options.kinds import TRUE_WORDS

if TYPE_CHECKING:
    from netinit.inject.deciding.manifest_places import PodPlace

DOUBT = (
    "it is not known whether the pod is injected: it has no label that decides, and its Namespace is not in the files; give the "
    "Namespace too, or --assume injected, cni or none"
)
BY_UNKNOWN_TEMPLATES = "it is not known how the pod is injected: "  # begins why not: the injector's configuration is not given
OF_ANOTHER_MESH = "its rules are not Istio's: "  # begins why it is not known what they do
_OTHER_MESHES = {
    "linkerd-init": "Linkerd", "linkerd-network-validator": "Linkerd", "kuma-init": "Kuma", "kuma-validation": "Kuma",
    "consul-connect-inject-init": "Consul", "osm-init": "Open Service Mesh", "proxyinit": "AWS App Mesh",
}  # fmt: skip
"""The init containers by which other meshes program a pod, or check what their CNI plugin did."""
_CONVERTED = ("Linkerd", "Kuma", "Consul")
_DECIDING = ("Namespace", "MutatingWebhookConfiguration")
TUNNEL_VARIABLE = "ISTIO_META_ENABLE_HBONE"
OF_ANNOTATION = "annotation "  # begins what is said of one
VALUE = "value "  # begins the name of a Helm value
_OF_OPTIONS = frozenset(ANNOTATIONS)
_TO_COMPLETE = (None, "", "auto")  # images of a proxy's container that the injection completes
_JSON_VARIABLE = "ISTIO_METAJSON_"  # prefix of variables with several settings


@dataclass(frozen=True, slots=True)
class ContainerUser:
    """A container's user and group in the manifest; None if the image decides."""

    container: str
    uid: int | None
    gid: int | None


INJECTED, BY_PLUGIN, LEFT_OUT, NOT_KNOWN = "injected", "cni", "none", "unknown"  # what becomes of a pod without a proxy
BY_AGENT = "ambient"  # of one in an ambient mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class FuturePod:
    """A pod as it will be created.

    `outlook`: INJECTED, BY_PLUGIN, BY_AGENT, LEFT_OUT or NOT_KNOWN; `reason`: what decides that, or why it is not known.
    `settings`: the Helm value that sets an option for all pods, by annotation. `findings`: what its injection ignores.
    `without_rules`: why an injected pod has none.
    """

    outlook: str
    pod: Tree
    reason: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[PodFinding, ...] = ()
    without_rules: str = ""


Foresee = Callable[[Workload], FuturePod]
ForeseeBy = Callable[[Sequence[Tree]], Foresee]
"""Return what becomes of a pod that has neither an init container of a mesh nor a proxy, by objects of the same files."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What a pod's manifest shows; `name`: its kind, namespace and name.

    `origins`: the annotation or the Helm value that sets an option. `addresses`: the pod's own. `programs`: whether a container
    programs the rules; otherwise the options are those of a CNI plugin, or of an ambient agent (`programmed_by`). `name_servers`:
    of its dnsConfig; the only ones if `only_these`. `has_tunnel`: see the function. `users`: of the containers with traffic,
    except the proxy. `shared_owners`: see `warnings`. `rule_changers`: those that may undo the interception. `accepted`: codes
    of accepted findings, with reasons. `in_doubt`: it is not known whether the pod will be injected; the options count if it is.
    `doubt`: why it is not known. `by_annotation`: an injector, a plugin or an agent makes its options of annotations.
    `proxy_ports`: see the function. `may_mark`: a container besides the proxy may set firewall marks. `other_proxy`: what its
    proxy is if it is no sidecar, such as `router`.
    `program`: what programs the rules, as far as an init container shows it. `place`: where it stands in `file`.
    """

    name: str
    options: Options
    origins: dict[str, str]
    addresses: tuple[str, ...]
    notes: tuple[str, ...] = ()
    findings: tuple[PodFinding, ...] = ()
    host_network: bool = False
    programs: bool = True
    programmed_by: str = "init container"
    intercepted: bool = True  # False on the host network, without an init container and a sidecar
    name_servers: tuple[str, ...] = ()
    only_these: bool = False
    has_tunnel: bool | None = None
    users: tuple[ContainerUser, ...] = ()
    shared_owners: tuple[tuple[str, str], ...] = ()
    rule_changers: tuple[RuleChanger, ...] = ()
    file: str = ""
    accepted: Mapping[str, str] = field(default_factory=dict)
    in_doubt: bool = False
    doubt: str = DOUBT
    place: PodPlace | None = field(default=None, repr=False, compare=False)
    by_annotation: bool = False
    proxy_ports: tuple[int, ...] = PROXY_PORTS
    may_mark: bool = True
    other_proxy: str = ""
    program: RulesProgram = NETINIT

    @property
    def written_options(self) -> Options:
        """The options as they are in the pod: Istio's program needs no option to make exactly Istio's rules."""
        return self.options.without("istio_exact") if self.program.is_istio else self.options


def read_object(tree: Tree, base: Options | None = None, foresee_by: ForeseeBy | None = None) -> PodFacts:
    """Return the facts of one pod, given as a tree. Raises ParseError and OptionError.

    `base`: the node agent's defaults.
    """
    found = [one for one in workloads(tree) if not one.bare]
    if len(found) != 1:
        raise ParseError("the object is not a pod with a spec")
    return read_facts(found[0], base or Options(), foresee_by(()) if foresee_by else None)


def deciding_objects(trees: Iterable[Any]) -> list[Tree]:
    """Return the objects that decide whether others are injected: namespaces and configurations of webhooks."""
    return [one for one in trees if isinstance(one, dict) and one.get("kind") in _DECIDING]


def is_as_created(pod: Tree) -> bool:
    """Whether nobody adds anything to the pod any more: it has a proxy or an init container, or no network of its own.

    A proxy without an image of its own is one that the injection completes: gateways, and sidecars with settings of the pod's.
    """
    spec = mapping(pod["spec"])
    proxy = find_proxy(spec)
    of_a_mesh = find_init(spec) is not None or is_ambient(pod) or read_status(pod) is not None
    return of_a_mesh or (proxy is not None and proxy.get("image") not in _TO_COMPLETE) or uses_host_network(pod)


def read_facts(one: Workload, base: Options, foresee: Foresee | None = None) -> PodFacts:
    """Return the facts of a workload's pod. Raises OptionError.

    `base`: the node agent's defaults. `foresee`: what becomes of a pod that is not injected yet; without it the pod stays as it is.
    """
    facts = _read_facts(one, base, foresee)
    return facts if facts.host_network else _unless_of_another_mesh(facts, one.pod())


def _unless_of_another_mesh(facts: PodFacts, pod: Tree) -> PodFacts:
    """The facts, or that it is not known what the rules do where another mesh's init container makes them, alone or first."""
    names = [name for item in named(mapping(pod["spec"]).get("initContainers")) if (name := string(item.get("name"))) in _OTHER_MESHES]
    if not names:
        return facts
    mesh = _OTHER_MESHES[names[0]]
    if facts.intercepted:
        both = "and the pod is in Istio's mesh too: only one of them gets a connection; remove one"
        what = f"init container {names[0]} is {mesh}'s, {both}"
    else:
        convert = f"; netinit convert --from {mesh.lower()} says what its arguments do" if mesh in _CONVERTED else ""
        what = f"init container {names[0]} makes those of {mesh}, or checks them{convert}"
    doubt = f"{OF_ANOTHER_MESH}{what}"
    findings = tuple([finding for finding in facts.findings if finding.kind != NOT_PROGRAMMED])
    return replace(facts, in_doubt=True, doubt=doubt, notes=(doubt,), findings=findings)


def _read_facts(one: Workload, base: Options, foresee: Foresee | None) -> PodFacts:
    pod = one.pod()
    future = foresee(one) if foresee and not is_as_created(pod) else None
    if future is None:
        return _facts_of(one, pod, base)
    facts = _facts_of(one, future.pod, base)
    origins = {**_origins(future.settings, VALUE), **_origins(_annotations(pod))}  # not what the injection writes
    findings = tuple([finding for finding in facts.findings if finding.kind != NOT_PROGRAMMED])
    facts = replace(facts, findings=(*findings, *future.findings), origins=origins, by_annotation=True)
    if future.outlook == INJECTED and future.without_rules:
        note = f"injected ({future.reason}), but {future.without_rules}; nothing is intercepted"
        return replace(facts, intercepted=False, notes=(note,))
    if future.outlook == INJECTED:
        return replace(facts, notes=(f"as the webhook would inject it ({future.reason})", *facts.notes))
    if future.outlook == BY_PLUGIN:
        return replace(facts, intercepted=True, notes=(f"as a CNI plugin would program it ({future.reason})",))
    if future.outlook == BY_AGENT:
        return replace(facts, notes=(f"as the ambient mesh's agent would program it ({future.reason})",))
    if future.outlook == NOT_KNOWN:
        doubt = f"{BY_UNKNOWN_TEMPLATES}{future.reason}" if future.reason else DOUBT
        return replace(facts, in_doubt=True, doubt=doubt, notes=(doubt,))
    return replace(facts, notes=(f"not injected: {future.reason}; nothing is intercepted",))


def _facts_of(one: Workload, pod: Tree, base: Options) -> PodFacts:
    """Return the facts of a pod as it is created."""
    annotations = _annotations(pod)
    spec = pod["spec"]
    container = find_init(spec)
    ambient = is_ambient(pod)
    programs, program = False, NETINIT
    if container is not None and not only_validates(container):
        programs, by, options, program = True, "init container", options_of(container), find_program(container)
        options = options.replace(istio_exact=True) if program.is_istio else options
        note = f"options of its init container {string(container.get('name'))}"
    elif ambient:
        by, options = "by an ambient agent", _ambient_options(annotations)
        note = f"{REDIRECTION} is enabled: these are the options of a mesh's ambient agent"
    else:
        by, options = "by a CNI plugin", _options_of_annotations(spec, annotations, base)
        lacks = "it has no init container of a mesh" if container is None else "its init container only checks the rules"
        note = f"{lacks}: assuming what a CNI plugin derives from its annotations"
    kind = "" if container is not None or ambient else other_kind(mapping(find_proxy(spec)).get("args"))
    if kind:
        note = describe_other_proxy(kind)
    unread = list_unread(container, annotations) if programs and container is not None else ()
    of_metadata = (*annotation_findings(annotations, frozenset(known_keys()), one), *request_findings(one))
    status = mapping(one.tree.get("status")) if one.kind == "Pod" else {}
    listed = [string(item.get("ip")) for item in named(status.get("podIPs"))] or [string(status.get("podIP"))]
    applications, proxy = applications_of(spec, container), find_unnamed_proxy(spec, container, options)
    return PodFacts(
        name=one.title,
        options=options,
        origins=_origins(annotations),
        addresses=tuple(address for address in listed if address),
        notes=(note,),
        findings=(*pod_findings(pod), *of_metadata, *unread),
        host_network=uses_host_network(pod),
        programs=programs,
        programmed_by=by,
        intercepted=not uses_host_network(pod) and (container is not None or ambient or find_sidecar(spec) is not None),
        name_servers=tuple(_addresses(mapping(spec.get("dnsConfig")).get("nameservers"))),
        only_these=spec.get("dnsPolicy") == "None",
        has_tunnel=has_tunnel(pod),
        users=tuple([ContainerUser(string(one.get("name")), *user_of(one, spec)) for one in applications if one is not proxy]),
        shared_owners=shared_owners(spec, container, options),
        rule_changers=find_rule_changers(pod),
        accepted=_accepted(annotations),
        by_annotation=not programs or read_status(pod) is not None,
        proxy_ports=proxy_ports(spec, annotations, proxy),
        may_mark=may_set_marks(pod),
        other_proxy=kind,
        program=program,
    )


def describe_other_proxy(kind: str) -> str:
    """Say what a proxy that is no sidecar means for the pod's connections."""
    return f"its proxy is a {shorten(kind)}, not a sidecar: it makes the pod's connections itself, and no rules redirect them"


def _annotations(pod: Tree) -> dict[str, str]:
    return strings(mapping(pod["metadata"]).get("annotations"))


def _origins(found: Mapping[str, str], kind: str = "") -> dict[str, str]:
    """The names under which options are set, by field: an annotation, or the value of `kind` that stands for one."""
    named_by = [(flag.field, find_annotation(flag, found)) for flag in Options.flags] if _OF_OPTIONS & found.keys() else []
    by_proxy = {} if kind or PROXY_CONFIG not in found else _proxy_metadata(found)
    variables = {flag.field: in_proxy_config(flag.pod_variable) for flag in Options.flags if flag.pod_variable in by_proxy}
    return {**variables, **{field: f"{kind}{found[name]}" if kind else f"{OF_ANNOTATION}{name}" for field, name in named_by if name}}


def in_proxy_config(variable: str) -> str:
    """Return the name of a variable of the proxy that a pod's annotation sets."""
    return f"{OF_ANNOTATION}{PROXY_CONFIG}, proxyMetadata {variable}"


def proxy_ports(spec: Tree, annotations: Mapping[str, str], proxy: Tree | None = None) -> tuple[int, ...]:
    """Return where the proxy serves health and metrics: the usual ports and its status port, unless another container has them.

    `proxy`: the proxy's container, if it has not the usual name.
    """
    status = annotations.get(STATUS_PORT, "").strip()
    own = {*PROXY_PORTS, *([int(status)] if CHECKS[STATUS_PORT](status) is None else [])}
    ports = [port for one in all_containers(spec) if one.get("name") != PROXY and one is not proxy for port in named(one.get("ports"))]
    return tuple(sorted(own - {port.get("containerPort") for port in ports if isinstance(port.get("containerPort"), int)}))


def accepted_findings(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the codes that a pod accepts, with reasons; none if its annotation cannot be read."""
    with contextlib.suppress(OptionError):
        return _accepted(annotations)
    return {}


def _accepted(annotations: Mapping[str, str]) -> dict[str, str]:
    try:
        return read_accepted(annotations.get(ACCEPTED, ""))
    except ValueError as error:
        raise OptionError(f"{OF_ANNOTATION}{ACCEPTED}: {error}") from None


def _addresses(items: object) -> Iterator[str]:
    for item in items if isinstance(items, list) else ():
        with contextlib.suppress(ValueError):
            yield parse_address(string(item))


def _options_of_annotations(spec: Tree, annotations: Mapping[str, str], base: Options) -> Options:
    proxy = find_proxy(spec) or {}
    environment = {string(item.get("name")): string(item.get("value")) for item in named(proxy.get("env"))}
    uid, gid = user_of(proxy, {})
    try:
        return make_cni_options(annotations, environment, base, uid=uid, gid=gid)
    except OptionError as error:
        raise OptionError(*[_name_origin(problem, annotations, environment) for problem in error.problems]) from None


def _ambient_options(annotations: Mapping[str, str]) -> Options:
    try:
        return make_ambient_options(annotations)
    except ValueError as error:  # the only value of such a pod that may be invalid
        name = find_annotation(Options.flag("virtual_interfaces"), annotations)
        raise OptionError(f"{OF_ANNOTATION}{name}: {error}") from None


def _name_origin(problem: str, annotations: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return a problem of a field under the name that its author wrote: the annotation, or the variable of the proxy."""
    name, _, text = problem.partition(": ")
    for flag in Options.flags if text else ():
        if flag.field != name:
            continue
        if annotation := find_annotation(flag, annotations):
            return f"{OF_ANNOTATION}{annotation}: {text}"
        if flag.pod_variable in environment:
            return f"variable {flag.pod_variable} of the proxy: {text}"
    return f"annotations: {problem}"


def has_tunnel(pod: Tree) -> bool | None:
    """Return whether a pod's proxy listens for HBONE tunnels, by its environment; None if unknown.

    istiod creates the listener if the proxy's metadata has ENABLE_HBONE (istio pilot/pkg/model/context.go,
    EnableHBONEListen), which pilot-agent reads from ISTIO_META_ENABLE_HBONE (pkg/bootstrap/config.go). istiod also needs
    PILOT_ENABLE_AMBIENT, which no pod shows.
    """
    proxy = find_proxy(mapping(pod.get("spec")))
    if proxy is None:
        return True if _by_annotation(pod) else None
    variables = named(proxy.get("env"))
    found = [item for item in variables if item.get("name") == TUNNEL_VARIABLE]
    if found and "valueFrom" not in found[-1]:  # the last one takes effect
        return string(found[-1].get("value")) in TRUE_WORDS
    if found or proxy.get("envFrom") or any(string(item.get("name")).startswith(_JSON_VARIABLE) for item in variables):
        return None
    return False


def _by_annotation(pod: Tree) -> bool:
    metadata = _proxy_metadata(strings(mapping(pod.get("metadata")).get("annotations")))
    return string(metadata.get(TUNNEL_VARIABLE)) in TRUE_WORDS


def _proxy_metadata(annotations: Mapping[str, str]) -> Tree:
    try:
        config = yaml_texts.load(annotations.get(PROXY_CONFIG, ""))
    except ParseError:  # the injector rejects the annotation
        return {}
    return mapping(mapping(config).get("proxyMetadata"))
