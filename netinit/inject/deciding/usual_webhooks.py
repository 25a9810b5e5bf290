"""The webhooks that an installation of Istio has if nobody changed them, and which webhooks are called for a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from netinit.inject.deciding.webhooks import (
    DEFAULT_REVISION,
    INJECT,
    INJECTION_LABEL,
    NAME_LABEL,
    REVISION_LABEL,
    SYSTEM_NAMESPACES,
    Requirement,
    Selector,
    Webhook,
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
            system = (NAME_LABEL, "NotIn", SYSTEM_NAMESPACES)
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


def firing(
    webhooks: Iterable[Webhook], namespace_labels: Mapping[str, str], pod_labels: Mapping[str, str]
) -> tuple[Webhook, ...]:
    """Return the webhooks that are called for the pod."""
    return tuple(webhook for webhook in webhooks if webhook.matches(namespace_labels, pod_labels))


def find_obstacles(webhook: Webhook, namespace_labels: Mapping[str, str], pod_labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the conditions of a webhook that are not met, with the labels that they apply to."""
    sides = (("namespace", webhook.namespace_selector, namespace_labels), ("pod", webhook.object_selector, pod_labels))
    return tuple([
        f"the {whose} must have {requirement.wish}"
        for whose, selector, labels in sides for requirement in selector.requirements if not requirement.matches(labels)
    ])  # fmt: skip
