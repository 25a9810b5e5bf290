"""The data of a template: owner, mesh and proxy configuration as Go structs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netinit.base.tree import Tree, mapping, string
from netinit.golang.template.values import Int32, Struct
from netinit.inject.meshconfig import MeshConfig, ProxyConfig
from netinit.inject.messages import Message
from netinit.inject.owner import PodOwner
from netinit.inject.quantity import round_up

TRUSTED: Mapping[str, frozenset[str]] = {
    "Values": frozenset(),
    "MeshConfig": frozenset(("DefaultConfig", "GetDefaultConfig")),
    "Revision": frozenset(),
    "NativeSidecars": frozenset(),
    "ProxyUID": frozenset(),
    "ProxyGID": frozenset(),
    "InboundTrafficPolicyMode": frozenset(),
    "CompliancePolicy": frozenset(),
}
"""The fields of a template's data that the operator controls; DefaultConfig depends on a pod's annotation."""
CONSTANTS = ("Values", "MeshConfig", "ProxyConfig", "NativeSidecars")
"""Fields that are the same object for most pods."""
_CPU_ANNOTATIONS = ("sidecar.istio.io/proxyCPULimit", "sidecar.istio.io/proxyCPU")
_USUAL_CONCURRENCY = 2


def owner_structs(owner: PodOwner) -> tuple[Struct, Struct]:
    """The workload as DeploymentMeta and TypeMeta."""
    name = f"{owner.namespace}/{owner.name}"
    return (
        Struct("types.NamespacedName", {"Namespace": owner.namespace, "Name": owner.name}, {"String": lambda: name}),
        Struct("v1.TypeMeta", {"Kind": owner.kind, "APIVersion": owner.api_version}),
    )


class ProxyStruct(Message):
    """A ProxyConfig that knows which fields differ from the defaults, for protoToJSON."""

    def __init__(self, config: ProxyConfig, given: Mapping[str, Any]) -> None:
        super().__init__("ProxyConfig", config.fields, given)
        self.changed = config.changed()


def proxy_struct(config: ProxyConfig, *, plain: bool) -> ProxyStruct:
    """Return the ProxyConfig with its getters; `plain`: concurrency and cluster are plain fields, as before Istio 1.7."""
    if not plain:
        return ProxyStruct(config, {})
    fields = config.fields
    given = {
        "Concurrency": Int32(fields.get("concurrency") or 0),
        "ServiceCluster": string(fields.get("serviceCluster")),
    }
    return ProxyStruct(config, given)


def estimate_concurrency(proxy: ProxyConfig, annotations: Mapping[str, str], values: Tree) -> int:
    """Return the number of proxy threads for the templates of Istio 1.11 to 1.17.

    It is the ProxyConfig's, by default 2. If it is 0: the CPU quantity, rounded up, of the annotation, else of the
    limit or the request in the values, else 2.
    """
    configured = proxy.fields.get("concurrency")
    if configured is None or configured > 0:
        return int(configured or _USUAL_CONCURRENCY)
    resources = mapping(mapping(mapping(values.get("global")).get("proxy")).get("resources"))
    annotated = next((annotations[name] for name in _CPU_ANNOTATIONS if name in annotations), None)
    asked = [annotated] if annotated is not None else [mapping(resources.get(part)).get("cpu") for part in ("limits", "requests")]
    return next((number for text in asked if text is not None and (number := round_up(text)) is not None), _USUAL_CONCURRENCY)


def mesh_struct(mesh: MeshConfig, proxy: ProxyStruct) -> Struct:
    """The MeshConfig, a pointer as Istio passes it."""
    return Message("MeshConfig", mesh.fields, {"DefaultConfig": proxy})
