"""Injection: deciding which pods get the sidecar and its init container, and adding them. Pure: no I/O.

    config = load_config(text_of_the_config_map)
    decision = decide(pod, "shop", config)
    if decision.inject:
        injected = inject_pod(pod, config, namespace=Namespace(name="shop"))
        operations = json_patch(pod, injected)

Pods are trees (dict, list, scalars) as YAML and JSON give them; none that is passed in is ever changed.
"""

from __future__ import annotations

from typing import Any

from netinit.inject.config import InjectionConfig, load_config
from netinit.inject.decision import Decision, DecisionStep, decide, decide_manually
from netinit.inject.initcontainer import init_container
from netinit.inject.meshconfig import MeshConfig
from netinit.inject.owner import PodOwner
from netinit.inject.patch import apply_patch, json_patch
from netinit.inject.pod import Namespace, Settings, inject_pod

__all__ = [
    "Decision",
    "DecisionStep",
    "InjectionConfig",
    "MeshConfig",
    "Namespace",
    "PodOwner",
    "Settings",
    "apply_patch",
    "decide",
    "decide_manually",
    "init_container",
    "inject_pod",
    "json_patch",
    "load_config",
]

_HOMES = {
    "Decision": "decision",
    "InjectionConfig": "config",
    "MeshConfig": "meshconfig",
    "Namespace": "pod",
    "PodOwner": "owner",
    "Settings": "pod",
    "DecisionStep": "decision",
    "apply_patch": "patch",
    "decide": "decision",
    "decide_manually": "decision",
    "init_container": "initcontainer",
    "inject_pod": "pod",
    "json_patch": "patch",
    "load_config": "config",
}


def __getattr__(name: str) -> Any:
    """The public names, each imported when it is first used: the template engine alone needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
