"""What a template sees: the pod, its owner, the mesh and the values as Go structs and maps.

A template names Go fields (`.Spec.ServiceAccountName`), not those of the YAML. The tables below map them; a field that
is absent has Go's zero value, and one that no table knows is an error of the template, as in Go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.golang.template.values import Enum, Int32, Int64, StringMap, Struct, TypedList, Uint32
from netinit.inject.meshconfig import ENUMS, PROXY_FIELDS, MeshConfig, ProxyConfig, seconds
from netinit.inject.owner import PodOwner

__all__ = ["TRUSTED", "ProxyStruct", "mesh_struct", "metadata_struct", "owner_structs", "proxy_struct", "spec_struct"]

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
"""The fields of a template's data that are the operator's; DefaultConfig holds what a pod's annotation says."""

_Table = Mapping[str, tuple[str, str]]
"""Go's field name: the YAML's field name and the type."""


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def _int32(value: Any) -> Int32:
    return Int32(_whole(value))


def _int64_pointer(value: Any) -> Int64 | None:
    return None if value is None else Int64(_whole(value))


def _bool_pointer(value: Any) -> bool | None:
    return None if value is None else value is True


def _list_of_strings(value: Any) -> TypedList:
    return TypedList((string(item) for item in sequence(value)), go_type="[]string")


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "string": string,
    "int32": _int32,
    "bool": lambda value: value is True,
    "*int64": _int64_pointer,
    "*bool": _bool_pointer,
    "strings": lambda value: StringMap(strings(value)),
    "[]string": _list_of_strings,
    "any": lambda value: value,
}

_METADATA: _Table = {
    "Name": ("name", "string"),
    "GenerateName": ("generateName", "string"),
    "Namespace": ("namespace", "string"),
    "UID": ("uid", "string"),
    "Labels": ("labels", "strings"),
    "Annotations": ("annotations", "strings"),
}
_PORT: _Table = {
    "Name": ("name", "string"),
    "HostPort": ("hostPort", "int32"),
    "ContainerPort": ("containerPort", "int32"),
    "Protocol": ("protocol", "string"),
    "HostIP": ("hostIP", "string"),
}
_VARIABLE: _Table = {"Name": ("name", "string"), "Value": ("value", "string"), "ValueFrom": ("valueFrom", "any")}
_MOUNT: _Table = {
    "Name": ("name", "string"),
    "ReadOnly": ("readOnly", "bool"),
    "MountPath": ("mountPath", "string"),
    "SubPath": ("subPath", "string"),
}
_SECURITY: _Table = {
    "Privileged": ("privileged", "*bool"),
    "RunAsUser": ("runAsUser", "*int64"),
    "RunAsGroup": ("runAsGroup", "*int64"),
    "RunAsNonRoot": ("runAsNonRoot", "*bool"),
    "ReadOnlyRootFilesystem": ("readOnlyRootFilesystem", "*bool"),
    "AllowPrivilegeEscalation": ("allowPrivilegeEscalation", "*bool"),
}
_POD_SECURITY: _Table = {
    "RunAsUser": ("runAsUser", "*int64"),
    "RunAsGroup": ("runAsGroup", "*int64"),
    "RunAsNonRoot": ("runAsNonRoot", "*bool"),
    "FSGroup": ("fsGroup", "*int64"),
}
_CONTAINER: _Table = {
    "Name": ("name", "string"),
    "Image": ("image", "string"),
    "Command": ("command", "[]string"),
    "Args": ("args", "[]string"),
    "WorkingDir": ("workingDir", "string"),
    "ImagePullPolicy": ("imagePullPolicy", "string"),
    "RestartPolicy": ("restartPolicy", "string"),
    "Resources": ("resources", "any"),
    "LivenessProbe": ("livenessProbe", "any"),
    "ReadinessProbe": ("readinessProbe", "any"),
    "StartupProbe": ("startupProbe", "any"),
    "Lifecycle": ("lifecycle", "any"),
}
_NAMED: _Table = {"Name": ("name", "string")}
_SPEC: _Table = {
    "RestartPolicy": ("restartPolicy", "string"),
    "TerminationGracePeriodSeconds": ("terminationGracePeriodSeconds", "*int64"),
    "ActiveDeadlineSeconds": ("activeDeadlineSeconds", "*int64"),
    "DNSPolicy": ("dnsPolicy", "string"),
    "DNSConfig": ("dnsConfig", "any"),
    "NodeSelector": ("nodeSelector", "strings"),
    "ServiceAccountName": ("serviceAccountName", "string"),
    "DeprecatedServiceAccount": ("serviceAccount", "string"),
    "AutomountServiceAccountToken": ("automountServiceAccountToken", "*bool"),
    "NodeName": ("nodeName", "string"),
    "HostNetwork": ("hostNetwork", "bool"),
    "HostPID": ("hostPID", "bool"),
    "HostIPC": ("hostIPC", "bool"),
    "HostUsers": ("hostUsers", "*bool"),
    "ShareProcessNamespace": ("shareProcessNamespace", "*bool"),
    "Hostname": ("hostname", "string"),
    "Subdomain": ("subdomain", "string"),
    "SchedulerName": ("schedulerName", "string"),
    "PriorityClassName": ("priorityClassName", "string"),
    "RuntimeClassName": ("runtimeClassName", "string"),
    "Tolerations": ("tolerations", "any"),
    "Affinity": ("affinity", "any"),
    "HostAliases": ("hostAliases", "any"),
}


def _fields(table: _Table, tree: Tree) -> dict[str, Any]:
    return {go: _CONVERT[kind](tree.get(name)) for go, (name, kind) in table.items()}


def _structs(go_type: str, table: _Table, items: Any) -> TypedList:
    made = (Struct(go_type, _fields(table, item)) for item in sequence(items) if isinstance(item, dict))
    return TypedList(made, go_type=f"[]{go_type}")


def _optional(go_type: str, table: _Table, tree: Any) -> Struct:
    """A pointer to a struct, nil where the YAML has none."""
    return Struct(f"*{go_type}", _fields(table, mapping(tree)), nil=not isinstance(tree, dict))


def _container(tree: Tree) -> Struct:
    fields = _fields(_CONTAINER, tree)
    fields["Ports"] = _structs("v1.ContainerPort", _PORT, tree.get("ports"))
    fields["Env"] = _structs("v1.EnvVar", _VARIABLE, tree.get("env"))
    fields["VolumeMounts"] = _structs("v1.VolumeMount", _MOUNT, tree.get("volumeMounts"))
    fields["SecurityContext"] = _optional("v1.SecurityContext", _SECURITY, tree.get("securityContext"))
    return Struct("v1.Container", fields)


def _containers(items: Any) -> TypedList:
    made = (_container(item) for item in sequence(items) if isinstance(item, dict))
    return TypedList(made, go_type="[]v1.Container")


def metadata_struct(metadata: Tree) -> Struct:
    """The pod's ObjectMeta, a pointer as Istio passes it."""
    return Struct("*v1.ObjectMeta", _fields(_METADATA, metadata))


def spec_struct(spec: Tree) -> Struct:
    """The pod's PodSpec, a pointer as Istio passes it."""
    fields = _fields(_SPEC, spec)
    fields["Containers"] = _containers(spec.get("containers"))
    fields["InitContainers"] = _containers(spec.get("initContainers"))
    fields["Volumes"] = _structs("v1.Volume", _NAMED, spec.get("volumes"))
    fields["ImagePullSecrets"] = _structs("v1.LocalObjectReference", _NAMED, spec.get("imagePullSecrets"))
    fields["SecurityContext"] = _optional("v1.PodSecurityContext", _POD_SECURITY, spec.get("securityContext"))
    return Struct("*v1.PodSpec", fields)


def owner_structs(owner: PodOwner) -> tuple[Struct, Struct]:
    """The workload as DeploymentMeta and TypeMeta."""
    return (
        Struct("types.NamespacedName", {"Name": owner.name, "Namespace": owner.namespace}),
        Struct("v1.TypeMeta", {"Kind": owner.kind, "APIVersion": owner.api_version}),
    )


class ProxyStruct(Struct):
    """A ProxyConfig that knows which of its fields differ from the defaults, for protoToJSON."""

    def __init__(self, config: ProxyConfig, fields: Mapping[str, Any]) -> None:
        methods = {f"Get{name}": _constant(value) for name, value in fields.items()}
        super().__init__("*v1alpha1.ProxyConfig", fields, methods)
        self.changed = config.changed()


def _exported(name: str) -> str:
    return name[:1].upper() + name[1:]


def _wrapper(go_type: str, value: Any, zero: Any) -> Struct:
    """A protobuf wrapper (a pointer), whose GetValue works on nil too."""
    present = value is not None
    inner = value if present else zero
    return Struct(f"*wrapperspb.{go_type}", {"Value": inner}, {"GetValue": lambda: inner}, nil=not present)


def _duration(text: Any) -> Struct:
    """A protobuf duration (a pointer) with its seconds and nanoseconds."""
    total = seconds(text) if isinstance(text, str) else None
    whole = int(total or 0)
    fields = {"Seconds": Int64(whole), "Nanos": Int32(round(((total or 0) - whole) * 1e9))}
    return Struct("*durationpb.Duration", fields, nil=total is None)


def _message(go_type: str, tree: Any) -> Struct:
    """A protobuf message of which templates ask little: its fields, capitalised, and getters for them."""
    present = isinstance(tree, dict)
    fields: dict[str, Any] = {}
    methods: dict[str, Callable[..., Any]] = {}
    known = {"tlsSettings": {"caCertificates": ""}} if go_type.endswith("Tracing") else {}
    for name, value in {**known, **mapping(tree)}.items():
        nested = name in known and name not in mapping(tree)
        if isinstance(value, dict):
            made: Any = _tls(None if nested else value) if name == "tlsSettings" else _message(_exported(name), value)
        else:
            made = value
        fields[_exported(name)] = made
        methods["Get" + _exported(name)] = _constant(made)
    return Struct(f"*v1alpha1.{go_type.removeprefix('*')}", fields, methods, nil=not present)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _tls(tree: Tree | None) -> Struct:
    certificates = string(mapping(tree).get("caCertificates"))
    fields = {"CaCertificates": certificates, "Mode": string(mapping(tree).get("mode"))}
    return Struct("*v1alpha3.ClientTLSSettings", fields, {"GetCaCertificates": lambda: certificates}, nil=tree is None)


_PROXY_CONVERT: dict[str, Callable[[Any], Any]] = {
    "string": string,
    "int32": _int32,
    "duration": _duration,
    "strings": lambda value: StringMap(strings(value)),
    "Int32Value": lambda value: _wrapper("Int32Value", None if value is None else Int32(value), Int32(0)),
    "UInt32Value": lambda value: _wrapper("UInt32Value", None if value is None else Uint32(value), Uint32(0)),
    "BoolValue": lambda value: _wrapper("BoolValue", value, zero=False),
    "list": _list_of_strings,
}


def _proxy_field(name: str, kind: str, value: Any, *, classic: bool) -> Any:
    if kind == "enum":
        names = ENUMS[name]
        if isinstance(value, int):  # a number without a name, which Go prints as it is
            return Enum(value, str(value), f"v1alpha1.{_exported(name)}")
        label = value if value in names else names[0]
        return Enum(names.index(label), label, f"v1alpha1.{_exported(name)}")
    if kind == "Int32Value" and classic:
        return Int32(value or 0)
    if kind == "message":
        return _message(_exported(name), value)
    return _PROXY_CONVERT[kind](value)


def proxy_struct(config: ProxyConfig, *, classic: bool) -> ProxyStruct:
    """The ProxyConfig, with the getters of its Go type."""
    fields = {
        _exported(name): _proxy_field(name, kind, config.fields.get(name), classic=classic)
        for name, kind in PROXY_FIELDS.items()
    }
    return ProxyStruct(config, fields)


_MESH_STRINGS = ("trustDomain", "rootNamespace", "ingressClass", "ingressService", "authPolicy", "sdsUdsPath")


def mesh_struct(mesh: MeshConfig, proxy: ProxyStruct) -> Struct:
    """The MeshConfig, a pointer as Istio passes it."""
    fields: dict[str, Any] = {_exported(name): string(mesh.fields.get(name)) for name in _MESH_STRINGS}
    fields |= {
        "ProxyListenPort": Int32(mesh.fields["proxyListenPort"]),
        "ProxyInboundListenPort": Int32(mesh.fields["proxyInboundListenPort"]),
        "ConnectTimeout": _duration(mesh.fields.get("connectTimeout")),
        "EnablePrometheusMerge": _wrapper("BoolValue", mesh.fields.get("enablePrometheusMerge"), zero=False),
        "DefaultConfig": proxy,
        "ExtensionProviders": sequence(mesh.fields.get("extensionProviders")),
        "MeshMTLS": mesh.fields.get("meshMTLS"),
        "EnableTracing": mesh.fields.get("enableTracing") is True,
        "TrustDomainAliases": _list_of_strings(mesh.fields.get("trustDomainAliases")),
    }
    return Struct("*v1alpha1.MeshConfig", fields, {f"Get{name}": _constant(value) for name, value in fields.items()})
