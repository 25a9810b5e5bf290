"""The steps of a pod's start: init containers without network, who starts first, Jobs that the proxy keeps from ending, ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from netinit.base.findings import FindingKind
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.inject.deciding.annotations import NATIVE_SIDECAR, PROXY_CONFIG
from netinit.inject.deciding.containers import PROXY, named
from netinit.inject.deciding.warnings import NO_NETWORK, pod_findings
from netinit.options import DNS_LISTENER
from netinit.questions.why.asked import WhyQuestion
from netinit.questions.why.objects import MAX_LISTED
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.steps import Step, count_unexamined, failed, name_first, passed, unknown

PROXY_NOT_READY = FindingKind(
    "NI317", "proxy-not-ready",
    "The proxy's container is not ready: captured connections are refused, or go nowhere. Its log says what it waits "
    "for: istiod, a certificate, or a configuration that Envoy rejects.",
)
STARTS_FIRST = FindingKind(
    "NI316", "starts-first",
    "The application starts before its proxy, or at the same time: connections in its first seconds are refused, and "
    "init containers of its own have no network. Set holdApplicationUntilProxyStarts, use native sidecars, or let "
    "the application retry.",
)
JOB_NEVER_ENDS = FindingKind(
    "NI313", "job-never-ends",
    "The proxy is an ordinary container, and goes on when the Job's own container has ended, so that the pod never "
    "completes. Use native sidecars (Kubernetes 1.29 or newer), or let the application end the proxy: a POST to "
    "127.0.0.1:15020/quitquitquit.",
)
PORT_TAKEN = FindingKind(
    "NI314", "port-taken",
    'Two processes of the pod want one port, and containers of a pod share one network: the second gets "address '
    "already in use\". Ports from 15000 to 15090 are the proxy's. Choose another port for the application.",
)

INIT, ORDER, JOB, PORTS, STATE = "init containers", "start order", "job", "ports", "state"
IN_USE = '"address already in use"'
DEBUG_PORT = 15004  # pilot-agent request
ADMIN_PORT = 15000  # Envoy's, and proxyAdminPort of ProxyConfig
_HOLDS = "holdApplicationUntilProxyStarts"
_ENDED = ("Succeeded", "Failed")  # phases
_WAITS = "pilot-agent"  # of the proxy's postStart handler, which the injector writes where the application is to wait


def examine_state(pod: PodInQuestion) -> Iterator[Step]:
    """Say what the pod's status says of its proxy; nothing of a manifest."""
    listed = [*sequence(pod.status.get("containerStatuses")), *sequence(pod.status.get("initContainerStatuses"))]
    proxy = next((mapping(one) for one in listed if mapping(one).get("name") == PROXY), None)
    if proxy is None:
        return
    if proxy.get("ready") is True:
        yield passed(STATE, f"{PROXY} is ready", pod.title)
        return
    if string(pod.status.get("phase")) in _ENDED:
        yield passed(STATE, f"{PROXY} has ended, as the pod has", pod.title)
        return
    state = mapping(proxy.get("state"))
    reason = next((string(mapping(one).get("reason")) for one in state.values() if mapping(one).get("reason")), "")
    where = f"-n {pod.namespace} {pod.kubectl_name}"
    yield failed(
        STATE, PROXY_NOT_READY, f"its proxy, the container {PROXY}, is not ready{f': {quote(reason)}' if reason else ''}", pod.title,
        remedy="see what its log says: it waits for istiod, or its configuration is rejected",
        shown_by=f"kubectl logs {where} -c {PROXY}",
    )  # fmt: skip


def examine_init_containers(pod: PodInQuestion, asked: WhyQuestion) -> Iterator[Step]:
    """Say which init containers run with the rules and before the proxy."""
    found = [one for one in pod_findings(pod.runs) if one.kind == NO_NETWORK]
    state = {string(mapping(one).get("name")): mapping(one) for one in sequence(pod.status.get("initContainerStatuses"))}
    for one in found[:MAX_LISTED]:
        text, _, remedy = one.text.partition("; ")
        about, has_ended = f"init container {quote(one.subject)}", "terminated" in mapping(state.get(one.subject, {}).get("state"))
        text = text.removeprefix(f"{about} ")
        if has_ended:
            yield passed(INIT, "it has ended, though it ran before the proxy", about)
        elif asked.is_start or state:
            yield failed(INIT, one.kind, text, about, remedy=remedy)
        else:
            yield unknown(INIT, text, about, remedy=remedy, kind=one.kind)
    yield from count_unexamined(INIT, found, "init containers", pod.title)
    if not found and named(pod.spec.get("initContainers")):
        yield passed(INIT, "none runs before the proxy without a network", pod.title)


def examine_order(pod: PodInQuestion) -> Iterator[Step]:
    """Say whether the application waits for the proxy."""
    proxy = pod.proxy
    if proxy is None or pod.is_gateway:
        return
    if pod.has_native_sidecar:
        yield passed(ORDER, "the proxy is a native sidecar, which starts before the application", pod.title)
    elif _waits_for_proxy(proxy) and pod.spec.get("containers", [{}])[0] is proxy:
        yield passed(ORDER, f"the application waits for the proxy ({_HOLDS})", pod.title)
    else:
        yield unknown(
            ORDER, "the application may start before its proxy: what it connects to in its first seconds is refused", pod.title,
            remedy=f'annotation {PROXY_CONFIG}: "{{{_HOLDS}: true}}", or {NATIVE_SIDECAR}: "true"', kind=STARTS_FIRST,
        )  # fmt: skip


def _waits_for_proxy(proxy: Tree) -> bool:
    command = mapping(mapping(mapping(proxy.get("lifecycle")).get("postStart")).get("exec")).get("command")
    return any(string(word) == _WAITS for word in sequence(command))


def examine_job(pod: PodInQuestion) -> Iterator[Step]:
    """Say whether the proxy keeps a Job's pod from ending."""
    is_of_a_job = pod.workload.kind in ("Job", "CronJob") or pod.workload.owner.kind in ("Job", "CronJob")
    if not is_of_a_job or pod.proxy is None or pod.spec.get("restartPolicy") == "Always":
        return
    if pod.has_native_sidecar:
        yield passed(JOB, "the proxy is a native sidecar, which ends with the application", pod.title)
        return
    yield failed(
        JOB, JOB_NEVER_ENDS, f"the container {PROXY} goes on when the application has ended, so the Job never ends", pod.title,
        remedy=f'annotation {NATIVE_SIDECAR}: "true" (Kubernetes 1.29), or let the application end with a POST to'
        " 127.0.0.1:15020/quitquitquit",
    )  # fmt: skip


def examine_ports(pod: PodInQuestion) -> Iterator[Step]:
    """Say which containers want a port that another process of the pod has."""
    wanted = [(string(one.get("name")), port) for one in pod.applications for port in _list_ports(one)]
    taken = _ports_of_proxy(pod) if pod.in_mesh is not False else {}
    problems = 0
    for name, (port, protocol) in dict.fromkeys(wanted):
        if port in taken and protocol == "TCP" and problems < MAX_LISTED:
            problems += 1
            text = f"wants port {port}, which is the proxy's ({taken[port]}): the second to bind it gets {IN_USE}"
            yield failed(PORTS, PORT_TAKEN, text, f"container {quote(name)}", remedy="let the application listen on another port")
    for place, number in Counter([place for _, place in dict.fromkeys(wanted)]).items():
        if number > 1 and problems < MAX_LISTED:
            problems += 1
            names = name_first([quote(name) for name, other in dict.fromkeys(wanted) if other == place])
            text = f"{names} name port {place[0]}, and containers of a pod share one network: the second gets {IN_USE}"
            yield failed(PORTS, PORT_TAKEN, text, pod.title, remedy="give each its own port")
    if wanted and not problems:
        yield passed(PORTS, "no port is wanted twice, as far as the manifest says", pod.title)


def _list_ports(container: Tree) -> Iterator[tuple[int, str]]:
    for one in named(container.get("ports")):
        port = one.get("containerPort")
        if isinstance(port, int):
            yield port, string(one.get("protocol")).upper() or "TCP"


def _ports_of_proxy(pod: PodInQuestion) -> dict[int, str]:
    """The ports on which the proxy and its agent listen, with what for."""
    if pod.facts is None:
        return {}
    options = pod.facts.options
    found = dict.fromkeys(pod.facts.options.traits.proxy_ports, "health and metrics")
    found |= {ADMIN_PORT: "Envoy's admin interface", DEBUG_PORT: "the agent's debug interface"}
    found |= {options.outbound_port: "captured outbound", DNS_LISTENER: "DNS"}
    inbound = {options.inbound_port: "captured inbound"} if options.inbound_ports else {}
    tunnel = {options.tunnel_port: "HBONE"} if pod.facts.has_tunnel else {}
    return found | inbound | tunnel
