"""The functions of Istio's injection templates, classic and current, and sprig's functions that they use.

Pod metadata and containers may be `Struct` values with Go field names, or plain dicts with Kubernetes' names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from netinit.golang import durations, sprig
from netinit.golang.durations import NANOSECONDS
from netinit.golang.gojson import encode, from_json, to_json
from netinit.golang.goyaml.values import to_yaml
from netinit.golang.sprig.words import lower
from netinit.golang.template.limits import check_size, measure, measure_all, text_cost
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import (
    MAP,
    SLICE,
    STRING,
    Function,
    FunctionError,
    Shaped,
    Struct,
    TypedMap,
    kind_of,
    type_name,
    typed,
)
from netinit.inject.kubernetes_types import ObjectStruct

__all__ = ["functions"]

_NOT_TCP: Final = ("UDP", "SCTP")
_PORT: Final = "containerPort"
_PORT_FIELDS: Final = ("name", "hostPort", "containerPort", "protocol", "hostIP")


def functions(
    *,
    environment: Mapping[str, str] | None = None,
    proto_changes: Callable[[Any], Mapping[str, Any]] | None = None,
    otel_resource_attributes: Callable[..., str] | None = None,
    include_udp: bool = False,
) -> dict[str, Function]:
    """Return Istio's functions by name, and sprig's.

    `environment`: variables for `env`. `proto_changes`: for protoToJSON, returns the JSON fields of a ProxyConfig that
    differ from the defaults, in the order of its definition; by default the value's attribute `changed`.
    `otel_resource_attributes`: implements otelResourceAttributes (mesh, annotations, labels, namespace, containers); by
    default it returns an empty text, as if no provider requests the attributes. `include_udp`: includeInboundPorts
    lists UDP and SCTP ports too, as in 1.1.
    """
    known = dict(environment or {})
    changes = proto_changes or _own_changes

    def env(key: str, fallback: str) -> str:
        return known.get(key, fallback)

    def otel(mesh: Any, annotations: Any, labels: Any, namespace: Any, containers: Any) -> str:
        if otel_resource_attributes is None:
            return ""
        return otel_resource_attributes(mesh, annotations, labels, namespace, containers)

    def inbound_ports(containers: Any) -> str:
        return ports_of(containers, include_udp=include_udp)

    def application_ports(containers: Any) -> str:
        return ports_of(containers, skip="istio-proxy", include_udp=include_udp)

    return {
        **sprig.FUNCTIONS,
        **_FUNCTIONS,
        "applicationPorts": Function(application_ports, (_ANY,), cost=port_cost),
        "env": Function(env, ("string", "string")),
        "includeInboundPorts": Function(inbound_ports, (_ANY,), cost=port_cost),
        "otelResourceAttributes": Function.of(otel),
        "protoToJSON": Function.of(lambda value: proto_to_json(value, changes)),
    }


# --- reading what the template sees ---


def _part(item: Any, name: str) -> Any:
    """Return a struct's field (Name) or a map's entry (name); None if it is missing."""
    if isinstance(item, Struct):
        return item.fields.get(name)
    return item.get(name[:1].lower() + name[1:]) if isinstance(item, dict) else None


def _members(item: Any) -> Sequence[Any]:
    return item if isinstance(item, list | tuple) else ()


def annotation(meta: Any, name: str, fallback: Any) -> str:
    """Return the annotation, even if it is empty; the fallback as text if it is missing."""
    annotations = _part(meta, "Annotations") or {}
    if name in annotations:
        return str(annotations[name])
    return fallback if type(fallback) is str else sprint(fallback)


def is_set(mapping: Any, key: str) -> bool:
    """Whether the key exists, even with an empty value."""
    return isinstance(mapping, dict) and key in mapping


# --- ports ---


def ports_of(containers: Any, *, skip: str = "", include_udp: bool = False) -> str:
    """Return the container ports as a comma list, without UDP and SCTP, which are not intercepted."""
    found: list[str] = []
    for container in _members(containers):
        if skip and _part(container, "Name") == skip:
            continue
        ports = _members(_part(container, "Ports"))
        wanted = (port for port in ports if include_udp or _part(port, "Protocol") not in _NOT_TCP)
        found.extend(sprint(_part(port, "ContainerPort") or 0) for port in wanted)
    return ",".join(found)


def port_cost(containers: Any) -> int:
    """Return the steps to charge for listing the ports of these containers."""
    return 1 + sum(1 + len(_members(_part(container, "Ports"))) for container in _members(containers))


def exclude_inbound_port(port: Any, excluded: str) -> str:
    """Add a port to a list of excluded ports, unless it is in it, or is "" or 0."""
    wanted = sprint(port).strip() if port is not None else ""
    listed = [item.strip() for item in excluded.split(",") if item.strip()]
    if wanted in ("", "0") or wanted in listed:
        return excluded
    return ",".join([*listed, wanted])


# --- values and text ---


def value_or_default(value: Any, fallback: Any) -> Any:
    """Return the value, or the fallback if it is nil or ""; 0 and false are kept."""
    return fallback if value is None or value == "" else value


def indent(spaces: int, text: str) -> str:
    """Indent every line but the first."""
    check_size(max(spaces, 0) * (text.count("\n") + 1) + len(text))
    wide = "\n" + " " * max(spaces, 0)
    pushed = text.replace("\n", wide)
    if isinstance(text, Shaped):
        return Shaped(pushed, lead=text.lead.replace("\n", wide), form=text.form, tree=text.tree)
    return pushed


def directory(path: str) -> str:
    """Return the path up to and including its last slash."""
    return path[: path.rfind("/") + 1]


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
        return TypedMap(kept, go_type=mapping.go_type, zero=mapping.zero)
    return kept


def omit_nil(value: Any) -> Any:
    """Remove nulls; a map or list that becomes empty thereby is removed too."""
    measure(value)
    return _without_nil(value)


def _without_nil(value: Any) -> Any:
    kind = kind_of(value)
    kept: Any
    if kind == MAP and value:
        kept = {
            key: item for key, item in ((key, _without_nil(item)) for key, item in value.items()) if item is not None
        }
        return kept or None
    if kind == SLICE and value:
        kept = [item for item in map(_without_nil, value) if item is not None]
        return kept or None
    return value


# --- JSON and YAML ---


def json_of(value: Any) -> str:
    """Encode the value as JSON; `{}` for nil."""
    return "{}" if value is None else Shaped(to_json(value), form="json", tree=value)


def yaml_of(value: Any) -> str:
    """Encode the value as YAML, with a final line feed."""
    return Shaped(to_yaml(value), form="yaml", tree=value)


def json_map(*mappings: Any) -> str:
    """Merge maps and encode them as JSON; later ones take precedence."""
    return json_of(merge_maps(*mappings))


def json_value(text: str) -> Any:
    """Decode a JSON text; return the text `{}` if it is invalid."""
    try:
        return from_json(text)
    except ValueError:
        return "{}"


def struct_to_json(value: Any) -> str:
    """Encode an object as JSON, without empty fields (except a container's port number), in Go's order; `{}` for nil."""
    if isinstance(value, dict):
        rest = [name for name in value if name not in _PORT_FIELDS]
        of_port = not rest
        full = {_PORT: 0, **value} if of_port else value
        ordered = {name: full[name] for name in (*_PORT_FIELDS, *rest) if full.get(name) or (of_port and name == _PORT)}
        return Shaped(encode(ordered), form="json", tree=ordered)  # its size was checked when the call's cost was computed
    return value.json_text if isinstance(value, ObjectStruct) else json_of(value)


def _own_changes(value: Any) -> Mapping[str, Any]:
    found = getattr(value, "changed", None)
    if found is None:
        raise FunctionError(f"protoToJSON: a {type_name(value)} does not say what was changed")
    if not isinstance(found, Mapping):
        raise FunctionError("protoToJSON: the changes of a message are a map of its JSON fields")
    return found


def proto_to_json(value: Any, changes: Callable[[Any], Mapping[str, Any]]) -> str:
    """Encode the message's fields that differ from the defaults as JSON; `{}` if none do."""
    if value is None:
        return "{}"
    changed = dict(changes(value))
    return Shaped(to_json(changed, sort=False), form="json", tree=changed)


# --- durations ---

_SECONDS: Final = r"(-?)([0-9]{1,12})(?:\.([0-9]+))?s?"


def format_duration(value: Any) -> str:
    """Format a duration as Go does: 45s, 1m0s, 1h0m0s, 500ms.

    Accepts a number of seconds, protobuf's JSON form ("45s") and a message with Seconds and Nanos.
    """
    return durations.format_duration(_nanoseconds(value))


def _nanoseconds(value: Any) -> int:
    if isinstance(value, Struct):
        return int(_part(value, "Seconds") or 0) * NANOSECONDS + int(_part(value, "Nanos") or 0)
    if value is None:
        return 0
    if kind_of(value) == STRING:
        found = re.fullmatch(_SECONDS, value)
        if found is None:
            raise FunctionError(f"invalid duration {json.dumps(value)}")
        nanoseconds = int(found[2]) * NANOSECONDS + int((found[3] or "0")[:9].ljust(9, "0"))
        return -nanoseconds if found[1] else nanoseconds
    if isinstance(value, int | float):
        return round(value * NANOSECONDS)
    raise FunctionError(f"invalid duration of type {type_name(value)}")


# --- Multus ---


def append_multus_network(existing: str, network: str) -> str:
    """Add a network to the value of the annotation k8s.v1.cni.cncf.io/networks, unless it is listed.

    The value is a comma list of [namespace/]name, or a JSON list of objects. Invalid JSON is returned unchanged.
    """
    if not existing:
        return network
    if "]" in existing:
        return _append_json_network(existing, network)
    listed = [item.strip() for item in existing.split(",")]
    return existing if network in listed else f"{existing}, {network}"


def _append_json_network(existing: str, network: str) -> str:
    namespace, _, name = network.rpartition("/")
    wanted = {"name": name, **({"namespace": namespace} if namespace else {})}
    try:
        present = json.loads(existing)
    except (ValueError, RecursionError):
        return existing
    if not isinstance(present, list) or not all(isinstance(item, dict) for item in present):
        return existing
    if any(item.get("name") == name and (item.get("namespace") or "") == namespace for item in present):
        return existing
    end = existing.rfind("]")
    comma = ", " if present else ""
    return f"{existing[:end]}{comma}{json.dumps(wanted)}{existing[end:]}"


def _identity(text: str) -> str:
    return text


def render(text: str) -> str:
    """Return the text unchanged; a text with a template action is rejected.

    Templates of Istio 1.2 to 1.7 render the names in `global.podDNSSearchNamespaces` as templates.
    """
    if "{{" in text:
        raise FunctionError(f"render: {json.dumps(text)} has an action; write the name that it stands for into the values")
    return text


_ANY: Final = "interface {}"
_TEXT: Final = "string"

_CALLS: Final[dict[str, Callable[..., Any] | Function]] = {
    "annotation": typed(annotation, _ANY, _TEXT, _ANY),
    "appendMultusNetwork": typed(append_multus_network, _TEXT, _TEXT, cost=text_cost),
    "directory": typed(directory, _TEXT),
    "excludeInboundPort": typed(exclude_inbound_port, _ANY, _TEXT, cost=text_cost),
    "excludeInterfaces": typed(_identity, _TEXT),
    "formatDuration": format_duration,
    "fromJSON": typed(json_value, _TEXT, cost=text_cost),
    "indent": typed(indent, "int", _TEXT),
    "isset": typed(is_set, _ANY, _TEXT),
    "kubevirtInterfaces": typed(_identity, _TEXT),
    "mergeMaps": merge_maps,
    "omit": typed(omit, _ANY, variadic=_TEXT),
    "omitNil": typed(omit_nil, _ANY, cost=measure_all),
    "render": typed(render, _TEXT),
    "strdict": typed(string_dict, variadic=_TEXT),
    "structToJSON": typed(struct_to_json, _ANY, cost=measure_all),
    "toJSON": typed(json_of, _ANY, cost=measure_all),
    "toJsonMap": json_map,
    "toLower": typed(lower, _TEXT),
    "toYaml": typed(yaml_of, _ANY, cost=measure_all),
    "valueOrDefault": value_or_default,
}
_FUNCTIONS: Final = {name: Function.of(call) for name, call in _CALLS.items()}
