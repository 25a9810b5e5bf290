"""Lint an installation of an injector: webhooks that would block a cluster, and those that never match. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, product
from typing import Any

from netinit.base.errors import NetinitError
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.inject.config import load_config
from netinit.inject.configuration_check import find_template_problems, try_canary
from netinit.inject.pod import Settings
from netinit.webhook.bundle_linting import check_bundle, check_writer
from netinit.webhook.installation_findings import ERROR, WARNING, Hook, InstallationFinding, find_hooks
from netinit.webhook.prerequisites import find_missing

__all__ = ["arguments_of", "lint"]

_INJECTOR = "injector"
_COMPONENT, _OURS = "app.kubernetes.io/name", "netinit-webhook"
_WATCHES = "--watchProxyConfigs=true"
_NAME = "kubernetes.io/metadata.name"
_SYSTEM = "kube-system"
_SLICE_OF = "kubernetes.io/service-name"
_MAX_SECONDS = 10
_MAX_CASES = 20_000


def lint(trees: Iterable[Tree], *, now: float, whole: bool = True) -> tuple[InstallationFinding, ...]:
    """Return all problems, errors first; `now` is in seconds since the epoch.

    `whole`: the objects are a complete cluster, so an object that is not among them does not exist.
    """
    by_kind: dict[str, list[Tree]] = {}
    for tree in trees:
        by_kind.setdefault(string(tree.get("kind")), []).append(tree)
    hooks = list(find_hooks(by_kind.get("MutatingWebhookConfiguration", [])))
    template_findings = list(_check_templates(by_kind.get("ConfigMap", [])))
    if not hooks and template_findings and not whole:
        return tuple(template_findings)
    if not hooks:
        none = "there is no webhook that injects sidecars"
        return (InstallationFinding(ERROR, "no-webhook", "the installation", none, "netinit webhook manifests prints one"),)
    found: list[InstallationFinding] = template_findings
    found += _check_proxy_configs(by_kind)
    for hook in hooks:
        found += [*_check_webhook(hook, by_kind), *check_bundle(hook, now, by_kind, whole=whole)]
        found += [*check_writer(hook, by_kind, whole=whole), *_check_service(hook, by_kind, whole=whole)]
    if whole and "Namespace" in by_kind:
        found += _check_namespaces(hooks, by_kind["Namespace"])
    missing = find_missing(by_kind, [hook.parsed for hook in hooks], whole=whole)
    found += [InstallationFinding(WARNING, *parts) for parts in missing]
    found += _check_overlaps(hooks)
    unique = list(dict.fromkeys(found))
    return tuple(sorted(unique, key=lambda finding: finding.severity != ERROR))


def _check_templates(config_maps: list[Tree]) -> Iterator[InstallationFinding]:
    """Check the injector configurations among the ConfigMaps."""
    for tree in config_maps:
        data = strings(tree.get("data"))
        metadata = mapping(tree.get("metadata"))
        if _INJECTOR not in string(metadata.get("name")) or "config" not in data:
            continue
        subject = f"ConfigMap {metadata.get('namespace')}/{metadata.get('name')}"
        try:
            config = load_config(tree)
            try_canary(config, Settings())
        except NetinitError as error:
            remedy = "correct it, and test it with netinit inject --check-config"
            yield InstallationFinding(ERROR, "configuration", subject, str(error), remedy)
            continue
        for problem in find_template_problems(config, Settings()):
            severity = ERROR if problem.stops_pods else WARNING
            yield InstallationFinding(severity, "template", subject, problem.message, "correct the template")


def _is_ours(deployment: Tree) -> bool:
    return _pod_labels(deployment).get(_COMPONENT) == _OURS


def _pod_labels(workload: Tree) -> dict[str, str]:
    return strings(mapping(mapping(mapping(workload.get("spec")).get("template")).get("metadata")).get("labels"))


def _check_proxy_configs(by_kind: Mapping[str, list[Tree]]) -> Iterator[InstallationFinding]:
    """Warn about ProxyConfig resources that our webhook ignores because it does not watch them."""
    ignores_them = any(_is_ours(tree) and _WATCHES not in arguments_of(tree) for tree in by_kind.get("Deployment", []))
    for metadata in [mapping(tree.get("metadata")) for tree in by_kind.get("ProxyConfig", []) if ignores_them]:
        subject = f"ProxyConfig {metadata.get('namespace')}/{metadata.get('name')}"
        message = f"it applies to pods that istiod injects, but not to those of this webhook, which runs without {_WATCHES}"
        yield InstallationFinding(WARNING, "proxy-config", subject, message, "set injection.proxyConfigs=true")


def arguments_of(workload: Tree) -> list[str]:
    """Return the arguments of all containers of a workload's pods."""
    pod = mapping(mapping(mapping(workload.get("spec")).get("template")).get("spec"))
    return [string(word) for one in sequence(pod.get("containers")) for word in sequence(mapping(one).get("args"))]


def _check_webhook(hook: Hook, by_kind: Mapping[str, list[Tree]]) -> Iterator[InstallationFinding]:
    namespace = hook.service[0]
    own = {_NAME: namespace, "istio-injection": "enabled"}
    pods = [labels for _, labels in _find_deployments(hook, by_kind)] or [{}, {"app.kubernetes.io/name": "netinit-webhook"}]
    if namespace and hook.fails and all(_matches(hook, own, labels) for labels in pods):
        yield InstallationFinding(
            ERROR,
            "own-namespace",
            hook.subject,
            f"it takes pods of its own namespace {namespace} once that is labelled: with failurePolicy Fail the webhook's "
            "own pods then cannot be created while it is down",
            f"add to namespaceSelector: {{key: {_NAME}, operator: NotIn, values: [{namespace}]}}",
        )
    if hook.fails and _matches(hook, {_NAME: _SYSTEM, "istio-injection": "enabled"}, {}):
        yield InstallationFinding(
            WARNING,
            "system-namespace",
            hook.subject,
            f"it takes pods of {_SYSTEM} once that is labelled",
            f"add to namespaceSelector: {{key: {_NAME}, operator: NotIn, values: [{_SYSTEM}]}}",
        )
    seconds = hook.tree.get("timeoutSeconds", _MAX_SECONDS)
    if isinstance(seconds, int | float) and seconds > _MAX_SECONDS:
        yield InstallationFinding(
            WARNING,
            "timeout",
            hook.subject,
            f"the API server waits up to {seconds:.0f} s for it, and so does the creation of every pod",
            "set timeoutSeconds to 5; an answer takes milliseconds",
        )
    if hook.tree.get("sideEffects") not in {"None", "NoneOnDryRun"}:
        yield InstallationFinding(
            WARNING,
            "side-effects",
            hook.subject,
            "the API server refuses dry runs, because the webhook does not declare that it has no side effects",
            "set sideEffects: None",
        )


def _matches(hook: Hook, namespace: Mapping[str, str], pod: Mapping[str, str]) -> bool:
    return hook.parsed.matches(namespace, pod)


def _check_service(hook: Hook, by_kind: Mapping[str, list[Tree]], *, whole: bool) -> Iterator[InstallationFinding]:
    namespace, name = hook.service
    if not name:
        return
    label = f"Service {namespace}/{name}"
    services = [tree for tree in by_kind.get("Service", []) if _has_name(tree, namespace, name)]
    if not services:
        if whole or by_kind.get("Service"):
            severity = ERROR if hook.fails else WARNING
            message = f"there is no {label}"
            yield InstallationFinding(severity, "no-service", hook.subject, message, "install it, or remove the webhook")
        return
    if whole and not _has_ready_pods(namespace, name, by_kind):
        yield InstallationFinding(
            ERROR if hook.fails else WARNING,
            "no-endpoints",
            hook.subject,
            f"{label} leads to no ready pod: {'no pod can be created' if hook.fails else 'pods are created without a sidecar'}",
            f"kubectl -n {namespace} get pods, and their readiness: /readyz?verbose says what is missing",
        )
    for deployment, labels in _find_deployments(hook, by_kind) if hook.fails else ():
        yield from _check_replicas(deployment, labels, by_kind)


def _find_deployments(hook: Hook, by_kind: Mapping[str, list[Tree]]) -> list[tuple[Tree, dict[str, str]]]:
    """Return the Deployments behind the webhook's Service, each with its pods' labels."""
    namespace, name = hook.service
    services = [tree for tree in by_kind.get("Service", []) if _has_name(tree, namespace, name)]
    selectors = [strings(mapping(tree.get("spec")).get("selector")) for tree in services]
    found = []
    for tree in by_kind.get("Deployment", []):
        labels = _pod_labels(tree)
        is_near = mapping(tree.get("metadata")).get("namespace") == namespace
        if is_near and any(one and one.items() <= labels.items() for one in selectors):
            found.append((tree, labels))
    return found


def _check_replicas(deployment: Tree, labels: Mapping[str, str], by_kind: Mapping[str, list[Tree]]) -> Iterator[InstallationFinding]:
    metadata = mapping(deployment.get("metadata"))
    label = f"Deployment {metadata.get('namespace')}/{metadata.get('name')}"
    replicas = mapping(deployment.get("spec")).get("replicas", 1)
    scaled = any(
        mapping(mapping(tree.get("spec")).get("scaleTargetRef")).get("name") == metadata.get("name")
        for tree in by_kind.get("HorizontalPodAutoscaler", [])
    )
    if not scaled and isinstance(replicas, int | float) and replicas < 2:  # noqa: PLR2004 - one is too few
        yield InstallationFinding(
            WARNING,
            "one-replica",
            label,
            f"failurePolicy Fail and {replicas:.0f} replica: no pod can be created while it is replaced",
            "set replicas: 2",
        )
    if not any(
        mapping(tree.get("metadata")).get("namespace") == metadata.get("namespace")
        and strings(mapping(mapping(mapping(tree.get("spec")).get("selector")).get("matchLabels"))).items()
        <= labels.items()
        for tree in by_kind.get("PodDisruptionBudget", [])
    ):
        yield InstallationFinding(
            WARNING,
            "no-disruption-budget",
            label,
            "failurePolicy Fail without a PodDisruptionBudget: draining nodes may stop all replicas at once",
            "add a PodDisruptionBudget with minAvailable: 1",
        )


def _has_name(tree: Tree, namespace: str, name: str) -> bool:
    metadata = mapping(tree.get("metadata"))
    return metadata.get("namespace") == namespace and metadata.get("name") == name


def _has_ready_pods(namespace: str, name: str, by_kind: Mapping[str, list[Tree]]) -> bool:
    """Whether the Service has a ready endpoint, in its EndpointSlices or the older Endpoints."""
    for tree in by_kind.get("EndpointSlice", []):
        metadata = mapping(tree.get("metadata"))
        if metadata.get("namespace") == namespace and mapping(metadata.get("labels")).get(_SLICE_OF) == name:
            conditions = [mapping(mapping(one).get("conditions")) for one in sequence(tree.get("endpoints"))]
            if any(one.get("ready") is not False for one in conditions):
                return True
    old = [tree for tree in by_kind.get("Endpoints", []) if _has_name(tree, namespace, name)]
    return any(sequence(mapping(one).get("addresses")) for tree in old for one in sequence(tree.get("subsets")))


def _check_namespaces(hooks: list[Hook], namespaces: list[Tree]) -> Iterator[InstallationFinding]:
    """Warn about configurations whose namespace selectors match no namespace."""
    labels = [strings(mapping(tree.get("metadata")).get("labels")) for tree in namespaces]
    for configuration in dict.fromkeys(hook.configuration for hook in hooks):
        selectors = [hook.parsed.namespace_selector for hook in hooks if hook.configuration == configuration]
        selectors = [one for one in selectors if not one.matches({})]  # the others select pods by their own labels
        if selectors and not any(one.matches(labels_of) for one in selectors for labels_of in labels):
            message = " or ".join(dict.fromkeys(map(str, selectors)))
            yield InstallationFinding(
                WARNING,
                "matches-nothing",
                configuration,
                f"no webhook in it matches any of the {len(labels)} namespaces ({message})",
                "label a namespace accordingly, or remove the webhook",
            )


def _check_overlaps(hooks: list[Hook]) -> Iterator[InstallationFinding]:
    """Report pairs of webhooks of different servers that match the same pod."""
    for left, right in combinations(hooks, 2):
        if left.service == right.service and left.service[1]:
            continue
        labels = _find_common_labels(left, right)
        if labels is not None:
            namespace, pod = labels
            example = f"a pod labelled {_format_labels(pod)} in a namespace labelled {_format_labels(namespace)}"
            yield InstallationFinding(
                ERROR,
                "two-injectors",
                left.subject,
                f"{right.subject} takes the same pods: {example} would be injected twice",
                "give each its own revision (istio.io/rev), or remove one",
            )


def _format_labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items()) or "with nothing"


def _find_common_labels(left: Hook, right: Hook) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return labels of a namespace and of a pod that both webhooks match; None if none are found.

    Tries each combination of the keys and values that the selectors name.
    """
    parts = []
    for pick in ("namespace_selector", "object_selector"):
        values: dict[str, list[Any]] = {}
        for hook in (left, right):
            for requirement in getattr(hook.parsed, pick).requirements:
                values.setdefault(requirement.key, [None, "x"]).extend(requirement.values)
        keys = list(values)
        choices = [list(dict.fromkeys(values[key])) for key in keys]
        size = 1
        for choice in choices:
            size *= len(choice)
        if size > _MAX_CASES:
            return None
        cases = [
            {key: value for key, value in zip(keys, case, strict=True) if value is not None}
            for case in product(*choices)
        ]
        selectors = [getattr(hook.parsed, pick) for hook in (left, right)]
        match = next((case for case in cases if all(selector.matches(case) for selector in selectors)), None)
        if match is None:
            return None
        parts.append(match)
    return parts[0], parts[1]
