"""exportTo: the namespaces whose proxies know a Service, a ServiceEntry, a DestinationRule or a VirtualService.

As Istio reads it (initServiceRegistry and setDestinationRules in pilot/pkg/model/push_context.go).
"""

from __future__ import annotations

from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.questions.why.objects import (
    DESTINATION,
    ROUTE,
    SERVICE,
    SERVICE_ENTRY,
    ClusterObjects,
    namespace_of,
    spec_of,
)

ANNOTATION, FIELD = "networking.istio.io/exportTo", "exportTo"
_ANY, _OWN, _NONE = "*", ".", "~"
_OF_SERVICES = "defaultServiceExportTo"
DEFAULTS = {  # in MeshConfig
    SERVICE: _OF_SERVICES, SERVICE_ENTRY: _OF_SERVICES, DESTINATION: "defaultDestinationRuleExportTo",
    ROUTE: "defaultVirtualServiceExportTo",
}  # fmt: skip


def is_exported(tree: Tree, kind: str, namespace: str, objects: ClusterObjects) -> bool | None:
    """Whether proxies of a namespace may know an object; None if the mesh's settings decide, which are not known."""
    home, places = namespace_of(tree), _list_places(tree, kind)
    if not places and (home == namespace or objects.mesh is None):
        return True if home == namespace else None
    places = places or [string(one) for one in sequence(mapping(objects.mesh).get(DEFAULTS[kind]))] or [_ANY]
    if _ANY in places:
        return True
    return _NONE not in places and (namespace in places or (home == namespace and _OWN in places))


def _list_places(tree: Tree, kind: str) -> list[str]:
    """What the object itself says; nothing where the mesh's default counts."""
    if kind != SERVICE:
        return [string(one) for one in sequence(spec_of(tree).get(FIELD))]
    text = strings(mapping(tree.get("metadata")).get("annotations")).get(ANNOTATION, "")
    return [one.strip() for one in text.split(",")] if text else []
