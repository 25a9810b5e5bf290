"""The webhook selectors, by which the API server decides for which pods it calls an injector.

They see only labels of the namespace and the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.inject.decision import INJECT, ignored_namespaces
from netinit.inject.selectors import Requirement, Selector

DEFAULT_REVISION = "default"
REVISION_LABEL = "istio.io/rev"
INJECTION_LABEL = "istio-injection"
NAME_LABEL = "kubernetes.io/metadata.name"


class Webhook(Record):
    """One webhook of a MutatingWebhookConfiguration; both selectors must match."""

    name: str
    namespace_selector: Selector
    object_selector: Selector
    revision: str = ""

    @property
    def short_name(self) -> str:
        """The name without Istio's common domain."""
        return self.name.removesuffix(".sidecar-injector.istio.io")

    def matches(self, namespace_labels: Mapping[str, str], pod_labels: Mapping[str, str]) -> bool:
        """Whether the API server calls the injector for a pod with these labels."""
        return self.namespace_selector.matches(namespace_labels) and self.object_selector.matches(pod_labels)

    def obstacles(self, namespace_labels: Mapping[str, str], pod_labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the conditions that are not met, with the labels that they apply to."""
        return tuple(
            f"the {whose} must have {requirement}"
            for whose, selector, labels in (
                ("namespace", self.namespace_selector, namespace_labels),
                ("pod", self.object_selector, pod_labels),
            )
            for requirement in selector.failures(labels)
        )


def _selector(*conditions: tuple[str, str, tuple[str, ...]]) -> Selector:
    made = (Requirement(key=key, operator=operator, values=values) for key, operator, values in conditions)
    return Selector(requirements=tuple(made))


_NO_REVISION = (REVISION_LABEL, "DoesNotExist", ())
_NO_INJECTION = (INJECTION_LABEL, "DoesNotExist", ())
_NOT_REFUSED = (INJECT, "NotIn", ("false",))


def current_webhooks(revision: str = DEFAULT_REVISION, *, by_default: bool = False) -> tuple[Webhook, ...]:
    """Return the webhooks of a current installation; `by_default`: its enableNamespacesByDefault.

    A revision other than the default only matches its own label.
    """
    of_revision = (REVISION_LABEL, "In", (revision,))
    found = [
        ("rev.namespace", _selector(of_revision, _NO_INJECTION), _selector(_NOT_REFUSED)),
        ("rev.object", _selector(_NO_REVISION, _NO_INJECTION), _selector(_NOT_REFUSED, of_revision)),
    ]
    if revision == DEFAULT_REVISION:
        enabled = (INJECTION_LABEL, "In", ("enabled",))
        found += [
            ("namespace", _selector(enabled), _selector(_NOT_REFUSED)),
            ("object", _selector(_NO_INJECTION, _NO_REVISION), _selector((INJECT, "In", ("true",)), _NO_REVISION)),
        ]
        if by_default:
            system = (NAME_LABEL, "NotIn", ignored_namespaces(classic=False))
            pod = _selector((INJECT, "DoesNotExist", ()), _NO_REVISION)
            found.append(("auto", _selector(_NO_INJECTION, _NO_REVISION, system), pod))
    return tuple(
        Webhook(name=f"{name}.sidecar-injector.istio.io", namespace_selector=ns, object_selector=pod, revision=revision)
        for name, ns, pod in found
    )


def early_webhook(*, by_default: bool = False) -> tuple[Webhook, ...]:
    """Return the only webhook of releases with the classic configuration (to Istio 1.8), which selects by namespace."""
    condition = (INJECTION_LABEL, "NotIn", ("disabled",)) if by_default else (INJECTION_LABEL, "In", ("enabled",))
    name = "sidecar-injector.istio.io"
    return (Webhook(name=name, namespace_selector=_selector(condition), object_selector=Selector()),)


def parse_webhooks(configuration: Tree) -> tuple[Webhook, ...]:
    """Parse a MutatingWebhookConfiguration. Raises ConfigError."""
    revision = string(mapping(mapping(configuration.get("metadata")).get("labels")).get(REVISION_LABEL))
    return tuple(_parse(item, revision) for item in sequence(configuration.get("webhooks")))


def parse_injectors(configuration: Tree) -> Iterator[tuple[Tree, Webhook]]:
    """Yield the webhooks that inject sidecars, by their name or path, each with its object. Raises ConfigError."""
    for item, webhook in zip(sequence(configuration.get("webhooks")), parse_webhooks(configuration), strict=True):
        leads_to = mapping(item.get("clientConfig"))
        path, url = string(mapping(leads_to.get("service")).get("path")), string(leads_to.get("url"))
        if "sidecar-injector" in webhook.name or "/inject" in path or "/inject" in url:
            yield item, webhook


def _parse(item: Any, revision: str) -> Webhook:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise ConfigError(f"webhook {item!r} has no name")
    try:
        return Webhook(
            name=item["name"],
            namespace_selector=Selector.parse(item.get("namespaceSelector") or {}),
            object_selector=Selector.parse(item.get("objectSelector") or {}),
            revision=revision,
        )
    except ConfigError as error:
        raise ConfigError(f"webhook {item['name']}: {error}") from error


def firing(
    webhooks: Iterable[Webhook], namespace_labels: Mapping[str, str], pod_labels: Mapping[str, str]
) -> tuple[Webhook, ...]:
    """Return the webhooks that are called for the pod."""
    return tuple(webhook for webhook in webhooks if webhook.matches(namespace_labels, pod_labels))
