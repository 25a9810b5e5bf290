"""Inject one pod: render the templates, merge and complete them, in Istio's order.

The classic format (Istio 1.0, 1.1) appends the template's lists to the pod's. What the API server of 2018 ignored or
accepted is corrected there: `restartPolicy: Always` on containers, which would make istio-init a sidecar today, and
numbers as arguments.

The argument is never modified, the result shares its unchanged parts; injecting an injected pod gives an equal pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.tree import Tree, mapping, sequence, shown, string, strings
from netinit.inject.adding.annotation_checks import validate
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.merge import merge, only_names
from netinit.inject.adding.merged_containers import (
    WITHOUT_STATUS,
    Overrides,
    move_to_init,
    normalize,
    remove_added,
    reorder,
    write_status,
)
from netinit.inject.adding.meshconfig import ProxyConfig
from netinit.inject.adding.rendering import Subject, render, template_data
from netinit.inject.adding.settings import Namespace, Settings, proxy_ids
from netinit.inject.adding.status_port import ENVIRONMENT as PROBERS
from netinit.inject.adding.status_port import clear_ours, merge_metrics, rewrite
from netinit.inject.adding.uncaptured_init import exclude_init_containers
from netinit.inject.deciding.annotations import (
    INTERCEPTION_MODE,
    INTERCEPTION_MODES,
    NATIVE_SIDECAR,
    OVERRIDES,
    PROXY_CONFIG,
    REWRITE_PROBES,
    STATUS,
    TEMPLATES,
    read_switch,
)
from netinit.inject.deciding.containers import (
    INIT,
    LISTS,
    PROXY,
    TEMPLATE_LISTS,
    VALIDATION,
    find,
    find_proxy,
    named,
    security,
)
from netinit.inject.deciding.injection_status import read_status
from netinit.inject.deciding.manifests import PodOwner
from netinit.inject.deciding.option_findings import PROXY_OWNER
from netinit.inject.deciding.warnings import ERROR, pod_findings, user_of

NETWORK_LABEL = "topology.istio.io/network"
POD_FIELDS = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))
_MAX_TEMPLATES = 64  # per pod: each one is rendered and merged
_CLUSTER, _NETWORK = "ISTIO_META_CLUSTER_ID", "ISTIO_META_NETWORK"


def inject_pod(
    pod: Tree,
    config: InjectionConfig,
    *,
    namespace: Namespace | None = None,
    settings: Settings | None = None,
    owner: PodOwner | None = None,
) -> Tree:
    """Return the injected pod; call `decide` first.

    `owner`: the workload of a pod template; by default derived from the pod's owner references. Raises InjectionError
    with a line for each problem.
    """
    namespace = namespace or Namespace()
    settings = settings or Settings()
    owner = owner or PodOwner.of_pod(pod, namespace.name)
    pod = _own(pod)
    metadata, _ = _parts(pod)
    for key in ("labels", "annotations"):
        if key in metadata:
            metadata[key] = strings(metadata[key])
    has_none = not config.brackets or any("NONE" in source for source in config.sources.values())  # 1.0 had no such mode
    validate(strings(metadata.get("annotations")), modes=INTERCEPTION_MODES if has_none else INTERCEPTION_MODES[:2])
    exclude_init_containers(metadata, mapping(pod.get("spec")))
    proxy = _proxy_config(metadata, namespace.name, config, settings)
    subject = Subject(owner=owner, proxy=proxy, settings=settings, ids=proxy_ids(namespace.annotations))
    if subject.ids is not None:
        _forget_assigned_user(mapping(pod.get("spec")))
    result = _inject_classic(pod, config, subject) if config.classic else _Injection(pod, config, subject).run()
    normalize(mapping(result.get("spec")))
    if settings.refuse_shared_user:
        shared = [str(one) for one in pod_findings(result) if one.kind == PROXY_OWNER and one.severity == ERROR]
        if shared:
            raise InjectionError("\n".join(shared))
    return result


def _forget_assigned_user(spec: Tree) -> None:
    """Drop user and group of the pod's own proxy if OpenShift assigned them, so that the template's apply.

    Its admission gives every container without a user the same one: the first of the namespace's range. The rules would
    exempt a container with the proxy's user. A user that no other container has is its author's choice, and stays
    (istio pkg/kube/inject/webhook.go, isSidecarUserMatchingAppUser, which compares with the last one that has a user, init
    containers behind the others).
    """
    proxy = find_proxy(spec)
    uid = security(proxy).get("runAsUser")
    others = [one for key in LISTS for one in named(spec.get(key)) if one.get("name") not in {PROXY, INIT, VALIDATION}]
    if proxy is None or uid is None or all(user_of(one, spec)[0] != uid for one in others):
        return
    proxy["securityContext"] = {key: value for key, value in security(proxy).items() if key not in {"runAsUser", "runAsGroup"}}


def _own(pod: Tree) -> Tree:
    """Copy the parts of a pod that an injection modifies in place: metadata, spec and each container, but not their values."""
    pod = {key: dict(value) if key in {"metadata", "spec"} and isinstance(value, dict) else value for key, value in pod.items()}
    spec = mapping(pod.get("spec"))
    for key in LISTS:
        if isinstance(spec.get(key), list):
            spec[key] = [dict(item) if isinstance(item, dict) else item for item in spec[key]]
    return pod


def _parts(pod: Tree) -> tuple[Tree, Tree]:
    for key in ("metadata", "spec"):
        if pod.get(key) is None:
            pod[key] = {}
        elif not isinstance(pod[key], dict):
            raise InjectionError(f"the pod's {key} must be a mapping, not a {type(pod[key]).__name__}")
    return pod["metadata"], pod["spec"]


def _proxy_config(metadata: Tree, namespace: str, config: InjectionConfig, settings: Settings) -> ProxyConfig:
    proxy = config.mesh.proxy
    if config.brackets:
        return proxy
    if settings.proxy_metadata:
        own = mapping(proxy.fields.get("proxyMetadata"))
        proxy = proxy.overlaid({"proxyMetadata": {**settings.proxy_metadata, **own}})
    annotation = strings(metadata.get("annotations")).get(PROXY_CONFIG)
    return settings.proxy_configs.overlay(
        proxy, config.mesh, namespace or string(metadata.get("namespace")), strings(metadata.get("labels")), annotation
    )


def select_templates(annotations: Mapping[str, str], config: InjectionConfig) -> tuple[str, ...]:
    """Return a pod's templates: its annotation's, else the defaults; aliases are expanded. Raises InjectionError."""
    asked = annotations.get(TEMPLATES)
    wanted = [name.strip() for name in asked.split(",")] if asked is not None else config.default_templates
    chosen = [real for name in wanted for real in config.aliases.get(name, (name,))]
    if len(chosen) > _MAX_TEMPLATES:
        raise InjectionError(f"annotation {TEMPLATES}: {len(chosen)} templates are more than {_MAX_TEMPLATES}")
    for name in chosen:
        if name not in config.templates:
            known = ", ".join(sorted(config.templates))
            whose = "netinit's own configuration" if config.is_own else "the configuration"
            raise InjectionError(f"requested template {shown(name)} not found; {whose} has {known}")
    return tuple(chosen)


class _Injection:

    def __init__(self, pod: Tree, config: InjectionConfig, subject: Subject) -> None:
        self.pod, self.config, self.subject = pod, config, subject
        self.annotations = strings(pod["metadata"].get("annotations"))
        self.overrides = Overrides(self.annotations)
        self.added_before = read_status(pod)
        self.template: Tree = {}  # the merged templates, reduced to names
        self.original = pod

    def run(self) -> Tree:
        """Return the injected pod."""
        self._render()
        self._apply_overrides()
        metadata, spec = _parts(self.pod)
        annotations = metadata["annotations"] = strings(metadata.get("annotations"))
        labels = metadata["labels"] = strings(metadata.get("labels"))
        environment = self._environment()
        agent = find_proxy(spec)
        if agent is not None and environment:
            agent["env"] = _with_variables(sequence(agent.get("env")), environment, injected_before=self.added_before is not None)
        proxy = self.subject.proxy
        merges = self.config.mesh.fields.get("enablePrometheusMerge") is not False
        merge_metrics(spec, annotations, proxy.status_port, enabled=merges)
        hook = mapping(self.config.values.get("sidecarInjectorWebhook"))
        if read_switch(annotations, REWRITE_PROBES, default=hook.get("rewriteAppHTTPProbe") is True):
            rewrite(spec, annotations, proxy.status_port, injected_before=self.added_before is not None)
        if network := environment.get(_NETWORK):
            labels[NETWORK_LABEL] = network
        annotations[STATUS] = write_status(mapping(self.template.get("spec")), revision=self.subject.settings.revision)
        annotations.update(self.config.injected_annotations)
        of_values = mapping(mapping(self.config.values.get("global")).get("proxy"))
        reorder(spec, proxy_first=any(one.get("holdApplicationUntilProxyStarts") is True for one in (proxy.fields, of_values)))
        return self.pod

    def _stripped(self) -> Tree:
        """Return the pod for the templates: without an earlier injection, and with the user's containers."""
        pod = _own(self.pod)
        metadata, spec = _parts(pod)
        if self.added_before is not None:
            remove_added(spec, {key: self.added_before[key] for key in LISTS})
            metadata["annotations"] = {key: text for key, text in self.annotations.items() if key != STATUS}
            clear_ours(metadata["annotations"], self.subject.proxy.status_port)
        self.overrides.reinsert(spec)
        return pod

    def _render(self) -> None:
        """Render each template, and merge it over the pod and the previous templates."""
        data = template_data(self.config, self._stripped(), self.subject)
        chosen = select_templates(self.annotations, self.config)
        overlays = [
            {field: value for field, value in rendered.items() if field in POD_FIELDS or field.startswith("$")}  # Go drops others
            for rendered in (render(name, self.config, self.pod, data) for name in chosen)
        ]
        native = any(find(mapping(overlay.get("spec")).get("initContainers"), PROXY) for overlay in overlays)
        asked = self.annotations.get(NATIVE_SIDECAR)
        if native and (asked != "false" if asked else data.fields["NativeSidecars"]):
            for part in (self.original, *overlays):
                move_to_init(mapping(part.get("spec")))
        merged = self.original
        for overlay in overlays:
            merged = merge(merged, overlay)
            self.template = merge(self.template, only_names(overlay))
        self.pod = merged

    def _apply_overrides(self) -> None:
        overrides = self.overrides
        _, spec = _parts(self.pod)
        if overrides.apply(spec, self.original["spec"], mapping(self.template.get("spec")), self.added_before):
            metadata = self.pod["metadata"]
            metadata["annotations"] = {**strings(metadata.get("annotations")), OVERRIDES: overrides.text()}
        self._follow_user(spec, security(find_proxy(overrides.saved)))

    def _follow_user(self, spec: Tree, chosen: Tree) -> None:
        """Adapt the interception to the user and group that the user's security context sets for the proxy.

        TPROXY needs root, so that setting is reverted. The rules exempt the proxy's uid, which must not be 0.
        """
        uid, gid = chosen.get("runAsUser"), chosen.get("runAsGroup")
        containers = spec.get("initContainers")
        init = find(containers, INIT) or find(containers, VALIDATION)
        if init is None or (uid is None and gid is None):
            return
        annotated = strings(self.pod["metadata"].get("annotations")).get(INTERCEPTION_MODE)
        tproxy = "TPROXY" in (self.subject.proxy.fields.get("interceptionMode"), annotated)
        proxy = find_proxy(spec)
        if tproxy and uid is not None and proxy is not None:
            proxy["securityContext"] = {**security(proxy), "runAsUser": 0}
        if not tproxy and init.get("name") == VALIDATION:
            ids = {"runAsUser": uid, "runAsGroup": gid}
            context = {**security(init), **{key: value for key, value in ids.items() if value is not None}}
            init["securityContext"] = context
        arguments = sequence(init.get("args"))
        if uid and "-u" in arguments[:-1]:
            position = arguments.index("-u") + 1
            init["args"] = [*arguments[:position], string(uid), *arguments[position + 1 :]]

    def _environment(self) -> dict[str, str]:
        values = mapping(self.config.values.get("global"))
        result = dict(self.subject.settings.environment)
        cluster = result.get(_CLUSTER) or string(mapping(values.get("multiCluster")).get("clusterName"))
        network = result.get(_NETWORK) or string(values.get("network"))
        labels = strings(self.original["metadata"].get("labels"))
        network = labels.get(NETWORK_LABEL, network)
        if cluster:
            result[_CLUSTER] = cluster
        if network:
            result[_NETWORK] = network
        return result


def _with_variables(items: list[Any], environment: Mapping[str, str], *, injected_before: bool) -> list[Any]:
    """Return a container's variables with these behind them, as in Istio.

    `injected_before`: the variable with the probes is there already, and stays the last one: a second injection changes nothing.
    """
    kept = [item for item in items if mapping(item).get("name") not in environment]
    probers = [item for item in kept if injected_before and mapping(item).get("name") == PROBERS]
    new = [{"name": key, "value": environment[key]} for key in sorted(environment)]
    return [*(item for item in kept if item not in probers), *new, *probers]


_STATUS_PORT_FLAG = "--statusPort"


def _inject_classic(pod: Tree, config: InjectionConfig, subject: Subject) -> Tree:
    """Modify and return the pod, with the lists of the rendered template appended.

    What an earlier injection added is removed first, by the status annotation, else by the usual names.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    before = read_status(pod)
    remove_added(spec, WITHOUT_STATUS if before is None else before)
    annotations = strings(metadata.get("annotations"))
    annotations.pop(STATUS, None)
    metadata["annotations"] = annotations
    rendered = render("sidecar", config, pod, template_data(config, pod, subject))
    added: Tree = {}
    for key in TEMPLATE_LISTS:
        items = _items(rendered, key)
        present = [item.get("name") for item in named(spec.get(key))]
        added[key] = [item for item in items if item.get("name") not in present]
        if added[key]:
            spec[key] = [*sequence(spec.get(key)), *added[key]]
    if isinstance(rendered.get("dnsConfig"), dict):
        spec["dnsConfig"] = rendered["dnsConfig"]
    annotations.update(strings(rendered.get("podRedirectAnnot")))
    if read_switch(annotations, REWRITE_PROBES, default=rendered.get("rewriteAppHTTPProbe") is True):
        rewrite(spec, annotations, _status_port(spec, subject), injected_before=before is not None)
    annotations[STATUS] = write_status(added, version=config.version)
    annotations.update(config.injected_annotations)
    return pod


def _items(rendered: Tree, key: str) -> list[Tree]:
    """Return a list of the template, without fields that have another meaning today."""
    items = rendered.get(key)
    if items is not None and not (isinstance(items, list) and all(isinstance(item, dict) for item in items)):
        raise InjectionError(f"template 'sidecar': {key} must be a list of mappings")
    result = []
    for item in sequence(items):
        if key in {"initContainers", "containers"}:
            item = {name: value for name, value in item.items() if name != "restartPolicy"}  # noqa: PLW2901 - a copy
            if isinstance(item.get("securityContext"), dict):
                context = item["securityContext"]
                item["securityContext"] = {name: value for name, value in context.items() if name != "restartPolicy"}
        result.append(item)
    return result


def _status_port(spec: Tree, subject: Subject) -> int:
    arguments: list[Any] = sequence(mapping(find_proxy(spec)).get("args"))
    for position, argument in enumerate(arguments[:-1]):
        text = string(arguments[position + 1])
        if argument == _STATUS_PORT_FLAG and text.isascii() and text.isdigit():
            return int(text)
    return subject.proxy.status_port
