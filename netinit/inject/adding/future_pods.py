"""Says what becomes of a pod when it is created: webhooks inject it, or do not, or that is not known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from netinit.base.errors import InjectionError, OptionError
from netinit.base.sanitize import split_message
from netinit.base.tree import Tree, mapping, string, strings
from netinit.inject.adding.config import InjectionConfig, default_values
from netinit.inject.adding.ignored_settings import injection_warnings
from netinit.inject.adding.other_templates import GATEWAY, as_gateway, becomes_gateway, explain_doubt
from netinit.inject.adding.pod import inject_pod
from netinit.inject.adding.settings import Namespace
from netinit.inject.deciding.annotations import INTERCEPTION_MODE
from netinit.inject.deciding.decision import DecisionStep, decide
from netinit.inject.deciding.init_container import find_init
from netinit.inject.deciding.manifests import Workload
from netinit.inject.deciding.pod_options import REDIRECTION, joins_ambient
from netinit.inject.deciding.pod_security import pod_security_findings
from netinit.inject.deciding.podfile import BY_AGENT, INJECTED, LEFT_OUT, NOT_KNOWN, FuturePod
from netinit.inject.deciding.usual_webhooks import current_webhooks, early_webhook, firing
from netinit.inject.deciding.warnings import ERROR, WARNING, uses_host_network
from netinit.inject.deciding.webhooks import (
    DATAPLANE_LABEL,
    DEFAULT_REVISION,
    NAME_LABEL,
    REVISION_LABEL,
    Webhook,
    parse_injectors,
)

_OF_THE_POD = (DecisionStep.HOST_NETWORK, DecisionStep.NAMESPACE, DecisionStep.LABEL, DecisionStep.ANNOTATION)
"""The steps that decide the same whatever the namespace's labels are."""
_BY_PLUGIN = ("pilot.cni.enabled", "istio_cni.enabled")  # values: a CNI plugin programs the pods
_ANNOTATION_OR_VALUE = re.compile(r"""\bannotation \.ObjectMeta ["`]([\w./-]+)["`] \.Values\.([\w.]+)""")


def _value_at(values: Tree, path: str) -> Any:
    for key in path.split("."):
        values = mapping(values).get(key, {})
    return values or None


@dataclass(frozen=True)
class Injector:
    """What will inject pods. `namespaces`: labels by name, as far as known; `webhooks`: those installed, if known."""

    config: InjectionConfig
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    webhooks: tuple[Webhook, ...] = ()

    @classmethod
    def of_objects(cls, config: InjectionConfig, objects: Sequence[Tree]) -> Injector:
        """Read the namespaces and injectors' webhooks among objects of manifests. Raises ConfigError."""
        metadata = [mapping(one.get("metadata")) for one in objects if one.get("kind") == "Namespace"]
        configurations = [one for one in objects if one.get("kind") == "MutatingWebhookConfiguration"]
        return cls(
            config,
            {string(one.get("name")): strings(one.get("labels")) for one in metadata},
            tuple([webhook for one in configurations for _, webhook in parse_injectors(one)]),
        )

    def foresee(self, one: Workload) -> FuturePod:
        """Decide like the webhooks and the injector. Raises OptionError if the injector would refuse the pod."""
        pod, name = one.template, one.namespace or "default"
        decision = decide(pod, name, self.config)
        if not decision.inject and decision.step in _OF_THE_POD:
            return self._leave(one, decision.reason)
        labels, of_pod = self.namespaces.get(name), strings(mapping(pod["metadata"]).get("labels"))
        webhooks = self.webhooks or self._usual_webhooks(labels or {}, of_pod)
        fired = firing(webhooks, {NAME_LABEL: name, **(labels or {})}, of_pod)
        if not fired:
            if labels is None and any(webhook.object_selector.matches(of_pod) for webhook in webhooks):
                return FuturePod(outlook=NOT_KNOWN, pod=one.created_pod())
            return self._leave(one, "no webhook selects the pod")
        if not decision.inject:
            return self._leave(one, decision.reason)
        return self.inject(one, f"webhook {fired[0].short_name}; {decision.reason}")

    def _leave(self, one: Workload, reason: str) -> FuturePod:
        """Return a pod that no injector changes: an ambient mesh's agent programs it, or nobody does.

        The pod's label decides, else its namespace's (istio cni/pkg/util/podutil.go, PodRedirectionEnabled).
        """
        pod, name = one.created_pod(), one.namespace or "default"
        of_pod, of_namespace = strings(mapping(pod["metadata"]).get("labels")), self.namespaces.get(name) or {}
        who, mode = ("pod", of_pod) if DATAPLANE_LABEL in of_pod else ("Namespace", of_namespace)
        if not joins_ambient(mode) or uses_host_network(pod):
            return FuturePod(outlook=LEFT_OUT, pod=pod, reason=reason)
        metadata = mapping(pod["metadata"])
        programmed = {**metadata, "annotations": {**mapping(metadata.get("annotations")), REDIRECTION: "enabled"}}
        by_label = f"label {DATAPLANE_LABEL}: {mode[DATAPLANE_LABEL]} of the {who}"
        return FuturePod(outlook=BY_AGENT, pod={**pod, "metadata": programmed}, reason=by_label)

    def inject(self, one: Workload, reason: str) -> FuturePod:
        """Return the pod with what injection adds. Raises OptionError if the injector would refuse it."""
        pod, name = one.created_pod(), one.namespace or "default"
        labels = self.namespaces.get(name)
        if becomes_gateway(pod, self.config):
            return FuturePod(outlook=INJECTED, pod=as_gateway(pod), reason=f"{reason}; template {GATEWAY}")
        if doubt := explain_doubt(pod, self.config):
            return FuturePod(outlook=NOT_KNOWN, pod=pod, reason=doubt)
        try:
            result = inject_pod(pod, self.config, namespace=Namespace(name=name, labels=labels), owner=one.owner)
        except InjectionError as error:
            raise OptionError(*split_message(str(error))) from None
        severity = WARNING if self.config.is_own else ERROR  # of another installation, a CNI plugin may be a part
        found = (*pod_security_findings(result, name, labels or {}, severity), *injection_warnings(pod))
        without = self._explain_no_rules(pod, result)
        return FuturePod(outlook=INJECTED, pod=result, reason=reason, settings=self.settings, findings=found, without_rules=without)

    def _explain_no_rules(self, pod: Tree, result: Tree) -> str:
        """Say why the injected pod has no rules, if the template adds no init container to pods of mode NONE; empty otherwise."""
        annotations = strings(mapping(pod["metadata"]).get("annotations"))
        asked = INTERCEPTION_MODE in annotations
        mode = annotations.get(INTERCEPTION_MODE, self.config.mesh.proxy.fields.get("interceptionMode"))
        by_plugin = any(_value_at(self.config.values, path) is True for path in _BY_PLUGIN)
        if mode != "NONE" or by_plugin or find_init(mapping(result.get("spec"))) is not None:
            return ""
        return f"with {f'annotation {INTERCEPTION_MODE}' if asked else 'interceptionMode of the mesh'}: NONE it gets no init container"

    @cached_property
    def settings(self) -> dict[str, str]:
        """The Helm values that set what a pod's annotation could, by annotation: templates name both; the package's own differ."""
        found = {name: path for text in self.config.sources.values() for name, path in _ANNOTATION_OR_VALUE.findall(text)}
        given, usual = self.config.values, default_values()
        return {name: path for name, path in found.items() if _value_at(given, path) not in (None, "", _value_at(usual, path))}

    def _usual_webhooks(self, labels: Mapping[str, str], of_pod: Mapping[str, str]) -> tuple[Webhook, ...]:
        """Return the webhooks that the configuration's release installs, also for the revision that a label asks for."""
        by_default = mapping(self.config.values.get("sidecarInjectorWebhook")).get("enableNamespacesByDefault") is True
        if self.config.classic:
            return early_webhook(by_default=by_default)
        revisions = dict.fromkeys([DEFAULT_REVISION, *[one[REVISION_LABEL] for one in (labels, of_pod) if one.get(REVISION_LABEL)]])
        return tuple([webhook for revision in revisions for webhook in current_webhooks(revision, by_default=by_default)])


def foresee(objects: Sequence[Tree], read_config: Callable[[], InjectionConfig], assume: str = "") -> Callable[[Workload], FuturePod]:
    """Return what says of each pod what becomes of it; `objects`: those of the manifests that decide about others.

    `assume`: INJECTED, or what else is done with pods of which it is not known. The configuration is read when it is first needed.
    """
    made: list[Injector] = []

    def decide_one(one: Workload) -> FuturePod:
        if not made:
            made.append(Injector.of_objects(read_config(), objects))
        found = made[0].foresee(one)
        if found.outlook != NOT_KNOWN or found.reason or not assume:
            return found
        reason = f"--assume {assume}"
        return made[0].inject(one, reason) if assume == INJECTED else FuturePod(outlook=assume, pod=found.pod, reason=reason)

    return decide_one
