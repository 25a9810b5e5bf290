"""Decide whether a pod is injected, in Istio's order, and record the step that decided.

Before this, the API server evaluates the webhook's selectors (`webhooks`). `sidecar.istio.io/inject` has two syntaxes:

- classic (1.0, 1.1): the annotation, in any case; y, yes, true and on mean yes, empty the default, all else no;
- current: the label, even if empty, else the annotation; all but `true` and `false` causes a warning and means the
  default.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from netinit.base.records import Record
from netinit.base.sanitize import MAX_TEXT_LENGTH
from netinit.base.tree import Tree, mapping, shown, strings
from netinit.inject.deciding.webhooks import CLASSIC_SYSTEM_NAMESPACES, INJECT, SYSTEM_NAMESPACES, Selector


class InjectionPolicy(Protocol):
    """What decides about pods: the part of an injector's configuration that this module reads."""

    @property
    def classic(self) -> bool:
        """Whether it has the format of Istio 1.0 and 1.1."""

    @property
    def policy(self) -> str:
        """`enabled` or `disabled`; another word injects nothing."""

    @property
    def never_inject_selectors(self) -> tuple[Selector, ...]:
        """Pods with these labels are not injected."""

    @property
    def always_inject_selectors(self) -> tuple[Selector, ...]:
        """Pods with these labels are injected."""


class DecisionStep(StrEnum):
    """The steps of a decision, in order."""

    HOST_NETWORK = "host-network"
    NAMESPACE = "namespace"
    LABEL = "label"
    ANNOTATION = "annotation"
    NEVER_SELECTOR = "neverInjectSelector"
    ALWAYS_SELECTOR = "alwaysInjectSelector"
    POLICY = "policy"
    MANUAL = "manual"


class Decision(Record):
    """Whether to inject, the reason as a sentence, the step that decided, and warnings."""

    inject: bool
    reason: str
    step: DecisionStep
    warnings: tuple[str, ...] = ()


def decide(pod: Tree, namespace: str, config: InjectionPolicy) -> Decision:
    """Decide about a pod by its metadata.

    `namespace`: the request's; the pod's own takes precedence. As in Istio, a policy other than `enabled` and
    `disabled` always means no.
    """
    if early := _excluded(pod, namespace, CLASSIC_SYSTEM_NAMESPACES if config.classic else SYSTEM_NAMESPACES):
        return early
    if config.policy not in {"enabled", "disabled"}:
        return Decision(
            inject=False,
            reason=f"the injector's policy {config.policy!r} is neither enabled nor disabled",
            step=DecisionStep.POLICY,
            warnings=(f"policy {config.policy!r} is neither enabled nor disabled: nothing is injected",),
        )
    asked, warnings = _read_request(pod, classic=config.classic)
    if asked is not None:
        return asked
    labels = strings(mapping(pod.get("metadata")).get("labels"))
    for step, selectors, inject in (
        (DecisionStep.NEVER_SELECTOR, config.never_inject_selectors, False),
        (DecisionStep.ALWAYS_SELECTOR, config.always_inject_selectors, True),
    ):
        for position, selector in enumerate(selectors):
            if selector.requirements and selector.matches(labels):
                reason = f"{step.value}[{position}] matches the pod's labels ({selector})"
                return Decision(inject=inject, reason=reason, step=step, warnings=warnings)
    inject = config.policy == "enabled"
    reason = f"the injector's policy is {config.policy}"
    return Decision(inject=inject, reason=reason, step=DecisionStep.POLICY, warnings=warnings)


def decide_manually(pod: Tree, namespace: str, config: InjectionPolicy) -> Decision:
    """Decide for manual injection (`kube-inject`).

    Classic: only pods on the host network are skipped; current: also system namespaces and pods that opt out. The
    policy counts as enabled, without selectors.
    """
    if early := _excluded(pod, namespace, () if config.classic else SYSTEM_NAMESPACES):
        return early
    asked, warnings = (None, ()) if config.classic else _read_request(pod, classic=False)
    return asked or Decision(inject=True, reason="manual injection was asked for", step=DecisionStep.MANUAL, warnings=warnings)


def _excluded(pod: Tree, namespace: str, ignored: tuple[str, ...]) -> Decision | None:
    if mapping(pod.get("spec")).get("hostNetwork") is True:
        reason = "the pod uses the host's network: rules made for it would intercept the whole node"
        return Decision(inject=False, reason=reason, step=DecisionStep.HOST_NETWORK)
    own = mapping(pod.get("metadata")).get("namespace") or namespace
    if own in ignored:
        return Decision(inject=False, reason=f"{own} is a system namespace", step=DecisionStep.NAMESPACE)
    return None


def _read_request(pod: Tree, *, classic: bool) -> tuple[Decision | None, tuple[str, ...]]:
    """Return what the pod requests (None: the default), and warnings."""
    metadata = mapping(pod.get("metadata"))
    labels, annotations = strings(metadata.get("labels")), strings(metadata.get("annotations"))
    if classic:
        value = annotations.get(INJECT, "").lower()
        if not value:
            return None, ()
        inject = value in {"y", "yes", "true", "on"}
        return Decision(inject=inject, reason=f'annotation {INJECT}: "{value[:MAX_TEXT_LENGTH]}"', step=DecisionStep.ANNOTATION), ()
    step = DecisionStep.LABEL if INJECT in labels else DecisionStep.ANNOTATION
    value = labels[INJECT] if INJECT in labels else annotations.get(INJECT, "")
    if value in {"true", "false"}:
        return Decision(inject=value == "true", reason=f'{step.value} {INJECT}: "{value}"', step=step), ()
    if value:
        return None, (f"{step.value} {INJECT}: {shown(value)} is neither true nor false and is ignored",)
    return None, ()
