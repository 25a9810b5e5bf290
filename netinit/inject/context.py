"""The data of a template: owner, mesh and proxy configuration as Go structs.

Protobuf messages have Go fields, getters that accept nil, and their text and JSON formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.golang.template.literals import quote
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import (
    Enum,
    FunctionError,
    Int32,
    Int64,
    StringMap,
    Struct,
    TypedList,
    TypedMap,
)
from netinit.golang.times import NANOSECONDS
from netinit.inject.kubernetes_types import round_up
from netinit.inject.manifests import PodOwner
from netinit.inject.meshconfig import MeshConfig, ProxyConfig
from netinit.inject.protojson import duration, read_message
from netinit.inject.schema import SCALARS, LazyMapping, MessageField, enum_names, fields_of, go_name, go_type


class Message(Struct):
    """A pointer to a message; nil without a tree. `given`: values of Go fields that replace the tree's."""

    def __init__(self, name: str, tree: Tree | None, given: Mapping[str, Any] | None = None) -> None:
        self.name, self.tree = name, mapping(tree)
        self._given = given or {}
        described = fields_of(name) or {}
        self._by_go_name = {field.go_name: (json_name, field) for json_name, field in described.items()}
        oneofs = {go_name(field.oneof): field.oneof for field in described.values() if field.oneof}
        self._oneofs = oneofs
        names = {go_name(field.oneof) if field.oneof else field.go_name: None for field in described.values()}
        getters = {f"Get{member}": None for member in (*self._by_go_name, *oneofs)}
        super().__init__(
            f"*{go_type(name)}",
            LazyMapping({**names, **self._given}, self._field),
            LazyMapping({**getters, "String": None}, self._method),
            nil=tree is None,
        )

    def go_json(self) -> Any:
        """Return the message in protobuf's JSON."""
        try:
            return None if self.nil else read_message(self.name, self.tree)
        except ConfigError as error:
            raise FunctionError(f"json: {error}") from None

    def _field(self, name: str) -> Any:
        if name in self._given:
            return self._given[name]
        if name in self._oneofs:
            return self._chosen(self._oneofs[name])
        json_name, field = self._by_go_name[name]
        return _value(field.kind, self.tree.get(json_name, self.tree.get(field.proto_name)))

    def _method(self, name: str) -> Callable[[], Any]:
        if name == "String":
            return self._text
        member = name.removeprefix("Get")
        value = self.fields[member] if member in self.fields else self._field(member)
        return lambda: value

    def _chosen(self, oneof: str) -> Any:
        for name, (json_name, field) in self._by_go_name.items():
            if field.oneof == oneof and self.tree.get(json_name) is not None:
                return Struct(f"*{go_type(self.name)}_{name}", {name: self._field(name)})
        return None

    def _text(self) -> str:
        if self.nil:
            return "<nil>"
        written = (self._entry(name, field) for name, (_, field) in self._by_go_name.items())
        return " ".join(entry for entry in written if entry)

    def _entry(self, name: str, field: MessageField) -> str:
        if field.oneof and self.fields[go_name(field.oneof)] is None:
            return ""
        value = self._field(name)
        if isinstance(value, dict):
            pairs = sorted(value.items())
            return " ".join(f"{field.proto_name}:{{key:{quote(key)} value:{_scalar(item)}}}" for key, item in pairs)
        if isinstance(value, list):
            return " ".join(f"{field.proto_name}:{_scalar(item)}" for item in value)
        return f"{field.proto_name}:{_scalar(value)}" if value or field.oneof else ""


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    return f"{{{sprint(value)}}}" if isinstance(value, Struct) else sprint(value)


def _value(kind: str, raw: Any) -> Any:
    """Return a field's value; the type's zero value if it is absent or of another type."""
    if kind in SCALARS:
        return SCALARS[kind](raw)
    if kind == "Duration":
        return _duration(raw)
    if kind.endswith("Value"):  # a wrapper, such as Int32Value
        scalar = SCALARS[kind.removesuffix("Value").lower()]
        return _well_known(f"wrapperspb.{kind}", {"Value": scalar(raw)}, nil=raw is None)
    if kind.startswith("enum:"):
        return _enum(kind[5:], raw)
    if kind.startswith("[]"):
        items = (_value(kind[2:], item) for item in sequence(raw))
        return TypedList(items, go_type=f"[]{_go_kind(kind[2:])}", nil=raw is None)
    if kind == "map:string":
        return StringMap(strings(raw), nil=raw is None)
    if kind.startswith("map:"):
        entries = {key: _value(kind[4:], item) for key, item in mapping(raw).items()}
        return TypedMap(
            entries, go_type=f"map[string]{_go_kind(kind[4:])}", zero=_value(kind[4:], None), nil=raw is None
        )
    if fields_of(kind) is not None:
        return Message(kind, raw if isinstance(raw, dict) else None)
    return Struct("*structpb.Struct", {"Fields": mapping(raw)}, nil=not isinstance(raw, dict))


def _go_kind(kind: str) -> str:
    if kind.startswith("enum:"):
        return go_type(kind[5:])
    return {"double": "float64"}.get(kind, kind) if kind in SCALARS else f"*{go_type(kind)}"


def _enum(name: str, raw: Any) -> Enum:
    names = enum_names(name)
    if isinstance(raw, int):  # a number without a name is printed as it is
        return Enum(raw, names.get(raw, str(raw)), go_type(name))
    number = next((number for number, label in names.items() if label == raw), 0)
    return Enum(number, names[number], go_type(name))


def _well_known(name: str, fields: Mapping[str, Any], *, nil: bool) -> Struct:
    methods: dict[str, Callable[[], Any]] = {f"Get{field}": _constant(value) for field, value in fields.items()}
    text = " ".join(f"{field.lower()}:{sprint(value)}" for field, value in fields.items() if value)
    methods["String"] = lambda: "<nil>" if nil else text
    return Struct(f"*{name}", fields, methods, nil=nil)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _duration(raw: Any) -> Struct:
    total = duration(raw)
    seconds, nanoseconds = divmod(abs(total or 0), NANOSECONDS)
    sign = -1 if (total or 0) < 0 else 1
    fields = {"Seconds": Int64(sign * seconds), "Nanos": Int32(sign * nanoseconds)}
    return _well_known("durationpb.Duration", fields, nil=total is None)


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
