"""Explain why a workload is injected or not: each step, what would change the result, and what the pod gets.

First the API server decides, by the webhooks' selectors, which see only labels; then the injector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netinit.base.errors import InjectionError, OptionError
from netinit.base.tree import Tree, mapping, same, sequence, string, strings
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.ignored_settings import injection_warnings
from netinit.inject.adding.other_templates import as_gateway, becomes_gateway, explain_doubt
from netinit.inject.adding.pod import inject_pod
from netinit.inject.adding.settings import Namespace, Settings
from netinit.inject.deciding.containers import (
    INIT,
    PROXY,
    VALIDATION,
    all_containers,
    find,
    find_proxy,
    named,
    other_kind,
)
from netinit.inject.deciding.decision import Decision, DecisionStep, decide, decide_manually
from netinit.inject.deciding.init_container import options_of
from netinit.inject.deciding.injection_status import read_status
from netinit.inject.deciding.manifests import Workload
from netinit.inject.deciding.metadata_findings import annotation_findings, unread_by_hand
from netinit.inject.deciding.pod_security import pod_security_findings
from netinit.inject.deciding.podfile import describe_other_proxy
from netinit.inject.deciding.usual_webhooks import find_obstacles, firing
from netinit.inject.deciding.warnings import ARGUMENTS, NOT_PROGRAMMED, pod_findings
from netinit.inject.deciding.webhooks import INJECT, NAME_LABEL, Webhook
from netinit.options import Options


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step of the decision: its result (`passed`, `decided` or `not reached`) and the reason."""

    step: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for a workload.

    `already`: its status annotation says that it was injected before. `webhook`: the first that matches. `remedies`:
    how to get the opposite result. `interception`: what the pod's rules will do. `findings`: problems for its owner. `doubt`: why
    it is not known what it gets.
    """

    kind: str
    namespace: str
    name: str
    injected: bool
    already: bool = False
    webhook: str = ""
    revision: str = ""
    reason: str
    chain: tuple[StepResult, ...]
    remedies: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    interception: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    error: str = ""
    doubt: str = ""


def judge(
    workload: Workload,
    config: InjectionConfig,
    webhooks: Sequence[Webhook] | None,
    *,
    namespace: Namespace,
    settings: Settings | None = None,
    lint: Callable[[Options], Iterable[str]] = lambda options: (),  # noqa: ARG005 - finds nothing
) -> Verdict:
    """Return the verdict of webhooks and injector on a workload's pods.

    `webhooks`: None for manual injection, which ignores webhooks and policy. `lint`: returns findings about the options of
    the init container.
    """
    of_workload: dict[str, Any] = {"kind": workload.kind, "namespace": namespace.name, "name": workload.name}
    if workload.bare:
        reason = "it has no pod spec: there is nothing to inject"
        return Verdict(**of_workload, injected=False, reason=reason, chain=(StepResult("pod", "decided", reason),))
    if webhooks is None:
        pod, selected = workload.pod(), True
        decision = decide_manually(pod, namespace.name, config)
        of_workload["chain"] = (StepResult(decision.step.value, "decided", decision.reason),)
        of_workload["remedies"] = _remedies_of(decision, may_opt_out=not config.classic)
    else:
        pod = workload.created_pod()
        decision = decide(pod, namespace.name, config)
        selected, fields = _ask_webhooks(pod, webhooks, namespace, decision)
        of_workload |= fields
    injected = selected and decision.inject
    reason = decision.reason if selected else "no webhook selects the pod"
    by_others = _by_other_templates(pod, config) if injected and webhooks is not None else None  # manual injection has its own alone
    adds = injected and by_others is None
    try:
        result = inject_pod(pod, config, namespace=namespace, settings=settings, owner=workload.owner) if adds else None
        outcome = by_others or _outcome(pod, result, lint, namespace)
    except InjectionError as error:
        result, outcome = None, {"error": str(error)}
    if already := read_status(pod) is not None:
        after = f"the injector would change {'nothing' if result is None or same(pod, result) else 'it'}"
        reason = f"already injected, {after if injected else f'and left as it is: {reason}'}"
    useless = [*annotation_findings(strings(mapping(pod["metadata"]).get("annotations")), config.known_annotations, workload)]
    useless += unread_by_hand(workload, config.known_annotations) if webhooks is None else ()
    return Verdict(
        **of_workload,
        injected=injected,
        already=already,
        reason=reason,
        warnings=(*decision.warnings, *map(str, injection_warnings(pod) if injected else ()), *map(str, useless)),
        **outcome,
    )


def _ask_webhooks(
    pod: Tree, webhooks: Sequence[Webhook], namespace: Namespace, decision: Decision
) -> tuple[bool, dict[str, Any]]:
    """Return whether a webhook selects the pod, and the verdict's webhook, revision, chain and remedies."""
    pod_labels = strings(mapping(pod["metadata"]).get("labels"))
    labels = {NAME_LABEL: namespace.name, **(namespace.labels or {})}
    fired = firing(webhooks, labels, pod_labels)
    doubt = "" if namespace.labels is not None else " (the namespace's labels are unknown and taken as none)"
    if fired:
        link = StepResult("webhook", "passed", f"selected by {', '.join(webhook.short_name for webhook in fired)}{doubt}")
    else:
        none = f"none of {len(webhooks)} webhooks selects the pod{doubt}" if webhooks else "there is no webhook"
        link = StepResult("webhook", "decided", none)
    obstacles = () if fired else _obstacles(webhooks, labels, pod_labels)
    return bool(fired), {
        "webhook": fired[0].short_name if fired else "",
        "revision": fired[0].revision if fired else "",
        "chain": (link, *_steps(decision, reached=bool(fired))),
        "remedies": (*obstacles, *_remedies_of(decision, may_opt_out=bool(fired))),
    }


_WINS = f'{INJECT}: "true" on the pod template wins over'
_STEPS = {
    DecisionStep.HOST_NETWORK: (
        "the pod has a network of its own",
        "remove hostNetwork: true; with the node's network there is nothing that could be injected"),
    DecisionStep.NAMESPACE: (
        "not a system namespace", "move the workload to a namespace of its own; system namespaces are never injected"),
    DecisionStep.LABEL: (f"no label {INJECT} that decides", f'set the label {INJECT}: "true" on the pod template'),
    DecisionStep.ANNOTATION: (
        f"no annotation {INJECT} that decides", f'set the label or annotation {INJECT}: "true" on the pod template'),
    DecisionStep.NEVER_SELECTOR: ("no neverInjectSelector matches", f"{_WINS} the selectors"),
    DecisionStep.ALWAYS_SELECTOR: ("no alwaysInjectSelector matches", ""),
    DecisionStep.POLICY: ("", f"{_WINS} the policy disabled; the policy itself is the injector's key `policy`"),
}  # fmt: skip
"""The injector's steps in order: what it means to pass one, and the remedy if it decided against injection."""


def _steps(decision: Decision, *, reached: bool) -> tuple[StepResult, ...]:
    """Return the injector's steps; they are not reached without a matching webhook."""
    links = []
    outcome = "passed" if reached else "not reached"
    for step, (passed, _) in _STEPS.items():
        if step is decision.step:
            word = "inject" if decision.inject else "do not inject"
            links.append(StepResult(step.value, "decided" if reached else outcome, f"{decision.reason}: {word}"))
            outcome = "not reached"
        else:
            links.append(StepResult(step.value, outcome, passed if outcome == "passed" else ""))
    return tuple(links)


_LEAVE_OUT = f'to leave the pod out: {INJECT}: "false" on the pod template'


def _remedies_of(decision: Decision, *, may_opt_out: bool) -> tuple[str, ...]:
    if not decision.inject:
        return (_STEPS[decision.step][1],)
    return (_LEAVE_OUT,) if may_opt_out else ()


def _obstacles(webhooks: Sequence[Webhook], labels: Mapping[str, str], pod_labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the webhooks that are closest to selecting the pod lack."""
    obstacles = {webhook: find_obstacles(webhook, labels, pod_labels) for webhook in webhooks}
    fewest = min(map(len, obstacles.values()), default=0)
    closest = [webhook for webhook in webhooks if len(obstacles[webhook]) == fewest]
    closest.sort(key=lambda webhook: webhook.short_name.startswith("rev."))
    return tuple(f"for the webhook {webhook.short_name}: {' and '.join(obstacles[webhook])}" for webhook in closest)


def _outcome(pod: Tree, result: Tree | None, lint: Callable[[Options], Iterable[str]], namespace: Namespace) -> dict[str, Any]:
    """Return the verdict's interception and findings for a pod and what it became; None if it is left out."""
    if result is None:
        return {"findings": tuple(str(one) for one in pod_findings(pod) if one.kind != NOT_PROGRAMMED)}
    spec = mapping(result.get("spec"))
    reported = {NOT_PROGRAMMED, ARGUMENTS}  # by the interception
    found = (*pod_security_findings(result, namespace.name, namespace.labels or {}), *pod_findings(result))
    findings = [str(finding) for finding in found if finding.kind not in reported] + _probe_findings(pod, spec)
    init = find(spec.get("initContainers"), INIT) or find(spec.get("initContainers"), VALIDATION)
    if init is None:
        return {"interception": ("nothing is intercepted: the template adds no istio-init",), "findings": tuple(findings)}
    try:
        options = options_of(init)
    except OptionError as error:
        return {"interception": (f"the arguments of {init.get('name')} cannot be read: {error}",)}
    return {"interception": _summary(options), "findings": (*findings, *lint(options))}


def _by_other_templates(pod: Tree, config: InjectionConfig) -> dict[str, Any] | None:
    """Return the verdict's fields for a pod that asks for templates of a configuration that is not given; None for others."""
    if doubt := explain_doubt(pod, config):
        return {"doubt": doubt}
    if not becomes_gateway(pod, config):
        return None
    made = as_gateway(pod)
    kind = other_kind(mapping(find_proxy(made["spec"])).get("args"))
    found = [str(one) for one in pod_findings(made) if one.kind != NOT_PROGRAMMED]
    return {"interception": (f"nothing is intercepted: {describe_other_proxy(kind)}",), "findings": tuple(found)}


def _format_list(values: Sequence[object] | str, everything: str, nothing: str) -> str:
    if isinstance(values, str):
        return everything
    return ", ".join(map(str, values)) or nothing


def _summary(options: Options) -> tuple[str, ...]:
    if options.inbound_mode == "NONE":
        inbound = "inbound: nothing is captured (mode NONE)"
    else:
        ports = _format_list(options.inbound_ports, "all ports", "no port")
        left = _format_list(options.exclude_inbound_ports, "", "")
        without = f" but {left}" if left and isinstance(options.inbound_ports, str) else ""
        inbound = f"inbound: {ports}{without} to {options.inbound_port} ({options.inbound_mode})"
    networks = _format_list(options.outbound_cidrs, "all addresses", "no address")
    excluded = [*map(str, options.exclude_outbound_cidrs), *(f"port {port}" for port in options.exclude_outbound_ports)]
    outbound = f"outbound: {networks}{' but ' + ', '.join(excluded) if excluded else ''} to {options.outbound_port}"
    if options.outbound_ports:
        outbound += f", and ports {_format_list(options.outbound_ports, '', '')} whatever their address"
    uids = ", ".join(map(str, options.proxy_uids))
    return inbound, outbound, f"traffic of uid {uids} passes untouched: it is the proxy's"


def _probe_findings(pod: Tree, spec: Tree) -> list[str]:
    """Return findings about each probe: whether it goes through the agent, and if not, why."""
    if find_proxy(spec) is None:
        return []
    after = all_containers(spec)
    found = []
    for container in named(mapping(pod.get("spec")).get("containers")):
        for key in ("readinessProbe", "livenessProbe", "startupProbe"):
            probe = mapping(container.get(key))
            kind = next((kind for kind in ("httpGet", "tcpSocket", "grpc") if kind in probe), None)
            if kind is None or container.get("name") == PROXY:
                continue
            port = mapping(probe[kind]).get("port")
            changed = mapping(mapping(find(after, string(container.get("name")))).get(key)) != probe
            what = f"{key} of {container.get('name')}: {kind} on port {port}"
            declared = [item.get("name") for item in sequence(container.get("ports")) if isinstance(item, dict)]
            if changed:
                found.append(f"{what} goes through the agent's status port")
            elif isinstance(port, str) and port not in declared:
                found.append(f"{what} stays as it is: the container declares no port of that name")
            else:
                found.append(f"{what} stays as it is: with strict mutual TLS the kubelet will be refused")
    return found
