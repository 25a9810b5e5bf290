"""Lint an installation of an injector: webhooks that would block a cluster, and those that never match. Pure."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from typing import Any

from netinit.base.documentation import address_of
from netinit.base.errors import ConfigError, NetinitError
from netinit.base.system import EMBEDDED
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.inject.adding.config import load_config
from netinit.inject.adding.settings import Settings
from netinit.inject.deciding.webhooks import (
    INJECTION_LABEL,
    NAME_LABEL,
    REVISION_LABEL,
    Selector,
    Webhook,
    parse_injectors,
)
from netinit.questions.configuration_check import find_template_problems, try_canaries, warnings_of
from netinit.serving.certificates import describe, find_missing_name, leads_to, split_pem

ERROR, WARNING = "error", "warning"
HOOKS = "MutatingWebhookConfiguration"
ByKind = Mapping[str, list[Tree]]
CA_CONFIG_MAP = "istio-ca-root-cert"
"""The ConfigMap with the CA certificate, written by istiod and mounted by sidecars."""

BUNDLE_UNREAD = "bundle-not-judged"
"""The kind of the finding that a certificate is not read for lack of a package."""

_INJECTOR = "injector"
_COMPONENT, _OURS = "app.kubernetes.io/name", "netinit-webhook"
_WATCHES = "--watchProxyConfigs=true"
_SYSTEM = "kube-system"
_SLICE_OF = "kubernetes.io/service-name"
_MAX_SECONDS = 10
_MAX_CASES = 20_000
_MIN_REPLICAS = 2
_WITH_IMAGES = (  # kind, name label, and the chart's value for the image
    ("Deployment", _OURS, "image.repository"),
    ("DaemonSet", "netinit-node", "node.image.repository"),
)
_SOON = 7 * 86400.0
_PATCHED = "sidecar-injector.istio.io"  # istiod writes into webhooks whose names end so (Istio's pkg/webhooks/webhookpatch.go)


@dataclass(frozen=True, slots=True)
class InstallationFinding:
    """One problem: severity, machine-readable kind, the object concerned, message, remedy, and the page that says more."""

    severity: str
    kind: str
    subject: str
    message: str
    remedy: str
    page: str = ""


_NO_WEBHOOK = InstallationFinding(
    ERROR, "no-webhook", "the installation", "there is no webhook that injects sidecars", "netinit webhook manifests prints one"
)
_SET_BUNDLE = "let the webhook set it (--webhookConfigName), or cert-manager (cert-manager.io/inject-ca-from)"


def sort_findings(found: Iterable[InstallationFinding]) -> tuple[InstallationFinding, ...]:
    """Return each finding once, errors first."""
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.severity != ERROR))


def by_severity(stops_pods: bool) -> str:
    """Return the severity of what stops pods, or does not."""
    return ERROR if stops_pods else WARNING


def metadata_of(tree: Tree) -> Tree:
    """Return an object's metadata."""
    return mapping(tree.get("metadata"))


def name_of(tree: Tree) -> str:
    """Return an object's name."""
    return string(metadata_of(tree).get("name"))


def labels_of(tree: Tree) -> dict[str, str]:
    """Return the labels of an object, or of a pod template."""
    return strings(metadata_of(tree).get("labels"))


def template_of(workload: Tree) -> Tree:
    """Return the template of a workload's pods."""
    return mapping(mapping(workload.get("spec")).get("template"))


def subject_of(kind: str, tree: Tree) -> str:
    """Return the object's kind, namespace and name, as findings name it."""
    return f"{kind} {metadata_of(tree).get('namespace')}/{metadata_of(tree).get('name')}"


# ---- the installation ---------------------------------------------------------------------------------------------------

_Found = Iterator[InstallationFinding]


def lint(
    trees: Iterable[Tree], *, now: float, whole: bool = True, unread: Collection[str] = ()
) -> tuple[InstallationFinding, ...]:
    """Return all problems, errors first; `now` is in seconds since the epoch.

    `whole`: the objects are a complete cluster, so an object that is not among them does not exist, but for the kinds `unread`.
    """
    by_kind: dict[str, list[Tree]] = {}
    for tree in trees:
        by_kind.setdefault(string(tree.get("kind")), []).append(tree)
    hooks = list(find_hooks(by_kind, whole=whole, unread=unread))
    found = list(_check_templates(by_kind.get("ConfigMap", [])))
    if not hooks:
        return tuple(found) if found and not whole else (_NO_WEBHOOK,)
    found += _check_proxy_configs(by_kind)
    for hook in hooks:
        found += hook.check(now)
    if whole and "Namespace" in by_kind:
        found += _check_namespaces(hooks, by_kind["Namespace"])
    found += find_missing(by_kind, [hook.parsed for hook in hooks], whole=whole and "ConfigMap" not in unread)
    return sort_findings([*found, *_check_overlaps(hooks)])


def _check_templates(config_maps: list[Tree]) -> _Found:
    """Check the injector configurations among the ConfigMaps."""
    for tree in config_maps:
        if _INJECTOR not in name_of(tree) or "config" not in strings(tree.get("data")):
            continue
        subject = subject_of("ConfigMap", tree)
        try:
            config = load_config(tree)
            tried = try_canaries(config, Settings())
        except NetinitError as error:
            yield InstallationFinding(
                ERROR, "configuration", subject,
                str(error),
                "correct it, and test it with netinit inject --check-config",
            )  # fmt: skip
            continue
        for text in warnings_of(tried):
            yield InstallationFinding(WARNING, "template", subject, text, "correct the template")
        for problem in find_template_problems(config, Settings()):
            yield InstallationFinding(by_severity(problem.stops_pods), "template", subject, problem.message, "correct the template")


def _check_proxy_configs(by_kind: ByKind) -> _Found:
    """Warn about ProxyConfig resources that our webhook ignores because it does not watch them."""
    ours = [tree for tree in by_kind.get("Deployment", []) if labels_of(template_of(tree)).get(_COMPONENT) == _OURS]
    if any(_WATCHES not in arguments_of(tree) for tree in ours):
        for tree in by_kind.get("ProxyConfig", []):
            yield InstallationFinding(
                WARNING, "proxy-config", subject_of("ProxyConfig", tree),
                f"it applies to pods that istiod injects, but not to those of this webhook, which runs without {_WATCHES}",
                "set injection.proxyConfigs=true",
            )  # fmt: skip


def arguments_of(workload: Tree) -> list[str]:
    """Return the arguments of all containers of a workload's pods."""
    return [string(word) for one in _containers_of(workload) for word in sequence(one.get("args"))]


def _containers_of(workload: Tree) -> list[Tree]:
    return [mapping(one) for one in sequence(mapping(template_of(workload).get("spec")).get("containers"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A webhook, the name of its MutatingWebhookConfiguration, and the objects behind it: Service, endpoints, Deployments, Secrets.

    `subject`: as findings name it. `service`: namespace and name of its Service, empty if it has a URL. `fails`: pods cannot
    be created without its answer. `whole`, `unread`: as in `lint`.
    """

    tree: Tree
    parsed: Webhook
    configuration: str
    subject: str
    service: tuple[str, str]
    fails: bool
    by_kind: ByKind
    whole: bool
    unread: Collection[str] = ()

    def check(self, now: float) -> _Found:
        """Yield what is wrong; `now` is in seconds since the epoch."""
        yield from self._check_webhook()
        yield from self._check_bundle(now)
        yield from self._check_writer()
        yield from self._check_server()

    def _check_webhook(self) -> _Found:
        namespace, matches = self.service[0], self.parsed.matches
        own, system = ({NAME_LABEL: name, INJECTION_LABEL: "enabled"} for name in (namespace, _SYSTEM))
        pods = [labels for _, labels in self.deployments] or [{}, {_COMPONENT: _OURS}]
        if namespace and self.fails and all(matches(own, labels) for labels in pods):
            yield InstallationFinding(
                ERROR, "own-namespace", self.subject,
                f"it matches pods of its own namespace {namespace} once that is labelled: with failurePolicy Fail the "
                "webhook's own pods then cannot be created while it is down",
                f"add to namespaceSelector: {{key: kubernetes.io/metadata.name, operator: NotIn, values: [{namespace}]}}",
            )  # fmt: skip
        if self.fails and matches(system, {}):
            yield InstallationFinding(
                WARNING, "system-namespace", self.subject,
                f"it matches pods of {_SYSTEM} once that is labelled",
                f"add to namespaceSelector: {{key: kubernetes.io/metadata.name, operator: NotIn, values: [{_SYSTEM}]}}",
            )  # fmt: skip
        seconds = self.tree.get("timeoutSeconds", _MAX_SECONDS)
        if isinstance(seconds, int | float) and seconds > _MAX_SECONDS:
            yield InstallationFinding(
                WARNING, "timeout", self.subject,
                f"the API server waits up to {seconds:.0f} s for it, and so does the creation of every pod",
                "set timeoutSeconds to 5; an answer takes milliseconds",
            )  # fmt: skip
        if self.tree.get("sideEffects") not in {"None", "NoneOnDryRun"}:
            yield InstallationFinding(
                WARNING, "side-effects", self.subject,
                "the API server refuses dry runs, because the webhook does not declare that it has no side effects",
                "set sideEffects: None",
            )  # fmt: skip

    def _near(self, kind: str) -> list[Tree]:
        """Return the objects of a kind in the Service's namespace."""
        return [tree for tree in self.by_kind.get(kind, []) if metadata_of(tree).get("namespace") == self.service[0]]

    def _services(self, kind: str = "Service") -> list[Tree]:
        return [tree for tree in self._near(kind) if name_of(tree) == self.service[1]]

    @property
    def deployments(self) -> list[tuple[Tree, dict[str, str]]]:
        """The Deployments of the Service's pods, each with the pods' labels."""
        selectors = [strings(mapping(tree.get("spec")).get("selector")) for tree in self._services()]
        found = [(tree, labels_of(template_of(tree))) for tree in self._near("Deployment")]
        return [(tree, labels) for tree, labels in found if any(one and one.items() <= labels.items() for one in selectors)]

    def _check_server(self) -> _Found:
        """Find a Service or pods that are missing, and what would stop all pods at once."""
        namespace, name = self.service
        service, severity = f"Service {namespace}/{name}", by_severity(self.fails)
        if not name or "Service" in self.unread:
            return
        if not self._services():
            if self.whole or self.by_kind.get("Service"):
                yield self._explain_no_service(severity)
            return
        if self.whole and "EndpointSlice" not in self.unread and not self.count_ready_endpoints():
            effect = "no pod can be created" if self.fails else "pods are created without a sidecar"
            yield InstallationFinding(
                severity, "no-endpoints", self.subject,
                f"{service} leads to no ready pod: {effect}",
                f"kubectl -n {namespace} get pods, and their readiness: /readyz?verbose says what is missing",
            )  # fmt: skip
        for deployment, labels in self.deployments if self.fails else ():
            yield from self._check_replicas(deployment, labels)

    def _explain_no_service(self, severity: str) -> InstallationFinding:
        """Return the finding of a missing Service; one whose namespace is gone was left by whoever deleted the namespace."""
        namespace, name = self.service
        remove = f"kubectl delete {HOOKS.lower()} {self.configuration}"
        living = {name_of(tree) for tree in self.by_kind.get("Namespace", []) if "deletionTimestamp" not in metadata_of(tree)}
        if not self.whole or not living or namespace in living:
            return InstallationFinding(
                severity, "no-service", self.subject, f"there is no Service {namespace}/{name}", f"install it, or: {remove}"
            )
        effect = "no pod that it selects can be created" if self.fails else "the pods that it selects are created without a sidecar"
        return InstallationFinding(
            severity, "namespace-deleted", self.subject,
            f"its namespace {namespace} was deleted without it: {effect}",
            f"install the release again, or: {remove}; a node whose pods wait has the plugin of its agent still: netinit node status",
            address_of("troubleshooting", "a-namespace-that-was-deleted-with-its-release"),
        )  # fmt: skip

    def _check_replicas(self, deployment: Tree, labels: Mapping[str, str]) -> _Found:
        subject = subject_of("Deployment", deployment)
        replicas = mapping(deployment.get("spec")).get("replicas", 1)
        scaled = [mapping(tree.get("spec")).get("scaleTargetRef") for tree in self.by_kind.get("HorizontalPodAutoscaler", [])]
        is_scaled = any(mapping(one).get("name") == name_of(deployment) for one in scaled)
        is_known = not is_scaled and "HorizontalPodAutoscaler" not in self.unread
        if is_known and isinstance(replicas, int | float) and replicas < _MIN_REPLICAS:
            yield InstallationFinding(
                WARNING, "one-replica", subject,
                f"failurePolicy Fail and {replicas:.0f} replica: no pod can be created while it is replaced",
                "set replicas: 2",
            )  # fmt: skip
        budgets = [mapping(mapping(tree.get("spec")).get("selector")) for tree in self._near("PodDisruptionBudget")]
        has_budget = any(strings(one.get("matchLabels")).items() <= labels.items() for one in budgets)
        if not has_budget and "PodDisruptionBudget" not in self.unread:
            yield InstallationFinding(
                WARNING, "no-disruption-budget", subject,
                "failurePolicy Fail without a PodDisruptionBudget: draining nodes may stop all replicas at once",
                "add a PodDisruptionBudget with minAvailable: 1",
            )  # fmt: skip

    def count_ready_endpoints(self) -> int:
        """Count the ready endpoints of the Service, in its EndpointSlices or the older Endpoints."""
        slices = [tree for tree in self._near("EndpointSlice") if labels_of(tree).get(_SLICE_OF) == self.service[1]]
        ends = [mapping(one) for tree in slices for one in sequence(tree.get("endpoints"))]
        ready = sum(mapping(one.get("conditions")).get("ready") is not False for one in ends)
        old = [one for tree in self._services("Endpoints") for one in sequence(tree.get("subsets"))]
        return ready or sum(len(sequence(mapping(one).get("addresses"))) for one in old)

    def _check_bundle(self, now: float) -> _Found:
        """Find a CA bundle that is missing, unreadable, expired, or not that of the certificate in the cluster."""
        text = string(mapping(self.tree.get("clientConfig")).get("caBundle"))
        if not text:
            if self.whole and self.service[1]:  # manifests have none: the webhook or cert-manager sets it in the cluster
                yield InstallationFinding(
                    WARNING, "no-bundle", self.subject,
                    "it has no caBundle: it is not trusted yet",
                    _SET_BUNDLE,
                )  # fmt: skip
            return
        try:
            bundle = base64.b64decode(text, validate=True).decode()
            ends = [describe(one).until for one in split_pem(bundle)]
        except ImportError:  # a plugin of kubectl has no such package beside it
            why = "this executable reads no certificates" if EMBEDDED else "the Python package cryptography is not installed"
            yield InstallationFinding(
                WARNING, BUNDLE_UNREAD, self.subject,
                f"its caBundle is not judged: {why}",
                "pip install netinit cryptography" if EMBEDDED else "pip install cryptography",
            )  # fmt: skip
            return
        except (binascii.Error, UnicodeDecodeError, ConfigError) as error:
            yield InstallationFinding(
                ERROR, "bad-bundle", self.subject,
                f"its caBundle holds no certificates: {error}",
                _SET_BUNDLE,
            )  # fmt: skip
            return
        if not ends:
            yield InstallationFinding(ERROR, "bad-bundle", self.subject, "its caBundle holds no certificates", _SET_BUNDLE)
        elif max(ends) <= now:
            yield InstallationFinding(ERROR, "expired-bundle", self.subject, "every CA of its caBundle has expired", _SET_BUNDLE)
        elif max(ends) <= now + _SOON:
            yield InstallationFinding(
                WARNING, "expiring-bundle", self.subject,
                f"the last CA of its caBundle expires in {(max(ends) - now) / 86400:.1f} days",
                _SET_BUNDLE,
            )  # fmt: skip
        served = self._find_served_certificates()
        if served and not any(leads_to(chain, bundle) for chain in served.values()):
            yield InstallationFinding(
                ERROR, "wrong-bundle", self.subject,
                f"its caBundle lacks the CA of the certificate in Secret {', '.join(served)}",
                _SET_BUNDLE,
            )  # fmt: skip

    def _check_writer(self) -> _Found:
        """Find a webhook that is not istiod's and whose CA bundle istiod replaces, because of its configuration's label."""
        revision, service = self.parsed.revision, self.service[1]
        if not revision or not service or service.startswith("istiod") or not self.parsed.name.endswith(_PATCHED):
            return
        labels = [labels_of(tree) for tree in self.by_kind.get("Deployment", [])]
        is_known = self.whole and "Deployment" not in self.unread
        may_run = not is_known or any((one.get("app"), one.get(REVISION_LABEL)) == ("istiod", revision) for one in labels)
        who = "an istiod of that revision replaces" if may_run else "no istiod of that revision runs now, but any would replace"
        yield InstallationFinding(
            by_severity(may_run), "claimed-by-istiod", self.subject,
            f"its configuration has the label istio.io/rev={revision}: {who} the caBundle by its own, which did not "
            "sign this webhook's certificate",
            f"kubectl label mutatingwebhookconfiguration {self.configuration} istio.io/rev-, and remove the label "
            "from what installs it: the revision of the pods is in the selectors (chart value revision)",
            address_of("webhook", "istiod-and-the-label-istioiorev"),
        )  # fmt: skip

    def _find_served_certificates(self) -> dict[str, str]:
        """Return the certificates that are valid for the webhook's Service, by Secret."""
        namespace, service = self.service
        found = {}
        for secret in self._near("Secret") if service else ():
            with contextlib.suppress(binascii.Error, UnicodeDecodeError, ConfigError):  # not a TLS Secret
                chain = base64.b64decode(string(mapping(secret.get("data")).get("tls.crt")), validate=True).decode()
                if not find_missing_name(describe(chain), service, namespace):
                    found[f"{namespace}/{name_of(secret)}"] = chain
        return found


def find_hooks(by_kind: ByKind, *, whole: bool, unread: Collection[str] = ()) -> Iterator[Hook]:
    """Yield the webhooks that inject sidecars, by their name or path."""
    for tree in by_kind.get(HOOKS, []):
        with contextlib.suppress(ConfigError):  # the API server would have rejected it
            for item, webhook in parse_injectors(tree):
                service = mapping(mapping(item.get("clientConfig")).get("service"))
                yield Hook(
                    tree=item, parsed=webhook, configuration=name_of(tree), subject=f"{name_of(tree)}, webhook {webhook.short_name}",
                    service=(string(service.get("namespace")), string(service.get("name"))),
                    fails=item.get("failurePolicy", "Fail") == "Fail", by_kind=by_kind, whole=whole,
                    unread=unread,
                )  # fmt: skip


def _check_namespaces(hooks: list[Hook], namespaces: list[Tree]) -> _Found:
    """Warn about configurations whose namespace selectors match no namespace."""
    labels = [labels_of(tree) for tree in namespaces]
    for configuration in dict.fromkeys(hook.configuration for hook in hooks):
        selectors = [hook.parsed.namespace_selector for hook in hooks if hook.configuration == configuration]
        selectors = [one for one in selectors if not one.matches({})]  # the others select pods by their own labels
        if selectors and not any(one.matches(of_one) for one in selectors for of_one in labels):
            text = " or ".join(dict.fromkeys(map(str, selectors)))
            yield InstallationFinding(
                WARNING, "matches-nothing", configuration,
                f"no webhook in it matches any of the {len(labels)} namespaces ({text})",
                "label a namespace accordingly, or remove the webhook",
            )  # fmt: skip


def _check_overlaps(hooks: list[Hook]) -> _Found:
    """Report pairs of webhooks of different servers that match the same pod."""
    for left, right in combinations(hooks, 2):
        if left.service == right.service and left.service[1]:
            continue
        both = (left.parsed, right.parsed)
        namespace = _find_common_labels([one.namespace_selector for one in both])
        pod = _find_common_labels([one.object_selector for one in both])
        if namespace is not None and pod is not None:
            yield InstallationFinding(
                ERROR, "two-injectors", left.subject,
                f"{right.subject} matches the same pods: a pod labelled {_format(pod)} in a namespace labelled "
                f"{_format(namespace)} would be injected twice",
                "give each its own revision (istio.io/rev), or remove one",
            )  # fmt: skip


def _format(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items()) or "without labels"


def _find_common_labels(selectors: list[Selector]) -> dict[str, str] | None:
    """Return labels that all selectors match; None if none are found among combinations of the keys and values they name."""
    values: dict[str, list[Any]] = {}
    for selector in selectors:
        for requirement in selector.requirements:
            values.setdefault(requirement.key, [None, "x"]).extend(requirement.values)
    choices = [list(dict.fromkeys(found)) for found in values.values()]
    if prod(map(len, choices)) > _MAX_CASES:
        return None
    cases = ({key: value for key, value in zip(values, case, strict=True) if value is not None} for case in product(*choices))
    return next((case for case in cases if all(selector.matches(case) for selector in selectors)), None)


# ---- what injected pods need ------------------------------------------------------------------------------------------


def find_missing(by_kind: ByKind, hooks: Sequence[Webhook], *, whole: bool) -> _Found:
    """Yield what injected pods lack: the control plane's CA in their namespace, and images that can be pulled."""
    if whole and "ConfigMap" in by_kind:
        yield from _find_namespaces_without_ca(by_kind, hooks)
    for kind, name, value in _WITH_IMAGES:
        for tree in by_kind.get(kind, []):
            if labels_of(tree).get(_COMPONENT) == name:
                images = [string(one.get("image")) for one in _containers_of(tree)]
                yield from _check_images(subject_of(kind, tree), images, value)
    for tree in by_kind.get("ConfigMap", []):
        if labels_of(tree).get(_COMPONENT) == _OURS:
            image = read_init_image(strings(tree.get("data")).get("values", ""))
            yield from _check_images(subject_of("ConfigMap", tree), [image], "initImage.repository")


def join_some(names: Sequence[str], limit: int) -> str:
    """Return the first `limit` names, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def find_namespaces_without(kind: str, name: str, by_kind: ByKind, hooks: Sequence[Webhook]) -> list[str]:
    """Return the namespaces whose pods a webhook may inject and in which there is no object of this kind and name."""
    served = {metadata_of(tree).get("namespace") for tree in by_kind[kind] if name_of(tree) == name}
    unserved = [tree for tree in by_kind.get("Namespace", []) if name_of(tree) not in served]
    return [name_of(tree) for tree in unserved if any(hook.matches(labels_of(tree), {}) for hook in hooks)]


def _find_namespaces_without_ca(by_kind: ByKind, hooks: Sequence[Webhook]) -> _Found:
    if missing := find_namespaces_without("ConfigMap", CA_CONFIG_MAP, by_kind, hooks):
        yield InstallationFinding(
            WARNING, "no-authority", f"namespace {join_some(missing, 5)}",
            f"there is no ConfigMap {CA_CONFIG_MAP}, which the sidecar mounts: injected pods do not start",
            f"install a control plane: istiod writes it. Or: kubectl -n {missing[0]} create configmap {CA_CONFIG_MAP} --from-file=",
        )  # fmt: skip


def _check_images(subject: str, images: Sequence[str], value: str) -> _Found:
    for image in images:
        host = image.partition("/")[0] if "/" in image else ""
        if image and host != "localhost" and not {".", ":"} & {*host}:  # how runtimes recognize a registry
            yield InstallationFinding(
                WARNING, "short-image", subject,
                f"its image {image} names no registry: containerd asks docker.io for it, CRI-O its own list of registries",
                f"set {value} to REGISTRY/{image.partition('@')[0].partition(':')[0]}",
            )  # fmt: skip


def read_init_image(text: str) -> str:
    """Return the init container's image of the values in a ConfigMap of the webhook's; empty if there is none."""
    try:
        values = mapping(json.loads(text))
    except (ValueError, RecursionError):
        return ""
    return string(mapping(mapping(values.get("global")).get("proxy_init")).get("image"))
