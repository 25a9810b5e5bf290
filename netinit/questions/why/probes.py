"""The step "probe": whether the kubelet's probes and lifecycle hooks reach the application, through the proxy's agent or plainly."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.findings import FindingKind
from netinit.base.net import lists_port
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, string
from netinit.inject.deciding.annotations import REWRITE_PROBES
from netinit.inject.deciding.containers import named
from netinit.options import Options
from netinit.questions.connections import Question
from netinit.questions.option_names import name_options, translate
from netinit.questions.why.connection import Explain, ask, examine_answers
from netinit.questions.why.mutual_tls import is_strict
from netinit.questions.why.objects import MAX_LISTED, ClusterObjects
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.steps import Step, failed, passed, unknown

PROBE_PORT = FindingKind(
    "NI330", "probe-port",
    "The kubelet cannot send a probe: its port is the name of no containerPort, or its host is a loopback address, "
    "which is the node's own.",
)
PROBE_NOT_REWRITTEN = FindingKind(
    "NI329", "probe-not-rewritten",
    "A probe goes to the application's port itself, not through the proxy's agent, and the kubelet has no "
    'certificate: with STRICT mutual TLS it fails. Set sidecar.istio.io/rewriteAppHTTPProbers: "true", or exclude '
    "the port from inbound capture.",
)

NAME = "probe"
KEYS = ("startupProbe", "readinessProbe", "livenessProbe")
HOOKS = ("postStart", "preStop")
ACTIONS = ("httpGet", "tcpSocket", "grpc")
BY_AGENT = ("/app-health/", "/app-lifecycle/")  # paths of the agent
_LOOPBACKS = ("localhost", "127.0.0.1", "::1")
MAX_PROBES = 20  # of a pod: one step each


def examine_probes(pod: PodInQuestion, objects: ClusterObjects, explain: Explain) -> Iterator[Step]:
    """Say of each probe whether the kubelet's request arrives."""
    probes = [(one, key, probe) for one in pod.applications for key, probe in _list_requests(one) if isinstance(probe, dict)]
    if not probes:
        yield passed(NAME, "no container of the application has one", pod.title)
    ports: dict[int, None] = {}
    for container, key, probe in probes[:MAX_PROBES]:
        about = f"{key} of container {quote(string(container.get('name')))}"
        kind = next((kind for kind in ACTIONS if isinstance(probe.get(kind), dict)), "")
        if not kind:
            yield passed(NAME, "runs in the container (exec), without a network", about)
            continue
        action = mapping(probe[kind])
        number = _port_of(container, action)
        if number is None:
            named_port = quote(string(action.get("port")))
            text = f"{kind} on port {named_port}, which is the name of no port of the container: the kubelet cannot ask"
            yield failed(NAME, PROBE_PORT, text, about, remedy="name a containerPort so, or give the probe a number")
            continue
        ports.setdefault(number)
        yield _judge(pod, objects, about, (kind, action, number))
    if len(probes) > MAX_PROBES:
        yield unknown(NAME, f"{len(probes) - MAX_PROBES} more probes and hooks are not examined", pod.title)
    for number in [*ports][:MAX_LISTED]:
        answers, problem = ask(explain, Question("inbound", to_port=str(number)))
        if problem:
            yield unknown("rules", problem, f"port {number}")
        yield from examine_answers(pod, answers, udp=False)
    if len(ports) > MAX_LISTED and pod.in_mesh is not False:
        left = ", ".join(map(str, [*ports][MAX_LISTED:]))
        yield unknown("rules", f"the rules are not asked about the ports of further probes: {left}", pod.title)


def _list_requests(container: Tree) -> Iterator[tuple[str, object]]:
    """The probes and hooks of a container, by their keys."""
    yield from [(key, container.get(key)) for key in KEYS]
    yield from [(key, mapping(container.get("lifecycle")).get(key)) for key in HOOKS]


def _port_of(container: Tree, action: Tree) -> int | None:
    """The number of a probe's port; None for a name that the container does not have."""
    port = action.get("port")
    if isinstance(port, int):
        return port
    text = string(port)
    if text.isascii() and text.isdigit():
        return int(text[:6])
    numbers = [one.get("containerPort") for one in named(container.get("ports")) if one.get("name") == text]
    return next((one for one in numbers if isinstance(one, int)), None)


def _judge(pod: PodInQuestion, objects: ClusterObjects, about: str, probe: tuple[str, Tree, int]) -> Step:
    kind, action, number = probe
    if kind == "httpGet" and string(action.get("path")).startswith(BY_AGENT):
        return passed(NAME, f"goes through the proxy's agent on {number}, which asks the application", about)
    if string(action.get("host")) in _LOOPBACKS:
        text = f"{kind} with host {quote(string(action['host']))}: that is the node's own loopback for the kubelet"
        return failed(NAME, PROBE_PORT, text, about, remedy="leave out host")
    if pod.in_mesh is None:
        return unknown(NAME, f"{kind} on {number}: it is not known whether the pod is injected", about)
    if not pod.in_mesh or _is_excluded(pod, number):
        return passed(NAME, f"{kind} on {number} reaches the application, past the proxy", about)
    if kind == "tcpSocket":
        text = f"tcpSocket on {number}: the proxy accepts for the application, so it succeeds though nothing listens"
        return unknown(NAME, text, about)
    strict, by = is_strict(pod, number, objects)
    off = f'annotation {REWRITE_PROBES}: "{pod.annotations[REWRITE_PROBES]}"' if REWRITE_PROBES in pod.annotations else "its injector"
    text = f"{kind} on {number} is not sent through the proxy's agent ({off})"
    exclusion = f"add {number} to {Options.flag('exclude_inbound_ports').label}"
    remedy = f'set annotation {REWRITE_PROBES}: "true", or {translate(exclusion, name_options(pod.facts) if pod.facts else {})}'
    if strict:
        text = f"{text}, and the kubelet has no certificate for mutual TLS ({by}: STRICT)"
        return failed(NAME, PROBE_NOT_REWRITTEN, text, about, remedy=remedy)
    if strict is None:
        text = f"{text}: it fails if mutual TLS is STRICT, which is not known"
        return unknown(NAME, text, about, remedy=remedy, kind=PROBE_NOT_REWRITTEN)
    return passed(NAME, f"{text}, and plain text is taken (PERMISSIVE)", about)


def _is_excluded(pod: PodInQuestion, number: int) -> bool:
    """Whether the pod's options leave a port out of inbound capture."""
    if pod.facts is None:
        return False
    options = pod.facts.options
    if options.inbound_mode == "NONE":
        return True
    captured = isinstance(options.inbound_ports, str) or lists_port(options.inbound_ports, number)
    return not captured or lists_port(options.exclude_inbound_ports, number)
