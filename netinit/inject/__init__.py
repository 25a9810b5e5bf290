"""Decide which pods get the sidecar and its init container, and inject them. No I/O.

    config = load_config(text_of_the_config_map)
    decision = decide(pod, "shop", config)
    if decision.inject:
        injected = inject_pod(pod, config, namespace=Namespace(name="shop"))
        operations = json_patch(pod, injected)

Pods are trees of dicts, lists and scalars, as decoded from YAML or JSON, and are never modified. The names below are
imported when they are first asked for: who only decides about pods, as the node agent does, loads no templates.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.inject.adding.config import InjectionConfig, load_config
    from netinit.inject.adding.meshconfig import MeshConfig
    from netinit.inject.adding.patch import apply_patch, json_patch
    from netinit.inject.adding.pod import inject_pod
    from netinit.inject.adding.settings import Namespace, Settings
    from netinit.inject.deciding.decision import Decision, DecisionStep, decide, decide_manually
    from netinit.inject.deciding.init_container import init_container
    from netinit.inject.deciding.manifests import PodOwner

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
    "Decision": "netinit.inject.deciding.decision",
    "DecisionStep": "netinit.inject.deciding.decision",
    "InjectionConfig": "netinit.inject.adding.config",
    "MeshConfig": "netinit.inject.adding.meshconfig",
    "Namespace": "netinit.inject.adding.settings",
    "PodOwner": "netinit.inject.deciding.manifests",
    "Settings": "netinit.inject.adding.settings",
    "apply_patch": "netinit.inject.adding.patch",
    "decide": "netinit.inject.deciding.decision",
    "decide_manually": "netinit.inject.deciding.decision",
    "init_container": "netinit.inject.deciding.init_container",
    "inject_pod": "netinit.inject.adding.pod",
    "json_patch": "netinit.inject.adding.patch",
    "load_config": "netinit.inject.adding.config",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(__import__(_HOMES[name], fromlist=[name]), name)
    raise AttributeError(f"module 'netinit.inject' has no attribute {name!r}")
