"""The functions that Istio's injection templates call, classic and current, and those of sprig that they use.

They work on what the template sees: pods' metadata and containers as `Struct` values with Go's field names, or as
plain dicts with Kubernetes' names; both are understood everywhere.
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
    """Istio's functions by name, with sprig's below them.

    `environment`: what `env` reads. `proto_changes`: for protoToJSON, the JSON fields of a ProxyConfig that differ
    from the defaults, in the order of its definition; without it the value's own attribute `changed` is taken.
    `otel_resource_attributes`: called with the arguments of otelResourceAttributes (mesh, annotations, labels,
    namespace, containers); without it the text is empty, as it is where no provider asks for the attributes.
    `include_udp`: includeInboundPorts names UDP and SCTP ports, too, as it did in 1.1.
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
    """The part of an object: a struct's field (Name) or the entry of a plain map (name); None where it is missing."""
    if isinstance(item, Struct):
        return item.fields.get(name)
    return item.get(name[:1].lower() + name[1:]) if isinstance(item, dict) else None


def _members(item: Any) -> Sequence[Any]:
    return item if isinstance(item, list | tuple) else ()


def annotation(meta: Any, name: str, fallback: Any) -> str:
    """The annotation where the key is there, even if empty; else the fallback as text."""
    annotations = _part(meta, "Annotations") or {}
    if name in annotations:
        return str(annotations[name])
    return fallback if type(fallback) is str else sprint(fallback)


def is_set(mapping: Any, key: str) -> bool:
    """Whether the key is there, even with an empty value."""
    return isinstance(mapping, dict) and key in mapping


# --- ports ---


def ports_of(containers: Any, *, skip: str = "", include_udp: bool = False) -> str:
    """The container ports, joined by commas; UDP and SCTP are left out, nothing can be intercepted there."""
    found: list[str] = []
    for container in _members(containers):
        if skip and _part(container, "Name") == skip:
            continue
        ports = _members(_part(container, "Ports"))
        wanted = (port for port in ports if include_udp or _part(port, "Protocol") not in _NOT_TCP)
        found.extend(sprint(_part(port, "ContainerPort") or 0) for port in wanted)
    return ",".join(found)


def port_cost(containers: Any) -> int:
    """The steps of listing the ports of these containers."""
    return 1 + sum(1 + len(_members(_part(container, "Ports"))) for container in _members(containers))


def exclude_inbound_port(port: Any, excluded: str) -> str:
    """The list of excluded ports with this one in it; unchanged where it is there, or is "" or 0."""
    wanted = sprint(port).strip() if port is not None else ""
    listed = [item.strip() for item in excluded.split(",") if item.strip()]
    if wanted in ("", "0") or wanted in listed:
        return excluded
    return ",".join([*listed, wanted])


# --- values and text ---


def value_or_default(value: Any, fallback: Any) -> Any:
    """The value, or the fallback where the value is nil or ""; 0 and false stay."""
    return fallback if value is None or value == "" else value


def indent(spaces: int, text: str) -> str:
    """The text with every line but the first pushed to the right."""
    check_size(max(spaces, 0) * (text.count("\n") + 1) + len(text))
    wide = "\n" + " " * max(spaces, 0)
    pushed = text.replace("\n", wide)
    if isinstance(text, Shaped):
        return Shaped(pushed, lead=text.lead.replace("\n", wide), form=text.form, tree=text.tree)
    return pushed


def directory(path: str) -> str:
    """The path up to its last slash, the slash included."""
    return path[: path.rfind("/") + 1]


def string_dict(*pairs: str) -> dict[str, Any]:
    """A map of the keys and values that follow each other."""
    if len(pairs) % 2:
        raise FunctionError("strdict needs a value for every key")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def merge_maps(*mappings: Any) -> dict[str, Any]:
    """A map of all keys; the last map's value wins."""
    merged: dict[str, Any] = {}
    for mapping in mappings:
        merged.update(mapping or {})
    return merged


def omit(mapping: Any, *names: str) -> Any:
    """A map of the same type without these keys."""
    if not isinstance(mapping, dict):
        return mapping
    kept = {name: value for name, value in mapping.items() if name not in names}
    if isinstance(mapping, TypedMap):
        return TypedMap(kept, go_type=mapping.go_type, zero=mapping.zero)
    return kept


def omit_nil(value: Any) -> Any:
    """The value without its nulls; a map or list that becomes empty by that, and was not before, is null itself."""
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
    """The value as JSON, `{}` where it is nil."""
    return "{}" if value is None else Shaped(to_json(value), form="json", tree=value)


def yaml_of(value: Any) -> str:
    """The value as YAML with a line feed at the end."""
    return Shaped(to_yaml(value), form="yaml", tree=value)


def json_map(*mappings: Any) -> str:
    """All maps together as JSON; the last map's value of a key wins."""
    return json_of(merge_maps(*mappings))


def json_value(text: str) -> Any:
    """The value of the JSON text, or the text `{}` where it is none."""
    try:
        return from_json(text)
    except ValueError:
        return "{}"


def struct_to_json(value: Any) -> str:
    """The object as JSON with its fields in Go's order and the empty ones left out; `{}` where it is nil.

    Go always writes the number of a container's port.
    """
    if isinstance(value, dict):
        rest = [name for name in value if name not in _PORT_FIELDS]
        of_port = not rest
        full = {_PORT: 0, **value} if of_port else value
        ordered = {name: full[name] for name in (*_PORT_FIELDS, *rest) if full.get(name) or (of_port and name == _PORT)}
        return Shaped(encode(ordered), form="json", tree=ordered)  # the call's cost has measured it
    return json_of(value)


def _own_changes(value: Any) -> Mapping[str, Any]:
    found = getattr(value, "changed", None)
    if found is None:
        raise FunctionError(f"protoToJSON: a {type_name(value)} does not tell what was changed")
    if not isinstance(found, Mapping):
        raise FunctionError("protoToJSON: the changes of a message are a map of its JSON fields")
    return found


def proto_to_json(value: Any, changes: Callable[[Any], Mapping[str, Any]]) -> str:
    """The message's fields that differ from the defaults as JSON, `{}` where there are none."""
    if value is None:
        return "{}"
    changed = dict(changes(value))
    return Shaped(to_json(changed, sort=False), form="json", tree=changed)


# --- durations ---

_SECONDS: Final = r"(-?)([0-9]{1,12})(?:\.([0-9]+))?s?"


def format_duration(value: Any) -> str:
    """The duration as Go prints it: 45s, 1m0s, 1h0m0s, 500ms.

    Taken are a number of seconds, protobuf's JSON form ("45s") and the message with Seconds and Nanos.
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
    """The value of the annotation k8s.v1.cni.cncf.io/networks with the network in it.

    The annotation is a comma list of [namespace/]name, or a JSON list of objects; a network that is there already is
    not added again. A value with brackets that is no such JSON is left alone: adding to it would not mend it.
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
    """The text, which templates of Istio 1.2 to 1.7 render as a template of its own; one with an action is refused.

    They call it for the names of `global.podDNSSearchNamespaces` alone.
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
