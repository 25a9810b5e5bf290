"""Pods that ask for templates which netinit's own configuration lacks, while the injector's is not given: what becomes of them."""

from __future__ import annotations

from netinit.base.tree import Tree, mapping, shown, string, strings
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.deciding.annotations import TEMPLATES
from netinit.inject.deciding.containers import PROXY, find_proxy, named

GATEWAY = "gateway"
"""The template of Istio's that makes the proxy a gateway, and adds no init container."""


def _asked(pod: Tree) -> list[str]:
    asked = strings(mapping(pod.get("metadata")).get("annotations")).get(TEMPLATES)
    return [] if asked is None else [name.strip() for name in asked.split(",")]


def _lacking(pod: Tree, config: InjectionConfig) -> list[str]:
    """Return the templates that the pod asks for and that may be in the injector's configuration, which is not `config`."""
    return [name for name in _asked(pod) if name not in {*config.templates, *config.aliases}] if config.is_own else []


def becomes_gateway(pod: Tree, config: InjectionConfig) -> bool:
    """Whether Istio's template for gateways is all that the pod asks for."""
    return _asked(pod) == [GATEWAY] == _lacking(pod, config)


def as_gateway(pod: Tree) -> Tree:
    """Return the pod with the proxy that Istio's template for gateways makes, as far as it decides about rules."""
    spec = mapping(pod.get("spec"))
    arguments = {"args": ["proxy", "router"]}
    if find_proxy(spec) is None:
        proxy: Tree = {"name": PROXY, **arguments}
        return {**pod, "spec": {**spec, "containers": [*named(spec.get("containers")), proxy]}}
    changed = [{**one, **arguments} if string(one.get("name")) == PROXY else one for one in named(spec.get("containers"))]
    return {**pod, "spec": {**spec, "containers": changed}}


def explain_doubt(pod: Tree, config: InjectionConfig) -> str:
    """Say why it is not known what the pod gets; empty if it is known."""
    lacking = [] if becomes_gateway(pod, config) else _lacking(pod, config)
    if not lacking:
        return ""
    names = f"template{'s' * (len(lacking) > 1)} {', '.join(map(shown, lacking))}"
    return (
        f"annotation {TEMPLATES} asks for the {names}, which netinit's own configuration does not have: give the injector's "
        "(--injectConfigFile)"
    )
