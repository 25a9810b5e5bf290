"""Decide which pods get the sidecar and its init container, and inject them. No I/O.

    config = load_config(text_of_the_config_map)
    decision = decide(pod, "shop", config)
    if decision.inject:
        injected = inject_pod(pod, config, namespace=Namespace(name="shop"))
        operations = json_patch(pod, injected)

Pods are trees of dicts, lists and scalars, as decoded from YAML or JSON, and are never modified.
"""

from __future__ import annotations

from netinit.inject.config import InjectionConfig, load_config
from netinit.inject.decision import Decision, DecisionStep, decide, decide_manually
from netinit.inject.manifests import PodOwner
from netinit.inject.meshconfig import MeshConfig
from netinit.inject.patch import apply_patch, json_patch
from netinit.inject.pod import inject_pod
from netinit.inject.pod_options import init_container
from netinit.inject.settings import Namespace, Settings

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
