"""MeshConfig and ProxyConfig: Istio's defaults, the user's YAML over them, and how templates see the result.

Field names are those of the YAML. Unknown fields are kept and ignored, as newer meshes have some that we do not know.
A ProxyConfig given for a pod replaces fields whole; only proxyMetadata is merged, as Istio documents it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from netinit.base.errors import ConfigError, InjectionError, ParseError
from netinit.base.records import Record
from netinit.golang import goyaml
from netinit.golang.tree import Tree, clone, mapping, shown, string

__all__ = [
    "CLASSIC_PROXY",
    "CURRENT_PROXY",
    "ENUMS",
    "PROXY_FIELDS",
    "MeshConfig",
    "ProxyConfig",
    "check_proxy_config",
    "seconds",
]

CURRENT_PROXY: Mapping[str, Any] = {
    "configPath": "./etc/istio/proxy",
    "binaryPath": "/usr/local/bin/envoy",
    "serviceCluster": "istio-proxy",
    "drainDuration": "45s",
    "terminationDrainDuration": "5s",
    "discoveryAddress": "istiod.istio-system.svc:15012",
    "proxyAdminPort": 15000,
    "controlPlaneAuthPolicy": "MUTUAL_TLS",
    "statNameLength": 189,
    "statusPort": 15020,
    "interceptionMode": "REDIRECT",
}
CLASSIC_PROXY: Mapping[str, Any] = {
    "configPath": "/etc/istio/proxy",
    "binaryPath": "/usr/local/bin/envoy",
    "serviceCluster": "istio-proxy",
    "drainDuration": "2s",
    "parentShutdownDuration": "3s",
    "discoveryAddress": "istio-pilot:15007",
    "discoveryRefreshDelay": "1s",
    "connectTimeout": "1s",
    "proxyAdminPort": 15000,
    "controlPlaneAuthPolicy": "NONE",
    "statNameLength": 189,
    "statusPort": 15020,
    "interceptionMode": "REDIRECT",
}
_CURRENT_MESH: Mapping[str, Any] = {
    "proxyListenPort": 15001,
    "proxyInboundListenPort": 15006,
    "trustDomain": "cluster.local",
    "rootNamespace": "istio-system",
    "enablePrometheusMerge": True,
    "inboundTrafficPolicy": {"mode": "PASSTHROUGH"},
    "connectTimeout": "10s",
}
_CLASSIC_MESH: Mapping[str, Any] = {**_CURRENT_MESH, "connectTimeout": "1s"}

PROXY_FIELDS: Mapping[str, str] = {
    "configPath": "string",
    "binaryPath": "string",
    "serviceCluster": "string",
    "tracingServiceName": "enum",
    "drainDuration": "duration",
    "parentShutdownDuration": "duration",
    "discoveryAddress": "string",
    "discoveryRefreshDelay": "duration",
    "zipkinAddress": "string",
    "connectTimeout": "duration",
    "statsdUdpAddress": "string",
    "envoyMetricsServiceAddress": "string",
    "proxyAdminPort": "int32",
    "availabilityZone": "string",
    "controlPlaneAuthPolicy": "enum",
    "customConfigFile": "string",
    "statNameLength": "int32",
    "concurrency": "Int32Value",
    "proxyBootstrapTemplatePath": "string",
    "interceptionMode": "enum",
    "tracing": "message",
    "sds": "message",
    "envoyAccessLogService": "message",
    "envoyMetricsService": "message",
    "proxyMetadata": "strings",
    "runtimeValues": "strings",
    "statusPort": "int32",
    "extraStatTags": "list",
    "gatewayTopology": "message",
    "terminationDrainDuration": "duration",
    "meshId": "string",
    "readinessProbe": "message",
    "proxyStatsMatcher": "message",
    "holdApplicationUntilProxyStarts": "BoolValue",
    "caCertificatesPem": "list",
    "image": "message",
    "privateKeyProvider": "message",
    "proxyHeaders": "message",
    "fileFlushInterval": "duration",
    "fileFlushMinSizeKb": "UInt32Value",
}
"""The fields of a ProxyConfig in protobuf's order, which is the order of its JSON, and their types."""
ENUMS: Mapping[str, tuple[str, ...]] = {
    "tracingServiceName": ("APP_LABEL_AND_NAMESPACE", "CANONICAL_NAME_ONLY", "CANONICAL_NAME_AND_NAMESPACE"),
    "controlPlaneAuthPolicy": ("NONE", "MUTUAL_TLS"),
    "interceptionMode": ("REDIRECT", "TPROXY", "NONE"),
}

_DURATION = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float | None:
    """The seconds of a duration as Go writes it (`45s`, `1m30s`, `1.5h`), None for anything else."""
    rest = text.removeprefix("-")
    if rest == "0":
        return 0.0
    total, position = 0.0, 0
    while part := re.compile(_DURATION).match(rest, position):
        total += float(part[0].removesuffix(part[1])) * _UNITS[part[1]]
        position = part.end()
    if not rest or position != len(rest):
        return None
    return -total if text.startswith("-") else total


def _number(value: Any) -> int | None:
    """The int32 of a number or of its digits, as protobuf's JSON takes both."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,10}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        return None
    return value


def _is_string_map(value: Any) -> bool:
    return isinstance(value, dict) and not any(isinstance(item, (dict, list)) for item in value.values())


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "string": (lambda value: isinstance(value, str), "must be a string"),
    "duration": (lambda value: isinstance(value, str) and seconds(value) is not None, "is no duration such as 1m30s"),
    "int32": (lambda value: _number(value) is not None, "must be a whole number"),
    "BoolValue": (lambda value: isinstance(value, bool), "must be true or false"),
    "strings": (_is_string_map, "must be a map of strings"),
    "message": (lambda value: isinstance(value, dict), "must be a mapping"),
    "list": (lambda value: isinstance(value, list), "must be a list"),
}
_TYPES |= dict.fromkeys(("Int32Value", "UInt32Value"), _TYPES["int32"])


def _problem(name: str, kind: str, value: Any) -> str | None:
    """What is wrong with one field, or None."""
    if kind == "enum":
        good = value in ENUMS[name] if isinstance(value, str) else _number(value) is not None
        wanted = f"must be one of {', '.join(ENUMS[name])}"
    else:
        test, wanted = _TYPES[kind]
        good = test(value)
    return None if good else f"{name}: {goyaml.dump(value).strip()[:60]} {wanted}"


def check_proxy_config(tree: Tree) -> str | None:
    """What is wrong with the fields of a ProxyConfig, or None; unknown fields are not judged."""
    found = [
        problem
        for name, kind in PROXY_FIELDS.items()
        if tree.get(name) is not None and (problem := _problem(name, kind, tree[name])) is not None
    ]
    return "; ".join(found) or None


def _typed(name: str, kind: str, value: Any) -> Any:
    """A checked value in one form: numbers as int, enums as their name, maps of strings."""
    if kind in {"int32", "Int32Value", "UInt32Value"}:
        return _number(value)
    if kind == "enum" and not isinstance(value, str):
        names = ENUMS[name]
        number = _number(value) or 0
        return names[number] if 0 <= number < len(names) else names[0]
    if kind == "strings":
        return {key: string(item) for key, item in sorted(value.items())}
    return clone(value)


class ProxyConfig(Record):
    """The effective ProxyConfig of a pod: `fields` with everything that is set, `defaults` of its release line."""

    fields: Tree
    defaults: Mapping[str, Any]

    def overlaid(self, tree: Tree) -> ProxyConfig:
        """The configuration with the fields of another over it; null fields keep what was. Raises ConfigError."""
        if problem := check_proxy_config(tree):
            raise ConfigError(f"ProxyConfig: {problem}")
        fields = dict(self.fields)
        for name, value in tree.items():
            if value is None:
                continue
            kind = PROXY_FIELDS.get(name)
            typed = _typed(name, kind, value) if kind else clone(value)
            merged = {**mapping(fields.get(name)), **typed} if name == "proxyMetadata" else typed
            fields[name] = dict(sorted(merged.items())) if kind == "strings" else merged
        return ProxyConfig(fields=fields, defaults=self.defaults)

    def with_annotation(self, text: str) -> ProxyConfig:
        """The configuration with that of the annotation `proxy.istio.io/config` over it. Raises InjectionError."""
        try:
            return self.overlaid(mapping(goyaml.load(text)))
        except (ParseError, ConfigError) as error:
            raise InjectionError(
                f"invalid value {shown(text)} for annotation 'proxy.istio.io/config': {error}"
            ) from error

    def changed(self) -> Tree:
        """The known fields that differ from the defaults, in protobuf's order."""
        return {
            name: self.fields[name]
            for name in PROXY_FIELDS
            if name in self.fields and self.fields[name] != self.defaults.get(name)
        }

    @property
    def status_port(self) -> int:
        """The port on which the agent answers probes and metrics."""
        return int(self.fields.get("statusPort") or 0)

    @property
    def interception_mode(self) -> str:
        """REDIRECT, TPROXY or NONE."""
        return str(self.fields["interceptionMode"])

    @property
    def holds_application(self) -> bool:
        """Whether the application starts after the proxy is ready."""
        return self.fields.get("holdApplicationUntilProxyStarts") is True

    @property
    def image_type(self) -> str:
        """The type of the proxy's image (`debug`, `distroless`, `default`), empty when unset."""
        return string(mapping(self.fields.get("image")).get("imageType"))


class MeshConfig(Record):
    """The effective MeshConfig: `fields` over the defaults of its release line, and its ProxyConfig."""

    fields: Tree
    proxy: ProxyConfig
    classic: bool = False

    @classmethod
    def of(cls, tree: Tree | None = None, *, classic: bool = False) -> MeshConfig:
        """The mesh of a tree (null for none). Raises ConfigError for a field of the wrong type."""
        tree = mapping(tree)
        if "defaultConfig" in tree and not isinstance(tree["defaultConfig"], (dict, type(None))):
            raise ConfigError(f"mesh: defaultConfig must be a mapping, not {shown(tree['defaultConfig'])}")
        defaults = CLASSIC_PROXY if classic else CURRENT_PROXY
        fields: Tree = dict(_CLASSIC_MESH if classic else _CURRENT_MESH)
        for name, value in tree.items():
            if value is None or name == "defaultConfig":
                continue
            both = isinstance(value, dict) and isinstance(fields.get(name), dict)
            fields[name] = {**fields[name], **clone(value)} if both else clone(value)
        for name in ("proxyListenPort", "proxyInboundListenPort"):
            if _number(fields[name]) is None:
                raise ConfigError(f"mesh: {name}: {shown(fields[name])} must be a port")
            fields[name] = _number(fields[name])
        proxy = ProxyConfig(fields=dict(defaults), defaults=defaults)
        try:
            proxy = proxy.overlaid(mapping(tree.get("defaultConfig")))
        except ConfigError as error:
            raise ConfigError(f"mesh: defaultConfig: {error}") from error
        return cls(fields=fields, proxy=proxy, classic=classic)

    @classmethod
    def load(cls, text: str, *, classic: bool = False) -> MeshConfig:
        """The mesh of a YAML text (the key `mesh` of the ConfigMap `istio`). Raises ConfigError."""
        try:
            tree = goyaml.load(text)
        except ParseError as error:
            raise ConfigError(f"mesh: {error}") from error
        if tree is not None and not isinstance(tree, dict):
            raise ConfigError("mesh: the configuration must be a mapping such as `defaultConfig: {…}`")
        if isinstance(tree, dict) and tree.get("kind") == "ConfigMap":
            return cls.load(string(mapping(tree.get("data")).get("mesh")), classic=classic)
        return cls.of(tree, classic=classic)

    @property
    def prometheus_merge(self) -> bool:
        """Whether the pod's metrics are merged with the proxy's."""
        return self.fields.get("enablePrometheusMerge") is not False

    @property
    def inbound_policy(self) -> str:
        """`passthrough` or `localhost`: where the proxy delivers inbound connections."""
        mode = string(mapping(self.fields.get("inboundTrafficPolicy")).get("mode"))
        return "localhost" if mode == "LOCALHOST" else "passthrough"
