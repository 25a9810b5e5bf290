"""Kubernetes label selectors, and the webhooks by whose selectors the API server decides for which pods it calls an injector.

Webhooks see only labels of the namespace and the pod. Selectors can also explain why they do not match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.records import Record
from netinit.base.tree import Tree, mapping, sequence, shown, string

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class Requirement(Record):
    """A condition on a label: `In` and `NotIn` with values, `Exists` and `DoesNotExist` without."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy it; as in Kubernetes, a missing key satisfies NotIn."""
        present = self.key in labels
        if self.operator == "Exists":
            return present
        if self.operator == "DoesNotExist":
            return not present
        listed = present and labels[self.key] in self.values
        return listed if self.operator == "In" else not listed

    def __str__(self) -> str:
        values = ", ".join(self.values)
        words = {
            "In": f"{self.key}={values}" if len(self.values) == 1 else f"{self.key} in ({values})",
            "NotIn": f"{self.key}!={values}" if len(self.values) == 1 else f"{self.key} not in ({values})",
            "Exists": f"{self.key} exists",
            "DoesNotExist": f"{self.key} does not exist",
        }
        return words[self.operator]

    @property
    def wish(self) -> str:
        """What labels must have that satisfy it, after "must have"."""
        values = " or ".join(self.values)
        words = {"NotIn": f"no label {self.key}={values}", "Exists": f"the label {self.key}", "DoesNotExist": f"no label {self.key}"}
        return words.get(self.operator, str(self))


class Selector(Record):
    """Requirements that must all match; an empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return " and ".join(map(str, self.requirements)) or "everything"

    @classmethod
    def parse(cls, value: Any) -> Selector:
        """Parse a LabelSelector (matchLabels, matchExpressions). Raises ConfigError."""
        if not isinstance(value, dict):
            raise ConfigError(f"a selector must be a mapping with matchLabels or matchExpressions, not {shown(value)}")
        labels = value["matchLabels"] if value.get("matchLabels") is not None else {}
        expressions = value["matchExpressions"] if value.get("matchExpressions") is not None else []
        if not isinstance(labels, dict) or not isinstance(expressions, list):
            raise ConfigError(f"selector {shown(value)}: matchLabels must be a mapping and matchExpressions a list")
        found = [Requirement(key=key, operator="In", values=(string(wanted),)) for key, wanted in labels.items()]
        return cls(requirements=(*found, *map(_expression, expressions)))


def _expression(value: Any) -> Requirement:
    if not isinstance(value, dict) or not isinstance(value.get("key"), str) or not value["key"]:
        raise ConfigError(f"selector expression {shown(value)} has no key")
    operator = value.get("operator")
    values = value.get("values") or []
    if operator not in _OPERATORS:
        raise ConfigError(f"selector on {value['key']}: operator {shown(operator)} is not one of {', '.join(_OPERATORS)}")
    if not isinstance(values, list) or any(isinstance(item, (dict, list)) for item in values):
        raise ConfigError(f"selector on {value['key']}: values must be a list of strings, not {shown(values)}")
    if operator in {"In", "NotIn"} and not values:
        raise ConfigError(f"selector on {value['key']}: {operator} needs at least one value")
    if operator in {"Exists", "DoesNotExist"} and values:
        raise ConfigError(f"selector on {value['key']}: {operator} takes no values, not {shown(values)}")
    return Requirement(key=value["key"], operator=operator, values=tuple(map(string, values)))


# --- webhooks ---

DEFAULT_REVISION = "default"
REVISION_LABEL = "istio.io/rev"
INJECT = "sidecar.istio.io/inject"
INJECTION_LABEL = "istio-injection"
DATAPLANE_LABEL = "istio.io/dataplane-mode"
NAME_LABEL = "kubernetes.io/metadata.name"
CLASSIC_SYSTEM_NAMESPACES = ("kube-system", "kube-public")
SYSTEM_NAMESPACES = (*CLASSIC_SYSTEM_NAMESPACES, "kube-node-lease", "local-path-storage")
"""The namespaces that are never injected."""


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


def parse_webhooks(configuration: Tree) -> tuple[Webhook, ...]:
    """Parse a MutatingWebhookConfiguration. Raises ConfigError."""
    revision = string(mapping(mapping(configuration.get("metadata")).get("labels")).get(REVISION_LABEL))
    return tuple(_parse(item, revision) for item in sequence(configuration.get("webhooks")))


def parse_injectors(configuration: Tree) -> Iterator[tuple[Tree, Webhook]]:
    """Yield the webhooks that inject sidecars, by their name or path, each with its object. Raises ConfigError."""
    for item, webhook in zip(sequence(configuration.get("webhooks")), parse_webhooks(configuration), strict=True):
        leads_to = mapping(item.get("clientConfig"))
        path, url = string(mapping(leads_to.get("service")).get("path")), string(leads_to.get("url"))
        if "sidecar-injector" in webhook.name or "/inject/" in f"{path}/" or "/inject/" in f"{url.partition('?')[0]}/":
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
