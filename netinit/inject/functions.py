"""The functions that templates may call: Go's, sprig's and Istio's, the last ones knowing our mesh and ProxyConfig."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from netinit.golang.template import Struct
from netinit.golang.tree import mapping, sequence
from netinit.inject import istio_functions
from netinit.inject.containers import PROXY

__all__ = ["CLASSIC_FUNCTIONS", "FUNCTIONS", "otel_resource_attributes"]

_PREFIX = "resource.opentelemetry.io/"
_ENRICHMENT = "OTEL_SEMANTIC_CONVENTIONS"
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.~$()/:@+-]")
_TAG = re.compile(r":([A-Za-z0-9_][A-Za-z0-9_.-]*)\Z")


def otel_resource_attributes(
    mesh: Struct, annotations: Mapping[str, str], labels: Mapping[str, str], namespace: str, containers: Any
) -> str:
    """The value of OTEL_RESOURCE_ATTRIBUTES; empty unless a provider of the mesh asks for semantic conventions.

    The attributes are those that OpenTelemetry's conventions take from Kubernetes: an annotation of that name wins,
    then the namespace, the version label or the image's tag, and namespace, pod and container as the instance. The
    kubelet fills in `$(…)`; characters that mean something in the list are percent-encoded.
    """
    providers = [mapping(item) for item in sequence(mesh.fields.get("ExtensionProviders"))]
    asked = [mapping(item.get("opentelemetry")).get("serviceAttributeEnrichment") for item in providers]
    if _ENRICHMENT not in asked:
        return ""
    first = next((item for item in containers or () if item.fields["Name"] != PROXY), None)
    tag = _TAG.search(first.fields["Image"]) if first else None
    known = {
        "service.namespace": namespace,
        "service.version": labels.get("app.kubernetes.io/version") or (tag[1] if tag else ""),
        "service.instance.id": f"$(POD_NAMESPACE).$(POD_NAME).{first.fields['Name']}" if first else "",
    }
    found = {name: annotations.get(_PREFIX + name) or value for name, value in known.items()}
    return ",".join(f"{name}={_NOT_PLAIN.sub(_encoded, value)}" for name, value in found.items() if value)


def _encoded(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


FUNCTIONS = istio_functions.functions(otel_resource_attributes=otel_resource_attributes)
CLASSIC_FUNCTIONS = istio_functions.functions(include_udp=True)
"""includeInboundPorts of 1.1 names UDP ports too."""
