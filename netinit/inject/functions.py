"""The functions that templates may call: Go's, sprig's and Istio's; Istio's also read the mesh and ProxyConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netinit.base.tree import mapping
from netinit.golang.template import Struct
from netinit.inject import istio_functions

_PREFIX = "resource.opentelemetry.io/"
_ENRICHMENT = "OTEL_SEMANTIC_CONVENTIONS"


def otel_resource_attributes(
    mesh: Struct, annotations: Mapping[str, str], labels: Mapping[str, str], namespace: str, containers: Any
) -> str:
    """Return the value of OTEL_RESOURCE_ATTRIBUTES; empty unless a provider of the mesh uses semantic conventions.

    An annotation with an attribute's name takes precedence. The version comes from the label, or the image of a pod
    with one container; the instance from namespace, pod and first container. `namespace` is empty if a manifest has
    none. As in Istio, values are not percent-encoded; the kubelet expands `$(POD_NAME)`.
    """
    providers = [provider.tree for provider in mesh.fields["ExtensionProviders"]]
    asked = [mapping(item.get("opentelemetry")).get("serviceAttributeEnrichment") for item in providers]
    if _ENRICHMENT not in asked:
        return ""
    present = list(containers or ())
    version = labels.get("app.kubernetes.io/version") or ""
    if not version and len(present) == 1:
        version = _version_of(present[0].fields["Image"])
    known = {
        "service.namespace": namespace,
        "service.version": version,
        "service.instance.id": f"{namespace}.$(POD_NAME).{present[0].fields['Name']}" if present else "",
    }
    found = {name: annotations.get(_PREFIX + name) or value for name, value in known.items()}
    return ",".join(f"{name}={value}" for name, value in found.items() if value)


def _version_of(image: str) -> str:
    """Return an image's tag, digest, or both joined by `@`."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].rpartition(":")
    return "@".join(part for part in (tag[2] if tag[1] else "", digest) if part)


FUNCTIONS = istio_functions.functions(otel_resource_attributes=otel_resource_attributes)
CLASSIC_FUNCTIONS = istio_functions.functions(include_udp=True)
"""includeInboundPorts of 1.1 names UDP ports too."""
