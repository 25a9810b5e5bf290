"""The functions of Istio's injection templates, classic and current, and sprig's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from netinit.base import tree
from netinit.golang import sprig, times
from netinit.golang.gojson import from_json, to_json
from netinit.golang.goyaml.values import to_yaml
from netinit.golang.sprig.text import indent_lines, lower
from netinit.golang.template.limits import measure_all, text_cost
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import ANY, Function, FunctionError, Shaped, Struct, TypedMap, kind_of, type_name
from netinit.golang.times import NANOSECONDS
from netinit.inject.adding.kubernetes_types import ObjectStruct

_NOT_TCP: Final = ("UDP", "SCTP")
_ATTRIBUTES: Final = "resource.opentelemetry.io/"
_ENRICHMENT: Final = "OTEL_SEMANTIC_CONVENTIONS"


# --- reading what the template sees ---


def _part(item: Any, name: str) -> Any:
    """Return a struct's field; None if it is missing."""
    return item.fields.get(name) if isinstance(item, Struct) else None


def _members(item: Any) -> Sequence[Any]:
    return item if isinstance(item, list | tuple) else ()


def annotation(meta: Any, name: str, fallback: Any) -> str:
    """Return the annotation, even if empty; the fallback as text if it is missing."""
    annotations = _part(meta, "Annotations") or {}
    if name in annotations:
        return str(annotations[name])
    return fallback if type(fallback) is str else sprint(fallback)


# --- ports ---


def ports_of(containers: Any, *, skip: str = "", include_udp: bool = False) -> str:
    """Join the container ports with commas.

    `skip`: the name of a container to leave out. `include_udp`: also list UDP and SCTP ports, which are not
    intercepted.
    """
    found: list[str] = []
    for container in _members(containers):
        if skip and _part(container, "Name") == skip:
            continue
        ports = _members(_part(container, "Ports"))
        wanted = (port for port in ports if include_udp or _part(port, "Protocol") not in _NOT_TCP)
        found.extend(sprint(_part(port, "ContainerPort") or 0) for port in wanted)
    return ",".join(found)


def port_cost(containers: Any) -> int:
    """Return the steps of listing the ports of these containers."""
    return 1 + sum(1 + len(_members(_part(container, "Ports"))) for container in _members(containers))


def exclude_inbound_port(port: Any, excluded: str) -> str:
    """Add a port to a comma list, unless it is in it, "" or 0."""
    wanted = sprint(port).strip() if port is not None else ""
    listed = [item.strip() for item in excluded.split(",") if item.strip()]
    if wanted in ("", "0") or wanted in listed:
        return excluded
    return ",".join([*listed, wanted])


# --- values and text ---


def string_dict(*pairs: str) -> dict[str, Any]:
    """Return a map of alternating keys and values."""
    if len(pairs) % 2:
        raise FunctionError("strdict needs a value for every key")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def merge_maps(*mappings: Any) -> dict[str, Any]:
    """Merge maps; later ones take precedence."""
    merged: dict[str, Any] = {}
    for mapping in mappings:
        merged.update(mapping or {})
    return merged


def omit(mapping: Any, *names: str) -> Any:
    """Return a map of the same type without these keys."""
    if not isinstance(mapping, dict):
        return mapping
    kept = {name: value for name, value in mapping.items() if name not in names}
    if isinstance(mapping, TypedMap):
        return TypedMap(kept, go_type=mapping.go_type, zero=mapping.zero, key_type=mapping.key_type)
    return kept


def omit_nil(value: Any) -> Any:
    """Remove nulls, and maps and lists that become empty."""
    kind = kind_of(value)
    if kind == "map" and value:
        return {key: kept for key, item in value.items() if (kept := omit_nil(item)) is not None} or None
    if kind == "slice" and value:
        return [kept for item in value if (kept := omit_nil(item)) is not None] or None
    return value


# --- JSON and YAML ---


def json_of(value: Any) -> str:
    """Encode the value as JSON; `{}` for nil."""
    return "{}" if value is None else Shaped(to_json(value), form="json", tree=value)


def json_value(text: str) -> Any:
    """Decode a JSON text; return the text `{}` if it is invalid."""
    try:
        return from_json(text)
    except ValueError:
        return "{}"


def struct_to_json(value: Any) -> str:
    """Encode the value as JSON, an object's fields in Go's order; `{}` for nil."""
    return value.json_text if isinstance(value, ObjectStruct) else json_of(value)


def proto_to_json(value: Any) -> str:
    """Encode the fields of a ProxyConfig that differ from the defaults (attribute `changed`) as JSON; `{}` for nil."""
    if value is None:
        return "{}"
    changed = getattr(value, "changed", None)
    if changed is None:
        raise FunctionError(f"protoToJSON: a {type_name(value)} does not say what was changed")
    return Shaped(to_json(changed, sort=False), form="json", tree=changed)


# --- durations ---

_SECONDS: Final = r"(-?)([0-9]{1,12})(?:\.([0-9]+))?s?"


def format_duration(value: Any) -> str:
    """Format a duration like Go: 45s, 1m0s, 500ms.

    `value`: seconds, protobuf's JSON form ("45s"), or a message with Seconds and Nanos. Raises FunctionError.
    """
    if isinstance(value, Struct):
        nanoseconds = int(_part(value, "Seconds") or 0) * NANOSECONDS + int(_part(value, "Nanos") or 0)
    elif kind_of(value) == "string":
        found = re.fullmatch(_SECONDS, value)
        if found is None:
            raise FunctionError(f"invalid duration {json.dumps(value)}")
        nanoseconds = int(found[2]) * NANOSECONDS + int((found[3] or "0")[:9].ljust(9, "0"))
        nanoseconds = -nanoseconds if found[1] else nanoseconds
    elif value is None or isinstance(value, int | float):
        nanoseconds = round((value or 0) * NANOSECONDS)
    else:
        raise FunctionError(f"invalid duration of type {type_name(value)}")
    return times.format_duration(nanoseconds)


# --- Multus ---


def append_multus_network(existing: str, network: str) -> str:
    """Add a network to the annotation k8s.v1.cni.cncf.io/networks, unless it is listed.

    The value is a comma list of [namespace/]name, or a JSON list of objects. Invalid JSON is returned unchanged.
    """
    if not existing:
        return network
    if "]" not in existing:
        listed = [item.strip() for item in existing.split(",")]
        return existing if network in listed else f"{existing}, {network}"
    namespace, _, name = network.rpartition("/")
    try:
        present = json.loads(existing)
    except (ValueError, RecursionError):
        return existing
    if not isinstance(present, list) or not all(isinstance(item, dict) for item in present):
        return existing
    if any(item.get("name") == name and (item.get("namespace") or "") == namespace for item in present):
        return existing
    wanted = {"name": name, "namespace": namespace} if namespace else {"name": name}
    before, _, after = existing.rpartition("]")
    return f"{before}{', ' if present else ''}{json.dumps(wanted)}]{after}"


def render(text: str) -> str:
    """Return the text. Raises FunctionError if it contains an action.

    Istio 1.2 to 1.7 render the names in `global.podDNSSearchNamespaces` as templates.
    """
    if "{{" in text:
        raise FunctionError(f"render: {json.dumps(text)} has an action; write the name that it stands for into the values")
    return text


def otel_resource_attributes(
    mesh: Struct, annotations: Mapping[str, str], labels: Mapping[str, str], namespace: str, containers: Any
) -> str:
    """Return the value of OTEL_RESOURCE_ATTRIBUTES; "" unless a provider of the mesh uses semantic conventions.

    An annotation with an attribute's name takes precedence. The version is the label's, or that of the only container's
    image; the instance is namespace, pod and first container. As in Istio, nothing is percent-encoded; the kubelet
    expands `$(POD_NAME)`.
    """
    providers = [provider.tree for provider in mesh.fields["ExtensionProviders"]]
    asked = [tree.mapping(item.get("opentelemetry")).get("serviceAttributeEnrichment") for item in providers]
    if _ENRICHMENT not in asked:
        return ""
    present = list(containers or ())
    version = labels.get("app.kubernetes.io/version") or ""
    if not version and len(present) == 1:
        name, _, digest = present[0].fields["Image"].partition("@")
        _, colon, tag = name.rpartition("/")[2].rpartition(":")
        version = "@".join(filter(None, (colon and tag, digest)))
    known = {
        "service.namespace": namespace,
        "service.version": version,
        "service.instance.id": f"{namespace}.$(POD_NAME).{present[0].fields['Name']}" if present else "",
    }
    found = {name: annotations.get(_ATTRIBUTES + name) or value for name, value in known.items()}
    return ",".join(f"{name}={value}" for name, value in found.items() if value)


def _port_function(**options: Any) -> Function:
    return Function(lambda containers: ports_of(containers, **options), "[]v1.Container", cost=port_cost)


_ISTIOS: Final[dict[str, Callable[..., Any] | Function]] = {
    "annotation": Function(annotation, "v1.ObjectMeta", "string", ANY),
    "appendMultusNetwork": Function.of(append_multus_network, cost=text_cost),
    "applicationPorts": _port_function(skip="istio-proxy"),
    "directory": Function(lambda path: path[: path.rfind("/") + 1], "string"),
    "env": Function(lambda _name, fallback: fallback, "string", "string"),  # the injector's environment is not read
    "excludeInboundPort": Function.of(exclude_inbound_port, cost=text_cost),
    "excludeInterfaces": Function(lambda text: text, "string"),
    "formatDuration": format_duration,
    "fromJSON": Function.of(json_value, cost=text_cost),
    "includeInboundPorts": _port_function(),
    "indent": Function(lambda spaces, text: indent_lines("", spaces, text), "int", "string"),  # all lines but the first
    "isset": Function(lambda mapping, key: key in (mapping or {}), "map[string]string", "string"),
    "kubevirtInterfaces": Function(lambda text: text, "string"),
    "mergeMaps": merge_maps,
    "omit": omit,
    "omitNil": Function.of(omit_nil, cost=measure_all),
    "otelResourceAttributes": Function(
        otel_resource_attributes, "*v1alpha1.MeshConfig", "map[string]string", "map[string]string", "string", "[]v1.Container"
    ),
    "protoToJSON": proto_to_json,
    "render": render,
    "strdict": string_dict,
    "structToJSON": Function.of(struct_to_json, cost=measure_all),
    "toJSON": Function.of(json_of, cost=measure_all),
    "toJsonMap": lambda *mappings: json_of(merge_maps(*mappings)),
    "toLower": lower,
    "toYaml": Function.of(lambda value: Shaped(to_yaml(value), form="yaml", tree=value), cost=measure_all),
    "valueOrDefault": lambda value, fallback: fallback if value is None or (value == "" and type_name(value) == "string") else value,
}
FUNCTIONS: Final = {**sprig.FUNCTIONS, **{name: Function.of(call) for name, call in _ISTIOS.items()}}
"""Istio's functions by name, and sprig's."""
REFUSED: Final = {name: reason for name, reason in sprig.REFUSED.items() if name not in _ISTIOS}
"""Each function of these that fails when it is called, and why."""
CLASSIC_FUNCTIONS: Final = {
    **FUNCTIONS,
    "applicationPorts": _port_function(skip="istio-proxy", include_udp=True),
    "includeInboundPorts": _port_function(include_udp=True),
}
"""The functions of Istio 1.0 and 1.1, which list UDP and SCTP ports too."""
